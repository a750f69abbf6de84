"""Programs with the elements of tables written out, so that the dependence leg can compare them.

A move may put numbers in the place of reads of a table. This module computes the value of each such read, and
of each run-time index that reads nothing else, in every iteration, one by one. Where all of them are one
number, or an affine form of the iterators, it stands in the statement instead; so two statements that differ
in what is known of tables alone become equal. It uses nothing of the moves' own reasoning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TypeAlias, assert_never

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, integer_bounds, wrap
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
    walk,
)
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.operations import OPERATIONS, integer_operation
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.subscripts import Quotient

#: Most iterations in which a value is computed.
MOST_ITERATIONS = 1 << 18

_Number: TypeAlias = float | int
_Tables: TypeAlias = Mapping[str, tuple[tuple[int, ...], tuple[_Number, ...]]]
"""Name -> shape and elements."""


class _Unknown(Exception):
    """The value is not that of constants alone, or not in every iteration."""


def with_elements(program: Program, statements: Collection[str]) -> Program:
    """The program with all that is known of its tables written into these statements."""
    tables = {name: (program.buffer_of[name].shape, values) for name, values in program.tables.items()}

    def tree(node: Node, sizes: tuple[int, ...]) -> Node:
        if isinstance(node, Scope):
            inside = (*sizes, node.size)
            return node.with_body(tuple([tree(child, inside) for child in node.body]))
        if node.id not in statements:
            return node
        writing = _Writing(tables, sizes)
        return node.with_parts(writing.access(node.target), writing.value(node.value))

    return program.with_body(tuple([tree(node, ()) for node in program.body]))


class _Writing:
    """Known elements, written into the parts of a statement inside loops of these sizes."""

    def __init__(self, tables: _Tables, sizes: tuple[int, ...]) -> None:
        self.tables, self.sizes = tables, sizes

    def access(self, access: Access) -> Access:
        return Access(access.array, tuple(map(self._subscript, access.subscripts)))

    def _subscript(self, form: AffineExpr) -> AffineExpr:
        for part, factor in form.quotients:
            known = self._affine(part.value) if isinstance(part, Lookup) else None
            if known is not None:
                form = form.plus(AffineExpr.of({}, 0, ((part, 1),)), -factor).plus(known, factor)
        return form

    def value(self, value: Expression) -> Expression:
        match value:
            case Read():
                return self._read(value)
            case Cast():
                return self._conversion(Cast(self.value(value.argument), value.dtype))
            case Operation():
                return Operation(value.name, tuple(map(self.value, value.arguments)), value.dtype)
            case Literal() | IndexValue():
                return value
            case _:
                assert_never(value)

    def _read(self, read: Read) -> Expression:
        if read.access.array in self.tables:
            known = self._affine(read) if read.dtype in INTEGER_DTYPES else None
            if known is not None and known.terms:
                return IndexValue(known, read.dtype)
            if known is not None:
                return Literal(known.constant, read.dtype)
            if read.dtype not in INTEGER_DTYPES and (number := self._same(read)) is not None:
                return Literal(number, read.dtype)
        return Read(self.access(read.access), read.dtype)

    def _conversion(self, cast: Cast) -> Expression:
        """The conversion, or the number that a conversion of a known integer gives exactly."""
        known, dtype = cast.argument, cast.dtype
        if dtype == "bool" and isinstance(known, Literal) and known.dtype in INTEGER_DTYPES:
            return Literal(wrap(int(known.value), dtype), dtype)
        if known.dtype not in INTEGER_DTYPES or dtype not in (*INTEGER_DTYPES, *FLOAT_DTYPES):
            return cast
        low, high = integer_bounds(dtype) if dtype in INTEGER_DTYPES else (-(2**8), 2**8)
        if isinstance(known, Literal) and low <= known.value <= high:
            return Literal(int(known.value) if dtype in INTEGER_DTYPES else float(known.value), dtype)
        if isinstance(known, IndexValue) and dtype in INTEGER_DTYPES and not known.index.quotients:
            least, most = known.index.bounds(self.sizes)
            narrow = integer_bounds(known.dtype)
            if max(low, narrow[0]) <= least and most <= min(high, narrow[1]):
                return IndexValue(known.index, dtype)
        return cast

    # -- values in every iteration -----------------------------------------------------------------

    def _affine(self, value: Expression) -> AffineExpr | None:
        """The affine form of the iterators that an integer is; None if it is none, or not known."""
        levels = sorted(value.levels)
        try:
            found = dict(self._all(value, levels))
        except _Unknown:
            return None
        start = (0,) * len(levels)
        steps = {}
        for k, level in enumerate(levels):
            second = tuple([int(place == k) for place in range(len(levels))])
            steps[level] = int(found[second] - found[start]) if second in found else 0
        for turn, number in found.items():
            if number != found[start] + sum(steps[l] * i for l, i in zip(levels, turn, strict=True)):
                return None
        return AffineExpr.of(steps, int(found[start]))

    def _same(self, value: Expression) -> _Number | None:
        """The number that a value is in every iteration, the sign of a zero included; None for another."""
        try:
            found = {(number, str(number)) for _, number in self._all(value, sorted(value.levels))}
        except _Unknown:
            return None
        return found.pop()[0] if len(found) == 1 else None

    def _all(self, value: Expression, levels: Sequence[int]) -> Iterator[tuple[tuple[int, ...], _Number]]:
        """The value in each iteration of some loops, the others at their start."""
        sizes = [self.sizes[level] for level in levels]
        reads = [node for node in walk(value) if isinstance(node, Read)]
        if prod(sizes) > MOST_ITERATIONS or not reads:
            raise _Unknown
        at = [0] * len(self.sizes)
        for turn in product(*map(range, sizes)):
            for level, k in zip(levels, turn, strict=True):
                at[level] = k
            yield turn, self._number(value, at)

    def _number(self, value: Expression, at: Sequence[int]) -> _Number:
        """The value in one iteration."""
        match value:
            case Literal():
                return value.value
            case IndexValue():
                return wrap(self._index(value.index, at), value.dtype)
            case Read():
                return self._element(value.access, at)
            case Cast():
                return wrap(int(self._number(value.argument, at)), value.dtype)
            case Operation():
                numbers = [self._number(argument, at) for argument in value.arguments]
                if OPERATIONS[value.name].chooses:
                    return numbers[1] if numbers[0] else numbers[2]
                return integer_operation(value.name, value.operand_dtype)(*numbers)
            case _:
                assert_never(value)

    def _element(self, access: Access, at: Sequence[int]) -> _Number:
        if access.array not in self.tables:
            raise _Unknown
        shape, elements = self.tables[access.array]
        place = 0
        for form, size in zip(access.subscripts, shape, strict=True):
            index = self._index(form, at)
            if not 0 <= index < size:
                raise _Unknown  # in an iteration that a condition leaves out
            place = place * size + index
        return elements[place]

    def _index(self, form: AffineExpr, at: Sequence[int]) -> int:
        total = form.constant + sum(factor * at[level] for level, factor in form.terms)
        for part, factor in form.quotients:
            if isinstance(part, Quotient):
                dividend = self._index(part.dividend, at)
                total += factor * (dividend % part.divisor if part.remainder else dividend // part.divisor)
            else:
                assert isinstance(part, Lookup), "parts are quotients and lookups"
                total += factor * int(self._number(part.value, at))
        return total
