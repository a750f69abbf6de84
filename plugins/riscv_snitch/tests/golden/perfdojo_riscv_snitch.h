/* For a Snitch core, in the calling convention ilp32d. Arrays and workspace lie in TCDM and start at
 * multiples of 8 bytes. Streams are off when a kernel is called and after it returned; ft0, ft1 and ft2 are
 * theirs.
 */
/* The kernels of perfdojo_riscv_snitch. Arrays are in C order without gaps; outputs overlap nothing.
 *
 * A kernel returns 0; 1 when workspace_bytes is less than its query says;
 * 2 when this processor cannot run it; 3 when it runs on threads
 * and there are more than 1024. With these it has written nothing.
 * The workspace may be NULL when its size is 0. Kernels are re-entrant: give each call that runs
 * beside others a workspace of its own.
 */
#ifndef PERFDOJO_RISCV_SNITCH_H
#define PERFDOJO_RISCV_SNITCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* drelu: x f64 [4,4] -> y f64 [4,4] */
int pd_drelu_4x4_f64(const double *x, double *y, void *workspace, size_t workspace_bytes, int threads);
size_t pd_drelu_4x4_f64_workspace_bytes(int threads);

/* sdense: x f32 [2,3], w f32 [3,4], b f32 [2,4] -> y f32 [2,4] */
int pd_sdense_2x3x4_f32(const float *x, const float *w, const float *b, float *y, void *workspace, size_t workspace_bytes, int threads);
size_t pd_sdense_2x3x4_f32_workspace_bytes(int threads);

#ifdef __cplusplus
}
#endif

#endif /* PERFDOJO_RISCV_SNITCH_H */
