/*
 * kernel windows(x) -> y
 * x f32 [8,40] heap
 * x_r f32 [8:N,2:N,16] soon
 * y_w f32 [8:N,2:N,16] claim
 * y f32 [8,40] heap
 *
 * 8
 * | 2:u
 * | | 16:v x_r[{0},{1},{2}] = x[{0},{1}*16+{2}]
 * | | 16:v y_w[{0},{1},{2}] = x_r[{0},{1},{2}] * 2
 * | | 16:v y[{0},{1}*16+{2}] = y_w[{0},{1},{2}]
 * | 8:v y[{0},{1}+32] = x[{0},{1}+32] * 2
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_avx512_vectors.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_windows(void)
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

size_t windows_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

static __attribute__((noinline)) int pd_here_windows(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    pd_f32v x_r = pd_splat_f32v(0.0f);
    pd_f32v y_w = pd_splat_f32v(0.0f);
    for (int64_t i0 = 0; i0 < 8; i0++) {
        x_r = pd_load_f32v(&x[i0*40]);
        pd_prefetch(&x[i0*40] + 512);
        y_w = x_r * pd_splat_f32v(2.0f);
        pd_prefetch_write(&y[i0*40] + 512);
        pd_store_f32v(&y[i0*40], y_w);
        x_r = pd_load_f32v(&x[i0*40 + 16]);
        pd_prefetch(&x[i0*40 + 16] + 512);
        y_w = x_r * pd_splat_f32v(2.0f);
        pd_prefetch_write(&y[i0*40 + 16] + 512);
        pd_store_f32v(&y[i0*40 + 16], y_w);
        pd_store_f32x8(&y[i0*40 + 32], pd_load_f32x8(&x[i0*40 + 32]) * pd_splat_f32x8(2.0f));
    }
    return 0;
}

PD_ANYWHERE int windows(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_windows() ? pd_here_windows(x, y, workspace, workspace_bytes, threads) : 2;
}
