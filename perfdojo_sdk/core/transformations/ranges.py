"""Moves on the range of one scope: cut it in two, which run one after the other; and the inverse.

Both parts do to the same cells what the whole does, in the same order. Only two things can change.
Cells that every iteration of a parallel scope owns while the scope is whole are shared when two
scopes use them; and the lanes of a vector load together only as long as they are one vector. So both
moves ask the same questions about the whole: cutting before the move, joining after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from operator import methodcaller

from perfdojo_sdk.core.dependence import conflicts, leaking_level, may_meet, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Index
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Copied, Rewritten, merged
from perfdojo_sdk.core.program import Program, Scope, Statement, fresh
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import (
    Instance,
    Joined,
    Kind,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.fusing import next_scope
from perfdojo_sdk.core.transformations.scopes import (
    levels,
    refuse_conflict,
    scopes,
    shifted,
    statements_below,
)
from perfdojo_sdk.core.validate import common_depth, violations

#: Most statements of a program that a split may make; far below the parser's limit on lines.
MAX_STATEMENTS = 1024


@frozen
class Whole:
    """A scope in one piece: what a split starts from and a join ends with."""

    program: Program
    scope: Scope
    outer_sizes: tuple[int, ...]
    dialect: Dialect

    @property
    def level(self) -> int:
        return len(self.outer_sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the scopes down to this one."""
        return (*self.outer_sizes, self.scope.size)

    @lazy
    def owned(self) -> list[tuple[int, Scope, Buffer]]:
        """Buffers of which every iteration of a parallel scope has a copy, with that scope and its
        level; the scope is this one or stands inside it."""
        found: list[tuple[int, Scope, Buffer]] = []
        program = self.program
        if not self.dialect.any_parallel(self.scope.suffixes):
            return found
        for name in sorted(private_buffers(program, self.scope)):
            buffer, occurrences = program.buffer(name), program.occurrences[name]
            assert buffer is not None
            around = occurrences[0].above
            for level in range(self.level, common_depth([o.path for o in occurrences])):
                if self.dialect.is_parallel(around[level].suffix):
                    found.append((level, around[level], buffer))
        return found

    def lanes_may_part(self) -> Refusal | Kind | None:
        """In parts, later lanes load after earlier ones have stored; a horizontal reduction is two."""
        if not self.dialect.is_lockstep(self.scope.suffix):
            return None
        statement = self.scope.body[0]
        assert isinstance(statement, Statement), "a lockstep scope holds one statement"
        sizes, directions = self.sizes, "=" * self.level + "<"
        target, buffer_of = statement.target, self.program.buffer_of
        buffer = buffer_of[target.array]
        for read in statement.reads:
            if buffer_of[read.array] is buffer and may_meet(buffer, target, sizes, read, sizes, directions):
                return Refusal.of(statement.id, read.text, target=target.text, read=read.text)
        if statement.accumulate and may_meet(buffer, target, sizes, target, sizes, directions):
            return Kind.REASSOCIATES
        return None


# -- split_range -----------------------------------------------------------------------------------


def _cut_inside(site: Site) -> Refusal | None:
    size, at = site.scope.size, site.move["at"]
    if 0 < at < size:
        return None
    return Refusal.of(site.scope.id, site.scope.head, size=size, cut=at)


def _still_a_page(site: Site) -> Refusal | None:
    count = site.program.statements + len(site.scope.leaves)
    if count <= MAX_STATEMENTS:
        return None
    return Refusal.of(site.scope.id, site.scope.head, count=count, most=MAX_STATEMENTS)


def _before(site: Site) -> Whole:
    return Whole(site.program, site.scope, site.outer_sizes, site.dialect)


def _copies_stay_apart(site: Site) -> Refusal | None:
    """What an iteration owned becomes one for all: its cells must tell the iterations apart."""
    for level, scope, buffer in site.once(_before).owned:
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
    for _, scope, buffer in site.once(_before).owned:
        if not site.dialect.locations[buffer.location].shared:
            words = {"buffer": buffer.name, "location": buffer.location, "head": scope.head}
            return Refusal.of(scope.id, scope.head, **words)
    return None


def _lanes_may_part(site: Site) -> Refusal | Kind | None:
    return site.once(_before).lanes_may_part()


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
    parameters = (Parameter("at", int, "iterations of the first part", counts=True),)
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
        widths = tuple(sorted({lanes for lanes in dialect.lanes.values() if lanes > 1}))
        for _, scope in scopes(program):
            for at in cuts(scope.size, widths):
                yield Move(self.name, scope.id, (("at", at),))

    def rewrite(self, site: Site) -> Rewritten:
        scope, at = site.scope, site.move["at"]
        first, second = named(site, "a"), named(site, "b")
        moved = methodcaller("shifted", site.level, at)
        rest = scope.headed(scope.size - at, scope.suffix, second(scope.id), moved, second)
        parts = scope.renamed(first, at), rest
        return Rewritten(site.replaced(parts), Copied(scope.id, (parts[0].id, rest.id), ((scope, parts),)))

    def relation(self, site: Site, result: Program) -> Relation:
        first, second = named(site, "a"), named(site, "b")
        rest = shift(site.level, site.move["at"])
        found = {}
        for statement, depth in statements_below(site.scope, site.level):
            found[first(statement.id)] = Instance(statement.id, levels(depth))
            found[second(statement.id)] = Instance(statement.id, rest[:depth])
        return found


@cache
def cuts(size: int, widths: tuple[int, ...]) -> list[int]:
    """Where cutting a range is worth a look: one iteration at either end, the largest power of two,
    and as many iterations as fill vectors of each width. Ascending."""
    if size == 1:
        return []
    found = {1, size - 1, 1 << (size - 1).bit_length() - 1, *((size - 1) // w * w for w in widths)}
    return sorted(at for at in found if 0 < at < size)


def shift(level: int, by: int) -> tuple[Index, ...]:
    """Every iterator as it is, but for the one at ``level``, which starts at ``by``."""
    return (*levels(level), Index.of({level: 1}, by), *shifted(level + 1, 0))


def named(site: Site, part: str) -> Callable[[str], str]:
    """Id of a node of the scope -> its id in a part."""
    taken = site.program.place_of
    return lambda old: fresh(f"{old}.{part}", taken)


# -- join_ranges -----------------------------------------------------------------------------------


def _is_followed(site: Site) -> Refusal | None:
    after = next_scope(site)
    if after is not None and after.suffix == site.scope.suffix:
        site.scratch["next"] = after
        return None
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)


def _goes_on(site: Site) -> Refusal | None:
    after: Scope = site.scratch["next"]
    rest = site.scope.renumbered(methodcaller("shifted", site.level, site.scope.size))
    if rest.body == after.body:
        return None
    return Refusal.of(after.id, "", size=site.scope.size, level=f"{{{site.level}}}")


def _after(site: Site) -> Whole:
    if "whole" not in site.scratch:
        program = _joined(site)
        scope = program.node(site.path)
        assert isinstance(scope, Scope)
        site.scratch["whole"] = Whole(program, scope, site.outer_sizes, site.dialect)
    whole: Whole = site.scratch["whole"]
    return whole


def _joined(site: Site) -> Program:
    scope, after = site.scope, next_scope(site)
    assert after is not None
    whole = Scope(scope.size + after.size, scope.body, scope.suffix, scope.id)
    return site.replaced((whole,), consumed=2)


def _target_allows(site: Site) -> Refusal | None:
    violation = next(violations(_after(site).program, site.dialect), None)
    if violation is None:
        return None
    return Refusal.of(site.scope.id, site.scope.head, what=violation.what)


def _joined_races(site: Site) -> Refusal | None:
    whole = _after(site)
    if not site.dialect.is_parallel(whole.scope.suffix):
        return None
    own, body = private_buffers(whole.program, whole.scope), whole.scope.body
    for conflict in conflicts(whole.program, body, body, whole.sizes, "=" * whole.level + "<", own):
        return refuse_conflict(conflict)
    return None


def _values_stay(site: Site) -> Refusal | None:
    """What was one for all is owned by each parallel iteration, so no value may pass between them."""
    whole = _after(site)
    for level, scope, buffer in whole.owned:
        occurrences = whole.program.occurrences[buffer.name]
        leak = leaking_level(buffer, occurrences, level + 1)
        if leak is not None:
            first = occurrences[0]
            words = {"buffer": buffer.name, "head": scope.head, "level": f"{{{leak}}}"}
            return Refusal.of(first.statement.id, first.access.text, **words)
    return None


def _lanes_may_meet(site: Site) -> Refusal | Kind | None:
    return _after(site).lanes_may_part()


class JoinRanges(Transformation):
    """Make one scope of two that follow each other, where the second goes on where the first ends.

    The inverse of ``split_range``. The names of the first part stay.

    before:
        8 y[{0}] = x[{0}]
        2 y[{0}+8] = x[{0}+8]
    after: join_ranges(s0)
        10 y[{0}] = x[{0}]
    """

    name = "join_ranges"
    place = "scope"
    requirements = (
        Requirement(
            "PD-T311",
            "no scope of the same suffix follows",
            "what follows {head} is mapped to the hardware in another way, or is no scope",
            "bring the two scopes together with reorder_statements",
            _is_followed,
        ),
        Requirement(
            "PD-T312",
            "the second scope does not go on where the first ends",
            "its body is not that of the first with {level} starting at {size}",
            "use join_scopes to run different bodies in one scope",
            _goes_on,
            semantic=True,
        ),
        Requirement(
            "PD-T313",
            "the target does not allow the joined scope",
            "{what}",
            "join before annotating",
            _target_allows,
        ),
        Requirement(
            "PD-T314",
            "parallel iterations would share a cell",
            "joined, iterations of both parts would touch {cell} together: {first}, {second}",
            "keep the two parallel scopes apart",
            _joined_races,
            semantic=True,
        ),
        Requirement(
            "PD-T315",
            "a temporary carries a value from one iteration to another",
            "joined, each iteration of {head} would own a copy of {buffer}, and values may pass through "
            "{level}",
            "write the temporary anew in each iteration, or keep the parts apart",
            _values_stay,
            semantic=True,
        ),
        Requirement(
            "PD-T316",
            "a lane of the second part reads what the first part writes",
            "in lockstep, {read} would be loaded before {target} is stored",
            "keep the two vectors apart",
            _lanes_may_meet,
            semantic=True,
        ),
    )
    undo = "split_range at the size of the first part, or drop the move from the trace"

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for place in program.places:
            scope, following = place.node, program.beside(place)[place.path[-1] + 1 :][:1]
            for after in following:
                if isinstance(scope, Scope) and isinstance(after, Scope) and _alike(scope, after):
                    yield Move(self.name, scope.id)

    def rewrite(self, site: Site) -> Rewritten:
        after = next_scope(site)
        assert after is not None
        return Rewritten(_joined(site), merged(after, site.scope))

    def relation(self, site: Site, result: Program) -> Relation:
        after = next_scope(site)
        assert after is not None
        level, at = site.level, site.scope.size
        back = shift(level, -at)
        first, second = statements_below(site.scope, level), statements_below(after, level)
        return {
            one.id: Joined(level, at, Instance(one.id, levels(depth)), Instance(other.id, back[:depth]))
            for (one, depth), (other, _) in zip(first, second, strict=False)
        }


def _alike(scope: Scope, after: Scope) -> bool:
    """A quick look at whether the second may go on where the first ends."""
    return scope.suffix == after.suffix and scope.touches.keys() == after.touches.keys()
