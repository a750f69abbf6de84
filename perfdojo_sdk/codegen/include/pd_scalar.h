/* Scalar functions of f32: the meaning of max, min and of mathematical functions in plain C. */
#ifndef PD_SCALAR_H
#define PD_SCALAR_H

#include "pd_types.h"

/* max and min give NaN when either operand is NaN. If a is NaN, so is a + b; written like this, compilers
 * emit one max and a branch that is never taken. Pass an accumulator as b. */
PD_INLINE float pd_max_f32(float a, float b) { return a == a ? (a > b ? a : b) : a + b; }
PD_INLINE float pd_min_f32(float a, float b) { return a == a ? (a < b ? a : b) : a + b; }

/* The same where the first operand cannot be NaN: one instruction on most machines. */
PD_INLINE float pd_max_number_f32(float number, float x) { return number > x ? number : x; }
PD_INLINE float pd_min_number_f32(float number, float x) { return number < x ? number : x; }

PD_INLINE float pd_abs_f32(float x) { return __builtin_fabsf(x); }
PD_INLINE float pd_sqrt_f32(float x) { return __builtin_sqrtf(x); }

PD_INLINE float pd_splat_f32(float x) { return x; }

/* 2^n for a whole n in [-126, 127]. */
PD_INLINE float pd_power_of_two_f32(int32_t n)
{
    const union { int32_t bits; float value; } power = {(n + 127) * (1 << 23)};
    return power.value;
}

/* x * 2^n, rounded once; n is whole and in [-252, 254]. */
PD_INLINE float pd_scale_f32(float x, float n)
{
    const int32_t whole = (int32_t)n, half = whole >> 1;
    return x * pd_power_of_two_f32(half) * pd_power_of_two_f32(whole - half);
}

#define PD_T float
#define PD_F(name) pd_##name##_f32
#include "pd_exp.h"
#undef PD_T
#undef PD_F

PD_INLINE float pd_exp_f32(float x) { return pd_exp_any_f32(x); }

PD_INLINE int32_t pd_bits_f32(float x)
{
    const union { float value; int32_t bits; } pun = {x};
    return pun.bits;
}
PD_INLINE float pd_of_bits_f32(int32_t x)
{
    const union { int32_t bits; float value; } pun = {x};
    return pun.value;
}

/* x = n pi/2 + r, |r| <= pi/4, n below 4, for a finite x of 2^20 or more in size. With x = m 2^e, m whole, the bits of
 * 2/pi before the 2^(e - 2)nd make multiples of 4 and are left out; of those after it, 96 are enough. */
PD_INLINE double pd_large_f32(float x, int32_t *n)
{
    const uint32_t two_over_pi[] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                    0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
    const int32_t bits = pd_bits_f32(x), start = (bits >> 23 & 255) - (150 - 30), word = start >> 5 & 7, shift = start & 31;
    const uint64_t m = (uint64_t)((bits & 0x7fffff) | 0x800000);
    uint64_t part[3];
    for (int k = 0; k < 3; k++) {
        const uint64_t two = (uint64_t)two_over_pi[word + k] << 32 | (word + k < 8 ? two_over_pi[word + k + 1] : 0);
        part[k] = two << shift >> 32;
    }
    const uint64_t turns = (m * part[2] >> 32) + m * part[1] + (m * part[0] << 32);
    const uint64_t whole = (turns + ((uint64_t)1 << 61)) >> 62;
    const double r = (double)(int64_t)(turns - (whole << 62)) * (1.5707963267948966 / 4611686018427387904.0);
    *n = bits < 0 ? -(int32_t)whole : (int32_t)whole;
    return bits < 0 ? -r : r;
}

#define PD_T float
#define PD_I int32_t
#define PD_D double
#define PD_F(name) pd_##name##_f32
#define PD_TO(type, v) ((type)(v))
#define PD_BITS(v) pd_bits_f32(v)
#define PD_OF_BITS(i) pd_of_bits_f32(i)
#define PD_CHOOSE(where, a, b) ((where) ? (a) : (b))
#define PD_AT_LEAST(c, v) pd_max_number_f32(c, v)
#define PD_AT_MOST(c, v) pd_min_number_f32(c, v)
#define PD_SPLAT(c) (c)
#define PD_SQRT(v) pd_sqrt_f32(v)
#define PD_SCALE(v, n) pd_scale_f32(v, n)
#define PD_LARGE(x, n, r) \
    if (__builtin_fabsf(x) >= 1048576.0f && __builtin_fabsf(x) < PD_INF) \
        r = pd_large_f32(x, &(n))
#include "pd_math.h"
#undef PD_T
#undef PD_I
#undef PD_D
#undef PD_F
#undef PD_TO
#undef PD_BITS
#undef PD_OF_BITS
#undef PD_CHOOSE
#undef PD_AT_LEAST
#undef PD_AT_MOST
#undef PD_SPLAT
#undef PD_SQRT
#undef PD_SCALE
#undef PD_LARGE

#endif
