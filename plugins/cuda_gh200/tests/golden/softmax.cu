/*
 * kernel softmax(x) -> y
 * x f32 [16,256] heap
 * m f32 [16:N] uniform
 * m_p f32 [16:N,32] own
 * e f32 [16:N,256] own
 * s_p f32 [16:N,32] own
 * s f32 [16:N] uniform
 * y f32 [16,256] heap
 *
 * 2:g 8:b
 * | m[{0}*8+{1}] = -inf
 * | 32:w m_p[{0}*8+{1},{2}] = -inf
 * | 32:w 2:u 4:v m_p[{0}*8+{1},{2}] max= x[{0}*8+{1},{2}*4+{3}*128+{4}]
 * | 32:s m[{0}*8+{1}] max= m_p[{0}*8+{1},{2}]
 * | 2:u 32:w 4:v e[{0}*8+{1},{2}*128+{3}*4+{4}] = exp(x[{0}*8+{1},{2}*128+{3}*4+{4}] - m[{0}*8+{1}])
 * | s[{0}*8+{1}] = 0
 * | 32:w s_p[{0}*8+{1},{2}] = 0
 * | 32:w 2:u 4:v s_p[{0}*8+{1},{2}] += e[{0}*8+{1},{2}*4+{3}*128+{4}]
 * | 32:s s[{0}*8+{1}] += s_p[{0}*8+{1},{2}]
 * | 2:u 32:w 4:v y[{0}*8+{1},{2}*128+{3}*4+{4}] = e[{0}*8+{1},{2}*128+{3}*4+{4}] / s[{0}*8+{1}]
 *
 * m: registers, the same in each thread
 * m_p: registers of each thread
 * e: registers of each thread
 * s_p: registers of each thread
 * s: registers, the same in each thread
 */
#include "pd_gpu.h"

/* workspace 0 */

/* launch {"kernel": "pd_case_k0", "arrays": ["x", "y"], "blocks": 2, "threads": 256, "times": 1, "shared_bytes": 0, "must_move": 32768, "asked_for": 49152, "shared_traffic": 0, "operations": 13312, "slow_operations": 8192, "steps": 38, "host_sizes": [], "index_bytes": 4, "matrix_operations": {}, "dynamic_bytes": 0, "nest": [0]} */
PD_KERNEL(pd_case_k0, 256)(PD_INPUT(float, 4096, x), PD_ARRAY(float, 4096, y))
{
    float m;
    float m_p;
    float e[8];
    float s_p;
    float s;
    const int i0 = pd_block;
    {
        const int i1 = pd_warp;
        m = -PD_INF;
        {
            m_p = -PD_INF;
        }
        {
            const int i2 = pd_lane;
            {
                const pd_f32x4 pd_l0 = pd_load4(x, i0*2048 + i1*256 + i2*4);
                m_p = pd_max_f32(pd_l0.x, m_p);
                m_p = pd_max_f32(pd_l0.y, m_p);
                m_p = pd_max_f32(pd_l0.z, m_p);
                m_p = pd_max_f32(pd_l0.w, m_p);
            }
            {
                const pd_f32x4 pd_l0 = pd_load4(x, i0*2048 + i1*256 + i2*4 + 128);
                m_p = pd_max_f32(pd_l0.x, m_p);
                m_p = pd_max_f32(pd_l0.y, m_p);
                m_p = pd_max_f32(pd_l0.z, m_p);
                m_p = pd_max_f32(pd_l0.w, m_p);
            }
        }
        {
            const float pd_total = pd_warp_max_f32(m_p);
            m = pd_max_f32(pd_total, m);
        }
        {
            const int i3 = pd_lane;
            {
                const pd_f32x4 pd_l0 = pd_load4(x, i0*2048 + i1*256 + i3*4);
                const float pd_v0 = pd_exp_f32(pd_l0.x - m);
                const float pd_v1 = pd_exp_f32(pd_l0.y - m);
                const float pd_v2 = pd_exp_f32(pd_l0.z - m);
                const float pd_v3 = pd_exp_f32(pd_l0.w - m);
                e[0] = pd_v0;
                e[1] = pd_v1;
                e[2] = pd_v2;
                e[3] = pd_v3;
            }
        }
        {
            const int i3 = pd_lane;
            {
                const pd_f32x4 pd_l0 = pd_load4(x, i0*2048 + i1*256 + i3*4 + 128);
                const float pd_v0 = pd_exp_f32(pd_l0.x - m);
                const float pd_v1 = pd_exp_f32(pd_l0.y - m);
                const float pd_v2 = pd_exp_f32(pd_l0.z - m);
                const float pd_v3 = pd_exp_f32(pd_l0.w - m);
                e[4] = pd_v0;
                e[5] = pd_v1;
                e[6] = pd_v2;
                e[7] = pd_v3;
            }
        }
        s = 0.0f;
        {
            s_p = 0.0f;
        }
        {
            {
                s_p += e[0];
                s_p += e[1];
                s_p += e[2];
                s_p += e[3];
            }
            {
                s_p += e[4];
                s_p += e[5];
                s_p += e[6];
                s_p += e[7];
            }
        }
        {
            const float pd_total = pd_warp_add_f32(s_p);
            s = s + pd_total;
        }
        {
            const int i3 = pd_lane;
            {
                pd_store4(y, i0*2048 + i1*256 + i3*4, e[0] / s, e[1] / s, e[2] / s, e[3] / s);
            }
        }
        {
            const int i3 = pd_lane;
            {
                pd_store4(y, i0*2048 + i1*256 + i3*4 + 128, e[4] / s, e[5] / s, e[6] / s, e[7] / s);
            }
        }
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
    PD_LAUNCH(pd_case_k0, 2, 256, x, y);
    return PD_END_CALL();
}

PD_HOST int pd_case(const float *x, float *y, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_case_on(x, y, workspace, workspace_bytes, threads, 0);
}
#endif
