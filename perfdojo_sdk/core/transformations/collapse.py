"""Make one scope of two: the inverse of a split, for any two scopes in a perfect nest."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Index, Quotient, Renumbering
from perfdojo_sdk.core.made import Collapsed, Rewritten
from perfdojo_sdk.core.program import Program, Scope, fresh
from perfdojo_sdk.core.tokens import MAX_NUMBER
from perfdojo_sdk.core.transformation import (
    Instance,
    Move,
    Refusal,
    Relation,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.scopes import (
    inner_scope,
    levels,
    perfect_nest,
    reaching_outside,
    scopes,
    shifted,
    statements_below,
)


def _both_plain(site: Site) -> Refusal | None:
    for scope in (site.scope, inner_scope(site)):
        if scope.suffix:
            return Refusal.of(scope.id, scope.head, head=scope.head)
    return None


def _size_bounded(site: Site) -> Refusal | None:
    size = site.scope.size * inner_scope(site).size
    if size <= MAX_NUMBER:
        return None
    return Refusal.of(site.scope.id, site.scope.head, size=size, most=MAX_NUMBER)


def _stays_inside(site: Site) -> Refusal | None:
    """A condition that bounds a subscript by an iterator need not do so by quotients."""
    access = reaching_outside(site, site.once(_collapsed))
    return Refusal.of(site.scope.id, site.scope.head, access=access) if access else None


class CollapseScopes(Transformation):
    """Run a scope and the only scope inside it as one scope over all pairs of iterations.

    before:
        4 8 y[{0},{1}] = x[{1}]
    after: collapse_scopes(s0)
        32 y[{0}//8,{0}%8] = x[{0}%8]
    """

    name = "collapse_scopes"
    place = "scope"
    requirements = (
        Requirement(
            "PD-T431",
            "the scopes are not perfectly nested",
            "{head} holds something else than exactly one scope",
            "separate its children with fission_scope first",
            perfect_nest,
        ),
        Requirement(
            "PD-T432",
            "a scope already has a suffix",
            "{head} is already mapped to the hardware",
            "collapse first, then annotate",
            _both_plain,
        ),
        Requirement(
            "PD-T433",
            "too many iterations",
            "one scope of {size} iterations, {most} are allowed",
            "collapse inner scopes only",
            _size_bounded,
        ),
        Requirement(
            "PD-T434",
            "a subscript cannot be shown to stay inside its array",
            "a condition bounds {access}, and it is not seen to do so with one iterator for two",
            "use drop_condition first, or leave the scopes as they are",
            _stays_inside,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in scopes(program):
            inner = scope.body[0]
            if len(scope.body) == 1 and isinstance(inner, Scope) and not (scope.suffix or inner.suffix):
                yield Move(self.name, scope.id)

    def rewrite(self, site: Site) -> Rewritten:
        whole = site.once(_collapsed)
        made = Collapsed(site.scope.id, inner_scope(site).id, whole.id)
        return Rewritten(site.replaced((whole,)), made)

    def relation(self, site: Site, result: Program) -> Relation:
        level = site.level
        return {
            statement.id: Instance(
                statement.id, (*levels(level), *_pair(site), *levels(depth - level - 2, level + 1))
            )
            for statement, depth in statements_below(site.scope, level)
        }


def _collapsed(site: Site) -> Scope:
    outer, inner, level = site.scope, inner_scope(site), site.level
    by = Renumbering((*levels(level), *_pair(site), *shifted(level + 2, -1)), level)
    identifier = fresh(f"{outer.id}.{inner.id}", site.program.place_of)
    return inner.headed(outer.size * inner.size, "", identifier, by)


def _pair(site: Site) -> tuple[Index, Index]:
    """The two old iterators as forms of the new one."""
    one, size = Index.level(site.level), inner_scope(site).size
    # A scope of one iteration is no part of the pair; where cells are named, a quotient would be refused.
    if site.scope.size == 1:
        return Index(), one
    if size == 1:
        return one, Index()
    return Quotient.of(one, size, remainder=False), Quotient.of(one, size, remainder=True)
