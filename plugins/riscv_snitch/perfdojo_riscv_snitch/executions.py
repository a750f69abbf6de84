"""The SDK's executions that make sense on a simulator of one core: each shows faults that a plain call
hides."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from perfdojo_riscv_snitch.calls import Call, execute, prepare_call, replaced, start_of, wrong_in
from perfdojo_riscv_snitch.program import TCDM_BASE
from perfdojo_riscv_snitch.simulator import Simulation
from perfdojo_riscv_snitch.simulator.native import LATE_ACCESSES, LATE_STREAMS
from perfdojo_sdk.core.interface import EXECUTIONS, WORKSPACE_TOO_SMALL
from perfdojo_sdk.hookspecs.types import Artifact, Failure, RunRequest

#: Alignment in bytes that callers guarantee for arrays and the workspace.
_ALIGNMENT = 8
#: The content of registers in such a call: 1e30 as one f32.
_LEFT_AS_F32 = 0xFFFFFFFF_7149F2CA
#: Registers that a callee must preserve (RISC-V ELF psABI) -> the bits that the caller puts there.
_KEPT = {name: 0x5EED0000 + 0x111 * k for k, name in enumerate([*(f"s{k}" for k in range(12)), "gp", "tp"])}
_KEPT_FLOATS = {f"fs{k}": _KEPT[f"s{k}"] for k in range(12)}
#: A call after the kept integers were copied into the kept FP registers; then a number goes through
#: ft0, which it does only while streams are off.
_KEEPING = (
    "; ".join(f"fcvt.d.w fs{k}, s{k}" for k in range(12))
    + "; jalr ra, 0(t3); fence; mv t6, a0; fcvt.d.w ft0, s1; fcvt.w.d t5, ft0; ecall"
)
#: Code for as many calls as s11 says, with the same arguments; the caller ends as soon as the last returns.
_AGAIN = "; ".join(
    [
        *(f"mv s{k + 2}, a{k}" for k in range(8)),
        "mv s10, t3",
        "1: " + "; ".join(f"mv a{k}, s{k + 2}" for k in range(8)),
        "jalr ra, 0(s10)",
        "mv t6, a0",
        "bnez t6, 2f",
        "addi s11, s11, -1",
        "bnez s11, 1b",
        "2: ecall",
    ]
)
#: Most calls in a row, and most cycles for them; at least two calls are made.
_CALLS, _CYCLES = 50, 500_000

Arrays: TypeAlias = Mapping[str, "np.ndarray[Any, Any]"]
Action: TypeAlias = Callable[[Artifact, RunRequest, Arrays, int], "Failure | None"]


def put_through(
    artifact: Artifact, request: RunRequest, expected: Arrays, cycles: int
) -> tuple[str, ...] | Failure:
    """Run the request's executions that make sense on a simulator of one core; their names, or a failure.

    ``expected``: the results of a plain call, which took ``cycles``.
    """
    done: list[str] = []
    for name, action in _ACTIONS.items():
        if name in request.executions:
            failed = action(artifact, request, expected, cycles)
            if failed:
                return Failure(failed.reason, f"{EXECUTIONS[name]}: {failed.detail}")
            done.append(name)
    return tuple(done)


def _misaligned(artifact: Artifact, request: RunRequest, expected: Arrays, _: int) -> Failure | None:
    """Call with arrays that are aligned to eight bytes and no more, and with one f32 in each register."""
    call = prepare_call(artifact, shift=_ALIGNMENT)
    if isinstance(call, Failure):
        return None if call.reason == "memory" else call
    start = replaced(start_of(call, request), _LEFT_AS_F32)
    finished = execute(call, [start], request)
    if isinstance(finished, Failure):
        return finished
    return wrong_in(call, start, finished[0]) or _others(call, finished[0], expected)


def _short_of_workspace(artifact: Artifact, request: RunRequest, _: Arrays, __: int) -> Failure | None:
    """Call with a workspace one byte too small: the kernel must report it and change nothing."""
    call = prepare_call(artifact, less=1)
    if isinstance(call, Failure):
        return call
    if not call.places[-1].size:
        return None
    start = start_of(call, request)
    finished = execute(call, [start], request)
    if isinstance(finished, Failure):
        return finished
    status = finished[0].registers["t6"]
    if status != WORKSPACE_TOO_SMALL:
        words = f"one byte is missing: the kernel returned {status} instead of {WORKSPACE_TOO_SMALL}"
        return Failure("wrong_result", words)
    end = call.places[-1].address - TCDM_BASE + call.places[-1].size
    if finished[0].memory[:end] != start.memory[:end]:
        return Failure("wrong_result", "one byte is missing: the kernel wrote into its arrays all the same")
    return None


def _left_as_it_was(artifact: Artifact, request: RunRequest, _: Arrays, __: int) -> Failure | None:
    """Compare the core's state after the call: registers of the caller, rounding mode, streams."""
    call = prepare_call(artifact, code=_KEEPING)
    if isinstance(call, Failure):
        return call
    call = replace(call, registers={**_KEPT, **call.registers})
    start = start_of(call, request)
    # A loop too many of a stream ends at once if its bound is zero, and remains if it is not.
    finished = execute(call, [start, replaced(start)], request)
    if isinstance(finished, Failure):
        return finished
    return next(filter(None, (_changed_by(call, after) for after in finished)), None)


def _changed_by(call: Call, after: Simulation) -> Failure | None:
    """The failure that tells which state of the caller differs after the call."""
    kept = {**_KEPT, "sp": call.registers["sp"]}
    floats = {name: struct.unpack("<Q", struct.pack("<d", n))[0] for name, n in _KEPT_FLOATS.items()}
    changed = [name for name, bits in kept.items() if after.registers[name] != bits]
    changed += [name for name, bits in floats.items() if after.fp_registers[name] != bits]
    changed += ["the rounding mode"] * bool(after.fcsr >> 5)
    changed += ["streams, still on,"] * (after.registers["t5"] != _KEPT["s1"])
    if changed:
        return Failure("wrong_result", f"after the call, {', '.join(changed)} differ")
    if after.left:
        return Failure("wrong_result", f"after the call, {', '.join(after.left)} has a job or data left")
    return None


def _in_a_row(artifact: Artifact, request: RunRequest, expected: Arrays, cycles: int) -> Failure | None:
    """Call repeatedly without a pause, with contention for the memory; all results must be stored when a call
    returns."""
    call = prepare_call(artifact, code=_AGAIN)
    if isinstance(call, Failure):
        return call
    start = start_of(call, request)
    # Also make one call alone: results of an earlier call would hide that a call reads too early.
    counts = (1, max(2, min(_CALLS, _CYCLES // max(cycles, 1))))
    starts = [
        replace(start, registers={**start.registers, "s11": count}, late=late)
        for late in (LATE_STREAMS, LATE_ACCESSES)
        for count in counts
    ]
    finished = execute(call, starts, request)
    if isinstance(finished, Failure):
        return finished
    for after in finished:
        if wrong := wrong_in(call, start, after) or _others(call, after, expected):
            return wrong
        if after.unstored:
            return Failure("wrong_result", f"it returned before {', '.join(after.unstored)} had stored all")
    return None


def _others(call: Call, result: Simulation, expected: Arrays) -> Failure | None:
    for place in call.outputs:
        if place.of(result.memory).tobytes() != expected[place.spec.name].tobytes():
            return Failure("wrong_result", f"elements of {place.spec.name} differ from those of a plain call")
    return None


_ACTIONS: Mapping[str, Action] = {
    "alignment": _misaligned,
    "workspace": _short_of_workspace,
    "float_control": _left_as_it_was,
    "repeated": _in_a_row,
}
