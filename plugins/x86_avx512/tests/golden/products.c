/*
 * kernel products(a, b) -> c
 * a i8 [4,8] heap
 * b i8 [8,40] heap
 * c i32 [4,40] heap
 * acc i32 [2:N,2,16] reg
 *
 * 2 2
 * | 2:u 16:v acc[{0},{2},{3}] = 0
 * | 8 2:u 16:v acc[{0},{3},{4}] += i32(a[{0}*2+{3},{2}]) * i32(b[{2},{1}*16+{4}])
 * | 2:u 16:v c[{0}*2+{2},{1}*16+{3}] = acc[{0},{2},{3}]
 * 4
 * | 8:v c[{0},{1}+32] = 0
 * | 8 8:v c[{0},{2}+32] += i32(a[{0},{1}]) * i32(b[{1},{2}+32])
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_avx512_vectors.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_products(void)
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

size_t products_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

static __attribute__((noinline)) int pd_here_products(const int8_t *restrict a, const int8_t *restrict b, int32_t *restrict c, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    pd_i32x16 acc_0 = {0};
    pd_i32x16 acc_1 = {0};
    for (int64_t i0 = 0; i0 < 2; i0++) {
        for (int64_t i1 = 0; i1 < 2; i1++) {
            acc_0 = pd_splat_i32x16(0);
            acc_1 = pd_splat_i32x16(0);
            for (int64_t i2 = 0; i2 < 8; i2++) {
                 {
                    pd_i8x16 pd_held_0 = pd_load_i8x16(&b[i1*16 + i2*40]);
                    PD_HOLD(pd_held_0);
                    acc_0 = pd_add_i32x16(acc_0, pd_mul_i32x16(pd_splat_i32x16((int32_t)(a[i0*16 + i2])), pd_i32x16_from_i8x16(pd_held_0)));
                    acc_1 = pd_add_i32x16(acc_1, pd_mul_i32x16(pd_splat_i32x16((int32_t)(a[i0*16 + i2 + 8])), pd_i32x16_from_i8x16(pd_held_0)));
                }
            }
            pd_store_i32x16(&c[i0*80 + i1*16], acc_0);
            pd_store_i32x16(&c[i0*80 + i1*16 + 40], acc_1);
        }
    }
    for (int64_t i0 = 0; i0 < 4; i0++) {
        pd_store_i32x8(&c[i0*40 + 32], pd_splat_i32x8(0));
        for (int64_t i1 = 0; i1 < 8; i1++) {
            pd_store_i32x8(&c[i0*40 + 32], pd_add_i32x8(pd_load_i32x8(&c[i0*40 + 32]), pd_mul_i32x8(pd_splat_i32x8((int32_t)(a[i0*8 + i1])), pd_i32x8_from_i8x8(pd_load_i8x8(&b[i1*40 + 32])))));
        }
    }
    return 0;
}

PD_ANYWHERE int products(const int8_t *restrict a, const int8_t *restrict b, int32_t *restrict c, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_products() ? pd_here_products(a, b, c, workspace, workspace_bytes, threads) : 2;
}
