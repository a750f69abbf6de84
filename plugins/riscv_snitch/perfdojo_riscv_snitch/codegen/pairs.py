"""Two numbers of f32, or four of f16, in one register: lockstep scopes of so many iterations as packed
instructions.

Pairs in this file include words of four f16, unless it says otherwise. A pair is a word of memory, a word
that a stream moves, or a register of a buffer in ``reg`` that is written in lanes. If a statement reads two
single numbers as lanes, from registers or from memory where they are no whole word, these are packed; a
lockstep sum into one cell adds up the two halves of a pair. Four f16 are added up in f32 and rounded once;
they are not packed from single numbers, which would take six instructions. If a statement has no packed form
(it writes no whole word, or its operation has none), its lanes are computed one after the other, as long as
no register holds its pairs.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Protocol

from perfdojo_riscv_snitch.codegen.assembly import Register
from perfdojo_riscv_snitch.codegen.tree import Cells, Loop, Part, Work, address
from perfdojo_riscv_snitch.codegen.values import BYTES, Memory, Values, bits_of, machine_extreme, product
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, Expression, Literal, Operation, Read
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Program, Scope, Statement

DTYPE, LANES, WORD = "f32", 2, 8
#: dtype -> numbers in a word.
LANES_OF = {"f32": 2, "f16": 4}
#: dtype under which a constant of equal lanes is kept.
PAIR = "pair"

_FUNCT7 = {"vfadd": 0x41, "vfsub": 0x42, "vfmul": 0x43, "vfmin": 0x45, "vfmax": 0x46, "vfmac": 0x48}
_COPY, _PACK = 0x4D, 0x58
_ARITHMETIC = {"add": "vfadd", "sub": "vfsub", "mul": "vfmul"}
#: dtype -> field of the format, and its letter.
_WORDS = {"f32": (0, "s"), "f16": (2, "h")}
_COMMUTE = ("vfadd", "vfmul")
_EXTREME = {"fmax": "vfmax", "fmin": "vfmin"}


#: The instruction that writes a number to both lanes, or a number to each.
SPLAT = f".insn r 0x33, 0, {_PACK}, {{0}}, {{1}}, {{1}} # vfcpka.s.s {{0}}, {{1}}, {{1}}"
JOIN = f".insn r 0x33, 0, {_PACK}, {{0}}, {{1}}, {{2}} # vfcpka.s.s {{0}}, {{1}}, {{2}}"
#: The instruction that adds both lanes to a single number. Register 28 is a part of its encoding.
_ADD_LANES = ".insn r 0x33, 0, 71, {0}, {1}, ft8 # vfsum.s {0}, {1}"
#: The instruction that adds four lanes of f16 to a pair of f32, two to each. Register 22 is a part of its
#: encoding.
_ADD_HALVES = ".insn r 0x33, 0, 71, {0}, {1}, fs6 # vfsumex.s.h {0}, {1}"


def _text(name: str, dtype: str, shape: str = "") -> str:
    """An instruction on words; of shape ``.r`` where the last operand is one number for all lanes."""
    funct3, suffix = _WORDS[dtype]
    code = f".insn r 0x33, {funct3 | (4 if shape else 0)}, {_FUNCT7[name]}, {{0}}, {{1}}, {{2}}"
    return f"{code} # {name}{shape}.{suffix} {{0}}, {{1}}, {{2}}"


#: Instruction that adds a product to its result register -> the instruction for the product alone.
PRODUCTS = {
    _text("vfmac", dtype, shape): _text("vfmul", dtype, shape) for dtype in LANES_OF for shape in ("", ".r")
}


def repeated(bits: int, dtype: str) -> int:
    """A word of equal lanes, given the bits of one."""
    width = 8 * WORD // LANES_OF[dtype]
    return sum(bits << width * lane for lane in range(LANES_OF[dtype]))


class PairMemory(Memory, Protocol):
    """The source of operands: loads of packed pairs besides single numbers."""

    def pair(self, access: Access, work: Work, into: Register | None) -> Register: ...


class Pairs:
    """The buffers of a program that hold packed pairs, and the statements that work on pairs."""

    def __init__(self, program: Program, dialect: Dialect, never_nan: Container[str]) -> None:
        self.program, self.dialect, self.never_nan = program, dialect, never_nan
        self.cell = Cells(program)
        self.registers = frozenset(
            buffer.name
            for buffer in program.buffers
            if buffer.dtype in LANES_OF and not self.in_memory(buffer.location)
            if any(self._moves(o.access, len(o.above) - 1) for o in program.occurrences[buffer.name]
                   if o.writes and self._in_lanes(o.above, o.statement.dtype))
        )  # fmt: skip
        """Buffers outside of memory whose registers hold pairs: those that are written in lanes."""

    def in_memory(self, location: str) -> bool:
        return location not in ("ssr0", "ssr1", "ssr2", "reg")

    def _in_lanes(self, above: tuple[Scope, ...], dtype: str) -> bool:
        """True if the innermost scope is in lockstep and has as many lanes as a word of ``dtype``."""
        if not above or above[-1].size != LANES_OF.get(dtype):
            return False
        return self.dialect.is_lockstep(above[-1].suffix)

    def _moves(self, access: Access, level: int) -> bool:
        return lane_stride(self.program.buffer_of[access.array], access.subscripts, level) != 0

    def refine(self, parts: list[Part]) -> list[Part]:
        """``parts`` in which statements without a packed form are split into their lanes."""
        return list(self._refined(parts))

    def _refined(self, parts: list[Part]) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, Loop):
                part.body = self.refine(part.body)
            elif isinstance(part, Work) and part.lane is not None and self.obstacle(part):
                yield from part.lanes()
                continue
            yield part

    def in_place(self, statement: Statement) -> Work:
        """A statement in its place, whatever the iterators are."""
        above = self.program.ancestors(self.program.paths[statement.id])
        loops = tuple(Loop(scope.size) for scope in above)
        if not self._in_lanes(above, statement.dtype):
            return Work(loops, statement)
        return Work((*loops[:-1], 0), statement, len(above) - 1, above[-1].size)

    def obstacle(self, work: Work) -> str:
        """The reason why a lockstep statement has no packed form; "" when it has one."""
        statement = work.statement
        if statement.dtype not in LANES_OF:
            return f"it computes {statement.dtype}"
        if work.lane is not None and work.width != LANES_OF[statement.dtype]:
            return f"it has {work.width} lanes, and a word {LANES_OF[statement.dtype]}"
        if statement.guard:
            return "it has a condition"
        if statement.accumulate not in (None, "add", "mul"):
            return f"there is no packed {statement.accumulate} that propagates NaN"
        if not (self._whole(statement.target, work) or self.adds_lanes(work)):
            return f"{statement.target.text} is no whole word"
        return self._unpackable(statement.value, statement.dtype, work)

    def adds_lanes(self, work: Work) -> bool:
        """True if the statement adds all lanes to one number and reads at least one operand as a whole
        word."""
        statement, lane = work.statement, work.lane
        if lane is None or statement.accumulate != "add" or lane in statement.target.levels:
            return False
        single = self.program.buffer_of[statement.target.array].name not in self.registers
        return single and any(self._whole(read, work) for read in statement.reads)

    def adds_halves(self, work: Work) -> bool:
        """The same of four f16, for which it takes several instructions."""
        return work.statement.dtype != DTYPE and self.adds_lanes(work)

    def _unpackable(self, value: Expression, dtype: str, work: Work) -> str:
        if isinstance(value, Literal):
            return ""
        if isinstance(value, Read):
            if value.dtype != dtype:
                return f"{value.text} is {value.dtype}"
            moves = work.lane is not None and self._moves(value.access, work.lane)
            paired = self.program.buffer_of[value.access.array].name in self.registers
            whole = self._whole(value.access, work) or self.joins(value.access, work) if moves else not paired
            return "" if whole else f"{value.text} is no whole word"
        if not isinstance(value, Operation) or value.operand_dtype != dtype:
            return f"{value.text} has no packed form"
        if value.name == "select":
            arguments = value.arguments[1:] if machine_extreme(value, self.never_nan) else ()
        else:
            arguments = value.arguments if value.name in _ARITHMETIC else ()
        if not arguments:
            return f"there is no packed {value.name}"
        return next((why for a in arguments if (why := self._unpackable(a, dtype, work))), "")

    def joins(self, access: Access, work: Work) -> bool:
        """True if the lanes are single f32 that must be packed: in registers, or in memory but no whole
        word."""
        buffer = self.program.buffer_of[access.array]
        if buffer.dtype != DTYPE:
            return False
        if self.in_memory(buffer.location):
            return not self._whole(access, work)
        return buffer.location == "reg" and buffer.name not in self.registers

    def _whole(self, access: Access, work: Work) -> bool:
        """True if the lanes of an access are the parts of one aligned word."""
        buffer = self.program.buffer_of[access.array]
        if buffer.dtype not in LANES_OF or work.lane is None:
            return False
        if not self.in_memory(buffer.location) and buffer.name not in self.registers:
            return False  # single numbers
        if work.width != LANES_OF[buffer.dtype] or lane_stride(buffer, access.subscripts, work.lane) != 1:
            return False
        found = address(work, buffer, self.cell(access), BYTES[buffer.dtype])
        return found is not None and all(n % WORD == 0 for n in (found.constant, *dict(found.terms).values()))


class PairValues:
    """Emits expressions on pairs."""

    def __init__(self, pairs: Pairs, memory: PairMemory, single: Values) -> None:
        """``single``: emits single numbers, into the same listing."""
        self.pairs, self.listing, self.memory, self.single = pairs, single.listing, memory, single
        self.never_nan = single.never_nan

    def number(self, value: Expression, work: Work, into: Register | None = None) -> Register:
        """A pair: the value in each lane."""
        if isinstance(value, Literal):
            return self.copied(self._constant(float(value.value), value.dtype), into)
        if isinstance(value, Read):
            if work.lane in value.levels and self.pairs.joins(value.access, work):
                one, other = (self.single.number(value, lane) for lane in work.lanes())
                return self.listing.compute("f", JOIN, one, other, into=into)
            if work.lane in value.levels:
                return self.memory.pair(value.access, work, into)
            return self._splat(self.single.number(value, work), value.dtype, into)
        assert isinstance(value, Operation)
        if found := (machine_extreme(value, self.never_nan) if value.name == "select" else None):
            name, arguments = _EXTREME[found[0]], [*found[1:]]
        else:
            name, arguments = _ARITHMETIC[value.name], [*value.arguments]
        one, other, shape = self._operands(name, arguments, work)
        return self.listing.compute("f", _text(name, value.dtype, shape), one, other, into=into)

    def accumulate(self, operation: str, value: Expression, old: Register, work: Work) -> Register:
        """Emit ``old operation= value`` into the register ``old``: a pair, or the sum of both lanes."""
        if self.pairs.adds_lanes(work):
            self._add_lanes(self.number(value, work), value.dtype, old)
        elif operation == "add" and (factors := product(value)):
            one, other, shape = self._operands("vfmul", factors, work)
            self.listing.put(_text("vfmac", value.dtype, shape), (old,), (one, other, old))
        else:
            text = _text(_ARITHMETIC[operation], value.dtype)
            self.listing.put(text, (old,), (old, self.number(value, work)))
        return old

    def _constant(self, number: float, dtype: str) -> Register:
        return self.memory.constant(repeated(bits_of(number, dtype), dtype), PAIR)

    def _splat(self, number: Register, dtype: str, into: Register | None) -> Register:
        """One number in all lanes: packed twice, or as a product with ones."""
        if dtype == DTYPE:
            return self.listing.compute("f", SPLAT, number, into=into)
        ones = self._constant(1.0, dtype)
        return self.listing.compute("f", _text("vfmul", dtype, ".r"), ones, number, into=into)

    def _add_lanes(self, word: Register, dtype: str, old: Register) -> None:
        """Add all lanes of ``word`` to ``old``; those of f16 in f32, rounded once."""
        if dtype == DTYPE:
            self.listing.put(_ADD_LANES, (old,), (word, old))
            return
        halves = self.copied(self._constant(0.0, dtype), Register("f"))
        self.listing.put(_ADD_HALVES, (halves,), (word, halves))
        total = self.listing.compute("f", "fcvt.s.h {0}, {1}", old)
        self.listing.put(_ADD_LANES, (total,), (halves, total))
        self.listing.put("fcvt.h.s {0}, {1}", (old,), (total,))

    def _operands(
        self, name: str, arguments: Sequence[Expression], work: Work
    ) -> tuple[Register, Register, str]:
        """Two operands and the shape of the instruction; an operand that both lanes share comes last."""
        one, other = arguments
        if self._same_in_lanes(one, work) and not self._same_in_lanes(other, work) and name in _COMMUTE:
            one, other = other, one
        if not self._same_in_lanes(other, work) or self._same_in_lanes(one, work):
            return self.number(one, work), self.number(other, work), ""
        return self.number(one, work), self.single.number(other, work), ".r"

    def _same_in_lanes(self, value: Expression, work: Work) -> bool:
        return isinstance(value, Read) and work.lane not in value.levels

    def copied(self, source: Register, into: Register | None) -> Register:
        """``source``, in ``into`` if that is asked for."""
        if into in (None, source):
            return source
        text = f".insn r 0x33, 0, {_COPY}, {{0}}, {{1}}, {{1}} # vfsgnj.s {{0}}, {{1}}, {{1}}"
        return self.listing.compute("f", text, source, into=into)
