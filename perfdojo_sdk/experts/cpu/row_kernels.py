"""Kernels that are bound by memory: each value is loaded once, and used while it is in a cache.

1. The loops that all statements of a row share become the outermost ones, and are fused.
2. A division by a row's value becomes a multiplication.
3. Rows are cut into blocks of vectors, single vectors and a masked tail; a reduction keeps one
   partial result for each lane of a block.
4. Loops over the same part of a row are brought together.
5. Data that comes next is prefetched, and so are the lines that will be written.
6. Threads share the rows or, if there are few rows, parts of them.
7. Stores past the caches take time to drain. So the loop that makes them for one row is joined with a loop
   that computes the next row.

If figures cannot tell which of two plans is faster, both are played, and the builder measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import product
from math import prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.expression import Read, operations
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.groups import factors_in
from perfdojo_sdk.core.made import Copied, Cut
from perfdojo_sdk.core.magnitudes import invertible
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.analysis import lanes_of, seconds_to_move
from perfdojo_sdk.experts.cpu.row_statistics import compute_again, sum_and_squares_together
from perfdojo_sdk.experts.cpu.steps import (
    SHARES,
    data_bytes,
    groups_of,
    join_distant,
    largest_divisor,
    near_caches,
    outermost,
    perfect_nest,
    settle_buffers,
    share_out,
    split,
    use_groups,
    use_lanes,
    write_out,
)
from perfdojo_sdk.experts.cpu.windows import Windows, memory_ways, open_windows
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse
from perfdojo_sdk.search.play import Play

#: Independent vectors that a reduction keeps in flight: latency times throughput of an addition.
CHAINS = 4

#: Seconds that handing work to threads which are awake, and waiting for the last one, costs with margin.
THREADS_COST = 3e-6

#: Threads do not pay where moving the data takes less than so many times as long as starting them; where it
#: takes more than the second number of times, they do.
LITTLE, MUCH = 2, 8

#: Rows that are processed together, since they share data.
ABREAST = 4

#: Most rows that one thread processes in one run, each overlapping with the next.
RUN = 128

#: The first-level cache must hold so many rows for two of them, with their temporaries, to stay in it.
IN_STEP_ROWS = 4

#: Loops with less than this part of the longest loop's work (as a divisor) are left unchanged.
MINOR = 64

#: Most waste by vectors with idle lanes, which cost as much as full ones, before rows are cut.
MOST_WASTE = 1.15


class Together(Enum):
    """The plan for several rows at a time."""

    NOTHING = 0
    ABREAST = 1
    """A few rows are processed together, since they share more data than fits in the first-level cache."""
    IN_STEP = 2
    """The end of one row overlaps with the beginning of the next, for work to do while the stores drain."""


def play_rows(root: Program, rules: Rules, target: Target) -> list[Play]:
    """One game for each plan that may be the fastest; figures alone cannot tell which one is."""
    plays: list[Play] = []
    ways = product(worth_threads(root, target), memory_ways(root, target), Together)
    for threads, windows, together in ways:
        if together is Together.IN_STEP and (not windows.store or windows.asks_early):
            continue
        play = Play(root, rules)
        done = stream_rows(play, target, windows, threads, together)
        if done and all(play.program != other.program for other in plays):
            plays.append(play)
    return plays


def worth_threads(root: Program, target: Target) -> tuple[bool, ...]:
    """The uses of threads to try: none if moving the data takes less time than starting them, both if it
    takes about as much."""
    seconds = seconds_to_move(data_bytes(root), target)
    if seconds < LITTLE * THREADS_COST:
        return (False,)
    return (True,) if seconds > MUCH * THREADS_COST else (True, False)


def stream_rows(play: Play, target: Target, windows: Windows, threads: bool, together: Together) -> bool:
    """Play the plan with these windows and this way to process rows together; false if rows cannot go in
    step."""
    capabilities, in_step = target.capabilities, together is Together.IN_STEP
    first_cache, second_cache = near_caches(target)
    fuse(play, depth=0)
    rows_outermost(play)
    fuse(play, depth=0)
    compute_again(play)
    while rows_go_on(play):
        pass
    if play.scopes() and row_bytes(play) > second_cache // 2:
        block = first_cache // 4 // BYTES["f32"]
        few = play.scopes()[0].size < SHARES
        sum_and_squares_together(play, block, capabilities.lanes.get("f32", 1), threads and few)
        fuse(play)
    reciprocals(play)
    for place in loops_that_matter(play):
        for part in cut_row(play, place, capabilities.lanes):
            widen(play, part, capabilities.lanes)
    use_groups(play)
    use_lanes(play)
    gather(play)
    if together is Together.ABREAST:
        rows_abreast(play, first_cache)
    wishes = dict(open_windows(play, target, windows))
    contract(play)
    use_lanes(play)
    write_out(play, copies=capabilities.vector_registers)
    runs: list[str] = []
    if in_step and IN_STEP_ROWS * row_bytes(play) > first_cache:
        return False
    if in_step:
        rows = [node for node in play.program.body if isinstance(node, Scope)]
        runs = [split(play, r.id, largest_divisor(r.size, min(RUN, r.size // SHARES)))[-1] for r in rows]
    if threads:
        speed = capabilities.memory.copy_gbs if capabilities.memory else 1
        for scope in [node.id for node in play.program.body if isinstance(node, Scope)]:
            share_out(play, scope, THREADS_COST * speed * 1e9 / BYTES["f32"])
    for buffer, location in wishes.items():
        play.may("set_location", buffer, location=location)
    settle_buffers(play)
    return all(rows_in_step(play, run) for run in runs)


# -- rows ------------------------------------------------------------------------------------------


def rows_go_on(play: Play) -> bool:
    """Make one loop of the two innermost if each row begins where the last one ended, so that vectors need
    not end with a row. This is done to all loops or none, so that they can still be fused; one loop stays
    around.
    """
    kept, loops = play.trace, [s for s in play.innermost() if len(play.around(s.id)) > 1]
    for loop in loops:
        outer = play.around(loop.id)[-1]
        if not _goes_on(play, outer, loop) or not play.may("collapse_scopes", outer.id):
            play.trace = kept
            return False
    return bool(loops)


def _goes_on(play: Play, outer: Scope, inner: Scope) -> bool:
    """True if each address moves by as much from row to row as in a whole row."""
    if len(inner.body) != 1 or not isinstance(inner.body[0], Statement):
        return False
    level, statement = len(play.around(outer.id)), inner.body[0]
    accesses = (statement.target, *statement.reads)
    steps = [play.program.buffer_of[a.array].address(a.subscripts).coefficients for a in accesses]
    return all(step.get(level, 0) == step.get(level + 1, 0) * inner.size for step in steps)


def rows_outermost(play: Play) -> None:
    """Move the loops over rows to the outside if a statement uses a value of the row."""
    small = {b.name: len(b.dimensions) for b in temporaries(play.program)}
    for place in [node.id for node in play.program.body if isinstance(node, Scope)]:
        nest, statement = perfect_nest(play, place)
        rows = [r.levels for r in statement.reads if small.get(r.array, 99) < len(nest)] if statement else []
        for position, level in enumerate(rows[0] if rows else ()):
            for above in reversed(nest[position:level]):
                if not play.may("swap_scopes", above):
                    return


def reciprocals(play: Play) -> None:
    """Divide once for each row where a whole loop divides by the same value."""
    for scope in play.innermost():
        level = len(play.around(scope.id))
        for statement in scope.body:
            assert isinstance(statement, Statement)
            for operation in operations(statement.value):
                if operation.name == "div" and isinstance(operation.arguments[1], Read):
                    divisor = operation.arguments[1].access
                    if level not in divisor.levels and invertible(play.program, statement, divisor):
                        play.may("stage_reciprocal", outermost(play, scope.id, divisor), array=divisor.array)


def row_bytes(play: Play) -> int:
    """Bytes of the largest input that one iteration of the outermost loop works on."""
    rows = next((node.size for node in play.program.body if isinstance(node, Scope)), 1)
    sizes = [play.program.buffer_of[a].cells * BYTES["f32"] for a in play.program.inputs]
    return max(sizes, default=0) // rows


# -- vectors ---------------------------------------------------------------------------------------


def loops_that_matter(play: Play) -> list[str]:
    """The innermost loops, without those that do a small part of the work."""
    loops = play.innermost()
    work = [len(s.body) * prod(each.size for each in (*play.around(s.id), s)) for s in loops]
    return [s.id for s, done in zip(loops, work, strict=True) if done * MINOR > max(work)]


def cut_row(play: Play, place: str, lanes: Mapping[str, int]) -> list[str]:
    """Cut an innermost loop into blocks of vectors, the vectors left over, and a tail.

    A loop that a good vector divides stays whole. The parts of a reduction become nests of their own.
    """
    scope = play.scope(place)
    statement = scope.body[0]
    if len(scope.body) != 1 or scope.suffix or not isinstance(statement, Statement):
        return []
    width = lanes_of(statement, lanes)
    parts, size = [place], scope.size
    if size <= width or _fits(size, width):
        return parts
    for unit in (CHAINS * width, width):
        if unit < size and size % unit:
            cut = play.may("split_range", parts[-1], at=size // unit * unit)
            if isinstance(cut, Copied):
                parts[-1:] = cut.parts
                size %= unit
    return parts


def _fits(size: int, width: int) -> bool:
    """True if the largest vector that divides the size wastes little, and blocks of them come out."""
    vectors = size // largest_divisor(size, width)
    few = vectors <= CHAINS or largest_divisor(vectors, 2 * CHAINS) > 2
    return few and vectors * width <= MOST_WASTE * size


def widen(play: Play, place: str, lanes: Mapping[str, int]) -> None:
    """Split a loop into blocks of vectors; give reductions a partial result for each lane of a block."""
    scope = play.scope(place)
    statement = scope.body[0]
    assert isinstance(statement, Statement)
    width = largest_divisor(scope.size, lanes_of(statement, lanes))
    if width == 1:
        return
    size = _group_size(play, place, width)
    nest = split(play, place, width * size)
    vectors = scope.size // (width * size)
    if size > 1:
        nest = [*nest[:-1], split(play, nest[-1], size)[0]]
    if len(nest) > 1:
        nest = [*split(play, nest[0], _block(vectors)), nest[-1]]
    if statement.accumulate:
        first = outermost(play, nest[0], statement.target)
        for lane in reversed(nest[1:] if first == nest[0] else nest[-2:]):
            play.may("split_reduction", first, lane=lane)


def _group_size(play: Play, place: str, width: int) -> int:
    """The products of an innermost loop that one instruction adds up in each of ``width`` lanes; 1: none."""
    statement, level = play.scope(place).body[0], len(play.around(place))
    assert isinstance(statement, Statement)
    steps = [lane_stride(play.program.buffer_of[r.array], r.subscripts, level) for r in statement.reads]
    if level in statement.target.levels or set(steps) != {1}:
        return 1
    for group in groups_of(play):
        if factors_in(statement, group) and play.scope(place).size % (width * group.size) == 0:
            return group.size
    return 1


def _block(vectors: int) -> int:
    """Vectors of a block: as many as a reduction needs chains, or the next number that divides."""
    wide = [n for n in range(CHAINS, 2 * CHAINS + 1) if vectors % n == 0]
    return wide[0] if wide else largest_divisor(vectors, CHAINS)


# -- loops over one row ----------------------------------------------------------------------------


def gather(play: Play) -> None:
    """Fuse loops of one row, so that a value is used while it is in a cache."""
    tried: set[tuple[str, str]] = set()
    while _gather_once(play, tried):
        pass
    fuse(play)


def _gather_once(play: Play, tried: set[tuple[str, str]]) -> bool:
    for scope in play.scopes():
        loops = [c for c in scope.body if isinstance(c, Scope) and not c.suffix]
        for k, first in enumerate(loops):
            for second in loops[k + 1 :]:
                if first.size == second.size and (first.id, second.id) not in tried:
                    tried.add((first.id, second.id))
                    if join_distant(play, first.id, second.id):
                        return True
    return False


def rows_abreast(play: Play, near: int) -> None:
    """Interleave the last loop of a few rows, so that data that all rows share is read once for
    them; only if a row and the shared data are more than the ``near`` bytes of the first cache."""
    for row in [node for node in play.program.body if isinstance(node, Scope)]:
        last = row.body[-1]
        if not isinstance(last, Scope) or last is row.body[0] or row.size % ABREAST:
            continue
        reads = [read for leaf in last.leaves for read in leaf.statement.reads]
        shared = {r.array for r in reads if r.array in play.program.inputs and 0 not in r.levels}
        cells = sum(play.program.buffer_of[array].cells for array in shared)
        if shared and cells * BYTES["f32"] + row_bytes(play) > near:
            kept = play.trace
            split(play, row.id, ABREAST)
            apart = play.may("fission_scope", last.id)
            if isinstance(apart, Cut) and play.may("swap_scopes", apart.second):
                continue
            play.trace = kept


def rows_in_step(play: Play, rows: str) -> bool:
    """Let the last loop of a row go along with a loop of the next row: the latest one that it can join."""
    last = play.scope(rows).body[-1]
    if not isinstance(last, Scope):
        return False
    if not play.may("rotate_scope", rows, at=len(play.scope(rows).body) - 1):
        return False
    later = [node for node in play.scope(rows).body[1:] if isinstance(node, Scope)]
    return any(join_distant(play, last.id, loop.id) for loop in reversed(later) if loop.size == last.size)
