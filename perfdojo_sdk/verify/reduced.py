"""The same game on a smaller kernel, so that a slow check can afford a large one.

A trace is a list of moves, and moves name places, not sizes. Shrink the root, play the same moves
again, and where each is legal for the same reasons and gives the same tree, the small trace
proves about the moves what the large one would.

Sizes belong to *extents*: a scope and every array dimension that its bare iterator indexes have
one size for one reason and shrink together. Literals stay: a mean over 512 elements that divides
by 512 does so before and after the moves, whatever the shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Index
from perfdojo_sdk.core.program import Buffer, Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.validate import index_values, violations

Place: TypeAlias = Path | tuple[str, int]
"""Where a size stands: a scope's path, or a buffer's name and a dimension's position."""


def statement_instances(program: Program) -> int:
    """How many times a statement runs when the program runs once."""
    touches = [t for node in program.body for each in node.touches.values() for t in each]
    return sum(prod(t.sizes) for t in touches if t.writes)


def reduce_trace(trace: Trace, rules: Rules, most_instances: int) -> Trace:
    """The same moves on the smallest root needed to stay within ``most_instances``, if possible.

    No program of the result runs more statement instances than that, unless the moves allow no
    shape that small; then the smallest shape found. Every scope that iterates in the given trace
    iterates at least twice in the result, as a loop that runs once hides what order it has.
    A trace that is small enough comes back as it is.
    """
    reduced = trace
    for extent in extents(trace.root):
        if _instances(reduced) <= most_instances:
            break
        smaller = (_replayed(reduced, trace, rules, extent, size) for size in extent.smaller())
        reduced = next((t for t in smaller if t is not None), reduced)
    return reduced


def _instances(trace: Trace) -> int:
    return max(statement_instances(p) for p in (trace.root, *(s.after for s in trace.steps)))


# -- extents ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extent:
    """Places that share one size and shrink together."""

    places: frozenset[Place]
    size: int

    def smaller(self) -> Iterator[int]:
        """Sizes to try, smallest first: two, then divisors, so that tiles still fit."""
        return (d for d in range(2, self.size) if d == 2 or self.size % d == 0)


def extents(root: Program) -> list[Extent]:
    """What can shrink in a root, largest first."""
    sizes = _sizes(root)
    groups = _Groups(sizes)
    pinned: list[Place] = []
    for place, subscript, path, writes in _subscripts(root):
        scopes = [path[: level + 1] for level in sorted(subscript.levels)]
        if scopes and subscript == Index.level(subscript.highest):
            groups.join(place, scopes[0])
        else:
            # Any other form says nothing of the dimension's size; and where it is written, fewer
            # iterations would leave cells unwritten.
            pinned += [place, *(scopes if writes else [])]
    pinned += _counted(root)
    fixed = {groups.leader(place) for place in pinned}
    found = []
    for leader, places in groups.members().items():
        # A loop over a part of a dimension has its own reason for its size.
        if leader not in fixed and len({sizes[p] for p in places}) == 1:
            found.append(Extent(places, sizes[leader]))
    return sorted(found, key=lambda extent: -extent.size)


def _sizes(root: Program) -> Mapping[Place, int]:
    sizes: dict[Place, int] = {path: n.size for path, n in root.walk() if isinstance(n, Scope)}
    for buffer in root.buffers:
        sizes |= {(buffer.name, k): dimension.size for k, dimension in enumerate(buffer.dimensions)}
    return sizes


def _subscripts(root: Program) -> Iterator[tuple[Place, Index, Path, bool]]:
    """Every subscript: its dimension, itself, its statement's path, whether it is written through."""
    for name, occurrences in root.occurrences.items():
        for occurrence in occurrences:
            for k, subscript in enumerate(occurrence.access.subscripts):
                yield (name, k), subscript, occurrence.path, occurrence.writes


def _counted(root: Program) -> Iterator[Path]:
    """Scopes whose iterators take part in conditions or quotients: there a size is also a number."""
    for path, node in root.walk():
        if isinstance(node, Statement):
            forms = [q.dividend for form in _forms(node) for q, _ in form.quotients]
            for form in (*node.guard, *forms):
                yield from (path[: level + 1] for level in form.levels)


def _forms(statement: Statement) -> Iterator[Index]:
    yield from statement.guard
    for access in (statement.target, *statement.reads):
        yield from access.subscripts
    yield from (value.index for value in index_values(statement.value))


class _Groups:
    """Disjoint sets of places."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.parent = {place: place for place in places}

    def leader(self, place: Place) -> Place:
        while self.parent[place] != place:
            place = self.parent[place]
        return place

    def join(self, a: Place, b: Place) -> None:
        self.parent[self.leader(a)] = self.leader(b)

    def members(self) -> Mapping[Place, frozenset[Place]]:
        found: dict[Place, set[Place]] = {}
        for place in self.parent:
            found.setdefault(self.leader(place), set()).add(place)
        return {leader: frozenset(places) for leader, places in found.items()}


# -- replaying -------------------------------------------------------------------------------------


def _replayed(reduced: Trace, trace: Trace, rules: Rules, extent: Extent, size: int) -> Trace | None:
    """``reduced`` with one more extent set to ``size``; None where that is another game."""
    root = resized(reduced.root, extent, size)
    if next(violations(root, rules.dialect), None) is not None:
        return None
    try:
        played = Trace(root).play_all(rules, trace.moves)
    except MoveError:
        return None
    same = all(
        _skeleton(new.after) == _skeleton(old.after) and new.legal == old.legal
        for new, old in zip(played.steps, trace.steps, strict=True)
    )
    return played if same else None


def _skeleton(program: Program) -> list[tuple[object, ...]]:
    """Ids, suffixes and shape of the tree, and which scopes iterate at all."""
    return [
        (path, node.id, node.suffix, node.size > 1) if isinstance(node, Scope) else (path, node.id)
        for path, node in program.walk()
    ]


def resized(root: Program, extent: Extent, size: int) -> Program:
    """``root`` with every place of an extent set to ``size``."""
    def storage(buffer: Buffer) -> Buffer:
        kept = enumerate(buffer.dimensions)
        shrunk = [replace(d, size=size) if (buffer.name, k) in extent.places else d for k, d in kept]
        return replace(buffer, dimensions=tuple(shrunk))

    def tree(node: Node, path: Path) -> Node:
        if not isinstance(node, Scope):
            return node
        body = tuple(tree(child, (*path, k)) for k, child in enumerate(node.body))
        return Scope(size if path in extent.places else node.size, body, node.suffix, node.id)

    return Program(
        root.name,
        root.inputs,
        root.outputs,
        tuple(storage(b) for b in root.buffers),
        tuple(tree(node, (k,)) for k, node in enumerate(root.body)),
    )
