"""Why a fault cannot show in some kernel, in words: that runs agree is no proof by itself.

A survivor whose outputs were equal in many runs, and that has no reason here, stays a survivor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Regular expressions of the whole of a plant's name and of an operator, and of parts of the line and of
    the kernel's source."""

    plants: str
    operators: str
    line: str
    why: str
    source: str = ""


_ZERO_TAIL = r"pd_select_first_f32v\(\d+, pd_load_first_f32v\([^()]*\), pd_splat_f32v\(0\.0f\)\)"
_NORMS = r"(layer|batch)norm\d"

REASONS: Sequence[Reason] = (
    Reason(
        r"tail-not-selected|tail-selects-one-more",
        r".*",
        _ZERO_TAIL,
        "beyond the tail a load gives zeros, which is what the selection puts there",
    ),
    Reason(
        r"tail-selects-one-more",
        r"softmax",
        r"^(e_\d+) = pd_select_first_f32v\(.*, \1\);",
        "a lane of the register that is neither summed up nor stored: both take the first lanes alone",
    ),
    Reason(
        r"(vector|scalar)-maximum-\S+",
        r"softmax",
        r"",
        "a NaN that the maximum loses is in its own exponential, and so in the sum that all of the row has",
    ),
    Reason(
        r"maximum-from-largest",
        r"softmax",
        r"",
        "only -inf is less, and a row of nothing else is NaN either way: exp(-inf + inf), or 0/0",
    ),
    Reason(
        r"nan-to-zero-loaded",
        _NORMS,
        r"&x\[",
        "mean, variance and result each read the element: it gets to the whole row through the others",
    ),
    Reason(
        r"(negative-)?infinity-to-largest-loaded",
        _NORMS,
        r"^q\w* \+?= |^pd_store_(first_)?f32v\(&y",
        "the mean is infinite, so that all of the row is NaN: infinite distances times 0, or times NaN",
    ),
    Reason(
        r"nan-to-zero-loaded",
        r"softmax",
        r"pd_max_f32v",
        "the element is read again by its exponential, and is in the sum that all of the row has",
    ),
    Reason(
        r"(beyond-1e37|below-minus-1e37)-to-infinity-loaded",
        _NORMS,
        r"^q\w* \+?= ",
        "the square of what is that far from any finite mean of the row overflows all the same",
    ),
    Reason(
        r"own-exp-coefficient(-slightly)?",
        r".*",
        r"",
        "|r| <= ln(2)/16: the term changes the result by less than one unit in its last place",
    ),
    Reason(
        r"exp-below-minus-87-is-zero|exp-clamped-at-minus-\d+|exp-not-clamped-below",
        r"swiglu",
        r"",
        "exp of that is added to one, where less than 2^-25 is nothing",
    ),
    Reason(
        r"exp-not-clamped-above",
        r"swiglu",
        r"^x = pd_max_number_f32v\(",
        "each float above 89 was tried: exp of it is infinite, of either sign; a quotient by that is zero",
    ),
    Reason(
        r"tail-loads-whole-vector|tail-load-one-more",
        r".*",
        r"",
        "what is computed beyond the tail goes nowhere: stores and selections take the first lanes alone",
    ),
    Reason(
        r"rows-done-twice",
        r"swiglu",
        r"",
        "an iteration computes from inputs alone, in its thread's own memory: it gives the same twice",
    ),
    Reason(
        r"sum-from-1e-30",
        rf"rmsnorm|{_NORMS}",
        r"^q\w* = ",
        "an epsilon of 1e-5 is added to the mean of squares, beside which 1e-30 is nothing",
    ),
    Reason(
        r"as-many-threads-as-wanted",
        r".*",
        r"",
        "blocks [size*t/n, size*(t+1)/n) cover all iterations for any n; some are empty then",
    ),
    Reason(
        r"areas-overlap-by-a-line",
        r"swiglu",
        r"pd_slot",
        "each iteration uses columns of its own of p and q, written at its start, and one column is no line",
    ),
)


#: Of C with vectors.
OF_C: Sequence[Reason] = (
    Reason(
        r"reciprocal-of-estimate-and-a-step",
        r"softmax",
        r"^s_i = 1\.0f / s;",
        "s is at least 1: there the quotient is wrong by 3.5 * 2^-24 at most (each float from 0.5 to 128 was"
        " tried), where 1 is allowed; 2 ulp are allowed to each exponential, 1.51 used (each third float was"
        " tried), in the numerator and in s; roundings of additions to zero are allowed, which are exact",
    ),
    Reason(
        r"other-vectors-not-asked-for|longer-vectors-taken",
        r".*",
        r"sizeof\(pd_f32v\);",
        "the leg called it where vectors have 256 bits, too: same results. Whole vectors and swaps are"
        " compiled to instructions of 128 bits, masks are for as many lanes as asked for",
    ),
    Reason(
        r"areas-overlap|areas-at-one-offset",
        r"matmul",
        r"\bb_r(_2)? = ",
        "the first area is read for the last time before the second is first written, and pd_parallel_for"
        " returns when all threads are done: no value of the first is wanted any more",
        r"(?s)const b_r_2 = \(float \*\)\(pd_base \+ \d+\);"
        r"(?:(?!\bb_r_2\b).)*\bb_r_2\b(?:(?!\bb_r\b).)*\Z",
    ),
)


def reason(plant: str, operator: str, line: str, source: str = "") -> str:
    """Why this plant shows in no results of this operator, planted in this line of a kernel; empty: nobody
    knows."""
    for known in (*REASONS, *OF_C):
        if (
            re.fullmatch(known.plants, plant)
            and re.fullmatch(known.operators, operator)
            and re.search(known.line, line)
            and re.search(known.source, source)
        ):
            return known.why
    return ""
