"""Faults in C that show in how a kernel is called: state that it keeps, threads, its workspace."""

from __future__ import annotations

import re

from planting.plant import Plant, Shows, instead

C = ("c",)

#: The kernel's function: its head, and its end. If a test of the processor's instructions comes first,
#: that is the function after the test.
HEAD = r"^(?:static __attribute__\(\(noinline\)\) )?int pd_\w+\("
_ENTRY = HEAD + r"[^;{]*\)\n\{\n"
_RETURN = rf"(?s)({_ENTRY}.*?)(    return 0;\n\}})"

_FLUSH = {
    "x86": '__asm__ volatile("stmxcsr %0" : "=m"(w));\n    w |= {bits};\n'
    '    __asm__ volatile("ldmxcsr %0" :: "m"(w));',
    "arm": '__asm__ volatile("mrs %0, fpcr" : "=r"(w));\n    w |= {bits};\n'
    '    __asm__ volatile("msr fpcr, %0" :: "r"(w));',
}


def control(x86: str, arm: str) -> str:
    """Statements that set bits of the control word for floats."""
    return (
        "#ifdef __x86_64__\n    unsigned w;\n    "
        + _FLUSH["x86"].format(bits=x86)
        + "\n#else\n    unsigned long w;\n    "
        + _FLUSH["arm"].format(bits=arm)
        + "\n#endif\n"
    )


def _control(x86: str, arm: str) -> str:
    return f"PD_INLINE void pd_planted(void)\n{{\n{control(x86, arm)}}}"


STATE = (
    Plant(
        "denormals flushed",
        "flush-to-zero",
        C,
        _ENTRY,
        r"\g<0>    pd_planted();\n",
        helper=_control("0x8040u", "1ul << 24"),
    ),
    Plant(
        "floating-point state left changed",
        "flush-to-zero-left",
        C,
        _RETURN,
        r"\1    pd_planted();\n\2",
        helper=_control("0x8040u", "1ul << 24"),
        shows="execution",
    ),
    Plant(
        "floating-point state left changed",
        "rounding-left",
        C,
        _RETURN,
        r"\1    pd_planted();\n\2",
        helper=_control("0x6000u", "3ul << 22"),
        shows="execution",
    ),
    Plant(
        "rounding mode wrong",
        "rounds-towards-zero",
        C,
        _ENTRY,
        r"\g<0>    pd_planted();\n",
        helper=_control("0x6000u", "3ul << 22"),
    ),
    Plant(
        "state between calls",
        "first-call-only",
        C,
        _ENTRY,
        r"\g<0>    static int pd_calls;\n    if (pd_calls++)\n        return 0;\n",
        shows="execution",
    ),
    Plant(
        "state between calls",
        "wrong-after-forty-calls",
        C,
        _ENTRY,
        r"\g<0>    static int pd_calls;\n    if (++pd_calls > 40)\n        return 0;\n",
        shows="execution",
    ),
    Plant(
        "state between calls",
        "fails-the-second-time",
        C,
        _ENTRY,
        r"\g<0>    static int pd_calls;\n    if (pd_calls++)\n        return 7;\n",
        shows="execution",
    ),
    Plant(
        "static scratch",
        "scratch-shared-by-calls",
        C,
        r"^    PD_ALIGNED (?=float \w+\[)",
        "    static PD_ALIGNED ",
        shows="execution",
    ),
    Plant(
        "static scratch",
        "accumulator-shared-by-calls",
        C,
        r"^    float \w+ = 0\.0f;$",
        lambda m: m[0].replace("    float", "    static volatile float"),
        shows="execution",
    ),
    Plant("uninitialised memory", "scratch-never-written", C, r"^ +pd_store_f32v\(&(?![cy]\[)\w+\[.*\n", ""),
)

_PARALLEL = r"pd_parallel_for\("
#: A parallel loop over so many rows that three and five threads get unequal shares.
_MANY_ROWS = r"pd_parallel_for\(.*, (?:[5-9]|\d\d+), threads\)"
#: Kernels in which each thread has memory of its own.
_SLOTS = r"pd_workspace_bytes\(\d+, [1-9]"
#: Kernels in which, moreover, different iterations of a parallel loop use the same cells of that memory.
SLOTS_MEET = (
    r"(?s)restrict const (\w+) = \(\w+ \*\)\(pd_slot (?:(?!\n\}).)*?for \(int64_t (i\d+) = begin"
    r"(?:(?!\n\}).)*?\b\1\[(?![^\]]*\b\2\b)"
)


def _runtime(
    kind: str,
    name: str,
    pattern: str,
    change: str,
    needs: str = _PARALLEL,
    shows: Shows = "execution",
) -> Plant:
    return Plant(kind, name, C, pattern, change, "pd_runtime.h", needs, shows=shows)


_END, _BEGIN = r"size \* \(thread \+ 1\) / threads", r"size \* thread / threads"
#: The differential run uses several numbers of threads, so outputs show these faults.
ROWS = tuple(
    _runtime(kind, name, pattern, change, _MANY_ROWS, shows="values")
    for kind, name, pattern, change in (
        ("rows of threads wrong", "last-row-of-three-threads", _END, r"\g<0> - (threads == 3)"),
        ("rows of threads wrong", "gap-with-five-threads", _BEGIN, r"\g<0> + (threads == 5 && thread > 0)"),
        (
            "rows of threads wrong",
            "remainder-dropped",
            f"{_BEGIN}, {_END}",
            "size / threads * thread, size / threads * (thread + 1)",
        ),
        ("rows of threads wrong", "rows-done-twice", _BEGIN, r"\g<0> - (thread > 0 && threads > 2)"),
        (
            "rows of threads wrong",
            "caller-leaves-its-block",
            r"    pd_run_block\(body, context, size, 0, threads\);\n",
            "    if (threads < 3)\n        pd_run_block(body, context, size, 0, threads);\n",
        ),
        (
            "thread count wrong",
            "as-many-threads-as-wanted",
            r"    if \(threads > size\)\n        threads = .*;\n",
            "",
        ),
    )
)

THREADS = (
    Plant(
        "thread count wrong",
        "too-many-threads-do-nothing",
        C,
        r"^    if \(threads > \d+\)\n        return \d+;\n",
        lambda m: re.sub(r"return \d+", "return 0", m[0]),
        shows="execution",
    ),
    _runtime("threads not waited for", "caller-does-not-wait", r"    pd_wait_for_workers\(\);\n", ""),
    _runtime(
        "two callers at once",
        "pool-not-locked",
        r" \|\| pthread_mutex_trylock\(&pd_pool\.busy\)(?=\) \{)",
        "",
    ),
    _runtime("fork forgotten", "workers-of-another-process", r" \|\| \(owner && owner != getpid\(\)\)", ""),
    _runtime(
        "slot of the workspace wrong",
        "all-threads-one-slot",
        rf"{_END}, thread\)",
        "size * (thread + 1) / threads, 0)",
        SLOTS_MEET,
    ),
)

_ENTER = r"pd_enter\("
WORKSPACE = (
    _runtime("workspace wrong", "query-without-alignment", r"return 63 \+ shared", "return shared", _ENTER),
    _runtime(
        "workspace wrong",
        "query-for-one-thread",
        r"slot \* \(size_t\)\(threads > 1 \? threads : 1\)",
        "slot",
        _SLOTS,
    ),
    _runtime(
        "workspace wrong",
        "size-not-checked",
        r"if \(!workspace \|\| bytes < pd_workspace_bytes\(shared, slot, threads\)\)",
        "if (!workspace)",
        _ENTER,
    ),
    _runtime(
        "workspace wrong",
        "base-before-workspace",
        r"\+ -\(uintptr_t\)workspace % 64",
        "- (uintptr_t)workspace % 64",
        _ENTER,
    ),
    _runtime(
        "workspace wrong",
        "more-threads-than-slots",
        r"return threads > 1 \? threads : 1;",
        "return threads > 1 ? threads + 1 : 2;",
        _SLOTS,
    ),
    Plant(
        "workspace wrong",
        "query-of-half",
        C,
        r"return pd_workspace_bytes\((\d+), (\d+), threads\);",
        lambda m: f"return pd_workspace_bytes({int(m[1]) // 2}, {int(m[2]) // 2}, threads) / 2;",
        shows="execution",
    ),
    Plant("workspace wrong", "areas-overlap", C, r"\(pd_base \+ (\d+)\)", lambda m: instead(m, 1, "0")),
    Plant(
        "streaming store without fence",
        "fence-dropped",
        C,
        r"^ +pd_stream_fence\(\);\n",
        "",
        shows="execution",
    ),
)

C_CALLS = (*STATE, *ROWS, *THREADS, *WORKSPACE)
