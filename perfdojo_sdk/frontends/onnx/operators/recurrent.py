"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import recurrent as r
from perfdojo_sdk.graph.operators.movement import transpose
from perfdojo_sdk.graph.refusals import Malformed

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _activations(n: Operation, default: Sequence[str], directions: int) -> list[list[r.Activation]]:
    """Activations by direction. Parameters stand in one list for all that take one, in their order."""
    given = n.attributes.get("activations") or []
    names = [g.decode("utf-8", "replace") if isinstance(g, bytes) else str(g) for g in given]
    names = names or list(default) * directions
    if n.op == "RNN":  # the schema's default has one for each of two directions
        names = names[:directions]
    if len(names) != len(default) * directions:
        raise Malformed(f"{n.op} in {directions} directions with {len(names)} activations")
    alphas, betas = n.reals("activation_alpha"), n.reals("activation_beta")
    found = []
    for name in names:
        alpha = alphas.pop(0) if alphas and name.lower() in _WITH_ALPHA else None
        beta = betas.pop(0) if betas and name.lower() in _WITH_BETA else None
        found.append(r.activation(name, alpha, beta))
    return [found[k : k + len(default)] for k in range(0, len(found), len(default))]


_WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")
_WITH_ALPHA = (*_WITH_BETA, "leakyrelu", "thresholdedrelu", "elu")


def _rule(layer: Callable[[Builder, r.Layer], list[Value]], default: Sequence[str]) -> Rule:
    def rule(n: Operation) -> Sequence[Value]:
        directions = _DIRECTIONS.get(n.text("direction"))
        if directions is None:
            raise Malformed(f"{n.op} in the direction {ascii(n.text('direction'))[:40]}")
        first = bool(n.whole("layout", 0))
        x, state, cell = n[0], n.maybe(5), n.maybe(6)
        if first:
            x = transpose(n.b, x, (1, 0, 2))
            state, cell = (v and transpose(n.b, v, (1, 0, 2)) for v in (state, cell))
        hidden = n.whole("hidden_size", n[2].shape[-1] if n[2].rank else 0)
        results = layer(
            n.b,
            r.Layer(
                x, n[1], n[2], n.maybe(3), n.maybe(4), state, cell, n.maybe(7), hidden, directions,
                _activations(n, default, len(directions)),
                n.real("clip") if n.has("clip") else None,
                bool(n.whole("input_forget", 0)),
                bool(n.whole("linear_before_reset", 0)),
            ),
        )  # fmt: skip
        return r.batch_first(n.b, results) if first else results

    return rule


RULES: Mapping[str, Rule] = {
    "RNN": _rule(r.rnn, ["Tanh"]),
    "GRU": _rule(r.gru, ["Sigmoid", "Tanh"]),
    "LSTM": _rule(r.lstm, ["Sigmoid", "Tanh", "Tanh"]),
}
