"""Reasons why a fault in assembly cannot show in some kernel."""

from __future__ import annotations

from collections.abc import Sequence

from planting.reason import Reason

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
        r"swiglu",
        r"^fence$",
        "stores leave in the order of the program, four at a time; the last four are to the last two of 17"
        " constants, which the stream reads in order, at most four ahead; the FPU takes the first one after"
        " loads of x and w, which are served after all stores before them",
        r"    sw zero, 408\(sp\)\n(?:    li t2, \d+\n)?    sw \w+, 412\(sp\)\n"
        r"    sw \w+, 416\(sp\)\n(?:    li t2, \d+\n)?    sw \w+, 420\(sp\)\n¶    fence\n"
        r"(?:(?!\.L)(?!.* 802 #).*\n)*    li t0, 16\n    .*, 66 #.*\n    li t0, 8\n    .*, 194 #.*\n"
        r"(?:(?!\.L)(?!.* 802 #).*\n)*    addi t0, sp, 288\+0\n    .*, 802 #",
    ),
    Reason(
        r"fence-dropped",
        r".*",
        r"^fence$",
        "before any stream starts, the FPU loads numbers in a loop; loads are served after all stores of the"
        " core that stand before them",
        r"    sw \w+, \d+\(sp\)\n¶    fence\n(?:(?!.*scfgwi).*\n)*?(\.L\w+):\n"
        r"(?:(?!.*scfgwi).*\n)*?    flw .*\n(?:(?!.*scfgwi).*\n)*?    bne \w+, \w+, \1\n",
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
