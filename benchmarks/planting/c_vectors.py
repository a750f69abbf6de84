"""Faults in C with vectors: in emitted code, and in the headers of vectors and functions."""

from __future__ import annotations

from collections.abc import Collection

from planting.c_calls import HEAD
from planting.plant import Plant, instead, more
from planting.shared import DEVIATING

C = ("c",)
_VECTORS = r"pd_(avx512|avx2|neon|sve)\.h"

#: The kernel's function, with an array, and its end.
_FIRST_INPUT = rf"(?s){HEAD}const float \*restrict (\w+)[^;{{]*\)\n\{{\n.*?(    return 0;\n)"
FIRST_OUTPUT = rf"(?s){HEAD}[^;{{]*?(?<!const )float \*restrict (\w+)[^;{{]*\)\n\{{\n.*?(    return 0;\n)"
_TAIL = r"pd_load_first_f32v\((&[^,;]*), (\d+)\)"

TAILS = (
    Plant("tail mask wrong", "tail-load-one-less", C, _TAIL, more(2, -1)),
    Plant("tail mask wrong", "tail-load-one-more", C, _TAIL, more(2, 1), shows="reads"),
    Plant("tail mask wrong", "tail-store-one-less", C, r"pd_store_first_f32v\(&[^,;]*, (\d+),", more(1, -1)),
    Plant(
        "writes past the end", "tail-store-one-more", C, r"pd_store_first_f32v\(&[^,;]*, (\d+),", more(1, 1)
    ),
    Plant("tail mask wrong", "tail-selects-one-less", C, r"pd_select_first_f32v\((\d+),", more(1, -1)),
    Plant("tail mask wrong", "tail-selects-one-more", C, r"pd_select_first_f32v\((\d+),", more(1, 1)),
    Plant(
        "tail mask wrong",
        "tail-not-selected",
        C,
        r"pd_select_first_f32v\(\d+, (pd_load_first_f32v\(&[^,;]*, \d+\)), pd_splat_f32v\([^()]*\)\)",
        r"\1",
    ),
    Plant("tail skipped", "tail-line-dropped", C, r"^ +.*_first_f32v\(.*;\n", ""),
    Plant(
        "tail handled wrongly",
        "tail-identity-zero",
        C,
        r"(pd_select_first_f32v\(.*pd_splat_f32v\()-PD_INF(\)\))",
        r"\g<1>0.0f\2",
    ),
    Plant(
        "tail handled wrongly",
        "tail-identity-low",
        C,
        r"(pd_select_first_f32v\(.*pd_splat_f32v\()-PD_INF(\)\))",
        r"\g<1>-1e30f\2",
    ),
    Plant("reads past the end", "tail-loads-whole-vector", C, _TAIL, r"pd_load_f32v(\1)", shows="reads"),
    Plant(
        "writes past the end",
        "tail-stores-whole-vector",
        C,
        r"pd_store_first_f32v\((&[^,;]*), \d+,",
        r"pd_store_f32v(\1,",
    ),
    Plant(
        "reads past the end",
        "reads-behind-input",
        C,
        _FIRST_INPUT,
        lambda m: instead(
            m, 2, f"    {{ volatile float pd_seen = {m[1]}[PD_CELLS_{m[1]}]; (void)pd_seen; }}\n{m[2]}"
        ),
        shows="execution",
    ),
    Plant(
        "writes past the end",
        "writes-behind-output",
        C,
        FIRST_OUTPUT,
        lambda m: instead(m, 2, f"    {m[1]}[PD_CELLS_{m[1]}] = 1.0f;\n{m[2]}"),
        shows="execution",
    ),
    Plant(
        "reads past the end",
        "reads-before-input",
        C,
        _FIRST_INPUT,
        lambda m: instead(m, 2, f"    {{ volatile float pd_seen = {m[1]}[-1]; (void)pd_seen; }}\n{m[2]}"),
        shows="execution",
    ),
    Plant(
        "writes past the end",
        "writes-before-output",
        C,
        FIRST_OUTPUT,
        lambda m: instead(m, 2, f"    {m[1]}[-1] = 1.0f;\n{m[2]}"),
        shows="execution",
    ),
    Plant(
        "input changed",
        "input-overwritten",
        C,
        _FIRST_INPUT,
        lambda m: instead(m, 2, f"    ((float *){m[1]})[0] = 0.0f;\n{m[2]}"),
        shows="execution",
    ),
)

LANES = (
    Plant(
        "one lane short",
        "mask-one-short",
        C,
        r"\(\(1u << n\) - 1\)",
        "((1u << n >> (n > 1)) - 1)",
        _VECTORS,
        r"_first_f32v\(",
    ),
    Plant(
        "one lane short",
        "window-shifted",
        C,
        r"window \+ (8|4) - n\)",
        r"window + \1 - n + (n > 1))",
        _VECTORS,
        r"_first_f32v\(",
    ),
    Plant(
        "one lane short",
        "predicate-one-short",
        C,
        r"svwhilelt_b32_s32\(0, n\)",
        "svwhilelt_b32_s32(0, n - (n > 1))",
        _VECTORS,
        r"_first_f32v\(",
    ),
    Plant(
        "one lane short",
        "third-lane-missing",
        C,
        r"return n == 3 \? .* : two;",
        "return two;",
        _VECTORS,
        r"pd_load_first_f32v\(.*, 3\)",
    ),
    Plant(
        "one lane short",
        "third-lane-not-stored",
        C,
        r"if \(n == 3\)\n.*;\n",
        "",
        _VECTORS,
        r"pd_store_first_f32v\([^;]*, 3,",
    ),
    Plant(
        "horizontal reduction wrong",
        "sum-of-lanes-short",
        C,
        r"(?<=pd_sum_f32v\(pd_f32v v\)\n\{\n)(.*distance = PD_LANES_F32 / 2; distance);",
        r"\1 > 1;",
        "pd_vector.h",
        r"pd_sum_f32v\(",
    ),
    Plant(
        "horizontal reduction wrong",
        "sum-of-half-the-lanes",
        C,
        r"(?<=pd_sum_f32v\(pd_f32v v\)\n\{\n)(.*distance = PD_LANES_F32) / 2;",
        r"\1 / 4;",
        "pd_vector.h",
        r"pd_sum_f32v\(",
    ),
    Plant(
        "horizontal reduction wrong",
        "highest-of-lanes-short",
        C,
        r"(?<=pd_highest_f32v\(pd_f32v v\)\n\{\n)(.*distance = PD_LANES_F32 / 2; distance);",
        r"\1 > 1;",
        "pd_vector.h",
        r"pd_highest_f32v\(",
    ),
    Plant(
        "horizontal reduction wrong",
        "highest-of-half-the-lanes",
        C,
        r"(?<=pd_highest_f32v\(pd_f32v v\)\n\{\n)(.*distance = PD_LANES_F32) / 2;",
        r"\1 / 4;",
        "pd_vector.h",
        r"pd_highest_f32v\(",
    ),
    Plant(
        "lane of a shuffle wrong",
        "swap-of-two-lanes",
        C,
        r"\b0xB1\b(?=\);\n    \})",
        "0xE4",
        _VECTORS,
        r"pd_(sum|highest)_f32v\(",
    ),
    Plant(
        "lane of a shuffle wrong",
        "swap-of-four-lanes",
        C,
        r"case 2: (.*)0x4E",
        r"case 2: \g<1>0xB1",
        _VECTORS,
        r"pd_(sum|highest)_f32v\(",
    ),
    Plant(
        "lane of a shuffle wrong",
        "swap-of-halves",
        C,
        r"distance == 2 \? vextq_f32\(v, v, 2\)",
        "distance == 2 ? vextq_f32(v, v, 1)",
        _VECTORS,
        r"pd_(sum|highest)_f32v\(",
    ),
    Plant(
        "lane of a shuffle wrong",
        "extract-wrong",
        C,
        r"svext_f32\(pairs, pairs, 2\)",
        "svext_f32(pairs, pairs, 1)",
        _VECTORS,
        r"pd_(sum|highest)_f32v\(",
    ),
    Plant(
        "aligned access",
        "aligned-load",
        C,
        r"_mm(\d+)_loadu_ps\(p\)",
        r"_mm\1_load_ps(p)",
        _VECTORS,
        r"pd_load_f32v\(",
        shows="execution",
    ),
    Plant(
        "aligned access",
        "aligned-store",
        C,
        r"_mm(\d+)_storeu_ps\(p, v\);\n?(?=.*\}$|\n)",
        r"_mm\1_store_ps(p, v); ",
        _VECTORS,
        r"pd_store_f32v\(",
        shows="execution",
    ),
)

FUNCTIONS = (
    Plant(
        "NaN lost",
        "vector-maximum-of-instruction",
        C,
        r"_mm512_mask_max_ps\(a, _mm512_cmp_ps_mask\(a, a, _CMP_ORD_Q\), a, b\)",
        "_mm512_max_ps(a, b)",
        _VECTORS,
        r"pd_max_f32v\(|pd_highest",
    ),
    Plant(
        "NaN lost",
        "vector-maximum-blend-dropped",
        C,
        r"_mm256_blendv_ps\((_mm256_max_ps\(a, b\)), a, .*\);",
        r"\1;",
        _VECTORS,
        r"pd_max_f32v\(|pd_highest",
    ),
    Plant(
        "NaN lost",
        "vector-maximum-swapped",
        C,
        r"(?<=[ (])_mm(\d+)(_mask)?_max_ps\((a, _mm512_cmp.*, )?a, b\)",
        r"_mm\1_max_ps(b, a)",
        _VECTORS,
        r"pd_max_f32v\(|pd_highest",
    ),
    Plant(
        "NaN lost",
        "vector-maximum-of-numbers",
        C,
        r"vmaxq_f32\(|svmax_f32_x\(",
        lambda m: "vmaxnmq_f32(" if m[0][0] == "v" else "svmaxnm_f32_x(",
        _VECTORS,
        r"pd_max_(number_)?f32v\(|pd_highest",
    ),
    Plant(
        "NaN lost",
        "vector-relu-swapped",
        C,
        r"_mm(\d+)_max_ps\(_mm\d+_set1_ps\(number\), v\)",
        r"_mm\1_max_ps(v, _mm\1_set1_ps(number))",
        _VECTORS,
        r"pd_max_number_f32v\(",
    ),
    Plant(
        "polynomial coefficient wrong",
        "own-exp-coefficient",
        C,
        r"0\.166670308f|1\.66535839e-1f",
        "0.1666f",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "polynomial coefficient wrong",
        "own-exp-coefficient-slightly",
        C,
        r"0\.500016212f|5\.00059307e-1f",
        "0.500001f",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "table entry wrong",
        "table-of-powers-decimal",
        C,
        r"(?<!\* pd_splat_f32v\(8 \* )1\.(\d{7})\df",
        more(1, 40),
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "table entry wrong",
        "table-of-powers-hexadecimal",
        C,
        r"0x3f7([0-9a-f]{5})",
        lambda m: f"0x3f7{int(m[1], 16) ^ 64:05x}",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "range reduction wrong",
        "own-ln2-low-part",
        C,
        r" \+ n \* pd_splat_f32v\(2\.12194440e-4f( / 8)?\)",
        "",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "range reduction wrong", "own-one-over-ln2", C, r"1\.44269504f", "1.46f", _VECTORS, r"pd_exp_f32v\("
    ),
    Plant(
        "clamp too tight",
        "quick-path-too-wide",
        C,
        r"PD_EXP_QUICK_LIMIT 87\.0f",
        "PD_EXP_QUICK_LIMIT 104.0f",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant("NaN lost", "quick-path-takes-nan", C, r"_CMP_NLE_UQ", "_CMP_GT_OQ", _VECTORS, r"pd_exp_f32v\("),
    Plant(
        "denormals flushed",
        "scaled-in-one-step",
        C,
        r"return v \* (pd_power_of_two_f32v\()half\) \* .*;",
        r"return v * \1whole);",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "approximate instead of exact",
        "reciprocal-estimate",
        C,
        r"= 1\.0f / (\w+);",
        r"= pd_planted(\1);",
        helper="PD_INLINE float pd_planted(float v)\n{\n    union { float f; unsigned i; } u = {v};\n"
        "    u.i = 0x7ef311c7u - u.i;\n    return u.f * (2.0f - v * u.f);\n}",
    ),
    Plant(
        "approximate instead of exact",
        "reciprocal-twelve-bits",
        C,
        r"= 1\.0f / (\w+);",
        r"= pd_planted(1.0f / \1);",
        helper=DEVIATING["through-half"][1].replace("0xffffe000", "0xfffff800"),
    ),
    Plant(
        "approximate instead of exact",
        "exp-by-squares",
        C,
        r"pd_exp_f32v\(",
        "pd_planted(",
        helper="PD_INLINE pd_f32v pd_planted(pd_f32v v)\n{\n"
        "    v = v * pd_splat_f32v(1.0f / 4096) + pd_splat_f32v(1.0f);\n"
        "    for (int k = 0; k < 12; k++)\n        v = v * v;\n    return v;\n}",
    ),
)

#: Through memory and calls: gcc 12 sometimes loses changes of single lanes of a vector.
LANE_BY_LANE = """
static __attribute__((noinline)) pd_f32v pd_planted_v(pd_f32v v)
{
    float lanes[PD_LANES_F32];
    pd_store_f32v(lanes, v);
    for (int lane = 0; lane < PD_LANES_F32; lane++)
        lanes[lane] = pd_planted(lanes[lane]);
    return pd_load_f32v(lanes);
}"""

#: ``exp`` with the lanes replaced whose argument x satisfies ``{where}``.
_EXP_BUT = """\
PD_INLINE pd_f32v pd_planted(pd_f32v v)
{{
    float xs[PD_LANES_F32], es[PD_LANES_F32];
    pd_store_f32v(xs, v);
    pd_store_f32v(es, pd_exp_f32v(v));
    for (int lane = 0; lane < PD_LANES_F32; lane++) {{
        const float x = xs[lane];
        if ({where})
            es[lane] = {instead};
    }}
    return pd_load_f32v(es);
}}"""


#: A load; and one whose number is no term of a sum.
_LOAD = r"(?<!\w)pd_load_f32v\(&\w+\[[^\[\]]*\]\)"
_NO_TERM = rf"^( +(?! |(\w+) = \2 \+ ).*?)({_LOAD})"
#: Faults that move a term of a sum by no more than roundings of the sum may.
_SMALL = ("whole-numbers-above-1e5",)


def _deviations(stage: str, pattern: str, change: str, names: Collection[str]) -> list[Plant]:
    return [
        Plant(
            kind,
            f"{name}-{stage}",
            C,
            pattern,
            change,
            helper=helper.replace("PD_INLINE", "static __attribute__((noinline))") + LANE_BY_LANE,
        )
        for name, (kind, helper) in DEVIATING.items()
        if name in names
    ]


VALUES = (
    *_deviations(
        "stored",
        r"^( +pd_store_(?:first_)?f32v\(&[cy]\[[^\]]*\](?:, \d+)?, )(.*)\);$",
        r"\1pd_planted_v(\2));",
        DEVIATING,
    ),
    *_deviations("loaded", _LOAD, r"pd_planted_v(\g<0>)", DEVIATING.keys() - _SMALL),
    *_deviations("loaded", _NO_TERM, r"\1pd_planted_v(\3)", _SMALL),
    Plant(
        "wrong in a range",
        "exp-below-minus-87-is-zero",
        C,
        r"pd_exp_f32v\(",
        "pd_planted(",
        helper=_EXP_BUT.format(where="x < -87.0f", instead="0.0f"),
    ),
    Plant(
        "wrong in a range",
        "exp-near-minus-200-is-nan",
        C,
        r"pd_exp_f32v\(",
        "pd_planted(",
        helper=_EXP_BUT.format(where="x < -190.0f && x > -210.0f", instead="PD_INF - PD_INF"),
    ),
    Plant(
        "wrong in a range",
        "inputs-near-minus-200-are-zero",
        C,
        _LOAD,
        r"pd_planted_v(\g<0>)",
        helper="PD_INLINE float pd_planted(float v)\n{\n"
        "    return v < -150.0f && v > -250.0f ? 0.0f : v;\n}" + LANE_BY_LANE,
    ),
)

C_VECTORS = (*TAILS, *LANES, *FUNCTIONS, *VALUES)
