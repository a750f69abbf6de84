/* One float dtype of a reference program; included once for each.
 *
 * A number is the value in a wider type.
 * Before inclusion: DTYPE, F (its C type), W (the wider type), WIDE_(f) (the name of a function of math.h for it),
 * and the rows of the table of operations that are written in C: FUNCTIONS_OF_ONE(X), FUNCTIONS_OF_TWO(X).
 */
#define N(name) PASTE(name, DTYPE)
#define NUM N(num)

typedef struct { W v; } NUM;

static inline NUM N(load)(W v) { return (NUM){v}; }
static inline NUM N(literal)(F x) { return (NUM){x}; }
static inline NUM N(integer)(long x) { return (NUM){x}; }
static inline NUM N(num_add)(NUM a, NUM b) { return (NUM){a.v + b.v}; }
static inline NUM N(num_sub)(NUM a, NUM b) { return (NUM){a.v - b.v}; }
static inline NUM N(num_mul)(NUM a, NUM b) { return (NUM){a.v * b.v}; }
static inline NUM N(num_div)(NUM a, NUM b) { return (NUM){a.v / b.v}; }
static inline NUM N(num_neg)(NUM a) { return (NUM){-a.v}; }

#define EXTREME(name, better) \
    static inline NUM N(name)(NUM a, NUM b) { return a.v != a.v ? a : b.v != b.v ? b : a.v better b.v ? a : b; }
EXTREME(num_max, >) EXTREME(num_min, <)
#undef EXTREME

#define COMPARE(name, sign) \
    static inline whole N(num_##name)(NUM a, NUM b) { return whole_of(a.v sign b.v); }
COMPARE(lt, <) COMPARE(le, <=) COMPARE(gt, >) COMPARE(ge, >=) COMPARE(eq, ==) COMPARE(ne, !=)
#undef COMPARE

static inline NUM N(num_select)(whole where, NUM a, NUM b) { return where.v ? a : b; }
static inline NUM N(from_whole)(whole a) { return (NUM){a.v}; }
static inline NUM N(from_word)(whole a) { return (NUM){(uint64_t)a.v}; }

#define FUNCTION(name, value) \
    static inline W N(value_##name)(W a) { return value; } \
    static inline NUM N(num_##name)(NUM x) { return (NUM){N(value_##name)(x.v)}; }
FUNCTIONS_OF_ONE(FUNCTION)
#undef FUNCTION
#define FUNCTION(name, value) \
    static inline W N(value_##name)(W a, W b) { return value; } \
    static inline NUM N(num_##name)(NUM x, NUM y) { return (NUM){N(value_##name)(x.v, y.v)}; }
FUNCTIONS_OF_TWO(FUNCTION)
#undef FUNCTION

/* Saturating; NaN gives 0. `most` may be rounded up, to the power of two after it. */
static inline whole N(to_whole)(NUM a, int64_t least, int64_t most)
{
    return whole_of(a.v != a.v ? 0 : a.v <= least ? least : a.v >= (W)most ? most : (int64_t)a.v);
}

static inline whole N(to_word)(NUM a)
{
    return whole_of(a.v >= (W)UINT64_MAX ? -1 : a.v > 0 ? (int64_t)(uint64_t)a.v : 0);
}

static inline whole N(to_code)(NUM a, const code_format *format) { return whole_of(CODE(a.v, format)); }
static inline NUM N(from_code)(whole code, const float *numbers)
{
    return N(literal)(numbers[code.v]);
}

static inline whole N(to_bool)(NUM a) { return whole_of(a.v != 0); }

#undef N
#undef NUM
