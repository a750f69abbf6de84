"""Determinants of small matrices, by elimination with rows exchanged."""

from __future__ import annotations

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float, levels

#: Most rows; each takes nests of its own.
MOST_ROWS = 32


def det(b: Builder, x: Value) -> Value:
    """The determinant of each matrix of the last two dimensions. The element of a column that is largest in
    size is the one that is divided by; the choice is made by comparisons, so no step depends on data."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not is_float(x.dtype):
        raise Malformed(f"the determinant of {x.text}")
    size = x.shape[-1]
    if size > MOST_ROWS:
        raise Refused(Reason.SIZE, f"a determinant of {size} rows", f"there are at most {MOST_ROWS}")
    outer, kind = x.shape[:-2], computed_in(x.dtype)
    k = Writer(b, "det")
    a, y = k.read(x), k.write(outer, x.dtype)
    names, at = levels(x.rank), levels(len(outer))
    rest = k.local(x.shape, kind)
    k.nest(x.shape, f"{rest(names)} = {a.load(names)}")
    total, best, place = k.local(outer, kind), k.local(outer, kind), k.local(outer, "i64")
    column, row = k.local((*outer, size), kind), k.local((*outer, size), kind)
    k.nest(outer, f"{total(at)} = 1")
    inner, second = f"{{{len(outer)}}}", f"{{{len(outer) + 1}}}"
    for n in range(size):
        left = size - n
        below = f"{inner}+{n}"
        element = rest([*at, below, n])
        k.nest(outer, f"{best(at)} = 0", ([left], f"{best(at)} max= abs({element})"))
        # NaN is no largest element: the first row stays, and the result is NaN.
        found = f"select(abs({element}) == {best(at)}, {below}, {size})"
        k.nest(outer, f"{place(at)} = {size}", ([left], f"{place(at)} min= {found}"))
        k.nest(outer, f"{place(at)} = select({place(at)} < {size}, {place(at)}, {n})")
        # Row n and the chosen one change places.
        chosen = f"{second}+{n} == {place(at)}"
        across = f"{inner}+{n}"
        moved = rest([*at, f"{second}+{n}", across])
        k.nest(
            (*outer, left),
            f"{column([*at, across])} = 0",
            ([left], f"{column([*at, across])} += select({chosen}, {moved}, 0)"),
        )
        k.nest((*outer, left), f"{row([*at, across])} = {rest([*at, n, across])}")
        below = f"{inner}+{n}"
        target = rest([*at, below, f"{second}+{n}"])
        k.nest(
            (*outer, left, left),
            f"{target} = select({below} == {place(at)}, {row([*at, f'{second}+{n}'])}, {target})",
        )
        pivot = column([*at, n])
        k.nest(outer, f"{total(at)} *= select({place(at)} == {n}, {pivot}, -{pivot})")
        if left > 1:
            below, across = f"{inner}+{n + 1}", f"{second}+{n + 1}"
            factor = f"select({pivot} == 0, 0, {rest([*at, below, n])} / {pivot})"
            target, taken = rest([*at, below, across]), column([*at, across])
            k.nest((*outer, left - 1, left - 1), f"{target} = {target} - {factor} * {taken}")
    k.nest(outer, f"{y(at)} = {y.store(total(at))}")
    return k.done()[0]
