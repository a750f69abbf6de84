"""What an x86 expert would do, in the game's own moves, driven by the target file's figures.

Two plans. A *contraction* (c += a*b) is tiled for registers: the accumulators fill the vector
registers and b is packed a panel at a time. Everything else is bound by memory, so
rows are fused until each is read once, reductions get one partial result for each lane of a few
independent vectors, and large outputs are stored past the caches.
"""

from __future__ import annotations

from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse, parallelise
from perfdojo_sdk.search.play import Play
from perfdojo_x86_avx512.contractions import find_contraction, tile_for_registers
from perfdojo_x86_avx512.row_kernels import stream_rows
from perfdojo_x86_avx512.steps import exceeds_caches, settle_buffers, use_lanes, write_out


def heuristic(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """One game; where outputs exceed the caches, one with streaming stores and one without.

    Which of the two is faster depends on more than bandwidths, so a measurement decides.
    """
    ways = (True, False) if exceeds_caches(root, target) else (False,)
    return tuple(play_as_expert(root, rules, target, streaming) for streaming in ways)


def play_as_expert(root: Program, rules: Rules, target: Target, streaming: bool) -> Trace:
    play = Play(root, rules)
    fuse(play, depth=0)
    contraction = find_contraction(play.program)
    if contraction is not None:
        tile_for_registers(play, contraction, target)
    else:
        stream_rows(play, target, streaming)
    contract(play)
    use_lanes(play)
    write_out(play, copies=target.capabilities.vector_registers)
    for node in play.program.body:
        if isinstance(node, Scope):
            parallelise(play, node.id)
    settle_buffers(play)
    return play.trace
