"""A move that drops what the next statement writes anew, before anything reads it."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Gone, Rewritten
from perfdojo_sdk.core.program import Node, Program, Statement
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Move,
    Refusal,
    Relation,
    Removed,
    Requirement,
    Site,
)


@frozen
class Overwritten(Facts):
    """A node with the one that follows it, each a nest around one statement or such a statement."""

    @lazy
    def follower(self) -> Node | None:
        after = self.site.siblings[self.site.path[-1] + 1 :]
        return after[0] if after else None

    @property
    def node(self) -> Node:
        return self.site.siblings[self.site.path[-1]]

    @lazy
    def gone(self) -> tuple[Node, ...]:
        """The node and all nodes inside."""
        path = self.site.path
        return tuple([p.node for p in self.site.program.places if p.path[: len(path)] == path])


def _nest(node: Node) -> tuple[tuple[int, ...], Statement | None]:
    """The sizes of the scopes of a nest, and the only statement in it."""
    if isinstance(node, Statement):
        return (), node
    scopes, statement = node.chain
    return tuple([scope.size for scope in scopes]), statement


def _followed(facts: Overwritten) -> Refusal | None:
    return None if facts.follower is not None else Refusal.of(facts.node.id)


def _writes_the_same(facts: Overwritten) -> Refusal | None:
    """The follower writes the same elements in as many iterations, without a condition; no run-time index
    chooses which."""
    assert facts.follower is not None
    (sizes, first), (others, second) = _nest(facts.node), _nest(facts.follower)
    alike = first and second and sizes == others and first.target == second.target
    if second and alike and not second.guard and not second.chooses:
        return None
    return Refusal.of(facts.node.id, nodes=(facts.follower.id,), follower=_head(facts.follower))


def _head(node: Node) -> str:
    return node.text.splitlines()[0]


def _does_not_read(facts: Overwritten) -> Refusal | None:
    """The follower does not read the array, or one that shares its memory."""
    _, second = _nest(facts.follower) if facts.follower is not None else ((), None)
    if second is None:
        return None
    shared = facts.site.program.buffer_of[second.target.array].arrays
    for read in second.every_read:
        if read.array in shared:
            return Refusal.of(second.id, read)
    return Refusal.of(second.id, second.target) if second.accumulate else None


class DropOverwritten(Analysed[Overwritten]):
    """Drop a statement, with the scopes around it, that the next one overwrites before anything reads it.

    before:
        8 y[{0}] = 0
        8 y[{0}] = x[{0}]
    after: drop_overwritten(s0)
        8 y[{0}] = x[{0}]
    """

    name = "drop_overwritten"
    place = "node"
    requirements = (
        Requirement(
            "PD-T381",
            "nothing follows",
            "it is the last of its scope",
            "move the statement that overwrites it behind it, with reorder_statements",
            _followed,
            established_by=("reorder_statements",),
        ),
        Requirement(
            "PD-T382",
            "what follows does not overwrite it",
            "{follower} does not write the same elements in the same loops",
            "give both nests the same range first, with split_range",
            _writes_the_same,
            semantic=True,
            established_by=("split_range", "reorder_statements", "swap_scopes", "fission_scope"),
        ),
        Requirement(
            "PD-T383",
            "what follows reads it",
            "{access} is read before it is overwritten, or added to",
            "keep it",
            _does_not_read,
            semantic=True,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for place in program.places:
            (_, first), after = _nest(place.node), program.beside(place)[place.path[-1] + 1 :]
            second = _nest(after[0])[1] if after else None
            if first and second and first.target == second.target:
                yield Move(self.name, place.node.id)

    def analyse(self, site: Site) -> Overwritten:
        return Overwritten(site)

    def rewrite(self, facts: Overwritten, /) -> Rewritten:
        return Rewritten(facts.site.replaced(()), Gone(tuple([node.id for node in facts.gone])))

    def relation(self, facts: Overwritten, result: Program, /) -> Relation:
        return {node.id: Removed() for node in facts.gone if isinstance(node, Statement)}


MOVES = (DropOverwritten(),)
