"""The expert for processors with vectors and caches, driven by the target file's figures.

It is a planner (``planner.py``): it takes a program apart where that pays, and plans each part by what it is.
A *contraction* (c += a*b) is tiled for registers: the accumulators fill the vector registers and b is packed
a panel at a time. *Rows* are bound by memory: they are fused until each is read once, reductions get one
partial result for each lane of a few independent vectors, and data is prefetched. Any other *nest* gets lanes
along neighbours and an order of its loops.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experts.cpu import planner
from perfdojo_sdk.hookspecs.services import Plan
from perfdojo_sdk.hookspecs.types import Target


@dataclass(frozen=True)
class CpuExpert:
    """The pass, which can also tell why it plays as it does."""

    constants: frozenset[str] = frozenset()
    """Inputs that stay as they are from call to call."""

    def __call__(self, root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
        """One game for each of a few plans, of which only a measurement can find the fastest."""
        return self.plan(root, rules, target).games

    def plan(self, root: Program, rules: Rules, target: Target) -> Plan:
        """The games with the decisions behind them."""
        return planner.plan(root, rules, target, self.constants)

    def knowing(self, constants: Collection[str]) -> CpuExpert:
        """The pass for programs in which these inputs are constants."""
        return CpuExpert(frozenset(constants))


heuristic = CpuExpert()
