"""Rows: parts of a program that share nothing but inputs, so that a few of them stand for a large program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.verify.smaller_games import statement_instances

#: Nests before the rows are cheap if all of the program costs so many times as much.
_CHEAP = 8


@dataclass(frozen=True)
class Rows:
    """Each tuple of iterations of some loops computes output cells of its own, from inputs alone.

    Each statement has one loop for each place in the tuple, at any depth: in a recurrence, the loop over
    sequences inside of the one over time. All cells of one tuple are a row, however many dimensions they
    have.
    """

    sizes: tuple[int, ...]
    """Iterations of the loops for each place."""
    dimensions: Mapping[str, tuple[int, ...]]
    """Array -> for each place the dimension whose subscript is the loop's iterator."""
    scopes: Mapping[str, int]
    """Name of each such loop -> its place in the tuple; all other loops belong to each row."""
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

    The loops around the first statement qualify, from the outermost on, as many as that takes, or as there
    are, where every other statement has a loop that belongs to the same rows (:class:`_Loops`). Where rows
    would be larger, cheap nests at the beginning are left out of them.
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
    """The decomposition of all but the first nests."""
    instances, nodes = statement_instances(program), program.body[before:]
    leaves = [leaf for path, leaf in _leaves(program) if path[0] >= before]
    sizes: list[int] = []
    scopes: dict[str, int] = {}
    dimensions: dict[str, tuple[int, ...]] = dict.fromkeys(_written(program, nodes), ())
    for level in range(len(leaves[0].scopes) if leaves else 0):
        if sizes and instances <= row_instances * prod(sizes):
            break
        loops = _Loops(leaves, set(dimensions))
        if loops.add(0, level) and loops.scopes.isdisjoint(scopes):
            scopes |= dict.fromkeys(loops.scopes, len(sizes))
            sizes.append(loops.size)
            dimensions = {name: (*known, loops.dimensions[name]) for name, known in dimensions.items()}
    arrays = {a: dimensions[b.name] for b in program.buffers if b.name in dimensions for a in b.arrays}
    return Rows(tuple(sizes), arrays, scopes, before) if sizes else None


@dataclass(frozen=True)
class _Leaf:
    """A statement, the loops around it, and its accesses, each with its buffer."""

    scopes: tuple[Scope, ...]
    accesses: tuple[tuple[Buffer, Access], ...]


def _leaves(program: Program) -> Iterator[tuple[Path, _Leaf]]:
    for path, node in program.walk():
        if isinstance(node, Statement):
            around = [program.node(path[:k]) for k in range(1, len(path))]
            accesses = [(program.buffer_of[a.array], a) for a in (node.target, *node.every_read)]
            yield path, _Leaf(tuple(s for s in around if isinstance(s, Scope)), tuple(accesses))


class _Loops:
    """A loop for each statement, and a dimension for each array that is written, so that the loops' iterators
    go alone through these dimensions: what one iteration computes depends on no other one."""

    def __init__(self, leaves: Sequence[_Leaf], written: Set[str]) -> None:
        self.leaves, self.written = leaves, written
        self.levels: dict[int, int] = {}
        self.dimensions: dict[str, int] = {}

    @property
    def scopes(self) -> Set[str]:
        return {self.leaves[k].scopes[level].id for k, level in self.levels.items()}

    @property
    def size(self) -> int:
        return self.leaves[0].scopes[self.levels[0]].size

    def add(self, leaf: int, level: int) -> bool:
        """Take this level's loop of a statement, and what follows from it for all others; False where there
        is no choice of loops that goes with it."""
        if not self._follow([(leaf, level)]):
            return False
        for other in range(len(self.leaves)):
            if other not in self.levels:
                # It shares no array with those before it: any loop of the same size will do.
                known = self.levels, self.dimensions
                for k in range(len(self.leaves[other].scopes)):
                    self.levels, self.dimensions = dict(known[0]), dict(known[1])
                    if self._follow([(other, k)]):
                        break
                else:
                    return False
        return self._apart()

    def _follow(self, found: list[tuple[int, int]]) -> bool:
        while found:
            leaf, level = found.pop()
            if leaf in self.levels:
                if self.levels[leaf] != level:
                    return False
                continue
            self.levels[leaf] = level
            if self.leaves[leaf].scopes[level].size != self.size:
                return False
            for buffer, access in self.leaves[leaf].accesses:
                if buffer.name not in self.written:
                    continue
                alone = [k for k in buffer.materialised if access.subscripts[k] == AffineExpr.level(level)]
                if buffer.name not in self.dimensions and alone:
                    self.dimensions[buffer.name] = alone[0]
                    others = self._through(buffer.name)
                    if others is None:
                        return False
                    found += others
                if self.dimensions.get(buffer.name) not in alone:
                    return False
        return True

    def _through(self, name: str) -> list[tuple[int, int]] | None:
        """Statements that access a buffer, and the level of the iterator that goes through its dimension;
        None where something else does."""
        found = []
        for k, leaf in enumerate(self.leaves):
            for buffer, access in leaf.accesses:
                if buffer.name == name:
                    form = access.subscripts[self.dimensions[name]]
                    if not form.levels or form != AffineExpr.level(form.highest):
                        return None
                    found.append((k, form.highest))
        return found

    def _apart(self) -> bool:
        """True if no loop is taken for one statement inside of it and not for another one."""
        scopes = self.scopes
        return all(
            (scope.id in scopes) == (self.levels[k] == level)
            for k, leaf in enumerate(self.leaves)
            for level, scope in enumerate(leaf.scopes)
        )
