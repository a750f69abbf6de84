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

#define PD_DYNAMIC() extern __shared__ __align__(16) unsigned char pd_dynamic[]
#define PD_SHARED_AT(type, cells, name, start) type *const name = (type *)(pd_dynamic + (start))

#define PD_BEGIN_CALL() ((void)0)
#define PD_END_CALL() (cudaPeekAtLastError() == cudaSuccess ? 0 : 2)
#define PD_GIVEN(array, given, cells) \
    do { \
        if ((array) != (given) && cudaMemcpyAsync(array, given, (size_t)(cells) * sizeof *(array), \
                                               cudaMemcpyDeviceToDevice, (cudaStream_t)stream) != cudaSuccess) \
            return 2; \
    } while (0)
#define PD_LAUNCH(kernel, blocks, threads, ...) \
    kernel<<<(unsigned)(blocks), (unsigned)(threads), 0, (cudaStream_t)stream>>>(__VA_ARGS__)
#define PD_LAUNCH_DYNAMIC(kernel, blocks, threads, bytes, ...) \
    do { \
        if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) \
            return 2; \
        kernel<<<(unsigned)(blocks), (unsigned)(threads), bytes, (cudaStream_t)stream>>>(__VA_ARGS__); \
    } while (0)

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
template <class T> PD_INLINE void pd_copy_async16(T *to, int64_t to_at, const T *from, int64_t from_at)
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

/* A tile of 16 by 16 in the registers of a warp, as two of mma.m16n8 keep their sums: lane l has, of the left
 * eight columns and then of the right ones, columns 2*(l%4) and 2*(l%4)+1 of row l/4, then of row l/4+8. */
#define PD_TILE_OWN 8
template <class T> struct pd_tile_of {
    T values[PD_TILE_OWN];
};
typedef pd_tile_of<float> pd_tile;
typedef pd_tile_of<int32_t> pd_tile_i32;
#define pd_tile_cell(tile, own) ((tile).values[own])
#define pd_tile_row(own) ((pd_lane >> 2) + ((own) >> 1 & 1) * 8)
#define pd_tile_column(own) (((own) >> 2) * 8 + (pd_lane & 3) * 2 + ((own) & 1))

/* The steps that an instruction takes of sixteen rows of the left factor, or of sixteen columns of the right one. A
 * word is four bytes of one row: words[0] of row l/4, words[1] of row l/4+8, the word l%4 of each; words[2] and
 * words[3] are the words four further on. Of columns the second and the third are swapped. */
template <class T> struct pd_side {
    uint32_t words[4];
};

/* A word: neighbouring steps of a row are one load. */
PD_INLINE uint32_t pd_word(const pd_tf32 *at, int64_t step) { return at[0].bits; }
template <class T> PD_INLINE uint32_t pd_word_16(const T *at, int64_t step)
{
    return step == 1 ? *(const uint32_t *)at : at[0].bits | (uint32_t)at[step].bits << 16;
}
PD_INLINE uint32_t pd_word(const pd_bf16 *at, int64_t step) { return pd_word_16(at, step); }
PD_INLINE uint32_t pd_word(const pd_f16 *at, int64_t step) { return pd_word_16(at, step); }
template <class T> PD_INLINE uint32_t pd_word_8(const T *at, int64_t step)
{
    return step == 1 ? *(const uint32_t *)at
                     : (uint8_t)at[0] | (uint8_t)at[step] << 8 | (uint8_t)at[2 * step] << 16 |
                           (uint32_t)(uint8_t)at[3 * step] << 24;
}
PD_INLINE uint32_t pd_word(const int8_t *at, int64_t step) { return pd_word_8(at, step); }
PD_INLINE uint32_t pd_word(const uint8_t *at, int64_t step) { return pd_word_8(at, step); }

template <class T> PD_INLINE pd_side<T> pd_rows(const T *array, int64_t at, int64_t stride, int64_t step)
{
    const int each = 4 / (int)sizeof(T);
    const T *const first = array + at + (pd_lane >> 2) * stride + (pd_lane & 3) * each * step;
    const T *const below = first + 8 * stride;
    const int64_t on = 4 * each * step;
    return {pd_word(first, step), pd_word(below, step), pd_word(first + on, step), pd_word(below + on, step)};
}
template <class T> PD_INLINE pd_side<T> pd_columns(const T *array, int64_t at, int64_t stride, int64_t step)
{
    const pd_side<T> found = pd_rows(array, at, stride, step);
    return {found.words[0], found.words[2], found.words[1], found.words[3]};
}

/* Four squares of eight rows of 16 bytes in shared memory; lane l gives the start of row l%8 of square l/8. Lane l gets
 * the word l%4 of row l/4 of each square; turned, the words of columns of 2-byte elements. */
template <class T> PD_INLINE void pd_squares(pd_side<T> &side, const T *start)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(side.words[0]), "=r"(side.words[1]), "=r"(side.words[2]), "=r"(side.words[3])
                 : "r"((unsigned)__cvta_generic_to_shared(start)) : "memory");
}
template <class T> PD_INLINE void pd_squares_turned(pd_side<T> &side, const T *start)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(side.words[0]), "=r"(side.words[1]), "=r"(side.words[2]), "=r"(side.words[3])
                 : "r"((unsigned)__cvta_generic_to_shared(start)) : "memory");
}
template <class T> PD_INLINE pd_side<T> pd_rows_shared(const T *array, int64_t at, int64_t stride, int64_t step)
{
    pd_side<T> side;
    const int row = pd_lane & 7, odd = pd_lane >> 3 & 1, far = pd_lane >> 4, piece = 16 / (int)sizeof(T);
    if (step == 1)
        pd_squares(side, array + at + (row + 8 * odd) * stride + piece * far);
    else
        pd_squares_turned(side, array + at + (row + 8 * far) * step + 8 * odd);
    return side;
}
template <class T> PD_INLINE pd_side<T> pd_columns_shared(const T *array, int64_t at, int64_t stride, int64_t step)
{
    pd_side<T> side;
    const int row = pd_lane & 7, odd = pd_lane >> 3 & 1, far = pd_lane >> 4, piece = 16 / (int)sizeof(T);
    if (step == 1)
        pd_squares(side, array + at + (row + 8 * far) * stride + piece * odd);
    else
        pd_squares_turned(side, array + at + (row + 8 * odd) * step + 8 * far);
    return side;
}

/* The left factor's 16 rows in a, 8 columns of the right one in two words; products are exact. */
#define PD_MMA(name, shape, types, C, T) \
    PD_INLINE void name(C *sum, const uint32_t *a, uint32_t b0, uint32_t b1) \
    { \
        asm("mma.sync.aligned." shape ".row.col." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
            "{%0, %1, %2, %3};" \
            : T(sum[0]), T(sum[1]), T(sum[2]), T(sum[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
    }
PD_MMA(pd_mma_tf32, "m16n8k8", "f32.tf32.tf32.f32", float, "+f")
PD_MMA(pd_mma_bf16, "m16n8k16", "f32.bf16.bf16.f32", float, "+f")
PD_MMA(pd_mma_f16, "m16n8k16", "f32.f16.f16.f32", float, "+f")
PD_MMA(pd_mma_s8_s8, "m16n8k32", "s32.s8.s8.s32", int32_t, "+r")
PD_MMA(pd_mma_s8_u8, "m16n8k32", "s32.s8.u8.s32", int32_t, "+r")
PD_MMA(pd_mma_u8_s8, "m16n8k32", "s32.u8.s8.s32", int32_t, "+r")
PD_MMA(pd_mma_u8_u8, "m16n8k32", "s32.u8.u8.s32", int32_t, "+r")

#define PD_TILE_ADD(tile, A, B, mma) \
    PD_INLINE void pd_tile_add(tile &sum, const pd_side<A> &rows, const pd_side<B> &columns) \
    { \
        mma(sum.values, rows.words, columns.words[0], columns.words[1]); \
        mma(sum.values + 4, rows.words, columns.words[2], columns.words[3]); \
    }
PD_TILE_ADD(pd_tile, pd_tf32, pd_tf32, pd_mma_tf32)
PD_TILE_ADD(pd_tile, pd_bf16, pd_bf16, pd_mma_bf16)
PD_TILE_ADD(pd_tile, pd_f16, pd_f16, pd_mma_f16)
PD_TILE_ADD(pd_tile_i32, int8_t, int8_t, pd_mma_s8_s8)
PD_TILE_ADD(pd_tile_i32, int8_t, uint8_t, pd_mma_s8_u8)
PD_TILE_ADD(pd_tile_i32, uint8_t, int8_t, pd_mma_u8_s8)
PD_TILE_ADD(pd_tile_i32, uint8_t, uint8_t, pd_mma_u8_u8)

#endif
