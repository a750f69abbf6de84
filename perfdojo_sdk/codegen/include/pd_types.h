/* What the language's operations mean in C for every dtype but f32.
 *
 * Integers wrap: sums and products are made of unsigned numbers. Division truncates; by -1 it wraps
 * like a negation. A shift count is within the width (the language says so). From float to integer
 * a conversion saturates, and NaN gives 0.
 */
#ifndef PD_TYPES_H
#define PD_TYPES_H

#include "pd_runtime.h"
#include "pd_stored.h"
#include <math.h>

#define PD_DIVIDE_SIGNED(T, C, U) \
    PD_INLINE C pd_div_##T(C a, C b) { return b == -1 ? (C)(0 - (U)a) : (C)(a / b); } \
    PD_INLINE C pd_rem_##T(C a, C b) { return b == -1 ? 0 : (C)(a % b); } \
    PD_INLINE C pd_abs_##T(C a) { return a < 0 ? (C)(0 - (U)a) : a; }

#define PD_DIVIDE_UNSIGNED(T, C, U) \
    PD_INLINE C pd_div_##T(C a, C b) { return (C)(a / b); } \
    PD_INLINE C pd_rem_##T(C a, C b) { return (C)(a % b); } \
    PD_INLINE C pd_abs_##T(C a) { return a; }

/* T: the type's name in the language; C: its C type; U: an unsigned type at least as wide as int.
 * MOST may not be a double: the conversion compares with what it is rounded to, which is above it. */
#define PD_INTEGER(T, C, U, LEAST, MOST, DIVIDE) \
    DIVIDE(T, C, U) \
    PD_INLINE C pd_add_##T(C a, C b) { return (C)((U)a + (U)b); } \
    PD_INLINE C pd_sub_##T(C a, C b) { return (C)((U)a - (U)b); } \
    PD_INLINE C pd_mul_##T(C a, C b) { return (C)((U)a * (U)b); } \
    PD_INLINE C pd_neg_##T(C a) { return (C)(0 - (U)a); } \
    PD_INLINE C pd_max_##T(C a, C b) { return a > b ? a : b; } \
    PD_INLINE C pd_min_##T(C a, C b) { return a < b ? a : b; } \
    PD_INLINE C pd_and_##T(C a, C b) { return (C)(a & b); } \
    PD_INLINE C pd_or_##T(C a, C b) { return (C)(a | b); } \
    PD_INLINE C pd_xor_##T(C a, C b) { return (C)(a ^ b); } \
    PD_INLINE C pd_not_##T(C a) { return (C)~a; } \
    PD_INLINE C pd_shl_##T(C a, C n) { return (C)((U)a << n); } \
    PD_INLINE C pd_shr_##T(C a, C n) { return (C)(a >> n); } \
    PD_INLINE C pd_##T##_from_f64(double x) \
    { \
        return x != x ? 0 : x <= (double)(LEAST) ? (C)(LEAST) : x >= (double)(MOST) ? (C)(MOST) : (C)x; \
    } \
    PD_INLINE C pd_##T##_from_f32(float x) { return pd_##T##_from_f64(x); }

PD_INTEGER(i64, int64_t, uint64_t, INT64_MIN, INT64_MAX, PD_DIVIDE_SIGNED)
PD_INTEGER(i32, int32_t, uint32_t, INT32_MIN, INT32_MAX, PD_DIVIDE_SIGNED)
PD_INTEGER(i16, int16_t, uint32_t, INT16_MIN, INT16_MAX, PD_DIVIDE_SIGNED)
PD_INTEGER(i8, int8_t, uint32_t, INT8_MIN, INT8_MAX, PD_DIVIDE_SIGNED)
PD_INTEGER(u32, uint32_t, uint32_t, 0, UINT32_MAX, PD_DIVIDE_UNSIGNED)
PD_INTEGER(u16, uint16_t, uint32_t, 0, UINT16_MAX, PD_DIVIDE_UNSIGNED)
PD_INTEGER(u8, uint8_t, uint32_t, 0, UINT8_MAX, PD_DIVIDE_UNSIGNED)

PD_INLINE uint8_t pd_and_bool(uint8_t a, uint8_t b) { return a & b; }
PD_INLINE uint8_t pd_or_bool(uint8_t a, uint8_t b) { return a | b; }
PD_INLINE uint8_t pd_xor_bool(uint8_t a, uint8_t b) { return a ^ b; }
PD_INLINE uint8_t pd_not_bool(uint8_t a) { return !a; }
PD_INLINE uint8_t pd_max_bool(uint8_t a, uint8_t b) { return a | b; }
PD_INLINE uint8_t pd_min_bool(uint8_t a, uint8_t b) { return a & b; }

PD_INLINE double pd_max_f64(double a, double b) { return a == a ? (a > b ? a : b) : a + b; }
PD_INLINE double pd_min_f64(double a, double b) { return a == a ? (a < b ? a : b) : a + b; }
PD_INLINE double pd_max_number_f64(double number, double x) { return number > x ? number : x; }
PD_INLINE double pd_min_number_f64(double number, double x) { return number < x ? number : x; }
PD_INLINE double pd_abs_f64(double x) { return __builtin_fabs(x); }
PD_INLINE double pd_sqrt_f64(double x) { return __builtin_sqrt(x); }
PD_INLINE double pd_exp_f64(double x) { return exp(x); }
PD_INLINE double pd_log_f64(double x) { return log(x); }
PD_INLINE double pd_tanh_f64(double x) { return tanh(x); }
PD_INLINE double pd_erf_f64(double x) { return erf(x); }
PD_INLINE double pd_floor_f64(double x) { return __builtin_floor(x); }
PD_INLINE double pd_ceil_f64(double x) { return __builtin_ceil(x); }
PD_INLINE double pd_round_f64(double x) { return __builtin_rint(x); }
PD_INLINE double pd_trunc_f64(double x) { return __builtin_trunc(x); }

/* In double precision and rounded once, these are correct to a hair over half an ulp. */
PD_INLINE float pd_log_f32(float x) { return (float)log((double)x); }
PD_INLINE float pd_tanh_f32(float x) { return (float)tanh((double)x); }
PD_INLINE float pd_erf_f32(float x) { return (float)erf((double)x); }
PD_INLINE float pd_floor_f32(float x) { return __builtin_floorf(x); }
PD_INLINE float pd_ceil_f32(float x) { return __builtin_ceilf(x); }
PD_INLINE float pd_round_f32(float x) { return __builtin_rintf(x); }
PD_INLINE float pd_trunc_f32(float x) { return __builtin_truncf(x); }

#endif
