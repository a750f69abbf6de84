"""The body of a kernel: loops, statements, streams and repeated scopes as instructions.

Loops that the sequencer repeats (``:frep``) hold FP instructions only. A copy to or from a stream register
is no instruction: the mover does it, from where its job begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perfdojo_riscv_snitch.codegen import limits
from perfdojo_riscv_snitch.codegen.assembly import RESULT, Instruction, Line, Listing, Mark, Register
from perfdojo_riscv_snitch.codegen.inline import written_out
from perfdojo_riscv_snitch.codegen.integers import shared
from perfdojo_riscv_snitch.codegen.limits import Refused
from perfdojo_riscv_snitch.codegen.pairs import LANES_OF, PAIR, PairValues
from perfdojo_riscv_snitch.codegen.peel import SEQUENCER, entries, frep, is_fp, merged
from perfdojo_riscv_snitch.codegen.plan import REPEATED, REPEATS, STAGGERED, Plan
from perfdojo_riscv_snitch.codegen.pointers import REACH, Pointers
from perfdojo_riscv_snitch.codegen.schedule import hoisted, scheduled
from perfdojo_riscv_snitch.codegen.setup import SetUp
from perfdojo_riscv_snitch.codegen.stagger import MOST, folded, rolled
from perfdojo_riscv_snitch.codegen.streams import MOVERS, Stream
from perfdojo_riscv_snitch.codegen.tree import Address, Edge, Loop, Part, Point, Work, address, points
from perfdojo_riscv_snitch.codegen.values import BYTES, FORMATS, Values
from perfdojo_riscv_snitch.codegen.written import WrittenOut, side_by_side
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.geometry import index_values
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.storage import Buffer

MOST_TIMES = 1 << 16
NESTED = 2


class Body:
    """Emits parts of one program into a listing. ``bases``: where each buffer in memory starts."""

    def __init__(self, plan: Plan, parts: list[Part], listing: Listing) -> None:
        """``parts``: what is to be emitted, all of the program or a part of it."""
        self.plan, self.parts, self.listing = plan, parts, listing
        self.program, self.pairs, self.streams, self.jobs = plan.program, plan.pairs, plan.streams, plan.jobs
        self.moved, self.in_memory = plan.moved, plan.in_memory
        self.values = Values(listing, self, plan.never_nan)
        self.pair_values = PairValues(self.pairs, self, self.values)
        self.bases: dict[str, Register] = {}
        self.setup = SetUp(self.program, self.streams, listing)
        self.cells: dict[tuple[str, int], Register] = {}
        """Buffer and cell -> its register, for buffers that live in registers."""
        self.constants: dict[tuple[int, str], Register] = {}
        self.iterators: dict[Loop, Register] = {}
        self.repeating: list[Loop] = []
        for point in points(self.parts):
            for level in self._counted_levels(point):
                if isinstance(loop := point.iterators[level], Loop):
                    loop.counted = True
        self.pointers = Pointers(self.parts, self._addresses())
        self.written = WrittenOut(self)

    # -- what the code needs -------------------------------------------------------------------------

    def _counted_levels(self, point: Point) -> Iterator[int]:
        """Levels whose iterators the code needs as numbers."""
        if not isinstance(point, Work):
            return
        statement = point.statement
        for form in statement.guard:
            yield from point.fold(form).levels
        for value in index_values(statement.value):
            yield from point.fold(value.index).levels
        for access in (statement.target, *statement.reads):
            form = self.pairs.cell(access)
            if form.quotients and not self.moved(statement):
                folded = point.fold(form)
                yield from folded.levels if folded.quotients else ()

    def _addresses(self) -> Iterator[Address]:
        for point in points(self.parts):
            if isinstance(point, Edge):
                yield from (self._job_start(stream, point) for stream in self._starting(point))
            elif not self.moved(point.statement):
                for access in (*point.statement.reads, point.statement.target):
                    if self.in_memory(access):
                        places = [self._address(access, each) for each in self._apart(access, point)]
                        yield from (found for found in places if found)

    def _apart(self, access: Access, work: Work) -> Iterable[Work]:
        """The work itself, or its lanes where the access is not that of a pair."""
        alone = work.lane in access.levels and self.pairs.joins(access, work)
        return work.lanes() if alone else (work,)

    def _starting(self, edge: Edge) -> list[Stream]:
        return self.jobs[edge.path] if edge.begins else []

    def _job_start(self, stream: Stream, edge: Edge) -> Address:
        source = self.program.buffer_of[stream.memory.array]
        found = address(edge, source, stream.start(self.program), BYTES[source.dtype])
        assert found is not None, "a stream's addresses are affine"
        return found

    def _address(self, access: Access, point: Point) -> Address | None:
        buffer = self.program.buffer_of[access.array]
        return address(point, buffer, self.pairs.cell(access), BYTES[buffer.dtype])

    # -- the tree ----------------------------------------------------------------------------------

    def emit(self) -> int:
        """Emit the whole body, with streams enabled from its start. Returns the line where constants belong:
        before streams are enabled, since that delays the following code, and the first sum would wait."""
        if self.streaming:
            self.setup.configure()
        constants, first = len(self.listing.lines), 0
        if self.streaming:
            while first < len(self.parts) and self._needs_no_stream(self.parts[first]):
                first += 1
            self.put(self.parts[:first])
            self.listing.put("csrsi 0x7c0, 1 # streams on")
        self.put(self.parts[first:])
        return constants

    @property
    def streaming(self) -> bool:
        """True if the kernel uses stream registers."""
        return bool(self.streams or self.written.jobs)

    def _needs_no_stream(self, part: Part) -> bool:
        """True if a part may precede the switch that enables streams: it starts a job, or uses no stream
        register."""
        if not isinstance(part, Work):
            return isinstance(part, Edge)
        accesses = (part.statement.target, *part.statement.reads)
        return all(self.program.buffer_of[a.array].location not in MOVERS for a in accesses)

    def finished(self, lines: Sequence[Line]) -> list[Line]:
        """The whole listing with optimisations that use streams and constants, and with its end."""
        self.listing.lines = rolled(self.merged(lines))
        self.listing.put("li {0}, 0", (RESULT,))
        if self.streaming:
            self.setup.end()
        return shared(self.listing.lines)

    def merged(self, lines: Sequence[Line]) -> list[Line]:
        """The lines with fewer register copies around repeated bodies."""
        zeros = [register for (bits, dtype), register in self.constants.items() if dtype == PAIR and not bits]
        direct = [r for name, r in self.setup.registers.items() if self.setup.undisturbed(name)]
        return merged(lines, zeros, () if self.written.jobs else direct)

    def put(self, parts: list[Part]) -> None:
        """Emit these parts in their order."""
        done = 0
        for k, part in enumerate(parts):
            if k < done:
                continue
            if isinstance(part, Work):
                done = k + self._works(parts[k:])
            elif isinstance(part, Edge):
                self._edge(part)
            elif part.suffix in REPEATS:
                self.repeat(part)
            else:
                self._loop(part)

    def _loop(self, loop: Loop) -> None:
        if self.repeating:
            outer = self.repeating[-1]
            words = {"head": str(loop.size), "outer": f"{outer.size}:{outer.suffix}"}
            raise Refused(limits.NESTING, loop.id, what="it is a loop of the integer core", **words)
        listing, at = self.listing, len(self.listing.lines)
        self.written.begin(loop)
        self.pointers.start(loop, self.bases, listing)
        guide = self.pointers.guide(loop)
        if loop.counted:
            count = self.iterators[loop] = listing.number(0)
            end: Register | None = listing.number(loop.size)
        elif guide:
            count = guide.register
            end = listing.plus(count, loop.size * guide.strides[loop], into=Register("x"))
        else:
            count, end = listing.number(loop.size), None
        with listing.loop() as label:
            self.put(loop.body)
            self.pointers.step(loop, listing)
            if loop.counted or end is None:
                listing.plus(count, 1 if loop.counted else -1, into=count)
            if end is None:
                listing.put(f"bnez {{0}}, {label}", (), (count,))
            else:
                listing.put(f"bne {{0}}, {{1}}, {label}", (), (count, end))
        self.written.end(loop, at)

    def _work(self, work: Work) -> None:
        forms = [work.fold(form) for form in work.statement.guard]
        if any(form.constant < 0 for form in forms if not form.levels):
            return
        self.listing.comment(work.statement.text)
        if self.moved(work.statement):
            return
        if self.repeating:
            self.plan.check_repeatable(work.statement)
        start = len(self.listing.lines)
        open_forms = [form for form in forms if form.levels]
        label = self.listing.new_label() if open_forms else ""
        for form in open_forms:
            self.listing.put(f"bltz {{0}}, {label}", (), (self.whole(form, work),))
        if self.repeating or not written_out(work.statement.value):
            self.statement(work)
        else:
            self.written.together([work])
        if label:
            self.listing.label(label)
        if self.repeating:
            self._check_repeated(work.statement, self.listing.lines[start:])

    def _works(self, parts: Sequence[Part]) -> int:
        """Emit the work at the start of ``parts``, with the work that runs in step with it; returns the
        number of emitted parts."""
        (first, *_) = parts
        assert isinstance(first, Work)
        found = side_by_side(self, parts)
        if self.repeating or len(found) == 1:
            self._work(first)
            return 1
        for work in found:
            self.listing.comment(work.statement.text)
        self.written.together(found)
        return 1 + max(k for k, part in enumerate(parts) if part is found[-1])

    def statement(self, work: Work) -> None:
        if work.lane is not None:
            self._pair_statement(work)
            return
        statement = work.statement
        home = self._cell(statement.target, work)
        dtype = statement.dtype
        if statement.accumulate is None:
            value = self.values.number(statement.value, work, into=home)
        else:
            old = home or self.load(statement.target, dtype, work, Register("f"))
            value = self.values.accumulate(statement.accumulate, statement.value, old, work)
        if home is None:
            pointer, offset = self._place(statement.target, work)
            self.listing.put(f"{_store(dtype)} {{0}}, {offset}({{1}})", (), (value, pointer))

    def _pair_statement(self, work: Work) -> None:
        statement, target = work.statement, work.statement.target
        home, store = self._cell(target, work), "fsd"
        if statement.accumulate is None:
            value = self.pair_values.number(statement.value, work, into=home)
        elif self.pairs.adds_lanes(work):
            store = _store(statement.dtype)
            old = home or self.load(target, statement.dtype, work, Register("f"))
            value = self.pair_values.accumulate(statement.accumulate, statement.value, old, work)
        else:
            old = home or self.pair(target, work, Register("f"))
            value = self.pair_values.accumulate(statement.accumulate, statement.value, old, work)
        if home is None:
            pointer, offset = self._place(target, work)
            self.listing.put(f"{store} {{0}}, {offset}({{1}})", (), (value, pointer))

    # -- repeated scopes -----------------------------------------------------------------------------

    def repeat(self, loop: Loop) -> None:
        """A scope that the sequencer repeats."""
        head = f"{loop.size}:{loop.suffix}"
        if loop.size > MOST_TIMES:
            raise Refused(limits.TIMES, loop.id, head, head=head, most=MOST_TIMES)
        if len(self.repeating) == NESTED:
            words = {"head": head, "outer": f"{self.repeating[-1].size}:{self.repeating[-1].suffix}"}
            raise Refused(limits.NESTING, loop.id, head, what="that is already nested", **words)
        inner = [part for part in loop.body if isinstance(part, Loop) and part.suffix in REPEATS]
        if len(inner) > 1:
            words = {"head": f"{inner[1].size}:{inner[1].suffix}", "outer": head}
            raise Refused(limits.NESTING, inner[1].id, what="a second one cannot follow the first", **words)
        count = self.listing.number(loop.size - 1)
        before, self.listing.lines = self.listing.lines, []
        self.repeating.append(loop)
        self.put(loop.body)
        self.repeating.pop()
        body, self.listing.lines = self.listing.lines, before
        copies = self._copies(loop, inner, body) if loop.suffix == STAGGERED else 1
        if loop.suffix == REPEATED and not inner and not self.repeating:
            same, body = hoisted(body)
            self.listing.lines += same
            body = scheduled(body)
        length = entries(body) // copies
        if not 1 <= length <= SEQUENCER:
            raise Refused(limits.LENGTH, loop.id, head, count=length, most=SEQUENCER)
        if inner and length == _inner_length(body):
            words = {"head": f"{inner[0].size}:{inner[0].suffix}", "outer": head}
            what = "it is all that repeats there, and the sequencer counts only one of the two"
            raise Refused(limits.NESTING, inner[0].id, what=what, **words)
        # The integer core reads the counts of inner repetitions once, before the outer repetition begins.
        begins = Mark(begins_loop=True, repeats=loop.id, times=loop.size, copies=copies)
        self.listing.lines += [line for line in body if _is_number(line)]
        self.listing.lines += [frep(count, length), begins]
        self.listing.lines += [line for line in body if not _is_number(line)]
        self.listing.lines.append(Mark(ends_loop=True))

    def _copies(self, loop: Loop, inner: Sequence[Loop], body: Sequence[Line]) -> int:
        """The number of copies of one instruction sequence in the body of a staggered repetition."""
        head = f"{loop.size}:{loop.suffix}"
        if inner:
            what = "it holds another repeated scope, and registers go on in the innermost one only"
            raise Refused(limits.STAGGER, loop.id, head, what=what)
        found = folded([line for line in body if isinstance(line, Instruction)])
        if found is None:
            raise Refused(limits.STAGGER, loop.id, head, what=f"its body is not 2 to {MOST} copies of one")
        if loop.size * found.copies > MOST_TIMES:
            words = {"head": f"{found.copies} copies in {head}"}
            raise Refused(limits.TIMES, loop.id, head, most=MOST_TIMES, **words)
        return found.copies

    def _check_repeated(self, statement: Statement, lines: list[Line]) -> None:
        for line in lines:
            if isinstance(line, Mark) or not is_fp(line):
                what = "a branch" if isinstance(line, Mark) else line.text.partition(" ")[0]
                words = {"statement": statement.text, "instruction": what}
                raise Refused(limits.INTEGER, statement.id, **words)

    # -- streams -----------------------------------------------------------------------------------

    def _edge(self, edge: Edge) -> None:
        for stream in self.jobs[edge.path]:
            if self.repeating:
                what = "the start of a stream in each repetition"
                words = {"statement": stream.copy.text, "instruction": what}
                raise Refused(limits.INTEGER, stream.copy.id, **words)
            if edge.begins:
                self.listing.comment(f"{stream.buffer.location}: {stream.memory.text}")
                if not stream.writes and self._stored(self.program.buffer_of[stream.memory.array]):
                    self.listing.put("fence")
                self.setup.prepare(stream)
                pointer, offset = self._reach(self._job_start(stream, edge))
                self.setup.start(stream, self.listing.plus(pointer, offset))
            else:
                self.setup.finish(stream)

    def _stored(self, buffer: Buffer) -> bool:
        """True if a store instruction, not a mover, writes to the buffer."""
        occurrences = self.program.occurrences[buffer.name]
        return any(o.writes and not self.moved(o.statement) for o in occurrences)

    # -- Memory, for the expressions -----------------------------------------------------------------

    def load(self, access: Access, dtype: str, work: Work, into: Register | None) -> Register:
        cell = self._cell(access, work)
        if cell is None and (into is None or not into.fixed):
            pointer, offset = self._place(access, work)
            return self.listing.compute("f", f"{_load(dtype)} {{0}}, {offset}({{1}})", pointer, into=into)
        if cell is None:  # only the FPU's own results go into a stream
            cell = self.load(access, dtype, work, None)
        if into in (None, cell):
            return cell
        return self.listing.compute("f", f"fmv.{FORMATS[dtype]} {{0}}, {{1}}", cell, into=into)

    def pair(self, access: Access, work: Work, into: Register | None) -> Register:
        cell = self._cell(access, work)
        if cell is None and (into is None or not into.fixed):
            pointer, offset = self._place(access, work)
            return self.listing.compute("f", f"fld {{0}}, {offset}({{1}})", pointer, into=into)
        return self.pair_values.copied(self.pair(access, work, None) if cell is None else cell, into)

    def constant(self, bits: int, dtype: str) -> Register:
        return self.constants.setdefault((bits, dtype), Register("f"))

    def whole(self, index: AffineExpr, work: Work) -> Register:
        """A form of the iterators as an integer of 32 bits."""
        listing = self.listing
        form = work.fold(index)
        total: Register | None = None
        for level, coefficient in form.terms:
            if self.repeating:
                words = {"statement": work.statement.text, "instruction": "the value of an iterator"}
                raise Refused(limits.INTEGER, work.statement.id, **words)
            term = self._scaled(self.iterators[work.loop(level)], coefficient)
            total = term if total is None else listing.compute("x", "add {0}, {1}, {2}", total, term)
        for quotient, coefficient in form.divisions:
            dividend = self.whole(quotient.dividend, work)
            name = "rem" if quotient.remainder else "div"
            by = listing.number(quotient.divisor)
            found = listing.compute("x", f"{name} {{0}}, {{1}}, {{2}}", dividend, by)
            term = self._scaled(found, coefficient)
            total = term if total is None else listing.compute("x", "add {0}, {1}, {2}", total, term)
        if total is None:
            return listing.number(form.constant)
        return listing.plus(total, form.constant)

    def _scaled(self, register: Register, factor: int) -> Register:
        if factor == 1:
            return register
        if factor > 0 and factor & (factor - 1) == 0:
            return self.listing.compute("x", f"slli {{0}}, {{1}}, {factor.bit_length() - 1}", register)
        return self.listing.compute("x", "mul {0}, {1}, {2}", register, self.listing.number(factor))

    def _cell(self, access: Access, work: Work) -> Register | None:
        """The register of a cell or pair that lives in one, or passes through a stream register."""
        buffer = self.program.buffer_of[access.array]
        paired = buffer.name in self.pairs.registers
        if paired and (work.lane is None or work.lane not in access.levels):
            why = self.pairs.obstacle(self.pairs.in_place(work.statement)) or "it uses one of the two"
            words = {"buffer": buffer.name, "statement": work.statement.text}
            raise Refused(limits.LANES, work.statement.id, access, what=why, **words)
        if buffer.location in MOVERS:
            return self.setup.registers[buffer.location]
        if self.in_memory(access):
            return None
        form = work.fold(self.pairs.cell(access))
        assert not form.levels, "the subscripts of a named cell are constants"
        number = form.constant // LANES_OF[buffer.dtype] if paired else form.constant
        return self.cells.setdefault((buffer.name, number), Register("f"))

    def same_cell(self, access: Access, one: Work, other: Work) -> bool:
        """True if an access reaches the same register cell in two instances of a statement."""
        return self._cell(access, one) is self._cell(access, other)

    def _place(self, access: Access, work: Work) -> tuple[Register, int]:
        """A register and an offset that lead to the access."""
        found = self._address(access, work)
        if found is not None:
            return self._reach(found)
        buffer = self.program.buffer_of[access.array]
        distance = self._scaled(self.whole(self.pairs.cell(access), work), BYTES[buffer.dtype])
        return self.listing.compute("x", "add {0}, {1}, {2}", self.bases[buffer.name], distance), 0

    def _reach(self, found: Address) -> tuple[Register, int]:
        if found.terms:
            pointer, offset = self.pointers.found[found]
            return pointer.register, offset
        base = self.bases[found.buffer]
        if found.constant <= REACH:
            return base, found.constant
        return self.listing.plus(base, found.constant), 0


def local_bytes(program: Program, dialect: Dialect, names: Mapping[str, object]) -> dict[str, int]:
    """Buffer of location tcdm -> bytes from the start of the local part of the frame; ``""`` -> all of it."""
    at, used = dict[str, int](), 0
    for buffer in program.buffers:
        if buffer.location == "tcdm" and buffer.name in names:
            at[buffer.name] = used
            used += -(-buffer.cells * BYTES[buffer.dtype] // 8) * 8
    return {**at, "": used}


def _inner_length(body: Sequence[Line]) -> int:
    """Instructions of the repeated scope inside of a repeated body."""
    start = next(k for k, line in enumerate(body) if isinstance(line, Mark) and line.repeats)
    end = next(k for k, line in enumerate(body) if isinstance(line, Mark) and line.ends_loop)
    return entries(body[start : end + 1])


def _is_number(line: Line) -> bool:
    """True if the line loads the count of an inner repetition."""
    return isinstance(line, Instruction) and line.text.startswith("li ")


def _load(dtype: str) -> str:
    return {"f64": "fld", "f32": "flw", "f16": "flh"}[dtype]


def _store(dtype: str) -> str:
    return {"f64": "fsd", "f32": "fsw", "f16": "fsh"}[dtype]
