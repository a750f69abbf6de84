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

from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.expression import FLOAT_DTYPES

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
        """The function behind a name of :data:`~perfdojo_sdk.core.program.OPERATIONS`."""
        ...

    def cast(self, source: str, target: str) -> Callable[[Value], Value]: ...


def wrap(value: int, dtype: str) -> int:
    """The value of an integer dtype that ``value`` wraps to; of bool, whether it is not zero."""
    if dtype == "bool":
        return int(value != 0)
    bits = int(dtype[1:])
    offset = 0 if dtype.startswith("u") else 1 << (bits - 1)
    return (value + offset) % (1 << bits) - offset


def integer_bounds(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype or bool."""
    if dtype == "bool":
        return 0, 1
    bits = int(dtype[1:])
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _truncated_division(a: int, b: int) -> int:
    if b == 0:
        raise ProgramError("PD-V003", "an integer is divided by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INTEGER: Mapping[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _truncated_division,
    "max": max,
    "min": min,
    "neg": operator.neg,
    "abs": abs,
}


def integer_operation(name: str, dtype: str) -> Callable[..., int]:
    """Integers behave alike in every domain: exact, wrapping, division truncates."""
    function = _INTEGER.get(name)
    if function is None:
        raise ProgramError("PD-V003", f"{name} has no meaning for {dtype}", hint="convert to a float first")
    return lambda *arguments: wrap(function(*arguments), dtype)


def rounded(value: float, dtype: str) -> float:
    """The nearest value of a float dtype, ties to even, overflow to infinity."""
    if dtype == "f64" or not math.isfinite(value):
        return value
    try:
        if dtype == "bf16":
            bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
            bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
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
        return _FLOAT[name] if dtype in FLOAT_DTYPES else integer_operation(name, dtype)

    def cast(self, source: str, target: str) -> Callable[[Any], float]:
        if target in FLOAT_DTYPES:
            return float
        if source in FLOAT_DTYPES:
            return lambda value: _saturated(value, target)
        return lambda value: wrap(value, target)


FLOAT64 = Float64()
