"""The code of a nest over a tile in the lanes of a warp: by the matrix unit if possible, else lane by
lane."""

from __future__ import annotations

from contextlib import ExitStack

from perfdojo_sdk.codegen.c import Point
from perfdojo_sdk.codegen.c_values import c_index
from perfdojo_sdk.codegen.gpu.placement import unit_factors
from perfdojo_sdk.codegen.gpu.tiles import Factor, TileNest, product_dtype
from perfdojo_sdk.codegen.gpu.writer import GpuWriter
from perfdojo_sdk.codegen.names import c_name


class TileCode:
    """Emits one nest; ``point`` stands inside its outermost scope."""

    def __init__(self, emitter: GpuWriter, nest: TileNest, point: Point) -> None:
        self.emitter, self.nest, self.point = emitter, nest, point

    def emit(self) -> None:
        if not self._multiplied():
            self._cell_by_cell()

    def _multiplied(self) -> bool:
        """Emit a call of the matrix unit and return true, if the sums are a tile in registers and the factors
        have the right form."""
        e = self.emitter
        factors = unit_factors(e.mapped, e.placed, self.nest)
        if factors is None:
            return False
        dtype, sides = product_dtype(self.nest), ", ".join(map(self._side, factors))
        word = "pd_tile_multiply" if dtype == "f32" else f"pd_tile_multiply_{dtype}"
        tile = e.tile(self.nest.statement.target, self.point)
        e.function.line(f"{word}({tile}, {sides}, {self.nest.steps});")
        return True

    def _side(self, factor: Factor) -> str:
        """C arguments for a factor: array, number of the tile's first element, distance of its rows."""
        array = c_name(self.emitter.place_of(factor.access).buffer.name)
        return f"{array}, {c_index(self.point.fold(factor.first))}, {factor.stride}"

    def _cell_by_cell(self) -> None:
        e, row, inner = self.emitter, self.nest.row, self.point.inside(0)
        e.function.line("PD_UNROLL")
        with e.block("for (int pd_own = 0; pd_own < PD_TILE_OWN; pd_own++)"), ExitStack() as stack:
            stack.enter_context(e.iterator(row, "pd_tile_row(pd_own)"))
            stack.enter_context(e.iterator(row + 1, "pd_tile_column(pd_own)"))
            if self.nest.steps:
                step, inner = f"i{row + 2}", inner.inside(0)
                head = f"for ({e.index} {step} = 0; {step} < {self.nest.steps}; {step}++)"
                stack.enter_context(e.block(head))
            e.visit_statement(self.nest.statement, inner)
