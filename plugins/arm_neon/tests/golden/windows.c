/*
 * kernel windows(x) -> y
 * x f32 [8,16] heap
 * x_r f32 [8:N,4:N,4] ahead
 * y f32 [8,16] heap
 *
 * 8 4:u
 * | 4:v x_r[{0},{1},{2}] = x[{0},{1}*4+{2}]
 * | 4:v y[{0},{1}*4+{2}] = exp(x_r[{0},{1},{2}])
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_neon.h"

size_t pd_windows_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

int pd_windows(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    pd_f32v x_r = pd_splat_f32v(0.0f);
    for (int64_t i0 = 0; i0 < 8; i0++) {
        x_r = pd_load_f32v(&x[i0*16]);
        pd_prefetch_ahead(&x[i0*16 + 16]);
        pd_store_f32v(&y[i0*16], pd_exp_f32v(x_r));
        x_r = pd_load_f32v(&x[i0*16 + 4]);
        pd_prefetch_ahead(&x[i0*16 + 20]);
        pd_store_f32v(&y[i0*16 + 4], pd_exp_f32v(x_r));
        x_r = pd_load_f32v(&x[i0*16 + 8]);
        pd_prefetch_ahead(&x[i0*16 + 24]);
        pd_store_f32v(&y[i0*16 + 8], pd_exp_f32v(x_r));
        x_r = pd_load_f32v(&x[i0*16 + 12]);
        pd_prefetch_ahead(&x[i0*16 + 28]);
        pd_store_f32v(&y[i0*16 + 12], pd_exp_f32v(x_r));
    }
    return 0;
}
