/* Scalar functions of f32: the meaning of max, min and exp in plain C. */
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

#endif
