"""Exponential, reciprocal, division and square root as straight lines of FP instructions.

Each is the middle of its routine in :mod:`.functions`: for ordinary arguments, without branches and without
the integer core, so that several of them can run in step. The routines' integer instructions are replaced by
additions that leave the wanted bits in the low word of a number, and by ``vfcpka``, which makes a number of
two such low words. A :class:`Check` tests whether the arguments were ordinary; if they were not, a
:class:`Rescue` takes the routine's result.

Everything is computed in double precision, so numbers from f32 stay away from the ends of the range.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Protocol

from perfdojo_riscv_snitch.codegen.assembly import Listing, Mark, Register
from perfdojo_sdk.core.expression import Expression, Literal, Operation, operations


@dataclass(frozen=True, kw_only=True)
class Check(Mark):
    """The squares of ``value``, over all that run side by side, must add up to less than ``limit``."""

    value: Register
    limit: Register


@dataclass(frozen=True, kw_only=True)
class Rescue(Mark):
    """The slow path when the last check fails: the routine computes ``result``, and ``zeros`` and ``ones``
    are set."""

    routine: str
    arguments: tuple[Register | None, ...]
    """The argument registers; None stands for the number 1."""
    result: Register
    zeros: tuple[Register, ...] = ()
    ones: tuple[Register, ...] = ()


class Constants(Protocol):
    def __call__(self, bits: int, dtype: str) -> Register:
        """A register that holds these bits throughout."""
        ...


#: Adding this to a number leaves the nearest whole number in the low bits.
_WHOLE = 1.5 * 2.0**52
_LOG2E = 1 / math.log(2.0)
_LN2 = (float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33"))
#: Puts a whole number k as an exponent into the upper half of the low word: (k + 1023) 2^20.
_EXPONENT = (2.0**20, _WHOLE + 1023 * 2.0**20)
#: exp(r) on |r| <= ln(2)/2, of least relative error: 2^-57.9, and 2^-29 for f32. Highest power first.
_EXP_F64 = tuple(map(float.fromhex, (
    "0x1.ad7f6c74e4e49p-26", "0x1.28ad9b6090f22p-22", "0x1.71df259679ec7p-19", "0x1.a01999e28f45bp-16",
    "0x1.a01a012a1bd56p-13", "0x1.6c16c184389fbp-10", "0x1.1111111127ceap-7", "0x1.555555555083fp-5",
    "0x1.55555555554f9p-3", "0x1.000000000000ap-1", "0x1p0", "0x1p0",
)))  # fmt: skip
_EXP_F32 = tuple(map(float.fromhex, (
    "0x1.6ab9475589695p-10", "0x1.126d64812e870p-7", "0x1.55589bc1f7887p-5", "0x1.555409d5f7b2bp-3",
    "0x1.fffffaab7a258p-2", "0x1.0000009c77bc5p+0", "0x1.0000000263a9ep+0",
)))  # fmt: skip
#: Limit on the square of an argument of exp, above which the result may leave the range of normal numbers.
_EXP_LIMIT = 700.0**2

#: The upper half of 2^52: with it, a low word becomes a number that can be computed with.
_HIGH_WORD = 0x43300000
#: The upper half of an estimate of 1/b, and of 1/sqrt(b), is such a number less 1/8 or 1/16 of b's word.
_RECIPROCAL = 2.0**52 + 2.0**49 + 1150 * 2.0**20 - 0x19DC8
_ROOT = 2.0**52 + 2.0**48 + 1086.5 * 2.0**20 - 0x114B0
#: Limit on the square of the remaining error after one step: it is less for ordinary arguments, and NaN or
#: more for others. If it is less, the following steps reach the last bit.
_CONVERGES = 2.0**-22


def written_out(value: Expression) -> bool:
    """True if a value contains a function that is emitted inline."""
    return any(map(has_line, operations(value)))


def has_line(value: Operation) -> bool:
    """True if this function is emitted as straight-line code. A quotient of f64 is only for the numerator
    1."""
    if value.name == "div":
        return value.dtype == "f32" or (value.dtype == "f64" and _is_one(value.arguments[0]))
    return value.name in ("exp", "sqrt") and value.dtype in ("f32", "f64")


def _is_one(value: Expression) -> bool:
    return isinstance(value, Literal) and value.value == 1


class StraightLines:
    """Emits straight-line code for one instance of a statement; :mod:`.group` interleaves several."""

    def __init__(self, listing: Listing, constant: Constants) -> None:
        self.listing, self._constant = listing, constant

    def call(self, value: Operation, arguments: list[Register], into: Register | None) -> Register:
        """The value of a function that :func:`has_line`."""
        single = value.dtype == "f32"
        target = None if single else into
        last = self._wide(arguments[-1], single)
        if value.name == "exp":
            result = self._exp(last, single, target)
        elif value.name == "sqrt":
            result = self._sqrt(last, target)
        elif not single:
            result = self._reciprocal(last, target)
        else:
            one = _is_one(value.arguments[0])
            result = self._quotient(None if one else self._wide(arguments[0], single), last)
        return self._f("fcvt.s.d {0}, {1}", result, into=into) if single else result

    def _exp(self, x: Register, single: bool, into: Register | None) -> Register:
        terms = _EXP_F32 if single else _EXP_F64
        self.listing.lines.append(Check(value=x, limit=self._number(_EXP_LIMIT)))
        k = self._f("fmadd.d {0}, {1}, {2}, {3}", x, self._number(_LOG2E), self._number(_WHOLE))
        k = self._f("fsub.d {0}, {1}, {2}", k, self._number(_WHOLE))
        r = x
        for part in (math.log(2.0),) if single else _LN2:
            r = self._f("fnmsub.d {0}, {1}, {2}, {3}", k, self._number(part), r)
        step, bias = map(self._number, _EXPONENT)
        k = self._f("fmadd.d {0}, {1}, {2}, {3}", k, step, bias)
        scale = self._high(k)
        sum_ = self._f("fmadd.d {0}, {1}, {2}, {3}", r, *map(self._number, terms[:2]))
        for term in terms[2:]:
            sum_ = self._f("fmadd.d {0}, {1}, {2}, {3}", sum_, r, self._number(term))
        self.listing.lines.append(Rescue(routine="exp", arguments=(x,), result=sum_, ones=(scale,)))
        return self._f("fmul.d {0}, {1}, {2}", sum_, scale, into=into)

    def _reciprocal(self, b: Register, into: Register | None) -> Register:
        y = self._refined(b)
        e = self._f("fnmsub.d {0}, {1}, {2}, {3}", b, y, self._number(1.0))
        y = self._f("fmadd.d {0}, {1}, {2}, {1}", y, e)
        e = self._f("fnmsub.d {0}, {1}, {2}, {3}", b, y, self._number(1.0))
        # The result before rounding lies a little below 1/b. For a mantissa of ones it is the middle between
        # two numbers, of which the upper one is the reciprocal.
        place = None if into is None or into.fixed else into
        result = self._f("fmadd.d {0}, {1}, {2}, {1}, rmm", y, e, into=place)
        self.listing.lines.append(Rescue(routine="div", arguments=(None, b), result=result))
        return result if place is into else self._f("fmv.d {0}, {1}", result, into=into)

    def _quotient(self, a: Register | None, b: Register) -> Register:
        """a/b or 1/b of f32: the last bits of f64 do not matter."""
        y = self._refined(b)
        e = self._f("fnmsub.d {0}, {1}, {2}, {3}", b, y, self._number(1.0))
        result = self._f("fmadd.d {0}, {1}, {2}, {1}", y, e)
        if a is not None:
            result = self._f("fmul.d {0}, {1}, {2}", a, result)
        self.listing.lines.append(Rescue(routine="div", arguments=(a, b), result=result))
        return result

    def _refined(self, b: Register) -> Register:
        """1/b to 2^-26: an estimate, and two steps that each triple the correct bits."""
        y = self._estimate(b, 0.125, _RECIPROCAL)
        for step in range(2):
            e = self._f("fnmsub.d {0}, {1}, {2}, {3}", b, y, self._number(1.0))
            if step:
                self.listing.lines.append(Check(value=e, limit=self._number(_CONVERGES)))
            e = self._f("fmadd.d {0}, {1}, {1}, {1}", e)
            y = self._f("fmadd.d {0}, {1}, {2}, {1}", y, e)
        return y

    def _sqrt(self, a: Register, into: Register | None) -> Register:
        y = self._estimate(a, 0.0625, _ROOT)
        for step in range(2):
            # y (1 + e/2 + 3/8 e^2), where e = 1 - a y^2
            s = self._f("fmul.d {0}, {1}, {2}", a, y)
            e = self._f("fnmsub.d {0}, {1}, {2}, {3}", s, y, self._number(1.0))
            if step:
                self.listing.lines.append(Check(value=e, limit=self._number(_CONVERGES)))
            s = self._f("fmadd.d {0}, {1}, {2}, {3}", e, self._number(0.375), self._number(0.5))
            e = self._f("fmul.d {0}, {1}, {2}", y, e)
            y = self._f("fmadd.d {0}, {1}, {2}, {3}", e, s, y)
        half = self._f("fmul.d {0}, {1}, {2}", y, self._number(0.5))
        s = self._f("fmul.d {0}, {1}, {2}", a, y)
        e = self._f("fnmsub.d {0}, {1}, {2}, {3}", s, y, self._number(1.0))
        y = self._f("fmadd.d {0}, {1}, {2}, {3}", e, half, y)
        half = self._f("fmul.d {0}, {1}, {2}", y, self._number(0.5))
        s = self._f("fmul.d {0}, {1}, {2}", a, y)
        rest = self._f("fnmsub.d {0}, {1}, {1}, {2}", s, a)
        self.listing.lines.append(Rescue(routine="sqrt", arguments=(a,), result=s, zeros=(rest, half)))
        return self._f("fmadd.d {0}, {1}, {2}, {3}", rest, half, s, into=into)

    # -- pieces ------------------------------------------------------------------------------------

    def _estimate(self, b: Register, share: float, start: float) -> Register:
        """A first approximation by integer arithmetic on the bits of ``b``: ``start`` minus a share of
        them."""
        word = self._f("fcvt.s.d {0}, {1}", b)
        word = self._pack(word, self._constant(_HIGH_WORD, "f32"))
        word = self._f("fnmsub.d {0}, {1}, {2}, {3}", word, self._number(share), self._number(start))
        return self._high(word)

    def _high(self, word: Register) -> Register:
        """The number whose upper half is the low word of ``word``, and whose lower half is 0."""
        return self._pack(self._constant(0, "f64"), word)

    def _pack(self, low: Register, high: Register) -> Register:
        return self._f(".insn r 0x33, 0, 88, {0}, {1}, {2} # vfcpka.s.s {0}, {1}, {2}", low, high)

    def _wide(self, number: Register, single: bool) -> Register:
        """A number in double precision, in a register that may be read often."""
        if single:
            return self._f("fcvt.d.s {0}, {1}", number)
        return self._f("fmv.d {0}, {1}", number) if number.fixed else number

    def _number(self, value: float) -> Register:
        return self._constant(int.from_bytes(struct.pack("<d", value), "little"), "f64")

    def _f(self, text: str, *reads: Register, into: Register | None = None) -> Register:
        return self.listing.compute("f", text, *reads, into=into)
