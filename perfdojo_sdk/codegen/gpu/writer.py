"""Lines of one kernel for a grid: cells in the places of their buffers, blocks, iterators, statements.

The parts of the emitter share this; :mod:`.emitter` decides which unit runs which line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from perfdojo_sdk.codegen.c import Point
from perfdojo_sdk.codegen.c_values import c_index
from perfdojo_sdk.codegen.gpu.async_copies import WORDS
from perfdojo_sdk.codegen.gpu.host import HostPart
from perfdojo_sdk.codegen.gpu.placement import Placed
from perfdojo_sdk.codegen.gpu.tiles import TileNest, tile_number
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.core.expression import Access, AffineExpr, Expression, Read
from perfdojo_sdk.core.program import Statement


class GpuWriter(HostPart):
    """Writes the lines of a kernel."""

    placed: Mapping[str, Placed]
    copies: frozenset[str]
    """Ids of statements that are asynchronous copies."""
    loaded: Mapping[Access, str]
    """Accesses whose values are in variables at the moment."""
    nest: TileNest | None
    """The nest over a tile that is being written."""

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces, under ``head`` if there is one."""
        f = self.function
        f.line(f"{head} {{" if head else "{")
        f.indent += 1
        yield
        f.indent -= 1
        f.line("}")

    @contextmanager
    def iterator(self, level: int, value: str) -> Iterator[None]:
        """An iterator with a value, for the lines that follow; not declared where none of them uses it."""
        f, name = self.function, f"i{level}"
        position = len(f.lines)
        f.line(f"const {self.index} {name} = {value};")
        yield
        if not any(re.search(rf"\b{name}\b", line) for line in f.lines[position + 1 :]):
            del f.lines[position]

    def place_of(self, access: Access) -> Placed:
        return self.placed[self.program.buffer_of[access.array].name]

    def visit_statement(self, statement: Statement, point: Point) -> None:
        if statement.id in self.copies and statement.dtype in WORDS:
            self.copy_later(statement, point, wide=False)
        else:
            super().visit_statement(statement, point)

    def copy_later(self, statement: Statement, point: Point, wide: bool) -> None:
        """Start an asynchronous copy of one cell, or of as many neighbours as are 16 bytes."""
        word, ends = "pd_copy_async16" if wide else "pd_copy_async", []
        for access in (statement.target, *statement.reads):
            index = self.subscript(self.flat(access, point), point)
            ends.append(f"{c_name(self.place_of(access).buffer.name)}, {index}")
        self.function.line(f"{word}({', '.join(ends)});")

    def flat(self, access: Access, point: Point) -> AffineExpr:
        return point.fold(self.place_of(access).address(access))

    def cell(self, access: Access, point: Point) -> str:
        placed = self.place_of(access)
        if placed.kind == "tile":
            return f"pd_tile_cell({self.tile(access, point)}, pd_own)"
        if placed.kind in ("local", "uniform") and placed.cells == 1:
            return c_name(placed.buffer.name)
        return super().cell(access, point)

    def tile(self, access: Access, point: Point) -> str:
        """The warp's tile that a cell of a nest is in; ``point`` is inside of the nest."""
        placed, nest = self.place_of(access), self.nest
        assert nest is not None
        number = tile_number(placed.address(access), nest)
        assert number is not None, "the buffer would not have been placed so"
        name = c_name(placed.buffer.name)
        return name if placed.tiles == 1 else f"{name}[{c_index(point.fold(number))}]"

    def expression(self, value: Expression, point: Point) -> str:
        if isinstance(value, Read) and value.access in self.loaded:
            return self.loaded[value.access]
        return super().expression(value, point)

    @contextmanager
    def reading(self, loaded: Mapping[Access, str]) -> Iterator[None]:
        """Within the block, accesses that were loaded are read from their variables."""
        self.loaded = loaded
        yield
        self.loaded = {}
