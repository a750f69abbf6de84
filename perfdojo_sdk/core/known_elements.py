"""The elements of tables that a statement reads, as a form of the iterators around it.

A table's elements are constants, so the value of a read of one, or of a run-time index made of nothing else,
is known in every iteration. :func:`run_of` finds out whether these values are one constant, or go in equal
steps along each loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import copysign, prod
from typing import NamedTuple, assert_never

from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, integer_bounds, wrap
from perfdojo_sdk.core.expression import (
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Quotient,
    Read,
    walk,
)
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.operations import OPERATIONS, integer_operation
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.storage import Buffer

#: Most iterations whose values are looked at, one by one.
MOST_ITERATIONS = 1 << 18


class Run(NamedTuple):
    """The values of an expression in the iterations of a box."""

    form: AffineExpr
    """A form of the iterators with the values of the first iteration and of the second along each loop; of
    floats, zero."""
    constant: float | int | None
    """The value in the first iteration, if the form says that it stays; None where it changes."""
    broken: Break | None
    """The first iteration with another value; None if there is none."""


class Break(NamedTuple):
    """An iteration in which a run of values ends."""

    level: int
    """The outermost loop that has gone on there."""
    at: int
    """Its iteration."""
    found: float | int
    """The value there."""


def lookups_and_reads(program: Program, statement: Statement) -> tuple[Lookup | Read, ...]:
    """The run-time indices of a statement that read a table, and the reads of tables in its value; different
    ones, in the order of the text."""
    tables = program.tables
    found: dict[Lookup | Read, None] = {}
    if not tables or tables.keys().isdisjoint(statement.arrays):
        return ()
    reads = [node for node in walk(statement.value) if isinstance(node, Read)]
    for access, read in ((statement.target, None), *((read.access, read) for read in reads)):
        for subscript in access.subscripts:
            parts = [part for part, _ in subscript.quotients if isinstance(part, Lookup)]
            found |= {part: None for part in parts if any(r.array in tables for r in part.reads)}
        if read is not None and access.array in tables:
            found[read] = None
    return tuple(found)


def foreign_read(program: Program, value: Expression) -> Read | None:
    """A read of anything but a table in a value, subscripts included."""
    for node in walk(value):
        if isinstance(node, Read):
            if node.access.array not in program.tables:
                return node
            for lookup in _lookups(node):
                if (found := foreign_read(program, lookup.value)) is not None:
                    return found
    return None


def beyond(program: Program, value: Expression, sizes: Sequence[int]) -> Read | None:
    """A read of a table in a value that may lie outside of it in some iteration, one that a condition leaves
    out."""
    for node in walk(value):
        if isinstance(node, Read):
            shape = program.buffer_of[node.access.array].shape
            for form, size in zip(node.access.subscripts, shape, strict=True):
                low, high = form.bounds(sizes)
                if low < 0 or high >= size:
                    return node
            for lookup in _lookups(node):
                if (found := beyond(program, lookup.value, sizes)) is not None:
                    return found
    return None


def _lookups(read: Read) -> list[Lookup]:
    return [part for form in read.access.subscripts for part, _ in form.quotients if isinstance(part, Lookup)]


def moving_levels(value: Expression, sizes: Sequence[int]) -> tuple[int, ...]:
    """The loops of more than one iteration that a value depends on, outermost first."""
    return tuple([level for level in sorted(value.levels) if sizes[level] > 1])


def iterations(value: Expression, sizes: Sequence[int]) -> int:
    """The number of iterations in which a value may differ."""
    return prod(sizes[level] for level in moving_levels(value, sizes))


def ends_of_runs(program: Program) -> Mapping[str, set[int]]:
    """Id of a scope -> its iterations in which the first run of something that tables give ends."""
    found: dict[str, set[int]] = {}
    for node, _, above, sizes in program.places if program.tables else ():
        for part in lookups_and_reads(program, node) if isinstance(node, Statement) else ():
            value = part.value if isinstance(part, Lookup) else part
            if foreign_read(program, value) or beyond(program, value, sizes):
                continue
            if iterations(value, sizes) <= MOST_ITERATIONS:
                broken = run_of(program, value, sizes).broken
                if broken is not None:
                    found.setdefault(above[broken.level].id, set()).add(broken.at)
    return found


#: Results of :func:`run_of`, by the value, the sizes and ``id()`` of the elements.
_RUNS: dict[tuple[object, ...], tuple[tuple[Buffer, ...], Run]] = {}
_MOST_RUNS = 1000


def run_of(program: Program, value: Expression, sizes: tuple[int, ...]) -> Run:
    """The run of a value that reads nothing but tables, inside of them, in the iterations of a box.

    It has at most :data:`MOST_ITERATIONS`.
    """
    buffers = tuple([program.buffer_of[read.access.array] for read in _every_read(value)])
    levels = moving_levels(value, sizes)
    key = (
        value,
        tuple([(level, sizes[level]) for level in levels]),
        *[id(buffer.values) for buffer in buffers],
    )
    known = _RUNS.get(key)
    if known is not None and all(a.values is b.values for a, b in zip(known[0], buffers, strict=True)):
        return known[1]
    if len(_RUNS) >= _MOST_RUNS:
        _RUNS.clear()
    run = _Values(program, levels, sizes).run(value)
    _RUNS[key] = buffers, run
    return run


def _every_read(value: Expression) -> Iterator[Read]:
    for node in walk(value):
        if isinstance(node, Read):
            yield node
            for lookup in _lookups(node):
                yield from _every_read(lookup.value)


class _Values:
    """The values of expressions along the innermost of some loops, for each iteration of the others."""

    def __init__(self, program: Program, levels: tuple[int, ...], sizes: tuple[int, ...]) -> None:
        self.program, self.levels, self.sizes = program, levels, sizes
        self.at = dict.fromkeys(range(len(sizes)), 0)
        """The iteration of each loop but the innermost one."""
        self.inner = levels[-1] if levels else -1
        self.count = sizes[self.inner] if levels else 1

    def run(self, value: Expression) -> Run:
        outer = self.levels[:-1]
        first = self.row(value)
        start, steps = first[0], dict[int, int]()
        whole = value.dtype in INTEGER_DTYPES
        if whole:
            if self.levels:
                steps[self.inner] = int(first[1] - start)
            for level in outer:
                self.at[level] = 1
                steps[level] = int(self.row(value)[0] - start)
                self.at[level] = 0
        form = AffineExpr.of(steps, int(start) if whole else 0)
        step = steps.get(self.inner, 0)
        for turn in product(*[range(self.sizes[level]) for level in outer]):
            self.at.update(zip(outer, turn, strict=True))
            row = self.row(value)
            begin = (
                start + sum(steps[level] * k for level, k in zip(outer, turn, strict=True))
                if whole
                else start
            )
            k = _departs(row, begin, step, whole)
            if k is not None:
                moved = [(l, i) for l, i in zip(self.levels, (*turn, k), strict=True) if i]
                return Run(form, None if form.terms else start, Break(*moved[0], row[k]))
        return Run(form, None if form.terms else start, None)

    def row(self, value: Expression) -> Sequence[float | int]:
        """The value in each iteration of the innermost loop."""
        match value:
            case Literal():
                return [value.value] * self.count
            case IndexValue():
                return _wrapped(self.form(value.index), value.dtype)
            case Cast():
                return _wrapped(self.row(value.argument), value.dtype)
            case Read():
                return self.read(value)
            case Operation():
                arguments = [self.row(argument) for argument in value.arguments]
                if OPERATIONS[value.name].chooses:
                    return [one if chosen else other for chosen, one, other in zip(*arguments, strict=True)]
                return list(map(integer_operation(value.name, value.operand_dtype), *arguments))
            case _:
                assert_never(value)

    def read(self, value: Read) -> Sequence[float | int]:
        buffer = self.program.buffer_of[value.access.array]
        assert buffer.values is not None
        return list(map(buffer.values.__getitem__, self.form(buffer.address(value.access.subscripts))))

    def form(self, form: AffineExpr) -> Sequence[int]:
        """The values of a subscript in each iteration of the innermost loop."""
        start = form.constant + sum(c * self.at[level] for level, c in form.terms if level != self.inner)
        step = form.coefficients.get(self.inner, 0)
        found: Sequence[int] = range(start, start + step * self.count, step) if step else [start] * self.count
        for part, c in form.quotients:
            if isinstance(part, Quotient):
                inner, divisor = self.form(part.dividend), part.divisor
                more = [i % divisor for i in inner] if part.remainder else [i // divisor for i in inner]
            else:
                assert isinstance(part, Lookup), "parts are quotients and lookups"
                more = [int(each) for each in self.row(part.value)]
            found = [a + c * b for a, b in zip(found, more, strict=True)]
        return found


def _wrapped(values: Sequence[float | int], dtype: str) -> Sequence[int]:
    low, high = integer_bounds(dtype)
    return [each if low <= each <= high else wrap(each, dtype) for each in map(int, values)]


def _departs(row: Sequence[float | int], begin: float | int, step: int, whole: bool) -> int | None:
    """The first position of a row that does not go on in steps from its beginning; zeros have a sign."""
    if not whole:
        sign = copysign(1.0, begin)
        same = (each == begin and copysign(1.0, each) == sign for each in row)
        return next((k for k, each in enumerate(same) if not each), None)
    if not step:
        return next((k for k, each in enumerate(row) if each != begin), None)
    wanted = range(int(begin), int(begin) + step * len(row), step)
    return next((k for k, (a, b) in enumerate(zip(row, wanted, strict=True)) if a != b), None)
