/*
 * kernel product(a, b) -> c
 * a f32 [64,32] heap
 * b f32 [32,64] heap
 * a_s f32 [2:N,4:N,8,32] shared
 * b_s f32 [2:N,4:N,8,64] shared
 * sums f32 [2:N,16,16,2,4] own
 * c f32 [64,64] heap
 *
 * 2:g
 * | 16:b 16:b 2 4 sums[{0},{1},{2},{3},{4}] = 0
 * | 4
 * | | 32:b 8:b a_s[{0},{1},{3},{2}] = a[{0}*32+{2},{1}*8+{3}]
 * | | 8:b 16:b 4:v b_s[{0},{1},{2},{3}*4+{4}] = b[{1}*8+{2},{3}*4+{4}]
 * | | 16:b 16:b 8:u 2 4 sums[{0},{2},{3},{5},{6}] += a_s[{0},{1},{4},{2}*2+{5}] * b_s[{0},{1},{4},{3}*4+{6}]
 * | 16:b 16:b 2 4:v c[{0}*32+{1}*2+{3},{2}*4+{4}] = sums[{0},{1},{2},{3},{4}]
 *
 * a_s: shared memory
 * b_s: shared memory
 * sums: registers of each thread
 */
#include "pd_gpu.h"

/* workspace 0 */

/* launch {"kernel": "pd_case_k0", "arrays": ["a", "b", "c"], "blocks": 2, "threads": 256, "times": 1, "shared_bytes": 3072, "must_move": 32768, "asked_for": 40960, "shared_traffic": 417792, "operations": 131072, "slow_operations": 0, "steps": 292, "host_sizes": [], "index_bytes": 4, "matrix_operations": {}, "dynamic_bytes": 0, "nest": [0]} */
PD_KERNEL(pd_case_k0, 256)(PD_INPUT(float, 2048, a), PD_INPUT(float, 2048, b), PD_ARRAY(float, 4096, c))
{
    PD_SHARED(float, 256, a_s);
    PD_SHARED(float, 512, b_s);
    float sums[8];
    const int i0 = pd_block;
    {
        PD_UNROLL
        for (int i3 = 0; i3 < 2; i3++) {
            PD_UNROLL
            for (int i4 = 0; i4 < 4; i4++) {
                sums[i3*4 + i4] = 0.0f;
            }
        }
    }
    for (int i1 = 0; i1 < 4; i1++) {
        {
            const int i3 = pd_thread % 8;
            const int i2 = pd_thread / 8;
            a_s[i2 + i3*32] = a[i0*1024 + i1*8 + i2*32 + i3];
        }
        if (pd_thread < 128) {
            const int i3 = pd_thread % 16;
            const int i2 = pd_thread / 16;
            {
                const pd_f32x4 pd_l0 = pd_load4(b, i1*512 + i2*64 + i3*4);
                pd_store4(b_s, i2*64 + i3*4, pd_l0.x, pd_l0.y, pd_l0.z, pd_l0.w);
            }
        }
        pd_sync_block();
        {
            const int i3 = pd_thread % 16;
            const int i2 = pd_thread / 16;
            PD_UNROLL
            for (int i5 = 0; i5 < 2; i5++) {
                PD_UNROLL
                for (int i6 = 0; i6 < 4; i6++) {
                    sums[i5*4 + i6] += a_s[i2*2 + i5] * b_s[i3*4 + i6];
                }
            }
            PD_UNROLL
            for (int i5 = 0; i5 < 2; i5++) {
                PD_UNROLL
                for (int i6 = 0; i6 < 4; i6++) {
                    sums[i5*4 + i6] += a_s[i2*2 + i5 + 32] * b_s[i3*4 + i6 + 64];
                }
            }
            PD_UNROLL
            for (int i5 = 0; i5 < 2; i5++) {
                PD_UNROLL
                for (int i6 = 0; i6 < 4; i6++) {
                    sums[i5*4 + i6] += a_s[i2*2 + i5 + 64] * b_s[i3*4 + i6 + 128];
                }
            }
            PD_UNROLL
            for (int i5 = 0; i5 < 2; i5++) {
                PD_UNROLL
                for (int i6 = 0; i6 < 4; i6++) {
                    sums[i5*4 + i6] += a_s[i2*2 + i5 + 96] * b_s[i3*4 + i6 + 192];
                }
            }
            PD_UNROLL
            for (int i5 = 0; i5 < 2; i5++) {
                PD_UNROLL
                for (int i6 = 0; i6 < 4; i6++) {
                    sums[i5*4 + i6] += a_s[i2*2 + i5 + 128] * b_s[i3*4 + i6 + 256];
                }
            }
            PD_UNROLL
            for (int i5 = 0; i5 < 2; i5++) {
                PD_UNROLL
                for (int i6 = 0; i6 < 4; i6++) {
                    sums[i5*4 + i6] += a_s[i2*2 + i5 + 160] * b_s[i3*4 + i6 + 320];
                }
            }
            PD_UNROLL
            for (int i5 = 0; i5 < 2; i5++) {
                PD_UNROLL
                for (int i6 = 0; i6 < 4; i6++) {
                    sums[i5*4 + i6] += a_s[i2*2 + i5 + 192] * b_s[i3*4 + i6 + 384];
                }
            }
            PD_UNROLL
            for (int i5 = 0; i5 < 2; i5++) {
                PD_UNROLL
                for (int i6 = 0; i6 < 4; i6++) {
                    sums[i5*4 + i6] += a_s[i2*2 + i5 + 224] * b_s[i3*4 + i6 + 448];
                }
            }
        }
        pd_sync_block();
    }
    {
        const int i2 = pd_thread % 16;
        const int i1 = pd_thread / 16;
        PD_UNROLL
        for (int i3 = 0; i3 < 2; i3++) {
            {
                pd_store4(c, i0*2048 + i1*128 + i2*4 + i3*64, sums[i3*4], sums[i3*4 + 1], sums[i3*4 + 2], sums[i3*4 + 3]);
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

PD_HOST int pd_case_on(const float *a, const float *b, float *c, void *workspace, size_t workspace_bytes, int threads, void *stream)
{
    char *const pd_base = (char *)workspace;
    (void)pd_base, (void)workspace_bytes, (void)threads, (void)stream;
    PD_BEGIN_CALL();
    PD_LAUNCH(pd_case_k0, 2, 256, a, b, c);
    return PD_END_CALL();
}

PD_HOST int pd_case(const float *a, const float *b, float *c, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_case_on(a, b, c, workspace, workspace_bytes, threads, 0);
}
#endif
