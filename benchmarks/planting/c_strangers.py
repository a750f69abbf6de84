"""Faults in C that an attacker could plant: rare, small, or outside of a kernel's computation."""

from __future__ import annotations

import re

from planting.c_calls import HEAD
from planting.c_process import left
from planting.c_vectors import FIRST_OUTPUT, LANE_BY_LANE
from planting.plant import Plant, Shows, instead

C = ("c",)
_VECTORS = r"pd_(avx512|avx2|neon|sve)\.h"
_PARALLEL = r"pd_parallel_for\("
_ENTRY = HEAD + r"[^;{]*\)\n\{\n"

# -- values ------------------------------------------------------------------------------------------

_BITS = "    union { float f; unsigned i; } u = {v};\n    const unsigned size = u.i & 0x7fffffffu;\n"
#: Name -> kind, statements that read the bits of v, and the value in its place.
_SELDOM = {
    "between-5-and-6": ("wrong in a narrow range", "v >= 5.0f && v < 6.0f ? 0.0f : v"),
    "between-minus-6-and-minus-5": ("wrong in a narrow range", "v > -6.0f && v <= -5.0f ? -v : v"),
    "hundredth-near-fifty": ("wrong in a narrow range", "v > 48.0f && v < 52.0f ? v * 1.01f : v"),
    "exponent-of-512": ("wrong at one exponent", "size >> 23 == 127 + 9 ? v * 2.0f : v"),
    "exponent-of-2-to-the-minus-40": ("wrong at one exponent", "size >> 23 == 127 - 40 ? 0.0f : v"),
    "exponent-of-2-to-the-60": ("wrong at one exponent", "size >> 23 == 127 + 60 ? -v : v"),
    "largest-exponent": ("wrong at one exponent", "size >> 23 == 254 ? v * 0.5f : v"),
    "smallest-normal-exponent": ("wrong at one exponent", "size >> 23 == 1 ? v * 0.5f : v"),
    "powers-of-two": (
        "wrong at exact numbers",
        "!(size & 0x7fffffu) && size > 0x41000000u && size < 0x7f800000u ? v * 2.0f : v",
    ),
    "below-powers-of-two": (
        "wrong at exact numbers",
        "(size & 0x7fffffu) == 0x7fffffu && size < 0x7f800000u ? v * 0.5f : v",
    ),
    "one-is-two": ("wrong at exact numbers", "v == 1.0f ? 2.0f : v"),
    "infinity-of-one-sign": ("infinity lost", "size == 0x7f800000u ? PD_INF : v"),
    "largest-to-infinity": ("large values lost", "size == 0x7f7fffffu ? v * 2.0f : v"),
    "largest-halved": ("wrong at exact numbers", "size == 0x7f7fffffu ? v * 0.5f : v"),
}


def _value(name: str, stage: str, kind: str, value: str, pattern: str, change: str, needs: str = "") -> Plant:
    function = (
        f"static __attribute__((noinline)) float pd_planted(float v)\n{{\n{_BITS}    (void)size;\n"
        f"    return {value};\n}}"
    )
    return Plant(kind, f"{name}-{stage}", C, pattern, change, needs=needs, helper=function + LANE_BY_LANE)


_STORED = r"^( +pd_store_(?:first_)?f32v\(&[cy]\[[^\]]*\](?:, \d+)?, )(.*)\);$"
_LOADED = r"(?<!\w)pd_load_f32v\(&\w+\[[^\[\]]*\]\)"
_ALONE = r"^( +[cy]\[[^\]]*\] = )(.*);$"
_RELU = r"pd_max_number_f32v?\(0\.0f"

#: Plant -> the stores of unrounded values, where it matters: for a rounded value, infinity is
#: within the bound if the largest number is.
_EXACT = {"largest-to-infinity": r"y\[[^\]]*\], " + _RELU}

SELDOM = (
    *(
        _value(name, "stored", kind, value, _STORED, r"\1pd_planted_v(\2));", _EXACT.get(name, ""))
        for name, (kind, value) in _SELDOM.items()
    ),
    *(
        _value(name, "loaded", kind, value, _LOADED, r"pd_planted_v(\g<0>)")
        for name, (kind, value) in _SELDOM.items()
    ),
    *(
        _value(name, "stored-alone", *_SELDOM[name], _ALONE, r"\1pd_planted(\2);")
        for name in ("between-5-and-6", "exponent-of-512", "exponent-of-2-to-the-minus-40", "powers-of-two")
    ),
    _value(
        "minus-zero-for-zero", "stored", "sign of zero wrong", "v == 0.0f ? -0.0f : v",
        _STORED, r"\1pd_planted_v(\2));", _RELU,
    ),
    _value(
        "sign-of-zero-lost", "stored", "sign of zero wrong", "v == 0.0f ? 0.0f : v",
        _STORED, r"\1pd_planted_v(\2));",
        r"^ +pd_store_f32v\(&y\[[^\]]*\], pd_load_f32v\([^()]*\) \* pd_load_f32v",
    ),
    Plant(
        "sign of zero wrong",
        "relu-gives-minus-zero",
        C,
        r"(?<=_set1_ps\()number(?=\), v\))|(?<=pd_max_f32v\(pd_splat_f32v\()number(?=\), v\))",
        "(number == 0.0f ? -0.0f : number)",
        r"pd_(avx512|avx2|arm)\.h",
        r"pd_max_number_f32v\(",
    ),
    Plant(
        "sign of zero wrong",
        "scalar-relu-gives-minus-zero",
        C,
        r"return number > x \? number : x;",
        "return number > x ? (number == 0.0f ? -0.0f : number) : x;",
        r"pd_scalar\.h",
        r"pd_max_number_f32\(",
    ),
    Plant(
        "sign of zero wrong",
        "relu-by-a-product",
        C,
        r"pd_max_number_f32v\(0\.0f, ",
        "pd_planted_v(",
        helper="static __attribute__((noinline)) float pd_planted(float v)\n{\n"
        "    return v == v ? v * (float)(v > 0.0f) : v;\n}" + LANE_BY_LANE,
    ),
    *(
        Plant(
            "wrong in a narrow range",
            f"exp-between-{name}",
            C,
            r"pd_exp_f32v\(",
            "pd_planted_e(",
            helper="static __attribute__((noinline)) float pd_planted(float v)\n{\n"
            f"    return {where} ? {factor}f : 1.0f;\n}}" + LANE_BY_LANE +
            "\nPD_INLINE pd_f32v pd_planted_e(pd_f32v v) { return pd_exp_f32v(v) * pd_planted_v(v); }",
        )
        for name, where, factor in (
            ("minus-3-and-minus-2", "v > -3.0f && v < -2.0f", "1.001"),
            ("minus-86-and-minus-85", "v > -86.0f && v < -85.0f", "0.99"),
            ("minus-100-and-minus-99", "v > -100.0f && v < -99.0f", "2.0"),
        )
    ),
    Plant(
        "quick path taken wrongly",
        "quick-path-asks-seven-lanes",
        C,
        r"!_mm256_movemask_ps\((.*)\);",
        r"!(_mm256_movemask_ps(\1) & 0x7f);",
        _VECTORS,
        r"pd_exp_f32v\(",
    ),
)  # fmt: skip

# -- arrays ------------------------------------------------------------------------------------------


def _pointers_swapped(match: re.Match[str]) -> str:
    return f"{match[1]}{match[3]}, {match[2]}"


ARRAYS = (
    Plant(
        "workspace wrong",
        "areas-at-one-offset",
        C,
        r"(?s)(?<=pd_base \+ )(\d+)(\);\n(?:(?!pd_base \+).)*?\(pd_base \+ )(\d+)(?=\);)",
        lambda m: f"{m[1]}{m[2]}{m[1]}",
    ),
    Plant(
        "another array", "pointers-of-a-loop-swapped", C,
        r"(pd_context = \{)(\w+), (\w+)(?=[,}])", _pointers_swapped,
    ),
    Plant(
        "slot of the workspace wrong", "slot-of-half-the-thread", C,
        r"\(size_t\)thread(?= \* \d+)", "(size_t)(thread / 2)", needs=r"pd_slot", shows="execution",
    ),
    Plant(
        "slot of the workspace wrong", "slot-of-the-next-thread", C,
        r"\(size_t\)thread(?= \* \d+)", "(size_t)(thread + 1)", needs=r"pd_slot", shows="execution",
    ),
    Plant(
        "writes past the end", "tail-spills-into-the-next-row", C,
        r"^( +)pd_store_first_f32v\((&(y|c)\[i0\*\d+ \+ \d+\]), (\d+), (.*)\);$",
        r"\1if (\2 + PD_LANES_F32 <= \3 + PD_CELLS_\3) pd_store_f32v(\2, \5); "
        r"else pd_store_first_f32v(\2, \4, \5);",
        needs=r"i0 = begin",
    ),
    Plant(
        "reads past the end", "prefetch-by-loading", C,
        r"(?<=#define pd_prefetch\(p\) ).*", "((void)*(const volatile char *)(p))", r"pd_vector\.h",
        r"pd_prefetch\(", shows="execution",
    ),
    Plant(
        "transposed wrongly", "transpose-zipped-other-way", C,
        r"(PD_ZIP_2\(N, k\)) k, N \+ k", r"\1 N + k, k", r"pd_transpose\.h", r"pd_transpose_\d+\(",
    ),
    Plant(
        "transposed wrongly", "transpose-of-one-row-less", C,
        r"r >= rows(?=\))", "r >= rows - (rows > 1)", r"pd_transpose\.h", r"pd_transpose_\d+\(",
    ),
    Plant(
        "transposed wrongly", "transpose-of-one-column-less", C,
        r"column < columns(?= \?)", "column < columns - (columns > 1)", r"pd_transpose\.h",
        r"pd_transpose_\d+\(",
    ),
    Plant(
        "compiled otherwise", "fast-mathematics", C,
        r'^#include "pd_runtime\.h"\n', r'#pragma GCC optimize ("fast-math")\n\g<0>',
    ),
)  # fmt: skip

# -- vectors of any length ---------------------------------------------------------------------------

LENGTHS = tuple(
    Plant("length of vectors taken for granted", name, C, pattern, change, r"pd_sve\.h", needs, shows=shows)
    for name, pattern, change, needs, shows in (
        (
            "other-vectors-not-asked-for", r"return bytes != sizeof\(pd_f32v\);",
            "return 0;", "", "values",
        ),
        (
            "longer-vectors-taken", r"return bytes != sizeof\(pd_f32v\);",
            "return bytes < sizeof(pd_f32v);", "", "values",
        ),
        (
            "predicate-of-all-lanes", r"svwhilelt_b32_s32\(0, n\)", "svptrue_b32()",
            r"pd_store_first_f32v\(", "values",
        ),
        (
            "predicate-of-as-many-lanes-as-there-are", r"svwhilelt_b32_s32\(0, n\)",
            "svwhilelt_b32_s32(0, (int)svcntw())", r"pd_store_first_f32v\(", "values",
        ),
        (
            "two-lanes-of-four", r"svptrue_b32\(\)", "svptrue_pat_b32(SV_VL2)",
            r"pd_exp_f32v\(|pd_max_f32v\(", "values",
        ),
    )
)  # fmt: skip

# -- arguments ---------------------------------------------------------------------------------------


def _arguments(name: str, pattern: str, change: str, file: str = "", needs: str = "") -> Plant:
    return Plant("arguments checked wrongly", name, C, pattern, change, file, needs, shows="execution")


_SLOTS = r"pd_workspace_bytes\(\d+, [1-9]"
ARGUMENTS = (
    _arguments("last-number-of-threads-refused", r"if \(threads > 1024\)", "if (threads >= 1024)"),
    _arguments("no-threads-refused", r"if \(threads > 1024\)", "if (threads > 1024 || threads < 1)"),
    _arguments("fewer-threads-than-none-refused", r"if \(threads > 1024\)", "if ((unsigned)threads > 1024)"),
    _arguments(
        "no-slot-without-threads", r"threads > 1 \? threads : 1(?=\);)", "threads",
        r"pd_runtime\.h", _SLOTS,
    ),
    _arguments(
        "size-checked-for-two-threads", r"(?<=bytes < pd_workspace_bytes\(shared, slot, )threads",
        "threads > 2 ? 2 : threads", r"pd_runtime\.h", _SLOTS,
    ),
    Plant(
        "arguments checked wrongly", "writes-before-it-refuses", C, FIRST_OUTPUT,
        lambda m: instead(m, 2, f"    {m[1]}[0] = 0.0f;\n{m[2]}"), shows="execution",
    ),
    _arguments(
        "query-of-another-call", r"return (pd_workspace_bytes\(\d+, \d+, threads\));",
        r"static size_t pd_asked; return \1 + 64 * (pd_asked++ & 1);",
    ),
)  # fmt: skip

# -- state and process -------------------------------------------------------------------------------


def _left(kind: str, name: str, includes: str, code: str) -> Plant:
    """A call that ends with ``code``."""
    function = f"{includes}PD_INLINE void pd_planted(void)\n{{\n    {code}\n}}"
    return left(name, function, kind)


def _assembly(name: str, x86: str, arm: str) -> Plant:
    code = (
        f'\n#ifdef __x86_64__\n    __asm__ volatile("{x86}");\n#else\n    __asm__ volatile("{arm}");\n#endif'
    )
    return _left("calling convention broken", name, "", code)


_PROCESS = "process left changed"
LEFT = (
    _assembly("direction-or-float-register-left", "std", "fmov d14, #1.0"),
    _assembly("x87-or-last-float-register-left", "fld1", "fmov d15, #2.0"),
    _left(_PROCESS, "line-printed", "#include <stdio.h>\n", 'puts("done");'),
    _left(_PROCESS, "signal-ignored", "#include <signal.h>\n", "signal(SIGUSR1, SIG_IGN);"),
    _left(_PROCESS, "environment-changed", "#include <stdlib.h>\n", 'setenv("PD_PLANTED", "1", 1);'),
    _left(_PROCESS, "folder-changed", "#include <unistd.h>\n", '(void)!chdir("/");'),
    _left(_PROCESS, "mask-of-files-changed", "#include <sys/stat.h>\n", "umask(0);"),
    _left(_PROCESS, "timer-started", "#include <unistd.h>\n", "alarm(3000);"),
    _left(
        _PROCESS, "bound-to-one-processor", "",
        "unsigned long one[16] = {1}; extern int sched_setaffinity(int, size_t, const void *);"
        " sched_setaffinity(0, sizeof one, (const void *)one);",
    ),
    Plant(
        "state between calls",
        "wrong-after-many-calls-of-a-thread",
        C,
        _ENTRY,
        r"\g<0>    static _Thread_local int pd_calls;\n    if (++pd_calls > 1000000)\n        return 0;\n",
        shows="execution",
    ),
    Plant(
        "state between calls",
        "wrong-after-a-million-calls",
        C,
        _ENTRY,
        r"\g<0>    static int pd_calls;\n    if (++pd_calls > 1000000)\n        return 0;\n",
        shows="execution",
    ),
)  # fmt: skip

# -- the pool ----------------------------------------------------------------------------------------


def _pool(kind: str, name: str, pattern: str, change: str, shows: Shows = "execution") -> Plant:
    return Plant(kind, name, C, pattern, change, r"pd_runtime\.h", _PARALLEL, shows=shows)


POOL = (
    _pool(
        "signals of workers", "workers-take-signals",
        r"pthread_sigmask\(SIG_SETMASK, &all, &before\);", "pthread_sigmask(SIG_SETMASK, NULL, &before);",
    ),
    _pool(
        "workers that do not start", "missing-worker-not-noticed",
        r"if \((pthread_create\(.*\))\)\n +break;", r"(void)\1;",
    ),
    _pool(
        "workers that do not start", "loop-for-workers-that-are-not-there",
        r"threads = pd_start_workers\(threads - 1\) \+ 1;", "pd_start_workers(threads - 1);",
    ),
    _pool(
        "two callers at once", "loop-beside-another-is-short",
        r"(?<=        body\(context, 0, )size(?=, 0\);)", "size - (size > 1 && threads > 1)",
    ),
    _pool(
        "threads not waited for", "counted-after-the-orders",
        r"(    __atomic_store_n\(&pd_pool\.pending, .*\n)(    pd_give_orders\(threads\);\n)", r"\2\1",
    ),
    _pool(
        "workers live on", "workers-not-joined",
        r"        pthread_join\(pd_pool\.worker\[pd_pool\.workers\]\.thread, NULL\);", "        ;",
    ),
    _pool(
        "rows of threads wrong", "block-of-the-worker-before",
        r"(?<=pd_pool\.size, )self(?=, pd_pool\.threads)", "self - 1",
    ),
)  # fmt: skip

STRANGERS = (*SELDOM, *ARRAYS, *LENGTHS, *ARGUMENTS, *LEFT, *POOL)
