/* One float dtype of a reference program; included once for each.
 *
 * A number holds the value in a wider type and a bound on the distance between the exact value and what any
 * legal compilation may compute. With OUTCOMES it also holds the other possible results if an intermediate result
 * overflows (reference_outcomes.h), and the bound stays the one without overflow; without OUTCOMES such a number has
 * an infinite bound.
 * Before inclusion: OUTCOMES, NAN_MAY_DIFFER, RECIPROCALS (1 if x/y may be x*(1/y)), UNROUNDED (1 if sums,
 * products, quotients and roots that need no rounding add nothing to the bound), DTYPE, F (its C type), FITS(v)
 * (true for its numbers), W (the wider type), WIDE_(f) (the name of a function of math.h for it), F_MAX, W_MAX,
 * U (half a unit in the last place, relative), ETA (half the smallest denormal), EXACT_INTEGERS, E (the type that
 * holds a bound), BITS (an unsigned type of its size), the error in ulp of the functions below (EXP_ULP, LOG_ULP ...), and
 * the rows of the table of operations that are written in C, with their error in ulp: MONOTONE_FUNCTIONS(X), WITHIN_AN_INTERVAL(X), and,
 * with a bound in C on their change when operands change, MOVING_OF_ONE(X) and MOVING_OF_TWO(X).
 */
#define N(name) PASTE(name, DTYPE)
#define NUM N(num)

#define EXTREME(name, better) \
    static inline W name(W a, W b) { return a != a ? a : b != b ? b : a better b ? a : b; }
static inline int N(finite_)(W x) { return WIDE_(fabs)(x) <= W_MAX; }
EXTREME(N(max_d), >) EXTREME(N(min_d), <)
#undef EXTREME

#if OUTCOMES
/* Of a sum or product in the making, `up` and `down` bound what some of its terms may come to, alone; `open`: the
   sign of a factor is not known. */
typedef struct { W v, e, lo, hi, up, down; int far, open; } NUM;
#include "reference_outcomes.h"
static inline NUM N(load)(W v, W e, W lo, W hi, int far)
{
    return (NUM){.v = v, .e = e, .lo = lo, .hi = hi, .far = far};
}
static inline NUM N(result)(W v, W e, int in_range, int certain, int operation, NUM a, NUM b)
{
    if (in_range && !(a.far | b.far)) return (NUM){.v = v, .e = e};
    return N(unusual)(v, e, certain, operation, a, b);
}
#undef RESULT
#define RESULT N(result)
#else
/* A struct of two numbers of one type would be copied as a whole, which gcc does not do for several at a time. */
typedef struct { W v, e; int far; } NUM;
#include "reference_unknown.h"
static inline NUM N(load)(W v, E e) { return (NUM){v, e, 0}; }
/* Selections without branches, so that a compiler can work on several numbers at a time. */
#undef RESULT
#define RESULT(v, e, in_range, certain, operation, a, b) \
    (NUM){.v = v, .e = (in_range) ? (e) : (certain) ? 0 : (W)INFINITY}
#endif

/* A bound rounded up to the type of a cell. */
static inline E N(upwards)(W exact)
{
    E e = (E)exact;
    BITS bits;
    memcpy(&bits, &e, sizeof e);
    bits += e < exact;
    memcpy(&e, &bits, sizeof e);
    return e;
}

static inline NUM N(literal)(F x) { return (NUM){.v = x}; }

/* True if a computation in F with value v and error e cannot overflow; false for NaN. */
#undef IN_RANGE
#define IN_RANGE(v, e) (WIDE_(fabs)(v) + (e) <= F_MAX)

static inline NUM N(integer)(long x)
{
    NUM found = {.v = x, .e = fabs((double)x) > EXACT_INTEGERS ? U * WIDE_(fabs)(x) : 0};
    return IN_RANGE(found.v, found.e) ? found : N(overflowing)(found);
}

/* e, and the N(rounding) of v by `halves` half units in the last place; `underflow` for one of them. */
static inline W N(rounding)(W v, W e, W halves, W underflow)
{
    return e + (halves * U * (WIDE_(fabs)(v) + e) + halves * underflow);
}

static inline int N(sign_known)(NUM a) { return (WIDE_(fabs)(a.v) > a.e) | (a.e == 0) | (a.v != a.v); }
static inline int N(sized)(NUM a) { return a.e <= F_MAX; }

/* An infinity or a NaN, certain if the arguments' errors cannot change it. */
static inline NUM N(special)(W v, int certain) { return certain ? (NUM){.v = v} : N(anything)(v); }

static inline int N(sum_certain)(NUM a, NUM b)
{
    return N(sized)(a) & N(sized)(b) & !(N(finite_)(a.v) & N(finite_)(b.v));
}

static inline int N(product_certain)(NUM a, NUM b)
{
    int none = (a.v != a.v) | (b.v != b.v);
    return N(sum_certain)(a, b) & (none | (N(sign_known)(a) & N(sign_known)(b)));
}

/* True for a number of F itself. */
static inline int N(representable)(W v) { return UNROUNDED & FITS(v); }

/* A sum of certain numbers is certain if it needs no rounding: it is a number of F, and W has not rounded it. */
static inline int N(unrounded_sum)(W v, NUM a, NUM b)
{
    return (a.e + b.e == 0) & N(representable)(v) & (v - a.v == b.v) & (v - b.v == a.v);
}

/* So is a product, of which W has all digits where it is twice as wide as F. */
static inline int N(unrounded_product)(W v)
{
    return (2 * sizeof(F) <= sizeof(double)) & N(representable)(v);
}

/* The number, if it counts as zero where it is below the normal numbers: then it is off by less than the smallest of
   these. */
static inline NUM N(flushed_below)(NUM a, W limit, W less)
{
    int small = (WIDE_(fabs)(a.v) < limit + a.e) & ((a.v != 0) | (a.e != 0));
    W off = small ? less : 0;
    a.e += off;
#if OUTCOMES
    if (a.far & BETWEEN) a.lo -= less, a.hi += less;
#endif
    return a;
}
static inline NUM N(flushed)(NUM a) { return N(flushed_below)(a, ETA / U, ETA / U); }

/* A sum of few terms, of which a partial sum may have been flushed, and then the sum: larger ones that need no rounding
   have no such partial sums. */
static inline NUM N(flushed_sum)(NUM a) { return N(flushed_below)(a, 4 * (ETA / U / U), 2 * (ETA / U)); }

static inline NUM N(num_add)(NUM a, NUM b)
{
    W v = a.v + b.v, e = N(unrounded_sum)(v, a, b) ? 0 : N(rounding)(v, a.e + b.e, 1, 0);
    return RESULT(v, e, IN_RANGE(v, e), N(sum_certain)(a, b), ADD, a, b);
}

static inline NUM N(num_neg)(NUM a) { return N(turned)(a); }
static inline NUM N(num_abs)(NUM a) { return N(magnitude_of)(a); }
static inline NUM N(num_sub)(NUM a, NUM b) { return N(num_add)(a, N(num_neg)(b)); }

#if OUTCOMES
#include "reference_orders.h"
#endif

/* a + b where b is one of so many terms that are added in an unknown order: each of the roundings
   may meet any partial sum of magnitudes. */
static inline NUM N(num_sum)(NUM a, NUM b, W terms)
{
    W v = a.v + b.v, size = terms * (WIDE_(fabs)(b.v) + b.e);
    W e = a.e + b.e + 1.01 * U * size;
#if OUTCOMES
    NUM x = RESULT(v, e, IN_RANGE(v, e), N(sum_certain)(a, b), ADD, a, b);
    return N(sum_in_any_order)(x, a, b, terms);
#else
    return RESULT(v, e, IN_RANGE(v, e) & (size <= F_MAX), N(sum_certain)(a, b), ADD, a, b);
#endif
}

/* The value that such a sum starts from meets all the roundings as well. */
static inline NUM N(num_anchor)(NUM a, W terms)
{
    W size = terms * (WIDE_(fabs)(a.v) + a.e);
#if OUTCOMES
    if (N(finite_)(a.v)) a.e += 1.01 * U * size;
    return N(first_term)(a, terms);
#else
    if (N(finite_)(a.v)) a.e = size <= F_MAX ? a.e + 1.01 * U * size : INFINITY;
    return a;
#endif
}

/* What rounding may add to a product or quotient v with error e that is denormal; nothing to an exact zero of
   known sign, which W does not make of anything else. */
static inline W N(underflow)(W v, W e, int signs_known)
{
    return (v != 0) | (e != 0) | !signs_known ? ETA : 0;
}

/* a * b; `rounded`: its rounding counts even if these operands need none. */
static inline NUM N(product)(NUM a, NUM b, int rounded)
{
    W v = a.v * b.v, passed = WIDE_(fabs)(a.v) * b.e + WIDE_(fabs)(b.v) * a.e + a.e * b.e;
    W e = N(rounding)(v, passed, 1, N(underflow)(v, passed, N(sign_known)(a) & N(sign_known)(b)));
    e = !rounded & (a.e + b.e == 0) & N(unrounded_product)(v) ? 0 : e;
    return RESULT(v, e, IN_RANGE(v, e), N(product_certain)(a, b), MUL, a, b);
}

static inline NUM N(num_mul)(NUM a, NUM b) { return N(product)(a, b, 0); }

/* The product of two inputs or constants, the commonest by far. */
static inline NUM N(num_mul_exact)(NUM a, NUM b)
{
    W v = a.v * b.v, e = N(unrounded_product)(v) ? 0 : N(rounding)(v, 0, 1, N(underflow)(v, 0, 1));
    return RESULT(v, e, IN_RANGE(v, e), N(product_certain)(a, b), MUL, a, b);
}

#if OUTCOMES
/* a * b where b is one of so many factors in an unknown order. */
static inline NUM N(num_product)(NUM a, NUM b, W factors)
{
    return N(product_in_any_order)(N(product)(a, b, 1), a, b, factors);
}
static inline NUM N(num_first)(NUM a) { return N(first_factor)(a); }
#endif

static inline int N(quotient_certain)(NUM a, NUM b)
{
    int exact = !N(finite_)(a.v) | !N(finite_)(b.v) | ((b.v == 0) & (a.v == 0));
    int none = (a.v != a.v) | (b.v != b.v), told = (b.v != 0) | (a.v == 0);
    return exact & N(sized)(a) & N(sized)(b) & (none | (told & N(sign_known)(a) & N(sign_known)(b)));
}

/* A reciprocal is rounded, too, and may be denormal; a little more, since the two roundings combine. */
#undef ROUNDINGS_OF_DIV
#define ROUNDINGS_OF_DIV (RECIPROCALS ? 2 + 2 * U : 1)

/* True for the quotient of numbers of F that is one, too; with RECIPROCALS the divisor is a power of two. */
static inline int N(unrounded_quotient)(W v, W a, W b)
{
    int by_power = !RECIPROCALS | (N(representable)(1 / b) & (1 / b * b == 1));
    return N(unrounded_product)(v) & (v * b == a) & by_power;
}

/* A quotient by zero is infinite with either sign, since the language does not determine the sign of the zero. */
static inline NUM N(num_div)(NUM a, NUM b)
{
    W v = a.v / b.v, passed = (a.e + WIDE_(fabs)(v) * b.e) / (WIDE_(fabs)(b.v) - b.e);
    W e = N(rounding)(v, passed, ROUNDINGS_OF_DIV, N(underflow)(v, passed, N(sign_known)(a) & N(sign_known)(b)));
    if (RECIPROCALS) e += (WIDE_(fabs)(a.v) + a.e) * ETA;
    e = (a.e + b.e == 0) & N(unrounded_quotient)(v, a.v, b.v) ? 0 : e;
    int nonzero = WIDE_(fabs)(b.v) > b.e;
#if OUTCOMES
    if (N(finite_)(b.v) && !nonzero) return N(over_zero)(v, a, b);
#endif
    return RESULT(v, e, IN_RANGE(v, e) & nonzero, N(quotient_certain)(a, b), DIV, a, b);
}

RARE NUM N(far_extreme)(NUM a, NUM b, W v)
{
    if (!N(finite_)(v)) return N(special)(v, N(sized)(a) && N(sized)(b));
    /* An infinity on the losing side brings no error. */
    return (NUM){.v = v, .e = !N(finite_)(a.v) ? b.e : !N(finite_)(b.v) ? a.e : WIDE_(fmax)(a.e, b.e)};
}

/* Both extremes are Lipschitz: the larger of the two errors passes. */
static inline NUM N(extreme)(NUM a, NUM b, W v, int operation)
{
    int in_range = IN_RANGE(a.v, a.e) && IN_RANGE(b.v, b.e);
    NUM x = in_range ? (NUM){.v = v, .e = a.e > b.e ? a.e : b.e} : N(far_extreme)(a, b, v);
    return N(with_others)(x, operation, a, b);
}

static inline NUM N(num_max)(NUM a, NUM b) { return N(extreme)(a, b, N(max_d)(a.v, b.v), MAX); }
static inline NUM N(num_min)(NUM a, NUM b) { return N(extreme)(a, b, N(min_d)(a.v, b.v), MIN); }

/* The root of a number that may be negative, since its error is larger than its value. */
RARE NUM N(root_near_zero)(NUM a, W v)
{
    if (a.v + a.e < 0) return N(special)(v, 1);
    return N(maybe_none)((NUM){.v = a.v > 0 ? v : 0, .e = WIDE_(sqrt)(a.v + a.e)});
}

static inline NUM N(num_sqrt)(NUM a)
{
    W v = WIDE_(sqrt)(a.v), e = a.e > 0 ? a.e / (v + WIDE_(sqrt)(a.v - a.e)) : 0;
    NUM x = {.v = v, .e = (a.e == 0) & N(unrounded_product)(v) & (v * v == a.v) ? 0 : N(rounding)(v, e, 1, 0)};
    if (!N(finite_)(a.v)) x = N(special)(v, N(sized)(a));
    else if (a.v - a.e < 0) x = N(root_near_zero)(a, v);
    return N(with_others_of)(x, a, WIDE_(sqrt), 0, 1);
}

#define EXPONENTIAL(name, ulps) \
    static inline NUM N(num_##name)(NUM a) \
    { \
        W v = WIDE_(name)(a.v); \
        /* It is convex: the larger distance is the upper one. */ \
        NUM x = {.v = v, .e = N(rounding)(v, a.e > 0 ? WIDE_(name)(a.v + a.e) - v : 0, 2 * (ulps), ETA)}; \
        if (!N(finite_)(a.v)) x = N(special)(v, N(sized)(a)); \
        else if (!IN_RANGE(v, x.e)) x = N(positive)(N(overflowing)(x)); \
        x = N(beyond_wide)(x, a, v, WIDE_(name), 2 * (ulps)); \
        return N(with_others_of)(x, a, WIDE_(name), -INFINITY, 2 * (ulps)); \
    }

/* Beyond W: the results of an argument whose error keeps it within F. */
static inline NUM N(beyond_wide)(NUM x, NUM a, W v, W (*function)(W), W halves)
{
#if OUTCOMES
    if (N(finite_)(a.v) && !N(finite_)(v)) {
        N(others) found = {0, 0, x.far};
        N(admit)(&found, function(a.v - a.e), v, halves);
        x.lo = found.lo, x.hi = found.hi, x.far = found.far;
    }
#else
    (void)a; (void)v; (void)function; (void)halves;
#endif
    return x;
}

EXPONENTIAL(exp, EXP_ULP)
EXPONENTIAL(exp2, EXP2_ULP)
#undef EXPONENTIAL

/* If a move may change which inputs give NaN, nothing is certain about results computed from them. */
static inline int N(lost)(NUM a) { return (NAN_MAY_DIFFER && !N(finite_)(a.v)) || !N(plain)(a); }

/* The result of the comparison is certain if the errors cannot change it. */
static inline int N(within_errors)(NUM a, NUM b)
{
    W errors = a.e + b.e;
    return errors > 0 && !(WIDE_(fabs)(a.v - b.v) > errors);
}
static inline int N(near)(NUM a, NUM b) { return N(lost)(a) || N(lost)(b) || N(within_errors)(a, b); }

#define COMPARE(name, sign) \
    static inline whole N(num_##name)(NUM a, NUM b) { return unsure_if(a.v sign b.v, N(near)(a, b)); } \
    /* Of values that no move changes: verify/chosen.py. */ \
    static inline whole N(num_##name##_chosen)(NUM a, NUM b) \
    { \
        return unsure_if(a.v sign b.v, !N(plain)(a) || !N(plain)(b) || N(within_errors)(a, b)); \
    }
COMPARE(lt, <) COMPARE(le, <=) COMPARE(gt, >) COMPARE(ge, >=) COMPARE(eq, ==) COMPARE(ne, !=)
#undef COMPARE

/* If the condition is uncertain, the result may be either value. */
static inline NUM N(num_select)(whole where, NUM a, NUM b)
{
    NUM chosen = where.v ? a : b;
    return where.unsure ? N(either)(chosen, where.v ? b : a) : chosen;
}

static inline NUM N(perhaps)(NUM x, int unsure)
{
    if (!unsure) return x;
    x.e = INFINITY;
    return F_MAX < 0x1p64 ? N(overflowing)(x) : x;
}

static inline NUM N(from_whole)(whole a) { return N(perhaps)(N(integer)(a.v), a.unsure); }

static inline NUM N(from_word)(whole a)
{
    W v = (uint64_t)a.v;
    NUM x = {.v = v, .e = v > EXACT_INTEGERS ? U * v : 0};
    return N(perhaps)(IN_RANGE(x.v, x.e) ? x : N(overflowing)(x), a.unsure);
}

/* Monotone functions: the values at the ends of the argument's range bound the error. */
static inline NUM N(monotone)(NUM a, W v, W low, W high, W ulps)
{
    /* At an infinity, exact but for a value that is no number of F: of an arc tangent. */
    if (!N(finite_)(a.v)) {
        NUM x = N(special)(v, N(sized)(a));
        if (N(finite_)(v) && (W)(F)v != v) x.e = N(rounding)(v, x.e, 2 * ulps, ETA);
        return x;
    }
    if (!N(finite_)(v)) return N(special)(v, !N(finite_)(low) && !N(finite_)(high));
    W below = WIDE_(fabs)(v - low), above = WIDE_(fabs)(high - v);
    NUM x = {.v = v, .e = N(rounding)(v, above > below ? above : below, 2 * ulps, ulps > 0 ? ETA : 0)};
    return IN_RANGE(v, x.e) ? x : N(overflowing)(x);
}

#define MONOTONE(name, value, ulps) \
    static inline W N(value_##name)(W a) { return value; } \
    static inline NUM N(num_##name)(NUM a) \
    { \
        W low = N(value_##name)(a.v - a.e), high = N(value_##name)(a.v + a.e); \
        NUM x = N(monotone)(a, N(value_##name)(a.v), low, high, ulps); \
        return N(with_others_of)(x, a, N(value_##name), -INFINITY, 2 * (ulps)); \
    }
MONOTONE_FUNCTIONS(MONOTONE)
#undef MONOTONE

#define WITHIN(name, value, ulps) \
    static inline W N(value_##name)(W a) { return value; } \
    static inline NUM N(num_##name)(NUM a) \
    { \
        W v = N(value_##name)(a.v), low = N(value_##name)(a.v - a.e), high = N(value_##name)(a.v + a.e); \
        int told = N(plain)(a); \
        if (!told || low != low || high != high) return N(special)(v, told && a.e == 0); \
        return N(monotone)(a, v, low, high, ulps); \
    }
WITHIN_AN_INTERVAL(WITHIN)
#undef WITHIN

/* Functions with a known bound on their change when operands change. */
static inline NUM N(moving)(W v, W moved, W ulps, int ordinary, int certain)
{
    if (!ordinary || !N(finite_)(v)) return N(special)(v, certain);
    NUM x = {.v = v, .e = N(rounding)(v, moved, 2 * ulps, ulps > 0 ? ETA : 0)};
    return IN_RANGE(v, x.e) ? x : N(overflowing)(x);
}

#define MOVING(name, value, moved, ulps) \
    static inline NUM N(num_##name)(NUM x) \
    { \
        W a = x.v, ea = x.e; \
        (void)ea; \
        return N(moving)(value, moved, ulps, N(finite_)(a) && N(plain)(x), ea == 0 && N(plain)(x)); \
    }
MOVING_OF_ONE(MOVING)
#undef MOVING
#define MOVING(name, value, moved, ulps) \
    static inline NUM N(num_##name)(NUM x, NUM y) \
    { \
        W a = x.v, b = y.v, ea = x.e, eb = y.e; \
        int told = N(plain)(x) && N(plain)(y); \
        return N(moving)(value, moved, ulps, told && N(finite_)(a) && N(finite_)(b), told && ea == 0 && eb == 0); \
    }
MOVING_OF_TWO(MOVING)
#undef MOVING

#define LOGARITHM(name, zero, ulps) \
    static inline NUM N(num_##name)(NUM a) \
    { \
        W v = WIDE_(name)(a.v); \
        NUM x; \
        if (a.v - a.e <= (zero)) x = N(special)(v, a.e == 0 || a.v + a.e < (zero)); \
        else x = N(monotone)(a, v, WIDE_(name)(a.v - a.e), WIDE_(name)(a.v + a.e), ulps); \
        return N(with_others_of)(x, a, WIDE_(name), zero, 2 * (ulps)); \
    }
LOGARITHM(log, 0, LOG_ULP)
LOGARITHM(log2, 0, LOG2_ULP)
LOGARITHM(log1p, -1, LOG1P_ULP)
#undef LOGARITHM

/* At zero it is infinite, with the sign of the zero or without. */
static inline NUM N(num_rsqrt)(NUM a)
{
    W v = 1 / WIDE_(sqrt)(a.v);
    if (!N(plain)(a) || (a.e > 0 && !(a.v > a.e))) return N(special)(v, 0);
    if (a.v == 0) return N(over_zero)(v, (NUM){.v = 1}, a);
    if (!(a.v > 0)) return N(special)(v, 1);
    return N(monotone)(a, v, 1 / WIDE_(sqrt)(a.v - a.e), 1 / WIDE_(sqrt)(a.v + a.e), RSQRT_ULP);
}

/* It is monotone in each operand, in one direction or the other, where a is positive. Elsewhere it is known for exact
 * operands only. */
static inline NUM N(num_pow)(NUM a, NUM b)
{
    W v = WIDE_(pow)(a.v, b.v);
    if (!N(plain)(a) || !N(plain)(b)) return N(special)(v, 0);
    if (a.e == 0 && b.e == 0) {
        if (a.v == 0 && !N(finite_)(v)) return N(over_zero)(v, (NUM){.v = 1}, a);
        if (!N(finite_)(a.v) || !N(finite_)(b.v) || !N(finite_)(v)) return N(special)(v, 1);
        NUM x = {.v = v, .e = N(rounding)(v, 0, 2 * (POW_ULP), ETA)};
        return IN_RANGE(v, x.e) ? x : N(overflowing)(x);
    }
    if (!(a.v > a.e) || !N(finite_)(a.v) || !N(finite_)(b.v) || !N(finite_)(v)) return N(special)(v, 0);
    W moved = 0;
    for (int k = 0; k < 4; k++) {
        W corner = WIDE_(pow)(k & 1 ? a.v + a.e : a.v - a.e, k & 2 ? b.v + b.e : b.v - b.e);
        moved = WIDE_(fmax)(moved, WIDE_(fabs)(corner - v));
    }
    NUM x = {.v = v, .e = N(rounding)(v, moved, 2 * (POW_ULP), ETA)};
    return IN_RANGE(v, x.e) ? x : N(overflowing)(x);
}

static inline int64_t N(saturated)(W v, int64_t least, int64_t most)
{
    return v != v ? 0 : v <= least ? least : v >= (W)most ? most : (int64_t)v;
}

/* Saturating; NaN gives 0. `most` may be rounded up, to the power of two after it. */
static inline whole N(to_whole)(NUM a, int64_t least, int64_t most)
{
    int64_t low = N(saturated)(a.v - a.e, least, most), high = N(saturated)(a.v + a.e, least, most);
    int unsure = a.e > 0 && (low != high || a.v != a.v || !(a.e <= F_MAX));
    return unsure_if(N(saturated)(a.v, least, most), unsure || N(lost)(a));
}

static inline uint64_t N(saturated_word)(W v)
{
    return v >= (W)UINT64_MAX ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
}

static inline whole N(to_word)(NUM a)
{
    uint64_t low = N(saturated_word)(a.v - a.e), high = N(saturated_word)(a.v + a.e);
    int unsure = a.e > 0 && (low != high || a.v != a.v || !(a.e <= F_MAX));
    return unsure_if((int64_t)N(saturated_word)(a.v), unsure || N(lost)(a));
}

/* If the errors may change the code, but for the sign of a zero, it is unsure; of a zero of unknown sign it is that
   without the sign. */
static inline whole N(to_code)(NUM a, const code_format *format)
{
    int64_t low = CODE(a.v - a.e, format), high = CODE(a.v + a.e, format), code = CODE(a.v, format);
    if (a.e > 0 && a.v == a.v && !((low | high) & ~format->sign)) low = high = code = 0;
    int unsure = a.e > 0 && (low != high || a.v != a.v || !(a.e <= F_MAX));
    return unsure_if(code, unsure || N(lost)(a));
}

static inline NUM N(from_code)(whole code, const float *numbers)
{
    return N(perhaps)(N(literal)(numbers[code.v]), code.unsure);
}

static inline whole N(to_bool)(NUM a)
{
    return unsure_if(a.v != 0, (a.e > 0 && !(WIDE_(fabs)(a.v) > a.e)) || !N(plain)(a));
}

#undef N
#undef NUM
