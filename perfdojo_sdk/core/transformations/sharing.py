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
from perfdojo_sdk.core.made import Rewritten, Shared, Unshared
from perfdojo_sdk.core.program import Occurrence, Program
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import (
    Move,
    Parameter,
    Refusal,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.storage import temporaries, words_only
from perfdojo_sdk.core.validate import common_depth, location_violations

Occurrences = Sequence[Occurrence]

_IN_PROGRAM_ORDER = attrgetter("path", "writes")


def _in_turn(site: Site, one: Occurrences, other: Occurrences, start: int) -> Refusal | None:
    """On every cell, all of one's uses come before all of the other's, or the other way round.

    In equal iterations of the levels before ``start``.
    """
    found: Refusal | None = None
    for first, second in ((one, other), (other, one)):
        for a, b in product(first, second):
            if (a.writes or b.writes) and may_run_before(site.storage, b, a, start, site.dialect):
                words = {"first": b.access.text, "second": a.access.text}
                found = Refusal.of(a.statement.id, a.access.text, **words)
                break
        else:
            return None
    return found


# -- share_storage ---------------------------------------------------------------------------------


def _other(site: Site) -> Buffer:
    buffer = site.program.buffer(site.move["other"])
    if buffer is None:
        what = f"{site.move.text}: the program has no buffer {site.move['other']!r}"
        known = [b.name for b in temporaries(site.program)]
        why = "`other` names the buffer whose storage is used, too"
        raise MoveError("PD-T002", what, why=why, hint=closest(site.move["other"], known))
    return buffer


def _both(site: Site) -> tuple[Occurrences, Occurrences]:
    occurrences = site.program.occurrences
    return occurrences[site.storage.name], occurrences[_other(site).name]


def _two_temporaries(site: Site) -> Refusal | None:
    for buffer in (site.storage, _other(site)):
        if site.program.interface.intersection(buffer.arrays):
            return Refusal.of(words_only(site), buffer=buffer.name, fault="part of the kernel's interface")
    if _other(site) is site.storage:
        return Refusal.of(words_only(site), buffer=site.storage.name, fault="the same buffer")
    return None


def _same_shape(site: Site) -> Refusal | None:
    one, other = site.storage, _other(site)
    if (one.dtype, one.dimensions) == (other.dtype, other.dimensions):
        return None
    return Refusal.of(words_only(site), first=one.text, second=other.text)


def _uses_in_turn(site: Site) -> Refusal | None:
    one, other = _both(site)
    if not one or not other:
        return None
    together = (*one, *other)
    depth = home_depth(together, site.dialect)
    around = one[0].above[:depth]
    # Iterations of a parallel scope around both have copies of their own, before and after.
    apart = max((l + 1 for l in range(depth) if site.dialect.is_parallel(around[l].suffix)), default=0)
    leaks = (
        leaking_level(buffer, occurrences, depth, apart)
        for buffer, occurrences in ((site.storage, one), (_other(site), other))
    )
    start = min((level for level in leaks if level is not None), default=depth)
    return _in_turn(site, one, other, start)


def _copies_stay_apart(site: Site) -> Refusal | None:
    """What only one of them had a copy of for each iteration becomes one for all iterations."""
    one, other = _both(site)
    if not one or not other:
        return None
    outside = common_depth([o.path for o in (*one, *other)])
    for occurrences in (one, other):
        around = occurrences[0].above
        for level in range(outside, common_depth([o.path for o in occurrences])):
            if not site.dialect.is_parallel(around[level].suffix):
                continue
            for a, b in product(occurrences, occurrences):
                if (a.writes or b.writes) and may_meet(
                    site.storage, a.access, a.sizes, b.access, b.sizes, "=" * level + "<"
                ):
                    words = {"head": around[level].head, "first": a.access.text, "second": b.access.text}
                    return Refusal.of(b.statement.id, b.access.text, **words)
    return None


def _merged(site: Site) -> Buffer:
    one, other = site.storage, _other(site)
    return Buffer(one.name, one.dtype, one.dimensions, one.location, (*one.arrays, *other.arrays))


def _stored(program: Program, buffers: Sequence[Buffer]) -> Program:
    """The same tree on other buffers."""
    return program.with_buffers(tuple(buffers))


def _location_holds_both(site: Site) -> Refusal | None:
    program, buffer, (one, other) = site.program, site.once(_merged), _both(site)
    occurrences = sorted((*one, *other), key=_IN_PROGRAM_ORDER)
    found = location_violations(program, buffer, occurrences, site.dialect)
    violation = next(found, None)
    if violation is None:
        return None
    return Refusal.of(violation.node or words_only(site), "", what=violation.what)


class ShareStorage(Transformation):
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
        ),
        Requirement(
            "PD-T332",
            "the buffers differ in dtype or dimensions",
            "{first} and {second} do not have the same cells",
            "bring them to one shape with reuse_dims, reorder_dims or pad_dim",
            _same_shape,
        ),
        Requirement(
            "PD-T333",
            "both are in use at once",
            "{first} may touch a cell before {second} is done with it",
            "keep them apart, or join and reorder the scopes that use them",
            _uses_in_turn,
            semantic=True,
        ),
        Requirement(
            "PD-T334",
            "what each parallel iteration owns would become shared",
            "in a buffer that is also used outside of {head}, its iterations would use one cell: "
            "{first}, {second}",
            "keep them apart, or undo the contraction",
            _copies_stay_apart,
            semantic=True,
        ),
        Requirement(
            "PD-T335",
            "the location does not allow this use",
            "{what}",
            "set another location first",
            _location_holds_both,
        ),
    )
    undo = "unshare_storage for each array, or drop the move from the trace"

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        own = list(temporaries(program))
        for k, one in enumerate(own):
            for other in own[k + 1 :]:
                if (one.dtype, one.dimensions) == (other.dtype, other.dimensions):
                    yield Move(self.name, one.name, (("other", other.name),))

    def rewrite(self, site: Site) -> Rewritten:
        one, other, merged = site.storage, _other(site), site.once(_merged)
        buffers = [merged if b is one else b for b in site.program.buffers if b is not other]
        return Rewritten(_stored(site.program, buffers), Shared(one.name, other.name))


# -- unshare_storage -------------------------------------------------------------------------------


def _array(site: Site) -> str:
    name: str = site.move["array"]
    if name not in site.storage.arrays:
        what = f"{site.move.text}: {site.storage.name} holds no array {name!r}"
        why = "`array` names one of the arrays that share the buffer"
        raise MoveError("PD-T002", what, why=why, hint=closest(name, list(site.storage.arrays)))
    return name


def _parts(site: Site) -> tuple[list[Occurrence], list[Occurrence]]:
    """The uses of the array, and those of the others in its buffer."""
    array, occurrences = _array(site), site.program.occurrences[site.storage.name]
    mine = [o for o in occurrences if o.access.array == array]
    return mine, [o for o in occurrences if o.access.array != array]


def _not_alone(site: Site) -> Refusal | None:
    if len(site.storage.arrays) > 1:
        return None
    return Refusal.of(words_only(site), buffer=site.storage.name, array=_array(site))


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


def _own_values(site: Site) -> Refusal | None:
    """Each part reads what it wrote itself, in the same iteration of ``start`` scopes around all."""
    buffer, parts = site.storage, _parts(site)
    start = common_depth([o.path for o in site.program.occurrences[buffer.name]] or [()])
    for part in parts:
        for read in part:
            if read.writes and not read.statement.accumulate:
                continue
            depths = [d for w in part if (d := covered_depth(buffer, w, read)) is not None]
            if not depths:
                return Refusal.of(read.statement.id, read.access.text, read=read.access.text)
            start = min(start, max(depths))
    site.scratch["start"] = start
    return None


def _parts_in_turn(site: Site) -> Refusal | None:
    mine, others = _parts(site)
    if not mine or not others:
        return None
    return _in_turn(site, mine, others, site.scratch.get("start", 0))


class UnshareStorage(Transformation):
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
        ),
        Requirement(
            "PD-T342",
            "a value may pass from one array to the other",
            "{read} is not surely written through its own array before",
            "keep them together",
            _own_values,
            semantic=True,
        ),
        Requirement(
            "PD-T343",
            "both are in use at once",
            "{first} may touch a cell before {second} is done with it",
            "keep them together",
            _parts_in_turn,
            semantic=True,
        ),
    )
    undo = "share_storage, or drop the move from the trace"

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for array in buffer.arrays if len(buffer.arrays) > 1 else ():
                yield Move(self.name, buffer.name, (("array", array),))

    def rewrite(self, site: Site) -> Rewritten:
        old, array = site.storage, _array(site)
        rest = tuple([a for a in old.arrays if a != array])
        # A buffer may be named after one of its own arrays only.
        name = rest[0] if array == old.name else old.name
        kept = Buffer(name, old.dtype, old.dimensions, old.location, rest)
        new = Buffer(array, old.dtype, old.dimensions, old.location, (array,))
        buffers: list[Buffer] = []
        for buffer in site.program.buffers:
            buffers += [kept, new] if buffer is old else [buffer]
        return Rewritten(_stored(site.program, buffers), Unshared(old.name, kept.name, new.name))
