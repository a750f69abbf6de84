"""Recurrent layers beside a plain reading of the standard in NumPy, with every attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.operators.recurrences import KINDS, Layer, recurrent
from perfdojo_sdk.graph.refusals import Malformed, Refused
from perfdojo_sdk.graph.running import run_graph

Array = np.ndarray[Any, Any]
TIME, BATCH, SIZE, HIDDEN = 4, 3, 2, 3


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def reference(layer: Layer, x: Array, w: Array, r: Array, b: Array, lengths: Array, h: Array, c: Array,
              p: Array) -> tuple[Array, Array, Array]:  # fmt: skip
    """One direction: a batch at a time, each for as many steps as it has."""
    gates, clip = KINDS[layer.kind][0], layer.clip or np.inf
    wb, rb = b[: gates * HIDDEN], b[gates * HIDDEN :]
    y, h, c = np.zeros((TIME, BATCH, HIDDEN)), h.copy(), c.copy()

    def bounded(value: Array) -> Array:
        return np.clip(value, -clip, clip)

    for n in range(BATCH):
        for t in range(int(lengths[n])):
            old = h[n]
            into, state = np.split(w @ x[t, n] + wb, gates), np.split(r @ old + rb, gates)
            if layer.kind == "RNN":
                h[n] = np.tanh(bounded(into[0] + state[0]))
            elif layer.kind == "GRU":
                z, u = (sigmoid(bounded(into[k] + state[k])) for k in range(2))
                inner = u * state[2]
                if not layer.linear_before_reset:
                    inner = r[2 * HIDDEN :] @ (u * old) + rb[2 * HIDDEN :]
                h[n] = (1 - z) * np.tanh(bounded(into[2] + inner)) + z * old
            else:
                pi, po, pf = np.split(p, 3)
                i = sigmoid(bounded(into[0] + state[0] + pi * c[n]))
                f = 1 - i if layer.input_forget else sigmoid(bounded(into[2] + state[2] + pf * c[n]))
                c[n] = f * c[n] + i * np.tanh(bounded(into[3] + state[3]))
                o = sigmoid(bounded(into[1] + state[1] + po * c[n]))
                h[n] = o * np.tanh(bounded(c[n]))
            y[t, n] = h[n]
    return y, h, c


def turned(x: Array, lengths: Array) -> Array:
    found = x.copy()
    for n, length in enumerate(lengths):
        found[:length, n] = x[:length, n][::-1]
    return found


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    "layer",
    [
        Layer("RNN"),
        Layer("GRU", clip=0.3),
        Layer("GRU", linear_before_reset=True),
        Layer("LSTM"),
        Layer("LSTM", clip=0.4, input_forget=True),
    ],
    ids=str,
)
def test_each_attribute_means_what_the_standard_says(layer: Layer, direction: str) -> None:
    layer = Layer(**{**layer.__dict__, "direction": direction})
    rng, count, gates = np.random.default_rng(0), layer.directions, KINDS[layer.kind][0]
    shapes = {"x": (TIME, BATCH, SIZE), "w": (count, gates * HIDDEN, SIZE),
              "r": (count, gates * HIDDEN, HIDDEN), "b": (count, 2 * gates * HIDDEN),
              "h": (count, BATCH, HIDDEN), "c": (count, BATCH, HIDDEN), "p": (count, 3 * HIDDEN)}  # fmt: skip
    given: dict[str, Array] = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    given["n"] = np.array([4, 1, 3], np.int32)
    builder = Builder()
    v = {name: builder.input(name, a.shape, "i32" if name == "n" else "f64") for name, a in given.items()}
    cell = layer.kind == "LSTM"
    states, looks = (v["h"], v["c"] if cell else None), v["p"] if cell else None
    made = recurrent(builder, layer, v["x"], v["w"], v["r"], v["b"], v["n"], states, looks)
    graph = builder.graph({f"o{k}": value for k, value in enumerate(made) if value is not None})
    found = run_graph(graph, given)
    for k in range(count):
        backward = direction == "reverse" or k == 1
        x = turned(given["x"], given["n"]) if backward else given["x"]
        parts = [given[name][k] for name in "wrb"]
        y, h, c = reference(layer, x, *parts, given["n"], given["h"][k], given["c"][k], given["p"][k])
        y = turned(y, given["n"]) if backward else y
        for mine, theirs in zip(found, (y, h, c), strict=False):
            mine = mine[:, k] if mine.ndim == 4 else mine[k]
            assert np.allclose(mine, theirs, rtol=1e-12, atol=1e-12)


def test_a_layer_that_the_standard_does_not_know_is_refused() -> None:
    b = Builder()
    x, w, r = b.input("x", (4, 3, 2), "f32"), b.input("w", (1, 3, 2), "f32"), b.input("r", (1, 3, 3), "f32")
    with pytest.raises(Refused, match="activation"):
        recurrent(b, Layer("RNN", activations=("swish",)), x, w, r)
    for wrong in (Layer("RNN", "sideways"), Layer("GRU"), Layer("RNN", "bidirectional")):
        with pytest.raises(Malformed):
            recurrent(b, wrong, x, w, r)
