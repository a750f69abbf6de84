/* Exact values of functions, and the errors of others' results: for benchmarks/functions.py.
 *
 * The exact value is the C library's in double, whose error is below a thousandth of an ulp of f32. An ulp is the
 * distance between floats around the exact value. A result that must be a certain infinity, NaN or zero and is not
 * counts as wrong, whatever its distance. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <string.h>

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

#define FUNCTIONS(X) \
    X(exp) X(exp2) X(expm1) X(log) X(log2) X(log1p) X(tanh) X(erf) X(sigmoid) X(sin) X(cos) X(tan) X(rsqrt) X(cbrt) \
    X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(acosh) X(atanh) X(floor) X(ceil) X(trunc) X(round) X(sqrt)

#define round rint
#define EXACT(name) \
    void exact_##name(const float *x, const float *y, long n, double *exact) \
    { \
        (void)y; \
        for (long k = 0; k < n; k++) exact[k] = (name)((double)x[k]); \
    }
FUNCTIONS(EXACT)
#undef round
void exact_pow(const float *x, const float *y, long n, double *exact)
{
    for (long k = 0; k < n; k++) exact[k] = pow((double)x[k], (double)y[k]);
}

static double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* In ulp; an infinity where the result is wrong. The sign of a zero is not looked at. */
static double error(double exact, float got)
{
    if (exact != exact || got != got)
        return exact != exact && got != got ? 0.0 : INFINITY;
    uint64_t bits;
    memcpy(&bits, &exact, sizeof bits);
    const int64_t exponent = bits >> 52 & 2047;
    /* From the middle between the last float and 2^128 on, the nearest float is infinite. */
    const int beyond = fabs(exact) >= 0x1.ffffffp127;
    if (beyond || isinf(got))
        return beyond && isinf(got) && (exact > 0) == (got > 0) ? 0.0 : INFINITY;
    const int64_t floor = 1023 - 126;
    const double per_ulp = of_bits((uint64_t)(1023 + 23 + 1023 - (exponent < floor ? floor : exponent)) << 52);
    return fabs((double)got - exact) * per_ulp;
}

/* The largest error so far in *worst, with its position in this part, or -1; returns the number of wrong results, with
 * the position of the first. */
long errors(const double *exact, const float *got, long n, double *worst, long *at, long *first_wrong)
{
    long wrong = 0;
    *at = *first_wrong = -1;
    for (long k = 0; k < n; k++) {
        const double e = error(exact[k], got[k]);
        if (e > *worst) {
            if (isinf(e)) {
                if (!wrong++) *first_wrong = k;
            } else
                *worst = e, *at = k;
        }
    }
    return wrong;
}
