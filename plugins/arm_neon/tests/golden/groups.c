/*
 * kernel groups(a, b, u, v) -> c, d
 * a bf16 [3,2,4] heap
 * b bf16 [3,2,2,4] heap
 * u u8 [3,4] heap
 * v i8 [3,4,4] heap
 * c f32 [2,2,2] heap
 * d i32 [4] heap
 * acc f32 [2,2,2] reg
 *
 * 2:u 2:u 2:u acc[{0},{1},{2}] = 0
 * 3 2:u 2:l 2:l 4:d acc[{1},{2},{3}] += f32(a[{0},{2},{4}]) * f32(b[{0},{1},{3},{4}])
 * 2:u 2:u 2:u c[{0},{1},{2}] = acc[{0},{1},{2}]
 * 4:v d[{0}] = 0
 * 3 4:l 4:d d[{1}] += i32(u[{0},{2}]) * i32(v[{0},{1},{2}])
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_neon.h"
#include "pd_arm_vectors.h"

PD_ANYWHERE static int pd_fits_pd_groups(void)
{
    static int known; /* 0: not asked yet, 1: no, 2: yes */
    int fits = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!fits) {
        fits = 1 + (pd_has_sums_of_bf16()
            && pd_has_matrices_of_bytes());
        __atomic_store_n(&known, fits, __ATOMIC_RELAXED);
    }
    return fits - 1;
}

size_t pd_groups_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

static __attribute__((noinline)) int pd_here_pd_groups(const pd_bf16 *restrict a, const pd_bf16 *restrict b, const uint8_t *restrict u, const int8_t *restrict v, float *restrict c, int32_t *restrict d, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    pd_f32v acc_0 = pd_splat_f32v(0.0f);
    pd_f32v acc_1 = pd_splat_f32v(0.0f);
    acc_0[0] = 0.0f;
    acc_0[1] = 0.0f;
    acc_0[2] = 0.0f;
    acc_0[3] = 0.0f;
    acc_1[0] = 0.0f;
    acc_1[1] = 0.0f;
    acc_1[2] = 0.0f;
    acc_1[3] = 0.0f;
    for (int64_t i0 = 0; i0 < 3; i0++) {
        acc_0 = (pd_f32v)(pd_tile_f32x4_bf16_bf16((pd_f32x4)acc_0, pd_load_bf16x8(&a[i0*8]), pd_load_bf16x8(&b[i0*16])));
        acc_1 = (pd_f32v)(pd_tile_f32x4_bf16_bf16((pd_f32x4)acc_1, pd_load_bf16x8(&a[i0*8]), pd_load_bf16x8(&b[i0*16 + 8])));
    }
    c[0] = acc_0[0];
    c[1] = acc_0[1];
    c[2] = acc_0[2];
    c[3] = acc_0[3];
    c[4] = acc_1[0];
    c[5] = acc_1[1];
    c[6] = acc_1[2];
    c[7] = acc_1[3];
    pd_store_i32x4(&d[0], pd_splat_i32x4(0));
    for (int64_t i0 = 0; i0 < 3; i0++) {
        pd_store_i32x4(&d[0], pd_group_i32x4_u8_i8(pd_load_i32x4(&d[0]), pd_splat_group_u8x16(&u[i0*4]), pd_load_i8x16(&v[i0*16])));
    }
    return 0;
}

PD_ANYWHERE int pd_groups(const pd_bf16 *restrict a, const pd_bf16 *restrict b, const uint8_t *restrict u, const int8_t *restrict v, float *restrict c, int32_t *restrict d, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_pd_groups() ? pd_here_pd_groups(a, b, u, v, c, d, workspace, workspace_bytes, threads) : 2;
}
