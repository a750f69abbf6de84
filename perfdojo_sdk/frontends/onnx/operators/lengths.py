"""Operators whose results are as long as data says, and those through which such a length passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.operators.older import bounds
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import lengths as s
from perfdojo_sdk.graph.shapes import axes_of, axis_of


def _compress(n: Operation) -> Value:
    return s.compress(n.b, n[0], n[1], n.whole("axis") if n.has("axis") else None)


def _unique(n: Operation) -> Sequence[Value]:
    axis = n.whole("axis") if n.has("axis") else None
    return s.unique(n.b, n[0], axis, bool(n.whole("sorted")))


def _non_max_suppression(n: Operation) -> Value:
    most = (n.known_ints(2) or [0])[0]
    centred = bool(n.whole("center_point_box"))
    return s.non_max_suppression(n.b, n[0], n[1], most, n.maybe(3), n.maybe(4), centred)


RULES: Mapping[str, Rule] = {
    "NonZero": lambda n: s.non_zero(n.b, n[0]),
    "Compress": _compress,
    "Unique": _unique,
    "NonMaxSuppression": _non_max_suppression,
}

# -- lengths that pass through --------------------------------------------------------------------

#: Operators that make each element of its own operands: what is beyond the length stays there. Integers are
#: not divided, since what is beyond is 0.
_ELEMENTWISE = (
    "Abs", "Neg", "Sqrt", "Exp", "Log", "Tanh", "Erf", "Floor", "Ceil", "Round", "Sin", "Cos", "Relu",
    "Sigmoid", "Not", "Cast", "Sign", "Clip", "Softplus", "Add", "Sub", "Mul", "Less", "LessOrEqual",
    "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Xor", "Max", "Min", "Where",
    "LeakyRelu", "Reciprocal",
)  # fmt: skip

Passing = Callable[[Operation, Mapping[int, int]], int | None]
"""For operands, by number, along which axis they are as long as data says: along which axis the results are;
None where that does not pass through."""


def passed(n: Operation) -> tuple[int, Value] | None:
    """Along which axis the results are as long as data says, and the count; None where that does not pass
    through the operator."""
    axes: dict[int, int] = {}
    counts: dict[str, Value] = {}
    for k, value in enumerate(n.inputs):
        counted = n.b.count_of(value) if isinstance(value, Value) else None
        if counted is not None:
            axes[k], counts[counted[1].name] = counted[0], counted[1]
    rule = PASSING.get(n.op)
    axis = rule(n, axes) if rule is not None and len(counts) == 1 else None
    return None if axis is None else (axis, next(iter(counts.values())))


def _elementwise(n: Operation, axes: Mapping[int, int]) -> int | None:
    from_end = {n[k].rank - axis for k, axis in axes.items()}
    values = {k: v for k, v in enumerate(n.inputs) if isinstance(v, Value)}
    place = max(from_end)
    others = (v for k, v in values.items() if k not in axes)
    if len(from_end) > 1 or any(v.rank >= place and v.shape[-place] != 1 for v in others):
        return None
    return max(v.rank for v in values.values()) - place


def _transpose(n: Operation, axes: Mapping[int, int]) -> int | None:
    order = n.ints("perm") if n.has("perm") else list(range(n[0].rank))[::-1]
    return order.index(axes[0]) if axes[0] in order else None


def _unsqueeze(n: Operation, axes: Mapping[int, int]) -> int | None:
    new = axes_of(n.axes() or [], n[0].rank + len(n.axes() or []))
    kept = [k for k in range(n[0].rank + len(new)) if k not in new]
    return kept[axes[0]] if set(axes) == {0} else None


def _squeeze(n: Operation, axes: Mapping[int, int]) -> int | None:
    given = n.axes()
    if given is None or set(axes) != {0}:
        return None
    gone = axes_of(given, n[0].rank)
    return None if axes[0] in gone else axes[0] - sum(k < axes[0] for k in gone)


def _gather(n: Operation, axes: Mapping[int, int]) -> int | None:
    along = axis_of(n.whole("axis"), n[0].rank)
    if set(axes) == {1}:
        return along + axes[1]
    if set(axes) != {0} or axes[0] == along:
        return None
    return axes[0] if axes[0] < along else axes[0] + n[1].rank - 1


def _slice(n: Operation, axes: Mapping[int, int]) -> int | None:
    given = bounds(n)
    axes_ = range(len(given.starts)) if given.axes is None else given.axes
    along = [axis_of(a, n[0].rank) for a in axes_]
    return axes[0] if set(axes) == {0} and axes[0] not in along else None


def _split(n: Operation, axes: Mapping[int, int]) -> int | None:
    return axes[0] if set(axes) == {0} and axes[0] != axis_of(n.whole("axis"), n[0].rank) else None


PASSING: Mapping[str, Passing] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
}
