/* Conversions to integers, and functions of doubles that the table of operations does not have.
 *
 * From float to integer a conversion saturates, and NaN gives 0.
 */
#ifndef PD_TYPES_H
#define PD_TYPES_H

#include "pd_runtime.h"
#include "pd_stored.h"
#include <math.h>

/* The C library's may be off by several ulp; a step of Newton's iteration leaves one. */
PD_INLINE double pd_cbrt_f64(double x)
{
    const double r = cbrt(x);
    return r - r == 0 && r != 0 ? r - (r - x / (r * r)) / 3 : r;
}

/* e / (e + 2), e = exp(2 |x|) - 1, less what e + 2 loses: the C library's is off by more than 2 ulp. */
PD_INLINE double pd_tanh_f64(double x)
{
    const double a = x < 0 ? -x : x, e = expm1(a > 22 ? 44.0 : 2 * a), below = e + 2, t = e / below;
    const double found = t - t * ((e - (below - 2)) / below);
    return x == 0 ? x : x < 0 ? -found : found;
}

/* Either of 1 and exp(-|x|) over their sum, less what the sum loses. */
PD_INLINE double pd_sigmoid_f64(double x)
{
    const double e = exp(x < 0 ? x : -x), sum = 1 + e, found = (x < 0 ? e : 1) / sum;
    return found - found * ((e - (sum - 1)) / sum);
}

#include "pd_operations.h"

/* T: the type's name in the language; C: its C type. MOST may not be representable as a double: then it is rounded up,
 * and the conversion compares with the rounded value. */
#define PD_FROM_FLOATS(T, C, LEAST, MOST) \
    PD_INLINE C pd_##T##_from_f64(double x) \
    { \
        return x != x ? 0 : x <= (double)(LEAST) ? (C)(LEAST) : x >= (double)(MOST) ? (C)(MOST) : (C)x; \
    } \
    PD_INLINE C pd_##T##_from_f32(float x) { return pd_##T##_from_f64(x); }

PD_FROM_FLOATS(i64, int64_t, INT64_MIN, INT64_MAX)
PD_FROM_FLOATS(i32, int32_t, INT32_MIN, INT32_MAX)
PD_FROM_FLOATS(i16, int16_t, INT16_MIN, INT16_MAX)
PD_FROM_FLOATS(i8, int8_t, INT8_MIN, INT8_MAX)
PD_FROM_FLOATS(u64, uint64_t, 0, UINT64_MAX)
PD_FROM_FLOATS(u32, uint32_t, 0, UINT32_MAX)
PD_FROM_FLOATS(u16, uint16_t, 0, UINT16_MAX)
PD_FROM_FLOATS(u8, uint8_t, 0, UINT8_MAX)

/* Floats that are only stored, as bytes: sign, exponent, fraction. To the nearest, ties to even. A denormal number is
 * rounded by an addition that leaves as many digits as it has. */
#define PD_FORMAT(T, V, FRACTION, BIAS, LARGEST, BEYOND, NOT, SIGN, MINUS_ZERO, SIGNED, STEP, LEAST) \
    PD_INLINE uint8_t pd_##T##_from_f32(float x) \
    { \
        const union { float value; uint32_t bits; } u = {x}; \
        const uint32_t size = u.bits & 0x7fffffffu, sign = u.bits >> 31 ? SIGN : 0; \
        const union { uint32_t bits; float value; } positive = {size}; \
        const union { float value; uint32_t bits; } sum = {positive.value + STEP}, step = {STEP}; \
        const uint32_t normal = (size + (1u << (22 - FRACTION)) - 1 + (size >> (23 - FRACTION) & 1)) >> (23 - FRACTION); \
        const uint32_t code = size < (128u - BIAS) << 23 ? sum.bits - step.bits : normal - ((127u - BIAS) << FRACTION); \
        if (x != x) \
            return NOT; \
        if (code > LARGEST) \
            return (uint8_t)(SIGNED ? BEYOND | sign : NOT); \
        return (uint8_t)(code || MINUS_ZERO ? code | sign : 0); \
    } \
    PD_INLINE uint8_t pd_##T##_from_f64(double x) { return pd_##T##_from_f32(pd_odd_f32(x)); } \
    PD_INLINE float pd_f32_from_##T(uint8_t x) \
    { \
        const uint32_t size = x & (SIGN - 1u); \
        union { uint32_t bits; float value; } u = {(size << (23 - FRACTION)) + ((127u - BIAS) << 23)}; \
        if (!(size >> FRACTION)) \
            u.value = (float)size * LEAST; \
        if (size > LARGEST || (!MINUS_ZERO && x == SIGN)) \
            u.bits = SIGNED && size == BEYOND ? 0x7f800000u : 0x7fc00000u; \
        u.bits |= x & SIGN ? 0x80000000u : 0; \
        return u.value; \
    }
PD_EACH_FORMAT(PD_FORMAT, 1)

/* Powers of two from 2^-127 on: the exponent of a float. Ties are rounded up; what is no positive number is NaN. */
PD_INLINE uint8_t pd_f8e8m0_from_f32(float x)
{
    const union { float value; uint32_t bits; } u = {x};
    const uint32_t code = u.bits < 0x800000u ? u.bits >= 0x600000u : u.bits >> 23;
    return (uint8_t)(!(x > 0) || u.bits >= 0x7f400000u ? 255 : code + (u.bits >= 0x800000u ? u.bits >> 22 & 1 : 0));
}
PD_INLINE uint8_t pd_f8e8m0_from_f64(double x) { return pd_f8e8m0_from_f32(pd_odd_f32(x)); }
PD_INLINE float pd_f32_from_f8e8m0(uint8_t x)
{
    const union { uint32_t bits; float value; } u = {x == 255 ? 0x7fc00000u : x ? (uint32_t)x << 23 : 0x400000u};
    return u.value;
}

/* Integers of less than a byte, in one: C has more bits than the language, which wraps or saturates a byte. */
#define PD_NARROW(T, C, BITS, CUT) \
    PD_INLINE C pd_wrap_##T(C x) { return (C)((C)(x << (8 - BITS)) >> (8 - BITS)); } \
    PD_INLINE C pd_cut_##T(C x) { return (C)(CUT); }
PD_NARROW(i4, int8_t, 4, x < -8 ? -8 : x > 7 ? 7 : x) PD_NARROW(i2, int8_t, 2, x < -2 ? -2 : x > 1 ? 1 : x)
PD_NARROW(u4, uint8_t, 4, x > 15 ? 15 : x) PD_NARROW(u2, uint8_t, 2, x > 3 ? 3 : x)

/* Element i of a packed array, whose first element is in the lowest bits of a byte; i is not negative. These are macros,
 * since an array need not be a pointer. */
#define PD_PACKED_4(p, i) ((p)[(i) >> 1] >> (((i) & 1) << 2) & 15)
#define PD_PACKED_2(p, i) ((p)[(i) >> 2] >> (((i) & 3) << 1) & 3)
#define pd_packed_i4(p, i) pd_wrap_i4((int8_t)PD_PACKED_4(p, i))
#define pd_packed_u4(p, i) ((uint8_t)PD_PACKED_4(p, i))
#define pd_packed_i2(p, i) pd_wrap_i2((int8_t)PD_PACKED_2(p, i))
#define pd_packed_u2(p, i) ((uint8_t)PD_PACKED_2(p, i))
#define pd_packed_f4e2m1(p, i) ((uint8_t)PD_PACKED_4(p, i))

/* The first operand cannot be NaN. */
PD_INLINE double pd_max_number_f64(double number, double x) { return number > x ? number : x; }
PD_INLINE double pd_min_number_f64(double number, double x) { return number < x ? number : x; }

#endif
