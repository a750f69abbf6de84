/* Codes of the float dtypes that are only stored: the number of each, and the code of the nearest number.
 *
 * Found by search among the numbers of the format, not by arithmetic on bits as in the code that is verified.
 */
#ifndef REFERENCE_CODES_H
#define REFERENCE_CODES_H

#include "reference_common.h"

/* The positive numbers from the least code on, and one that would follow the largest; then the code of the largest
   number, that of NaN, that of infinity (-1: none), the bit of the sign (0: no sign), whether -0 is 0, and whether numbers
   are powers of two: then ties are rounded up, and nothing but positive numbers has a code. */
typedef struct {
    const double *sizes;
    int64_t largest, nan, infinity, sign;
    int no_minus_zero, powers;
} code_format;

/* The code of the nearest number to one of type W; the last bit of the code is even in a tie. */
#define CODE_OF(name, W, absolute) \
    static inline int64_t name(W v, const code_format *format) \
    { \
        const W size = absolute(v); \
        const int64_t sign = signbit(v) ? format->sign : 0; \
        int64_t code = 0; \
        if (v != v || (format->powers && (!(v > 0) || size > (W)DBL_MAX))) return format->nan; \
        for (int64_t step = 128; step; step >>= 1) \
            if (code + step <= format->largest && format->sizes[code + step] <= size) code += step; \
        const W twice = 2 * size, middle = (W)format->sizes[code] + (W)format->sizes[code + 1]; \
        if (size > format->sizes[code]) \
            code += twice > middle || (twice == middle && (format->powers || code & 1)); \
        if (code > format->largest) return format->infinity < 0 ? format->nan : format->infinity | sign; \
        return code || !format->no_minus_zero ? code | sign : 0; \
    }
CODE_OF(code_of_double, double, fabs)
CODE_OF(code_of_long, long double, fabsl)
#define CODE(v, format) _Generic((v), long double: code_of_long, default: code_of_double)(v, format)

#endif
