"""Where the estimated time of a call goes: what binds each launch, and the launches themselves."""

from __future__ import annotations

from perfdojo_cuda_gh200.estimate import estimate
from perfdojo_cuda_gh200.runner import launches_in
from perfdojo_sdk.hookspecs.services import TimeBreakdown, TimePart
from perfdojo_sdk.hookspecs.types import Artifact, Capabilities
from perfdojo_sdk.measure.bundle import unpack


def breakdown(artifact: Artifact, capabilities: Capabilities) -> TimeBreakdown:
    """The parts of the model's time, launch by launch."""
    launches = launches_in(unpack(artifact.content))
    paper = estimate(launches, capabilities)
    parts = []
    for k, (what, seconds) in enumerate(paper.parts):
        name = launches[k // 2].kernel.rpartition("_")[2]
        parts.append(TimePart(f"{name}: {what}", seconds, "by the model of docs/targets/cuda_gh200.md"))
    limit = max(paper.parts, key=lambda part: part[1])[0] if paper.parts else ""
    return TimeBreakdown("seconds", tuple(parts), "estimated", limit)
