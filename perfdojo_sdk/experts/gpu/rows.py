"""Kernels that are bound by memory: each element is moved once, four at a time.

Element by element: all loops become one, distributed over blocks and threads. Row by row: a warp takes a row
if rows are short and many, else a block does; a reduction gets a partial result in each thread's registers,
warps combine theirs by shuffles, and a block those of its warps. Data that a row needs again stays in
registers.
"""

from __future__ import annotations

from math import prod

from perfdojo_sdk.codegen.gpu.mapping import BLOCK, GRID, SHUFFLE, WARP, Machine
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.made import Copied, Staged
from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.experts.gpu.steps import (
    WIDE,
    chain,
    collapse,
    factors,
    only_statement,
    share,
    split,
)
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.search.play import Play

#: Threads of a block that moves data.
THREADS = 256
#: Longest row for one warp, and fewest rows for which warps are enough.
WARP_ROW, WARP_ROWS = 1024, 2048
#: Elements of a row that one thread keeps in registers.
KEPT = 16
#: Most such elements for a row in several loops.
MOST_KEPT = 64
#: Most iterations of a loop that are unrolled.
WRITTEN_OUT = 8


def enough_blocks(machine: Machine) -> int:
    """Blocks that keep all multiprocessors busy to the end."""
    return 2 * machine.multiprocessors


def play_elements(play: Play, place: str, machine: Machine) -> None:
    """Map a nest whose iterations are all alike to blocks of threads, each with four neighbours."""
    kept, enough = play.trace, enough_blocks(machine)
    if not _share_elements(play, collapse(play, chain(play, place)), enough, even=True):
        play.trace = kept
        _share_elements(play, chain(play, place), enough, even=False)


def _share_elements(play: Play, loops: list[str], enough: int, even: bool) -> bool:
    """Map the nest to ``enough`` blocks if it has so many; ``even``: only where all blocks are alike."""
    statement = only_statement(play, loops[-1])
    size = play.scope(loops[-1]).size
    if statement is not None and statement.dtype == "f32" and size % WIDE == 0 and size > WIDE:
        outer, lanes = split(play, loops[-1], WIDE)
        play.may("annotate_scope", lanes, suffix="v")
        loops = [*loops[:-1], outer]
    size = play.scope(loops[-1]).size
    wanted, around = THREADS, prod(play.scope(loop).size for loop in loops[:-1])
    while wanted > 64 and around * -(-size // wanted) < enough:
        wanted //= 2
    fits = [d for d in factors(size, 2 * wanted) if 2 * d >= wanted]
    threads = min(fits, key=lambda d: (d % 32 != 0, abs(d - wanted)), default=wanted)
    if even and not fits and size > wanted:
        return False
    parts = share(play, loops[-1], threads) or [loops[-1]]
    grid, block = [*loops[:-1], *parts[:-1]], parts[-1:]
    if len(parts) == 1 and grid and size < wanted:
        above = split(play, grid[-1], factors(play.scope(grid[-1]).size, wanted // size)[-1])
        # A loop that fits as a whole joins the block, and one that does not leaves a part to the grid.
        whole = len(above) == 1 and play.scope(above[0]).size * size <= wanted
        grid[-1:], block = ([], [*above, *block]) if whole else (above[:1], [*above[1:], *block])
    mapped = [play.may("annotate_scope", loop, suffix=GRID) for loop in grid]
    mapped += [play.may("annotate_scope", loop, suffix=BLOCK) for loop in reversed(block)]
    return all(mapped)


def play_rows(play: Play, place: str, machine: Machine) -> None:
    """Map a nest in which each iteration of the loops at ``place`` is a row."""
    loops = chain(play, place)
    row = loops[-1]
    rows = 1
    for loop in loops:
        rows *= play.scope(loop).size
    longest = longest_row(play, row)
    threads = machine.warp
    if longest > WARP_ROW or rows < WARP_ROWS:
        threads = _block_threads(play, row, longest, machine)
    for child in [c.id for c in play.scope(row).body if isinstance(c, Scope)]:
        _spread(play, child, threads, machine.warp)
    if threads == machine.warp and len(loops) == 1:
        for warps in (8, 4, 2):
            if play.scope(row).size % warps == 0 and play.scope(row).size > warps:
                outer, inner = split(play, row, warps)
                play.may("annotate_scope", inner, suffix=BLOCK)
                play.may("annotate_scope", outer, suffix=GRID)
                return
    for loop in loops:
        play.may("annotate_scope", loop, suffix=GRID)


def longest_row(play: Play, row: str) -> int:
    """Iterations of the longest innermost loop directly inside a scope; 0 where there is none."""
    return max((_length(play, c) for c in play.scope(row).body if isinstance(c, Scope)), default=0)


def _length(play: Play, scope: Scope) -> int:
    return play.scope(chain(play, scope.id)[-1]).size


def _block_threads(play: Play, row: str, longest: int, machine: Machine) -> int:
    """Threads that share the longest row evenly; a warp where none do."""
    nests = [chain(play, c.id) for c in play.scope(row).body if isinstance(c, Scope)]
    sizes = {play.scope(nest[-1]).size for nest in nests}
    # If a row is in several loops, a thread has elements of each.
    whole = max(prod(play.scope(loop).size for loop in nest) for nest in nests)
    wanted = max(2 * machine.warp, min(machine.max_threads // 2, max(longest // KEPT, whole // MOST_KEPT)))
    choices = range(2 * machine.warp, machine.max_threads + 1, machine.warp)
    fits = [t for t in choices if all(size % (WIDE * t) == 0 for size in sizes)]
    fits = fits or [t for t in choices if all(size % t == 0 for size in sizes)]
    return min(fits, key=lambda t: abs(t - wanted), default=machine.warp)


def _spread(play: Play, place: str, threads: int, warp: int) -> None:
    """Share the innermost loop of a nest out among so many threads."""
    innermost = chain(play, place)[-1]
    statement = only_statement(play, innermost)
    if statement is None:
        return
    size = play.scope(innermost).size
    wide = WIDE if statement.dtype == "f32" and BYTES[statement.dtype] == 4 else 1
    for step in (threads * wide, threads):
        if size % step == 0:
            _spread_evenly(play, place, innermost, threads, step // threads, warp)
            return
        cut = play.may("split_range", innermost, at=size // step * step) if size > step else None
        if isinstance(cut, Copied):
            first, second = cut.parts
            if place != innermost:
                first, second = place, separate(play, second, place)
            for part in (second, first):
                _spread(play, part, threads, warp)
            return
    _spread_tail(play, place, innermost, statement)


def _spread_tail(play: Play, place: str, innermost: str, statement: Statement) -> None:
    """Map a loop with fewer iterations than threads: the first lanes take one each."""
    level = len(play.around(innermost))
    reduces = statement.accumulate and level not in statement.target.levels
    play.may("annotate_scope", innermost, suffix=SHUFFLE if reduces else WARP)


def _spread_evenly(play: Play, place: str, loop: str, threads: int, wide: int, warp: int) -> None:
    statement = only_statement(play, loop)
    assert statement is not None
    level = len(play.around(loop))
    reduces = statement.accumulate is not None and level not in statement.target.levels
    parts = split(play, loop, threads * wide)
    inner = split(play, parts[-1], wide) if wide > 1 else [parts[-1]]
    thread = inner[0]
    top = place if place != loop else parts[0] if len(parts) > 1 else thread
    if reduces:
        start, combine = play.split_reduction(top, thread)
        _combine(play, combine, threads, warp)
        _to_threads(play, start, threads, warp)
        nest = chain(play, top)
        for above in reversed(nest[: nest.index(thread)]):
            play.must("swap_scopes", above)
        top = thread
    if len(inner) > 1:
        play.may("annotate_scope", inner[1], suffix="v")
    for loop_ in chain(play, top):
        if not play.scope(loop_).suffix and loop_ != thread and play.scope(loop_).size <= WRITTEN_OUT:
            play.may("annotate_scope", loop_, suffix="u")
    _to_threads(play, thread, threads, warp)


def _to_threads(play: Play, place: str, threads: int, warp: int) -> None:
    play.may("annotate_scope", place, suffix=WARP if threads == warp else BLOCK)


def _combine(play: Play, place: str, threads: int, warp: int) -> None:
    """Add up the threads' partial results: lanes by shuffles, warps through shared memory."""
    if threads == warp:
        play.may("annotate_scope", place, suffix=SHUFFLE)
        return
    warps, lanes = split(play, place, warp)
    parts = play.may("split_reduction", warps, lane=warps)
    if not isinstance(parts, Staged):
        return
    start, combine = parts.nests
    play.may("annotate_scope", combine.top, suffix=SHUFFLE)
    play.may("annotate_scope", lanes, suffix=SHUFFLE)
    play.may("annotate_scope", warps, suffix=BLOCK)
    play.may("annotate_scope", start.top, suffix=BLOCK)
