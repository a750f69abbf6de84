/* The vector functions of AVX2 with FMA: 8 lanes of float32, 16 registers. */
#ifndef PD_AVX2_H
#define PD_AVX2_H

#include <immintrin.h>

#include "pd_scalar.h"

#define PD_VECTOR_BYTES 32
typedef __m256 pd_f32v;
enum { PD_LANES_F32 = 8 };

/* All bits set in the first n lanes: a window into eight ones followed by eight zeros. */
PD_INLINE __m256i pd_first_mask(int n)
{
    static const int32_t window[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(window + 8 - n));
}

PD_INLINE pd_f32v pd_splat_f32v(float x) { return _mm256_set1_ps(x); }
PD_INLINE pd_f32v pd_load_f32v(const float *p) { return _mm256_loadu_ps(p); }
PD_INLINE void pd_store_f32v(float *p, pd_f32v v) { _mm256_storeu_ps(p, v); }

PD_INLINE pd_f32v pd_load_first_f32v(const float *p, int n) { return _mm256_maskload_ps(p, pd_first_mask(n)); }

/* The first `bytes` of a vector, a constant, in as few pieces as there are. */
PD_INLINE void pd_store_pieces(void *to, int bytes, __m256i v)
{
    char *p = to;
    __m128i x = _mm256_castsi256_si128(v);
    if (bytes & 16) {
        _mm_storeu_si128((__m128i *)p, x);
        x = _mm256_extracti128_si256(v, 1), p += 16;
    }
    if (bytes & 8) {
        _mm_storel_epi64((__m128i *)p, x);
        x = _mm_srli_si128(x, 8), p += 8;
    }
    if (bytes & 4) {
        const int32_t four = _mm_cvtsi128_si32(x);
        __builtin_memcpy(p, &four, 4);
        x = _mm_srli_si128(x, 4), p += 4;
    }
    if (bytes & 2) {
        const int16_t two = (int16_t)_mm_cvtsi128_si32(x);
        __builtin_memcpy(p, &two, 2);
        x = _mm_srli_si128(x, 2), p += 2;
    }
    if (bytes & 1)
        *p = (char)_mm_cvtsi128_si32(x);
}

/* A masked store takes some processors (Zen 2 and 3) ten cycles and more, and pieces two. */
PD_INLINE void pd_store_first_f32v(float *p, int n, pd_f32v v)
{
    if (__builtin_constant_p(n) && n < PD_LANES_F32)
        pd_store_pieces(p, 4 * n, _mm256_castps_si256(v));
    else
        _mm256_maskstore_ps(p, pd_first_mask(n), v);
}

PD_INLINE void pd_stream_f32v(float *p, pd_f32v v)
{
    if ((uintptr_t)p % 32 == 0)
        _mm256_stream_ps(p, v);
    else
        _mm256_storeu_ps(p, v);
}

PD_INLINE void pd_stream_fence(void) { _mm_sfence(); }

PD_INLINE pd_f32v pd_select_first_f32v(int n, pd_f32v a, pd_f32v b)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(pd_first_mask(n)));
}

/* A piece that is inserted from memory needs no port of shuffles. */
#define PD_JOIN(p) _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)p[0]), (__m128i)p[1], 1)

/* By halves: permutations of all lanes take some processors (Zen 2 and 3) two operations each. */
#define PD_ALTERNATE_OWN
PD_INLINE pd_f32v pd_alternate_f32v(pd_f32v a, pd_f32v b, int first)
{
    const __m256 front = _mm256_permute2f128_ps(a, b, 0x20), back = _mm256_permute2f128_ps(a, b, 0x31);
    return first ? _mm256_shuffle_ps(front, back, 0xDD) : _mm256_shuffle_ps(front, back, 0x88);
}

PD_INLINE pd_f32v pd_swap_f32v(pd_f32v v, int distance)
{
    switch (distance) {
    case 4: return _mm256_permute2f128_ps(v, v, 1);
    case 2: return _mm256_permute_ps(v, 0x4E);
    default: return _mm256_permute_ps(v, 0xB1);
    }
}

/* The instruction returns its second operand when either is NaN, so a NaN in the first is put back. */
PD_INLINE pd_f32v pd_max_f32v(pd_f32v a, pd_f32v b)
{
    return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

PD_INLINE pd_f32v pd_min_f32v(pd_f32v a, pd_f32v b)
{
    return _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

PD_INLINE pd_f32v pd_max_number_f32v(float number, pd_f32v v) { return _mm256_max_ps(_mm256_set1_ps(number), v); }
PD_INLINE pd_f32v pd_min_number_f32v(float number, pd_f32v v) { return _mm256_min_ps(_mm256_set1_ps(number), v); }
PD_INLINE pd_f32v pd_abs_f32v(pd_f32v v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
PD_INLINE pd_f32v pd_sqrt_f32v(pd_f32v v) { return _mm256_sqrt_ps(v); }

/* 2^n for whole n in [-126, 127]. */
PD_INLINE pd_f32v pd_power_of_two_f32v(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* Two steps, because 2^n alone may lie outside the range of normal numbers; only the last rounds. */
PD_INLINE pd_f32v pd_scale_f32v(pd_f32v v, pd_f32v n)
{
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return v * pd_power_of_two_f32v(half) * pd_power_of_two_f32v(_mm256_sub_epi32(whole, half));
}

/* exp where no lane is NaN or larger than PD_EXP_QUICK_LIMIT in size, so that the result is a normal number.
 *
 * exp(x) = 2^(n/8) * exp(r), n = round(8 x / ln 2), |r| <= ln(2) / 16: three terms beyond the first are enough.
 * `eighths` holds 2^(k/8) less k in the bits where n is then added, k = n mod 8: what is carried over is n / 8
 * in the exponent.
 */
#define PD_EXP_QUICK_LIMIT 87.0f
#define PD_WITHIN_OWN
PD_INLINE int pd_within_f32v(float limit, pd_f32v v)
{
    return !_mm256_movemask_ps(_mm256_cmp_ps(pd_abs_f32v(v), _mm256_set1_ps(limit), _CMP_NLE_UQ));
}

PD_INLINE pd_f32v pd_exp_quick_f32v(pd_f32v x)
{
    const __m256i eighths = _mm256_setr_epi32(0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                            0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7);
    /* Adding 1.5 * 2^23 leaves no room for a fraction: n, and n in the low bits. */
    const pd_f32v shift = pd_splat_f32v(12582912.0f), shifted = x * pd_splat_f32v(8 * 1.44269504f) + shift;
    const pd_f32v n = shifted - shift;
    const pd_f32v r = (x - n * pd_splat_f32v(0.693359375f / 8)) + n * pd_splat_f32v(2.12194440e-4f / 8);

    const __m256i bits = _mm256_castps_si256(shifted);
    const __m256i power = _mm256_permutevar8x32_epi32(eighths, bits);
    const pd_f32v scale = _mm256_castsi256_ps(_mm256_add_epi32(power, _mm256_slli_epi32(bits, 20)));
    return scale * ((r * r) * (r * pd_splat_f32v(1.66535839e-1f) + pd_splat_f32v(5.00059307e-1f)) + r) + scale;
}

#define PD_ONE_OF_EIGHT_OWN
PD_INLINE pd_f32v pd_one_of_eight_f32v(pd_f32v v, float c0, float c1, float c2, float c3, float c4, float c5, float c6,
                                       float c7)
{
    return _mm256_permutevar8x32_ps(_mm256_setr_ps(c0, c1, c2, c3, c4, c5, c6, c7), _mm256_castps_si256(v));
}

#define PD_ROUNDINGS_OWN
PD_INLINE pd_f32v pd_floor_f32v(pd_f32v v) { return _mm256_floor_ps(v); }
PD_INLINE pd_f32v pd_ceil_f32v(pd_f32v v) { return _mm256_ceil_ps(v); }
PD_INLINE pd_f32v pd_trunc_f32v(pd_f32v v) { return _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
PD_INLINE pd_f32v pd_round_f32v(pd_f32v v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

#define PD_HOLD(v) __asm__("" : "+x"(v))
#include "pd_vector.h"

#endif
