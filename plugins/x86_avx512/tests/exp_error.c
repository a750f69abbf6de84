/* Largest error of exp in ulp over float32 bit patterns begin, begin + step, ... below end.
 *
 * Compiled with -DHEADER='"pd_avx512.h"' or another header. The reference is the C library's double
 * exp, rounded nowhere; an ulp is the distance between floats around the exact value. Results that
 * must be exact (NaN, inf, 0) count as an infinite error when they are wrong.
 */
#include HEADER

#include <math.h>
#include <string.h>

static double error_in_ulp(float x, float got)
{
    if (x != x)
        return got != got ? 0.0 : INFINITY;
    const double exact = exp((double)x);
    const double beyond = 0x1.ffffffp127; /* from here on the nearest float is inf */
    if (exact >= beyond || got != got || got < 0.0f || isinf(got))
        return exact >= beyond && isinf(got) && got > 0.0f ? 0.0 : INFINITY;
    const int exponent = exact > 0x1p-126 ? ilogb(exact) : -126;
    return fabs((double)got - exact) / ldexp(1.0, exponent - 23);
}

/* errors[0] for vectors, errors[1] for scalars; worst[] the bit patterns where they were met. */
void exp_error(uint64_t begin, uint64_t end, uint64_t step, double *errors, uint32_t *worst)
{
    errors[0] = errors[1] = 0.0;
    for (uint64_t first = begin; first < end; first += step * PD_LANES_F32) {
        float x[PD_LANES_F32], got[2][PD_LANES_F32];
        for (int lane = 0; lane < PD_LANES_F32; lane++) {
            const uint64_t position = first + step * (uint64_t)lane;
            const uint32_t bits = (uint32_t)(position < end ? position : begin);
            memcpy(&x[lane], &bits, sizeof bits);
            got[1][lane] = pd_exp_f32(x[lane]);
        }
        pd_store_f32v(got[0], pd_exp_f32v(pd_load_f32v(x)));
        for (int kind = 0; kind < 2; kind++)
            for (int lane = 0; lane < PD_LANES_F32; lane++) {
                const double error = error_in_ulp(x[lane], got[kind][lane]);
                if (!(error <= errors[kind])) {
                    errors[kind] = error;
                    memcpy(&worst[kind], &x[lane], sizeof worst[kind]);
                }
            }
    }
}
