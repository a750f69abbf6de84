/* The macros and functions in generated kernels for blocks and warps, and functions that are built on them.
 *
 * A dialect's pd_runtime.h, included first, defines these:
 *
 *   PD_KERNEL(name, threads)(...)     the head of a kernel whose blocks have so many threads
 *   PD_INPUT(type, cells, name)       a parameter: an array that is only read
 *   PD_ARRAY(type, cells, name)       a parameter: an array that is written, or read only in this launch
 *   PD_EXCHANGED(type, cells, name)   a parameter: an array that is written and read; threads may exchange values
 *                                     through it, so a value from before a barrier must be read again after it
 *   PD_SHARED(type, cells, name);     an array that the threads of a block share, at a multiple of 16 bytes
 *   PD_DYNAMIC();                     in a kernel whose launch asks for shared memory, and
 *   PD_SHARED_AT(type, cells, name, start);   an array from this byte of it on
 *   PD_LAUNCH_DYNAMIC(kernel, blocks, threads, bytes, ...)    such a launch; these only if the target has them
 *   PD_LAUNCH(kernel, blocks, threads, ...)   in the host's function, which returns non-zero on failure
 *   PD_HOST                           the head of the host's functions; undefined where there is no host part
 *   PD_BEGIN_CALL(), PD_END_CALL()    around the launches of one call; the end's value is the call's status
 *   PD_GIVEN(array, given, cells);    between them, before the launches: the array, which is input and output, starts
 *                                     with the cells of the given one, unless both are one array
 *   PD_WARP                           lanes of a warp
 *   PD_UNROLL                         unrolls the loop that follows
 *   pd_block, pd_thread, pd_lane, pd_warp     numbers: of the block, in the block, in the warp, of the warp
 *   pd_sync_block(), pd_sync_warp()   barriers: all threads arrive, then see each other's writes
 *   pd_shuffle_xor(value, distance)   the value of lane pd_lane ^ distance
 *   pd_f32x4, pd_load4, pd_store4     four floats at a multiple of 16 bytes
 *   pd_copy_async(to, at, from, at)   copies a float from memory to shared memory; pd_copy_async16: as many
 *                                     neighbours of any type as are 16 bytes, at multiples of 16 bytes
 *   pd_copies_done()                  waits for the thread's own copies; with a barrier after it, all copies of the
 *                                     block are done. Only if a location of the target uses such copies
 *   pd_store4_f16, pd_store4_bf16     like pd_store4, of four pd_f16 or pd_bf16 at a multiple of 8 bytes
 *   pd_store4_tf32                    like pd_store4, of four pd_tf32
 *   PD_TILE_OWN, pd_tile              number of cells of a tile of 16 by 16 that one lane has, and their type; this and
 *                                     all below only if the warp has a matrix unit
 *   pd_tile_cell(tile, own)           one of them
 *   pd_tile_row(own), pd_tile_column(own)     its row and column in the tile
 *   pd_tile_i32                       the same of sums in i32
 *   pd_rows(array, at, stride, step)  what the unit takes at once of 16 rows of the left factor, with these distances
 *                                     between rows and between elements of a row: 4 elements of f32, 8 of tf32, 16 of
 *                                     f16 and bf16, 32 of i8 and u8, for those dtypes that the unit multiplies. Elements
 *                                     of less than four bytes that lie side by side start at multiples of four of them
 *   pd_columns(array, at, stride, step)       the same of 16 columns of the right factor
 *   pd_rows_shared, pd_columns_shared the same in shared memory, where rows, or else steps of 2 bytes, lie side by side
 *                                     and start at multiples of 16 bytes
 *   pd_tile_add(tile, rows, columns)  adds their products to a tile, floats in f32 and integers in i32
 *   PD_INF, PD_INLINE                 as in C
 */
#ifndef PD_GPU_H
#define PD_GPU_H

#include "pd_runtime.h"
#include "pd_scalar.h"

/* All lanes combine their values; every lane has the result. */
#define PD_ACROSS(T, C, W, name, combine) \
    PD_INLINE C pd_warp_##name##_##T(C value) \
    { \
        PD_UNROLL \
        for (int distance = PD_WARP / 2; distance > 0; distance /= 2) { \
            const C other = (C)pd_shuffle_xor((W)value, distance); \
            value = combine; \
        } \
        return value; \
    }

#define PD_ACROSS_FLOATS(T, C) \
    PD_ACROSS(T, C, C, add, value + other) \
    PD_ACROSS(T, C, C, mul, value * other) \
    PD_ACROSS(T, C, C, max, pd_max_##T(value, other)) \
    PD_ACROSS(T, C, C, min, pd_min_##T(value, other))

#define PD_ACROSS_INTEGERS(T, C, W) \
    PD_ACROSS(T, C, W, add, pd_add_##T(value, other)) \
    PD_ACROSS(T, C, W, mul, pd_mul_##T(value, other)) \
    PD_ACROSS(T, C, W, max, pd_max_##T(value, other)) \
    PD_ACROSS(T, C, W, min, pd_min_##T(value, other))

PD_ACROSS_FLOATS(f32, float)
PD_ACROSS_FLOATS(f64, double)
PD_ACROSS_INTEGERS(i64, int64_t, long long)
PD_ACROSS_INTEGERS(i32, int32_t, int)
PD_ACROSS_INTEGERS(i16, int16_t, int)
PD_ACROSS_INTEGERS(i8, int8_t, int)
PD_ACROSS_INTEGERS(u64, uint64_t, unsigned long long)
PD_ACROSS_INTEGERS(u32, uint32_t, unsigned)
PD_ACROSS_INTEGERS(u16, uint16_t, unsigned)
PD_ACROSS_INTEGERS(u8, uint8_t, unsigned)
PD_ACROSS(bool, uint8_t, int, max, pd_max_bool(value, other))
PD_ACROSS(bool, uint8_t, int, min, pd_min_bool(value, other))

/* Floats that are computed in float: each result is rounded. */
#define PD_ROUNDED(T, W, name, combine) \
    PD_INLINE pd_##T pd_##name##_##T(pd_##T x, pd_##T y) \
    { \
        const float a = pd_f32_from_##T(x), b = pd_f32_from_##T(y); \
        return pd_##T##_from_f32(combine); \
    } \
    PD_INLINE pd_##T pd_warp_##name##_##T(pd_##T value) \
    { \
        PD_UNROLL \
        for (int distance = PD_WARP / 2; distance > 0; distance /= 2) \
            value = pd_##name##_##T(value, pd_##T##_of((W)pd_shuffle_xor((int)value.bits, distance))); \
        return value; \
    }

#define PD_ROUNDED_FLOATS(T, W) \
    PD_ROUNDED(T, W, add, a + b) \
    PD_ROUNDED(T, W, mul, a * b) \
    PD_ROUNDED(T, W, max, pd_max_f32(a, b)) \
    PD_ROUNDED(T, W, min, pd_min_f32(a, b)) \
    PD_INLINE pd_##T pd_identity_add_##T() { return pd_##T##_of(0); } \
    PD_INLINE pd_##T pd_identity_mul_##T() { return pd_##T##_from_f32(1.0f); } \
    PD_INLINE pd_##T pd_identity_max_##T() { return pd_##T##_from_f32(-PD_INF); } \
    PD_INLINE pd_##T pd_identity_min_##T() { return pd_##T##_from_f32(PD_INF); }

PD_ROUNDED_FLOATS(f16, uint16_t)
PD_ROUNDED_FLOATS(bf16, uint16_t)
PD_ROUNDED_FLOATS(tf32, uint32_t)

/* The value that an idle lane contributes. */
#define PD_IDENTITIES(T, C, LEAST, MOST) \
    PD_INLINE C pd_identity_add_##T() { return 0; } \
    PD_INLINE C pd_identity_mul_##T() { return 1; } \
    PD_INLINE C pd_identity_max_##T() { return LEAST; } \
    PD_INLINE C pd_identity_min_##T() { return MOST; }

PD_IDENTITIES(f32, float, -PD_INF, PD_INF)
PD_IDENTITIES(f64, double, -PD_INF, PD_INF)
PD_IDENTITIES(i64, int64_t, INT64_MIN, INT64_MAX)
PD_IDENTITIES(i32, int32_t, INT32_MIN, INT32_MAX)
PD_IDENTITIES(i16, int16_t, INT16_MIN, INT16_MAX)
PD_IDENTITIES(i8, int8_t, INT8_MIN, INT8_MAX)
PD_IDENTITIES(u64, uint64_t, 0, UINT64_MAX)
PD_IDENTITIES(u32, uint32_t, 0, UINT32_MAX)
PD_IDENTITIES(u16, uint16_t, 0, UINT16_MAX)
PD_IDENTITIES(u8, uint8_t, 0, UINT8_MAX)
PD_IDENTITIES(bool, uint8_t, 0, 1)

#endif
