"""Stencils: sums over a few neighbours of each element, such as depthwise convolutions and pooling.

No operand is used by enough products for register tiles of a contraction. So the lanes go along a row, and a
tile is one vector of several rows: a vector of the operand that slides is loaded once for all the rows whose
windows hold it. All taps are written out around the tile, those along the row outermost, so that few loaded
vectors are in use at a time.

Where windows move by more than one element, neighbouring lanes read elements that lie apart. A tile then
copies as many columns as the windows move by into vectors of their own (``stage_read``, a transposing copy of
few rows), which registers shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.experts.cpu.analysis import lanes_of, seconds_to_move
from perfdojo_sdk.experts.cpu.loops import arrange, chain, cut, cut_off_rest, move_inward
from perfdojo_sdk.experts.cpu.row_kernels import THREADS_COST
from perfdojo_sdk.experts.cpu.steps import data_bytes, share_out, split, transpose, use_lanes
from perfdojo_sdk.experts.cpu.tiles import cover
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract
from perfdojo_sdk.search.play import Play

#: Most rows of a tile: more would hardly save loads. There are fewer where the target does not let so many be
#: written out with all taps across the rows, since only then is a vector loaded once for all of them.
MOST_ROWS = 4

#: Most filters that use the same elements: with more, tiles of a contraction have more to use again.
MOST_FILTERS = 1

#: Most elements that windows may move by: a shuffle takes the lanes from so many vectors.
MOST_STEP = 2


@dataclass(frozen=True)
class Stencil:
    """A nest around one sum over few neighbours. Loops are levels, counted from the root."""

    loops: tuple[str, ...]
    """The loops that results have, outermost first."""
    total: Statement
    sizes: tuple[int, ...]
    """Sizes of all loops around the sum."""
    sliding: Access
    """The operand whose subscripts are sums of a loop of the results and one of the taps."""
    row: int
    lane: int
    taps: tuple[int, ...]
    """The loops of the sum in their new order: those along rows before those across them."""
    along: int
    """The loop over the taps along a row."""
    step: int
    """Elements that windows move by from lane to lane."""
    high: int
    """Rows of a tile."""
    width: int
    """Lanes of a vector."""

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(l for l in range(len(self.loops)) if l not in (self.row, self.lane))


def find_stencil(program: Program, root: Node, target: Target) -> Stencil | None:
    """The stencil that a nest at the root of a program is, if it is one."""
    if not isinstance(root, Scope):
        return None
    loops, node = [root], root
    while len(node.body) == 1 and isinstance(node.body[0], Scope):
        node = node.body[0]
        loops.append(node)
    sums = [child for child in node.body if isinstance(child, Scope)]
    if len(sums) != 1 or len(sums[0].leaves) != 1 or any(leaf.statement.guard for leaf in root.leaves):
        return None
    total, sizes = sums[0].leaves[0].statement, (*(l.size for l in loops), *sums[0].leaves[0].sizes)
    depth = len(loops)
    if not total.accumulate or any(level >= depth for level in total.target.levels):
        return None
    width = lanes_of(total, target.capabilities.lanes)
    sliding = [(read, level, tap) for read in total.reads for level, tap in _slides(read, depth)]
    buffer = program.buffer_of[total.target.array]
    if width < 2 or len({read for read, _, _ in sliding}) != 1:
        return None
    (access, *_) = [read for read, _, _ in sliding]
    image = program.buffer_of[access.array]
    lanes = [
        (l, tap)
        for _, l, tap in sliding
        if lane_stride(buffer, total.target.subscripts, l) == 1 and sizes[l] > 1
    ]
    rows = [(l, tap) for _, l, tap in sliding if (l, tap) not in lanes and sizes[l] > 1]
    if len(lanes) != 1 or not rows:
        return None
    (lane, along), (row, across) = lanes[0], rows[-1]
    step = lane_stride(image, access.subscripts, lane)
    near = lane_stride(image, access.subscripts, along)
    rest = [read for leaf in root.leaves for read in leaf.statement.reads if read is not access]
    steady = all(lane_stride(program.buffer_of[r.array], r.subscripts, lane) in (0, 1) for r in rest)
    if step is None or not 1 <= step <= MOST_STEP or (step > 1 and near != 1) or not steady:
        return None
    if prod(sizes[l] for l in range(depth) if l not in access.levels) > MOST_FILTERS:
        return None
    inner = [l for l in range(depth, len(sizes)) if l not in (along, across)]
    most = min(MOST_ROWS, max(1, target.dialect.max_unroll // (step * sizes[across])))
    high = -(-sizes[row] // -(-sizes[row] // most))
    taps, places = (*inner, along, across), tuple(loop.id for loop in loops)
    return Stencil(places, total, sizes, access, row, lane, taps, along, step, high, width)


def _slides(access: Access, depth: int) -> Iterator[tuple[int, int]]:
    """Pairs of a loop of the results and one of the sum that a subscript adds up."""
    for subscript in access.subscripts:
        kept = [l for l in subscript.levels if l < depth]
        taps = [l for l in subscript.levels if l >= depth]
        steady = all(level >= depth for part, _ in subscript.quotients for level in part.levels)
        if len(kept) == len(taps) == 1 and steady:
            yield kept[0], taps[0]


def play_stencil(root: Program, rules: Rules, target: Target) -> tuple[list[Play], list[Decision]]:
    """One game for a program that is one stencil; none where it is none, or a move is not legal."""
    play = Play(root, rules)
    found = find_stencil(root, root.body[0], target) if len(root.body) == 1 else None
    if found is None:
        return [], []
    try:
        _play(play, found)
    except MoveError as error:
        return [], [Decision("stencil", root.body[0].id, "left to other rules", error.what)]
    numbers = {
        "rows": found.high,
        "lanes": found.width,
        "taps": prod(found.sizes[len(found.loops) :]),
        "elements between lanes": found.step,
    }
    why = "windows of neighbouring rows overlap, and nothing else is used again"
    choice = f"tiles of {found.high} rows of {{{found.row}}} by a vector of {{{found.lane}}}"
    decision = Decision("stencil", root.body[0].id, choice, why, numbers)
    for scope in [node for node in play.program.body if isinstance(node, Scope)]:
        share_out(play, scope.id, stencil_threads(root, target))
    return [play], [decision]


def stencil_threads(root: Program, target: Target) -> float:
    """Iterations of statements that take longer than starting threads."""
    data = data_bytes(root)
    return THREADS_COST * data / max(seconds_to_move(data, target), 1e-12) / BYTES["f32"]


def _play(play: Play, found: Stencil) -> None:
    loops = found.loops
    arrange(play, [loops[l] for l in (*found.others, found.row, found.lane)])
    tiles: list[str] = []
    for part in cut_off_rest(play, loops[found.row], found.high):
        few = split(play, part, found.high)[-1]
        (lane,) = chain(play, few)[1:]
        move_inward(play, few, 1)
        pieces = cover(play.scope(lane).size, 1, found.width)
        for piece, columns in zip(pieces, cut(play, lane, [p.columns for p in pieces]), strict=True):
            (rows,) = chain(play, columns)[1:]
            vector = split(play, columns, piece.width)[-1]
            move_inward(play, vector, 1)
            tiles += _play_tile(play, found, rows)
    contract(play)
    transpose(play, outermost=True)
    use_lanes(play)
    for tile in tiles:
        _write_out(play, tile)


def _play_tile(play: Play, found: Stencil, tile: str) -> list[str]:
    """Accumulate in registers, with the taps around the rows and lanes; the nests that the tile becomes."""
    body = play.scope(chain(play, tile)[1]).body
    total = next(child.id for child in body if isinstance(child, Scope))
    copy = play.stage("stage_write", tile, found.total.target.array).copy
    sums = tile
    for node in reversed(body[1:]):
        top = separate(play, node.id, tile)
        sums = top if node.id == total else sums
    rows, lanes, *taps = chain(play, sums)
    order = [taps[level - len(found.loops)] for level in found.taps]
    arrange(play, [*order, rows, lanes])
    if found.step > 1:
        _gather(play, found, taps[found.along - len(found.loops)])
    path = play.program.paths[tile]
    nests = [node.id for node in play.program.siblings(path)[path[-1] :]]
    return nests[: nests.index(copy) + 1]


def _gather(play: Play, found: Stencil, along: str) -> None:
    """Copy what the lanes of a few neighbouring taps read into vectors of their own."""
    for part in cut_off_rest(play, along, found.step):
        taps = split(play, part, found.step)[-1]
        move_inward(play, taps, len(chain(play, taps)) - 2)
        buffer = play.stage("stage_read", taps, found.sliding.array).buffer
        for dim in range(len(play.program.buffer_of[buffer].dimensions) - 2):
            play.may("reuse_dims", buffer, dim=dim)
        # Rows of whole vectors, so that a short one is stored like any other.
        play.may("pad_dim", buffer, dim=len(play.program.buffer_of[buffer].dimensions) - 1, size=found.width)
        place = next(p for p in play.near_locations if not _named(play, p))
        play.must("set_location", buffer, location=place)


def _named(play: Play, location: str) -> bool:
    return play.rules.dialect.locations[location].constant_subscripts


def _write_out(play: Play, tile: str) -> None:
    """Write out the loops of a nest of a tile, from inside, as far as the target lets them."""
    inside = [s for s in play.innermost() if tile in (s.id, *[a.id for a in play.around(s.id)])]
    for scope in reversed(inside):  # sums, which stand in more loops than the copies before them, come first
        for around in reversed(play.around(scope.id)):
            if not around.suffix and not play.annotate(around.id, play.written_out):
                break
            if around.id == tile:
                break
