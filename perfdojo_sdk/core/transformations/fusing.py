"""Moves on what stands together in one scope: fuse two scopes, and cut one in two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdojo_sdk.core.dependence import conflicts, leaking_level, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Cut, Merged, Rewritten
from perfdojo_sdk.core.program import Node, Program, Scope, fresh
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
from perfdojo_sdk.core.transformations.scopes import refuse_conflict, refuse_leak, settle

# -- join_scopes -----------------------------------------------------------------------------------


@frozen
class Followed(Facts):
    """A scope and the scope that follows it."""

    after: Scope

    @staticmethod
    def of(site: Site) -> Followed | None:
        """The scope at a site and the one after it; None if no scope follows."""
        siblings, k = site.siblings, site.path[-1] + 1
        after = siblings[k] if k < len(siblings) else None
        return Followed(site, after) if isinstance(after, Scope) else None

    @lazy
    def joined(self) -> Scope:
        """The scope that does in each iteration what both do in it."""
        return self.site.scope.with_body(self.site.scope.body + self.after.body)


def _same_size(facts: Followed) -> Refusal | None:
    scope, after = facts.site.scope, facts.after
    if after.size == scope.size:
        return None
    return Refusal.of(after.id, after.head, nodes=(scope.id,), first=scope.size, second=after.size)


def _same_suffix(facts: Followed) -> Refusal | None:
    scope, after = facts.site.scope, facts.after
    if after.suffix == scope.suffix:
        return None
    return Refusal.of(after.id, after.head, nodes=(scope.id,), first=scope.head, second=after.head)


def _not_lockstep(facts: Followed) -> Refusal | None:
    scope = facts.site.scope
    if not facts.site.dialect.is_lockstep(scope.suffix):
        return None
    return Refusal.of(scope.id, scope.head, head=scope.head)


def _join_keeps_order(facts: Followed) -> Refusal | Kind | None:
    site = facts.site
    outer = (*site.outer_sizes, site.scope.size)
    directions = "=" * site.level + ">"
    return settle(site.program, conflicts(site.program, site.scope.body, facts.after.body, outer, directions))


def _join_races(facts: Followed) -> Refusal | None:
    site = facts.site
    if not site.dialect.is_parallel(site.scope.suffix):
        return None
    outer = (*site.outer_sizes, site.scope.size)
    for sign in "<>":
        directions = "=" * site.level + sign
        for conflict in conflicts(site.program, site.scope.body, facts.after.body, outer, directions):
            return refuse_conflict(conflict)
    return None


def _join_keeps_values(facts: Followed) -> Refusal | None:
    """A buffer that both scopes use becomes private to each iteration of the fused one."""
    site, after = facts.site, facts.after
    if not site.dialect.is_parallel(site.scope.suffix):
        return None
    fused = facts.joined
    program, level = site.replaced((fused,), consumed=2), site.level
    buffer_of = program.buffer_of
    crossing = {buffer_of[a].name for a in site.scope.touches} & {buffer_of[a].name for a in after.touches}
    for name in sorted(crossing & private_buffers(program, fused)):
        buffer, occurrences = program.buffer(name), program.occurrences[name]
        assert buffer is not None
        leak = leaking_level(buffer, occurrences, level + 1)
        if leak is not None:
            return refuse_leak(buffer, occurrences, leak)
    return None


class JoinScopes(Analysed[Followed]):
    """Fuse a scope with the scope that follows it.

    before:
        8 t[{0}] = x[{0}] * 2
        8 y[{0}] = t[{0}] + 1
    after: join_scopes(s0)
        8
        | t[{0}] = x[{0}] * 2
        | y[{0}] = t[{0}] + 1
    """

    name = "join_scopes"
    place = "scope"
    requirements = (
        Requirement(
            "PD-T121",
            "no scope follows",
            "the next sibling is not a scope, or there is none",
            "bring the two scopes together with reorder_statements",
            None,
            established_by=("reorder_statements", "fission_scope"),
        ),
        Requirement(
            "PD-T122",
            "the scopes differ in size",
            "{first} iterations cannot be fused with {second}",
            "split one of them so that the outer sizes agree",
            _same_size,
            semantic=True,
            established_by=("split_scope", "split_range", "swap_scopes", "collapse_scopes"),
        ),
        Requirement(
            "PD-T123",
            "the scopes differ in suffix",
            "{first} and {second} are mapped to the hardware in different ways",
            "fuse first, then annotate",
            _same_suffix,
            semantic=True,
            established_by=("annotate_scope",),
        ),
        Requirement(
            "PD-T124",
            "a lockstep scope holds one statement",
            "{head} cannot take a second statement",
            "fuse the scopes around it",
            _not_lockstep,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T125",
            "a later iteration of the first scope meets an earlier one of the second",
            "fused, {second} would run before {first} has touched the same cell",
            "keep the two scopes apart, or join the outer scopes only",
            _join_keeps_order,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T126",
            "parallel iterations would share a cell",
            "fused, different iterations would touch {cell} together: {first}, {second}",
            "keep the two parallel scopes apart",
            _join_races,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T127",
            "a temporary carries a value from one iteration to another",
            "fused, each iteration would own a copy of {buffer}, and values may pass through {level}",
            "write the temporary anew in each iteration, or keep the two parallel scopes apart",
            _join_keeps_values,
            semantic=True,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for place in program.places:
            following = program.beside(place)[place.path[-1] + 1 :][:1]
            if isinstance(place.node, Scope) and following and isinstance(following[0], Scope):
                yield Move(self.name, place.node.id)

    def analyse(self, site: Site) -> Followed | Refusal:
        return Followed.of(site) or Refusal.of(site.scope.id, site.scope.head)

    def rewrite(self, facts: Followed, /) -> Rewritten:
        joined = facts.joined
        made = Merged(((facts.after.id, joined.id),))
        return Rewritten(facts.site.replaced((joined,), consumed=2), made)


# -- fission_scope ---------------------------------------------------------------------------------


@frozen
class Parts(Facts):
    """A scope and where its children are parted: those before the node, and the rest from it on."""

    parent: Scope
    node: Node
    first: tuple[Node, ...]
    rest: tuple[Node, ...]

    @property
    def crossing(self) -> list[str]:
        """Buffers that both parts use."""
        buffer_of = self.site.program.buffer_of
        first = {buffer_of[a].name for child in self.first for a in child.touches}
        return sorted(first & {buffer_of[a].name for child in self.rest for a in child.touches})


def _fission_keeps_order(facts: Parts) -> Refusal | Kind | None:
    site = facts.site
    directions = "=" * (site.level - 1) + ">"
    return settle(
        site.program, conflicts(site.program, facts.first, facts.rest, site.outer_sizes, directions)
    )


def _fission_keeps_copies(facts: Parts) -> Refusal | None:
    """A buffer private to an iteration becomes one for all: its cells must tell them apart."""
    site, parent = facts.site, facts.parent
    if not site.dialect.is_parallel(parent.suffix):
        return None
    program = site.program
    crossing = frozenset(facts.crossing) & private_buffers(program, parent)
    others = frozenset(b.name for b in program.buffers) - crossing
    directions = "=" * (site.level - 1) + "<"
    for conflict in conflicts(program, parent.body, parent.body, site.outer_sizes, directions, others):
        return refuse_conflict(conflict)
    return None


def _crossing_can_be_shared(facts: Parts) -> Refusal | None:
    site, parent = facts.site, facts.parent
    if not site.dialect.is_parallel(parent.suffix):
        return None
    for name in facts.crossing:
        buffer = site.program.buffer(name)
        assert buffer is not None
        if not site.dialect.locations[buffer.location].shared:
            return Refusal.of(
                parent.id, parent.head, arrays=buffer.arrays, location=buffer.location, buffer=name
            )
    return None


class FissionScope(Analysed[Parts]):
    """Cut the scope around a node in two, in front of that node.

    before:
        8
        | t[{0}] = x[{0}] * 2
        | y[{0}] = t[{0}] + 1
    after: fission_scope(c1)
        8 t[{0}] = x[{0}] * 2
        8 y[{0}] = t[{0}] + 1
    """

    name = "fission_scope"
    place = "node"
    requirements = (
        Requirement(
            "PD-T131",
            "nothing stands before the node in its scope",
            "the node is the first in its scope, or in none",
            "name the node that shall start the second scope",
            None,
            established_by=("reorder_statements",),
        ),
        Requirement(
            "PD-T132",
            "a later iteration of the first part meets an earlier one of the second",
            "apart, {first} would finish all its iterations before {second} touches the same cell",
            "keep them together, or give the cells a dimension of their own",
            _fission_keeps_order,
            semantic=True,
            established_by=("inline_definition",),
        ),
        Requirement(
            "PD-T133",
            "what each parallel iteration owns would become shared",
            "apart, all iterations would use one {cell}: {first}, {second}",
            "keep the parts together, or undo the contraction of {cell}",
            _fission_keeps_copies,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T134",
            "the location cannot be shared by parallel iterations",
            "{buffer} would be shared by all iterations, {location} cannot be",
            "set another location first",
            _crossing_can_be_shared,
            established_by=("set_location",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for path, node in program.walk():
            if len(path) > 1 and path[-1] > 0:
                yield Move(self.name, node.id)

    def analyse(self, site: Site) -> Parts | Refusal:
        node, k = site.siblings[site.path[-1]], site.path[-1]
        if site.level == 0 or k == 0:
            return Refusal.of(node.id)
        parent = site.above[-1]
        return Parts(site, parent, node, parent.body[:k], parent.body[k:])

    def rewrite(self, facts: Parts, /) -> Rewritten:
        site, parent = facts.site, facts.parent
        made = Cut(parent.id, fresh(f"{parent.id}.{facts.node.id}", site.program.place_of))
        parts = parent.with_body(facts.first), replace(parent, body=facts.rest, id=made.second)
        return Rewritten(site.program.replaced(site.path[:-1], parts), made)


MOVES = (JoinScopes(), FissionScope())
