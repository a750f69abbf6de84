"""Faults in the instructions of a core with stream registers: arithmetic, memory, branches."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planting.plant import Plant, instead, more

ASSEMBLY = ("assembly",)

_REGISTER = r"[fats]{1,2}\d+"
_THREE = rf"^    (f(?:add|sub|mul|div|max|min)\.[sd]) ({_REGISTER}), ({_REGISTER}), ({_REGISTER})$"
_FOUR = rf"^    (fn?m(?:add|sub)\.[sd]) ({_REGISTER}), ({_REGISTER}), ({_REGISTER}), ({_REGISTER})$"


def other_register(group: int):  # type: ignore[no-untyped-def]
    def change(match: re.Match[str]) -> str:
        name, number = re.fullmatch(r"([a-z]+)(\d+)", match[group]).groups()  # type: ignore[union-attr]
        return instead(match, group, f"{name}{int(number) ^ 1}")

    return change


def _swapped(match: re.Match[str]) -> str:
    return f"    {match[1]} {match[2]}, {match[4]}, {match[3]}"


def _opposite(match: re.Match[str]) -> str:
    other = {
        "fadd": "fsub",
        "fsub": "fadd",
        "fmul": "fadd",
        "fdiv": "fmul",
        "fmax": "fmin",
        "fmin": "fmax",
        "fmadd": "fmsub",
        "fmsub": "fmadd",
        "fnmadd": "fnmsub",
        "fnmsub": "fmadd",
    }
    word, dot, width = match[1].partition(".")
    return instead(match, 1, f"{other[word]}{dot}{width}")


def _negated(names: Mapping[str, str]):  # type: ignore[no-untyped-def]
    def change(match: re.Match[str]) -> str:
        word, dot, width = match[1].partition(".")
        return instead(match, 1, f"{names[word]}{dot}{width}")

    return change


ARITHMETIC = (
    Plant("wrong operation", "sum-for-difference", ASSEMBLY, _THREE, _opposite),
    Plant("wrong sign", "product-of-other-sign", ASSEMBLY, _FOUR, _opposite),
    Plant(
        "operands swapped",
        "sources-swapped",
        ASSEMBLY,
        rf"^    (fsub\.[sd]|fdiv\.[sd]) ({_REGISTER}), ({_REGISTER}), ({_REGISTER})$",
        _swapped,
    ),
    Plant("wrong register", "first-source", ASSEMBLY, _THREE, other_register(3)),
    Plant("wrong register", "product-first-source", ASSEMBLY, _FOUR, other_register(3)),
    Plant("wrong register", "product-accumulator", ASSEMBLY, _FOUR, other_register(5)),
    Plant("wrong register", "target", ASSEMBLY, _THREE, other_register(2)),
    Plant("instruction dropped", "product-dropped", ASSEMBLY, _FOUR + r"\n", ""),
    Plant("instruction dropped", "operation-dropped", ASSEMBLY, _THREE + r"\n", ""),
    Plant("instruction dropped", "packed-dropped", ASSEMBLY, r"^    \.insn r 0x33, .*\n", ""),
    Plant(
        "wrong operation",
        "packed-function",
        ASSEMBLY,
        r"^    \.insn r 0x33, 0, (\d+), .*# vf(add|mul)\.",
        more(1, 1),
    ),
    Plant("instruction dropped", "move-dropped", ASSEMBLY, rf"^    fmv\.[sd] {_REGISTER}, {_REGISTER}\n", ""),
    Plant("instruction dropped", "conversion-dropped", ASSEMBLY, r"^    fcvt\.[sdw]+\.[sdw]+ \w+, \w+\n", ""),
    Plant("rounding mode wrong", "rounds-towards-zero", ASSEMBLY, _FOUR, r"\g<0>, rtz"),
    Plant(
        "rounding mode wrong",
        "conversion-towards-zero",
        ASSEMBLY,
        r"^    fcvt\.s\.d \w+, \w+$",
        r"\g<0>, rtz",
    ),
    Plant("rounding mode wrong", "tie-as-usual", ASSEMBLY, r", rmm$", ""),
    Plant(
        "wrong width",
        "single-for-double",
        ASSEMBLY,
        r"^    f(?:add|sub|mul|n?m(?:add|sub)|max|min)\.(d) ",
        lambda m: instead(m, 1, "s"),
    ),
    Plant(
        "wrong width",
        "double-for-single",
        ASSEMBLY,
        r"^    f(?:add|sub|mul|n?m(?:add|sub)|max|min)\.(s) ",
        lambda m: instead(m, 1, "d"),
    ),
    Plant(
        "wrong sign",
        "product-negated",
        ASSEMBLY,
        _FOUR,
        _negated({"fmadd": "fnmsub", "fnmsub": "fmadd", "fmsub": "fnmadd", "fnmadd": "fmsub"}),
    ),
    Plant(
        "wrong sign",
        "all-negated",
        ASSEMBLY,
        _FOUR,
        _negated({"fmadd": "fnmadd", "fnmadd": "fmadd", "fmsub": "fnmsub", "fnmsub": "fmsub"}),
    ),
    Plant(
        "wrong sign",
        "sign-taken-inverted",
        ASSEMBLY,
        r"^    fsgnj(x?)\.d ",
        lambda m: instead(m, 0, "    fsgnjn.d "),
    ),
    Plant("wrong sign", "sign-taken-not-multiplied", ASSEMBLY, r"^    fsgnjx\.d ", "    fsgnj.d "),
    Plant("wrong sign", "absolute-value-dropped", ASSEMBLY, r"^    fabs\.d ", "    fmv.d "),
    Plant("operands swapped", "term-for-factor", ASSEMBLY, _FOUR, r"    \1 \2, \3, \5, \4"),
    Plant(
        "wrong operation",
        "integer-difference-for-sum",
        ASSEMBLY,
        r"^    (sub|add) (?=[at]\d, [at]\d, [at]\d$)",
        lambda m: f"    {'add' if m[1] == 'sub' else 'sub'} ",
    ),
    Plant(
        "wrong operation",
        "bits-and-for-or",
        ASSEMBLY,
        r"^    (and|or|xor) (?=[at]\d, [at]\d, [at]\d$)",
        lambda m: f"    {'or' if m[1] == 'and' else 'and'} ",
    ),
    Plant("sign extension lost", "shifts-in-zeros", ASSEMBLY, r"^    srai ", "    srli "),
    Plant("sign extension lost", "shifts-in-signs", ASSEMBLY, r"^    srli ", "    srai "),
    Plant("sign extension lost", "compared-with-sign", ASSEMBLY, r"^    sltiu ", "    slti "),
    Plant("sign extension lost", "branch-without-sign", ASSEMBLY, r"^    (blt|bge) ", r"    \1u "),
    Plant("wrong immediate", "limit-of-a-comparison", ASSEMBLY, r"^    sltiu \w+, \w+, (\d+)$", more(1, -1)),
    Plant(
        "wrong immediate",
        "upper-bits",
        ASSEMBLY,
        r"^    lui \w+, 0x([0-9a-f]+)$",
        lambda m: instead(m, 1, f"{int(m[1], 16) ^ 0x100:x}"),
    ),
    Plant(
        "wrong immediate", "exponent-offset", ASSEMBLY, r"^    addi (t\d), \1, (1\d{3}|-?54|23)$", more(2, 1)
    ),
)

MEMORY = (
    Plant("index off by one", "load-further", ASSEMBLY, r"^    fl[wd] \w+, (\d+)\([at]\d+\)$", more(1, 4)),
    Plant("index off by one", "store-further", ASSEMBLY, r"^    fs[wd] \w+, (\d+)\([at]\d+\)$", more(1, 8)),
    Plant("result not stored", "store-dropped", ASSEMBLY, r"^    fs[wd] \w+, \d+\([at]\d+\)\n", ""),
    Plant("instruction dropped", "load-dropped", ASSEMBLY, r"^    fl[wd] \w+, \d+\([at]\d+\)\n", ""),
    Plant("stride wrong", "pointer-step", ASSEMBLY, r"^    addi ([at]\d+), \1, (-?\d+)$", more(2, 4)),
    Plant("stride wrong", "pointer-not-moved", ASSEMBLY, r"^    addi ([at]\d+), \1, -?\d+\n", ""),
    Plant(
        "one iteration short",
        "bound-of-loop",
        ASSEMBLY,
        r"^    addi ([at]\d+), (?!\1\b)([at]\d+), (\d+)$",
        lambda m: instead(m, 3, str(int(m[3]) - (8 if int(m[3]) % 8 == 0 else 4))),
    ),
    Plant(
        "one iteration short", "counter-of-loop", ASSEMBLY, r"^    li ([at]\d+), (\d+)\n(?=\.L)", more(2, -1)
    ),
    Plant(
        "one iteration more",
        "counter-of-loop-more",
        ASSEMBLY,
        r"^    li ([at]\d+), (\d+)\n(?=\.L)",
        more(2, 1),
    ),
    Plant(
        "constant slightly wrong",
        "word-of-a-constant",
        ASSEMBLY,
        r"^    li [at]\d+, (\d{7,})$",
        more(1, 1024),
    ),
    Plant(
        "constant slightly wrong",
        "exponent-of-a-constant",
        ASSEMBLY,
        r"^    li [at]\d+, (\d{9,})$",
        more(1, 1 << 20),
    ),
    Plant(
        "constant slightly wrong",
        "immediate-of-a-shift",
        ASSEMBLY,
        r"^    s[rl]li \w+, \w+, (\d+)$",
        lambda m: instead(m, 1, str(int(m[1]) ^ 1)),
    ),
    Plant(
        "constant slightly wrong",
        "mask-of-a-class",
        ASSEMBLY,
        r"^    andi \w+, \w+, 0x([0-9a-f]+)$",
        lambda m: instead(m, 1, f"{int(m[1], 16) & (int(m[1], 16) - 1):x}"),
    ),
    Plant(
        "wrong width",
        "pair-loaded-for-one",
        ASSEMBLY,
        r"^    (flw) \w+, \d+\([at]\d+\)$",
        lambda m: instead(m, 1, "fld"),
    ),
    Plant(
        "wrong width",
        "half-of-a-double-loaded",
        ASSEMBLY,
        r"^    (fld) \w+, \d+\([at]\d+\)$",
        lambda m: instead(m, 1, "flw"),
    ),
    Plant(
        "wrong width",
        "half-of-a-double-stored",
        ASSEMBLY,
        r"^    (fsd) \w+, \d+\([at]\d+\)$",
        lambda m: instead(m, 1, "fsw"),
    ),
    Plant(
        "spill wrong", "reloaded-from-another-slot", ASSEMBLY, r"^    fld f[at]\d+, (\d+)\(sp\)$", more(1, 8)
    ),
    Plant(
        "spill wrong", "spilled-into-another-slot", ASSEMBLY, r"^    fsd f[at]\d+, (\d+)\(sp\)$", more(1, 8)
    ),
    Plant("spill wrong", "spill-dropped", ASSEMBLY, r"^    fsd f[at]\d+, \d+\(sp\)\n", ""),
    Plant("spill wrong", "reload-dropped", ASSEMBLY, r"^    fld f[at]\d+, \d+\(sp\)\n", ""),
    Plant(
        "index off by one",
        "word-of-a-table-further",
        ASSEMBLY,
        r"^    sw (?:t2|zero), (\d+)\(sp\)$",
        more(1, 4),
    ),
    Plant("table entry wrong", "word-of-a-table-dropped", ASSEMBLY, r"^    sw (?:t2|zero), \d+\(sp\)\n", ""),
    Plant(
        "index off by one",
        "other-word-of-a-double",
        ASSEMBLY,
        r"^    lw t\d, (\d+)\(sp\)$",
        lambda m: instead(m, 1, str(int(m[1]) ^ 4)),
    ),
    Plant(
        "row or column mixed up",
        "another-array",
        ASSEMBLY,
        r"^    mv [at]\d+, (a[0-3])$",
        lambda m: instead(m, 1, f"a{int(m[1][1]) ^ 1}"),
    ),
    Plant("stride wrong", "pointer-not-taken-back", ASSEMBLY, r"^    addi ([at]\d+), \1, -(?!1$)\d+\n", ""),
    Plant(
        "one iteration more",
        "bound-of-loop-more",
        ASSEMBLY,
        r"^    addi ([at]\d+), (?!\1\b)([at]\d+), (\d+)$",
        lambda m: instead(m, 3, str(int(m[3]) + (8 if int(m[3]) % 8 == 0 else 4))),
    ),
    Plant(
        "one iteration more",
        "distant-bound-more",
        ASSEMBLY,
        r"^    li ([at]\d+), (\d{4})\n(?=    add ([at]\d+), [at]\d+, \1$)",
        more(2, 8),
    ),
    Plant(
        "one iteration short",
        "distant-bound",
        ASSEMBLY,
        r"^    li ([at]\d+), (\d{4})\n(?=    add ([at]\d+), [at]\d+, \1$)",
        more(2, -8),
    ),
    Plant(
        "maximum starts wrong",
        "maximum-from-zero",
        ASSEMBLY,
        r"^    li \w+, (4286578688)$",
        lambda m: instead(m, 1, "0"),
    ),
    Plant(
        "maximum starts wrong",
        "maximum-from-1e30",
        ASSEMBLY,
        r"^    li \w+, (4286578688)$",
        lambda m: instead(m, 1, "4048155338"),
    ),
    Plant(
        "maximum starts wrong",
        "maximum-from-largest",
        ASSEMBLY,
        r"^    li \w+, (4286578688)$",
        lambda m: instead(m, 1, "4286578687"),
    ),
    Plant(
        "epsilon changed",
        "epsilon-dropped",
        ASSEMBLY,
        r"^    li \w+, (925353388)$",
        lambda m: instead(m, 1, "0"),
    ),
    Plant(
        "epsilon changed",
        "epsilon-tenth",
        ASSEMBLY,
        r"^    li \w+, (925353388)$",
        lambda m: instead(m, 1, "897988541"),
    ),
    Plant(
        "uninitialised accumulator",
        "zero-never-made",
        ASSEMBLY,
        r"^    (?:fcvt\.d\.w|fmv\.w\.x) \w+, zero\n",
        "",
    ),
)

CONTROL = (
    Plant(
        "NaN lost",
        "nan-not-looked-at",
        ASSEMBLY,
        r"^    bnez (\w+), (\.L\w+_\d+)\n(?=(?:    fld .*\n)?    fadd\.[sd])",
        r"    j \2\n",
    ),
    Plant("NaN lost", "only-one-looked-at", ASSEMBLY, r"^    and (\w+), \1, \w+\n(?=    bnez \1, )", ""),
    Plant(
        "branch wrong",
        "loop-once",
        ASSEMBLY,
        r"^    (?:bne \w+, \w+|bnez \w+), \.Lpd_planted_kernel_\d+\n(?!    (?:f|\.insn))",
        "",
    ),
    Plant(
        "branch wrong",
        "loop-the-other-way",
        ASSEMBLY,
        r"^    bne (?=\w+, \w+, \.Lpd_planted_kernel_\d+$)",
        "    beq ",
    ),
    Plant("branch wrong", "rescued-for-nothing", ASSEMBLY, r"^    bnez (t\d), (\.L\w+) # all .*\n", ""),
    Plant(
        "branch wrong",
        "branch-to-another-case",
        ASSEMBLY,
        r"^    (b\w+ .*_(?:div|sqrt)_)(infinite|zero|no_dividend|by_zero|nan|negative|as_it_is)$",
        lambda m: f"    {m[1]}{'done' if '_div_' in m[1] else 'as_it_is'}",
    ),
    Plant(
        "wrong in a range",
        "rescued-wrong-argument",
        ASSEMBLY,
        r"^    fsd (f\w+), \d+\+\d+\(sp\)$",
        other_register(1),
    ),
    Plant(
        "wrong in a range",
        "rescued-result-dropped",
        ASSEMBLY,
        r"(    jal ra, \.L\w+_rescue_\w+\n)    fld \w+, \d+\(sp\)\n",
        r"\1",
    ),
    Plant(
        "wrong in a range",
        "unusual-arguments-not-rescued",
        ASSEMBLY,
        r"^    bnez (t\d), (\.L\w+) # all .*$",
        r"    j \2",
    ),
    Plant("wrong in a range", "rescue-dropped", ASSEMBLY, r"^    jal ra, \.L\w+_rescue_\w+\n", ""),
    Plant(
        "branch wrong",
        "branch-the-other-way",
        ASSEMBLY,
        r"^    (b(?:nez|eqz)) (\w+), (\.L\w+_(?:div|sqrt|exp|log|tanh|erf)\w*)$",
        lambda m: f"    {'beqz' if m[1] == 'bnez' else 'bnez'} {m[2]}, {m[3]}",
    ),
    Plant(
        "branch wrong",
        "branch-dropped",
        ASSEMBLY,
        r"^    b(?:nez|eqz|ltz|gez|lt|ge) .*\.L\w+_(?:div|sqrt|exp|log|tanh|erf)\w*\n",
        "",
    ),
    Plant("comparison wrong", "less-or-equal", ASSEMBLY, r"^    f(lt)\.([sd]) ", r"    fle.\2 "),
    Plant(
        "operands swapped",
        "comparison-reversed",
        ASSEMBLY,
        rf"^    (fl[te]\.[sd]) (\w+), ({_REGISTER}), ({_REGISTER})$",
        _swapped,
    ),
)

INSTRUCTIONS = (*ARITHMETIC, *MEMORY, *CONTROL)
