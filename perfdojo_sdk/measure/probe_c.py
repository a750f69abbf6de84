"""The calibration probe: bandwidth and fused multiply-adds, in C with compiler vectors.

The vector's width comes from outside; the program names no instruction set.
"""

PROBE_CODE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));
typedef float vec_u __attribute__((vector_size(VECTOR_BYTES), aligned(4)));
enum { LANES = VECTOR_BYTES / 4, SUMS = 8, CHAINS = 12, MOST_THREADS = 256 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* A store past the caches, where the target names one. */
#ifdef STREAM_STORE
#else
#define STREAM_STORE(to, value) (*(to) = (value))
#endif

/* Keeps a value alive without storing it anywhere. */
#define KEEP(v) __asm__ volatile("" : "+m"(v))

/* Not zeros: some processors write these three times as fast as anything else past the caches. */
#define WRITTEN ((vec){0} + 1.5f)

typedef struct {
    float *from, *to;
    long bytes;   /* of each array */
    long rounds;
} work;

static void do_read(const work *w)
{
    vec sum[SUMS] = {{0}};
    for (long round = 0; round < w->rounds; round++) {
        for (long k = 0; k + SUMS * LANES <= w->bytes / 4; k += SUMS * LANES)
            for (int s = 0; s < SUMS; s++)
                sum[s] += *(const vec *)(w->from + k + s * LANES);
        KEEP(sum);
    }
}

static void do_write(const work *w)
{
    for (long round = 0; round < w->rounds; round++) {
        vec value = WRITTEN;
        for (long k = 0; k + LANES <= w->bytes / 4; k += LANES)
            *(vec *)(w->to + k) = value;
        __asm__ volatile("" ::: "memory");
    }
}

static void do_copy(const work *w)
{
    for (long round = 0; round < w->rounds; round++) {
        for (long k = 0; k + LANES <= w->bytes / 4; k += LANES)
            *(vec *)(w->to + k) = *(const vec *)(w->from + k);
        __asm__ volatile("" ::: "memory");
    }
}

static void do_stream_write(const work *w)
{
    for (long round = 0; round < w->rounds; round++) {
        vec value = WRITTEN;
        for (long k = 0; k + LANES <= w->bytes / 4; k += LANES)
            STREAM_STORE((vec *)(w->to + k), value);
        __sync_synchronize();
    }
}

static void do_stream_copy(const work *w)
{
    for (long round = 0; round < w->rounds; round++) {
        for (long k = 0; k + LANES <= w->bytes / 4; k += LANES)
            STREAM_STORE((vec *)(w->to + k), *(const vec *)(w->from + k));
        __sync_synchronize();
    }
}

/* The same, asking for the lines LEAD bytes further on: what is read, and what will be written. */
enum { LEAD = 2048 };

static void do_read_ahead(const work *w)
{
    vec sum[SUMS] = {{0}};
    for (long k = 0; k + SUMS * LANES <= w->bytes / 4; k += SUMS * LANES)
        for (int s = 0; s < SUMS; s++) {
            __builtin_prefetch((char *)(w->from + k + s * LANES) + LEAD);
            sum[s] += *(const vec *)(w->from + k + s * LANES);
        }
    KEEP(sum);
}

static void do_write_ahead(const work *w)
{
    for (long k = 0; k + LANES <= w->bytes / 4; k += LANES) {
        __builtin_prefetch((char *)(w->to + k) + LEAD, 1);
        *(vec *)(w->to + k) = WRITTEN;
    }
    __asm__ volatile("" ::: "memory");
}

static void do_copy_ahead(const work *w)
{
    for (long k = 0; k + LANES <= w->bytes / 4; k += LANES) {
        __builtin_prefetch((char *)(w->from + k) + LEAD);
        __builtin_prefetch((char *)(w->to + k) + LEAD, 1);
        *(vec *)(w->to + k) = *(const vec *)(w->from + k);
    }
    __asm__ volatile("" ::: "memory");
}

/* Independent chains hide the latency; the factors keep every value near 1. The compiler must not
   see that the chains start alike: it would compute one of them. */
static void do_fma(const work *w)
{
    vec start[CHAINS] = {{0}}, x = start[0] + 0.999999f, y = start[0] + 1e-6f;
    KEEP(start);
    KEEP(x);
    KEEP(y);
    vec a0 = start[0], a1 = start[1], a2 = start[2], a3 = start[3], a4 = start[4], a5 = start[5];
    vec a6 = start[6], a7 = start[7], a8 = start[8], a9 = start[9], a10 = start[10], a11 = start[11];
    for (long round = 0; round < w->rounds; round++) {
        a0 = a0 * x + y; a1 = a1 * x + y; a2 = a2 * x + y; a3 = a3 * x + y;
        a4 = a4 * x + y; a5 = a5 * x + y; a6 = a6 * x + y; a7 = a7 * x + y;
        a8 = a8 * x + y; a9 = a9 * x + y; a10 = a10 * x + y; a11 = a11 * x + y;
    }
    vec sum = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11;
    KEEP(sum);
}

typedef struct {
    void (*run)(const work *);
    work part;
} task;

static void *enter(void *argument)
{
    const task *t = argument;
    t->run(&t->part);
    return 0;
}

/* Seconds of one run of all threads, each on its own part. */
static double timed(void (*run)(const work *), work all, int threads)
{
    pthread_t thread[MOST_THREADS];
    task tasks[MOST_THREADS];
    long part = all.bytes / threads / 4096 * 4096;
    double begin = now();
    for (int t = 0; t < threads; t++) {
        work mine = all;
        mine.from += t * part / 4;
        mine.to += t * part / 4;
        mine.bytes = part;
        tasks[t] = (task){run, mine};
        if (t && pthread_create(&thread[t], 0, enter, &tasks[t])) exit(2);
    }
    enter(&tasks[0]);
    for (int t = 1; t < threads; t++) pthread_join(thread[t], 0);
    return now() - begin;
}

/* The best of several short runs, so that one at least is undisturbed; about `budget` seconds. */
static double best(void (*run)(const work *), work all, int threads, double budget)
{
    double least = 1e30, begin = now();
    for (int k = 0; k < 3 || (k < 1000 && now() - begin < budget); k++) {
        double t = timed(run, all, threads);
        if (t < least) least = t;
        if (now() - begin > 4 * budget) break;
    }
    return least;
}

/* The better of two ways. */
static double better(void (*one)(const work *), void (*other)(const work *), work all, int threads)
{
    double a = best(one, all, threads, 0.15), b = best(other, all, threads, 0.15);
    return a < b ? a : b;
}

/* Zeros in large pages, where there are any: numpy asks for them as well, and a processor that foresees reads
   does so within a page only. */
static float *large_pages(long bytes)
{
    void *found = 0;
    if (posix_memalign(&found, 2 << 20, bytes)) return 0;
#ifdef MADV_HUGEPAGE
    madvise(found, bytes, MADV_HUGEPAGE);
#endif
    return memset(found, 0, bytes);
}

int pd_probe(int threads, int count, const long *sizes)
{
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    long bytes = sizes[0] / 4096 * 4096;
    if (bytes > 512L << 20) bytes = 512L << 20;
    work main_memory = {0, 0, bytes, 1};
    if (!(main_memory.from = large_pages(bytes)) || !(main_memory.to = large_pages(bytes))) return 1;
    for (int pass = 0; pass < 2; pass++) {
        int n = pass ? threads : 1;
        const char *suffix = pass ? "_all" : "";
        double gb = 1e-9 * (bytes / n / 4096 * 4096) * n;
        printf("read_gbs%s %.4g\n", suffix, gb / better(do_read, do_read_ahead, main_memory, n));
        double write = better(do_write, do_write_ahead, main_memory, n);
        double copy = better(do_copy, do_copy_ahead, main_memory, n);
        double stream = best(do_stream_write, main_memory, n, 0.15);
        printf("write_gbs%s %.4g\n", suffix, gb / (stream < write ? stream : write));
        printf("copy_gbs%s %.4g\n", suffix, 2 * gb / copy);
        stream = best(do_stream_copy, main_memory, n, 0.15);
        printf("stream_copy_gbs%s %.4g\n", suffix, 2 * gb / stream);
        work arithmetic = {main_memory.from, main_memory.to, bytes, 200000};
        double seconds = best(do_fma, arithmetic, n, 0.2);
        printf("fma_gflops%s %.4g\n", suffix, 2e-9 * CHAINS * LANES * arithmetic.rounds * n / seconds);
    }
    for (int k = 1; k < count; k++) {
        work cached = {main_memory.from, main_memory.to, sizes[k] / 4096 * 4096, 1};
        if (cached.bytes > bytes) cached.bytes = bytes;
        cached.rounds = (8L << 20) / cached.bytes + 1;
        double seconds = best(do_read, cached, 1, 0.05);
        printf("cache%d %.4g\n", k - 1, 1e-9 * cached.bytes * cached.rounds / seconds);
    }
    fflush(stdout);
    return 0;
}
"""
