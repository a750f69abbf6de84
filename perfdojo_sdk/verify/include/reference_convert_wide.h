/* Conversions between two float dtypes, once both are there; included once for each two.
 * Before inclusion: DTYPE and its macros as for its numbers, and WIDER, the other dtype.
 */
static inline PASTE(num, WIDER) PASTE(PASTE(convert, DTYPE), WIDER)(PASTE(num, DTYPE) a)
{
    return (PASTE(num, WIDER)){a.v};
}

static inline PASTE(num, DTYPE) PASTE(PASTE(convert, WIDER), DTYPE)(PASTE(num, WIDER) a)
{
    return (PASTE(num, DTYPE)){(W)a.v};
}
