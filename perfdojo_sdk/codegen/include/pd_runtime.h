/* The runtime of emitted kernels: a workspace and threads.
 *
 * Everything with state is a weak, hidden definition: however many kernels are linked into one
 * shared object, they share one pool of threads, and no other object sees it.
 */
#ifndef PD_RUNTIME_H
#define PD_RUNTIME_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#define PD_INF __builtin_inff()
#define PD_ALIGNED __attribute__((aligned(64)))
#define PD_SHARED __attribute__((weak, visibility("hidden")))
/* Before a loop that must not be unrolled. */
#ifdef __clang__
#define PD_KEEP_LOOP _Pragma("clang loop unroll(disable)")
#else
#define PD_KEEP_LOOP _Pragma("GCC unroll 1")
#endif
/* Before a function: its loops may be vectorised although flags forbid that, since they carry nothing but sums. */
#if defined(__GNUC__) && !defined(__clang__)
#define PD_VECTOR_LOOPS __attribute__((optimize("tree-loop-vectorize")))
#else
#define PD_VECTOR_LOOPS
#endif
#define PD_INLINE static inline __attribute__((always_inline, unused))

/* -- workspace: memory that all threads share, then one slot for each thread ------------------- */

PD_INLINE size_t pd_workspace_bytes(size_t shared, size_t slot, int threads)
{
    return 63 + shared + slot * (size_t)(threads > 1 ? threads : 1);
}

/* Aligns the workspace, which may start anywhere. Returns the number of threads for which it has slots; 0 if it is
 * smaller than pd_workspace_bytes says. */
PD_INLINE int pd_enter(void *workspace, size_t bytes, size_t shared, size_t slot, int threads, char **base)
{
    if (!workspace || bytes < pd_workspace_bytes(shared, slot, threads))
        return 0;
    *base = (char *)workspace + -(uintptr_t)workspace % 64;
    return threads > 1 ? threads : 1;
}

/* -- threads ------------------------------------------------------------------------------------ */

/* Kernels refuse more: MAX_THREADS of core/interface.py. */
enum { PD_MAX_THREADS = 1024 };

/* How long a thread polls for work, or for the end of the others' work, before it sleeps. To wake a sleeping
 * thread takes tens of microseconds, more than a small kernel; kernels that are called one after the other find
 * the workers awake. Polling threads yield the processor to others. */
enum { PD_PATIENCE_NS = 1000000 };

/* Runs iterations [begin, end); `thread` numbers the slot of the workspace to use. */
typedef void (*pd_body)(void *context, int64_t begin, int64_t end, int thread);

/* A worker's letter box, in a cache line of its own. */
struct pd_worker {
    pthread_t thread;
    unsigned order;             /* counts its orders */
    int asleep;
} __attribute__((aligned(64)));

struct pd_pool {
    pthread_mutex_t busy;       /* held by the caller whose loop the pool runs: only that one gives orders */
    pthread_mutex_t lock;       /* held to fall asleep and to wake; threads that are awake need no lock */
    pthread_cond_t wake, done;
    int workers;                /* worker[1] .. worker[workers] exist */
    pid_t owner;                /* the process that they belong to */
    int stop;
    /* The loop: written before the orders are given, and kept until all have been carried out. */
    pd_body body;
    void *context;
    int64_t size;
    int threads;
    unsigned pending;           /* workers still at it */
    int caller_asleep;
    struct pd_worker worker[PD_MAX_THREADS];
};

PD_SHARED struct pd_pool pd_pool = {
    .busy = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

/* Tells the processor that this loop waits. */
PD_INLINE void pd_pause(void)
{
#if __has_builtin(__builtin_ia32_pause)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

PD_INLINE int64_t pd_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Polls for a short time until `*value` is `one`, or is no longer `one`. Yields to other threads meanwhile,
 * which may be those that it waits for. */
PD_INLINE void pd_look_out(const unsigned *value, unsigned one, int is)
{
    const int64_t end = pd_now_ns() + PD_PATIENCE_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if ((__atomic_load_n(value, __ATOMIC_ACQUIRE) == one) == is)
                return;
            pd_pause();
        }
        sched_yield();
    } while (pd_now_ns() < end);
}

/* Thread t of n takes one contiguous block. */
PD_INLINE void pd_run_block(pd_body body, void *context, int64_t size, int thread, int threads)
{
    body(context, size * thread / threads, size * (thread + 1) / threads, thread);
}

/* A thread that falls asleep announces it and then checks for orders again; a thread that gives an order stores it and
 * then checks for sleepers. All threads see these four steps in one order (SEQ_CST), so no order is missed by a
 * sleeper that nobody wakes. */
PD_SHARED void *pd_work(void *argument)
{
    const int self = (int)(intptr_t)argument;
    struct pd_worker *const me = &pd_pool.worker[self];
    for (unsigned seen = 0;; seen++) {
        pd_look_out(&me->order, seen, 0);
        if (__atomic_load_n(&me->order, __ATOMIC_ACQUIRE) == seen) {
            pthread_mutex_lock(&pd_pool.lock);
            __atomic_store_n(&me->asleep, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(&me->order, __ATOMIC_SEQ_CST) == seen && !pd_pool.stop)
                pthread_cond_wait(&pd_pool.wake, &pd_pool.lock);
            __atomic_store_n(&me->asleep, 0, __ATOMIC_SEQ_CST);
            const int stop = pd_pool.stop;
            pthread_mutex_unlock(&pd_pool.lock);
            if (stop)
                return NULL;
        }
        pd_run_block(pd_pool.body, pd_pool.context, pd_pool.size, self, pd_pool.threads);
        if (!__atomic_sub_fetch(&pd_pool.pending, 1, __ATOMIC_SEQ_CST)
            && __atomic_load_n(&pd_pool.caller_asleep, __ATOMIC_SEQ_CST)) {
            pthread_mutex_lock(&pd_pool.lock);
            pthread_cond_signal(&pd_pool.done);
            pthread_mutex_unlock(&pd_pool.lock);
        }
    }
}

/* Starts workers up to `wanted`; returns how many there are. Signals stay with the caller's threads. */
PD_SHARED int pd_start_workers(int wanted)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    __atomic_store_n(&pd_pool.owner, getpid(), __ATOMIC_RELAXED);
    while (pd_pool.workers < wanted) {
        const int next = pd_pool.workers + 1;
        if (pthread_create(&pd_pool.worker[next].thread, NULL, pd_work, (void *)(intptr_t)next))
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
        pthread_join(pd_pool.worker[pd_pool.workers].thread, NULL);
    pthread_mutex_unlock(&pd_pool.busy);
}

PD_INLINE void pd_give_orders(int threads)
{
    int asleep = 0;
    for (int t = 1; t < threads; t++)
        __atomic_fetch_add(&pd_pool.worker[t].order, 1, __ATOMIC_SEQ_CST);
    for (int t = 1; t < threads; t++)
        asleep |= __atomic_load_n(&pd_pool.worker[t].asleep, __ATOMIC_SEQ_CST);
    if (asleep) {
        pthread_mutex_lock(&pd_pool.lock);
        pthread_cond_broadcast(&pd_pool.wake);
        pthread_mutex_unlock(&pd_pool.lock);
    }
}

PD_INLINE void pd_wait_for_workers(void)
{
    pd_look_out(&pd_pool.pending, 0, 1);
    if (!__atomic_load_n(&pd_pool.pending, __ATOMIC_ACQUIRE))
        return;
    pthread_mutex_lock(&pd_pool.lock);
    __atomic_store_n(&pd_pool.caller_asleep, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&pd_pool.pending, __ATOMIC_SEQ_CST))
        pthread_cond_wait(&pd_pool.done, &pd_pool.lock);
    __atomic_store_n(&pd_pool.caller_asleep, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pd_pool.lock);
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
    if (pd_pool.workers < threads - 1)
        threads = pd_start_workers(threads - 1) + 1;
    pd_pool.body = body, pd_pool.context = context, pd_pool.size = size, pd_pool.threads = threads;
    __atomic_store_n(&pd_pool.pending, (unsigned)threads - 1, __ATOMIC_RELAXED);
    pd_give_orders(threads);
    pd_run_block(body, context, size, 0, threads);
    pd_wait_for_workers();
    pthread_mutex_unlock(&pd_pool.busy);
}

#endif
