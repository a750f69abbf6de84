/*
 * kernel matmul(a, b) -> c
 * a f32 [4,8] heap
 * b f32 [8,32] heap
 * c f32 [4,32] heap
 * bp f32 [8,2,16] heap
 * acc f32 [2:N,2,2,16] reg
 *
 * 8 2:u 16:v bp[{0},{1},{2}] = b[{0},{1}*16+{2}]
 * 2
 * | 2:u 2:u 16:v acc[{0},{1},{2},{3}] = 0
 * | 8 2:u 2:u 16:v acc[{0},{2},{3},{4}] += a[{0}*2+{2},{1}] * bp[{1},{3},{4}]
 * | 2:u 2:u 16:v c[{0}*2+{1},{2}*16+{3}] = acc[{0},{1},{2},{3}]
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_packed(void)
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

static __attribute__((noinline)) size_t pd_bytes_here_packed(int threads)
{
    return pd_workspace_bytes(1024, 0, threads);
}

PD_ANYWHERE size_t packed_workspace_bytes(int threads)
{
    return pd_fits_packed() ? pd_bytes_here_packed(threads) : 0;
}

static __attribute__((noinline)) int pd_here_packed(const float *restrict a, const float *restrict b, float *restrict c, void *workspace, size_t workspace_bytes, int threads)
{
    if (threads > 1024)
        return 3;
    char *pd_base;
    threads = pd_enter(workspace, workspace_bytes, 1024, 0, threads, &pd_base);
    if (threads == 0)
        return 1;
    float *restrict const bp = (float *)(pd_base + 0);
    pd_f32v acc_0_0 = pd_splat_f32v(0.0f);
    pd_f32v acc_0_1 = pd_splat_f32v(0.0f);
    pd_f32v acc_1_0 = pd_splat_f32v(0.0f);
    pd_f32v acc_1_1 = pd_splat_f32v(0.0f);
    for (int64_t i0 = 0; i0 < 8; i0++) {
        pd_store_f32v(&bp[i0*32], pd_load_f32v(&b[i0*32]));
        pd_store_f32v(&bp[i0*32 + 16], pd_load_f32v(&b[i0*32 + 16]));
    }
    for (int64_t i0 = 0; i0 < 2; i0++) {
        acc_0_0 = pd_splat_f32v(0.0f);
        acc_0_1 = pd_splat_f32v(0.0f);
        acc_1_0 = pd_splat_f32v(0.0f);
        acc_1_1 = pd_splat_f32v(0.0f);
        for (int64_t i1 = 0; i1 < 8; i1++) {
             {
                pd_f32v pd_held_0 = pd_load_f32v(&bp[i1*32]);
                PD_HOLD(pd_held_0);
                acc_0_0 = acc_0_0 + pd_splat_f32v(a[i0*16 + i1]) * pd_held_0;
                pd_f32v pd_held_1 = pd_load_f32v(&bp[i1*32 + 16]);
                PD_HOLD(pd_held_1);
                acc_0_1 = acc_0_1 + pd_splat_f32v(a[i0*16 + i1]) * pd_held_1;
                acc_1_0 = acc_1_0 + pd_splat_f32v(a[i0*16 + i1 + 8]) * pd_held_0;
                acc_1_1 = acc_1_1 + pd_splat_f32v(a[i0*16 + i1 + 8]) * pd_held_1;
            }
        }
        pd_store_f32v(&c[i0*64], acc_0_0);
        pd_store_f32v(&c[i0*64 + 16], acc_0_1);
        pd_store_f32v(&c[i0*64 + 32], acc_1_0);
        pd_store_f32v(&c[i0*64 + 48], acc_1_1);
    }
    return 0;
}

PD_ANYWHERE int packed(const float *restrict a, const float *restrict b, float *restrict c, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_packed() ? pd_here_packed(a, b, c, workspace, workspace_bytes, threads) : 2;
}
