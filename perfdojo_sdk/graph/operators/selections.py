"""The largest or smallest elements, by counting for each how many go before it."""

from __future__ import annotations

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.reductions import split_levels
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import axis_of, reduced
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float


def top_k(b: Builder, x: Value, count: int, axis: int, largest: bool) -> list[Value]:
    """The first ``count`` elements along an axis and their places, sorted; of equal elements the first goes
    first, and NaN counts as larger than every number."""
    if not x.rank:
        raise Malformed("the largest elements of a scalar")
    axis = axis_of(axis, x.rank)
    size = x.shape[axis]
    if not 0 <= count <= size:
        raise Malformed(f"{count} elements of {size}")
    k = Writer(b, "top_k")
    a = k.read(x)
    every, _ = split_levels(x.rank, (axis,))
    outer = reduced(x.shape, (axis,), False)
    own, other = f"{{{len(outer)}}}", f"{{{len(outer) + 1}}}"
    theirs = [other if n == axis else name for n, name in enumerate(every)]
    rank = k.local(x.shape, "i64")
    mine, one = a.load(every), a.load(theirs)
    before = _before(one, mine, largest, is_float(x.dtype))
    equal = f"{one} == {mine}"
    if is_float(x.dtype):
        equal = f"or({equal}, and({one} != {one}, {mine} != {mine}))"
    earlier = f"and({equal}, {other} < {own})"
    k.nest(
        [*outer, size],
        f"{rank(every)} = 0",
        ([size], f"{rank(every)} += select(or({before}, {earlier}), 1, 0)"),
    )
    shape = tuple(count if n == axis else s for n, s in enumerate(x.shape))
    values, places = k.write(shape, x.dtype), k.write(shape, "i64")
    found = f"{rank(theirs)} == {own}"
    kind = computed_in(x.dtype)
    chosen = k.local(shape, kind)
    # One element has each rank, so the largest of selections is that element, -0 and NaN too.
    floats = is_float(x.dtype)
    zero = "and({c}, {a})" if x.dtype == "bool" else f"select({{c}}, {{a}}, {'-inf' if floats else 0})"
    sign = "max=" if floats or x.dtype == "bool" else "+="
    k.nest(
        [*outer, count],
        f"{chosen(every)} = {'-inf' if floats else 0}",
        ([size], f"{chosen(every)} {sign} {zero.format(c=found, a=a.load(theirs))}"),
    )
    k.nest([*outer, count], f"{values(every)} = {values.store(chosen(every))}")
    k.nest(
        [*outer, count],
        f"{places(every)} = 0",
        ([size], f"{places(every)} += select({found}, {other}, 0)"),
    )
    return list(k.done())


def _before(one: str, other: str, largest: bool, floats: bool) -> str:
    """A condition that ``one`` goes before ``other``, which is not equal to it."""
    if not floats:
        return f"{one} {'>' if largest else '<'} {other}"
    nan, number = (one, other) if largest else (other, one)
    sign = ">" if largest else "<"
    return f"or({one} {sign} {other}, and({nan} != {nan}, {number} == {number}))"
