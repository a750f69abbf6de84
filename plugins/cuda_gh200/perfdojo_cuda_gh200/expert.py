"""The expert's pass: the SDK's plans for blocks and warps, with this machine's sizes."""

from __future__ import annotations

from perfdojo_cuda_gh200.codegen import machine
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experts.gpu import heuristic as plans
from perfdojo_sdk.hookspecs.types import Target


def heuristic(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """One game; which of several is faster, a measurement on a GPU would have to say."""
    return plans.heuristic(root, rules, machine(target.capabilities))
