/* Exact values of functions, and the errors of others' results: for benchmarks/functions.py.
 *
 * The exact value is the C library's in double, on its vectors where it has them; either way its error is below a
 * millionth of an ulp of f32. An ulp is the distance between floats around the exact value. A result that is infinite
 * or NaN where the exact value rounds to a number, or the reverse, is wrong.
 */
#define _GNU_SOURCE
#ifdef __x86_64__
#define __FAST_MATH__ 1 /* Lets glibc declare its functions of vectors; nothing else looks at it. */
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIGMOID(x) (1 / (1 + exp(-(x))))
#define RSQRT(x) (1 / sqrt(x))

#define EXACT(name, f) \
    void exact_##name(const float *restrict x, const float *restrict z, long n, double *restrict exact) \
    { \
        (void)z; \
        _Pragma("omp simd") for (long k = 0; k < n; k++) exact[k] = f((double)x[k]); \
    }
EXACT(exp, exp) EXACT(exp2, exp2) EXACT(expm1, expm1) EXACT(log, log) EXACT(log2, log2) EXACT(log1p, log1p)
EXACT(tanh, tanh) EXACT(erf, erf) EXACT(sigmoid, SIGMOID) EXACT(sin, sin) EXACT(cos, cos) EXACT(tan, tan)
EXACT(rsqrt, RSQRT) EXACT(sqrt, sqrt) EXACT(cbrt, cbrt) EXACT(asin, asin) EXACT(acos, acos) EXACT(atan, atan)
EXACT(sinh, sinh) EXACT(cosh, cosh) EXACT(asinh, asinh) EXACT(acosh, acosh) EXACT(atanh, atanh)
EXACT(floor, floor) EXACT(ceil, ceil) EXACT(trunc, trunc) EXACT(round, rint)

void exact_pow(const float *x, const float *z, long n, double *exact)
{
    for (long k = 0; k < n; k++) exact[k] = pow((double)x[k], (double)z[k]);
}

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* In ulp, where both are numbers. From the middle between the last float and 2^128 on, the nearest is infinite. */
static inline double distance(double exact, double got)
{
    exact = fabs(exact) >= 0x1.ffffffp127 ? exact * INFINITY : exact;
    const uint64_t exponent = bits_of(exact) >> 52 & 2047, least = 1023 - 126;
    return fabs(got - exact) * of_bits((1023 + 23 + 1023 - (exponent < least ? least : exponent)) << 52);
}

/* In ulp; an infinity where the result is wrong. The sign of a zero is not looked at. */
static double error(double exact, double got)
{
    const double nearest = exact >= 0x1.ffffffp127 ? INFINITY : exact <= -0x1.ffffffp127 ? -INFINITY : exact;
    if (nearest == got || (nearest != nearest && got != got)) return 0;
    return fabs(nearest) < INFINITY && fabs(got) < INFINITY ? distance(exact, got) : INFINITY;
}

/* The largest error so far in *worst, with its position in this part, or -1; returns the number of wrong results, with
 * the position of the first, and adds the results to a digest, in which all NaN are one and the sign of a zero is
 * lost. */
long errors(const double *restrict exact, const float *restrict got, long n, double *worst, long *at, long *first_wrong,
            uint64_t *digest)
{
    enum { BLOCK = 1024 };
    double wide[BLOCK], found[BLOCK];
    int32_t plain[BLOCK];
    uint64_t sum = 0;
    long wrong = 0;
    *at = *first_wrong = -1;
    for (long start = 0; start + BLOCK <= n; start += BLOCK) {
        for (long k = 0; k < BLOCK; k++) wide[k] = got[start + k];
        for (long k = 0; k < BLOCK; k++) found[k] = distance(exact[start + k], wide[k]);
        /* As integers, numbers that are not negative are ordered alike, infinities and NaN above them. */
        int64_t most = 0;
        for (long k = 0; k < BLOCK; k++) {
            const int64_t bits = (int64_t)bits_of(found[k]) & INT64_MAX;
            most = bits > most ? bits : most;
        }
        for (long k = 0; k < BLOCK; k++) {
            const float value = got[start + k] + 0.0f;
            int32_t bits;
            memcpy(&bits, &value, sizeof bits);
            plain[k] = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits;
        }
        for (long k = 0; k < BLOCK; k++) {
            const uint64_t mixed = ((uint64_t)(uint32_t)plain[k] + (uint64_t)(start + k) * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
            sum += (mixed ^ mixed >> 29) * 0x94d049bb133111ebu;
        }
        if (most <= (int64_t)bits_of(*worst)) continue;
        for (long k = 0; k < BLOCK; k++) {
            if (found[k] <= *worst) continue;
            const double e = error(exact[start + k], wide[k]);
            if (e == INFINITY) {
                if (!wrong++) *first_wrong = start + k;
            } else if (e > *worst)
                *worst = e, *at = start + k;
        }
    }
    *digest = sum;
    return wrong;
}

/* -- other dtypes ---------------------------------------------------------------------------------
 *
 * The exact value is a long double, of which the C library's error is below a thousandth of an ulp of f64.
 */

#define WIDE(name, f) \
    void wide_##name(const double *x, const double *z, long n, long double *exact) \
    { \
        (void)z; \
        for (long k = 0; k < n; k++) exact[k] = f((long double)x[k]); \
    }
#define SIGMOIDL(x) (1 / (1 + expl(-(x))))
#define RSQRTL(x) (1 / sqrtl(x))
WIDE(exp, expl) WIDE(exp2, exp2l) WIDE(expm1, expm1l) WIDE(log, logl) WIDE(log2, log2l) WIDE(log1p, log1pl)
WIDE(tanh, tanhl) WIDE(erf, erfl) WIDE(sigmoid, SIGMOIDL) WIDE(sin, sinl) WIDE(cos, cosl) WIDE(tan, tanl)
WIDE(rsqrt, RSQRTL) WIDE(sqrt, sqrtl) WIDE(cbrt, cbrtl) WIDE(asin, asinl) WIDE(acos, acosl) WIDE(atan, atanl)
WIDE(sinh, sinhl) WIDE(cosh, coshl) WIDE(asinh, asinhl) WIDE(acosh, acoshl) WIDE(atanh, atanhl)
WIDE(floor, floorl) WIDE(ceil, ceill) WIDE(trunc, truncl) WIDE(round, rintl)

void wide_pow(const double *x, const double *z, long n, long double *exact)
{
    /* glibc's powl(-INFINITY, -0x1p63) is infinite; half of that exponent is as even. */
    for (long k = 0; k < n; k++) exact[k] = powl(x[k], x[k] == -INFINITY && z[k] == -0x1p63 ? z[k] / 2 : z[k]);
}

/* As `errors`, for a dtype of so many binary digits whose normal numbers have exponents from `least` to `most`. Whatever
 * is beyond these is as far away as the first power of two beyond: an infinity is wrong from one ulp on. */
long wide_errors(const long double *exact, const double *got, long n, int digits, int least, int most, double *worst,
                 long *at, long *first_wrong, uint64_t *digest)
{
    const long double end = ldexpl(1, most + 1);
    uint64_t sum = 0;
    long wrong = 0;
    *at = *first_wrong = -1;
    for (long k = 0; k < n; k++) {
        const double value = got[k] + 0.0;
        const uint64_t bits = value != value ? UINT64_C(0x7ff8000000000000) : bits_of(value);
        const uint64_t mixed = (bits + (uint64_t)k * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
        sum += (mixed ^ mixed >> 29) * 0x94d049bb133111ebu;
        const long double near = fmaxl(-end, fminl(end, exact[k])), found = fmaxl(-end, fminl(end, value));
        if (exact[k] != exact[k] && value != value) continue;
        int exponent = least;
        if (near != 0) frexpl(near, &exponent), exponent--;
        exponent = exponent < least ? least : exponent > most ? most : exponent;
        const double e = (double)ldexpl(fabsl(found - near), digits - 1 - exponent);
        const int beyond = (fabs(value) == INFINITY) != (fabsl(exact[k]) >= end);
        if (exact[k] != exact[k] || value != value || (beyond && e >= 1)) {
            if (!wrong++) *first_wrong = k;
        } else if (e > *worst)
            *worst = e, *at = k;
    }
    *digest = sum;
    return wrong;
}
