"""The breakdown of a kernel's cycles by the state of the FPU: it computes, moves data, or waits."""

from __future__ import annotations

from perfdojo_riscv_snitch.calls import call_kernel, execute
from perfdojo_riscv_snitch.simulator import Simulation
from perfdojo_sdk.hookspecs.services import TimeBreakdown, TimePart
from perfdojo_sdk.hookspecs.types import Artifact, Failure, RunRequest

#: Least fraction of cycles spent on computing for a kernel to count as bound by the FPU.
BUSY = 0.85


def breakdown(artifact: Artifact, request: RunRequest) -> TimeBreakdown | None:
    """The parts of a call on our own simulator, which add up to its cycles; None when it does not run."""
    called = call_kernel(artifact, request, execute)
    if isinstance(called, Failure):
        return None
    parts = [part for part in parts_of(called[1]) if part.amount]
    return TimeBreakdown("cycles", tuple(parts), "simulated", limit(parts))


def parts_of(result: Simulation) -> list[TimePart]:
    """Every cycle of a run, in one part each."""
    stalls, shares = result.fp_stalls, result.shares
    waiting = stalls["fp_stream"] - shares["stream_conflict"]
    integer = stalls["fp_idle"] - shares["idle_setup"] - shares["idle_wait"]
    counts = (
        ("issue", result.fpu_instructions, "the FPU starts an instruction"),
        ("FP loads and stores", result.fp_memory_instructions, "they take the place of an instruction"),
        ("dependency", stalls["fp_dependency"], "an operand is not ready"),
        ("bank conflict", shares["stream_conflict"], "a bank had refused the datum of a stream"),
        ("stream", waiting, "the first datum of a stream is on its way, or memory is too slow"),
        ("FPU output", stalls["fp_pipeline"], "a result could not leave: port or write stream busy"),
        ("FP memory", stalls["fp_memory"], "too many loads and stores are under way"),
        ("SSR set-up", shares["idle_setup"] + shares["fp_switches"], "streams are configured and switched"),
        ("waiting core", shares["idle_wait"], "the integer core waits for memory or the FPU"),
        ("integer overhead", integer, "loops, addresses, calls: the FPU has no instruction"),
    )
    return [TimePart(name, float(count), why) for name, count, why in counts]


def limit(parts: list[TimePart]) -> str:
    """A sentence that names the bottleneck: the FPU when it is busy, else the largest other part."""
    total = sum(part.amount for part in parts)
    issue = next((part.amount for part in parts if part.name == "issue"), 0.0)
    if issue >= BUSY * total:
        return f"the FPU, which computes in {issue / total:.0%} of the cycles"
    rest = [part for part in parts if part.name != "issue"]
    most = max(rest, key=lambda part: part.amount)
    return f"{most.name}, {most.amount / total:.0%} of the cycles: {most.why}"
