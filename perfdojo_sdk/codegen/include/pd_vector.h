/* Vector functions that are the same for every instruction set. Included at the end of the header
 * of an instruction set, which must have defined:
 *
 *   PD_VECTOR_BYTES             the bytes of a register: 16, 32 or 64
 *   pd_f32v, PD_LANES_F32       a vector type with the operators + - * / and [lane]; its lanes
 *   pd_splat_f32v(x)            x in every lane
 *   pd_load_f32v(p)             from any address; pd_store_f32v(p, v) likewise
 *   pd_load_first_f32v(p, n)    the first n lanes, 0 in the others; touches no other memory
 *   pd_store_first_f32v(p, n, v)
 *   pd_stream_f32v(p, v)        a store that bypasses the caches if possible
 *   pd_stream_fence()           orders streaming stores before everything that follows
 *   pd_select_first_f32v(n, a, b)     lanes below n from a, the others from b
 *   pd_swap_f32v(v, distance)   lane i takes lane i ^ distance; distance is a power of two
 *   pd_max_f32v(a, b)           NaN when either is NaN; pd_min_f32v likewise
 *   pd_max_number_f32v(x, v)    the same for a scalar x that is not NaN; pd_min_number_f32v
 *   pd_abs_f32v, pd_sqrt_f32v
 *   pd_scale_f32v(v, n)         v * 2^n, rounded once; n whole and in [-252, 254]
 *
 * It may define PD_WITHIN_OWN with
 *
 *   pd_within_f32v(limit, v)    true if no lane of v is NaN or larger than the limit in magnitude
 *
 * and then PD_EXP_QUICK_LIMIT with pd_exp_quick_f32v(v), exp of vectors within that limit; or PD_EXP_OWN and
 * pd_exp_f32v(v) for all vectors; and PD_ROUNDINGS_OWN with pd_floor_f32v, pd_ceil_f32v, pd_trunc_f32v and
 * pd_round_f32v (to the nearest, ties to even); and PD_ALTERNATE_OWN with pd_alternate_f32v(a, b, first); and
 * PD_ONE_OF_EIGHT_OWN with
 *
 *   pd_one_of_eight_f32v(v, c0, ..., c7)   of eight constants the one that the last three bits of each lane name
 *
 * and PD_HOLD(v), which keeps a vector of any kind in the register that it is in, where a compiler would rather
 * load it again.
 */
#ifndef PD_VECTOR_H
#define PD_VECTOR_H

/* Prefetches the cache line at p, which need not exist. */
#define pd_prefetch(p) __builtin_prefetch(p)
/* The same into the second cache: for data that is needed later, or if the first cache is busy. */
#define pd_prefetch_ahead(p) __builtin_prefetch(p, 0, 2)
/* The same for a line that will be written: no other core keeps a copy of it. */
#define pd_prefetch_write(p) __builtin_prefetch(p, 1)

#ifndef PD_HOLD
#define PD_HOLD(v) ((void)0)
#endif

#include "pd_scalar.h"

#ifndef PD_EXP_OWN
#define PD_T pd_f32v
#define PD_F(name) pd_##name##_f32v
#include "pd_exp.h"
#undef PD_T
#undef PD_F

PD_INLINE pd_f32v pd_exp_f32v(pd_f32v x)
{
#ifdef PD_EXP_QUICK_LIMIT
    if (__builtin_expect(pd_within_f32v(PD_EXP_QUICK_LIMIT, x), 1))
        return pd_exp_quick_f32v(x);
#endif
    return pd_exp_any_f32v(x);
}
#endif

/* A mask holds all bits of a lane or none, as comparisons of vectors give it. */
typedef int32_t pd_maskv __attribute__((vector_size(4 * PD_LANES_F32)));

PD_INLINE pd_maskv pd_mask_f32v(int holds) { return holds ? ~(pd_maskv){0} : (pd_maskv){0}; }

PD_INLINE pd_f32v pd_select_f32v(pd_maskv where, pd_f32v a, pd_f32v b)
{
    return (pd_f32v)((where & (pd_maskv)a) | (~where & (pd_maskv)b));
}

#ifndef PD_ALTERNATE_OWN
/* The lanes first, first + 2, first + 4, ... of two vectors as if they were one. */
PD_INLINE pd_f32v pd_alternate_f32v(pd_f32v a, pd_f32v b, int first)
{
    typedef float cells __attribute__((vector_size(4 * PD_LANES_F32)));
    const cells low = (cells)a, high = (cells)b;
#ifdef __clang__ /* which makes one shuffle of it */
    cells found = low;
#pragma GCC unroll 16
    for (int lane = 0; lane < PD_LANES_F32; lane++) {
        const int from = 2 * lane + first;
        found[lane] = from < PD_LANES_F32 ? low[from] : high[from - PD_LANES_F32];
    }
    return (pd_f32v)found;
#else
    pd_maskv from;
#pragma GCC unroll 16
    for (int lane = 0; lane < PD_LANES_F32; lane++)
        from[lane] = 2 * lane + first;
    return (pd_f32v)__builtin_shuffle(low, high, from);
#endif
}
#endif

/* Copies pairs to rows: to[r * to_step + c] = from[2 * c + r], for at most two rows and as many columns as a
 * vector has lanes. With ``whole``, rows have room for whole vectors. */
PD_INLINE void pd_unzip_f32v(const float *from, float *to, int64_t to_step, int rows, int columns, int whole)
{
    const int cells = 2 * columns - 2 + rows;
    const int more = cells > PD_LANES_F32 ? cells - PD_LANES_F32 : 0;
    const pd_f32v a = cells < PD_LANES_F32 ? pd_load_first_f32v(from, cells) : pd_load_f32v(from);
    const pd_f32v b = more == PD_LANES_F32 ? pd_load_f32v(from + PD_LANES_F32)
                      : more               ? pd_load_first_f32v(from + PD_LANES_F32, more)
                                           : a;
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) {
        const pd_f32v row = pd_alternate_f32v(a, b, r);
        if (whole || columns == PD_LANES_F32)
            pd_store_f32v(to + r * to_step, row);
        else
            pd_store_first_f32v(to + r * to_step, columns, row);
    }
}

/* Functions that have no vector form of their own: lane by lane. */
#define PD_LANE_BY_LANE(name) \
    PD_INLINE pd_f32v pd_##name##_f32v(pd_f32v v) \
    { \
        for (int lane = 0; lane < PD_LANES_F32; lane++) \
            v[lane] = pd_##name##_f32(v[lane]); \
        return v; \
    }

#define PD_LANE_BY_LANE_2(name) \
    PD_INLINE pd_f32v pd_##name##_f32v(pd_f32v v, pd_f32v w) \
    { \
        for (int lane = 0; lane < PD_LANES_F32; lane++) \
            v[lane] = pd_##name##_f32(v[lane], w[lane]); \
        return v; \
    }

PD_FUNCTIONS_BY_LANE_1(PD_LANE_BY_LANE)
PD_FUNCTIONS_BY_LANE_2(PD_LANE_BY_LANE_2)

#ifndef PD_WITHIN_OWN
PD_INLINE int pd_within_f32v(float limit, pd_f32v v)
{
    int within = 1;
    for (int lane = 0; lane < PD_LANES_F32; lane++)
        within &= __builtin_fabsf(v[lane]) <= limit;
    return within;
}
#endif

/* start, start + step, ... each rounded to the nearest float */
PD_INLINE pd_f32v pd_iota_f32v(int64_t start, int64_t step)
{
    pd_f32v v = pd_splat_f32v(0.0f);
    for (int lane = 0; lane < PD_LANES_F32; lane++)
        v[lane] = (float)(start + lane * step);
    return v;
}

/* Horizontal operations: halve the distance until every lane holds the result. */
PD_INLINE float pd_sum_f32v(pd_f32v v)
{
    for (int distance = PD_LANES_F32 / 2; distance; distance /= 2)
        v = v + pd_swap_f32v(v, distance);
    return v[0];
}

PD_INLINE float pd_product_f32v(pd_f32v v)
{
    for (int distance = PD_LANES_F32 / 2; distance; distance /= 2)
        v = v * pd_swap_f32v(v, distance);
    return v[0];
}

PD_INLINE float pd_highest_f32v(pd_f32v v)
{
    for (int distance = PD_LANES_F32 / 2; distance; distance /= 2)
        v = pd_max_f32v(v, pd_swap_f32v(v, distance));
    return v[0];
}

PD_INLINE float pd_lowest_f32v(pd_f32v v)
{
    for (int distance = PD_LANES_F32 / 2; distance; distance /= 2)
        v = pd_min_f32v(v, pd_swap_f32v(v, distance));
    return v[0];
}

/* Mathematical functions, on the compiler's own types of vectors. All that take or give vectors of doubles are inlined,
 * so that compilers need not say how these are passed. */
#pragma GCC diagnostic ignored "-Wpsabi"
typedef float pd_floatsv __attribute__((vector_size(4 * PD_LANES_F32)));
typedef double pd_doublesv __attribute__((vector_size(8 * PD_LANES_F32)));

PD_INLINE pd_floatsv pd_choose_floatsv(pd_maskv where, pd_floatsv a, pd_floatsv b)
{
    return (pd_floatsv)((where & (pd_maskv)a) | (~where & (pd_maskv)b));
}

#define PD_T pd_floatsv
#define PD_I pd_maskv
#define PD_D pd_doublesv
#define PD_F(name) pd_##name##_floatsv
#define PD_TO(type, v) __builtin_convertvector(v, type)
#define PD_BITS(v) ((pd_maskv)(v))
#define PD_OF_BITS(i) ((pd_floatsv)(i))
#define PD_CHOOSE(where, a, b) pd_choose_floatsv(where, a, b)
#define PD_AT_LEAST(c, v) ((pd_floatsv)pd_max_number_f32v(c, (pd_f32v)(v)))
#define PD_AT_MOST(c, v) ((pd_floatsv)pd_min_number_f32v(c, (pd_f32v)(v)))
#define PD_SPLAT(c) ((pd_floatsv)pd_splat_f32v(c))
#define PD_SQRT(v) ((pd_floatsv)pd_sqrt_f32v((pd_f32v)(v)))
#define PD_SCALE(v, n) ((pd_floatsv)pd_scale_f32v((pd_f32v)(v), (pd_f32v)(n)))
#define PD_LARGE(x, n, r) ((void)0)
#ifndef PD_ROUNDINGS_OWN
#define PD_ROUNDINGS
#endif
#include "pd_math.h"
#undef PD_ROUNDINGS
#undef PD_T
#undef PD_I
#undef PD_D
#undef PD_F
#undef PD_TO
#undef PD_BITS
#undef PD_OF_BITS
#undef PD_CHOOSE
#undef PD_AT_LEAST
#undef PD_AT_MOST
#undef PD_SPLAT
#undef PD_SQRT
#undef PD_SCALE
#undef PD_LARGE

#define PD_OF_ONE(name) \
    PD_INLINE pd_f32v pd_##name##_f32v(pd_f32v x) { return (pd_f32v)pd_##name##_floatsv((pd_floatsv)x); }
PD_OF_ONE(exp2) PD_OF_ONE(expm1) PD_OF_ONE(log) PD_OF_ONE(log2) PD_OF_ONE(log1p)
PD_OF_ONE(tanh) PD_OF_ONE(sigmoid) PD_OF_ONE(rsqrt) PD_OF_ONE(cbrt)
PD_OF_ONE(asin) PD_OF_ONE(acos) PD_OF_ONE(atan)
PD_OF_ONE(sinh) PD_OF_ONE(cosh) PD_OF_ONE(asinh) PD_OF_ONE(acosh) PD_OF_ONE(atanh)

#ifdef PD_ONE_OF_EIGHT_OWN
/* erf in pieces around 0, c, 2 c, ... 7 c, a polynomial of the distance t for each; above them it is 1.
 * The first piece is t + t p(t), so that small results have all their digits. c is the step for which the values
 * at the middles are nearest to floats. */
PD_INLINE pd_f32v pd_erf_f32v(pd_f32v x)
{
    const pd_f32v a = pd_min_number_f32v(7.49f * 0.52683723f, pd_abs_f32v(x));
    /* Adding 1.5 * 2^23 leaves no room for a fraction: the number of the piece is in the low bits. */
    const pd_f32v shift = pd_splat_f32v(12582912.0f), shifted = a * pd_splat_f32v(1 / 0.52683723f) + shift;
    const pd_f32v t = a - (shifted - shift) * pd_splat_f32v(0.52683723f);
    const pd_f32v middle = pd_one_of_eight_f32v(
        shifted, 0.0f, 0.543764770f, 0.863807499f, 0.974594533f,
        0.997119784f, 0.999804914f, 0.999992192f, 0.999999821f);
    pd_f32v p = pd_one_of_eight_f32v(
        shifted, -0.0199741237f, -0.0478374101f, 0.00894327182f, 0.01616803f,
        -0.00133728411f, -0.00194720493f, -0.000410649809f, -0.000455279485f);
    p = p * t + pd_one_of_eight_f32v(
        shifted, 0.118452012f, 0.000229309488f, -0.065287292f, -0.00691942405f,
        0.0124370446f, 0.00415207539f, 0.000511284801f, 2.94197162e-05f);
    p = p * t + pd_one_of_eight_f32v(
        shifted, -0.000718210649f, 0.183503032f, 0.0509469062f, -0.0487949699f,
        -0.027485922f, -0.00525318831f, -0.000460409967f, 2.38870125e-05f);
    p = p * t + pd_one_of_eight_f32v(
        shifted, -0.376086623f, -0.126805961f, 0.151196286f, 0.12364243f,
        0.0349450745f, 0.00469409069f, 0.000326113281f, 1.21620697e-05f);
    p = p * t + pd_one_of_eight_f32v(
        shifted, -6.82938491e-07f, -0.450391322f, -0.391737968f, -0.146682173f,
        -0.0280233137f, -0.00288019492f, -0.000163273973f, -6.33295667e-06f);
    p = p * t + pd_one_of_eight_f32v(
        shifted, 0.128379166f, 0.854896426f, 0.371782422f, 0.0928066596f,
        0.0132980142f, 0.00109373766f, 5.16373329e-05f, 1.39945473e-06f);
    const pd_maskv first = (pd_maskv)shifted == (pd_maskv)shift;
    const pd_f32v rest = (pd_f32v)((first & (pd_maskv)t) | (pd_maskv)middle);
    return (pd_f32v)((pd_maskv)(p * t + rest) | ((pd_maskv)x & INT32_MIN));
}
#else
PD_OF_ONE(erf)
#endif

#ifndef PD_ROUNDINGS_OWN
PD_OF_ONE(round) PD_OF_ONE(trunc) PD_OF_ONE(floor) PD_OF_ONE(ceil)
#endif

PD_INLINE pd_f32v pd_pow_f32v(pd_f32v x, pd_f32v y)
{
    return (pd_f32v)pd_pow_floatsv((pd_floatsv)x, (pd_floatsv)y);
}

/* If any argument is so far from zero that it takes more than doubles to reduce it, or NaN, all lanes are computed one
 * by one. */
#define PD_OF_ONE_NEAR(name) \
    __attribute__((noinline, unused)) static pd_f32v pd_##name##_far_f32v(pd_f32v x) \
    { \
        for (int lane = 0; lane < PD_LANES_F32; lane++) \
            x[lane] = pd_##name##_f32(x[lane]); \
        return x; \
    } \
    PD_INLINE pd_f32v pd_##name##_f32v(pd_f32v x) \
    { \
        if (__builtin_expect(!pd_within_f32v(1048575.9375f, x), 0)) \
            return pd_##name##_far_f32v(x); \
        return (pd_f32v)pd_##name##_floatsv((pd_floatsv)x); \
    }
PD_OF_ONE_NEAR(sin) PD_OF_ONE_NEAR(cos) PD_OF_ONE_NEAR(tan)

#endif
