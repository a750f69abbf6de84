"""Two callers of one kernel at once, in C: entering it from Python would keep them apart."""

from __future__ import annotations

from functools import lru_cache

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.measure.toolchain import Compiled, Toolchain

#: ``struct caller`` is :class:`perfdojo_sdk.measure.executions.Caller`.
_CODE = """
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

/* Until the two have met in the kernel often enough, or there was no time for it: more where they have hardly
 * met. Inside is the number of the call that a caller is in: a call of the other that is suspended in the
 * middle is met once. */
static void *call_again_and_again(void *argument)
{{
    const struct task *const task = argument;
    struct caller *const c = task->caller;
    __atomic_sub_fetch(task->waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(task->waiting, __ATOMIC_SEQ_CST))
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
"""


@lru_cache
def two_callers(toolchain: Toolchain, arrays: int) -> bytes:
    """A shared object whose ``pd_two_callers`` calls a kernel of ``arrays`` arrays from two threads."""
    arguments = ", ".join(f"c->arrays[{k}]" for k in range(arrays))
    code = _CODE.format(parameters=", ".join(["void *"] * arrays), arguments=arguments)
    result = toolchain.compile({"callers.c": code}, ("-O2",))
    if not isinstance(result, Compiled):
        what = "the C compiler cannot make a shared object"
        raise UnavailableError("PD-M002", what, why=result.detail, hint="check the compiler")
    return result.content
