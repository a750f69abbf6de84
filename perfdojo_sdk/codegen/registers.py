"""Named cells: the C variables for a buffer whose subscripts are all constants.

A location with constant subscripts (``reg``) promises that every cell can be named. If the lanes
of vectors run over the cells, a variable holds one vector of them; a scalar access then takes one
element of the vector. If no lane does, a variable holds one cell. Accesses that straddle vectors
leave a plain local array, which is correct and slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from perfdojo_sdk.codegen.kinds import vector_lanes
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import ROUNDED_DTYPES, carrier
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.groups import grouped_sum
from perfdojo_sdk.core.program import Occurrence, Program
from perfdojo_sdk.core.storage import Buffer


@dataclass(frozen=True)
class Registers:
    """The variables of one buffer."""

    names: tuple[str, ...]
    width: int
    """Cells in each variable."""
    kind: str
    """The kind of vectors, ``width`` of whose lanes are used; empty for scalars."""

    @property
    def vector(self) -> bool:
        return bool(self.kind)


def assign(
    program: Program, buffer: Buffer, dialect: Dialect, name: str, taken: set[str]
) -> Registers | None:
    """The variables for ``buffer``, or None for a local array. Adds the names to ``taken``."""
    occurrences = program.occurrences[buffer.name]
    lanes = [(o, level) for o in occurrences if (level := lane_level(program, o, dialect)) is not None]
    moving = [(o, level) for o, level in lanes if lane_stride(buffer, o.access.subscripts, level)]
    most, width = dialect.lanes.get(buffer.dtype, 0), 1
    if any(_gathers(program, buffer, o, level, dialect) for o, level in moving):
        return None  # its cells are read from lanes of other numbers
    if moving:
        found = {_lanes_at(program, o, l, dialect) for o, l in moving}
        if buffer.dtype in ROUNDED_DTYPES and (0 in found or len(moving) < len(occurrences)):
            return None  # an element of a vector is no value in C
        found.discard(0)
        if len(found) > 1:
            return None  # statements with vectors of different lengths use it
        most = min([most, *found])
        tiles = [tile for o, l in moving if (tile := _tile(program, o, l, dialect))]
        width = prod(tiles[0]) if tiles else _width(buffer, most)
    if moving and width > most:
        return None  # rows of cells neither fit into a vector nor consist of vectors
    own = [(o, {level, level + 1} if _tile(program, o, level, dialect) else {level}) for o, level in moving]
    if any(not _starts_a_vector(buffer, o, levels, width) for o, levels in own):
        return None
    kind = ""
    if moving:
        kind = f"{carrier(buffer.dtype)}x{most}"
        kind = "f32v" if buffer.dtype == "f32" and most == dialect.lanes["f32"] else kind
    return Registers(_names(buffer, width, name, taken), width, kind)


def lane_level(program: Program, occurrence: Occurrence, dialect: Dialect) -> int | None:
    """The level of the scope around an access whose iterations are lanes; None where none has two."""
    scopes = program.ancestors(occurrence.path)
    for above in range(2, min(3, len(scopes)) + 1) if occurrence.writes else ():
        if grouped_sum(program, scopes[-above], len(scopes) - above, dialect):
            return len(scopes) - above
    if scopes and scopes[-1].size > 1 and dialect.is_lockstep(scopes[-1].suffix):
        return len(scopes) - 1
    return None


def _gathers(program: Program, buffer: Buffer, o: Occurrence, level: int, dialect: Dialect) -> bool:
    """True if lanes read cells that are no neighbours."""
    suffix = dialect.suffixes.get(program.ancestors(o.path)[level].suffix)
    return bool(suffix and suffix.gathers) and lane_stride(buffer, o.access.subscripts, level) != 1


def _tile(program: Program, occurrence: Occurrence, level: int, dialect: Dialect) -> tuple[int, int] | None:
    """Rows and columns of the instruction for matrices that makes an access, with its rows at ``level``."""
    scopes = program.ancestors(occurrence.path)
    found = grouped_sum(program, scopes[level], level, dialect) if level < len(scopes) - 1 else None
    return found.group.tile if found else None


def _lanes_at(program: Program, occurrence: Occurrence, level: int, dialect: Dialect) -> int:
    tile = _tile(program, occurrence, level, dialect)
    if tile:
        return prod(tile)
    return vector_lanes(program, occurrence.statement, level, occurrence.sizes[level], dialect)


def _width(buffer: Buffer, lanes: int) -> int:
    """Cells in a vector: the innermost dimension, or full vectors when it is made of such.

    A buffer that is one row of cells may end in a vector that is not full.
    """
    sizes = [buffer.dimensions[k].size for k in buffer.materialised if buffer.dimensions[k].size > 1]
    innermost = sizes[-1] if sizes else 1
    whole = lanes and (innermost % lanes == 0 or (innermost > lanes and len(sizes) == 1))
    return lanes if whole else innermost


def _starts_a_vector(buffer: Buffer, o: Occurrence, levels: set[int], width: int) -> bool:
    """True if the lanes of an access, the iterations of these levels, run over the first cells of one
    variable."""
    start = buffer.address(o.access.subscripts)
    others = [(l, c) for l, c in start.terms if l not in levels and o.sizes[l] > 1]
    aligned = start.constant % width == 0 and all(c % width == 0 for _, c in others) and not start.quotients
    return aligned and prod(o.sizes[level] for level in levels) <= width


def _names(buffer: Buffer, width: int, name: str, taken: set[str]) -> tuple[str, ...]:
    """``acc_0_1``: the subscripts of the variable's first cell, in units of variables."""
    sizes = [buffer.dimensions[k].size for k in buffer.materialised if buffer.dimensions[k].size > 1]
    while len(sizes) > 1 and sizes[-1] < width:  # a variable holds several rows
        sizes[-2:] = [sizes[-2] * sizes[-1]]
    if sizes:
        sizes[-1] = -(-sizes[-1] // width)
    sizes = [s for s in sizes if s > 1]
    prefix = name
    while True:
        names = [prefix]
        for size in sizes:
            names = [f"{stem}_{k}" for stem in names for k in range(size)]
        if taken.isdisjoint(names):
            taken.update(names)
            return tuple(names)
        prefix += "_"


def variable(registers: Registers, cell: AffineExpr) -> tuple[str, int]:
    """The variable that holds a cell of known flat index, and the cell's position in it."""
    assert not cell.levels, "the subscripts of a named cell are constants"
    group, position = divmod(cell.constant, registers.width)
    return registers.names[group], position
