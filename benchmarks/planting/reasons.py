"""Reasons why a fault cannot show in some kernel, since equal results of runs alone are no proof.

A survivor whose outputs were equal in many runs, and that has no reason here, stays a survivor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from planting.reason import Reason
from planting.reasons_assembly import ASSEMBLY_REASONS

_ZERO_TAIL = r"pd_select_first_f32v\(\d+, pd_load_first_f32v\([^()]*\), pd_splat_f32v\(0\.0f\)\)"
_NORMS = r"(layer|batch)norm\d"
#: A store of a part of a vector, and a store right behind it in the next statement.
_FOLLOWED_BY_NEXT = (
    r"¶ *pd_store_first_f32v\(&([cy])\[([^\]]*?)(?:"
    + "|".join(
        (rf" \+ {k}" if k else "") + rf"\], {n}, .*\n *pd_store(?:_first)?_f32v\(&\1\[\2 \+ {k + n}\]"
        for n in range(2, 16)
        for k in range(600)
    )
    + ")"
)
#: Faults in numbers that are negative, or 2 and larger.
_ABOVE_ONE = (
    r"hundredth-near-fifty|between-5-and-6|between-minus-6-and-minus-5|exponent-of-(512|2-to-the-60)"
    r"|largest-exponent|largest-halved|largest-to-infinity|(beyond|below-minus)-1e37-to-infinity|large-to-zero"
    r"|sign-between-1e3-and-1e15|whole-numbers-above-1e5|through-32-bit-integers|(negative-)?infinity-to-largest"
    r"|powers-of-two"
)

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
        r"(below-minus-1e37-to-infinity|negative-infinity-to-largest)-loaded",
        r"relu",
        r"pd_max_number_f32v\(0\.0f, pd_load",
        "the maximum with 0 of any negative number is 0, and so is that of -inf",
    ),
    Reason(
        rf"({_ABOVE_ONE})-stored(-alone)?",
        r"softmax",
        r"",
        "the sum of a row is no less than any of its terms: no result reaches 2, and none is negative",
    ),
    Reason(
        rf"({_ABOVE_ONE})-loaded",
        r"softmax",
        r"pd_load\w*\(&e\[",
        "an exponential of a distance from a maximum is between 0 and 1, or NaN",
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
        r"nan-to-zero-loaded",
        r"softmax",
        r"^(s\w*) = \1 \+ pd_load\w*\(&e\[",
        "a NaN in a row makes all its exponentials NaN, and an infinity all others zero: the sum is NaN, or"
        " zero, and 0/0 is NaN",
    ),
    Reason(
        r"nan-to-zero-loaded",
        r"softmax",
        r"pd_exp_f32v\(pd_load\w*\(&x\[[^]]*\](?:, \d+)?\) - pd_splat_f32v\(m\)\)",
        "the maximum, from which the element is subtracted, is NaN as well",
    ),
    Reason(
        r"(beyond-1e37|below-minus-1e37)-to-infinity-loaded",
        _NORMS,
        r"^q\w* \+?= ",
        "the square of what is that far from any finite mean of the row overflows all the same",
    ),
    Reason(
        r"largest-(exponent|to-infinity|halved)-loaded",
        _NORMS,
        r"^q\w* \+?= ",
        "the square of its distance from any finite mean of the row overflows all the same; where the mean is"
        " infinite, all of the row is NaN",
    ),
    Reason(
        r"own-exp-coefficient(-slightly)?",
        r".*",
        r"",
        "|r| <= ln(2)/16: the term changes the result by less than one unit in its last place",
    ),
    Reason(
        r"exp-below-minus-87-is-zero|exp-clamped-at-minus-\d+|exp-not-clamped-below|exp-clamps-swapped"
        r"|exponent-in-eight-bits",
        r"swiglu",
        r"",
        "exp of that is added to one, where less than 2^-25 is nothing, and above 89 it is infinite anyway",
    ),
    Reason(
        r"exp-one-over-ln2",
        r".*",
        r"",
        "the other neighbour is taken for n near the middle of two: exp is wrong by 1.17 ulp at most then, "
        "as it is without the fault (each seventh float was tried), where 2 are allowed",
    ),
    Reason(
        r"exp-coefficient",
        r"softmax",
        r"1\.66665211e-1f",
        "exp is wrong by 2.23 ulp at most then (each seventh float was tried); 2 are allowed in the "
        "numerator, and 2 in the sum",
    ),
    Reason(
        r"nan-to-zero-loaded",
        r"rmsnorm",
        r"^(q\w*) = \1 \+ (pd_load\w*\(&x\[[^]]*\]\)) \* \2;",
        "the other factor is the same element: zero times NaN is NaN",
    ),
    Reason(
        r"(below-1e-30|denormals)-to-zero-loaded",
        r"rmsnorm",
        r"^q\w* = q\w* \+ (pd_load\w*\(&x\[[^]]*\]\)) \* \1;",
        "the square of such a number is less than half of the smallest denormal",
    ),
    Reason(
        r"((below-1e-30|denormals)-to-zero|zero-to-tiny|smallest-normal-exponent)-loaded",
        _NORMS,
        r"^q\w* = q\w* \+ \((pd_load\w*\(&x\[[^]]*\]\)) - (\S+)\) \* \(\1 - \2\);",
        "a distance moves by 1e-30 at most, and its square by nothing beside the epsilon and the square",
    ),
    Reason(
        r"exponent-of-2-to-the-minus-40-loaded",
        r"softmax",
        r"&x\[",
        "the element moves by less than 2^-39, and so does its exponential, relative to itself",
    ),
    Reason(
        r"largest-exponent-loaded",
        _NORMS,
        r"^pd_store_(first_)?f32v\(&y",
        "the square of what is that far from any finite mean is infinite, so that 1/r is 0: the finite "
        "distance of either number, times that",
    ),
    Reason(
        r"tail-selects-one-more",
        r"batchnorm1",
        r"pd_sum_f32v\(pd_select_first_f32v\(\d+, t_p_p_p, pd_splat_f32v\(0\.0f\)\)\)",
        "what the register adds up was loaded with zeros beyond the same tail",
        r"\A(?![\s\S]*^ *x_r = (?!pd_load_first_f32v\(|pd_splat_f32v\(0\.0f\)))",
    ),
    Reason(
        r"tail-spills-into-the-next-row|tail-store-one-more",
        r"bmm|conv\d",
        r"^pd_store_first_f32v\(&[cy]\[",
        "the next statement writes that cell",
        _FOLLOWED_BY_NEXT,
    ),
    Reason(
        r"areas-at-one-offset",
        r"batchnorm1",
        r"\bu = ",
        "the second area is read for the last time before the first is written, and set again after the "
        "first was read for the last time, by pd_parallel_for, which returns when all threads are done",
        r"(?s)u\[0\] = (?:(?!\bt_p_p\b).)*\Z",
    ),
    Reason(
        r"areas-overlap",
        r"batchnorm1",
        r"\bt_p_p = ",
        "the first area is written after the second was read for the last time, and read for the last time by"
        " pd_parallel_for, which returns when all threads are done, before the second is set again",
        r"(?s)float \*restrict const u = \(float \*\)\(pd_base \+ 0\);(?:(?!\bu\b).)*"
        r"\bu\[0\] = (?:(?!\bt_p_p\b).)*\Z",
    ),
    Reason(
        r"exp-not-clamped-above",
        r"swiglu",
        r"^x = pd_max_number_f32v\(",
        "each float above 89 was tried: exp of it is infinite, of either sign; a quotient by that is zero",
    ),
    Reason(
        r"exp-not-clamped-above|exp-clamped-at-88",
        r"softmax",
        r"min_number",
        "arguments are distances from a maximum of the row, so far or of all of it: at most zero, or NaN",
    ),
    Reason(
        r"tail-loads-whole-vector|tail-load-one-more",
        r".*",
        r"",
        "what is computed beyond the tail goes nowhere: stores and selections take the first lanes alone",
    ),
    Reason(
        r"rows-done-twice",
        r".*",
        r"",
        "an iteration writes what no other reads, and gives the same twice unless it adds to a cell that it"
        " does not set first; then any input shows it",
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


#: Reasons for C with vectors.
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
        r"areas-overlap(-by-a-line)?|areas-at-one-offset",
        r"matmul",
        r"\bb_r(_2)? = ",
        "the first area is read for the last time before the second is first written, and pd_parallel_for"
        " returns when all threads are done: no value of the first is wanted any more",
        r"(?s)const b_r_2 = \(float \*\)¶?\(pd_base \+ \d+\);"
        r"(?:(?!\bb_r_2\b).)*\bb_r_2\b(?:(?!\bb_r\b).)*\Z",
    ),
    Reason(
        r"quick-path-takes-nan",
        r"softmax|swiglu",
        r"_CMP_NLE_UQ",
        "the quick path is a polynomial of the number, times a power of two: NaN of NaN",
        r"return scale \* \(\(r \* r\) \* \(r \* .* \+ .*\) \+ r\) \+ scale;",
    ),
)

#: Reasons for 64-bit Arm.
OF_ARM: Sequence[Reason] = (
    Reason(
        r"tail-stores-whole-vector",
        r"bmm|conv\d",
        r"^pd_store_first_f32v\(&[cy]\[",
        "a vector has four lanes, and the next statement writes the cells of the last ones",
        r"\A(?=[\s\S]*^#include \"pd_(?:neon|sve)\.h\")[\s\S]*" + _FOLLOWED_BY_NEXT,
    ),
    Reason(
        r"(infinity-of-one-sign|between-minus-6-and-minus-5)-stored",
        r"relu(_ffn)?",
        r"pd_max_number_f32v\(0\.0f, [^()]*\)\);$",
        "what is stored is a maximum with zero, which is never negative",
    ),
    Reason(
        r"exp-between-minus-(86-and-minus-85|100-and-minus-99)",
        r"swiglu",
        r"",
        "exp of that is added to one, where less than 2^-25 is nothing",
    ),
    Reason(
        r"sign-of-small-loaded",
        _NORMS,
        r"^(q\w*) = \1 \+ \(pd_load_f32v\((&x\[[^\]]*\])\) - pd_splat_f32v\(u\)\)"
        r" \* \(pd_load_f32v\(\2\) - pd_splat_f32v\(u\)\);$",
        "one of two factors d moves by 2e-10 at most, so the mean of squares m by 2e-10 times the mean of"
        " |d|, which is at most the root of m; beside m + 1e-5, at least 2 * sqrt(1e-5 * m), that is 3.2e-8,"
        " and half of it in the root: less than 2^-25",
    ),
)


# -- grids and blocks ----------------------------------------------------------------------------------

GRID_REASONS: Sequence[Reason] = (
    Reason(
        r"lane-for-thread",
        r".*",
        r"",
        "no other threads than those of the first warp get there, and these are its lanes",
        r"if \(pd_thread < (?:[1-9]|[12]\d|3[0-2])\) \{\n *const int \w+ = ¶",
    ),
    *(
        Reason(
            r"lane-for-thread",
            r".*",
            r"",
            "a block is one warp",
            rf'\A(?=[\s\S]*^ \* .*\b{warp}:w )(?![\s\S]*"threads": (?!{warp},))',
        )
        for warp in (32, 64)
    ),
    Reason(
        r"launched-in-the-other-order",
        r"swiglu",
        r"",
        "either launch computes one product of inputs alone, into memory of its own",
        r"¶ *PD_LAUNCH\(\w+, \d+, \d+, x, v, [^;]*\);\n *PD_LAUNCH\(\w+, \d+, \d+, x, w, ",
    ),
    Reason(
        r"exp-coefficient-last-digits",
        r".*",
        r"",
        "the reduced argument is below 0.35: the term, at most 0.07, times 3e-7 is below 2^-25 of the result",
        r"p = p \* r",
    ),
    Reason(
        r"exp-power-of-two|exp-without-denormals",
        r"swiglu",
        r"",
        "exp of that is added to one, where less than 2^-25 is nothing",
    ),
    Reason(
        r"guard-dropped",
        r"conv\d",
        r"^if \(pd_thread < \d+\) \{$",
        "the further threads set registers of their own to zero, which nothing reads",
        r"^    float (y_w)\[\d+\];\n[\s\S]*¶if \(pd_thread < \d+\) \{\n"
        r"(?: *PD_UNROLL\n| *for \(.*\) \{\n)+ *\1\[[^\]]*\] = 0\.0f;\n[ }\n]*^    \}\n",
    ),
    Reason(
        r"index-in-eight-bits",
        r"batchnorm1",
        r"\bt_p_m\[.*\bu\[",
        "each array of this line has at most 64 elements",
        r"\A(?=[\s\S]*\(float, \d\d?, t_p_m\))(?![\s\S]*\(float, \d{3,}, (?:q_p|t_p_m|u)\))",
    ),
    Reason(
        r"one-memory-for-all-blocks",
        r"conv1",
        r"f_r",
        "all blocks write the same numbers there: the filter, at places that depend on the thread alone",
        r"\A(?=[\s\S]*const int i1 = pd_block % \d+;\n *const int i0 = pd_block / \d+;\n(?![\s\S]*pd_block))"
        r"[\s\S]*¶ *PD_SHARED\(float, \d+, f_r\);(?:(?!\bf_r\[[^\]]*\] = )[\s\S])*"
        r"\bf_r\[[^\]]*\] = f\[(?:(?!\bi[01]\b)[^\]])*\];(?![\s\S]*\bf_r\[[^\]]*\] = )",
    ),
    Reason(
        r"block-barrier-dropped|warp-barrier-for-block",
        r"softmax",
        r"",
        "nobody has read e so far, and up to the next barrier each thread only writes cells of its own there",
        r"^\{\n(?:(?!\be\[[^\]]*\](?! = ))[\s\S])*"
        r"¶ *pd_sync_block\(\);(?:(?!\be\[[^\]]*\](?! = )|pd_sync_block)[\s\S])*pd_sync_block\(\);",
    ),
    Reason(
        r"block-barrier-dropped|warp-barrier-for-block",
        r"rmsnorm",
        r"",
        "a barrier stands before it, from which on r_i is only read, and each cell of y is stored once",
        r"pd_sync_block\(\);\n(?:(?!r_i\[\w+\] = |pd_sync_block)[\s\S])*"
        r"¶ *pd_sync_block\(\);(?:(?!r_i\[\w+\] = |^\})[\s\S])*^\}",
    ),
)


def reason(plant: str, operator: str, line: str, marked: str) -> str:
    """The reason why this plant in this line shows in no results of this operator; empty: none is known."""
    for known in (*REASONS, *OF_C, *OF_ARM, *ASSEMBLY_REASONS, *GRID_REASONS):
        if (
            re.fullmatch(known.plants, plant)
            and re.fullmatch(known.operators, operator)
            and re.search(known.line, line)
            and re.search(known.around, marked, re.MULTILINE)
        ):
            return known.why
    return ""
