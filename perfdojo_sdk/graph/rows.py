"""Free rows: one graph for every size of the outermost dimension, if its rows are independent.

A model is lowered at two numbers of rows. Sizes that differ between the two graphs have to be multiples of
the rows, and nothing else may differ. A *row loop* is a loop of such a size: it goes through all rows, once
or several times, and gives each the same number of iterations. Rows are independent if every statement
instance touches elements of one row only, the row of its iteration, at places that do not depend on which row
it is (:mod:`.row_proof`). The graph for any other number of rows then has the same programs with other sizes,
and what it gives for a row is the same whatever rows are beside it.

Arrays may have their rows in any one dimension; those of inputs and outputs are outermost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.expression import Literal
from perfdojo_sdk.core.program import Node as Tree
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array, Graph, Node, Shape
from perfdojo_sdk.graph.row_proof import Layout, Proof, Unlike, per_row
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


@dataclass(frozen=True)
class FreeRows:
    """A graph whose rows are independent, at every number of them."""

    graphs: tuple[Graph, Graph]
    rows: tuple[int, int]
    """The numbers of rows of both graphs."""
    name: str = "rows"
    """The name that users gave the dimension."""
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

        programs: dict[tuple[str, str], Program] = {}
        nodes = []
        for a, b in zip(one.nodes, other.nodes, strict=True):
            key = (a.program.text, b.program.text)
            if key not in programs:
                programs[key] = _resized(a.program, b.program, self.rows, rows)
            nodes.append(replace(a, program=programs[key]))
        values = {name: replace(value, shape=shape_of(name)) for name, value in one.values.items()}
        return replace(
            one,
            inputs=tuple(values[value.name] for value in one.inputs),
            outputs=tuple(values[value.name] for value in one.outputs),
            nodes=tuple(nodes),
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
    few = lowered_at(2)
    one, other = (_with_fills_known(lowered_at(rows), few) for rows in LOWERED_AT)
    found = FreeRows((one, other), LOWERED_AT, name, most)
    _require(_differences(found))
    _require(_dependences(found, free))
    _require(_unlike(found.at(2), few, 2))
    if most > 2:
        _require(_unlike(found.at(most), _with_fills_known(lowered_at(most), few), most))
    return found


def _with_fills_known(graph: Graph, few: Graph) -> Graph:
    """The graph whose fills are constants where those of ``few`` are: rules compute large ones in a call."""
    values = {n.outputs[0]: _filled(n) for n in graph.nodes if len(n.outputs) == 1 and not n.inputs}
    known = {
        name: np.broadcast_to(
            np.array(value, numpy_dtype(graph.values[name].dtype)), graph.values[name].shape
        )
        for name, value in values.items()
        if value is not None and name in few.constants
    }
    nodes = tuple(n for n in graph.nodes if n.outputs[0] not in known)
    return replace(graph, nodes=nodes, constants={**graph.constants, **known}) if known else graph


def _filled(node: Node) -> float | int | None:
    """The number that a kernel writes to all elements, if that is what it does."""
    body = node.program.body[0]
    _, statement = body.chain if isinstance(body, Scope) else ((), body)
    plain = len(node.program.body) == 1 and statement is not None and not statement.guard
    if not plain or statement is None or statement.accumulate is not None:
        return None
    whole = prod(body.leaves[0].sizes) == node.program.buffer_of[node.program.outputs[0]].cells
    return statement.value.value if whole and isinstance(statement.value, Literal) else None


def _require(reasons: Iterator[tuple[str, str]]) -> None:
    found = list(dict.fromkeys(reasons))
    if found:
        raise RowsDepend(found)


# -- two graphs --------------------------------------------------------------------------------------


def _named(node: Node) -> str:
    return node.origin or node.program.name


def _differences(found: FreeRows) -> Iterator[tuple[str, str]]:
    """Differences between the two graphs that are no multiples of the rows."""
    one, other = found.graphs
    for a, b in zip(one.nodes, other.nodes, strict=False):
        if (a.inputs, a.outputs, a.origin) != (b.inputs, b.outputs, b.origin):
            yield _named(a), "the number of rows decides which kernels it has"
            return
        try:
            _resized(a.program, b.program, found.rows, found.rows[0])
        except Unlike as unlike:
            yield _named(a), str(unlike)
    if _frame(one) != _frame(other):
        yield "the whole model", "the number of rows decides which kernels it has"
        return
    for name, value in one.values.items():
        try:
            _resized_shape(value.shape, other.values[name].shape, found.rows, found.rows[0])
        except Unlike as unlike:
            yield _user(one, name), str(unlike)
    for name, data in one.constants.items():
        if not _same_rows(data, other.constants[name], found.rows):
            yield _user(one, name), "it uses the number of rows, or the number of a row"


def _frame(graph: Graph) -> tuple[object, ...]:
    """All of a graph but shapes, programs and data."""
    dtypes = {name: value.dtype for name, value in graph.values.items()}
    interface = [[value.name for value in values] for values in (graph.inputs, graph.outputs)]
    rest = (set(graph.constants), graph.checks, graph.cuts, len(graph.nodes))
    return graph.views, dtypes, interface, rest


def _user(graph: Graph, name: str) -> str:
    """The node that makes or reads a value, or the output that it is."""
    users = [n for n in graph.nodes if name in n.outputs] + [n for n in graph.nodes if name in n.inputs]
    if users:
        return _named(users[0])
    outputs = [value.name for value in graph.outputs if graph.home(value.name) == graph.home(name)]
    return f"output {next(iter(outputs), name)}"


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
    if not other and _frame(expected) != _frame(found):
        yield "the whole model", f"its graph is another one for {rows} rows"


def _dimension(one: Shape, other: Shape) -> int | None:
    """The dimension in which two shapes differ."""
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)


def _resized_shape(one: Shape, other: Shape, rows: tuple[int, int], wanted: int) -> Shape:
    if len(one) != len(other):
        raise Unlike("the number of rows decides how many dimensions it has")
    each = [per_row(a, b, rows) for a, b in zip(one, other, strict=True)]
    if sum(map(bool, each)) > 1:
        raise Unlike("it pairs rows with each other: an array has two dimensions of them")
    return tuple(k * wanted if k else size for k, size in zip(each, one, strict=True))


def _equal(one: Array, other: Array) -> bool:
    if one is other:
        return True
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    first, second = (array.view(f"u{array.dtype.itemsize}") for array in (one, other))
    return np.array_equal(first, second)


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
    if shape[dimension] <= size:
        return np.ascontiguousarray(np.take(data, range(shape[dimension]), axis=dimension))
    first = np.take(data, [0], axis=dimension)
    if _equal(np.broadcast_to(first, data.shape), data):  # without memory for each row
        return np.broadcast_to(first, shape)
    repeated = np.concatenate([data] * -(-shape[dimension] // size), axis=dimension)
    return np.ascontiguousarray(np.take(repeated, range(shape[dimension]), axis=dimension))


def _resized(one: Program, other: Program, rows: tuple[int, int], wanted: int) -> Program:
    """The program for another number of rows; :class:`Unlike` if the two are none of one family."""
    heads = [(p.inputs, p.outputs, len(p.buffers), len(p.body)) for p in (one, other)]
    if heads[0] != heads[1]:
        raise Unlike("the number of rows decides what it computes")
    buffers = tuple(
        _resized_buffer(a, b, rows, wanted) for a, b in zip(one.buffers, other.buffers, strict=True)
    )
    body = tuple(_resized_tree(a, b, rows, wanted) for a, b in zip(one.body, other.body, strict=True))
    return parsed(Program(one.name, one.inputs, one.outputs, buffers, body).text)


def _resized_buffer(one: Buffer, other: Buffer, rows: tuple[int, int], wanted: int) -> Buffer:
    shape = _resized_shape(one.shape, other.shape, rows, wanted)
    if _with_sizes(one, shape) != _with_sizes(other, shape):
        raise Unlike("the number of rows decides what it computes")
    return _with_sizes(one, shape)


def _with_sizes(buffer: Buffer, shape: Shape) -> Buffer:
    """The buffer with other sizes."""
    dimensions = zip(shape, buffer.dimensions, strict=True)
    return buffer.with_dimensions(tuple(Dimension(size, old.suffix) for size, old in dimensions))


def _resized_tree(one: Tree, other: Tree, rows: tuple[int, int], wanted: int) -> Tree:
    if isinstance(one, Statement):
        if not isinstance(other, Statement) or one.text != other.text:
            raise Unlike("it uses the number of rows, or mixes their elements")
        return one
    if not isinstance(other, Scope) or (one.suffix, len(one.body)) != (other.suffix, len(other.body)):
        raise Unlike("the number of rows decides what it computes")
    each = per_row(one.size, other.size, rows)
    body = tuple(_resized_tree(a, b, rows, wanted) for a, b in zip(one.body, other.body, strict=True))
    return Scope(each * wanted if each else one.size, body, one.suffix, one.id)


# -- the proof -----------------------------------------------------------------------------------------


def _dependences(found: FreeRows, free: Collection[str]) -> Iterator[tuple[str, str]]:
    """Nodes in which rows depend on each other, and inputs and outputs whose rows are not outermost."""
    one, other = found.graphs
    for value in one.inputs:
        if (value.name in found.dimensions) != (value.name in free):
            yield f"input {value.name}", "it has rows where it should have none, or the other way round"
    for cut in one.cuts:
        yield f"output {cut.output}", "its size depends on data"
    flags, layouts = _flags(one), _Layouts(found)
    done: dict[object, tuple[str, Mapping[str, Layout]]] = {}
    for a, b in zip(one.nodes, other.nodes, strict=True):
        arrays = dict(zip((*a.program.inputs, *a.program.outputs), (*a.inputs, *a.outputs), strict=True))
        flagged = frozenset(array for array, value in arrays.items() if one.home(value) in flags)
        known = {x: layout for x in a.program.inputs if (layout := layouts.of(arrays[x])) is not None}
        key = (a.program.text, b.program.text, flagged, tuple(known.items()))
        if key not in done:
            proof = Proof(a.program, b.program, found.rows, known, flagged)
            done[key] = proof.obstacle(), proof.layouts
        why, given = done[key]
        if why:
            yield _named(a), why
        layouts.known.update({arrays[array]: given[array] for array in a.program.outputs if array in given})
    for value in one.outputs:
        layout = layouts.of(value.name)
        before = prod(value.shape[: found.dimensions.get(value.name, 0)])
        if (layout is not None and layout.outer != 1) or before != 1:
            yield f"output {value.name}", "its rows do not lie in the outermost dimension"
    for view in one.views:
        layout = layouts.of(view)
        if layout and not layout.within(one.values[view].shape, found.dimensions[view]):
            yield _user(one, view), "it reshapes rows together with another dimension"


class _Layouts:
    """The layouts of values, as far as they are known."""

    def __init__(self, found: FreeRows) -> None:
        self.found, self.known = found, dict[str, Layout]()

    def of(self, name: str) -> Layout | None:
        """The layout of a value; None if it has no rows. Where nothing else is known, the elements of a row
        lie side by side."""
        graph, home = self.found.graphs[0], self.found.graphs[0].home(name)
        dimension = self.found.dimensions.get(name)
        if dimension is None or not graph.values[home].elements:
            return None
        if home not in self.known:
            value, inside = graph.values[home], self.found.dimensions[home]
            each = value.shape[inside] // self.found.rows[0]
            self.known[home] = Layout(1, each).around(value.shape, inside)
        return self.known[home]


def _flags(graph: Graph) -> frozenset[str]:
    """Values that are looked at by checks and by nothing else."""
    read = {graph.home(name) for node in graph.nodes for name in node.inputs}
    read |= {graph.home(value.name) for value in graph.outputs}
    return frozenset(graph.home(check.value) for check in graph.checks) - read
