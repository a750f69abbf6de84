"""Sequences and optionals: edges that are known when the graph is built, and no kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfdojo_sdk.frontends.onnx.edges import MOST_ITEMS, Absent, Edge, Items
from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.movement import concat, split
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of


def _position(n: Operation, k: int, size: int, last: int) -> int | None:
    """A place from an operand, counted from the end if it is negative; None if it is absent."""
    given = n.known_ints(k)
    if given is None:
        return None
    if len(given) != 1 or not -size <= given[0] <= last:
        raise Malformed(f"{n.op} at {given[:4]} of a sequence of {size}")
    return given[0] if given[0] >= 0 else given[0] + size


def _construct(n: Operation) -> Items:
    return Items(tuple(n.operands))


def _at(n: Operation) -> Value:
    items = n.items(0)
    place = _position(n, 1, len(items), len(items) - 1)
    if place is None:
        raise Malformed("SequenceAt lacks its position")
    return items[place]


def _insert(n: Operation) -> Items:
    items = n.items(0)
    if len(items) >= MOST_ITEMS:
        raise Refused(Reason.SIZE, f"a sequence of more than {MOST_ITEMS} arrays")
    place = _position(n, 2, len(items), len(items))
    place = len(items) if place is None else place
    return Items((*items[:place], n[1], *items[place:]))


def _erase(n: Operation) -> Items:
    items = n.items(0)
    place = _position(n, 1, len(items), len(items) - 1)
    place = len(items) - 1 if place is None else place
    if not items:
        raise Malformed("SequenceErase of an empty sequence")
    return Items((*items[:place], *items[place + 1 :]))


def _length(n: Operation) -> Value:
    return n.b.constant(np.array(len(n.items(0)), np.int64))


def _split(n: Operation) -> Items:
    """Parts of equal sizes but for the last, of sizes that are listed, or of one each."""
    x, axis = n[0], axis_of(n.whole("axis"), n[0].rank)
    size, given, keep = x.shape[axis], n.known_ints(1), bool(n.whole("keepdims"))
    if given is not None and n[1].rank == 0:
        [each] = given
        if each < 1:
            raise Malformed(f"SplitToSequence into parts of {each}")
        sizes = [min(each, size - first) for first in range(0, _few(-(-size // each)) * each, each)]
    else:
        sizes = given if given is not None else [1] * _few(size)
    parts = split(n.b, x, sizes, axis)
    if given is None and not keep:
        parts = [n.b.view(p, (*p.shape[:axis], *p.shape[axis + 1 :])) for p in parts]
    return Items(tuple(parts))


def _few(count: int) -> int:
    """The number of arrays of a sequence, if it may have so many."""
    if count > MOST_ITEMS:
        raise Refused(Reason.SIZE, f"a sequence of {count} arrays", f"there are at most {MOST_ITEMS}")
    return count


def _concat(n: Operation) -> Value:
    items, new = n.items(0), bool(n.whole("new_axis"))
    if not items:
        raise Malformed("ConcatFromSequence of an empty sequence")
    axis = axis_of(n.whole("axis"), items[0].rank + new)
    if new:
        items = [n.b.view(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in items]
    return concat(n.b, items, axis)


def _optional(n: Operation) -> Edge:
    return n.edge(0) or Absent()


def _get(n: Operation) -> Edge:
    found = n.edge(0)
    if found is None or isinstance(found, Absent):
        raise Malformed("OptionalGetElement of an optional without a value")
    return found


def _has(n: Operation) -> Value:
    return n.b.constant(np.array(n.edge(0) is not None and not isinstance(n.edge(0), Absent)))


RULES: Mapping[str, Rule] = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": lambda n: Items(()),
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": _length,
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get,
    "OptionalHasElement": _has,
    "Identity": lambda n: _get(n) if not isinstance(n.edge(0), Absent) else Absent(),
}
