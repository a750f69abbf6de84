/* Kernels that fail or cheat, one for each KERNEL_...; all pretend to compute y = 2 x + 1 over N floats.
   The conformance kit compiles each with a target's own runner, which must notice. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static void right(const float *x, float *y)
{
    for (int i = 0; i < N; i++) y[i] = x[i] * 2 + 1;
}

static int calls;

#if defined KERNEL_honest

static int run(const float *x, float *y) { right(x, y); return 0; }

#elif defined KERNEL_abort

static int run(const float *x, float *y) { right(x, y); abort(); }

#elif defined KERNEL_status

static int run(const float *x, float *y) { right(x, y); return 7; }

#elif defined KERNEL_exit

#include <unistd.h>
static int run(const float *x, float *y) { right(x, y); _exit(0); }

#elif defined KERNEL_kept_result

static float kept[N];
static int run(const float *x, float *y)
{
    if (calls++ == 0) right(x, kept);
    memcpy(y, kept, sizeof kept);
    return 0;
}

#elif defined KERNEL_kept_by_address

static const float *seen[64];
static float kept[64][N];
static int run(const float *x, float *y)
{
    int k = 0;
    while (k < 63 && seen[k] && seen[k] != x) k++;
    if (!seen[k]) {
        right(x, kept[k]);
        seen[k] = x;
    }
    memcpy(y, kept[k], sizeof kept[k]);
    return 0;
}

#elif defined KERNEL_idle_later

static int run(const float *x, float *y)
{
    if (calls++ < 20) right(x, y);
    return 0;
}

#elif defined KERNEL_unsteady

static int run(const float *x, float *y)
{
    right(x, y);
    y[5] += calls++;
    return 0;
}

#elif defined KERNEL_changed_input_later

/* Changes its input only after some calls, when it is timed. */
static int run(const float *x, float *y)
{
    right(x, y);
    if (calls++ > 20) memset((float *)x, 0, N * sizeof *x);
    return 0;
}

#elif defined KERNEL_patched_timer

/* Reaches into an interpreter around it and makes its clock run at a hundredth of its speed. */
#include <dlfcn.h>
#include <unistd.h>
static int run(const float *x, float *y)
{
    int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*leave)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    int (*python)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    if (calls++ == 0 && ensure && leave && python) {
        int state = ensure();
        python("import time, __main__\n"
               "slow = lambda: time.monotonic_ns() // 100\n"
               "__main__._clock = slow\n"
               "time.perf_counter_ns = slow\n"
               "time.perf_counter = lambda: slow() * 1e-9\n");
        leave(state);
    }
    usleep(20000);
    right(x, y);
    return 0;
}

#endif

int pd_conformance(const float *x, float *y, void *workspace, size_t bytes, int threads)
{
    (void)workspace, (void)bytes, (void)threads, (void)calls;
    return run(x, y);
}

size_t pd_conformance_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}
