"""Spelling in C and cost of each operation: one row for each row of ``core/operations.py``.

A row that holds C becomes a function ``pd_NAME_DTYPE`` of ``a`` and ``b`` in the generated header
``pd_operations.h``, which all generators of C share. Functions that need more than an expression are in the
headers of ``include/``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, bits
from perfdojo_sdk.core.formats import FORMATS
from perfdojo_sdk.core.operations import OPERATIONS

#: The header that the rows make.
HEADER = "pd_operations.h"

#: C types of the dtypes that compiled code computes in.
NUMBERS: Mapping[str, str] = {
    "f32": "float",
    "f64": "double",
    "i64": "int64_t",
    "i32": "int32_t",
    "i16": "int16_t",
    "i8": "int8_t",
    "u64": "uint64_t",
    "u32": "uint32_t",
    "u16": "uint16_t",
    "u8": "uint8_t",
    "bool": "uint8_t",
}

#: A function that a header of ``include/`` defines.
WRITTEN = "written"


class Vector(Enum):
    """The way in which an operation on vectors is computed."""

    OPERATOR = "the compiler's operator, or a selection by masks"
    FUNCTION = "a function of a header, named after the operation and the type of its operands"
    LANES = "the scalar function, lane by lane"
    NONE = "no vector of numbers has it"


@dataclass(frozen=True)
class Spelling:
    """An operation in C. One with an infix sign is written with it on floats, and a comparison on all
    dtypes."""

    vector: Vector
    """On floats."""
    cost: float = 1.0
    """Its time, as a multiple of an addition's, unless a target knows better."""
    f64: str = ""
    """Spelling for doubles; :data:`WRITTEN` where a header defines it, empty where no function is called."""
    f32: str = ""
    """Spelling for floats, as ``f64``; empty: that function, rounded once, with an error just above half an
    ulp."""
    whole: str = ""
    """Spelling for integers: ``C`` is their type, ``U`` an unsigned one, at least as wide as ``int``; sums
    wrap."""
    unsigned: str = ""
    """Spelling for unsigned integers, where it differs."""
    truth: str = ""
    """Spelling for bool, where it differs: 0 or 1."""
    mask: str = ""
    """The operator on masks, which have all bits of a lane set where a condition holds."""
    of_number: bool = False
    """True if there is a cheaper function for a literal as the first operand: ``pd_NAME_number_DTYPE``."""
    of_doubles: Vector = Vector.LANES
    """The way in which a function on vectors of doubles is computed; one of ``pd_doubles.h``, or lane by
    lane."""
    of_integers: Vector = Vector.NONE
    """The way in which the operation on vectors of integers is computed; a function is one of
    ``pd_vectors.h``."""
    horizontal: str = ""
    """For an accumulation: the name of the function that combines the lanes of a vector."""


#: Least cost of an operation whose result is worth keeping.
FUNCTION_COST = 20.0


def _function(cost: float, f64: str, of_doubles: Vector = Vector.LANES) -> Spelling:
    """A function that ``pd_math.h`` has for f32 and for vectors."""
    return Spelling(Vector.FUNCTION, cost, f64, WRITTEN, of_doubles=of_doubles)


def _wide(cost: float, f64: str) -> Spelling:
    """A function that ``pd_doubles.h`` has, too, for vectors of f64."""
    return _function(cost, f64, Vector.FUNCTION)


def _rounding(name: str) -> Spelling:
    return Spelling(Vector.FUNCTION, f64=f"__builtin_{name}(a)", f32=f"__builtin_{name}f(a)")


def _shift(sign: str, type: str) -> Spelling:
    return Spelling(Vector.NONE, whole=f"(C)(({type})a {sign} b)", of_integers=Vector.FUNCTION)


def _bits(sign: str) -> Spelling:
    return Spelling(Vector.NONE, whole=f"(C)(a {sign} b)", mask=sign, of_integers=Vector.FUNCTION)


_COMPARISON = Spelling(Vector.OPERATOR, of_integers=Vector.OPERATOR)

SPELLINGS: Mapping[str, Spelling] = {
    "add": Spelling(
        Vector.OPERATOR, whole="(C)((U)a + (U)b)", of_integers=Vector.FUNCTION, horizontal="sum"
    ),
    "sub": Spelling(Vector.OPERATOR, whole="(C)((U)a - (U)b)", of_integers=Vector.FUNCTION),
    "mul": Spelling(
        Vector.OPERATOR, whole="(C)((U)a * (U)b)", of_integers=Vector.FUNCTION, horizontal="product"
    ),
    "div": Spelling(
        Vector.OPERATOR, 8.0, whole="b == -1 ? (C)(0 - (U)a) : (C)(a / b)", unsigned="(C)(a / b)",
        of_integers=Vector.FUNCTION,
    ),
    "rem": Spelling(
        Vector.NONE, 8.0, whole="b == -1 ? 0 : (C)(a % b)", unsigned="(C)(a % b)",
        of_integers=Vector.FUNCTION,
    ),
    # If a is NaN, so is a + b.
    "max": Spelling(
        Vector.FUNCTION, f64="a == a ? (a > b ? a : b) : a + b", f32=WRITTEN, whole="a > b ? a : b",
        truth="a | b", mask="|", of_number=True, of_integers=Vector.FUNCTION, horizontal="highest",
    ),
    "min": Spelling(
        Vector.FUNCTION, f64="a == a ? (a < b ? a : b) : a + b", f32=WRITTEN, whole="a < b ? a : b",
        truth="a & b", mask="&", of_number=True, of_integers=Vector.FUNCTION, horizontal="lowest",
    ),
    "neg": Spelling(Vector.OPERATOR, whole="(C)(0 - (U)a)", of_integers=Vector.FUNCTION),
    "abs": Spelling(
        Vector.FUNCTION, f64="__builtin_fabs(a)", f32=WRITTEN, whole="a < 0 ? (C)(0 - (U)a) : a",
        unsigned="a", of_integers=Vector.FUNCTION,
    ),
    "sqrt": _function(10.0, "__builtin_sqrt(a)"),
    "exp": _wide(20.0, "exp(a)"),
    "log": _wide(20.0, "log(a)"),
    "tanh": _wide(30.0, WRITTEN),
    "erf": _wide(30.0, "erf(a)"),
    "exp2": _wide(20.0, "exp2(a)"),
    "expm1": _wide(25.0, "expm1(a)"),
    "log2": _wide(20.0, "log2(a)"),
    "log1p": _wide(25.0, "log1p(a)"),
    "sigmoid": _wide(30.0, WRITTEN),
    "rsqrt": _wide(20.0, "1 / __builtin_sqrt(a)"),
    "cbrt": _wide(60.0, WRITTEN),
    "sin": _wide(30.0, "sin(a)"),
    "cos": _wide(30.0, "cos(a)"),
    "tan": _wide(40.0, "tan(a)"),
    "asin": _wide(30.0, "asin(a)"),
    "acos": _wide(30.0, "acos(a)"),
    "atan": _wide(30.0, "atan(a)"),
    "sinh": _wide(40.0, "sinh(a)"),
    "cosh": _wide(40.0, "cosh(a)"),
    "asinh": _wide(60.0, "asinh(a)"),
    "acosh": _wide(60.0, "acosh(a)"),
    "atanh": _wide(60.0, "atanh(a)"),
    "pow": _wide(60.0, "pow(a, b)"),
    "fmod": Spelling(Vector.LANES, 60.0, f64="fmod(a, b)"),
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("rint"),
    "trunc": _rounding("trunc"),
    "and": _bits("&"),
    "or": _bits("|"),
    "xor": _bits("^"),
    "not": Spelling(Vector.NONE, whole="(C)~a", truth="!a", mask="~", of_integers=Vector.FUNCTION),
    "shl": _shift("<<", "U"),
    "shr": _shift(">>", "C"),
    "lt": _COMPARISON,
    "le": _COMPARISON,
    "gt": _COMPARISON,
    "ge": _COMPARISON,
    "eq": _COMPARISON,
    "ne": _COMPARISON,
    "select": Spelling(Vector.OPERATOR, of_integers=Vector.OPERATOR),
}  # fmt: skip


#: Largest errors in ulp of the functions that every target has from ``pd_math.h``: those of f32, which
#: ``benchmarks/functions.py`` measured over all numbers (pow: on its grid), rounded up, or, where they are
#: larger, those of f64: measured on samples, or what the C library publishes. A target whose exp is its own
#: states that itself.
ACCURACY: Mapping[str, float] = {
    "exp": 1.0,
    "log": 1.0,
    "tanh": 2.0,
    "erf": 1.5,
    "exp2": 1.0,
    "expm1": 1.5,
    "log2": 1.5,
    "log1p": 1.5,
    "sigmoid": 2.0,
    "rsqrt": 1.5,
    "cbrt": 1.25,
    "sin": 1.0,
    "cos": 1.0,
    "tan": 1.6,
    "asin": 1.5,
    "acos": 1.25,
    "atan": 2.0,
    "sinh": 2.0,
    "cosh": 2.0,
    "asinh": 2.0,
    "acosh": 2.0,
    "atanh": 2.0,
    "pow": 1.5,
}


# -- the header ------------------------------------------------------------------------------------


def header() -> str:
    """The text of :data:`HEADER`."""
    return "\n".join(
        [
            "/* What operations mean in C where an expression says it: made of the table of operations.",
            " *",
            " * Integers wrap: sums and products are made of unsigned numbers. Division truncates; by -1 it",
            " * wraps like a negation. A shift count is within the width (the language says so).",
            " */",
            "#ifndef PD_OPERATIONS_H",
            "#define PD_OPERATIONS_H",
            "",
            *(line for name, row in SPELLINGS.items() for line in _functions(name, row)),
            "",
            "/* Functions of one operand, and of two, that have no vector form of their own. */",
            *map(_by_lane, (1, 2)),
            "",
            "/* Functions of floats, of one operand and of two; of doubles, those that go lane by lane. */",
            *map(_of_floats, (1, 2)),
            *map(_of_doubles, (1, 2)),
            "",
            "/* X(name, V, bits of the fraction, bias, largest size, size beyond it, code of NaN,",
            " * bit of the sign, 1 with a zero of either sign, 1 if what is beyond has a sign, the number",
            " * whose last digit is the least number, the least number): of each coded dtype. */",
            f"#define PD_EACH_FORMAT(X, V) {' '.join(map(_format, FORMATS))}",
            "",
            "#endif",
            "",
        ]
    )


def _format(dtype: str) -> str:
    form = FORMATS[dtype]
    least = 1 - form.bias - form.fraction
    facts = (form.fraction, form.bias, form.largest, form.beyond, form.nan, form.sign)
    flags = (int(form.signed_zero), int(form.signed_beyond))
    listed = ", ".join(map(str, (*facts, *flags, f"0x1p{least + 23}f", f"0x1p{least}f")))
    return f"X({dtype}, V, {listed})"


def _by_lane(arity: int) -> str:
    lanes = [n for n, row in SPELLINGS.items() if row.vector is Vector.LANES and OPERATIONS[n].arity == arity]
    return f"#define PD_FUNCTIONS_BY_LANE_{arity}(X) {' '.join(f'X({name})' for name in lanes)}".rstrip()


def _of_floats(arity: int) -> str:
    """The functions that vectors of floats call, and no others."""
    called = (Vector.LANES, Vector.FUNCTION)
    names = [n for n, row in SPELLINGS.items() if row.vector in called and OPERATIONS[n].arity == arity]
    found = [f"X({name})" for name in names if OPERATIONS[name].dtypes == FLOAT_DTYPES]
    return f"#define PD_FUNCTIONS_{arity}(X) {' '.join(found)}"


def _of_doubles(arity: int) -> str:
    """The functions of doubles that no header has for vectors."""
    rows = [(n, row) for n, row in SPELLINGS.items() if OPERATIONS[n].arity == arity]
    called = [
        n
        for n, row in rows
        if row.vector in (Vector.LANES, Vector.FUNCTION) and row.of_doubles is Vector.LANES
    ]
    found = [f"X({name})" for name in called if OPERATIONS[name].dtypes == FLOAT_DTYPES]
    return f"#define PD_DOUBLES_BY_LANE_{arity}(X) {' '.join(found)}"


def _functions(name: str, row: Spelling) -> Iterator[str]:
    meaning = OPERATIONS[name]
    for dtype in ("f64", *[dtype for dtype in NUMBERS if dtype != "f64"]):  # f32 may call f64's functions
        if dtype in meaning.dtypes and (body := _body(name, row, dtype)):
            kind = NUMBERS[dtype]
            parameters = ", ".join(f"{kind} {operand}" for operand in "ab"[: meaning.arity])
            yield f"PD_INLINE {kind} pd_{name}_{dtype}({parameters}) {{ return {body}; }}"


def _body(name: str, row: Spelling, dtype: str) -> str:
    """The value in C; empty if no function is called, or if a header defines it."""
    if dtype == "f64":
        return "" if row.f64 == WRITTEN else row.f64
    if dtype == "f32":
        if row.f32 or not row.f64:
            return "" if row.f32 == WRITTEN else row.f32
        operands = ", ".join(f"(double){operand}" for operand in "ab"[: OPERATIONS[name].arity])
        return f"(float)pd_{name}_f64({operands})"
    text = row.whole
    if dtype == "bool":
        text = row.truth or row.whole
    elif dtype in INTEGER_DTYPES and dtype.startswith("u"):
        text = row.unsigned or row.whole
    types = {"C": NUMBERS[dtype], "U": "uint64_t" if dtype != "bool" and bits(dtype) > 32 else "uint32_t"}
    return re.sub(r"\b[CU]\b", lambda found: types[found[0]], text)
