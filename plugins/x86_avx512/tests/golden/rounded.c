/*
 * kernel rounded(a, b) -> c, d
 * a bf16 [40] heap
 * b bf16 [40] heap
 * c bf16 [40] heap
 * d f32 [40] heap
 *
 * 2 16:v c[{0}*16+{1}] = a[{0}*16+{1}] * b[{0}*16+{1}] + 1
 * 8:v c[{0}+32] = max(a[{0}+32], b[{0}])
 * 3 16:v d[{0}*16+{1}] = select(a[{0}*16+{1}] < 0, f32(a[{0}*16+{1}]), 1) if {0}*16+{1} <= 39
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_avx512_vectors.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_rounded(void)
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

size_t rounded_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

static __attribute__((noinline)) int pd_here_rounded(const pd_bf16 *restrict a, const pd_bf16 *restrict b, pd_bf16 *restrict c, float *restrict d, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    for (int64_t i0 = 0; i0 < 2; i0++) {
        pd_store_bf16x16(&c[i0*16], pd_bf16x16_from_f32x16(pd_f32x16_from_bf16x16(pd_bf16x16_from_f32x16(pd_f32x16_from_bf16x16(pd_load_bf16x16(&a[i0*16])) * pd_f32x16_from_bf16x16(pd_load_bf16x16(&b[i0*16])))) + pd_splat_f32x16(pd_f32_from_bf16(pd_bf16_of(0x3f80)))));
    }
    pd_store_some_bf16x16(&c[32], 0, 8, pd_bf16x16_from_f32x16(pd_max_f32x16(pd_f32x16_from_bf16x16(pd_load_some_bf16x16(&a[32], 0, 8)), pd_f32x16_from_bf16x16(pd_load_some_bf16x16(&b[0], 0, 8)))));
    for (int64_t i0 = 0; i0 < 3; i0++) {
         {
            int64_t pd_low = 0, pd_high = 16;
            pd_high = pd_high_lane(-i0*16 + 39, 1, pd_high);
            if (pd_low < pd_high) {
                pd_store_some_f32x16(&d[i0*16], pd_low, pd_high, pd_select_f32x16((pd_f32x16_from_bf16x16(pd_load_some_bf16x16(&a[i0*16], pd_low, pd_high)) < pd_splat_f32x16(pd_f32_from_bf16(pd_bf16_of(0x0000)))), pd_f32x16_from_bf16x16(pd_load_some_bf16x16(&a[i0*16], pd_low, pd_high)), pd_splat_f32x16(1.0f)));
            }
        }
    }
    return 0;
}

PD_ANYWHERE int rounded(const pd_bf16 *restrict a, const pd_bf16 *restrict b, pd_bf16 *restrict c, float *restrict d, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_rounded() ? pd_here_rounded(a, b, c, d, workspace, workspace_bytes, threads) : 2;
}
