/* The other results that a number may be, besides about its value, after a possible overflow on the way to it.
 *
 * Included by reference_bounded.h, once for each float dtype, after its NUM. `far` says which of the
 * infinities and NaN it may be, and with BETWEEN that it may lie from `lo` to `hi`: the maximum of 0 and of a
 * sum that may have become -inf may be 0. Operations are done on every value that their operands may be; sums,
 * products and extremes are largest and smallest at the ends of intervals.
 */
typedef struct { W lo, hi; int far; } N(others);
typedef struct { W lo, hi; } N(interval);

/* Adds an interval, widened by the rounding of the operation that gave it, and the infinities if it may overflow. */
static inline void N(admit)(N(others) *found, W lo, W hi, W halves)
{
    if (N(finite_)(lo)) lo -= halves * (U * WIDE_(fabs)(lo) + ETA);
    if (N(finite_)(hi)) hi += halves * (U * WIDE_(fabs)(hi) + ETA);
    if (lo != lo || hi != hi) { found->far |= NO_NUMBER; return; }
    if (hi > F_MAX) found->far |= PLUS;
    if (lo < -F_MAX) found->far |= MINUS;
    if (lo > W_MAX || hi < -W_MAX) return;
    int first = !(found->far & BETWEEN);
    lo = WIDE_(fmax)(lo, -W_MAX), hi = WIDE_(fmin)(hi, W_MAX);
    found->lo = first ? lo : WIDE_(fmin)(lo, found->lo);
    found->hi = first ? hi : WIDE_(fmax)(hi, found->hi);
    found->far |= BETWEEN;
}

/* A number that may be anything. */
static inline NUM N(anything)(W v)
{
    return (NUM){.v = v, .lo = -W_MAX, .hi = W_MAX, .far = PLUS | MINUS | NO_NUMBER | BETWEEN};
}

/* The intervals of all that a number may be, its value first; returns how many there are. */
static inline int N(intervals)(NUM a, N(interval) *found)
{
    int n = 1;
    W e = N(finite_)(a.v) ? a.e : 0;
    found[0] = e <= W_MAX ? (N(interval)){a.v - e, a.v + e} : (N(interval)){-F_MAX, F_MAX};
    if (a.far & BETWEEN) found[n++] = (N(interval)){a.lo, a.hi};
    if (a.far & PLUS) found[n++] = (N(interval)){INFINITY, INFINITY};
    if (a.far & MINUS) found[n++] = (N(interval)){-INFINITY, -INFINITY};
    if (a.far & NO_NUMBER) found[n++] = (N(interval)){NAN, NAN};
    return n;
}

static inline W N(applied)(int operation, W a, W b)
{
    switch (operation) {
    case ADD: return a + b;
    case MUL: return a * b;
    case DIV: return a / b;
    case MAX: return N(max_d)(a, b);
    default: return N(min_d)(a, b);
    }
}

static inline int N(holds_zero)(N(interval) a) { return a.lo <= 0 && a.hi >= 0; }
static inline int N(endless)(N(interval) a) { return !N(finite_)(a.lo); }

static inline void N(combine)(N(others) *found, int operation, N(interval) a, N(interval) b)
{
    W lo = INFINITY, hi = -INFINITY;
    for (int k = 0; k < 4; k++) {
        W x = N(applied)(operation, k & 1 ? a.hi : a.lo, k & 2 ? b.hi : b.lo);
        if (x != x) found->far |= NO_NUMBER;
        else lo = x < lo ? x : lo, hi = x > hi ? x : hi;
    }
    if (operation == MUL && ((N(endless)(a) && N(holds_zero)(b)) || (N(endless)(b) && N(holds_zero)(a))))
        found->far |= NO_NUMBER;
    if (operation == DIV && N(holds_zero)(b) && a.lo == a.lo) {
        if (N(holds_zero)(a)) found->far |= NO_NUMBER;
        lo = -INFINITY, hi = INFINITY;
    }
    if (lo < hi) lo = WIDE_(fmax)(lo, -W_MAX), hi = WIDE_(fmin)(hi, W_MAX);
    if (lo <= hi) N(admit)(found, lo, hi, 1);
}

/* x, the result of an operation, with the results for everything else that its operands may be. */
RARE NUM N(more_of_two)(NUM x, int operation, NUM a, NUM b)
{
    N(others) found = {x.lo, x.hi, x.far};
    N(interval) left[5], right[5];
    int lefts = N(intervals)(a, left), rights = N(intervals)(b, right);
    for (int i = 0; i < lefts; i++)
        for (int k = 0; k < rights; k++)
            if (i || k) N(combine)(&found, operation, left[i], right[k]);
    x.lo = found.lo, x.hi = found.hi, x.far = found.far;
    return x;
}

/* The same for a non-decreasing function, accurate to so many halves of a unit in the last place; below
   `least` it gives NaN. */
RARE NUM N(more_of_one)(NUM x, NUM a, W (*function)(W), W least, W halves)
{
    N(others) found = {x.lo, x.hi, x.far};
    N(interval) given[5];
    int count = N(intervals)(a, given);
    for (int k = 1; k < count; k++) {
        if (given[k].lo < least) found.far |= NO_NUMBER;
        if (given[k].hi < least) continue;
        N(admit)(&found, function(N(max_d)(given[k].lo, least)), function(N(max_d)(given[k].hi, least)), halves);
    }
    x.lo = found.lo, x.hi = found.hi, x.far = found.far;
    return x;
}

static inline NUM N(with_others)(NUM x, int operation, NUM a, NUM b)
{
    return a.far | b.far ? N(more_of_two)(x, operation, a, b) : x;
}
static inline NUM N(with_others_of)(NUM x, NUM a, W (*function)(W), W least, W halves)
{
    return a.far ? N(more_of_one)(x, a, function, least, halves) : x;
}

static inline NUM N(partial)(NUM x, W up, W down, int open) { x.up = up, x.down = down, x.open = open; return x; }

/* True if a number can only be its value within its bound. */
static inline int N(plain)(NUM a) { return !a.far; }
static inline NUM N(maybe_none)(NUM x) { x.far |= NO_NUMBER; return x; }
static inline NUM N(positive)(NUM x) { x.far &= ~MINUS; return x; }

/* The value may be too large for F. */
static inline NUM N(overflowing)(NUM x)
{
    if (!N(finite_)(x.v)) x.e = 0;
    else if (!(x.e == x.e)) x.e = INFINITY;
    if (x.v + x.e > F_MAX) x.far |= PLUS;
    if (x.v - x.e < -F_MAX) x.far |= MINUS;
    return x;
}

/* An unusual result of an operation; `certain`: it is an infinity or a NaN for sure. */
RARE NUM N(unusual)(W v, W e, int certain, int operation, NUM a, NUM b)
{
    NUM x = {.v = v, .e = e};
    if (certain && !N(finite_)(v)) x.e = 0;
    else if (!N(finite_)(v) && !(N(finite_)(a.v) && N(finite_)(b.v))) return N(anything)(v);
    else x = N(overflowing)(x);
    if (!certain && !N(finite_)(v)) {
        /* Beyond W: the result with the errors of its operands that keep it within F. */
        N(others) found = {0, 0, x.far};
        N(interval) left[5], right[5];
        N(intervals)(a, left), N(intervals)(b, right);
        N(combine)(&found, operation, left[0], right[0]);
        x.lo = found.lo, x.hi = found.hi, x.far = found.far;
    }
    return N(with_others)(x, operation, a, b);
}

/* A quotient whose divisor may be zero. */
RARE NUM N(over_zero)(W v, NUM a, NUM b)
{
    if (a.v != a.v && a.e == 0 && !a.far) return (NUM){.v = v};
    if (b.e > 0 || a.far || b.far) return N(anything)(v);
    NUM x = {.v = v};
    if (a.v != a.v || (a.v == 0 && a.e == 0)) return x;
    x.far = PLUS | MINUS | (WIDE_(fabs)(a.v) > a.e ? 0 : NO_NUMBER);
    return x;
}

static inline NUM N(turned)(NUM a)
{
    if (!a.far) return (NUM){.v = -a.v, .e = a.e};
    int kept = a.far & (NO_NUMBER | BETWEEN);
    int far = kept | (a.far & PLUS ? MINUS : 0) | (a.far & MINUS ? PLUS : 0);
    return (NUM){.v = -a.v, .e = a.e, .lo = -a.hi, .hi = -a.lo, .far = far};
}

static inline NUM N(magnitude_of)(NUM a)
{
    if (!a.far) return (NUM){.v = WIDE_(fabs)(a.v), .e = a.e};
    NUM x = {.v = WIDE_(fabs)(a.v), .e = a.e, .far = a.far & (NO_NUMBER | BETWEEN)};
    if (a.far & (PLUS | MINUS)) x.far |= PLUS;
    W lo = WIDE_(fabs)(a.lo), hi = WIDE_(fabs)(a.hi);
    x.lo = a.lo <= 0 && a.hi >= 0 ? 0 : WIDE_(fmin)(lo, hi), x.hi = WIDE_(fmax)(lo, hi);
    return x;
}

/* Either of two numbers. */
RARE NUM N(either)(NUM chosen, NUM other)
{
    N(others) found = {chosen.lo, chosen.hi, chosen.far};
    if (other.far & BETWEEN) N(admit)(&found, other.lo, other.hi, 0);
    found.far |= other.far;
    if (!N(finite_)(other.v)) N(admit)(&found, other.v, other.v, 0);
    else if (!N(finite_)(chosen.v)) {
        N(admit)(&found, chosen.v, chosen.v, 0);
        chosen.v = other.v, chosen.e = other.e;
    } else
        chosen.e = (chosen.e > other.e ? chosen.e : other.e) + WIDE_(fabs)(chosen.v - other.v);
    chosen.lo = found.lo, chosen.hi = found.hi, chosen.far = found.far;
    return chosen;
}
