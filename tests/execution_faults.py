"""Kernels with faults that a plain call hides: each is right in a plain call, and one execution shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from test_measure import RIGHT, N

from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.hookspecs.types import FailureReason

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


#: Execution -> other executions that may find its faults as well.
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
    "refuses more workspace than it asks for": Fault(
        "workspace", "runtime", "returned 1", f"{RIGHT} if (bytes != 96) return 1;", workspace="96"
    ),
    "refuses a workspace where it asks for none": Fault(
        "workspace", "runtime", "returned 1", f"{RIGHT} if (bytes) return 1;"
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
    "says that its table is ready before it is": Fault(
        "two_callers",
        "wrong_result",
        "y is another if two callers are a kernel's first",
        "if (!ready) { ready = 1; usleep(1000); for (int i = 0; i < N; i++) factor[i] = 2; }"
        " for (int i = 0; i < N; i++) y[i] = factor[i] * x[i];",
        "static volatile int ready; static volatile float factor[N];",
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
        "own_memory", "wrong_result", "other values in 1 bytes", f"static _Thread_local char n; n++; {RIGHT}"
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
