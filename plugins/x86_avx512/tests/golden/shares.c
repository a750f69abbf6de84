/*
 * kernel shares(w, s, c, x) -> y, b
 * w packed i4 [4,2,64] heap
 * s f32 [4,4] heap
 * c packed f4e2m1 [4,19] heap
 * x f32 [128] heap
 * y f32 [4] heap
 * b f32 [4,16] heap
 *
 * 4 y[{0}] = 0
 * 4 2 2 2 16:v y[{0}] += f32(w[{0},{1},{2}*32+{3}*16+{4}]) * s[{0},{1}*2+{2}] * x[{1}*64+{2}*32+{3}*16+{4}]
 * 4 3:v b[{0},{1}] = f32(c[0,{1}+16])
 * 4 16 b[{0},{1}] = f32(c[{0},{1}])
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_avx512_vectors.h"
#include "pd_packed.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_shares(void)
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

size_t shares_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

PD_VECTOR_LOOPS
static __attribute__((noinline)) int pd_here_shares(const uint8_t *restrict w, const float *restrict s, const uint8_t *restrict c, const float *restrict x, float *restrict y, float *restrict b, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    for (int64_t i0 = 0; i0 < 4; i0++) {
        y[i0] = 0.0f;
    }
    for (int64_t i0 = 0; i0 < 4; i0++) {
        for (int64_t i1 = 0; i1 < 2; i1++) {
            for (int64_t i2 = 0; i2 < 2; i2++) {
                for (int64_t i3 = 0; i3 < 2; i3++) {
                    y[i0] += pd_sum_f32x16(pd_f32x16_from_i32x16(pd_spread_i4x16(&w[i0*64 + i1*32 + i2*16 + i3*8], 0, 16)) * pd_splat_f32x16(s[i0*4 + i1*2 + i2]) * pd_load_f32x16(&x[i1*64 + i2*32 + i3*16]));
                }
            }
        }
    }
    for (int64_t i0 = 0; i0 < 4; i0++) {
        pd_store_some_f32x16(&b[i0*16], 0, 3, pd_f32x16_from_f4e2m1x16(pd_unpack_f4e2m1x16(&c[8], 0, 3)));
    }
    for (int64_t i0 = 0; i0 < 4; i0++) {
        for (int64_t i1 = 0; i1 < 16; i1++) {
            b[i0*16 + i1] = pd_f32_from_f4e2m1(pd_packed_f4e2m1(c, i0*19 + i1));
        }
    }
    return 0;
}

PD_ANYWHERE int shares(const uint8_t *restrict w, const float *restrict s, const uint8_t *restrict c, const float *restrict x, float *restrict y, float *restrict b, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_shares() ? pd_here_shares(w, s, c, x, y, b, workspace, workspace_bytes, threads) : 2;
}
