"""Joining of kernels: the programs of several nodes, one after the other, as the program of one node.

The statements and their order stay. What only the joined nodes read becomes a temporary, or its definition
stands where it was read (:mod:`.substitution`). Loops of one iteration are left out, and loops are split, so
that nests over the same elements have the same loops whatever view lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import TypeAlias

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.expression import Access, AffineExpr, Expression, IndexValue, Read, map_expression
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.program import Node as Tree
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.subscripts import LEVELS, Part, Quotient
from perfdojo_sdk.graph.graph import Graph, Node, Shape
from perfdojo_sdk.graph.substitution import covers, with_definitions
from perfdojo_sdk.graph.writer import parsed

#: Most characters of a joined kernel's name.
LONGEST_NAME = 40

Rewrite: TypeAlias = Callable[[Access], Access]


class Apart(DojoError):
    """The programs of some nodes cannot be one program."""

    def __init__(self, why: str) -> None:
        super().__init__("PD-O030", "the kernels cannot be joined", why=why)

    def __reduce__(self) -> tuple[object, ...]:
        return (Apart, (self.why,))


def joined(graph: Graph, nodes: Sequence[Node], kept: frozenset[str]) -> Node:
    """One node that does what ``nodes`` do in their order; :class:`Apart` if that is no program.

    ``kept``: the values among their outputs that others read.
    """
    written = [name for node in nodes for name in node.outputs]
    shapes = {name: graph.values[name].shape for name in written}
    shapes.update(_coarsest(graph, nodes, [name for name in written if name not in kept]))
    arrays = {name: f"{'y' if name in kept else 't'}{k}" for k, name in enumerate(written)}
    inputs: dict[str, str] = {}
    own: list[Buffer] = []
    body: list[Tree] = []
    for node in nodes:
        program = node.program
        if program.in_out:
            raise Apart(f"{program.name} changes an input")
        rewrites: dict[str, Rewrite] = {}
        values = (*node.inputs, *node.outputs)
        for array, value in zip((*program.inputs, *program.outputs), values, strict=True):
            home = graph.home(value)
            if home in arrays:
                rewrites[array] = _reshaped(arrays[home], graph.values[value].shape, shapes[home])
            else:
                rewrites[array] = named(inputs.setdefault(value, f"x{len(inputs)}"))
        for buffer in program.buffers:
            for array in buffer.arrays:
                if array not in rewrites:
                    own.append(_buffer(f"s{len(own)}", buffer.dtype, buffer.shape))
                    rewrites[array] = named(own[-1].name)
        body += [_rewritten(tree, rewrites) for tree in program.body]
    made = Program(
        joined_name([node.program for node in nodes]),
        tuple(inputs.values()),
        tuple(arrays[name] for name in written if name in kept),
        (
            *(_buffer(array, graph.values[v].dtype, graph.values[v].shape) for v, array in inputs.items()),
            *own,
            *(_buffer(arrays[name], graph.values[name].dtype, shapes[name]) for name in written),
        ),
        tuple(body),
    )
    origin = ", ".join(dict.fromkeys(node.origin for node in nodes))
    program = with_definitions(with_loops_split(with_definitions(parsed(made.text))))
    return Node(parsed(program.text), tuple(inputs), tuple(n for n in written if n in kept), origin)


def joined_name(programs: Sequence[Program]) -> str:
    """The names of the programs one after the other, or the first and the last of many."""
    names = [program.name for program in programs]
    whole = "_".join(names)
    short = f"{names[0]}_to_{names[-1]}"
    return whole if len(whole) <= LONGEST_NAME else short[:LONGEST_NAME].rstrip("_")


def _buffer(name: str, dtype: str, shape: Shape) -> Buffer:
    return Buffer(name, dtype, tuple(Dimension(size) for size in shape), "heap", (name,))


# -- views between kernels -------------------------------------------------------------------------


def _coarsest(graph: Graph, nodes: Sequence[Node], names: Iterable[str]) -> dict[str, Shape]:
    """The shape of each temporary: the finest one of which all shapes that it is met in are refinements, so
    that every subscript is an affine form of those that are there."""
    met = {name: [graph.values[name].shape] for name in names}
    for node in nodes:
        for value in node.inputs:
            if graph.home(value) in met:
                met[graph.home(value)].append(graph.values[value].shape)
    return {name: _common(shapes) for name, shapes in met.items()}


def _common(shapes: Sequence[Shape]) -> Shape:
    """The finest shape of which all are refinements, without dimensions of one element."""
    ends = sorted(frozenset.intersection(*[frozenset(accumulate(shape, mul, initial=1)) for shape in shapes]))
    return tuple(after // before for before, after in zip(ends, ends[1:])) or (1,)


def named(name: str) -> Rewrite:
    """Accesses as those of the array ``name``."""
    return lambda access: Access(name, access.subscripts)


def _reshaped(name: str, shape: Shape, home: Shape) -> Rewrite:
    """Accesses of ``shape`` as those of the array ``name``, whose shape ``home`` is coarser or the same."""
    if shape == home:
        return named(name)
    ends = list(accumulate(home, mul, initial=1))
    groups: list[list[int]] = [[] for _ in home]
    place, product = 0, 1
    for k, size in enumerate(shape):
        if size == 1:
            continue
        while place + 1 < len(ends) and ends[place + 1] <= product:
            place += 1
        groups[place].append(k)
        product *= size
        if product > ends[place + 1]:
            raise Apart(f"a view of {list(home)} as {list(shape)} takes dimensions together")
    strides = {k: prod(shape[n] for n in group if n > k) for group in groups for k in group}

    def rewrite(access: Access) -> Access:
        forms = []
        for group in groups:
            total = AffineExpr()
            for k in group:
                total = total.plus(access.subscripts[k], strides[k])
            forms.append(total)
        return Access(name, tuple(forms))

    return rewrite


def with_loops_split(program: Program) -> Program:
    """The program with the loops of element-wise nests split where what they read is written in several loops
    for one dimension: 12 elements that are written as 3 groups of 4 are read so, too. Then the nests walk
    through the array in one order."""
    for array in program.names:
        made = _split_for(program, array)
        if made is not None:
            return with_loops_split(made)
    return program


def _split_for(program: Program, array: str) -> Program | None:
    """The program with the loops split that read a temporary; None if they go as it is written already, or
    if there is no such way to split them."""
    if array in program.interface or program.buffer_of[array].arrays != (array,):
        return None
    writes = [o for o in program.occurrences[array] if o.writes]
    reads = [o for o in program.occurrences[array] if not o.writes]
    if len(writes) != 1 or not covers(program, writes[0]) or writes[0].statement.accumulate:
        return None
    [write] = writes
    shape = program.buffer_of[array].shape
    terms = [sorted(form.terms, key=lambda term: -term[1]) for form in write.access.subscripts]
    sizes = [tuple(write.sizes[level] for level, _ in each) if len(each) > 1 else () for each in terms]
    parts: dict[int, dict[int, tuple[int, ...]]] = {write.path[0]: {}}
    for read in reads:
        nest = program.body[read.path[0]]
        if read.path[0] == write.path[0] or len(nest.leaves) != 1 or read.statement.accumulate:
            return None
        wanted = parts.setdefault(read.path[0], {})
        for form, size, into in zip(read.access.subscripts, shape, sizes, strict=True):
            if not into:
                continue
            level = form.highest if form.levels else -1
            lone = level >= 0 and form == LEVELS[level] and read.sizes[level] == size
            if not lone or wanted.setdefault(level, into) != into:
                return None
    if not any(sizes):
        return None

    def access_of(access: Access) -> Access:
        forms: list[AffineExpr] = []
        for form, into in zip(access.subscripts, sizes, strict=True):
            ordered = sorted(form.terms, key=lambda term: -term[1])
            forms += [LEVELS[level] for level, _ in ordered] if into else [form]
        return Access(array, tuple(forms))

    rewrites: dict[str, Rewrite] = {name: named(name) for name in program.names} | {array: access_of}
    body = [
        _in_parts(node, rewrites, parts[k]) if k in parts else node for k, node in enumerate(program.body)
    ]
    fine = tuple(n for size, into in zip(shape, sizes, strict=True) for n in into or (size,))
    buffers = [_buffer(b.name, b.dtype, fine) if b.name == array else b for b in program.buffers]
    made = Program(program.name, program.inputs, program.outputs, tuple(buffers), tuple(body))
    return parsed(made.text)


def _in_parts(tree: Tree, rewrites: Mapping[str, Rewrite], parts: Mapping[int, tuple[int, ...]]) -> Tree:
    """A nest of one statement with some of its loops, by level, as several loops."""
    sizes: list[int] = []
    forms: list[AffineExpr] = []
    node = tree
    while isinstance(node, Scope):
        into = parts.get(len(forms), (node.size,))
        strides = accumulate((*into[:0:-1],), mul, initial=1)
        total = AffineExpr()
        for k, stride in zip(reversed(range(len(into))), strides, strict=True):
            total = total.plus(LEVELS[len(sizes) + k], stride)
        forms.append(total)
        sizes += into
        [node] = node.body
    made: Tree = rewritten_statement(node, rewrites, tuple(forms))
    for size in reversed(sizes):
        made = Scope(size, (made,))
    return made


# -- trees under other names -------------------------------------------------------------------------


def _rewritten(tree: Tree, rewrites: Mapping[str, Rewrite]) -> Tree:
    return _in_scopes(tree, rewrites, ())


def _in_scopes(
    tree: Tree, rewrites: Mapping[str, Rewrite], forms: tuple[AffineExpr, ...], leading: bool = True
) -> Tree:
    """The tree with other accesses, without the loops of one iteration that are ``leading``: around all of
    the nest. Those of a sum stay, since plans for sums count on them. ``forms[l]`` replaces ``{l}``."""
    if isinstance(tree, Statement):
        return rewritten_statement(tree, rewrites, forms)
    depth = sum(1 for form in forms if form.terms)
    leading = leading and len(tree.body) == 1
    single = leading and tree.size == 1 and not tree.suffix and _unguarded(tree, len(forms))
    if single and (depth or isinstance(tree.body[0], Scope)):
        return _in_scopes(tree.body[0], rewrites, (*forms, AffineExpr()))
    inside = (*forms, LEVELS[depth])
    body = tuple(_in_scopes(child, rewrites, inside, leading) for child in tree.body)
    return Scope(tree.size, body, tree.suffix)


def _unguarded(tree: Scope, level: int) -> bool:
    """True if no condition inside depends on the iterator of the scope, which stands at ``level``."""
    return not any(level in form.levels for leaf in tree.leaves for form in leaf.statement.guard)


def rewritten_statement(
    statement: Statement, rewrites: Mapping[str, Rewrite], forms: tuple[AffineExpr, ...]
) -> Statement:
    """The statement with each array's accesses rewritten; ``forms[l]`` replaces ``{l}``."""

    def form_of(form: AffineExpr) -> AffineExpr:
        found = AffineExpr.of({}, form.constant)
        for level, coefficient in form.terms:
            found = found.plus(forms[level], coefficient)
        for part, coefficient in form.quotients:
            found = found.plus(part_of(part), coefficient)
        return found

    def part_of(part: Part) -> AffineExpr:
        if isinstance(part, Quotient):
            return Quotient.of(form_of(part.dividend), part.divisor, part.remainder)
        assert isinstance(part, Lookup), "parts are quotients and lookups"
        return AffineExpr.of({}, 0, ((Lookup(map_expression(part.value, leaf)), 1),))

    def access_of(access: Access) -> Access:
        moved = Access(access.array, tuple(form_of(subscript) for subscript in access.subscripts))
        return rewrites[access.array](moved)

    def leaf(value: Expression) -> Expression:
        if isinstance(value, Read):
            return Read(access_of(value.access), value.dtype)
        return IndexValue(form_of(value.index), value.dtype) if isinstance(value, IndexValue) else value

    return Statement(
        access_of(statement.target),
        map_expression(statement.value, leaf),
        statement.accumulate,
        statement.dtype,
        "",
        tuple(form_of(form) for form in statement.guard),
    )
