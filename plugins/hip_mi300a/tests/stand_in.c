/* ROCm's runtime library without a GPU: memory is the host's, two kernels are written out below, and every
 * call is checked. Anything out of order is complained about, in words, and fails.
 *
 * Built with -DMISBEHAVE=N, the second kernel does what no kernel may: 1 writes behind its array, 2 leaves an
 * element out, 3 changes from call to call, 4 faults.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MISBEHAVE
#define MISBEHAVE 0
#endif
#ifndef SECONDS
#define SECONDS 1e-3
#endif

enum { FINE = 0, INVALID = 1, FAULT = 700, MOST = 256, N = 64 };

static struct { char *start; size_t size; } blocks[MOST];
static int used, initialised, device_set, module, stream, events, graph, capturing, captured, faulted;
static double clock_ms, event_ms[MOST];
static char complaint[256];
static int calls_of_kernels, replays, copies;
static int functions[2]; /* their addresses are the handles */
static struct { int which; float *a, *b; } recorded[MOST];

static int wrong(const char *what)
{
    if (!complaint[0])
        snprintf(complaint, sizeof complaint, "%s", what);
    return INVALID;
}
#define CHECK(condition) \
    if (!(condition)) \
        return wrong(#condition)

const char *stand_in_complaint(void) { return complaint; }
int stand_in_blocks(void) { return used; }
int stand_in_calls(void) { return calls_of_kernels; }
int stand_in_replays(void) { return replays; }
int stand_in_copies(void) { return copies; }

static int inside(const void *at, size_t size)
{
    for (int k = 0; k < used; k++)
        if ((char *)at >= blocks[k].start && (char *)at + size <= blocks[k].start + blocks[k].size)
            return 1;
    return 0;
}

const char *hipGetErrorName(int status) { return status == FAULT ? "hipErrorIllegalAddress" : "hipErrorInvalidValue"; }

int hipInit(unsigned flags)
{
    CHECK(flags == 0);
    initialised = 1;
    return FINE;
}

int hipGetDeviceCount(int *count)
{
    CHECK(initialised);
    *count = 1;
    return FINE;
}

int hipDeviceGetName(char *name, int size, int device)
{
    CHECK(initialised && device == 0 && size > 16);
    strcpy(name, "a stand-in");
    return FINE;
}

int hipSetDevice(int device)
{
    CHECK(initialised && device == 0);
    device_set = 1;
    return FINE;
}

int hipModuleLoadData(void **made, const void *image)
{
    CHECK(device_set && !memcmp(image, "machine code", 12));
    *made = &module;
    return FINE;
}

int hipModuleGetFunction(void **made, void *of, const char *name)
{
    CHECK(of == &module && strlen(name) == 10 && !memcmp(name, "pd_case_k", 9) && (name[9] == '0' || name[9] == '1'));
    *made = functions + (name[9] - '0');
    return FINE;
}

int hipStreamCreate(void **made)
{
    CHECK(device_set);
    *made = &stream;
    return FINE;
}

int hipMalloc(void **made, size_t size)
{
    CHECK(device_set && size > 0 && used < MOST);
    blocks[used].start = aligned_alloc(256, (size + 255) / 256 * 256);
    blocks[used].size = size;
    memset(blocks[used].start, 0x77, size);
    *made = blocks[used++].start;
    return FINE;
}

int hipFree(void *address)
{
    for (int k = 0; k < used; k++)
        if (blocks[k].start == address) {
            free(address);
            blocks[k] = blocks[--used];
            return FINE;
        }
    return wrong("memory is freed that was never had");
}

int hipMemset(void *address, int content, size_t size)
{
    CHECK(inside(address, size) && !capturing);
    memset(address, content, size);
    return FINE;
}

int hipMemsetAsync(void *address, int content, size_t size, void *in)
{
    CHECK(in == &stream);
    return hipMemset(address, content, size);
}

int hipMemcpy(void *to, const void *from, size_t size, int kind)
{
    CHECK(!capturing && (kind == 1 || kind == 2));
    CHECK(kind == 1 ? inside(to, size) && !inside(from, size) : inside(from, size) && !inside(to, size));
    memcpy(to, from, size);
    return FINE;
}

int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *in)
{
    CHECK(!capturing && kind == 3 && in == &stream && inside(to, size) && inside(from, size));
    copies++;
    memcpy(to, from, size);
    return FINE;
}

static void run(int which, float *a, float *b)
{
    calls_of_kernels++;
    clock_ms += SECONDS * 1e3;
    for (int k = 0; k < N; k++)
        if (which == 0)
            b[k] = a[k] * 2;
        else if (MISBEHAVE != 2 || k)
            a[k] = b[k] + (MISBEHAVE == 3 ? calls_of_kernels : 1);
    if (which && MISBEHAVE == 1)
        a[N] = 7;
    faulted |= which && MISBEHAVE == 4;
}

int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void *in, void **given, void **extra)
{
    const int which = (int)((int *)function - functions);
    CHECK(which == 0 || which == 1);
    CHECK(gx == (which ? 4u : 2u) && gy == 1 && gz == 1 && bx == 64 && by == 1 && bz == 1);
    CHECK(shared == 0 && in == &stream && !extra);
    float *const a = *(float **)given[0], *const b = *(float **)given[1];
    CHECK(inside(a, N * sizeof *a) && inside(b, N * sizeof *b));
    CHECK((uintptr_t)a % 16 == 0 && (uintptr_t)b % 16 == 0);
    if (!capturing) {
        run(which, a, b);
        return FINE;
    }
    CHECK(captured < MOST);
    recorded[captured].which = which;
    recorded[captured].a = a;
    recorded[captured++].b = b;
    return FINE;
}

int hipStreamSynchronize(void *in)
{
    CHECK(in == &stream && !capturing);
    return faulted ? FAULT : FINE;
}

int hipEventCreate(void **made)
{
    CHECK(device_set && events < MOST);
    *made = event_ms + events++;
    return FINE;
}

int hipEventRecord(void *event, void *in)
{
    CHECK(in == &stream && (double *)event >= event_ms && (double *)event < event_ms + events);
    *(double *)event = clock_ms;
    return FINE;
}

int hipEventElapsedTime(float *ms, void *start, void *end)
{
    CHECK(*(double *)start <= *(double *)end);
    *ms = (float)(*(double *)end - *(double *)start);
    return FINE;
}

int hipStreamBeginCapture(void *in, int mode)
{
    CHECK(in == &stream && mode == 2 && !capturing);
    capturing = 1;
    return FINE;
}

int hipStreamEndCapture(void *in, void **made)
{
    CHECK(in == &stream && capturing && captured);
    capturing = 0;
    *made = &captured;
    return FINE;
}

int hipGraphInstantiate(void **made, void *of, void **node, char *log, size_t size)
{
    CHECK(of == &captured && !node && !log && !size);
    *made = &graph;
    return FINE;
}

int hipGraphLaunch(void *which, void *in)
{
    CHECK(which == &graph && in == &stream);
    replays++;
    for (int k = 0; k < captured; k++)
        run(recorded[k].which, recorded[k].a, recorded[k].b);
    return FINE;
}
