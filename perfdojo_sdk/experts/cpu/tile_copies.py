"""Copies of what tiles of rows read of a large padded image, in place of the image.

A tile copies the rows that its windows cover right before it (``stage_window``), from where the padded image
was copied itself (``inline_definition``): zeros of the border, or the image inside of it. Tiles at the border
have loops of their own, so that no copy asks where it is. The padded image is then dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.made import Staged
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.experts.cpu.image_rows import lay_out_rows
from perfdojo_sdk.experts.cpu.loops import chain, cut
from perfdojo_sdk.experts.cpu.stencils import Stencil
from perfdojo_sdk.experts.cpu.steps import near_caches, split
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: The rule's name in decisions about copies for tiles of rows; their places are loops over such tiles.
COPY_TILES = "copy tiles"

#: Part of the first cache that an image may take, so that rows of results and what is copied fit beside it.
MOST_OF_CACHE = 0.5

#: Tiles have so many rows that those which the next tile copies again are no more than one in so many.
FEW_SHARED = 4


@dataclass(frozen=True)
class _Inside:
    """The place and size of the inside of an image that is copied with a border, of two dimensions."""

    first: tuple[int, int]
    sizes: tuple[int, int]

    def cuts(self, dim: int, start: int, count: int) -> list[int]:
        """Sizes of the parts before, in and behind the inside, of ``count`` indices from ``start`` on."""
        begin, end = self.first[dim], self.first[dim] + self.sizes[dim]
        before = min(max(begin - start, 0), count)
        behind = min(max(start + count - end, 0), count - before)
        return [before, count - before - behind, behind]


def copy_tiles(play: Play, root: str, found: Stencil, depth: int, target: Target) -> list[Decision]:
    """Copy what a tile of rows reads right before it, border included, in place of an image that the first
    cache does not hold; nothing is done, and no decision made, where it does, or the image is made another
    way."""
    image, kept = found.sliding.array, play.trace
    inside = _inside_of(play, root, image, depth)
    if found.step == 1 or inside is None or found.row != depth:
        return []
    down = found.sliding.subscripts[-2]
    if down.constant or found.row not in down.coefficients or min(c for _, c in down.terms) < 0:
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
    loops, copy = makers[1].chain if len(makers) == 2 else ((), None)
    if copy is None:
        return None
    subscripts = copy.target.subscripts[-2:]
    if len(loops) != 2 or [s.terms for s in subscripts] != [((depth, 1),), ((depth + 1, 1),)]:
        return None
    return _Inside((subscripts[0].constant, subscripts[1].constant), (loops[0].size, loops[1].size))


def _play_tiles(play: Play, found: Stencil, inside: _Inside) -> list[Decision]:
    """Play the copies of all tiles; the decisions. :class:`MoveError` where one is not legal."""
    image, down = found.sliding.array, found.sliding.subscripts[-2]
    step = down.coefficients[found.row]
    across = 1 + sum(c * (found.sizes[l] - 1) for l, c in down.terms if l != found.row)
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
        lay_out_rows(play, inner, staged.buffer, found)


def _parts(play: Play, place: str, sizes: Sequence[int]) -> list[str]:
    """A loop for each size that is not 0, and "" for one that is."""
    loops = iter(cut(play, place, [size for size in sizes if size]))
    return [next(loops) if size else "" for size in sizes]
