"""Rows: parts of a program that share nothing but inputs, so that a few of them stand for a large program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.verify.reduced import statement_instances

#: Nests before the rows are cheap if all of the program costs so many times as much.
_CHEAP = 8


@dataclass(frozen=True)
class Rows:
    """Each tuple of iterations of some outer levels computes output cells of its own, from inputs alone.

    All cells of one tuple are a row, however many dimensions they have.
    """

    sizes: tuple[int, ...]
    """Iterations of each level."""
    dimensions: Mapping[str, tuple[int, ...]]
    """Array -> for each level the dimension whose subscript is that level's iterator."""
    levels: tuple[int, ...]
    """The depths of these levels; a loop between them belongs to each row."""
    before: int = 0
    """So many of the first nests compute what all rows read, such as an input with a border. They run as a
    whole; what they write counts as input."""

    @property
    def count(self) -> int:
        return prod(self.sizes)

    def shape(self, array: str, whole: tuple[int, ...], rows: int) -> tuple[int, ...]:
        """The shape of so many rows of an array."""
        return (rows, *(whole[k] for k in self.within(array, len(whole))))

    def within(self, array: str, rank: int) -> tuple[int, ...]:
        """The dimensions that a row has."""
        return tuple(k for k in range(rank) if k not in self.dimensions[array])


def outermost_rows(program: Program, row_instances: int = 0) -> Rows | None:
    """The decomposition of a program into independent rows of at most ``row_instances`` instances, or None.

    As many levels, from the outermost on, as that takes, or as there are: one qualifies when all scopes
    down to it are perfectly nested, those of its depth have one size, and every array that is written
    uses the level's iterator, alone, in one and the same dimension wherever it appears. Where rows would be
    larger, cheap nests at the beginning are left out of them.
    """
    instances, best = statement_instances(program), _rows_behind(program, 0, row_instances)
    for before in range(1, len(program.body)):
        if best and instances <= row_instances * best.count:
            break
        apart = _cheap_and_apart(program, before)
        found = _rows_behind(program, before, row_instances) if apart else None
        if found and (best is None or found.count > best.count):
            best = found
    return best


def _cheap_and_apart(program: Program, before: int) -> bool:
    """True if the first nests cost little, write no output, and nothing that a later nest writes."""
    first, later = program.body[:before], program.body[before:]
    taken = {program.buffer_of[name].name for name in program.outputs} | _written(program, later)
    cost = sum(prod(leaf.sizes) for node in first for leaf in node.leaves)
    return _written(program, first).isdisjoint(taken) and cost * _CHEAP <= statement_instances(program)


def _written(program: Program, nodes: Sequence[Node]) -> set[str]:
    """The buffers that the nodes write."""
    return {program.buffer_of[leaf.statement.target.array].name for node in nodes for leaf in node.leaves}


def _rows_behind(program: Program, before: int, row_instances: int) -> Rows | None:
    instances, nodes = statement_instances(program), program.body[before:]
    names = _written(program, nodes)
    written = [b for b in program.buffers if b.name in names]
    sizes: list[int] = []
    levels: list[int] = []
    dimensions: dict[str, tuple[int, ...]] = {array: () for b in written for array in b.arrays}
    depth = 0
    while nodes and (not sizes or instances > row_instances * prod(sizes)):
        scopes = [node for node in nodes if isinstance(node, Scope)]
        if len(scopes) < len(nodes):
            break
        found = {b: _dimension_of(program, b, depth) for b in written}
        if None not in found.values() and len({scope.size for scope in scopes}) == 1:
            sizes.append(scopes[0].size)
            levels.append(depth)
            for buffer, dimension in found.items():
                assert dimension is not None
                dimensions |= {array: (*dimensions[array], dimension) for array in buffer.arrays}
        nested = all(len(scope.body) == 1 for scope in scopes)
        nodes = tuple(scope.body[0] for scope in scopes) if nested else ()
        depth += 1
    return Rows(tuple(sizes), dimensions, tuple(levels), before) if sizes else None


def _dimension_of(program: Program, buffer: Buffer, level: int) -> int | None:
    """The dimension in which every access of the buffer has the level's iterator alone."""
    accesses = [o.access for o in program.occurrences[buffer.name]]
    alone = AffineExpr.level(level)
    return next((k for k in buffer.materialised if all(a.subscripts[k] == alone for a in accesses)), None)
