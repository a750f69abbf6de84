/*
 * kernel mean(x) -> y
 * x f32 [3,512] heap
 * s f32 [3:N] uniform
 * s_p f32 [3:N,128] own
 * s_q f32 [3:N,4] shared
 * y f32 [3] heap
 *
 * 3:g
 * | s[{0}] = 0
 * | 128:b s_p[{0},{1}] = 0
 * | 128:b 4:v s_p[{0},{1}] += x[{0},{1}*4+{2}]
 * | 4:b s_q[{0},{1}] = 0
 * | 4:b 32:s s_q[{0},{1}] += s_p[{0},{1}*32+{2}]
 * | 4:s s[{0}] += s_q[{0},{1}]
 * | y[{0}] = s[{0}] / 512
 *
 * s: registers, the same in each thread
 * s_p: registers of each thread
 * s_q: shared memory
 */
#include "pd_gpu.h"

/* workspace 0 */

/* launch {"kernel": "pd_case_k0", "arrays": ["x", "y"], "blocks": 3, "threads": 128, "times": 1, "shared_bytes": 16, "must_move": 6156, "asked_for": 6240, "shared_traffic": 1632, "operations": 1932, "slow_operations": 3, "steps": 10, "host_sizes": [], "index_bytes": 4, "matrix_operations": {}, "dynamic_bytes": 0, "nest": [0]} */
PD_KERNEL(pd_case_k0, 128)(PD_INPUT(float, 1536, x), PD_ARRAY(float, 3, y))
{
    float s;
    float s_p;
    PD_SHARED(float, 4, s_q);
    const int i0 = pd_block;
    s = 0.0f;
    {
        s_p = 0.0f;
    }
    {
        const int i1 = pd_thread;
        {
            const pd_f32x4 pd_l0 = pd_load4(x, i0*512 + i1*4);
            s_p += pd_l0.x;
            s_p += pd_l0.y;
            s_p += pd_l0.z;
            s_p += pd_l0.w;
        }
    }
    if (pd_thread < 4) {
        const int i1 = pd_thread;
        s_q[i1] = 0.0f;
    }
    pd_sync_block();
    {
        const int i1 = pd_warp;
        {
            const float pd_total = pd_warp_add_f32(s_p);
            if (pd_lane == 0)
                s_q[i1] = s_q[i1] + pd_total;
        }
    }
    pd_sync_block();
    {
        const int i1 = pd_lane;
        float pd_value = pd_identity_add_f32();
        if (pd_lane < 4)
            pd_value = s_q[i1];
        const float pd_total = pd_warp_add_f32(pd_value);
        s = s + pd_total;
    }
    if (pd_thread == 0) {
        y[i0] = s / 512.0f;
    }
}

#ifdef PD_HOST
PD_HOST size_t pd_case_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

PD_HOST int pd_case_on(const float *x, float *y, void *workspace, size_t workspace_bytes, int threads, void *stream)
{
    char *const pd_base = (char *)workspace;
    (void)pd_base, (void)workspace_bytes, (void)threads, (void)stream;
    PD_BEGIN_CALL();
    PD_LAUNCH(pd_case_k0, 3, 128, x, y);
    return PD_END_CALL();
}

PD_HOST int pd_case(const float *x, float *y, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_case_on(x, y, workspace, workspace_bytes, threads, 0);
}
#endif
