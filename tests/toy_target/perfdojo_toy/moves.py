"""The toy target's additions to the rules: a move of its own, and a veto."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Move,
    Refusal,
    Requirement,
    Site,
    Transformation,
)

SHORT = 4


def _plain(site: Site) -> Refusal | None:
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head) if site.scope.suffix else None


def _short(site: Site) -> Refusal | None:
    if site.scope.size <= SHORT:
        return None
    return Refusal.of(site.scope.id, site.scope.head, size=site.scope.size)


def _copies(node: Node) -> int:
    """The number of copies of the statement that unrolling copies most often."""
    if not isinstance(node, Scope):
        return 1
    return (node.size if node.suffix == "u" else 1) * max(map(_copies, node.body))


def _few_copies(site: Site) -> Refusal | None:
    """Scopes around it and inside it may be unrolled too."""
    around = prod(scope.size for scope in site.above if scope.suffix == "u")
    copies = around * site.scope.size * _copies(site.scope)
    if copies <= site.dialect.max_unroll:
        return None
    return Refusal.of(site.scope.id, site.scope.head, copies=copies, most=site.dialect.max_unroll)


class UnrollShort(Transformation):
    """Write out a scope of at most four iterations.

    before:
        4 y[{0}] = x[{0}]
    after: toy/unroll_short(s0)
        4:u y[{0}] = x[{0}]
    """

    name = "toy/unroll_short"
    place = "scope"
    requirements = (
        Requirement(
            "TOY-001",
            "the scope already has a suffix",
            "{head} is mapped already",
            "choose another scope",
            _plain,
            established_by=NO_MOVE,
        ),
        Requirement(
            "TOY-002",
            "the scope is long",
            f"{{size}} iterations, at most {SHORT}",
            "split the scope first",
            _short,
            established_by=("split_scope",),
        ),
        Requirement(
            "TOY-003",
            "scopes around it or inside it are unrolled too",
            "{copies} copies in all, at most {most}",
            "unroll fewer scopes",
            _few_copies,
            established_by=("split_scope",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, node in program.walk():
            if isinstance(node, Scope) and not node.suffix:
                yield Move(self.name, node.id)

    def rewrite(self, site: Site) -> Program:
        return site.program.replaced(site.path, (replace(site.scope, suffix="u"),))


def refuse_long_unrolling(before: Program, move: Move, after: Program, dialect: Dialect) -> str | None:
    """A veto: this target's instruction cache is small."""
    for _, node in after.walk():
        if isinstance(node, Scope) and node.suffix == "u" and node.size > dialect.max_unroll:
            return f"{node.head} would not fit the instruction cache"
    return None
