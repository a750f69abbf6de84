"""What an x86 expert would do, in the game's own moves, driven by the target file's figures.

Two plans. A *contraction* (c += a*b) is tiled for registers: the accumulators fill the vector
registers and b is packed a panel at a time. Everything else is bound by memory: rows are fused
until each is read once, reductions get one partial result for each lane of a few independent
vectors, and memory is asked for what comes next. Where figures cannot tell which of two ways is
faster, both are played, and the builder measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse, parallelise
from perfdojo_sdk.search.play import Play
from perfdojo_x86_avx512.contractions import find_contraction, tile_for_registers
from perfdojo_x86_avx512.row_kernels import Windows, stream_rows
from perfdojo_x86_avx512.steps import data_bytes, settle_buffers, use_lanes, write_out

#: Seconds that starting the threads and waiting for the last one costs.
THREADS_COST = 15e-6


def heuristic(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """One game for each way that may be the fastest; which one is, depends on more than figures tell."""
    games: list[Trace] = []
    for threads in worth_threads(root, target):
        for windows in memory_ways(root, target):
            game = play_as_expert(root, rules, target, windows, threads)
            if all(game.program != other.program for other in games):
                games.append(game)
    return tuple(games)


def memory_ways(root: Program, target: Target) -> Iterator[Windows]:
    """Data that stays in a core's own cache needs no windows; stores past the caches may pay beyond them."""
    data = data_bytes(root)
    caches = target.capabilities.caches.values()
    if data <= max((c.bytes for c in caches if not c.shared), default=0):
        yield Windows()
        return
    yield Windows("soon", "ahead", "claim")
    if data > max((c.bytes for c in caches), default=0):
        yield Windows("soon", "ahead", "nt")


def worth_threads(root: Program, target: Target) -> tuple[bool, ...]:
    """Whether to use threads: no where moving the data costs less than starting them, both where near it."""
    capabilities, data = target.capabilities, data_bytes(root)
    speeds = [c.read_gbs for c in capabilities.caches.values() if data <= c.bytes]
    if not speeds and capabilities.memory:
        speeds = [capabilities.memory.copy_gbs]
    seconds = data / max(speeds, default=1) / 1e9
    if seconds < 2 * THREADS_COST:
        return (False,)
    return (True,) if seconds > 8 * THREADS_COST else (True, False)


def play_as_expert(root: Program, rules: Rules, target: Target, windows: Windows, threads: bool) -> Trace:
    play = Play(root, rules)
    fuse(play, depth=0)
    contraction = find_contraction(play.program)
    wishes: Mapping[str, str] = {}
    if contraction is not None:
        tile_for_registers(play, contraction, target)
    else:
        wishes = stream_rows(play, target, windows)
    contract(play)
    use_lanes(play)
    write_out(play, copies=target.capabilities.vector_registers)
    for node in play.program.body:
        if threads and isinstance(node, Scope):
            parallelise(play, node.id)
    settle_buffers(play, wishes)
    return play.trace
