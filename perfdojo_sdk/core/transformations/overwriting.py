"""A move that drops what the next statement writes anew, before anything reads it."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Gone, Rewritten
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
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
    difference, remedy = _difference(facts.node, facts.follower)
    follower = facts.follower
    return Refusal.of(
        facts.node.id,
        nodes=(follower.id,),
        follower=_head(follower),
        difference=difference,
        remedy=remedy,
    )


def _difference(node: Node, follower: Node) -> tuple[str, str]:
    """The difference between what two nests write, and what to try."""
    (sizes, first), (others, second) = _nest(node), _nest(follower)
    for nest, statement in ((node, first), (follower, second)):
        if statement is None:
            return _several(nest)
    assert first is not None and second is not None
    mine, theirs = first.target, second.target
    if mine.array != theirs.array:
        what = f"it writes {theirs.array}, and {first.id} writes {mine.array}"
        return what, f"bring a nest that writes {mine.array} behind {node.id}, with reorder_statements"
    if sizes != others:
        return _other_loops(node, follower, sizes, others)
    if mine != theirs:
        return f"it writes {theirs.text}, and {first.id} writes {mine.text}", "keep it, or swap_scopes"
    if second.guard:
        where = " and ".join(condition.text for condition in second.conditions)
        remedy = f"split_range where that changes, then drop_condition({second.id})"
        return f"it writes only where {where}", remedy
    return f"run-time indices choose what it writes: {theirs.text}", "keep it: no move takes that away"


def _several(nest: Node) -> tuple[str, str]:
    """The difference for a nest of several statements."""
    assert isinstance(nest, Scope)
    body = nest.chain[0][-1].body
    what = f"{nest.id} holds {len(body)} nodes, not one statement"
    return what, f"fission_scope({body[1].id}) cuts the scope around them"


def _other_loops(
    node: Node, follower: Node, sizes: tuple[int, ...], others: tuple[int, ...]
) -> tuple[str, str]:
    """The difference for nests of other sizes."""
    mine, theirs = (each.chain[0] if isinstance(each, Scope) else () for each in (node, follower))
    what = f"its loops are {_loops(others)}, those of {node.id} are {_loops(sizes)}"
    apart = [k for k, pair in enumerate(zip(sizes, others, strict=False)) if pair[0] != pair[1]]
    if len(sizes) == len(others) and len(apart) == 1:
        [k] = apart
        if sizes[k] < others[k]:
            return what, f"split_range({theirs[k].id}, at={sizes[k]}) makes its first part as long"
        part = f"split_range({mine[k].id}, at={others[k]}) makes its first part as long"
        return what, f"{part}, and reorder_statements brings that before {follower.id}"
    if sorted(sizes) == sorted(others):
        return what, f"swap_scopes({theirs[0].id}) changes their order"
    return what, "keep it, or make the loops equal with split_scope or split_range"


def _loops(sizes: tuple[int, ...]) -> str:
    return " by ".join(map(str, sizes)) or "none"


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
            "{follower} does not write the same elements in the same loops: {difference}",
            "give both nests the same loops, and one statement each: {remedy}",
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
