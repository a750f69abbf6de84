/*
 * kernel product(a, b) -> c
 * a f32 [32,32] heap
 * b f32 [32,32] heap
 * a_r tf32 [32,20] shared
 * b_r tf32 [32,20] shared
 * c_w f32 [2,2,16,16] tile
 * c f32 [32,32] heap
 *
 * 1:g
 * | 2:b 2 16 16:m c_w[{1},{2},{3},{4}] = 0
 * | 2
 * | | 4:b 32:b 4:v a_r[{3},{2}*4+{4}] = tf32(a[{3},{1}*16+{2}*4+{4}])
 * | | 4:b 32:b 4 b_r[{3},{2}*4+{4}] = tf32(b[{1}*16+{2}*4+{4},{3}])
 * | | 2:b 2 16 16 16:m c_w[{2},{3},{4},{5}] += f32(a_r[{3}*16+{4},{6}]) * f32(b_r[{2}*16+{5},{6}])
 * | 2:b 2 16 16:m c[{2}*16+{3},{1}*16+{4}] = c_w[{1},{2},{3},{4}]
 *
 * a_r: shared memory
 * b_r: shared memory
 * c_w: registers of a warp's lanes
 */
#include "pd_gpu.h"

/* workspace 0 */

/* launch {"kernel": "pd_case_k0", "arrays": ["a", "b", "c"], "blocks": 1, "threads": 128, "times": 1, "shared_bytes": 5120, "must_move": 12288, "asked_for": 40960, "shared_traffic": 10240, "operations": 34816, "slow_operations": 0, "steps": 560, "host_sizes": [], "index_bytes": 4, "matrix_operations": {"tf32": 32768}, "dynamic_bytes": 0, "nest": [0]} */
PD_KERNEL(pd_case_k0, 128)(PD_INPUT(float, 1024, a), PD_INPUT(float, 1024, b), PD_ARRAY(float, 1024, c))
{
    PD_SHARED(pd_tf32, 640, a_r);
    PD_SHARED(pd_tf32, 640, b_r);
    pd_tile c_w[2];
    if (pd_warp < 2) {
        PD_UNROLL
        for (int i2 = 0; i2 < 2; i2++) {
            PD_UNROLL
            for (int pd_own = 0; pd_own < PD_TILE_OWN; pd_own++) {
                pd_tile_cell(c_w[i2], pd_own) = 0.0f;
            }
        }
    }
    for (int i1 = 0; i1 < 2; i1++) {
        {
            const int i3 = pd_thread % 32;
            const int i2 = pd_thread / 32;
            {
                const pd_f32x4 pd_l0 = pd_load4(a, i1*16 + i2*4 + i3*32);
                pd_store4_tf32(a_r, i2*4 + i3*20, pd_tf32_from_f32(pd_l0.x), pd_tf32_from_f32(pd_l0.y), pd_tf32_from_f32(pd_l0.z), pd_tf32_from_f32(pd_l0.w));
            }
        }
        {
            const int i3 = pd_thread % 32;
            const int i2 = pd_thread / 32;
            for (int i4 = 0; i4 < 4; i4++) {
                b_r[i2*4 + i3*20 + i4] = pd_tf32_from_f32(b[i1*512 + i2*128 + i3 + i4*32]);
            }
        }
        pd_sync_block();
        if (pd_warp < 2) {
            const int i2 = pd_warp;
            PD_UNROLL
            for (int pd_step = 0; pd_step < 16; pd_step += 8) {
                const auto pd_a0 = pd_rows(a_r, pd_step, 20, 1);
                const auto pd_b1 = pd_columns(b_r, i2*320 + pd_step, 20, 1);
                const auto pd_a2 = pd_rows(a_r, 320 + pd_step, 20, 1);
                pd_tile_add(c_w[0], pd_a0, pd_b1);
                pd_tile_add(c_w[1], pd_a2, pd_b1);
            }
        }
        pd_sync_block();
    }
    if (pd_warp < 2) {
        const int i1 = pd_warp;
        PD_UNROLL
        for (int i2 = 0; i2 < 2; i2++) {
            PD_UNROLL
            for (int pd_own = 0; pd_own < PD_TILE_OWN; pd_own++) {
                const int i3 = pd_tile_row(pd_own);
                const int i4 = pd_tile_column(pd_own);
                c[i1*16 + i2*512 + i3*32 + i4] = pd_tile_cell(c_w[i2], pd_own);
            }
            pd_sync_warp();
        }
    }
}

#ifdef PD_HOST
PD_HOST size_t pd_case_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

PD_HOST int pd_case_on(const float *a, const float *b, float *c, void *workspace, size_t workspace_bytes, int threads, void *stream)
{
    char *const pd_base = (char *)workspace;
    (void)pd_base, (void)workspace_bytes, (void)threads, (void)stream;
    PD_BEGIN_CALL();
    PD_LAUNCH(pd_case_k0, 1, 128, a, b, c);
    return PD_END_CALL();
}

PD_HOST int pd_case(const float *a, const float *b, float *c, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_case_on(a, b, c, workspace, workspace_bytes, threads, 0);
}
#endif
