/* The macros and functions of pd_gpu.h in HIP. With PD_DEVICE_ONLY it needs a clang for the GPU, but no ROCm;
 * hipcc compiles the host's part too.
 */
#ifndef PD_RUNTIME_H
#define PD_RUNTIME_H

#ifdef PD_DEVICE_ONLY
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
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
/* These are ROCm's: a kernel that calls one needs hipcc. */
#define PD_OF_ROCM(name) extern "C" __attribute__((device)) double name(double);
PD_OF_ROCM(exp) PD_OF_ROCM(exp2) PD_OF_ROCM(expm1) PD_OF_ROCM(log) PD_OF_ROCM(log2) PD_OF_ROCM(log1p)
PD_OF_ROCM(tanh) PD_OF_ROCM(erf) PD_OF_ROCM(cbrt) PD_OF_ROCM(sin) PD_OF_ROCM(cos) PD_OF_ROCM(tan)
PD_OF_ROCM(asin) PD_OF_ROCM(acos) PD_OF_ROCM(atan) PD_OF_ROCM(sinh) PD_OF_ROCM(cosh)
PD_OF_ROCM(asinh) PD_OF_ROCM(acosh) PD_OF_ROCM(atanh)
extern "C" __attribute__((device)) double pow(double, double);
extern "C" __attribute__((device)) double fmod(double, double);
#else
#include <hip/hip_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#define PD_HOST extern "C"
#endif

#define PD_WARP 64
#define PD_INF __builtin_inff()
#define PD_INLINE static inline __attribute__((device, always_inline, unused))
#define PD_UNROLL _Pragma("unroll")

PD_INLINE uint16_t pd_f16_bits(float x)
{
    const union { _Float16 value; uint16_t bits; } half = {(_Float16)x};
    return half.bits;
}
PD_INLINE float pd_f16_value(uint16_t bits)
{
    const union { uint16_t bits; _Float16 value; } half = {bits};
    return (float)half.value;
}
#define PD_F16_BITS(x) pd_f16_bits(x)
#define PD_F16_VALUE(bits) pd_f16_value(bits)
#include "pd_stored.h"

#define PD_KERNEL(name, threads) \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, threads))) void name
#define PD_INPUT(type, cells, name) const type *__restrict__ const name
#define PD_ARRAY(type, cells, name) type *__restrict__ const name
/* Without __restrict__, which would let reads move to the other side of a barrier. */
#define PD_EXCHANGED(type, cells, name) type *const name
#define PD_SHARED(type, cells, name) __attribute__((shared, aligned(16))) type name[cells]

#define PD_BEGIN_CALL() ((void)0)
#define PD_END_CALL() (hipPeekAtLastError() == hipSuccess ? 0 : 2)
#define PD_GIVEN(array, given, cells) \
    do { \
        if ((array) != (given) && hipMemcpyAsync(array, given, (size_t)(cells) * sizeof *(array), \
                                               hipMemcpyDeviceToDevice, (hipStream_t)stream) != hipSuccess) \
            return 2; \
    } while (0)
#define PD_LAUNCH(kernel, blocks, threads, ...) \
    kernel<<<dim3((unsigned)(blocks)), dim3((unsigned)(threads)), 0, (hipStream_t)stream>>>(__VA_ARGS__)

#define pd_block ((int)__builtin_amdgcn_workgroup_id_x())
#define pd_thread ((int)__builtin_amdgcn_workitem_id_x())
#define pd_lane (pd_thread & 63)
#define pd_warp (pd_thread >> 6)

PD_INLINE void pd_sync_block()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

PD_INLINE void pd_sync_warp()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

PD_INLINE int pd_from_lane(int value, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, value); }

/* Any type of four or eight bytes, moved as words. */
template <class T> static inline __attribute__((device, always_inline)) T pd_shuffle_xor(T value, int distance)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "values that lanes exchange have one or two words");
    union {
        T value;
        int words[sizeof(T) / 4];
    } mine, other;
    mine.value = value;
    for (unsigned k = 0; k < sizeof(T) / 4; k++)
        other.words[k] = pd_from_lane(mine.words[k], pd_lane ^ distance);
    return other.value;
}

typedef float pd_f32x4 __attribute__((ext_vector_type(4)));
PD_INLINE pd_f32x4 pd_load4(const float *array, int64_t at) { return *(const pd_f32x4 *)(array + at); }
PD_INLINE void pd_store4(float *array, int64_t at, float x, float y, float z, float w)
{
    *(pd_f32x4 *)(array + at) = pd_f32x4{x, y, z, w};
}

PD_INLINE void pd_store4_tf32(pd_tf32 *array, int64_t at, pd_tf32 x, pd_tf32 y, pd_tf32 z, pd_tf32 w)
{
    const pd_tf32 four[4] = {x, y, z, w};
    __builtin_memcpy(__builtin_assume_aligned(array + at, 16), four, 16);
}

/* A tile of 16 by 16 in the registers of a wavefront, as v_mfma_f32_16x16x4_f32 keeps its sums: lane
 * l has rows 4*(l/16) to 4*(l/16)+3 of column l%16. */
#define PD_TILE_OWN 4
typedef float pd_tile __attribute__((ext_vector_type(4)));
#define pd_tile_cell(tile, own) ((tile)[own])
#define pd_tile_row(own) ((pd_lane >> 4) * 4 + (own))
#define pd_tile_column(own) (pd_lane & 15)

/* Four steps of a row of f16 or bf16. */
typedef short pd_four __attribute__((ext_vector_type(4)));
template <class T> PD_INLINE pd_four pd_load_four(const T *at, int64_t step)
{
    pd_four four;
    if (step == 1)
        __builtin_memcpy(&four, __builtin_assume_aligned(at, 8), 8);
    else
        four = pd_four{(short)at[0].bits, (short)at[step].bits, (short)at[2 * step].bits, (short)at[3 * step].bits};
    return four;
}
PD_INLINE void pd_store4_f16(pd_f16 *array, int64_t at, pd_f16 x, pd_f16 y, pd_f16 z, pd_f16 w)
{
    const pd_f16 four[4] = {x, y, z, w};
    __builtin_memcpy(__builtin_assume_aligned(array + at, 8), four, 8);
}
PD_INLINE void pd_store4_bf16(pd_bf16 *array, int64_t at, pd_bf16 x, pd_bf16 y, pd_bf16 z, pd_bf16 w)
{
    const pd_bf16 four[4] = {x, y, z, w};
    __builtin_memcpy(__builtin_assume_aligned(array + at, 8), four, 8);
}

/* Each step takes sixteen elements of every row: lane l brings elements 4*(l/16) to 4*(l/16)+3 of row l%16, of
 * both sides. Products are exact in f32, and added up there. */
/* What the unit takes of sixteen rows of one factor, whose types differ so that sums do: lane l brings, of row l%16,
 * one float, two tf32 or four numbers of two bytes, those of number l/16. */
typedef float pd_f32x2 __attribute__((ext_vector_type(2)));
typedef _Float16 pd_f16x4 __attribute__((ext_vector_type(4)));
struct pd_side_f32 { float value; };
struct pd_side_tf32 { pd_f32x2 values; };
struct pd_side_bf16 { pd_four values; };
struct pd_side_f16 { pd_f16x4 values; };

PD_INLINE pd_side_f32 pd_rows(const float *array, int64_t at, int64_t stride, int64_t step)
{
    return {array[at + (pd_lane & 15) * stride + (pd_lane >> 4) * step]};
}
/* The unit reads floats, but only the bits of a tf32 (AMD calls that xf32). */
PD_INLINE pd_side_tf32 pd_rows(const pd_tf32 *array, int64_t at, int64_t stride, int64_t step)
{
    const pd_tf32 *const first = array + at + (pd_lane & 15) * stride + (pd_lane >> 4) * 2 * step;
    return {pd_f32x2{pd_f32_from_tf32(first[0]), pd_f32_from_tf32(first[step])}};
}
PD_INLINE pd_side_bf16 pd_rows(const pd_bf16 *array, int64_t at, int64_t stride, int64_t step)
{
    return {pd_load_four(array + at + (pd_lane & 15) * stride + (pd_lane >> 4) * 4 * step, step)};
}
PD_INLINE pd_side_f16 pd_rows(const pd_f16 *array, int64_t at, int64_t stride, int64_t step)
{
    const pd_four four = pd_load_four(array + at + (pd_lane & 15) * stride + (pd_lane >> 4) * 4 * step, step);
    return {__builtin_bit_cast(pd_f16x4, four)};
}
#define pd_columns(...) pd_rows(__VA_ARGS__)
#define pd_rows_shared(...) pd_rows(__VA_ARGS__)
#define pd_columns_shared(...) pd_rows(__VA_ARGS__)

/* Products are exact in f32, and added up there. */
PD_INLINE void pd_tile_add(pd_tile &sum, const pd_side_f32 &rows, const pd_side_f32 &columns)
{
    sum = __builtin_amdgcn_mfma_f32_16x16x4f32(rows.value, columns.value, sum, 0, 0, 0);
}
PD_INLINE void pd_tile_add(pd_tile &sum, const pd_side_tf32 &rows, const pd_side_tf32 &columns)
{
    sum = __builtin_amdgcn_mfma_f32_16x16x8_xf32(rows.values, columns.values, sum, 0, 0, 0);
}
PD_INLINE void pd_tile_add(pd_tile &sum, const pd_side_bf16 &rows, const pd_side_bf16 &columns)
{
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(rows.values, columns.values, sum, 0, 0, 0);
}
PD_INLINE void pd_tile_add(pd_tile &sum, const pd_side_f16 &rows, const pd_side_f16 &columns)
{
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(rows.values, columns.values, sum, 0, 0, 0);
}

#endif
