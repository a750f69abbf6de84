"""How an expert plays a product on matrix units: a tile of sums for each warp, slices of both operands.

As with tiles of registers, step by step a block brings a slice of both operands into shared memory; here each
warp adds up one tile of 16 by 16 from there, along the slice. Sums are in another order: it re-associates.
Where the user allows that precision changes, the slices are rounded to what the matrix unit is quickest at.
"""

from __future__ import annotations

from math import prod

from perfdojo_sdk.codegen.gpu.expert.steps import WIDE, arrange, chain, factors, only_statement, split
from perfdojo_sdk.codegen.gpu.expert.tiles import ENOUGH_BLOCKS, Product, Tile, find_product, in_slices
from perfdojo_sdk.codegen.gpu.mapping import BLOCK, GRID, Machine
from perfdojo_sdk.codegen.gpu.tiles import MATRIX, SIDE, STEPS
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.transformations.precision import FULL
from perfdojo_sdk.search.play import Play

#: Rows or columns of a block's tile.
LARGEST = 64
#: Steps of the sum in one slice.
DEPTH = 32


def play_matrix(play: Play, place: str, machine: Machine, dtype: str = "f32") -> None:
    """Play the f32 product at ``place`` with slices of ``dtype``; MoveError where there is none, or no tile
    divides it."""
    product = find_product(play, place)
    if product is None or play.program.buffer_of[product.target].dtype != "f32":
        raise MoveError("PD-T006", "this is no product of f32")
    tile = _best_tile(play, product, machine, STEPS[dtype])
    rows, columns = split(play, product.row, tile.rows), split(play, product.column, tile.columns)
    own_rows, own_columns = split(play, rows[-1], SIDE), split(play, columns[-1], SIDE)
    grid = [*product.outer, *rows[:-1], *columns[:-1]]
    warps = [own_rows[0], own_columns[0]]
    arrange(play, [*grid, *warps, own_rows[1], own_columns[1]])
    start, compute, end = in_slices(play, product, tile, warps, inwards=4)
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
    return [r.array for r in statement.reads if r.array not in {*play.program.interface, statement.target.array}]


def _best_tile(play: Play, product: Product, machine: Machine, steps: int) -> Tile:
    """Of a block, with warps both ways: it does most with what it loads, while there are blocks enough."""
    around = prod(play.scope(loop).size for loop in product.outer)
    depths = [d for d in factors(product.steps, DEPTH) if d % steps == 0 and d < product.steps]
    choices = []
    for rows in factors(product.rows, LARGEST):
        for columns in factors(product.columns, LARGEST):
            warps = rows // SIDE * (columns // SIDE)
            whole = rows % SIDE == columns % SIDE == 0 and min(rows, columns) > SIDE
            if whole and depths and warps * machine.warp <= machine.max_threads:
                blocks = around * (product.rows // rows) * (product.columns // columns)
                reuse = rows * columns / (rows + columns)
                choices.append((min(blocks, ENOUGH_BLOCKS) * reuse, rows, columns))
    if not choices:
        raise MoveError("PD-T006", "no tile of a matrix unit divides the product")
    _, rows, columns = max(choices)
    threads = rows // SIDE * (columns // SIDE) * machine.warp
    lanes = rows * columns // threads
    return Tile(rows, columns, lanes, 1, depths[-1])
