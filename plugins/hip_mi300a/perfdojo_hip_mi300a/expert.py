"""The expert's pass: the SDK's plans for blocks and warps, with this machine's sizes."""

from __future__ import annotations

from perfdojo_hip_mi300a.codegen import machine
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experts.gpu import heuristic as plans
from perfdojo_sdk.hookspecs.types import Target


def heuristic(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """A game for vector units, and one for matrix units where the kernel has a product for them."""
    return plans.heuristic(root, rules, machine(target.capabilities))
