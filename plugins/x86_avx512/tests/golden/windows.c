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

size_t windows_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

int windows(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
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
        pd_store_first_f32v(&y[i0*40 + 32], 8, pd_load_first_f32v(&x[i0*40 + 32], 8) * pd_splat_f32v(2.0f));
    }
    return 0;
}
