"""Faults in C with vectors that a generator's author may make: another loop's bound, array or width."""

from __future__ import annotations

import re

from planting.c_calls import SLOTS_MEET
from planting.plant import Plant, instead, times

C = ("c",)
_VECTORS = r"pd_(avx512|avx2|neon|sve)\.h"
_FUNCTION = r"^(?=\w[^\n]*\)\n\{)"
_LOOP = r"for \(int64_t (i\d+) = \w+; \1 < (\d+); \1\+\+\)"
_ITERATOR = r"(?<=[\[ ])(i\d+)\b(?=[^\[\]\n]*\](?! \+?=))"
_ARRAY = r"(?:const )?float \*restrict (?:const )?(\w+)"


def _before(match: re.Match[str]) -> str:
    """The text between the start of the function around the match and the match."""
    return re.split(_FUNCTION, match.string[: match.start()], flags=re.MULTILINE)[-1]


def _bound_of_another_loop(match: re.Match[str]) -> str:
    others = [m[2] for m in re.finditer(_LOOP, match.string) if m[2] != match[2]]
    return instead(match, 2, others[0]) if others else match[0]


def _another_iterator(match: re.Match[str]) -> str:
    known = re.findall(r"int64_t (i\d+) = ", _before(match))
    others = [name for name in known if name < match[1]]
    return others[-1] if others else match[0]


def _backwards(match: re.Match[str]) -> str:
    loops = [m for m in re.finditer(_LOOP, _before(match)) if m[1] == match[1]]
    return f"({loops[-1][2]} - 1 - {match[1]})" if loops else match[0]


def _another_array(match: re.Match[str]) -> str:
    found = re.search(rf"{_ARRAY}.*\Z", _before(match), re.DOTALL)
    names = dict.fromkeys(re.findall(_ARRAY, found[0])) if found else {}
    others = [name for name in names if name != match[1]]
    return instead(match, 1, others[0]) if match[1] in names and others else match[0]


MIXED_UP = (
    Plant("bound of another loop", "bound-of-another-loop", C, _LOOP, _bound_of_another_loop),
    Plant("iterator of another loop", "iterator-of-another-loop", C, _ITERATOR, _another_iterator),
    Plant("subscript backwards", "subscript-backwards", C, _ITERATOR, _backwards),
    Plant("another array", "operand-of-another-array", C, r"pd_load_f32v\(&(\w+)\[", _another_array),
    Plant(
        "term added twice",
        "term-added-twice",
        C,
        r"^ +(?:(\w+) = \1 \+ |\w+(?:\[[^\]]+\])? \+= ).*\n",
        lambda m: m[0] * 2,
    ),
    Plant("factor dropped", "factor-dropped", C, r" \* pd_splat_f32v\([\w\[\]]+\)(?=[ )])", ""),
    Plant(
        "shift dropped", "shift-dropped", C, r" \+ pd_(?:splat|load)_f32v\(&?[bm]\w*\[[^\]]*\]\)(?=\);)", ""
    ),
    Plant("subtrahend dropped", "subtrahend-dropped", C, r" - pd_splat_f32v\([\w\[\]]+\)(?=[ ,)])", ""),
    Plant(
        "epsilon changed",
        "epsilon-outside-the-root",
        C,
        r"(pd_sqrt_f32\(.*) \+ 1e-05f\)",
        r"(\1) + 1e-05f)",
    ),
    Plant("epsilon changed", "epsilon-one-percent", C, r"1e-05f", "1.01e-05f"),
    Plant("threshold wrong", "threshold-tiny", C, r"(?<=pd_max_number_)(f32v?\()0\.0f", r"\g<1>1e-30f"),
    Plant("threshold wrong", "threshold-below-zero", C, r"(?<=pd_max_number_)(f32v?\()0\.0f", r"\g<1>-1e-6f"),
)

WIDTHS = (
    Plant(
        "width of an access wrong",
        "half-a-vector-stored",
        C,
        r"\bpd_store_f32v\((&\w+\[[^\]]*\]), ",
        r"pd_store_first_f32v(\1, PD_LANES_F32 / 2, ",
    ),
    Plant(
        "width of an access wrong",
        "last-lane-not-stored",
        C,
        r"\bpd_store_f32v\((&\w+\[[^\]]*\]), ",
        r"pd_store_first_f32v(\1, PD_LANES_F32 - 1, ",
    ),
    Plant(
        "width of an access wrong",
        "half-a-vector-loaded",
        C,
        r"\bpd_load_f32v\((&\w+\[[^\]]*\])\)",
        r"pd_load_first_f32v(\1, PD_LANES_F32 / 2)",
    ),
    Plant(
        "width of an access wrong",
        "last-lane-not-loaded",
        C,
        r"\bpd_load_f32v\((&\w+\[[^\]]*\])\)",
        r"pd_load_first_f32v(\1, PD_LANES_F32 - 1)",
    ),
    Plant(
        "width of an access wrong",
        "tail-in-a-whole-vector-of-zeros",
        C,
        r"pd_store_first_f32v\((&\w+\[[^\]]*\]), (\d+), (.*)\);$",
        r"pd_store_f32v(\1, pd_select_first_f32v(\2, \3, pd_splat_f32v(0.0f)));",
    ),
)

LANES = (
    Plant(
        "lane of a broadcast missing",
        "splat-without-last-lane",
        C,
        r"return _mm(256|512)_set1_ps\(x\);",
        r"pd_f32v v = _mm\1_set1_ps(x); v[PD_LANES_F32 - 1] = 0.0f; return v;",
        _VECTORS,
        r"pd_splat_f32v\((?!0\.0f|-PD_INF)",
    ),
    Plant(
        "horizontal reduction wrong",
        "sum-without-first-lane",
        C,
        r"(?<=pd_sum_f32v\(pd_f32v v\)\n\{\n)",
        "    v[0] = 0.0f;\n",
        "pd_vector.h",
        r"pd_sum_f32v\(",
    ),
    Plant(
        "horizontal reduction wrong",
        "sum-without-last-lane",
        C,
        r"(?<=pd_sum_f32v\(pd_f32v v\)\n\{\n)",
        "    v[PD_LANES_F32 - 1] = 0.0f;\n",
        "pd_vector.h",
        r"pd_sum_f32v\(",
    ),
    Plant(
        "horizontal reduction wrong",
        "highest-without-last-lane",
        C,
        r"(?<=pd_highest_f32v\(pd_f32v v\)\n\{\n)",
        "    v[PD_LANES_F32 - 1] = v[0];\n",
        "pd_vector.h",
        r"pd_highest_f32v\(",
    ),
    Plant(
        "horizontal reduction wrong",
        "highest-without-first-lane",
        C,
        r"(?<=pd_highest_f32v\(pd_f32v v\)\n\{\n)",
        "    v[0] = v[1];\n",
        "pd_vector.h",
        r"pd_highest_f32v\(",
    ),
)

#: The estimate instructions of x86; elsewhere results with as few digits.
_ESTIMATES = """
PD_INLINE float pd_planted_rsqrt(float v)
{
#ifdef __SSE__
    return __builtin_ia32_rsqrtss((__v4sf){v})[0];
#else
    union { float f; unsigned i; } u = {1.0f / __builtin_sqrtf(v)};
    u.i &= ~4095u;
    return u.f;
#endif
}
PD_INLINE float pd_planted_rcp(float v)
{
#ifdef __SSE__
    return __builtin_ia32_rcpss((__v4sf){v})[0];
#else
    union { float f; unsigned i; } u = {1.0f / v};
    u.i &= ~4095u;
    return u.f;
#endif
}
"""
_ROOT, _RECIPROCAL = r"pd_sqrt_f32\(", r"= 1\.0f / (\w+);"

FUNCTIONS = (
    Plant(
        "approximate instead of exact",
        "root-of-estimate",
        C,
        _ROOT,
        "pd_planted(",
        helper="#include <immintrin.h>"
        + _ESTIMATES
        + "PD_INLINE float pd_planted(float v) { return v * pd_planted_rsqrt(v); }",
    ),
    Plant(
        "approximate instead of exact",
        "root-of-estimate-and-a-step",
        C,
        _ROOT,
        "pd_planted(",
        helper="#include <immintrin.h>" + _ESTIMATES + "PD_INLINE float pd_planted(float v)\n{\n"
        "    const float r = pd_planted_rsqrt(v);\n    return v * (r * (1.5f - 0.5f * v * r * r));\n}",
    ),
    Plant(
        "approximate instead of exact",
        "reciprocal-of-estimate",
        C,
        _RECIPROCAL,
        r"= pd_planted_rcp(\1);",
        helper="#include <immintrin.h>" + _ESTIMATES,
    ),
    Plant(
        "approximate instead of exact",
        "reciprocal-of-estimate-and-a-step",
        C,
        _RECIPROCAL,
        r"= pd_planted(\1);",
        helper="#include <immintrin.h>" + _ESTIMATES + "PD_INLINE float pd_planted(float v)\n{\n"
        "    const float r = pd_planted_rcp(v);\n    return r * (2.0f - v * r);\n}",
    ),
    Plant(
        "exponent rebuilt wrongly",
        "exponent-one-less",
        C,
        r"_mm256_set1_epi32\(127\)|n \+ 127\)(?=.*<< 23)",
        lambda m: m[0].replace("127", "126"),
        r"pd_(scalar|avx2)\.h",
        r"pd_exp_f32v?\(",
    ),
    Plant(
        "exponent rebuilt wrongly",
        "scale-before-rounding",
        C,
        r"_mm512_scalef_ps\(v, n\)|_mm256_cvtps_epi32\(n\)",
        lambda m: m[0].replace(
            "n)", "n + pd_splat_f32v(0.0625f))" if "512" in m[0] else "n + pd_splat_f32v(1))"
        ),
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "exponent rebuilt wrongly",
        "sixteenths-of-a-bit-further",
        C,
        r"_mm256_slli_epi32\(bits, 20\)|\b786432\.0f",
        lambda m: "_mm256_slli_epi32(bits, 21)" if "slli" in m[0] else "393216.0f",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "exponent rebuilt wrongly",
        "shift-for-positive-numbers-only",
        C,
        r"\b12582912\.0f|\b786432\.0f",
        lambda m: "8388608.0f" if m[0][0] == "1" else "524288.0f",
        r"pd_(exp|avx512|avx2)\.h",
        r"pd_exp_f32v?\(",
    ),
    Plant(
        "polynomial coefficient wrong",
        "own-exp-coefficient-five-percent",
        C,
        r"(0\.500016212|5\.00059307e-1)f",
        times(1, 1.05),
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "polynomial coefficient wrong",
        "own-exp-square-missing",
        C,
        r"\(r \* r\) \* ",
        "r * ",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "clamp too tight",
        "exp-clamped-at-minus-103",
        C,
        r"-104\.0f",
        "-103.0f",
        r"pd_(exp|avx512)\.h",
        r"pd_exp_f32v?\(",
    ),
    Plant(
        "clamp too tight",
        "exp-clamps-swapped",
        C,
        r"-104\.0f, (.*)89\.0f",
        r"-89.0f, \g<1>104.0f",
        r"pd_(exp|avx512)\.h",
        r"pd_exp_f32v?\(",
    ),
)

_STACK = r"(?<=^    PD_ALIGNED float )(\w+)\[(\d+)\]"

MEMORY = (
    Plant(
        "array on the stack too small",
        "stack-array-of-half",
        C,
        _STACK,
        lambda m: f"{m[1]}[{max(int(m[2]) // 2, 1)}]",
    ),
    Plant(
        "array on the stack too small",
        "stack-arrays-are-one",
        C,
        r"^    PD_ALIGNED float (\w+)\[\d+\];\n    PD_ALIGNED float (\w+)(\[\d+\]);",
        r"    PD_ALIGNED float \2\3;\n    float *const \1 = \2;",
    ),
    Plant(
        "workspace wrong",
        "areas-overlap-by-a-line",
        C,
        r"\(pd_(?:base|slot) \+ (\d+)\)",
        lambda m: instead(m, 1, str(max(0, int(m[1]) - 64))),
    ),
    Plant(
        "workspace wrong",
        "a-line-less-than-used",
        C,
        r"(?s)pd_workspace_bytes\((\d+), (\d+), threads\)(.*?workspace_bytes, )(\d+), (\d+)(?=, threads)",
        lambda m: f"pd_workspace_bytes({int(m[1]) - 64}, {m[2]}, threads){m[3]}{int(m[4]) - 64}, {m[5]}",
        shows="execution",
    ),
    Plant(
        "slot of the workspace wrong",
        "slots-overlap",
        C,
        r"\(size_t\)thread \* (\d+)",
        lambda m: instead(m, 1, str(int(m[1]) // 2)),
        needs=SLOTS_MEET,
        shows="execution",
    ),
    Plant(
        "aligned access",
        "stream-without-asking",
        C,
        r"\(uintptr_t\)p % \d+ == 0",
        "1",
        _VECTORS,
        r"pd_stream_f32v\(",
        shows="execution",
    ),
    Plant(
        "aligned access",
        "aligned-tail",
        C,
        r"_mm512_mask(z?)_(loadu|storeu)_ps",
        lambda m: m[0].replace("u_ps", "_ps"),
        _VECTORS,
        r"_first_f32v\(&[xyabcw]\[",
        shows="execution",
    ),
    Plant(
        "streaming store without fence",
        "stored-past-the-caches",
        C,
        r"pd_store_f32v\((?=&[cy]\[)",
        "pd_stream_f32v(",
        shows="execution",
    ),
)

SLIPS = (*MIXED_UP, *WIDTHS, *LANES, *FUNCTIONS, *MEMORY)
