"""Skew a pair of loops: count iterations by the place that both reach together.

A sum that is scattered, ``y[{0}+{1}] += x[{0}] * f[{1}]``, then writes one element for each iteration of the
outer loop and gathers what it adds up: the inner loop is a reduction, and results can stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import AffineExpr, Renumbering
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.tokens import MAX_NUMBER
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Instance,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.conditions import with_condition
from perfdojo_sdk.core.transformations.scopes import (
    ORDER_TURNS,
    PERFECTLY_NESTED,
    Pair,
    both_plain,
    levels,
    negative_dividend,
    reaching_outside,
    shifted,
    statements_below,
)


@frozen
class Skew(Pair):
    """A scope, the only scope inside it, and how far an iteration of that one moves an outer one."""

    factor: int

    @lazy
    def size(self) -> int:
        """Iterations of the outer scope: all places that the two scopes reach together."""
        return self.site.scope.size + self.factor * (self.inner.size - 1)

    @lazy
    def before(self) -> AffineExpr:
        """The old iterator of the outer scope as a form of the new ones."""
        return AffineExpr.of({self.site.level: 1, self.site.level + 1: -self.factor})

    @lazy
    def nest(self) -> Scope:
        """Both scopes; a condition leaves out what no old iteration is."""
        scope, level = self.site.scope, self.site.level
        by = Renumbering((*levels(level), self.before, *shifted(level + 1, 0)), level)
        last = AffineExpr(scope.size - 1).plus(self.before, -1)
        body: tuple[Node, ...] = tuple([child.renumbered(by) for child in self.inner.body])
        for condition in (self.before, last):
            body = tuple([with_condition(child, condition) for child in body])
        return Scope(self.size, (self.inner.with_body(body),), "", scope.id)


def _moves_forward(facts: Skew) -> Refusal | None:
    scope = facts.site.scope
    if facts.factor > 0 and facts.size <= MAX_NUMBER:
        return None
    return Refusal.of(scope.id, scope.head, factor=facts.factor, size=facts.size)


def _stays_inside(facts: Skew) -> Refusal | None:
    scope, access = facts.site.scope, reaching_outside(facts.site, facts.nest)
    return Refusal.of(scope.id, scope.head, access=access) if access else None


def _dividends_stay(facts: Skew) -> Refusal | None:
    return negative_dividend(facts.site, facts.nest)


class SkewScopes(Analysed[Skew]):
    """Let a scope count the places that it reaches together with the only scope inside it.

    Its new iterator is the old one plus ``factor`` times that of the inner scope. A scattered sum becomes one
    that gathers.

    before:
        10 y[{0}] = 0
        8 3 y[{0}+{1}] += x[{0}] * w[{1}]
    after: skew_scopes(s1, factor=1)
        10 y[{0}] = 0
        10 3 y[{0}] += x[{0}-{1}] * w[{1}] if {0}-{1} >= 0 and -{0}+{1} >= -7
    """

    name = "skew_scopes"
    place = "scope"
    parameters = (Parameter("factor", int, "outer iterations that an inner one moves on by", counts=True),)
    requirements = (
        Requirement("PD-T671", *PERFECTLY_NESTED, established_by=("fission_scope",)),
        Requirement(
            "PD-T672",
            "a scope already has a suffix",
            "{head} is already mapped to the hardware",
            "skew first, then annotate",
            both_plain,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T673",
            "the factor is not positive, or the scope would become too large",
            "the factor is {factor}, and the outer scope would have {size} iterations",
            "use a factor of 1 or more: the quotient of the two iterators' factors in a subscript",
            _moves_forward,
            established_by=NO_MOVE,
        ),
        Requirement("PD-T674", *ORDER_TURNS, semantic=True, established_by=("fission_scope",)),
        Requirement(
            "PD-T675",
            "a subscript cannot be shown to stay inside its array",
            "{access} is used in more iterations than there are, and no comparison bounds it",
            "split off the iterations in which a condition is decided, with split_range",
            _stays_inside,
            established_by=("split_range", "drop_condition"),
        ),
        Requirement(
            "PD-T676",
            "what is divided may be negative",
            "{form} is divided, and in iterations that the condition leaves out it may be below 0",
            "leave the scopes as they are",
            _dividends_stay,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for path, scope in program.scopes:
            inner = scope.body[0]
            if len(scope.body) == 1 and isinstance(inner, Scope) and not (scope.suffix or inner.suffix):
                for factor in sorted(_factors(inner, len(path) - 1)):
                    yield Move(self.name, scope.id, (("factor", factor),))

    def analyse(self, site: Site) -> Skew | Refusal:
        pair = Pair.of(site)
        return pair if isinstance(pair, Refusal) else Skew(site, pair.inner, site.move["factor"])

    def rewrite(self, facts: Skew, /) -> Program:
        return facts.site.replaced((facts.nest,))

    def relation(self, facts: Skew, result: Program, /) -> Relation:
        site, level = facts.site, facts.site.level
        return {
            statement.id: Instance(
                statement.id, (*levels(level), facts.before, *levels(depth - level - 1, level + 1))
            )
            for statement, depth in statements_below(site.scope, level)
        }


def _factors(inner: Scope, level: int) -> set[int]:
    """The factors that leave one of both iterators in a subscript of what is written."""
    found = set()
    for leaf in inner.leaves:
        for subscript in leaf.statement.target.subscripts:
            outer, moves = (subscript.coefficients.get(each, 0) for each in (level, level + 1))
            if outer and moves and moves % outer == 0 and moves // outer > 0:
                found.add(moves // outer)
    return found


MOVES = (SkewScopes(),)
