"""Tiles of a warp's matrix unit: nests over rows and columns that the lanes share out.

A nest ``16 16:m`` is a statement for each cell of a tile; ``16 16 K:m`` adds up products for each. Every lane
runs the cells that are its own, in any order, so the target's cells must differ from iteration to
iteration and no iteration may read what another one writes. A buffer at the location ``tile`` whose uses
are all of that kind is kept in the lanes' registers, and there the products go through the matrix unit:
of f32, of shorter floats read as f32, or of i8 and u8 read as i32, whichever the machine multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfdojo_sdk.core.expression import Access, AffineExpr, Cast, Expression, Read, performs
from perfdojo_sdk.core.program import Path, Program, Scope, Statement

#: Most tiles of one warp; each takes some registers of every lane.
MOST_TILES = 16
#: The suffix of lanes that work together with their matrix unit, and the location of what it adds up.
MATRIX, TILE = "m", "tile"
#: Rows and columns of a tile.
SIDE = 16
#: dtype of the factors -> steps of a sum that the matrix unit takes at once; i8 stands for u8 too.
STEPS = {"f32": 4, "tf32": 8, "bf16": 16, "f16": 16, "i8": 32}
#: dtype of the factors -> cells at a multiple of which each piece of a row must start if its steps lie side
#: by side: it is moved as one.
PIECE = {"f32": 1, "tf32": 1, "bf16": 4, "f16": 4, "i8": 4}
#: dtype of the factors -> the same in shared memory, where the unit loads 16 bytes at once.
WIDE_PIECE = {"bf16": 8, "f16": 8, "i8": 16}
#: dtype of a tile's sums -> C type.
TILES = {"f32": "pd_tile", "i32": "pd_tile_i32"}


@dataclass(frozen=True)
class TileNest:
    """The scopes of a nest over a tile, and its statement."""

    scopes: tuple[Scope, ...]
    statement: Statement
    row: int
    """Level of the rows' iterator; that of the columns is the next."""

    @property
    def steps(self) -> int:
        """Terms of the sum for each cell; 0 where the statement runs once for each."""
        return self.scopes[2].size if len(self.scopes) == 3 else 0


def tile_nest(program: Program, scope: Scope, path: Path) -> TileNest | None:
    """The nest at ``path``, if lanes may share it out."""
    scopes = [scope]
    while len(body := scopes[-1].body) == 1 and isinstance(body[0], Scope) and len(scopes) < 3:
        scopes.append(body[0])
    statement = scopes[-1].body[0]
    wanted = ["", "", MATRIX][-len(scopes) :]
    if len(scopes) < 2 or [s.suffix for s in scopes] != wanted or not isinstance(statement, Statement):
        return None
    if [s.size for s in scopes[:2]] != [SIDE, SIDE] or statement.guard:
        return None
    if statement.dtype not in TILES and len(scopes) == 3:
        return None  # sums in another dtype than those of the unit
    nest = TileNest(tuple(scopes), statement, len(path) - 1)
    return nest if _apart(program, nest) else None


def _apart(program: Program, nest: TileNest) -> bool:
    """True if each iteration of rows and columns has a cell of its own, and reads no other's."""
    target = nest.statement.target
    buffer = program.buffer_of[target.array]
    address = buffer.address(target.subscripts)
    row, column = (abs(address.coefficients.get(level, 0)) for level in (nest.row, nest.row + 1))
    if address.quotients or not row or not column or not (row >= SIDE * column or column >= SIDE * row):
        return False
    if nest.steps and address.coefficients.get(nest.row + 2, 0):
        return False
    reads = [r for r in nest.statement.reads if program.buffer_of[r.array] is buffer]
    return all(r == target for r in reads)


def tile_number(form: AffineExpr, nest: TileNest) -> AffineExpr | None:
    """The number of the warp's tile that a cell is in; None unless the rest of the cell's number is the row
    times :data:`SIDE` plus the column."""
    cells, rest = SIDE * SIDE, form.plus(AffineExpr.of({nest.row: SIDE, nest.row + 1: 1}), -1)
    if rest.quotients or any(number % cells for number in (rest.constant, *(c for _, c in rest.terms))):
        return None
    return AffineExpr.of({level: c // cells for level, c in rest.terms}, rest.constant // cells)


@dataclass(frozen=True)
class Factor:
    """One side of the products: the first element of the tile's slice, and the distances between rows and
    between steps."""

    access: Access
    first: AffineExpr
    stride: int
    step: int
    wide: bool
    """True if its pieces of 16 bytes start at multiples of 16 bytes."""


def product_dtype(nest: TileNest) -> str:
    """The dtype of the factors that the nest adds up products of; empty where it adds up something else."""
    value = nest.statement.value
    if nest.statement.accumulate != "add" or not performs(value, "mul"):
        return ""
    return factors_dtype(nest.statement.dtype, set(map(_read_dtype, value.arguments)))


def factors_dtype(total: str, stored: set[str]) -> str:
    """The dtype of factors that are ``stored`` in these and added up in ``total``, as :data:`STEPS` names it;
    empty where no unit has them."""
    if total == "i32":
        return "i8" if stored <= {"i8", "u8"} else ""
    return next(iter(stored)) if len(stored) == 1 and total == "f32" else ""


def _read_dtype(value: Expression) -> str:
    """The dtype in which a factor is stored; empty where it is more than an element."""
    stored = value.argument if isinstance(value, Cast) else value
    return stored.dtype if isinstance(stored, Read) else ""


def factors_of(
    nest: TileNest, addresses: Sequence[tuple[Access, AffineExpr]]
) -> tuple[Factor, Factor] | None:
    """Left and right factor of a sum of products that the matrix unit adds up; None where it cannot.

    ``addresses``: of the statement's reads.
    """
    dtype = product_dtype(nest)
    if len(addresses) != 2 or dtype not in STEPS or not nest.steps or nest.steps % STEPS[dtype]:
        return None
    row, column, step = nest.row, nest.row + 1, nest.row + 2
    found: dict[int, Factor] = {}
    for access, form in addresses:
        mine = [level for level in (row, column) if form.coefficients.get(level, 0)]
        apart = form.coefficients.get(step, 0)
        if len(mine) != 1 or not apart or form.quotients:
            return None
        rest = {l: c for l, c in form.terms if l not in (row, column, step)}
        stride = form.coefficients[mine[0]]
        # The distance that is not one stands between the starts of pieces.
        starts = (apart if apart != 1 else stride, form.constant, *rest.values())
        if apart == 1 and any(start % PIECE[dtype] for start in starts):
            return None
        wide = dtype in WIDE_PIECE and all(start % WIDE_PIECE[dtype] == 0 for start in starts)
        wide = wide and (apart == 1 or stride == 1 and dtype != "i8")
        found[mine[0]] = Factor(access, AffineExpr.of(rest, form.constant), stride, apart, wide)
    return (found[row], found[column]) if len(found) == 2 else None
