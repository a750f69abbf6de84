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

/* The first operand cannot be NaN. */
PD_INLINE double pd_max_number_f64(double number, double x) { return number > x ? number : x; }
PD_INLINE double pd_min_number_f64(double number, double x) { return number < x ? number : x; }

#endif
