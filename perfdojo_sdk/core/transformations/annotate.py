"""Mapping a scope to the hardware: unroll, parallelise, vectorise."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dependence import conflicts, leaking_level, may_meet, private_buffers
from perfdojo_sdk.core.dialect import Dialect, ScopeSuffix
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import (
    Kind,
    Move,
    Parameter,
    Refusal,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.scopes import refuse_conflict, scopes
from perfdojo_sdk.core.validate import index_values, lane_stride, transposed_copy


def _suffix(site: Site) -> ScopeSuffix:
    name = site.move["suffix"]
    found = site.dialect.suffixes.get(name)
    if found is None:
        hint = closest(name, list(site.dialect.suffixes))
        what, why = f"{site.move.text}: unknown scope suffix {name!r}", "the target has no such kind of scope"
        raise MoveError("PD-T002", what, why=why, hint=hint)
    return found


def _plain(site: Site) -> Refusal | None:
    if not site.scope.suffix:
        return None
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)


# -- unrolled --------------------------------------------------------------------------------------


def _copies_bounded(site: Site) -> Refusal | None:
    if not _suffix(site).unrolled:
        return None
    most, dialect = site.dialect.max_unroll, site.dialect
    copies = _copies(site.scope, dialect) * site.scope.size
    for scope in site.program.ancestors(site.path):
        copies *= scope.size if _unrolled(scope, dialect) else 1
    if copies <= most:
        return None
    return Refusal.of(site.scope.id, site.scope.head, copies=copies, most=most)


def _unrolled(scope: Scope, dialect: Dialect) -> bool:
    return bool(scope.suffix) and dialect.suffixes[scope.suffix].unrolled


def _copies(scope: Scope, dialect: Dialect) -> int:
    """Most copies that unrolling makes of what stands inside."""
    below = max([_copies(c, dialect) for c in scope.body if isinstance(c, Scope)], default=1)
    return below * (scope.size if _unrolled(scope, dialect) else 1)


# -- parallel --------------------------------------------------------------------------------------


def _parallel(site: Site) -> bool:
    return _suffix(site).order == "parallel"


def _not_nested(site: Site) -> Refusal | None:
    if not _parallel(site) or site.dialect.nested_parallel:
        return None
    for scope in (*site.program.ancestors(site.path), *_below(site.scope)):
        if site.dialect.is_parallel(scope.suffix):
            return Refusal.of(scope.id, scope.head, head=scope.head)
    return None


def _below(scope: Scope) -> Iterator[Scope]:
    for child in scope.body:
        if isinstance(child, Scope):
            yield child
            yield from _below(child)


def _no_race(site: Site) -> Refusal | None:
    if not _parallel(site):
        return None
    scope = site.scope
    own = private_buffers(site.program, scope)
    directions = "=" * site.level + "<"
    outer = (*site.outer_sizes, scope.size)
    for conflict in conflicts(site.program, scope.body, scope.body, outer, directions, own):
        return refuse_conflict(conflict)
    return None


def _private_values_stay(site: Site) -> Refusal | None:
    """A buffer used here only becomes one copy an iteration, so no value may pass between them."""
    if not _parallel(site):
        return None
    program, scope = site.program, site.scope
    for name in sorted(private_buffers(program, scope)):
        buffer, occurrences = program.buffer(name), program.occurrences[name]
        assert buffer is not None
        level = leaking_level(buffer, occurrences, site.level + 1)
        if level is not None:
            first = occurrences[0]
            return Refusal.of(first.statement.id, first.access.text, buffer=name, level=f"{{{level}}}")
    return None


def _storage_can_be_reached(site: Site) -> Refusal | None:
    if not _parallel(site):
        return None
    program, scope = site.program, site.scope
    own = private_buffers(program, scope)
    for array in scope.touches:
        buffer = program.buffer_of[array]
        if buffer.name not in own and not site.dialect.locations[buffer.location].shared:
            return Refusal.of(scope.id, scope.head, buffer=buffer.name, location=buffer.location)
    return None


# -- lockstep --------------------------------------------------------------------------------------


def _lanes(site: Site) -> bool:
    return _suffix(site).order == "lockstep"


def _one_statement(site: Site) -> Refusal | None:
    if not _lanes(site):
        return None
    body = site.scope.body
    if len(body) == 1 and isinstance(body[0], Statement):
        return None
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)


def _only(site: Site) -> Statement:
    statement = site.scope.body[0]
    assert isinstance(statement, Statement)
    return statement


def _enough_lanes(site: Site) -> Refusal | None:
    if not _lanes(site):
        return None
    dtype = _only(site).dtype
    lanes = site.dialect.lanes.get(dtype, 0)
    if site.scope.size <= lanes:
        return None
    return Refusal.of(site.scope.id, site.scope.head, size=site.scope.size, lanes=lanes, dtype=dtype)


def _neighbours(site: Site) -> Refusal | None:
    if not _lanes(site):
        return None
    statement = _only(site)
    for access in (*statement.reads, statement.target):
        stride = lane_stride(site.program.buffer_of[access.array], access.subscripts, site.level)
        if stride not in (0, 1):
            words = "an uneven number of" if stride is None else stride
            return Refusal.of(statement.id, access.text, access=access.text, stride=words)
    return None


def _same_for_all_lanes(site: Site) -> Refusal | None:
    """Conditions hold for all lanes or for none; a quotient used as a value does not count lanes."""
    if not _lanes(site):
        return None
    statement = _only(site)
    quotients = [q.dividend for v in index_values(statement.value) for q, _ in v.index.quotients]
    for form in (*statement.guard, *quotients):
        if site.level in form.levels:
            return Refusal.of(statement.id, form.text, form=form.text)
    return None


def _lanes_independent(site: Site) -> Refusal | None:
    """No lane may read what an earlier lane writes: all of them load before any stores."""
    if not _lanes(site):
        return None
    statement, program = _only(site), site.program
    sizes = (*site.outer_sizes, site.scope.size)
    target = statement.target
    buffer = program.buffer_of[target.array]
    for read in statement.reads:
        if program.buffer_of[read.array] is buffer and may_meet(
            buffer, target, sizes, read, sizes, "=" * site.level + "<"
        ):
            return Refusal.of(statement.id, read.text, target=target.text, read=read.text)
    return None


def _lanes_write_apart(site: Site) -> Refusal | Kind | None:
    if not _lanes(site):
        return None
    statement = _only(site)
    sizes = (*site.outer_sizes, site.scope.size)
    target = statement.target
    buffer = site.program.buffer_of[target.array]
    if not may_meet(buffer, target, sizes, target, sizes, "=" * site.level + "<"):
        return None
    if statement.accumulate:
        return Kind.REASSOCIATES
    return Refusal.of(statement.id, target.text, target=target.text)


def _transposes(site: Site) -> Refusal | None:
    if not _suffix(site).transposes:
        return None
    copy = transposed_copy(site.program, site.scope, site.level)
    if copy is not None and copy.dtype in site.dialect.lanes:
        return None
    return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)


class AnnotateScope(Transformation):
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
        ),
        Requirement(
            "PD-T152",
            "too many copies",
            "unrolling would make {copies} copies of a statement, the target allows {most}",
            "split the scope and unroll the inner part",
            _copies_bounded,
        ),
        Requirement(
            "PD-T153",
            "parallel scopes do not nest",
            "{head} is parallel already",
            "annotate one of them",
            _not_nested,
        ),
        Requirement(
            "PD-T154",
            "iterations are not independent",
            "two iterations touch one cell, and one of them writes: {first}, {second}",
            "give each iteration its own part with split_reduction or fission_scope",
            _no_race,
            semantic=True,
        ),
        Requirement(
            "PD-T155",
            "a temporary carries a value from one iteration to another",
            "each iteration would own a copy of {buffer}, and values may pass through {level}",
            "write the temporary anew in each iteration",
            _private_values_stay,
            semantic=True,
        ),
        Requirement(
            "PD-T156",
            "the location cannot be shared by parallel iterations",
            "{buffer} lives in {location}, outside the iterations that use it",
            "set another location, or move the buffer's uses inside",
            _storage_can_be_reached,
        ),
        Requirement(
            "PD-T157",
            "a lockstep scope holds exactly one statement",
            "{head} holds more",
            "separate the statements with fission_scope, or split the scope",
            _one_statement,
        ),
        Requirement(
            "PD-T158",
            "the target has fewer lanes",
            "{size} iterations, {lanes} lanes of {dtype}",
            "split the scope to the vector width",
            _enough_lanes,
        ),
        Requirement(
            "PD-T159",
            "neighbouring lanes are not neighbours in memory",
            "{access} moves {stride} cells from lane to lane; 0 or 1 is possible",
            "reorder the buffer's dimensions, or stage the array",
            _neighbours,
        ),
        Requirement(
            "PD-T160",
            "a lane reads what an earlier lane writes",
            "in lockstep, {read} would be loaded before {target} is stored",
            "vectorise another scope",
            _lanes_independent,
            semantic=True,
        ),
        Requirement(
            "PD-T161",
            "lanes write one cell",
            "several lanes would store to {target} at once",
            "vectorise another scope",
            _lanes_write_apart,
            semantic=True,
        ),
        Requirement(
            "PD-T162",
            "lanes would not do the same",
            "{form} is a condition or a quotient that differs from lane to lane",
            "split the scope where the condition changes",
            _same_for_all_lanes,
        ),
        Requirement(
            "PD-T163",
            "nothing is transposed",
            "{head} and the scope inside it are no copy of columns to rows, in a dtype that has lanes",
            "annotate the outer one of two loops, along which the array that is copied has neighbours",
            _transposes,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in scopes(program):
            if not scope.suffix:
                for suffix in dialect.suffixes:
                    yield Move(self.name, scope.id, (("suffix", suffix),))

    def rewrite(self, site: Site) -> Program:
        old = site.scope
        return site.replaced((Scope(old.size, old.body, site.move["suffix"], old.id),))
