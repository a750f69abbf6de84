"""The dtypes of reference programs in C: their types, and macros for the headers of ``include/``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from perfdojo_sdk.core.dtypes import UNCOMPUTED_DTYPES, carrier
from perfdojo_sdk.core.formats import FORMATS, POWERS, numbers

#: In this order, each but f16 has all numbers of those before it.
FLOATS: Mapping[str, Mapping[str, str]] = {
    # Each operation is computed in single precision and rounded. For sums, products, quotients and roots that
    # is the same as one rounding; for functions, U has room for two.
    "bf16": {
        "F": "float", "W": "double", "WIDE_(name)": "name", "F_MAX": "0x1.fep127", "W_MAX": "DBL_MAX",
        "U": "0x1.0002p-8", "ETA": "0x1p-134", "EXACT_INTEGERS": "0x1p8", "E": "float", "BITS": "uint32_t",
        "FITS(v)": "ends_in_zeros(v, 16)",
    },
    "f16": {
        "F": "_Float16", "W": "double", "WIDE_(name)": "name", "F_MAX": "65504.0", "W_MAX": "DBL_MAX",
        "U": "0x1.001p-11", "ETA": "0x1p-25", "EXACT_INTEGERS": "0x1p11", "E": "float", "BITS": "uint32_t",
        "FITS(v)": "((W)(F)(v) == (v))",
    },
    "tf32": {
        "F": "float", "W": "double", "WIDE_(name)": "name", "F_MAX": "0x1.ffcp127", "W_MAX": "DBL_MAX",
        "U": "0x1.001p-11", "ETA": "0x1p-137", "EXACT_INTEGERS": "0x1p11", "E": "float", "BITS": "uint32_t",
        "FITS(v)": "ends_in_zeros(v, 13)",
    },
    "f32": {
        "F": "float", "W": "double", "WIDE_(name)": "name", "F_MAX": "FLT_MAX", "W_MAX": "DBL_MAX",
        "U": "0x1p-24", "ETA": "0x1p-150", "EXACT_INTEGERS": "0x1p24", "E": "float", "BITS": "uint32_t",
        "FITS(v)": "((W)(F)(v) == (v))",
    },
    # If long double is no wider than double, the reference rounds as much as the kernel does.
    "f64": {
        "F": "double", "W": "long double", "WIDE_(name)": "name##l", "F_MAX": "DBL_MAX", "W_MAX": "LDBL_MAX",
        "U": "(LDBL_MANT_DIG > 53 ? 0x1p-53L : 0x1p-52L)", "ETA": "0x1p-1075L",
        "EXACT_INTEGERS": "0x1p53", "E": "double", "BITS": "uint64_t", "FITS(v)": "((W)(F)(v) == (v))",
    },
}  # fmt: skip
#: Types for programs with products of many numbers: a product of nine of f32 may leave the range of a double.
WIDER_FLOATS: Mapping[str, Mapping[str, str]] = {
    dtype: {**macros, **{name: FLOATS["f64"][name] for name in ("W", "WIDE_(name)", "W_MAX")}}
    for dtype, macros in FLOATS.items()
}
#: dtype of a float -> dtype of the bound on its error; f16 cannot hold the small bounds of its denormals.
BOUNDS: Mapping[str, str] = {"bf16": "f32", "tf32": "f32", "f16": "f32", "f32": "f32", "f64": "f64"}

#: The one pair of floats of which each has numbers that the other has not.
APART = ("bf16", "f16")

C_TYPES: Mapping[str, str] = {
    "f64": "double", "f32": "float", "f16": "_Float16", "bf16": "uint16_t", "tf32": "float",
    "i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t",
    "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t", "u8": "uint8_t", "bool": "uint8_t",
    **{dtype: "int8_t" if carrier(dtype) == "i8" else "uint8_t" for dtype in UNCOMPUTED_DTYPES},
}  # fmt: skip


def defined(macros: Mapping[str, str]) -> Iterator[str]:
    """Define macros that may be defined already; a key is a name, or a name with its parameters."""
    for macro, text in macros.items():
        yield f"#undef {macro.partition('(')[0]}"
        yield f"#define {macro} {text}"


def formats(dtypes: Iterable[str]) -> Iterator[str]:
    """The formats of coded dtypes as constants of ``reference_codes.h``: the positive numbers, by their
    codes, and what a number would be that followed the largest one."""
    for dtype in dtypes:
        form = FORMATS.get(dtype)
        sizes = list(numbers(dtype)[: form.largest + 1 if form else -1])
        sizes.append(2 * sizes[-1] - sizes[-2] if form else 2 * sizes[-1])
        yield f"static const double sizes_{dtype}[] = {{{', '.join(map(float.hex, sizes))}}};"
        yield f"static const float numbers_{dtype}[] = {{{', '.join(map(_float, numbers(dtype)))}}};"
        powers = dtype == POWERS
        nan, sign = (form.nan, form.sign) if form else (255, 0)
        beyond = form.beyond if form and form.signed_beyond else -1
        no_zero = int(bool(form and not form.signed_zero))
        facts = f"sizes_{dtype}, {len(sizes) - 2}, {nan}, {beyond}, {sign}, {no_zero}, {int(powers)}"
        yield f"static const code_format format_{dtype} = {{{facts}}};"


def _float(number: float) -> str:
    if number != number:
        return "NAN"
    return float.hex(number) if abs(number) < float("inf") else f"{'-' if number < 0 else ''}INFINITY"
