/*
 * kernel scale(x) -> y
 * x f32 [8,16] heap
 * y f32 [8,16] heap
 *
 * 8 16 y[{0},{1}] = x[{0},{1}] * 2
 */
#include "pd_runtime.h"
#include "pd_scalar.h"
#include "pd_avx512.h"

size_t scale_workspace_bytes(int threads)
{
    (void)threads;
    return 0;
}

PD_VECTOR_LOOPS
int scale(const float *restrict x, float *restrict y, void *workspace, size_t workspace_bytes, int threads)
{
    (void)workspace, (void)workspace_bytes;
    if (threads > 1024)
        return 3;
    for (int64_t i0 = 0; i0 < 8; i0++) {
        for (int64_t i1 = 0; i1 < 16; i1++) {
            y[i0*16 + i1] = x[i0*16 + i1] * 2.0f;
        }
    }
    return 0;
}
