"""Faults in the supply of the FPU: streams, hardware loops and packed numbers."""

from __future__ import annotations

import re

from planting.assembly import ASSEMBLY, other_register
from planting.plant import Plant, instead, more

_STREAM = r"^    \.insn i 0x2b, 2, x0, (\w+), (\d+) # scfgwi .*\n"
#: The number that the next line writes to a stream's bounds (below 192) or strides.
_BOUND = r"^    li (\w+), (-?\d+)\n    \.insn i 0x2b, 2, x0, \1, (?:3[2-9]|[4-9]\d|1[0-2]\d) #"
_STRIDE = r"^    li (\w+), (-?\d+)\n    \.insn i 0x2b, 2, x0, \1, (?:19[2-9]|2\d\d) #"
_FREP = r"^    \.insn i 0x0b, (\d+), x(\d+), (\w+), (\d+) # frep\.o .*"
#: A setting of a bound that is followed by another loop.
_BOUND_SET = r"^    \.insn i 0x2b, 2, x0, (\w+), (6[4-9]|[7-9]\d|1[01]\d|12[0-7]) # .*$"
#: The start of a job: its address; the number gives the direction and the number of loops.
_JOB = r"^    \.insn i 0x2b, 2, x0, (\w+), (7[67]\d|8\d\d|9\d\d) # .*$"
_PACKED = r"^    (\.insn r 0x33, [04], \d+, )(\w+), (\w+), (\w+) # "


def _job(by: int, instead_of: str = ""):  # type: ignore[no-untyped-def]
    """A job of another kind; ``instead_of`` those of a pattern only."""

    def change(match: re.Match[str]) -> str:
        if instead_of and not re.fullmatch(instead_of, match[2]):
            return match[0]
        return instead(match, 2, str(int(match[2]) + by))

    return change


def _moved(by: int):  # type: ignore[no-untyped-def]
    """A job of data at another address; jobs of the functions' constants are excluded."""

    def change(match: re.Match[str]) -> str:
        before = match.string[: match.start()].rstrip("\n").rpartition("\n")[2]
        if re.fullmatch(r"    addi (\w+), sp, .*", before):
            return match[0]
        return f"    addi {match[1]}, {match[1]}, {by}\n{match[0]}\n    addi {match[1]}, {match[1]}, {-by}"

    return change


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
    Plant("streams left on or off", "streams-not-switched-on", ASSEMBLY, r"^    csrsi 0x7c0, 1.*\n", ""),
    Plant(
        "streams left on or off",
        "streams-not-switched-off",
        ASSEMBLY,
        r"^    csrci 0x7c0, 1.*\n",
        "",
        shows="execution",
    ),
    Plant(
        "fence missing",
        "write-stream-not-drained",
        ASSEMBLY,
        r"^    bgez t\d, \.L\w+\n",
        "",
        shows="execution",
    ),
    # Outputs show these faults: every kernel is run while streams, or loads and stores, are late.
    Plant("fence missing", "fence-dropped", ASSEMBLY, r"^    fence.*\n", ""),
    Plant("fence missing", "stream-set-too-early", ASSEMBLY, r"^    mv zero, \w+ .*\n", ""),
    Plant("stride wrong", "stream-backwards", ASSEMBLY, _STRIDE, lambda m: instead(m, 2, str(-int(m[2])))),
    Plant("stride wrong", "stream-stands-still", ASSEMBLY, _STRIDE, lambda m: instead(m, 2, "0")),
    Plant(
        "stream of another shape",
        "setting-of-another-stream",
        ASSEMBLY,
        _STREAM,
        lambda m: instead(m, 2, str(int(m[2]) ^ 1)),
    ),
    Plant("stream of another shape", "setting-of-another-loop", ASSEMBLY, _BOUND_SET, more(2, 32)),
    Plant(
        "stream of another shape", "stream-of-fewer-loops", ASSEMBLY, _JOB, _job(-32, r"8[0-8]\d|9[2-9]\d")
    ),
    Plant(
        "stream of another shape",
        "stream-of-more-loops",
        ASSEMBLY,
        _JOB,
        _job(32, r"7[67]\d|8[0-4]\d|89\d|9[0-5]\d"),
    ),
    Plant("stream the other way", "stores-for-reads", ASSEMBLY, _JOB, _job(128, r"7[67]\d|8[0-8]\d")),
    Plant("stream the other way", "reads-for-stores", ASSEMBLY, _JOB, _job(-128, r"89\d|9\d\d")),
    Plant(
        "index off by one",
        "stream-starts-late",
        ASSEMBLY,
        _JOB,
        _moved(8),
    ),
    Plant(
        "index off by one",
        "stream-starts-early",
        ASSEMBLY,
        _JOB,
        _moved(-8),
    ),
    Plant("instruction dropped", "job-not-started", ASSEMBLY, _JOB + r"\n", ""),
    Plant(
        "loop body wrong", "frep-body-one-more", ASSEMBLY, _FREP, lambda m: instead(m, 4, str(int(m[4]) + 1))
    ),
    Plant(
        "loop body wrong",
        "each-instruction-repeated",
        ASSEMBLY,
        _FREP,
        lambda m: instead(m, 2, str(int(m[2]) & ~1)),
    ),
    Plant(
        "stagger wrong",
        "targets-staggered",
        ASSEMBLY,
        _FREP,
        lambda m: m[0].replace("0x0b, 0, x1", "0x0b, 1, x3"),
    ),
    Plant(
        "stagger wrong",
        "sources-staggered",
        ASSEMBLY,
        _FREP,
        lambda m: m[0].replace("0x0b, 0, x1", "0x0b, 1, x5"),
    ),
    Plant("wrong register", "frep-count-of-another", ASSEMBLY, _FREP, lambda m: instead(m, 3, "zero")),
    Plant(
        "fence missing",
        "asked-early",
        ASSEMBLY,
        r"(?:^    \.insn i 0x2b, 1, zero, x0, \d # .*\n)+",
        "",
    ),
    Plant(
        "fence missing",
        "another-stream-waited-for",
        ASSEMBLY,
        r"^    \.insn i 0x2b, 1, t\d, x0, (\d) # .*$",
        lambda m: instead(m, 1, str((int(m[1]) + 1) % 3)),
        shows="execution",
    ),
    Plant(
        "status ignored",
        "wait-ends-at-once",
        ASSEMBLY,
        r"^    bgez (t\d), (?=\.L\w+\n)",
        r"    bltz \1, ",
        shows="execution",
    ),
)

PACKED = (
    Plant(
        "lanes mixed up",
        "packed-the-other-way-round",
        ASSEMBLY,
        r"^    (\.insn r 0x33, 0, 88, )(\w+), (\w+), (\w+) # ",
        r"    \1\2, \4, \3 # ",
    ),
    Plant(
        "lanes mixed up",
        "first-lane-twice",
        ASSEMBLY,
        r"^    (\.insn r 0x33, 0, 88, )(\w+), (\w+), (\w+) # ",
        r"    \1\2, \3, \3 # ",
    ),
    Plant(
        "lanes mixed up",
        "second-lane-twice",
        ASSEMBLY,
        r"^    (\.insn r 0x33, 0, 88, )(\w+), (\w+), (\w+) # ",
        r"    \1\2, \4, \4 # ",
    ),
    Plant(
        "lanes mixed up",
        "scalar-not-spread",
        ASSEMBLY,
        r"^    \.insn r 0x33, (4), (?:72|67), ",
        lambda m: instead(m, 1, "0"),
    ),
    Plant(
        "lanes mixed up",
        "second-operand-spread",
        ASSEMBLY,
        r"^    \.insn r 0x33, (0), (?:65|67|70|72), ",
        lambda m: instead(m, 1, "4"),
    ),
    Plant(
        "horizontal reduction wrong", "sum-of-lanes-dropped", ASSEMBLY, r"^    \.insn r 0x33, 0, 71, .*\n", ""
    ),
    Plant(
        "horizontal reduction wrong",
        "lanes-added-not-summed",
        ASSEMBLY,
        r"^    \.insn r 0x33, 0, (71), ",
        lambda m: instead(m, 1, "65"),
    ),
    Plant(
        "wrong operation",
        "packed-product-not-added",
        ASSEMBLY,
        r"^    \.insn r 0x33, [04], (72), ",
        lambda m: instead(m, 1, "67"),
    ),
    Plant(
        "wrong sign",
        "packed-difference",
        ASSEMBLY,
        r"^    \.insn r 0x33, 0, (65), ",
        lambda m: instead(m, 1, "66"),
    ),
    Plant(
        "maximum and minimum mixed up",
        "packed-minimum",
        ASSEMBLY,
        r"^    \.insn r 0x33, 0, (70), ",
        lambda m: instead(m, 1, "69"),
    ),
    Plant(
        "uninitialised accumulator", "packed-start-dropped", ASSEMBLY, r"^    \.insn r 0x33, 0, 77, .*\n", ""
    ),
    Plant("wrong register", "packed-target", ASSEMBLY, _PACKED, other_register(2)),
    Plant("wrong register", "packed-first-source", ASSEMBLY, _PACKED, other_register(3)),
    Plant("wrong register", "packed-second-source", ASSEMBLY, _PACKED, other_register(4)),
)


def _exchanged(first: int, second: int):  # type: ignore[no-untyped-def]
    """The match with two of its groups exchanged, the first standing before the second."""

    def change(match: re.Match[str]) -> str:
        begin, end = match.start(), match.end()
        parts = (match.start(first), match.end(first), match.start(second), match.end(second))
        text = match.string
        return (
            text[begin : parts[0]]
            + match[second]
            + text[parts[1] : parts[2]]
            + match[first]
            + text[parts[3] : end]
        )

    return change


_SET = r"^    li (\w+), (-?\d+)\n    \.insn i 0x2b, 2, x0, \1, (?:{numbers}) # .*\n"
_REPETITION = _SET.format(numbers=r"3[2-4]")
_TWO_STRIDES = (
    _SET.format(numbers=r"19[2-4]") + r"    li (\w+), (-?\d+)\n(?=    \.insn i 0x2b, 2, x0, \3, 22[4-6] #)"
)
_TWO_BOUNDS = (
    _SET.format(numbers=r"6[4-6]") + r"    li (\w+), (-?\d+)\n(?=    \.insn i 0x2b, 2, x0, \3, 9[6-8] #)"
)
_NUMBER = r"f(?:t|a|s)\d+"

STRANGE = (
    # One rounding of a long sum is within the sum's bound, so these are in other statements.
    Plant("stream of another shape", "repetition-one-less", ASSEMBLY, _REPETITION, more(2, -1)),
    Plant(
        "stream of another shape", "repetition-one-more", ASSEMBLY, _REPETITION, more(2, 1), shows="execution"
    ),
    Plant(
        "stream of another shape", "strides-of-two-loops-exchanged", ASSEMBLY, _TWO_STRIDES, _exchanged(2, 4)
    ),
    Plant(
        "stream of another shape", "bounds-of-two-loops-exchanged", ASSEMBLY, _TWO_BOUNDS, _exchanged(2, 4)
    ),
    Plant(
        "stride wrong", "stride-of-half", ASSEMBLY, _STRIDE, lambda m: instead(m, 2, str(int(m[2]) // 16 * 8))
    ),
    Plant(
        "one iteration more",
        "frep-twice-as-often",
        ASSEMBLY,
        r"^    li (\w+), (\d+)\n(?=    \.insn i 0x0b, \d+, x\d+, \1, )",
        lambda m: instead(m, 2, str(2 * int(m[2]) + 1)),
    ),
    Plant(
        "one iteration short",
        "frep-once",
        ASSEMBLY,
        r"^    li (\w+), ([1-9]\d*)\n(?=    \.insn i 0x0b, \d+, x\d+, \1, )",
        lambda m: instead(m, 2, "0"),
    ),
    Plant(
        "fence missing",
        "store-read-without-fence",
        ASSEMBLY,
        r"(?<=\n)    fence\n(?=    \.insn i 0x2b, 2)",
        "",
    ),
    Plant(
        "rounding mode wrong",
        "rounds-up",
        ASSEMBLY,
        rf"^    f(?:add|sub|mul)\.s ({_NUMBER}), (?!\1\b){_NUMBER}, (?!\1\b){_NUMBER}$",
        r"\g<0>, rup",
    ),
    Plant(
        "rounding mode wrong",
        "rounds-down",
        ASSEMBLY,
        rf"^    fn?m(?:add|sub)\.s ({_NUMBER}), {_NUMBER}, {_NUMBER}, (?!\1\b){_NUMBER}$",
        r"\g<0>, rdn",
    ),
    Plant(
        "rounding mode wrong",
        "rounding-mode-of-the-kernel",
        ASSEMBLY,
        r"^    csrsi 0x7c0, 1.*$",
        "    csrwi frm, 2\n\\g<0>",
        shows="execution",
    ),
    Plant(
        "wrong width",
        "constant-in-sixteen-bits",
        ASSEMBLY,
        r"^    li (\w+), (\d{6,})$",
        lambda m: instead(m, 2, str(int(m[2]) & 0xFFFF)),
    ),
    Plant(
        "wrong width",
        "count-in-eight-bits",
        ASSEMBLY,
        r"^    (?:li|addi) (?:[at]\d+, )+(\d{3,4})\n(?!    \.insn)",
        lambda m: instead(m, 1, str(int(m[1]) & 0xFF)),
    ),
    Plant(
        "wrong width",
        "workspace-compared-with-sign",
        ASSEMBLY,
        r"^    bltu (\w+), (\w+), (\.L\w+_refuse)$",
        r"    bgtu \1, \2, \3",
    ),
    Plant(
        "index off by one",
        "two-loads-of-one-offset",
        ASSEMBLY,
        r"^(    fl([wd]) \w+, )(\d+)(\(\w+\)\n    fl\2 \w+, )(\d+)(?=\(\w+\)$)",
        r"\1\3\4\3",
    ),
    Plant(
        "index off by one",
        "two-stores-of-one-offset",
        ASSEMBLY,
        r"^(    fs([wd]) \w+, )(\d+)(\(\w+\)\n    fs\2 \w+, )(\d+)(?=\(\w+\)$)",
        r"\1\3\4\3",
    ),
    Plant(
        "zero of the other sign",
        "relu-from-minus-zero",
        ASSEMBLY,
        r"^    fmv\.w\.x (\w+), zero$",
        r"\g<0>\n    fsgnjn.s \1, \1, \1",
        needs=r"# kernel (?:relu|srelu|drelu)",
    ),
    Plant(
        "wrong in a range",
        "more-arguments-are-ordinary",
        ASSEMBLY,
        r"^    li (\w+), (490000)$",
        lambda m: instead(m, 2, "540000"),
    ),
    Plant(
        "wrong in a range",
        "all-arguments-are-ordinary",
        ASSEMBLY,
        r"^    li (\w+), (490000)$",
        lambda m: instead(m, 2, "2000000000"),
    ),
)
