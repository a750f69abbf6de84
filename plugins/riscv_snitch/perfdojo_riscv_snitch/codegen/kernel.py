"""One kernel: arguments, frame, loops and statements as one assembly function.

The C interface is that of every library: ``int NAME(const T *in..., T *out..., void *workspace, size_t
bytes, int threads)`` and ``size_t NAME_workspace_bytes(int threads)``, in the calling convention ilp32d.
Arrays and stack lie in TCDM.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from perfdojo_riscv_snitch.codegen import functions, limits, widths
from perfdojo_riscv_snitch.codegen.allocate import SPARE, Allocation, allocate
from perfdojo_riscv_snitch.codegen.assembly import ZERO, Instruction, Line, Listing, Mark, Register, small
from perfdojo_riscv_snitch.codegen.body import Body, local_bytes
from perfdojo_riscv_snitch.codegen.limits import Refused
from perfdojo_riscv_snitch.codegen.pairs import JOIN, PAIR, SPLAT
from perfdojo_riscv_snitch.codegen.plan import Plan
from perfdojo_riscv_snitch.codegen.pointers import REACH
from perfdojo_riscv_snitch.codegen.repacked import packed_once
from perfdojo_riscv_snitch.codegen.values import BYTES, FORMATS, bits_of, unsupported
from perfdojo_riscv_snitch.program import TCDM_BYTES
from perfdojo_sdk.codegen.layout import plan
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import ArraySpec, Capabilities, KernelSource

ARGUMENT_REGISTERS = 8
LANGUAGE = "s"


@dataclass(frozen=True)
class SnitchCodeGenerator:
    """Programs to assembly that any assembler for RISC-V takes. Pure and picklable."""

    capabilities: Capabilities

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """The kernel as assembly; PD-C001 for what does not compile, or is beyond the hardware."""
        try:
            return emit(program, symbol, self.capabilities.dialect())
        except Refused as refused:
            title = refused.requirement.title
            what = f"{program.name} asks for what the core cannot do: {title} ({refused.requirement.code})"
            raise UnavailableError("PD-C001", what, why=refused.why, hint=refused.requirement.hint) from None


def emit(program: Program, symbol: str, dialect: Dialect) -> KernelSource:
    """The kernel; :class:`Refused` for what the hardware cannot do."""
    return _Kernel(program, symbol, dialect).source()


def check(program: Program, dialect: Dialect) -> None:
    """:class:`Refused` for what the hardware cannot do, without the kernel's text."""
    _Kernel(program, "checked", dialect).listed()


@dataclass(frozen=True)
class _Listed:
    """A kernel that fits the hardware, before it is written as text."""

    lines: list[Line]
    places: Allocation
    arguments: Mapping[str, Register]


class _Kernel:
    """Emits one program. Made anew for each kernel; call :meth:`source` or :meth:`listed`, once."""

    def __init__(self, program: Program, symbol: str, dialect: Dialect) -> None:
        self.program, self.symbol, self.dialect = program, symbol, dialect
        for buffer in program.buffers:
            if buffer.dtype not in FORMATS:
                why = f"kernels of this target hold {' and '.join(FORMATS)}"
                raise unsupported(f"{program.name}: {buffer.name} is {buffer.dtype}", why)
        if program.tables:
            what = f"{program.name} has tables: {', '.join(program.tables)}"
            raise unsupported(what, "kernels of this target keep no constant arrays")
        if program.in_out:
            what = f"{program.name}: {', '.join(sorted(program.in_out))} is input and output"
            raise unsupported(what, "kernels of this target write arrays of their own")
        widths.check(program)
        self.layout = plan(program, dialect)
        self.listing = Listing(symbol)
        settled = Plan.of(program, dialect)
        self.body = Body(settled, settled.parts(), self.listing)
        self.local = local_bytes(program, dialect, self.layout.home)
        self.local_bytes = self.local.pop("")

    # -- the whole kernel --------------------------------------------------------------------------

    def source(self) -> KernelSource:
        """The text; :class:`Refused` for what the hardware cannot do."""
        return KernelSource(
            self.symbol,
            self._specs(self.program.inputs),
            self._specs(self.program.outputs),
            self._text(self.listed()),
            LANGUAGE,
        )

    def listed(self) -> _Listed:
        """The instructions and their registers; :class:`Refused` for what the hardware cannot do."""
        arguments = self._arguments()
        self._bases(arguments)
        at = self.body.emit()
        body = self.listing.lines
        self.listing.lines = []
        self._constants(body)
        lines, places = self._placed([*body[:at], *self.listing.lines, *body[at:]])
        self._check_registers(lines, places)
        self._check_memory()  # last, since later moves may make room, but cannot mend the other limits
        return _Listed(lines, places, arguments)

    def _placed(self, whole: list[Line]) -> tuple[list[Line], Allocation]:
        """The finished listing and its registers. Packed pairs are reused only if all have a register."""
        taken = functions.CHANGED if self.listing.routines else ()
        fewer = packed_once(whole)
        if len(fewer) < len(whole):
            lines = self.body.finished(fewer)
            with suppress(Refused):
                if not (places := allocate(lines, taken)).slots:
                    return lines, places
        lines = self.body.finished(whole)
        return lines, allocate(lines, taken)

    def _check_memory(self) -> None:
        arrays = [self.program.buffer_of[n] for n in (*self.program.inputs, *self.program.outputs)]
        size = sum(b.cells * BYTES[b.dtype] for b in arrays) + self.layout.shared_bytes + self.local_bytes
        if size > TCDM_BYTES:
            raise Refused(limits.TCDM, "", bytes=size, most=TCDM_BYTES)

    def _check_registers(self, lines: Sequence[Line], places: Allocation) -> None:
        """Raise :class:`Refused` when an instruction that the sequencer repeats needs a value in the
        frame."""
        repeated = list[str]()
        for line in lines:
            if isinstance(line, Mark):
                repeated += [line.repeats] if line.begins_loop else []
                if line.ends_loop:
                    repeated.pop()
            elif any(repeated) and any(r in places.slots for r in line.operands):
                scope = next(filter(None, repeated))
                raise Refused(limits.REGISTERS, scope, statement=line.text.partition(" ")[0])

    def _specs(self, names: tuple[str, ...]) -> tuple[ArraySpec, ...]:
        return tuple([ArraySpec.of(self.program.buffer_of[name]) for name in names])

    def _arguments(self) -> Mapping[str, Register]:
        """Name -> register, in the order of the call."""
        names = [*self.program.inputs, *self.program.outputs, "(workspace)", "(bytes)", "(threads)"]
        wishes = [f"a{k}" if k < ARGUMENT_REGISTERS else "" for k in range(len(names))]
        return {n: Register("x", wish) for n, wish in zip(names, wishes, strict=True)}

    def _bases(self, arguments: Mapping[str, Register]) -> None:
        """Load the base address of each buffer in memory into a register."""
        for k, (name, register) in enumerate(arguments.items()):
            if k >= ARGUMENT_REGISTERS and not name.startswith("("):
                self._from_stack(k, register)
            if name in self.program.buffer_of:
                self.body.bases[self.program.buffer_of[name].name] = register
        for name, at in self.local.items():
            self.body.bases[name] = self.listing.compute("x", f"li {{0}}, {{local}}+{at}")
            self.listing.put("add {0}, {1}, sp", (self.body.bases[name],), (self.body.bases[name],))
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
            self.body.bases[name] = base

    # -- constants ---------------------------------------------------------------------------------

    def _constants(self, body: Sequence[Line]) -> None:
        """Load each literal that instructions read from a register, once for all uses."""
        read = {register for line in body if isinstance(line, Instruction) for register in line.reads}
        for (bits, dtype), register in self.body.constants.items():
            if register in read:
                _load_constant(self.listing, bits, dtype, register)

    # -- text --------------------------------------------------------------------------------------

    def _text(self, listed: _Listed) -> str:
        lines, places = listed.lines, listed.places
        called, rescued = self.listing.routines, self.listing.rescues
        slots = 8 * len(places.slots)
        saved = [*places.saved, *(["ra"] if rescued else [])]
        tables, constants = dict[str, int](), 8 + slots + 8 * len(saved)
        for routine in sorted(called | rescued):
            tables[routine] = constants
            constants += 8 * len(functions.table(routine))
        own = self.body.written.table.words
        rescue = constants + 8 * len(own)
        local = rescue + (functions.RESCUE_BYTES if rescued else 0)
        needs_frame = local > 8 or bool(self.local_bytes) or _uses_scratch(lines)
        frame = -(-(local + self.local_bytes) // 16) * 16 if needs_frame else 0
        figures = {"frame": str(frame), "scratch": "0", "local": str(local)}
        figures |= {f"table_{routine}": str(at) for routine, at in tables.items()}
        figures |= {"rescue": str(rescue), "constants": str(constants)}
        if local > REACH:
            what = f"{self.program.name} keeps more than registers and a frame hold"
            raise unsupported(what, f"it needs {local} bytes of the frame for single values")
        name = self.symbol
        halves = [".option arch, +zfh"] if any(b.dtype == "f16" for b in self.program.buffers) else []
        text = [*_comment(self.program.text), "", *halves, ".text", ".balign 4", f".globl {name}"]
        text += [f".type {name}, @function", f"{name}:"]
        inner: list[str] = []
        inner += _move_stack(-frame)
        for k, register in enumerate(saved):
            inner.append(f"{'fsd' if register[0] == 'f' else 'sw'} {register}, {8 + slots + 8 * k}(sp)")
        for argument in listed.arguments.values():
            if argument.wish and argument in places.slots:  # the others are loaded when they are needed
                inner.append(f"sw {argument.wish}, {8 + 8 * places.slots[argument]}(sp)")
        for routine in sorted(called):  # rescue calls for unusual arguments fill the table there
            inner += functions.filled(tables[routine], functions.table(routine))
        inner += functions.filled(constants, own)
        if self.body.written.fetches:
            inner.append("fence")  # a mover reads them, which does not wait for stores
        inner += _finished(lines, places, figures)
        end = []
        for k, register in enumerate(saved):
            end.append(f"{'fld' if register[0] == 'f' else 'lw'} {register}, {8 + slots + 8 * k}(sp)")
        end += _move_stack(frame)
        inner += [*end, "ret"]
        if self.layout.shared_bytes:
            inner += [f".L{name}_refuse:", "li a0, 1", *end, "ret"]
        for routine in sorted(rescued):
            inner += functions.rescue(routine, f".L{name}", figures)
        for routine in sorted(functions.needed(called | rescued)):
            inner += functions.routine(routine, f".L{name}")
        text += [line if line.endswith(":") else f"    {line}" for line in inner]
        text += [f".size {name}, .-{name}", ""]
        query = f"{name}_workspace_bytes"
        text += [f".globl {query}", f".type {query}, @function", f"{query}:"]
        text += [f"    li a0, {self.layout.shared_bytes}", "    ret", f".size {query}, .-{query}"]
        return "\n".join(text) + "\n"


def _load_constant(listing: Listing, bits: int, dtype: str, into: Register) -> None:
    """Emit code that loads a number from its bits, without memory if the bits allow it."""
    if dtype == PAIR and bits:
        half = listing.compute("f", "fmv.w.x {0}, {1}", listing.number(bits & 0xFFFFFFFF))
        listing.put(SPLAT, (into,), (half,))
        return
    if dtype in ("f32", "f16"):
        move = "fmv.w.x" if dtype == "f32" else "fmv.h.x"
        listing.put(f"{move} {{0}}, {{1}}", (into,), (listing.number(bits) if bits else ZERO,))
        return
    (number,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    whole = abs(number) < 2**31 and number == int(number)
    words = (bits & 0xFFFFFFFF, bits >> 32)
    if bits == 0:
        listing.put("fcvt.d.w {0}, {1}", (into,), (ZERO,))
    elif whole and number:
        listing.put("fcvt.d.w {0}, {1}", (into,), (listing.number(int(number)),))
    elif _fits_single(number):
        short = listing.compute("f", "fmv.w.x {0}, {1}", listing.number(bits_of(number, "f32")))
        listing.put("fcvt.d.s {0}, {1}", (into,), (short,))
    elif not any(map(_is_nan, words)):  # of which packing would change the bits
        halves = [listing.compute("f", "fmv.w.x {0}, {1}", listing.number(word)) for word in words]
        listing.put(JOIN, (into,), tuple(halves))
    else:
        for offset, word in zip((0, 4), words, strict=True):
            listing.put(f"sw {{0}}, {{scratch}}+{offset}(sp)", (), (listing.number(word),))
        listing.put("fld {0}, {scratch}(sp)", (into,))


def _fits_single(number: float) -> bool:
    (rounded,) = struct.unpack("<f", bits_of(number, "f32").to_bytes(4, "little"))
    return bool(rounded == number)


def _is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > bits_of(inf, "f32")


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
