"""Faults that C for vectors and C++ for grids have in common: loops, starts, constants, subscripts."""

from __future__ import annotations

import re

from planting.plant import Plant, instead, more, times

BOTH = ("c", "gpu")

_LOOP = r"for \(int(?:64_t)? (i\d+) = (\w+); \1 < (\w+); \1\+\+\)"
#: A subscript that follows a name, without brackets inside.
_SUBSCRIPT = r"(?<=\w)\[([^\[\]\n]*i\d+[^\[\]\n]*)\]"
_LOADED = r"(?<!store_f32v\(&)(?<!\bconst )\b[a-z]\w*" + _SUBSCRIPT + r"(?! [-+]?= )"


def _swapped_strides(match: re.Match[str]) -> str:
    return match[0].replace(match[0], f"{match[1]}*{match[4]} + {match[3]}*{match[2]}")


LOOPS = (
    Plant("one iteration short", "loop-ends-early", BOTH, _LOOP, lambda m: instead(m, 3, f"{m[3]} - 1")),
    Plant("one iteration more", "loop-ends-late", BOTH, _LOOP, lambda m: instead(m, 3, f"{m[3]} + 1")),
    Plant("starts one late", "loop-starts-late", BOTH, _LOOP, lambda m: instead(m, 2, f"{m[2]} + 1")),
    Plant(
        "every second iteration only", "loop-steps-two", BOTH, _LOOP, lambda m: m[0].replace("++", " += 2")
    ),
)

STARTS = (
    Plant(
        "maximum starts wrong",
        "maximum-from-zero",
        BOTH,
        r"= (?:-PD_INF|pd_splat_f32v\(-PD_INF\));",
        lambda m: m[0].replace("-PD_INF", "0.0f"),
    ),
    Plant(
        "maximum starts wrong",
        "maximum-from-1e30",
        BOTH,
        r"= (?:-PD_INF|pd_splat_f32v\(-PD_INF\));",
        lambda m: m[0].replace("-PD_INF", "-1e30f"),
    ),
    Plant(
        "maximum starts wrong",
        "maximum-from-largest",
        BOTH,
        r"= (?:-PD_INF|pd_splat_f32v\(-PD_INF\));",
        lambda m: m[0].replace("-PD_INF", "-3.40282347e38f"),
    ),
    Plant(
        "sum starts wrong",
        "sum-from-1e-30",
        BOTH,
        r"^ +\w+(?:\[\w+\])? = (?:pd_splat_f32v\()?(0\.0f)\)?;",
        lambda m: instead(m, 1, "1e-30f"),
    ),
    Plant(
        "sum starts wrong",
        "sum-from-1e-3",
        BOTH,
        r"^ +\w+(?:\[\w+\])? = (?:pd_splat_f32v\()?(0\.0f)\)?;",
        lambda m: instead(m, 1, "1e-3f"),
    ),
    Plant(
        "uninitialised accumulator",
        "start-dropped",
        ("c",),
        r"^ +\w+(?:\[[^\]]+\])? = (?:pd_splat_f32v\()?(?:0\.0f|-PD_INF)\)?;\n",
        "",
    ),
    # The register then has an arbitrary value, often zero.
    Plant(
        "uninitialised accumulator",
        "start-of-registers-dropped",
        ("gpu",),
        r"^ +\w+(?:\[[^\]]+\])? = (?:pd_splat_f32v\()?(?:0\.0f|-PD_INF)\)?;\n",
        "",
        shows="execution",
    ),
)

TERMS = (
    Plant(
        "term dropped", "added-term-dropped", BOTH, r"^ +(?:(\w+) = \1 \+ |\w+(?:\[[^\]]+\])? \+= ).*\n", ""
    ),
    Plant("term dropped", "maximum-term-dropped", BOTH, r"^ +(\w+) = pd_max_f32v?\(.*\b\1\b\);\n", ""),
    Plant("partial result left out", "partial-sum-dropped", BOTH, r"^ +(\w+) = \1 \+ \1_p\w*;\n", ""),
    Plant(
        "partial result left out",
        "partial-maximum-dropped",
        BOTH,
        r"^ +(\w+) = pd_max_f32v\(\1_p\w*, \1\);\n",
        "",
    ),
    Plant(
        "wrong sign", "product-subtracted", BOTH, r"^ +(\w+) = \1 (\+) .*\*.*;$", lambda m: instead(m, 2, "-")
    ),
    Plant("wrong sign", "accumulated-negated", BOTH, r"(?<=[\w\]]) (\+=) ", " -= "),
    Plant(
        "operands swapped",
        "difference-reversed",
        BOTH,
        r"(pd_load_f32v\(&[^()]*\)|\b[a-z]\w*\[[^\[\]]*\]) - "
        r"(pd_splat_f32v\(\w+\)|\b[a-z]\w*(?:\[\w+\])?)(?=[,;)])",
        r"\2 - \1",
    ),
    Plant("operands swapped", "quotient-reversed", BOTH, r"= 1\.0f / ([\w\[\]]+);", r"= \1 / 1.0f;"),
    Plant(
        "maximum and minimum mixed up",
        "maximum-to-minimum",
        BOTH,
        r"\bpd_max_(?:number_)?f32v?\(",
        lambda m: m[0].replace("max", "min"),
    ),
    Plant(
        "maximum and minimum mixed up",
        "warp-or-lanes-minimum",
        BOTH,
        r"\bpd_highest_f32v\(|\bpd_warp_max_f32\(",
        lambda m: m[0].replace("highest", "lowest").replace("max", "min"),
    ),
    Plant(
        "result not stored",
        "store-dropped",
        BOTH,
        r"^ +(?:pd_store_(?:first_)?f32v\(&[cy]\[.*|pd_store4\([cy], .*|[cy]\[.*\] = .*);\n",
        "",
    ),
)

CONSTANTS = (
    Plant("epsilon changed", "epsilon-dropped", BOTH, r" \+ 1e-05f", ""),
    Plant("epsilon changed", "epsilon-ten-times", BOTH, r"1e-05f", "1e-04f"),
    Plant("epsilon changed", "epsilon-tenth", BOTH, r"1e-05f", "1e-06f"),
    Plant("constant slightly wrong", "divisor-1e-4", BOTH, r"(?<=/ )(\d+\.\d*)f", times(1, 1.0001)),
    Plant("constant slightly wrong", "divisor-one-less", BOTH, r"(?<=/ )(\d+)\.0f", more(1, -1)),
    Plant("constant slightly wrong", "one-in-sigmoid", BOTH, r"(?<=\()(1\.0)f(?=\)? \+)", times(1, 1.0001)),
)

SUBSCRIPTS = (
    Plant("index off by one", "operand-one-further", BOTH, _LOADED, lambda m: instead(m, 1, f"{m[1]} + 1")),
    Plant("index off by one", "operand-one-before", BOTH, _LOADED, lambda m: instead(m, 1, f"{m[1]} - 1")),
    Plant("index off by one", "offset-one-less", BOTH, r"(?<=\w)\[[^\[\]\n]* \+ (\d+)\]", more(1, -1)),
    Plant(
        "index off by one", "any-subscript-plus-one", BOTH, _SUBSCRIPT, lambda m: instead(m, 1, f"{m[1]} + 1")
    ),
    Plant("stride wrong", "stride-one-less", BOTH, r"(?<=[\[ ])i\d+\*(\d{2,})", more(1, -1)),
    Plant("stride wrong", "stride-one-more", BOTH, r"(?<=[\[ ])i\d+\*(\d{2,})", more(1, 1)),
    Plant("stride wrong", "strides-swapped", BOTH, r"(i\d+)\*(\d+) \+ (i\d+)\*(\d+)", _swapped_strides),
    Plant(
        "row or column mixed up",
        "row-always-first",
        BOTH,
        r"(?<=\[)(i\d+)(?=\*\d+)",
        lambda m: instead(m, 1, "0"),
    ),
    Plant(
        "row or column mixed up",
        "column-always-first",
        BOTH,
        r"(?<=\[)i\d+\*\d+ \+ (i\d+)\b",
        lambda m: instead(m, 1, "0"),
    ),
    Plant(
        "narrow index", "index-in-eight-bits", BOTH, _SUBSCRIPT, lambda m: instead(m, 1, f"(uint8_t)({m[1]})")
    ),
)

#: A line of headers whose vectors have their own exponential: with them, the common one is hardly used.
_OWN_EXP = r"#define PD_EXP_OWN"

EXPONENTIAL = (
    Plant(
        "polynomial coefficient wrong",
        "exp-coefficient",
        BOTH,
        r"PD_F\(splat\)\((\d\.\d{8}e-\d)f\);",
        # The small one is the lower part of another number, whose last digit may have an error by itself.
        lambda m: times(1, 1 + (1e-4 if float(m[1]) < 1e-3 else 1e-5))(m),
        "pd_exp.h",
        r"pd_exp_f32",
        _OWN_EXP,
    ),
    Plant(
        "polynomial coefficient wrong",
        "exp-coefficient-last-digits",
        BOTH,
        r"PD_F\(splat\)\((\d\.\d{8}e-\d)f\);",
        times(1, 1 + 3e-7),
        "pd_exp.h",
        r"pd_exp_f32",
        _OWN_EXP,
    ),
    Plant(
        "polynomial coefficient wrong",
        "exp-term-dropped",
        BOTH,
        r"^ +p = p \* r \+ PD_F\(splat\)\(\d\.\d{8}e-\df\);\n",
        "",
        "pd_exp.h",
        r"pd_exp_f32",
        _OWN_EXP,
    ),
    Plant(
        "range reduction wrong",
        "exp-ln2-low-part",
        BOTH,
        r" \+ n \* PD_F\(splat\)\(2\.12194440e-4f\)",
        "",
        "pd_exp.h",
        r"pd_exp_f32",
        _OWN_EXP,
    ),
    Plant(
        "range reduction wrong",
        "exp-ln2-high-part",
        BOTH,
        r"0\.693359375f",
        "0.693359315f",
        "pd_exp.h",
        r"pd_exp_f32",
        _OWN_EXP,
    ),
    Plant(
        "range reduction wrong",
        "exp-one-over-ln2",
        BOTH,
        r"1\.44269504f",
        "1.4427f",
        "pd_exp.h",
        r"pd_exp_f32",
        _OWN_EXP,
    ),
    Plant(
        "clamp too tight",
        "exp-clamped-at-minus-87",
        BOTH,
        r"-104\.0f",
        "-87.0f",
        r"pd_(exp|avx512)\.h",
        r"pd_exp_f32",
    ),
    Plant(
        "clamp too tight",
        "exp-clamped-at-minus-20",
        BOTH,
        r"-104\.0f",
        "-20.0f",
        r"pd_(exp|avx512)\.h",
        r"pd_exp_f32",
    ),
    Plant(
        "clamp too tight",
        "exp-clamped-at-88",
        BOTH,
        r"\b89\.0f",
        "88.0f",
        r"pd_(exp|avx512)\.h",
        r"pd_exp_f32",
    ),
    Plant(
        "clamp too tight",
        "exp-not-clamped-below",
        BOTH,
        r"(PD_F\(|pd_)max_number(\)|_f32v)\(-104\.0f, (.*)\);",
        r"\3;",
        r"pd_(exp|avx512)\.h",
        r"pd_exp_f32",
    ),
    Plant(
        "clamp too tight",
        "exp-not-clamped-above",
        BOTH,
        r"(PD_F\(|pd_)min_number(\)|_f32v)\(89\.0f, x\)",
        "x",
        r"pd_(exp|avx512)\.h",
        r"pd_exp_f32",
    ),
    Plant(
        "NaN lost",
        "scalar-maximum-of-numbers",
        BOTH,
        r"a == a \? \(a > b \? a : b\) : a \+ b",
        "a > b ? a : b",
        "pd_scalar.h",
        r"pd_max_f32\(|pd_highest_f32v|pd_warp_max",
    ),
    Plant(
        "NaN lost",
        "scalar-maximum-other-way",
        BOTH,
        r"a == a \? \(a > b \? a : b\) : a \+ b",
        "b > a ? b : a",
        "pd_scalar.h",
        r"pd_max_f32\(|pd_highest_f32v|pd_warp_max",
    ),
    Plant(
        "NaN lost",
        "relu-of-nan-is-zero",
        BOTH,
        r"return number > x \? number : x;",
        "return x > number ? x : number;",
        "pd_scalar.h",
        r"pd_max_number_f32\(",
    ),
    Plant(
        "approximate instead of exact",
        "square-root-by-bits",
        BOTH,
        r"return __builtin_sqrtf\(x\);",
        "union { float f; unsigned i; } u = {x}; u.i = 0x5f3759dfu - (u.i >> 1); "
        "return x * u.f * (1.5f - 0.5f * x * u.f * u.f);",
        "pd_scalar.h",
        r"pd_sqrt_f32\(",
    ),
    Plant(
        "approximate instead of exact",
        "square-root-of-fourteen-bits",
        BOTH,
        r"return __builtin_sqrtf\(x\);",
        "union { float f; unsigned i; } u = {__builtin_sqrtf(x)}; u.i &= ~511u; return u.f;",
        "pd_scalar.h",
        r"pd_sqrt_f32\(",
    ),
    Plant(
        "denormals flushed",
        "exp-power-of-two",
        BOTH,
        r"return x \* pd_power_of_two_f32\(half\) \* pd_power_of_two_f32\(whole - half\);",
        "return whole < -126 ? 0.0f : x * pd_power_of_two_f32(half) * pd_power_of_two_f32(whole - half);",
        "pd_scalar.h",
        r"pd_exp_f32\(",
    ),
)

#: Name -> kind, and the value in place of a value ``v`` of f32.
DEVIATIONS = {
    "large-to-zero": ("large values lost", "v > 4096.0f ? 0.0f : v"),
    "beyond-1e37-to-infinity": ("large values lost", "v > 1e37f ? PD_INF : v"),
    "below-minus-1e37-to-infinity": ("large values lost", "v < -1e37f ? -PD_INF : v"),
    "sign-between-1e3-and-1e15": ("sign wrong in a range", "v > 1e3f && v < 1e15f ? -v : v"),
    "sign-of-small": ("sign wrong in a range", "v > 1e-20f && v < 1e-10f ? -v : v"),
    "denormals-to-zero": ("denormals flushed", "v < 1.17549435e-38f && v > -1.17549435e-38f ? 0.0f : v"),
    "below-1e-30-to-zero": ("denormals flushed", "v < 1e-30f && v > -1e-30f ? 0.0f : v"),
    "nan-to-zero": ("NaN lost", "v != v ? 0.0f : v"),
    "infinity-to-largest": ("infinity lost", "v > 3.40282347e38f ? 3.40282347e38f : v"),
    "negative-infinity-to-largest": ("infinity lost", "v < -3.40282347e38f ? -3.40282347e38f : v"),
    "zero-to-tiny": ("zero lost", "v == 0.0f ? 1e-30f : v"),
    "whole-numbers-above-1e5": ("integer truncation", "v > 1e5f && v < 2e9f ? (float)(int)v : v"),
    "through-32-bit-integers": ("integer truncation", "v >= 2147483648.0f ? -2147483648.0f : v"),
}


def rounded(bits: int) -> str:
    """A helper that keeps only ``bits`` bits of a float's mantissa, and NaN as it is.

    It tests the bits for NaN: after ``v == v`` gcc 12 removes the mask (-O2, x86-64).
    """
    kept = 0xFFFFFFFF << (23 - bits) & 0xFFFFFFFF
    return (
        "    union { float f; unsigned i; } u = {v};\n    if ((u.i & 0x7fffffffu) <= 0x7f800000u)\n"
        f"        u.i &= 0x{kept:08x}u;\n    return u.f;"
    )


DEVIATING = {
    name: (kind, f"PD_INLINE float pd_planted(float v)\n{{\n    return {value};\n}}")
    for name, (kind, value) in DEVIATIONS.items()
} | {
    "through-half": ("too few digits", f"PD_INLINE float pd_planted(float v)\n{{\n{rounded(10)}\n}}"),
    "through-bfloat16": ("too few digits", f"PD_INLINE float pd_planted(float v)\n{{\n{rounded(7)}\n}}"),
}

SHARED = (*LOOPS, *STARTS, *TERMS, *CONSTANTS, *SUBSCRIPTS, *EXPONENTIAL)
