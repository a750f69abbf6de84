/* The words of pd_gpu.h in CUDA. Compiles with nvcc, and without the host's part with NVRTC. */
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

#endif
