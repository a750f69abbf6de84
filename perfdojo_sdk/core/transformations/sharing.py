"""Moves on which arrays share a buffer.

Two arrays can share cells when, cell by cell, all uses of one come before all uses of the other. That
is asked inside one iteration of the scopes around both, as long as no value of either array passes
from one of these iterations to another. It covers lifetimes that follow each other and element-wise
work in place (the paper's section 2.1, ``name dtype [dims] location -> a, b``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from operator import attrgetter

from perfdojo_sdk.core.dependence import home_depth, leaking_level, may_meet, may_run_before
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.made import Rewritten, Shared, Unshared
from perfdojo_sdk.core.program import Occurrence, Program
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Move,
    Parameter,
    Refusal,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.scopes import refuse_violation
from perfdojo_sdk.core.transformations.storage import STAGING, first_use, temporaries
from perfdojo_sdk.core.validate import location_violations

Occurrences = Sequence[Occurrence]

_IN_PROGRAM_ORDER = attrgetter("path", "writes")


def _in_turn(
    buffer: Buffer, one: Occurrences, other: Occurrences, start: int, dialect: Dialect
) -> Refusal | None:
    """On every cell, all of one's uses come before all of the other's, or the other way round.

    In equal iterations of the levels before ``start``.
    """
    found: Refusal | None = None
    for first, second in ((one, other), (other, one)):
        for a, b in product(first, second):
            if (a.writes or b.writes) and may_run_before(buffer, b, a, start, dialect):
                found = Refusal.of(
                    a.statement.id,
                    a.access,
                    nodes=(b.statement.id,),
                    arrays=(a.access.array, b.access.array),
                    first=b.access.text,
                    second=a.access.text,
                )
                break
        else:
            return None
    return found


# -- share_storage ---------------------------------------------------------------------------------


@frozen
class Sharing(Facts):
    """Two buffers that are to become one."""

    one: Buffer
    other: Buffer

    @lazy
    def uses(self) -> tuple[Occurrences, Occurrences]:
        """The accesses of the one and of the other."""
        occurrences = self.site.program.occurrences
        return occurrences[self.one.name], occurrences[self.other.name]

    @lazy
    def merged(self) -> Buffer:
        """The buffer of the arrays of both."""
        one, arrays = self.one, (*self.one.arrays, *self.other.arrays)
        return Buffer(one.name, one.dtype, one.dimensions, one.location, arrays)


def _two_temporaries(facts: Sharing) -> Refusal | None:
    at = first_use(facts.site)
    for buffer in (facts.one, facts.other):
        if not facts.site.program.interface.isdisjoint(buffer.arrays):
            fault = "part of the kernel's interface"
            return Refusal.of(at, arrays=buffer.arrays, buffer=buffer.name, fault=fault)
    if facts.other is facts.one:
        return Refusal.of(at, arrays=facts.one.arrays, buffer=facts.one.name, fault="the same buffer")
    return None


def _same_shape(facts: Sharing) -> Refusal | None:
    one, other = facts.one, facts.other
    if (one.dtype, one.dimensions) == (other.dtype, other.dimensions):
        return None
    arrays = (*one.arrays, *other.arrays)
    return Refusal.of(first_use(facts.site), arrays=arrays, first=one.text, second=other.text)


def _uses_in_turn(facts: Sharing) -> Refusal | None:
    one, other = facts.uses
    if not one or not other:
        return None
    together, dialect = (*one, *other), facts.site.dialect
    depth = home_depth(together, dialect)
    around = one[0].above[:depth]
    # Iterations of a parallel scope around both have copies of their own, before and after.
    apart = max((l + 1 for l in range(depth) if dialect.is_parallel(around[l].suffix)), default=0)
    leaks = (
        leaking_level(buffer, occurrences, depth, apart)
        for buffer, occurrences in ((facts.one, one), (facts.other, other))
    )
    start = min((level for level in leaks if level is not None), default=depth)
    return _in_turn(facts.one, one, other, start, dialect)


def _copies_stay_apart(facts: Sharing) -> Refusal | None:
    """A buffer of which only one had a copy for each iteration becomes one for all iterations."""
    one, other = facts.uses
    if not one or not other:
        return None
    outside = common_depth([o.path for o in (*one, *other)])
    for occurrences in (one, other):
        around = occurrences[0].above
        for level in range(outside, common_depth([o.path for o in occurrences])):
            scope = around[level]
            if not facts.site.dialect.is_parallel(scope.suffix):
                continue
            for a, b in product(occurrences, occurrences):
                if (a.writes or b.writes) and may_meet(
                    facts.one, a.access, a.sizes, b.access, b.sizes, "=" * level + "<"
                ):
                    return Refusal.of(
                        b.statement.id,
                        b.access,
                        nodes=(a.statement.id,),
                        iterator=scope.id,
                        head=scope.head,
                        first=a.access.text,
                        second=b.access.text,
                    )
    return None


def _stored(program: Program, buffers: Sequence[Buffer]) -> Program:
    """The same tree on other buffers."""
    return program.with_buffers(tuple(buffers))


def _location_holds_both(facts: Sharing) -> Refusal | None:
    site, (one, other) = facts.site, facts.uses
    occurrences = sorted((*one, *other), key=_IN_PROGRAM_ORDER)
    violation = next(location_violations(site.program, facts.merged, occurrences, site.dialect), None)
    return refuse_violation(site, violation, violation.node or first_use(site)) if violation else None


class ShareStorage(Analysed[Sharing]):
    """Move the arrays of another buffer into this one: one place for both, one after the other.

    before:
        t f32 [8] heap
        e f32 [8] heap
        8 t[{0}] = x[{0}] * 2
        8 e[{0}] = exp(t[{0}])
        8 y[{0}] = e[{0}] + 1
    after: share_storage(t, other=e)
        t f32 [8] heap -> t, e
        8 t[{0}] = x[{0}] * 2
        8 e[{0}] = exp(t[{0}])
        8 y[{0}] = e[{0}] + 1
    """

    name = "share_storage"
    place = "buffer"
    parameters = (Parameter("other", str, "the buffer that is given up"),)
    requirements = (
        Requirement(
            "PD-T331",
            "not two buffers of the kernel's own",
            "{buffer} is {fault}",
            "name two different temporaries; stage an array of the interface first",
            _two_temporaries,
            established_by=STAGING,
        ),
        Requirement(
            "PD-T332",
            "the buffers differ in dtype or dimensions",
            "{first} and {second} do not have the same cells",
            "bring them to one shape with reuse_dims, reorder_dims or pad_dim",
            _same_shape,
            established_by=("reuse_dims", "reorder_dims", "pad_dim", "lower_precision"),
        ),
        Requirement(
            "PD-T333",
            "both are in use at once",
            "{first} may touch a cell before {second} is done with it",
            "keep them apart, or join and reorder the scopes that use them",
            _uses_in_turn,
            semantic=True,
            established_by=("join_scopes", "reorder_statements"),
        ),
        Requirement(
            "PD-T334",
            "what each parallel iteration owns would become shared",
            "in a buffer that is also used outside of {head}, its iterations would use one cell: "
            "{first}, {second}",
            "keep them apart, or undo the contraction",
            _copies_stay_apart,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T335",
            "the location does not allow this use",
            "{what}",
            "set another location first",
            _location_holds_both,
            established_by=("set_location",),
        ),
    )
    undo = "unshare_storage for each array, or drop the move from the trace"

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        own = list(temporaries(program))
        for k, one in enumerate(own):
            for other in own[k + 1 :]:
                if (one.dtype, one.dimensions) == (other.dtype, other.dimensions):
                    yield Move(self.name, one.name, (("other", other.name),))

    def analyse(self, site: Site) -> Sharing:
        """:class:`MoveError` where the program has no such other buffer."""
        buffer = site.program.buffer(site.move["other"])
        if buffer is None:
            what = f"{site.move.text}: the program has no buffer {site.move['other']!r}"
            known = [b.name for b in temporaries(site.program)]
            why = "`other` names the buffer whose storage is used, too"
            raise MoveError("PD-T002", what, why=why, hint=closest(site.move["other"], known))
        return Sharing(site, site.storage, buffer)

    def rewrite(self, facts: Sharing, /) -> Rewritten:
        site, one, other, merged = facts.site, facts.one, facts.other, facts.merged
        buffers = [merged if b is one else b for b in site.program.buffers if b is not other]
        return Rewritten(_stored(site.program, buffers), Shared(one.name, other.name))


# -- unshare_storage -------------------------------------------------------------------------------


@frozen
class Parting(Facts):
    """An array of a buffer, its uses, and those of the others in that buffer."""

    array: str
    mine: list[Occurrence]
    others: list[Occurrence]

    @lazy
    def start(self) -> int | Occurrence:
        """The number of outer scopes of which each part reads, in one iteration, only what it wrote itself in
        that iteration; or the first read for which that is unknown."""
        occurrences = self.site.program.occurrences[self.site.storage.name]
        start = common_depth([o.path for o in occurrences] or [()])
        for part in (self.mine, self.others):
            for read in part:
                if read.writes and not read.statement.accumulate:
                    continue
                depths = [d for w in part if (d := covered_depth(self.site.storage, w, read)) is not None]
                if not depths:
                    return read
                start = min(start, max(depths))
        return start


def _not_alone(facts: Parting) -> Refusal | None:
    buffer = facts.site.storage
    if len(buffer.arrays) > 1:
        return None
    return Refusal.of(first_use(facts.site), arrays=(facts.array,), buffer=buffer.name)


def covered_depth(buffer: Buffer, write: Occurrence, read: Occurrence) -> int | None:
    """The number of scopes in whose same iteration ``write`` has surely filled the cell ``read`` reads.

    None where that is not proved. It is when the write is plain and whole, comes first, and reaches
    in each dimension the very index that is read, or all that may be read.
    """
    if not write.writes or write.statement.accumulate or write.statement.guard or write.path >= read.path:
        return None
    shared = common_depth([write.path, read.path])
    running: set[int] = set()
    for k in buffer.materialised:
        filled, wanted = write.access.subscripts[k], read.access.subscripts[k]
        inside = [level for level in filled.levels if level >= shared]
        if not inside:
            if filled != wanted:
                return None
            continue
        level = inside[0]
        low, high = wanted.bounds(read.sizes)
        runs = not filled.quotients and filled.terms == ((level, 1),) and level not in running
        if not runs or low < filled.constant or high >= filled.constant + write.sizes[level]:
            return None
        running.add(level)
    return shared


def _own_values(facts: Parting) -> Refusal | None:
    read = facts.start
    return (
        None if isinstance(read, int) else Refusal.of(read.statement.id, read.access, read=read.access.text)
    )


def _parts_in_turn(facts: Parting) -> Refusal | None:
    if not facts.mine or not facts.others:
        return None
    start = facts.start if isinstance(facts.start, int) else 0
    return _in_turn(facts.site.storage, facts.mine, facts.others, start, facts.site.dialect)


class UnshareStorage(Analysed[Parting]):
    """Give one array of a buffer a buffer of its own again.

    before:
        t f32 [8] heap -> t, e
        8 t[{0}] = x[{0}] * 2
        8 e[{0}] = exp(t[{0}])
        8 y[{0}] = e[{0}] + 1
    after: unshare_storage(t, array=e)
        t f32 [8] heap
        e f32 [8] heap
        8 t[{0}] = x[{0}] * 2
        8 e[{0}] = exp(t[{0}])
        8 y[{0}] = e[{0}] + 1
    """

    name = "unshare_storage"
    place = "buffer"
    parameters = (Parameter("array", str, "the array that leaves the buffer"),)
    requirements = (
        Requirement(
            "PD-T341",
            "the array has the buffer for itself",
            "{array} is the only array of {buffer}",
            "name a buffer that several arrays share",
            _not_alone,
            established_by=("share_storage",),
        ),
        Requirement(
            "PD-T342",
            "a value may pass from one array to the other",
            "{read} is not surely written through its own array before",
            "keep them together",
            _own_values,
            semantic=True,
            established_by=("stage_read", "inline_definition"),
        ),
        Requirement(
            "PD-T343",
            "both are in use at once",
            "{first} may touch a cell before {second} is done with it",
            "keep them together",
            _parts_in_turn,
            semantic=True,
            established_by=("reorder_statements", "fission_scope"),
        ),
    )
    undo = "share_storage, or drop the move from the trace"

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for array in buffer.arrays if len(buffer.arrays) > 1 else ():
                yield Move(self.name, buffer.name, (("array", array),))

    def analyse(self, site: Site) -> Parting:
        """:class:`MoveError` where the buffer holds no such array."""
        array: str = site.move["array"]
        if array not in site.storage.arrays:
            what = f"{site.move.text}: {site.storage.name} holds no array {array!r}"
            why = "`array` names one of the arrays that share the buffer"
            raise MoveError("PD-T002", what, why=why, hint=closest(array, list(site.storage.arrays)))
        uses = site.program.occurrences[site.storage.name]
        mine = [o for o in uses if o.access.array == array]
        return Parting(site, array, mine, [o for o in uses if o.access.array != array])

    def rewrite(self, facts: Parting, /) -> Rewritten:
        site, array = facts.site, facts.array
        old = site.storage
        rest = tuple([a for a in old.arrays if a != array])
        # A buffer may be named after one of its own arrays only.
        name = rest[0] if array == old.name else old.name
        kept = Buffer(name, old.dtype, old.dimensions, old.location, rest)
        new = Buffer(array, old.dtype, old.dimensions, old.location, (array,))
        buffers: list[Buffer] = []
        for buffer in site.program.buffers:
            buffers += [kept, new] if buffer is old else [buffer]
        return Rewritten(_stored(site.program, buffers), Unshared(old.name, kept.name, new.name))


MOVES = (ShareStorage(), UnshareStorage())
