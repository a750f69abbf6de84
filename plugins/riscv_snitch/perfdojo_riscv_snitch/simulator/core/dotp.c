/* Sums of three terms as the dot-product unit forms them: x + y + z with one rounding at the end.
 *
 * The unit adds the two terms of largest exponent in 51 bits, then the third in 63, and keeps what
 * falls out below as sticky bits. That is not always the correctly rounded sum, so its widths and
 * its treatment of the sticky bits are followed here step by step.
 */
#include "fpu.h"

enum {
    P = 24, /* bits of a term */
    Q = 11, /* bits of a factor */
    FIRST_BITS = 2 * P + 3,
    SECOND_BITS = 2 * P + Q + 4,
};

typedef struct Term {
    u32 mantissa; /* P bits, not normalised */
    int exp;      /* biased for the result's format */
    u8 sign, zero, inf, nan, signalling;
} Term;

static Term term_of(Format f, u64 bits) {
    Term t = {0};
    Unpacked u = unpack(f, bits);
    int exp = bits >> f.mantissa & low_mask(f.exponent);
    t.mantissa = (u32)((bits & low_mask(f.mantissa)) | (u64)(exp != 0) << f.mantissa) << (P - 1 - f.mantissa);
    t.exp = exp ? exp : 1;
    t.sign = u.sign;
    t.zero = u.class == CLASS_ZERO;
    t.inf = u.class == CLASS_INF;
    t.nan = u.class == CLASS_NAN;
    t.signalling = u.signalling;
    return t;
}

static Term product_of(Format from, Format to, u64 a_bits, u64 b_bits) {
    Term a = term_of(from, a_bits), b = term_of(from, b_bits), t = {0};
    u32 ma = a.mantissa >> (P - Q), mb = b.mantissa >> (P - Q);
    t.mantissa = ma * mb << (P - 2 * Q);
    t.sign = a.sign ^ b.sign;
    t.zero = a.zero || b.zero;
    t.exp = t.zero ? 2 - to.bias : a.exp + b.exp - 2 * from.bias + to.bias + 1;
    t.signalling = a.signalling | b.signalling;
    t.nan = a.nan || b.nan;
    t.inf = a.inf || b.inf;
    if (t.inf && t.zero) t.nan = t.signalling = 1; /* inf * 0 is invalid */
    return t;
}

/* The first addition's result and what the second needs to know of it. */
typedef struct Partial {
    u64 sum;
    int exp;
    bool subtract, carry, sticky, exact_zero, sign;
} Partial;

static Partial add_two(const Term *max, const Term *mid, int rm) {
    Partial w = {0};
    int distance = max->exp - mid->exp;
    int shift = distance < FIRST_BITS ? distance : FIRST_BITS;
    u128 aligned = ((u128)mid->mantissa << FIRST_BITS) >> shift;
    u64 kept = (u64)(aligned >> P);
    w.subtract = max->sign != mid->sign;
    w.sticky = (aligned & low_mask(P)) != 0;
    u64 raw = ((u64)max->mantissa << (P + 3)) + ((w.subtract ? ~kept : kept) & low_mask(FIRST_BITS)) +
              (w.subtract && !w.sticky);
    w.carry = raw >> FIRST_BITS & 1;
    w.sum = (w.subtract && !w.carry ? 0 - raw : raw) & low_mask(FIRST_BITS);
    w.exact_zero = !w.sum && w.carry && !w.sticky && w.subtract;
    w.exp = max->exp + 1;
    if (w.exact_zero)
        w.sign = rm == RDN;
    else
        w.sign = w.subtract ? w.carry == max->sign : max->sign;
    return w;
}

static bool sign_where_all_but_sticky_is_zero(const Term *max, const Term *mid, const Term *min) {
    bool both = max->sign ? mid->sign | min->sign : mid->sign & min->sign;
    if (!max->zero) return max->sign;
    if (mid->zero) return min->zero ? both : min->sign;
    if (min->zero || mid->exp > min->exp || mid->mantissa > min->mantissa) return mid->sign;
    return mid->mantissa == min->mantissa ? both : min->sign;
}

static u64 round_sum(Format f, bool sign, bool cancelled, int exp, u32 mantissa, bool sticky, int rm, int *flags) {
    /* `mantissa` has P + 1 bits: the implicit one, the fraction, the round bit of the widest format. */
    int below = P - 1 - f.mantissa;
    u64 magnitude = (u64)exp << f.mantissa | (mantissa >> (below + 1) & low_mask(f.mantissa));
    bool round = mantissa >> below & 1;
    sticky = sticky || (mantissa & low_mask(below)) != 0;
    bool overflow = exp >= (int)low_mask(f.exponent);
    if (overflow) {
        magnitude = (low_mask(f.exponent) << f.mantissa) - 1;
        round = sticky = true;
    }
    if (!magnitude && !round && !sticky && cancelled) sign = rm == RDN;
    magnitude += (u64)round_up(rm, sign, (u64)round << 1 | sticky, 2, magnitude & 1);
    if (overflow || magnitude >> f.mantissa >= low_mask(f.exponent)) *flags |= FLAG_OF | FLAG_NX;
    if (round || sticky) *flags |= FLAG_NX | (magnitude >> f.mantissa ? 0 : FLAG_UF);
    return (u64)sign << (f.width - 1) | magnitude;
}

static u64 add_third(Format f, const Term *max, const Term *mid, const Term *min, int rm, int *flags) {
    Partial w = add_two(max, mid, rm);
    int distance = w.exp - min->exp;
    int shift = distance < SECOND_BITS ? distance : SECOND_BITS;
    u128 aligned = ((u128)min->mantissa << SECOND_BITS) >> shift;
    u64 kept = (u64)(aligned >> P);
    bool sticky = (aligned & low_mask(P)) != 0;
    /* A first sum of exactly zero must not cost the third term its low bits. */
    bool bypass = w.exact_zero && !min->zero && sticky;
    bool sign = bypass ? min->sign : w.sign;
    bool subtract = min->sign != sign;
    int exp = bypass ? (min->exp > 0 ? min->exp : 0) : w.exp;
    u64 raw;
    if (bypass) {
        raw = (u64)min->mantissa << (P + Q + 4);
        if (min->exp <= 0) raw = 1 - min->exp > 63 ? 0 : raw >> (1 - min->exp);
    } else {
        u64 first = ((u64)(w.carry && !w.subtract) << FIRST_BITS | w.sum) << Q;
        raw = first + ((subtract ? ~kept : kept) & low_mask(SECOND_BITS)) + (subtract && !sticky);
    }
    bool carry = raw >> SECOND_BITS & 1;
    u64 sum = (subtract && !carry ? 0 - raw : raw) & low_mask(SECOND_BITS);
    if (subtract) sign = carry == sign;
    sum |= (u64)(!subtract && carry) << SECOND_BITS;

    int zeros = sum ? __builtin_clzll(sum) : 64, normal_exp;
    if (sum && exp - zeros + 1 > 0) {
        normal_exp = zeros ? exp - zeros + 1 : exp;
        sum <<= zeros ? zeros - 1 : 0;
    } else {
        normal_exp = 0;
        sum <<= exp > 0 ? (exp - 1) & 63 : 0;
    }
    int final_exp = normal_exp;
    if (sum >> 63) {
        sum >>= 1;
        final_exp = normal_exp + 1;
    } else if (!(sum >> 62)) {
        if (normal_exp > 1) sum <<= 1;
        final_exp = normal_exp > 1 ? normal_exp - 1 : 0;
    }
    sum &= low_mask(63);
    int low = P + Q + 3;
    bool tail = (sum & low_mask(low)) != 0;
    bool lost = tail || (sticky && !bypass) || w.sticky;
    if (w.sticky && w.subtract != subtract && !sticky && !tail && !min->zero) lost = false;
    u32 mantissa = (u32)(sum >> low);
    bool nothing_kept = !final_exp && !(mantissa >> (P - f.mantissa) & low_mask(f.mantissa));
    bool something_lost = lost || (mantissa & low_mask(P - f.mantissa)) != 0;
    if (max->zero && nothing_kept && something_lost) sign = sign_where_all_but_sticky_is_zero(max, mid, min);
    return round_sum(f, sign, subtract, final_exp, mantissa, lost, rm, flags);
}

static u64 sum_of_three(Format f, Term x, Term y, Term z, int rm, int *flags) {
    if (x.nan || y.nan || z.nan) return nan_result(f, x.signalling | y.signalling | z.signalling, flags);
    if (x.inf || y.inf || z.inf) {
        bool clash = (x.inf && y.inf && x.sign != y.sign) || (x.inf && z.inf && x.sign != z.sign) ||
                     (y.inf && z.inf && y.sign != z.sign);
        if (clash) return nan_result(f, 1, flags);
        return infinity(f, x.inf ? x.sign : y.inf ? y.sign : z.sign);
    }
    const Term *t[3] = {&x, &y, &z};
    for (int i = 1; i < 3; i++) /* by falling exponent, stable */
        for (int j = i; j && t[j]->exp > t[j - 1]->exp; j--) {
            const Term *swap = t[j];
            t[j] = t[j - 1], t[j - 1] = swap;
        }
    return add_third(f, t[0], t[1], t[2], rm, flags);
}

u64 fp_sum3(Format f, u64 a, u64 b, u64 c, int negate, int rm, int *flags) {
    Term x = term_of(f, a), y = term_of(f, b), z = term_of(f, c);
    x.sign ^= negate, y.sign ^= negate;
    return sum_of_three(f, x, y, z, rm, flags);
}

u64 fp_dot2(Format from, Format to, u64 a, u64 b, u64 c, u64 d, u64 e, int negate, int rm, int *flags) {
    Term x = product_of(from, to, a, b), y = product_of(from, to, c, d), z = term_of(to, e);
    x.sign ^= negate, y.sign ^= negate;
    return sum_of_three(to, x, y, z, rm, flags);
}
