"""Kernels that only move or compare decoded bytes, done on the bytes themselves.

A kernel that makes a float of each element of an array of bytes, by numbers that are known, is a table of 256
floats. Reading by it goes through reshapes, transposes, slices and concatenations of one table; and where the
floats never fall as the bytes rise, also through maxima and minima: ``max(f(a), f(b))`` is ``f(max(a, b))``,
to the last bit. A number beside them (the 0 of a ReLU) is the byte that stands for it. So kernels of floats
become kernels of bytes, and the table is read behind them. Bytes that are made of such floats again are the
same bytes if all 256 come out as they went in; then nothing is left of both.

Nothing here goes by names of operators, and nothing is proven by laws of numbers: a table is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, integer_bounds
from perfdojo_sdk.core.expression import (
    Access,
    Expression,
    IndexValue,
    Literal,
    Read,
    map_expression,
    performs,
    walk,
)
from perfdojo_sdk.core.program import Node as Tree
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.copying import Copy
from perfdojo_sdk.graph.folding import same_places, steps_of
from perfdojo_sdk.graph.graph import Array, Graph, Node, Shape, Value
from perfdojo_sdk.graph.quantised import BYTES
from perfdojo_sdk.graph.running import interpreted
from perfdojo_sdk.graph.writer import parsed

#: Most places and taps at which conditions of one reduction are tried.
MOST_TRIED = 2**24

_ORDERS = ("max", "min")
_ZERO = AffineExpr()


@dataclass(frozen=True)
class Elementwise:
    """A kernel that makes each element of the one at its place, and of numbers that are known."""

    node: Node
    array: str
    """The array whose elements are read at their places."""
    statement: Statement

    def on(self, shape: Shape) -> Program:
        """The same kernel for arrays of another shape."""
        program, whole = self.node.program, tuple(LEVELS[k] if n > 1 else _ZERO for k, n in enumerate(shape))

        def leaf(value: Expression) -> Expression:
            if not isinstance(value, Read):
                return value
            array = value.access.array
            return Read(Access(array, whole if array == self.array else value.access.subscripts), value.dtype)

        target = self.statement.target.array
        value = map_expression(self.statement.value, leaf)
        tree: Tree = Statement(Access(target, whole), value, None, self.statement.dtype)
        for size in reversed(shape or (1,)):
            tree = Scope(size, (tree,))
        buffers = [
            _buffer(b.name, b.dtype, shape if b.name in (self.array, target) else b.shape)
            for b in program.buffers
        ]
        made = Program(program.name, program.inputs, program.outputs, tuple(buffers), (tree,))
        return parsed(made.text)

    def of(self, elements: Array, known: Mapping[str, Array]) -> Array:
        """The results for elements in one dimension."""
        given = [elements if a == self.array else known[a] for a in self.node.program.inputs]
        [made] = interpreted(self.on(elements.shape), given)
        return made


@dataclass(frozen=True)
class Table:
    """The floats that bytes stand for, and the kernel that reads them."""

    steps: Elementwise
    dtype: str
    """The dtype of the bytes."""
    floats: Array
    """The float of each byte, from the least one on."""

    @property
    def rises(self) -> bool:
        """True if a greater byte never has a smaller float, and equal floats have equal bits."""
        floats = self.floats
        signs = np.signbit(floats[floats == 0])
        with np.errstate(invalid="ignore"):
            return bool((floats[1:] >= floats[:-1]).all()) and (signs.all() or not signs.any())

    @property
    def key(self) -> tuple[str, str, bytes]:
        """Equal for tables that are the same."""
        return self.dtype, self.floats.dtype.str, self.floats.tobytes()

    def code(self, number: float) -> int | None:
        """The byte that stands for a number, of the same bits; None without."""
        least = integer_bounds(self.dtype)[0]
        alike = (self.floats == number) & (np.signbit(self.floats) == np.signbit(number))
        return least + int(np.argmax(alike)) if alike.any() else None


@dataclass(frozen=True)
class Decoded:
    """Floats as the bytes that they are made of."""

    bytes_: Value
    table: Table


def with_codes_moved(graph: Graph) -> Graph:
    """The graph whose kernels compute with bytes where they only move or compare decoded ones: the same
    results, to the last bit."""
    if graph.cuts or graph.foreign:
        return graph
    return _Moved(graph).moved()


class _Moved(Copy):
    """A graph on its way to one whose bytes stay bytes."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.decoded: dict[str, Decoded] = {}
        """Value of the graph -> the bytes that it is made of."""
        self.changed = False

    def moved(self) -> Graph:
        for node in self.graph.nodes:
            self.b.origin = node.origin
            steps = self._steps(node)
            if steps is not None and self._encoded(steps):
                continue
            if not self._on_bytes(node):
                self.node(node)
                if steps is not None:
                    self._decodes(steps)
        if not self.changed:
            return self.graph
        self.checks()
        return self.b.graph({value.name: self.value(value.name) for value in self.graph.outputs})

    def value(self, name: str) -> Value:
        """The new value for one of the graph; a view of decoded bytes is a decoded view of them."""
        if name not in self.new and name in self.graph.views:
            inside, value = self._found(self.graph.views[name]), self.graph.values[name]
            if inside is not None and value.dtype == self.graph.values[self.graph.views[name]].dtype:
                self._make(name, self.b.view(inside.bytes_, value.shape), inside.table)
        return super().value(name)

    def _found(self, name: str) -> Decoded | None:
        """The bytes of a value, also through views."""
        self.value(name)
        return self.decoded.get(name)

    def _make(self, name: str, bytes_: Value, table: Table) -> None:
        """Let a value be what a table has for bytes."""
        node, value = table.steps.node, self.graph.values[name]
        bound = zip(node.program.inputs, node.inputs, strict=True)
        inputs = [bytes_ if array == table.steps.array else self.value(of) for array, of in bound]
        made = self.b.kernel(table.steps.on(value.shape), inputs, [(value.shape, value.dtype)])
        self.new[name], self.decoded[name] = made[0], Decoded(bytes_, table)
        self.changed = True

    # -- tables

    def _known(self, node: Node) -> dict[str, Array]:
        """Arrays of a program -> data, of those that are constants of one element."""
        found = {}
        for array, name in zip(node.program.inputs, node.inputs, strict=True):
            data = self.graph.constants.get(self.graph.home(name))
            if data is not None and data.size == 1:
                found[array] = data.reshape(self.graph.values[name].shape)
        return found

    def _steps(self, node: Node) -> Elementwise | None:
        steps, known = steps_of(node.program), self._known(node)
        others = [array for array in node.program.inputs if array not in known]
        if steps is None or len(others) != 1 or len(node.outputs) != 1 or node.program.in_out:
            return None
        statement = steps.statement
        alone = not any(isinstance(part, IndexValue) for part in walk(statement.value))
        alone = alone and not statement.lookups and same_places(node.program, steps, others[0])
        read = any(read.array == others[0] for read in statement.reads)
        return Elementwise(node, others[0], statement) if alone and read else None

    def _decodes(self, steps: Elementwise) -> None:
        """Note that a node makes floats of bytes that a kernel or a caller gives."""
        node = steps.node
        name, [made] = node.inputs[node.program.inputs.index(steps.array)], node.outputs
        dtype = self.graph.values[name].dtype
        if dtype not in BYTES or self.graph.values[made].dtype not in FLOAT_DTYPES:
            return
        if self.graph.home(name) in self.graph.constants:
            return  # weights: sums find them as they are
        least, most = integer_bounds(dtype)
        floats = steps.of(np.arange(least, most + 1).astype(numpy_dtype(dtype)), self._known(node))
        if not np.isnan(floats).any():
            self.decoded[made] = Decoded(self.value(name), Table(steps, dtype, floats))

    def _encoded(self, steps: Elementwise) -> bool:
        """True if a node gives back the bytes that its floats are made of, which then take its place."""
        name = steps.node.inputs[steps.node.program.inputs.index(steps.array)]
        found, [made] = self._found(name), steps.node.outputs
        if found is None or self.graph.values[made].dtype != found.table.dtype:
            return False
        again = steps.of(found.table.floats, self._known(steps.node))
        least, most = integer_bounds(found.table.dtype)
        if not np.array_equal(again, np.arange(least, most + 1)):
            return False
        self.new[made] = found.bytes_
        self.changed = True
        return True

    # -- kernels of bytes

    def _on_bytes(self, node: Node) -> bool:
        """True if a node moves or compares decoded bytes alone, and is now one of the bytes."""
        bound = dict(zip(node.program.inputs, node.inputs, strict=True))
        leaves = [leaf for tree in node.program.body for leaf in tree.leaves]
        read = {read.array for leaf in leaves for read in leaf.statement.reads}
        found = {a: inside for a, name in bound.items() if a in read and (inside := self._found(name))}
        tables = {inside.table.key: inside.table for inside in found.values()}
        if len(found) != len(read.intersection(bound)) or len(tables) != 1 or self._grows(node, found):
            return False
        [table] = tables.values()
        program = _on_bytes(node.program, tuple(found), table)
        if program is None:
            return False
        inputs = [found[array].bytes_ if array in found else self.value(of) for array, of in bound.items()]
        shapes = [(self.graph.values[name].shape, table.dtype) for name in node.outputs]
        for name, made in zip(node.outputs, self.b.kernel(program, inputs, shapes), strict=True):
            self._make(name, made, table)
        return True

    def _grows(self, node: Node, read: Iterable[str]) -> bool:
        """True if there are more elements to decode behind a node than before it."""
        bound = dict(zip(node.program.inputs, node.inputs, strict=True))
        after = sum(self.graph.values[name].elements for name in node.outputs)
        return after > sum(self.graph.values[bound[array]].elements for array in read)


def _buffer(name: str, dtype: str, shape: Shape) -> Buffer:
    return Buffer(name, dtype, tuple(Dimension(size) for size in shape), "heap", (name,))


def _on_bytes(program: Program, data: Sequence[str], table: Table) -> Program | None:
    """The program on the bytes of the arrays ``data`` instead of their floats; None if it does more than
    move or compare them."""
    if program.in_out or any(buffer.arrays != (buffer.name,) for buffer in program.buffers):
        return None
    statements = [leaf.statement for tree in program.body for leaf in tree.leaves]
    mine = {*data, *(statement.target.array for statement in statements)}
    dtype = table.steps.node.program.buffer_of[table.steps.statement.target.array].dtype
    if any(program.buffer_of[array].dtype != dtype for array in mine):
        return None
    if any(read.array in mine for statement in statements for read in statement.index_reads):
        return None
    work = _OnBytes(program, table)
    body = [work.tree(tree, ()) for tree in program.body]
    if work.refused or (work.compares and not table.rises):
        return None
    buffers = [_buffer(b.name, table.dtype if b.name in mine else b.dtype, b.shape) for b in program.buffers]
    made = Program(program.name, program.inputs, program.outputs, tuple(buffers), tuple(body))
    return parsed(made.text)


@dataclass(frozen=True)
class _Bordered:
    """A local array with a copy in its middle and one number around it, which extremes alone read."""

    operation: str
    """``max`` or ``min``, of which the number is the neutral one."""
    begins: tuple[int, ...]
    extents: tuple[int, ...]

    def inside(self, access: Access) -> tuple[AffineExpr, ...]:
        """The conditions, not negative, under which an element is one of the copy."""
        places = [form.plus(AffineExpr(-at)) for form, at in zip(access.subscripts, self.begins, strict=True)]
        ends = [AffineExpr(n - 1).plus(p, -1) for p, n in zip(places, self.extents, strict=True)]
        return (*places, *ends)


def _bordered(program: Program, array: str) -> _Bordered | None:
    """The border in a local array, if there is one."""
    leaves = [leaf for tree in program.body for leaf in tree.leaves]
    writes = [(s, sizes) for s, sizes in leaves if s.target.array == array]
    readers = [s for s, _ in leaves if any(read.array == array for read in s.reads)]
    operations = {s.accumulate or "" for s in readers if isinstance(s.value, Read)}
    shape = program.buffer_of[array].shape
    levels = LEVELS[: len(shape)]
    if len(writes) != 2 or len(operations) != 1 or not all(isinstance(s.value, Read) for s in readers):
        return None
    [operation], [(fill, whole), (copy, extents)] = operations, writes
    if any(s.guard or s.accumulate or s.lookups for s, _ in writes) or len(extents) != len(shape):
        return None
    moves = [form.plus(level, -1) for form, level in zip(copy.target.subscripts, levels, strict=True)]
    filled = fill.target.subscripts == levels and whole == shape and isinstance(copy.value, Read)
    if not filled or any(move.terms or move.quotients for move in moves):
        return None
    neutral = {"max": float("-inf"), "min": float("inf")}.get(operation)
    if not isinstance(fill.value, Literal) or neutral is None or fill.value.value != neutral:
        return None
    return _Bordered(operation, tuple(move.constant for move in moves), extents)


class _OnBytes:
    """Statements of floats on their way to statements of bytes."""

    def __init__(self, program: Program, table: Table) -> None:
        self.program, self.table = program, table
        self.refused = self.compares = False
        local = [b.name for b in program.buffers if b.name not in program.interface]
        self.borders = {array: border for array in local if (border := _bordered(program, array))}

    def tree(self, tree: Tree, sizes: tuple[int, ...], after: Tree | None = None) -> Tree:
        """The nest on bytes; ``after``: what follows it in the same loops."""
        if isinstance(tree, Statement):
            return self._statement(tree, sizes, after)
        inside, following = (*sizes, tree.size), (*tree.body[1:], None)
        body = [self.tree(child, inside, then) for child, then in zip(tree.body, following, strict=True)]
        return Scope(tree.size, tuple(body), tree.suffix)

    def _statement(self, statement: Statement, sizes: tuple[int, ...], after: Tree | None) -> Tree:
        self.refused |= statement.accumulate not in (None, *_ORDERS)
        self.compares |= statement.accumulate is not None
        value = (
            self._start(statement, sizes, after) or self._around(statement) or self._value(statement.value)
        )
        target, dtype = statement.target, self.table.dtype
        return Statement(target, value, statement.accumulate, dtype, "", statement.guard)

    def _start(self, statement: Statement, sizes: tuple[int, ...], after: Tree | None) -> Expression | None:
        """The byte at which a maximum or minimum starts that reads at least one element at each place."""
        value, leaves = statement.value, after.leaves if after is not None else ()
        if not isinstance(value, Literal) or statement.guard or statement.accumulate or len(leaves) != 1:
            return None
        [(step, inner)] = leaves
        least, most = integer_bounds(self.table.dtype)
        neutral = {"max": (float("-inf"), least), "min": (float("inf"), most)}.get(step.accumulate or "")
        if neutral is None or value.value != neutral[0] or step.target != statement.target:
            return None
        if not isinstance(step.value, Read):
            return None
        border = self.borders.get(step.value.access.array)
        inside = border.inside(step.value.access) if border else ()
        if not _reached((*step.guard, *inside), sizes, tuple(inner)):
            return None
        return Literal(neutral[1], self.table.dtype)

    def _around(self, statement: Statement) -> Expression | None:
        """The byte around a copy with a border: extremes that read it, and start at an element or reach one
        of the copy, keep that."""
        border = self.borders.get(statement.target.array)
        if border is None or not isinstance(statement.value, Literal):
            return None
        least, most = integer_bounds(self.table.dtype)
        return Literal(least if border.operation == "max" else most, self.table.dtype)

    def _value(self, value: Expression) -> Expression:
        if isinstance(value, Read):
            return Read(value.access, self.table.dtype)
        if isinstance(value, Literal) and (code := self.table.code(float(value.value))) is not None:
            return Literal(code, self.table.dtype)
        if any(performs(value, name) for name in _ORDERS):
            self.compares = True
            return value.with_children(tuple(map(self._value, value.children)))
        self.refused = True
        return value


def _reached(guard: Sequence[AffineExpr], outer: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    """True if at each place of the outer loops some iteration of the inner ones meets all conditions."""
    sizes = (*outer, *inner)
    levels = sorted({level for form in guard for level in form.levels})
    tried = [sizes[level] for level in levels]
    if any(form.quotients for form in guard) or prod(tried) > MOST_TRIED:
        return False
    met = np.ones(tried, bool)
    for form in guard:
        total = np.full([1] * len(levels), form.constant)
        for level, step in form.terms:
            along = [-1 if each == level else 1 for each in levels]
            total = total + step * np.arange(sizes[level]).reshape(along)
        met &= total >= 0
    taps = tuple(k for k, level in enumerate(levels) if level >= len(outer))
    return bool(met.any(axis=taps).all())
