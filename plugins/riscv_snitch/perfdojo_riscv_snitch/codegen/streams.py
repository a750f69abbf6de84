"""The streams of a program: for each buffer in a stream register, its mover's job and where the job starts.

A buffer of location ``ssr0``, ``ssr1`` or ``ssr2`` holds one value. Filled by a copy from memory, it is a
stream of reads: the copy is no instruction, the mover fetches its elements in the order in which the
program would. Emptied by a copy to memory, it is a stream of writes. The mover's *job* is as many of the
scopes around the copy as it can run over: the further out it starts, the less there is to set up.

A mover reads ahead of the program and writes behind it. So within a job, nothing may write a cell before
the stream reads it, and nothing may touch a cell after the stream writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from perfdojo_riscv_snitch.codegen import limits
from perfdojo_riscv_snitch.codegen.assembly import Instruction, Listing, Register
from perfdojo_riscv_snitch.codegen.limits import Refused
from perfdojo_riscv_snitch.codegen.pairs import DTYPE, LANES_OF, Pairs, PairValues
from perfdojo_riscv_snitch.codegen.tree import Work
from perfdojo_riscv_snitch.codegen.values import BYTES, Values
from perfdojo_sdk.core.dependence import may_meet, may_run_before
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.geometry import is_copy
from perfdojo_sdk.core.program import Occurrence, Path, Program, Statement
from perfdojo_sdk.core.storage import Buffer

MOVERS: Mapping[str, int] = {"ssr0": 0, "ssr1": 1, "ssr2": 2}

DIMENSIONS = 4
MOST_REPEATS = 16
MOST_BOUND = 1 << 14
WORD = 8


@dataclass(frozen=True)
class Dimension:
    """One loop of a mover: so many elements, so many bytes apart."""

    size: int
    stride: int


@dataclass(frozen=True)
class Stream:
    """One buffer in a stream register."""

    buffer: Buffer
    mover: int
    writes: bool
    memory: Access
    """The elements that the mover moves."""
    copy: Statement
    job: Path
    """Path of the scope that the mover runs over as a whole."""
    dimensions: tuple[Dimension, ...]
    """Innermost first."""
    repeat: int = 1
    """Number of times each element is read."""

    def start(self, program: Program) -> AffineExpr:
        """Cell of the job's first element, as a form of the scopes around the job."""
        outside = len(self.job) - 1
        form = program.buffer_of[self.memory.array].address(self.memory.subscripts)
        return form.substitute(lambda level: AffineExpr.level(level) if level < outside else AffineExpr())


def streams(program: Program, dialect: Dialect, pairs: Pairs) -> Mapping[str, Stream]:
    """Buffer -> its stream; :class:`Refused` for what the movers cannot do."""
    buffers = [b for b in program.buffers if b.location in MOVERS and program.occurrences[b.name]]
    found: dict[str, Stream] = {}
    for buffer in buffers:
        new = _stream(program, buffer, dialect, pairs)
        for other in found.values():
            if other.mover == new.mover and _overlap(other.job, new.job):
                at = program.occurrences[buffer.name][0].statement.id
                words = {"other": other.buffer.name, "location": buffer.location}
                arrays = (*buffer.arrays, *other.buffer.arrays)
                raise Refused(limits.MOVERS, at, arrays=arrays, buffer=buffer.name, **words)
        found[buffer.name] = new
    return found


def _overlap(one: Path, other: Path) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _stream(program: Program, buffer: Buffer, dialect: Dialect, pairs: Pairs) -> Stream:
    occurrences = program.occurrences[buffer.name]
    first = occurrences[0].statement.id
    if buffer.cells != (LANES_OF[buffer.dtype] if buffer.name in pairs.registers else 1):
        words: dict[str, Any] = {"cells": buffer.cells, "location": buffer.location}
        raise Refused(limits.ONE_VALUE, first, arrays=buffer.arrays, buffer=buffer.name, **words)
    for o in occurrences:
        if o.statement.guard:
            raise Refused(
                limits.CONDITION,
                o.statement.id,
                "if",
                access=o.access,
                statement=o.statement.text,
                buffer=buffer.name,
            )
    writes = [_as_one(o, dialect) for o in occurrences if o.writes]
    reads = [_as_one(o, dialect) for o in occurrences if not o.writes]
    if len(writes) == 1 and _is_fetch(program, writes[0].statement):
        copy, is_write = writes[0], False
        memory = copy.statement.reads[0]
        repeat = _repeats(program, buffer, copy, reads, pairs)
    elif len(writes) == 1 and len(reads) == 1 and _is_store(program, reads[0].statement):
        copy, is_write, repeat = reads[0], True, 1
        memory = copy.statement.target
        _check_written_once(buffer, writes[0], copy)
    else:
        counts: dict[str, Any] = {"writes": len(writes), "reads": len(reads)}
        raise Refused(limits.ONE_COPY, first, arrays=buffer.arrays, buffer=buffer.name, **counts)
    outside, dimensions = _job(program, buffer, copy, memory, is_write, dialect, pairs)
    job = copy.path[: outside + 1]
    mover = MOVERS[buffer.location]
    return Stream(buffer, mover, is_write, memory, copy.statement, job, dimensions, repeat)


def _as_one(o: Occurrence, dialect: Dialect) -> Occurrence:
    """The access, moved out of a lockstep scope to the place of the scope: all lanes are one instruction."""
    if not o.above or not dialect.is_lockstep(o.above[-1].suffix):
        return o
    return o._replace(path=o.path[:-1], above=o.above[:-1], sizes=o.sizes[:-1])


def _is_fetch(program: Program, statement: Statement) -> bool:
    return is_copy(statement) and _in_memory(program, statement.reads[0])


def _is_store(program: Program, statement: Statement) -> bool:
    return is_copy(statement) and _in_memory(program, statement.target)


def _in_memory(program: Program, access: Access) -> bool:
    return program.buffer_of[access.array].location not in (*MOVERS, "reg")


# -- keeping step ----------------------------------------------------------------------------------


def _check_written_once(buffer: Buffer, write: Occurrence, copy: Occurrence) -> None:
    """Raise unless each computed value is copied out once, before the next one."""
    if write.statement.accumulate:
        raise _out_of_step(buffer, write, "is accumulated into")
    if write.path[:-1] != copy.path[:-1] or write.path >= copy.path:
        raise _out_of_step(buffer, write, "is not copied out right where it is computed")


def _out_of_step(buffer: Buffer, o: Occurrence, what: str) -> Refused:
    return Refused(limits.MATCHED, o.statement.id, o.access, buffer=buffer.name, what=what)


def _repeats(
    program: Program, buffer: Buffer, copy: Occurrence, reads: Sequence[Occurrence], pairs: Pairs
) -> int:
    """The number of times each element is read. Raises unless it is constant, after its copy and before the
    next."""
    inside, count = copy.path[:-1], 0
    statements: dict[Path, Occurrence] = {o.path: o for o in reads}
    for path, o in statements.items():
        if path[: len(inside)] != inside or path < copy.path:
            raise _out_of_step(buffer, o, "is read where the next element may be there already")
        around = o.sizes[len(inside) :]
        count += _pops(program, buffer, o.statement, pairs) * prod(around)
    if not 1 <= count <= MOST_REPEATS:
        raise _out_of_step(buffer, copy, f"is read {count} times for each element")
    return count


class Nothing:
    """A stand-in for memory, to count the instructions between loads and stores."""

    def __init__(self) -> None:
        self.registers: dict[str, Register] = {}

    def load(self, access: Access, dtype: str, work: Work, into: Register | None) -> Register:
        return self.registers.setdefault(access.text, Register("f"))

    def pair(self, access: Access, work: Work, into: Register | None) -> Register:
        return self.load(access, DTYPE, work, into)

    def constant(self, bits: int, dtype: str) -> Register:
        return Register("f")

    def whole(self, index: AffineExpr, work: Work) -> Register:
        return Register("x")


def _pops(program: Program, buffer: Buffer, statement: Statement, pairs: Pairs) -> int:
    """Instructions of a statement that read the buffer; each of them takes an element."""
    listing, memory, target = Listing("x"), Nothing(), Register("f")
    single = Values(listing, memory, pairs.never_nan)
    paired = buffer.name in pairs.registers
    work = pairs.in_place(statement)
    values = PairValues(pairs, memory, single) if paired else single
    if paired and (why := pairs.obstacle(work)):
        words = {"buffer": buffer.name, "statement": statement.text}
        raise Refused(limits.LANES, statement.id, what=why, **words)
    if statement.accumulate:
        values.accumulate(statement.accumulate, statement.value, target, work)
        result = target
    else:
        result = values.number(statement.value, work)
    own = {r for text, r in memory.registers.items() if text.partition("[")[0] in buffer.arrays}
    count = sum(1 for l in listing.lines if isinstance(l, Instruction) and own.intersection(l.reads))
    words = {"statement": statement.text, "buffer": buffer.name}
    if any(not isinstance(l, Instruction) for l in listing.lines):
        raise Refused(limits.POPS, statement.id, what="under a branch", **words)
    count += result in own  # a plain copy, whose one instruction stores or moves the register
    if count != 1:
        raise Refused(limits.POPS, statement.id, what=f"in {count} instructions", **words)
    return count


# -- addresses -------------------------------------------------------------------------------------


def _job(
    program: Program,
    buffer: Buffer,
    copy: Occurrence,
    memory: Access,
    writes: bool,
    dialect: Dialect,
    pairs: Pairs,
) -> tuple[int, tuple[Dimension, ...]]:
    """The smallest possible number of scopes around the job, and the loops of the job."""
    scopes = copy.above
    if not scopes:
        words = {"access": memory.text, "what": "no scope stands around it, there is one element"}
        raise Refused(limits.PATTERN, copy.statement.id, memory, **words)
    refused: Refused | None = None
    for outside in range(len(scopes)):
        try:
            dimensions = _dimensions(program, copy, memory, outside, buffer.name in pairs.registers)
            _check_order(program, buffer, copy, memory, writes, outside, dialect)
            return outside, dimensions
        except Refused as reason:
            refused = reason
    assert refused is not None
    raise refused


def _dimensions(
    program: Program, copy: Occurrence, memory: Access, outside: int, paired: bool
) -> tuple[Dimension, ...]:
    def wrong(what: str) -> Refused:
        return Refused(limits.PATTERN, copy.statement.id, memory, what=what)

    source = program.buffer_of[memory.array]
    size, scopes = BYTES.get(source.dtype, 0), copy.above
    if size != WORD and not paired:
        raise wrong(f"elements of {source.dtype} are no words of {WORD} bytes")
    form = source.address(memory.subscripts)
    merged: list[Dimension] = []
    for level in reversed(range(outside, len(scopes))):
        found = _loops(form, level, scopes[level].size)
        if found is None:
            raise wrong(f"the address is no affine form of {{{level}}}")
        for here in (Dimension(each.size, size * each.stride) for each in found if each.size > 1):
            if merged and here.stride == merged[-1].size * merged[-1].stride:
                last = merged.pop()
                here = Dimension(last.size * here.size, last.stride)
            merged.append(here)
    merged = merged or [Dimension(1, 0)]
    if any(q.dividend.highest < outside for q, _ in form.divisions):
        raise wrong("the address is no affine form of the iterators")
    outer = [size * form.coefficients.get(level, 0) for level in range(outside)]
    if any(step % WORD for step in (size * form.constant, *outer, *(d.stride for d in merged))):
        raise wrong(f"it is not at a multiple of {WORD} bytes")
    if len(merged) > DIMENSIONS:
        raise wrong(f"it needs {len(merged)} nested loops")
    if any(d.size > MOST_BOUND for d in merged):
        raise wrong(f"a loop of a mover has at most {MOST_BOUND} elements")
    return tuple(merged)


def _loops(form: AffineExpr, level: int, size: int) -> tuple[Dimension, ...] | None:
    """The loops of a mover, innermost first, that stand for a scope at ``level``; strides in elements.

    Two where the scope was made of two: ``{level}//n`` and ``{level}%n`` are their iterators.
    """
    plain = form.coefficients.get(level, 0)
    mine = [(q, c) for q, c in form.divisions if level in q.dividend.levels]
    if not mine:
        return (Dimension(size, plain),)
    (inner, *others) = {q.divisor for q, _ in mine}
    if others or size % inner or any(q.dividend != AffineExpr.level(level) for q, _ in mine):
        return None
    rest = sum(c for q, c in mine if q.remainder)
    whole = sum(c for q, c in mine if not q.remainder)
    return Dimension(inner, plain + rest), Dimension(size // inner, inner * plain + whole)


# -- order -----------------------------------------------------------------------------------------


def _check_order(
    program: Program,
    buffer: Buffer,
    copy: Occurrence,
    memory: Access,
    writes: bool,
    outside: int,
    dialect: Dialect,
) -> None:
    """Raise :class:`Refused` when the mover, which reads ahead and writes behind, would overtake another
    access."""
    source = program.buffer_of[memory.array]
    job = copy.path[: outside + 1]
    # With its lanes, over which its subscripts run.
    (whole,) = [o for o in program.occurrences[buffer.name] if o.statement is copy.statement]
    mine = whole._replace(access=memory, writes=writes)
    for o in _inside(program, source, job):
        if o.statement is copy.statement:
            continue
        if not writes:
            clash = o.writes and may_run_before(source, o, mine, outside, dialect)
        elif _is_stream(program, o):
            clash = may_run_before(source, mine, o, outside, dialect)
        else:
            clash = _meets(source, mine, o, outside)
        if clash:
            words = {"first": o.access.text, "second": memory.text, "buffer": buffer.name}
            raise Refused(limits.ORDER, o.statement.id, o.access, **words)


def _inside(program: Program, source: Buffer, job: Path) -> Iterator[Occurrence]:
    return (o for o in program.occurrences[source.name] if o.path[: len(job)] == job)


def _is_stream(program: Program, o: Occurrence) -> bool:
    """True if the access belongs to another stream's copy from memory."""
    target = program.buffer_of[o.statement.target.array]
    return not o.writes and target.location in MOVERS


def _meets(source: Buffer, one: Occurrence, other: Occurrence, outside: int) -> bool:
    """True if the two accesses may touch the same cell within one run of the job."""
    shared = 0
    while shared < min(len(one.path), len(other.path)) - 1 and one.path[shared] == other.path[shared]:
        shared += 1
    directions = "=" * outside + "*" * (shared - outside)
    return may_meet(source, one.access, one.sizes, other.access, other.sizes, directions)
