/*
 * kernel tail(x) -> y
 * x f32 [3,5] heap
 * y f32 [3,5] heap
 *
 * 3 5:v y[{0},{1}] = max(x[{0},{1}], 0) + {1}
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_tail(void)
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

size_t tail_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

static __attribute__((noinline)) int pd_here_tail(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    for (int64_t i0 = 0; i0 < 3; i0++) {
        pd_store_first_f32v(&y[i0*5], 5, pd_max_number_f32v(0.0f, pd_load_first_f32v(&x[i0*5], 5)) + pd_iota_f32v(0, 1));
    }
    return 0;
}

PD_ANYWHERE int tail(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_tail() ? pd_here_tail(x, y, workspace, workspace_bytes, threads) : 2;
}
