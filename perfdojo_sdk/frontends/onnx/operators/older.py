"""Forms of operators before version 13 of the standard that later versions changed: attributes that became
operands, and axes that meant all axes from there on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.core.dtypes import largest
from perfdojo_sdk.frontends.onnx.operation import Operation
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of


def along_axis(n: Operation, rule: Callable[[Value, int], Value]) -> Value:
    """A rule for an operand and an axis; before version 13, that is the axis and all that follow, as one."""
    x, axis = n[0], n.whole("axis")
    if n.version >= 13:
        return rule(x, axis)
    axis = axis_of(axis, x.rank)
    if axis >= x.rank - 1:
        return rule(x, axis)
    flat = n.b.view(x, (*x.shape[:axis], prod(x.shape[axis:])))
    return n.b.view(rule(flat, axis), x.shape)


def both(n: Operation) -> tuple[Value, Value]:
    """Two operands; before version 7, the dimensions of the second may begin at an axis of the first."""
    x, y = n[0], n[1]
    if n.version >= 7 or not n.whole("broadcast", 0) or not n.has("axis"):
        return x, y
    behind = x.rank - axis_of(n.whole("axis"), x.rank) - y.rank
    return x, n.b.view(y, (*y.shape, *[1] * max(behind, 0)))


def bound(n: Operation, name: str) -> Value | None:
    """An attribute that is a number, as an operand of the dtype of the first; None if it is absent, or beyond
    all numbers of that dtype."""
    x = n[0]
    if not n.has(name) or abs(n.real(name)) > largest(x.dtype):
        return None
    return n.b.filled((), n.real(name), x.dtype)


@dataclass(frozen=True)
class Bounds:
    """The parts that a slice takes along axes; None for axes and steps that are not given."""

    starts: list[int]
    ends: list[int]
    axes: list[int] | None
    steps: list[int] | None


def bounds(n: Operation) -> Bounds:
    if n.version < 10:
        axes = n.ints("axes") if n.has("axes") else None
        return Bounds(n.ints("starts"), n.ints("ends"), axes, None)
    known = n.b.known_integers
    return Bounds(list(known(n[1])), list(known(n[2])), n.known_ints(3), n.known_ints(4))


def in_evaluation(n: Operation) -> None:
    """Refuse an operator that is in training: before version 7, an attribute says so."""
    if n.version < 7 and not n.whole("is_test", 0):
        raise Refused(Reason.CHOICE, f"{n.op} in training")
