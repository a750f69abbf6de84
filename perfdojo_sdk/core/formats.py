"""The formats of the float dtypes that are only stored: fp8, fp4, and powers of two as scales.

A value of such a dtype is a *code*, a whole number of so many bits: sign, exponent, fraction. There are no
operations on codes but two conversions: :func:`decode` gives the number, :func:`encode` the code of the
nearest number. Sources: Micikevicius et al., "FP8 formats for deep learning", 2022 (E4M3FN, E5M2); the FNUZ
forms of Noune et al., "8-bit numerical formats for deep neural networks", 2022; the OCP specification of
microscaling formats, version 1.0 (E2M1, E8M0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise


@dataclass(frozen=True)
class Format:
    """A format of floats: a sign bit, so many bits of the exponent, and so many of the fraction.

    A code without its sign is a *size*; sizes are ordered as the numbers are. Those above ``largest`` are
    infinite or no numbers.
    """

    exponent: int
    fraction: int
    bias: int
    largest: int
    """Size of the largest finite number."""
    beyond: int
    """Size of what is larger: an infinity, NaN, or the largest number itself."""
    nan: int
    """The code that each NaN is converted to: zero in a format that has none."""
    signed_zero: bool = True
    """True if there is a zero of either sign."""

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << self.exponent + self.fraction

    @property
    def codes(self) -> int:
        """The number of codes."""
        return 2 * self.sign

    @property
    def signed_beyond(self) -> bool:
        """True if what is beyond has a sign: it is an infinity, or a number."""
        return self.beyond != self.nan


#: Powers of two from 2^-127 to 2^127: eight bits of an exponent, and nothing else. The largest code is NaN.
POWERS = "f8e8m0"
_POWERS_NAN, _POWERS_BIAS = 255, 127

FORMATS: Mapping[str, Format] = {
    "f8e4m3fn": Format(4, 3, 7, largest=0x7E, beyond=0x7F, nan=0x7F),
    "f8e5m2": Format(5, 2, 15, largest=0x7B, beyond=0x7C, nan=0x7E),
    "f8e4m3fnuz": Format(4, 3, 8, largest=0x7F, beyond=0x80, nan=0x80, signed_zero=False),
    "f8e5m2fnuz": Format(5, 2, 16, largest=0x7F, beyond=0x80, nan=0x80, signed_zero=False),
    "f4e2m1": Format(2, 1, 1, largest=7, beyond=7, nan=0),
}

CODED_DTYPES = (*FORMATS, POWERS)


def encode(value: float, dtype: str) -> int:
    """The code of the nearest number, ties to even; those of ``f8e8m0`` to the larger.

    A number beyond the largest one, after rounding, is an infinity, NaN in a format without one, or in one
    without either (``f4e2m1``) the largest number; there, NaN is zero. Each
    NaN gets the same code. What ``f8e8m0`` has no power of two for (zero, negative numbers) is NaN; below
    its least power of two, positive numbers are that.
    """
    if dtype == POWERS:
        return _power(value)
    form = FORMATS[dtype]
    if math.isnan(value):
        return form.nan
    size, sign = _size(abs(value), form), form.sign if math.copysign(1.0, value) < 0 else 0
    if size > form.largest:
        return form.beyond | sign if form.signed_beyond else form.nan
    return size | sign if size or form.signed_zero else 0


def _size(value: float, form: Format) -> int:
    """The code of a positive number, rounded; any size above the largest one beyond that."""
    if math.isinf(value):
        return form.largest + 1
    _, above = math.frexp(value)  # the number is below 2^above
    least = 1 - form.bias
    exponent = max(above - 1, least) if value else least
    # Neighbours are 2^(exponent - fraction) apart; the quotient is exact, and below 2^(fraction + 1).
    steps = round(math.ldexp(value, form.fraction - exponent)) if exponent <= form.bias + 2 else 0
    return steps + (exponent - least << form.fraction)


def _power(value: float) -> int:
    if not value > 0 or math.isinf(value):
        return _POWERS_NAN
    fraction, above = math.frexp(value)  # fraction * 2^above, fraction in [1/2, 1)
    code = above - 1 + _POWERS_BIAS + (fraction >= 0.75)
    return min(max(code, 0), _POWERS_NAN)


@lru_cache
def numbers(dtype: str) -> tuple[float, ...]:
    """The number of each code."""
    if dtype == POWERS:
        return (*(math.ldexp(1.0, code - _POWERS_BIAS) for code in range(_POWERS_NAN)), math.nan)
    form = FORMATS[dtype]
    return tuple([_number(code, form) for code in range(form.codes)])


def _number(code: int, form: Format) -> float:
    size, sign = code & form.sign - 1, -1.0 if code & form.sign else 1.0
    if size > form.largest or (not form.signed_zero and code == form.sign):
        return math.copysign(math.inf, sign) if form.signed_beyond and size == form.beyond else math.nan
    exponent, fraction = divmod(size, 1 << form.fraction)
    steps = fraction + (1 << form.fraction if exponent else 0)
    return sign * math.ldexp(steps, max(exponent, 1) - form.bias - form.fraction)


@lru_cache
def zeros_of(dtype: str) -> tuple[int, ...]:
    """The codes of zeros, the positive one first."""
    return tuple([code for code, number in enumerate(numbers(dtype)) if number == 0])


@lru_cache
def usual_codes(dtype: str) -> tuple[int, ...]:
    """The codes of numbers as computations have them: from 1/32 to 4, of either sign."""
    return tuple([code for code, number in enumerate(numbers(dtype)) if 2**-5 <= abs(number) <= 4])


@lru_cache
def middles(dtype: str) -> tuple[float, ...]:
    """The numbers between two neighbouring codes, and between the largest number and what would follow,
    ascending.
    """
    finite = sorted({number for number in numbers(dtype) if math.isfinite(number)})
    beyond = 2 * finite[-1] if dtype == POWERS else 2 * finite[-1] - finite[-2]
    return tuple([(a + b) / 2 for a, b in pairwise([*finite, beyond])])


def decode(code: int, dtype: str) -> float:
    """The number of a code; it is one of f32 and of bf16."""
    return numbers(dtype)[code]
