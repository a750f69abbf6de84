"""Instructions that are newer than the emulator: sums of products of bytes of which one has a sign, products
of small matrices of bytes and of bf16, and sums of products of bf16.

The emulator stops at an instruction that it does not know. Its result is computed here, as the Arm
Architecture Reference Manual defines it; products of bf16 as without FEAT_EBF16: sums are rounded to odd, and
numbers below the normal ones count as zero. A test compares the results with those of another emulator. A
register holds a few numbers, for which Python's own floats are many times faster than arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import copysign, inf, isfinite, nan
from struct import Struct, calcsize
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from perfdojo_arm_neon.emulator.elf import SharedObject

Bytes = npt.NDArray[Any]
Floats: TypeAlias = tuple[float, ...]

#: The instruction that reads ID_AA64ISAR1_EL1 into X0; bits 4:0 are the number of the register.
_READS_FEATURES = 0xD5380620
#: In that register: products of matrices of bytes, and of bf16.
FEATURES = 1 << 52 | 1 << 44

#: Bits of an instruction besides its registers and its length.
_MASK = 0xBFE0FC00
_LEAST, _BEYOND = 2.0**-126, 2.0**128
_DOUBLE, _WORD = Struct("<d"), Struct("<Q")
#: (type, bytes) -> vectors of so many bytes.
_FORMS = {(kind, size): Struct(f"<{size // calcsize(kind)}{kind}") for kind in "HIf" for size in (8, 16, 32)}
#: Binary digits of f64 that f32 does not have.
_MORE_DIGITS = 29


def questions(loaded: SharedObject) -> list[int]:
    """Places of the instructions that ask for what the processor has."""
    places: list[int] = []
    for first, words in _code(loaded):
        places += (first + 4 * np.flatnonzero(words & ~np.uint32(31) == _READS_FEATURES)).tolist()
    return places


def is_in(loaded: SharedObject) -> bool:
    """True if the code has one of these instructions."""
    known = np.array(list(_COMPUTES), np.uint32)
    return any(bool(np.isin(words & np.uint32(_MASK), known).any()) for _, words in _code(loaded))


def _code(loaded: SharedObject) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
    """Place and words of each part of the code."""
    for first, last in loaded.code:
        yield first, np.frombuffer(loaded.image, "<u4", (last - first) // 4, first)


def is_newer(word: int) -> bool:
    return word & _MASK in _COMPUTES


def computed(word: int, total: int, one: int, other: int) -> int:
    """The content of the first register afterwards; the values of the three registers are given."""
    size = 16 if word & 1 << 30 else 8
    parts = [value.to_bytes(16, "little")[:size] for value in (total, one, other)]
    return int.from_bytes(_COMPUTES[word & _MASK](*parts), "little")


# -- bytes -------------------------------------------------------------------------------------------


def _dot(one: str, other: str) -> Callable[[bytes, bytes, bytes], bytes]:
    """Sums of four products each."""

    def compute(total: bytes, a: bytes, b: bytes) -> bytes:
        factors = [np.frombuffer(x, t).astype(np.int64).reshape(-1, 4) for x, t in ((a, one), (b, other))]
        return _wrapped(total, (factors[0] * factors[1]).sum(1))

    return compute


def _matrices(one: str, other: str) -> Callable[[bytes, bytes, bytes], bytes]:
    """Two rows by two columns of sums, of eight products each."""

    def compute(total: bytes, a: bytes, b: bytes) -> bytes:
        factors = ((a, one), (b, other))
        rows, columns = (np.frombuffer(x, t).astype(np.int64).reshape(2, 8) for x, t in factors)
        return _wrapped(total, (rows @ columns.T).ravel())

    return compute


def _wrapped(total: bytes, more: Bytes) -> bytes:
    return (np.frombuffer(total, "<i4") + more).astype("<i4").tobytes()


# -- bf16 --------------------------------------------------------------------------------------------


def _pairs(total: bytes, a: bytes, b: bytes) -> bytes:
    one, other = _numbers(a), _numbers(b)
    return _stored(
        [_with_pair(v, one, other, 2 * k, 2 * k) for k, v in enumerate(_FORMS["f", len(total)].unpack(total))]
    )


def _tile(total: bytes, a: bytes, b: bytes) -> bytes:
    """Two rows by two columns of sums: two pairs of products, one after the other."""
    rows, columns = _numbers(a), _numbers(b)
    sums = list(_FORMS["f", len(total)].unpack(total))
    for pair in (0, 2):
        for k, value in enumerate(sums):
            sums[k] = _with_pair(value, rows, columns, k // 2 * 4 + pair, k % 2 * 4 + pair)
    return _stored(sums)


def _with_pair(value: float, one: Floats, other: Floats, k: int, l: int) -> float:
    """The value and the products of two neighbours each."""
    first, second = _in_range(one[k] * other[l]), _in_range(one[k + 1] * other[l + 1])
    return rounded_sum(value, rounded_sum(first, second))


def rounded_sum(a: float, b: float) -> float:
    """The sum of two numbers of f32, rounded to odd."""
    a, b = _in_range(a), _in_range(b)
    found = a + b
    if not isfinite(found):
        return found
    back = found - a
    lost = (a - (found - back)) + (b - back)
    (bits,) = _WORD.unpack(_DOUBLE.pack(found))
    if lost:
        bits -= (lost < 0) != (found < 0)  # towards zero
        bits |= 1
    if rest := bits & ((1 << _MORE_DIGITS) - 1):
        (found,) = _DOUBLE.unpack(_WORD.pack(bits - rest | 1 << _MORE_DIGITS))
    return _in_range(found)


def _in_range(value: float) -> float:
    """The number, one below the normal ones of f32 as zero, one beyond f32 as infinity."""
    if _LEAST <= abs(value) < _BEYOND or value != value:
        return value
    return copysign(0.0 if abs(value) < _LEAST else inf, value)


def _numbers(words: bytes) -> Floats:
    halves = _FORMS["H", len(words)].unpack(words)
    wide = _FORMS["I", 2 * len(words)].pack(*[bits << 16 for bits in halves])
    return tuple(map(_in_range, _FORMS["f", len(wide)].unpack(wide)))


def _stored(values: Sequence[float]) -> bytes:
    # The default NaN is this one, whatever bits a sum left.
    return _FORMS["f", 4 * len(values)].pack(*[nan if value != value else value for value in values])


#: Bits of an instruction -> its result.
_COMPUTES: Mapping[int, Callable[[bytes, bytes, bytes], bytes]] = {
    0x0E809C00: _dot("u1", "i1"),  # USDOT
    0x0E80A400: _matrices("i1", "i1"),  # SMMLA
    0x2E80A400: _matrices("u1", "u1"),  # UMMLA
    0x0E80AC00: _matrices("u1", "i1"),  # USMMLA
    0x2E40FC00: _pairs,  # BFDOT
    0x2E40EC00: _tile,  # BFMMLA
}
