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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.analysis import lanes_of, seconds_to_move
from perfdojo_sdk.experts.cpu.loops import arrange, chain, cut, cut_off_rest, move_inward
from perfdojo_sdk.experts.cpu.row_kernels import THREADS_COST
from perfdojo_sdk.experts.cpu.steps import data_bytes, share_out, split, transpose, use_lanes
from perfdojo_sdk.experts.cpu.tiles import cover
from perfdojo_sdk.experts.steps import isolate, separate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract
from perfdojo_sdk.search.play import Play

#: The rule's name in decisions; their places are the roots of nests that were joined.
JOIN_CHANNELS = "join channels"

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
        if len(kept) == len(taps) == 1 and not subscript.quotients:
            yield kept[0], taps[0]


# -- stencils inside a nest ----------------------------------------------------------------------------


def separate_stencils(play: Play, target: Target) -> list[Decision]:
    """Give a stencil that shares its outer loops with others, such as the inside of a padded window with its
    border, a nest of its own, if its windows move by more than one element: lanes need copies of what they
    read. Others are as fast where they are."""
    decisions = []
    for root in [node for node in play.program.body if isinstance(node, Scope)]:
        inside = _most_of(root)
        if inside is root or find_stencil(play.program, root, target) is not None:
            continue
        kept = play.trace
        try:
            place = isolate(play, inside.id)
        except MoveError as error:
            play.trace = kept
            decisions.append(Decision("separate stencils", root.id, "left together", error.what))
            continue
        found = find_stencil(play.program, play.node(place), target)
        if found is None or found.step == 1:
            play.trace = kept
            continue
        numbers = {"iterations": play.scope(place).instances, "of": root.instances}
        why = "neighbouring lanes read elements that lie apart, which a tile of its own copies"
        choice = f"{inside.id} became a nest of its own"
        decisions.append(Decision("separate stencils", root.id, choice, why, numbers))
    return decisions


def _most_of(scope: Scope) -> Scope:
    """The scope that does most, of those that stand beside others in the nest; the nest itself if it has only
    one chain of loops around its sums."""
    found, node = scope, scope
    while nests := [child for child in node.body if isinstance(child, Scope)]:
        node = max(nests, key=lambda nest: nest.instances)
        if len(nests) > 1:
            found = node
    return found


# -- nests around a stencil ----------------------------------------------------------------------------


def join_channels(play: Play, target: Target) -> list[Decision]:
    """Join a stencil with the nests that make its image, such as a copy with a border, and with those that
    read its results, around the loops that all of them have: one image after the other then stays near."""
    decisions = []
    for root in [node.id for node in play.program.body]:
        if root not in play.program.paths:
            continue
        found = find_stencil(play.program, play.node(root), target)
        roots = _around(play.program, root, found) if found else []
        if found is None or len(roots) < 2:
            continue
        kept = play.trace
        found = _without_units(play, root, target) or found
        outer = next(k for k in range(len(found.loops)) if k in (found.row, found.lane))
        depth = min(outer, _common_loops([play.scope(each) for each in roots]))
        passed = play.program.buffer_of[found.sliding.array].bytes
        if depth == 0 or not _join(play, roots, depth):
            play.trace = kept
            why = "they share no loop around the rows, or one reads what another one writes later"
            decisions.append(Decision("keep channels apart", root, "planned nest by nest", why))
            continue
        _pad_by_rows(play, roots[0], found.sliding.array, depth)
        for buffer in temporaries(play.program):
            for dim in range(min(depth, len(buffer.shape))):
                play.may("reuse_dims", buffer.name, dim=dim)
        numbers = {"bytes": passed, "images": prod(found.sizes[:depth])}
        why = "what one nest passes to the next is then one image, which stays in a near cache"
        choice = f"{len(roots)} nests run image by image"
        decisions.append(Decision(JOIN_CHANNELS, roots[0], choice, why, numbers))
    return decisions


def _without_units(play: Play, root: str, target: Target) -> Stencil | None:
    """The stencil without loops of one iteration around its rows and taps, whose iterators keep a subscript
    from being one loop's."""
    for place in [scope.id for scope in play.scopes() if root in [s.id for s in play.around(scope.id)]]:
        if place in play.program.paths and play.scope(place).size == 1:
            play.may("collapse_scopes", place)
    return find_stencil(play.program, play.node(root), target)


def _around(program: Program, root: str, found: Stencil) -> list[str]:
    """The stencil, the nests right before it that write its image, and those right after it that read what it
    or one before them wrote, as far as that are temporaries."""
    (at,), own = program.paths[root], {name for b in temporaries(program) for name in b.arrays}
    written, roots = {found.total.target.array}, [root]
    for node in reversed(program.body[:at]) if found.sliding.array in own else ():
        if not isinstance(node, Scope) or {*node.written_arrays} != {found.sliding.array}:
            break
        roots.insert(0, node.id)
    for node in program.body[at + 1 :]:
        if not isinstance(node, Scope) or (written & own).isdisjoint(node.read_arrays):
            break
        roots.append(node.id)
        written.update(node.written_arrays)
    return roots


def _common_loops(nests: Sequence[Scope]) -> int:
    """Number of the outermost loops that perfect nests have in common."""
    count, nodes = 0, list(nests)
    while len({node.size for node in nodes}) == 1 and not any(node.suffix for node in nodes):
        count += 1
        inner = [node.body[0] for node in nodes if len(node.body) == 1]
        nodes = [node for node in inner if isinstance(node, Scope)]
        if len(nodes) < len(nests):
            break
    return count


def _join(play: Play, roots: Sequence[str], depth: int) -> bool:
    for _ in roots[1:]:
        place = roots[0]
        for level in range(depth):
            if play.may("join_scopes", place) is None:
                return False
            if level + 1 < depth:
                (child, *_) = play.scope(place).body
                place = child.id
    return True


def _pad_by_rows(play: Play, root: str, image: str, depth: int) -> None:
    """Write the border and the inside of each row of an image together, so that the row is in the first cache
    when the inside overwrites it; nothing is done where the image is not made that way."""
    nests = play.scope([root, *chain(play, root)[1:depth]][-1]).body
    makers = [n for n in nests if isinstance(n, Scope) and {*n.written_arrays} == {image}]
    if len(makers) != 2:
        return
    border, inside = makers
    kept, target = play.trace, inside.leaves[0].statement.target
    before = next((s.constant for s in target.subscripts if depth in s.levels), 0)
    rows = border.id
    if 0 < before < border.size:
        rows = play.split_range(rows, before)[1]
    if play.scope(rows).size > inside.size:
        rows = play.split_range(rows, inside.size)[0]
        play.may("reorder_statements", rows)
    if play.may("join_scopes", rows) is None:
        play.trace = kept


# -- one nest ------------------------------------------------------------------------------------------


def play_stencil(root: Program, rules: Rules, target: Target) -> tuple[list[Play], list[Decision]]:
    """One game for a program that is one stencil; none where it is none, or a move is not legal."""
    play = Play(root, rules, rules.most)
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
