/* Division, root and exponential as a C programmer would write them for a core that has none of them: an
 * estimate from the bits of the exponent, Newton's iteration, and a polynomial. For ordinary arguments the
 * steps are those of the plugin's own code; for others the results are only close. For comparisons, not for kernels. */
#ifndef PD_SNITCH_MATH_H
#define PD_SNITCH_MATH_H
#include <stdint.h>

typedef union {
    double number;
    struct { uint32_t low, high; } word;
} pd_bits;

static inline uint32_t pd_exponent(double a) {
    pd_bits bits = {a};
    return bits.word.high >> 20 & 0x7ff;
}

static inline double pd_power(int32_t k) {
    pd_bits bits;
    bits.word.low = 0;
    bits.word.high = (uint32_t)(k + 1023) << 20;
    return bits.number;
}

/* 1/b, nearly; b is ordinary. */
static inline double pd_inverse(double b) {
    pd_bits bits = {b};
    uint32_t sign = bits.word.high & 0x80000000u;
    bits.word.high = (0x7fde6238u - (bits.word.high ^ sign)) | sign;
    bits.word.low = 0;
    double y = bits.number;
    for (int k = 0; k < 2; k++) {
        double e = __builtin_fma(-b, y, 1.0);
        y = __builtin_fma(y, __builtin_fma(e, e, e), y);
    }
    return __builtin_fma(y, __builtin_fma(-b, y, 1.0), y);
}

__attribute__((noinline)) static double pd_unusual_div(double a, double b) {
    if (a != a || b != b) return a + b;
    int infinite = pd_exponent(a) == 0x7ff, endless = pd_exponent(b) == 0x7ff;
    double sign = __builtin_copysign(1.0, a) * __builtin_copysign(1.0, b);
    if (infinite && endless) return __builtin_nan("");
    if (infinite) return a * sign * __builtin_copysign(1.0, a);
    if (endless) return 0.0 * sign;
    if (b == 0) return a == 0 ? __builtin_nan("") : sign * __builtin_inf();
    if (a == 0) return 0.0 * sign;
    double up = 1.0;
    if (pd_exponent(b) < 500) b *= 0x1p500, up = 0x1p500;
    if (pd_exponent(b) > 1500) b *= 0x1p-500, up = 0x1p-500;
    double y = pd_inverse(b);
    return pd_exponent(a) > 1000 ? a * 0x1p-500 * y * up * 0x1p500 : a * y * up;
}

static inline double pd_div_f64(double a, double b) {
    if (pd_exponent(a) - 200u > 1600u || pd_exponent(b) - 200u > 1600u) return pd_unusual_div(a, b);
    double y = pd_inverse(b), q = a * y;
    return __builtin_fma(__builtin_fma(-q, b, a), y, q);
}

static inline float pd_div_f32(float a, float b) {
    if (pd_exponent(b) - 200u > 1600u) return (float)pd_unusual_div(a, b);
    return (float)(a * pd_inverse(b));
}

static inline double pd_sqrt_f64(double a) {
    pd_bits bits = {a};
    if (bits.word.high - (200u << 20) > 1600u << 20) return a > 0 ? a : a == 0 ? a : __builtin_nan("");
    bits.word.high = 0x5fe6eb50u - (bits.word.high >> 1);
    bits.word.low = 0;
    double y = bits.number;
    for (int k = 0; k < 4; k++) y = __builtin_fma(0.5 * y, __builtin_fma(-(a * y), y, 1.0), y);
    double s = a * y;
    return __builtin_fma(__builtin_fma(-s, s, a), 0.5 * y, s);
}

static inline float pd_sqrt_f32(float a) { return (float)pd_sqrt_f64(a); }

static inline double pd_exp_f64(double x) {
    if (!(__builtin_fabs(x) < 700)) return x > 0 ? __builtin_inf() : x < 0 ? 0 : x;
    pd_bits whole = {x * 0x1.71547652b82fep+0 + 0x1.8p52};
    double k = whole.number - 0x1.8p52, r = x - k * 0x1.62e42feep-1 - k * 0x1.a39ef35793c76p-33;
    static const double terms[] = {
        0x1.28ad9b6090f22p-22, 0x1.71df259679ec7p-19, 0x1.a01999e28f45bp-16, 0x1.a01a012a1bd56p-13,
        0x1.6c16c184389fbp-10, 0x1.1111111127ceap-7, 0x1.555555555083fp-5, 0x1.55555555554f9p-3,
        0x1.000000000000ap-1, 1, 1,
    };
    double sum = 0x1.ad7f6c74e4e49p-26;
    for (int n = 0; n < 11; n++) sum = sum * r + terms[n];
    return sum * pd_power((int32_t)whole.word.low);
}

static inline float pd_exp_f32(float x) {
    if (!(__builtin_fabsf(x) < 200)) return x > 0 ? __builtin_inff() : x < 0 ? 0 : x;
    pd_bits whole = {x * 0x1.71547652b82fep+0 + 0x1.8p52};
    double r = x - (whole.number - 0x1.8p52) * 0x1.62e42fefa39efp-1;
    double sum = 0x1.6ab9475589695p-10;
    sum = sum * r + 0x1.126d64812e870p-7;
    sum = sum * r + 0x1.55589bc1f7887p-5;
    sum = sum * r + 0x1.555409d5f7b2bp-3;
    sum = sum * r + 0x1.fffffaab7a258p-2;
    sum = sum * r + 0x1.0000009c77bc5p+0;
    sum = sum * r + 0x1.0000000263a9ep+0;
    return (float)(sum * pd_power((int32_t)whole.word.low));
}
#endif
