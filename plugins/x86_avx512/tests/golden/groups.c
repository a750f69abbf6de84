/*
 * kernel groups(x, w) -> y
 * x u8 [6,16] heap
 * w i8 [16,32] heap
 * w_r i8 [4,2,16,4] heap
 * acc i32 [3,2,16] reg
 * y i32 [6,32] heap
 *
 * 4 2 16:t 4 w_r[{0},{1},{2},{3}] = w[{0}*4+{3},{1}*16+{2}]
 * 2
 * | 3:u 2:u 16:v acc[{1},{2},{3}] = 0
 * | 4 3:u 2:u 16:l 4:d acc[{2},{3},{4}] += i32(x[{0}*3+{2},{1}*4+{5}]) * i32(w_r[{1},{3},{4},{5}])
 * | 3:u 2:u 16:v y[{0}*3+{1},{2}*16+{3}] = acc[{1},{2},{3}]
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_avx512_vectors.h"
#include "pd_transpose.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_groups(void)
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
            && pd_cpuid_bit(0x7, 0, PD_ECX, 11) /* avx512_vnni */
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

static __attribute__((noinline)) size_t pd_bytes_here_groups(int threads)
{
    return pd_workspace_bytes(512, 0, threads);
}

PD_ANYWHERE size_t groups_workspace_bytes(int threads)
{
    return pd_fits_groups() ? pd_bytes_here_groups(threads) : 0;
}

static __attribute__((noinline)) int pd_here_groups(const uint8_t *restrict x, const int8_t *restrict w, int32_t *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    if (threads > 1024)
        return 3;
    char *pd_base;
    threads = pd_enter(workspace, workspace_bytes, 512, 0, threads, &pd_base);
    if (threads == 0)
        return 1;
    int8_t *restrict const w_r = (int8_t *)(pd_base + 0);
    pd_i32x16 acc_0_0 = {0};
    pd_i32x16 acc_0_1 = {0};
    pd_i32x16 acc_1_0 = {0};
    pd_i32x16 acc_1_1 = {0};
    pd_i32x16 acc_2_0 = {0};
    pd_i32x16 acc_2_1 = {0};
    for (int64_t i0 = 0; i0 < 4; i0++) {
        for (int64_t i1 = 0; i1 < 2; i1++) {
            pd_interleave_8(&w[i0*128 + i1*16], 32, &w_r[i0*128 + i1*64], 16);
        }
    }
    for (int64_t i0 = 0; i0 < 2; i0++) {
        acc_0_0 = pd_splat_i32x16(0);
        acc_0_1 = pd_splat_i32x16(0);
        acc_1_0 = pd_splat_i32x16(0);
        acc_1_1 = pd_splat_i32x16(0);
        acc_2_0 = pd_splat_i32x16(0);
        acc_2_1 = pd_splat_i32x16(0);
        for (int64_t i1 = 0; i1 < 4; i1++) {
             {
                pd_i8x64 pd_held_0 = pd_load_i8x64(&w_r[i1*128]);
                PD_HOLD(pd_held_0);
                acc_0_0 = pd_group_i32x16_u8_i8(acc_0_0, pd_splat_group_u8x64(&x[i0*48 + i1*4]), pd_held_0);
                pd_i8x64 pd_held_1 = pd_load_i8x64(&w_r[i1*128 + 64]);
                PD_HOLD(pd_held_1);
                acc_0_1 = pd_group_i32x16_u8_i8(acc_0_1, pd_splat_group_u8x64(&x[i0*48 + i1*4]), pd_held_1);
                acc_1_0 = pd_group_i32x16_u8_i8(acc_1_0, pd_splat_group_u8x64(&x[i0*48 + i1*4 + 16]), pd_held_0);
                acc_1_1 = pd_group_i32x16_u8_i8(acc_1_1, pd_splat_group_u8x64(&x[i0*48 + i1*4 + 16]), pd_held_1);
                acc_2_0 = pd_group_i32x16_u8_i8(acc_2_0, pd_splat_group_u8x64(&x[i0*48 + i1*4 + 32]), pd_held_0);
                acc_2_1 = pd_group_i32x16_u8_i8(acc_2_1, pd_splat_group_u8x64(&x[i0*48 + i1*4 + 32]), pd_held_1);
            }
        }
        pd_store_i32x16(&y[i0*96], acc_0_0);
        pd_store_i32x16(&y[i0*96 + 16], acc_0_1);
        pd_store_i32x16(&y[i0*96 + 32], acc_1_0);
        pd_store_i32x16(&y[i0*96 + 48], acc_1_1);
        pd_store_i32x16(&y[i0*96 + 64], acc_2_0);
        pd_store_i32x16(&y[i0*96 + 80], acc_2_1);
    }
    return 0;
}

PD_ANYWHERE int groups(const uint8_t *restrict x, const int8_t *restrict w, int32_t *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_groups() ? pd_here_groups(x, w, y, workspace, workspace_bytes, threads) : 2;
}
