"""Reasons why a fault cannot show in some kernel, since equal results of runs alone are no proof.

A survivor whose outputs were equal in many runs, and that has no reason here, stays a survivor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Regular expressions of the whole of a plant's name and of an operator, and of parts of the line."""

    plants: str
    operators: str
    line: str
    why: str
    around: str = ""
    """Regular expression of the whole file (multi-line); ``¶`` stands where the fault is planted."""


_ZERO_TAIL = r"pd_select_first_f32v\(\d+, pd_load_first_f32v\([^()]*\), pd_splat_f32v\(0\.0f\)\)"
_NORMS = r"(layer|batch)norm\d"
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
        r"below-minus-1e37-to-infinity-loaded",
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
        r"(below-1e-30|denormals)-to-zero-loaded",
        r"rmsnorm",
        r"^q\w* = q\w* \+ (pd_load\w*\(&x\[[^]]*\]\)) \* \1;",
        "the square of such a number is less than half of the smallest denormal",
    ),
    Reason(
        r"(below-1e-30|denormals)-to-zero-loaded",
        _NORMS,
        r"^q\w* = q\w* \+ \((pd_load\w*\(&x\[[^]]*\]\)) - (\S+)\) \* \(\1 - \2\);",
        "a distance moves by less than 1e-30, and its square by nothing beside the epsilon",
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
        r"tail-spills-into-the-next-row",
        r"bmm",
        r"^pd_store_first_f32v\(&c\[",
        "the next statement writes that cell",
        "¶ *(?:"
        + "|".join(
            rf"pd_store_first_f32v\(&c\[i0\*147 \+ {k}\], 3, .*\n"
            rf" *pd_store_first_f32v\(&c\[i0\*147 \+ {k + 3}\]"
            for k in range(147)
        )
        + ")",
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
        r"areas-overlap|areas-at-one-offset",
        r"matmul",
        r"\bb_r(_2)? = ",
        "the first area is read for the last time before the second is first written, and pd_parallel_for"
        " returns when all threads are done: no value of the first is wanted any more",
        r"(?s)const b_r_2 = \(float \*\)\(pd_base \+ \d+\);"
        r"(?:(?!\bb_r_2\b).)*\bb_r_2\b(?:(?!\bb_r\b).)*\Z",
    ),
)

#: Reasons for 64-bit Arm.
OF_ARM: Sequence[Reason] = (
    Reason(
        r"infinity-of-one-sign-stored",
        r"relu(_ffn)?",
        r"pd_max_number_f32v\(0\.0f, [^()]*\)\);$",
        "what is stored is a maximum with zero, which is never -inf",
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


# -- assembly ------------------------------------------------------------------------------------------

#: At the start of a file: no array is f64, so a routine computes from f32 only.
_F32 = r"\A(?![^¶]*^# \w+ f64 )"
#: At the start of a file: each division by a routine has the dividend 1.
_RECIPROCALS = (
    r"\A(?![^¶]*^    (?!fcvt\.d\.w).*\n    fsd \w+, \d+\+0\(sp\)\n    fsd \w+, \d+\+8\(sp\)\n)"
    r"(?=(?:(?!^    jal t1, \S+_div\n)[\s\S])*^    ret\n)"
)


def _between(first: str, last: str, start: str = "") -> str:
    """A pattern: the place is after the line ``first`` and before the next ``last``."""
    return rf"{start}[\s\S]*{first}\n(?:(?!{last})[\s\S])*¶"


_WEAK_ESTIMATE = (
    "an estimate of a reciprocal or a root is refined whatever it is; the squares of what is left to "
    "correct say "
    "whether two steps brought it near, after which the others reach the last bit; where they did not, or "
    "it is "
    "no number, the routine computes the quotient instead"
)
_ESTIMATE_CHANGED = (
    r"packed-(first-source|second-source|the-other-way-round|dropped)|(first|second)-lane-twice"
    r"|conversion-(towards-zero|dropped)|product-(of-other-sign|negated|accumulator)|all-negated|term-for-factor"
    r"|word-of-a-constant|exponent-of-a-constant"
)
_FEW = r"(?:.*\n){0,16}?"
_NEVER_F32 = (
    "f32 operands: no double precision number is denormal, and exponents of quotients stay within 280 of zero"
)
_SURE_OF_TIES = (
    "f32 operands: from the middle between two f32, a quotient lies at least 16 last bits of double "
    "precision away, unless it is one in few bits, which the last step finds exactly, and a root at least 4 "
    "(all roots were tried); this changes one last bit"
)
_NORM = r"(layer|batch)norm\d|[ds]layernorm"
_NO_SMALL_DIVISOR = (
    "all divisions are by a count, or by the root of a mean of squares and an epsilon of 1e-5: no divisor is "
    "zero or denormal"
)
_KEPT = (*(f"t{k}" for k in range(1, 7)), *(f"fa{k}" for k in range(8)))

ASSEMBLY_REASONS: Sequence[Reason] = (
    Reason(r".*", r".*", r"", _NEVER_F32, _between(r"_div_far:", r"_div_special:", _F32)),
    Reason(r".*", r".*", r"", _NEVER_F32, _between(r"# a denormal operand.*", r"_div_infinite:", _F32)),
    Reason(r".*", r".*", r"", _NEVER_F32, _between(r"beqz \w+, \S+_sqrt_normal", r"_sqrt_normal:", _F32)),
    Reason(
        r"bound-of-loop(-more)?|limit-of-a-comparison|compared-with-sign",
        r".*",
        r"^addi t6, t4, 1021$|^sltiu t6, t6, 2043$",
        _NEVER_F32,
        _F32,
    ),
    Reason(r"limit-of-a-comparison", r".*", r"^sltiu (t[45]), \1, 2046$", _NEVER_F32, _F32),
    Reason(r"tie-as-usual", r".*", r"", _SURE_OF_TIES, _F32),
    Reason(
        r"counter-of-loop-more",
        r".*",
        r"^li t3, 5$",
        f"one more step leaves the root where it is but for its last bit. {_SURE_OF_TIES}",
        _F32 + r"[\s\S]*¶    li t3, 5\n\S+_sqrt_refine:",
    ),
    Reason(
        r".*",
        r".*",
        r"",
        "every dividend is 1: it is neither infinite nor zero",
        _between(r"_div_infinite:", r"_div_zero:", _RECIPROCALS),
    ),
    Reason(
        r"shifts-in-signs",
        r".*",
        r"^srli t2, t2, 12$",
        "every dividend is 1: its mantissa has no bit that a sign could be taken from",
        _between(r"_div:", r"_div_special:", _RECIPROCALS),
    ),
    Reason(
        r"word-of-a-table-(further|dropped)",
        r".*",
        r"^sw zero, 0\(sp\)$",
        "every dividend is 1: its lower half, which is there, is zero too",
        _between(r"_div_again:", r"_div_done:", _RECIPROCALS),
    ),
    Reason(
        r"upper-bits",
        r".*",
        r"^lui t6, 0x3ff00$",
        "the mantissas of dividend and divisor are both halved, and so is the remainder: the quotient stays",
    ),
    Reason(
        r"sign-taken-not-multiplied",
        r"[ds]?softmax",
        r"^fsgnjx\.d fa0, fa[02], fa1$",
        "exponentials and their sums have no sign: the one sign is the product of both",
        r"_div_special:\n[\s\S]*¶",
    ),
    Reason(
        r".*",
        r"[ds]?softmax",
        r"",
        "a dividend is 1, or an exponential of a distance from a maximum: at most 1, or NaN, never infinite",
        _between(r"_div_infinite:", r"_div_no_dividend:"),
    ),
    Reason(
        r"term-for-factor|product-(of-other-sign|negated|dropped)|all-negated",
        r".*",
        r"^fmadd\.d fa5, fa5, fa3, fa4$",
        "the routine is entered with |x| >= 700 alone: with |q| <= 2, 1 + r + r^2 q is between 1/2 and 2, "
        "and "
        "that times 2^1009 or more is infinite in f32, times 2^-1009 or less zero",
        _F32
        + r"(?![^¶]*rescue_exp\n(?:(?!\.L).*\n)*    jal ra, \S+rescue_exp\n)"
        + r"(?=(?:(?!^    jal t1, \S+_exp\n)[\s\S])*^    ret\n)"
        + r"[\s\S]*_exp:\n(?:(?!_exp_done:)[\s\S])*¶",
    ),
    Reason(
        _ESTIMATE_CHANGED,
        r".*",
        r"^(?!.*\bft3\b).*vfcpka",
        _WEAK_ESTIMATE,
        rf"¶    \.insn r 0x33, 0, 88, (\w+), \1, \w+ #.*\n{_FEW}    fnmsub\.d \w+, \1, ",
    ),
    Reason(
        _ESTIMATE_CHANGED,
        r".*",
        r"^(?!.*\bft3\b).*vfcpka",
        _WEAK_ESTIMATE,
        rf"fnmsub\.d (\w+), \1, \w+, \w+\n{_FEW}¶    \.insn r 0x33, 0, 88, \1, \w+, \1 #",
    ),
    Reason(
        _ESTIMATE_CHANGED,
        r".*",
        r"^fnmsub\.d",
        _WEAK_ESTIMATE,
        rf"¶    fnmsub\.d (\w+), \1, \w+, \w+\n{_FEW}    \.insn r 0x33, 0, 88, \1, \w+, \1 #",
    ),
    Reason(
        _ESTIMATE_CHANGED,
        r".*",
        r"^fcvt\.s\.d",
        _WEAK_ESTIMATE,
        rf"¶    fcvt\.s\.d (\w+), \w+\n{_FEW}    \.insn r 0x33, 0, 88, \1, \1, \w+ #.*\n"
        rf"{_FEW}    fnmsub\.d \w+, \1, ",
    ),
    Reason(
        _ESTIMATE_CHANGED,
        r".*",
        r"^li \w+, (1127219200|1127350272|1205756472|1127284736|1139206992)$",
        _WEAK_ESTIMATE,
    ),
    Reason(
        _ESTIMATE_CHANGED,
        r".*",
        r"^(?!.*\bft3\b).*vfcpka",
        _WEAK_ESTIMATE,
        r"    li \w+, (1127350272|1127284736)\n    fmv\.w\.x \w+, \w+\n¶",
    ),
    Reason(
        r"asked-early",
        r".*",
        r"^\.insn i 0x2b, 1, zero, ",
        "the loop behind it asks until the mover is done, which is after its last datum: it only asks more "
        "often",
    ),
    Reason(
        r"only-one-looked-at|nan-not-looked-at",
        r"softmax",
        r"^and |^bnez ",
        "a NaN that the maximum loses is in its own exponential, and so in the sum that all of the row has",
    ),
    Reason(
        r"sum-for-difference|rounds-up",
        r".*",
        r"^fadd\.[sd] ",
        "one of both is NaN here, and so are sum and difference, however they are rounded",
        r"feq\.[sd] (\w+), .*\n(?:    feq\.[sd] (\w+), .*\n    and \1, \1, \2\n)?    bnez \1, (\.L\w+)\n"
        r"¶    fadd\.[sd] .*\n\3:",
    ),
    Reason(
        r"loop-the-other-way",
        r".*",
        r"^bne ",
        "the loop around it goes on where this one stops, up to the same end: both only count addresses up",
        r"^(\.L\w+):\n    addi (\w+), (\w+), \d+\n(\.L\w+):\n(?:(?!\.L)[\s\S])*"
        r"¶    bne \3, \2, \4\n    bne \3, \w+, \1\n",
    ),
    Reason(
        r"counter-of-loop",
        r"s(gelu|softmax)",
        r"^li t6, 0$",
        "the routine is entered for a divisor that f32 does not hold: its reciprocal is zero, halved or not",
        _F32
        + r"(?=(?:(?!^    jal t1, \S+_div\n|_rescue_div:)[\s\S])*_rescue_div:)"
        + r"[\s\S]*_div:\n    addi sp.*\n¶",
    ),
    Reason(
        r".*",
        _NORM,
        r"",
        "the routine is entered for infinity and NaN alone: an epsilon of 1e-5 makes all else ordinary",
        _between(
            r"_sqrt_as_it_is\n    addi sp, sp, -16",
            r"_sqrt_negative:",
            _F32 + r"(?=(?:(?!^    jal t1, \S+_sqrt\n)[\s\S])*_rescue_sqrt:)",
        ),
    ),
    Reason(
        r"mask-of-a-class",
        r"[ds]?softmax",
        r"^andi t5, t3, 0x81$",
        "a divisor is a sum of exponentials: positive, or NaN, but not -inf",
    ),
    Reason(
        r"mask-of-a-class",
        r"[ds]?softmax",
        r"^andi t4, t4, 0x300$",
        "both operands of a quotient are results of operations, whose NaN is quiet",
    ),
    Reason(
        r"mask-of-a-class",
        r".*",
        r"^andi t4, t4, 0x300$",
        "both operands of a quotient were converted from f32, which makes a NaN quiet",
        _F32,
    ),
    Reason(
        r"stream-set-too-early",
        r".*",
        r"^mv zero, ",
        "no job of the movers has begun before, and no later one comes back to here",
        r"\A(?![\s\S]*?^(\S+):$[\s\S]*?¶[\s\S]*?, \1$)(?:(?!# scfgwi )[\s\S])*¶",
    ),
    Reason(
        r"stream-set-too-early",
        r".*",
        r"^mv zero, ",
        "the next instruction writes the same register, and waits until the one before has written it",
        r"¶    mv zero, (\w+) .*\n    li \1, ",
    ),
    Reason(
        r"rescued-for-nothing",
        r".*",
        r"",
        "the routine rounds quotients and roots correctly, as the quick way does of ordinary arguments",
    ),
    Reason(
        r"rounds-(up|down)|conversion-towards-zero",
        rf"[ds]?(softmax|gelu|swiglu)|rmsnorm|{_NORM}",
        r"",
        "one of several roundings is off by less than a unit more, for which the bound of their sum has room",
    ),
    Reason(
        r"absolute-value-dropped",
        r"[ds]?(softmax|gelu)",
        r"^fabs\.d fa7, fa4$",
        "a denormal quotient is one unit off at a tie, of an exponential to which two units are allowed",
    ),
    Reason(
        r".*",
        r"[ds]?(softmax|gelu)",
        r"",
        "no dividend is above 1, and no divisor below: no quotient is large",
        _between(r"_div_large:", r"_div_small:"),
    ),
    Reason(
        r"rounds-up",
        _NORM,
        r"^fmul\.s ",
        "a mean of as many squares as a power of two: exact unless denormal, and an epsilon of 1e-5 is added",
        r"\A(?=[^¶]*sqrt\(\w+\[[^\]]*\] / (?:[248]|16|32|64|128|256|512|1024) \+ 1e-05\))"
        r"[\s\S]*¶    fmul\.s .*\n(?:    (?:fmul\.s|fld) .*\n)*    fadd\.s ",
    ),
    Reason(
        r"rescued-result-dropped|unusual-arguments-not-rescued",
        r"s?softmax",
        r"^jal ra, |^bnez t\d, ",
        "a sum of exponentials is at least 1, or NaN, of which the line makes what the routine does; or 0 "
        "where all of a row are -inf: then it makes 18 times 2^126.9, which is infinite in f32",
        r"\A(?![^¶]*^# \w+ f64 )"
        r"(?=(?:(?! / )[\s\S])*^# .*s_i\[\{0\}\] = 1 / s\[\{0\}\]\n(?:(?!^# .* / )[\s\S])*\Z)"
        r"[\s\S]*¶(?:    bnez .*\n(?:    .*\n){0,4})?    jal ra, \S+_rescue_div\n",
    ),
    Reason(
        r"store-read-without-fence|fence-dropped",
        r"[ds]?softmax",
        r"^fence$",
        "the same array was read through a stream after a fence, and no statement has written to it since",
        r"^    # ssr\d: (\w+)\[.*\n    fence\n(?:(?!^    # \1\[)[\s\S])*^    # ssr\d: \1\[.*\n¶",
    ),
    Reason(r"branch-(to-another-case|dropped)", _NORM, r"^bnez t5, \S+_div_by_zero$", _NO_SMALL_DIVISOR),
    Reason(r".*", _NORM, r"", _NO_SMALL_DIVISOR, _between(r"_div_by_zero:", r"_div_signed:")),
    Reason(
        r".*",
        _NORM,
        r"",
        _NO_SMALL_DIVISOR,
        r"_div_dividend_normal:\n    bnez t3, \S+_div_again\n(?:(?!_div_infinite:)[\s\S])*¶",
    ),
    Reason(
        r"stream-set-too-early",
        r".*",
        r"^mv zero, ",
        "all jobs of the mover repeat alike, and all else waits in its second registers until its job is "
        "over",
        r"\A(?:(?!, 34 #)[\s\S])*¶    mv zero, .*\n(?:    li .*\n)?.*, 34 #(?:(?!, 34 #)[\s\S])*\Z",
    ),
    Reason(
        r".*",
        _NORM,
        r"",
        "all divisions are of distances by the root of their mean square: where one is infinite, so is the "
        "other",
        _between(
            r"_div_infinite:",
            r"_div_no_dividend:",
            r"\A(?![^¶]*/ (?!(?:[1248]|16|32|64|128|256|512|1024|2048|4096)\b)\d)",
        ),
    ),
    Reason(
        r"two-(loads|stores)-of-one-offset",
        _NORM,
        r"",
        "arguments are not ordinary only where the mean square is infinite or no number: then all of the row "
        "are NaN, or zeros to which something is added",
        _F32 + r"(?=[\s\S]*# all arguments were ordinary\n(?:    .*\n)*?¶)",
    ),
    Reason(
        r"fence-dropped",
        r"ssoftmax",
        r"^fence$",
        "stores leave in the order of the program, four at a time; the last four are to columns 28 to 31 of "
        "a row, and the stream, which reads by columns, has asked for 112 pairs of others before",
        r"    fsw \w+, 12\((\w+)\)\n    addi \w+, \w+, 16\n    addi \1, \1, 16\n    bne .*\n"
        r"    addi .*\n    bne .*\n"
        r"(?:    (?:#|fmv\.s) .*\n)*    # ssr0: e\[\{1\},\{0\}\*2\+\{2\}\]\n¶    fence\n"
        r"    .*, 32 #.*\n    li t0, 7\n.*\n    li t0, 15\n.*\n    li t0, 128\n.*\n    li t0, -888\n",
    ),
    Reason(
        r"fence-dropped",
        r"dlayernorm",
        r"^fence$",
        "stores leave in the order of the program, four at a time; of the last four, the first is to element "
        "159, which the stream is asked for after 150 more stores",
        r"    fsd \w+, 1792\(a0\)\n    addi t0, t0, 8\n    addi a0, a0, 8\n    bne t0, a1, .*\n"
        r"    # ssr0: y_w\[\{0\},\{1\}\]\n¶",
    ),
    *(
        Reason(
            r"temporary-not-kept",
            r".*",
            rf"^(lw|fld) {register}, ",
            "no code but that of routines uses the register",
            rf"\A(?:(?!_rescue_\w+:|\b{register}\b)[\s\S])*_rescue_\w+:[\s\S]*¶",
        )
        for register in _KEPT
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
