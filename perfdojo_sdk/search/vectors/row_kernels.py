"""How an expert plays what memory bounds: each value is moved once, and used while it is warm.

1. The loops that all statements of a row share become the outermost ones, and are fused.
2. A division by a row's value becomes a multiplication.
3. Rows are cut into blocks of vectors, single vectors and a masked tail; a reduction keeps one
   partial result for each lane of a block.
4. Loops over the same part of a row are brought together.
5. Memory is asked for what comes next, and for the lines that will be written; or results go past the
   caches, in vectors that lie within a line.
6. Rows are shared out among threads; where there are few of them, parts of rows are.

Where figures cannot tell which of two ways is faster, both are played, and the builder measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import gcd, prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.expression import Access, Index, Operation, Read
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.search.vectors.row_statistics import compute_again, sum_and_squares_together
from perfdojo_sdk.search.vectors.steps import (
    SHARES,
    cut,
    data_bytes,
    join_distant,
    largest_divisor,
    perfect_nest,
    share_out,
    split,
    use_lanes,
    write_out,
)
from perfdojo_sdk.search.vectors.windows import Windows, memory_ways, open_windows, past_caches

#: Independent vectors that a reduction keeps in flight: latency times throughput of an addition.
CHAINS = 4

#: Seconds that handing work to threads which are awake, and waiting for the last one, costs with margin.
THREADS_COST = 3e-6

#: Rows that go side by side through what they share.
ABREAST = 4

#: What does less than this part of the work of the longest loop is left as it is.
MINOR = 64

#: Vectors with idle lanes cost as much as full ones; from this share of wasted work on, rows are cut.
MOST_WASTE = 1.15


def play_rows(root: Program, rules: Rules, target: Target) -> list[Play]:
    """One game for each way that may be the fastest; which one is, depends on more than figures tell."""
    plays: list[Play] = []
    ways = product(worth_threads(root, target), memory_ways(root, target), (False, True))
    for threads, windows, abreast in ways:
        play = Play(root, rules)
        stream_rows(play, target, windows, threads, abreast)
        if all(play.program != other.program for other in plays):
            plays.append(play)
    return plays


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


def stream_rows(play: Play, target: Target, windows: Windows, threads: bool, abreast: bool) -> None:
    """The plan; ``abreast``: a few rows side by side where they share more than stays near."""
    capabilities, lanes = target.capabilities, target.capabilities.lanes
    fuse(play, depth=0)
    rows_outermost(play)
    fuse(play, depth=0)
    compute_again(play)
    if row_bytes(play) > capabilities.caches["L2"].bytes // 2:
        block = capabilities.caches["L1"].bytes // 2 // BYTES["f32"]
        sum_and_squares_together(play, block, threads and play.scopes()[0].size < SHARES)
        fuse(play)
    reciprocals(play)
    loops = loops_that_matter(play)
    out = [place for place in loops if past_caches(target, windows) and ragged(play, place, lanes)]
    for place in loops:
        if place not in out:
            for part in cut_row(play, place, lanes):
                widen(play, part, lanes)
    use_lanes(play)
    gather(play)
    if abreast:
        rows_abreast(play, capabilities.caches["L1"].bytes)
    for place in out:
        for part in cut_at_vectors(play, place, lanes):
            widen(play, part, lanes)
    wishes = dict(open_windows(play, target, windows))
    contract(play)
    use_lanes(play)
    write_out(play, copies=capabilities.vector_registers)
    if threads:
        speed = capabilities.memory.copy_gbs if capabilities.memory else 1
        for scope in [node.id for node in play.program.body if isinstance(node, Scope)]:
            share_out(play, scope, THREADS_COST * speed * 1e9 / BYTES["f32"])
    for buffer, location in wishes.items():
        play.may("set_location", buffer, location=location)


# -- rows ------------------------------------------------------------------------------------------


def rows_outermost(play: Play) -> None:
    """Where a statement uses a row's value, the iterators that name the row move to the outside."""
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
            for operation in _operations(statement.value):
                if operation.name == "div" and isinstance(operation.arguments[1], Read):
                    divisor = operation.arguments[1].access
                    if level not in divisor.levels:
                        play.may("stage_reciprocal", outermost(play, scope.id, divisor), array=divisor.array)


def outermost(play: Play, place: str, access: Access) -> str:
    """The outermost scope of the perfect nest around ``place`` that an access does not depend on."""
    around = play.around(place)
    for level in reversed(range(len(around))):
        if len(around[level].body) != 1 or level in access.levels:
            break
        place = around[level].id
    return place


def _operations(value: object) -> list[Operation]:
    if not isinstance(value, Operation):
        return []
    return [value, *(inner for a in value.arguments for inner in _operations(a))]


def row_bytes(play: Play) -> int:
    """Bytes of the largest input that one iteration of the outermost loop works on."""
    rows = next((node.size for node in play.program.body if isinstance(node, Scope)), 1)
    sizes = [play.program.buffer_of[a].cells * BYTES["f32"] for a in play.program.inputs]
    return max(sizes, default=0) // rows


# -- vectors ---------------------------------------------------------------------------------------


def loops_that_matter(play: Play) -> list[str]:
    """The innermost loops, but for those that do a small part of the work."""
    loops = play.innermost()
    work = [len(s.body) * prod(each.size for each in (*play.around(s.id), s)) for s in loops]
    return [s.id for s, done in zip(loops, work, strict=True) if done * MINOR > max(work)]


def cut_row(play: Play, place: str, lanes: Mapping[str, int]) -> list[str]:
    """Cut an innermost loop into blocks of vectors, the vectors left over, and a tail.

    A loop that a good vector divides stays whole. The parts of a reduction become nests of their own.
    """
    scope = play.scope(place)
    if len(scope.body) != 1 or scope.suffix:
        return []
    width = lanes.get(scope.body[0].dtype, 1)
    parts, size = [place], scope.size
    if size <= width or _fits(size, width):
        return parts
    for unit in (CHAINS * width, width):
        if unit < size and size % unit and play.may("split_range", parts[-1], at=size // unit * unit):
            parts[-1:] = [f"{parts[-1]}.a", f"{parts[-1]}.b"]
            size %= unit
    return parts


def ragged(play: Play, place: str, lanes: Mapping[str, int]) -> int:
    """How many rows of an output there are until one begins at a multiple of a vector again.

    0 where each does, and where ``place`` is no loop along all of such a row, alone in the loop over rows.
    """
    scope, around = play.scope(place), play.around(place)
    statement = scope.body[0]
    assert isinstance(statement, Statement)
    target, width = statement.target, lanes.get(statement.dtype, 1)
    out = target.array in play.program.outputs and not statement.accumulate
    if not around or len(around[-1].body) != 1 or len(scope.body) != 1 or not out:
        return 0
    rows = tuple(map(Index.level, (len(around) - 1, len(around))))
    whole = play.program.buffer_of[target.array].shape[-2:] == (around[-1].size, scope.size)
    if target.subscripts[-2:] != rows or not whole or scope.size < 2 * CHAINS * width:
        return 0
    period = width // gcd(scope.size, width)
    return period if period > 1 and around[-1].size % period == 0 else 0


def cut_at_vectors(play: Play, place: str, lanes: Mapping[str, int]) -> Iterator[str]:
    """Cut the rows of an output at multiples of a vector, each kind of row alone.

    Where the array begins at one, all but the ends of rows are vectors that may go past the caches.
    """
    period, row = ragged(play, place, lanes), play.scope(place)
    statement = row.body[0]
    assert isinstance(statement, Statement)
    width = lanes[statement.dtype]
    kinds = cut(play, split(play, play.around(place)[-1].id, period)[-1], [1] * period)
    for kind, scope in enumerate(kinds):
        begin = -kind * row.size % width
        sizes = [begin, (row.size - begin) // width * width, (row.size - begin) % width]
        yield from cut(play, play.scope(scope).body[0].id, [size for size in sizes if size])


def _fits(size: int, width: int) -> bool:
    """Whether the largest vector that divides the size wastes little, and blocks of them come out."""
    vectors = size // largest_divisor(size, width)
    few = vectors <= CHAINS or largest_divisor(vectors, 2 * CHAINS) > 2
    return few and vectors * width <= MOST_WASTE * size


def widen(play: Play, place: str, lanes: Mapping[str, int]) -> None:
    """Split a loop into blocks of vectors; give reductions a partial result for each lane of a block."""
    scope = play.scope(place)
    statement = scope.body[0]
    assert isinstance(statement, Statement)
    width = largest_divisor(scope.size, lanes.get(statement.dtype, 1))
    if width == 1:
        return
    nest = split(play, place, width)
    if len(nest) > 1:
        nest = [*split(play, nest[0], _block(scope.size // width)), nest[-1]]
    if statement.accumulate:
        first = outermost(play, nest[0], statement.target)
        for lane in reversed(nest[1:] if first == nest[0] else nest[-2:]):
            play.may("split_reduction", first, lane=lane)


def _block(vectors: int) -> int:
    """Vectors of a block: as many as a reduction needs chains, or the next number that divides."""
    wide = [n for n in range(CHAINS, 2 * CHAINS + 1) if vectors % n == 0]
    return wide[0] if wide else largest_divisor(vectors, CHAINS)


# -- loops over one row ----------------------------------------------------------------------------


def gather(play: Play) -> None:
    """Bring loops of one row together and fuse them, so that a value is used while it is warm."""
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
    """Let a few rows go through their last loop side by side, so that what all rows share is read once for
    them; where a row and what it shares are more than the ``near`` bytes of the first cache."""
    for row in [node for node in play.program.body if isinstance(node, Scope)]:
        last = row.body[-1]
        if not isinstance(last, Scope) or last is row.body[0] or row.size % ABREAST:
            continue
        reads = [read for leaf in last.leaves for read in leaf.statement.reads]
        shared = {r.array for r in reads if r.array in play.program.inputs and 0 not in r.levels}
        cells = sum(play.program.buffer_of[array].cells for array in shared)
        if shared and cells * BYTES["f32"] + row_bytes(play) > near:
            kept, few = play.trace, split(play, row.id, ABREAST)[-1]
            if play.may("fission_scope", last.id):
                path = play.program.paths[few]
                few = play.program.siblings(path)[path[-1] + 1].id
                if play.may("swap_scopes", few):
                    continue
            play.trace = kept
