"""The expert for processors with vectors and caches, driven by the target file's figures.

It has two plans. A *contraction* (c += a*b) is tiled for registers: the accumulators fill the vector
registers and b is packed a panel at a time. All other kernels are bound by memory: rows are fused
until each is read once, reductions get one partial result for each lane of a few independent
vectors, and data is prefetched.
"""

from __future__ import annotations

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.hookspecs.types import Target


def heuristic(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """One game for each of a few plans, of which only a measurement can find the fastest."""
    return plan(root, rules, target).games
