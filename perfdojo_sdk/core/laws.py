"""The algebraic laws that moves declare, and over which dtypes each of them holds.

Floats obey none of them to the last bit; ``docs/semantics.md`` says what each gives up. Integers wrap,
so they obey the laws of every ring as they stand, and none that divides. The check of a move and the
dependence leg ask :func:`holds`; in the random models integers are integers, so a law is one of floats there.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, INTEGER_DTYPES

RECIPROCAL = "x/y = x*(1/y)"
EXPONENT = "exp(a)*exp(b) = exp(a+b)"
FACTOR = "a*c + b*c = (a+b)*c"
SQUARES = "sum((x-c)^2) = sum((x-m)^2) + n*(m-c)^2"
FILTER = "m outputs of r taps = m+r-1 products"

#: Law -> the dtypes of numbers that obey it, but for rounding.
DTYPES_OF: Mapping[str, tuple[str, ...]] = {
    RECIPROCAL: FLOAT_DTYPES,
    EXPONENT: FLOAT_DTYPES,
    FACTOR: (*FLOAT_DTYPES, *INTEGER_DTYPES),
    SQUARES: FLOAT_DTYPES,  # the mean is a quotient
    FILTER: FLOAT_DTYPES,  # sums of taps are halved
}


def holds(law: str, dtype: str) -> bool:
    """True if numbers of ``dtype`` obey ``law``."""
    return dtype in DTYPES_OF[law]
