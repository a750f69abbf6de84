"""Moves on the range of one scope: cut it in two, which run one after the other.

Both parts do to the same cells what the whole did, in the same order. Two things can still change.
Cells that every iteration of a parallel scope owned lie outside of it once two scopes use them; and
the lanes of a vector no longer load together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdojo_sdk.core.dependence import may_meet, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Index, Renumbering
from perfdojo_sdk.core.program import Buffer, Node, Program, Scope, Statement, fresh
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
from perfdojo_sdk.core.transformations.scopes import levels, scopes, shifted, statements_below
from perfdojo_sdk.core.validate import common_depth

#: Most statements of a program that a split may make; far below the parser's limit on lines.
MAX_STATEMENTS = 1024


# -- split_range -----------------------------------------------------------------------------------


def _cut_inside(site: Site) -> Refusal | None:
    size, at = site.scope.size, site.move["at"]
    if 0 < at < size:
        return None
    return Refusal.of(site.scope.id, site.scope.head, size=size, cut=at)


def _still_a_page(site: Site) -> Refusal | None:
    count = sum(len(node.leaves) for node in site.program.body) + len(site.scope.leaves)
    if count <= MAX_STATEMENTS:
        return None
    return Refusal.of(site.scope.id, site.scope.head, count=count, most=MAX_STATEMENTS)


def _owned(site: Site) -> Iterator[tuple[int, Scope, Buffer]]:
    """Buffers of which every iteration of a parallel scope has a copy, as long as the scope is whole.

    With the level of that scope, which is the split one or stands inside it.
    """
    program = site.program
    if not site.dialect.any_parallel(site.scope.suffixes):
        return
    for name in sorted(private_buffers(program, site.scope)):
        buffer, occurrences = program.buffer(name), program.occurrences[name]
        assert buffer is not None
        around = program.ancestors(occurrences[0].path)
        for level in range(site.level, common_depth([o.path for o in occurrences])):
            if site.dialect.is_parallel(around[level].suffix):
                yield level, around[level], buffer


def _copies_stay_apart(site: Site) -> Refusal | None:
    """What an iteration owned becomes one for all: its cells must tell the iterations apart."""
    for level, scope, buffer in _owned(site):
        occurrences = site.program.occurrences[buffer.name]
        directions = "=" * level + "<"
        for a in occurrences:
            for b in occurrences:
                if (a.writes or b.writes) and may_meet(
                    buffer, a.access, a.sizes, b.access, b.sizes, directions
                ):
                    words = {"buffer": buffer.name, "head": scope.head, "first": a.access.text}
                    return Refusal.of(b.statement.id, b.access.text, second=b.access.text, **words)
    return None


def _copies_can_be_shared(site: Site) -> Refusal | None:
    for _, scope, buffer in _owned(site):
        if not site.dialect.locations[buffer.location].shared:
            words = {"buffer": buffer.name, "location": buffer.location, "head": scope.head}
            return Refusal.of(scope.id, scope.head, **words)
    return None


def _lanes_may_part(site: Site) -> Refusal | Kind | None:
    """The second part loads after the first has stored; a horizontal reduction becomes two."""
    if not site.dialect.is_lockstep(site.scope.suffix):
        return None
    statement = site.scope.body[0]
    assert isinstance(statement, Statement), "a lockstep scope holds one statement"
    sizes, directions = (*site.outer_sizes, site.scope.size), "=" * site.level + "<"
    target, buffer_of = statement.target, site.program.buffer_of
    buffer = buffer_of[target.array]
    for read in statement.reads:
        if buffer_of[read.array] is buffer and may_meet(buffer, target, sizes, read, sizes, directions):
            return Refusal.of(statement.id, read.text, target=target.text, read=read.text)
    if statement.accumulate and may_meet(buffer, target, sizes, target, sizes, directions):
        return Kind.REASSOCIATES
    return None


class SplitRange(Transformation):
    """Cut the range of a scope in two: ``at`` iterations, then the rest (index-set split, peel).

    Both parts keep the scope's suffix. Everything in the first is named after its origin with ``.a``
    (``s0.a``, ``c0.a``), in the second with ``.b``.

    before:
        10 y[{0}] = x[{0}]
    after: split_range(s0, at=8)
        8 y[{0}] = x[{0}]
        2 y[{0}+8] = x[{0}+8]
    """

    name = "split_range"
    place = "scope"
    parameters = (Parameter("at", int, "iterations of the first part"),)
    requirements = (
        Requirement(
            "PD-T301",
            "the cut is not inside the range",
            "a scope of {size} iterations has no two parts, the first of {cut}",
            "cut after at least 1 iteration and before the last one",
            _cut_inside,
        ),
        Requirement(
            "PD-T302",
            "the program would become too large",
            "it would have {count} statements, {most} are allowed",
            "split an inner scope, or fewer scopes",
            _still_a_page,
        ),
        Requirement(
            "PD-T303",
            "what each parallel iteration owns would become shared",
            "used in both parts, {buffer} would be one for all iterations of {head}, and several of "
            "them use one cell: {first}, {second}",
            "split before annotating, or undo the contraction of {buffer}",
            _copies_stay_apart,
            semantic=True,
        ),
        Requirement(
            "PD-T304",
            "the location cannot be shared by parallel iterations",
            "used in both parts, {buffer} would lie outside {head}, and {location} cannot be shared",
            "set another location first, or split before annotating",
            _copies_can_be_shared,
        ),
        Requirement(
            "PD-T305",
            "a lane of the second part reads what the first part writes",
            "in lockstep, {read} is loaded before {target} is stored; apart, it would be loaded after",
            "keep the lanes together",
            _lanes_may_part,
            semantic=True,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        widths = sorted({lanes for lanes in dialect.lanes.values() if lanes > 1})
        for _, scope in scopes(program):
            for at in cuts(scope.size, widths):
                yield Move(self.name, scope.id, (("at", at),))

    def rewrite(self, site: Site) -> Program:
        scope, at = site.scope, site.move["at"]
        rest = scope.renumbered(Renumbering(_shift(site.level, at), site.level))
        parts = (
            _part(scope, at, _names(site, "a")),
            _part(rest, scope.size - at, _names(site, "b")),
        )
        return site.program.replaced(site.path, parts)

    def relation(self, site: Site, result: Program) -> Relation:
        first, second = _names(site, "a"), _names(site, "b")
        shift = _shift(site.level, site.move["at"])
        found = {}
        for statement, depth in statements_below(site.scope, site.level):
            found[first[statement.id]] = Instance(statement.id, levels(depth))
            found[second[statement.id]] = Instance(statement.id, shift[:depth])
        return found


def cuts(size: int, widths: list[int]) -> list[int]:
    """Where cutting a range is worth a look: one iteration at either end, the largest power of two,
    and as many iterations as fill vectors of each width. Ascending."""
    if size == 1:
        return []
    found = {1, size - 1, 1 << (size - 1).bit_length() - 1, *((size - 1) // w * w for w in widths)}
    return sorted(at for at in found if 0 < at < size)


def _shift(level: int, by: int) -> tuple[Index, ...]:
    """Every iterator as it is, but for the one at ``level``, which starts at ``by``."""
    return (*levels(level), Index.of({level: 1}, by), *shifted(level + 1, 0))


def _names(site: Site, part: str) -> Mapping[str, str]:
    """Id of every node of the scope -> its id in one part."""
    taken = site.program.paths
    return {node.id: fresh(f"{node.id}.{part}", taken) for node in _nodes(site.scope)}


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.body if isinstance(node, Scope) else ():
        yield from _nodes(child)


def _part(scope: Scope, size: int, names: Mapping[str, str]) -> Scope:
    body = tuple([_renamed(child, names) for child in scope.body])
    return Scope(size, body, scope.suffix, names[scope.id])


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    if isinstance(node, Statement):
        return node.named(names[node.id])
    return _part(node, node.size, names)
