/*
 * kernel softmax(x) -> y
 * x f32 [24576,512] heap
 * mv f32 [24576:N,16] reg
 * m f32 [24576:N] reg
 * e f32 [24576:N,512] stack
 * sv f32 [24576:N,16] reg
 * s f32 [24576:N] reg
 * r f32 [24576:N] reg
 * w f32 [24576:N,32:N,16] nt
 * y f32 [24576,512] heap
 *
 * 24576:p
 * | 16:v mv[{0},{1}] = -inf
 * | 32 16:v mv[{0},{2}] max= x[{0},{1}*16+{2}]
 * | m[{0}] = -inf
 * | 16:v m[{0}] max= mv[{0},{1}]
 * | 16:v sv[{0},{1}] = 0
 * | 32
 * | | 16:v e[{0},{1}*16+{2}] = exp(x[{0},{1}*16+{2}] - m[{0}])
 * | | 16:v sv[{0},{2}] += e[{0},{1}*16+{2}]
 * | s[{0}] = 0
 * | 16:v s[{0}] += sv[{0},{1}]
 * | r[{0}] = 1 / s[{0}]
 * | 32
 * | | 16:v w[{0},{1},{2}] = e[{0},{1}*16+{2}] * r[{0}]
 * | | 16:v y[{0},{1}*16+{2}] = w[{0},{1},{2}]
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"
#include "pd_processor.h"

PD_ANYWHERE static int pd_fits_rows(void)
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

size_t rows_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

struct rows_p0 {
    const float * x;
    float * y;
};

static void rows_p0(void *context, int64_t begin, int64_t end, int thread)
{
    const struct rows_p0 *const pd = context;
    const float *restrict const x = pd->x;
    float *restrict const y = pd->y;
    (void)thread;
    pd_f32v mv = pd_splat_f32v(0.0f);
    float m = 0.0f;
    PD_ALIGNED float e[512];
    pd_f32v sv = pd_splat_f32v(0.0f);
    float s = 0.0f;
    float r = 0.0f;
    pd_f32v w = pd_splat_f32v(0.0f);
    for (int64_t i0 = begin; i0 < end; i0++) {
        mv = pd_splat_f32v(-PD_INF);
        for (int64_t i1 = 0; i1 < 32; i1++) {
            mv = pd_max_f32v(pd_load_f32v(&x[i0*512 + i1*16]), mv);
        }
        m = -PD_INF;
        m = pd_max_f32(m, pd_highest_f32v(mv));
        sv = pd_splat_f32v(0.0f);
        for (int64_t i1 = 0; i1 < 32; i1++) {
            pd_store_f32v(&e[i1*16], pd_exp_f32v(pd_load_f32v(&x[i0*512 + i1*16]) - pd_splat_f32v(m)));
            sv = sv + pd_load_f32v(&e[i1*16]);
        }
        s = 0.0f;
        s += pd_sum_f32v(sv);
        r = 1.0f / s;
        for (int64_t i1 = 0; i1 < 32; i1++) {
            w = pd_load_f32v(&e[i1*16]) * pd_splat_f32v(r);
            pd_stream_f32v(&y[i0*512 + i1*16], w);
        }
    }
    pd_stream_fence();
}

static __attribute__((noinline)) int pd_here_rows(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
     {
        struct rows_p0 pd_context = {x, y};
        pd_parallel_for(rows_p0, &pd_context, 24576, threads);
    }
    return 0;
}

PD_ANYWHERE int rows(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_rows() ? pd_here_rows(x, y, workspace, workspace_bytes, threads) : 2;
}
