"""One kernel: arguments, frame, loops and statements as one assembly function.

The C interface is that of every library: ``int NAME(const T *in..., T *out..., void *workspace, size_t
bytes, int threads)`` and ``size_t NAME_workspace_bytes(int threads)``, in the calling convention ilp32d.
Arrays and stack lie in TCDM.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfdojo_riscv_snitch.codegen.allocate import SPARE, Allocation, allocate
from perfdojo_riscv_snitch.codegen.assembly import Instruction, Line, Listing, Mark, Register, small
from perfdojo_riscv_snitch.codegen.pointers import REACH, Pointers
from perfdojo_riscv_snitch.codegen.tree import Address, Loop, Part, Work, address, unfold, works
from perfdojo_riscv_snitch.codegen.values import BYTES, FORMATS, Values, bits_of, never_nan, unsupported
from perfdojo_sdk.codegen.layout import plan
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, Index
from perfdojo_sdk.core.program import Buffer, Program
from perfdojo_sdk.core.validate import index_values
from perfdojo_sdk.hookspecs.types import ArraySpec, Capabilities, KernelSource

ARGUMENT_REGISTERS = 8
LANGUAGE = "s"


@dataclass(frozen=True)
class SnitchCodeGenerator:
    """Programs to assembly that any assembler for RISC-V takes. Pure and picklable."""

    capabilities: Capabilities

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """The kernel as assembly; PD-C001 for what does not compile."""
        return _Kernel(program, symbol, self.capabilities.dialect()).source()


class _Kernel:
    """Emits one program. Made anew for each kernel; call :meth:`source`."""

    def __init__(self, program: Program, symbol: str, dialect: Dialect) -> None:
        self.program, self.symbol, self.dialect = program, symbol, dialect
        for buffer in program.buffers:
            if buffer.dtype not in FORMATS:
                why = f"kernels of this target hold {' and '.join(FORMATS)}"
                raise unsupported(f"{program.name}: {buffer.name} is {buffer.dtype}", why)
        self.layout = plan(program, dialect)
        self.listing = Listing(symbol)
        self.values = Values(self.listing, self, never_nan(program))
        self.parts = unfold(program, dialect)
        self.cells: dict[tuple[str, int], Register] = {}
        """Buffer and cell -> its register, for buffers that live in registers."""
        self.constants: dict[tuple[int, str], Register] = {}
        self.iterators: dict[Loop, Register] = {}
        self.bases: dict[str, Register] = {}
        self.local: dict[str, int] = {}
        """Buffer -> bytes from the start of the local part of the frame."""
        self.local_bytes = self._lay_out_frame()
        for work in works(self.parts):
            for level in _counted_levels(work, program):
                if isinstance(loop := work.iterators[level], Loop):
                    loop.counted = True
        self.pointers = Pointers(self.parts, self._addresses())

    # -- the whole kernel --------------------------------------------------------------------------

    def source(self) -> KernelSource:
        arguments = self._arguments()
        self._bases(arguments)
        self.emit(self.parts)
        body = self.listing.lines
        self.listing.lines = []
        self._constants()
        lines = [*self.listing.lines, *body]
        return KernelSource(
            self.symbol,
            self._specs(self.program.inputs),
            self._specs(self.program.outputs),
            self._text(lines, allocate(lines), arguments),
            LANGUAGE,
        )

    def _specs(self, names: tuple[str, ...]) -> tuple[ArraySpec, ...]:
        return tuple(ArraySpec(n, (b := self.program.buffer_of[n]).shape, b.dtype) for n in names)

    # -- buffers -----------------------------------------------------------------------------------

    def _lay_out_frame(self) -> int:
        """Give each buffer of location tcdm its place in the frame; bytes of all of them."""
        used = 0
        for buffer in self._locals("tcdm"):
            self.local[buffer.name] = used
            used += -(-buffer.cells * BYTES[buffer.dtype] // 8) * 8
        return used

    def _locals(self, location: str) -> list[Buffer]:
        return [b for b in self.program.buffers if b.location == location and b.name in self.layout.home]

    def _in_registers(self, buffer: Buffer) -> bool:
        return self.dialect.locations[buffer.location].constant_subscripts

    def _addresses(self) -> Iterator[Address]:
        for work in works(self.parts):
            for access in (*work.statement.reads, work.statement.target):
                if not self._in_registers(self.program.buffer_of[access.array]):
                    found = address(work, access, self.program, BYTES)
                    if found is not None:
                        yield found

    def _arguments(self) -> Mapping[str, Register]:
        """Name -> register, in the order of the call."""
        names = [*self.program.inputs, *self.program.outputs, "(workspace)", "(bytes)", "(threads)"]
        wishes = [f"a{k}" if k < ARGUMENT_REGISTERS else "" for k in range(len(names))]
        return {n: Register("x", wish) for n, wish in zip(names, wishes, strict=True)}

    def _bases(self, arguments: Mapping[str, Register]) -> None:
        """Where each buffer in memory starts."""
        for k, (name, register) in enumerate(arguments.items()):
            if k >= ARGUMENT_REGISTERS and not name.startswith("("):
                self._from_stack(k, register)
            if name in self.program.buffer_of:
                self.bases[self.program.buffer_of[name].name] = register
        for name, at in self.local.items():
            self.bases[name] = self.listing.compute("x", f"li {{0}}, {{local}}+{at}")
            self.listing.put("add {0}, {1}, sp", (self.bases[name],), (self.bases[name],))
        if self.layout.shared_bytes:
            self._workspace(arguments)

    def _from_stack(self, number: int, into: Register) -> None:
        """An argument that the caller left on its stack."""
        at = self.listing.compute("x", f"li {{0}}, {{frame}}+{4 * (number - ARGUMENT_REGISTERS)}")
        at = self.listing.compute("x", "add {0}, {1}, sp", at)
        self.listing.put("lw {0}, 0({1})", (into,), (at,))

    def _workspace(self, arguments: Mapping[str, Register]) -> None:
        """Give up when the workspace is too small; else lay the buffers out in it."""
        k = list(arguments).index("(workspace)")
        for offset, name in enumerate(("(workspace)", "(bytes)")):
            if k + offset >= ARGUMENT_REGISTERS:
                self._from_stack(k + offset, arguments[name])
        needed = self.listing.number(self.layout.shared_bytes)
        self.listing.put(f"bltu {{0}}, {{1}}, .L{self.symbol}_refuse", (), (arguments["(bytes)"], needed))
        for name, at in self.layout.offset.items():
            base = self.listing.plus(arguments["(workspace)"], at)
            if base is arguments["(workspace)"]:
                base = self.listing.compute("x", "mv {0}, {1}", base)
            self.bases[name] = base

    # -- the tree ----------------------------------------------------------------------------------

    def emit(self, parts: list[Part]) -> None:
        for part in parts:
            if isinstance(part, Loop):
                self._loop(part)
            else:
                self._work(part)

    def _loop(self, loop: Loop) -> None:
        listing = self.listing
        self.pointers.start(loop, self.bases, listing)
        guide = self.pointers.guide(loop)
        if loop.counted:
            count = self.iterators[loop] = listing.number(0)
            end = listing.number(loop.size)
        elif guide:
            count = guide.register
            end = listing.plus(count, loop.size * guide.strides[loop], into=Register("x"))
        else:
            count, end = listing.number(loop.size), None
        with listing.loop() as label:
            self.emit(loop.body)
            self.pointers.step(loop, listing)
            if loop.counted or end is None:
                listing.plus(count, 1 if loop.counted else -1, into=count)
            if end is None:
                listing.put(f"bnez {{0}}, {label}", (), (count,))
            else:
                listing.put(f"bne {{0}}, {{1}}, {label}", (), (count, end))

    def _work(self, work: Work) -> None:
        self.listing.comment(work.statement.text)
        forms = [work.fold(form) for form in work.statement.guard]
        if any(form.constant < 0 for form in forms if not form.levels):
            return
        open_forms = [form for form in forms if form.levels]
        label = self.listing.new_label() if open_forms else ""
        for form in open_forms:
            self.listing.put(f"bltz {{0}}, {label}", (), (self.whole(form, work),))
        self._statement(work)
        if label:
            self.listing.label(label)

    def _statement(self, work: Work) -> None:
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

    # -- Memory, for the expressions -----------------------------------------------------------------

    def load(self, access: Access, dtype: str, work: Work, into: Register | None) -> Register:
        cell = self._cell(access, work)
        if cell is not None:
            fmt = FORMATS[dtype]
            if into in (None, cell):
                return cell
            return self.listing.compute("f", f"fmv.{fmt} {{0}}, {{1}}", cell, into=into)
        pointer, offset = self._place(access, work)
        return self.listing.compute("f", f"{_load(dtype)} {{0}}, {offset}({{1}})", pointer, into=into)

    def constant(self, bits: int, dtype: str) -> Register:
        return self.constants.setdefault((bits, dtype), Register("f"))

    def whole(self, index: Index, work: Work) -> Register:
        """A form of the iterators as an integer of 32 bits."""
        listing = self.listing
        form = work.fold(index)
        total: Register | None = None
        for level, coefficient in form.terms:
            term = self._scaled(self.iterators[work.loop(level)], coefficient)
            total = term if total is None else listing.compute("x", "add {0}, {1}, {2}", total, term)
        for quotient, coefficient in form.quotients:
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
        """The register of a cell that lives in one."""
        buffer = self.program.buffer_of[access.array]
        if not self._in_registers(buffer):
            return None
        form = work.fold(buffer.address(access.subscripts))
        assert not form.levels, "the subscripts of a named cell are constants"
        return self.cells.setdefault((buffer.name, form.constant), Register("f"))

    def _place(self, access: Access, work: Work) -> tuple[Register, int]:
        """A register and an offset that lead to the access."""
        found = address(work, access, self.program, BYTES)
        buffer = self.program.buffer_of[access.array]
        base = self.bases[buffer.name]
        if found is None:
            bytes_ = self._scaled(self.whole(buffer.address(access.subscripts), work), BYTES[buffer.dtype])
            return self.listing.compute("x", "add {0}, {1}, {2}", base, bytes_), 0
        if found.terms:
            pointer, offset = self.pointers.found[found]
            return pointer.register, offset
        if found.constant <= REACH:
            return base, found.constant
        return self.listing.plus(base, found.constant), 0

    # -- constants ---------------------------------------------------------------------------------

    def _constants(self) -> None:
        """What every use of a literal shares, before everything else."""
        for (bits, dtype), register in self.constants.items():
            _load_constant(self.listing, bits, dtype, register)

    # -- text --------------------------------------------------------------------------------------

    def _text(self, lines: list[Line], places: Allocation, arguments: Mapping[str, Register]) -> str:
        slots = 8 * len(places.slots)
        local = 8 + slots + 8 * len(places.saved)
        needs_frame = bool(slots or places.saved or self.local_bytes or _uses_scratch(lines))
        frame = -(-(local + self.local_bytes) // 16) * 16 if needs_frame else 0
        figures = {"frame": str(frame), "scratch": "0", "local": str(local)}
        if local > REACH:
            what = f"{self.program.name} keeps more than registers and a frame hold"
            raise unsupported(what, f"it needs {local} bytes of the frame for single values")
        name = self.symbol
        text = [*_comment(self.program.text), "", ".text", ".balign 4", f".globl {name}"]
        text += [f".type {name}, @function", f"{name}:"]
        inner: list[str] = []
        inner += _move_stack(-frame)
        for k, register in enumerate(places.saved):
            inner.append(f"{'fsd' if register[0] == 'f' else 'sw'} {register}, {8 + slots + 8 * k}(sp)")
        for argument in arguments.values():
            if argument in places.slots:
                inner.append(f"sw {argument.wish}, {8 + 8 * places.slots[argument]}(sp)")
        inner += _finished(lines, places, figures)
        end = []
        for k, register in enumerate(places.saved):
            end.append(f"{'fld' if register[0] == 'f' else 'lw'} {register}, {8 + slots + 8 * k}(sp)")
        end += _move_stack(frame)
        inner += ["li a0, 0", *end, "ret"]
        if self.layout.shared_bytes:
            inner += [f".L{name}_refuse:", "li a0, 1", *end, "ret"]
        text += [line if line.endswith(":") else f"    {line}" for line in inner]
        text += [f".size {name}, .-{name}", ""]
        query = f"{name}_workspace_bytes"
        text += [f".globl {query}", f".type {query}, @function", f"{query}:"]
        text += [f"    li a0, {self.layout.shared_bytes}", "    ret", f".size {query}, .-{query}"]
        return "\n".join(text) + "\n"


def _counted_levels(work: Work, program: Program) -> Iterator[int]:
    """Levels whose iterators the code needs as numbers."""
    statement = work.statement
    for form in statement.guard:
        yield from work.fold(form).levels
    for value in index_values(statement.value):
        yield from work.fold(value.index).levels
    for access in (statement.target, *statement.reads):
        form = work.fold(program.buffer_of[access.array].address(access.subscripts))
        if form.quotients:
            yield from form.levels


def _load(dtype: str) -> str:
    return "fld" if dtype == "f64" else "flw"


def _store(dtype: str) -> str:
    return "fsd" if dtype == "f64" else "fsw"


def _load_constant(listing: Listing, bits: int, dtype: str, into: Register) -> None:
    """A number from its bits, without memory where the bits allow it."""
    if dtype == "f32":
        listing.put("fmv.w.x {0}, {1}", (into,), (listing.number(bits),))
        return
    (number,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    whole = abs(number) < 2**31 and number == int(number)
    if bits == 0 or (whole and number):
        listing.put("fcvt.d.w {0}, {1}", (into,), (listing.number(int(number)),))
    elif _fits_single(number):
        short = listing.compute("f", "fmv.w.x {0}, {1}", listing.number(bits_of(number, "f32")))
        listing.put("fcvt.d.s {0}, {1}", (into,), (short,))
    else:
        for offset, word in ((0, bits & 0xFFFFFFFF), (4, bits >> 32)):
            listing.put(f"sw {{0}}, {{scratch}}+{offset}(sp)", (), (listing.number(word),))
        listing.put("fld {0}, {scratch}(sp)", (into,))


def _fits_single(number: float) -> bool:
    (rounded,) = struct.unpack("<f", bits_of(number, "f32").to_bytes(4, "little"))
    return bool(rounded == number)


def _uses_scratch(lines: Sequence[Line]) -> bool:
    return any(isinstance(line, Instruction) and "{scratch}" in line.text for line in lines)


def _move_stack(distance: int) -> list[str]:
    if small(distance):
        return [f"addi sp, sp, {distance}"] if distance else []
    return [f"li t0, {distance}", "add sp, sp, t0"]


def _comment(text: str) -> list[str]:
    return [f"# {line}".rstrip() for line in text.rstrip().splitlines()]


def _finished(lines: Sequence[Line], places: Allocation, figures: Mapping[str, str]) -> Iterator[str]:
    """The lines with the machine's registers; values in slots are loaded before and stored after."""
    for line in lines:
        if isinstance(line, Mark):
            if line.text:
                yield line.text
            continue
        names: dict[Register, str] = {}
        spare = {kind: iter(found) for kind, found in SPARE.items()}
        for register in dict.fromkeys((*line.reads, *line.writes)):
            slot = places.slots.get(register)
            names[register] = places.names[register] if slot is None else next(spare[register.kind])
        for register in dict.fromkeys(line.reads):
            if register in places.slots:
                yield f"{_LOADS[register.kind]} {names[register]}, {8 + 8 * places.slots[register]}(sp)"
        yield line.text.format(*[names[register] for register in line.operands], **figures)
        for register in line.writes:
            if register in places.slots:
                yield f"{_STORES[register.kind]} {names[register]}, {8 + 8 * places.slots[register]}(sp)"


_LOADS = {"x": "lw", "f": "fld"}
_STORES = {"x": "sw", "f": "fsd"}
