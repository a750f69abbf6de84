/* Conversions between two float dtypes, once both are there; included once for each two.
 * Before inclusion: DTYPE and its macros as for its numbers, WIDER, the other dtype, and EXACT: 1 if that has all
 * numbers of DTYPE. If it has not, another inclusion with the two exchanged defines the way back.
 */
#if EXACT
static inline PASTE(num, WIDER) PASTE(PASTE(convert, DTYPE), WIDER)(PASTE(num, DTYPE) a)
{
#if OUTCOMES
    return (PASTE(num, WIDER)){.v = a.v, .e = a.e, .lo = a.lo, .hi = a.hi, .far = a.far};
#else
    return (PASTE(num, WIDER)){a.v, a.e};
#endif
}
#endif

static inline PASTE(num, DTYPE) PASTE(PASTE(convert, WIDER), DTYPE)(PASTE(num, WIDER) a)
{
    double v = (double)a.v, e = (double)a.e;
    /* Nothing becomes denormal of an exact zero. */
    e += U * (fabs(v) + e) + ((a.v != 0) | (a.e != 0) ? ETA : 0) + 0x1p-52 * fabs(v);
    int certain = !PASTE(finite_, WIDER)(a.v) && a.e <= DBL_MAX;
    PASTE(num, DTYPE) x = {.v = v, .e = certain ? 0 : e};
    if (!certain && !(fabs(v) + e <= F_MAX)) x = PASTE(overflowing, DTYPE)(x);
#if OUTCOMES
    PASTE(others, DTYPE) found = {.far = x.far | (a.far & ~BETWEEN)};
    if (a.far & BETWEEN) PASTE(admit, DTYPE)(&found, a.lo, a.hi, 1);
    x.lo = found.lo, x.hi = found.hi, x.far = found.far;
#endif
    return x;
}
