/* Numbers of which nothing is known after a possible overflow on the way to them: their bound is infinite.
 *
 * Included by reference_bounded.h in place of reference_outcomes.h, with the same functions.
 */
static inline NUM N(anything)(W v) { return (NUM){v, INFINITY}; }
static inline NUM N(overflowing)(NUM x) { return N(anything)(x.v); }
static inline NUM N(maybe_none)(NUM x) { return N(anything)(x.v); }
static inline NUM N(positive)(NUM x) { return x; }
static inline NUM N(over_zero)(W v, NUM a, NUM b) { (void)a; (void)b; return N(anything)(v); }
static inline NUM N(turned)(NUM a) { return (NUM){-a.v, a.e}; }
static inline NUM N(magnitude_of)(NUM a) { return (NUM){WIDE_(fabs)(a.v), a.e}; }
static inline int N(plain)(NUM a) { (void)a; return 1; }
static inline NUM N(with_others)(NUM x, int operation, NUM a, NUM b)
{
    (void)operation; (void)a; (void)b;
    return x;
}
static inline NUM N(with_others_of)(NUM x, NUM a, W (*function)(W), W least, W halves)
{
    (void)a; (void)function; (void)least; (void)halves;
    return x;
}
static inline NUM N(either)(NUM chosen, NUM other)
{
    W apart = WIDE_(fabs)(chosen.v - other.v);
    W e = (chosen.e > other.e ? chosen.e : other.e) + (apart <= F_MAX ? apart : INFINITY);
    return (NUM){chosen.v, e};
}
