/* The macros and functions of pd_gpu.h in CUDA. Compiles with nvcc, and without the host's part with NVRTC. */
#ifndef PD_RUNTIME_H
#define PD_RUNTIME_H

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ULL
#define UINT64_C(x) x##ULL
#define INT64_C(x) x##LL
#else
#include <cuda_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#define PD_HOST extern "C"
#endif

#define PD_WARP 32
#define PD_INF __int_as_float(0x7f800000)
#define PD_INLINE static __device__ __forceinline__
#define PD_UNROLL _Pragma("unroll")

PD_INLINE uint16_t pd_bf16_bits(float x)
{
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
PD_INLINE uint32_t pd_tf32_bits(float x)
{
    uint32_t bits;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits & 0xffffe000u; /* the last bits are not specified */
}
PD_INLINE uint16_t pd_f16_bits(float x)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
PD_INLINE float pd_f16_value(uint16_t bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
#define PD_F16_BITS(x) pd_f16_bits(x)
#define PD_F16_VALUE(bits) pd_f16_value(bits)
#define PD_BF16_BITS(x) pd_bf16_bits(x)
#define PD_TF32_BITS(x) pd_tf32_bits(x)
#include "pd_stored.h"

#define __builtin_fabs fabs
#define __builtin_fabsf fabsf
#define __builtin_sqrt sqrt
#define __builtin_sqrtf sqrtf
#define __builtin_floor floor
#define __builtin_floorf floorf
#define __builtin_ceil ceil
#define __builtin_ceilf ceilf
#define __builtin_rint rint
#define __builtin_rintf rintf
#define __builtin_trunc trunc
#define __builtin_truncf truncf

#define PD_KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads) name
#define PD_INPUT(type, cells, name) const type *__restrict__ const name
#define PD_ARRAY(type, cells, name) type *__restrict__ const name
/* Without __restrict__, which would let reads move to the other side of a barrier. */
#define PD_EXCHANGED(type, cells, name) type *const name
#define PD_SHARED(type, cells, name) __shared__ __align__(16) type name[cells]

#define PD_BEGIN_CALL() ((void)0)
#define PD_END_CALL() (cudaPeekAtLastError() == cudaSuccess ? 0 : 2)
#define PD_LAUNCH(kernel, blocks, threads, ...) \
    kernel<<<(unsigned)(blocks), (unsigned)(threads), 0, (cudaStream_t)stream>>>(__VA_ARGS__)

#define pd_block ((int)blockIdx.x)
#define pd_thread ((int)threadIdx.x)
#define pd_lane ((int)threadIdx.x & 31)
#define pd_warp ((int)threadIdx.x >> 5)
#define pd_sync_block() __syncthreads()
#define pd_sync_warp() __syncwarp()
#define pd_shuffle_xor(value, distance) __shfl_xor_sync(0xffffffffu, value, distance)

PD_INLINE void pd_copy_async(float *to, int64_t to_at, const float *from, int64_t from_at)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to + to_at)),
                    "l"(__cvta_generic_to_global(from + from_at)) : "memory");
}
PD_INLINE void pd_copy_async4(float *to, int64_t to_at, const float *from, int64_t from_at)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to + to_at)),
                    "l"(__cvta_generic_to_global(from + from_at)) : "memory");
}
PD_INLINE void pd_copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

typedef float4 pd_f32x4;
PD_INLINE float4 pd_load4(const float *array, int64_t at) { return *(const float4 *)(array + at); }
PD_INLINE void pd_store4(float *array, int64_t at, float x, float y, float z, float w)
{
    *(float4 *)(array + at) = make_float4(x, y, z, w);
}
PD_INLINE void pd_store4_f16(pd_f16 *array, int64_t at, pd_f16 x, pd_f16 y, pd_f16 z, pd_f16 w)
{
    *(ushort4 *)(array + at) = make_ushort4(x.bits, y.bits, z.bits, w.bits);
}
PD_INLINE void pd_store4_bf16(pd_bf16 *array, int64_t at, pd_bf16 x, pd_bf16 y, pd_bf16 z, pd_bf16 w)
{
    *(ushort4 *)(array + at) = make_ushort4(x.bits, y.bits, z.bits, w.bits);
}
PD_INLINE void pd_store4_tf32(pd_tf32 *array, int64_t at, pd_tf32 x, pd_tf32 y, pd_tf32 z, pd_tf32 w)
{
    *(uint4 *)(array + at) = make_uint4(x.bits, y.bits, z.bits, w.bits);
}

/* A tile of 16 by 16 in the registers of a warp, as two of mma.m16n8k16 or m16n8k8 keep their sums: lane l has, of the
 * left eight columns and then of the right ones, columns 2*(l%4) and 2*(l%4)+1 of row l/4, then of row l/4+8. */
#define PD_TILE_OWN 8
struct pd_tile {
    float values[PD_TILE_OWN];
};
#define pd_tile_cell(tile, own) ((tile).values[own])
#define pd_tile_row(own) ((pd_lane >> 2) + ((own) >> 1 & 1) * 8)
#define pd_tile_column(own) (((own) >> 2) * 8 + (pd_lane & 3) * 2 + ((own) & 1))

/* The left factor's 16 rows by 16 steps in a, the right one's 8 rows by 16 steps in b; products are exact. */
PD_INLINE void pd_mma(float *sum, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* The same of 8 steps of tf32. */
PD_INLINE void pd_mma_tf32(float *sum, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

PD_INLINE uint32_t pd_pair(const pd_bf16 *at) { return *(const uint32_t *)at; }

/* Each step takes sixteen elements of every row: lane l brings those at 2*(l%4), 2*(l%4)+1 and eight further on,
 * of rows l/4 and l/4+8. */
PD_INLINE void pd_tile_multiply_bf16(pd_tile &sum, const pd_bf16 *a, int64_t a_at, int64_t a_stride,
                                     const pd_bf16 *b, int64_t b_at, int64_t b_stride, int steps)
{
    a += a_at + (pd_lane >> 2) * a_stride + (pd_lane & 3) * 2;
    b += b_at + (pd_lane >> 2) * b_stride + (pd_lane & 3) * 2;
    const pd_bf16 *const a_below = a + 8 * a_stride, *const b_below = b + 8 * b_stride;
    PD_UNROLL
    for (int k = 0; k < steps; k += 16) {
        const uint32_t a0 = pd_pair(a + k), a1 = pd_pair(a_below + k);
        const uint32_t a2 = pd_pair(a + k + 8), a3 = pd_pair(a_below + k + 8);
        pd_mma(sum.values, a0, a1, a2, a3, pd_pair(b + k), pd_pair(b + k + 8));
        pd_mma(sum.values + 4, a0, a1, a2, a3, pd_pair(b_below + k), pd_pair(b_below + k + 8));
    }
}

/* Each step takes eight elements of every row: lane l brings those at l%4 and four further on, of rows l/4 and
 * l/4+8. */
PD_INLINE void pd_tile_multiply_tf32(pd_tile &sum, const pd_tf32 *a, int64_t a_at, int64_t a_stride,
                                     const pd_tf32 *b, int64_t b_at, int64_t b_stride, int steps)
{
    a += a_at + (pd_lane >> 2) * a_stride + (pd_lane & 3);
    b += b_at + (pd_lane >> 2) * b_stride + (pd_lane & 3);
    const pd_tf32 *const a_below = a + 8 * a_stride, *const b_below = b + 8 * b_stride;
    PD_UNROLL
    for (int k = 0; k < steps; k += 8) {
        const uint32_t a0 = a[k].bits, a1 = a_below[k].bits, a2 = a[k + 4].bits, a3 = a_below[k + 4].bits;
        pd_mma_tf32(sum.values, a0, a1, a2, a3, b[k].bits, b[k + 4].bits);
        pd_mma_tf32(sum.values + 4, a0, a1, a2, a3, b_below[k].bits, b_below[k + 4].bits);
    }
}

#endif
