/* Sums and products in an unknown order.
 *
 * In any order, each intermediate result is the sum (the product) of some of the terms. So, apart from one rounding
 * for each term, it is at most `up`, the sum of the positive upper ends of the terms (the product of the largest
 * magnitudes above 1), and at least `down`, the same for the negative lower ends (the smallest magnitudes below 1).
 * If these stay in range, no order overflows or underflows. If they do not, an order that begins with
 * these very terms may. It gives NaN if the terms of the other sign (on the other side of 1) may reach the opposite
 * infinity (zero).
 *
 * Included by reference_bounded.h, once for each float dtype, with OUTCOMES.
 */

/* The interval from the least to the largest F that it may be, infinities included; zero if it is NaN. */
static inline N(interval) N(reach)(NUM a)
{
    if (!a.far && N(finite_)(a.v) && IN_RANGE(a.v, a.e)) return (N(interval)){a.v - a.e, a.v + a.e};
    N(interval) found = {INFINITY, -INFINITY}, given[5];
    int count = N(intervals)(a, given);
    for (int k = 0; k < count; k++) {
        if (given[k].lo != given[k].lo || given[k].hi != given[k].hi) continue;
        int endless = N(endless)(given[k]);
        W lo = endless ? given[k].lo : WIDE_(fmin)(WIDE_(fmax)(given[k].lo, -F_MAX), F_MAX);
        W hi = endless ? given[k].hi : WIDE_(fmax)(WIDE_(fmin)(given[k].hi, F_MAX), -F_MAX);
        found.lo = WIDE_(fmin)(found.lo, lo), found.hi = WIDE_(fmax)(found.hi, hi);
    }
    return found.lo <= found.hi ? found : (N(interval)){0, 0};
}

/* True if it is an infinity or NaN in any case. */
static inline int N(never_finite)(NUM a) { return !N(finite_)(a.v) && a.e == 0 && !(a.far & ~NO_NUMBER); }
/* True if it is zero or NaN in any case. */
static inline int N(ever_zero)(NUM a) { return a.v == 0 && a.e == 0 && !(a.far & ~NO_NUMBER); }

/* x: a + b in the order of the program. */
static inline NUM N(sum_in_any_order)(NUM x, NUM a, NUM b, W terms)
{
    N(interval) reach = N(reach)(b);
    W grown = 1 + 1.01 * U * terms;
    x.up = a.up + N(max_d)(reach.hi, 0), x.down = a.down + N(min_d)(reach.lo, 0);
    if (x.far & BETWEEN) {
        W moved = 1.01 * U * terms * WIDE_(fmin)(WIDE_(fmax)(-reach.lo, reach.hi), F_MAX);
        x.lo -= moved, x.hi += moved;
    }
    int plus = x.up * grown > F_MAX, minus = x.down * grown < -F_MAX;
    int none = plus && minus ? NO_NUMBER : 0;
    int kept = N(never_finite)(a), added = N(never_finite)(b);
    if (!kept && !added) {
        x.far |= none | (plus ? PLUS : 0) | (minus ? MINUS : 0);
        return x;
    }
    /* An infinite term stays in the sum, and becomes NaN at most. */
    W infinite = kept ? a.v : b.v;
    x.e = 0, x.far = none | ((a.far | b.far) & NO_NUMBER);
    if (x.v != x.v && infinite == infinite && kept != added) x.v = infinite, x.far |= NO_NUMBER;
    return x;
}

static inline NUM N(first_term)(NUM a, W terms)
{
    NUM none = {.v = 0};
    return N(sum_in_any_order)(a, none, a, terms);
}

/* x: a * b in the order of the program. */
static inline NUM N(product_in_any_order)(NUM x, NUM a, NUM b, W factors)
{
    N(interval) reach = N(reach)(b);
    W largest = WIDE_(fmax)(-reach.lo, reach.hi), grown = 1 + 1.01 * U * factors;
    W least = N(holds_zero)(reach) ? 0 : WIDE_(fmin)(WIDE_(fabs)(reach.lo), WIDE_(fabs)(reach.hi));
    x.up = a.up * WIDE_(fmax)(largest, 1), x.down = a.down * WIDE_(fmin)(least, 1);
    x.open = a.open | (reach.lo < 0 && reach.hi > 0);
    int over = x.up * grown > F_MAX, under = x.down < grown * (ETA / U);
    if (!over && !under) return x;
    /* A denormal number may round to zero later; from which magnitude on is not known. */
    int none = (over && under) || x.v != x.v ? NO_NUMBER : 0, signs = PLUS | MINUS;
    int nothing = N(ever_zero)(a) || N(ever_zero)(b), endless = N(never_finite)(a) || N(never_finite)(b);
    if (nothing || endless) {
        /* A factor that is zero or infinite stays so, and becomes NaN at most. */
        int nan = (N(never_finite)(a) && a.v != a.v) || (N(never_finite)(b) && b.v != b.v);
        int sign = nothing || nan ? 0 : x.open || x.v != x.v ? signs : 0;
        x.far = none | sign | ((a.far | b.far) & NO_NUMBER);
        x.e = 0;
        if (!endless) x.v = 0;
        return x;
    }
    if (!x.open) signs = signbit(x.v) ? MINUS : PLUS;
    x.far |= none;
    if (over) x.far |= signs;
    if (x.v == x.v) x.far &= signs | NO_NUMBER | BETWEEN;
    if (!N(finite_)(x.v) && x.down < 1) {
        /* Beyond W: the product of some factors with the others is not known. */
        x.lo = -W_MAX, x.hi = W_MAX, x.far |= BETWEEN;
        return x;
    }
    if (under) {
        W moved = factors * ETA * x.up;
        if (N(finite_)(x.v)) x.e += moved;
        if (x.far & BETWEEN) x.lo = WIDE_(fmax)(x.lo - moved, -W_MAX), x.hi = WIDE_(fmin)(x.hi + moved, W_MAX);
    }
    return x;
}

static inline NUM N(first_factor)(NUM a)
{
    NUM one = {.v = 1, .up = 1, .down = 1};
    return N(product_in_any_order)(a, one, a, 1);
}
