/*
 * kernel tail(x) -> y
 * x f32 [3,7] heap
 * y f32 [3,7] heap
 *
 * 3 4:v y[{0},{1}] = max(x[{0},{1}], 0) + {1}
 * 3 3:v y[{0},{1}+4] = max(x[{0},{1}+4], 0) + {1}
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_sve.h"

PD_ANYWHERE static int pd_fits_pd_tail(void)
{
    static int known; /* 0: not asked yet, 1: no, 2: yes */
    int fits = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!fits) {
        fits = 1 + (pd_has_sve());
        __atomic_store_n(&known, fits, __ATOMIC_RELAXED);
    }
    return fits - 1;
}

size_t pd_tail_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

static __attribute__((noinline)) int pd_here_pd_tail(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    if (pd_other_vectors())
        return PD_OTHER_VECTORS;
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    for (int64_t i0 = 0; i0 < 3; i0++) {
        pd_store_f32v(&y[i0*7], pd_max_number_f32v(0.0f, pd_load_f32v(&x[i0*7])) + pd_iota_f32v(0, 1));
    }
    for (int64_t i0 = 0; i0 < 3; i0++) {
        pd_store_first_f32v(&y[i0*7 + 4], 3, pd_max_number_f32v(0.0f, pd_load_first_f32v(&x[i0*7 + 4], 3)) + pd_iota_f32v(0, 1));
    }
    return 0;
}

PD_ANYWHERE int pd_tail(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    return pd_fits_pd_tail() ? pd_here_pd_tail(x, y, workspace, workspace_bytes, threads) : 2;
}
