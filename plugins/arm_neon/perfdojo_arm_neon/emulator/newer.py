"""Instructions that are newer than the emulator: sums of products of bytes of which one has a sign, products
of small matrices of bytes and of bf16, and sums of products of bf16.

The emulator stops at an instruction that it does not know. Its result is computed here, as the Arm
Architecture Reference Manual defines it; products of bf16 as without FEAT_EBF16: sums are rounded to odd, and
numbers below the normal ones count as zero. A test compares the results with those of another emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from perfdojo_arm_neon.emulator.elf import SharedObject

Bytes = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]

#: The instruction that reads ID_AA64ISAR1_EL1 into X0; bits 4:0 are the number of the register.
_READS_FEATURES = 0xD5380620
#: In that register: products of matrices of bytes, and of bf16.
FEATURES = 1 << 52 | 1 << 44

#: Bits of an instruction besides its registers and its length.
_MASK = 0xBFE0FC00
_LEAST, _BEYOND = 2.0**-126, 2.0**128
#: Binary digits of f64 that f32 does not have.
_MORE_DIGITS = 29
_NAN = 0x7FC00000


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
    one, other = (_numbers(x).reshape(-1, 2) for x in (a, b))
    return _stored(_with_pair(_singles(total), one, other))


def _tile(total: bytes, a: bytes, b: bytes) -> bytes:
    """Two rows by two columns of sums: two pairs of products, one after the other."""
    rows, columns = (_numbers(x).reshape(2, 2, 2) for x in (a, b))
    sums = _singles(total)
    for pair in range(2):
        sums = _with_pair(sums, np.repeat(rows[:, pair], 2, 0), np.tile(columns[:, pair], (2, 1)))
    return _stored(sums)


def _with_pair(sums: Doubles, one: Doubles, other: Doubles) -> Doubles:
    with np.errstate(all="ignore"):
        products = _in_range(one * other)
        return rounded_sum(sums, rounded_sum(products[:, 0], products[:, 1]))


def rounded_sum(a: Doubles, b: Doubles) -> Doubles:
    """Sums of numbers of f32, rounded to odd."""
    with np.errstate(all="ignore"):
        a, b = _in_range(a), _in_range(b)
        found = a + b
        back = found - a
        lost = (a - (found - back)) + (b - back)
        inexact = (lost != 0) & np.isfinite(found)
        bits = found.view(np.int64) - (inexact & (np.signbit(lost) != np.signbit(found)))  # towards zero
        bits |= inexact
        rest = bits & ((1 << _MORE_DIGITS) - 1)
        odd = (bits - rest) | ((rest != 0).astype(np.int64) << _MORE_DIGITS)
        return _in_range(np.where(np.isfinite(found), odd.view(np.float64), found))


def _in_range(values: Doubles) -> Doubles:
    """The numbers, those below the normal ones of f32 as zeros, those beyond f32 as infinities."""
    small, large = np.abs(values) < _LEAST, np.abs(values) >= _BEYOND
    return np.where(small, np.copysign(0, values), np.where(large, np.copysign(np.inf, values), values))


def _numbers(words: bytes) -> Doubles:
    bits = np.frombuffer(words, "<u2").astype(np.uint32) << 16
    return _in_range(_wide(bits.view(np.float32)))


def _singles(words: bytes) -> Doubles:
    return _wide(np.frombuffer(words, "<f4"))


def _wide(values: npt.NDArray[np.float32]) -> Doubles:
    with np.errstate(invalid="ignore"):  # a NaN that signals
        return values.astype(np.float64)


def _stored(values: Doubles) -> bytes:
    bits = values.astype(np.float32).view(np.uint32)
    return np.where(np.isnan(values), np.uint32(_NAN), bits).astype("<u4").tobytes()


#: Bits of an instruction -> its result.
_COMPUTES: Mapping[int, Callable[[bytes, bytes, bytes], bytes]] = {
    0x0E809C00: _dot("u1", "i1"),  # USDOT
    0x0E80A400: _matrices("i1", "i1"),  # SMMLA
    0x2E80A400: _matrices("u1", "u1"),  # UMMLA
    0x0E80AC00: _matrices("u1", "i1"),  # USMMLA
    0x2E40FC00: _pairs,  # BFDOT
    0x2E40EC00: _tile,  # BFMMLA
}
