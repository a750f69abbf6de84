"""Make one scope of two: the inverse of a split, for any two scopes in a perfect nest."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import AffineExpr, Quotient, Renumbering
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Collapsed, Rewritten
from perfdojo_sdk.core.program import Program, Scope, fresh
from perfdojo_sdk.core.tokens import MAX_NUMBER
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Instance,
    Move,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.scopes import (
    PERFECTLY_NESTED,
    Pair,
    both_plain,
    levels,
    reaching_outside,
    shifted,
    statements_below,
)


@frozen
class Collapse(Pair):
    """A scope, the only scope inside it, and the scope that they become."""

    @lazy
    def whole(self) -> Scope:
        """The scope over all pairs of iterations."""
        site, inner = self.site, self.inner
        outer, level = site.scope, site.level
        by = Renumbering((*levels(level), *self.iterators, *shifted(level + 2, -1)), level)
        identifier = fresh(f"{outer.id}.{inner.id}", site.program.place_of)
        return inner.headed(outer.size * inner.size, "", identifier, by)

    @lazy
    def iterators(self) -> tuple[AffineExpr, AffineExpr]:
        """The two old iterators as forms of the new one."""
        one, size = AffineExpr.level(self.site.level), self.inner.size
        # With a scope of one iteration no quotient is needed, which locations with named cells would refuse.
        if self.site.scope.size == 1:
            return AffineExpr(), one
        if size == 1:
            return one, AffineExpr()
        return Quotient.of(one, size, remainder=False), Quotient.of(one, size, remainder=True)


def _size_bounded(facts: Collapse) -> Refusal | None:
    scope = facts.site.scope
    size = scope.size * facts.inner.size
    if size <= MAX_NUMBER:
        return None
    return Refusal.of(scope.id, scope.head, size=size, most=MAX_NUMBER)


def _stays_inside(facts: Collapse) -> Refusal | None:
    """Refuse if a condition that bounds a subscript by an iterator does not bound it by the quotients."""
    scope, access = facts.site.scope, reaching_outside(facts.site, facts.whole)
    return Refusal.of(scope.id, scope.head, access=access) if access else None


class CollapseScopes(Analysed[Collapse]):
    """Run a scope and the only scope inside it as one scope over all pairs of iterations.

    before:
        4 8 y[{0},{1}] = x[{1}]
    after: collapse_scopes(s0)
        32 y[{0}//8,{0}%8] = x[{0}%8]
    """

    name = "collapse_scopes"
    place = "scope"
    requirements = (
        Requirement("PD-T431", *PERFECTLY_NESTED, established_by=("fission_scope",)),
        Requirement(
            "PD-T432",
            "a scope already has a suffix",
            "{head} is already mapped to the hardware",
            "collapse first, then annotate",
            both_plain,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T433",
            "too many iterations",
            "one scope of {size} iterations, {most} are allowed",
            "collapse inner scopes only",
            _size_bounded,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T434",
            "a subscript cannot be shown to stay inside its array",
            "a condition bounds {access}, and it is not seen to do so with one iterator for two",
            "use drop_condition first, or leave the scopes as they are",
            _stays_inside,
            established_by=("drop_condition",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            inner = scope.body[0]
            if len(scope.body) == 1 and isinstance(inner, Scope) and not (scope.suffix or inner.suffix):
                yield Move(self.name, scope.id)

    def analyse(self, site: Site) -> Collapse | Refusal:
        pair = Pair.of(site)
        return pair if isinstance(pair, Refusal) else Collapse(site, pair.inner)

    def rewrite(self, facts: Collapse, /) -> Rewritten:
        made = Collapsed(facts.site.scope.id, facts.inner.id, facts.whole.id)
        return Rewritten(facts.site.replaced((facts.whole,)), made)

    def relation(self, facts: Collapse, result: Program, /) -> Relation:
        site, level = facts.site, facts.site.level
        return {
            statement.id: Instance(
                statement.id, (*levels(level), *facts.iterators, *levels(depth - level - 2, level + 1))
            )
            for statement, depth in statements_below(site.scope, level)
        }


MOVES = (CollapseScopes(),)
