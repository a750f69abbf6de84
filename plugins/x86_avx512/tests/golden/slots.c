/*
 * kernel slots(x) -> y
 * x f32 [6,8] heap
 * t f32 [6:N,8] heap
 * u f32 [6,8] heap
 * y f32 [6,8] heap
 *
 * 6:p
 * | 8 t[{0},{1}] = abs(x[{0},{1}])
 * | 8:v u[{0},{1}] = sqrt(t[{0},{1}])
 * 2 3:p 8:v y[{0}*3+{1},{2}] = u[{0}*3+{1},{2}] - 0.1
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_avx512_vectors.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_slots(void)
{
    static int known; /* 0: not asked yet, 1: no, 2: yes */
    int fits = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!fits) {
        fits = 1 + (pd_system_keeps(0xe6)
            && pd_cpuid_bit(0x7, 0, PD_EBX, 16) /* avx512f */
            && pd_cpuid_bit(0x7, 0, PD_EBX, 30) /* avx512bw */
            && pd_cpuid_bit(0x7, 0, PD_EBX, 17) /* avx512dq */
            && pd_cpuid_bit(0x7, 0, PD_EBX, 31) /* avx512vl */
            && pd_cpuid_bit(0x1, 0, PD_ECX, 12) /* fma */
            && pd_cpuid_bit(0x7, 0, PD_EBX, 5) /* avx2 */
            && pd_cpuid_bit(0x7, 0, PD_EBX, 28) /* avx512cd */
            && pd_cpuid_bit(0x1, 0, PD_ECX, 28) /* avx */
            && pd_cpuid_bit(0x7, 0, PD_EBX, 3) /* bmi1 */
            && pd_cpuid_bit(0x7, 0, PD_EBX, 8) /* bmi2 */
            && pd_cpuid_bit(0x1, 0, PD_ECX, 29) /* f16c */
            && pd_cpuid_bit(0x1, 0, PD_ECX, 22) /* movbe */
            && pd_cpuid_bit(0x80000001, 0, PD_ECX, 5) /* abm */);
        __atomic_store_n(&known, fits, __ATOMIC_RELAXED);
    }
    return fits - 1;
}

static __attribute__((noinline)) size_t pd_bytes_here_slots(int threads)
{
    return pd_workspace_bytes(192, 64, threads);
}

PD_ANYWHERE size_t slots_workspace_bytes(int threads)
{
    return pd_fits_slots() ? pd_bytes_here_slots(threads) : 0;
}

struct slots_p0 {
    const float * x;
    float * u;
    char *slots;
};

static void slots_p0(void *context, int64_t begin, int64_t end, int thread)
{
    const struct slots_p0 *const pd = context;
    const float *restrict const x = pd->x;
    float *restrict const u = pd->u;
    char *const pd_slot = pd->slots + (size_t)thread * 64;
    float *restrict const t = (float *)(pd_slot + 0);
    for (int64_t i0 = begin; i0 < end; i0++) {
        for (int64_t i1 = 0; i1 < 8; i1++) {
            t[i1] = pd_abs_f32(x[i0*8 + i1]);
        }
        pd_store_first_f32v(&u[i0*8], 8, pd_sqrt_f32v(pd_load_first_f32v(&t[0], 8)));
    }
}

struct slots_p1 {
    float * u;
    float * y;
    int64_t i0;
    char *slots;
};

static void slots_p1(void *context, int64_t begin, int64_t end, int thread)
{
    const struct slots_p1 *const pd = context;
    float *restrict const u = pd->u;
    float *restrict const y = pd->y;
    const int64_t i0 = pd->i0;
    (void)thread;
    for (int64_t i1 = begin; i1 < end; i1++) {
        pd_store_f32x8(&y[i0*24 + i1*8], pd_load_f32x8(&u[i0*24 + i1*8]) - pd_splat_f32x8(0.1f));
    }
}

static __attribute__((noinline)) int pd_here_slots(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    if (threads > 1024)
        return 3;
    char *pd_base;
    threads = pd_enter(workspace, workspace_bytes, 192, 64, threads, &pd_base);
    if (threads == 0)
        return 1;
    float *restrict const u = (float *)(pd_base + 0);
     {
        struct slots_p0 pd_context = {x, u, pd_base + 192};
        pd_parallel_for(slots_p0, &pd_context, 6, threads);
    }
    for (int64_t i0 = 0; i0 < 2; i0++) {
         {
            struct slots_p1 pd_context = {u, y, i0, pd_base + 192};
            pd_parallel_for(slots_p1, &pd_context, 3, threads);
        }
    }
    return 0;
}

PD_ANYWHERE int slots(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_slots() ? pd_here_slots(x, y, workspace, workspace_bytes, threads) : 2;
}
