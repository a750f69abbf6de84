"""Recurrent layers of the standard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.movement import transpose
from perfdojo_sdk.graph.operators.recurrences import Layer, recurrent


def _layer(n: Operation) -> Sequence[Value | None]:
    """The outputs; with layout 1 the batch is the outermost dimension of inputs, states and outputs."""
    layer = Layer(
        n.op,
        n.text("direction", "forward"),
        tuple(each.decode("utf-8", "replace") for each in n.attributes.get("activations") or ()),
        tuple(n.reals("activation_alpha")),
        tuple(n.reals("activation_beta")),
        n.real("clip") if n.has("clip") else None,
        bool(n.whole("input_forget", 0)),
        bool(n.whole("linear_before_reset", 0)),
    )
    batches = bool(n.whole("layout", 0))

    def turned(value: Value | None) -> Value | None:
        return value if value is None or not batches else transpose(n.b, value, (1, 0, 2))

    x, cell = turned(n[0]), turned(n.maybe(6)) if n.op == "LSTM" else None
    assert x is not None
    states, peepholes = (turned(n.maybe(5)), cell), n.maybe(7) if n.op == "LSTM" else None
    y, h, c = recurrent(n.b, layer, x, n[1], n[2], n.maybe(3), n.maybe(4), states, peepholes)
    if batches:
        y = transpose(n.b, y, (2, 0, 1, 3))
    return [y, turned(h), turned(c)][: 3 if n.op == "LSTM" else 2]


RULES: Mapping[str, Rule] = {"RNN": _layer, "GRU": _layer, "LSTM": _layer}
