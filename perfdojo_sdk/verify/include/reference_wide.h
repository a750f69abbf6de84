/* One float dtype of a reference program; included once for each.
 *
 * A number holds the value in a wider type and beside it what plain arithmetic of the dtype gives.
 * Before inclusion: DTYPE, F (its C type), W (the wider type), WIDE_(f) and FLAT_(f) (the names of a
 * function of math.h for them), F_MAX, W_MAX.
 */
#define N(name) PASTE(name, DTYPE)
#define NUM N(num)

#define EXTREME(name, type, better) \
    static inline type name(type a, type b) { return a != a ? a : b != b ? b : a better b ? a : b; }
static inline int N(finite_)(W x) { return WIDE_(fabs)(x) <= W_MAX; }
EXTREME(N(max_f), F, >) EXTREME(N(max_d), W, >) EXTREME(N(min_f), F, <) EXTREME(N(min_d), W, <)
#undef EXTREME

typedef struct { W v; F f; } NUM;

static inline NUM N(load)(W v, F f) { return (NUM){v, f}; }
static inline NUM N(literal)(F x) { return (NUM){x, x}; }
static inline NUM N(integer)(long x) { return (NUM){x, x}; }
static inline NUM N(num_anchor)(NUM a, W terms) { (void)terms; return a; }
static inline NUM N(num_add)(NUM a, NUM b) { return (NUM){a.v + b.v, a.f + b.f}; }
static inline NUM N(num_sum)(NUM a, NUM b, W terms) { (void)terms; return N(num_add)(a, b); }
static inline NUM N(num_sub)(NUM a, NUM b) { return (NUM){a.v - b.v, a.f - b.f}; }
static inline NUM N(num_mul)(NUM a, NUM b) { return (NUM){a.v * b.v, a.f * b.f}; }
static inline NUM N(num_mul_exact)(NUM a, NUM b) { return N(num_mul)(a, b); }
static inline NUM N(num_div)(NUM a, NUM b) { return (NUM){a.v / b.v, a.f / b.f}; }
static inline NUM N(num_max)(NUM a, NUM b) { return (NUM){N(max_d)(a.v, b.v), N(max_f)(a.f, b.f)}; }
static inline NUM N(num_min)(NUM a, NUM b) { return (NUM){N(min_d)(a.v, b.v), N(min_f)(a.f, b.f)}; }
static inline NUM N(num_neg)(NUM a) { return (NUM){-a.v, -a.f}; }
static inline NUM N(num_abs)(NUM a) { return (NUM){WIDE_(fabs)(a.v), FLAT_(fabs)(a.f)}; }
static inline NUM N(num_sqrt)(NUM a) { return (NUM){WIDE_(sqrt)(a.v), FLAT_(sqrt)(a.f)}; }
static inline NUM N(num_exp)(NUM a) { return (NUM){WIDE_(exp)(a.v), FLAT_(exp)(a.f)}; }

#define COMPARE(name, sign) \
    static inline whole N(num_##name)(NUM a, NUM b) { return whole_of(a.v sign b.v); }
COMPARE(lt, <) COMPARE(le, <=) COMPARE(gt, >) COMPARE(ge, >=) COMPARE(eq, ==) COMPARE(ne, !=)
#undef COMPARE

static inline NUM N(num_select)(whole where, NUM a, NUM b) { return where.v ? a : b; }
static inline NUM N(from_whole)(whole a) { return (NUM){a.v, a.v}; }

#define FUNCTION(name, function) \
    static inline NUM N(num_##name)(NUM a) { return (NUM){WIDE_(function)(a.v), FLAT_(function)(a.f)}; }
FUNCTION(log, log) FUNCTION(tanh, tanh) FUNCTION(erf, erf)
FUNCTION(floor, floor) FUNCTION(ceil, ceil) FUNCTION(round, rint) FUNCTION(trunc, trunc)
#undef FUNCTION

/* Saturating; NaN gives 0. `most` may be rounded up, to the power of two after it. */
static inline whole N(to_whole)(NUM a, int64_t least, int64_t most)
{
    return whole_of(a.v != a.v ? 0 : a.v <= least ? least : a.v >= (W)most ? most : (int64_t)a.v);
}

static inline whole N(to_bool)(NUM a) { return whole_of(a.v != 0); }

#undef N
#undef NUM
