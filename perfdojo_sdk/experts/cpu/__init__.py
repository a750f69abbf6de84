"""The expert for processors with vectors and caches, driven by the target file's figures.

It has two plans. A *contraction* (c += a*b) is tiled for registers: the accumulators fill the vector
registers and b is packed a panel at a time. All other kernels are bound by memory: rows are fused
until each is read once, reductions get one partial result for each lane of a few independent
vectors, and data is prefetched.
"""

from __future__ import annotations

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experts.cpu.contractions import play_contractions
from perfdojo_sdk.experts.cpu.filters import play_filters
from perfdojo_sdk.experts.cpu.row_kernels import play_rows
from perfdojo_sdk.experts.cpu.steps import settle_buffers
from perfdojo_sdk.hookspecs.types import Target


def heuristic(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """One game for each of a few plans, of which only a measurement can find the fastest."""
    plays = [*play_contractions(root, rules, target), *play_filters(root, rules, target)]
    plays = plays or play_rows(root, rules, target)
    for play in plays:
        settle_buffers(play)
    return tuple(play.trace for play in plays)
