"""The toy target's knowledge of speed: its expert pass and its roofline."""

from __future__ import annotations

from math import prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.services import TimeBreakdown, TimePart
from perfdojo_sdk.hookspecs.types import Artifact, Bound, Failure, MachineFigures, RunRequest, Target
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.search.passes import contract, fuse, parallelise
from perfdojo_sdk.search.play import Play

from .target import CAPABILITIES


def expert(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """Fuse, reuse, give the outermost scopes to the threads."""
    play = Play(root, rules)
    fuse(play)
    contract(play)
    for node in play.program.body:
        if isinstance(node, Scope):
            parallelise(play, node.id)
    return (play.trace,)


def roofline(program: Program, threads: int, figures: MachineFigures) -> Bound | None:
    """Every input read once, every output written once."""
    memory = figures.memory
    if memory is None:
        return None
    buffers = [program.buffer_of[name] for name in (*program.inputs, *program.outputs)]
    count = sum(prod(b.shape) * BYTES[b.dtype] for b in buffers)
    seconds = count / (memory.copy_gbs * 1e9)
    return Bound(seconds, f"memory {memory.copy_gbs:g} GB/s", "estimated", figures.calibrated)


def breakdown(program: Program, artifact: Artifact, request: RunRequest) -> TimeBreakdown | None:
    """The time of the memory at the speed in the target's file, and the rest of the measured time."""
    measured = NativeRunner(CAPABILITIES.compiler_flags).run(artifact, request)
    bound = roofline(program, request.threads, CAPABILITIES.figures)
    if isinstance(measured, Failure) or bound is None:
        return None
    moving = min(bound.seconds, measured.median)
    parts = (
        TimePart("memory", moving, f"inputs and outputs once, at {bound.limit}"),
        TimePart("rest", measured.median - moving, "measured time beyond that"),
    )
    return TimeBreakdown("seconds", parts, "estimated", bound.limit)
