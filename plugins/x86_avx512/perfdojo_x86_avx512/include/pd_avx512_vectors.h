/* Vectors of every dtype with AVX-512: what is faster than the text for every instruction set. */
#ifndef PD_AVX512_VECTORS_H
#define PD_AVX512_VECTORS_H

#define PD_OWN_SOME
#define PD_OWN_STREAMS
#define PD_OWN_WIDTHS
#define PD_OWN_ROOT(v) _mm512_sqrt_pd((__m512d)(v))
#define PD_OWN_HALVES(a, b) ((PD_U8)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define PD_OWN_NONE(v) (_mm512_test_epi64_mask((__m512i)(v), (__m512i)(v)) == 0)

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

/* Integers of one size as integers of another one: one instruction each. */
PD_INLINE void pd_change_width(void *to, int to_size, const void *from, int from_size, int lanes, int sign)
{
    union { __m512i z; __m256i y; __m128i x; } v, r;
    pd_get_bytes(&v, from, from_size * lanes);
    if (from_size == 1 && to_size == 2 && lanes == 32)
        r.z = sign ? _mm512_cvtepi8_epi16(v.y) : _mm512_cvtepu8_epi16(v.y);
    else if (from_size == 1 && to_size == 2 && lanes == 16)
        r.y = sign ? _mm256_cvtepi8_epi16(v.x) : _mm256_cvtepu8_epi16(v.x);
    else if (from_size == 1 && to_size == 2)
        r.x = sign ? _mm_cvtepi8_epi16(v.x) : _mm_cvtepu8_epi16(v.x);
    else if (from_size == 1 && to_size == 4 && lanes == 16)
        r.z = sign ? _mm512_cvtepi8_epi32(v.x) : _mm512_cvtepu8_epi32(v.x);
    else if (from_size == 1 && to_size == 4)
        r.y = sign ? _mm256_cvtepi8_epi32(v.x) : _mm256_cvtepu8_epi32(v.x);
    else if (from_size == 1)
        r.z = sign ? _mm512_cvtepi8_epi64(v.x) : _mm512_cvtepu8_epi64(v.x);
    else if (from_size == 2 && to_size == 4 && lanes == 16)
        r.z = sign ? _mm512_cvtepi16_epi32(v.y) : _mm512_cvtepu16_epi32(v.y);
    else if (from_size == 2 && to_size == 4)
        r.y = sign ? _mm256_cvtepi16_epi32(v.x) : _mm256_cvtepu16_epi32(v.x);
    else if (from_size == 2 && to_size == 8)
        r.z = sign ? _mm512_cvtepi16_epi64(v.x) : _mm512_cvtepu16_epi64(v.x);
    else if (from_size == 4 && to_size == 8)
        r.z = sign ? _mm512_cvtepi32_epi64(v.y) : _mm512_cvtepu32_epi64(v.y);
    else if (from_size == 2 && lanes == 32)
        r.y = _mm512_cvtepi16_epi8(v.z);
    else if (from_size == 2 && lanes == 16)
        r.x = _mm256_cvtepi16_epi8(v.y);
    else if (from_size == 2)
        r.x = _mm_cvtepi16_epi8(v.x);
    else if (from_size == 4 && to_size == 2 && lanes == 16)
        r.y = _mm512_cvtepi32_epi16(v.z);
    else if (from_size == 4 && to_size == 2)
        r.x = _mm256_cvtepi32_epi16(v.y);
    else if (from_size == 4 && lanes == 16)
        r.x = _mm512_cvtepi32_epi8(v.z);
    else if (from_size == 4)
        r.x = _mm256_cvtepi32_epi8(v.y);
    else if (to_size == 4)
        r.y = _mm512_cvtepi64_epi32(v.z);
    else if (to_size == 2)
        r.x = _mm512_cvtepi64_epi16(v.z);
    else
        r.x = _mm512_cvtepi64_epi8(v.z);
    pd_put_bytes(to, &r, to_size * lanes);
}

#include "pd_vectors.h"

/* Lanes low <= lane < high as the bits of a mask; 0 <= low < high <= 64. */
PD_INLINE uint64_t pd_bits(int64_t low, int64_t high) { return (2ull << (high - 1)) - (1ull << low); }

/* A masked load of so many lanes of `size` bytes; all arguments but p and bits are constants. */
PD_INLINE void pd_load_masked(void *v, const void *p, uint64_t bits, int size, int lanes)
{
    union { __m512i z; __m256i y; __m128i x; } r;
    if (size == 8)
        r.z = _mm512_maskz_loadu_epi64((__mmask8)bits, p);
    else if (size == 4 && lanes == 16)
        r.z = _mm512_maskz_loadu_epi32((__mmask16)bits, p);
    else if (size == 4)
        r.y = _mm256_maskz_loadu_epi32((__mmask8)bits, p);
    else if (size == 2 && lanes == 32)
        r.z = _mm512_maskz_loadu_epi16((__mmask32)bits, p);
    else if (size == 2 && lanes == 16)
        r.y = _mm256_maskz_loadu_epi16((__mmask16)bits, p);
    else if (size == 2)
        r.x = _mm_maskz_loadu_epi16((__mmask8)bits, p);
    else if (lanes == 64)
        r.z = _mm512_maskz_loadu_epi8((__mmask64)bits, p);
    else if (lanes == 32)
        r.y = _mm256_maskz_loadu_epi8((__mmask32)bits, p);
    else
        r.x = _mm_maskz_loadu_epi8((__mmask16)bits, p);
    __builtin_memcpy(v, &r, (size_t)(size * lanes));
}

PD_INLINE void pd_store_masked(void *p, const void *v, uint64_t bits, int size, int lanes)
{
    union { __m512i z; __m256i y; __m128i x; } r;
    __builtin_memcpy(&r, v, (size_t)(size * lanes));
    if (size == 8)
        _mm512_mask_storeu_epi64(p, (__mmask8)bits, r.z);
    else if (size == 4 && lanes == 16)
        _mm512_mask_storeu_epi32(p, (__mmask16)bits, r.z);
    else if (size == 4)
        _mm256_mask_storeu_epi32(p, (__mmask8)bits, r.y);
    else if (size == 2 && lanes == 32)
        _mm512_mask_storeu_epi16(p, (__mmask32)bits, r.z);
    else if (size == 2 && lanes == 16)
        _mm256_mask_storeu_epi16(p, (__mmask16)bits, r.y);
    else if (size == 2)
        _mm_mask_storeu_epi16(p, (__mmask8)bits, r.x);
    else if (lanes == 64)
        _mm512_mask_storeu_epi8(p, (__mmask64)bits, r.z);
    else if (lanes == 32)
        _mm256_mask_storeu_epi8(p, (__mmask32)bits, r.y);
    else
        _mm_mask_storeu_epi8(p, (__mmask16)bits, r.x);
}

#define PD_MASKED(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(load_some, T, V)(const E *p, int64_t low, int64_t high) \
    { \
        PD_TYPE(T, V) v; \
        pd_load_masked(&v, p, pd_bits(low, high), sizeof(E), V); \
        return v; \
    } \
    PD_INLINE void PD_OF(store_some, T, V)(E *p, int64_t low, int64_t high, PD_TYPE(T, V) v) \
    { \
        pd_store_masked(p, &v, pd_bits(low, high), sizeof(E), V); \
    }
PD_EACH(PD_MASKED, PD_MASKED, PD_MASKED)

PD_INLINE void pd_stream_bytes(void *p, const void *v, int bytes)
{
    union { __m512i z; __m256i y; __m128i x; } r;
    __builtin_memcpy(&r, v, (size_t)bytes);
    if (bytes == 64 && (uintptr_t)p % 64 == 0)
        _mm512_stream_si512((__m512i *)p, r.z);
    else if (bytes == 32 && (uintptr_t)p % 32 == 0)
        _mm256_stream_si256((__m256i *)p, r.y);
    else if (bytes == 16 && (uintptr_t)p % 16 == 0)
        _mm_stream_si128((__m128i *)p, r.x);
    else
        __builtin_memcpy(p, v, (size_t)bytes);
}
#define PD_STREAM(T, E, C, I, U, V) \
    PD_INLINE void PD_OF(stream, T, V)(E *p, PD_TYPE(T, V) v) { pd_stream_bytes(p, &v, sizeof v); }
PD_EACH(PD_STREAM, PD_STREAM, PD_STREAM)

#define pd_max_f32x16(a, b) ((pd_f32x16)pd_max_f32v((pd_f32v)(a), (pd_f32v)(b)))
#define pd_min_f32x16(a, b) ((pd_f32x16)pd_min_f32v((pd_f32v)(a), (pd_f32v)(b)))
/* As for floats: the instruction returns its second operand when either is NaN. */
PD_INLINE pd_f64x8 pd_avx512_max_f64(pd_f64x8 a, pd_f64x8 b)
{
    const __m512d x = (__m512d)a;
    return (pd_f64x8)_mm512_mask_max_pd(x, _mm512_cmp_pd_mask(x, x, _CMP_ORD_Q), x, (__m512d)b);
}
PD_INLINE pd_f64x8 pd_avx512_min_f64(pd_f64x8 a, pd_f64x8 b)
{
    const __m512d x = (__m512d)a;
    return (pd_f64x8)_mm512_mask_min_pd(x, _mm512_cmp_pd_mask(x, x, _CMP_ORD_Q), x, (__m512d)b);
}
#define pd_max_f64x8 pd_avx512_max_f64
#define pd_min_f64x8 pd_avx512_min_f64
/* With a number as the first operand nothing has to be put back. */
#define pd_max_number_f32x16(number, v) ((pd_f32x16)pd_max_number_f32v(number, (pd_f32v)(v)))
#define pd_min_number_f32x16(number, v) ((pd_f32x16)pd_min_number_f32v(number, (pd_f32v)(v)))
#define pd_max_number_f64x8(number, v) ((pd_f64x8)_mm512_max_pd(_mm512_set1_pd(number), (__m512d)(v)))
#define pd_min_number_f64x8(number, v) ((pd_f64x8)_mm512_min_pd(_mm512_set1_pd(number), (__m512d)(v)))
/* Of integers the compiler makes a comparison and a choice. */
#define PD_AVX512_MOST(T, V, W) \
    PD_INLINE PD_TYPE(T, V) pd_avx512_max_##T(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))_mm512_max_ep##W((__m512i)a, (__m512i)b); \
    } \
    PD_INLINE PD_TYPE(T, V) pd_avx512_min_##T(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))_mm512_min_ep##W((__m512i)a, (__m512i)b); \
    }
PD_AVX512_MOST(i64, 8, i64)
PD_AVX512_MOST(u64, 8, u64)
PD_AVX512_MOST(i32, 16, i32)
PD_AVX512_MOST(u32, 16, u32)
PD_AVX512_MOST(i16, 32, i16)
PD_AVX512_MOST(u16, 32, u16)
PD_AVX512_MOST(i8, 64, i8)
PD_AVX512_MOST(u8, 64, u8)
#define pd_max_i64x8 pd_avx512_max_i64
#define pd_min_i64x8 pd_avx512_min_i64
#define pd_max_u64x8 pd_avx512_max_u64
#define pd_min_u64x8 pd_avx512_min_u64
#define pd_max_i32x16 pd_avx512_max_i32
#define pd_min_i32x16 pd_avx512_min_i32
#define pd_max_u32x16 pd_avx512_max_u32
#define pd_min_u32x16 pd_avx512_min_u32
#define pd_max_i16x32 pd_avx512_max_i16
#define pd_min_i16x32 pd_avx512_min_i16
#define pd_max_u16x32 pd_avx512_max_u16
#define pd_min_u16x32 pd_avx512_min_u16
#define pd_max_i8x64 pd_avx512_max_i8
#define pd_min_i8x64 pd_avx512_min_i8
#define pd_max_u8x64 pd_avx512_max_u8
#define pd_min_u8x64 pd_avx512_min_u8
#define pd_sqrt_f64x8(v) ((pd_f64x8)PD_OWN_ROOT(v))
#define pd_floor_f64x8(v) ((pd_f64x8)_mm512_roundscale_pd((__m512d)(v), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC))
#define pd_ceil_f64x8(v) ((pd_f64x8)_mm512_roundscale_pd((__m512d)(v), _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC))
#define pd_trunc_f64x8(v) ((pd_f64x8)_mm512_roundscale_pd((__m512d)(v), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC))
#define pd_round_f64x8(v) ((pd_f64x8)_mm512_roundscale_pd((__m512d)(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))

/* Conversions of which the compiler makes several instructions. */
#define pd_f64x8_from_f32x8(v) ((pd_f64x8)_mm512_cvtps_pd((__m256)(v)))
#define pd_f64x8_from_i32x8(v) ((pd_f64x8)_mm512_cvtepi32_pd((__m256i)(v)))
#define pd_f64x8_from_u32x8(v) ((pd_f64x8)_mm512_cvtepu32_pd((__m256i)(v)))
/* The instruction makes the least integer of whatever does not fit; none is made of NaN. */
PD_INLINE pd_i32x16 pd_avx512_i32_from_f32(pd_f32x16 v)
{
    const __m512 x = (__m512)v;
    const __m512i whole = _mm512_maskz_cvttps_epi32(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    const __mmask16 large = _mm512_cmp_ps_mask(x, _mm512_set1_ps(0x1p31f), _CMP_GE_OQ);
    return (pd_i32x16)_mm512_mask_mov_epi32(whole, large, _mm512_set1_epi32(0x7fffffff));
}
#define pd_i32x16_from_f32x16 pd_avx512_i32_from_f32

#define PD_HALF_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define pd_f32x16_from_f16x16(v) ((pd_f32x16)_mm512_cvtph_ps((__m256i)(v)))
#define pd_f16x16_from_f32x16(v) ((pd_f16x16)_mm512_cvtps_ph((__m512)(v), PD_HALF_NEAREST))
#define pd_f32x8_from_f16x8(v) ((pd_f32x8)_mm256_cvtph_ps((__m128i)(v)))
#define pd_f16x8_from_f32x8(v) ((pd_f16x8)_mm256_cvtps_ph((__m256)(v), PD_HALF_NEAREST))
#define pd_f16x8_from_f64x8(v) pd_f16x8_from_f32x8(pd_odd_f64_f32x8(v))

/* Sums in groups: of four bytes, or of two elements of two bytes. The instructions are spelled out, since the flags of a
 * whole kernel are those of processors that lack them; a kernel with one asks for it when it is called. */
#define PD_SPLAT_GROUP(T, V, N) \
    PD_INLINE PD_TYPE(T, N) PD_OF(splat_group, T, N)(const void *p) \
    { \
        int32_t group; \
        __builtin_memcpy(&group, p, sizeof group); \
        return (PD_TYPE(T, N))PD_OF(splat, i32, V)(group); \
    }
#define PD_GROUP(T, A, B, V, N, instruction) \
    PD_INLINE PD_TYPE(T, V) pd_group_##T##x##V##_##A##_##B(PD_TYPE(T, V) sum, PD_TYPE(A, N) a, PD_TYPE(B, N) b) \
    { \
        __asm__(instruction " %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); \
        return sum; \
    }
PD_SPLAT_GROUP(u8, 16, 64)
PD_SPLAT_GROUP(u8, 8, 32)
PD_SPLAT_GROUP(i8, 16, 64)
PD_SPLAT_GROUP(i8, 8, 32)
PD_SPLAT_GROUP(i16, 16, 32)
PD_SPLAT_GROUP(i16, 8, 16)
PD_SPLAT_GROUP(bf16, 16, 32)
PD_SPLAT_GROUP(bf16, 8, 16)
PD_GROUP(f32, bf16, bf16, 16, 32, "vdpbf16ps")
PD_GROUP(f32, bf16, bf16, 8, 16, "vdpbf16ps")
PD_GROUP(i32, u8, i8, 16, 64, "vpdpbusd")
PD_GROUP(i32, u8, i8, 8, 32, "vpdpbusd")
PD_GROUP(i32, i16, i16, 16, 32, "vpdpwssd")
PD_GROUP(i32, i16, i16, 8, 16, "vpdpwssd")

#endif
