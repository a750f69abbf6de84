"""Expressions as instructions: each becomes a register that holds its value.

A product that is added to something becomes one fused multiply-add, as the language allows. The maximum of
the language propagates NaN and that of the machine does not, so a maximum costs a comparison unless the
program says by a selection that a NaN loses.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Container
from typing import Protocol

from perfdojo_riscv_snitch.codegen import functions
from perfdojo_riscv_snitch.codegen.assembly import Listing, Register
from perfdojo_riscv_snitch.codegen.inline import StraightLines, has_line
from perfdojo_riscv_snitch.codegen.tree import Work
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
    performs,
)
from perfdojo_sdk.core.program import Program, Statement

#: dtype -> the suffix of its instructions, for the dtypes of numbers that the FPU holds.
FORMATS = {"f64": "d", "f32": "s", "f16": "h"}
BYTES = {"f64": 8, "f32": 4, "f16": 2}

#: The dtypes of numbers, for messages.
_NUMBERS = "f64, f32 and f16"
#: dtype -> the largest exponent for which the reciprocal of a power of two is exact.
_EXACT = {"f64": 100, "f32": 100, "f16": 14}

_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
_PACKING = {"f64": "<d", "f32": "<f", "f16": "<e"}
_COMPARE = {"lt": ("flt", False), "le": ("fle", False), "gt": ("flt", True), "ge": ("fle", True)}
_LOGIC = {"and": "and", "or": "or", "xor": "xor"}


class Memory(Protocol):
    """The source of operands that are not computed: loads and constants."""

    def load(self, access: Access, dtype: str, work: Work, into: Register | None) -> Register: ...

    def constant(self, bits: int, dtype: str) -> Register:
        """A register that holds these bits throughout."""
        ...

    def whole(self, index: AffineExpr, work: Work) -> Register:
        """The value of a form of the iterators, as an integer."""
        ...


def unsupported(what: str, why: str) -> UnavailableError:
    return UnavailableError("PD-C001", what, why=why, hint="see the page of the target for what compiles")


class Values:
    """Emits the expressions of one kernel."""

    def __init__(self, listing: Listing, memory: Memory, never_nan: Container[str] = ()) -> None:
        """``never_nan``: arrays that hold no NaN whatever the inputs are."""
        self.listing, self.memory, self.never_nan = listing, memory, never_nan
        self.lines: StraightLines | None = None
        """The emitter of inlined functions; None: their routines are called."""

    def number(self, value: Expression, work: Work, into: Register | None = None) -> Register:
        """A floating-point value. The result may be a register that others read: do not write to it."""
        if isinstance(value, Literal):
            return self._copied(
                self.memory.constant(bits_of(float(value.value), value.dtype), value.dtype), value.dtype, into
            )
        if isinstance(value, Read):
            return self.memory.load(value.access, value.dtype, work, into)
        if isinstance(value, IndexValue):
            whole = self.memory.whole(value.index, work)
            return self._f(f"fcvt.{_format(value.dtype)}.w {{0}}, {{1}}", whole, into=into)
        if isinstance(value, Cast):
            return self._cast(value, work, into)
        return self._operation(value, work, into)

    def accumulate(self, operation: str, value: Expression, old: Register, work: Work) -> Register:
        """Emit ``old operation= value`` into the register ``old``."""
        dtype = value.dtype
        fmt = _format(dtype)
        if operation == "add" and (factors := product(value)):
            one, other = (self.number(f, work) for f in factors)
            return self._f(f"fmadd.{fmt} {{0}}, {{1}}, {{2}}, {{3}}", one, other, old, into=old)
        new = self.number(value, work)
        if operation in _ARITHMETIC:
            return self._f(f"{_ARITHMETIC[operation]}.{fmt} {{0}}, {{1}}, {{2}}", old, new, into=old)
        return self._extreme(operation, old, new, (value,), dtype, old)

    # -- operations --------------------------------------------------------------------------------

    def _operation(self, value: Operation, work: Work, into: Register | None) -> Register:
        name, fmt = value.name, _format(value.dtype)
        if name == "select":
            return self._select(value, work, into)
        if name in ("add", "sub") and (fused := self._fused(value, work, into)):
            return fused
        if name in ("max", "min"):
            one, other = (self.number(a, work) for a in value.arguments)
            return self._extreme(name, one, other, value.arguments, value.dtype, into)
        if name == "div" and (factor := exact_reciprocal(value.arguments[1])):
            value = Operation("mul", (value.arguments[0], factor), value.dtype)
            return self._operation(value, work, into)
        arguments = [self.number(a, work) for a in value.arguments]
        if self.lines is not None and has_line(value):
            return self.lines.call(value, arguments, into)
        if name in _ARITHMETIC:
            return self._f(f"{_ARITHMETIC[name]}.{fmt} {{0}}, {{1}}, {{2}}", *arguments, into=into)
        if name == "neg":
            return self._f(f"fneg.{fmt} {{0}}, {{1}}", *arguments, into=into)
        if name == "abs":
            return self._f(f"fabs.{fmt} {{0}}, {{1}}", *arguments, into=into)
        if name in functions.FUNCTIONS:
            return self._call(name, arguments, value.dtype, into)
        raise unsupported(f"{value.text}: there is no code for {name}", "the core has no such instruction")

    def _call(self, name: str, arguments: list[Register], dtype: str, into: Register | None) -> Register:
        """Call a routine, in double precision."""
        listing, fmt = self.listing, _format(dtype)
        for place, argument in zip(("fa0", "fa1"), arguments, strict=False):
            move = "fmv.d" if fmt == "d" else f"fcvt.d.{fmt}"
            listing.put(f"{move} {{0}}, {{1}}", (Register("f", fixed=place),), (argument,))
        if functions.table(name):
            listing.put(f"addi {functions.TABLE}, sp, {{table_{name}}}")
        listing.routines.add(name)
        listing.put(f"jal {functions.LINK}, .L{listing.prefix}_{name}")
        result = Register("f", fixed="fa0")
        return self._f(f"{'fmv.d' if fmt == 'd' else f'fcvt.{fmt}.d'} {{0}}, {{1}}", result, into=into)

    def _fused(self, value: Operation, work: Work, into: Register | None) -> Register | None:
        """``a*b + c``, ``a*b - c`` or ``c - a*b`` in one instruction."""
        fmt = _format(value.dtype)
        left, right = value.arguments
        if factors := product(left):
            name, addend = ("fmadd" if value.name == "add" else "fmsub"), right
        elif factors := product(right):
            name, addend = ("fmadd" if value.name == "add" else "fnmsub"), left
        else:
            return None
        operands = [self.number(each, work) for each in (*factors, addend)]
        return self._f(f"{name}.{fmt} {{0}}, {{1}}, {{2}}, {{3}}", *operands, into=into)

    def _select(self, value: Operation, work: Work, into: Register | None) -> Register:
        if found := machine_extreme(value, self.never_nan):
            name, one, other = found
            operands = [self.number(each, work) for each in (one, other)]
            return self._f(f"{name}.{_format(value.dtype)} {{0}}, {{1}}, {{2}}", *operands, into=into)
        condition, one, other = value.arguments
        if value.dtype not in FORMATS:
            raise unsupported(f"{value.text} selects {value.dtype}", f"only numbers of {_NUMBERS} are")
        chosen, rest = self.number(one, work), self.number(other, work)
        holds = self.truth(condition, work)
        # A register of its own: `into` may be among what is read.
        result = self._copy(rest, value.dtype)
        self._skip_if("beqz", holds, lambda: self._copy(chosen, value.dtype, result))
        return self._copied(result, value.dtype, into)

    def _extreme(
        self,
        name: str,
        one: Register,
        other: Register,
        arguments: tuple[Expression, ...],
        dtype: str,
        into: Register | None,
    ) -> Register:
        """The maximum or minimum that is NaN when an operand is; in that case it is computed as their sum."""
        fmt = _format(dtype)
        result = self._f(f"f{name}.{fmt} {{0}}, {{1}}, {{2}}", one, other)
        # A literal is never NaN; an accumulation names its value only.
        whose = (
            [one, other]
            if len(arguments) == 1
            else [r for r, a in zip((one, other), arguments, strict=True) if not isinstance(a, Literal)]
        )
        ordered = None
        for register in whose:
            holds = self.listing.compute("x", f"feq.{fmt} {{0}}, {{1}}, {{1}}", register)
            ordered = holds if ordered is None else self._x("and {0}, {1}, {2}", ordered, holds)
        if ordered is not None:

            def mix() -> None:
                self._f(f"fadd.{fmt} {{0}}, {{1}}, {{2}}", one, other, into=result)

            self._skip_if("bnez", ordered, mix)
        return self._copied(result, dtype, into)

    def _skip_if(self, branch: str, condition: Register, emit: Callable[[], object]) -> None:
        label = self.listing.new_label()
        self.listing.put(f"{branch} {{0}}, {label}", (), (condition,))
        emit()
        self.listing.label(label)

    # -- conversions and conditions ------------------------------------------------------------------

    def _cast(self, value: Cast, work: Work, into: Register | None) -> Register:
        source, target = value.argument.dtype, value.dtype
        if source == target:
            return self.number(value.argument, work, into)
        if isinstance(value.argument, IndexValue) and target in FORMATS:
            return self.number(IndexValue(value.argument.index, target), work, into)
        if source not in FORMATS or target not in FORMATS:
            raise unsupported(f"{value.text} converts {source} to {target}", f"only {_NUMBERS} are converted")
        argument = self.number(value.argument, work)
        return self._f(f"fcvt.{FORMATS[target]}.{FORMATS[source]} {{0}}, {{1}}", argument, into=into)

    def truth(self, value: Expression, work: Work) -> Register:
        """A condition as 0 or 1 in an integer register."""
        if isinstance(value, Operation) and value.name in _LOGIC:
            one, other = (self.truth(a, work) for a in value.arguments)
            return self._x(f"{_LOGIC[value.name]} {{0}}, {{1}}, {{2}}", one, other)
        if performs(value, "not"):
            return self._x("xori {0}, {1}, 1", self.truth(value.arguments[0], work))
        if isinstance(value, Operation) and value.operand_dtype in FORMATS:
            fmt = _format(value.operand_dtype)
            one, other = (self.number(a, work) for a in value.arguments)
            if value.name in ("eq", "ne"):
                same = self._x(f"feq.{fmt} {{0}}, {{1}}, {{2}}", one, other)
                return same if value.name == "eq" else self._x("xori {0}, {1}, 1", same)
            name, turned = _COMPARE[value.name]
            pair = (other, one) if turned else (one, other)
            return self._x(f"{name}.{fmt} {{0}}, {{1}}, {{2}}", *pair)
        if isinstance(value, Operation) and all(isinstance(a, IndexValue | Literal) for a in value.arguments):
            return self._whole_comparison(value, work)
        raise unsupported(f"{value.text} is no condition that compiles", f"only {_NUMBERS} are compared")

    def _whole_comparison(self, value: Operation, work: Work) -> Register:
        """A comparison of iterators and whole numbers."""
        one, other = (self._whole(a, work) for a in value.arguments)
        if value.name in ("eq", "ne"):
            same = "seqz" if value.name == "eq" else "snez"
            return self._x(f"{same} {{0}}, {{1}}", self._x("sub {0}, {1}, {2}", one, other))
        name, turned = {"lt": ("slt", False), "gt": ("slt", True), "le": ("sle", False), "ge": ("sle", True)}[
            value.name
        ]
        one, other = (other, one) if turned else (one, other)
        if name == "slt":
            return self._x("slt {0}, {1}, {2}", one, other)
        return self._x("xori {0}, {1}, 1", self._x("slt {0}, {1}, {2}", other, one))

    def _whole(self, value: Expression, work: Work) -> Register:
        if isinstance(value, IndexValue):
            return self.memory.whole(value.index, work)
        assert isinstance(value, Literal)
        if not -(2**31) <= value.value < 2**31:
            raise unsupported(f"{value.text} is compared", "whole numbers have 32 bits here")
        return self.listing.number(int(value.value))

    # -- writing -----------------------------------------------------------------------------------

    def _f(self, text: str, *reads: Register, into: Register | None = None) -> Register:
        return self.listing.compute("f", text, *reads, into=into)

    def _x(self, text: str, *reads: Register) -> Register:
        return self.listing.compute("x", text, *reads)

    def _copy(self, source: Register, dtype: str, into: Register | None = None) -> Register:
        return self._f(f"fmv.{_format(dtype)} {{0}}, {{1}}", source, into=into)

    def _copied(self, source: Register, dtype: str, into: Register | None) -> Register:
        """``source``, in ``into`` if that is asked for."""
        return source if into in (None, source) else self._copy(source, dtype, into)


def product(value: Expression) -> tuple[Expression, ...] | None:
    """The two factors, when the value is a product."""
    return value.arguments if performs(value, "mul") else None


def exact_reciprocal(value: Expression) -> Literal | None:
    """1/value for a power of two, by which a product is the quotient, bit for bit."""
    if not isinstance(value, Literal) or value.dtype not in FORMATS:
        return None
    mantissa, exponent = math.frexp(float(value.value))
    exact = abs(mantissa) == 0.5 and abs(exponent) < _EXACT[value.dtype]
    return Literal(1 / float(value.value), value.dtype) if exact else None


def machine_extreme(
    value: Operation, never_nan: Container[str] = ()
) -> tuple[str, Expression, Expression] | None:
    """The machine's maximum or minimum, if a selection means the same.

    ``select(a > b, a, b)`` gives b when a is NaN, and so does ``fmax`` as long as b is none.
    """
    condition, one, other = value.arguments
    if not performs(condition, "gt", "ge", "lt", "le"):
        return None
    if not is_number(other, never_nan):
        return None
    name = condition.name
    if condition.arguments == (one, other):
        return ("fmax" if name in ("gt", "ge") else "fmin"), one, other
    if condition.arguments == (other, one):
        return ("fmax" if name in ("lt", "le") else "fmin"), one, other
    return None


def is_number(value: Expression, never_nan: Container[str]) -> bool:
    """True if the value is never NaN."""
    if isinstance(value, Read):
        return value.access.array in never_nan
    if performs(value, "select"):
        return machine_extreme(value, never_nan) is not None
    return isinstance(value, Literal | IndexValue)


def never_nan(program: Program) -> frozenset[str]:
    """Arrays, no inputs, that are written with numbers only, whatever the inputs hold.

    A value that won a comparison is a number: a running maximum that starts with a number, and takes greater
    values only, stays a number.
    """
    found = frozenset(program.buffer_of) - frozenset(program.inputs)
    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    if not any("select(" in statement.text for statement in statements):
        return frozenset()  # it would not be used
    while True:
        wrong = {
            array
            for s in statements
            if s.accumulate or not is_number(s.value, found)
            for array in program.buffer_of[s.target.array].arrays
        }
        if wrong.isdisjoint(found):
            return found
        found -= wrong


def bits_of(number: float, dtype: str) -> int:
    """A number of ``dtype`` as bits; beyond its largest number it is infinite."""
    try:
        return int.from_bytes(struct.pack(_PACKING[dtype], number), "little")
    except OverflowError:
        return int.from_bytes(struct.pack(_PACKING[dtype], math.copysign(math.inf, number)), "little")


def _format(dtype: str) -> str:
    if dtype not in FORMATS:
        raise unsupported(f"a value is {dtype}, which does not compile", f"the FPU's numbers are {_NUMBERS}")
    return FORMATS[dtype]
