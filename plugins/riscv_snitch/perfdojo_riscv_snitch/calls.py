"""A call of a kernel on the simulator: the places of its arrays, and checks of what it must not change.

Arrays lie one after the other from the start of TCDM, each on a multiple of 64 bytes with 64 bytes
between them; the stack grows down from 64 bytes before its end. A kernel that writes between arrays, or
into the caller's part of the stack, is detected, and one that reads there gives different results in the
two calls. So does a kernel that reads a register, or relies on a setting of a stream, that was not set: the
first call finds zeros there, the second does not.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from tempfile import TemporaryFile
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from perfdojo_riscv_snitch import cluster
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.assembly.registers import FLOAT_NAMES, INTEGER_NAMES
from perfdojo_riscv_snitch.elf import load_elf
from perfdojo_riscv_snitch.program import TCDM_BASE, TCDM_BYTES, Program
from perfdojo_riscv_snitch.simulator import Simulation, simulate
from perfdojo_riscv_snitch.simulator.native import child_path
from perfdojo_riscv_snitch.simulator.run import answer_bytes, finish, job, prepare
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER, poison_of

GUARD = 64
#: Bytes around arrays in the first and in the second call: numbers, and NaN in every type of float. A kernel
#: that reads and uses them gives two different results.
_FILL = (0xA5, 0xFF)
#: The content of registers that a caller does not set: numbers as f64 and as two f32, and no number as one
#: f32.
_LEFT_IN_INTEGERS, LEFT_IN_FLOATS = 0x5A5A5A58, 0x46293E59_46293E59
#: Memory for the simulator itself, in addition to the simulated memory.
_OWN_BYTES = 1 << 28
#: Most sets of inputs that one child runs: for each, all of TCDM goes in and out.
_SETS_AT_ONCE = 64
#: Cycles after which a kernel counts as hanging: two minutes of simulated time.
MAX_CYCLES = 500_000_000

#: Calls the kernel whose address is in t3 and measures it; arguments are in place.
_CALL = "csrr t4, mcycle; jalr ra, 0(t3); fence; csrr t5, mcycle; mv t6, a0; ecall"


@dataclass(frozen=True)
class Place:
    """The address and size in bytes of an array of a call."""

    spec: ArraySpec
    address: int
    size: int

    @property
    def dtype(self) -> Any:
        return np.dtype(CARRIER[self.spec.dtype])

    def of(self, memory: bytes) -> np.ndarray[Any, Any]:
        """The array in TCDM's content."""
        start = self.address - TCDM_BASE
        return np.frombuffer(memory[start : start + self.size], self.dtype).reshape(self.spec.shape)


@dataclass(frozen=True)
class Call:
    """A kernel with places for its arrays, the workspace being the last of them."""

    program: Program
    """The program with the instructions that call the kernel."""
    kernel: Program
    places: tuple[Place, ...]
    inputs: int
    """Number of the places that are inputs, which come first."""
    registers: Mapping[str, int]
    stack: Mapping[int, bytes]
    """Arguments beyond those in registers."""

    @property
    def outputs(self) -> tuple[Place, ...]:
        return self.places[self.inputs : -1]

    def gaps(self) -> list[tuple[int, int]]:
        """(offset in TCDM, bytes) of memory that the kernel must not use: between arrays, and above its
        stack."""
        ends = [(p.address - TCDM_BASE, p.size) for p in self.places]
        found, at = [], 0
        for start, count in ends:
            found.append((at, start - at))
            at = start + count
        found.append((at, min(GUARD, TCDM_BYTES - at)))
        found.append((TCDM_BYTES - GUARD, GUARD))
        return [gap for gap in found if gap[1]]


@dataclass(frozen=True)
class Start:
    """The state of the machine at the beginning of a call."""

    memory: bytearray
    """TCDM."""
    registers: Mapping[str, int]
    used: bool = False
    """True if stream registers hold values of an earlier kernel."""
    late: int = 0
    """Flags for contention of the memory: ``LATE_STREAMS`` delays streams, ``LATE_ACCESSES`` loads and
    stores."""


class Outcome(Protocol):
    """The results of a call that are checked."""

    @property
    def cycles(self) -> int: ...
    @property
    def memory(self) -> bytes: ...
    @property
    def registers(self) -> Mapping[str, int]: ...


Result = TypeVar("Result", bound=Outcome)
#: Runs a call from each of several starts.
Execute: TypeAlias = Callable[["Call", Sequence[Start], RunRequest], "list[Result] | Failure"]


def call_kernel(
    artifact: Artifact, request: RunRequest, execute: Execute[Result]
) -> tuple[Call, Result] | Failure:
    """Call the kernel twice, from starts that share nothing but the inputs: both calls must agree."""
    try:
        call = prepare_call(artifact)
    except DojoError as error:
        return Failure("runtime", error.render())
    if isinstance(call, Failure):
        return call
    starts = [start_of(call, request, 0), replaced(start_of(call, request, 1))]
    finished = execute(call, starts, request)
    if isinstance(finished, Failure):
        return finished
    first, second = finished
    wrong = wrong_in(call, starts[0], first) or wrong_in(call, starts[1], second)
    return wrong or _disagree(call, first, second) or (call, first)


def call_on_sets(
    artifact: Artifact, request: RunRequest, sets: int
) -> Mapping[str, np.ndarray[Any, Any]] | Failure:
    """The outputs of a call for each of ``sets`` sets of inputs, one behind the other, as are the inputs.

    Every other call finds what the second one of :func:`call_kernel` finds.
    """
    assert request.inputs is not None, "sets are given"
    try:
        call = prepare_call(artifact)
    except DojoError as error:
        return Failure("runtime", error.render())
    if isinstance(call, Failure):
        return call
    outputs = {p.spec.name: np.empty((sets, *p.spec.shape), p.dtype) for p in call.outputs}
    for first in range(0, sets, _SETS_AT_ONCE):
        numbers = range(first, min(first + _SETS_AT_ONCE, sets))
        starts = [_start_of_set(call, request, number) for number in numbers]
        finished = execute(call, starts, request)
        if isinstance(finished, Failure):
            return finished
        for number, start, result in zip(numbers, starts, finished, strict=True):
            if wrong := wrong_in(call, start, result):
                return wrong
            for place in call.outputs:
                outputs[place.spec.name][number] = place.of(result.memory)
    return outputs


def _start_of_set(call: Call, request: RunRequest, number: int) -> Start:
    assert request.inputs is not None
    own = replace(request, inputs={name: array[number] for name, array in request.inputs.items()})
    start = start_of(call, own, number % 2)
    return replaced(start) if number % 2 else start


def prepare_call(artifact: Artifact, shift: int = 0, less: int = 0, code: str = _CALL) -> Call | Failure:
    """A call of the kernel by ``code``, with its arrays laid out, ``shift`` bytes further on, and with
    ``less`` bytes of workspace fewer than it needs; DojoError when the object is malformed."""
    program = load_elf(artifact.content, artifact.symbol)
    size = workspace_bytes(program, artifact.symbol)
    if isinstance(size, Failure):
        return size
    places, at = [], TCDM_BASE + GUARD + shift
    for spec in (*artifact.inputs, *artifact.outputs, ArraySpec("workspace", (size,), "u8")):
        count = int(np.prod(spec.shape, dtype=np.int64)) * np.dtype(CARRIER[spec.dtype]).itemsize
        places.append(Place(spec, at, count))
        at += -(-count // GUARD) * GUARD + GUARD
    if at > TCDM_BASE + TCDM_BYTES - 1024:
        needed = at - TCDM_BASE
        return Failure("memory", f"arrays and workspace take {needed} bytes, TCDM holds {TCDM_BYTES}")
    arguments = [*[p.address for p in places], size - less, 1]
    registers = {f"a{k}": value for k, value in enumerate(arguments[:8])}
    rest = arguments[8:]
    # The stack starts at a multiple of 16 bytes, below the arguments that find no register.
    top = TCDM_BASE + TCDM_BYTES - GUARD - -(-4 * len(rest) // 16) * 16
    stack = {top + 4 * k: struct.pack("<I", value) for k, value in enumerate(rest)}
    kernel, program = program, _with_code(program, code)
    registers |= {"sp": top, "t3": program.symbols[artifact.symbol]}
    return Call(program, kernel, tuple(places), len(artifact.inputs), registers, stack)


def workspace_bytes(program: Program, symbol: str) -> int | Failure:
    """Size of the workspace in bytes that the kernel's own function returns when it is simulated."""
    for name in (symbol, f"{symbol}_workspace_bytes"):
        if name not in program.symbols:
            return Failure("runtime", f"the object has no function {name}")
    asking = _with_code(program, "li a0, 1; jalr ra, 0(t3); ecall")
    at = program.symbols[f"{symbol}_workspace_bytes"]
    try:
        return simulate(asking, registers={"t3": at}, max_cycles=10_000).registers["a0"]
    except DojoError as error:
        return Failure("runtime", error.render())


def _with_code(program: Program, text: str) -> Program:
    """The program with a few more instructions at its end, where it then starts."""
    more = assemble(text)
    entry = program.base + 4 * len(program.words)
    return Program(
        (*program.words, *more.words), program.base, entry, program.data, program.symbols, {}, program.file
    )


# -- what a call finds, and leaves -------------------------------------------------------------------


def start_of(call: Call, request: RunRequest, variant: int = 0) -> Start:
    """TCDM before the call: inputs, poisoned outputs and workspace, a pattern everywhere else. Registers are
    zero but for the arguments."""
    image = bytearray([_FILL[variant]]) * TCDM_BYTES
    for place, array in zip(call.places, _given(call, request), strict=False):
        start = place.address - TCDM_BASE
        image[start : start + place.size] = array.tobytes()
    for place in call.places[call.inputs :]:
        start, width = place.address - TCDM_BASE, place.dtype.itemsize
        poison = poison_of(place.spec.dtype, variant).to_bytes(width, "little")
        image[start : start + place.size] = poison * (place.size // width)
    for address, content in (*call.program.data, *call.stack.items()):
        image[address - TCDM_BASE : address - TCDM_BASE + len(content)] = content
    return Start(image, call.registers)


def replaced(start: Start, floats: int = LEFT_IN_FLOATS) -> Start:
    """The start with arbitrary values in the registers of streams, and in all that carry no argument."""
    integers = dict.fromkeys((name for name in INTEGER_NAMES if name != "zero"), _LEFT_IN_INTEGERS)
    return Start(
        start.memory, {**integers, **dict.fromkeys(FLOAT_NAMES, floats), **start.registers}, used=True
    )


def _given(call: Call, request: RunRequest) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng([request.seed, 0])
    found = []
    for place in call.places[: call.inputs]:
        if request.inputs is not None:
            found.append(np.ascontiguousarray(request.inputs[place.spec.name], place.dtype))
        else:
            found.append((rng.random(place.spec.shape) * 2 - 1).astype(place.dtype))
    return found


def wrong_in(call: Call, start: Start, result: Outcome) -> Failure | None:
    """The failure of a call that returned an error, wrote outside its arrays, or changed an input; else
    None."""
    before = start.memory
    if result.registers["t6"]:
        return Failure("runtime", f"the kernel returned {result.registers['t6']}, 0 means success")
    for place in call.places[: call.inputs]:
        at = place.address - TCDM_BASE
        if result.memory[at : at + place.size] != before[at : at + place.size]:
            return Failure("input_modified", f"the kernel changed its input {place.spec.name}")
    for at, count in call.gaps():
        if result.memory[at : at + count] != before[at : at + count]:
            return Failure("wrong_result", f"the kernel wrote near 0x{TCDM_BASE + at:x}, outside its arrays")
    return None


def _disagree(call: Call, first: Outcome, second: Outcome) -> Failure | None:
    """The failure if two calls that started with different bits in the outputs end with different outputs."""
    for place in call.outputs:
        start = place.address - TCDM_BASE
        one, other = (r.memory[start : start + place.size] for r in (first, second))
        if one != other:
            words = "are never written, read first, or come of memory or registers that nobody has set"
            return Failure("wrong_result", f"elements of {place.spec.name} {words}")
    return None


# -- the child process -------------------------------------------------------------------------------


def execute(call: Call, starts: Sequence[Start], request: RunRequest) -> list[Simulation] | Failure:
    """Simulate the call from each of the starts."""
    prepared = [
        prepare(call.program, s.memory, s.registers, MAX_CYCLES, used=s.used, late=s.late) for s in starts
    ]
    asked = job(prepared, ceil(request.timeout_s) + 1, request.memory_bytes + _OWN_BYTES)
    # Through files: a pipe takes a few KiB at a time of the megabytes that the sets' memories are.
    with TemporaryFile() as given, TemporaryFile() as answered:
        given.write(asked)
        given.seek(0)
        try:
            child = subprocess.run(
                [child_path()],
                stdin=given,
                stdout=answered,
                stderr=subprocess.PIPE,
                timeout=request.timeout_s,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return Failure("timeout", f"no result after {request.timeout_s:g} s")
        if child.returncode:
            said = child.stderr.decode("utf-8", "replace").strip()[-2000:]
            return Failure("runtime", f"the simulator ended with status {child.returncode}: {said}")
        whole = answer_bytes(prepared)
        if (size := answered.seek(0, 2)) != whole:
            return Failure("runtime", f"the simulator's answer has {size} bytes instead of {whole}")
        answered.seek(0)
        answer = answered.read(whole)
    try:
        return list(finish(call.program, prepared, answer))
    except DojoError as error:
        reason = "timeout" if error.code == "PD-S005" else "crash"
        return Failure(reason, error.render())  # type: ignore[arg-type]


def on_model(call: Call, starts: Sequence[Start], request: RunRequest) -> list[cluster.Outcome] | Failure:
    """The same on the hardware model that an environment variable names, which sets registers itself."""
    last = call.places[-1]
    used = TCDM_BYTES if call.stack else min(last.address - TCDM_BASE + last.size + GUARD, TCDM_BYTES)
    found = []
    for start in starts:
        memory = bytes(start.memory)
        one = cluster.execute(call.kernel, call.registers, memory, used, request.timeout_s)
        if isinstance(one, Failure):
            return one
        found.append(one)
    return found
