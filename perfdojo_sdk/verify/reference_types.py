"""The number types over which :mod:`perfdojo_sdk.verify.reference_c` runs a program, as C text.

A bound of 0 says that the value is certain, which an infinity or a NaN can be, too. An infinite
bound says that the float computation may overflow, lose its sign or turn into a NaN, so that only
classes can be compared.
"""

WIDE, BOUNDED = "wide", "bounded"

_COMMON = r"""
#define _GNU_SOURCE
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* max and min as the language defines them: a NaN wins. */
#define EXTREME(name, type, better) \
    static inline type name(type a, type b) { return a != a ? a : b != b ? b : a better b ? a : b; }
static inline int finite_(double x) { return fabs(x) <= DBL_MAX; }
EXTREME(max_f, float, >) EXTREME(max_d, double, >) EXTREME(min_f, float, <) EXTREME(min_d, double, <)
"""

_WIDE = (
    _COMMON
    + r"""
typedef struct { double v; float f; } num;
typedef num cell;

static inline num load(cell c) { return c; }
static inline cell store(num a) { return a; }
static inline num literal(float x) { return (num){x, x}; }
static inline num integer(long x) { return (num){x, x}; }
static inline num num_anchor(num a, double terms) { (void)terms; return a; }
static inline num num_add(num a, num b) { return (num){a.v + b.v, a.f + b.f}; }
static inline num num_sum(num a, num b, double terms) { (void)terms; return num_add(a, b); }
static inline num num_sub(num a, num b) { return (num){a.v - b.v, a.f - b.f}; }
static inline num num_mul(num a, num b) { return (num){a.v * b.v, a.f * b.f}; }
static inline num num_mul_exact(num a, num b) { return num_mul(a, b); }
static inline num num_div(num a, num b) { return (num){a.v / b.v, a.f / b.f}; }
static inline num num_max(num a, num b) { return (num){max_d(a.v, b.v), max_f(a.f, b.f)}; }
static inline num num_min(num a, num b) { return (num){min_d(a.v, b.v), min_f(a.f, b.f)}; }
static inline num num_neg(num a) { return (num){-a.v, -a.f}; }
static inline num num_abs(num a) { return (num){fabs(a.v), fabsf(a.f)}; }
static inline num num_sqrt(num a) { return (num){sqrt(a.v), sqrtf(a.f)}; }
static inline num num_exp(num a) { return (num){exp(a.v), expf(a.f)}; }
"""
)

_BOUNDED = (
    _COMMON
    + r"""
#define U 0x1p-24    /* half a unit in the last place, relative */
#define ETA 0x1p-150 /* half the smallest denormal */
#define EXP_ULP @EXP_ULP@

typedef struct { double v, e; float f; } num;
typedef struct { double v; float e, f; } cell;

static inline num load(cell c) { return (num){c.v, c.e, c.f}; }

static inline cell store(num a)
{
    float e = (float)a.e;
    uint32_t bits;
    memcpy(&bits, &e, 4);
    bits += e < a.e; /* bounds round up */
    memcpy(&e, &bits, 4);
    return (cell){a.v, e, a.f};
}

static inline num literal(float x) { return (num){x, 0, x}; }
static inline num integer(long x) { return (num){x, labs(x) > 1L << 24 ? U * labs(x) : 0, x}; }

/* Whether a float computation with value v and error e is certain not to overflow; false for NaN. */
#define IN_RANGE(v, e) __builtin_expect(fabs(v) + (e) <= FLT_MAX, 1)
#define RARE __attribute__((noinline, cold)) static

/* e, and the rounding of v by `halves` half units in the last place; `underflow` for one of them. */
static inline double rounding(double v, double e, double halves, double underflow)
{
    return e + (halves * U * (fabs(v) + e) + halves * underflow);
}

/* The float computation may overflow, or an argument is infinite or NaN; the latter is exact if
   the arguments' errors cannot change the outcome. */
static inline num special(double v, int certain, float f) { return (num){v, certain ? 0 : INFINITY, f}; }
static inline int sign_known(num a) { return fabs(a.v) > a.e || a.e == 0 || a.v != a.v; }
static inline int sized(num a) { return a.e <= FLT_MAX; }

/* Sums, products and quotients outside the range of float. */
RARE num far_sum(num a, num b, double v, float f)
{
    return special(v, sized(a) && sized(b) && !(finite_(a.v) && finite_(b.v)), f);
}

RARE num far_product(num a, num b, double v, float f)
{
    int exact = !finite_(a.v) || !finite_(b.v);
    return special(v, exact && sized(a) && sized(b) && sign_known(a) && sign_known(b), f);
}

RARE num far_quotient(num a, num b, double v, float f)
{
    int exact = !finite_(a.v) || !finite_(b.v) || b.v == 0;
    return special(v, exact && sized(a) && sized(b) && sign_known(a) && sign_known(b), f);
}

static inline num num_add(num a, num b)
{
    double v = a.v + b.v, e = rounding(v, a.e + b.e, 1, 0);
    return IN_RANGE(v, e) ? (num){v, e, a.f + b.f} : far_sum(a, b, v, a.f + b.f);
}

static inline num num_neg(num a) { return (num){-a.v, a.e, -a.f}; }
static inline num num_abs(num a) { return (num){fabs(a.v), a.e, fabsf(a.f)}; }
static inline num num_sub(num a, num b) { return num_add(a, num_neg(b)); }

/* a + b where b is one of so many terms that are added in an unknown order: each of the roundings
   may meet any partial sum of magnitudes. */
static inline num num_sum(num a, num b, double terms)
{
    double v = a.v + b.v, size = terms * (fabs(b.v) + b.e);
    double e = a.e + b.e + 1.01 * U * size;
    int in_range = IN_RANGE(v, e) && size <= FLT_MAX;
    return in_range ? (num){v, e, a.f + b.f} : far_sum(a, b, v, a.f + b.f);
}

/* The value that such a sum starts from meets all the roundings as well. */
static inline num num_anchor(num a, double terms)
{
    double size = terms * (fabs(a.v) + a.e);
    if (!finite_(a.v)) return a;
    return (num){a.v, size <= FLT_MAX ? a.e + 1.01 * U * size : INFINITY, a.f};
}

static inline num num_mul(num a, num b)
{
    double v = a.v * b.v;
    double e = rounding(v, fabs(a.v) * b.e + fabs(b.v) * a.e + a.e * b.e, 1, ETA);
    return IN_RANGE(v, e) ? (num){v, e, a.f * b.f} : far_product(a, b, v, a.f * b.f);
}

/* The product of two inputs or constants, the commonest by far. */
static inline num num_mul_exact(num a, num b)
{
    double v = a.v * b.v, e = rounding(v, 0, 1, ETA);
    return IN_RANGE(v, e) ? (num){v, e, a.f * b.f} : far_product(a, b, v, a.f * b.f);
}

static inline num num_div(num a, num b)
{
    double v = a.v / b.v;
    double e = rounding(v, (a.e + fabs(v) * b.e) / (fabs(b.v) - b.e), 1, ETA);
    int in_range = IN_RANGE(v, e) && fabs(b.v) > b.e;
    return in_range ? (num){v, e, a.f / b.f} : far_quotient(a, b, v, a.f / b.f);
}

RARE num far_extreme(num a, num b, double v, float f)
{
    if (!sized(a) || !sized(b)) return special(v, 0, f);
    if (!finite_(v)) return special(v, 1, f);
    /* An infinity on the losing side brings no error. */
    return (num){v, !finite_(a.v) ? b.e : !finite_(b.v) ? a.e : fmax(a.e, b.e), f};
}

/* Both extremes are Lipschitz: the larger of the two errors passes. */
static inline num extreme(num a, num b, double v, float f)
{
    int in_range = IN_RANGE(a.v, a.e) && IN_RANGE(b.v, b.e);
    return in_range ? (num){v, a.e > b.e ? a.e : b.e, f} : far_extreme(a, b, v, f);
}

static inline num num_max(num a, num b) { return extreme(a, b, max_d(a.v, b.v), max_f(a.f, b.f)); }
static inline num num_min(num a, num b) { return extreme(a, b, min_d(a.v, b.v), min_f(a.f, b.f)); }

static inline num num_sqrt(num a)
{
    double v = sqrt(a.v);
    if (!finite_(a.v)) return special(v, sized(a), sqrtf(a.f));
    if (a.v - a.e < 0) return special(v, a.v + a.e < 0, sqrtf(a.f));
    return (num){v, rounding(v, a.e > 0 ? a.e / (v + sqrt(a.v - a.e)) : 0, 1, 0), sqrtf(a.f)};
}

static inline num num_exp(num a)
{
    double v = exp(a.v);
    if (!finite_(a.v)) return special(v, sized(a), expf(a.f));
    /* exp is convex: the larger distance is the upper one. */
    double e = rounding(v, a.e > 0 ? exp(a.v + a.e) - v : 0, 2 * EXP_ULP, ETA);
    return IN_RANGE(v, e) ? (num){v, e, expf(a.f)} : special(v, 0, expf(a.f));
}
"""
)

_STORAGE = r"""
/* Zeroed storage in large pages: touching hundreds of megabytes for the first time is dear. */
static inline cell *cells(long count)
{
    void *found = mmap(0, count * sizeof(cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return 0;
    madvise(found, count * sizeof(cell), MADV_HUGEPAGE);
    return found;
}

static inline void release(cell *c, long count) { munmap(c, count * sizeof(cell)); }
"""

PRELUDES = {WIDE: _WIDE + _STORAGE, BOUNDED: _BOUNDED + _STORAGE}
