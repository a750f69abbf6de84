/* Conversions between two float dtypes, once both are there; included once for each two.
 * Before inclusion: DTYPE and its macros as for its numbers, WIDER, the other dtype, and EXACT: 0 if another
 * inclusion, with the two exchanged, defines the way back.
 */
#if EXACT
static inline PASTE(num, WIDER) PASTE(PASTE(convert, DTYPE), WIDER)(PASTE(num, DTYPE) a)
{
    return (PASTE(num, WIDER)){a.v};
}
#endif

static inline PASTE(num, DTYPE) PASTE(PASTE(convert, WIDER), DTYPE)(PASTE(num, WIDER) a)
{
    return (PASTE(num, DTYPE)){(W)a.v};
}
