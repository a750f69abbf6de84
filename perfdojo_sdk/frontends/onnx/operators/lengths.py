"""Operators whose results are as long as data says, and those that take such results as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import lengths as s


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
