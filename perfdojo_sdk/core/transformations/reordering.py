"""The order of two statements that follow each other."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dependence import conflicts
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.program import Node, Program
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Kind,
    Move,
    Refusal,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.scopes import settle


@frozen
class Neighbours(Facts):
    """A node and the one that follows it."""

    node: Node
    after: Node


def _reorder_keeps_order(facts: Neighbours) -> Refusal | Kind | None:
    site, directions = facts.site, "=" * facts.site.level
    return settle(
        site.program, conflicts(site.program, (facts.node,), (facts.after,), site.outer_sizes, directions)
    )


class ReorderStatements(Analysed[Neighbours]):
    """Let a node and the one that follows it change places.

    before:
        a[0] = x[0]
        b[0] = x[1]
    after: reorder_statements(c0)
        b[0] = x[1]
        a[0] = x[0]
    """

    name = "reorder_statements"
    place = "node"
    requirements = (
        Requirement(
            "PD-T141",
            "nothing follows",
            "the node is the last of its scope",
            "name the earlier of the two nodes",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T142",
            "the two depend on each other",
            "{first} and {second} touch one cell, and one of them writes",
            "keep their order",
            _reorder_keeps_order,
            semantic=True,
            established_by=("inline_definition", "unshare_storage"),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for place in program.places:
            if place.path[-1] + 1 < len(program.beside(place)):
                yield Move(self.name, place.node.id)

    def analyse(self, site: Site) -> Neighbours | Refusal:
        siblings, k = site.siblings, site.path[-1] + 1
        if k < len(siblings):
            return Neighbours(site, siblings[k - 1], siblings[k])
        return Refusal.of(siblings[k - 1].id)

    def rewrite(self, facts: Neighbours, /) -> Program:
        return facts.site.replaced((facts.after, facts.node), consumed=2)


MOVES = (ReorderStatements(),)
