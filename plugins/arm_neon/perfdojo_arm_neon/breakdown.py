"""The breakdown of an estimated time by bottleneck: limits of the code's blocks, or data movement."""

from __future__ import annotations

from dataclasses import replace

from perfdojo_arm_neon.runner import ArmRunner, waking_seconds
from perfdojo_sdk.hookspecs.services import TimeBreakdown, TimePart
from perfdojo_sdk.hookspecs.types import Artifact, Failure, RunRequest

#: The limit that binds a block -> its description.
WORDS = {
    "width": "as many operations as the core takes in a cycle",
    "chain": "each result waits for the one before it",
    "V": "the four pipes of vectors and floating point are busy",
    "V01": "the two of them that store and hand over values are busy",
    "V02": "the two of them that divide and convert are busy",
    "V13": "the two of them that shift and add up are busy",
    "V0": "the one of them that compares is busy",
    "V1": "the one of them that adds up lanes in order is busy",
    "L": "the three pipes of loads are busy",
    "L01": "the two pipes of stores are busy",
    "I": "the integer pipes are busy",
    "F": "the integer pipes that count in vectors are busy",
    "M": "the integer pipes that multiply are busy",
    "M0": "the integer pipe that divides is busy",
    "B": "the pipes of branches are busy",
}


def breakdown(artifact: Artifact, request: RunRequest, runner: ArmRunner) -> TimeBreakdown | None:
    """Parts that add up to the estimate; None when the kernel does not run."""
    found = runner.run(artifact, replace(request, repeats=1, want_outputs=False, stop_above_s=None))
    if isinstance(found, Failure):
        return None
    parts = [
        TimePart(name, found.details[f"cycles, {name}"] / runner.clock_hz, words)
        for name, words in WORDS.items()
        if found.details.get(f"cycles, {name}")
    ]
    computing = sum(part.amount for part in parts)
    moving = runner.moving_seconds(artifact, request.threads) - computing
    if moving > 0:
        parts.append(TimePart("memory", moving, "the data are on their way"))
    if waking_seconds(found):
        parts.append(TimePart("threads", waking_seconds(found), "they are woken, and the last one ends"))
    parts.sort(key=lambda part: -part.amount)
    return TimeBreakdown("seconds", tuple(parts), "estimated", f"{parts[0].name}: {parts[0].why}")
