/*
 * kernel tile(a, b) -> c
 * a f32 [2,8] heap
 * b f32 [8,8] heap
 * c f32 [2,8] heap
 * acc f32 [2,2,4] reg
 *
 * 2:u 2:u 4:v acc[{0},{1},{2}] = 0
 * 8 2:u 2:u 4:v acc[{1},{2},{3}] += a[{1},{0}] * b[{0},{2}*4+{3}]
 * 2:u 2:u 4:v c[{0},{1}*4+{2}] = acc[{0},{1},{2}]
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_neon.h"

size_t pd_tile_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

int pd_tile(const float *restrict a, const float *restrict b, float *restrict c, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    pd_f32v acc_0_0 = pd_splat_f32v(0.0f);
    pd_f32v acc_0_1 = pd_splat_f32v(0.0f);
    pd_f32v acc_1_0 = pd_splat_f32v(0.0f);
    pd_f32v acc_1_1 = pd_splat_f32v(0.0f);
    acc_0_0 = pd_splat_f32v(0.0f);
    acc_0_1 = pd_splat_f32v(0.0f);
    acc_1_0 = pd_splat_f32v(0.0f);
    acc_1_1 = pd_splat_f32v(0.0f);
    for (int64_t i0 = 0; i0 < 8; i0++) {
         {
            pd_f32v pd_held_0 = pd_load_f32v(&b[i0*8]);
            PD_HOLD(pd_held_0);
            acc_0_0 = acc_0_0 + pd_splat_f32v(a[i0]) * pd_held_0;
            pd_f32v pd_held_1 = pd_load_f32v(&b[i0*8 + 4]);
            PD_HOLD(pd_held_1);
            acc_0_1 = acc_0_1 + pd_splat_f32v(a[i0]) * pd_held_1;
            acc_1_0 = acc_1_0 + pd_splat_f32v(a[i0 + 8]) * pd_held_0;
            acc_1_1 = acc_1_1 + pd_splat_f32v(a[i0 + 8]) * pd_held_1;
        }
    }
    pd_store_f32v(&c[0], acc_0_0);
    pd_store_f32v(&c[4], acc_0_1);
    pd_store_f32v(&c[8], acc_1_0);
    pd_store_f32v(&c[12], acc_1_1);
    return 0;
}
