"""Faults in the vectors of 64-bit Arm."""

from __future__ import annotations

from planting.plant import Plant, more
from planting.shared import DEVIATING

C = ("c",)
_ARM = r"pd_(neon|sve|arm)\.h"
ARM = (
    Plant(
        "approximate instead of exact",
        "square-root-estimate",
        C,
        r"vsqrtq_f32\(v\)|svsqrt_f32_x\(PD_ALL, v\)",
        lambda m: "v * vrsqrteq_f32(v)" if m[0][0] == "v" else "svmul_f32_x(PD_ALL, v, svrsqrte_f32(v))",
        _ARM,
        r"pd_sqrt_f32v\(",
    ),
    Plant(
        "approximate instead of exact",
        "reciprocal-of-eight-bits",
        C,
        r"= 1\.0f / (\w+);",
        r"= pd_planted(\1);",
        helper=DEVIATING["through-bfloat16"][1].replace("return u.f;", "return 1.0f / u.f;"),
    ),
    Plant(
        "range reduction wrong",
        "power-of-two-biased",
        C,
        r"vdupq_n_s32\((127)\)",
        more(1, -1),
        _ARM,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "integer truncation",
        "exponent-in-eight-bits",
        C,
        r"svcvt_s32_f32_x\(PD_ALL, n\)|= vcvtq_s32_f32\(n\)",
        lambda m: (
            "= vmaxq_s32(vcvtq_s32_f32(n), vdupq_n_s32(-128))"
            if m[0][0] == "="
            else "svmax_n_s32_x(PD_ALL, svcvt_s32_f32_x(PD_ALL, n), -128)"
        ),
        _ARM,
        r"pd_exp_f32v\(",
    ),
    Plant(
        "wrong operation",
        "maximum-of-absolutes",
        C,
        r"(?<=return )(?:vmaxq_f32\(a, b\)|svmax_f32_x\(PD_ALL, a, b\))",
        lambda m: (
            "vmaxq_f32(vabsq_f32(a), b)"
            if m[0][0] == "v"
            else "svmax_f32_x(PD_ALL, svabs_f32_x(PD_ALL, a), b)"
        ),
        _ARM,
        r"pd_max_f32v\(|pd_highest",
    ),
    Plant(
        "one lane short",
        "last-element-not-loaded",
        C,
        r"return vld1q_f32\(p\);|__builtin_memcpy\(&v, p, sizeof v\);",
        lambda m: (
            "return vsetq_lane_f32(0.0f, vld1q_f32(p), 3);"
            if m[0][0] == "r"
            else "v = svdup_n_f32(0.0f); __builtin_memcpy(&v, p, sizeof v - 4);"
        ),
        _ARM,
        r"pd_load_f32v\(",
    ),
    Plant(
        "one lane short",
        "last-element-not-stored",
        C,
        r"(?<=pd_f32v v\) \{ )(?:vst1q_f32\(p, v\);|__builtin_memcpy\(p, &v, sizeof v\);)",
        "__builtin_memcpy(p, &v, sizeof v - 4);",
        _ARM,
        r"pd_store_f32v\(",
    ),
)
