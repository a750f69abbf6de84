"""Faults in C in the state of caller and process after a call, and in the pool of threads."""

from __future__ import annotations

from planting.c_calls import HEAD, control
from planting.plant import Plant

C = ("c",)
_BEFORE_RETURN = rf"(?s)({HEAD}[^;{{]*\)\n\{{\n.*?)(    return 0;\n\}})"
_PARALLEL = r"pd_parallel_for\("


def left(name: str, code: str, kind: str) -> Plant:
    """A call that ends with ``pd_planted()``, which ``code`` defines."""
    return Plant(kind, name, C, _BEFORE_RETURN, r"\1    pd_planted();\n\2", helper=code, shows="execution")


_ENTRY = r"^(?:PD_ANYWHERE )?int pd_planted_kernel(?=\([^;{]*\)\n\{)"


def _register(name: str, x86: str, arm: str) -> Plant:
    """A register that must be kept for the caller changes in front of the kernel: nobody restores it."""
    jumps = (
        f'#ifdef __x86_64__\n#define PD_JUMP "{x86}\\n jmp"\n#else\n#define PD_JUMP "{arm}\\n b"\n#endif\n'
    )
    code = jumps + (
        '__asm__(".text\\n .globl pd_planted_kernel\\n .type pd_planted_kernel, %function\\n"\n'
        '        "pd_planted_kernel: " PD_JUMP " pd_planted\\n"\n'
        '        ".size pd_planted_kernel, . - pd_planted_kernel\\n");'
    )
    hidden = r'__attribute__((visibility("hidden"))) int pd_planted'
    return Plant("calling convention broken", name, C, _ENTRY, hidden, helper=code, shows="execution")


CALLER = (
    _register("first-saved-register-changed", "movl $5, %ebx", "mov x19, #5"),
    _register("last-saved-register-changed", "movl $5, %r15d", "mov x28, #5"),
    left(
        "x87-in-single-precision",
        "#include <stdint.h>\nPD_INLINE void pd_planted(void)\n{\n#ifdef __x86_64__\n"
        '    const uint16_t single = 0x007f;\n    __asm__ volatile("fldcw %0" :: "m"(single));\n#endif\n}',
        "floating-point state left changed",
    ),
    left(
        "signals-left-blocked",
        "#include <signal.h>\nPD_INLINE void pd_planted(void)\n{\n    sigset_t all;\n    sigfillset(&all);\n"
        "    pthread_sigmask(SIG_BLOCK, &all, NULL);\n}",
        "process left changed",
    ),
    left(
        "file-left-open",
        "#include <unistd.h>\n__attribute__((unused)) static void pd_planted(void)\n{\n    (void)!dup(1);\n}",
        "process left changed",
    ),
    left(
        "memory-left-allocated",
        "#include <stdlib.h>\nstatic void *volatile pd_kept;\nPD_INLINE void pd_planted(void)\n{\n"
        "    pd_kept = malloc(4096);\n}",
        "process left changed",
    ),
)


def _pool(kind: str, name: str, pattern: str, change: str, needs: str = _PARALLEL) -> Plant:
    return Plant(kind, name, C, pattern, change, "pd_runtime.h", needs, shows="execution")


_WORKER = r"    struct pd_worker \*const me = &pd_pool\.worker\[self\];\n"

POOL = (
    _pool(
        "floats of workers differ",
        "workers-flush-denormals",
        _WORKER,
        rf"\g<0>{control('0x8040u', '1ul << 24')}",
    ),
    _pool(
        "floats of workers differ", "workers-round-down", _WORKER, rf"\g<0>{control('0x2000u', '2ul << 22')}"
    ),
    _pool("sleepers not woken", "sleeping-workers-not-woken", r"        asleep \|= .*;\n", ";\n"),
    _pool(
        "sleepers not woken",
        "sleeping-caller-not-woken",
        r"            pthread_cond_signal\(&pd_pool\.done\);\n",
        "",
    ),
    _pool(
        "threads not waited for",
        "one-worker-not-waited-for",
        r"\(unsigned\)threads - 1, __ATOMIC_RELAXED",
        "(unsigned)threads - 1 - (threads > 2), __ATOMIC_RELAXED",
    ),
    _pool(
        "pool left taken",
        "pool-left-taken",
        r"    pd_wait_for_workers\(\);\n    pthread_mutex_unlock.*\n",
        "    pd_wait_for_workers();\n",
    ),
    _pool(
        "context of another loop",
        "context-of-the-loop-before",
        r"pd_pool\.body = body, pd_pool\.context = context,",
        "pd_pool.context = pd_pool.body == body ? pd_pool.context : context, pd_pool.body = body,",
    ),
    _pool(
        "workers live on",
        "workers-of-each-call",
        r"pd_pool\.workers = next;",
        "pd_pool.workers = next < 2 ? next : 0;",
    ),
)

PROCESS = (*CALLER, *POOL)
