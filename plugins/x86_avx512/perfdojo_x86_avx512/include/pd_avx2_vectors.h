/* Vectors of every dtype with AVX2: what is faster than the text for every instruction set. */
#ifndef PD_AVX2_VECTORS_H
#define PD_AVX2_VECTORS_H

#define PD_OWN_SOME
#define PD_OWN_STREAMS
#define PD_OWN_WIDTHS
#define PD_OWN_ROOT(v) _mm256_sqrt_pd((__m256d)(v))
#define PD_OWN_HALVES(a, b) ((PD_U8)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define PD_OWN_NONE(v) _mm256_testz_si256((__m256i)(v), (__m256i)(v))

/* The lower bytes of the integers in half a register, one behind the other; zeros behind them. */
PD_INLINE __m128i pd_lower_bytes(__m128i v, int to_size, int from_size)
{
    const char z = -128;
    if (from_size == 2)
        return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, z, z, z, z, z, z, z, z));
    if (from_size == 4 && to_size == 2)
        return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, z, z, z, z, z, z, z, z));
    if (from_size == 4)
        return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 4, 8, 12, z, z, z, z, z, z, z, z, z, z, z, z));
    if (to_size == 4)
        return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, z, z, z, z, z, z, z, z));
    if (to_size == 2)
        return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 1, 8, 9, z, z, z, z, z, z, z, z, z, z, z, z));
    return _mm_shuffle_epi8(v, _mm_setr_epi8(0, 8, z, z, z, z, z, z, z, z, z, z, z, z, z, z));
}

/* Copies of vectors, short ones by way of a general register; `bytes` is a constant. */
PD_INLINE void pd_get_bytes(void *v, const void *from, int bytes)
{
    long long word = 0;
    __m128i x;
    if (bytes < 16) {
        __builtin_memcpy(&word, from, (size_t)bytes);
        x = _mm_cvtsi64_si128(word);
        __builtin_memcpy(v, &x, sizeof x);
    } else {
        __builtin_memcpy(v, from, (size_t)bytes);
    }
}

PD_INLINE void pd_put_bytes(void *to, const void *v, int bytes)
{
    long long word;
    __m128i x;
    if (bytes < 16) {
        __builtin_memcpy(&x, v, sizeof x);
        word = _mm_cvtsi128_si64(x);
        __builtin_memcpy(to, &word, (size_t)bytes);
    } else {
        __builtin_memcpy(to, v, (size_t)bytes);
    }
}

PD_INLINE void pd_change_width(void *to, int to_size, const void *from, int from_size, int lanes, int sign)
{
    union { __m256i y; __m128i x; } v, r;
    pd_get_bytes(&v, from, from_size * lanes);
    if (from_size == 1 && to_size == 2 && lanes == 16)
        r.y = sign ? _mm256_cvtepi8_epi16(v.x) : _mm256_cvtepu8_epi16(v.x);
    else if (from_size == 1 && to_size == 2)
        r.x = sign ? _mm_cvtepi8_epi16(v.x) : _mm_cvtepu8_epi16(v.x);
    else if (from_size == 1 && to_size == 4 && lanes == 8)
        r.y = sign ? _mm256_cvtepi8_epi32(v.x) : _mm256_cvtepu8_epi32(v.x);
    else if (from_size == 1 && to_size == 4)
        r.x = sign ? _mm_cvtepi8_epi32(v.x) : _mm_cvtepu8_epi32(v.x);
    else if (from_size == 1)
        r.y = sign ? _mm256_cvtepi8_epi64(v.x) : _mm256_cvtepu8_epi64(v.x);
    else if (from_size == 2 && to_size == 4 && lanes == 8)
        r.y = sign ? _mm256_cvtepi16_epi32(v.x) : _mm256_cvtepu16_epi32(v.x);
    else if (from_size == 2 && to_size == 4)
        r.x = sign ? _mm_cvtepi16_epi32(v.x) : _mm_cvtepu16_epi32(v.x);
    else if (from_size == 2 && to_size == 8)
        r.y = sign ? _mm256_cvtepi16_epi64(v.x) : _mm256_cvtepu16_epi64(v.x);
    else if (from_size == 4 && to_size == 8)
        r.y = sign ? _mm256_cvtepi32_epi64(v.x) : _mm256_cvtepu32_epi64(v.x);
    else if (from_size * lanes <= 16) {
        r.x = pd_lower_bytes(v.x, to_size, from_size);
    } else {
        const __m128i low = pd_lower_bytes(_mm256_castsi256_si128(v.y), to_size, from_size);
        const __m128i high = pd_lower_bytes(_mm256_extracti128_si256(v.y, 1), to_size, from_size);
        if (from_size == 2 * to_size)
            r.x = _mm_unpacklo_epi64(low, high);
        else if (from_size == 4 * to_size)
            r.x = _mm_unpacklo_epi32(low, high);
        else
            r.x = _mm_unpacklo_epi16(low, high);
    }
    pd_put_bytes(to, &r, to_size * lanes);
}

#include "pd_vectors.h"

/* Lanes of four and of eight bytes have masks; of shorter ones, the first that make up whole four bytes, such as
 * groups, and others are copied one by one. `size` and `lanes` are constants. */
PD_INLINE void pd_load_masked(void *v, const void *p, int64_t low, int64_t high, int size, int lanes)
{
    union { __m256i y; __m128i x; char bytes[32]; } r = {_mm256_setzero_si256()};
    if (size == 8)
        r.y = _mm256_maskload_epi64((const void *)p, (__m256i)pd_lanes_i64x4(low, high));
    else if (size == 4 && lanes == 8)
        r.y = _mm256_maskload_epi32((const void *)p, (__m256i)pd_lanes_i32x8(low, high));
    else if (size == 4)
        r.x = _mm_maskload_epi32((const void *)p, (__m128i)pd_lanes_i32x4(low, high));
    else if (__builtin_constant_p(low <= 0 && high > 0 && high * size % 4 == 0)
             && low <= 0 && high > 0 && high * size % 4 == 0)
        r.y = _mm256_maskload_epi32((const void *)p, (__m256i)pd_lanes_i32x8(0, high * size / 4));
    else
        pd_copy_some(r.bytes, p, low, high, size, lanes);
    __builtin_memcpy(v, &r, (size_t)(size * lanes));
}

PD_INLINE void pd_store_masked(void *p, const void *v, int64_t low, int64_t high, int size, int lanes)
{
    union { __m256i y; __m128i x; char bytes[32]; } r;
    __builtin_memcpy(&r, v, (size_t)(size * lanes));
    if (__builtin_constant_p(low) && __builtin_constant_p(high) && low <= 0 && high > 0 && high < lanes)
        pd_store_pieces(p, (int)high * size, r.y);
    else if (size == 8)
        _mm256_maskstore_epi64(p, (__m256i)pd_lanes_i64x4(low, high), r.y);
    else if (size == 4 && lanes == 8)
        _mm256_maskstore_epi32(p, (__m256i)pd_lanes_i32x8(low, high), r.y);
    else if (size == 4)
        _mm_maskstore_epi32(p, (__m128i)pd_lanes_i32x4(low, high), r.x);
    else
        pd_copy_some(p, r.bytes, low, high, size, lanes);
}

#define PD_MASKED(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(load_some, T, V)(const E *p, int64_t low, int64_t high) \
    { \
        PD_TYPE(T, V) v; \
        pd_load_masked(&v, p, low, high, sizeof(E), V); \
        return v; \
    } \
    PD_INLINE void PD_OF(store_some, T, V)(E *p, int64_t low, int64_t high, PD_TYPE(T, V) v) \
    { \
        pd_store_masked(p, &v, low, high, sizeof(E), V); \
    }
PD_EACH(PD_MASKED, PD_MASKED, PD_MASKED)

PD_INLINE void pd_stream_bytes(void *p, const void *v, int bytes)
{
    union { __m256i y; __m128i x; } r;
    __builtin_memcpy(&r, v, (size_t)bytes);
    if (bytes == 32 && (uintptr_t)p % 32 == 0)
        _mm256_stream_si256(p, r.y);
    else if (bytes == 16 && (uintptr_t)p % 16 == 0)
        _mm_stream_si128(p, r.x);
    else
        __builtin_memcpy(p, v, (size_t)bytes);
}
#define PD_STREAM(T, E, C, I, U, V) \
    PD_INLINE void PD_OF(stream, T, V)(E *p, PD_TYPE(T, V) v) { pd_stream_bytes(p, &v, sizeof v); }
PD_EACH(PD_STREAM, PD_STREAM, PD_STREAM)

#define pd_max_f32x8(a, b) ((pd_f32x8)pd_max_f32v((pd_f32v)(a), (pd_f32v)(b)))
#define pd_min_f32x8(a, b) ((pd_f32x8)pd_min_f32v((pd_f32v)(a), (pd_f32v)(b)))
/* As for floats: the instruction returns its second operand when either is NaN, so a NaN in the first is put back. */
PD_INLINE pd_f64x4 pd_avx2_max_f64(pd_f64x4 a, pd_f64x4 b)
{
    const __m256d x = (__m256d)a, unordered = _mm256_cmp_pd(x, x, _CMP_UNORD_Q);
    return (pd_f64x4)_mm256_blendv_pd(_mm256_max_pd(x, (__m256d)b), x, unordered);
}
PD_INLINE pd_f64x4 pd_avx2_min_f64(pd_f64x4 a, pd_f64x4 b)
{
    const __m256d x = (__m256d)a, unordered = _mm256_cmp_pd(x, x, _CMP_UNORD_Q);
    return (pd_f64x4)_mm256_blendv_pd(_mm256_min_pd(x, (__m256d)b), x, unordered);
}
#define pd_max_f64x4 pd_avx2_max_f64
#define pd_min_f64x4 pd_avx2_min_f64
/* With a number as the first operand nothing has to be put back. */
#define pd_max_number_f32x8(number, v) ((pd_f32x8)pd_max_number_f32v(number, (pd_f32v)(v)))
#define pd_min_number_f32x8(number, v) ((pd_f32x8)pd_min_number_f32v(number, (pd_f32v)(v)))
/* Of integers the compiler makes a comparison and a choice. */
#define PD_AVX2_MOST(T, V, W) \
    PD_INLINE PD_TYPE(T, V) pd_avx2_max_##T(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))_mm256_max_ep##W((__m256i)a, (__m256i)b); \
    } \
    PD_INLINE PD_TYPE(T, V) pd_avx2_min_##T(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))_mm256_min_ep##W((__m256i)a, (__m256i)b); \
    }
PD_AVX2_MOST(i32, 8, i32)
PD_AVX2_MOST(u32, 8, u32)
PD_AVX2_MOST(i16, 16, i16)
PD_AVX2_MOST(u16, 16, u16)
PD_AVX2_MOST(i8, 32, i8)
PD_AVX2_MOST(u8, 32, u8)
#define pd_max_i32x8 pd_avx2_max_i32
#define pd_min_i32x8 pd_avx2_min_i32
#define pd_max_u32x8 pd_avx2_max_u32
#define pd_min_u32x8 pd_avx2_min_u32
#define pd_max_i16x16 pd_avx2_max_i16
#define pd_min_i16x16 pd_avx2_min_i16
#define pd_max_u16x16 pd_avx2_max_u16
#define pd_min_u16x16 pd_avx2_min_u16
#define pd_max_i8x32 pd_avx2_max_i8
#define pd_min_i8x32 pd_avx2_min_i8
#define pd_max_u8x32 pd_avx2_max_u8
#define pd_min_u8x32 pd_avx2_min_u8
#define pd_sqrt_f64x4(v) ((pd_f64x4)PD_OWN_ROOT(v))
#define pd_floor_f64x4(v) ((pd_f64x4)_mm256_round_pd((__m256d)(v), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC))
#define pd_ceil_f64x4(v) ((pd_f64x4)_mm256_round_pd((__m256d)(v), _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC))
#define pd_trunc_f64x4(v) ((pd_f64x4)_mm256_round_pd((__m256d)(v), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC))
#define pd_round_f64x4(v) ((pd_f64x4)_mm256_round_pd((__m256d)(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))

/* Conversions of which the compiler makes several instructions. */
#define pd_f64x4_from_f32x4(v) ((pd_f64x4)_mm256_cvtps_pd((__m128)(v)))
#define pd_f64x4_from_i32x4(v) ((pd_f64x4)_mm256_cvtepi32_pd((__m128i)(v)))

/* The instruction makes the least integer of NaN and of whatever does not fit: all bits of that are turned where the
 * number is too large, and none is left of NaN. */
PD_INLINE pd_i32x8 pd_avx2_i32_from_f32(pd_f32x8 v)
{
    const __m256 x = (__m256)v;
    const __m256i large = _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_set1_ps(0x1p31f), _CMP_GE_OQ));
    const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
    return (pd_i32x8)_mm256_and_si256(_mm256_xor_si256(_mm256_cvttps_epi32(x), large), number);
}
#define pd_i32x8_from_f32x8 pd_avx2_i32_from_f32

#define PD_HALF_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define pd_f32x8_from_f16x8(v) ((pd_f32x8)_mm256_cvtph_ps((__m128i)(v)))
#define pd_f16x8_from_f32x8(v) ((pd_f16x8)_mm256_cvtps_ph((__m256)(v), PD_HALF_NEAREST))
PD_INLINE pd_f32x4 pd_avx2_f32_from_f16(pd_f16x4 v)
{
    __m128i r = _mm_setzero_si128();
    __builtin_memcpy(&r, &v, sizeof v);
    return (pd_f32x4)_mm_cvtph_ps(r);
}
PD_INLINE pd_f16x4 pd_avx2_f16_from_f32(pd_f32x4 v)
{
    const __m128i r = _mm_cvtps_ph((__m128)v, PD_HALF_NEAREST);
    pd_f16x4 made;
    __builtin_memcpy(&made, &r, sizeof made);
    return made;
}
#define pd_f32x4_from_f16x4 pd_avx2_f32_from_f16
#define pd_f16x4_from_f32x4 pd_avx2_f16_from_f32
#define pd_f16x4_from_f64x4(v) pd_f16x4_from_f32x4(pd_odd_f64_f32x4(v))

/* Sums of products in pairs. */
PD_INLINE pd_i16x16 pd_splat_group_i16x16(const void *p)
{
    int32_t group;
    __builtin_memcpy(&group, p, sizeof group);
    return (pd_i16x16)_mm256_set1_epi32(group);
}
PD_INLINE pd_i16x8 pd_splat_group_i16x8(const void *p)
{
    int32_t group;
    __builtin_memcpy(&group, p, sizeof group);
    return (pd_i16x8)_mm_set1_epi32(group);
}
PD_INLINE pd_i32x8 pd_group_i32x8_i16_i16(pd_i32x8 sum, pd_i16x16 a, pd_i16x16 b)
{
    return (pd_i32x8)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16((__m256i)a, (__m256i)b));
}
PD_INLINE pd_i32x4 pd_group_i32x4_i16_i16(pd_i32x4 sum, pd_i16x8 a, pd_i16x8 b)
{
    return (pd_i32x4)_mm_add_epi32((__m128i)sum, _mm_madd_epi16((__m128i)a, (__m128i)b));
}

#endif
