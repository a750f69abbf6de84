"""Moves on what stands together in one scope: fuse two scopes, and cut one in two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdojo_sdk.core.dependence import conflicts, leaking_level, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.made import Cut, Merged, Rewritten
from perfdojo_sdk.core.program import Program, Scope, fresh
from perfdojo_sdk.core.transformation import (
    Kind,
    Move,
    Refusal,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.scopes import refuse_conflict, settle

# -- join_scopes -----------------------------------------------------------------------------------


def next_scope(site: Site) -> Scope | None:
    """The sibling right after the site's scope, when it is a scope."""
    siblings, k = site.siblings, site.path[-1] + 1
    after = siblings[k] if k < len(siblings) else None
    return after if isinstance(after, Scope) else None


def _has_next_scope(site: Site) -> Refusal | None:
    after = next_scope(site)
    if after is not None:
        site.scratch["next"] = after
        return None
    return Refusal.of(site.scope.id, site.scope.head)


def _same_size(site: Site) -> Refusal | None:
    after: Scope = site.scratch["next"]
    if after.size == site.scope.size:
        return None
    return Refusal.of(after.id, after.head, first=site.scope.size, second=after.size)


def _same_suffix(site: Site) -> Refusal | None:
    after: Scope = site.scratch["next"]
    if after.suffix == site.scope.suffix:
        return None
    return Refusal.of(after.id, after.head, first=site.scope.head, second=after.head)


def _not_lockstep(site: Site) -> Refusal | None:
    if not site.dialect.is_lockstep(site.scope.suffix):
        return None
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)


def _join_keeps_order(site: Site) -> Refusal | Kind | None:
    after: Scope = site.scratch["next"]
    outer = (*site.outer_sizes, site.scope.size)
    directions = "=" * site.level + ">"
    return settle(conflicts(site.program, site.scope.body, after.body, outer, directions))


def _join_races(site: Site) -> Refusal | None:
    after: Scope = site.scratch["next"]
    if not site.dialect.is_parallel(site.scope.suffix):
        return None
    outer = (*site.outer_sizes, site.scope.size)
    for sign in "<>":
        directions = "=" * site.level + sign
        for conflict in conflicts(site.program, site.scope.body, after.body, outer, directions):
            return refuse_conflict(conflict)
    return None


def _join_keeps_values(site: Site) -> Refusal | None:
    """A buffer that both scopes use becomes private to each iteration of the fused one."""
    after: Scope = site.scratch["next"]
    if not site.dialect.is_parallel(site.scope.suffix):
        return None
    fused = site.scope.with_body(site.scope.body + after.body)
    program, level = site.replaced((fused,), consumed=2), site.level
    buffer_of = program.buffer_of
    crossing = {buffer_of[a].name for a in site.scope.touches} & {buffer_of[a].name for a in after.touches}
    for name in sorted(crossing & private_buffers(program, fused)):
        buffer, occurrences = program.buffer(name), program.occurrences[name]
        assert buffer is not None
        leak = leaking_level(buffer, occurrences, level + 1)
        if leak is not None:
            first = occurrences[0]
            return Refusal.of(first.statement.id, first.access.text, buffer=name, level=f"{{{leak}}}")
    return None


class JoinScopes(Transformation):
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
            _has_next_scope,
        ),
        Requirement(
            "PD-T122",
            "the scopes differ in size",
            "{first} iterations cannot be fused with {second}",
            "split one of them so that the outer sizes agree",
            _same_size,
            semantic=True,
        ),
        Requirement(
            "PD-T123",
            "the scopes differ in suffix",
            "{first} and {second} are mapped to the hardware in different ways",
            "fuse first, then annotate",
            _same_suffix,
            semantic=True,
        ),
        Requirement(
            "PD-T124",
            "a lockstep scope holds one statement",
            "{head} cannot take a second statement",
            "fuse the scopes around it",
            _not_lockstep,
        ),
        Requirement(
            "PD-T125",
            "a later iteration of the first scope meets an earlier one of the second",
            "fused, {second} would run before {first} has touched the same cell",
            "keep the two scopes apart, or join the outer scopes only",
            _join_keeps_order,
            semantic=True,
        ),
        Requirement(
            "PD-T126",
            "parallel iterations would share a cell",
            "fused, different iterations would touch {cell} together: {first}, {second}",
            "keep the two parallel scopes apart",
            _join_races,
            semantic=True,
        ),
        Requirement(
            "PD-T127",
            "a temporary carries a value from one iteration to another",
            "fused, each iteration would own a copy of {buffer}, and values may pass through {level}",
            "write the temporary anew in each iteration, or keep the two parallel scopes apart",
            _join_keeps_values,
            semantic=True,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for place in program.places:
            following = program.beside(place)[place.path[-1] + 1 :][:1]
            if isinstance(place.node, Scope) and following and isinstance(following[0], Scope):
                yield Move(self.name, place.node.id)

    def rewrite(self, site: Site) -> Rewritten:
        after = next_scope(site)
        assert after is not None
        joined = site.scope.with_body(site.scope.body + after.body)
        return Rewritten(site.replaced((joined,), consumed=2), Merged(((after.id, joined.id),)))


# -- fission_scope ---------------------------------------------------------------------------------


def _second_part(site: Site) -> Refusal | None:
    if site.level >= 1 and site.path[-1] > 0:
        parent = site.program.node(site.path[:-1])
        assert isinstance(parent, Scope)
        site.scratch["parent"] = parent
        return None
    assert site.node is not None
    return Refusal.of(site.node.id)


def _fission_keeps_order(site: Site) -> Refusal | Kind | None:
    parent: Scope = site.scratch["parent"]
    k = site.path[-1]
    directions = "=" * (site.level - 1) + ">"
    return settle(conflicts(site.program, parent.body[:k], parent.body[k:], site.outer_sizes, directions))


def _crossing(site: Site) -> Iterator[str]:
    """Buffers that both parts use."""
    parent: Scope = site.scratch["parent"]
    k, buffer_of = site.path[-1], site.program.buffer_of
    first = {buffer_of[a].name for child in parent.body[:k] for a in child.touches}
    second = {buffer_of[a].name for child in parent.body[k:] for a in child.touches}
    return iter(sorted(first & second))


def _fission_keeps_copies(site: Site) -> Refusal | None:
    """A buffer private to an iteration becomes one for all: its cells must tell them apart."""
    parent: Scope = site.scratch["parent"]
    if not site.dialect.is_parallel(parent.suffix):
        return None
    program = site.program
    crossing = frozenset(_crossing(site)) & private_buffers(program, parent)
    others = frozenset(b.name for b in program.buffers) - crossing
    directions = "=" * (site.level - 1) + "<"
    for conflict in conflicts(program, parent.body, parent.body, site.outer_sizes, directions, others):
        return refuse_conflict(conflict)
    return None


def _crossing_can_be_shared(site: Site) -> Refusal | None:
    parent: Scope = site.scratch["parent"]
    if not site.dialect.is_parallel(parent.suffix):
        return None
    for name in _crossing(site):
        buffer = site.program.buffer(name)
        assert buffer is not None
        if not site.dialect.locations[buffer.location].shared:
            return Refusal.of(parent.id, parent.head, buffer=name, location=buffer.location)
    return None


class FissionScope(Transformation):
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
            _second_part,
        ),
        Requirement(
            "PD-T132",
            "a later iteration of the first part meets an earlier one of the second",
            "apart, {first} would finish all its iterations before {second} touches the same cell",
            "keep them together, or give the cells a dimension of their own",
            _fission_keeps_order,
            semantic=True,
        ),
        Requirement(
            "PD-T133",
            "what each parallel iteration owns would become shared",
            "apart, all iterations would use one {cell}: {first}, {second}",
            "keep the parts together, or undo the contraction of {cell}",
            _fission_keeps_copies,
            semantic=True,
        ),
        Requirement(
            "PD-T134",
            "the location cannot be shared by parallel iterations",
            "{buffer} would be shared by all iterations, {location} cannot be",
            "set another location first",
            _crossing_can_be_shared,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for path, node in program.walk():
            if len(path) > 1 and path[-1] > 0:
                yield Move(self.name, node.id)

    def rewrite(self, site: Site) -> Rewritten:
        parent = site.program.node(site.path[:-1])
        assert isinstance(parent, Scope) and site.node is not None
        k = site.path[-1]
        made = Cut(parent.id, fresh(f"{parent.id}.{site.node.id}", site.program.place_of))
        parts = parent.with_body(parent.body[:k]), replace(parent, body=parent.body[k:], id=made.second)
        return Rewritten(site.program.replaced(site.path[:-1], parts), made)
