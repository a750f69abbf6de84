"""The runner: kernels on the simulator, in a child process with limits; cycles are the time.

Arrays lie one after the other from the start of TCDM, each on a multiple of 64 bytes with 64 bytes
between them; the stack grows down from its end. Whoever writes between them is seen, and whoever reads there
gives two results; of the SDK's executions, ``alignment`` and ``workspace`` are run. A call is timed as the
core's own benchmarks are: from the first instruction of the kernel to the fence after its last.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from perfdojo_riscv_snitch import cluster
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.elf import load_elf
from perfdojo_riscv_snitch.objects import write_object
from perfdojo_riscv_snitch.program import TCDM_BASE, TCDM_BYTES, Program
from perfdojo_riscv_snitch.simulator import Simulation, simulate
from perfdojo_riscv_snitch.simulator.native import child_path
from perfdojo_riscv_snitch.simulator.run import DEFAULT_MAX_CYCLES, answer_bytes, finish, job, prepare
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.interface import EXECUTIONS, WORKSPACE_TOO_SMALL
from perfdojo_sdk.hookspecs.services import SimulatedRun
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.worker import CARRIER, poison_of

OBJECT = "object"
TOOLCHAIN = "riscv_snitch assembler (rv32imafd Xssr Xfrep, ilp32d)"

GUARD = 64
#: What lies around arrays in the first and in the second call: numbers, and NaN in every type of float.
#: Whoever reads it and uses it gives two results.
_FILL = (0xA5, 0xFF)
#: Callers give arrays and a workspace that start at multiples of so many bytes.
_ALIGNMENT = 8
#: Memory of the simulator itself, beside that of what it simulates.
_OWN_BYTES = 1 << 28
#: Beyond this a kernel is taken to run for ever: two minutes of simulated time.
MAX_CYCLES = 500_000_000

#: Calls the kernel whose address is in t3 and measures it; arguments are in place.
_CALL = "csrr t4, mcycle; jalr ra, 0(t3); fence; csrr t5, mcycle; mv t6, a0; ecall"
#: What a callee leaves as it is (RISC-V ELF psABI), by the bits that the caller puts there.
_KEPT = {name: 0x5EED0000 + 0x111 * k for k, name in enumerate([*(f"s{k}" for k in range(12)), "gp", "tp"])}
_KEPT_FLOATS = {f"fs{k}": _KEPT[f"s{k}"] for k in range(12)}
#: The same call after the kept integers were copied into the kept FP registers; then a number goes through
#: ft0, which it does only while streams are off.
_KEEPING = (
    "; ".join(f"fcvt.d.w fs{k}, s{k}" for k in range(12))
    + "; jalr ra, 0(t3); fence; mv t6, a0; fcvt.d.w ft0, s1; fcvt.w.d t5, ft0; ecall"
)


@dataclass(frozen=True)
class Place:
    """Where an array of a call lies."""

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
    """With the instructions that call the kernel."""
    kernel: Program
    places: tuple[Place, ...]
    inputs: int
    """So many of the places are inputs."""
    registers: Mapping[str, int]
    stack: Mapping[int, bytes]
    """Arguments that find no register."""

    @property
    def outputs(self) -> tuple[Place, ...]:
        return self.places[self.inputs : -1]

    def gaps(self) -> list[tuple[int, int]]:
        """(offset in TCDM, bytes) of what no array and no stack uses."""
        ends = [(p.address - TCDM_BASE, p.size) for p in self.places]
        found, at = [], 0
        for start, count in ends:
            found.append((at, start - at))
            at = start + count
        found.append((at, min(GUARD, TCDM_BYTES - at)))
        return [gap for gap in found if gap[1]]


@dataclass(frozen=True)
class SnitchRunner:
    """Assembles and simulates. A value: it pickles."""

    clock_hz: float = 1e9
    """Turns cycles into the seconds of a measurement."""

    def compile(self, source: KernelSource) -> Artifact | Failure:
        try:
            content = write_object(assemble(source.code, f"{source.symbol}.s"))
        except DojoError as error:
            return Failure("compile", error.render())
        return Artifact(source.symbol, source.inputs, source.outputs, OBJECT, content, TOOLCHAIN)

    def device(self) -> str:
        if model := cluster.binary():
            return f"one Snitch core complex, by the model {Path(model).name}, TCDM 128 KiB"
        return f"one Snitch core complex, simulated at {self.clock_hz / 1e9:g} GHz, TCDM 128 KiB"

    def simulate(self, program: Path, *, trace: bool = False, max_cycles: int | None = None) -> SimulatedRun:
        """Run a file of assembly or an ELF file, as it is."""
        result = simulate(program, trace=trace, max_cycles=max_cycles or DEFAULT_MAX_CYCLES)
        registers = {name: f"0x{value:08x}" for name, value in result.registers.items()}
        registers |= {name: f"0x{bits:016x}" for name, bits in result.fp_registers.items()}
        counted = {
            "whole run, cycles": float(result.total_cycles),
            "instructions": float(result.instructions),
            "FPU instructions": float(result.fpu_instructions),
            "FP loads and stores": float(result.fp_memory_instructions),
            "FPU utilisation": result.fpu_utilisation,
        }
        lines = tuple(map(str, result.trace))
        return SimulatedRun(result.cycles, counted, result.stalls, registers, lines)

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        called: tuple[Call, Outcome] | Failure
        if cluster.binary():
            called = call_kernel(artifact, request, on_model)
        else:
            called = call_kernel(artifact, request, execute)
        if isinstance(called, Failure):
            return called
        call, first = called
        seconds = (first.cycles / self.clock_hz,) if request.repeats else ()
        outputs = {p.spec.name: p.of(first.memory) for p in call.outputs}
        executed = () if cluster.binary() else put_through(artifact, request, outputs)
        if isinstance(executed, Failure):
            return executed
        return Measurement(
            outputs if request.want_outputs else None,
            seconds,
            "simulated",
            self.device(),
            request.threads,
            details=figures(first),
            executions=executed,
        )


def figures(result: Outcome) -> dict[str, float]:
    """What a measurement tells beside the time."""
    if not isinstance(result, Simulation):
        return {"snitch.cycles": float(result.cycles)}
    return {
        "snitch.cycles": float(result.cycles),
        "snitch.instructions": float(result.instructions),
        "snitch.fpu_utilisation": result.fpu_utilisation,
    }


class Outcome(Protocol):
    """What is looked at after a call."""

    @property
    def cycles(self) -> int: ...
    @property
    def memory(self) -> bytes: ...
    @property
    def registers(self) -> Mapping[str, int]: ...


Result = TypeVar("Result", bound=Outcome)
#: Runs a call on each of several images of TCDM.
Execute: TypeAlias = Callable[["Call", Sequence[bytearray], RunRequest], "list[Result] | Failure"]


def call_kernel(
    artifact: Artifact, request: RunRequest, execute: Execute[Result]
) -> tuple[Call, Result] | Failure:
    """Call the kernel twice, on outputs poisoned differently: both calls must agree."""
    try:
        call = prepare_call(artifact)
    except DojoError as error:
        return Failure("runtime", error.render())
    if isinstance(call, Failure):
        return call
    inputs = _given(call, request)
    images = [_image(call, inputs, variant) for variant in (0, 1)]
    finished = execute(call, images, request)
    if isinstance(finished, Failure):
        return finished
    first, second = finished
    wrong = _wrong(call, images[0], first) or _wrong(call, images[1], second)
    return wrong or _disagree(call, first, second) or (call, first)


def put_through(
    artifact: Artifact, request: RunRequest, expected: Mapping[str, np.ndarray[Any, Any]]
) -> tuple[str, ...] | Failure:
    """The request's executions that a simulator of one core has a use for, or how the kernel fails in one."""
    done: list[str] = []
    actions = {"alignment": _misaligned, "workspace": _short_of_workspace, "float_control": _left_as_it_was}
    for name, action in actions.items():
        if name in request.executions:
            failed = action(artifact, request, expected)
            if failed:
                return Failure(failed.reason, f"{EXECUTIONS[name]}: {failed.detail}")
            done.append(name)
    return tuple(done)


def _misaligned(
    artifact: Artifact, request: RunRequest, expected: Mapping[str, np.ndarray[Any, Any]]
) -> Failure | None:
    """Arrays that start at multiples of eight bytes and of no more."""
    call = prepare_call(artifact, shift=_ALIGNMENT)
    if isinstance(call, Failure):
        return None if call.reason == "memory" else call
    image = _image(call, _given(call, request), 0)
    finished = execute(call, [image], request)
    if isinstance(finished, Failure):
        return finished
    if wrong := _wrong(call, image, finished[0]):
        return wrong
    for place in call.outputs:
        if place.of(finished[0].memory).tobytes() != expected[place.spec.name].tobytes():
            return Failure("wrong_result", f"elements of {place.spec.name} differ from those of a plain call")
    return None


def _short_of_workspace(
    artifact: Artifact, request: RunRequest, _: Mapping[str, np.ndarray[Any, Any]]
) -> Failure | None:
    """Of one byte: the kernel has to say so, and to leave everything as it is."""
    call = prepare_call(artifact, less=1)
    if isinstance(call, Failure):
        return call
    if not call.places[-1].size:
        return None
    image = _image(call, _given(call, request), 0)
    finished = execute(call, [image], request)
    if isinstance(finished, Failure):
        return finished
    status = finished[0].registers["t6"]
    if status != WORKSPACE_TOO_SMALL:
        words = f"one byte is missing: the kernel returned {status} instead of {WORKSPACE_TOO_SMALL}"
        return Failure("wrong_result", words)
    end = call.places[-1].address - TCDM_BASE + call.places[-1].size
    if finished[0].memory[:end] != image[:end]:
        return Failure("wrong_result", "one byte is missing: the kernel wrote into its arrays all the same")
    return None


def _left_as_it_was(
    artifact: Artifact, request: RunRequest, _: Mapping[str, np.ndarray[Any, Any]]
) -> Failure | None:
    """The core after the call: registers that are the caller's, rounding, streams."""
    call = prepare_call(artifact, code=_KEEPING)
    if isinstance(call, Failure):
        return call
    call = replace(call, registers={**_KEPT, **call.registers})
    finished = execute(call, [_image(call, _given(call, request), 0)], request)
    if isinstance(finished, Failure):
        return finished
    [after] = finished
    kept = {**_KEPT, "sp": call.registers["sp"]}
    floats = {name: struct.unpack("<Q", struct.pack("<d", n))[0] for name, n in _KEPT_FLOATS.items()}
    changed = [name for name, bits in kept.items() if after.registers[name] != bits]
    changed += [name for name, bits in floats.items() if after.fp_registers[name] != bits]
    changed += ["the rounding mode"] * bool(after.fcsr >> 5)
    changed += ["streams, still on,"] * (after.registers["t5"] != _KEPT["s1"])
    return Failure("wrong_result", f"after the call, {', '.join(changed)} differ") if changed else None


def prepare_call(artifact: Artifact, shift: int = 0, less: int = 0, code: str = _CALL) -> Call | Failure:
    """A call of the kernel by ``code``, with its arrays laid out, ``shift`` bytes further on, and told of so
    many bytes of workspace ``less`` than there are; DojoError when the object is none."""
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
    """What the kernel asks for; the function that tells is simulated too."""
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


# -- memory ------------------------------------------------------------------------------------------


def _given(call: Call, request: RunRequest) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng([request.seed, 0])
    found = []
    for place in call.places[: call.inputs]:
        if request.inputs is not None:
            found.append(np.ascontiguousarray(request.inputs[place.spec.name], place.dtype))
        else:
            found.append((rng.random(place.spec.shape) * 2 - 1).astype(place.dtype))
    return found


def _image(call: Call, inputs: Sequence[np.ndarray[Any, Any]], variant: int) -> bytearray:
    """TCDM before the call: inputs, poisoned outputs and workspace, a pattern everywhere else."""
    image = bytearray([_FILL[variant]]) * TCDM_BYTES
    for place, array in zip(call.places, inputs, strict=False):
        start = place.address - TCDM_BASE
        image[start : start + place.size] = array.tobytes()
    for place in call.places[call.inputs :]:
        start, width = place.address - TCDM_BASE, place.dtype.itemsize
        poison = poison_of(place.spec.dtype, variant).to_bytes(width, "little")
        image[start : start + place.size] = poison * (place.size // width)
    for address, content in (*call.program.data, *call.stack.items()):
        image[address - TCDM_BASE : address - TCDM_BASE + len(content)] = content
    return image


def _wrong(call: Call, before: bytearray, result: Outcome) -> Failure | None:
    """What a call must not do: fail, touch memory that is not its own, change an input."""
    if result.registers["t6"]:
        return Failure("runtime", f"the kernel returned {result.registers['t6']}, 0 means success")
    for place in call.places[: call.inputs]:
        start = place.address - TCDM_BASE
        if result.memory[start : start + place.size] != before[start : start + place.size]:
            return Failure("input_modified", f"the kernel changed its input {place.spec.name}")
    for start, count in call.gaps():
        if result.memory[start : start + count] != before[start : start + count]:
            where = f"near 0x{TCDM_BASE + start:x}"
            return Failure("wrong_result", f"the kernel wrote {where}, outside its arrays")
    return None


def _disagree(call: Call, first: Outcome, second: Outcome) -> Failure | None:
    """Two calls that started with different bits in the outputs end with the same."""
    for place in call.outputs:
        start = place.address - TCDM_BASE
        one, other = (r.memory[start : start + place.size] for r in (first, second))
        if one != other:
            return Failure("wrong_result", f"elements of {place.spec.name} are never written, or read first")
    return None


# -- the child process -------------------------------------------------------------------------------


def execute(call: Call, images: Sequence[bytearray], request: RunRequest) -> list[Simulation] | Failure:
    """Simulate the call on each of the images of TCDM."""
    prepared = [prepare(call.program, image, call.registers, MAX_CYCLES) for image in images]
    try:
        child = subprocess.run(
            [child_path()],
            input=job(prepared, ceil(request.timeout_s) + 1, request.memory_bytes + _OWN_BYTES),
            capture_output=True,
            timeout=request.timeout_s,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Failure("timeout", f"no result after {request.timeout_s:g} s")
    if child.returncode:
        said = child.stderr.decode("utf-8", "replace").strip()[-2000:]
        return Failure("runtime", f"the simulator ended with status {child.returncode}: {said}")
    if len(child.stdout) != (whole := answer_bytes(prepared)):
        return Failure("runtime", f"the simulator's answer has {len(child.stdout)} bytes instead of {whole}")
    try:
        return list(finish(call.program, prepared, child.stdout))
    except DojoError as error:
        reason = "timeout" if error.code == "PD-S005" else "crash"
        return Failure(reason, error.render())  # type: ignore[arg-type]


def on_model(call: Call, images: Sequence[bytearray], request: RunRequest) -> list[cluster.Outcome] | Failure:
    """The same on the model of the hardware that the environment names."""
    last = call.places[-1]
    used = TCDM_BYTES if call.stack else min(last.address - TCDM_BASE + last.size + GUARD, TCDM_BYTES)
    found = []
    for image in images:
        one = cluster.execute(call.kernel, call.registers, bytes(image), used, request.timeout_s)
        if isinstance(one, Failure):
            return one
        found.append(one)
    return found
