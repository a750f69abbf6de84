"""Programs with their loops and arrays in another order: one dimension of each large array comes last."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.program import Node as Tree
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr
from perfdojo_sdk.graph.joining import Rewrite, named, rewritten_statement
from perfdojo_sdk.graph.writer import parsed


def turned(
    program: Program, last: Mapping[str, Collection[int]]
) -> tuple[Program, dict[str, int], int] | None:
    """The program with one dimension of its result last, the arrays that it reads with one last, and which
    these are; None if it walks along no such dimension, or in an order that matters.

    ``last``: dimensions of inputs that may be last. The loops around each nest are the dimensions of what it
    writes, and all that it reads at each iteration of them must have its dimension last: numbers for each
    channel stay as they are, and so does a sum of products, whose weights have an order of their own.
    """
    if len(program.outputs) != 1 or program.in_out:
        return None
    for level in range(len(program.buffer_of[program.outputs[0]].shape)):
        moved = _moved(program, last, level)
        if moved:
            return _with_last(program, moved, level), moved, level
    return None


def _moved(program: Program, last: Mapping[str, Collection[int]], level: int) -> dict[str, int]:
    """The dimension of each input that the loops ``level`` walk along; nothing if the program cannot turn."""
    rank, found = len(program.buffer_of[program.outputs[0]].shape), dict[str, int]()
    for nest in program.body:
        sizes, _ = _outer(nest, rank)
        if len(sizes) < rank:
            return {}
        many = {l for l in range(rank) if sizes[l] > 1}
        targets = {leaf.statement.target for leaf in nest.leaves}
        for statement, _ in nest.leaves:
            if not _own_place(program, statement.target, sizes) or statement.lookups:
                return {}
            for read in statement.reads:
                if read.array not in program.inputs:
                    here = [target for target in targets if target.array == read.array]
                    if any(read != target for target in here):
                        return {}
                    if not _own_place(program, read, sizes) if here else not _along(read, level, rank):
                        return {}
                elif many.issubset(read.levels):
                    dims = [d for d, form in enumerate(read.subscripts) if level in form.levels]
                    if len(dims) != 1 or dims[0] not in last.get(read.array, ()):
                        return {}
                    if read.subscripts[dims[0]].terms != ((level, 1),):
                        return {}
                    if found.setdefault(read.array, dims[0]) != dims[0]:
                        return {}
                elif statement.accumulate:
                    return {}
    return found


def _outer(nest: Tree, rank: int) -> tuple[tuple[int, ...], tuple[Tree, ...]]:
    """The sizes of the ``rank`` outermost loops of a nest, and what is in them; fewer where they end."""
    sizes: list[int] = []
    body: tuple[Tree, ...] = (nest,)
    while len(sizes) < rank and len(body) == 1 and isinstance(body[0], Scope) and not body[0].suffix:
        sizes.append(body[0].size)
        body = body[0].body
    return tuple(sizes), body


def _own_place(program: Program, access: Access, sizes: tuple[int, ...]) -> bool:
    """True if each loop is a dimension of an array, from some element on."""
    plain = len(access.subscripts) == len(sizes) and not any(form.quotients for form in access.subscripts)
    return plain and all(
        form.terms == ((k, 1),) or (not form.terms and sizes[k] == 1)
        for k, form in enumerate(access.subscripts)
    )


def _along(access: Access, level: int, rank: int) -> bool:
    """True if an element that another nest wrote is at the loops' place in the dimension ``level``."""
    return len(access.subscripts) == rank and access.subscripts[level].terms == ((level, 1),)


def _with_last(program: Program, moved: Mapping[str, int], level: int) -> Program:
    rank = len(program.buffer_of[program.outputs[0]].shape)
    loops = order_of(rank, level)
    orders = {array: order_of(len(program.buffer_of[array].shape), dim) for array, dim in moved.items()}
    orders |= {buffer.name: loops for buffer in program.buffers if buffer.name not in program.inputs}
    rewrites = {name: _reordered(orders[name]) if name in orders else named(name) for name in program.names}
    forms = tuple(LEVELS[loops.index(k)] for k in range(rank))
    body: list[Tree] = []
    for nest in program.body:
        sizes, inside = _outer(nest, rank)
        trees = tuple(_inside(tree, rewrites, forms) for tree in inside)
        for k in reversed(loops):
            trees = (Scope(sizes[k], trees),)
        body += trees
    buffers = []
    for buffer in program.buffers:
        shape = [buffer.shape[d] for d in orders.get(buffer.name, range(len(buffer.shape)))]
        dims = tuple(map(Dimension, shape))
        buffers.append(Buffer(buffer.name, buffer.dtype, dims, "heap", (buffer.name,)))
    made = Program(program.name, program.inputs, program.outputs, tuple(buffers), tuple(body))
    return parsed(made.text)


def order_of(rank: int, last: int) -> list[int]:
    """The dimensions in their order, but for one that comes last."""
    return [d for d in range(rank) if d != last] + [last]


def _reordered(order: list[int]) -> Rewrite:
    return lambda access: Access(access.array, tuple(access.subscripts[d] for d in order))


def _inside(tree: Tree, rewrites: Mapping[str, Rewrite], forms: tuple[AffineExpr, ...]) -> Tree:
    if isinstance(tree, Statement):
        return rewritten_statement(tree, rewrites, forms)
    inner = (*forms, LEVELS[len(forms)])
    return Scope(tree.size, tuple(_inside(child, rewrites, inner) for child in tree.body), tree.suffix)
