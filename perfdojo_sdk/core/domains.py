"""What a value is while a program runs: a domain gives constants and operations their meaning.

The interpreter knows nothing of numbers. Here are the protocol that it asks, double precision,
and the integers, which are exact and the same in every domain.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from perfdojo_sdk.core.dtypes import DIGITS, FLOAT_DTYPES, STORED_DTYPES, bits, integer_bounds, wrap
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.expression import OPERATIONS

Value = TypeVar("Value")


class Domain(Protocol[Value]):
    """A kind of values. ``None`` is no value: it marks an unwritten cell.

    ``a += v`` means ``a = a + v``, so accumulations need nothing of their own.
    """

    def literal(self, value: float | int, dtype: str) -> Value: ...

    def index_value(self, dtype: str) -> Callable[[int], Value]:
        """How an integer made of iterators becomes a value of ``dtype``."""
        ...

    def operation(self, name: str, dtype: str) -> Callable[..., Value]:
        """The function behind a name of :data:`~perfdojo_sdk.core.expression.OPERATIONS`.

        ``dtype`` is that of the operands. A comparison gives 1 or 0 in every domain; ``select`` is
        never asked for.
        """
        ...

    def cast(self, source: str, target: str) -> Callable[[Value], Value]: ...


def _truncated_division(a: int, b: int) -> int:
    if b == 0:
        raise ProgramError("PD-V003", "an integer is divided by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INTEGER: Mapping[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _truncated_division,
    "rem": lambda a, b: a - b * _truncated_division(a, b),
    "max": max,
    "min": min,
    "neg": operator.neg,
    "abs": abs,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def integer_operation(name: str, dtype: str) -> Callable[..., int]:
    """Integers behave alike in every domain: exact, wrapping, division truncates."""
    if dtype not in OPERATIONS[name].dtypes:
        raise ProgramError("PD-V003", f"{name} has no meaning for {dtype}", hint="convert to a float first")
    if name in COMPARISONS:
        compare = COMPARISONS[name]
        return lambda a, b: int(compare(a, b))
    if name == "not":
        return (lambda a: 1 - a) if dtype == "bool" else (lambda a: wrap(~a, dtype))
    if name in ("shl", "shr"):
        return _shift(name, dtype)
    function = _INTEGER[name]
    return lambda *arguments: wrap(function(*arguments), dtype)


def _shift(name: str, dtype: str) -> Callable[[int, int], int]:
    """``shr`` of a signed number keeps its sign."""

    def shifted(a: int, count: int) -> int:
        if not 0 <= count < bits(dtype):
            raise ProgramError("PD-V003", f"{dtype} is shifted by {count}, it has {bits(dtype)} bits")
        return wrap(a << count, dtype) if name == "shl" else a >> count

    return shifted


def rounded(value: float, dtype: str) -> float:
    """The nearest value of a float dtype, ties to even, overflow to infinity."""
    if dtype == "f64" or not math.isfinite(value):
        return value
    try:
        if dtype in STORED_DTYPES:
            bits, less = int(struct.unpack("<I", struct.pack("<f", value))[0]), DIGITS["f32"] - DIGITS[dtype]
            bits = bits + (1 << less - 1) - 1 + (bits >> less & 1) >> less << less
            return float(struct.unpack("<f", struct.pack("<I", bits))[0])
        form = {"f32": "<f", "f16": "<e"}[dtype]
        return float(struct.unpack(form, struct.pack(form, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _float_div(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0.0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _float_exp(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def _float_log(a: float) -> float:
    return math.log(a) if a > 0.0 else -math.inf if a == 0.0 else math.nan


def _integral(function: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding function that hands infinities and NaN on and keeps the sign of zero."""
    return lambda a: math.copysign(float(function(a)), a) if math.isfinite(a) else a


_FLOAT: Mapping[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _float_div,
    "max": lambda a, b: a if a >= b or a != a else b,  # NaN wins on either side
    "min": lambda a, b: a if a <= b or a != a else b,
    "neg": operator.neg,
    "abs": abs,
    "sqrt": lambda a: math.sqrt(a) if a >= 0.0 else math.nan,
    "exp": _float_exp,
    "log": _float_log,
    "tanh": math.tanh,
    "erf": math.erf,
    "floor": _integral(math.floor),
    "ceil": _integral(math.ceil),
    "round": _integral(round),  # to the nearest, ties to even
    "trunc": _integral(math.trunc),
}


def _saturated(value: float, dtype: str) -> int:
    if dtype == "bool":
        return int(value != 0)
    if math.isnan(value):
        return 0
    low, high = integer_bounds(dtype)
    return low if value <= low else high if value >= high else int(value)


class Float64:
    """IEEE double precision for every float dtype; only literals are rounded to their own dtype.

    No traps: 1/0 is inf, 0/0 is NaN, exp overflows to inf, max and min hand NaN on. Values are
    Python floats (ints for integer dtypes).
    """

    def literal(self, value: float | int, dtype: str) -> float:
        return rounded(value, dtype) if dtype in FLOAT_DTYPES else wrap(int(value), dtype)

    def index_value(self, dtype: str) -> Callable[[int], float]:
        return float if dtype in FLOAT_DTYPES else lambda value: wrap(value, dtype)

    def operation(self, name: str, dtype: str) -> Callable[..., float]:
        if dtype not in FLOAT_DTYPES:
            return integer_operation(name, dtype)
        if name in COMPARISONS:
            compare = COMPARISONS[name]
            return lambda a, b: int(compare(a, b))
        return _FLOAT[name]

    def cast(self, source: str, target: str) -> Callable[[Any], float]:
        if target in FLOAT_DTYPES:
            return float
        if source in FLOAT_DTYPES:
            return lambda value: _saturated(value, target)
        return lambda value: wrap(value, target)


class Rounding(Float64):
    """IEEE arithmetic in each value's own dtype: the result of every operation is rounded to it.

    Operations run in double precision first. For all that are shorter it is exact for ``+ - * /`` and
    ``sqrt``, since the double has more than twice their digits.
    """

    def index_value(self, dtype: str) -> Callable[[int], float]:
        if dtype in FLOAT_DTYPES:
            return lambda value: rounded(float(value), dtype)
        return super().index_value(dtype)

    def operation(self, name: str, dtype: str) -> Callable[..., float]:
        function = super().operation(name, dtype)
        if dtype not in FLOAT_DTYPES or name in COMPARISONS:
            return function
        return lambda *arguments: rounded(function(*arguments), dtype)

    def cast(self, source: str, target: str) -> Callable[[Any], float]:
        if target in FLOAT_DTYPES:
            return lambda value: rounded(float(value), target)
        return super().cast(source, target)


FLOAT64 = Float64()
ROUNDING = Rounding()
