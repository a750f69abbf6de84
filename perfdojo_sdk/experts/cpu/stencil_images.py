"""Nests around a stencil: what starts its sums, makes its image, and reads its results.

They run image by image: the padded copy of one image, the stencil, and what follows. The copy gets the layout
that the stencil reads best: rows that begin where vectors may, and where windows move by two elements, the
even columns of each row before the odd ones, so that neighbouring lanes read neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.made import Staged
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.loops import chain, cut, cut_off_rest, join_nests
from perfdojo_sdk.experts.cpu.stencils import Stencil, find_stencil
from perfdojo_sdk.experts.cpu.steps import near_caches, split
from perfdojo_sdk.experts.steps import isolate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: The rule's name in decisions; their places are the roots of nests that were joined.
JOIN_CHANNELS = "join channels"

#: The rule's name in decisions about copies for tiles of rows; their places are loops over such tiles.
COPY_TILES = "copy tiles"

#: Part of the first cache that an image may take, so that rows of results and what is copied fit beside it.
MOST_OF_CACHE = 0.5

#: Tiles have so many rows that those which the next tile copies again are no more than one in so many.
FEW_SHARED = 4


def join_starts(play: Play, target: Target) -> list[Decision]:
    """Let a stencil whose results start in a nest of their own, right before it, start them itself."""
    decisions = []
    for first, second in zip(play.program.body, play.program.body[1:], strict=False):
        if (
            not isinstance(first, Scope)
            or not isinstance(second, Scope)
            or first.id not in play.program.paths
        ):
            continue
        start, total = first.chain[1], second.chain[1]
        if not start or not total or not total.accumulate or first.id not in play.program.paths:
            continue
        if start.target.array != total.target.array:
            continue
        kept = play.trace
        joined = join_nests(play, [first.id, second.id], len(first.chain[0]))
        if joined and find_stencil(play.program, play.node(first.id), target) is not None:
            why = "its results then stay in registers from the start"
            decisions.append(Decision("join starts", first.id, f"joined with {second.id}", why))
        else:
            play.trace = kept
    return decisions


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
        if depth == 0 or not join_nests(play, roots, depth):
            play.trace = kept
            why = "they share no loop around the rows, or one reads what another one writes later"
            decisions.append(Decision("keep channels apart", root, "planned nest by nest", why))
            continue
        tiled = _copy_tiles(play, roots[0], found, depth, target)
        decisions += tiled
        copy = "" if tiled else _pad_by_rows(play, roots[0], found.sliding.array, depth)
        if copy:
            _lay_out_rows(play, copy, found.sliding.array, found)
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


def _pad_by_rows(play: Play, root: str, image: str, depth: int) -> str:
    """Write the border and the inside of each row of an image together, so that a row is in the first cache
    when the inside is written, and nothing twice; the nest that copies the inside. Nothing is done where the
    image is not made that way."""
    nests = play.scope([root, *chain(play, root)[1:depth]][-1]).body
    makers = [n for n in nests if isinstance(n, Scope) and {*n.written_arrays} == {image}]
    if len(makers) != 2:
        return ""
    border, inside = makers
    kept, rows = play.trace, _beside(play, border, inside, depth)
    if play.may("join_scopes", rows) is None:
        play.trace = kept
        return ""
    return _border_alone(play, rows)


def _beside(play: Play, border: Scope, inside: Scope, level: int) -> str:
    """The part of a border's loop that goes over what the inside's loop writes, right in front of that; both
    stand in ``level`` loops."""
    part, target = border.id, inside.leaves[0].statement.target
    before = next((s.constant for s in target.subscripts if level in s.levels), 0)
    if 0 < before < border.size:
        part = play.split_range(part, before)[1]
    if play.scope(part).size > inside.size:
        part = play.split_range(part, inside.size)[0]
        play.may("reorder_statements", part)
    return part


def _border_alone(play: Play, rows: str) -> str:
    """Write the border of each row where the inside is not; the nest that copies the inside."""
    border, inside = play.scope(rows).body
    if not isinstance(border, Scope) or not isinstance(inside, Scope):
        return ""
    kept = play.trace
    columns = _beside(play, border, inside, len(play.around(border.id)))
    if play.may("drop_overwritten", columns) is None:
        play.trace = kept
    return inside.id


def _lay_out_rows(play: Play, copy: str, image: str, found: Stencil) -> None:
    """Let rows of an image, and what a loop copies of each, begin where vectors may; windows that move by
    more than one element find the columns that they reach from one place side by side."""
    last = len(play.program.buffer_of[image].dimensions) - 1
    if found.step > 1:
        before = play.scope(copy).leaves[0].statement.target.subscripts[last].constant
        room = -before % (found.step * found.width)
        if room:
            play.may("shift_dim", image, dim=last, by=room)
        _part_columns(play, copy, image, found.step)
    _align_rows(play, image, found.width)


def _part_columns(play: Play, copy: str, image: str, step: int) -> None:
    """Let the columns that windows reach from one place stand side by side in each row of an image: with
    windows that move by two elements, the even columns before the odd ones."""
    last = len(play.program.buffer_of[image].dimensions) - 1
    kept, count = play.trace, _part_loop(play, copy, last, step)
    if not count:
        return
    for place in play.program.places:
        if (
            isinstance(place.node, Scope)
            and {*place.node.written_arrays} == {image}
            and place.node.size >= step
        ):
            _part_loop(play, place.node.id, last, step)
    if play.may("split_dim", image, dim=last, size=step) is None:
        play.trace = kept
        return
    play.must("reorder_dims", image, dim=last)


def _part_loop(play: Play, place: str, dim: int, step: int) -> bool:
    """Cut the innermost loop along a dimension of what is written, so that one loop of ``step`` iterations
    stands around the columns that lie ``step`` apart; false where the loop is no such one."""
    loop, level = play.scope(place), len(play.around(place))
    (child, *others) = loop.body
    if others or not isinstance(child, Statement) or loop.suffix:
        return False
    form = child.target.subscripts[dim]
    before = -form.constant % step
    if form.terms != ((level, 1),) or form.quotients or loop.size < before + step:
        return False
    if before:
        place = play.split_range(place, before)[1]
    place = cut_off_rest(play, place, step)[0]
    return play.scope(place).size == step or play.may("swap_scopes", play.split(place, step)[0]) is not None


def _align_rows(play: Play, image: str, width: int) -> None:
    """Let each row of an image begin where a vector may begin."""
    last = len(play.program.buffer_of[image].dimensions) - 1
    size = play.program.buffer_of[image].dimensions[last].size
    play.may("pad_dim", image, dim=last, size=-(-size // width) * width)


# -- copies for tiles of rows --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Inside:
    """Where an image that is copied with a border has its inside, of two dimensions."""

    first: tuple[int, int]
    sizes: tuple[int, int]

    def cuts(self, dim: int, start: int, count: int) -> list[int]:
        """Sizes of the parts before, in and behind the inside, of ``count`` indices from ``start`` on."""
        begin, end = self.first[dim], self.first[dim] + self.sizes[dim]
        before = min(max(begin - start, 0), count)
        behind = min(max(start + count - end, 0), count - before)
        return [before, count - before - behind, behind]


def _copy_tiles(play: Play, root: str, found: Stencil, depth: int, target: Target) -> list[Decision]:
    """Copy what a tile of rows reads right before it, border included, in place of an image that the first
    cache does not hold; nothing is done, and no decision made, where it does, or the image is made another
    way."""
    image, kept = found.sliding.array, play.trace
    inside = _inside_of(play, root, image, depth)
    if found.step == 1 or inside is None or found.row != depth:
        return []
    buffer = play.program.buffer_of[image]
    *rows, columns = buffer.shape[depth:]
    whole = found.step * found.width
    columns = -(-(columns + -inside.first[1] % whole) // whole) * whole
    if BYTES[buffer.dtype] * prod(rows) * columns <= near_caches(target)[0] * MOST_OF_CACHE:
        return []
    try:
        decisions = _play_tiles(play, found, inside)
    except MoveError as error:
        play.trace = kept
        return [Decision(COPY_TILES, root, "left whole", error.what)]
    return decisions


def _inside_of(play: Play, root: str, image: str, depth: int) -> _Inside | None:
    """The inside of an image of rows that a nest with a border and another one make; None if it is made
    another way."""
    nests = play.scope([root, *chain(play, root)[1:depth]][-1]).body
    makers = [n for n in nests if isinstance(n, Scope) and {*n.written_arrays} == {image}]
    if len(makers) != 2 or makers[1].chain[1] is None:
        return None
    loops, copy = makers[1].chain
    subscripts = copy.target.subscripts[-2:]
    if len(loops) != 2 or [s.terms for s in subscripts] != [((depth, 1),), ((depth + 1, 1),)]:
        return None
    return _Inside((subscripts[0].constant, subscripts[1].constant), (loops[0].size, loops[1].size))


def _play_tiles(play: Play, found: Stencil, inside: _Inside) -> list[Decision]:
    """Play the copies of all tiles; the decisions. :class:`MoveError` where one is not legal."""
    image, across = found.sliding.array, found.sizes[found.taps[-1]]
    step = next(c for l, c in found.sliding.subscripts[-2].terms if l == found.row)
    decisions = []
    for place, start, rows, count in _tiles(play, found, inside, step, across):
        loops = split(play, place, rows)
        staged = play.stage("stage_window", loops[-1], image)
        _copy_part(play, staged, image, start, inside, found)
        if count > 1:
            why = f"what {rows} rows read stays in the first cache, which an image does not"
            choice = f"{staged.buffer} in front of each tile of {rows} rows"
            decisions.append(Decision(COPY_TILES, loops[0], choice, why, {"tiles": count}))
    play.must("remove_dead", image)
    return decisions


def _tiles(
    play: Play, found: Stencil, inside: _Inside, step: int, across: int
) -> list[tuple[str, int, int, int]]:
    """Loops over tiles: each with the row of the image where its first tile starts, rows of a tile, and the
    number of tiles. Tiles that read rows of the border have loops of their own, of one tile."""
    total, shared = found.sizes[found.row], max(across - step, 0)
    high = found.high * max(1, -(-shared * FEW_SHARED // (step * found.high)))
    sizes = [high] * (total // high)
    if total % high == 1:  # one row is no tile
        sizes[-1] += 1
    elif total % high:
        sizes.append(total % high)
    groups: list[tuple[int, int, int]] = []
    first, joins = 0, False
    for rows in sizes:
        before, _, behind = inside.cuts(0, first * step, (rows - 1) * step + across)
        alone = bool(before or behind)
        if joins and not alone and groups[-1][1] == rows:
            groups[-1] = (groups[-1][0], rows, groups[-1][2] + 1)
        else:
            groups.append((first * step, rows, 1))
        first, joins = first + rows, not alone
    places = cut(play, found.loops[found.row], [rows * count for _, rows, count in groups])
    return [(place, *group) for place, group in zip(places, groups, strict=True)]


def _copy_part(play: Play, staged: Staged, image: str, start: int, inside: _Inside, found: Stencil) -> None:
    """Copy the part of an image that a tile reads from where the image itself was copied from."""
    rows, columns = staged.nests[0].scopes[-2:]
    inner = ""
    for k, part in enumerate(_parts(play, rows, inside.cuts(0, start, play.scope(rows).size))):
        if not part:
            continue
        (column,) = chain(play, part)[1:]
        pieces = [column] if k != 1 else _parts(play, column, inside.cuts(1, 0, play.scope(column).size))
        inner = pieces[1] if k == 1 else inner
        for piece in filter(None, pieces):
            play.must("inline_definition", play.scope(piece).leaves[0].statement.id, array=image)
    for dim in range(len(play.program.buffer_of[staged.buffer].dimensions) - 2):
        play.may("reuse_dims", staged.buffer, dim=dim)
    if inner:
        _lay_out_rows(play, inner, staged.buffer, found)


def _parts(play: Play, place: str, sizes: Sequence[int]) -> list[str]:
    """A loop for each size that is not 0, and "" for one that is."""
    loops = iter(cut(play, place, [size for size in sizes if size]))
    return [next(loops) if size else "" for size in sizes]
