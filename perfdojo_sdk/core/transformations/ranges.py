"""Moves on the range of one scope: cut it in two, which run one after the other; and the inverse.

Both parts do to the same cells what the whole does, in the same order. Only two things can change.
Cells that every iteration of a parallel scope owns while the scope is whole are shared when two
scopes use them; and the lanes of a vector load together only as long as they are one vector. So both
moves ask the same questions about the whole: cutting before the move, joining after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import methodcaller

from perfdojo_sdk.core.dependence import conflicts, leaking_level, may_meet, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import common_depth, lane_counts
from perfdojo_sdk.core.known_elements import ends_of_runs
from perfdojo_sdk.core.made import Copied, Rewritten, merged
from perfdojo_sdk.core.program import Program, Scope, Statement, fresh
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Instance,
    Joined,
    Kind,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
    reordered,
)
from perfdojo_sdk.core.transformations.fusing import Followed
from perfdojo_sdk.core.transformations.scopes import (
    levels,
    refuse_conflict,
    refuse_leak,
    refuse_violation,
    shifted,
    statements_below,
)
from perfdojo_sdk.core.validate import violations

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
                return Refusal.of(statement.id, read, target=target.text, read=read.text)
        if statement.accumulate and may_meet(buffer, target, sizes, target, sizes, directions):
            if statement.chooses:
                return Refusal.of(statement.id, target, target=target.text, read=target.text)
            return reordered(self.program)
        return None


# -- split_range -----------------------------------------------------------------------------------


@frozen
class CutRange(Facts):
    """A scope in one piece, and the iteration before which it is cut."""

    at: int

    @lazy
    def whole(self) -> Whole:
        site = self.site
        return Whole(site.program, site.scope, site.outer_sizes, site.dialect)


def _cut_inside(facts: CutRange) -> Refusal | None:
    scope, at = facts.site.scope, facts.at
    if 0 < at < scope.size:
        return None
    return Refusal.of(scope.id, scope.head, size=scope.size, cut=at)


def still_a_page(facts: Facts) -> Refusal | None:
    site = facts.site
    count = site.program.statements + len(site.scope.leaves)
    if count <= MAX_STATEMENTS:
        return None
    return Refusal.of(site.scope.id, site.scope.head, count=count, most=MAX_STATEMENTS)


def _copies_stay_apart(facts: CutRange) -> Refusal | None:
    """A buffer that an iteration owned becomes one for all: its cells must tell the iterations apart."""
    for level, scope, buffer in facts.whole.owned:
        occurrences = facts.site.program.occurrences[buffer.name]
        directions = "=" * level + "<"
        for a in occurrences:
            for b in occurrences:
                if (a.writes or b.writes) and may_meet(
                    buffer, a.access, a.sizes, b.access, b.sizes, directions
                ):
                    return Refusal.of(
                        b.statement.id,
                        b.access,
                        nodes=(a.statement.id,),
                        arrays=buffer.arrays,
                        iterator=scope.id,
                        buffer=buffer.name,
                        head=scope.head,
                        first=a.access.text,
                        second=b.access.text,
                    )
    return None


def _copies_can_be_shared(facts: CutRange) -> Refusal | None:
    for _, scope, buffer in facts.whole.owned:
        if not facts.site.dialect.locations[buffer.location].shared:
            return Refusal.of(
                scope.id,
                scope.head,
                arrays=buffer.arrays,
                location=buffer.location,
                buffer=buffer.name,
                head=scope.head,
            )
    return None


def _lanes_may_part(facts: CutRange) -> Refusal | Kind | None:
    return facts.whole.lanes_may_part()


class SplitRange(Analysed[CutRange]):
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
            established_by=("join_ranges", "collapse_scopes"),
        ),
        Requirement(
            "PD-T302",
            "the program would become too large",
            "it would have {count} statements, {most} are allowed",
            "split an inner scope, or fewer scopes",
            still_a_page,
            established_by=("remove_dead", "join_ranges"),
        ),
        Requirement(
            "PD-T303",
            "what each parallel iteration owns would become shared",
            "used in both parts, {buffer} would be one for all iterations of {head}, and several of "
            "them use one cell: {first}, {second}",
            "split before annotating, or undo the contraction of {buffer}",
            _copies_stay_apart,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T304",
            "the location cannot be shared by parallel iterations",
            "used in both parts, {buffer} would lie outside {head}, and {location} cannot be shared",
            "set another location first, or split before annotating",
            _copies_can_be_shared,
            established_by=("set_location",),
        ),
        Requirement(
            "PD-T305",
            "a lane of the second part reads what the first part writes",
            "in lockstep, {read} is loaded before {target} is stored; apart, it would be loaded after",
            "keep the lanes together",
            _lanes_may_part,
            semantic=True,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        ends = ends_of_runs(program)
        for _, scope in program.scopes:
            found = cuts(scope.size, tuple(sorted(lane_counts(scope, dialect))))
            for at in sorted({*found, *ends[scope.id]}) if scope.id in ends else found:
                yield Move(self.name, scope.id, (("at", at),))

    def analyse(self, site: Site) -> CutRange:
        return CutRange(site, site.move["at"])

    def rewrite(self, facts: CutRange, /) -> Rewritten:
        site, at = facts.site, facts.at
        scope = site.scope
        first, second = named(site, "a"), named(site, "b")
        moved = methodcaller("shifted", site.level, at)
        rest = scope.headed(scope.size - at, scope.suffix, second(scope.id), moved, second)
        parts = scope.renamed(first, at), rest
        return Rewritten(site.replaced(parts), Copied(scope.id, (parts[0].id, rest.id), ((scope, parts),)))

    def relation(self, facts: CutRange, result: Program, /) -> Relation:
        site = facts.site
        first, second = named(site, "a"), named(site, "b")
        rest = shift(site.level, facts.at)
        found = {}
        for statement, depth in statements_below(site.scope, site.level):
            found[first(statement.id)] = Instance(statement.id, levels(depth))
            found[second(statement.id)] = Instance(statement.id, rest[:depth])
        return found


def cuts(size: int, widths: tuple[int, ...]) -> list[int]:
    """The cuts of a range that are worth a look: one iteration at either end, the largest power of two,
    and as many iterations as fill vectors of each width. Ascending."""
    if size == 1:
        return []
    found = {1, size - 1, 1 << (size - 1).bit_length() - 1, *((size - 1) // w * w for w in widths)}
    return sorted(at for at in found if 0 < at < size)


def shift(level: int, by: int) -> tuple[AffineExpr, ...]:
    """Every iterator as it is, but for the one at ``level``, which starts at ``by``."""
    return (*levels(level), AffineExpr.of({level: 1}, by), *shifted(level + 1, 0))


def named(site: Site, part: str) -> Callable[[str], str]:
    """Id of a node of the scope -> its id in a part."""
    taken = site.program.place_of
    return lambda old: fresh(f"{old}.{part}", taken)


# -- join_ranges -----------------------------------------------------------------------------------


@frozen
class JoinedRange(Facts):
    """A scope and one of the same suffix that follows it, and the scope that both become."""

    after: Scope

    @lazy
    def whole(self) -> Whole:
        site = self.site
        scope = site.scope
        joined = Scope(scope.size + self.after.size, scope.body, scope.suffix, scope.id)
        program = site.replaced((joined,), consumed=2)
        return Whole(program, joined, site.outer_sizes, site.dialect)


def _goes_on(facts: JoinedRange) -> Refusal | None:
    site, after = facts.site, facts.after
    rest = site.scope.renumbered(methodcaller("shifted", site.level, site.scope.size))
    if rest.body == after.body:
        return None
    return Refusal.of(after.id, nodes=(site.scope.id,), size=site.scope.size, level=f"{{{site.level}}}")


def _target_allows(facts: JoinedRange) -> Refusal | None:
    violation = next(violations(facts.whole.program, facts.site.dialect), None)
    scope = facts.site.scope
    return refuse_violation(facts.site, violation, scope.id, scope.head) if violation else None


def _joined_races(facts: JoinedRange) -> Refusal | None:
    whole = facts.whole
    if not whole.dialect.is_parallel(whole.scope.suffix):
        return None
    own, body = private_buffers(whole.program, whole.scope), whole.scope.body
    for conflict in conflicts(whole.program, body, body, whole.sizes, "=" * whole.level + "<", own):
        return refuse_conflict(conflict)
    return None


def _values_stay(facts: JoinedRange) -> Refusal | None:
    """A buffer that was one for all is owned by each parallel iteration: no value may pass between them."""
    whole = facts.whole
    for level, scope, buffer in whole.owned:
        occurrences = whole.program.occurrences[buffer.name]
        leak = leaking_level(buffer, occurrences, level + 1)
        if leak is not None:
            return refuse_leak(buffer, occurrences, leak, scope.head)
    return None


def _lanes_may_meet(facts: JoinedRange) -> Refusal | Kind | None:
    return facts.whole.lanes_may_part()


class JoinRanges(Analysed[JoinedRange]):
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
            None,
            established_by=("reorder_statements", "annotate_scope"),
        ),
        Requirement(
            "PD-T312",
            "the second scope does not go on where the first ends",
            "its body is not that of the first with {level} starting at {size}",
            "use join_scopes to run different bodies in one scope",
            _goes_on,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T313",
            "the target does not allow the joined scope",
            "{what}",
            "join before annotating",
            _target_allows,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T314",
            "parallel iterations would share a cell",
            "joined, iterations of both parts would touch {cell} together: {first}, {second}",
            "keep the two parallel scopes apart",
            _joined_races,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T315",
            "a temporary carries a value from one iteration to another",
            "joined, each iteration of {head} would own a copy of {buffer}, and values may pass through "
            "{level}",
            "write the temporary anew in each iteration, or keep the parts apart",
            _values_stay,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T316",
            "a lane of the second part reads what the first part writes",
            "in lockstep, {read} would be loaded before {target} is stored",
            "keep the two vectors apart",
            _lanes_may_meet,
            semantic=True,
            established_by=NO_MOVE,
        ),
    )
    undo = "split_range at the size of the first part, or drop the move from the trace"

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for place in program.places:
            scope, following = place.node, program.beside(place)[place.path[-1] + 1 :][:1]
            for after in following:
                if isinstance(scope, Scope) and isinstance(after, Scope) and _alike(scope, after):
                    yield Move(self.name, scope.id)

    def analyse(self, site: Site) -> JoinedRange | Refusal:
        followed = Followed.of(site)
        if followed is None or followed.after.suffix != site.scope.suffix:
            return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)
        return JoinedRange(site, followed.after)

    def rewrite(self, facts: JoinedRange, /) -> Rewritten:
        return Rewritten(facts.whole.program, merged(facts.after, facts.site.scope))

    def relation(self, facts: JoinedRange, result: Program, /) -> Relation:
        site, after = facts.site, facts.after
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


MOVES = (SplitRange(), JoinRanges())
