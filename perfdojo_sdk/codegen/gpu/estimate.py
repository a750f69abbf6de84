"""An estimate of the time of a call: a roofline for each launch, reduced if there are few threads.

A launch takes the longest of these times: its data through memory, its requests through the second-level
cache, its traffic in shared memory, its arithmetic, and the chain of one thread's steps. Bandwidths and peaks
need enough threads; a fraction of them gets the same fraction of the speed. Every launch has a fixed cost.
All figures but one factor come from the target file and not from a run, so a time is marked *estimated*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from perfdojo_sdk.codegen.gpu.bundle import unpack
from perfdojo_sdk.codegen.gpu.figures import LaunchFigures, launches_in
from perfdojo_sdk.hookspecs.services import TimeBreakdown, TimePart
from perfdojo_sdk.hookspecs.types import Artifact, Capabilities

#: Seconds from one launch to the next in a stream that is kept full.
LAUNCH_S = 2e-6
#: Threads of a multiprocessor that keep its arithmetic, and the memory, busy.
ENOUGH_THREADS = 512
#: Cycles of one step of one thread when nothing else is ready: a dependent instruction, and an access.
STEP_CYCLES = 6
#: The fraction of the peak that matrix products reach, since their threads also load and add up. On one H100
#: a product of 4096 x 4096 x 4096 reached 0.66 of it, and cuBLAS 0.77 (measured).
REACHED = 0.7
#: A slow operation (exp, a division) is so many plain ones.
SLOW = 12
#: Bytes of shared memory that a multiprocessor moves in a cycle.
SHARED_BYTES_PER_CYCLE = 128


@dataclass(frozen=True)
class Estimate:
    """Seconds of a call, and their parts."""

    seconds: float
    parts: tuple[tuple[str, float], ...]
    """(what binds a launch, seconds), launch by launch."""


def estimate(launches: Sequence[LaunchFigures], capabilities: Capabilities) -> Estimate:
    parts: list[tuple[str, float]] = []
    for launch in launches:
        for what, seconds in _launch(launch, capabilities):
            parts.append((what, seconds))
    return Estimate(sum(seconds for _, seconds in parts), tuple(parts))


def _launch(launch: LaunchFigures, capabilities: Capabilities) -> list[tuple[str, float]]:
    options, memory, last = capabilities.options, capabilities.memory, capabilities.last_cache
    assert memory is not None and last is not None, "the target file has figures of memory and a cache"
    processors, hertz = options["multiprocessors"], options["clock_ghz"] * 1e9
    busy = min(launch.blocks, processors)
    resident = min(launch.blocks * launch.threads, processors * ENOUGH_THREADS)
    share = resident / (processors * ENOUGH_THREADS)
    # A last wave of blocks that is not full takes as long as a full one.
    waves = launch.blocks / processors
    uneven = ceil(waves) / waves if waves > 1 else 1.0
    cache = last.read_gbs * 1e9
    gflops = capabilities.peak_gflops
    peak = gflops["f32"] * 1e9 / 2
    matrix = sum(n / (gflops.get(d, gflops["f32"]) * 1e9 / 2) for d, n in launch.matrix_operations.items())
    plain = launch.operations - sum(launch.matrix_operations.values()) + SLOW * launch.slow_operations
    turns = ceil(launch.blocks * launch.threads / (processors * 2048))
    candidates = {
        "memory": launch.must_move / (memory.copy_gbs * 1e9 * share),
        "second cache": launch.asked_for / (cache * share),
        "shared memory": launch.shared_traffic / (SHARED_BYTES_PER_CYCLE * hertz * busy),
        "arithmetic": (plain / (REACHED * peak) + matrix) / share * uneven,
        "one thread's steps": launch.times * launch.steps * turns * STEP_CYCLES / hertz,
    }
    what = max(candidates, key=lambda name: candidates[name])
    return [(what, candidates[what]), ("launching", launch.times * LAUNCH_S)]


def breakdown(artifact: Artifact, capabilities: Capabilities) -> TimeBreakdown:
    """The parts of the model's time, launch by launch."""
    launches = launches_in(unpack(artifact.content))
    paper = estimate(launches, capabilities)
    parts = []
    for k, (what, seconds) in enumerate(paper.parts):
        name = launches[k // 2].kernel.rpartition("_")[2]
        parts.append(TimePart(f"{name}: {what}", seconds, "by the target's model"))
    limit = max(paper.parts, key=lambda part: part[1])[0] if paper.parts else ""
    return TimeBreakdown("seconds", tuple(parts), "estimated", limit)
