"""The algebraic laws that moves declare, each with what verification and rooflines must know about it.

Floats obey none of them to the last bit; ``docs/semantics.md`` says what each gives up. Integers wrap,
so they obey the laws of every ring exactly, and no law with a division. The check of a move and the
dependence leg ask :func:`holds`. In the random models integers are integers, so a law concerns floats there.

Games and records hold a law by its text. A rounding is a law, too (:func:`.dtypes.rounding_law`); it has no
row here, since its text holds everything that must be known about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, INTEGER_DTYPES

RECIPROCAL = "x/y = x*(1/y)"
EXPONENT = "exp(a)*exp(b) = exp(a+b)"
FACTOR = "a*c + b*c = (a+b)*c"
SQUARES = "sum((x-c)^2) = sum((x-m)^2) + n*(m-c)^2"
FILTER = "m outputs of r taps = m+r-1 products"
FLUSHED = "x = 0 where |x| < 2^-126"
"""In sums whose factors, steps and results count as zero where they are below the normal numbers of f32."""
TO_ODD = "a+b = (a+b)*(1+d), |d| < 2^-23"
"""In sums whose steps are rounded to the odd one of two neighbours of f32, instead of the nearer one."""


@dataclass(frozen=True)
class Law:
    """An equation of the reals that a move may use."""

    text: str
    """As games, records and messages have it."""
    dtypes: tuple[str, ...] = FLOAT_DTYPES
    """Numbers that obey it, but for rounding."""
    of_rings: bool = False
    """True if it follows from what every ring has, so that every random model obeys it."""
    bounded_in_rows: bool = False
    """True if the numeric leg's error bound of a single row accounts for what the law changes."""
    other_terms: bool = False
    """True if results become sums of other terms. Then results that are computed together share infinities
    and NaN, no row can be judged alone, and the roofline is that of the final program."""


#: Text -> law.
LAWS: Mapping[str, Law] = {
    law.text: law
    for law in (
        Law(RECIPROCAL, bounded_in_rows=True),
        Law(EXPONENT),
        Law(FACTOR, (*FLOAT_DTYPES, *INTEGER_DTYPES), of_rings=True),
        Law(SQUARES, of_rings=True),  # of floats alone: the mean is a quotient
        Law(FLUSHED, ("f32", "bf16", "tf32"), of_rings=True),
        Law(TO_ODD, ("f32", "bf16", "tf32"), of_rings=True),
        Law(FILTER, of_rings=True, other_terms=True),  # of floats alone: sums of taps are halved
    )
}


def holds(law: str, dtype: str) -> bool:
    """True if numbers of ``dtype`` obey ``law``."""
    return dtype in LAWS[law].dtypes


def bounded_in_rows(law: str) -> bool:
    """True if a game that declares ``law``, or a rounding, may be judged row by row."""
    return law in LAWS and LAWS[law].bounded_in_rows


def computes_other_terms(laws: Iterable[str]) -> bool:
    """True if one of the laws of a game makes its results sums of other terms."""
    return any(law in LAWS and LAWS[law].other_terms for law in laws)
