"""Faults in assembly for a core with stream registers and hardware loops."""

from __future__ import annotations

import re

from planting.plant import Plant, instead, more

ASSEMBLY = ("assembly",)

_REGISTER = r"[fats]{1,2}\d+"
_THREE = rf"^    (f(?:add|sub|mul|div|max|min)\.[sd]) ({_REGISTER}), ({_REGISTER}), ({_REGISTER})$"
_FOUR = rf"^    (fn?m(?:add|sub)\.[sd]) ({_REGISTER}), ({_REGISTER}), ({_REGISTER}), ({_REGISTER})$"
_STREAM = r"^    \.insn i 0x2b, 2, x0, (\w+), (\d+) # scfgwi .*\n"
#: The number that the next line writes to a stream's bounds (below 192) or strides.
_BOUND = r"^    li (\w+), (-?\d+)\n    \.insn i 0x2b, 2, x0, \1, (?:3[2-9]|[4-9]\d|1[0-2]\d) #"
_STRIDE = r"^    li (\w+), (-?\d+)\n    \.insn i 0x2b, 2, x0, \1, (?:19[2-9]|2\d\d) #"
_FREP = r"^    \.insn i 0x0b, (\d+), x(\d+), (\w+), (\d+) # frep\.o .*"


def _other_register(group: int):  # type: ignore[no-untyped-def]
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
    Plant("wrong register", "first-source", ASSEMBLY, _THREE, _other_register(3)),
    Plant("wrong register", "product-first-source", ASSEMBLY, _FOUR, _other_register(3)),
    Plant("wrong register", "product-accumulator", ASSEMBLY, _FOUR, _other_register(5)),
    Plant("wrong register", "target", ASSEMBLY, _THREE, _other_register(2)),
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
        "register not kept",
        "saved-register-not-restored",
        ASSEMBLY,
        r"^    fld fs\d+, \d+\(sp\)\n(?=(?:    (?:fld fs|lw |addi sp).*\n)*    ret)",
        "",
        shows="execution",
    ),
    Plant(
        "register not kept",
        "stack-pointer-not-restored",
        ASSEMBLY,
        r"^    addi sp, sp, \d+\n(?=    ret)",
        "",
        shows="execution",
    ),
    Plant("status wrong", "status-not-set", ASSEMBLY, r"^    li a0, 0\n(?!    ret)", "    li a0, 1\n"),
)

CONTROL = (
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

STREAMS = (
    Plant("stream one short", "stream-bound", ASSEMBLY, _BOUND, more(2, -1)),
    Plant("stream one long", "stream-bound-more", ASSEMBLY, _BOUND, more(2, 1), shows="execution"),
    Plant("stride wrong", "stream-stride", ASSEMBLY, _STRIDE, more(2, 8)),
    Plant(
        "stride wrong",
        "stream-repeats",
        ASSEMBLY,
        r"^    \.insn i 0x2b, 2, x0, zero, (\d+) # scfgwi zero, \d+$",
        lambda m: f"    li t6, 1\n{instead(m, 0, m[0]).replace('zero', 't6', 1)}",
    ),
    Plant("instruction dropped", "stream-setting-dropped", ASSEMBLY, _STREAM, ""),
    Plant(
        "operands swapped",
        "streams-swapped",
        ASSEMBLY,
        r"(\.insn i 0x2b, 2, x0, )(a\d)(, \d+ #.*\n(?:    #.*\n)*    \.insn i 0x2b, 2, x0, )(a\d)(, \d+ #)",
        r"\1\4\3\2\5",
    ),
    Plant(
        "one iteration short",
        "frep-one-less",
        ASSEMBLY,
        r"^    li (\w+), (\d+)\n(?=    \.insn i 0x0b, \d+, x\d+, \1, )",
        more(2, -1),
    ),
    Plant(
        "one iteration more",
        "frep-one-more",
        ASSEMBLY,
        r"^    li (\w+), (\d+)\n(?=    \.insn i 0x0b, \d+, x\d+, \1, )",
        more(2, 1),
    ),
    Plant(
        "loop body wrong",
        "frep-body-one-less",
        ASSEMBLY,
        r"^    \.insn i 0x0b, \d+, x\d+, \w+, ([1-9]\d*) #",
        more(1, -1),
    ),
    Plant("loop body wrong", "frep-dropped", ASSEMBLY, _FREP + r"\n", ""),
    Plant("stagger wrong", "stagger", ASSEMBLY, r"^    \.insn i 0x0b, ([1-9]\d*), x\d+, ", more(1, -1)),
    Plant("streams left on or off", "streams-not-switched-on", ASSEMBLY, r"^    csrsi 0x7c0, 1.*\n", ""),
    Plant(
        "streams left on or off",
        "streams-not-switched-off",
        ASSEMBLY,
        r"^    csrci 0x7c0, 1.*\n",
        "",
        shows="execution",
    ),
    Plant("fence missing", "write-stream-not-drained", ASSEMBLY, r"^    bgez t\d, \.L\w+\n(?=    ret)", ""),
    Plant("fence missing", "results-not-waited-for", ASSEMBLY, r"^    mv (\w+), \1.*\n|^    fence.*\n", ""),
)

STREAMING = (*ARITHMETIC, *MEMORY, *CONTROL, *STREAMS)
