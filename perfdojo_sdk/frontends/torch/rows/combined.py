"""Elements combined where data says: scatters by a reduction, masks as places, bags of embeddings, places in
sorted sequences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfdojo_sdk.frontends.torch.call import HALVES, Call, Row, in_single, literal, pointwise
from perfdojo_sdk.frontends.torch.rows.movement import indexed, of_lists, spread_along
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.operators import gathers as g
from perfdojo_sdk.graph.operators import movement as m
from perfdojo_sdk.graph.operators import reductions as r
from perfdojo_sdk.graph.operators.checks import reported
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float, levels

#: PyTorch's name of a reduction -> ours of a scatter, and the sign of its accumulation.
_WAYS = {
    "sum": ("add", "+="), "mean": ("add", "+="), "prod": ("mul", "*="), "amax": ("max", "max="),
    "amin": ("min", "min="),
}  # fmt: skip


def _filled(c: Call, shape: Shape, number: float, dtype: str) -> Value:
    return m.expand(c.b, c.b.filled((), number, dtype), shape)


def _combined(c: Call, places: Value, updates: Value, axis: int) -> Value:
    """The tensor with updates combined at their places along an axis, with its own elements or without."""
    x, how = c["self"], c.text("reduce")
    if how not in _WAYS:
        raise Refused(Reason.CHOICE, f"{c.op} by {ascii(how)[:40]}")
    by, sign = _WAYS[how]
    own = bool(c.whole("include_self", 1))
    if how == "mean" and x.dtype == "bool":
        raise Refused(Reason.DTYPE, "means of bool")
    counts = None
    if how == "mean" or not own:
        zeros, ones = _filled(c, x.shape, 0, "i64"), _filled(c, places.shape, 1, "i64")
        counts = g.scatter_elements(c.b, zeros, places, ones, axis, "add", negative=False)
    if counts is not None and not own:
        neutral = r.start(sign, computed_in(x.dtype)) if x.dtype != "bool" else str(int(how == "amin"))
        x = pointwise(c, "start", lambda a, n: f"select({n} > 0, {neutral}, {a})", x, counts)
    found = g.scatter_elements(c.b, x, places, updates, axis, by, negative=False)
    if how != "mean" or counts is None:
        return found

    def mean(total: str, n: str) -> str:
        number = f"({n} + {int(own)})"
        count = f"select({number} == 0, 1, {number})"  # of the tensor's dtype, in which it may wrap
        if is_float(c.dtype):
            return f"{total} / {count}"
        rest = f"rem({total}, {count})"
        one, other = f"select({count} > 0, 1, 0)", f"select({count} < 0, 1, 0)"
        below = f"select({rest} < 0, {one}, select({rest} > 0, {other}, 0))"
        return f"{total} / {count} - {below}"

    return pointwise(c, "mean", mean, found, counts)


def _scatter_reduce(c: Call) -> Value:
    index, source = indexed(c, c["index"]), c["src"]
    updates = m.cut(c.b, source, [0] * source.rank, [1] * source.rank, index.shape)
    return _combined(c, index, updates, axis_of(c.whole("dim"), c["self"].rank))


def _index_reduce(c: Call) -> Value:
    axis = axis_of(c.whole("dim"), c["self"].rank)
    spread = spread_along(c, axis, indexed(c, c["index"]))
    return _combined(c, spread, c.b.view(c["source"], spread.shape), axis)


def _masked_scatter(c: Call) -> Value:
    """The tensor whose elements under a mask are those of another one, in their order."""
    x, mask = m.expand(c.b, c["self"], c.shape), m.expand(c.b, c["mask"], c.shape)
    source = c["source"]
    source = c.b.view(source, (source.elements,))
    if not x.elements:
        return x
    ones = pointwise(c, "ones", lambda a: f"select({a}, 1, 0)", mask, dtype="i64", computed="bool", raw=True)
    count = c.b.view(r.running(c.b, c.b.view(ones, (x.elements,)), 0, False, False), c.shape)
    what = f"a mask chooses more than the {source.elements} elements that there are"
    reported(c.b, count, lambda n: f"{n} > {source.elements}", what, "beyond")
    if not source.elements:
        return x
    k, names = Writer(c.b, "masked_scatter"), levels(len(c.shape))
    a, chosen, n, s, y = k.read(x), k.read(mask), k.read(count), k.read(source), k.write(c.shape, c.dtype)
    place = f"clamp({n(names)} - 1, 0, {source.elements - 1})"
    k.nest(c.shape, f"{y(names)} = select({chosen(names)}, {s([place])}, {a(names)})")
    return k.done()[0]


# -- bags of embeddings --------------------------------------------------------------------------------


def _embedding_bag(c: Call) -> list[Value | None]:
    """For each bag the sum, mean or maximum of the rows that its indices choose; of none, 0."""
    if any(c.uses(k) for k in (1, 2, 3)):
        raise Refused(Reason.CHOICE, f"{c.op} that gives more than its result")
    w, mode, padding = c["weight"], c.whole("mode", 0), c.whole("padding_idx", -1)
    if c.op == "embedding_bag.padding_idx" and c.has("padding_idx") and padding < 0:
        padding += w.shape[0]  # counted from the end; in other forms, no padding
    indices = c["indices"]
    if indices.rank != 1:
        raise Refused(Reason.CHOICE, f"{c.op} of indices {indices.text}")
    if mode == 2 and padding >= 0:
        raise Refused(Reason.CHOICE, "the largest elements of bags with padding")
    count, rows, bags = indices.elements, w.shape[0], c.shape[0]
    if not count or not bags or not w.elements:
        if count:
            g.checked(c.b, indices, rows, False)
        return [_filled(c, c.shape, 0, c.dtype), *[None] * (len(c.results) - 1)]
    places, bag = indexed(c, indices), _bags(c, count, bags)
    found = g.gather(c.b, w, places, 0, negative=False)
    if mode == 2:
        return [_largest(c, found, bag), *[None] * (len(c.results) - 1)]
    weights = c.maybe("per_sample_weights")
    kept = None
    if padding >= 0:
        kept = pointwise(
            c, "kept", lambda a: f"select({a} == {padding}, 0, 1)", places, dtype="i64", computed="i64"
        )
    if weights is not None:
        found = pointwise(c, "weighted", lambda a, p: f"{a} * {p}", found, c.b.view(weights, (count, 1)))
    if kept is not None:
        column = c.b.view(kept, (count, 1))
        found = pointwise(c, "without_padding", lambda a, k: f"select({k} > 0, {a}, 0)", found, column)
    total = _summed(c, found, bag)
    if mode == 1:
        ones = kept if kept is not None else _filled(c, (count,), 1, "i64")
        number = _summed(c, c.b.view(ones, (count, 1)), bag)
        total = pointwise(c, "mean", lambda a, n: f"{a} / max({n}, 1)", total, number)
    return [total, *[None] * (len(c.results) - 1)]


def _bags(c: Call, count: int, bags: int) -> Value | int:
    """The bag of each index, which is ``bags`` behind the last one; a number if all are of that size."""
    offsets = c["offsets"]
    if offsets.dtype not in ("i32", "i64"):
        raise Malformed(f"offsets of {offsets.dtype}")
    if c.b.is_known(offsets):
        starts = list(c.b.known_integers(offsets))
        ends = [*starts[1:], count] if not c.flag("include_last_offset") else starts[1:]
        if starts[0] != 0 or any(p > q for p, q in zip(starts, ends, strict=False)) or ends[-1] > count:
            raise Malformed(f"offsets {starts[:8]} of {count} indices")
        if count % bags == 0 and ends == [(k + 1) * (count // bags) for k in range(bags)]:
            return count // bags
        numbers = np.searchsorted(np.array(starts), np.arange(count), "right") - 1
        numbers[np.arange(count) >= ends[-1]] = bags
        return c.b.constant(numbers.astype(np.int64))
    g.checked(c.b, offsets, count + 1, False)
    first = m.cut(c.b, offsets, [0], [1], (1,))
    reported(c.b, first, lambda n: f"{n} != 0", "the first offset is not 0", "start")
    if (pairs := offsets.elements - 1) > 0:
        before, behind = (m.cut(c.b, offsets, [k], [1], (pairs,)) for k in (0, 1))
        falls = pointwise(
            c, "falls", lambda p, q: f"select({p} > {q}, 1, 0)", before, behind, dtype="i64", computed="i64"
        )
        reported(c.b, falls, lambda n: f"{n} > 0", "an offset is below the one before", "order")
    k = Writer(c.b, "bag")
    o, y = k.read(offsets), k.write((count,), "i64")
    k.nest(
        (count,),
        f"{y(['{0}'])} = -1",
        ([offsets.elements], f"{y(['{0}'])} += select({o(['{1}'])} <= {{0}}, 1, 0)"),
    )
    return k.done()[0]


def _summed(c: Call, found: Value, bag: Value | int) -> Value:
    """The sums of rows by bag."""
    count, width, bags = found.shape[0], found.shape[1], c.shape[0]
    if isinstance(bag, int):
        return r.reduce_sum(c.b, c.b.view(found, (bags, bag, width)), (1,), False)
    zeros = _filled(c, (bags + 1, width), 0, found.dtype)
    summed = g.scatter_nd(c.b, zeros, c.b.view(bag, (count, 1)), found, "add")
    return m.cut(c.b, summed, [0, 0], [1, 1], (bags, width))


def _largest(c: Call, found: Value, bag: Value | int) -> Value:
    """The largest elements by bag: as PyTorch compares them, NaN counts in a bag's first row alone."""
    count, width, bags = found.shape[0], found.shape[1], c.shape[0]
    numbers = pointwise(c, "numbers", lambda a: f"select({a} == {a}, {a}, -inf)", found)
    if isinstance(bag, int):
        top = r.reduce(c.b, "largest", c.b.view(numbers, (bags, bag, width)), (1,), False, "max=")
        first = c.b.view(m.cut(c.b, found, [0, 0], [bag, 1], (bags, width)), (bags, width))
        return pointwise(c, "largest", lambda a, f: f"select({f} != {f}, {f}, {a})", top, first)
    low = _filled(c, (bags + 1, width), -np.inf, found.dtype)
    at = c.b.view(bag, (count, 1))
    top = g.scatter_nd(c.b, low, at, numbers, "max")
    places = c.b.constant(np.arange(count, dtype=np.int64))
    start = g.scatter_nd(c.b, _filled(c, (bags + 1,), count, "i64"), at, places, "min")
    top = m.cut(c.b, top, [0, 0], [1, 1], (bags, width))
    start = m.cut(c.b, start, [0], [1], (bags,))
    clamped = pointwise(c, "first", lambda n: f"min({n}, {count - 1})", start, dtype="i64", computed="i64")
    first = g.gather(c.b, found, clamped, 0, negative=False)

    def formula(a: str, f: str, n: str) -> str:
        return f"select({n} == {count}, 0, select({f} != {f}, {f}, {a}))"

    k, names = Writer(c.b, "largest"), levels(2)
    a, f, n, y = k.read(top), k.read(first), k.read(start), k.write((bags, width), c.dtype)
    text = formula(a.load(names), f.load(names), n(names[:1]))
    k.nest((bags, width), f"{y(names)} = {y.store(text)}")
    return k.done()[0]


# -- places in sorted sequences --------------------------------------------------------------------------


def _sorted_place(sequence: str, of: str) -> Row:
    """The number of elements of a sorted sequence below each element, or with ``right`` not above it; for
    NaN, all. The sequence is halved as PyTorch halves it, so that results are equal for one that has NaN, or
    is not sorted, too."""

    def row(c: Call) -> Value:
        s, x = c[sequence], c.arguments[of]
        right = c.flag("right") or c.text("side") == "right"
        if c.maybe("sorter") is not None:
            raise Refused(Reason.CHOICE, f"{c.op} with a sorter")
        if isinstance(x, Value) and x.dtype != s.dtype:
            raise Refused(Reason.DTYPE, f"{c.op} of {x.dtype} in {s.dtype}")
        if s.rank > 1 and (not isinstance(x, Value) or x.shape[:-1] != s.shape[:-1]):
            raise Refused(Reason.CHOICE, f"{c.op} in {s.text}")
        if s.shape[-1] <= WHOLE_SEQUENCE:
            return _place_in_few(c, s, x, right)
        low: Value | None = None
        high: Value | None = None
        for _ in range(s.shape[-1].bit_length()):
            low, high = _half(c, s, x, low, high, right)
        assert low is not None, "a sequence of more than a few elements is halved"
        return low

    return row


#: Most elements of a sorted sequence whose places are found by one formula.
WHOLE_SEQUENCE = 16


def _place_in_few(c: Call, s: Value, x: Value | float, right: bool) -> Value:
    """All comparisons of a binary search in one formula."""
    k, names = Writer(c.b, "place_in_order"), levels(len(c.shape))
    a = k.read(s)
    mine = k.read(x).load(names) if isinstance(x, Value) else literal(x, computed_in(s.dtype))

    def place(first: int, end: int) -> str:
        if first >= end:
            return str(first)
        middle = first + (end - first) // 2
        behind = f"{a.load([*names[: s.rank - 1], str(middle)])} {'>' if right else '>='} {mine}"
        return f"select({behind}, {place(first, middle)}, {place(middle + 1, end)})"

    y = k.write(c.shape, c.dtype)
    k.nest(c.shape, f"{y(names)} = {place(0, s.shape[-1])}")
    return k.done()[0]


def _half(
    c: Call, s: Value, x: Value | float, low: Value | None, high: Value | None, right: bool
) -> tuple[Value, Value]:
    """The half of a part of a sequence, from ``low`` to before ``high``, where each element belongs; the part
    is the whole without them. A kernel of its own: places in an array are read from an input."""
    size, k, names = s.shape[-1], Writer(c.b, "place_in_order"), levels(len(c.shape))
    a = k.read(s)
    mine = k.read(x).load(names) if isinstance(x, Value) else literal(x, computed_in(s.dtype))
    first, end, middle = "0", str(size), str(size // 2)
    if low is not None and high is not None:
        first, end = k.read(low)(names), k.read(high)(names)
        middle = f"({first} + ({end} - {first}) / 2)"
    element = a.load([*names[: s.rank - 1], f"clamp({middle}, 0, {size - 1})" if low else middle])
    behind = f"{element} {'>' if right else '>='} {mine}"
    later = f"select({first} < {end}, {middle} + 1, {first})" if low else f"{middle} + 1"
    p, q = k.write(c.shape, c.dtype), k.write(c.shape, c.dtype)
    k.nest(
        c.shape,
        f"{p(names)} = select({behind}, {first}, {later})",
        f"{q(names)} = select({behind}, {middle}, {end})",
    )
    found = k.done()
    return found[0], found[1]


def _halves_refused(row: Row, why: str) -> Row:
    def made(c: Call) -> Value | list[Value | None]:
        if c.dtype in HALVES:
            raise Refused(Reason.DTYPE, f"{why} of {c.dtype}")
        found = row(c)
        return found if isinstance(found, Value) else list(found)

    return made


ROWS: Mapping[str, Row] = {
    "scatter_reduce": of_lists(_halves_refused(_scatter_reduce, "scatters by a reduction")),
    "index_reduce": of_lists(_halves_refused(_index_reduce, "scatters by a reduction")),
    "masked_scatter": _masked_scatter,
    **dict.fromkeys(
        ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"), in_single(_embedding_bag)
    ),
    "bucketize": _sorted_place("boundaries", "self"),
    "searchsorted": _sorted_place("sorted_sequence", "self"),
}
