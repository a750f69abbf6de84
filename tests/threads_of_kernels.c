/* Loops of many lengths on the pool of threads: every iteration runs once, whoever sleeps, whoever calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pd_runtime.h"

enum { SIZE = 300 };

static void count(void *context, int64_t begin, int64_t end, int thread)
{
    int *met = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        met[i]++;
}

static void count_inside(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        pd_parallel_for(count, (int *)context + i * SIZE, SIZE, 4);
}

static void sleep_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void *call_again_and_again(void *argument)
{
    const int rounds = *(const int *)argument;
    for (int round = 0; round < rounds; round++) {
        int met[SIZE] = {0};
        const int size = round % SIZE, threads = round % 7;
        pd_parallel_for(count, met, size, threads);
        for (int i = 0; i < SIZE; i++)
            if (met[i] != (i < size)) {
                fprintf(stderr, "round %d: iteration %d of %d ran %d times\n", round, i, size, met[i]);
                exit(1);
            }
        if (round % 16 == 0)  /* around the time after which a worker falls asleep, and well beyond it */
            sleep_ns(round % 32 ? PD_PATIENCE_NS : 2 * PD_PATIENCE_NS);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    pthread_t other;
    pthread_create(&other, NULL, call_again_and_again, &rounds);
    call_again_and_again(&rounds);
    pthread_join(other, NULL);
    static int met[8 * SIZE];
    pd_parallel_for(count_inside, met, 8, 3);
    for (int i = 0; i < 8 * SIZE; i++)
        if (met[i] != 1)
            return 2;
    return pd_pool.workers == 5 ? 0 : 3;
}
