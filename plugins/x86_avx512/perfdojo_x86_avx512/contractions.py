"""How an expert plays a contraction, c += a*b: accumulators fill the vector registers, b is packed."""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.expression import Operation
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformations.scopes import divisors
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play
from perfdojo_x86_avx512.steps import largest_divisor, split

#: Rows of a register tile: no more than the ways of a small cache, since rows of a power-of-two
#: length fall into one set of it. With that, a need not be packed.
MOST_ROWS = 8


@dataclass(frozen=True)
class Contraction:
    """``c[i,j] += a[i,k] * b[k,j]`` in a nest over i and j that holds the start and the sum."""

    rows: str
    columns: str
    sum: str
    b: str
    c: str


def find_contraction(program: Program) -> Contraction | None:
    """The contraction of a program ``m n { c = 0; k c += a * b }``, if that is what it is."""
    nest = [s for s in program.body if isinstance(s, Scope)]
    if len(program.body) != 1 or len(nest) != 1 or len(nest[0].body) != 1:
        return None
    rows, columns = nest[0], nest[0].body[0]
    if not isinstance(columns, Scope) or len(columns.body) != 2:
        return None
    start, total = columns.body
    if not isinstance(start, Statement) or not isinstance(total, Scope) or len(total.body) != 1:
        return None
    body = total.body[0]
    if not isinstance(body, Statement) or body.accumulate != "add":
        return None
    value = body.value
    if not isinstance(value, Operation) or value.name != "mul":
        return None
    if [a.levels for a in body.reads] != [(0, 2), (1, 2)] or body.target.levels != (0, 1):
        return None
    return Contraction(rows.id, columns.id, total.id, body.reads[1].array, body.target.array)


def register_tile(rows: int, columns: int, lanes: int, registers: int) -> tuple[int, int, int]:
    """Rows, vectors and lanes of the block of accumulators that loads least for its arithmetic.

    Besides the accumulators, one row of b and one value of a must find a register.
    """
    width = largest_divisor(columns, lanes)
    tiles = [
        (high, wide, width)
        for high in (1, *divisors(rows), rows)
        for wide in (1, *divisors(columns // width), columns // width)
        if high <= MOST_ROWS and high * wide + wide + 1 <= registers
    ]
    return max(tiles, key=lambda t: (t[0] * t[1] / (t[0] + t[1]), t[0]))


def tile_for_registers(play: Play, found: Contraction, target: Target) -> None:
    rows, columns = play.scope(found.rows).size, play.scope(found.columns).size
    lanes = target.capabilities.lanes.get("f32", 1)
    high, wide, width = register_tile(rows, columns, lanes, target.capabilities.vector_registers or 8)

    # Tiles: columns of panels outermost, then tiles of rows, then one tile.
    row_nest = split(play, found.rows, high)
    column_nest = split(play, found.columns, wide * width)
    if len(column_nest) == 2 and wide > 1:
        column_nest = [column_nest[0], *split(play, column_nest[1], width)]
    if len(row_nest) < 2 or len(column_nest) < 2:
        return
    panel, tile, row = column_nest[0], row_nest[0], row_nest[1]
    play.must("swap_scopes", row)
    play.must("swap_scopes", tile)

    # Accumulators: start, sum and store of a tile become three nests; the sum's k moves outward.
    play.must("stage_write", row, array=found.c)
    place = found.sum
    summed: list[str] = []
    for scope in (*reversed(column_nest[1:]), row):
        play.must("fission_scope", place)
        place = f"{scope}.{place}"
        summed.append(place)
    for scope in summed:
        play.must("swap_scopes", scope)

    # Packing: b once, its rows read in order; a panel of it stays near while all of a passes.
    play.must("stage_read", panel, array=found.b)
    play.may("swap_scopes", play.program.body[0].id)
