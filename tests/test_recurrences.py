"""Recurrent layers beside a plain reading of the standard in NumPy, with every attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.operators import recurrent
from perfdojo_sdk.graph.operators.recurrent import Layer
from perfdojo_sdk.graph.refusals import Malformed, Refused
from perfdojo_sdk.graph.running import run_graph

Array = np.ndarray[Any, Any]
TIME, BATCH, SIZE, HIDDEN = 4, 3, 2, 3
#: Kind of layer -> its rule, its number of gates and its activations.
KINDS: dict[str, tuple[Any, int, list[str]]] = {
    "rnn": (recurrent.rnn, 1, ["tanh"]),
    "gru": (recurrent.gru, 3, ["sigmoid", "tanh"]),
    "lstm": (recurrent.lstm, 4, ["sigmoid", "tanh", "tanh"]),
}
REVERSED = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def reference(kind: str, clip: float, coupled: bool, after: bool, x: Array, w: Array, r: Array, b: Array,
              lengths: Array, h: Array, c: Array, p: Array) -> tuple[Array, Array, Array]:  # fmt: skip
    """One direction: a batch at a time, each for as many steps as it has."""
    gates = KINDS[kind][1]
    wb, rb = b[: gates * HIDDEN], b[gates * HIDDEN :]
    y, h, c = np.zeros((TIME, BATCH, HIDDEN)), h.copy(), c.copy()

    def bounded(value: Array) -> Array:
        return np.clip(value, -clip, clip)

    for n in range(BATCH):
        for t in range(int(lengths[n])):
            old = h[n]
            into, state = np.split(w @ x[t, n] + wb, gates), np.split(r @ old + rb, gates)
            if kind == "rnn":
                h[n] = np.tanh(bounded(into[0] + state[0]))
            elif kind == "gru":
                z, u = (sigmoid(bounded(into[k] + state[k])) for k in range(2))
                inner = u * state[2] if after else r[2 * HIDDEN :] @ (u * old) + rb[2 * HIDDEN :]
                h[n] = (1 - z) * np.tanh(bounded(into[2] + inner)) + z * old
            else:
                pi, po, pf = np.split(p, 3)
                i = sigmoid(bounded(into[0] + state[0] + pi * c[n]))
                f = 1 - i if coupled else sigmoid(bounded(into[2] + state[2] + pf * c[n]))
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


@pytest.mark.parametrize("direction", REVERSED)
@pytest.mark.parametrize(
    ("kind", "clip", "coupled", "after"),
    [
        ("rnn", None, False, False),
        ("gru", 0.3, False, False),
        ("gru", None, False, True),
        ("lstm", None, False, False),
        ("lstm", 0.4, True, False),
    ],
)
def test_each_attribute_means_what_the_standard_says(
    kind: str, clip: float | None, coupled: bool, after: bool, direction: str
) -> None:
    rule, gates, names = KINDS[kind]
    rng, backward = np.random.default_rng(0), REVERSED[direction]
    count = len(backward)
    shapes = {"x": (TIME, BATCH, SIZE), "w": (count, gates * HIDDEN, SIZE),
              "r": (count, gates * HIDDEN, HIDDEN), "b": (count, 2 * gates * HIDDEN),
              "h": (count, BATCH, HIDDEN), "c": (count, BATCH, HIDDEN), "p": (count, 3 * HIDDEN)}  # fmt: skip
    given: dict[str, Array] = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    given["n"] = np.array([4, 1, 3], np.int32)
    builder = Builder()
    v = {name: builder.input(name, a.shape, "i32" if name == "n" else "f64") for name, a in given.items()}
    cell, looks = (v["c"], v["p"]) if kind == "lstm" else (None, None)
    functions = [[recurrent.activation(name, None, None) for name in names]] * count
    layer = Layer(v["x"], v["w"], v["r"], v["b"], v["n"], v["h"], cell, looks, HIDDEN, backward, functions,
                  clip, coupled, after)  # fmt: skip
    graph = builder.graph({f"o{k}": value for k, value in enumerate(rule(builder, layer))})
    found = run_graph(graph, given)
    for k, back in enumerate(backward):
        x = turned(given["x"], given["n"]) if back else given["x"]
        parts = [given[name][k] for name in "wrb"]
        states = [given[name][k] for name in "hcp"]
        y, h, c = reference(kind, clip or np.inf, coupled, after, x, *parts, given["n"], *states)
        y = turned(y, given["n"]) if back else y
        for mine, theirs in zip(found, (y, h, c), strict=False):
            mine = mine[:, k] if mine.ndim == 4 else mine[k]
            assert np.allclose(mine, theirs, rtol=1e-12, atol=1e-12)


def test_a_layer_that_the_standard_does_not_know_is_refused() -> None:
    with pytest.raises(Refused, match="activation"):
        recurrent.activation("swish", None, None)
    b = Builder()
    x, w, r = b.input("x", (4, 3, 2), "f32"), b.input("w", (1, 3, 2), "f32"), b.input("r", (1, 3, 3), "f32")
    tanh = [[recurrent.activation("tanh", None, None)]] * 2
    for rule, backward in ((recurrent.gru, (False,)), (recurrent.rnn, (False, True))):
        layer = Layer(x, w, r, None, None, None, hidden=3, reversed=backward, activations=tanh)
        with pytest.raises(Malformed):
            rule(b, layer)
