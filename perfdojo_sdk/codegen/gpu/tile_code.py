"""The code of a nest over a tile in the lanes of a warp: by the matrix unit if possible, else lane by lane.

The unit takes a few steps of sixteen rows of one factor and of sixteen columns of the other. Where loops
stand around the nest, such as those over a warp's tiles, what several tiles share is loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from perfdojo_sdk.codegen.c import Point
from perfdojo_sdk.codegen.c_values import c_index
from perfdojo_sdk.codegen.gpu.placement import unit_factors
from perfdojo_sdk.codegen.gpu.tiles import MOST_TILES, STEPS, Factor, TileNest, product_dtype
from perfdojo_sdk.codegen.gpu.writer import GpuWriter
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.core.program import Scope


class TileCode:
    """Emits one nest; ``point`` stands inside its outermost scope."""

    def __init__(self, emitter: GpuWriter, nest: TileNest, point: Point) -> None:
        self.emitter, self.nest, self.point = emitter, nest, point

    def emit(self) -> None:
        factors = unit_factors(self.emitter.mapped, self.emitter.placed, self.nest)
        if factors is None:
            self._cell_by_cell()
        else:
            Products(self.emitter, self.nest, factors).emit([self.point])

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


def emit_products(emitter: GpuWriter, scope: Scope, point: Point) -> bool:
    """Emit the loops over a few tiles, of which ``scope`` is the outermost, if the unit multiplies their
    products; ``point`` stands inside of it."""
    loops, at = [scope], point
    while emitter.mapped.role[at.path] == "loop":
        body = loops[-1].body
        if len(body) != 1 or not isinstance(body[0], Scope):
            return False
        loops.append(body[0])
        at = at.inside(0)
    nest = emitter.mapped.tiles.get(at.path)
    if nest is None or nest.scopes[0] is not loops.pop():
        return False
    count = 1
    for loop in loops:
        count *= loop.size
    factors = unit_factors(emitter.mapped, emitter.placed, nest)
    if factors is None or count > MOST_TILES:
        return False
    emitter.nest = nest
    Products(emitter, nest, factors).emit(list(_iterations(point, loops)))
    return True


def _iterations(point: Point, loops: Sequence[Scope]) -> Iterator[Point]:
    """Every iteration of a perfect nest of loops, at what stands inside; ``point`` is in the outermost."""
    level = point.level - 1
    for value in range(loops[0].size):
        inner = point.at(level, value).inside(0)
        if len(loops) == 1:
            yield inner
        else:
            yield from _iterations(inner, loops[1:])


class Products:
    """Emits the products of one nest for a few tiles."""

    def __init__(self, emitter: GpuWriter, nest: TileNest, factors: tuple[Factor, Factor]) -> None:
        self.emitter, self.nest, self.factors = emitter, nest, factors

    def emit(self, points: Sequence[Point]) -> None:
        """``points``: each tile's, inside the nest's outermost scope."""
        e, steps = self.emitter, STEPS[product_dtype(self.nest)]
        loaded: dict[str, str] = {}
        adds = []
        for point in points:
            names = []
            for side, factor in zip("ab", self.factors, strict=True):
                call = self._load("rows" if side == "a" else "columns", factor, point)
                names.append(loaded.setdefault(call, f"pd_{side}{len(loaded)}"))
            tile = e.tile(self.nest.statement.target, point)
            adds.append(f"pd_tile_add({tile}, {', '.join(names)});")
        several = self.nest.steps > steps
        if several:
            e.function.line("PD_UNROLL")
        head = f"for (int pd_step = 0; pd_step < {self.nest.steps}; pd_step += {steps})" if several else ""
        with e.block(head):
            for call, name in loaded.items():
                e.function.line(f"const auto {name} = {call};")
            for add in adds:
                e.function.line(add)

    def _load(self, side: str, factor: Factor, point: Point) -> str:
        """The call in C that loads what the unit takes of a factor."""
        placed = self.emitter.place_of(factor.access)
        where = "_shared" if factor.wide and placed.kind == "shared" else ""
        index = c_index(point.fold(factor.first))
        if self.nest.steps > STEPS[product_dtype(self.nest)]:
            step = "pd_step" if factor.step == 1 else f"pd_step*{factor.step}"
            index = step if index == "0" else f"{index} + {step}"
        return f"pd_{side}{where}({c_name(placed.buffer.name)}, {index}, {factor.stride}, {factor.step})"
