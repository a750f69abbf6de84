"""Faults in kernels for grids and blocks: guards, barriers, shuffles, shared memory, launches."""

from __future__ import annotations

import re

from planting.plant import Plant, instead, more
from planting.shared import DEVIATING

GPU = ("gpu",)

_LAUNCH = r"PD_LAUNCH\((\w+), (\d+), (\d+), .*\);"
#: A launch of blocks of more than 32 threads.
_MORE_THAN_32 = r"PD_LAUNCH\(\w+, \d+, (?!(?:1?\d|2\d|3[0-2]), )"
#: The same of more than 64.
_MORE_THAN_64 = r"PD_LAUNCH\(\w+, \d+, (?!(?:\d|[1-5]\d|6[0-4]), )"
_STORED = r"^( +[cy]\[[^\[\]\n]*\] = )([^;\n]*);$"


def _next_component(match: re.Match[str]) -> str:
    return f"{match[1]}.{'xyzw'['xyzw'.index(match[2]) - 1]}"


def _again(match: re.Match[str]) -> str:
    """The launch twice, if its kernel adds to results of an earlier one: for others it changes nothing."""
    body = re.search(rf"^PD_KERNEL\({match[2]}, [\s\S]*?^\}}$", match.string, re.MULTILINE)
    added = re.findall(r"^ +(\w+)\[[^\]]*\] \+= ", body[0], re.MULTILINE) if body else []
    anew = [name for name in added if body and re.search(rf"\b{name}\[[^\]]*\] = ", body[0])]
    return match[1] * 2 if set(added) - set(anew) else match[0]


def _total_alone(match: re.Match[str]) -> str:
    """The total without those combined before it, if there are any: the first is combined with the
    identity."""
    earlier = match.string[match.string.rfind("\nPD_KERNEL(", 0, match.start()) : match.start()]
    again = re.search(rf"^ +{match[2]} = .*\bpd_total\b", earlier, re.MULTILINE)
    return f"{match[1]}{match[2]} = pd_total;" if again else match[0]


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
    Plant(
        "barrier missing",
        "warp-barrier-for-block",
        GPU,
        r"pd_sync_block\(\);",
        "pd_sync_warp();",
        needs=_MORE_THAN_64,  # no warp is longer
    ),
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
        r"pd_warp_\w+\((?!pd_value\b)\w",
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
        r"^( +)(\w+) = (?:\w+ \+ pd_total|pd_max_f32\(pd_total, \w+\));$",
        _total_alone,
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
    Plant("launch wrong", "launch-twice", GPU, r"^(    PD_LAUNCH\((\w+), .*\n)", _again),
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
    Plant(
        "narrow index",
        "thread-in-five-bits",
        GPU,
        r"(?<== )pd_thread;",
        "(pd_thread & 31);",
        needs=_MORE_THAN_32,
    ),
    Plant(
        "launch wrong",
        "launched-in-the-other-order",
        GPU,
        r"^(    PD_LAUNCH\(.*\n)(    PD_LAUNCH\(.*\n)",
        r"\2\1",
    ),
)

#: Name -> the value in place of ``v``, changed in a narrow range only.
_NARROW = {
    "slightly-wrong-near-three": "v > 3.0f && v < 3.05f ? v * 1.001f : v",
    "wrong-sign-near-one-half": "v > 0.5f && v < 0.51f ? -v : v",
    "rounded-near-a-thousand": "v > 1000.0f && v < 1024.0f ? (float)(int)v : v",
    "largest-binade-infinite": "v > 1.7014118e38f ? PD_INF : v",
}
#: The same for the argument ``v`` of an exponential.
_NARROW_EXP = {
    "exp-wrong-near-minus-ten": "v > -10.1f && v < -10.0f ? 1.01f * pd_exp_f32(v) : pd_exp_f32(v)",
    "exp-wrong-near-zero": "v < 0.0f && v > -0.001f ? 1.0f : pd_exp_f32(v)",
    "exp-wrong-near-its-end": "v < -86.0f && v > -87.0f ? 0.0f : pd_exp_f32(v)",
    "exp-of-a-half-interval": "v > -0.3466f && v < -0.3464f ? 0.7f : pd_exp_f32(v)",
}
NARROW = tuple(
    Plant(
        "wrong in a range",
        name,
        GPU,
        _STORED,
        r"\1pd_planted(\2);",
        needs=r"\A(?![\s\S]*pd_exp_f32)",  # no result of softmax is above one
        helper=_PLANTED + f"    return {value};\n}}",
    )
    for name, value in _NARROW.items()
) + tuple(
    Plant(
        "wrong in a range",
        name,
        GPU,
        r"pd_exp_f32\(",
        "pd_planted(",
        needs=r"- m\w*(?:\[\w+\])?\)",
        helper=_PLANTED + f"    return {value};\n}}",
    )
    for name, value in _NARROW_EXP.items()
)

PLACES = (
    Plant(
        "memory of another scope",
        "own-array-in-shared-memory",
        GPU,
        r"^    float (\w+)\[(\d+)\];",
        r"    PD_SHARED(float, \2, \1);",
    ),
    Plant(
        "static scratch",
        "own-array-of-all-threads",
        GPU,
        r"^    float (\w+)\[(\d+)\];",
        r"    static float \1[\2];",
    ),
    Plant("static scratch", "own-number-of-all-threads", GPU, r"^    float (\w+);", r"    static float \1;"),
    Plant(
        "static scratch",
        "one-memory-for-all-blocks",
        GPU,
        r"^    PD_SHARED\(float, (\d+), (\w+)\);",
        r"    alignas(16) static float \2[\1];",
    ),
    Plant(
        "memory of another scope",
        "own-number-in-shared-memory",
        GPU,
        r"^    float (\w+);",
        "    PD_SHARED(float, 1, pd_planted_place);\n#define \\1 pd_planted_place[0]",
    ),
    Plant(
        "memory of another scope",
        "shared-by-all-blocks",
        GPU,
        r"^    PD_SHARED\(float, (\d+), (\w+)\);",
        r"    PD_ARRAY(float, \1, \2)(pd_planted_cells);",
        helper="#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__HIP__)\n"
        "static __attribute__((device)) float pd_planted_cells[1 << 16];\n"
        "#else\nstatic float pd_planted_cells[1 << 16];\n#endif\n",
    ),
    Plant(
        "memory of another scope",
        "shared-memory-of-each-thread",
        GPU,
        r"^    PD_SHARED\(float, (\d+), (\w+)\);",
        r"    float \2[\1];",
    ),
    Plant("slot of another thread", "thread-halved", GPU, r"(?<== )pd_thread;", "(pd_thread / 2);"),
    Plant("slot of another thread", "lane-halved", GPU, r"(?<== )pd_lane;", "(pd_lane / 2);"),
    Plant("slot of another thread", "warp-halved", GPU, r"(?<== )pd_warp;", "(pd_warp / 2);"),
    Plant("slot of another thread", "block-halved", GPU, r"(?<== )pd_block;", "(pd_block / 2);"),
    Plant(
        "slot of another thread",
        "two-components-of-one-offset",
        GPU,
        r"(?<=\w)\[([^\[\]\n]*) \+ 1\](?= = pd_v1;)",
        r"[\1]",
    ),
    Plant(
        "slot of another thread",
        "shared-cell-of-the-warp",
        GPU,
        r"(?<=\w)\[(i\d+)\](?= = )",
        "[0]",
        needs=r"PD_SHARED\(float, \d{2,}",
    ),
    Plant(
        "barrier missing",
        "warp-barrier-dropped-for-a-lane",
        GPU,
        r"pd_sync_warp\(\);",
        "if (pd_lane) pd_sync_warp();",
    ),
    Plant(
        "barrier divergent",
        "barrier-for-half-of-the-warps",
        GPU,
        r"pd_sync_block\(\);",
        "if (pd_thread / PD_WARP % 2 == 0) pd_sync_block(); else pd_sync_warp();",
        needs=_MORE_THAN_32,
    ),
    Plant(
        "zero of the other sign",
        "relu-of-minus-zero",
        GPU,
        r"pd_max_number_f32\(0\.0f, ",
        "pd_max_number_f32(-0.0f, ",
    ),
    Plant(
        "zero of the other sign",
        "relu-keeps-the-sign-of-zero",
        GPU,
        r"pd_max_number_f32\(0\.0f, (.*)\);$",
        r"pd_planted(\1);",
        helper=_PLANTED + "    return v < 0.0f ? 0.0f * v : v;\n}",
    ),
    Plant(
        "status ignored",
        "launch-of-no-block-for-the-last",
        GPU,
        r"if \(pd_thread == 0\)",
        "if (pd_thread == 0 && pd_block != 1)",
    ),
    Plant("status ignored", "no-lane-writes", GPU, r"if \(pd_lane == 0\)", "if (pd_lane == PD_WARP)"),
    Plant(
        "launch wrong",
        "threads-of-a-warp-less",
        GPU,
        r"PD_LAUNCH\(\w+, \d+, (\d{2,}), .*\);",
        lambda m: instead(m, 1, str(max(int(m[1]) - 32, 1))),
    ),
    Plant(
        "shared memory too small",
        "shared-one-less",
        GPU,
        r"PD_SHARED\(float, (\d+), ",
        more(1, -1),
        needs=r"PD_SHARED\(float, (?!1,)",
    ),
)

GRIDS = (*NARROW, *PLACES, *FAST, *SHARED_BY_THREADS, *GUARDS, *BARRIERS, *WARPS, *MEMORY, *LAUNCHES, *VALUES)
