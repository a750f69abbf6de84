"""Moves on the shape of the tree: split, interchange, reorder; and what moves on scopes share."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dependence import Conflict, conflicts, leaking_level, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import LEVELS, MAX_DEPTH, Index, Renumbering
from perfdojo_sdk.core.made import Halves, Rewritten
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


def halves(site: Site) -> Halves:
    """The ids of the two scopes that one becomes."""
    whole, taken = site.scope.id, site.program.place_of
    return Halves(whole, fresh(f"{whole}.o", taken), fresh(f"{whole}.i", taken))


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

    def rewrite(self, site: Site) -> Rewritten:
        scope, level, factor = site.scope, site.level, site.move["factor"]
        forms = (*levels(level), Index.of({level: factor, level + 1: 1}), *shifted(level + 1, 1))
        made = halves(site)
        inner = scope.headed(factor, "", made.inner, Renumbering(forms, level))
        outer = Scope(scope.size // factor, (inner,), "", made.outer)
        return Rewritten(site.replaced((outer,)), made)

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
