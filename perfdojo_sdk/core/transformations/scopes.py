"""Moves on the shape of the tree: split, interchange, fuse, fission, reorder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdojo_sdk.core.dependence import Conflict, conflicts, leaking_level, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import LEVELS, MAX_DEPTH, Index, Renumbering
from perfdojo_sdk.core.program import Node, Path, Program, Scope, fresh
from perfdojo_sdk.core.transformation import (
    Instance,
    Kind,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.validate import guarded_bounds


def settle(found: Iterator[Conflict]) -> Refusal | Kind | None:
    """What conflicts mean for a move that changes the order of their two accesses."""
    kind = None
    for conflict in found:
        if not conflict.reduction:
            return refuse_conflict(conflict)
        kind = Kind.REASSOCIATES
    return kind


def refuse_conflict(conflict: Conflict) -> Refusal:
    reader = conflict.second if conflict.first.writes else conflict.first
    return Refusal.of(
        conflict.second.statement.id,
        conflict.second.access.text,
        first=conflict.first.access.text,
        second=conflict.second.access.text,
        cell=reader.access.array,
        first_id=conflict.first.statement.id,
        second_id=conflict.second.statement.id,
    )


def scopes(program: Program) -> list[tuple[Path, Scope]]:
    """Every scope with its path, in program order."""
    return program.once(_scopes)


def _scopes(program: Program) -> list[tuple[Path, Scope]]:
    return [(path, node) for path, node in program.walk() if isinstance(node, Scope)]


def shifted(start: int, by: int) -> tuple[Index, ...]:
    """Levels ``start, start+1, ...`` moved by ``by``, as forms indexed from ``start``."""
    return levels(MAX_DEPTH, start + by)


# -- split_scope -----------------------------------------------------------------------------------


def _factor_divides(site: Site) -> Refusal | None:
    size, factor = site.scope.size, site.move["factor"]
    if size % factor == 0:
        return None
    return Refusal.of(site.scope.id, site.scope.head, size=size, factor=factor)


def factor_in_range(site: Site) -> Refusal | None:
    size, factor = site.scope.size, site.move["factor"]
    if 1 < factor < size:
        return None
    return Refusal.of(site.scope.id, site.scope.head, size=size, factor=factor)


def no_suffix(site: Site) -> Refusal | None:
    if not site.scope.suffix:
        return None
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)


def reaching_outside(site: Site, nest: Scope) -> str:
    """An access of the new nest that is not shown to stay inside its array where its condition holds."""
    for leaf in nest.leaves:
        statement, around = leaf.statement, (*site.outer_sizes, *leaf.sizes)
        for access in (statement.target, *statement.reads) if statement.guard else ():
            shape = site.program.buffer_of[access.array].shape
            for subscript, size in zip(access.subscripts, shape, strict=True):
                low, high = guarded_bounds(subscript, statement.guard, around)
                if low < 0 or high >= size:
                    return access.text
    return ""


class SplitScope(Transformation):
    """Split a scope into an outer scope and an inner one of ``factor`` iterations (tile).

    before:
        16 y[{0}] = x[{0}]
    after: split_scope(s0, factor=4)
        4 4 y[{0}*4+{1}] = x[{0}*4+{1}]
    """

    name = "split_scope"
    place = "scope"
    parameters = (Parameter("factor", int, "iterations of the inner scope", counts=True),)
    requirements = (
        Requirement(
            "PD-T101",
            "the factor is not between 1 and the size",
            "a scope of {size} iterations has no inner scope of {factor}",
            "use a factor larger than 1 and smaller than the size",
            factor_in_range,
        ),
        Requirement(
            "PD-T102",
            "the factor does not divide the size",
            "{factor} does not divide {size}, so iterations would be lost",
            "use a divisor of the size",
            _factor_divides,
            semantic=True,
        ),
        Requirement(
            "PD-T103",
            "the scope already has a suffix",
            "{head} is already mapped to the hardware",
            "split first, then annotate",
            no_suffix,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in scopes(program):
            if not scope.suffix:
                for factor in divisors(scope.size):
                    yield Move(self.name, scope.id, (("factor", factor),))

    def rewrite(self, site: Site) -> Program:
        scope, level, factor = site.scope, site.level, site.move["factor"]
        forms = (*levels(level), Index.of({level: factor, level + 1: 1}), *shifted(level + 1, 1))
        taken = site.program.place_of
        inner = scope.headed(factor, "", fresh(f"{scope.id}.i", taken), Renumbering(forms, level))
        outer = Scope(scope.size // factor, (inner,), "", fresh(f"{scope.id}.o", taken))
        return site.replaced((outer,))

    def relation(self, site: Site, result: Program) -> Relation:
        level, factor = site.level, site.move["factor"]
        split = Index.of({level: factor, level + 1: 1})
        return {
            statement.id: Instance(
                statement.id,
                (*levels(level), split, *(Index.level(l + 1) for l in range(level + 1, depth))),
            )
            for statement, depth in statements_below(site.scope, level)
        }


def levels(count: int, start: int = 0) -> tuple[Index, ...]:
    """The iterators ``{start}``, ``{start + 1}`` ..."""
    return LEVELS[start : start + count]


def statements_below(node: Node, level: int) -> Iterator[tuple[Node, int]]:
    """Statements inside ``node`` (which stands inside ``level`` scopes) with their depth."""
    if not isinstance(node, Scope):
        yield node, level
        return
    for child in node.body:
        yield from statements_below(child, level + 1)


def divisors(size: int) -> tuple[int, ...]:
    """Divisors of ``size`` other than 1 and itself, ascending."""
    known = _DIVISORS.get(size)
    if known is None:
        small = [d for d in range(2, int(size**0.5) + 1) if size % d == 0]
        known = tuple(sorted({*small, *(size // d for d in small)}))
        _DIVISORS[size] = known
    return known


_DIVISORS: dict[int, tuple[int, ...]] = {}


# -- swap_scopes -----------------------------------------------------------------------------------


def perfect_nest(site: Site) -> Refusal | None:
    body = site.scope.body
    if len(body) == 1 and isinstance(body[0], Scope):
        return None
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)


def inner_scope(site: Site) -> Scope:
    inner = site.scope.body[0]
    assert isinstance(inner, Scope)
    return inner


def _inner_not_lockstep(site: Site) -> Refusal | None:
    inner = inner_scope(site)
    if not site.dialect.is_lockstep(inner.suffix):
        return None
    return Refusal.of(inner.id, inner.head, head=inner.head)


def _swap_keeps_order(site: Site) -> Refusal | Kind | None:
    body = inner_scope(site).body
    directions = "=" * site.level + "<>"
    outer = (*site.outer_sizes, site.scope.size, inner_scope(site).size)
    return settle(conflicts(site.program, body, body, outer, directions))


def _swap_races(site: Site) -> Refusal | None:
    """The inner scope, when parallel, becomes parallel across the outer one's iterations too."""
    inner = inner_scope(site)
    if not site.dialect.is_parallel(inner.suffix):
        return None
    outer = (*site.outer_sizes, site.scope.size, inner.size)
    own = private_buffers(site.program, inner)
    directions = "=" * site.level + "*<"
    for conflict in conflicts(site.program, inner.body, inner.body, outer, directions, own):
        return refuse_conflict(conflict)
    return None


def _swap_keeps_copies(site: Site) -> Refusal | None:
    """A copy that lasted through all iterations of the inner scope is made anew in each of them."""
    program, level = site.program, site.level
    if not site.dialect.is_parallel(site.scope.suffix):
        return None
    for name in sorted(private_buffers(program, site.scope)):
        buffer, occurrences = program.buffer(name), program.occurrences[name]
        assert buffer is not None
        if leaking_level(buffer, occurrences, level + 2, start=level + 1) is not None:
            first = occurrences[0]
            return Refusal.of(first.statement.id, first.access.text, buffer=name, level=f"{{{level + 1}}}")
    return None


class SwapScopes(Transformation):
    """Interchange a scope with the only scope inside it.

    before:
        4 8 y[{0},{1}] = x[{1},{0}]
    after: swap_scopes(s0)
        8 4 y[{1},{0}] = x[{0},{1}]
    """

    name = "swap_scopes"
    place = "scope"
    requirements = (
        Requirement(
            "PD-T111",
            "the scopes are not perfectly nested",
            "{head} holds something else than exactly one scope",
            "separate its children with fission_scope first",
            perfect_nest,
        ),
        Requirement(
            "PD-T112",
            "a lockstep scope must stay innermost",
            "{head} works on one statement; nothing can move inside it",
            "swap before annotating",
            _inner_not_lockstep,
        ),
        Requirement(
            "PD-T113",
            "the order of dependent iterations would turn around",
            "{first} and {second} touch one cell in iterations that would change places",
            "keep the order of these two scopes, or separate the statements first",
            _swap_keeps_order,
            semantic=True,
        ),
        Requirement(
            "PD-T114",
            "parallel iterations would share a cell",
            "outermost, iterations of the parallel scope would touch {cell} together: {first}, {second}",
            "annotate the outer scope instead",
            _swap_races,
            semantic=True,
        ),
        Requirement(
            "PD-T115",
            "a temporary carries a value from one inner iteration to another",
            "each iteration of the parallel scope owns {buffer}, through which values may pass along "
            "{level}; inside, it would own one for each of these iterations",
            "swap before annotating",
            _swap_keeps_copies,
            semantic=True,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in scopes(program):
            if len(scope.body) == 1 and isinstance(scope.body[0], Scope):
                yield Move(self.name, scope.id)

    def rewrite(self, site: Site) -> Program:
        outer, inner, level = site.scope, inner_scope(site), site.level
        forms = (*levels(level), Index.level(level + 1), Index.level(level), *shifted(level + 2, 0))
        new_inner = inner.headed(outer.size, outer.suffix, outer.id, Renumbering(forms, level))
        return site.replaced((inner.with_body((new_inner,)),))

    def relation(self, site: Site, result: Program) -> Relation:
        level = site.level
        swapped = (*levels(level), Index.level(level + 1), Index.level(level))
        return {
            statement.id: Instance(statement.id, (*swapped, *levels(depth - level - 2, level + 2)))
            for statement, depth in statements_below(site.scope, level)
        }


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

    def rewrite(self, site: Site) -> Program:
        after = next_scope(site)
        assert after is not None
        joined = site.scope.with_body(site.scope.body + after.body)
        return site.replaced((joined,), consumed=2)


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

    def rewrite(self, site: Site) -> Program:
        parent = site.program.node(site.path[:-1])
        assert isinstance(parent, Scope) and site.node is not None
        k = site.path[-1]
        second = replace(
            parent, body=parent.body[k:], id=fresh(f"{parent.id}.{site.node.id}", site.program.place_of)
        )
        return site.program.replaced(site.path[:-1], (parent.with_body(parent.body[:k]), second))


# -- reorder_statements ----------------------------------------------------------------------------


def _has_next(site: Site) -> Refusal | None:
    siblings, k = site.siblings, site.path[-1] + 1
    if k < len(siblings):
        site.scratch["next"] = siblings[k]
        return None
    assert site.node is not None
    return Refusal.of(site.node.id)


def _reorder_keeps_order(site: Site) -> Refusal | Kind | None:
    assert site.node is not None
    directions = "=" * site.level
    found = conflicts(site.program, (site.node,), (site.scratch["next"],), site.outer_sizes, directions)
    return settle(found)


class ReorderStatements(Transformation):
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
            _has_next,
        ),
        Requirement(
            "PD-T142",
            "the two depend on each other",
            "{first} and {second} touch one cell, and one of them writes",
            "keep their order",
            _reorder_keeps_order,
            semantic=True,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for place in program.places:
            if place.path[-1] + 1 < len(program.beside(place)):
                yield Move(self.name, place.node.id)

    def rewrite(self, site: Site) -> Program:
        siblings, k = site.siblings, site.path[-1]
        return site.replaced((siblings[k + 1], siblings[k]), consumed=2)
