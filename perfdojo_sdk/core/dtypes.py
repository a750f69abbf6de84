"""The types of values: names, sizes and ranges.

Dtypes meet only in explicit casts, so nothing here says how two of them combine.
"""

from __future__ import annotations

from perfdojo_sdk.core.formats import CODED_DTYPES as CODED_DTYPES
from perfdojo_sdk.core.formats import FORMATS

FLOAT_DTYPES = ("f64", "f32", "f16", "bf16", "tf32")
INTEGER_DTYPES = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")

#: The dtypes of operations.
COMPUTED_DTYPES = (*FLOAT_DTYPES, *INTEGER_DTYPES, "bool")

#: Integers of less than a byte. Like coded dtypes, they have no operations but conversions.
NARROW_DTYPES = ("i4", "u4", "i2", "u2")
UNCOMPUTED_DTYPES = (*CODED_DTYPES, *NARROW_DTYPES)

DTYPES = (*COMPUTED_DTYPES, *UNCOMPUTED_DTYPES)

#: Float dtypes with the range of f32 and fewer digits. Compiled code stores values of f32 in them, rounded,
#: and computes in f32. tf32 takes as much room as f32; the digits that it lacks are zeros.
STORED_DTYPES = ("bf16", "tf32")

#: Float dtypes that compiled code computes with in f32: the result of each operation is rounded to them.
ROUNDED_DTYPES = ("f16", *STORED_DTYPES)

#: Bytes of one element.
BYTES = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "tf32": 4, "i64": 8, "i32": 4, "i16": 2, "i8": 1,
    "u64": 8, "u32": 4, "u16": 2, "u8": 1, "bool": 1, **dict.fromkeys(UNCOMPUTED_DTYPES, 1),
}  # fmt: skip

#: Binary digits of a float dtype, the leading one included: rounding to it is off by 2^-digits of the value.
DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "tf32": 11}


def rounding_law(dtype: str) -> str:
    """The law of a move that rounds to a float dtype, as records and manifests state it.

    It does not mention values beyond the ends of the dtype's range.
    """
    return f"{dtype}(x) = x*(1+d), |d| <= 2^-{DIGITS[dtype]}"


def shorter(a: str, b: str) -> str:
    """The float dtype of the two with fewer digits, or with as many in less room."""
    return min(a, b, key=lambda dtype: (DIGITS[dtype], BYTES[dtype]))


def largest(dtype: str) -> float:
    """The largest finite value of a float dtype; all but f16 and f64 have the exponents of f32."""
    exponent = {"f64": 1023, "f16": 15}.get(dtype, 127)
    return (2.0 - 2.0 ** (1 - DIGITS[dtype])) * 2.0**exponent


def is_positive_normal(value: float, dtype: str) -> bool:
    """True if a number is positive and, in a float dtype, neither infinite nor a denormal."""
    return dtype in FLOAT_DTYPES and smallest_normal(dtype) <= value <= largest(dtype)


def smallest_normal(dtype: str) -> float:
    """The smallest positive value of a float dtype that has all its digits; its reciprocal is finite."""
    return 2.0 ** -{"f64": 1022, "f16": 14}.get(dtype, 126)


def carrier(dtype: str) -> str:
    """The dtype of the integers that hold a value of bool, or of a dtype without operations; any other dtype
    itself."""
    if dtype == "bool" or dtype in CODED_DTYPES:
        return "u8"
    return f"{dtype[0]}8" if dtype in NARROW_DTYPES else dtype


def converts(source: str, target: str) -> bool:
    """True if a value of one dtype may be converted to another: codes only from floats and to floats."""
    if source == target or {source, target}.isdisjoint(CODED_DTYPES):
        return True
    return source in FLOAT_DTYPES or target in FLOAT_DTYPES


def bits(dtype: str) -> int:
    """Width of an integer dtype, or of the codes of a coded one."""
    if dtype in FORMATS:
        return (FORMATS[dtype].codes - 1).bit_length()
    return int(dtype[1:]) if dtype in NARROW_DTYPES else 8 * BYTES[dtype]


#: Dtypes of which several elements fit into a byte, in arrays that are declared packed.
PACKED_DTYPES = tuple(dtype for dtype in UNCOMPUTED_DTYPES if bits(dtype) < 8)


def packed_bytes(elements: int, dtype: str) -> int:
    """Bytes of so many elements that lie packed; the last one may be partly empty."""
    return -(-elements * bits(dtype) // 8)


def in_a_byte(dtype: str) -> int:
    """Elements in a byte of a packed array."""
    return 8 // bits(dtype)


def integer_bounds(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype or bool, or code of a coded one."""
    if dtype == "bool":
        return 0, 1
    if carrier(dtype).startswith("u"):
        return 0, (1 << bits(dtype)) - 1
    return -(1 << (bits(dtype) - 1)), (1 << (bits(dtype) - 1)) - 1


def holds_all(dtype: str, source: str) -> bool:
    """True if every value of an integer dtype is one of another integer dtype."""
    (low, high), (least, most) = integer_bounds(dtype), integer_bounds(source)
    return low <= least and most <= high


def wrap(value: int, dtype: str) -> int:
    """The value of an integer dtype that ``value`` wraps to; for bool, 1 unless it is zero."""
    if dtype == "bool":
        return int(value != 0)
    offset = 0 if carrier(dtype).startswith("u") else 1 << (bits(dtype) - 1)
    return (value + offset) % (1 << bits(dtype)) - offset
