"""Constant operands of matrix products in panels: the columns of one register tile lie together.

A plan for a contraction copies such an operand into panels in every call, unless it lies so. That of a
constant is copied once, when the model is built. Elements are moved and not changed: no bit of a result is
another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from perfdojo_sdk.core.expression import Access, Read, performs
from perfdojo_sdk.core.program import Node as Tree
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr
from perfdojo_sdk.experts.cpu.tiles import best_tiling
from perfdojo_sdk.graph.folding import Fold
from perfdojo_sdk.graph.graph import Graph, Node, Value
from perfdojo_sdk.graph.joining import Rewrite, named, rewritten_statement
from perfdojo_sdk.graph.passes import without_dead_nodes
from perfdojo_sdk.graph.writer import parsed
from perfdojo_sdk.hookspecs.types import Target

#: Fewest rows that use a panel: with fewer, reading it is all that takes time.
LEAST_ROWS = 8
#: Smallest operand, in elements, that is worth a layout of its own.
LEAST_ELEMENTS = 2**14


@dataclass(frozen=True)
class _Operand:
    """An input that a program reads in one place only, as an operand of a sum of products."""

    array: str
    column: int
    """Level of the loop over its columns, which are neighbours in the result."""
    step: int
    """Level of the loop over the terms of a sum."""
    turned: bool
    """True if columns are its first dimension."""
    rows: int
    columns: int


def panel_widths(graph: Graph, target: Target) -> dict[str, int]:
    """The constant operands that are worth panels, and the columns of a panel of each: as many as the
    target's register tiles have."""
    found = {}
    for node in graph.nodes:
        operand = _operand(graph, node)
        width = _width(operand, node.program, target) if operand else 0
        if operand and width:
            found[node.inputs[node.program.inputs.index(operand.array)]] = width
    return found


def with_panels(graph: Graph, widths: Mapping[str, int]) -> tuple[Graph, tuple[Fold, ...]]:
    """The graph with constant operands in panels of so many columns, wherever the program's loops allow."""
    folds: list[Fold] = []
    made: dict[int, Node] = {}
    values, constants = dict(graph.values), dict(graph.constants)
    for k, node in enumerate(graph.nodes):
        found = _operand(graph, node)
        if found is None:
            continue
        at = node.program.inputs.index(found.array)
        width = widths.get(node.inputs[at], 0)
        program = _in_panels(node.program, found, width) if width else None
        if program is None:
            continue
        data = constants[graph.home(node.inputs[at])].reshape(values[node.inputs[at]].shape)
        panels = (data.T if found.turned else data).reshape(data.size // found.columns, -1, width)
        name = f"{node.inputs[at]}.panels{width}{'t' if found.turned else ''}"
        constants[name] = np.ascontiguousarray(panels.transpose(1, 0, 2))
        values[name] = Value(name, constants[name].shape, values[node.inputs[at]].dtype)
        inputs = (*node.inputs[:at], name, *node.inputs[at + 1 :])
        made[k] = Node(program, inputs, node.outputs, node.origin)
        what = f"{node.inputs[at]} lies in panels of {width} columns"
        folds.append(Fold("layout", node.origin or program.name, what))
    nodes = tuple(made.get(k, node) for k, node in enumerate(graph.nodes))
    return without_dead_nodes(replace(graph, nodes=nodes, values=values, constants=constants)), tuple(folds)


def _operand(graph: Graph, node: Node) -> _Operand | None:
    """The constant operand of the one sum of products of a program."""
    program = node.program
    places = [place for place in program.places if isinstance(place.node, Statement)]
    sums = [place for place in places if isinstance(place.node, Statement) and place.node.accumulate]
    if len(sums) != 1 or any(p.node.guard or p.node.lookups for p in places if isinstance(p.node, Statement)):
        return None
    statement, sizes = sums[0].node, sums[0].sizes
    assert isinstance(statement, Statement)
    if not statement.target.subscripts:
        return None
    values = dict(zip(program.inputs, node.inputs, strict=True))
    factors = statement.value.arguments if performs(statement.value, "mul") else ()
    last = statement.target.subscripts[-1]
    for factor in factors:
        if not isinstance(factor, Read) or len(factor.access.subscripts) != 2:
            continue
        access, (one, other) = factor.access, factor.access.subscripts
        constant = graph.home(values.get(access.array, "")) in graph.constants
        alone = len(program.occurrences[program.buffer_of[access.array].name]) == 1
        column, step = (one, other) if one == last else (other, one)
        if not constant or not alone or column != last or not _is_level(column) or not _is_level(step):
            continue
        (level,), (reduced,) = column.levels, step.levels
        if reduced in statement.target.levels or level < 1 or reduced <= level:
            continue
        shape = program.buffer_of[access.array].shape
        if (
            shape[0 if one == last else 1] == sizes[level]
            and shape[1 if one == last else 0] == sizes[reduced]
        ):
            return _Operand(access.array, level, reduced, one == last, sizes[level - 1], sizes[level])
    return None


def _is_level(form: AffineExpr) -> bool:
    return len(form.levels) == 1 and form == LEVELS[next(iter(form.levels))]


def _width(operand: _Operand, program: Program, target: Target) -> int:
    """Columns of a panel: those of a register tile; 0 where they do not divide all, or it is not worth it."""
    buffer = program.buffer_of[operand.array]
    capabilities = target.capabilities
    lanes = capabilities.lanes.get(buffer.dtype, 1)
    if lanes < 2 or operand.rows < LEAST_ROWS or buffer.cells < LEAST_ELEMENTS:
        return 0
    tiling = best_tiling(operand.rows, operand.columns, lanes, capabilities.vector_registers or 8, 1)
    widths = {piece.wide * piece.width for piece in tiling.pieces}
    width = widths.pop() if len(widths) == 1 else 0
    return width if width and operand.columns % width == 0 and operand.columns > width else 0


def _in_panels(program: Program, operand: _Operand, width: int) -> Program | None:
    """The program with its loops over columns in two, over panels and inside; None where a nest has none."""
    level, panels = operand.column, operand.columns // width
    whole = AffineExpr.of({level: width, level + 1: 1})
    rewrites: dict[str, Rewrite] = {}
    buffers: list[Buffer] = []
    for buffer in program.buffers:
        shape = buffer.shape
        rewrites[buffer.name] = named(buffer.name)
        if buffer.name == operand.array:
            shape = (panels, buffer.cells // operand.columns, width)
            rewrites[buffer.name] = lambda access: Access(
                access.array, (LEVELS[level], LEVELS[operand.step + 1], LEVELS[level + 1])
            )
        elif buffer.name not in program.interface:
            reads = [o.access.subscripts for o in program.occurrences[buffer.name]]
            dims = [d for d in range(len(shape)) if all(each[d] == LEVELS[level] for each in reads)]
            if len(dims) == 1 and shape[dims[0]] == operand.columns:
                d = dims[0]
                shape = (*shape[:d], panels, width, *shape[d + 1 :])
                rewrites[buffer.name] = _split(d, level)
        buffers.append(buffer.with_dimensions(tuple(map(Dimension, shape))))
    forms = (*LEVELS[:level], whole, *LEVELS[level + 2 :])
    body = [_divided(tree, 0, operand, width, rewrites, forms) for tree in program.body]
    if any(tree is None for tree in body):
        return None
    made = tuple(tree for tree in body if tree is not None)
    return parsed(Program(program.name, program.inputs, program.outputs, tuple(buffers), made).text)


def _split(d: int, level: int) -> Rewrite:
    """Accesses with the iterators of both loops in place of dimension ``d``."""
    return lambda access: Access(
        access.array, (*access.subscripts[:d], LEVELS[level], LEVELS[level + 1], *access.subscripts[d + 1 :])
    )


def _divided(
    tree: Tree,
    depth: int,
    operand: _Operand,
    width: int,
    rewrites: Mapping[str, Rewrite],
    forms: tuple[AffineExpr, ...],
) -> Tree | None:
    """The tree with its loop over columns in two; None if another loop, or a statement, stands there."""
    if isinstance(tree, Statement):
        return rewritten_statement(tree, rewrites, forms) if depth > operand.column else None
    children = [_divided(child, depth + 1, operand, width, rewrites, forms) for child in tree.body]
    if any(child is None for child in children):
        return None
    body = tuple(child for child in children if child is not None)
    if depth != operand.column:
        return Scope(tree.size, body, tree.suffix)
    if tree.size != operand.columns:
        return None
    return Scope(operand.columns // width, (Scope(width, body, tree.suffix),), tree.suffix)
