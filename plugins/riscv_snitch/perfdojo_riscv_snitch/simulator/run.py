"""Run a program on the compiled core and say what happened."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.assembly.registers import FLOAT, FLOAT_NAMES, INTEGER, INTEGER_NAMES
from perfdojo_riscv_snitch.elf import is_elf, load_elf
from perfdojo_riscv_snitch.errors import SnitchError, run_error
from perfdojo_riscv_snitch.program import TCDM_BASE, TCDM_BYTES, Program
from perfdojo_riscv_snitch.simulator.native import (
    COUNTERS,
    NativeProgram,
    NativeState,
    TraceRecord,
    core,
)
from perfdojo_sdk.core.files import read_bounded

DEFAULT_MAX_CYCLES = 100_000_000
#: Largest file of a program.
_MOST_BYTES = 64 << 20

_CORE_STALLS = COUNTERS[5:12]
_FP_STALLS = COUNTERS[12:17]
_CONFLICTS = COUNTERS[17:21]
_SHARES = COUNTERS[21:]


@dataclass(frozen=True)
class TraceLine:
    """One instruction that was issued."""

    cycle: int
    unit: str
    """``int`` or ``fp``."""
    pc: int
    text: str
    repeated: bool = False
    """True if it was issued again by a FREP loop."""

    def __str__(self) -> str:
        mark = "*" if self.repeated else " "
        return f"{self.cycle:8} {self.unit:3} {self.pc:08x}{mark} {self.text}"


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation. Counts are those between the first two reads of mcycle, if there are
    two."""

    cycles: int
    """Cycles between the first two reads of mcycle; of the whole run if there are fewer."""
    total_cycles: int
    """Cycles from the first instruction until all activity has ended."""
    instructions: int
    """Number of instructions issued by the integer core, including those that it passes to the FP side."""
    fpu_instructions: int
    """Number of instructions issued to the FPU's pipelines, including repetitions by FREP."""
    fp_memory_instructions: int
    flops: int
    core_stalls: Mapping[str, int]
    """Reason for which the integer core did not issue -> cycles."""
    fp_stalls: Mapping[str, int]
    """Reason for which the FP subsystem did not issue -> cycles."""
    conflicts: Mapping[str, int]
    """Memory port -> cycles in which a request had to wait for a bank or the shared port."""
    shares: Mapping[str, int]
    """``fp_switches``: cycles in which streams were switched on or off. Of the FP side's idle cycles,
    ``idle_setup`` (streams were being configured) and ``idle_wait`` (the integer core waited, too); of
    those that waited for a stream, ``stream_conflict`` (a bank had refused the datum)."""
    registers: Mapping[str, int]
    """Integer registers at the end, as unsigned numbers, by their ABI names."""
    fp_registers: Mapping[str, int]
    """FP registers at the end, as 64 bits, by their ABI names."""
    fcsr: int
    unstored: tuple[str, ...]
    """Stream registers with data that was not yet stored when the program ended."""
    left: tuple[str, ...]
    """Stream registers with an unfinished job, or with unread data, after everything was done."""
    memory: bytes = field(repr=False)
    """TCDM at the end."""
    symbols: Mapping[str, int] = field(default_factory=dict, repr=False)
    trace: tuple[TraceLine, ...] = field(default=(), repr=False)

    @property
    def fpu_utilisation(self) -> float:
        """FPU instructions a cycle."""
        return self.fpu_instructions / self.cycles if self.cycles else 0.0

    @property
    def stalls(self) -> dict[str, int]:
        """Stall cycles by reason, of the integer core and the FP subsystem together."""
        return {name: n for name, n in {**self.core_stalls, **self.fp_stalls, **self.conflicts}.items() if n}

    def read(self, address: int, count: int) -> bytes:
        """``count`` bytes of TCDM at ``address``."""
        start = address - TCDM_BASE
        if not 0 <= start <= TCDM_BYTES - count:
            raise ValueError(f"0x{address:x} is not in TCDM")
        return self.memory[start : start + count]

    def as_json(self) -> dict[str, object]:
        """The result without memory and trace, as JSON values."""
        return {
            "cycles": self.cycles,
            "total_cycles": self.total_cycles,
            "instructions": self.instructions,
            "fpu_instructions": self.fpu_instructions,
            "fp_memory_instructions": self.fp_memory_instructions,
            "flops": self.flops,
            "fpu_utilisation": self.fpu_utilisation,
            "core_stalls": dict(self.core_stalls),
            "fp_stalls": dict(self.fp_stalls),
            "conflicts": dict(self.conflicts),
            "registers": dict(self.registers),
            "fp_registers": {name: f"{bits:016x}" for name, bits in self.fp_registers.items()},
            "fcsr": self.fcsr,
        }


def load(program: str | Path | Program) -> Program:
    """A program from assembly text, an assembly file or an ELF file. SnitchError; OSError."""
    if isinstance(program, Program):
        return program
    if isinstance(program, str) and not _is_path(program):
        return assemble(program)
    content = read_bounded(Path(program), _MOST_BYTES)
    if is_elf(content):
        return load_elf(content, str(program))
    return assemble(content.decode("utf-8", "replace"), str(program))


def _is_path(text: str) -> bool:
    return "\n" not in text and len(text) < 4096 and os.path.isfile(text)


def simulate(
    program: str | Path | Program,
    *,
    memory: Mapping[int, bytes] | None = None,
    registers: Mapping[str, int] | None = None,
    max_cycles: int = DEFAULT_MAX_CYCLES,
    trace: bool = False,
) -> Simulation:
    """Run ``program`` from its entry to the first ``ecall`` and until all that it started is done.

    ``program`` is assembly text, the path of an assembly or ELF file, or a loaded program. Code is at
    0x80000000, TCDM of 128 KiB at 0x10000000; ``memory`` (address -> content) and ``registers``
    (integer or FP register -> bits) are set before the start, all else is zero but ``sp``, which is
    the end of TCDM. SnitchError with the pc and the line for whatever the program does wrong;
    UnavailableError without a C compiler.
    """
    loaded = load(program)
    state, content = _initial_state(loaded, memory or {}, registers or {})
    code = (ctypes.c_uint32 * max(len(loaded.words), 1))(*loaded.words)
    native = NativeProgram(code, len(loaded.words), loaded.base, loaded.entry, trace, max_cycles)
    library = core()
    error = library.snitch_run(ctypes.byref(native), ctypes.byref(state))
    try:
        if error:
            raise explain(loaded, state)
        lines = tuple(_trace(loaded, state)) if trace else ()
    finally:
        library.snitch_free_trace(ctypes.byref(state))
    return _result(loaded, state, bytes(content), lines)


@dataclass(frozen=True)
class Prepared:
    """A run as bytes, for another process that knows nothing but the core."""

    program: bytes
    code: bytes
    state: bytes
    memory: bytes


def prepare(
    program: Program,
    memory: bytes | bytearray,
    registers: Mapping[str, int],
    max_cycles: int,
    *,
    used: bool = False,
    late: int = 0,
) -> Prepared:
    """The input with which ``core/child.c`` runs ``program`` on ``memory``, the whole content of TCDM.

    ``used``: stream registers hold values of an earlier program, not zero. ``late``: contention delays
    streams, or loads and stores (``native.LATE_STREAMS``, ``LATE_ACCESSES``).
    """
    state, _ = _initial_state(program, {TCDM_BASE: bytes(memory)}, registers)
    state.used, state.late = used, late
    native = NativeProgram(None, len(program.words), program.base, program.entry, 0, max_cycles)
    code = struct.pack(f"<{len(program.words)}I", *program.words)
    return Prepared(bytes(native), code, bytes(state), bytes(memory))


def job(runs: Sequence[Prepared], seconds: int, most_bytes: int) -> bytes:
    """The input of ``core/child.c``: ``runs`` of one program with limits on processor seconds and bytes of
    memory."""
    head = struct.pack("=3Q", seconds, most_bytes, len(runs))
    content = (each.state + each.memory for each in runs)
    return b"".join((head, runs[0].program, runs[0].code, *content))


def answer_bytes(runs: Sequence[Prepared]) -> int:
    """Size of the child's output."""
    return sum(len(each.state) + len(each.memory) for each in runs)


def finish(program: Program, runs: Sequence[Prepared], output: bytes) -> Iterator[Simulation]:
    """The results of the runs, from the child's complete output (see :func:`answer_bytes`).

    Raises SnitchError for an error of the program.
    """
    at = 0
    for run in runs:
        state = NativeState.from_buffer_copy(output[at : at + len(run.state)])
        at += len(run.state)
        memory = output[at : at + len(run.memory)]
        at += len(run.memory)
        if state.error:
            raise explain(program, state)
        yield _result(program, state, memory, ())


def _initial_state(
    program: Program, memory: Mapping[int, bytes], registers: Mapping[str, int]
) -> tuple[NativeState, ctypes.Array[ctypes.c_char]]:
    content = ctypes.create_string_buffer(TCDM_BYTES)
    state = NativeState()
    state.memory = ctypes.addressof(content)
    for address, piece in (*program.data, *memory.items()):
        start = address - TCDM_BASE
        if not 0 <= start <= TCDM_BYTES - len(piece):
            raise ValueError(f"{len(piece)} bytes at 0x{address:x} are not in TCDM")
        ctypes.memmove(ctypes.addressof(content) + start, bytes(piece), len(piece))
    state.x[INTEGER["sp"]] = TCDM_BASE + TCDM_BYTES
    for name, bits in registers.items():
        if name in INTEGER:
            state.x[INTEGER[name]] = bits & 0xFFFFFFFF
        elif name in FLOAT:
            state.f[FLOAT[name]] = bits & 0xFFFFFFFFFFFFFFFF
        else:
            raise ValueError(f"no register {name!r}")
    return state, content


def _result(program: Program, state: NativeState, memory: bytes, lines: tuple[TraceLine, ...]) -> Simulation:
    counters = dict(zip(COUNTERS, state.counters))
    total = counters["cycles"]
    cycles = total
    if state.cycle_reads >= 2:
        before, after = state.at_first_read, state.at_second_read
        counters = {name: after[k] - before[k] for k, name in enumerate(COUNTERS)}
        cycles = state.second_read - state.first_read
    return Simulation(
        cycles,
        total,
        counters["instructions"],
        counters["fpu_instructions"],
        counters["fp_memory_instructions"],
        counters["flops"],
        {name: counters[name] for name in _CORE_STALLS},
        {name: counters[name] for name in _FP_STALLS},
        {name: counters[name] for name in _CONFLICTS},
        {name: counters[name] for name in _SHARES},
        dict(zip(INTEGER_NAMES, state.x)),
        dict(zip(FLOAT_NAMES, state.f)),
        state.fcsr,
        _streams(state.unstored),
        _streams(state.left),
        memory,
        program.symbols,
        lines,
    )


def _streams(mask: int) -> tuple[str, ...]:
    return tuple(name for k, name in enumerate(FLOAT_NAMES) if mask >> k & 1)


def _trace(program: Program, state: NativeState) -> Iterator[TraceLine]:
    for k in range(state.trace_length):
        record: TraceRecord = state.trace[k]
        line = program.lines.get(record.pc)
        word = program.words[(record.pc - program.base) // 4]
        text = line.statement if line else f".insn 0x{word:08x}"
        yield TraceLine(record.cycle, ("int", "fp")[record.source], record.pc, text, bool(record.repeated))


#: enum Error of interface.h -> code, and a format for the detail.
_ERRORS = {
    1: ("PD-S001", "illegal instruction 0x{0:08x}"),
    2: ("PD-S002", "no code at 0x{0:08x}"),
    3: ("PD-S003", "misaligned address 0x{0:08x}"),
    4: ("PD-S004", "address 0x{0:08x} is outside of TCDM"),
    5: ("PD-S005", "no ecall within the limit of cycles"),
    6: ("PD-S006", "deadlock"),
    7: ("PD-S007", "stream register ft{0} is used against the direction of its job"),
    8: ("PD-S007", "no stream register 0x{0:x}"),
    9: ("PD-S007", "a stream register cannot hold 0x{0:x}"),
    10: ("PD-S004", "the stream's address 0x{0:08x} is outside of TCDM"),
    11: ("PD-S008", "an instruction that bypasses the sequencer within a FREP body"),
    12: ("PD-S008", "FREP loops nested more than two deep"),
    13: ("PD-S008", "a FREP body of {0} instructions; the sequencer holds 32"),
    14: ("PD-S009", "ebreak"),
    15: ("PD-S001", "the rounding mode {0} in frm is reserved"),
    16: ("PD-S010", "out of memory"),
}
_STUCK = {
    0: "nothing is known to be missing",
    1: "an instruction reads a stream that has no data left and no job",
    2: "a value for a write stream finds no job, or more values were written than the job takes",
    3: "a FREP body is shorter than its loop says",
    4: "a stream is configured while its next job is already waiting",
}
_DEADLOCK = 6


def explain(program: Program, state: NativeState) -> SnitchError:
    """The error that ended a run."""
    code, what = _ERRORS[state.error]
    why = f"in cycle {state.error_cycle}"
    if state.error == _DEADLOCK:
        why = f"{_STUCK[state.error_detail]}; {why}"
    pc = state.error_pc
    return run_error(code, what.format(state.error_detail), pc, program.lines.get(pc), program.file, why)
