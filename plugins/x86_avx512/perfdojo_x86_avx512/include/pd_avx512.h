/* The vector functions of AVX-512 (F, BW, DQ, VL): 16 lanes of float32, 32 registers. */
#ifndef PD_AVX512_H
#define PD_AVX512_H

#include <immintrin.h>

#include "pd_scalar.h"

#define PD_VECTOR_BYTES 64
typedef __m512 pd_f32v;
enum { PD_LANES_F32 = 16 };

PD_INLINE __mmask16 pd_first_mask(int n) { return (__mmask16)((1u << n) - 1); }

PD_INLINE pd_f32v pd_splat_f32v(float x) { return _mm512_set1_ps(x); }
PD_INLINE pd_f32v pd_load_f32v(const float *p) { return _mm512_loadu_ps(p); }
PD_INLINE void pd_store_f32v(float *p, pd_f32v v) { _mm512_storeu_ps(p, v); }

PD_INLINE pd_f32v pd_load_first_f32v(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(pd_first_mask(n), p);
}

PD_INLINE void pd_store_first_f32v(float *p, int n, pd_f32v v)
{
    _mm512_mask_storeu_ps(p, pd_first_mask(n), v);
}

PD_INLINE void pd_stream_f32v(float *p, pd_f32v v)
{
    if ((uintptr_t)p % 64 == 0)
        _mm512_stream_ps(p, v);
    else
        _mm512_storeu_ps(p, v);
}

PD_INLINE void pd_stream_fence(void) { _mm_sfence(); }

PD_INLINE pd_f32v pd_select_first_f32v(int n, pd_f32v a, pd_f32v b)
{
    return _mm512_mask_mov_ps(b, pd_first_mask(n), a);
}

/* Pieces that are inserted from memory need no port of shuffles. */
#define PD_JOIN(p) \
    _mm512_inserti64x2(_mm512_inserti64x2(_mm512_inserti64x2(_mm512_castsi128_si512((__m128i)p[0]), (__m128i)p[1], 1), \
                                          (__m128i)p[2], 2), (__m128i)p[3], 3)

PD_INLINE pd_f32v pd_swap_f32v(pd_f32v v, int distance)
{
    switch (distance) {
    case 8: return _mm512_shuffle_f32x4(v, v, 0x4E);
    case 4: return _mm512_shuffle_f32x4(v, v, 0xB1);
    case 2: return _mm512_permute_ps(v, 0x4E);
    default: return _mm512_permute_ps(v, 0xB1);
    }
}

/* The instruction returns its second operand when either is NaN, so lanes where the first is NaN keep
 * that. Only b is on the way from one accumulation to the next: pass the accumulator as b. */
PD_INLINE pd_f32v pd_max_f32v(pd_f32v a, pd_f32v b)
{
    return _mm512_mask_max_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a, b);
}

PD_INLINE pd_f32v pd_min_f32v(pd_f32v a, pd_f32v b)
{
    return _mm512_mask_min_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a, b);
}

PD_INLINE pd_f32v pd_max_number_f32v(float number, pd_f32v v) { return _mm512_max_ps(_mm512_set1_ps(number), v); }
PD_INLINE pd_f32v pd_min_number_f32v(float number, pd_f32v v) { return _mm512_min_ps(_mm512_set1_ps(number), v); }
PD_INLINE pd_f32v pd_abs_f32v(pd_f32v v) { return _mm512_abs_ps(v); }
PD_INLINE pd_f32v pd_sqrt_f32v(pd_f32v v) { return _mm512_sqrt_ps(v); }
PD_INLINE pd_f32v pd_scale_f32v(pd_f32v v, pd_f32v n) { return _mm512_scalef_ps(v, n); }

/* exp of every input, in place of pd_exp.h's: the exponent comes from an instruction that scales by a power of two and
 * rounds any exponent down to a whole number, and a table in a register has the sixteenths.
 *
 * exp(x) = 2^n * exp(r), 16 n = round(16 x / ln 2), |r| <= ln(2) / 32: three terms beyond the first are enough.
 */
#define PD_EXP_OWN
PD_INLINE pd_f32v pd_exp_f32v(pd_f32v x)
{
    const pd_f32v sixteenths = _mm512_setr_ps(1.0f, 1.04427373f, 1.09050775f, 1.13878858f,
                                           1.18920708f, 1.24185777f, 1.29683959f, 1.35425556f,
                                           1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f,
                                           1.68179286f, 1.75625217f, 1.8340081f, 1.91520655f);
    /* Beyond these bounds the result is inf or 0 either way; NaN passes through. */
    x = pd_max_number_f32v(-104.0f, pd_min_number_f32v(89.0f, x));
    /* Adding 1.5 * 2^19 leaves sixteenths as the smallest digits: n, and 16 n in the low bits. */
    const pd_f32v shift = pd_splat_f32v(786432.0f), shifted = x * pd_splat_f32v(1.44269504f) + shift;
    const pd_f32v n = shifted - shift;
    const pd_f32v r = (x - n * pd_splat_f32v(0.693359375f)) + n * pd_splat_f32v(2.12194440e-4f);
    const pd_f32v root = _mm512_permutexvar_ps(_mm512_castps_si512(shifted), sixteenths);
    return pd_scale_f32v(root * ((r * r) * (r * pd_splat_f32v(0.166670308f) + pd_splat_f32v(0.500016212f)) + r) + root, n);
}

#define PD_WITHIN_OWN
PD_INLINE int pd_within_f32v(float limit, pd_f32v v)
{
    return !_mm512_cmp_ps_mask(pd_abs_f32v(v), _mm512_set1_ps(limit), _CMP_NLE_UQ);
}

#define PD_ONE_OF_EIGHT_OWN
PD_INLINE pd_f32v pd_one_of_eight_f32v(pd_f32v v, float c0, float c1, float c2, float c3, float c4, float c5, float c6,
                                       float c7)
{
    const __m512 twice = _mm512_setr_ps(c0, c1, c2, c3, c4, c5, c6, c7, c0, c1, c2, c3, c4, c5, c6, c7);
    return _mm512_permutexvar_ps(_mm512_castps_si512(v), twice);
}

#define PD_ROUNDINGS_OWN
PD_INLINE pd_f32v pd_floor_f32v(pd_f32v v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEG_INF); }
PD_INLINE pd_f32v pd_ceil_f32v(pd_f32v v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_POS_INF); }
PD_INLINE pd_f32v pd_trunc_f32v(pd_f32v v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_ZERO); }
PD_INLINE pd_f32v pd_round_f32v(pd_f32v v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT); }

#define PD_HOLD(v) __asm__("" : "+v"(v))
#include "pd_vector.h"

#endif
