"""The values of a program that runs: a domain gives constants and operations their meaning.

The interpreter itself knows nothing about numbers; it asks a :class:`Domain`. This module has that protocol
and IEEE arithmetic. ``operations.py`` has the result of each operation.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from perfdojo_sdk.core.dtypes import (
    CODED_DTYPES,
    DIGITS,
    FLOAT_DTYPES,
    NARROW_DTYPES,
    STORED_DTYPES,
    integer_bounds,
    wrap,
)
from perfdojo_sdk.core.formats import encode, numbers
from perfdojo_sdk.core.operations import OPERATIONS, integer_operation

Value = TypeVar("Value")


class Domain(Protocol[Value]):
    """A kind of values. ``None`` is no value: it marks an unwritten cell.

    ``a += v`` means ``a = a + v``, so accumulations need nothing of their own.
    """

    def literal(self, value: float | int, dtype: str) -> Value: ...

    def index_value(self, dtype: str) -> Callable[[int], Value]:
        """The value of ``dtype`` that an integer made of iterators becomes."""
        ...

    def operation(self, name: str, dtype: str) -> Callable[..., Value]:
        """The function behind a name of :data:`~perfdojo_sdk.core.operations.OPERATIONS`.

        ``dtype`` is that of the operands. A comparison gives 1 or 0 in every domain; ``select`` is
        never asked for.
        """
        ...

    def cast(self, source: str, target: str) -> Callable[[Value], Value]: ...


def rounded(value: float, dtype: str) -> float:
    """The nearest value of a float dtype, ties to even, overflow to infinity."""
    if dtype == "f64" or not math.isfinite(value):
        return value
    try:
        if dtype in STORED_DTYPES:
            near = struct.pack("<f", value)
            bits, less = int(struct.unpack("<I", near)[0]), DIGITS["f32"] - DIGITS[dtype]
            inexact = struct.unpack("<f", near)[0] - value
            if inexact and not bits & 1:  # with an odd last digit, rounding again gives the nearest
                bits += -1 if (inexact > 0) == (value > 0) else 1
            bits = bits + (1 << less - 1) - 1 + (bits >> less & 1) >> less << less
            return float(struct.unpack("<f", struct.pack("<I", bits))[0])
        form = {"f32": "<f", "f16": "<e"}[dtype]
        return float(struct.unpack(form, struct.pack(form, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


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
        return OPERATIONS[name].floats if dtype in FLOAT_DTYPES else integer_operation(name, dtype)

    def cast(self, source: str, target: str) -> Callable[[Any], float]:
        if source in CODED_DTYPES:
            known, last = numbers(source), len(numbers(source)) - 1
            return lambda code: known[code & last]  # further bits of a byte mean nothing
        if target in CODED_DTYPES:
            return lambda value: encode(float(value), target)
        if target in FLOAT_DTYPES:
            narrow = source in NARROW_DTYPES
            return (lambda value: float(wrap(value, source))) if narrow else float
        if source in NARROW_DTYPES:
            return lambda value: wrap(wrap(value, source), target)
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
        if dtype not in FLOAT_DTYPES or OPERATIONS[name].compares:
            return function
        return lambda *arguments: rounded(function(*arguments), dtype)

    def cast(self, source: str, target: str) -> Callable[[Any], float]:
        convert = super().cast(source, target)
        return (lambda value: rounded(convert(value), target)) if target in FLOAT_DTYPES else convert


FLOAT64 = Float64()
ROUNDING = Rounding()
