"""C for the lanes of a lockstep scope: a statement over vectors, or lane by lane where no vector does it.

All vectors of a statement have one number of lanes. A kind of vector is named after its dtype and lanes, such
as ``i16x8``. They come from ``pd_vectors.h``. A statement that needs nothing but whole registers of f32 uses
``f32v`` for them, which the header of an instruction set defines alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from math import prod
from types import MappingProxyType
from typing import assert_never

from perfdojo_sdk.codegen.c import CEmitter, Point, divided
from perfdojo_sdk.codegen.c_values import (
    C_TYPES,
    c_conversion,
    c_index,
    c_literal,
    c_operation,
    in_f32,
    is_rounded,
    narrowing,
)
from perfdojo_sdk.codegen.kinds import VECTOR_DTYPE, is_uniform, vector_dtypes, vector_lanes
from perfdojo_sdk.codegen.layout import ALIGNMENT
from perfdojo_sdk.codegen.operations import SPELLINGS, Vector
from perfdojo_sdk.codegen.quotients import division, known_divisor
from perfdojo_sdk.codegen.registers import Registers, variable
from perfdojo_sdk.core.dialect import Location
from perfdojo_sdk.core.dtypes import (
    BYTES,
    CODED_DTYPES,
    FLOAT_DTYPES,
    NARROW_DTYPES,
    ROUNDED_DTYPES,
    carrier,
    in_a_byte,
)
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
from perfdojo_sdk.core.geometry import is_copy, lane_stride
from perfdojo_sdk.core.groups import GroupedSum
from perfdojo_sdk.core.lookups import lookups_in
from perfdojo_sdk.core.operations import INFIX, OPERATIONS, Algebra, identity
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer

#: Most vectors of a nest that are loaded into variables: with more, sums would leave the registers.
MOST_HELD = 8

#: Bytes of the shortest of them.
LEAST_HELD_BYTES = 16

#: The first and the last active lane are in these variables where a condition differs from lane to lane.
LOW, HIGH = "pd_low", "pd_high"

#: Most bytes of a row that is prefetched while lanes choose among the elements of the one before it: two of
#: them stay in the second cache of a core.
NEAR_ROW = 1 << 16


class LaneEmitter(CEmitter):
    """Adds vectors for lockstep scopes, and the prefetches of locations, to :class:`CEmitter`."""

    registers: Mapping[str, Registers]
    all_vectors = False
    """True once code uses vectors besides whole registers of f32."""
    unpacks = False
    """True once code makes vectors of packed elements."""
    defined: set[str]
    """The variables of ``held`` that have their values."""

    loads: Counter[str] | None = None
    """While a nest that is written out is gone through: how often each vector is loaded in it."""
    held: Mapping[str, str] = MappingProxyType({})
    """The loads of such a nest that more than one of its statements uses, and the variables for them."""

    def visit_unrolled(self, scope: Scope, point: Point) -> None:
        """Emit each iteration. A vector of memory that several statements use is loaded once, into a
        variable: compilers would load it again for each."""
        if self.loads is not None or self.held or not self._keeps_memory(scope):
            super().visit_unrolled(scope, point)
            return
        lines, self.loads = len(self.function.lines), Counter()
        super().visit_unrolled(scope, point)
        del self.function.lines[lines:]
        shared = [text for text, count in self.loads.items() if count > 1]
        self.loads = None
        if len(shared) <= MOST_HELD:
            self.held = {text: f"pd_held_{number}" for number, text in enumerate(shared)}
        with self.function.block("") if self.held else nullcontext():
            self.defined = set()
            super().visit_unrolled(scope, point)
        self.held = MappingProxyType({})

    def _keeps_memory(self, scope: Scope) -> bool:
        """True if a nest is written out as a whole, without conditions, and writes variables alone."""
        for child in scope.body:
            if isinstance(child, Statement):
                if child.guard or not self.is_named(child.target):
                    return False
            else:
                suffix = self.dialect.suffixes.get(child.suffix)
                if not ((suffix and suffix.known) or child.size == 1) or not self._keeps_memory(child):
                    return False
        return True

    def loaded(self, kind: str, text: str) -> str:
        """A vector of ``kind`` that ``text`` loads from memory; its variable, if it has one."""
        if self.loads is not None and _is_register(kind):
            self.loads[text] += 1
        name = self.held.get(text)
        if name is None:
            return text
        if name not in self.defined:
            self.defined.add(name)
            self.function.line(f"pd_{kind} {name} = {text};")
            self.function.line(f"PD_HOLD({name});")
        return name

    def visit_lockstep(self, scope: Scope, statement: Statement, point: Point) -> None:
        level = point.level - 1
        with self.where_guard_holds(statement, point, level) as reached:
            if reached:
                emit_lanes(self, statement, scope.size, level, point)

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

    def location(self, access: Access) -> Location:
        return self.dialect.locations[self._buffer(access).location]

    def fetch_following(self, source: Access, point: Point) -> None:
        """Prefetch what the next iteration of the outermost scope that ``source`` depends on will read."""
        if source.levels and not self.is_named(source):
            outermost = source.levels[0]
            step = {outermost: AffineExpr.of({outermost: 1}, 1)}
            following = source.substitute(lambda level: step.get(level) or AffineExpr.level(level))
            self.function.line(f"pd_prefetch_ahead({self.address(following, point)});")


def _is_register(kind: str) -> bool:
    """True if vectors of a kind are long enough for a register of vectors; compilers may keep shorter ones in
    those of scalars."""
    dtype, _, lanes = kind.rpartition("x")
    return not dtype or BYTES[dtype] * int(lanes) >= LEAST_HELD_BYTES


def emit_lanes(emitter: LaneEmitter, statement: Statement, count: int, level: int, point: Point) -> None:
    """Emit ``statement`` for all lanes; what its condition says for all of them together holds."""
    program = emitter.program
    width = vector_lanes(program, statement, level, count, emitter.dialect)
    guard = [form for form in statement.guard if level in form.levels]
    one = Lanes(emitter, guard, min(count, width), width, level, point)
    moves = one.moves(statement.target)
    target = program.buffer_of[statement.target.array]
    itself = any(program.buffer_of[read.array] is target for read in statement.reads)
    gathers = any(map(one.is_scattered, statement.reads))
    plain = not guard and not gathers and vector_dtypes(program, statement, level) == {VECTOR_DTYPE}
    plain = plain and width == emitter.dialect.lanes[VECTOR_DTYPE]
    fits = width > 1 and not any(form.quotients for form in guard) and one.is_vector(statement)
    # Lanes that gather are written one by one, so those of them that are active have to be known.
    fits = fits and not (gathers and guard)
    if not fits or (count > width and (itself or (guard and not moves))):
        _lane_by_lane(emitter, statement, count, level, point)
    elif moves or statement.accumulate:
        for first in range(0, count, width):
            lanes = min(count - first, width)
            some = Lanes(emitter, guard, lanes, width, level, point, first, plain, gathers)
            some.ask_for_next_rows(statement)
            some.emit(statement)
    elif guard:
        _lane_by_lane(emitter, statement, count, level, point)
    else:
        # Every lane stores to the same cell, in order, so only the last store counts.
        emitter.visit_statement(statement, point.at(level, count - 1))


def next_row(program: Program, target: Access, read: Access, level: int) -> Access | None:
    """The element of the next row that stands where the lanes write in theirs. None unless a run-time index
    chooses among the elements of a row, as many as are written beside each other, and another row follows."""
    buffer, written = program.buffer_of[read.array], program.buffer_of[target.array]
    chosen = [k for k, form in enumerate(read.subscripts) if lookups_in(form)]
    places = [k for k, form in enumerate(target.subscripts) if level in form.levels]
    if len(chosen) != 1 or len(places) != 1 or buffer.packed:
        return None
    [dim], along = chosen, target.subscripts[places[0]]
    rows = {l for k, form in enumerate(read.subscripts) if k != dim for l in form.levels}
    between = set(range(max(rows, default=level) + 1, level + 1))
    size = buffer.shape[dim]
    alike = size == written.shape[places[0]] and size * buffer.element_bytes <= NEAR_ROW
    if not (rows and between and alike and between <= {*along.levels} and rows.isdisjoint(along.levels)):
        return None
    step = {max(rows): AffineExpr.of({max(rows): 1}, 1)}
    following = tuple(
        along if k == dim else form.substitute(lambda l: step.get(l) or AffineExpr.level(l))
        for k, form in enumerate(read.subscripts)
    )
    return Access(read.array, following) if lane_stride(buffer, following, level) == 1 else None


def emit_groups(emitter: LaneEmitter, scope: Scope, found: GroupedSum, point: Point) -> None:
    """Emit a sum in groups whose lanes are the iterations of ``scope``; ``point`` stands inside it."""
    level, tile = point.level - 1, found.group.tile
    inside = Point((*point.path, 0), {**point.constants, level + 1: 0})
    if tile:
        inside = Point((*inside.path, 0), {**inside.constants, level + 2: 0})
        Lanes(emitter, [], prod(tile), prod(tile), level, inside).grouped(found)
        return
    width = vector_lanes(emitter.program, found.statement, level, scope.size, emitter.dialect)
    Lanes(emitter, [], scope.size, width, level, inside).grouped(found)


def _lane_by_lane(emitter: LaneEmitter, statement: Statement, count: int, level: int, point: Point) -> None:
    """Emit each lane by itself, so that all of them load before any stores."""
    f, kind = emitter.function, C_TYPES[statement.dtype]
    at = [point.at(level, lane) for lane in range(count)]
    buffer = emitter.program.buffer_of[statement.target.array]
    if lane_stride(buffer, statement.target.subscripts, level) == 0:
        for place in at:
            with emitter.where_guard_holds(statement, place) as reached:
                if reached:
                    emitter.visit_statement(statement, place)
        return
    with f.block(""):
        value = emitter._combined(statement)
        f.line(f"{kind} pd_lanes[{count}]{' = {0}' if statement.guard else ''};")
        for lane, place in enumerate(at):
            with emitter.where_guard_holds(statement, place) as reached:
                if reached:
                    f.line(f"pd_lanes[{lane}] = {emitter.expression(value, place)};")
        for lane, place in enumerate(at):
            with emitter.where_guard_holds(statement, place) as reached:
                if reached:
                    f.line(f"{emitter.cell(statement.target, place)} = pd_lanes[{lane}];")


class Lanes:
    """Neighbouring lanes of one lockstep scope, at most as many as a vector has, at one point of the code."""

    def __init__(
        self,
        emitter: LaneEmitter,
        guard: list[AffineExpr],
        count: int,
        width: int,
        level: int,
        point: Point,
        first: int = 0,
        plain: bool = False,
        gathers: bool = False,
    ) -> None:
        """``plain``: the statement needs no vectors but whole registers of f32. ``gathers``: lanes read cells
        that are no neighbours."""
        self.emitter, self.guard, self.count, self.width = emitter, guard, count, width
        self.plain, self.gathers = plain, gathers
        self.level, self.base = level, point.at(level, first)
        self.low, self.high = "0", str(count)

    def emit(self, statement: Statement) -> None:
        if not self.guard:
            self._emit(statement)
            return
        low, high, lines = self._active()
        if lines:
            line = self.emitter.function.line
            with self.emitter.function.block(""):
                line(f"int64_t {LOW} = {low}, {HIGH} = {high};")
                for text in lines:
                    line(text)
                self.low, self.high = LOW, HIGH
                with self.emitter.function.block(f"if ({LOW} < {HIGH})"):
                    self._emit(statement)
        elif low < high:
            self.low, self.high = str(low), str(high)
            self._emit(statement)

    def _active(self) -> tuple[int, int, list[str]]:
        """The lanes from one number to before another that satisfy the conditions known here, and lines of C
        for the others: in each lane, a form of its number is not negative."""
        low, high, lines = 0, self.count, []
        for form in self.guard:
            step, base = form.coefficients[self.level], self.base.fold(form)
            if base.levels:
                name, change = (LOW, "pd_low_lane") if step > 0 else (HIGH, "pd_high_lane")
                lines.append(f"{name} = {change}({c_index(base)}, {abs(step)}, {name});")
            elif step > 0:
                low = max(low, -(base.constant // step))
            else:
                high = min(high, base.constant // -step + 1)
        return low, max(high, 0), lines

    def _emit(self, statement: Statement) -> None:
        if self.moves(statement.target):
            self._vector_statement(statement)
        else:
            self._horizontal(statement, str(statement.accumulate))

    # -- kinds

    @property
    def partial(self) -> bool:
        """True if some lanes of the vectors are not active."""
        return (self.low, self.high) != ("0", str(self.width))

    def kind(self, dtype: str) -> str:
        """The kind of vector for values of ``dtype``, as names of functions have it."""
        plain = dtype == VECTOR_DTYPE and self.plain
        return "f32v" if plain else self.made(carrier(dtype))

    def made(self, dtype: str) -> str:
        """A kind of ``pd_vectors.h``."""
        self.emitter.all_vectors = True
        return f"{dtype}x{self.width}"

    def moves(self, access: Access) -> bool:
        return lane_stride(self.emitter.program.buffer_of[access.array], access.subscripts, self.level) != 0

    def is_scattered(self, access: Access) -> bool:
        """True if the lanes of a read are no neighbours, or neighbours that start inside of a byte."""
        buffer = self.emitter.program.buffer_of[access.array]
        step = lane_stride(buffer, access.subscripts, self.level)
        if not buffer.packed or step != 1:
            return step not in (0, 1)
        share = in_a_byte(buffer.dtype)
        return self.width % share != 0 or divided(self._start(access), share) is None

    def uniform(self, value: Expression) -> bool:
        return is_uniform(self.emitter.program, value, self.level)

    def is_vector(self, statement: Statement) -> bool:
        """True if vectors can compute the statement."""
        if statement.accumulate and not self.moves(statement.target):
            spelling = SPELLINGS[statement.accumulate]
            chooses = OPERATIONS[statement.accumulate].algebra is Algebra.EXTREMUM
            if not spelling.horizontal or (statement.dtype in ROUNDED_DTYPES and not chooses):
                return False  # each sum is rounded, in one order or another
            return self._has_vectors(statement.value)
        return self._has_vectors(self.emitter._combined(statement))

    def _has_vectors(self, value: Expression) -> bool:
        if self.uniform(value):
            return True
        if isinstance(value, Operation) and not self._known(value):
            return False
        return all(map(self._has_vectors, value.children))

    @staticmethod
    def _known(value: Operation) -> bool:
        spelling, dtype = SPELLINGS[value.name], value.operand_dtype
        if dtype == "bool":
            return bool(spelling.mask) or OPERATIONS[value.name].compares or OPERATIONS[value.name].chooses
        if dtype in FLOAT_DTYPES:
            return spelling.vector is not Vector.NONE
        return spelling.of_integers is not Vector.NONE

    # -- statements

    def _vector_statement(self, statement: Statement) -> None:
        self._store(statement, self.cells(self.emitter._combined(statement)))

    def grouped(self, found: GroupedSum) -> None:
        """Add up a group of products in each lane, by one instruction."""
        statement, group = found.statement, found.group
        before = self._load(statement.target, statement.dtype)
        pairs = zip(found.factors, group.factors, strict=True)
        if group.tile:
            lines = zip(pairs, group.tile, strict=True)
            factors = [self._lines(*pair, count * group.size) for pair, count in lines]
        else:
            factors = [self._group(*pair, group.size) for pair in pairs]
        instruction = "tile" if group.tile else "group"
        name = f"pd_{instruction}_{self.made(statement.dtype)}_{'_'.join(group.factors)}"
        self._store(statement, f"{name}({', '.join([before, *factors])})")

    def _lines(self, access: Access, dtype: str, cells: int) -> str:
        """A factor of an instruction for matrices: all rows or all columns, which lie together."""
        return f"pd_load_{dtype}x{cells}(&{self.emitter.cell(access, self.base)})"

    def _group(self, access: Access, dtype: str, size: int) -> str:
        """A factor of sums in groups: each lane's elements, or one group for all lanes."""
        place, kind = f"&{self.emitter.cell(access, self.base)}", f"{dtype}x{self.width * size}"
        if not self.moves(access):
            return f"pd_splat_group_{kind}({place})"
        if self.count < self.width:
            return self.emitter.loaded(kind, f"pd_load_some_{kind}({place}, 0, {self.count * size})")
        return self.emitter.loaded(kind, f"pd_load_{kind}({place})")

    def _store(self, statement: Statement, text: str) -> None:
        """Write a vector to the target."""
        kind = self.kind(statement.dtype)
        buffer = self.emitter.program.buffer_of[statement.target.array]
        registers = self.emitter.registers.get(buffer.name)
        line = self.emitter.function.line
        if registers:
            name, _ = variable(registers, self._start(statement.target))
            if self.guard or self.count < registers.width:
                text = self._some_of(statement.dtype, text, self._named(registers, name))
            if registers.kind != kind:
                text = f"(pd_{registers.kind})({text})"
            line(f"{name} = {text};")
            self._fetch_source(statement)
            return
        place = f"&{self.emitter.cell(statement.target, self.base)}"
        self._claim_target(statement)
        if self.partial and kind == "f32v":
            line(f"pd_store_first_{kind}({place}, {self.count}, {text});")
        elif self.partial:
            kind = self.made(carrier(statement.dtype))
            line(f"pd_store_some_{kind}({place}, {self.low}, {self.high}, {text});")
        elif self._streams(statement):
            line(f"pd_stream_{kind}({place}, {text});")
            self.emitter.function.finally_once("pd_stream_fence();")
        else:
            line(f"pd_store_{kind}({place}, {text});")

    def _some_of(self, dtype: str, text: str, other: str) -> str:
        """``text`` in the active lanes, ``other`` in the rest."""
        kind = self.kind(dtype)
        if kind == "f32v":
            return f"pd_select_first_{kind}({self.count}, {text}, {other})"
        which = f"pd_lanes_{self.made(f'i{8 * BYTES[dtype]}')}({self.low}, {self.high})"
        return f"pd_select_{kind}({which}, {text}, {other})"

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

    def ask_for_next_rows(self, statement: Statement) -> None:
        """Prefetch, vector by vector, the rows that run-time indices will choose from after this one: their
        elements come in no order that the processor foresees."""
        for read in dict.fromkeys(statement.reads) if self.gathers else ():
            following = next_row(self.emitter.program, statement.target, read, self.level)
            if following is not None and self._starts_a_line(following):
                place = self.emitter.address(following, self.base)
                self.emitter.function.line(f"pd_prefetch_ahead({place});")

    def _prefetch(self, function: str, access: Access, lead: int) -> None:
        size = max(1, int(self.emitter.program.buffer_of[access.array].element_bytes))
        place = self.emitter.address(access, self.base)
        self.emitter.function.line(f"{function}({place} + {lead // size});")

    def _starts_a_line(self, access: Access) -> bool:
        """True if no earlier vector asks for the same cache line, as far as the subscripts tell."""
        start = self._start(access)
        line = int(ALIGNMENT / self.emitter.program.buffer_of[access.array].element_bytes)
        steps_by_lines = all(coefficient % line == 0 for _, coefficient in start.terms)
        return not steps_by_lines or start.constant % line == 0

    def _streams(self, statement: Statement) -> bool:
        return is_copy(statement) and self.emitter.location(statement.reads[0]).past_caches

    def _horizontal(self, statement: Statement, operation: str) -> None:
        # The largest of rounded numbers is one of them, so that f32 finds it.
        dtype = "f32" if statement.dtype in ROUNDED_DTYPES else statement.dtype
        added = statement.value if dtype == statement.dtype else Cast(statement.value, dtype)
        kind, value = self.kind(dtype), self.cells(added)
        if self.partial:
            nothing = c_literal(Literal(identity(operation, dtype), dtype))
            value = self._some_of(dtype, value, f"pd_splat_{kind}({nothing})")
        reduced = f"pd_{SPELLINGS[operation].horizontal}_{kind}({value})"
        target = self.emitter.cell(statement.target, self.base)
        if dtype != statement.dtype:
            held = c_conversion(statement.dtype, dtype, target)
            found = c_conversion(dtype, statement.dtype, f"pd_{operation}_{dtype}({held}, {reduced})")
            self.emitter.function.line(f"{target} = {found};")
        elif operation in INFIX and dtype in FLOAT_DTYPES:
            self.emitter.function.line(f"{target} {INFIX[operation][0]}= {reduced};")
        else:
            self.emitter.function.line(f"{target} = pd_{operation}_{dtype}({target}, {reduced});")

    # -- expressions

    def cells(self, value: Expression) -> str:
        """An expression as a vector of cells as they are in memory: a bool is 0 or 1 there."""
        if value.dtype != "bool":
            return self.vector(value)
        return f"(pd_{self.made('u8')})({self.mask(value, 1)} & 1)"

    def vector(self, value: Expression) -> str:
        """An expression of numbers as a vector; a part that is the same in every lane is computed once."""
        kind = self.kind(value.dtype)
        if self.uniform(value):
            return f"pd_splat_{kind}({self.emitter.expression(value, self.base)})"
        match value:
            case Read():
                return self._load(value.access, value.dtype)
            case IndexValue():
                start = c_index(self.base.fold(value.index))
                return f"pd_iota_{kind}({start}, {value.index.coefficients[self.level]})"
            case Operation() if OPERATIONS[value.name].chooses:
                condition, *branches = value.arguments
                one, other = map(self.vector, branches)
                return f"pd_select_{kind}({self.mask(condition, BYTES[value.dtype])}, {one}, {other})"
            case Operation() if is_rounded(value):
                return self.vector(in_f32(value))
            case Operation() if (divisor := known_divisor(value)) is not None:
                dividend, number = value.arguments
                how = division(abs(divisor))
                numbers = (
                    f"{self.emitter.expression(number, self.base)}, {how.factor}u, {how.first}, {how.rest}"
                )
                return f"pd_{value.name}_by_{kind}({self.vector(dividend)}, {numbers})"
            case Operation():
                arguments = [self._argument(value, a) for a in value.arguments]
                return c_operation(value, arguments, kind)
            case Cast() if value.argument.dtype == "bool":
                size = BYTES[value.dtype] if value.dtype not in ROUNDED_DTYPES else 4
                bits = f"({self.mask(value.argument, size)} & 1)"
                return self._converted(bits, f"i{8 * size}", value.dtype)
            case Cast() if self.emitter.reads_packed(value.argument):
                return self._from_packed(value.argument, value.dtype)
            case Cast():
                return self._converted(self.vector(value.argument), value.argument.dtype, value.dtype)
            case Literal():
                raise AssertionError("a literal is uniform")
            case _:
                assert_never(value)

    def _from_packed(self, read: Expression, target: str) -> str:
        """A vector of packed integers, which have no further bits, as one of ``target``."""
        assert isinstance(read, Read)
        if BYTES[target] < 4 or self.is_scattered(read.access):
            return self._converted(self.vector(read), carrier(read.dtype), target)
        return self._converted(self._packed("spread", read.access, read.dtype), "i32", target)

    def _converted(self, text: str, source: str, target: str) -> str:
        """A vector of ``source`` as one of ``target``."""
        small = BYTES[source] < 4 and source not in FLOAT_DTYPES
        if source == target:
            return text
        if source in NARROW_DTYPES:
            return self._converted(f"pd_wrap_{self.made(source)}({text})", carrier(source), target)
        if target in NARROW_DTYPES:
            held = self._converted(text, source, carrier(target))
            return f"pd_{narrowing(source)}_{self.made(target)}({held})"
        through_f32 = source in ROUNDED_DTYPES or (target in ROUNDED_DTYPES and small)
        through_f32 |= source in CODED_DTYPES
        if through_f32 and "f32" not in (source, target):
            return self._converted(self._converted(text, source, "f32"), "f32", target)
        return f"pd_{self.made(target)}_from_{self.made(source)}({text})"

    def mask(self, value: Expression, size: int) -> str:
        """A bool in each lane: all bits of ``size`` bytes set where it holds."""
        if self.uniform(value):
            kind = "f32v" if self.plain else self.made(f"i{8 * size}")
            return f"pd_mask_{kind}({self.emitter.expression(value, self.base)})"
        own = self._mask_size(value)
        text = self._own_mask(value, own)
        return self._converted(text, f"i{8 * own}", f"i{8 * size}")

    def _mask_size(self, value: Expression) -> int:
        """Bytes of the lanes in which the mask of a value is computed."""
        match value:
            case Operation() if value.operand_dtype != "bool":
                return BYTES["f32" if value.operand_dtype in ROUNDED_DTYPES else value.operand_dtype]
            case Operation():
                return max(self._mask_size(a) for a in value.arguments if not self.uniform(a))
            case Cast() if value.argument.dtype != "bool":
                return BYTES["f32" if value.argument.dtype in ROUNDED_DTYPES else value.argument.dtype]
            case Cast():
                return self._mask_size(value.argument)
            case Read() | Literal() | IndexValue():
                return 1
            case _:
                assert_never(value)

    def _own_mask(self, value: Expression, size: int) -> str:
        match value:
            case Read():
                return f"({self._load(value.access, value.dtype)} != 0)"
            case Cast() if value.argument.dtype == "bool":
                return self.mask(value.argument, size)
            case Cast():
                argument = value.argument
                if argument.dtype in ROUNDED_DTYPES:
                    argument = Cast(argument, "f32")
                return f"({self.vector(argument)} != pd_splat_{self.kind(argument.dtype)}(0))"
            case Operation() if value.operand_dtype == "bool":
                return self._of_masks(value, [self.mask(a, size) for a in value.arguments])
            case Operation() if is_rounded(value):
                compared = in_f32(value)
                assert isinstance(compared, Operation)
                return self._own_mask(compared, size)
            case Operation():
                return f"({c_operation(value, [self.vector(a) for a in value.arguments])})"
            case Literal() | IndexValue():
                raise AssertionError("it is uniform, or a number")
            case _:
                assert_never(value)

    @staticmethod
    def _of_masks(value: Operation, arguments: list[str]) -> str:
        if OPERATIONS[value.name].chooses:
            where, one, other = arguments
            return f"(({where} & {one}) | (~{where} & {other}))"
        if OPERATIONS[value.name].compares:
            one, other = (f"({a} & 1)" for a in arguments)
            return f"({one} {INFIX[value.name][0]} {other})"
        sign = SPELLINGS[value.name].mask
        return f"({sign}{arguments[0]})" if len(arguments) == 1 else f"({f' {sign} '.join(arguments)})"

    def _argument(self, operation: Operation, argument: Expression) -> str:
        if isinstance(argument, Literal) and self._takes_number(operation):
            # The functions for a number take it as a scalar.
            return self.emitter.expression(argument, self.base)
        return self.vector(argument)

    @staticmethod
    def _takes_number(operation: Operation) -> bool:
        return SPELLINGS[operation.name].of_number and operation.dtype in FLOAT_DTYPES

    def _load(self, access: Access, dtype: str) -> str:
        registers = self.emitter.registers.get(self.emitter.program.buffer_of[access.array].name)
        if registers:
            return self._named(registers, variable(registers, self._start(access))[0])
        buffer = self.emitter.program.buffer_of[access.array]
        if self.gathers and self.is_scattered(access):
            return self._gather(access, dtype)
        if buffer.packed:
            return self._packed("unpack", access, dtype)
        place, kind = f"&{self.emitter.cell(access, self.base)}", self.kind(dtype)
        if self.partial and kind == "f32v":
            return self.emitter.loaded(kind, f"pd_load_first_{kind}({place}, {self.count})")
        if self.partial:
            kind = self.made(carrier(dtype))
            return self.emitter.loaded(kind, f"pd_load_some_{kind}({place}, {self.low}, {self.high})")
        return self.emitter.loaded(kind, f"pd_load_{kind}({place})")

    def _packed(self, function: str, access: Access, dtype: str) -> str:
        """A vector of packed elements, as bytes or as integers of 32 bits."""
        self.emitter.unpacks = True
        place = self.emitter.address(access, self.base)
        return f"pd_{function}_{self.made(dtype)}({place}, {self.low}, {self.high})"

    def _gather(self, access: Access, dtype: str) -> str:
        """A vector of elements that lie anywhere; lanes that are not active read nothing."""
        first = self.base.constants[self.level]
        cells = [self.emitter.element(access, self.base.at(self.level, first + k)) for k in range(self.count)]
        bits = ".bits" if dtype in ROUNDED_DTYPES else ""
        # In parentheses: the functions that take it may be macros, whose arguments commas separate.
        return f"((pd_{self.made(carrier(dtype))}){{{', '.join([f'{cell}{bits}' for cell in cells])}}})"

    def _named(self, registers: Registers, name: str) -> str:
        """A variable as a vector of this statement's kind: a whole register of f32 may be one of two."""
        split = registers.kind == "f32v" and not self.plain
        return f"(pd_{self.made(VECTOR_DTYPE)}){name}" if split else name

    def _start(self, access: Access) -> AffineExpr:
        return self.emitter.flat(access, self.base)
