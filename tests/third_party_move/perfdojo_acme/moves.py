"""Walk through a scope backwards: what the scope before wrote last is still in the cache.

Iterations that share no cell, but for cells that all of them only read, may run in any order, and
the reverse is one. Each iteration does what it did, so every value stays the same to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dependence import conflicts
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import MAX_DEPTH, AffineExpr, Renumbering
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.transformation import (
    Instance,
    Move,
    Refusal,
    Relation,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.validate import violations

#: Fewer iterations than this are not worth waking threads for.
FEWEST_THREADED = 4


def _plain(site: Site) -> Refusal | None:
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head) if site.scope.suffix else None


def _several(site: Site) -> Refusal | None:
    return Refusal.of(site.scope.id, site.scope.head) if site.scope.size == 1 else None


def _iterations_apart(site: Site) -> Refusal | None:
    body, outer = site.scope.body, (*site.outer_sizes, site.scope.size)
    for conflict in conflicts(site.program, body, body, outer, "=" * site.level + "<"):
        first, second = conflict.first.access.text, conflict.second.access.text
        return Refusal.of(conflict.second.statement.id, second, first=first, second=second)
    return None


def _target_allows(site: Site) -> Refusal | None:
    violation = next(violations(_reversed(site), site.dialect), None)
    return violation and Refusal.of(site.scope.id, site.scope.head, what=violation.what)


def _backwards(site: Site) -> tuple[AffineExpr, ...]:
    """Every iterator as it is, but for the scope's own, which counts down."""
    forms = [AffineExpr.level(level) for level in range(MAX_DEPTH)]
    forms[site.level] = AffineExpr.of({site.level: -1}, site.scope.size - 1)
    return tuple(forms)


def _reversed(site: Site) -> Program:
    scope = site.scope.renumbered(Renumbering(_backwards(site), site.level))
    return site.program.replaced(site.path, (scope,))


class ReverseScope(Transformation):
    """Run a scope from its last iteration to its first.

    before:
        10 y[{0}] = x[{0}]
    after: acme/reverse_scope(s0)
        10 y[-{0}+9] = x[-{0}+9]
    """

    name = "acme/reverse_scope"
    place = "scope"
    undo = "acme/reverse_scope at the same place"
    requirements = (
        Requirement(
            "ACME-001",
            "the scope is mapped to hardware",
            "the iterations of {head} have no order that could be reversed",
            "reverse before annotating",
            _plain,
        ),
        Requirement(
            "ACME-002",
            "the scope has one iteration",
            "backwards, one iteration is what it was",
            "choose a longer scope",
            _several,
        ),
        Requirement(
            "ACME-003",
            "two iterations use one cell",
            "in different iterations, {first} and {second} may be one cell, and one of them writes it",
            "choose a scope whose iterations are independent",
            _iterations_apart,
            semantic=True,
        ),
        Requirement(
            "ACME-004",
            "the language does not allow the result",
            "{what}",
            "choose another scope",
            _target_allows,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, node in program.walk():
            if isinstance(node, Scope) and not node.suffix:
                yield Move(self.name, node.id)

    def rewrite(self, site: Site) -> Program:
        return _reversed(site)

    def relation(self, site: Site, result: Program) -> Relation:
        forms = _backwards(site)
        below = _statements(site.scope, site.level)
        return {statement: Instance(statement, forms[:depth]) for statement, depth in below}


def _statements(node: Node, level: int) -> Iterator[tuple[str, int]]:
    """Ids of the statements in ``node``, which stands inside ``level`` scopes, with their depth."""
    if not isinstance(node, Scope):
        yield node.id, level
        return
    for child in node.body:
        yield from _statements(child, level + 1)


def refuse_few_threads(before: Program, move: Move, after: Program, dialect: Dialect) -> str | None:
    """A veto: waking threads takes longer than a few iterations."""
    for _, node in after.walk():
        if isinstance(node, Scope) and dialect.is_parallel(node.suffix) and node.size < FEWEST_THREADED:
            return f"{node.head} has fewer than {FEWEST_THREADED} iterations for the threads"
    return None
