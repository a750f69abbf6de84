"""Moves on the shape of the tree: split and interchange scopes; and what moves on scopes share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfdojo_sdk.core.dependence import Conflict, conflicts, leaking_level, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import LEVELS, MAX_DEPTH, Access, AffineExpr, Renumbering
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import guarded_bounds, negative_dividends
from perfdojo_sdk.core.made import Halves, Rewritten
from perfdojo_sdk.core.program import Node, Occurrence, Program, Scope, fresh
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Instance,
    Kind,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
    reordered,
)
from perfdojo_sdk.core.tree import divisors as divisors
from perfdojo_sdk.core.validate import Violation


def settle(program: Program, found: Iterator[Conflict]) -> Refusal | Kind | None:
    """The answer to a move that changes the order of the two accesses of each conflict."""
    kind = None
    for conflict in found:
        if not conflict.reduction:
            return refuse_conflict(conflict)
        kind = reordered(program)
    return kind


def refuse_conflict(conflict: Conflict) -> Refusal:
    reader = conflict.second if conflict.first.writes else conflict.first
    arrays = dict.fromkeys((conflict.first.access.array, conflict.second.access.array))
    return Refusal.of(
        conflict.second.statement.id,
        conflict.second.access,
        nodes=(conflict.first.statement.id,),
        arrays=tuple(arrays),
        first=conflict.first.access.text,
        second=conflict.second.access.text,
        cell=reader.access.array,
        first_id=conflict.first.statement.id,
        second_id=conflict.second.statement.id,
    )


def refuse_violation(site: Site, violation: Violation, at: str, mark: str = "") -> Refusal:
    """The program that the move would make breaks a rule: the facts about it that hold of the old one, too.

    ``at``: the node to show.
    """
    program, node, access = site.program, violation.node, violation.access
    known, arrays = program.place_of, program.buffer_of
    return Refusal.of(
        at,
        mark,
        nodes=(node,) if node in known and node != at else (),
        arrays=tuple([array for array in violation.arrays if array in arrays]),
        access=access if access is not None and access.array in arrays else None,
        location=violation.location,
        iterator=violation.iterator if violation.iterator in known else "",
        what=violation.what,
    )


def shifted(start: int, by: int) -> tuple[AffineExpr, ...]:
    """Levels ``start, start+1, ...`` moved by ``by``, as forms indexed from ``start``."""
    return levels(MAX_DEPTH, start + by)


# -- split_scope -----------------------------------------------------------------------------------


@frozen
class Division(Facts):
    """A scope and the number of iterations that an inner scope of it shall have."""

    factor: int

    @staticmethod
    def of(site: Site) -> Division:
        return Division(site, site.move["factor"])

    @lazy
    def halves(self) -> Halves:
        """The ids of the two scopes that one becomes."""
        site = self.site
        whole, taken = site.scope.id, site.program.place_of
        return Halves(whole, fresh(f"{whole}.o", taken), fresh(f"{whole}.i", taken))


def _factor_divides(facts: Division) -> Refusal | None:
    scope, factor = facts.site.scope, facts.factor
    if scope.size % factor == 0:
        return None
    return Refusal.of(scope.id, scope.head, size=scope.size, factor=factor)


def _factor_in_range(facts: Division) -> Refusal | None:
    scope, factor = facts.site.scope, facts.factor
    if 1 < factor < scope.size:
        return None
    return Refusal.of(scope.id, scope.head, size=scope.size, factor=factor)


FACTOR_IN_RANGE = (
    "the factor is not between 1 and the size",
    "a scope of {size} iterations has no inner scope of {factor}",
    "use a factor larger than 1 and smaller than the size",
    _factor_in_range,
)


def no_suffix(facts: Facts) -> Refusal | None:
    scope = facts.site.scope
    return Refusal.of(scope.id, scope.head, head=scope.head) if scope.suffix else None


NO_SUFFIX = (
    "the scope already has a suffix",
    "{head} is already mapped to the hardware",
    "split first, then annotate",
    no_suffix,
)


def reaching_outside(site: Site, nest: Scope) -> Access | None:
    """An access of the new nest that is not shown to stay inside its array where its condition holds."""
    for leaf in nest.leaves:
        statement, around = leaf.statement, (*site.outer_sizes, *leaf.sizes)
        for access in (statement.target, *statement.every_read) if statement.guard else ():
            shape = site.program.buffer_of[access.array].shape
            for subscript, size in zip(access.subscripts, shape, strict=True):
                low, high = guarded_bounds(subscript, statement.guard, around)
                if low < 0 or high >= size:
                    return access
    return None


def negative_dividend(site: Site, nest: Scope) -> Refusal | None:
    """Refuse negative dividends, even under a condition: the language allows none in the whole range."""
    for leaf in nest.leaves:
        for form in negative_dividends(leaf.statement, (*site.outer_sizes, *leaf.sizes)):
            return Refusal.of(site.scope.id, site.scope.head, nodes=(leaf.statement.id,), form=form.text)
    return None


class SplitScope(Analysed[Division]):
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
        Requirement("PD-T101", *FACTOR_IN_RANGE, established_by=("join_ranges", "collapse_scopes")),
        Requirement(
            "PD-T102",
            "the factor does not divide the size",
            "{factor} does not divide {size}, so iterations would be lost",
            "use a divisor of the size",
            _factor_divides,
            semantic=True,
            established_by=("split_range", "join_ranges", "collapse_scopes"),
        ),
        Requirement("PD-T103", *NO_SUFFIX, established_by=NO_MOVE),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            if not scope.suffix:
                for factor in scope.divisors:
                    yield Move(self.name, scope.id, (("factor", factor),))

    def analyse(self, site: Site) -> Division:
        return Division.of(site)

    def rewrite(self, facts: Division, /) -> Rewritten:
        site, factor, made = facts.site, facts.factor, facts.halves
        scope, level = site.scope, site.level
        forms = (*levels(level), AffineExpr.of({level: factor, level + 1: 1}), *shifted(level + 1, 1))
        inner = scope.headed(factor, "", made.inner, Renumbering(forms, level))
        outer = Scope(scope.size // factor, (inner,), "", made.outer)
        return Rewritten(site.replaced((outer,)), made)

    def relation(self, facts: Division, result: Program, /) -> Relation:
        site, factor = facts.site, facts.factor
        level = site.level
        split = AffineExpr.of({level: factor, level + 1: 1})
        return {
            statement.id: Instance(
                statement.id,
                (*levels(level), split, *(AffineExpr.level(l + 1) for l in range(level + 1, depth))),
            )
            for statement, depth in statements_below(site.scope, level)
        }


def levels(count: int, start: int = 0) -> tuple[AffineExpr, ...]:
    """The iterators ``{start}``, ``{start + 1}`` ..."""
    return LEVELS[start : start + count]


def statements_below(node: Node, level: int) -> Iterator[tuple[Node, int]]:
    """Statements inside ``node`` (which stands inside ``level`` scopes) with their depth."""
    if not isinstance(node, Scope):
        yield node, level
        return
    for child in node.body:
        yield from statements_below(child, level + 1)


# -- swap_scopes -----------------------------------------------------------------------------------


@frozen
class Pair(Facts):
    """A scope and the only scope inside it."""

    inner: Scope

    @staticmethod
    def of(site: Site) -> Pair | Refusal:
        scope = site.scope
        inner = scope.body[0]
        if len(scope.body) == 1 and isinstance(inner, Scope):
            return Pair(site, inner)
        return Refusal.of(scope.id, scope.head, head=scope.head)


PERFECTLY_NESTED = (
    "the scopes are not perfectly nested",
    "{head} holds something else than exactly one scope",
    "separate its children with fission_scope first",
    None,
)


def both_plain(facts: Pair) -> Refusal | None:
    for scope in (facts.site.scope, facts.inner):
        if scope.suffix:
            return Refusal.of(scope.id, scope.head, head=scope.head)
    return None


def _inner_not_lockstep(facts: Pair) -> Refusal | None:
    inner = facts.inner
    if not facts.site.dialect.is_lockstep(inner.suffix):
        return None
    return Refusal.of(inner.id, inner.head, head=inner.head)


def keeps_order(facts: Pair) -> Refusal | Kind | None:
    site, body = facts.site, facts.inner.body
    directions = "=" * site.level + "<>"
    outer = (*site.outer_sizes, site.scope.size, facts.inner.size)
    return settle(site.program, conflicts(site.program, body, body, outer, directions))


def _swap_races(facts: Pair) -> Refusal | None:
    """The inner scope, when parallel, becomes parallel across the outer one's iterations too."""
    site, inner = facts.site, facts.inner
    if not site.dialect.is_parallel(inner.suffix):
        return None
    outer = (*site.outer_sizes, site.scope.size, inner.size)
    own = private_buffers(site.program, inner)
    directions = "=" * site.level + "*<"
    for conflict in conflicts(site.program, inner.body, inner.body, outer, directions, own):
        return refuse_conflict(conflict)
    return None


def _swap_keeps_copies(facts: Pair) -> Refusal | None:
    """A copy that lasted through all iterations of the inner scope is made anew in each of them."""
    site = facts.site
    program, level = site.program, site.level
    if not site.dialect.is_parallel(site.scope.suffix):
        return None
    for name in sorted(private_buffers(program, site.scope)):
        buffer, occurrences = program.buffer(name), program.occurrences[name]
        assert buffer is not None
        if leaking_level(buffer, occurrences, level + 2, start=level + 1) is not None:
            return refuse_leak(buffer, occurrences, level + 1)
    return None


def refuse_leak(buffer: Buffer, occurrences: Sequence[Occurrence], level: int, head: str = "") -> Refusal:
    """A value may pass through the buffer from one iteration at ``level`` to another."""
    first = occurrences[0]
    words = {"head": head} if head else {}
    return Refusal.of(
        first.statement.id,
        first.access,
        arrays=buffer.arrays,
        iterator=first.above[level].id,
        buffer=buffer.name,
        level=f"{{{level}}}",
        **words,  # type: ignore[arg-type]
    )


ORDER_TURNS = (
    "the order of dependent iterations would turn around",
    "{first} and {second} touch one cell in iterations that would change places",
    "keep the order of these two scopes, or separate the statements first",
    keeps_order,
)


class SwapScopes(Analysed[Pair]):
    """Interchange a scope with the only scope inside it.

    before:
        4 8 y[{0},{1}] = x[{1},{0}]
    after: swap_scopes(s0)
        8 4 y[{1},{0}] = x[{0},{1}]
    """

    name = "swap_scopes"
    place = "scope"
    requirements = (
        Requirement("PD-T111", *PERFECTLY_NESTED, established_by=("fission_scope",)),
        Requirement(
            "PD-T112",
            "a lockstep scope must stay innermost",
            "{head} works on one statement; nothing can move inside it",
            "swap before annotating",
            _inner_not_lockstep,
            established_by=NO_MOVE,
        ),
        Requirement("PD-T113", *ORDER_TURNS, semantic=True, established_by=("fission_scope",)),
        Requirement(
            "PD-T114",
            "parallel iterations would share a cell",
            "outermost, iterations of the parallel scope would touch {cell} together: {first}, {second}",
            "annotate the outer scope instead",
            _swap_races,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T115",
            "a temporary carries a value from one inner iteration to another",
            "each iteration of the parallel scope owns {buffer}, through which values may pass along "
            "{level}; inside, it would own one for each of these iterations",
            "swap before annotating",
            _swap_keeps_copies,
            semantic=True,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            if len(scope.body) == 1 and isinstance(scope.body[0], Scope):
                yield Move(self.name, scope.id)

    def analyse(self, site: Site) -> Pair | Refusal:
        return Pair.of(site)

    def rewrite(self, facts: Pair, /) -> Program:
        site, inner = facts.site, facts.inner
        outer, level = site.scope, site.level
        forms = (*levels(level), AffineExpr.level(level + 1), AffineExpr.level(level), *shifted(level + 2, 0))
        new_inner = inner.headed(outer.size, outer.suffix, outer.id, Renumbering(forms, level))
        return site.replaced((inner.with_body((new_inner,)),))

    def relation(self, facts: Pair, result: Program, /) -> Relation:
        site, level = facts.site, facts.site.level
        swapped = (*levels(level), AffineExpr.level(level + 1), AffineExpr.level(level))
        return {
            statement.id: Instance(statement.id, (*swapped, *levels(depth - level - 2, level + 2)))
            for statement, depth in statements_below(site.scope, level)
        }


# -- reorder_statements ----------------------------------------------------------------------------


MOVES = (SplitScope(), SwapScopes())
