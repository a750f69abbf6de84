"""Recurrent layers, whole: one kernel for each layer and direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perfdojo_sdk.frontends.torch.call import Call, Row
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import recurrent as rules
from perfdojo_sdk.graph.operators.movement import concat, cut, transpose
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused


def _row(
    layer: Callable[[Builder, rules.Layer], list[Value]], names: Sequence[str], order: tuple[int, ...]
) -> Row:
    """``order``: where PyTorch's weights have the gates that the standard of ONNX counts 0, 1, ..."""
    cells = len(names) == 3
    functions = [[rules.activation(name, None, None) for name in names]]

    def row(c: Call) -> list[Value]:
        x = c["input"]
        if "data" in c.arguments or x.rank != 3:
            raise Refused(Reason.CHOICE, f"{c.op} of packed or unbatched sequences")
        if c.flag("train") and c.real("dropout", 0.0) > 0:
            raise Refused(Reason.RANDOM, "dropout between layers of a model in training")
        params = c.values("params")
        first, both, biased = c.flag("batch_first"), c.flag("bidirectional"), c.flag("has_biases")
        states = c.values("hx") if cells else [c["hx"]]
        directions, count = 2 if both else 1, c.whole("num_layers")
        size = (4 if biased else 2) * directions * count
        if len(params) != size:
            raise Refused(
                Reason.CHOICE, f"{c.op} with {len(params)} weights instead of {size}", "projections"
            )
        if first:
            x = transpose(c.b, x, (1, 0, 2))
        lasts: list[list[Value]] = [[] for _ in states]
        for depth in range(count):
            outputs = []
            for direction in range(directions):
                place = depth * directions + direction
                group = params[place * (4 if biased else 2) :][: 4 if biased else 2]
                starts = [_part(c, state, place) for state in states]
                found = layer(c.b, _layer(c, x, group, starts, bool(direction), functions, order))
                time, batch, hidden = found[0].shape[0], found[0].shape[2], found[0].shape[3]
                outputs.append(c.b.view(found[0], (time, batch, hidden)))
                for kept, last in zip(lasts, found[1:], strict=True):
                    kept.append(last)
            x = concat(c.b, outputs, 2)
        if first:
            x = transpose(c.b, x, (1, 0, 2))
        return [x, *(concat(c.b, kept, 0) for kept in lasts)]

    return row


def _part(c: Call, state: Value, place: int) -> Value:
    """The state of one layer and direction, [1, batch, hidden]."""
    if state.rank != 3:
        raise Malformed(f"a state {state.text}")
    shape = (1, *state.shape[1:])
    return cut(c.b, state, (place, 0, 0), (1, 1, 1), shape)


def _layer(
    c: Call,
    x: Value,
    params: Sequence[Value],
    states: Sequence[Value],
    backwards: bool,
    functions: Sequence[Sequence[rules.Activation]],
    order: tuple[int, ...],
) -> rules.Layer:
    w, r = params[0], params[1]
    bias = None
    if len(params) == 4:
        joined = concat(c.b, [params[2], params[3]], 0)
        bias = c.b.view(joined, (1, joined.elements))
    return rules.Layer(
        x=x,
        w=c.b.view(w, (1, *w.shape)),
        r=c.b.view(r, (1, *r.shape)),
        bias=bias,
        lengths=None,
        state=states[0],
        cell=states[1] if len(states) > 1 else None,
        hidden=r.shape[1],
        reversed=(backwards,),
        activations=functions,
        reset_after=True,
        order=order,
    )


ROWS: Mapping[str, Row] = {
    "lstm": _row(rules.lstm, ("sigmoid", "tanh", "tanh"), (0, 3, 1, 2)),
    "gru": _row(rules.gru, ("sigmoid", "tanh"), (1, 0, 2)),
    "rnn_tanh": _row(rules.rnn, ("tanh",), (0,)),
    "rnn_relu": _row(rules.rnn, ("relu",), (0,)),
}
