/* IEEE 754 arithmetic on bit patterns, one set of functions for f16, f32 and f64.
 *
 * A number is unpacked to sign, exponent and a 64-bit significand with its leading one in bit 63;
 * the exact result is formed in 64 or 128 bits with everything below ored into the lowest bit
 * ("sticky"), and rounded once by round_pack. NaN results are canonical, as RISC-V wants them.
 */
#ifndef SOFTFLOAT_H
#define SOFTFLOAT_H

#include "types.h"

/* A format is a constant at each call: inlined, its widths are constants too. */
#define INLINE inline __attribute__((always_inline))

enum { RNE, RTZ, RDN, RUP, RMM, DYN = 7 };
enum { FLAG_NX = 1, FLAG_UF = 2, FLAG_OF = 4, FLAG_DZ = 8, FLAG_NV = 16 };
enum { FMT_S, FMT_D, FMT_H };

typedef struct Format {
    int width, exponent, mantissa, bias;
} Format;

static const Format FORMATS[3] = {{32, 8, 23, 127}, {64, 11, 52, 1023}, {16, 5, 10, 15}};

enum { CLASS_ZERO, CLASS_FINITE, CLASS_INF, CLASS_NAN };

typedef struct Unpacked {
    u64 sig; /* leading one in bit 63; value = sig / 2^63 * 2^exp */
    int exp;
    u8 sign, class, signalling;
} Unpacked;

static inline u64 low_mask(int bits) { return bits >= 64 ? ~0ull : (1ull << bits) - 1; }

static inline u64 canonical_nan(Format f) {
    return (low_mask(f.exponent) << f.mantissa) | 1ull << (f.mantissa - 1);
}

static inline u64 infinity(Format f, int sign) {
    return (u64)sign << (f.width - 1) | low_mask(f.exponent) << f.mantissa;
}

static inline u64 zero(Format f, int sign) { return (u64)sign << (f.width - 1); }

static INLINE Unpacked unpack(Format f, u64 bits) {
    Unpacked u = {0};
    u64 man = bits & low_mask(f.mantissa);
    int exp = bits >> f.mantissa & low_mask(f.exponent);
    u.sign = bits >> (f.width - 1) & 1;
    if (exp == (int)low_mask(f.exponent)) {
        u.class = man ? CLASS_NAN : CLASS_INF;
        u.signalling = man && !(man >> (f.mantissa - 1));
    } else if (exp) {
        u.class = CLASS_FINITE;
        u.sig = (1ull << f.mantissa | man) << (63 - f.mantissa);
        u.exp = exp - f.bias;
    } else if (man) {
        int shift = __builtin_clzll(man);
        u.class = CLASS_FINITE;
        u.sig = man << shift;
        u.exp = 1 - f.bias - (shift - (63 - f.mantissa));
    }
    return u;
}

static inline u64 shift_right_sticky(u64 value, int by) {
    if (by <= 0) return value;
    if (by > 63) return value != 0;
    return value >> by | ((value & low_mask(by)) != 0);
}

static inline u128 shift_right_sticky128(u128 value, int by) {
    if (by <= 0) return value;
    if (by > 127) return value != 0;
    return value >> by | ((value & (((u128)1 << by) - 1)) != 0);
}

/* The increment by rounding of a magnitude whose dropped part is `rest` out of 2 * `half`. */
static INLINE int round_up(int rm, int sign, u64 rest, u64 half, int odd) {
    switch (rm) {
    case RNE: return rest > half || (rest == half && odd);
    case RTZ: return 0;
    case RDN: return sign && rest;
    case RUP: return !sign && rest;
    default: return rest >= half;
    }
}

/* Round a normalised significand. Underflow is judged on the rounded result, as this unit does. */
static INLINE u64 round_pack(Format f, int sign, int exp, u64 sig, int rm, int *flags) {
    int drop = 63 - f.mantissa, biased = exp + f.bias;
    if (biased <= 0) {
        sig = shift_right_sticky(sig, 1 - biased);
        biased = 1; /* the leading one, if rounding makes it, becomes the exponent */
    }
    u64 rest = sig & low_mask(drop), kept = sig >> drop;
    u64 result = ((u64)(biased - 1) << f.mantissa) + kept;
    result += round_up(rm, sign, rest, 1ull << (drop - 1), kept & 1);
    if (rest) *flags |= FLAG_NX;
    if (rest && !(result >> f.mantissa)) *flags |= FLAG_UF;
    if (result >> f.mantissa >= low_mask(f.exponent)) {
        u64 largest = (low_mask(f.exponent) << f.mantissa) - 1;
        int to_infinity = rm == RNE || rm == RMM || (rm == RUP && !sign) || (rm == RDN && sign);
        *flags |= FLAG_OF | FLAG_NX;
        result = largest + (u64)to_infinity;
    }
    return (u64)sign << (f.width - 1) | result;
}

static INLINE u64 round_pack128(Format f, int sign, int exp, u128 sig, int rm, int *flags) {
    /* `sig` / 2^127 * 2^exp, not normalised, not zero. */
    u64 high = (u64)(sig >> 64);
    int shift = high ? __builtin_clzll(high) : 64 + __builtin_clzll((u64)sig);
    sig <<= shift;
    return round_pack(f, sign, exp - shift, (u64)(sig >> 64) | ((u64)sig != 0), rm, flags);
}

static inline u64 nan_result(Format f, int invalid, int *flags) {
    if (invalid) *flags |= FLAG_NV;
    return canonical_nan(f);
}

static inline int exact_zero_sign(int rm, int sign_a, int sign_b) {
    return sign_a == sign_b ? sign_a : rm == RDN;
}

static INLINE u64 fp_add(Format f, u64 a_bits, u64 b_bits, int rm, int *flags) {
    Unpacked a = unpack(f, a_bits), b = unpack(f, b_bits);
    if (a.class == CLASS_NAN || b.class == CLASS_NAN)
        return nan_result(f, a.signalling | b.signalling, flags);
    if (a.class == CLASS_INF || b.class == CLASS_INF) {
        if (a.class == b.class && a.sign != b.sign) return nan_result(f, 1, flags);
        return a.class == CLASS_INF ? a_bits : b_bits;
    }
    if (a.class == CLASS_ZERO && b.class == CLASS_ZERO)
        return zero(f, exact_zero_sign(rm, a.sign, b.sign));
    if (a.class == CLASS_ZERO) return b_bits;
    if (b.class == CLASS_ZERO) return a_bits;
    if (b.exp > a.exp || (b.exp == a.exp && b.sig > a.sig)) {
        Unpacked t = a;
        a = b, b = t;
    }
    /* Two bits of headroom; the significands have at most 53 bits, so nothing of `a` is lost. */
    u64 big = a.sig >> 2, small = shift_right_sticky(b.sig >> 2, a.exp - b.exp);
    u64 sum = a.sign == b.sign ? big + small : big - small;
    if (!sum) return zero(f, rm == RDN);
    int shift = __builtin_clzll(sum);
    return round_pack(f, a.sign, a.exp + 2 - shift, sum << shift, rm, flags);
}

static INLINE u64 fp_mul(Format f, u64 a_bits, u64 b_bits, int rm, int *flags) {
    Unpacked a = unpack(f, a_bits), b = unpack(f, b_bits);
    int sign = a.sign ^ b.sign;
    if (a.class == CLASS_NAN || b.class == CLASS_NAN)
        return nan_result(f, a.signalling | b.signalling, flags);
    if (a.class == CLASS_INF || b.class == CLASS_INF) {
        if (a.class == CLASS_ZERO || b.class == CLASS_ZERO) return nan_result(f, 1, flags);
        return infinity(f, sign);
    }
    if (a.class == CLASS_ZERO || b.class == CLASS_ZERO) return zero(f, sign);
    return round_pack128(f, sign, a.exp + b.exp + 1, (u128)a.sig * b.sig, rm, flags);
}

/* (-1)^negate_product * a * b + (-1)^negate_c * c, rounded once. */
static INLINE u64 fp_fma(Format f, u64 a_bits, u64 b_bits, u64 c_bits, int negate_product, int negate_c,
                         int rm, int *flags) {
    Unpacked a = unpack(f, a_bits), b = unpack(f, b_bits), c = unpack(f, c_bits);
    int sign = a.sign ^ b.sign ^ negate_product;
    c.sign ^= negate_c;
    if ((a.class == CLASS_INF && b.class == CLASS_ZERO) || (a.class == CLASS_ZERO && b.class == CLASS_INF))
        return nan_result(f, 1, flags); /* whatever c is, even a quiet NaN */
    if (a.class == CLASS_NAN || b.class == CLASS_NAN || c.class == CLASS_NAN)
        return nan_result(f, a.signalling | b.signalling | c.signalling, flags);
    if (a.class == CLASS_INF || b.class == CLASS_INF) {
        if (c.class == CLASS_INF && c.sign != sign) return nan_result(f, 1, flags);
        return infinity(f, sign);
    }
    if (c.class == CLASS_INF) return infinity(f, c.sign);
    if (a.class == CLASS_ZERO || b.class == CLASS_ZERO) {
        if (c.class == CLASS_ZERO) return zero(f, exact_zero_sign(rm, sign, c.sign));
        return c_bits ^ zero(f, negate_c);
    }
    /* 53-bit significands with the leading one in bit 60: the product's is in bit 120 or 121, its
     * lowest in bit 16, so aligning either term loses bits only where the other dominates. */
    u128 product = (u128)(a.sig >> 3) * (b.sig >> 3);
    int exp = a.exp + b.exp;
    if (c.class == CLASS_ZERO) return round_pack128(f, sign, exp + 7, product, rm, flags);
    u128 addend = (u128)(c.sig >> 3) << 60;
    if (exp >= c.exp) {
        addend = shift_right_sticky128(addend, exp - c.exp);
    } else {
        product = shift_right_sticky128(product, c.exp - exp);
        exp = c.exp;
    }
    u128 sum = product + addend;
    if (sign != c.sign) {
        if (product == addend) return zero(f, rm == RDN);
        sum = product > addend ? product - addend : addend - product;
        if (product < addend) sign = c.sign;
    }
    return round_pack128(f, sign, exp + 7, sum, rm, flags);
}

static INLINE u64 fp_sign_inject(Format f, u64 a, u64 b, int mode) {
    u64 bit = 1ull << (f.width - 1);
    u64 sign = mode == 0 ? b : mode == 1 ? ~b : a ^ b;
    return (a & ~bit & low_mask(f.width)) | (sign & bit);
}

/* a < b for numbers that are not NaN; -0 is below +0 here. */
static INLINE int smaller(Format f, u64 a, u64 b) {
    int signs = (int)((a | b) >> (f.width - 1) & 1);
    return (a < b) ^ signs;
}

static INLINE u64 fp_minmax(Format f, u64 a, u64 b, int maximum, int *flags) {
    Unpacked ua = unpack(f, a), ub = unpack(f, b);
    if (ua.signalling | ub.signalling) *flags |= FLAG_NV;
    if (ua.class == CLASS_NAN) return ub.class == CLASS_NAN ? canonical_nan(f) : b;
    if (ub.class == CLASS_NAN) return a;
    return smaller(f, a, b) != maximum ? a : b;
}

enum { CMP_LE, CMP_LT, CMP_EQ };

/* `negate` inverts the answer, unless a NaN makes the comparison invalid. */
static INLINE int fp_compare(Format f, u64 a, u64 b, int how, int negate, int *flags) {
    Unpacked ua = unpack(f, a), ub = unpack(f, b);
    int nan = ua.class == CLASS_NAN || ub.class == CLASS_NAN;
    if ((ua.signalling | ub.signalling) || (nan && how != CMP_EQ)) {
        *flags |= FLAG_NV;
        return 0;
    }
    if (nan) return negate;
    int equal = a == b || (ua.class == CLASS_ZERO && ub.class == CLASS_ZERO);
    int less = smaller(f, a, b);
    int answer = how == CMP_EQ ? equal : how == CMP_LT ? less && !equal : less || equal;
    return answer ^ negate;
}

static INLINE u32 fp_classify(Format f, u64 a) {
    Unpacked u = unpack(f, a);
    if (u.class == CLASS_NAN) return u.signalling ? 1 << 8 : 1 << 9;
    if (u.class == CLASS_INF) return u.sign ? 1 << 0 : 1 << 7;
    if (u.class == CLASS_ZERO) return u.sign ? 1 << 3 : 1 << 4;
    int normal = (a >> f.mantissa & low_mask(f.exponent)) != 0;
    if (normal) return u.sign ? 1 << 1 : 1 << 6;
    return u.sign ? 1 << 2 : 1 << 5;
}

static INLINE u64 fp_convert(Format from, Format to, u64 a, int rm, int *flags) {
    Unpacked u = unpack(from, a);
    if (u.class == CLASS_NAN) return nan_result(to, u.signalling, flags);
    if (u.class == CLASS_INF) return infinity(to, u.sign);
    if (u.class == CLASS_ZERO) return zero(to, u.sign);
    return round_pack(to, u.sign, u.exp, u.sig, rm, flags);
}

static INLINE u64 fp_from_int(Format to, u32 bits, int is_unsigned, int rm, int *flags) {
    int sign = !is_unsigned && (i32)bits < 0;
    u64 magnitude = sign ? (u32)(0u - bits) : bits;
    if (!magnitude) return 0;
    int shift = __builtin_clzll(magnitude);
    return round_pack(to, sign, 63 - shift, magnitude << shift, rm, flags);
}

/* Saturates; only the invalid flag is raised then. */
static INLINE u32 fp_to_int(Format from, u64 a, int is_unsigned, int rm, int *flags) {
    Unpacked u = unpack(from, a);
    u32 most = is_unsigned ? ~0u : 0x7fffffffu, least = is_unsigned ? 0 : 0x80000000u;
    if (u.class == CLASS_ZERO) return 0;
    int negative = u.sign && u.class != CLASS_NAN;
    u64 magnitude = ~0ull;
    int inexact = 0;
    if (u.class == CLASS_FINITE && u.exp < 33) {
        /* Integer part above bit 30, half below it. */
        u64 scaled = shift_right_sticky(u.sig, 33 - u.exp);
        u64 rest = scaled & low_mask(30);
        magnitude = (scaled >> 30) + (u64)round_up(rm, negative, rest, 1ull << 29, scaled >> 30 & 1);
        inexact = rest != 0;
    }
    u64 limit = negative ? (is_unsigned ? 0 : 0x80000000ull) : most;
    if (magnitude > limit) {
        *flags |= FLAG_NV;
        return negative ? least : most;
    }
    if (inexact) *flags |= FLAG_NX;
    return negative ? 0u - (u32)magnitude : (u32)magnitude;
}

#endif
