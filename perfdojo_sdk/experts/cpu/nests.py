"""Any perfect nest: which loop gets the lanes, in which order the others stand, what stays in registers.

The lanes go to a loop along which every array has neighbours or one element; if there is none, to one along
which neighbours are written, and each lane reads from an address of its own. A reduction over other loops
than that one keeps vectors of partial results: in registers, if what it reads of each row fills pages and
caches well; else it adds a few rows at a time to results in the first cache, so that memory is read in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from perfdojo_sdk.core.dtypes import BYTES, FLOAT_DTYPES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.geometry import is_copy, lane_stride
from perfdojo_sdk.core.made import Staged
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.experts.cpu.analysis import Kind, Work, lanes_of, seconds_to_move, work_of
from perfdojo_sdk.experts.cpu.contraction_plans import CACHE_LINE, PAGE
from perfdojo_sdk.experts.cpu.loops import arrange, chain, cut, cut_off_rest, move_inward
from perfdojo_sdk.experts.cpu.row_kernels import THREADS_COST
from perfdojo_sdk.experts.cpu.steps import (
    SHARES,
    data_bytes,
    largest_divisor,
    near_caches,
    settle_buffers,
    share_out,
    split,
    transpose,
    use_lanes,
    write_out,
)
from perfdojo_sdk.experts.cpu.tiles import MOST_ROWS, cover
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract
from perfdojo_sdk.search.play import Play

#: Rows that are added to results in a cache at a time: each result is then loaded and stored once for all.
ROWS = 8

#: Lines that a set of the first cache surely holds; rows of a scan that go in step use no more of any set.
WAYS = 8

#: Steps of a scan that are written out, for each of the rows that go in step.
STEPS = 8

#: Terms of a sum that are added one after the other without a large error.
MOST_TERMS = 256

#: Vectors of a row that a thread reads at least, one after the other.
PIECE = 4

#: Strips of a transposing copy: iterations for threads to share.
STRIPS = 32

#: Vectors of independent results that hide the latency of an addition.
CHAINS = 4


@dataclass(frozen=True)
class NestPlan:
    """The loops of a perfect nest in their new order, and what becomes of them."""

    order: tuple[int, ...]
    """Levels, outermost first; the lanes last."""
    lane: int
    reduced: tuple[int, ...]
    in_registers: bool
    """True if a reduction's results stay in registers until they are complete."""
    decision: Decision
    across: int = -1
    """Level of the loop through neighbours of what is read transposed; -1: nothing is."""
    carried: int = -1
    """Level of the loop of a scan; -1: it is none."""
    in_step: int = 0
    """Rows of a scan that go in step."""
    gathers: bool = False
    """True if each lane reads from an address of its own."""
    shares: int = 1
    """Blocks of columns for threads, outside of the loops of a reduction."""


def play_nests(root: Program, rules: Rules, target: Target) -> tuple[list[Play], list[Decision]]:
    """A game that plans each perfect nest by itself; none where no nest gains. If more is reduced than a near
    cache holds, others add up rows as they stand in memory instead of columns in registers: whole rows, and
    blocks of columns for threads where nothing else is left to them."""
    plays, decisions = _planned(root, rules, target)
    reduced = any(float(decision.numbers.get("reduced", 1)) > 1 for decision in decisions)
    if plays and reduced and data_bytes(root) > near_caches(target)[1]:
        for shared in (False, True):
            others, _ = _planned(root, rules, target, by_rows=True, shared=shared)
            plays += [play for play in others if all(play.program != each.program for each in plays)]
    return plays, decisions


def _planned(
    root: Program, rules: Rules, target: Target, by_rows: bool = False, shared: bool = False
) -> tuple[list[Play], list[Decision]]:
    """At most one game, and its decisions."""
    play = Play(root, rules)
    decisions: list[Decision] = []
    gained, gathers, roots = False, False, [node.id for node in play.program.body]
    for number, identifier in enumerate(roots):
        behind = len(roots) - number - 1
        start = len(play.program.body) - behind - 1
        take_apart(play, identifier)
        nests = _between(play, start, behind)
        for node in [node for node in nests if isinstance(node, Scope)]:
            kept = play.trace
            try:
                found = plan_nest(play, node, target, by_rows, shared)
                if found is None:
                    decisions.append(Decision("order loops", node.id, "left as it is", "no loop gives lanes"))
                    continue
                play_nest(play, node, found, target)
                gained, gathers = True, gathers or found.gathers
                decisions.append(found.decision)
            except MoveError as error:
                play.trace = kept
                decisions.append(Decision("order loops", node.id, "left as it is", error.what))
        if len(_between(play, start, behind)) == len(nests):
            put_together(play, start, behind)
    if not gained:
        return [], decisions
    contract(play)
    transpose(play, outermost=True)
    use_lanes(play, gathers)
    write_out(play, target.capabilities.vector_registers)
    for node in [node for node in play.program.body if isinstance(node, Scope)]:
        speed = data_bytes(root) / max(seconds_to_move(data_bytes(root), target), 1e-12)
        share_out(play, node.id, THREADS_COST * speed / BYTES[node.leaves[0].statement.dtype])
    settle_buffers(play)
    return [play], decisions


def take_apart(play: Play, root: str) -> None:
    """Make a nest of its own for every statement, as far as that is legal."""
    while True:
        node = play.node(root)
        around = [root]
        while isinstance(node, Scope) and len(node.body) == 1:
            node = node.body[0]
            around.append(node.id)
        if isinstance(node, Statement):
            return
        kept = play.trace
        try:
            second = separate(play, node.body[-1].id, root)
        except MoveError:
            play.trace = kept
            return
        take_apart(play, second)


def put_together(play: Play, start: int, behind: int) -> None:
    """Join what was taken apart around the outermost loops that are still the same: it shared them for what
    it reads and writes there."""
    while len(nests := _between(play, start, behind)) > 1:
        if play.may("join_scopes", nests[0].id) is None:
            start += 1


def _between(play: Play, start: int, behind: int) -> tuple[Node, ...]:
    """The nodes at the root less the first ``start`` and the last ``behind``."""
    body = play.program.body
    return body[start : len(body) - behind]


def plan_nest(
    play: Play, node: Scope, target: Target, by_rows: bool = False, shared: bool = False
) -> NestPlan | None:
    """The order of a nest's loops; None where it is no perfect nest or no loop gives lanes. ``by_rows``: rows
    are added up as they stand in memory, if a near cache does not hold the data; ``shared``: threads share
    their columns if there are few results apart from those."""
    loops = chain(play, node.id)
    innermost = play.scope(loops[-1])
    if len(innermost.body) != 1 or not isinstance(innermost.body[0], Statement):
        return None
    place = play.program.place_of[innermost.body[0].id]
    work = work_of(play.program, place)
    lanes = lanes_of(work.statement, target.capabilities.lanes)
    if work.kind is Kind.TRANSPOSE:
        return _plan_transpose(work, node, lanes)
    if work.kind is Kind.SCAN:
        return _plan_scan(work, node, lanes)
    lane, gathers = _lane(work, lanes), False
    if lane is None and play.gathering_lanes:
        lane, gathers = _gathering_lane(work, lanes), True
    if lane is None or any(lane in f.levels for f in work.statement.guard):
        return None
    reduced = tuple(level for level in work.reduced if level != lane)
    outer = [level for level in range(len(loops)) if level not in (*reduced, lane)]
    inner = sorted(reduced, key=lambda level: -_farthest(work, (level,)))
    far = _farthest(work, reduced) * BYTES[work.statement.dtype]
    data = data_bytes(play.program)
    near = data <= near_caches(target)[1] or (far < PAGE and not by_rows)
    numbers = {
        "lanes": work.sizes[lane],
        "reduced": prod(work.sizes[level] for level in reduced),
        "bytes between rows": far,
        "bytes": data,
        "uses of each element": max(work.reuse.values()),
    }
    what = "neighbours are written" if gathers else "every array has neighbours or one element"
    why = f"along {{{lane}}} {what}"
    if reduced:
        way = (
            "results stay in registers" if near else f"{ROWS} rows at a time are added to results in a cache"
        )
    else:
        way = "one pass"
    choice = f"lanes along {{{lane}}}{', which gather' if gathers else ''}, {way}"
    decision = Decision("order loops", node.id, choice, why, numbers)
    few = shared and reduced and not near and prod(work.sizes[level] for level in outer) < SHARES
    shares = _shares(work.sizes[lane], lanes) if few else 1
    return NestPlan((*outer, *inner, lane), lane, reduced, near, decision, gathers=gathers, shares=shares)


def _shares(columns: int, lanes: int) -> int:
    """Equal blocks of columns for threads: as many as they share if each has vectors enough to read rows in
    long pieces, and otherwise half as many, or a quarter."""
    return next((n for n in (SHARES, SHARES // 2, SHARES // 4) if columns % (n * PIECE * lanes) == 0), 1)


def _plan_transpose(work: Work, node: Scope, lanes: int) -> NestPlan | None:
    """Rows of what is read to columns of what is written, in squares that registers transpose."""
    target, *reads = work.strides
    rows = [level for level, step in enumerate(target) if step == 1 and work.sizes[level] > 1]
    columns = [l for steps in reads for l, step in enumerate(steps) if step == 1 and work.sizes[l] > 1]
    columns = [level for level in columns if level not in rows]
    if lanes < 2 or not rows or not columns or work.statement.guard:
        return None
    lane, across = rows[0], columns[0]
    outer = tuple(level for level in range(len(work.sizes)) if level not in (lane, across))
    outer = tuple(sorted(outer, key=lambda level: -abs(target[level] or 0)))
    numbers = {"rows": work.sizes[across], "columns": work.sizes[lane], "lanes": lanes}
    why = f"{{{lane}}} goes through neighbours of what is written, {{{across}}} of what is read"
    decision = Decision(
        "order loops", node.id, f"squares of {{{across}}} and {{{lane}}} are transposed", why, numbers
    )
    return NestPlan((*outer, across, lane), lane, (), True, decision, across)


def _plan_scan(work: Work, node: Scope, lanes: int) -> NestPlan | None:
    """Rows of a scan in step: each waits for its own last value only, so that their latencies overlap."""
    target = work.statement.target
    before = [read for read in work.statement.reads if read.array == target.array and read != target]
    pairs = [(a, b) for read in before for a, b in zip(target.subscripts, read.subscripts, strict=True)]
    carried = {level for a, b in pairs if a != b for level in (*a.levels, *b.levels)}
    rows = [l for l in target.levels if l not in carried and work.sizes[l] > 1]
    if len(carried) != 1 or not rows or work.statement.guard:
        return None
    (along,), row = carried, max(rows, key=lambda level: work.sizes[level])
    beside = [level for level in rows if work.walks_along(level) and work.sizes[level] >= lanes > 1]
    if beside:
        row = max(beside, key=lambda level: work.sizes[level])
        outer = tuple(level for level in range(len(work.sizes)) if level not in (along, row))
        why = f"along {{{row}}} every array has neighbours or one element, and no iteration waits for another"
        decision = Decision(
            "order loops", node.id, f"lanes along {{{row}}}, one pass", why, {"lanes": work.sizes[row]}
        )
        return NestPlan((*outer, along, row), row, (), True, decision)
    apart = abs(work.strides[0][row] or 0) * BYTES[work.statement.dtype]
    places, arrays = PAGE // gcd(apart, PAGE), len(work.strides) - 1
    in_step = next(n for n in (16, 8, 4, 2, 1) if n * arrays <= WAYS * places or n == 1)
    in_step = min(in_step, work.sizes[row])
    outer = tuple(level for level in range(len(work.sizes)) if level not in (along, row))
    numbers = {
        "rows": work.sizes[row],
        "in step": in_step,
        "bytes between rows": apart,
        "places in a page": places,
    }
    why = "each step of a row waits for the one before it, and rows do not wait for each other"
    decision = Decision("order loops", node.id, f"{in_step} rows of {{{row}}} go in step", why, numbers)
    return NestPlan((*outer, row, along), row, (), True, decision, carried=along, in_step=in_step)


def _lane(work: Work, lanes: int) -> int | None:
    """The loop for the lanes: one that moves the target before one that does not, then the longest."""
    if lanes < 2:
        return None
    along = [l for l, size in enumerate(work.sizes) if size > 1 and work.walks_along(l)]
    moves = [l for l in along if work.strides[0][l] == 1]
    return max(
        moves if work.reduced else moves or along,
        key=lambda level: (min(work.sizes[level], lanes), level),
        default=None,
    )


def _gathering_lane(work: Work, lanes: int) -> int | None:
    """The longest loop through neighbours of what is written that fills vectors."""
    fits = [l for l, size in enumerate(work.sizes) if size >= lanes > 1 and work.strides[0][l] == 1]
    return max(fits, key=lambda level: work.sizes[level], default=None)


def _farthest(work: Work, reduced: tuple[int, ...]) -> int:
    """Cells between neighbouring iterations of the reduced loop that walks farthest."""
    return max((abs(steps[level] or 0) for steps in work.strides[1:] for level in reduced), default=0)


def play_nest(play: Play, node: Scope, plan: NestPlan, target: Target) -> None:
    """Play the plan of one nest; :class:`MoveError` where a move that it needs is refused."""
    loops = chain(play, node.id)
    statement = play.scope(loops[-1]).body[0]
    assert isinstance(statement, Statement)
    width = lanes_of(statement, target.capabilities.lanes)
    array, lane = statement.target.array, loops[plan.lane]
    reduced = [loops[level] for level in plan.order if level in plan.reduced]
    outer = [loops[level] for level in plan.order[: -1 - len(reduced)]]
    if plan.carried >= 0:
        arrange(play, [loops[level] for level in plan.order])
        _rows_in_step(play, lane, plan.in_step)
    elif plan.across >= 0:
        arrange(play, [loops[level] for level in plan.order])
        _in_squares(play, statement, loops[plan.across], lane, width)
    elif not reduced:
        arrange(play, [*outer, lane])
        _in_vectors(play, lane, width)
    elif plan.in_registers:
        arrange(play, [*outer, lane, *reduced])
        pieces = cover(play.scope(lane).size, CHAINS, width)
        for piece, part in zip(pieces, cut(play, lane, [piece.columns for piece in pieces]), strict=True):
            inside = chain(play, part)[1:]
            panels = split(play, part, piece.wide * piece.width)
            vectors = split(play, panels[-1], piece.width)
            for vector in reversed(vectors):
                move_inward(play, vector, len(inside))
            play.must("stage_accumulator", inside[0], array=array)
    else:
        if plan.shares > 1:
            block, lane = split(play, lane, play.scope(lane).size // plan.shares)
            outer.append(block)
        terms = prod(play.scope(loop).size for loop in reduced)
        rounds = statement.accumulate == "add" and statement.dtype in FLOAT_DTYPES
        apart = rounds and terms > MOST_TERMS
        nests = [[*outer, *reduced, lane]]
        if apart and play.scope(lane).size > width and play.scope(lane).size % width:
            # A vector of sums starts from zero as a whole: columns that fill none get a nest of their own.
            arrange(play, [lane, *outer, *reduced])
            nests = [[*chain(play, part)[1:], part] for part in cut_off_rest(play, lane, width)]
        for nest in nests:
            arrange(play, nest)
            for part in cut_off_rest(play, nest[-2], ROWS):
                _few_rows(play, part, array, width, apart)


def _few_rows(play: Play, reduced: str, array: str, width: int, apart: bool) -> None:
    """Add up ``ROWS`` rows at a time in registers, starting from the result so far; ``apart``: from zero,
    where the order of sums may change, so that long sums have small errors."""
    *around, rows = split(play, reduced, ROWS)
    (columns,) = chain(play, rows)[1:]
    move_inward(play, rows, 1)
    partial, all_three = _start_from_zero(play, around[0]) if apart and around else ("", "")
    for some in cut_off_rest(play, all_three or columns, width):
        if not partial:
            few = chain(play, some)[1]
            move_inward(play, split(play, some, width)[-1], 1)
            play.must("stage_accumulator", few, array=array)
            continue
        lanes = split(play, some, width)[-1]
        for node in reversed(play.scope(lanes).body[1:]):
            top = separate(play, node.id, lanes)
            if isinstance(node, Scope):
                move_inward(play, top, 1)
        play.may("split_dim", partial, dim=len(play.program.buffer_of[partial].shape) - 1, size=width)


def _start_from_zero(play: Play, loop: str) -> tuple[str, str]:
    """Give each iteration of a loop of a reduction a sum of its own, which is added to the result behind it;
    the buffer of these sums and the innermost loop around all three, or nothing where a move is not legal."""
    kept = play.trace
    try:
        made = play.must("split_reduction", loop, lane=loop)
        assert isinstance(made, Staged)
        loops = chain(play, made.nests[0].top)
        for each in [loop for loop in loops for _ in range(2)]:
            play.must("join_scopes", each)
        return made.buffer, loops[-1]
    except MoveError:
        play.trace = kept
        return "", ""


def _in_vectors(play: Play, lane: str, width: int) -> None:
    """Cut the innermost loop into vectors and a tail."""
    for part in cut_off_rest(play, lane, width):
        split(play, part, width)


def _in_squares(play: Play, statement: Statement, across: str, lane: str, width: int) -> None:
    """Transpose a copy as it stands, in strips for threads; for any other map, square by square, what it
    reads transposed."""
    if 2 * play.scope(lane).size <= width and play.around(across):
        # Few neighbours fill no square: elements are copied one by one, and a line that is written stays near
        # until the loop outside of both has filled it.
        outside = play.around(across)[-1].id
        rows = split(play, across, largest_divisor(play.scope(across).size, MOST_ROWS))[-1]
        if rows != across:
            play.must("swap_scopes", outside)
        for loop in (lane, rows):
            play.annotate(loop, play.written_out)
        return
    if is_copy(statement):
        line = CACHE_LINE // BYTES[statement.dtype]
        for part in cut_off_rest(play, across, line):
            lines = play.scope(part).size // line
            split(play, part, line * largest_divisor(lines, max(1, lines // STRIPS)))
        return
    place = play.program.place_of[statement.id]
    level = next(k for k, scope in enumerate(place.above) if scope.id == across)
    turned = [
        r for r in statement.reads if lane_stride(play.program.buffer_of[r.array], r.subscripts, level) == 1
    ]
    play.must("swap_scopes", across)
    for part in cut_off_rest(play, lane, width):
        rows = chain(play, part)[1]
        move_inward(play, split(play, part, width)[-1], 1)
        for some in cut_off_rest(play, rows, width):
            square = split(play, some, width)[-1]
            for array in dict.fromkeys(read.array for read in turned):
                play.must("stage_read", square, array=array)
            for columns_of_square in chain(play, square)[1:]:
                _in_vectors(play, columns_of_square, width)


def _rows_in_step(play: Play, rows: str, in_step: int) -> None:
    """Interleave rows of a scan, and write out a few steps of each: only the first of them reads what went
    through memory."""
    for part in cut_off_rest(play, rows, in_step):
        few = split(play, part, in_step)[-1]
        most = max(1, min(STEPS, play.rules.dialect.max_unroll // play.scope(few).size))
        first, *rest = cut_off_rest(play, chain(play, few)[1], most)
        nests = [(few, first), *((play.fission(steps), steps) for steps in rest)]
        for each, steps in nests:
            inner = split(play, steps, most)[-1]
            move_inward(play, each, 1)
            play.annotate(each, play.written_out)
            if play.scope(inner).size <= most:
                play.annotate(inner, play.written_out)
