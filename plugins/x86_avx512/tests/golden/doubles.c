/*
 * kernel doubles(x) -> y, s
 * x f64 [5,11] heap
 * y f32 [5,11] heap
 * s f64 [5] heap
 *
 * 5
 * | 8:v y[{0},{1}] = f32(max(x[{0},{1}], 0))
 * | 3:v y[{0},{1}+8] = f32(x[{0},{1}+8])
 * | s[{0}] = 0
 * | 2 8:v s[{0}] += x[{0},{1}*8+{2}] if {1}*8+{2} <= 10
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_avx512_vectors.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_doubles(void)
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

size_t doubles_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

static __attribute__((noinline)) int pd_here_doubles(const double *restrict x, float *restrict y, double *restrict s, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    for (int64_t i0 = 0; i0 < 5; i0++) {
        pd_store_f32x8(&y[i0*11], pd_f32x8_from_f64x8(pd_max_number_f64x8(0.0, pd_load_f64x8(&x[i0*11]))));
        pd_store_some_f32x8(&y[i0*11 + 8], 0, 3, pd_f32x8_from_f64x8(pd_load_some_f64x8(&x[i0*11 + 8], 0, 3)));
        s[i0] = 0.0;
        for (int64_t i1 = 0; i1 < 2; i1++) {
             {
                int64_t pd_low = 0, pd_high = 8;
                pd_high = pd_high_lane(-i1*8 + 10, 1, pd_high);
                if (pd_low < pd_high) {
                    s[i0] += pd_sum_f64x8(pd_select_f64x8(pd_lanes_i64x8(pd_low, pd_high), pd_load_some_f64x8(&x[i0*11 + i1*8], pd_low, pd_high), pd_splat_f64x8(0.0)));
                }
            }
        }
    }
    return 0;
}

PD_ANYWHERE int doubles(const double *restrict x, float *restrict y, double *restrict s, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_doubles() ? pd_here_doubles(x, y, s, workspace, workspace_bytes, threads) : 2;
}
