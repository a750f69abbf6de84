"""The proof that the rows of one program are independent, given at two numbers of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from perfdojo_sdk.core.dependence import leaking_level
from perfdojo_sdk.core.expression import Access, AffineExpr, IndexValue, Literal, walk
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.program import Node as Tree
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.subscripts import Part, Quotient
from perfdojo_sdk.graph.graph import Shape


class Unlike(Exception):
    """Two programs differ in more than sizes that are multiples of the rows; its text says how."""


def per_row(one: int, other: int, rows: tuple[int, int]) -> int:
    """The part of a size that belongs to each row; 0 if it does not depend on rows."""
    if one == other:
        return 0
    if one % rows[0] or one // rows[0] * rows[1] != other:
        raise Unlike("it has a size that is no multiple of the number of rows")
    return one // rows[0]


class Layout(NamedTuple):
    """The rows of an array, row-major: ``outer`` times all rows, each time ``each`` elements of every row."""

    outer: int
    each: int

    def within(self, shape: Shape, dimension: int) -> Layout | None:
        """The part of it that lies in the dimension of a shape that has the rows; None if they do not lie in
        one dimension."""
        before, behind = prod(shape[:dimension]), prod(shape[dimension + 1 :])
        fits = self.outer % before == 0 and self.each % behind == 0
        return Layout(self.outer // before, self.each // behind) if fits else None

    def around(self, shape: Shape, dimension: int) -> Layout:
        """The layout of a whole array whose dimension has this one."""
        return Layout(self.outer * prod(shape[:dimension]), self.each * prod(shape[dimension + 1 :]))


class _Place(NamedTuple):
    """A statement with the loops around it."""

    statement: Statement
    above: tuple[Scope, ...]
    sizes: tuple[int, ...]
    loops: tuple[tuple[int, int], ...]
    """The row loops: level, and iterations for each row."""


class Proof:
    """The proof for one program, given at two numbers of rows. ``known``: the layouts of inputs; ``flags``:
    arrays that say of all rows together whether one of them is wrong."""

    def __init__(
        self,
        one: Program,
        other: Program,
        rows: tuple[int, int],
        known: Mapping[str, Layout],
        flags: frozenset[str] = frozenset(),
    ) -> None:
        self.program, self.flags = one, flags
        self.dimensions: dict[str, tuple[int, int]] = {}
        """Array with rows -> the dimension that they lie in, and its elements for each row."""
        for a, b in zip(one.buffers, other.buffers, strict=True):
            for k, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)):
                if size := per_row(x, y, rows):
                    self.dimensions.update(dict.fromkeys(a.arrays, (k, size)))
        self.places = list(_places(one.body, other.body, rows))
        self.rows: dict[str, Layout] = {}
        """Array with rows -> how they lie in their dimension."""
        self.loops: dict[int, int] = {}
        """``id()`` of a row loop -> how many times it goes through all rows."""
        self.misplaced = ""
        for array, layout in known.items():
            shape, dimension = one.buffer_of[array].shape, self.dimensions[array][0]
            inside = layout.within(shape, dimension)
            if inside is None:
                self.misplaced = "it reshapes rows together with another dimension"
            else:
                self.rows.update(dict.fromkeys(one.buffer_of[array].arrays, inside))
        self._spread()

    @property
    def layouts(self) -> Mapping[str, Layout]:
        """Array with rows -> its layout."""
        buffers = self.program.buffer_of
        return {a: l.around(buffers[a].shape, self.dimensions[a][0]) for a, l in self.rows.items()}

    def _spread(self) -> None:
        """Find how rows lie in the other arrays, and in loops: as in what stands in a statement with them;
        and side by side where nothing says."""
        single = [p for p in self.places if len(p.loops) == 1]
        guesses = [p for p in single if p.loops[0][1] > 1]
        while True:
            before = len(self.rows) + len(self.loops)
            for place in single:
                self._spread_in(place)
            if len(self.rows) + len(self.loops) > before:
                continue
            missing = next((p for p in guesses if self._loop_id(p) not in self.loops), None)
            if missing is None:
                break
            self.loops[self._loop_id(missing)] = 1
        for array, (_, size) in self.dimensions.items():
            self.rows.setdefault(array, Layout(1, size))

    @staticmethod
    def _loop_id(place: _Place) -> int:
        return id(place.above[place.loops[0][0]])

    def _spread_in(self, place: _Place) -> None:
        loop, size = self._loop_id(place), place.loops[0][1]
        arrays = [a.array for a in (place.statement.target, *place.statement.every_read)]
        arrays = [array for array in arrays if array in self.dimensions]
        outer = self.loops.get(loop, 1 if size == 1 else 0)
        known = [self.rows[array].outer for array in arrays if array in self.rows]
        outer = outer or next(iter(known), 0)
        if not outer or size % outer:
            return
        self.loops[loop] = outer
        for array in arrays:
            each = self.dimensions[array][1]
            if array not in self.rows and each % outer == 0:
                for alias in self.program.buffer_of[array].arrays:
                    self.rows[alias] = Layout(outer, each // outer)

    def obstacle(self) -> str:
        """The reason why rows are not independent, or nothing."""
        reasons = (self._statement(place) for place in self.places)
        return next(filter(None, (self.misplaced, *reasons, *self._shared())), "")

    def _statement(self, place: _Place) -> str:
        statement = place.statement
        accesses = (statement.target, *statement.every_read)
        if len(place.loops) > 1:
            return f"it pairs rows with each other: {_line(statement)}"
        if not place.loops:
            lonely = [access.text for access in accesses if access.array in self.dimensions]
            return f"it reads or writes {lonely[0]} for all rows" if lonely else ""
        ((level, each),) = place.loops
        outer = self.loops.get(self._loop_id(place), 1)
        loop = _Loop(level, outer, each // outer, place.sizes)
        for access in accesses:
            if access.array in self.dimensions:
                if not self._own(access, loop):
                    return f"a row meets another one at {access.text}"
            elif not all(map(loop.alike, access.subscripts)):
                return f"which row it is decides about {access.text}"
        if statement.target.array not in self.dimensions and statement.target.array in self.program.interface:
            if not self._flag(statement.target.array):
                return f"it reduces over the rows: {_line(statement)}"
        indices = [v.index for v in walk(statement.value) if isinstance(v, IndexValue)]
        if not all(map(loop.alike, (*indices, *statement.guard))):
            return f"it uses the number of a row: {_line(statement)}"
        return ""

    def _own(self, access: Access, loop: _Loop) -> bool:
        """True if an access is to the row of the iteration, at a place that is the same in each row."""
        dimension, layout = self.dimensions[access.array][0], self.rows[access.array]
        rest = [form for k, form in enumerate(access.subscripts) if k != dimension]
        inside = loop.size(access.subscripts[dimension]) == layout.each
        return layout.outer == loop.outer and inside and all(map(loop.alike, rest))

    def _flag(self, array: str) -> bool:
        """True if an array is the largest of 0 and of what each row gives, and only checks look at it."""
        read = any(access.array == array for p in self.places for access in p.statement.every_read)
        if array not in self.flags or read:
            return False
        writes = [p for p in self.places if p.statement.target.array == array]
        return all(
            p.statement.accumulate == "max"
            if p.loops
            else p.statement.accumulate is None and p.statement.value == Literal(0, p.statement.dtype)
            for p in writes
        )

    def _shared(self) -> Iterator[str]:
        """Temporaries without rows that are written in row loops, and hand values on from row to row."""
        loops = {id(p.above[p.loops[0][0]]): p.loops[0][0] for p in self.places if p.loops}
        for buffer in self.program.buffers:
            if not self.program.interface.isdisjoint(buffer.arrays) or buffer.arrays[0] in self.dimensions:
                continue
            occurrences = self.program.occurrences[buffer.name]
            around = [[id(scope) for scope in o.above if id(scope) in loops] for o in occurrences]
            written = [loop for o, loop in zip(occurrences, around, strict=True) if o.writes and loop]
            if not written:
                continue
            depth = loops[written[0][0]] + 1
            outside = any(loop != written[0] for loop in around)
            if outside or leaking_level(buffer, occurrences, depth) is not None:
                sums = [o.statement for o in occurrences if o.writes and o.statement.accumulate]
                yield (
                    f"it reduces over the rows: {_line(sums[0])}"
                    if sums
                    else (f"it hands {buffer.name} on from one row to another")
                )


def _line(statement: Statement) -> str:
    return statement.text[:120]


def _places(
    one: Sequence[Tree],
    other: Sequence[Tree],
    rows: tuple[int, int],
    above: tuple[Scope, ...] = (),
    loops: tuple[tuple[int, int], ...] = (),
) -> Iterator[_Place]:
    for a, b in zip(one, other, strict=True):
        if isinstance(a, Statement):
            yield _Place(a, above, tuple(scope.size for scope in above), loops)
            continue
        assert isinstance(b, Scope), "both programs are of one family"
        each = per_row(a.size, b.size, rows)
        inside = (*loops, (len(above), each)) if each else loops
        yield from _places(a.body, b.body, rows, (*above, a), inside)


@dataclass(frozen=True)
class _Loop:
    """A row loop around a statement, which goes ``outer`` times through all rows: iteration ``i`` is one of
    row ``i // each`` of them."""

    level: int
    outer: int
    each: int
    sizes: tuple[int, ...]

    def alike(self, form: AffineExpr) -> bool:
        """True if a form has the same value in each row, for the same place within the row."""
        return self.level not in form.coefficients and all(self._alike(part) for part, _ in form.quotients)

    def _alike(self, part: Part) -> bool:
        if isinstance(part, Lookup):  # its elements are accesses of the statement
            values = [v.index for v in walk(part.value) if isinstance(v, IndexValue)]
            return all(map(self.alike, values))
        assert isinstance(part, Quotient), "parts are quotients and lookups"
        if self.alike(part.dividend):
            return True
        if not part.remainder:
            return False
        factor, rest = self._apart(part.dividend)
        size = factor * self.each if self.alike(rest) else self.size(part.dividend)
        return size != 0 and size % part.divisor == 0

    def size(self, form: AffineExpr) -> int:
        """The number ``s`` for which ``form // s`` is ``i // each``, and ``form % s`` is the same in each
        row; 0 if there is none.

        Such a form is a multiple of the iteration, or of a quotient of such a form, and a rest that is too
        small to reach another row.
        """
        carriers = [(c, self.each) for level, c in form.terms if level == self.level]
        _, rest = self._apart(AffineExpr.of(dict(form.terms), form.constant))
        for part, factor in form.quotients:
            if self._alike(part):
                rest = rest.plus(AffineExpr.of({}, 0, ((part, 1),)), factor)
                continue
            if not isinstance(part, Quotient) or part.remainder:
                return 0
            inner = self.size(part.dividend)
            if not inner or inner % part.divisor:
                return 0
            carriers.append((factor, inner // part.divisor))
        if len(carriers) != 1:
            return 0
        ((factor, inner),) = carriers
        return factor * inner if self._within(rest, factor) else 0

    def _apart(self, form: AffineExpr) -> tuple[int, AffineExpr]:
        """The coefficient of the iteration, and the form without that."""
        terms = {level: c for level, c in form.terms if level != self.level}
        return form.coefficients.get(self.level, 0), AffineExpr.of(terms, form.constant, form.quotients)

    def _within(self, rest: AffineExpr, factor: int) -> bool:
        """True if a rest is the same in each row, and between 0 and ``factor - 1``."""
        low, high = rest.bounds(self.sizes)
        return self.alike(rest) and low >= 0 and high < factor
