"""Values of the language in C: types, literals, subscripts, conversions, operations.

Floats use C's operators; integers call a function for each operation, since the language's integers wrap and
C's do not. A name such as ``pd_max_i32`` contains the operation and the dtype of its operands.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from perfdojo_sdk.codegen.operations import NUMBERS, SPELLINGS
from perfdojo_sdk.core.domains import rounded
from perfdojo_sdk.core.dtypes import (
    BYTES,
    CODED_DTYPES,
    FLOAT_DTYPES,
    NARROW_DTYPES,
    ROUNDED_DTYPES,
    UNCOMPUTED_DTYPES,
    carrier,
)
from perfdojo_sdk.core.expression import (
    COMPARISON,
    AffineExpr,
    Cast,
    Condition,
    Expression,
    Literal,
    Operation,
    Quotient,
)
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.operations import INFIX, OPERATIONS
from perfdojo_sdk.core.storage import Buffer

C_TYPES: Mapping[str, str] = {
    **NUMBERS,
    **{dtype: f"pd_{dtype}" for dtype in ROUNDED_DTYPES},
    **{dtype: NUMBERS[carrier(dtype)] for dtype in UNCOMPUTED_DTYPES},
}
"""dtype -> C type. Those of ROUNDED_DTYPES hold bits: what is computed with them is computed in f32. Dtypes
without operations are bytes."""


def c_type(buffer: Buffer) -> str:
    """The C type of a buffer's memory: bytes where elements are packed."""
    return "uint8_t" if buffer.packed else C_TYPES[buffer.dtype]


def c_packed(dtype: str, array: str, index: str) -> str:
    """An element of a packed array, as a byte holds it elsewhere."""
    return f"pd_packed_{dtype}({array}, {index})"


def in_f32(value: Operation) -> Expression:
    """An operation on operands of ROUNDED_DTYPES: computed in f32, then rounded."""
    arguments = tuple([Cast(a, "f32") for a in value.arguments])
    if OPERATIONS[value.name].compares:
        return Operation(value.name, arguments, value.dtype)
    return Cast(Operation(value.name, arguments, "f32"), value.dtype)


def is_rounded(value: Operation) -> bool:
    """True if an operation computes with operands of ROUNDED_DTYPES, rather than choose one."""
    return value.operand_dtype in ROUNDED_DTYPES and not OPERATIONS[value.name].chooses


def c_operation(value: Operation, arguments: Sequence[str], kind: str = "") -> str:
    """``value`` in C on emitted arguments; ``kind`` ends the names of functions (the operands' dtype)."""
    kind = kind or value.operand_dtype
    meaning = OPERATIONS[value.name]
    if meaning.chooses:
        condition, one, other = arguments
        return f"({condition} ? {one} : {other})"
    if value.name in INFIX and (meaning.compares or value.operand_dtype in FLOAT_DTYPES):
        sign, level = INFIX[value.name]
        left, right = value.arguments
        before = _wrap(left, arguments[0], level + (level == COMPARISON))
        return f"{before} {sign} {_wrap(right, arguments[1], level + 1)}"
    if value.name == "neg" and value.dtype in FLOAT_DTYPES:
        return f"-({arguments[0]})"
    if SPELLINGS[value.name].of_number and value.dtype in FLOAT_DTYPES:
        number = [isinstance(a, Literal) for a in value.arguments]
        if any(number):
            # A literal is never NaN; as the first operand it needs one instruction.
            first, second = arguments if number[0] else reversed(arguments)
            return f"pd_{value.name}_number_{kind}({first}, {second})"
    return f"pd_{value.name}_{kind}({', '.join(arguments)})"


def c_cast(value: Cast, argument: str) -> str:
    return c_conversion(value.argument.dtype, value.dtype, argument)


def c_conversion(source: str, target: str, argument: str) -> str:
    """``argument``, a value of ``source``, as one of ``target``."""
    if source == target:
        return f"({argument})"
    if source in NARROW_DTYPES:
        # Further bits of a byte that a caller gives mean nothing.
        return c_conversion(carrier(source), target, f"pd_wrap_{source}({argument})")
    if target in NARROW_DTYPES:
        held = c_conversion(source, carrier(target), argument)
        return f"pd_{narrowing(source)}_{target}({held})"
    if source in (*ROUNDED_DTYPES, *CODED_DTYPES):
        exact = f"pd_f32_from_{source}({argument})"
        return exact if target == "f32" else c_conversion("f32", target, exact)
    if target in (*ROUNDED_DTYPES, *CODED_DTYPES):
        if source not in ("f32", "f64"):
            source, argument = "f64", f"(double)({argument})"
        return f"pd_{target}_from_{source}({argument})"
    if target == "bool":
        return f"(({argument}) != 0)"
    if source in FLOAT_DTYPES and target not in FLOAT_DTYPES:
        return f"pd_{target}_from_{source}({argument})"
    return f"({C_TYPES[target]})({argument})"


def narrowing(source: str) -> str:
    """The function that makes a narrow integer of a byte that was converted from ``source``: floats saturate,
    integers wrap."""
    return "cut" if source in FLOAT_DTYPES else "wrap"


def _wrap(argument: Expression, text: str, least: int) -> str:
    infix = isinstance(argument, Operation) and argument.name in INFIX
    return f"({text})" if infix and argument.precedence < least else text


def c_index(index: AffineExpr, lookup: Callable[[Lookup], str] | None = None) -> str:
    """A form as a C expression over ``int64_t i0, i1 ...``; no dividend is negative.

    ``lookup`` gives the C of run-time indices, which only subscripts of elements that are read have.
    """
    parts = [_term(f"i{level}", coefficient) for level, coefficient in index.terms]
    for quotient, coefficient in index.quotients:
        if isinstance(quotient, Lookup):
            assert lookup, "a run-time index stands in a subscript of an element that is read"
            parts.append(_term(lookup(quotient), coefficient))
            continue
        assert isinstance(quotient, Quotient)
        sign = "%" if quotient.remainder else "/"
        dividend = c_index(quotient.dividend)
        if " " in dividend or "*" in dividend:
            dividend = f"({dividend})"
        text = f"{dividend}{sign}{quotient.divisor}"
        parts.append(_term(text if abs(coefficient) == 1 else f"({text})", coefficient))
    if index.constant or not parts:
        parts.append(f"{'-' if index.constant < 0 else '+'} {abs(index.constant)}")
    text = " ".join(parts)
    return text.removeprefix("+ ") if text.startswith("+") else "-" + text.removeprefix("- ")


def _term(text: str, coefficient: int) -> str:
    factor = "" if abs(coefficient) == 1 else f"*{abs(coefficient)}"
    return f"{'-' if coefficient < 0 else '+'} {text}{factor}"


def c_condition(guard: Sequence[AffineExpr]) -> str:
    """Conditions ``form >= 0`` as C, each as the program's text writes it."""
    sides = [Condition(form).sides for form in guard]
    return " && ".join(f"{c_index(left)} {sign} {right}" for left, sign, right in sides)


def c_literal(value: Literal) -> str:
    """A literal as C; of f32 the float nearest to it, or infinity beyond the largest one."""
    if value.dtype not in FLOAT_DTYPES:
        return _c_integer(int(value.value), value.dtype)
    if value.dtype in ROUNDED_DTYPES:
        bits = stored_bits(float(value.value), value.dtype)
        return f"pd_{value.dtype}_of({bits:#0{2 + 2 * BYTES[value.dtype]}x})"
    number = float(value.value) if value.dtype == "f64" else to_f32(float(value.value))
    if number in (float("inf"), float("-inf")):
        return "PD_INF" if number > 0 else "-PD_INF"
    if value.dtype == "f64":
        text = repr(number)
        return text if any(sign in text for sign in ".e") else f"{text}.0"
    short, exact = f"{number:.6g}", f"{number:.9g}"
    text = short if to_f32(float(short)) == number else exact
    return f"{text}f" if any(sign in text for sign in ".e") else f"{text}.0f"


def c_constant(value: float | int, dtype: str) -> str:
    """An element of a constant array in C, where no function may be called."""
    if dtype in ROUNDED_DTYPES:
        return f"{{{stored_bits(float(value), dtype):#x}}}"
    return c_literal(Literal(value, dtype))


def _c_integer(value: int, dtype: str) -> str:
    if dtype == "i64":
        # The smallest i64 has no literal in C.
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"
    if dtype == "u64":
        return f"UINT64_C({value})"
    if dtype == "u32":
        return f"{value}u"
    return "INT32_MIN" if value == -(2**31) else str(value)


def stored_bits(number: float, dtype: str) -> int:
    """``number`` rounded to a dtype of ROUNDED_DTYPES: f16's own bits, else the upper ones of a float32."""
    if dtype == "f16":
        return int.from_bytes(struct.pack("<e", rounded(number, dtype)), "little")
    (bits,) = struct.unpack("<I", struct.pack("<f", rounded(number, dtype)))
    return int(bits) >> 32 - 8 * BYTES[dtype]


def to_f32(number: float) -> float:
    """``number`` rounded to float32."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
    return float(rounded)
