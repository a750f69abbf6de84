"""Mapping a scope to the hardware: unroll, parallelise, vectorise."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dependence import conflicts, leaking_level, may_meet, private_buffers
from perfdojo_sdk.core.dialect import Dialect, ScopeSuffix
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import index_values, lane_stride, most_lanes, transposed_copy
from perfdojo_sdk.core.groups import far_from_lanes, far_from_tile, group_of, inner_group, losses
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Kind,
    Legal,
    Move,
    Parameter,
    Refusal,
    Requirement,
    Site,
    reordered,
)
from perfdojo_sdk.core.transformations.scopes import refuse_conflict, refuse_leak


@frozen
class Mapped(Facts):
    """A scope and the kind of scope that it is to become."""

    suffix: ScopeSuffix

    @property
    def scope(self) -> Scope:
        return self.site.scope

    @property
    def parallel(self) -> bool:
        return self.suffix.order == "parallel"

    @property
    def lanes(self) -> bool:
        """True if the iterations are to be lanes of a vector."""
        return self.suffix.order == "lockstep"

    @lazy
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the scopes down to this one."""
        return (*self.site.outer_sizes, self.scope.size)

    @property
    def later(self) -> str:
        """The directions of two iterations of the scope, one after the other."""
        return "=" * self.site.level + "<"

    @property
    def only(self) -> Statement:
        """The one statement in the scope, where it is known that there is one."""
        statement = self.scope.body[0]
        assert isinstance(statement, Statement)
        return statement

    @lazy
    def own(self) -> frozenset[str]:
        """Buffers of which each iteration would have a copy."""
        return private_buffers(self.site.program, self.scope)


def _plain(facts: Mapped) -> Refusal | None:
    scope = facts.scope
    return Refusal.of(scope.id, scope.head, head=scope.head) if scope.suffix else None


# -- unrolled --------------------------------------------------------------------------------------


def _copies_bounded(facts: Mapped) -> Refusal | None:
    if not facts.suffix.unrolled:
        return None
    site, scope = facts.site, facts.scope
    most, dialect = site.dialect.max_unroll, site.dialect
    copies = _copies(scope, dialect) * scope.size
    for outer in site.above:
        copies *= outer.size if _unrolled(outer, dialect) else 1
    if copies <= most:
        return None
    return Refusal.of(scope.id, scope.head, iterator=scope.id, copies=copies, most=most)


def _unrolled(scope: Scope, dialect: Dialect) -> bool:
    return bool(scope.suffix) and dialect.suffixes[scope.suffix].unrolled


def _copies(scope: Scope, dialect: Dialect) -> int:
    """Most copies that unrolling makes of what stands inside."""
    below = max([_copies(c, dialect) for c in scope.body if isinstance(c, Scope)], default=1)
    return below * (scope.size if _unrolled(scope, dialect) else 1)


# -- parallel --------------------------------------------------------------------------------------


def _not_nested(facts: Mapped) -> Refusal | None:
    site = facts.site
    if not facts.parallel or site.dialect.nested_parallel:
        return None
    for scope in (*site.above, *_below(facts.scope)):
        if site.dialect.is_parallel(scope.suffix):
            return Refusal.of(scope.id, scope.head, head=scope.head)
    return None


def _below(scope: Scope) -> Iterator[Scope]:
    for child in scope.body:
        if isinstance(child, Scope):
            yield child
            yield from _below(child)


def _no_race(facts: Mapped) -> Refusal | None:
    if not facts.parallel:
        return None
    program, body = facts.site.program, facts.scope.body
    for conflict in conflicts(program, body, body, facts.sizes, facts.later, facts.own):
        return refuse_conflict(conflict)
    return None


def _private_values_stay(facts: Mapped) -> Refusal | None:
    """A buffer used here only becomes one copy an iteration, so no value may pass between them."""
    if not facts.parallel:
        return None
    program = facts.site.program
    for name in sorted(facts.own):
        buffer, occurrences = program.buffer(name), program.occurrences[name]
        assert buffer is not None
        level = leaking_level(buffer, occurrences, facts.site.level + 1)
        if level is not None:
            return refuse_leak(buffer, occurrences, level)
    return None


def _storage_can_be_reached(facts: Mapped) -> Refusal | None:
    if not facts.parallel:
        return None
    site, scope = facts.site, facts.scope
    for array in scope.touches:
        buffer = site.program.buffer_of[array]
        if buffer.name not in facts.own and not site.dialect.locations[buffer.location].shared:
            arrays = buffer.arrays
            return Refusal.of(
                scope.id, scope.head, arrays=arrays, location=buffer.location, buffer=buffer.name
            )
    return None


# -- lockstep --------------------------------------------------------------------------------------


def _one_statement(facts: Mapped) -> Refusal | None:
    if not facts.lanes:
        return None
    scope = facts.scope
    if len(scope.body) == 1 and isinstance(scope.body[0], Statement):
        return None
    return Refusal.of(scope.id, scope.head, head=scope.head)


def _enough_lanes(facts: Mapped) -> Refusal | None:
    if not facts.lanes:
        return None
    scope, dtypes = facts.scope, " and ".join(sorted(facts.only.dtypes))
    lanes = most_lanes(facts.only, facts.site.dialect)
    if scope.size <= max(lanes, facts.suffix.most_products):
        return None
    return Refusal.of(scope.id, scope.head, size=scope.size, lanes=lanes, dtype=dtypes)


def _neighbours(facts: Mapped) -> Refusal | None:
    if not facts.lanes or not facts.suffix.neighbours(writes=True):
        return None
    statement, site = facts.only, facts.site
    reads = statement.reads if facts.suffix.neighbours(writes=False) else ()
    for access in (*reads, statement.target):
        stride = lane_stride(site.program.buffer_of[access.array], access.subscripts, site.level)
        if stride not in (0, 1):
            words = "an uneven number of" if stride is None else stride
            return Refusal.of(statement.id, access, iterator=facts.scope.id, stride=words)
    return None


def _lanes_are_counted(facts: Mapped) -> Refusal | None:
    """A quotient used as a value does not count lanes."""
    if not facts.lanes:
        return None
    statement = facts.only
    for form in [q.dividend for v in index_values(statement.value) for q, _ in v.index.divisions]:
        if facts.site.level in form.levels:
            return Refusal.of(statement.id, form.text, iterator=facts.scope.id, form=form.text)
    return None


def _lanes_independent(facts: Mapped) -> Refusal | None:
    """No lane may read what an earlier lane writes: all of them load before any stores."""
    if not facts.lanes:
        return None
    statement, program, sizes = facts.only, facts.site.program, facts.sizes
    target = statement.target
    buffer = program.buffer_of[target.array]
    for read in statement.reads:
        if program.buffer_of[read.array] is buffer and may_meet(
            buffer, target, sizes, read, sizes, facts.later
        ):
            return Refusal.of(statement.id, read, target=target.text, read=read.text)
    return None


def _lanes_write_apart(facts: Mapped) -> Refusal | Kind | None:
    if not facts.lanes:
        return None
    statement, sizes = facts.only, facts.sizes
    target = statement.target
    buffer = facts.site.program.buffer_of[target.array]
    if not may_meet(buffer, target, sizes, target, sizes, facts.later):
        return None
    if statement.accumulate and not statement.chooses:
        return reordered(facts.site.program)
    return Refusal.of(statement.id, target, iterator=facts.scope.id, target=target.text)


def _transposes(facts: Mapped) -> Refusal | None:
    if not facts.suffix.transposes:
        return None
    site, scope = facts.site, facts.scope
    copy = transposed_copy(site.program, scope, site.level)
    if copy is not None and copy.dtype in site.dialect.lanes:
        return None
    return Refusal.of(scope.id, scope.head, head=scope.head)


# -- sums in groups --------------------------------------------------------------------------------


def _adds_up_a_group(facts: Mapped) -> Refusal | Legal | None:
    """A scope that adds up groups runs over one of them."""
    groups = facts.suffix.groups
    if not groups:
        return None
    group = group_of(facts.only, groups, facts.scope.size)
    if group is not None:
        return Legal(Kind.CHANGES_PRECISION, losses(group)) if losses(group) else None
    known = "; ".join(f"{g.size} of {' by '.join(g.factors)} into {g.total}" for g in groups)
    return Refusal.of(facts.only.id, facts.only.text, head=facts.scope.head, known=known)


def _groups_lie_together(facts: Mapped) -> Refusal | None:
    if not facts.suffix.groups:
        return None
    statement, site = facts.only, facts.site
    for access in statement.reads:
        stride = lane_stride(site.program.buffer_of[access.array], access.subscripts, site.level)
        if stride != 1:
            words = "an uneven number of" if stride is None else stride
            return Refusal.of(statement.id, access, iterator=facts.scope.id, stride=words)
    return None


def _is_around_a_group(facts: Mapped) -> Refusal | None:
    if not facts.suffix.around_groups:
        return None
    scope, site = facts.scope, facts.site
    found = inner_group(scope, site.dialect)
    if found is None:
        return Refusal.of(scope.id, scope.head, head=scope.head, wanted="no sum of a group")
    inside, group = found
    most = site.dialect.lanes.get(group.total, 0)
    if group.tile:
        size, words = group.tile[len(inside) == 1], ("row", "column")[len(inside) == 1]
        if scope.size != size:
            wanted = f"a {words} of each of {scope.size} sums, the instruction has {size}"
            return Refusal.of(scope.id, scope.head, head=scope.head, wanted=wanted)
    elif scope.size > most:
        wanted = f"a group of each of {scope.size} sums, the target has {most} lanes of {group.total}"
        return Refusal.of(scope.id, scope.head, head=scope.head, wanted=wanted)
    if scope.leaves[0].statement.guard:
        return Refusal.of(scope.id, scope.head, head=scope.head, wanted="a sum under a condition")
    return None


def _groups_are_neighbours(facts: Mapped) -> Refusal | None:
    if not facts.suffix.around_groups:
        return None
    statement, site = facts.scope.leaves[0].statement, facts.site
    found = inner_group(facts.scope, site.dialect)
    assert found is not None, "the requirement before this one"
    inside, group = found
    far_from = far_from_lanes if len(inside) == 1 else far_from_tile
    far = far_from(site.program, statement, group, site.level)
    if far is None:
        return None
    access, possible = far
    return Refusal.of(statement.id, access, iterator=facts.scope.id, possible=possible)


class AnnotateScope(Analysed[Mapped]):
    """Map a scope to the hardware: ``u`` unroll, ``p`` threads, ``v`` vector lanes, or a target's own.

    before:
        8 16 y[{0},{1}] = x[{0},{1}] * 2
    after: annotate_scope(s0, suffix=p), annotate_scope(s1, suffix=v)
        8:p 16:v y[{0},{1}] = x[{0},{1}] * 2
    """

    name = "annotate_scope"
    place = "scope"
    parameters = (Parameter("suffix", str, "a scope suffix of the target"),)
    requirements = (
        Requirement(
            "PD-T151",
            "the scope already has a suffix",
            "{head} is already mapped to the hardware",
            "drop the earlier annotation from the trace",
            _plain,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T152",
            "too many copies",
            "unrolling would make {copies} copies of a statement, the target allows {most}",
            "split the scope and unroll the inner part",
            _copies_bounded,
            established_by=("split_scope", "split_range"),
        ),
        Requirement(
            "PD-T153",
            "parallel scopes do not nest",
            "{head} is parallel already",
            "annotate one of them",
            _not_nested,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T154",
            "iterations are not independent",
            "two iterations touch one cell, and one of them writes: {first}, {second}",
            "give each iteration its own part with split_reduction or fission_scope",
            _no_race,
            semantic=True,
            established_by=("split_reduction", "fission_scope", "stage_write"),
        ),
        Requirement(
            "PD-T155",
            "a temporary carries a value from one iteration to another",
            "each iteration would own a copy of {buffer}, and values may pass through {level}",
            "write the temporary anew in each iteration",
            _private_values_stay,
            semantic=True,
            established_by=("fission_scope",),
        ),
        Requirement(
            "PD-T156",
            "the location cannot be shared by parallel iterations",
            "{buffer} lives in {location}, outside the iterations that use it",
            "set another location, or move the buffer's uses inside",
            _storage_can_be_reached,
            established_by=("set_location", "join_scopes"),
        ),
        Requirement(
            "PD-T157",
            "a lockstep scope holds exactly one statement",
            "{head} holds more",
            "separate the statements with fission_scope, or split the scope",
            _one_statement,
            established_by=("fission_scope", "split_scope", "swap_scopes"),
        ),
        Requirement(
            "PD-T158",
            "the target has fewer lanes",
            "{size} iterations, {lanes} lanes of {dtype}",
            "split the scope to the vector width",
            _enough_lanes,
            established_by=("split_scope", "split_range"),
        ),
        Requirement(
            "PD-T159",
            "neighbouring lanes are not neighbours in memory",
            "{access} moves {stride} cells from lane to lane; 0 or 1 is possible",
            "reorder the buffer's dimensions, or stage the array",
            _neighbours,
            established_by=("reorder_dims", "stage_read", "stage_write"),
        ),
        Requirement(
            "PD-T160",
            "a lane reads what an earlier lane writes",
            "in lockstep, {read} would be loaded before {target} is stored",
            "vectorise another scope",
            _lanes_independent,
            semantic=True,
            established_by=("stage_read",),
        ),
        Requirement(
            "PD-T161",
            "lanes write one cell",
            "several lanes would store to {target} at once",
            "vectorise another scope",
            _lanes_write_apart,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T162",
            "lanes would not do the same",
            "{form} is divided in a value and differs from lane to lane",
            "split the scope by the divisor",
            _lanes_are_counted,
            established_by=("split_scope",),
        ),
        Requirement(
            "PD-T163",
            "nothing is transposed",
            "{head} and the scope inside it are no copy of columns to rows, in a dtype that has lanes",
            "annotate the outer one of two loops, along which the array that is copied has neighbours",
            _transposes,
            established_by=("swap_scopes",),
        ),
        Requirement(
            "PD-T164",
            "no instruction adds up such a group",
            "{head} does not add up a group that the target knows: {known}",
            "split the reduction into groups, of products of elements that are converted to the sum's dtype",
            _adds_up_a_group,
            established_by=("split_scope",),
        ),
        Requirement(
            "PD-T165",
            "a group does not lie together",
            "{access} moves {stride} cells from product to product; an instruction takes neighbours",
            "stage the array with the group's loop innermost",
            _groups_lie_together,
            established_by=("reorder_dims", "stage_read"),
        ),
        Requirement(
            "PD-T166",
            "these are no lanes of groups",
            "{head} holds {wanted}",
            "annotate the scope of the group first; split that of the lanes to the vector width",
            _is_around_a_group,
            established_by=("annotate_scope", "split_scope", "swap_scopes"),
        ),
        Requirement(
            "PD-T167",
            "the groups of neighbouring lanes are not neighbours in memory",
            "from lane to lane, {access} has to move by {possible} cells, in a group to its neighbour",
            "reorder the buffer's dimensions, or stage the array with these two loops innermost",
            _groups_are_neighbours,
            established_by=("reorder_dims", "stage_read", "stage_write"),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            if not scope.suffix:
                for suffix in dialect.suffixes:
                    yield Move(self.name, scope.id, (("suffix", suffix),))

    def analyse(self, site: Site) -> Mapped:
        """:class:`MoveError` where the target has no such kind of scope."""
        name = site.move["suffix"]
        found = site.dialect.suffixes.get(name)
        if found is None:
            hint = closest(name, list(site.dialect.suffixes))
            what = f"{site.move.text}: unknown scope suffix {name!r}"
            raise MoveError("PD-T002", what, why="the target has no such kind of scope", hint=hint)
        return Mapped(site, found)

    def rewrite(self, facts: Mapped, /) -> Program:
        old = facts.scope
        return facts.site.replaced((Scope(old.size, old.body, facts.suffix.name, old.id),))


MOVES = (AnnotateScope(),)
