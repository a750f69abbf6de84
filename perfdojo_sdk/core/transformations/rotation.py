"""Rotate a loop: the end of one iteration and the beginning of the next one become one iteration.

``n`` times A and then B is the same as A once, ``n - 1`` times B and then A, and B once: every
instance runs in the same order as before. It gains time only with other moves: if B writes what A
computed, the A of the next iteration can be fused with it, so that the processor computes while
the stores drain (software pipelining with one stage in flight).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import methodcaller

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.made import Copied, Rewritten
from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Instance,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.ranges import named, shift, still_a_page
from perfdojo_sdk.core.transformations.scopes import levels, no_suffix, statements_below


@frozen
class Rotation(Facts):
    """A scope and the position of the child that each iteration shall begin with."""

    at: int


def _cut_inside(facts: Rotation) -> Refusal | None:
    scope, at = facts.site.scope, facts.at
    count = len(scope.body)
    if 0 < at < count:
        return None
    return Refusal.of(scope.id, scope.head, head=scope.head, count=count, position=at)


def _runs_again(facts: Rotation) -> Refusal | None:
    scope = facts.site.scope
    return None if scope.size > 1 else Refusal.of(scope.id, scope.head, head=scope.head)


def _nothing_parallel_inside(facts: Rotation) -> Refusal | None:
    """A buffer that each parallel iteration owns would be used in two scopes, and so be one for all."""
    site = facts.site
    for place in site.program.places:
        inside = place.path[: len(site.path)] == site.path
        if inside and isinstance(place.node, Scope) and site.dialect.is_parallel(place.node.suffix):
            return Refusal.of(place.node.id, place.node.head, head=place.node.head)
    return None


class RotateScope(Analysed[Rotation]):
    """Let each iteration of a scope begin with its child ``at``, and end with what stood before that
    child, for the next iteration. What comes before the first such iteration is named after its origin
    with ``.a``, what comes after the last one with ``.b``.

    before:
        10
        | t[{0}] = x[{0}] * 2
        | y[{0}] = t[{0}]
    after: rotate_scope(s0, at=1)
        1 t[{0}] = x[{0}] * 2
        9
        | y[{0}] = t[{0}]
        | t[{0}+1] = x[{0}+1] * 2
        1 y[{0}+9] = t[{0}+9]
    """

    name = "rotate_scope"
    place = "scope"
    parameters = (Parameter("at", int, "position of the child that each iteration begins with, from 0"),)
    requirements = (
        Requirement(
            "PD-T441",
            "the scope is already mapped",
            "{head} is mapped to the hardware",
            "rotate first, then annotate; or split it and rotate the inner scope",
            no_suffix,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T442",
            "no child to begin with",
            "{head} holds {count} nodes, and each iteration would begin with number {position}",
            "choose a position from 1 to the number of nodes less 1",
            _cut_inside,
            established_by=("join_scopes",),
        ),
        Requirement(
            "PD-T443",
            "there is no next iteration",
            "{head} runs once",
            "rotate a scope of at least two iterations",
            _runs_again,
            established_by=("collapse_scopes", "join_ranges"),
        ),
        Requirement(
            "PD-T444",
            "a parallel scope stands inside",
            "what each iteration of {head} owns would be used in two scopes",
            "rotate before annotating",
            _nothing_parallel_inside,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T445",
            "the program would become too large",
            "it would have {count} statements, {most} are allowed",
            "rotate an inner scope",
            still_a_page,
            established_by=("remove_dead", "join_ranges"),
        ),
    )
    undo = "drop the move from the trace"

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            if not scope.suffix and scope.size > 1:
                for at in range(1, len(scope.body)):
                    yield Move(self.name, scope.id, (("at", at),))

    def analyse(self, site: Site) -> Rotation:
        return Rotation(site, site.move["at"])

    def rewrite(self, facts: Rotation, /) -> Rewritten:
        site, at = facts.site, facts.at
        scope, level = site.scope, site.level
        start, end = Scope(1, scope.body[:at], "", scope.id), Scope(1, scope.body[at:], "", scope.id)
        first = start.renamed(named(site, "a"))
        following = start.renumbered(methodcaller("shifted", level, 1))
        last = end.renumbered(methodcaller("shifted", level, scope.size - 1)).renamed(named(site, "b"))
        between = Scope(scope.size - 1, (*end.body, *following.body), "", scope.id)
        nodes = (first, between, last)
        bodies = (start, (first, following)), (end, (end, last))
        return Rewritten(site.replaced(nodes), Copied(scope.id, tuple([n.id for n in nodes]), bodies))

    def relation(self, facts: Rotation, result: Program, /) -> Relation:
        site, at = facts.site, facts.at
        scope, level = site.scope, site.level
        first, last = named(site, "a"), named(site, "b")
        found = {}
        for k, child in enumerate(scope.body):
            for statement, depth in statements_below(child, level + 1):
                if k < at:
                    found[first(statement.id)] = Instance(statement.id, levels(depth))
                    found[statement.id] = Instance(statement.id, shift(level, 1)[:depth])
                else:
                    found[statement.id] = Instance(statement.id, levels(depth))
                    found[last(statement.id)] = Instance(statement.id, shift(level, scope.size - 1)[:depth])
        return found


MOVES = (RotateScope(),)
