"""Products on matrix units: a tile of sums for each warp, slices of both operands.

As with tiles of registers, a block loads a slice of both operands into shared memory, step by step; here each
warp adds up a few tiles of 16 by 16 from there, along the slice. Sums are in another order: it re-associates.
If the user allows changes of precision, the slices are rounded to the dtype for which the matrix unit is
fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from perfdojo_sdk.codegen.gpu.mapping import GRID, Machine
from perfdojo_sdk.codegen.gpu.placement import ASYNC
from perfdojo_sdk.codegen.gpu.tiles import MATRIX, MOST_TILES, SIDE, STEPS, factors_dtype
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.transformations.precision import FULL
from perfdojo_sdk.experts.gpu.slices import Slicing, copy_ahead, in_slices, map_threads
from perfdojo_sdk.experts.gpu.steps import WIDE, arrange, chain, factors, only_statement, split
from perfdojo_sdk.experts.gpu.tiles import Product, find_product, take_epilogue
from perfdojo_sdk.search.play import Play

#: Most rows or columns of a block's tile: two such tiles each way are still emulated at full size.
LARGEST = 64
#: The same of slices that are copied ahead, and most cells and warps of a block there.
LARGEST_AHEAD, MOST_CELLS, MOST_WARPS = 256, 256 * 128, 8
#: Numbers of tiles of one warp, below each other or side by side; four only where slices are copied ahead.
OWN = (1, 2, 4)
#: Threads of a block that hide each other's waiting, and of a multiprocessor that keep it busy.
ENOUGH_THREADS, MANY_THREADS = 128, 512
#: Steps of the sum in one slice; the same ahead, where the units take them in several turns.
DEPTH, DEPTH_AHEAD = 32, 64


def play_matrix(play: Play, place: str, machine: Machine, dtype: str = FULL) -> None:
    """Play the product at ``place`` with slices of ``dtype``; MoveError where there is none, or no tile
    divides it.

    Slices of f32 are rounded to a shorter ``dtype``. Empty: the factors are stored in a dtype that the unit
    multiplies, and their slices are copied ahead where the target can.
    """
    product = find_product(play, place)
    if product is None:
        raise MoveError("PD-T006", "this is no product")
    total, *stored = [play.program.buffer_of[n].dtype for n in (product.target, product.left, product.right)]
    rounds, ahead = bool(dtype), not dtype and ASYNC in play.rules.dialect.locations
    if not rounds:
        dtype = factors_dtype(total, set(stored))
        if dtype == FULL or dtype not in machine.matrix:
            raise MoveError("PD-T006", "the unit does not multiply what the factors are stored in")
    elif [total, *stored] != [FULL] * 3:
        raise MoveError("PD-T006", "the product is not one of f32")
    tile = _best_tile(play, product, machine, dtype, ahead)
    product = take_epilogue(play, product)
    rows, columns = split(play, product.row, tile.rows), split(play, product.column, tile.columns)
    grid = [*product.outer, *rows[:-1], *columns[:-1]]
    warp_rows = split(play, rows[-1], tile.warp_rows)
    warp_columns = split(play, columns[-1], tile.warp_columns)
    own_rows, own_columns = split(play, warp_rows[1], SIDE), split(play, warp_columns[1], SIDE)
    warps, own = [warp_rows[0], warp_columns[0]], [*own_rows[:-1], *own_columns[:-1]]
    arrange(play, [*grid, *warps, *own, own_rows[-1], own_columns[-1]])
    runners = tile.warps * machine.warp
    slicing = Slicing(tile.depth, runners, 4 + len(own), DEPTH, ahead)
    sums = in_slices(play, product, slicing, warps, None if rounds and dtype == FULL else _as_stored)
    # Lanes read a few rows at a time: these start at different banks of shared memory.
    beyond = WIDE * BYTES[FULL] // BYTES[dtype]
    for slice_ in sums.slices:
        if rounds and dtype != FULL:
            play.must("lower_precision", slice_, dtype=dtype)
        shape = play.program.buffer_of[slice_].shape
        play.may("pad_dim", slice_, dim=len(shape) - 1, size=shape[-1] + beyond)
        if shape[-1] == SIDE:
            # Sixteen rows or columns for each step: neighbouring threads copy them, then the next sixteen.
            play.may("pad_dim", slice_, dim=len(shape) - 2, size=shape[-2] + 1)
    for top in sums.nests:
        innermost = chain(play, top)[-1]
        if only_statement(play, innermost) is None:
            raise MoveError("PD-T006", "the nest holds more than the tile")
        play.must("annotate_scope", innermost, suffix=MATRIX)
    for nest in copy_ahead(play, sums) if ahead else sums.nests:
        tiles = play.scope(chain(play, nest)[-1]).suffix == MATRIX
        map_threads(play, nest, tile.warps if tiles else runners)
    for loop in grid:
        play.may("annotate_scope", loop, suffix=GRID)


def _as_stored(play: Play, compute: str, slice_: str) -> None:
    """Let a slice's last dimension be the tile's rows or columns, in place of the steps, where the operand
    has these side by side."""
    copy = next(s for s in play.statements() if s.target.array == slice_)
    source = copy.reads[0]
    address = play.program.buffer_of[source.array].address(source.subscripts)
    *_, side, step = copy.target.subscripts
    if BYTES[play.program.buffer_of[slice_].dtype] == 1:
        return  # the unit turns no bytes
    if address.coefficients.get(side.highest, 0) == 1 and address.coefficients.get(step.highest, 0) != 1:
        play.must("reorder_dims", slice_, dim=len(copy.target.subscripts) - 2)


@dataclass(frozen=True)
class _Tile:
    """The tile of a block, and of each of its warps."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    depth: int

    @property
    def warps(self) -> int:
        return self.rows // self.warp_rows * (self.columns // self.warp_columns)


def _best_tile(play: Play, product: Product, machine: Machine, dtype: str, ahead: bool) -> _Tile:
    """The tile, with its warps in both directions, that computes most for the data that it loads, as long as
    there are enough blocks and threads."""
    around = prod(play.scope(loop).size for loop in product.outer)
    deepest = DEPTH_AHEAD if ahead else DEPTH
    depths = [d for d in factors(product.steps, deepest) if d % STEPS[dtype] == 0 and d < product.steps]
    if ahead:
        depths = [d for d in depths if d <= DEPTH or d % DEPTH == 0]
        depths = [d for d in depths if product.steps % (2 * d) == 0 and product.steps > 2 * d]
    largest, sides = LARGEST_AHEAD if ahead else LARGEST, [n * SIDE for n in (OWN if ahead else OWN[:2])]
    choices = [
        _Tile(rows, columns, warp_rows, warp_columns, depths[-1])
        for rows in reversed(factors(product.rows, largest))
        for columns in factors(product.columns, largest)
        for warp_rows in sides
        for warp_columns in sides
        if depths and rows % warp_rows == columns % warp_columns == 0
        if rows > warp_rows and columns > warp_columns
        if rows * columns <= MOST_CELLS and warp_rows * warp_columns <= MOST_TILES * SIDE * SIDE
    ]

    def fits(tile: _Tile) -> bool:
        several = tile.warp_rows * tile.warp_columns > SIDE * SIDE
        if several and blocks_of(tile) * tile.warps * machine.warp < machine.multiprocessors * MANY_THREADS:
            return False  # more warps with a tile each keep the machine busier
        slices = (tile.rows + tile.columns) * (tile.depth * BYTES[dtype] + WIDE * BYTES[FULL])
        if ahead:
            # Two slices in turn, of which rows or columns may lie sixteen by sixteen with room between.
            slices = 2 * (tile.rows + tile.columns) * tile.depth * BYTES[dtype] * 3 // 2
        room, warps = machine.shared_bytes, machine.max_threads // machine.warp
        if ahead:
            room, warps = machine.room, MOST_WARPS
        return tile.warps <= warps and slices <= room

    def blocks_of(tile: _Tile) -> int:
        return around * (product.rows // tile.rows) * (product.columns // tile.columns)

    def worth(tile: _Tile) -> float:
        blocks = blocks_of(tile)
        reuse = tile.rows * tile.columns / (tile.rows + tile.columns)
        own = tile.warp_rows * tile.warp_columns / (tile.warp_rows + tile.warp_columns)
        busy = machine.share_at_work(blocks) * min(1, tile.warps * machine.warp / ENOUGH_THREADS)
        return busy * own / (SIDE / 2 + own) * reuse / (SIDE + reuse)

    fitting = list(filter(fits, choices))
    if not fitting:
        raise MoveError("PD-T006", "no tile of a matrix unit divides the product")
    return max(fitting, key=worth)
