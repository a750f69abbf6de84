/* Conversions between two float dtypes, once both are there; included once for each two.
 * Before inclusion: DTYPE and its macros as for its numbers, and WIDER, the other dtype.
 */
static inline PASTE(num, WIDER) PASTE(PASTE(convert, DTYPE), WIDER)(PASTE(num, DTYPE) a)
{
    return (PASTE(num, WIDER)){a.v, a.e, a.f};
}

static inline PASTE(num, DTYPE) PASTE(PASTE(convert, WIDER), DTYPE)(PASTE(num, WIDER) a)
{
    double v = (double)a.v, e = (double)a.e;
    e += U * (fabs(v) + e) + ETA + 0x1p-52 * fabs(v);
    F f = ROUND_(a.f);
    if (fabs(v) + e <= F_MAX) return (PASTE(num, DTYPE)){v, e, f};
    int certain = !PASTE(finite_, WIDER)(a.v) && a.e <= DBL_MAX;
    return (PASTE(num, DTYPE)){v, certain ? 0 : INFINITY, f};
}
