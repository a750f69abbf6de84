"""The geometry of accesses: ranges and strides of subscripts, and the scopes that accesses share.

The rules of the language, the moves and the code generators share these functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import AffineExpr, Expression, IndexValue, Read
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer

#: The largest number that may occur while a subscript, an address, a condition or an iterator's value is
#: computed, so that 64 bits hold all of them, even those of vector lanes beyond the last iteration.
MAX_REACH = 2**56


def common_depth(paths: list[tuple[int, ...]]) -> int:
    """Number of scopes around all the statements at ``paths``."""
    first, last = min(paths), max(paths)
    depth = 0
    limit = min(len(first), len(last)) - 1
    while depth < limit and first[depth] == last[depth]:
        depth += 1
    return depth


def guarded_bounds(
    form: AffineExpr, guard: tuple[AffineExpr, ...], sizes: tuple[int, ...]
) -> tuple[int, int]:
    """A range of ``form`` over the iterations in which each form of ``guard`` is at least 0.

    One condition at a time is subtracted from the form or added to it, as many times as it takes to cancel
    an iterator or a quotient that both have; the tightest result counts. So it does not matter how the
    iterators are numbered.
    """
    low, high = form.bounds(sizes)
    for condition in guard:
        for times in _times(form, condition):
            low = max(low, form.plus(condition, -times).bounds(sizes)[0])
            high = min(high, form.plus(condition, times).bounds(sizes)[1])
    return low, high


def _times(form: AffineExpr, condition: AffineExpr) -> set[int]:
    mine = dict(form.quotients)
    pairs = [(form.coefficients[l], c) for l, c in condition.terms if l in form.coefficients]
    pairs += [(mine[q], c) for q, c in condition.quotients if q in mine]
    return {max(1, abs(a // b)) for a, b in pairs} or {1}


def negative_dividends(statement: Statement, sizes: tuple[int, ...]) -> Iterator[AffineExpr]:
    """Dividends in a subscript, a condition or an iterator's value that may be negative."""
    forms = [*statement.guard, *statement.target.subscripts]
    forms += [form for access in statement.reads for form in access.subscripts]
    forms += [form for lookup in statement.lookups for form in lookup.forms]
    forms += [value.index for value in index_values(statement.value)]
    for form in forms:
        if form.quotients and (bad := _negative_dividend(form, sizes)) is not None:
            yield bad


def _negative_dividend(form: AffineExpr, sizes: tuple[int, ...]) -> AffineExpr | None:
    for quotient, _ in form.divisions:
        inner = _negative_dividend(quotient.dividend, sizes)
        if inner is not None:
            return inner
        if quotient.dividend.bounds(sizes)[0] < 0:
            return quotient.dividend
    return None


def index_values(value: Expression) -> Iterator[IndexValue]:
    """The iterators used as values in an expression."""
    return (form for form in value.forms if isinstance(form, IndexValue))


def beyond_reach(program: Program, statement: Statement, sizes: tuple[int, ...]) -> Iterator[AffineExpr]:
    """Subscripts, addresses, conditions and iterators' values that take numbers above :data:`MAX_REACH` to
    compute."""
    largest = max(sizes, default=1)
    forms = [*statement.guard, *[value.index for value in index_values(statement.value)]]
    for lookup in statement.lookups:
        forms += [form.index for form in lookup.value.forms if isinstance(form, IndexValue)]
    for access in (statement.target, *statement.every_read):
        buffer = program.buffer_of[access.array]
        weight = sum([form.weight for form in access.subscripts])
        if weight * largest * buffer.cells > MAX_REACH:  # else no address comes near
            forms += (*access.subscripts, buffer.address(access.subscripts))
    return (form for form in forms if form.weight * largest > MAX_REACH and form.reach(sizes) > MAX_REACH)


def lane_stride(buffer: Buffer, subscripts: tuple[AffineExpr, ...], level: int) -> int | None:
    """Distance in cells between neighbouring iterations of ``level``; None when it is not the same
    for all of them (a quotient depends on the level)."""
    distance = 0
    for form, stride in zip(subscripts, buffer.strides, strict=True):
        if form.quotients:
            return _stride_of(buffer.address(subscripts), level)
        distance += stride * form.coefficients.get(level, 0)
    return distance


def _stride_of(address: AffineExpr, level: int) -> int | None:
    if any(level in part.levels for part, _ in address.quotients):
        return None
    return address.coefficients.get(level, 0)


def most_lanes(statement: Statement, dialect: Dialect) -> int:
    """The most iterations of a lockstep scope around a statement: the lanes of the widest of its dtypes, as
    far as the target has vectors of them; 0 if it has none of the dtype that is written."""
    lanes = dialect.lanes
    if statement.dtype not in lanes:
        return 0
    return min([lanes[dtype] for dtype in statement.dtypes if dtype in lanes])


def lane_counts(scope: Scope, dialect: Dialect) -> set[int]:
    """The numbers of lanes, above 1, that vectors of the statements below a scope may have."""
    counts = {most_lanes(leaf.statement, dialect) for leaf in scope.leaves}
    return {count for count in counts if count > 1}


def transposed_copy(program: Program, scope: Scope, level: int) -> Statement | None:
    """The copy in the two loops that begin with ``scope``, at ``level``, if it copies rows to columns: the
    outer loop walks through neighbours of what is read, the inner one through neighbours of what is written,
    and no cell is written twice.
    """
    inner = scope.body[0]
    if len(scope.body) != 1 or not isinstance(inner, Scope) or inner.suffix or len(inner.body) != 1:
        return None
    statement = inner.body[0]
    if not isinstance(statement, Statement) or statement.guard or not is_copy(statement):
        return None
    target, source = (program.buffer_of[a.array] for a in (statement.target, statement.reads[0]))
    read, write = statement.reads[0].subscripts, statement.target.subscripts
    if lane_stride(source, read, level) != 1 or lane_stride(target, write, level + 1) != 1:
        return None
    if lane_stride(source, read, level + 1) in (None, 0, 1) or source is target:
        return None
    # Overlapping rows are right only if they are copied in their order.
    rows_apart = lane_stride(target, write, level)
    return statement if rows_apart is not None and abs(rows_apart) >= inner.size else None


def is_copy(statement: Statement) -> bool:
    return statement.accumulate is None and isinstance(statement.value, Read)


def parallel_users(program: Program, buffer: Buffer, dialect: Dialect) -> Iterator[Scope]:
    """Parallel scopes around some access of a buffer but not around all of them."""
    return _parallel_users(program.body, frozenset(buffer.arrays), dialect, False)


def _parallel_users(
    nodes: tuple[Node, ...], arrays: frozenset[str], dialect: Dialect, apart: bool
) -> Iterator[Scope]:
    """``apart``: there are accesses elsewhere than in ``nodes``."""
    for node in nodes:
        if not isinstance(node, Scope) or arrays.isdisjoint(node.arrays):
            continue
        if dialect.any_parallel(node.suffixes):
            beside = apart or any(not arrays.isdisjoint(n.arrays) for n in nodes if n is not node)
            if dialect.is_parallel(node.suffix):
                if beside:
                    yield node
                if not dialect.nested_parallel:
                    continue
            yield from _parallel_users(node.body, arrays, dialect, beside)


def index_ranges(program: Program) -> Mapping[str, tuple[int, int]]:
    """Integer inputs that run-time indices are read from, each with the range of indices that it gives."""
    found: dict[str, tuple[int, int]] = {}
    for place in program.places:
        if isinstance(place.node, Statement):
            for lookup in place.node.lookups:
                low, high = lookup.bounds(place.sizes)
                for array in {read.array for read in lookup.reads}:
                    least, most = found.get(array, (low, high))
                    found[array] = min(low, least), max(high, most)
    return found
