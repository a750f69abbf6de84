"""Free rows: one graph for every size of the outermost dimension, if its rows are independent.

A model is lowered at two numbers of rows. Sizes that differ between the two graphs have to be multiples of
the rows, and nothing else may differ. A *row loop* is a loop of such a size: each row takes the same number
of its iterations, one row after the other. Rows are independent if every statement instance touches elements
of one row only, the row of its iteration, at places that do not depend on which row it is. The graph for any
other number of rows then has the same programs with other sizes, and what it gives for a row is the same
whatever rows are beside it.

Arrays may have their rows in any one dimension; those of inputs and outputs are outermost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from perfdojo_sdk.core.dependence import leaking_level
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.expression import Access, AffineExpr, IndexValue, Literal, walk
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.program import Node as Tree
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.subscripts import Part, Quotient
from perfdojo_sdk.graph.graph import Array, Graph, Node, Shape
from perfdojo_sdk.graph.writer import parsed

#: Numbers of rows at which a model is lowered to find what they decide: two primes, so that a size is a
#: multiple of both by chance hardly ever, and then the proof or the third graph fails.
LOWERED_AT = (1009, 1013)
#: Most rows of a call, unless the user names another number.
MOST_ROWS = 2**16

HINT = "give the dimension a size: --input NAME=DTYPE[SIZES]"

LoweredAt: TypeAlias = Callable[[int], Graph]
"""Lowers a model at a number of rows."""


class RowsDepend(DojoError):
    """The rows of a model depend on each other, or on their number; :attr:`found` has each node and why."""

    def __init__(self, found: Sequence[tuple[str, str]]) -> None:
        self.found = tuple(found)
        nodes = ", ".join(node for node, _ in self.found[:5])
        more = f" and {len(self.found) - 5} more" if len(self.found) > 5 else ""
        why = "; ".join(f"{node}: {why}" for node, why in self.found[:5])
        super().__init__("PD-O050", f"rows cannot be free because of {nodes}{more}", why=why, hint=HINT)

    def __reduce__(self) -> tuple[object, ...]:
        return (RowsDepend, (self.found,))


class _Unlike(Exception):
    """Two programs differ in more than sizes that are multiples of the rows; its text says how."""


@dataclass(frozen=True)
class FreeRows:
    """A graph whose rows are independent, at every number of them."""

    graphs: tuple[Graph, Graph]
    rows: tuple[int, int]
    """The numbers of rows of both graphs."""
    name: str = "rows"
    """What users call the dimension."""
    most: int = MOST_ROWS

    @cached_property
    def dimensions(self) -> Mapping[str, int]:
        """Value with rows -> the dimension that they lie in."""
        one, other = (graph.values for graph in self.graphs)
        found = {name: _dimension(value.shape, other[name].shape) for name, value in one.items()}
        return {name: dimension for name, dimension in found.items() if dimension is not None}

    def at(self, rows: int) -> Graph:
        """The graph for so many rows."""
        one, other = self.graphs

        def shape_of(name: str) -> Shape:
            return _resized_shape(one.values[name].shape, other.values[name].shape, self.rows, rows)

        programs: dict[str, Program] = {}
        for a, b in zip(one.nodes, other.nodes, strict=True):
            if a.program.text not in programs:
                programs[a.program.text] = _resized(a.program, b.program, self.rows, rows)
        values = {name: replace(value, shape=shape_of(name)) for name, value in one.values.items()}
        return replace(
            one,
            inputs=tuple(values[value.name] for value in one.inputs),
            outputs=tuple(values[value.name] for value in one.outputs),
            nodes=tuple(replace(node, program=programs[node.program.text]) for node in one.nodes),
            values=values,
            constants={
                name: _repeated(data, self.dimensions.get(name), values[name].shape)
                for name, data in one.constants.items()
            },
        )


def free_rows(
    lowered_at: LoweredAt, free: Collection[str], name: str = "rows", most: int = MOST_ROWS
) -> FreeRows:
    """A model whose inputs ``free`` have rows, if they are independent; else :class:`RowsDepend`.

    The model is lowered at :data:`LOWERED_AT` for the proof, and once more at 2 and at ``most`` rows, where
    the graph has to be the one that the proof speaks about: a model may ask how many rows there are.
    """
    one, other = (lowered_at(rows) for rows in LOWERED_AT)
    found = FreeRows((one, other), LOWERED_AT, name, most)
    _require(_differences(found))
    _require(_dependences(found, free))
    for rows in (2, most):
        if rows not in LOWERED_AT and rows > 1:
            _require(_unlike(found.at(rows), lowered_at(rows), rows))
    return found


def _require(reasons: Iterator[tuple[str, str]]) -> None:
    found = list(dict.fromkeys(reasons))
    if found:
        raise RowsDepend(found)


# -- two graphs --------------------------------------------------------------------------------------


def _named(node: Node) -> str:
    return node.origin or node.program.name


def _differences(found: FreeRows) -> Iterator[tuple[str, str]]:
    """What differs between the two graphs and is no multiple of the rows."""
    one, other = found.graphs
    for a, b in zip(one.nodes, other.nodes, strict=False):
        if (a.inputs, a.outputs, a.origin) != (b.inputs, b.outputs, b.origin):
            yield _named(a), "the number of rows decides which kernels it has"
            return
        try:
            _resized(a.program, b.program, found.rows, found.rows[0])
        except _Unlike as unlike:
            yield _named(a), str(unlike)
    same = (one.views, set(one.values), set(one.constants)) == (
        other.views,
        set(other.values),
        set(other.constants),
    )
    if not same or len(one.nodes) != len(other.nodes):
        yield "the whole model", "the number of rows decides which kernels it has"
        return
    for name, value in one.values.items():
        try:
            _resized_shape(value.shape, other.values[name].shape, found.rows, found.rows[0])
        except _Unlike as unlike:
            yield _user(one, name), str(unlike)
    for name, data in one.constants.items():
        if not _same_rows(data, other.constants[name], found.rows):
            yield _user(one, name), "it uses the number of rows, or the number of a row"


def _user(graph: Graph, name: str) -> str:
    """The node that makes or reads a value, or the output that it is."""
    users = [n for n in graph.nodes if name in n.outputs] + [n for n in graph.nodes if name in n.inputs]
    return _named(users[0]) if users else f"output {name}"


def _unlike(expected: Graph, found: Graph, rows: int) -> Iterator[tuple[str, str]]:
    """Nodes that are others at this number of rows than the proof assumes."""
    for a, b in zip(expected.nodes, found.nodes, strict=False):
        if (a.inputs, a.outputs, a.program.text) != (b.inputs, b.outputs, b.program.text):
            yield _named(b), f"its kernel is another one for {rows} rows"
            return
    constants = expected.constants.items()
    other = [n for n, value in expected.values.items() if found.values.get(n) != value]
    other += [n for n, data in constants if n not in found.constants or not _equal(data, found.constants[n])]
    for name in other[:1]:
        yield _user(expected, name), f"its shapes or constants are others for {rows} rows"
    if not other and (expected.views, len(expected.nodes)) != (found.views, len(found.nodes)):
        yield "the whole model", f"its graph is another one for {rows} rows"


def _dimension(one: Shape, other: Shape) -> int | None:
    """The dimension in which two shapes differ."""
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)


def _per_row(one: int, other: int, rows: tuple[int, int]) -> int:
    """How many of a size belong to each row; 0 if it does not depend on rows."""
    if one == other:
        return 0
    if one % rows[0] or one // rows[0] * rows[1] != other:
        raise _Unlike("it has a size that is no multiple of the number of rows")
    return one // rows[0]


def _resized_shape(one: Shape, other: Shape, rows: tuple[int, int], wanted: int) -> Shape:
    if len(one) != len(other):
        raise _Unlike("the number of rows decides how many dimensions it has")
    each = [_per_row(a, b, rows) for a, b in zip(one, other, strict=True)]
    if sum(map(bool, each)) > 1:
        raise _Unlike("it pairs rows with each other: an array has two dimensions of them")
    return tuple(k * wanted if k else size for k, size in zip(each, one, strict=True))


def _equal(one: Array, other: Array) -> bool:
    if one is other:
        return True
    same = (one.dtype, one.shape) == (other.dtype, other.shape)
    first, second = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return same and np.array_equal(first, second)


def _same_rows(one: Array, other: Array, rows: tuple[int, int]) -> bool:
    """True if two constants are equal, or made of equal rows."""
    dimension = _dimension(one.shape, other.shape)
    if dimension is None:
        return _equal(one, other)
    first = _row(one, dimension, rows[0])
    return all(_equal(_repeated(first, dimension, array.shape), array) for array in (one, other))


def _row(data: Array, dimension: int, rows: int) -> Array:
    return np.take(data, range(data.shape[dimension] // rows), axis=dimension)


def _repeated(data: Array, dimension: int | None, shape: Shape) -> Array:
    """A constant of equal rows with as many of them as ``shape`` has."""
    if dimension is None or data.shape == shape:
        return data
    size = data.shape[dimension]
    times = -(-shape[dimension] // size)
    repeated = np.concatenate([data] * times, axis=dimension)
    return np.ascontiguousarray(np.take(repeated, range(shape[dimension]), axis=dimension))


def _resized(one: Program, other: Program, rows: tuple[int, int], wanted: int) -> Program:
    """The program for another number of rows; :class:`_Unlike` if the two are none of one family."""
    heads = [(p.inputs, p.outputs, len(p.buffers), len(p.body)) for p in (one, other)]
    if heads[0] != heads[1]:
        raise _Unlike("the number of rows decides what it computes")
    buffers = tuple(
        _resized_buffer(a, b, rows, wanted) for a, b in zip(one.buffers, other.buffers, strict=True)
    )
    body = tuple(_resized_tree(a, b, rows, wanted) for a, b in zip(one.body, other.body, strict=True))
    return parsed(Program(one.name, one.inputs, one.outputs, buffers, body).text)


def _resized_buffer(one: Buffer, other: Buffer, rows: tuple[int, int], wanted: int) -> Buffer:
    shape = _resized_shape(one.shape, other.shape, rows, wanted)
    if _with_sizes(one, shape) != _with_sizes(other, shape):
        raise _Unlike("the number of rows decides what it computes")
    return _with_sizes(one, shape)


def _with_sizes(buffer: Buffer, shape: Shape) -> Buffer:
    """The buffer with other sizes."""
    dimensions = zip(shape, buffer.dimensions, strict=True)
    return buffer.with_dimensions(tuple(Dimension(size, old.suffix) for size, old in dimensions))


def _resized_tree(one: Tree, other: Tree, rows: tuple[int, int], wanted: int) -> Tree:
    if isinstance(one, Statement):
        if not isinstance(other, Statement) or one.text != other.text:
            raise _Unlike("it uses the number of rows, or mixes their elements")
        return one
    if not isinstance(other, Scope) or (one.suffix, len(one.body)) != (other.suffix, len(other.body)):
        raise _Unlike("the number of rows decides what it computes")
    each = _per_row(one.size, other.size, rows)
    body = tuple(_resized_tree(a, b, rows, wanted) for a, b in zip(one.body, other.body, strict=True))
    return Scope(each * wanted if each else one.size, body, one.suffix, one.id)


# -- the proof -----------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """A statement with the loops around it."""

    statement: Statement
    above: tuple[Scope, ...]
    sizes: tuple[int, ...]
    loops: tuple[tuple[int, int], ...]
    """The row loops: level, and iterations for each row."""


def _dependences(found: FreeRows, free: Collection[str]) -> Iterator[tuple[str, str]]:
    """Nodes in which rows depend on each other, and inputs and outputs whose rows are not outermost."""
    one, other = found.graphs
    for value in (*one.inputs, *one.outputs):
        dimension = found.dimensions.get(value.name)
        kind = "input" if value in one.inputs else "output"
        if dimension is not None and prod(value.shape[:dimension]) != 1:
            yield f"{kind} {value.name}", f"its rows lie in dimension {dimension}, not in the outermost one"
    for value in one.inputs:
        if (value.name in found.dimensions) != (value.name in free):
            yield f"input {value.name}", "it has rows where it should have none, or the other way round"
    for cut in one.cuts:
        yield f"output {cut.output}", "its size depends on data"
    for view, of in one.views.items():
        empty = not one.values[view].elements
        if view in found.dimensions and not empty and _layout(found, view) != _layout(found, of):
            yield _user(one, view), "it reshapes rows together with another dimension"
    flags = _flags(one)
    done: dict[tuple[str, frozenset[str]], str] = {}
    for a, b in zip(one.nodes, other.nodes, strict=True):
        arrays = zip((*a.program.inputs, *a.program.outputs), (*a.inputs, *a.outputs), strict=True)
        flagged = frozenset(array for array, value in arrays if one.home(value) in flags)
        if (key := (a.program.text, flagged)) not in done:
            done[key] = _Proof(a.program, b.program, found.rows, flagged).obstacle()
        if done[key]:
            yield _named(a), done[key]


def _layout(found: FreeRows, name: str) -> tuple[int, int]:
    """Elements before the dimension of rows, and elements of a row behind it."""
    value, dimension = found.graphs[0].values[name], found.dimensions[name]
    before = prod(value.shape[:dimension])
    return before, value.elements // before // found.rows[0]


def _flags(graph: Graph) -> frozenset[str]:
    """Values that are looked at by checks and by nothing else."""
    read = {graph.home(name) for node in graph.nodes for name in node.inputs}
    read |= {graph.home(value.name) for value in graph.outputs}
    return frozenset(graph.home(check.value) for check in graph.checks) - read


class _Proof:
    """The proof for one program, given at two numbers of rows. ``flags``: arrays that say of all rows
    together whether one of them is wrong."""

    def __init__(
        self, one: Program, other: Program, rows: tuple[int, int], flags: frozenset[str] = frozenset()
    ) -> None:
        self.program, self.flags = one, flags
        self.rows: dict[str, tuple[int, int]] = {}
        """Array with rows -> the dimension that they lie in, and its elements for each row."""
        for a, b in zip(one.buffers, other.buffers, strict=True):
            each = [_per_row(x, y, rows) for x, y in zip(a.shape, b.shape, strict=True)]
            for k, size in enumerate(each):
                if size:
                    self.rows.update(dict.fromkeys(a.arrays, (k, size)))
        self.places = list(_places(one.body, other.body, rows))

    def obstacle(self) -> str:
        """The reason why rows are not independent, or nothing."""
        reasons = (self._statement(place) for place in self.places)
        return next(filter(None, (*reasons, *self._shared())), "")

    def _statement(self, place: _Place) -> str:
        statement = place.statement
        accesses = (statement.target, *statement.every_read)
        if len(place.loops) > 1:
            return f"it pairs rows with each other: {_line(statement)}"
        if not place.loops:
            lonely = [access.text for access in accesses if access.array in self.rows]
            return f"it reads or writes {lonely[0]} for all rows" if lonely else ""
        ((level, each),) = place.loops
        loop = _Loop(level, each, place.sizes)
        for access in accesses:
            if access.array in self.rows:
                if not self._own(access, loop):
                    return f"a row meets another one at {access.text}"
            elif not all(map(loop.alike, access.subscripts)):
                return f"which row it is decides about {access.text}"
        if statement.target.array not in self.rows and statement.target.array in self.program.interface:
            if not self._flag(statement.target.array):
                return f"it reduces over the rows: {_line(statement)}"
        indices = [v.index for v in walk(statement.value) if isinstance(v, IndexValue)]
        if not all(map(loop.alike, (*indices, *statement.guard))):
            return f"it uses the number of a row: {_line(statement)}"
        return ""

    def _own(self, access: Access, loop: _Loop) -> bool:
        """True if an access is to the row of the iteration, at a place that is the same in each row."""
        dimension, each = self.rows[access.array]
        rest = [form for k, form in enumerate(access.subscripts) if k != dimension]
        return all(map(loop.alike, rest)) and loop.in_row(access.subscripts[dimension], each)

    def _flag(self, array: str) -> bool:
        """True if an array is the largest of 0 and of what each row gives, and only checks look at it."""
        if array not in self.flags:
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
            if not self.program.interface.isdisjoint(buffer.arrays) or buffer.name in self.rows:
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
        each = _per_row(a.size, b.size, rows)
        inside = (*loops, (len(above), each)) if each else loops
        yield from _places(a.body, b.body, rows, (*above, a), inside)


@dataclass(frozen=True)
class _Loop:
    """A row loop around a statement: iteration ``i`` is one of row ``i // each``."""

    level: int
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
        factor, rest = self._apart(part.dividend)
        whole = part.remainder and factor * self.each % part.divisor == 0
        return (whole or not factor) and self.alike(rest)

    def in_row(self, form: AffineExpr, each: int) -> bool:
        """True if ``form // each`` is the iteration's row, and ``form % each`` the same in each row.

        The form is a multiple of the iteration, or of its quotient, and a rest that is too small to reach
        another row.
        """
        carriers = [(c, self.each) for level, c in form.terms if level == self.level]
        rest = AffineExpr.of({l: c for l, c in form.terms if l != self.level}, form.constant)
        for part, factor in form.quotients:
            if self._alike(part):
                rest = rest.plus(AffineExpr.of({}, 0, ((part, 1),)), factor)
            elif isinstance(part, Quotient) and not part.remainder and (size := self._quotient(part)):
                carriers.append((factor, size))
            else:
                return False
        if len(carriers) != 1:
            return False
        ((factor, size),) = carriers
        return factor * size == each and self._within(rest, factor)

    def _quotient(self, part: Quotient) -> int:
        """How many values of a quotient each row takes, one row after the other; 0 if they share some."""
        factor, rest = self._apart(part.dividend)
        whole = factor > 0 and factor * self.each % part.divisor == 0
        return factor * self.each // part.divisor if whole and self._within(rest, factor) else 0

    def _apart(self, form: AffineExpr) -> tuple[int, AffineExpr]:
        """The coefficient of the iteration, and the form without that."""
        terms = {level: c for level, c in form.terms if level != self.level}
        return form.coefficients.get(self.level, 0), AffineExpr.of(terms, form.constant, form.quotients)

    def _within(self, rest: AffineExpr, factor: int) -> bool:
        """True if a rest is the same in each row, and between 0 and ``factor - 1``."""
        low, high = rest.bounds(self.sizes)
        return self.alike(rest) and low >= 0 and high < factor
