/* One float dtype of a reference program; included once for each.
 *
 * A number holds the value in a wider type and beside it what plain arithmetic of the dtype gives, and a
 * bound on the distance between the exact value and what any legal compilation may compute.
 * Before inclusion: DTYPE, F (its C type), W (the wider type), WIDE_(f) and FLAT_(f) (the names of a
 * function of math.h for them), F_MAX, W_MAX, U (half a unit in the last
 * place, relative), ETA (half the smallest denormal), EXACT_INTEGERS, E (the type that holds a bound),
 * BITS (an unsigned type of its size), and the error in ulp of each function (EXP_ULP ...).
 */
#define N(name) PASTE(name, DTYPE)
#define NUM N(num)

#define EXTREME(name, type, better) \
    static inline type name(type a, type b) { return a != a ? a : b != b ? b : a better b ? a : b; }
static inline int N(finite_)(W x) { return WIDE_(fabs)(x) <= W_MAX; }
EXTREME(N(max_f), F, >) EXTREME(N(max_d), W, >) EXTREME(N(min_f), F, <) EXTREME(N(min_d), W, <)
#undef EXTREME

typedef struct { W v, e; F f; } NUM;

static inline NUM N(load)(W v, E e, F f) { return (NUM){v, e, f}; }

/* A bound as a cell holds it: rounded up. */
static inline E N(upwards)(W exact)
{
    E e = (E)exact;
    BITS bits;
    memcpy(&bits, &e, sizeof e);
    bits += e < exact;
    memcpy(&e, &bits, sizeof e);
    return e;
}

static inline NUM N(literal)(F x) { return (NUM){x, 0, x}; }

/* Whether a F computation with value v and error e is certain not to overflow; false for NaN. */
#undef IN_RANGE
#define IN_RANGE(v, e) (WIDE_(fabs)(v) + (e) <= F_MAX)

static inline NUM N(integer)(long x)
{
    W e = fabs((double)x) > EXACT_INTEGERS ? U * WIDE_(fabs)(x) : 0;
    return (NUM){x, IN_RANGE((W)x, e) ? e : INFINITY, x};
}

/* e, and the N(rounding) of v by `halves` half units in the last place; `underflow` for one of them. */
static inline W N(rounding)(W v, W e, W halves, W underflow)
{
    return e + (halves * U * (WIDE_(fabs)(v) + e) + halves * underflow);
}

/* The F computation may overflow, or an argument is infinite or NaN; the latter is exact if
   the arguments' errors cannot change the outcome. */
static inline NUM N(special)(W v, int certain, F f) { return (NUM){v, certain ? 0 : INFINITY, f}; }
static inline int N(sign_known)(NUM a) { return (WIDE_(fabs)(a.v) > a.e) | (a.e == 0) | (a.v != a.v); }
static inline int N(sized)(NUM a) { return a.e <= F_MAX; }

/* The bound of a sum, product or quotient: e in the range of F, else as for N(special). Chosen, not
   branched to, so that a compiler can work on several numbers at a time. */
#undef SELECT
#define SELECT(in_range, e, certain) ((in_range) ? (e) : (certain) ? 0 : (W)INFINITY)

static inline int N(sum_certain)(NUM a, NUM b)
{
    return N(sized)(a) & N(sized)(b) & !(N(finite_)(a.v) & N(finite_)(b.v));
}

static inline int N(product_certain)(NUM a, NUM b)
{
    return N(sum_certain)(a, b) & N(sign_known)(a) & N(sign_known)(b);
}

/* A zero has no sign that the language tells, so neither has what is divided by it: only 0 / 0 is one value. */
static inline int N(quotient_certain)(NUM a, NUM b)
{
    int exact = !N(finite_)(a.v) | !N(finite_)(b.v) | ((b.v == 0) & (a.v == 0));
    int told = (b.v != 0) | (a.v == 0) | (a.v != a.v);
    return exact & told & N(sized)(a) & N(sized)(b) & N(sign_known)(a) & N(sign_known)(b);
}

static inline NUM N(num_add)(NUM a, NUM b)
{
    W v = a.v + b.v, e = N(rounding)(v, a.e + b.e, 1, 0);
    return (NUM){v, SELECT(IN_RANGE(v, e), e, N(sum_certain)(a, b)), a.f + b.f};
}

static inline NUM N(num_neg)(NUM a) { return (NUM){-a.v, a.e, -a.f}; }
static inline NUM N(num_abs)(NUM a) { return (NUM){WIDE_(fabs)(a.v), a.e, FLAT_(fabs)(a.f)}; }
static inline NUM N(num_sub)(NUM a, NUM b) { return N(num_add)(a, N(num_neg)(b)); }

/* a + b where b is one of so many terms that are added in an unknown order: each of the roundings
   may meet any partial sum of magnitudes. */
static inline NUM N(num_sum)(NUM a, NUM b, W terms)
{
    W v = a.v + b.v, size = terms * (WIDE_(fabs)(b.v) + b.e);
    W e = a.e + b.e + 1.01 * U * size;
    int in_range = IN_RANGE(v, e) & (size <= F_MAX);
    return (NUM){v, SELECT(in_range, e, N(sum_certain)(a, b)), a.f + b.f};
}

/* The value that such a sum starts from meets all the roundings as well. */
static inline NUM N(num_anchor)(NUM a, W terms)
{
    W size = terms * (WIDE_(fabs)(a.v) + a.e);
    if (!N(finite_)(a.v)) return a;
    return (NUM){a.v, size <= F_MAX ? a.e + 1.01 * U * size : INFINITY, a.f};
}

static inline NUM N(num_mul)(NUM a, NUM b)
{
    W v = a.v * b.v;
    W e = N(rounding)(v, WIDE_(fabs)(a.v) * b.e + WIDE_(fabs)(b.v) * a.e + a.e * b.e, 1, ETA);
    return (NUM){v, SELECT(IN_RANGE(v, e), e, N(product_certain)(a, b)), a.f * b.f};
}

/* The product of two inputs or constants, the commonest by far. */
static inline NUM N(num_mul_exact)(NUM a, NUM b)
{
    W v = a.v * b.v, e = N(rounding)(v, 0, 1, ETA);
    return (NUM){v, SELECT(IN_RANGE(v, e), e, N(product_certain)(a, b)), a.f * b.f};
}

static inline NUM N(num_div)(NUM a, NUM b)
{
    W v = a.v / b.v;
    W e = N(rounding)(v, (a.e + WIDE_(fabs)(v) * b.e) / (WIDE_(fabs)(b.v) - b.e), 1, ETA);
    int in_range = IN_RANGE(v, e) & (WIDE_(fabs)(b.v) > b.e);
    return (NUM){v, SELECT(in_range, e, N(quotient_certain)(a, b)), a.f / b.f};
}

RARE NUM N(far_extreme)(NUM a, NUM b, W v, F f)
{
    if (!N(sized)(a) || !N(sized)(b)) return N(special)(v, 0, f);
    if (!N(finite_)(v)) return N(special)(v, 1, f);
    /* An infinity on the losing side brings no error. */
    return (NUM){v, !N(finite_)(a.v) ? b.e : !N(finite_)(b.v) ? a.e : WIDE_(fmax)(a.e, b.e), f};
}

/* Both extremes are Lipschitz: the larger of the two errors passes. */
static inline NUM N(extreme)(NUM a, NUM b, W v, F f)
{
    int in_range = IN_RANGE(a.v, a.e) && IN_RANGE(b.v, b.e);
    return in_range ? (NUM){v, a.e > b.e ? a.e : b.e, f} : N(far_extreme)(a, b, v, f);
}

static inline NUM N(num_max)(NUM a, NUM b) { return N(extreme)(a, b, N(max_d)(a.v, b.v), N(max_f)(a.f, b.f)); }
static inline NUM N(num_min)(NUM a, NUM b) { return N(extreme)(a, b, N(min_d)(a.v, b.v), N(min_f)(a.f, b.f)); }

static inline NUM N(num_sqrt)(NUM a)
{
    W v = WIDE_(sqrt)(a.v);
    if (!N(finite_)(a.v)) return N(special)(v, N(sized)(a), FLAT_(sqrt)(a.f));
    if (a.v - a.e < 0) return N(special)(v, a.v + a.e < 0, FLAT_(sqrt)(a.f));
    return (NUM){v, N(rounding)(v, a.e > 0 ? a.e / (v + WIDE_(sqrt)(a.v - a.e)) : 0, 1, 0), FLAT_(sqrt)(a.f)};
}

static inline NUM N(num_exp)(NUM a)
{
    W v = WIDE_(exp)(a.v);
    if (!N(finite_)(a.v)) return N(special)(v, N(sized)(a), FLAT_(exp)(a.f));
    /* exp is convex: the larger distance is the upper one. */
    W e = N(rounding)(v, a.e > 0 ? WIDE_(exp)(a.v + a.e) - v : 0, 2 * EXP_ULP, ETA);
    return IN_RANGE(v, e) ? (NUM){v, e, FLAT_(exp)(a.f)} : N(special)(v, 0, FLAT_(exp)(a.f));
}

/* Where a move may change which inputs overflow or give NaN, nothing is certain about what is made of them. */
static inline int N(lost)(NUM a) { return NAN_MAY_DIFFER && !N(finite_)(a.v); }

/* The outcome is certain when the errors cannot turn it. */
static inline int N(near)(NUM a, NUM b)
{
    if (N(lost)(a) || N(lost)(b)) return 1;
    W errors = a.e + b.e;
    return errors > 0 && !(WIDE_(fabs)(a.v - b.v) > errors);
}

#define COMPARE(name, sign) \
    static inline whole N(num_##name)(NUM a, NUM b) { return unsure_if(a.v sign b.v, N(near)(a, b)); }
COMPARE(lt, <) COMPARE(le, <=) COMPARE(gt, >) COMPARE(ge, >=) COMPARE(eq, ==) COMPARE(ne, !=)
#undef COMPARE

/* Where the choice is unsure, either value may come out. */
static inline NUM N(num_select)(whole where, NUM a, NUM b)
{
    NUM chosen = where.v ? a : b;
    if (!where.unsure) return chosen;
    W apart = WIDE_(fabs)(a.v - b.v);
    W e = (a.e > b.e ? a.e : b.e) + (apart <= F_MAX ? apart : INFINITY);
    return (NUM){chosen.v, e, chosen.f};
}

static inline NUM N(from_whole)(whole a)
{
    NUM x = N(integer)(a.v);
    return a.unsure ? (NUM){x.v, INFINITY, x.f} : x;
}

/* Monotone functions: the values at the ends of the argument's range bound the error. */
static inline NUM N(monotone)(NUM a, W v, W low, W high, W ulps, F f)
{
    if (!N(finite_)(a.v) || !N(finite_)(v)) return N(special)(v, N(sized)(a), f);
    W below = v - low, above = high - v;
    W e = N(rounding)(v, above > below ? above : below, 2 * ulps, ulps > 0 ? ETA : 0);
    return e <= F_MAX ? (NUM){v, e, f} : N(special)(v, 0, f);
}

#define MONOTONE(name, function, ulps) \
    static inline NUM N(num_##name)(NUM a) \
    { \
        W low = WIDE_(function)(a.v - a.e), high = WIDE_(function)(a.v + a.e); \
        return N(monotone)(a, WIDE_(function)(a.v), low, high, ulps, FLAT_(function)(a.f)); \
    }
MONOTONE(tanh, tanh, TANH_ULP) MONOTONE(erf, erf, ERF_ULP)
MONOTONE(floor, floor, 0) MONOTONE(ceil, ceil, 0) MONOTONE(round, rint, 0) MONOTONE(trunc, trunc, 0)
#undef MONOTONE

static inline NUM N(num_log)(NUM a)
{
    W v = WIDE_(log)(a.v);
    F f = FLAT_(log)(a.f);
    if (a.v - a.e <= 0) return N(special)(v, a.e == 0 || a.v + a.e < 0, f);
    return N(monotone)(a, v, WIDE_(log)(a.v - a.e), WIDE_(log)(a.v + a.e), LOG_ULP, f);
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

static inline whole N(to_bool)(NUM a) { return unsure_if(a.v != 0, a.e > 0 && !(WIDE_(fabs)(a.v) > a.e)); }

#undef N
#undef NUM
