"""C of the values in a reference program: names, affine forms, constants and casts."""

from __future__ import annotations

from collections.abc import Callable

from perfdojo_sdk.core.domains import rounded
from perfdojo_sdk.core.dtypes import CODED_DTYPES, FLOAT_DTYPES, STORED_DTYPES, integer_bounds, wrap
from perfdojo_sdk.core.expression import AffineExpr, Cast, Literal, Quotient
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.program import Statement
from perfdojo_sdk.verify.reference_types import C_TYPES


def number_type(dtype: str) -> str:
    return f"num_{dtype}" if dtype in FLOAT_DTYPES else "whole"


def integer_kind(dtype: str) -> str:
    """The first word of functions on an integer dtype: numbers of u64 are unsigned words."""
    return "word" if dtype == "u64" else "whole"


def cast(value: Cast, argument: str) -> str:
    source, target = value.argument.dtype, value.dtype
    if source == target:
        return argument
    if target in CODED_DTYPES:
        return f"to_code_{source}({argument}, &format_{target})"
    if source in CODED_DTYPES:
        # Every code is a number of f32.
        number = f"from_code_f32({argument}, numbers_{source})"
        return number if target == "f32" else f"convert_f32_{target}({number})"
    if target in FLOAT_DTYPES:
        function = f"convert_{source}" if source in FLOAT_DTYPES else f"from_{integer_kind(source)}"
        return f"{function}_{target}({argument})"
    if source not in FLOAT_DTYPES:
        return f"wrap_{target}({argument})"
    if target == "bool":
        return f"to_bool_{source}({argument})"
    if target == "u64":
        return f"to_word_{source}({argument})"
    least, most = map(integer, integer_bounds(target))
    return f"to_whole_{source}({argument}, {least}, {most})"


def condition(statement: Statement) -> str:
    return " && ".join(f"{form_of(form)} >= 0" for form in statement.guard)


def form_of(index: AffineExpr, lookup: Callable[[Lookup], str] | None = None) -> str:
    """A form in C; ``lookup`` gives the C of run-time indices."""
    parts = [f"i{level} * {coefficient}L" for level, coefficient in index.terms]
    for quotient, coefficient in index.quotients:
        if isinstance(quotient, Lookup):
            assert lookup, "a run-time index stands in a subscript of an element that is read"
            parts.append(f"{lookup(quotient)} * {coefficient}L")
            continue
        assert isinstance(quotient, Quotient)
        sign = "%" if quotient.remainder else "/"
        parts.append(f"({form_of(quotient.dividend)}) {sign} {quotient.divisor}L * {coefficient}L")
    return " + ".join([*parts, f"{index.constant}L"])


def literal(literal: Literal) -> str:
    if literal.dtype not in FLOAT_DTYPES:
        return f"whole_of({integer(wrap(int(literal.value), 'i64'))})"
    value = float(literal.value)
    if value in (float("inf"), float("-inf")):
        return f"literal_{literal.dtype}({'' if value > 0 else '-'}INFINITY)"
    if literal.dtype in STORED_DTYPES and value == rounded(value, literal.dtype):
        return f"literal_{literal.dtype}({value!r}f)"
    if literal.dtype in STORED_DTYPES:
        # It was f32 before it was rounded, which the bound has to know.
        return f"convert_f32_{literal.dtype}(literal_f32((float){value!r}))"
    return f"literal_{literal.dtype}(({C_TYPES[literal.dtype]}){value!r})"


def integer(value: int) -> str:
    return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"


def input_name(array: str) -> str:
    return f"a_{array}"


def output_name(array: str) -> str:
    """The C name of an output, with a prefix, as an input may have the name of one of its parts."""
    return f"r_{array}"
