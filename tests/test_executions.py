"""Kernels with faults that a plain call hides: each is right in a plain call, and one execution shows it."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from test_measure import RIGHT, N, build

import perfdojo_sdk.codegen
from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.interface import EXECUTIONS, MAX_THREADS, TOO_MANY_THREADS
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Failure,
    FailureReason,
    KernelSource,
    Measurement,
    RunRequest,
)
from perfdojo_sdk.library.arrays import ArgumentValueError, thread_count
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.verification import numeric
from perfdojo_sdk.measure import executions
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.process_state import changed, float_state
from perfdojo_sdk.verify.numeric import NumericReport, _with_executions, verify_numeric

RUNNER = NativeRunner(("-O2",))
PLAIN = RunRequest(timeout_s=20)
#: Threads that are more than there are, beside the usual ones.
ALL = replace(PLAIN, executions=tuple(EXECUTIONS), thread_counts=(2, 3, 5, 600, N + 1), busy_threads=2)

#: Starts a thread that leaves signals to its caller.
START = """
#include <pthread.h>
#include <signal.h>
static int start(pthread_t *thread, void *(*work)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, 0, work, argument);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    return failed;
}
"""

#: One worker that waits for its orders, and knows nothing of forks.
POOL = (
    START
    + """
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static int started, ordered, done;
static void *work(void *nothing)
{
    pthread_mutex_lock(&lock);
    for (int seen = 0;; seen++) {
        while (ordered == seen)
            pthread_cond_wait(&news, &lock);
        done = ordered;
        pthread_cond_broadcast(&news);
    }
    return nothing;
}
static void on_the_pool(void)
{
    pthread_t worker;
    pthread_mutex_lock(&lock);
    if (!started++)
        start(&worker, work, 0);
    ordered++;
    pthread_cond_broadcast(&news);
    while (done != ordered)
        pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
}
"""
)

#: Counts calls in a row on the same arrays.
THIRTIETH = "static int n; static float *seen; n = seen == y ? n + 1 : 1; seen = y;"


@dataclass(frozen=True)
class Fault:
    execution: str
    reason: FailureReason
    says: str
    body: str
    before: str = ""
    workspace: str = "0"
    also: tuple[str, ...] = ()
    """Executions that would meet it, too, beside those of ``MET_BY``."""


#: What meets the faults of an execution on its own way.
MET_BY = {
    "guard_pages": ("workspace", "threads"),
    "alignment": ("two_callers", "own_memory"),  # other inputs are one element further on
    "repeated": ("two_callers", "after_fork", "handed_over", "own_memory", "unloaded"),
    "after_fork": ("unloaded", "no_threads"),
    "two_callers": ("own_memory",),
    "kept_for_caller": ("two_callers", "handed_over"),
}

FAULTS: Mapping[str, Fault] = {
    "reads the element after its input": Fault(
        "guard_pages", "wrong_result", "outside of its arrays, after x", f"volatile float t = x[N]; {RIGHT}"
    ),
    "reads a whole vector at the end": Fault(
        "guard_pages",
        "wrong_result",
        "after x",
        f"for (int i = 0; i < N; i += 16) {{ volatile float last = x[i + 15]; }} {RIGHT}",
    ),
    "reads the element before its input": Fault(
        "guard_pages", "wrong_result", "before x", f"volatile float t = x[-1]; {RIGHT}"
    ),
    "reads what stands before its output": Fault(
        "guard_pages", "wrong_result", "before y", f"volatile float t = y[-1]; {RIGHT}"
    ),
    "reads the byte after its workspace": Fault(
        "guard_pages",
        "wrong_result",
        "after the workspace",
        f"if (bytes < 96) return 1; volatile char t = ((char *)workspace)[96]; {RIGHT}",
        workspace="96",
    ),
    "changes an input and puts it back": Fault(
        "read_only",
        "crash",
        "SIGSEGV",
        f"volatile float *p = (volatile float *)x; float kept = p[3]; p[3] = 1; p[3] = kept; {RIGHT}",
    ),
    "loads vectors at addresses that are no multiple of their size": Fault(
        "alignment",
        "crash",
        "SIGSEGV",
        "for (int i = 0; i < N; i += 4) *(v *)(y + i) = 2 * *(const v *)(x + i);",
        "typedef float v __attribute__((vector_size(16)));",
    ),
    "is wrong where its input is half aligned": Fault(
        "alignment", "wrong_result", "differ", f"{RIGHT} if ((size_t)x % 64 == 24) y[0] += 1;"
    ),
    "is wrong where all is equally misaligned": Fault(
        "alignment",
        "wrong_result",
        "differ",
        "if (bytes < 96) return 1; memset(workspace, 1, 96);"
        f" {RIGHT} size_t o = (size_t)x % 64, p = (size_t)y % 64, q = (size_t)workspace % 64;"
        " if (o == 12 && o == p && o == q) y[0] += 1;",
        workspace="96",
    ),
    "is wrong where two of three are equally misaligned": Fault(
        "alignment",
        "wrong_result",
        "differ",
        "if (bytes < 96) return 1; memset(workspace, 1, 96);"
        f" {RIGHT} size_t o = (size_t)x % 64, p = (size_t)y % 64, q = (size_t)workspace % 64;"
        " if (o == 12 && o == p && o != q) y[0] += 1;",
        workspace="96",
    ),
    "needs an aligned workspace": Fault(
        "alignment",
        "runtime",
        "returned 7",
        f"if (bytes < 96) return 1; if ((size_t)workspace % 32) return 7; {RIGHT}",
        workspace="96",
    ),
    "does not look at the size of the workspace": Fault(
        "workspace", "wrong_result", "gets 95: the kernel returned 0 instead of 1", RIGHT, workspace="96"
    ),
    "writes before it looks at the size of the workspace": Fault(
        "workspace", "wrong_result", "wrote into y", f"{RIGHT} if (bytes < 96) return 1;", workspace="96"
    ),
    "wants a workspace though it asks for none": Fault(
        "guard_pages", "runtime", "returned 1", f"if (!workspace) return 1; {RIGHT}", also=tuple(EXECUTIONS)
    ),
    "asks for less workspace the more threads there are": Fault(
        "threads",
        "wrong_result",
        "on 2 threads: the kernel reads or writes outside of its arrays, after the workspace",
        f"if (bytes < 96 - threads) return 1; memset(workspace, 1, 96 - (threads == 1)); {RIGHT}",
        workspace="96 - threads",
        also=tuple(e for e in EXECUTIONS if e not in ("guard_pages", "alignment")),
    ),
    "refuses no threads at all": Fault(
        "threads", "runtime", "on 0 threads: the kernel returned 3", f"if (!threads) return 3; {RIGHT}"
    ),
    "asks for no workspace where there are less threads than none": Fault(
        "threads",
        "wrong_result",
        "the kernel reads or writes outside of its arrays",
        f"if (threads >= 0 && bytes < 96) return 1; memset(workspace, 1, 96); {RIGHT}",
        workspace="threads < 0 ? 0 : 96",
    ),
    "starts as many threads as the largest integer": Fault(
        "threads", "wrong_result", "returned 9", f"if (threads > 1 << 30) return 9; {RIGHT}"
    ),
    "looks at the size of the workspace for two threads": Fault(
        "workspace",
        "wrong_result",
        "on 3 threads and gets 287: the kernel returned 0 instead of 1",
        f"if (bytes < 96 * (threads > 2 ? 2 : threads > 1 ? threads : 1)) return 1; {RIGHT}",
        workspace="96 * (threads > 1 ? threads : 1)",
        also=("threads",),
    ),
    "leaves a rounding mode behind": Fault(
        "float_control",
        "wrong_result",
        "rounding mode",
        f"{RIGHT} fesetround(FE_UPWARD);",
        "#include <fenv.h>",
    ),
    "leaves traps behind": Fault(
        "float_control", "wrong_result", "traps", f"{RIGHT} feenableexcept(FE_INVALID);", "#include <fenv.h>"
    ),
    "forgets the rows that three threads do not share evenly": Fault(
        "threads",
        "wrong_result",
        "on 3 threads: 1 of 1000",
        "int n = threads == 3 ? N / 3 * 3 : N; for (int i = 0; i < n; i++) y[i] = 2 * x[i];",
    ),
    "has no rows for the last of 600 threads": Fault(
        "threads",
        "wrong_result",
        "on 600 threads: 1 of 1000",
        "for (int i = 0; i < N - (threads == 600); i++) y[i] = 2 * x[i];",
    ),
    "starts 300 threads": Fault(
        "threads",
        "wrong_result",
        "on 600 threads: 1 of 1000",
        "pthread_t t[300]; int n = threads == 600 ? 300 : 0; for (int k = 0; k < n; k++)"
        " if (pthread_create(t + k, 0, rest, 0)) return 7; usleep(n * 1000);"
        f" for (int k = 0; k < n; k++) pthread_join(t[k], 0); {RIGHT} if (n) y[0] += 1;",
        "#include <pthread.h>\nstatic void *rest(void *x) { usleep(200000); return x; }",
    ),
    "asks for a place for each thread, and all use one": Fault(
        "threads",
        "wrong_result",
        "on 2 threads: of 192 bytes of workspace that the kernel asks for, it leaves the last 96 as they are",
        "if (bytes < 96 * threads) return 1; if (threads > 1) on_the_pool(); memset(workspace, 1, 96);"
        f" {RIGHT}",
        POOL,
        "96 * (threads > 1 ? threads : 1)",
        also=("after_fork", "unloaded", "no_threads"),
    ),
    "gives each thread a row, also where there is none": Fault(
        "threads",
        "wrong_result",
        f"on {N + 1} threads: the kernel reads or writes outside of its arrays, ",
        "for (int t = 0; t < threads; t++) for (int i = t; i < N || t == N; i += threads) y[i] = 2 * x[i];",
    ),
    "is another kernel in its thirtieth call on the same arrays": Fault(
        "repeated", "wrong_result", "1 of 1000", f"{THIRTIETH} {RIGHT} if (n == 30) y[7] = 0;"
    ),
    "ends the process in its thirtieth call on the same arrays": Fault(
        "repeated", "runtime", "ended the process", f"{THIRTIETH} if (n == 30) _exit(0); {RIGHT}"
    ),
    "keeps memory": Fault(
        "repeated", "memory", "bytes of memory behind", f"char *volatile p = malloc(4096); *p = 1; {RIGHT}"
    ),
    "keeps threads": Fault(
        "repeated",
        "memory",
        "threads behind",
        f"pthread_t t; if (threads > 1) start(&t, wait, 0); {RIGHT}",
        f"{START}static void *wait(void *x) {{ for (;;) sleep(9); return x; }}",
    ),
    "has one scratch array for all callers": Fault(
        "two_callers",
        "wrong_result",
        "y is not what",
        "for (int i = 0; i < N; i++) s[i] = x[i]; for (int i = 0; i < N; i++) y[i] = 2 * s[i];",
        "static volatile float s[N];",
    ),
    "is wrong when it meets another call, but for one that is long suspended": Fault(
        "two_callers",
        "wrong_result",
        "y is not what",
        f"int met = __atomic_fetch_add(&inside, 1, 5); {RIGHT}"
        " if (met && !__atomic_exchange_n(&slept[threads & 3], 1, 5))"
        " { asleep = 1; usleep(60000); asleep = 0; }"
        " else if (met && !asleep) y[7] = 0; __atomic_fetch_sub(&inside, 1, 5);",
        "static int inside, slept[4]; static volatile int asleep;",
    ),
    "waits for a worker that a fork has lost": Fault(
        "after_fork", "timeout", "does not return", f"if (threads > 1) on_the_pool(); {RIGHT}", POOL
    ),
    "stores past the caches, and does not wait for it": Fault(
        "handed_over",
        "wrong_result",
        "what a thread sees of y",
        "for (int i = 0; i < N; i++) { union { float f; int i; } u = {2 * x[i]};"
        " __builtin_ia32_movnti((int *)y + i, u.i); }",
    ),
    "changes a register that is its caller's": Fault(
        "kept_for_caller",
        "wrong_result",
        "a register that is its caller's",
        f'{RIGHT} __asm__ volatile("movl $5, %r15d");',
    ),
    **{
        f"leaves another: {words}": Fault("kept_for_caller", "wrong_result", words, RIGHT + body, before)
        for words, body, before in (
            (
                "blocked signals",
                "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, 0);",
                "#include <signal.h>",
            ),
            ("ignored signals", "signal(SIGUSR1, SIG_IGN);", "#include <signal.h>"),
            (
                "handled signals",
                "signal(SIGUSR2, take);",
                "#include <signal.h>\nstatic void take(int number) {}",
            ),
            ("current folder", 'chdir("/");', ""),
            (
                "locale",
                'setlocale(LC_CTYPE, strcmp(setlocale(LC_CTYPE, 0), "C") ? "C" : "C.UTF-8");',
                "#include <locale.h>",
            ),
            ("permissions of new files", "umask(0123);", "#include <sys/stat.h>"),
            (
                "limits",
                "struct rlimit r; getrlimit(RLIMIT_STACK, &r); r.rlim_cur /= 2; setrlimit(RLIMIT_STACK, &r);",
                "#include <sys/resource.h>",
            ),
            ("priority", "nice(1);", ""),
            ("environment", 'setenv("PD_X", "1", 1);', "#include <stdlib.h>"),
            ("printed output", 'puts("done");', "#include <stdio.h>"),
            ("timers", "alarm(3000);", "#include <unistd.h>"),
            (
                "processors",
                "cpu_set_t s; sched_getaffinity(0, sizeof s, &s); for (int k = 0; k < CPU_SETSIZE; k++)"
                " if (CPU_ISSET(k, &s)) { CPU_CLR(k, &s); break; } sched_setaffinity(0, sizeof s, &s);",
                "#include <sched.h>",
            ),
        )
    },
    "leaves numbers in registers of x87": Fault(
        "float_control", "wrong_result", "rounding", f'{RIGHT} __asm__ volatile("fld1");'
    ),
    "keeps a thread that takes signals": Fault(
        "kept_for_caller",
        "wrong_result",
        "take signals",
        f"if (threads > 1) on_the_pool(); {RIGHT}",
        POOL.replace("SIG_SETMASK, &all", "SIG_BLOCK, 0"),
        also=("after_fork", "unloaded", "no_threads"),
    ),
    "counts the calls of a thread": Fault(
        "own_memory", "wrong_result", "other values in 1 bytes", f"static _Thread_local int n; n++; {RIGHT}"
    ),
    "waits for a worker that does not start": Fault(
        "no_threads",
        "timeout",
        "does not return",
        "volatile int done = threads < 2; pthread_t t; if (!done) {"
        " int failed = start(&t, say, (void *)&done); while (!done) sched_yield();"
        f" if (!failed) pthread_join(t, 0); }} {RIGHT}",
        f"{START}#include <sched.h>\nstatic void *say(void *x) {{ *(volatile int *)x = 1; return x; }}",
    ),
    "leaves a thread in code that is gone": Fault(
        "unloaded",
        "runtime",
        "1 threads stay",
        f"pthread_t t; if (threads > 1 && !started++) start(&t, wait, 0); {RIGHT}",
        f"{START}static int started;\nstatic void *wait(void *x) {{ for (;;) sleep(9); return x; }}",
    ),
    "changes a static variable, with nobody there who could meet it": Fault(
        "own_memory", "wrong_result", "other values", f"{RIGHT} last = x[5];", "static volatile float last;"
    ),
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are forks of this process, so that it is told what they wait for."""
    monkeypatch.setattr(executions, "PATIENCE_S", 1.0)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_only_one_execution_shows(name: str) -> None:
    fault = FAULTS[name]
    artifact = build(fault.body, fault.before, fault.workspace)
    runner = replace(RUNNER, forks=True)
    met = {fault.execution, *MET_BY.get(fault.execution, ()), *fault.also}
    for request in (PLAIN, replace(ALL, executions=tuple(e for e in EXECUTIONS if e not in met))):
        assert isinstance(found := runner.run(artifact, request), Measurement), found
    found = runner.run(artifact, ALL)
    assert isinstance(found, Failure) and found.reason == fault.reason, found
    assert found.detail.startswith(EXECUTIONS[fault.execution]) and fault.says in found.detail, found


def test_a_right_kernel_stands_all_executions_and_says_so() -> None:
    x = np.arange(N, dtype=np.float32)
    found = RUNNER.run(build(RIGHT), replace(ALL, inputs={"x": x}))
    assert isinstance(found, Measurement) and found.outputs is not None
    assert set(found.executions) == set(EXECUTIONS)
    assert np.array_equal(found.outputs["y"], 2 * x)
    plain = RUNNER.run(build(RIGHT), PLAIN)
    assert isinstance(plain, Measurement) and plain.executions == ()


def test_a_kernel_may_change_how_it_computes_while_it_computes() -> None:
    body = f"fenv_t before; fegetenv(&before); fesetround(FE_UPWARD); {RIGHT} fesetenv(&before);"
    found = RUNNER.run(build(body, "#include <fenv.h>"), ALL)
    assert isinstance(found, Measurement) and "float_control" in found.executions


def test_more_threads_than_one_to_begin_with_leave_executions_out() -> None:
    """A fork of a kernel with workers has none; to run what is left would show nothing."""
    found = RUNNER.run(build(RIGHT), replace(ALL, threads=2))
    assert isinstance(found, Measurement) and found.executions == ()


# -- what the generator emits, and what goes wrong when its runtime does ----------------------------------

ROWS = """kernel rows(x) -> y
x f32 [7,24] heap
t f32 [7:N,24] heap
m f32 [7] heap
y f32 [7,24] heap

7:p
| m[{0}] = -inf
| 24 m[{0}] max= x[{0},{1}]
| 24 t[{0},{1}] = x[{0},{1}] - m[{0}]
| 24 y[{0},{1}] = t[{0},{1}] * 2
"""


@lru_cache
def emitted() -> KernelSource:
    return CEmitter(parse(ROWS), "pd_k", CORE_DIALECT).source()


def judged(source: KernelSource) -> NumericReport:
    artifact = RUNNER.compile(source)
    assert isinstance(artifact, Artifact), artifact
    program = parse(ROWS)
    return verify_numeric(program, program, artifact, RUNNER, {}, CORE_DIALECT, threads=(1, 2))


def test_the_numeric_leg_puts_a_kernel_through_all_of_them() -> None:
    report = judged(emitted())
    assert report.ok, report.problem
    assert set(report.executions) == set(EXECUTIONS)


def test_four_threads_are_among_those_tried() -> None:
    source = emitted()
    old = "size * thread / threads, size * (thread + 1) / threads"
    text = source.support["pd_runtime.h"]
    assert text.count(old) == 1
    new = "size * thread / threads, size * (thread + 1) / threads - (threads == 4 && !thread)"
    planted = replace(source, support={**source.support, "pd_runtime.h": text.replace(old, new)})
    report = judged(planted)
    assert not report.ok and "on 4 threads" in report.problem, report.problem


@dataclass(frozen=True)
class OldRunner:
    """One of before there were executions: it reads nothing of them, and reports none."""

    def compile(self, source: KernelSource) -> Artifact | Failure:
        return RUNNER.compile(source)

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        known = RunRequest(request.inputs, request.seed, request.threads, timeout_s=request.timeout_s)
        found = RUNNER.run(artifact, known)
        if isinstance(found, Failure):
            return found
        return Measurement(found.outputs, found.seconds, found.provenance, found.device, found.threads)

    def device(self) -> str:
        return "old"


def test_a_runner_that_knows_no_executions_is_believed_to_have_run_none() -> None:
    made = RUNNER.compile(emitted())
    assert isinstance(made, Artifact)
    program = parse(ROWS)
    report = verify_numeric(program, program, made, OldRunner(), {}, CORE_DIALECT)
    assert report.ok and report.executions == ()
    rules = Rules(CORE_DIALECT, GENERIC)
    leg = numeric(Trace(program), rules, made, OldRunner(), {}, 1, 0)
    assert leg.passed and leg.figures["executions"] == ""
    assert leg.figures["executions_not_run"] == ", ".join(EXECUTIONS)


#: Each leaves a slot of the workspace to nobody; that two threads meet in one is hardly ever seen.
SHARED_SLOTS = {
    "all threads use one": "0",
    "pairs of threads use one": "thread / 2",
    "odd and even threads use one": "thread & 1",
    "the fifth uses that of the first": "thread & 3",
}


@pytest.mark.parametrize("slots", SHARED_SLOTS)
def test_threads_that_share_a_slot_of_the_workspace_are_certainly_seen(
    slots: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "COLLIDING_S", 0.0)
    source = emitted()
    old, text = "size * (thread + 1) / threads, thread)", source.support["pd_runtime.h"]
    assert text.count(old) == 1
    # They never meet: one thread after the other.
    new = f"{old.removesuffix('thread)')}{SHARED_SLOTS[slots]}), pthread_mutex_unlock(&turn)"
    text = text.replace(
        f"body(context, size * thread / threads, {old}",
        f"pthread_mutex_lock(&turn), body(context, size * thread / threads, {new}",
    )
    text = text.replace(
        "PD_INLINE void pd_run_block",
        "static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;\nPD_INLINE void pd_run_block",
    )
    report = judged(replace(source, support={**source.support, "pd_runtime.h": text}))
    assert not report.ok and "threads share what each should have" in report.problem, report.problem


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the plant sets this processor's control word")
def test_denormal_numbers_are_computed_by_several_threads() -> None:
    program = parse(
        "kernel k(a, b) -> y\na f32 [7,40] heap\nb f32 [7,40] heap\ny f32 [7,40] heap\n\n"
        "7:p\n| 40 y[{0},{1}] = a[{0},{1}] + b[{0},{1}]\n"
    )
    source = CEmitter(program, "pd_k", CORE_DIALECT).source()
    old = "pd_run_block(pd_pool.body, pd_pool.context, pd_pool.size, self, pd_pool.threads);"
    text = source.support["pd_runtime.h"]
    assert text.count(old) == 1
    new = "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); " + old
    for planted in (text, text.replace(old, new)):
        artifact = RUNNER.compile(replace(source, support={**source.support, "pd_runtime.h": planted}))
        assert isinstance(artifact, Artifact), artifact
        report = verify_numeric(program, program, artifact, RUNNER, {}, CORE_DIALECT, threads=(1, 2))
        assert report.ok == (planted == text), report.problem
    assert "2 threads" in report.problem


def test_drawn_numbers_of_threads_are_others_for_other_seeds() -> None:
    program = parse(ROWS)
    counts = [_with_executions(PLAIN, program, CORE_DIALECT, seed).thread_counts for seed in range(40)]
    assert all(count[:5] == (2, 3, 4, 5, 8) for count in counts), "those that users have come first"
    assert len(set(counts)) > 30 and all(1 < n <= MAX_THREADS for count in counts for n in count)
    assert all(max(count) > 64 and set(range(2, 65)) < set(count) for count in counts)
    assert _with_executions(PLAIN, program, CORE_DIALECT, 3).busy_threads == 7
    guarded = parse(
        ROWS.replace("| 24 y[{0},{1}] = t[{0},{1}] * 2", "| 24 y[{0},{1}] = t[{0},{1}] * 2 if {0} >= 1")
    )
    assert _with_executions(PLAIN, guarded, CORE_DIALECT, 3).busy_threads == 0


PLANTS = {
    "the pool of the process before": ("owner && owner != getpid()", "0", "after_fork"),
    "blocks of rows, rounded down": (
        "size * thread / threads, size * (thread + 1) / threads",
        "size / threads * thread, size / threads * (thread + 1)",
        "threads",
    ),
    "no look at the workspace's size": (
        "if (!workspace || bytes < pd_workspace_bytes(shared, slot, threads))",
        "if (!workspace)",
        "workspace",
    ),
    "a workspace that is taken to be aligned": (
        "*base = (char *)workspace + -(uintptr_t)workspace % 64;",
        "*base = (char *)__builtin_assume_aligned(workspace, 64);"
        " if ((uintptr_t)workspace % 64) __builtin_trap();",
        "guard_pages",
    ),
    "a slot for all threads": (
        "return 63 + shared + slot * (size_t)(threads > 1 ? threads : 1);",
        "return 63 + shared + slot;",
        "threads",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_in_the_runtime_of_emitted_code(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, execution = PLANTS[plant]
    source = emitted()
    text = source.support["pd_runtime.h"]
    assert text.count(old) == 1
    monkeypatch.setattr("perfdojo_sdk.verify.numeric.RunRequest", partial_request)
    report = judged(replace(source, support={**source.support, "pd_runtime.h": text.replace(old, new)}))
    assert not report.ok and EXECUTIONS[execution] in report.problem, report.problem


def partial_request(*args: object, **options: object) -> RunRequest:
    """A request with a shorter time-out, since some of these kernels wait for ever."""
    return RunRequest(*args, **{**options, "timeout_s": 20.0})  # type: ignore[arg-type]


def test_a_kernel_that_does_nothing_on_too_many_threads() -> None:
    source = emitted()
    old = "if (threads > 1024)\n        return 3;"
    assert source.code.count(old) == 1
    report = judged(replace(source, code=source.code.replace(old, old.replace("3", "0"))))
    assert not report.ok and f"on {MAX_THREADS + 1} threads" in report.problem, report.problem


# -- how many threads there may be ---------------------------------------------------------------------


def test_runtime_loader_and_generator_agree_on_the_most_threads() -> None:
    include = Path(perfdojo_sdk.codegen.__file__).parent / "include"
    text = (include / "pd_runtime.h").read_text(encoding="utf-8")
    [most] = re.findall(r"PD_MAX_THREADS = (\d+)", text)
    assert int(most) == MAX_THREADS
    assert thread_count(MAX_THREADS) == MAX_THREADS and Settings(threads=MAX_THREADS).threads == MAX_THREADS
    for count in (0, MAX_THREADS + 1):
        for takes in (thread_count, lambda n: Settings(threads=n)):
            with pytest.raises(ArgumentValueError, match=f"1 .. {MAX_THREADS}") as caught:
                takes(count)
            assert caught.value.code == "PD-L015"


@pytest.mark.parametrize("threads", [MAX_THREADS, MAX_THREADS + 1])
def test_a_kernel_takes_the_most_threads_and_refuses_more(threads: int) -> None:
    made = RUNNER.compile(emitted())
    assert isinstance(made, Artifact)
    found = RUNNER.run(made, replace(PLAIN, threads=threads))
    if threads <= MAX_THREADS:
        assert isinstance(found, Measurement), found
    else:
        assert (
            isinstance(found, Failure) and f"returned {TOO_MANY_THREADS} (too many threads)" in found.detail
        )


def test_the_state_of_floats_is_seen_by_what_arithmetic_does() -> None:
    before = float_state()
    assert not changed(before, float_state())
    assert changed(before, {**before, "rounding": ()}) == "rounding"
