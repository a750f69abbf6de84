/* What an emitted kernel needs from its surroundings: a workspace and threads.
 *
 * Everything with state is a weak, hidden definition: however many kernels are linked into one
 * shared object, they share one pool of threads, and no other object sees it.
 */
#ifndef PD_RUNTIME_H
#define PD_RUNTIME_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#define PD_INF __builtin_inff()
#define PD_ALIGNED __attribute__((aligned(64)))
#define PD_SHARED __attribute__((weak, visibility("hidden")))
/* Before a loop that is not to be written out. */
#ifdef __clang__
#define PD_KEEP_LOOP _Pragma("clang loop unroll(disable)")
#else
#define PD_KEEP_LOOP _Pragma("GCC unroll 1")
#endif
#define PD_INLINE static inline __attribute__((always_inline, unused))

/* -- workspace: what all threads share, then one slot for each thread ------------------------- */

PD_INLINE size_t pd_workspace_bytes(size_t shared, size_t slot, int threads)
{
    return 63 + shared + slot * (size_t)(threads > 1 ? threads : 1);
}

/* Aligns the workspace. Returns how many of `threads` it has slots for; 0: it is too small. */
PD_INLINE int pd_enter(void *workspace, size_t bytes, size_t shared, size_t slot, int threads, char **base)
{
    const size_t skip = -(uintptr_t)workspace % 64;
    if (!workspace || bytes < skip + shared + slot)
        return 0;
    *base = (char *)workspace + skip;
    const size_t slots = slot ? (bytes - skip - shared) / slot : INT32_MAX;
    const size_t wanted = threads > 1 ? (size_t)threads : 1;
    return (int)(wanted < slots ? wanted : slots);
}

/* -- threads ------------------------------------------------------------------------------------ */

enum { PD_MAX_THREADS = 256 };

/* Runs iterations [begin, end); `thread` numbers the slot of the workspace to use. */
typedef void (*pd_body)(void *context, int64_t begin, int64_t end, int thread);

struct pd_pool {
    pthread_mutex_t busy;       /* held by the caller whose loop the pool runs */
    pthread_mutex_t lock;       /* guards everything below */
    pthread_cond_t wake, done;
    pthread_t worker[PD_MAX_THREADS];
    int workers;                /* worker[1] .. worker[workers] exist */
    pid_t owner;                /* the process that they belong to */
    int stop;
    unsigned loop;              /* counts loops, so that a worker knows a new one */
    int pending;                /* workers still at it */
    pd_body body;
    void *context;
    int64_t size;
    int threads;
};

PD_SHARED struct pd_pool pd_pool = {
    .busy = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

/* Thread t of n takes one contiguous block. */
PD_INLINE void pd_run_block(pd_body body, void *context, int64_t size, int thread, int threads)
{
    body(context, size * thread / threads, size * (thread + 1) / threads, thread);
}

PD_SHARED void *pd_worker(void *argument)
{
    const int self = (int)(intptr_t)argument;
    unsigned seen = 0;
    pthread_mutex_lock(&pd_pool.lock);
    for (;;) {
        while (pd_pool.loop == seen && !pd_pool.stop)
            pthread_cond_wait(&pd_pool.wake, &pd_pool.lock);
        if (pd_pool.stop)
            break;
        seen = pd_pool.loop;
        if (self >= pd_pool.threads)
            continue;
        pthread_mutex_unlock(&pd_pool.lock);
        pd_run_block(pd_pool.body, pd_pool.context, pd_pool.size, self, pd_pool.threads);
        pthread_mutex_lock(&pd_pool.lock);
        if (--pd_pool.pending == 0)
            pthread_cond_signal(&pd_pool.done);
    }
    pthread_mutex_unlock(&pd_pool.lock);
    return NULL;
}

/* Starts workers up to `wanted`; returns how many there are. Signals stay with the caller's threads. */
PD_SHARED int pd_start_workers(int wanted)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pd_pool.owner = getpid();
    while (pd_pool.workers < wanted) {
        const int next = pd_pool.workers + 1;
        if (pthread_create(&pd_pool.worker[next], NULL, pd_worker, (void *)(intptr_t)next))
            break;
        pd_pool.workers = next;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pd_pool.workers;
}

/* Unloading the shared object must not leave threads inside its code. */
static __attribute__((destructor, unused)) void pd_stop_workers(void)
{
    if (!pd_pool.workers || pd_pool.owner != getpid() || pthread_mutex_trylock(&pd_pool.busy))
        return;
    pthread_mutex_lock(&pd_pool.lock);
    pd_pool.stop = 1;
    pthread_cond_broadcast(&pd_pool.wake);
    pthread_mutex_unlock(&pd_pool.lock);
    for (; pd_pool.workers; pd_pool.workers--)
        pthread_join(pd_pool.worker[pd_pool.workers], NULL);
    pthread_mutex_unlock(&pd_pool.busy);
}

/* Runs `body` over [0, size) on at most `threads` threads, the caller being one of them.
 *
 * The caller does all of it when the pool is taken (by another thread, or by a loop around this
 * one) or belongs to the process that this one was forked from.
 */
PD_SHARED void pd_parallel_for(pd_body body, void *context, int64_t size, int threads)
{
    if (threads > PD_MAX_THREADS)
        threads = PD_MAX_THREADS;
    if (threads > size)
        threads = (int)size;
    const pid_t owner = __atomic_load_n(&pd_pool.owner, __ATOMIC_RELAXED);
    if (threads <= 1 || (owner && owner != getpid()) || pthread_mutex_trylock(&pd_pool.busy)) {
        body(context, 0, size, 0);
        return;
    }
    pthread_mutex_lock(&pd_pool.lock);
    if (pd_pool.workers < threads - 1)
        threads = pd_start_workers(threads - 1) + 1;
    pd_pool.body = body, pd_pool.context = context, pd_pool.size = size;
    pd_pool.threads = threads, pd_pool.pending = threads - 1;
    pd_pool.loop++;
    pthread_cond_broadcast(&pd_pool.wake);
    pthread_mutex_unlock(&pd_pool.lock);

    pd_run_block(body, context, size, 0, threads);

    pthread_mutex_lock(&pd_pool.lock);
    while (pd_pool.pending)
        pthread_cond_wait(&pd_pool.done, &pd_pool.lock);
    pthread_mutex_unlock(&pd_pool.lock);
    pthread_mutex_unlock(&pd_pool.busy);
}

#endif
