"""IEEE arithmetic with Python's exact fractions: an independent source for the simulator's FPU."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

NX, UF, OF, NV = 1, 2, 4, 16
MODES = ("rne", "rtz", "rdn", "rup", "rmm")


@dataclass(frozen=True)
class Format:
    """A binary interchange format."""

    name: str
    width: int
    mantissa: int

    @property
    def exponent(self) -> int:
        return self.width - 1 - self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def nan(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa | 1 << (self.mantissa - 1)

    def infinity(self, sign: int) -> int:
        return sign << (self.width - 1) | ((1 << self.exponent) - 1) << self.mantissa

    def sign(self, bits: int) -> int:
        return bits >> (self.width - 1)

    def magnitude(self, bits: int) -> int:
        return bits & ((1 << (self.width - 1)) - 1)

    def is_nan(self, bits: int) -> bool:
        return self.magnitude(bits) > self.infinity(0)

    def is_signalling(self, bits: int) -> bool:
        return self.is_nan(bits) and not bits >> (self.mantissa - 1) & 1

    def is_infinite(self, bits: int) -> bool:
        return self.magnitude(bits) == self.infinity(0)

    def value(self, bits: int) -> Fraction:
        """The number, if it is one."""
        exponent, fraction = self.magnitude(bits) >> self.mantissa, bits & ((1 << self.mantissa) - 1)
        if exponent:
            fraction |= 1 << self.mantissa
        scale = Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa)
        return (-1) ** self.sign(bits) * fraction * scale

    def box(self, bits: int) -> int:
        return bits | ((1 << 64) - (1 << self.width))


HALF, SINGLE, DOUBLE = Format("h", 16, 10), Format("s", 32, 23), Format("d", 64, 52)
FORMATS = (HALF, SINGLE, DOUBLE)


def round_integer(exact: Fraction, mode: str, negative: bool) -> int:
    """A non-negative number to an integer, as rounding its negative would if ``negative``."""
    floor = exact.numerator // exact.denominator
    rest = exact - floor
    half = Fraction(1, 2)
    up = {
        "rne": rest > half or (rest == half and floor % 2 == 1),
        "rtz": False,
        "rdn": negative and rest > 0,
        "rup": not negative and rest > 0,
        "rmm": rest >= half,
    }[mode]
    return floor + up


def round_to(form: Format, exact: Fraction, mode: str, zero_sign: int = 0) -> tuple[int, int]:
    """(bits, flags) of an exact number. Underflow is judged on the rounded result."""
    if exact == 0:
        return zero_sign << (form.width - 1), 0
    negative, size = exact < 0, abs(exact)
    least = 1 - form.bias - form.mantissa  # exponent of the smallest step
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** max(exponent - form.mantissa, least)
    count = round_integer(size / step, mode, negative)
    flags = NX if count * step != size else 0
    rounded = count * step
    sign = int(negative) << (form.width - 1)
    largest = form.infinity(0) - 1
    if rounded > form.value(largest):
        away = mode in ("rne", "rmm") or mode == ("rdn" if negative else "rup")
        return sign | largest + away, OF | NX
    scaled = rounded / Fraction(2) ** least
    assert scaled.denominator == 1
    steps = scaled.numerator
    if steps < 1 << form.mantissa:
        return sign | steps, flags | (UF if flags else 0)
    extra = steps.bit_length() - 1 - form.mantissa
    bits = (extra + 1) << form.mantissa | (steps >> extra) - (1 << form.mantissa)
    return sign | bits, flags


def _nan(form: Format, invalid: bool) -> tuple[int, int]:
    return form.nan, NV if invalid else 0


def fma(form: Format, a: int, b: int, c: int, mode: str) -> tuple[int, int]:
    """a * b + c, rounded once."""
    sign = form.sign(a) ^ form.sign(b)
    operands = (a, b, c)
    infinite = form.is_infinite(a) or form.is_infinite(b)
    if infinite and 0 in (form.magnitude(a), form.magnitude(b)):
        return _nan(form, True)
    if any(map(form.is_nan, operands)):
        return _nan(form, any(map(form.is_signalling, operands)))
    if infinite:
        if form.is_infinite(c) and form.sign(c) != sign:
            return _nan(form, True)
        return form.infinity(sign), 0
    if form.is_infinite(c):
        return c, 0
    product = form.value(a) * form.value(b)
    same = sign == form.sign(c)
    zero_sign = sign if product == 0 and same and form.magnitude(c) == 0 else int(mode == "rdn")
    return round_to(form, product + form.value(c), mode, zero_sign)


def add(form: Format, a: int, b: int, mode: str) -> tuple[int, int]:
    one = form.bias << form.mantissa
    return fma(form, a, one, b, mode)


def multiply(form: Format, a: int, b: int, mode: str) -> tuple[int, int]:
    bits, flags = fma(form, a, b, 0, mode)
    if form.magnitude(bits) == 0 and not flags:
        bits = (form.sign(a) ^ form.sign(b)) << (form.width - 1)
    return bits, flags


def negate(form: Format, bits: int) -> int:
    return bits ^ 1 << (form.width - 1)


def convert(source: Format, target: Format, bits: int, mode: str) -> tuple[int, int]:
    if source.is_nan(bits):
        return _nan(target, source.is_signalling(bits))
    if source.is_infinite(bits):
        return target.infinity(source.sign(bits)), 0
    return round_to(target, source.value(bits), mode, source.sign(bits))


def to_integer(form: Format, bits: int, signed: bool, mode: str) -> tuple[int, int]:
    """(32 bits, flags); what does not fit saturates."""
    least, most = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
    if form.is_nan(bits):
        return most, NV
    if form.is_infinite(bits):
        return (least if form.sign(bits) else most) & 0xFFFFFFFF, NV
    exact = form.value(bits)
    rounded = round_integer(abs(exact), mode, exact < 0) * (-1 if exact < 0 else 1)
    if not least <= rounded <= most:
        return (least if rounded < least else most) & 0xFFFFFFFF, NV
    return rounded & 0xFFFFFFFF, NX if rounded != exact else 0
