"""C with explicit vectors, written once for every instruction set.

A lockstep scope becomes one statement over a vector type. Arithmetic uses the compiler's vector
operators; whatever has no operator calls a function such as ``pd_load_f32v``, which a target's own
header defines (``pd_vector.h`` says which). So a new instruction set is one header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from perfdojo_sdk.codegen.c import SUPPORT, CEmitter, Point, support_text
from perfdojo_sdk.codegen.c_values import C_TYPES, c_index, c_literal, c_operation
from perfdojo_sdk.codegen.layout import ALIGNMENT
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.codegen.operations import ACCURACY as ACCURACY
from perfdojo_sdk.codegen.operations import SPELLINGS, Vector
from perfdojo_sdk.codegen.registers import Registers, assign, variable
from perfdojo_sdk.core.dialect import Dialect, Location
from perfdojo_sdk.core.dtypes import BYTES, STORED_DTYPES
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
)
from perfdojo_sdk.core.geometry import is_copy, lane_stride, transposed_copy
from perfdojo_sdk.core.operations import INFIX, OPERATIONS, identity
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer

VECTOR_SUPPORT = (*SUPPORT, "pd_vector.h")
"""Headers of this package that kernels with vectors need."""

#: The dtype whose vectors the headers define.
VECTOR_DTYPE = "f32"

#: With so many named vectors that a loop accumulates in, a second copy of its body does not fit the
#: registers.
MANY_SUMS = 8


class VectorEmitter(CEmitter):
    """Adds vectors, named cells and streaming stores to :class:`CEmitter`.

    ``headers`` (name -> text) define the vector type and its functions; the first is included.
    """

    def __init__(self, program: Program, symbol: str, dialect: Dialect, headers: Mapping[str, str]) -> None:
        super().__init__(program, symbol, dialect)
        self.headers = headers
        self.includes = (*CEmitter.includes, next(iter(headers)))
        self.registers = self._assign_registers()

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
        kind = self.vector_type(buffer.dtype) if registers.vector else C_TYPES[buffer.dtype]
        scalar = "{0}" if buffer.dtype in STORED_DTYPES else "0.0f"
        zero = f"pd_splat_{buffer.dtype}v(0.0f)" if registers.vector else scalar
        for name in registers.names:
            self.function.line(f"{kind} {name} = {zero};")

    def vector_type(self, dtype: str) -> str:
        return f"pd_{dtype}v"

    def cell(self, access: Access, point: Point) -> str:
        registers = self.registers.get(self._buffer(access).name)
        if registers is None:
            return super().cell(access, point)
        name, position = variable(registers, self.flat(access, point))
        return f"{name}[{position}]" if registers.vector else name

    def _buffer(self, access: Access) -> Buffer:
        return self.program.buffer_of[access.array]

    def is_named(self, access: Access) -> bool:
        return self._buffer(access).name in self.registers

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
        copy = transposed_copy(self.program, scope, point.level - 1) if suffix and suffix.transposes else None
        if copy is None or copy.dtype != VECTOR_DTYPE or any(map(self.is_named, (copy.target, *copy.reads))):
            return False
        self._transpose(scope, copy, point)
        return True

    def _transpose(self, scope: Scope, copy: Statement, point: Point) -> None:
        """Emit a transposing copy in squares of as many rows and columns as a vector has lanes, and the
        rest."""
        (inner,) = scope.body
        assert isinstance(inner, Scope)
        level, (source,) = point.level - 1, copy.reads
        steps = (
            lane_stride(self._buffer(source), source.subscripts, level + 1),
            lane_stride(self._buffer(copy.target), copy.target.subscripts, level),
        )

        def square(at: Point, rows: int, columns: int) -> None:
            begin, end = self.cell(source, at), self.cell(copy.target, at)
            sizes = f"{rows}, {columns}"
            self.function.line(f"pd_transpose_f32v(&{begin}, {steps[0]}, &{end}, {steps[1]}, {sizes});")

        def across(at: Point, rows: int) -> None:
            self._in_blocks(inner.size, at.inside(0), lambda at, columns: square(at, rows, columns))

        self._in_blocks(scope.size, point, across)

    def _in_blocks(self, size: int, point: Point, emit: Callable[[Point, int], None]) -> None:
        """Emit the innermost level of ``point`` in steps of a vector's lanes, then the remainder at once."""
        lanes, level = self.dialect.lanes[VECTOR_DTYPE], point.level - 1
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

    def location(self, access: Access) -> Location:
        return self.dialect.locations[self._buffer(access).location]

    def fetch_following(self, source: Access, point: Point) -> None:
        """Prefetch what the next iteration of the outermost scope that ``source`` depends on will read."""
        if source.levels and not self.is_named(source):
            outermost = source.levels[0]
            step = {outermost: AffineExpr.of({outermost: 1}, 1)}
            following = source.substitute(lambda level: step.get(level) or AffineExpr.level(level))
            self.function.line(f"pd_prefetch_ahead(&{self.cell(following, point)});")

    # -- lockstep scopes -------------------------------------------------------------------------

    def visit_lockstep(self, scope: Scope, statement: Statement, point: Point) -> None:
        with self.where_guard_holds(statement, point) as reached:
            if reached:
                Lanes(self, scope.size, point.level - 1, point).emit(statement)


class Lanes:
    """The lanes of one lockstep scope at one point of the emitted code."""

    def __init__(self, emitter: VectorEmitter, count: int, level: int, point: Point) -> None:
        self.emitter, self.count, self.level, self.point = emitter, count, level, point
        self.base = point.at(level, 0)

    def emit(self, statement: Statement) -> None:
        """Emit ``statement`` for all lanes at once, or lane by lane where no vector does the work."""
        if not self._fits_vectors(statement):
            self._lane_by_lane(statement)
        elif self._moves(statement.target):
            self._vector_statement(statement)
        elif statement.accumulate:
            self._horizontal(statement, statement.accumulate)
        else:
            # Every lane stores to the same cell, in order, so only the last store counts.
            self.emitter.visit_statement(statement, self.point.at(self.level, self.count - 1))

    def _fits_vectors(self, statement: Statement) -> bool:
        return statement.dtype == VECTOR_DTYPE and self._is_vector(statement.value)

    def _is_vector(self, value: Expression) -> bool:
        """True if the value, or the mask of a comparison, can be computed for all lanes at once."""
        if self._uniform(value):
            return True
        match value:
            case Operation():
                spelling = SPELLINGS[value.name]
                known = value.operand_dtype == VECTOR_DTYPE and spelling.vector is not Vector.NONE
                mask = value.dtype == "bool" and spelling.mask
                return bool(known or mask) and all(map(self._is_vector, value.arguments))
            case Cast():
                return False
            case Literal() | IndexValue() | Read():
                return value.dtype == VECTOR_DTYPE
            case _:
                assert_never(value)

    def _lane_by_lane(self, statement: Statement) -> None:
        """Emit each lane by itself, so that all of them load before any stores."""
        f, kind = self.emitter.function, C_TYPES[statement.dtype]
        at = [self.point.at(self.level, lane) for lane in range(self.count)]
        if not self._moves(statement.target):
            for point in at:
                self.emitter.visit_statement(statement, point)
            return
        with f.block(""):
            value = self.emitter._combined(statement)
            f.line(f"{kind} pd_lanes[{self.count}];")
            for lane, point in enumerate(at):
                f.line(f"pd_lanes[{lane}] = {self.emitter.expression(value, point)};")
            for lane, point in enumerate(at):
                f.line(f"{self.emitter.cell(statement.target, point)} = pd_lanes[{lane}];")

    def _moves(self, access: Access) -> bool:
        return lane_stride(self.emitter.program.buffer_of[access.array], access.subscripts, self.level) != 0

    def _partial(self, dtype: str) -> bool:
        return self.count < self.emitter.dialect.lanes[dtype]

    # -- statements ------------------------------------------------------------------------------

    def _vector_statement(self, statement: Statement) -> None:
        value, kind = self.emitter._combined(statement), f"{statement.dtype}v"
        buffer = self.emitter.program.buffer_of[statement.target.array]
        registers = self.emitter.registers.get(buffer.name)
        text = self.vector(value)
        line = self.emitter.function.line
        if registers:
            name, _ = variable(registers, self._start(statement.target))
            if self.count < registers.width:
                text = f"pd_select_first_{kind}({self.count}, {text}, {name})"
            line(f"{name} = {text};")
            self._fetch_source(statement)
            return
        place = f"&{self.emitter.cell(statement.target, self.base)}"
        self._claim_target(statement)
        if self._partial(statement.dtype):
            line(f"pd_store_first_{kind}({place}, {self.count}, {text});")
        elif self._streams(statement):
            line(f"pd_stream_{kind}({place}, {text});")
            self.emitter.function.finally_once("pd_stream_fence();")
        else:
            line(f"pd_store_{kind}({place}, {text});")

    def _fetch_source(self, statement: Statement) -> None:
        """Prefetch what a later copy into the target's location will read."""
        location = self.emitter.location(statement.target)
        if not is_copy(statement) or self.emitter.is_named(statement.reads[0]):
            return
        (source,) = statement.reads
        if location.fetch_ahead and source.levels and source.levels[0] < self.level:
            self.emitter.fetch_following(source, self.base)
        if location.lead_bytes and self._starts_a_line(source):
            asks = "pd_prefetch_ahead" if location.second_cache else "pd_prefetch"
            self._prefetch(asks, source, location.lead_bytes)

    def _claim_target(self, statement: Statement) -> None:
        """Prefetch, for writing, what a later copy out of the source's location will write."""
        if is_copy(statement) and self._starts_a_line(statement.target):
            lead = self.emitter.location(statement.reads[0]).lead_bytes
            if lead:
                self._prefetch("pd_prefetch_write", statement.target, lead)

    def _prefetch(self, function: str, access: Access, lead: int) -> None:
        size = BYTES[self.emitter.program.buffer_of[access.array].dtype]
        cell = self.emitter.cell(access, self.base)
        self.emitter.function.line(f"{function}(&{cell} + {lead // size});")

    def _starts_a_line(self, access: Access) -> bool:
        """True if no earlier vector asks for the same cache line, as far as the subscripts tell."""
        start = self._start(access)
        line = ALIGNMENT // BYTES[self.emitter.program.buffer_of[access.array].dtype]
        steps_by_lines = all(coefficient % line == 0 for _, coefficient in start.terms)
        return not steps_by_lines or start.constant % line == 0

    def _streams(self, statement: Statement) -> bool:
        return is_copy(statement) and self.emitter.location(statement.reads[0]).past_caches

    def _horizontal(self, statement: Statement, operation: str) -> None:
        kind = f"{statement.dtype}v"
        value = self.vector(statement.value)
        if self._partial(statement.dtype):
            nothing = Literal(identity(operation, statement.dtype), statement.dtype)
            neutral = f"pd_splat_{kind}({c_literal(nothing)})"
            value = f"pd_select_first_{kind}({self.count}, {value}, {neutral})"
        reduced = f"pd_{SPELLINGS[operation].horizontal}_{kind}({value})"
        target = self.emitter.cell(statement.target, self.base)
        if operation in INFIX:
            self.emitter.function.line(f"{target} {INFIX[operation][0]}= {reduced};")
        else:
            self.emitter.function.line(f"{target} = pd_{operation}_{statement.dtype}({target}, {reduced});")

    # -- expressions -----------------------------------------------------------------------------

    def vector(self, value: Expression) -> str:
        """An expression as a vector; a part that is the same in every lane is computed once."""
        if value.dtype == "bool":
            return self._mask(value)
        if self._uniform(value):
            return f"pd_splat_{value.dtype}v({self.emitter.expression(value, self.base)})"
        match value:
            case Read():
                return self._load(value)
            case IndexValue():
                start = c_index(self.base.fold(value.index))
                return f"pd_iota_{value.dtype}v({start}, {value.index.coefficients[self.level]})"
            case Operation():
                arguments = [self._argument(value, a) for a in value.arguments]
                if OPERATIONS[value.name].chooses:
                    return f"pd_select_{value.dtype}v({', '.join(arguments)})"
                return c_operation(value, arguments, f"{value.dtype}v")
            case Literal() | Cast():
                raise AssertionError("a literal is uniform, and what holds a conversion fits no vectors")
            case _:
                assert_never(value)

    def _mask(self, value: Expression) -> str:
        """A bool in each lane: all bits set where it holds."""
        if self._uniform(value):
            return f"pd_mask_{VECTOR_DTYPE}v({self.emitter.expression(value, self.base)})"
        assert isinstance(value, Operation)
        arguments = [self.vector(a) for a in value.arguments]
        if sign := SPELLINGS[value.name].mask:
            return f"({sign}{arguments[0]})" if len(arguments) == 1 else f"({f' {sign} '.join(arguments)})"
        return f"({c_operation(value, arguments)})"

    def _argument(self, operation: Operation, argument: Expression) -> str:
        if isinstance(argument, Literal) and SPELLINGS[operation.name].of_number:
            # The functions for a number take it as a scalar.
            return self.emitter.expression(argument, self.base)
        return self.vector(argument)

    def _uniform(self, value: Expression) -> bool:
        match value:
            case Read():
                return not self._moves(value.access)
            case IndexValue():
                return self.level not in value.index.levels
            case Literal() | Operation() | Cast():
                return all(map(self._uniform, value.children))
            case _:
                assert_never(value)

    def _load(self, value: Read) -> str:
        registers = self.emitter.registers.get(self.emitter.program.buffer_of[value.access.array].name)
        if registers:
            return variable(registers, self._start(value.access))[0]
        place = f"&{self.emitter.cell(value.access, self.base)}"
        if self._partial(value.dtype):
            return f"pd_load_first_{value.dtype}v({place}, {self.count})"
        return f"pd_load_{value.dtype}v({place})"

    def _start(self, access: Access) -> AffineExpr:
        return self.emitter.flat(access, self.base)
