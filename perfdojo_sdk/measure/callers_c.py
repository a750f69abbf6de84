"""Callers of a kernel in C, for checks at the call itself, where Python would interfere.

Two callers at once; a thread that waits for a call's results; what a function must leave to its caller.
"""

from __future__ import annotations

from functools import lru_cache

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.measure.toolchain import Compiled, Toolchain

#: ``struct caller`` is :class:`perfdojo_sdk.measure.callers.Caller`.
_CODE = """
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
typedef int kernel({parameters}, void *, size_t, int);
enum {{ MOST = 64, NO_THREAD = -1 }};
struct caller {{
    void *arrays[MOST], *workspace;
    size_t bytes;
    int threads;
    long inside, calls, meetings, few, outputs;
    double seconds, patience;
    const void *result[MOST], *expected[MOST];
    size_t size[MOST];
    int status, wrong;
}};
struct task {{ kernel *run; struct caller *caller, *other; int *waiting; }};

static int first_wrong(const struct caller *c)
{{
    for (long k = 0; k < c->outputs; k++)
        if (memcmp(c->result[k], c->expected[k], c->size[k]))
            return (int)k + 1;
    return 0;
}}

static double now(void)
{{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}}

/* Until the two have met in the kernel often enough, or there was no time for it: more where they have
 * hardly met. Inside is the number of the call that a caller is in: one call of the other, suspended in the
 * middle of it, is met once. */
static void *call_again_and_again(void *argument)
{{
    const struct task *const task = argument;
    struct caller *const c = task->caller;
    __atomic_sub_fetch(task->waiting, 1, __ATOMIC_SEQ_CST);
    for (unsigned looks = 1; __atomic_load_n(task->waiting, __ATOMIC_SEQ_CST); looks++)
        if (looks % 1024 == 0)
            sched_yield();
    const double begin = now();
    long met = 0, last = 0;
    for (long call = 0; call < c->calls || (met < c->meetings
            && now() - begin < (met < c->few ? c->patience : c->seconds)); call++) {{
        __atomic_store_n(&c->inside, call + 1, __ATOMIC_SEQ_CST);
        const long other = __atomic_load_n(&task->other->inside, __ATOMIC_SEQ_CST);
        met += other && other != last;
        last = other ? other : last;
        c->status = task->run({arguments}, c->workspace, c->bytes, c->threads);
        __atomic_store_n(&c->inside, 0, __ATOMIC_SEQ_CST);
        c->wrong = first_wrong(c);
        if (c->status || c->wrong)
            break;
    }}
    return NULL;
}}

void pd_two_callers(kernel *run, struct caller *callers)
{{
    int waiting = 2;
    struct caller *const other_caller = callers + 1;
    struct task tasks[2] = {{
        {{run, callers, other_caller, &waiting}},
        {{run, other_caller, callers, &waiting}},
    }};
    pthread_t other;
    const int alone = pthread_create(&other, NULL, call_again_and_again, tasks + 1);
    if (alone)
        callers->status = NO_THREAD;
    else {{
        call_again_and_again(tasks);
        pthread_join(other, NULL);
    }}
}}

/* The calls of `caller`, each with a number: the last one that is begun, that is done, whose results another
 * thread has looked at. A call was met if that thread waited all along. */
struct post {{ struct caller *caller; unsigned begun, done, seen; int wrong; long met; }};

static void *look_at_results(void *argument)
{{
    struct post *const p = argument;
    struct caller *const c = p->caller;
    for (unsigned call = 1;; call++) {{
        int waited = 0;
        unsigned done;
        for (unsigned looks = 1; (done = __atomic_load_n(&p->done, __ATOMIC_ACQUIRE)) == call - 1; looks++) {{
            waited |= __atomic_load_n(&p->begun, __ATOMIC_RELAXED) == call;
            if (looks % 1024 == 0)
                sched_yield();
        }}
        if (done != call)
            return NULL;
        /* First at the end or, in every other call, anywhere: the rest may have arrived meanwhile. */
        const long first = call / 2 % c->outputs;
        const size_t size = c->size[first], last = size ? (size - 1) / 64 : 0;
        const size_t at = 64 * (call % 2 ? last : call / 2 * 2654435761u % (last + 1));
        if (memcmp((const char *)c->result[first] + at, (const char *)c->expected[first] + at,
                   size - at < 64 ? size - at : 64))
            p->wrong = (int)first + 1;
        if (!p->wrong)
            p->wrong = first_wrong(c);
        for (long k = 0; k < c->outputs; k++)
            memset((void *)c->result[k], 0xA5, c->size[k]);
        p->met += waited;
        __atomic_store_n(&p->seen, call, __ATOMIC_RELEASE);
    }}
}}

/* This thread stays on its processor, and the other one goes to others: on the same one they take turns. */
static void keep_apart(pthread_t other, const cpu_set_t *all)
{{
    cpu_set_t mine, others;
    CPU_ZERO(&mine);
    CPU_SET(sched_getcpu(), &mine);
    CPU_XOR(&others, all, &mine);
    if (CPU_COUNT(&others)) {{
        pthread_setaffinity_np(pthread_self(), sizeof mine, &mine);
        pthread_setaffinity_np(other, sizeof others, &others);
    }}
}}

/* Until the other thread has waited often enough, or there was no time for it. */
void pd_hand_over(kernel *run, struct caller *c)
{{
    struct post post = {{.caller = c}};
    pthread_t other;
    cpu_set_t all;
    pthread_getaffinity_np(pthread_self(), sizeof all, &all);
    if (pthread_create(&other, NULL, look_at_results, &post)) {{
        c->status = NO_THREAD;
        return;
    }}
    keep_apart(other, &all);
    const double begin = now();
    unsigned call = 0;
    while (!c->status && !c->wrong && post.met < c->meetings
            && (call < c->calls || now() - begin < (post.met < c->few ? c->patience : c->seconds))) {{
        __atomic_store_n(&post.begun, ++call, __ATOMIC_SEQ_CST);
        c->status = run({arguments}, c->workspace, c->bytes, c->threads);
        __atomic_store_n(&post.done, call, __ATOMIC_RELEASE);
        for (unsigned looks = 1; __atomic_load_n(&post.seen, __ATOMIC_ACQUIRE) != call; looks++)
            if (looks % 1024 == 0)
                sched_yield();
        c->wrong = post.wrong;
    }}
    __atomic_store_n(&post.done, call + 2, __ATOMIC_RELEASE);
    pthread_join(other, NULL);
    pthread_setaffinity_np(pthread_self(), sizeof all, &all);
}}

/* More numbers than fit into registers, so that some are in each that a function has to keep for its caller;
 * they are wrong if one is not kept. */
#define KEPT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13)
#define TAKE(k) unsigned long kept##k = numbers[k]; __asm__ volatile("" : "+r"(kept##k));
#define COMPARE(k) __asm__ volatile("" : "+r"(kept##k)); c->wrong |= kept##k != numbers[k];

#ifdef __aarch64__
#define FLOATS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9)
#else
#define FLOATS(DO) /* No register of floats is the caller's. */
#endif
#define TAKE_FLOAT(k) double float##k = (double)numbers[k]; __asm__ volatile("" : "+w"(float##k));
#define COMPARE_FLOAT(k) __asm__ volatile("" : "+w"(float##k)); c->wrong |= float##k != (double)numbers[k];

__attribute__((noinline)) void pd_keep(kernel *run, struct caller *c)
{{
    static volatile unsigned long numbers[] = {{
        0x5a5a1, 0x5a5a2, 0x5a5a3, 0x5a5a4, 0x5a5a5, 0x5a5a6, 0x5a5a7,
        0x5a5a8, 0x5a5a9, 0x5a5aa, 0x5a5ab, 0x5a5ac, 0x5a5ad, 0x5a5ae,
    }};
    KEPT(TAKE)
    FLOATS(TAKE_FLOAT)
    c->status = run({arguments}, c->workspace, c->bytes, c->threads);
    KEPT(COMPARE)
    FLOATS(COMPARE_FLOAT)
}}
"""


@lru_cache
def callers(toolchain: Toolchain, arrays: int) -> bytes:
    """A shared object that calls kernels of so many arrays, by one function for each execution."""
    arguments = ", ".join(f"c->arrays[{k}]" for k in range(arrays))
    code = _CODE.format(parameters=", ".join(["void *"] * arrays), arguments=arguments)
    result = toolchain.compile({"callers.c": code}, ("-O2",))
    if not isinstance(result, Compiled):
        what = "the C compiler cannot make a shared object"
        raise UnavailableError("PD-M002", what, why=result.detail, hint="check the compiler")
    return result.content
