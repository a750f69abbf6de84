"""C with explicit vectors, written once for every instruction set.

A lockstep scope becomes one statement over vectors (:mod:`.lockstep`). Arithmetic uses the compiler's vector
operators; whatever has no operator calls a function. Those for whole registers of f32, such as
``pd_load_f32v``, come from a target's own header (``pd_vector.h`` says which); ``pd_vectors.h`` has those of
all other vectors, and a target may replace some. So a new instruction set is one header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfdojo_sdk.codegen.c import SUPPORT, Point, support_text
from perfdojo_sdk.codegen.c_values import C_TYPES
from perfdojo_sdk.codegen.kinds import VECTOR_DTYPE
from perfdojo_sdk.codegen.lockstep import LaneEmitter, emit_groups
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.codegen.operations import ACCURACY as ACCURACY
from perfdojo_sdk.codegen.registers import Registers, assign
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import BYTES, ROUNDED_DTYPES
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.geometry import is_copy, lane_stride, transposed_copy
from perfdojo_sdk.core.groups import grouped_sum
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer

VECTOR_SUPPORT = (*SUPPORT, "pd_vector.h", "pd_vectors.h", "pd_doubles.h", "pd_packed.h", "pd_transpose.h")
"""Headers of this package that kernels with vectors need."""

#: With so many named vectors that a loop accumulates in, a second copy of its body does not fit the
#: registers.
MANY_SUMS = 8

#: Elements between neighbouring columns where vectors are made of every second element.
PAIR = 2

#: Bytes of a group of short elements that an instruction adds up the products of.
GROUP = 4


class VectorEmitter(LaneEmitter):
    """Adds the headers of an instruction set, named cells and transposed copies to :class:`LaneEmitter`.

    ``headers`` (name -> text) define the vector type of f32 and its functions; the first is included.
    ``vectors`` is the name of the header that kernels with other vectors include after it.
    """

    transposes = False
    """True if a copy is transposed in registers."""

    def __init__(
        self,
        program: Program,
        symbol: str,
        dialect: Dialect,
        headers: Mapping[str, str],
        vectors: str = "pd_vectors.h",
    ) -> None:
        super().__init__(program, symbol, dialect)
        self.headers, self.vectors = headers, vectors
        self.includes = (*LaneEmitter.includes, next(iter(headers)))
        self.registers = self._assign_registers()

    def _include_lines(self) -> str:
        more = [self.vectors] if self.all_vectors else []
        more += ["pd_packed.h"] if self.unpacks else []
        more += ["pd_transpose.h"] if self.transposes else []
        return super()._include_lines() + "".join([f'#include "{name}"\n' for name in more])

    def support(self) -> Mapping[str, str]:
        return {name: support_text(name) for name in VECTOR_SUPPORT} | dict(self.headers)

    # -- locations -------------------------------------------------------------------------------

    def _assign_registers(self) -> Mapping[str, Registers]:
        taken = {c_name(name) for name in self.program.names}
        found: dict[str, Registers] = {}
        for buffer in self.program.buffers:
            named = self.dialect.locations[buffer.location].constant_subscripts
            if named and buffer.name in self.layout.home:
                taken.discard(c_name(buffer.name))
                registers = assign(self.program, buffer, self.dialect, c_name(buffer.name), taken)
                taken.add(c_name(buffer.name))
                if registers:
                    found[buffer.name] = registers
        return found

    def visit_declaration(self, buffer: Buffer) -> None:
        registers = self.registers.get(buffer.name)
        if registers is None:
            super().visit_declaration(buffer)
            return
        kind, zero = C_TYPES[buffer.dtype], "{0}" if buffer.dtype in ROUNDED_DTYPES else "0.0f"
        if registers.vector:
            kind, zero = f"pd_{registers.kind}", "{0}"
            if registers.kind == "f32v":
                zero = "pd_splat_f32v(0.0f)"
            else:
                self.all_vectors = True
        for name in registers.names:
            self.function.line(f"{kind} {name} = {zero};")

    # -- loops -----------------------------------------------------------------------------------

    def visit_loop(self, scope: Scope, point: Point) -> None:
        """Emit a loop; one around a tile of sums must stay a loop, since a compiler that unrolls it shares
        loads between the copies and has no registers left for the sums."""
        if self._sums(scope) >= MANY_SUMS:
            self.function.line("PD_KEEP_LOOP")
        super().visit_loop(scope, point)

    def _sums(self, scope: Scope) -> int:
        """The named vectors that statements of the scope accumulate in."""
        targets = {self._buffer(s.target).name for s, _ in scope.leaves if s.accumulate}
        found = [self.registers[name] for name in targets if name in self.registers]
        return sum(len(registers.names) for registers in found if registers.vector)

    def visit_claimed(self, scope: Scope, point: Point) -> bool:
        suffix = self.dialect.suffixes.get(scope.suffix)
        grouped = grouped_sum(self.program, scope, point.level - 1, self.dialect) if suffix else None
        if grouped and not any(map(self.is_named, grouped.factors)):
            emit_groups(self, scope, grouped, point)
            return True
        copy = transposed_copy(self.program, scope, point.level - 1) if suffix and suffix.transposes else None
        if copy is None or any(map(self.is_named, (copy.target, *copy.reads))):
            return False
        if any(self._buffer(read).packed for read in copy.reads):
            return False
        self._emit_copy(scope, copy, point)
        return True

    def _emit_copy(self, scope: Scope, copy: Statement, point: Point) -> None:
        """Emit a copy of rows to columns: as shuffles that interleave a few rows or pick every second column
        where it is one of these, and else in squares."""
        (inner,) = scope.body
        assert isinstance(inner, Scope)
        level, (source,), size = point.level - 1, copy.reads, BYTES[copy.dtype]
        apart = lane_stride(self._buffer(source), source.subscripts, level + 1)
        across = lane_stride(self._buffer(copy.target), copy.target.subscripts, level)

        def cells(at: Point) -> tuple[str, str]:
            here = at.inside(0)
            return f"&{self.cell(source, here)}", f"&{self.cell(copy.target, here)}"

        def unzip(at: Point, columns: int) -> None:
            begin, end = cells(at)
            whole = int(self._has_room(copy.target, columns))
            self.function.line(f"pd_unzip_f32v({begin}, {end}, {across}, {scope.size}, {columns}, {whole});")

        if copy.dtype == VECTOR_DTYPE and scope.size <= PAIR and apart == PAIR:
            self._in_blocks(level + 1, inner.size, point.at(level, 0), unzip)
            return
        self.transposes = True
        begin, end = cells(point.at(level, 0).at(level + 1, 0))
        if 1 < inner.size == across and size * inner.size == GROUP:
            call = f"pd_interleave_{8 * size}({begin}, {apart}, {end}, {scope.size});"
        else:
            sizes = f"{scope.size}, {inner.size}"
            call = f"pd_transpose_{8 * size}({begin}, {apart}, {end}, {across}, {sizes});"
        self.function.line(call)

    def _has_room(self, target: Access, used: int) -> bool:
        """True if rows of a buffer begin with ``used`` cells, and nothing uses those up to a vector's end."""
        buffer = self._buffer(target)
        if buffer.name not in self.layout.home or len(buffer.dimensions) - 1 not in buffer.materialised:
            return False
        found = self.program.occurrences[buffer.name]
        ends = [o.access.subscripts[-1].bounds(o.sizes)[1] for o in found]
        return buffer.shape[-1] >= self.dialect.lanes[VECTOR_DTYPE] and max(ends) < used

    def _in_blocks(self, level: int, size: int, point: Point, emit: Callable[[Point, int], None]) -> None:
        """Emit the loop of ``level`` in steps of a vector's lanes, then the remainder at once."""
        lanes = self.dialect.lanes[VECTOR_DTYPE]
        whole = size // lanes * lanes
        if whole:
            with self.function.block(f"for (int64_t i{level} = 0; i{level} < {whole}; i{level} += {lanes})"):
                emit(point, lanes)
        if size > whole:
            emit(point.at(level, whole), size - whole)

    # -- statements of one lane --------------------------------------------------------------------

    def visit_statement(self, statement: Statement, point: Point) -> None:
        super().visit_statement(statement, point)
        if is_copy(statement) and self.location(statement.target).fetch_ahead:
            self.fetch_following(statement.reads[0], point)
