"""Faults in kernels for grids and blocks: guards, barriers, shuffles, shared memory, launches."""

from __future__ import annotations

import re

from planting.plant import Plant, instead, more
from planting.shared import DEVIATING

GPU = ("gpu",)

_LAUNCH = r"PD_LAUNCH\((\w+), (\d+), (\d+), .*\);"
_STORED = r"^( +[cy]\[[^\[\]\n]*\] = )([^;\n]*);$"


def _next_component(match: re.Match[str]) -> str:
    return f"{match[1]}.{'xyzw'['xyzw'.index(match[2]) - 1]}"


GUARDS = (
    Plant("tail mask wrong", "guard-one-less", GPU, r"if \(pd_thread < (\d+)\)", more(1, -1)),
    Plant("one thread more", "guard-one-more", GPU, r"if \(pd_thread < (\d+)\)", more(1, 1)),
    Plant("one thread more", "guard-dropped", GPU, r"if \(pd_thread < \d+\) (?=\{)", ""),
    Plant(
        "starts one late",
        "first-thread-idle",
        GPU,
        r"if \(pd_thread < (\d+)\)",
        r"if (pd_thread > 0 && pd_thread < \1)",
    ),
    Plant("one lane short", "lanes-one-less", GPU, r"if \(pd_lane < (\d+)\)", more(1, -1)),
    Plant("one thread more", "lanes-one-more", GPU, r"if \(pd_lane < (\d+)\)", more(1, 1)),
    Plant("one thread more", "lanes-not-guarded", GPU, r"if \(pd_lane < \d+\)\n", "\n"),
    Plant("row or column mixed up", "thread-divided-wrongly", GPU, r"pd_thread / (\d+)", more(1, 1)),
    Plant(
        "row or column mixed up", "thread-remainder-wrong", GPU, r"pd_thread(?: / \d+)? % (\d+)", more(1, -1)
    ),
    Plant("row or column mixed up", "block-divided-wrongly", GPU, r"pd_block / (\d+)", more(1, 1)),
    Plant("row or column mixed up", "block-remainder-wrong", GPU, r"pd_block % (\d+)", more(1, -1)),
    Plant("row or column mixed up", "block-always-first", GPU, r"(?<== )pd_block;", "0;"),
    Plant("row or column mixed up", "lane-for-thread", GPU, r"(?<== )pd_thread;", "pd_lane;"),
    Plant("lane of a shuffle wrong", "lane-of-neighbour", GPU, r"(?<== )pd_lane;", "(pd_lane ^ 1);"),
)

BARRIERS = (
    Plant("barrier missing", "block-barrier-dropped", GPU, r"^ +pd_sync_block\(\);\n", ""),
    Plant("barrier missing", "warp-barrier-for-block", GPU, r"pd_sync_block\(\);", "pd_sync_warp();"),
    Plant("barrier missing", "warp-barrier-dropped", GPU, r"^ +pd_sync_warp\(\);\n", ""),
    Plant(
        "barrier divergent",
        "barrier-in-guard",
        GPU,
        r"pd_sync_block\(\);",
        "if (pd_thread < 7) pd_sync_block();",
    ),
)

WARPS = (
    Plant(
        "horizontal reduction wrong",
        "warp-halves-stop-early",
        GPU,
        r"distance > 0; distance /= 2",
        "distance > 1; distance /= 2",
        "pd_gpu.h",
        r"pd_warp_\w+\(",
    ),
    Plant(
        "horizontal reduction wrong",
        "warp-of-half-the-lanes",
        GPU,
        r"PD_WARP / 2",
        "PD_WARP / 4",
        "pd_gpu.h",
        r"pd_warp_\w+\(",
    ),
    Plant(
        "lane of a shuffle wrong",
        "shuffle-one-further",
        GPU,
        r"\(W\)value, distance\)",
        "(W)value, distance ^ 1)",
        "pd_gpu.h",
        r"pd_warp_\w+\(",
    ),
    Plant(
        "lane of a shuffle wrong",
        "shuffle-of-itself",
        GPU,
        r"\(W\)value, distance\)",
        "(W)value, distance == 4 ? 0 : distance)",
        "pd_gpu.h",
        r"pd_warp_add\w+\(",
    ),
    Plant(
        "idle lanes wrong",
        "idle-lanes-zero",
        GPU,
        r"(?<=f32, float, )-PD_INF",
        "0.0f",
        "pd_gpu.h",
        r"pd_identity_max_f32",
    ),
    Plant(
        "idle lanes wrong",
        "idle-lanes-low",
        GPU,
        r"(?<=f32, float, )-PD_INF",
        "-1e30f",
        "pd_gpu.h",
        r"pd_identity_max_f32",
    ),
    Plant(
        "idle lanes wrong",
        "idle-lanes-of-other-kind",
        GPU,
        r"pd_identity_(max|add)_f32\(\)",
        lambda m: f"pd_identity_{'add' if m[1] == 'max' else 'mul'}_f32()",
    ),
    Plant(
        "partial result left out",
        "total-not-combined",
        GPU,
        r"^( +\w+ = )(?:\w+ \+ pd_total|pd_max_f32\(pd_total, \w+\));$",
        r"\1pd_total;",
    ),
    Plant("partial result left out", "total-of-own-lane", GPU, r"pd_warp_(?:add|max)_f32\((\w+)\)", r"(\1)"),
)

MEMORY = (
    Plant("component of a vector wrong", "component-before", GPU, r"(pd_l\d+)\.([xyzw])\b", _next_component),
    Plant(
        "component of a vector wrong",
        "store-reversed",
        GPU,
        r"(pd_store4\(\w+, [^,()]*, )([^,()]+), ([^,()]+), ([^,()]+), ([^,()]+)\);",
        r"\1\5, \4, \3, \2);",
    ),
    Plant(
        "component of a vector wrong",
        "last-component-twice",
        GPU,
        r"(pd_store4\(\w+, [^,()]*, [^,()]+, [^,()]+, )([^,()]+), ([^,()]+)\);",
        r"\1\2, \2);",
    ),
    Plant(
        "index off by one",
        "wide-load-further",
        GPU,
        r"pd_load4\(\w+, (.*)\);",
        lambda m: instead(m, 1, f"{m[1]} + 4"),
    ),
    Plant(
        "aligned access",
        "wide-load-unaligned",
        GPU,
        r"pd_load4\(\w+, (.*)\);",
        lambda m: instead(m, 1, f"{m[1]} + 1"),
    ),
    Plant(
        "index off by one",
        "wide-store-further",
        GPU,
        r"pd_store4\(\w+, ([^,]*),",
        lambda m: instead(m, 1, f"{m[1]} + 4"),
    ),
    Plant("static scratch", "scratch-of-all-blocks", GPU, r"^    float (\w+) = ", r"    static float \1 = "),
    Plant(
        "shared memory too small",
        "shared-of-half",
        GPU,
        r"PD_SHARED\(float, (\d+), ",
        lambda m: instead(m, 1, str((int(m[1]) + 1) // 2)),
    ),
    Plant("workspace wrong", "areas-overlap", GPU, r"\(pd_base \+ (\d+)\)", lambda m: instead(m, 1, "0")),
    Plant(
        "workspace wrong",
        "query-of-half",
        GPU,
        r"(?<=_workspace_bytes\(int threads\)\n\{\n    \(void\)threads;\n    return )(\d+);",
        lambda m: f"{int(m[1]) // 2};",
    ),
    Plant("workspace wrong", "area-behind-its-end", GPU, r"\(pd_base \+ (\d+)\)", more(1, 1 << 16)),
)

LAUNCHES = (
    Plant("launch wrong", "one-block-less", GPU, _LAUNCH, more(2, -1)),
    Plant("launch wrong", "one-block-more", GPU, _LAUNCH, more(2, 1)),
    Plant(
        "launch wrong",
        "warp-less",
        GPU,
        r"PD_LAUNCH\(\w+, \d+, (\d{2,}), .*\);",
        lambda m: instead(m, 1, str(int(m[1]) // 2)),
    ),
    Plant("launch wrong", "launch-dropped", GPU, r"^    PD_LAUNCH\(.*\n", ""),
    Plant("launch wrong", "launch-twice", GPU, r"^(    PD_LAUNCH\(.*\n)", r"\1\1"),
    Plant(
        "status ignored",
        "always-success",
        GPU,
        r"return PD_END_CALL\(\);",
        "return (PD_END_CALL(), 0);",
        shows="execution",
    ),
    Plant(
        "operands swapped",
        "arguments-swapped",
        GPU,
        r"(PD_LAUNCH\(\w+, \d+, \d+, )([a-z]), ([a-z]), ",
        r"\1\3, \2, ",
    ),
)

VALUES = tuple(
    Plant(kind, f"{name}-stored", GPU, _STORED, r"\1pd_planted(\2);", helper=helper)
    for name, (kind, helper) in DEVIATING.items()
) + (
    Plant(
        "wrong in a range",
        "exp-below-minus-87-is-zero",
        GPU,
        r"pd_exp_f32\(",
        "pd_planted(",
        helper="PD_INLINE float pd_planted(float v)\n{\n    return v < -87.0f ? 0.0f : pd_exp_f32(v);\n}",
    ),
    Plant(
        "wrong in a range",
        "exp-near-minus-200-is-nan",
        GPU,
        r"pd_exp_f32\(",
        "pd_planted(",
        helper="PD_INLINE float pd_planted(float v)\n{\n"
        "    return v < -190.0f && v > -210.0f ? PD_INF - PD_INF : pd_exp_f32(v);\n}",
    ),
    Plant(
        "approximate instead of exact",
        "reciprocal-estimate",
        GPU,
        r"= 1\.0f / ([\w\[\]]+);",
        r"= pd_planted(\1);",
        helper="PD_INLINE float pd_planted(float v)\n{\n    union { float f; unsigned i; } u = {v};\n"
        "    u.i = 0x7ef311c7u - u.i;\n    return u.f * (2.0f - v * u.f);\n}",
    ),
)

_PLANTED = "PD_INLINE float pd_planted(float v)\n{\n"
FAST = (
    Plant(
        "approximate instead of exact",
        "exp-by-squares",
        GPU,
        r"pd_exp_f32\(",
        "pd_planted(",
        helper=_PLANTED + "    v = v * (1.0f / 4096) + 1.0f;\n"
        "    for (int k = 0; k < 12; k++)\n        v = v * v;\n    return v;\n}",
    ),
    Plant(
        "approximate instead of exact",
        "square-root-by-bits",
        GPU,
        r"pd_sqrt_f32\(",
        "pd_planted(",
        helper=_PLANTED + "    union { float f; unsigned i; } u = {v};\n"
        "    u.i = 0x5f3759dfu - (u.i >> 1);\n    return v * u.f * (1.5f - 0.5f * v * u.f * u.f);\n}",
    ),
    Plant(
        "denormals flushed",
        "exp-without-denormals",
        GPU,
        r"pd_exp_f32\(",
        "pd_planted(",
        helper=_PLANTED + "    v = pd_exp_f32(v);\n    return v < 1.17549435e-38f ? 0.0f : v;\n}",
    ),
)

SHARED_BY_THREADS = (
    Plant("uninitialised memory", "shared-never-written", GPU, r"^ +pd_store4\((?![cy],).*;\n", ""),
    Plant(
        "uninitialised memory",
        "shared-written-by-one-thread-less",
        GPU,
        r"^( +)(pd_store4\((?![cy],).*;)$",
        r"\1if (pd_thread != 5) \2",
    ),
    Plant(
        "lane of a shuffle wrong",
        "shuffle-of-eight-lanes",
        GPU,
        r"distance = PD_WARP / 2",
        "distance = 4",
        "pd_gpu.h",
        r"pd_warp_\w+\(",
    ),
    Plant(
        "row or column mixed up",
        "warp-for-lane",
        GPU,
        r"(?<== )pd_(warp|lane);",
        lambda m: f"pd_{'lane' if m[1] == 'warp' else 'warp'};",
    ),
    Plant("row or column mixed up", "block-of-neighbour", GPU, r"(?<== )pd_block;", "(pd_block ^ 1);"),
    Plant("narrow index", "thread-in-five-bits", GPU, r"(?<== )pd_thread;", "(pd_thread & 31);"),
    Plant(
        "launch wrong",
        "launched-in-the-other-order",
        GPU,
        r"^(    PD_LAUNCH\(.*\n)(    PD_LAUNCH\(.*\n)",
        r"\2\1",
    ),
)

GRIDS = (*FAST, *SHARED_BY_THREADS, *GUARDS, *BARRIERS, *WARPS, *MEMORY, *LAUNCHES, *VALUES)
