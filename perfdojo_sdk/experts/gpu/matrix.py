"""Products on matrix units: a tile of sums for each warp, slices of both operands.

As with tiles of registers, a block loads a slice of both operands into shared memory, step by step; here each
warp adds up a few tiles of 16 by 16 from there, along the slice. Sums are in another order: it re-associates.
If the user allows changes of precision, the slices are rounded to the dtype for which the matrix unit is
fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from perfdojo_sdk.codegen.gpu.mapping import BLOCK, GRID, Machine
from perfdojo_sdk.codegen.gpu.tiles import MATRIX, SIDE, STEPS
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.transformations.precision import FULL
from perfdojo_sdk.experts.gpu.steps import WIDE, arrange, chain, factors, only_statement, split
from perfdojo_sdk.experts.gpu.tiles import Product, find_product, in_slices
from perfdojo_sdk.search.play import Play

#: Most rows or columns of a block's tile: two such tiles each way are still emulated at full size.
LARGEST = 64
#: Numbers of tiles of one warp, below each other or side by side.
OWN = (1, 2)
#: Threads of a block that hide each other's waiting, and of a multiprocessor that keep it busy.
ENOUGH_THREADS, MANY_THREADS = 128, 512
#: Steps of the sum in one slice.
DEPTH = 32


def play_matrix(play: Play, place: str, machine: Machine, dtype: str = "f32") -> None:
    """Play the f32 product at ``place`` with slices of ``dtype``; MoveError where there is none, or no tile
    divides it."""
    product = find_product(play, place)
    if product is None or play.program.buffer_of[product.target].dtype != "f32":
        raise MoveError("PD-T006", "this is no product of f32")
    tile = _best_tile(play, product, machine, dtype)
    rows, columns = split(play, product.row, tile.rows), split(play, product.column, tile.columns)
    grid = [*product.outer, *rows[:-1], *columns[:-1]]
    warp_rows = split(play, rows[-1], tile.warp_rows)
    warp_columns = split(play, columns[-1], tile.warp_columns)
    own_rows, own_columns = split(play, warp_rows[1], SIDE), split(play, warp_columns[1], SIDE)
    warps, own = [warp_rows[0], warp_columns[0]], [*own_rows[:-1], *own_columns[:-1]]
    arrange(play, [*grid, *warps, *own, own_rows[-1], own_columns[-1]])
    runners = tile.warps * machine.warp
    start, compute, end = in_slices(play, product, tile.depth, runners, warps, inwards=4 + len(own))
    if dtype != "f32":
        for slice_ in _slices(play, compute):
            play.must("lower_precision", slice_, dtype=dtype)
    for top in (start, compute, end):
        innermost = chain(play, top)[-1]
        if only_statement(play, innermost) is None:
            raise MoveError("PD-T006", "the nest holds more than the tile")
        play.must("annotate_scope", innermost, suffix=MATRIX)
        for loop in chain(play, top)[:2]:
            play.must("annotate_scope", loop, suffix=BLOCK)
    for loop in grid:
        play.may("annotate_scope", loop, suffix=GRID)
    # Lanes read one column of 16 rows at a time: rows start at different banks of shared memory.
    beyond = WIDE * BYTES[FULL] // BYTES[dtype]
    for slice_ in _slices(play, compute):
        rank = len(play.program.buffer_of[slice_].dimensions)
        play.may("pad_dim", slice_, dim=rank - 1, size=tile.depth + beyond)


def _slices(play: Play, compute: str) -> list[str]:
    """The buffers that the nest reads its factors from."""
    statement = only_statement(play, chain(play, compute)[-1])
    assert statement is not None
    others = {*play.program.interface, statement.target.array}
    return [read.array for read in statement.reads if read.array not in others]


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


def _best_tile(play: Play, product: Product, machine: Machine, dtype: str) -> _Tile:
    """The tile, with its warps in both directions, that computes most for the data that it loads, as long as
    there are enough blocks and threads."""
    around = prod(play.scope(loop).size for loop in product.outer)
    depths = [d for d in factors(product.steps, DEPTH) if d % STEPS[dtype] == 0 and d < product.steps]
    sides = [n * SIDE for n in OWN]
    choices = [
        _Tile(rows, columns, warp_rows, warp_columns, depths[-1])
        for rows in factors(product.rows, LARGEST)
        for columns in factors(product.columns, LARGEST)
        for warp_rows in sides
        for warp_columns in sides
        if depths and rows % warp_rows == columns % warp_columns == 0
        if rows > warp_rows and columns > warp_columns
    ]

    def fits(tile: _Tile) -> bool:
        several = tile.warp_rows * tile.warp_columns > SIDE * SIDE
        if several and blocks_of(tile) * tile.warps * machine.warp < machine.multiprocessors * MANY_THREADS:
            return False  # more warps with a tile each keep the machine busier
        slices = (tile.rows + tile.columns) * (tile.depth * BYTES[dtype] + WIDE * BYTES[FULL])
        return tile.warps * machine.warp <= machine.max_threads and slices <= machine.shared_bytes

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
