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
#include "pd_neon.h"

size_t pd_tail_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

int pd_tail(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
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
