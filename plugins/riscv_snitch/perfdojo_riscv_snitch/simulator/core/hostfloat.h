/* Sums and products of ordinary numbers on the host's FPU.
 *
 * Rounding to nearest is what the host does too. Operands whose exponents are in a middle range give
 * results that are zero or normal, so that the only flag is "inexact": it is set if the rounding error,
 * which can be computed exactly from sums and fused multiply-adds, is not zero. Everything else is
 * left to softfloat.h. Compile without contraction of a * b + c.
 */
#ifndef HOSTFLOAT_H
#define HOSTFLOAT_H

#include <string.h>

#include "decode.h"
#include "softfloat.h"

#if defined(__FMA__) || defined(__FP_FAST_FMA) || defined(__ARM_FEATURE_FMA)

static INLINE double as_double(u64 bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static INLINE u64 double_bits(double value) {
    u64 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static INLINE float as_float(u64 bits) {
    u32 low = (u32)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

static INLINE u64 float_bits(float value) {
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Exponents from -300 to 300: a product and the error of a product are normal. */
static INLINE bool is_ordinary_d(u64 bits) { return (u32)((bits >> 52 & 0x7ff) - 723) <= 600; }

/* Exponents from -40 to 40: whatever a fused multiply-add leaves is 0 or at least 2^-126. */
static INLINE bool is_ordinary_s(u64 bits) { return (u32)((bits >> 23 & 0xff) - 87) <= 80; }

/* The error of the rounded sum a + b, by Knuth. */
static INLINE double sum_error(double a, double b, double sum) {
    double b_part = sum - a;
    return (a - (sum - b_part)) + (b - b_part);
}

static INLINE bool fma_is_exact(double a, double b, double c, double rounded) {
    /* Boldo and Muller, "Exact and approximated error of the FMA", 2011. */
    double product = a * b, product_error = __builtin_fma(a, b, -product);
    double low = c + product_error, lowest = sum_error(c, product_error, low);
    double high = product + low, high_error = sum_error(product, low, high);
    return (high - rounded) + high_error == -lowest;
}

static INLINE u64 host_fma_d(u64 a, u64 b, u64 c, int *flags) {
    double x = as_double(a), y = as_double(b), z = as_double(c), rounded = __builtin_fma(x, y, z);
    if (!fma_is_exact(x, y, z, rounded)) *flags |= FLAG_NX;
    return double_bits(rounded);
}

static INLINE u64 host_add_d(u64 a, u64 b, int *flags) {
    double x = as_double(a), y = as_double(b), sum = x + y;
    if (sum_error(x, y, sum) != 0) *flags |= FLAG_NX;
    return double_bits(sum);
}

static INLINE u64 host_mul_d(u64 a, u64 b, int *flags) {
    double x = as_double(a), y = as_double(b), product = x * y;
    if (__builtin_fma(x, y, -product) != 0) *flags |= FLAG_NX;
    return double_bits(product);
}

/* x + y rounded once to f32. A sum that f64 cannot hold is first rounded to odd, which keeps what
 * the second rounding needs to know. */
static INLINE u64 host_add_s(double x, double y, int *flags) {
    double sum = x + y, error = sum_error(x, y, sum);
    u64 bits = double_bits(sum);
    if (error != 0 && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : ~0ull;
    float rounded = (float)as_double(bits);
    if ((double)rounded != as_double(bits)) *flags |= FLAG_NX;
    return float_bits(rounded);
}

/* False if the operation or an operand is not for the host. */
static INLINE bool host_d(int op, u64 a, u64 b, u64 c, u64 *result, int *flags) {
    const u64 sign = 1ull << 63;
    if (!is_ordinary_d(a) || !is_ordinary_d(b)) return false;
    switch (op) {
    case FOP_ADD: *result = host_add_d(a, b, flags); return true;
    case FOP_SUB: *result = host_add_d(a, b ^ sign, flags); return true;
    case FOP_MUL: *result = host_mul_d(a, b, flags); return true;
    default: break;
    }
    if (!is_ordinary_d(c)) return false;
    switch (op) {
    case FOP_FMADD: *result = host_fma_d(a, b, c, flags); return true;
    case FOP_FMSUB: *result = host_fma_d(a, b, c ^ sign, flags); return true;
    case FOP_FNMSUB: *result = host_fma_d(a ^ sign, b, c, flags); return true;
    case FOP_FNMADD: *result = host_fma_d(a ^ sign, b, c ^ sign, flags); return true;
    default: return false;
    }
}

static INLINE bool host_s(int op, u64 a, u64 b, u64 c, u64 *result, int *flags) {
    if (!is_ordinary_s(a) || !is_ordinary_s(b)) return false;
    double x = as_float(a), y = as_float(b), z;
    switch (op) {
    case FOP_ADD: *result = host_add_s(x, y, flags); return true;
    case FOP_SUB: *result = host_add_s(x, -y, flags); return true;
    case FOP_MUL: *result = host_add_s(x * y, 0, flags); return true;
    default: break;
    }
    if (!is_ordinary_s(c)) return false;
    z = as_float(c);
    switch (op) {
    case FOP_FMADD: *result = host_add_s(x * y, z, flags); return true;
    case FOP_FMSUB: *result = host_add_s(x * y, -z, flags); return true;
    case FOP_FNMSUB: *result = host_add_s(-x * y, z, flags); return true;
    case FOP_FNMADD: *result = host_add_s(-x * y, -z, flags); return true;
    default: return false;
    }
}

#else

static INLINE bool host_d(int op, u64 a, u64 b, u64 c, u64 *result, int *flags) {
    return (void)op, (void)a, (void)b, (void)c, (void)result, (void)flags, false;
}

static INLINE bool host_s(int op, u64 a, u64 b, u64 c, u64 *result, int *flags) {
    return (void)op, (void)a, (void)b, (void)c, (void)result, (void)flags, false;
}

#endif
#endif
