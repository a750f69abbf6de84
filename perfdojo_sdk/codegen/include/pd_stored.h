/* Floats with fewer digits than a float: stored and converted. What is computed with them is computed in floats.
 *
 * bfloat16 is the upper half of a float; tf32 takes as many bytes as a float and has zeros in its last 13 bits; f16 is
 * IEEE's binary16. Before inclusion: PD_INLINE and the fixed-width integers. A dialect whose hardware converts defines
 * PD_F16_BITS(x), PD_BF16_BITS(x) and PD_TF32_BITS(x), the bits of the number nearest to a float, ties to even, and
 * PD_F16_VALUE(bits), the number that the bits of an f16 are.
 */
#ifndef PD_STORED_H
#define PD_STORED_H

typedef struct {
    uint16_t bits;
} pd_bf16;

typedef struct {
    uint32_t bits;
} pd_tf32;

typedef struct {
    uint16_t bits;
} pd_f16;

PD_INLINE pd_f16 pd_f16_of(uint16_t bits)
{
    const pd_f16 x = {bits};
    return x;
}

PD_INLINE pd_bf16 pd_bf16_of(uint16_t bits)
{
    const pd_bf16 x = {bits};
    return x;
}

PD_INLINE pd_tf32 pd_tf32_of(uint32_t bits)
{
    const pd_tf32 x = {bits};
    return x;
}

/* To the nearest, ties to even; NaN stays NaN. */
PD_INLINE pd_bf16 pd_bf16_from_f32(float x)
{
#ifdef PD_BF16_BITS
    return pd_bf16_of(PD_BF16_BITS(x));
#else
    const union { float value; uint32_t bits; } u = {x};
    const uint32_t nearest = (u.bits + 0x7fffu + (u.bits >> 16 & 1)) >> 16;
    return pd_bf16_of((uint16_t)(x != x ? u.bits >> 16 | 0x40 : nearest));
#endif
}

PD_INLINE pd_tf32 pd_tf32_from_f32(float x)
{
#ifdef PD_TF32_BITS
    return pd_tf32_of(PD_TF32_BITS(x));
#else
    const union { float value; uint32_t bits; } u = {x};
    const uint32_t nearest = u.bits + 0xfffu + (u.bits >> 13 & 1);
    return pd_tf32_of((x != x ? u.bits | 0x400000 : nearest) & 0xffffe000u);
#endif
}

PD_INLINE float pd_f32_from_bf16(pd_bf16 x)
{
    const union { uint32_t bits; float value; } u = {(uint32_t)x.bits << 16};
    return u.value;
}

PD_INLINE float pd_f32_from_tf32(pd_tf32 x)
{
    const union { uint32_t bits; float value; } u = {x.bits};
    return u.value;
}

PD_INLINE pd_f16 pd_f16_from_f32(float x)
{
#ifdef PD_F16_BITS
    return pd_f16_of(PD_F16_BITS(x));
#else
    const union { float value; uint32_t bits; } u = {x};
    const uint32_t size = u.bits & 0x7fffffffu;
    uint32_t half;
    if (size > 0x7f800000u) {
        half = 0x7e00u | (size >> 13 & 0x3ffu);
    } else if (size >= 0x477ff000u) { /* from the middle between the largest number and the next power of two on */
        half = 0x7c00u;
    } else if (size < 0x38800000u) { /* denormal: adding 0.5 leaves as many digits as it has */
        const union { uint32_t bits; float value; } least = {size};
        const union { float value; uint32_t bits; } sum = {least.value + 0.5f};
        half = sum.bits - 0x3f000000u;
    } else {
        half = (size - (112u << 23) + 0xfffu + (size >> 13 & 1)) >> 13;
    }
    return pd_f16_of((uint16_t)(half | (u.bits >> 16 & 0x8000u)));
#endif
}

PD_INLINE float pd_f32_from_f16(pd_f16 x)
{
#ifdef PD_F16_VALUE
    return PD_F16_VALUE(x.bits);
#else
    const uint32_t size = x.bits & 0x7fffu, sign = (uint32_t)(x.bits & 0x8000u) << 16;
    union { uint32_t bits; float value; } u = {size << 13};
    if (size >= 0x7c00u) {
        u.bits |= 0x7f800000u;
    } else if (size >= 0x400u) {
        u.bits += 112u << 23;
    } else { /* denormal: a whole number of 2^-24 */
        u.bits = 0x3f000000u + size;
        u.value -= 0.5f;
    }
    u.bits |= sign;
    return u.value;
#endif
}

/* A double as a float whose last digit is odd unless it is exact: rounded again, it is the nearest number of fewer
 * digits. */
PD_INLINE float pd_odd_f32(double x)
{
    union { float value; uint32_t bits; } near = {(float)x};
    const double back = (double)near.value;
    if (back != x && x == x && !(near.bits & 1))
        near.bits += (back < 0 ? -back : back) < (x < 0 ? -x : x) ? 1u : ~0u;
    return near.value;
}

PD_INLINE pd_bf16 pd_bf16_from_f64(double x) { return pd_bf16_from_f32(pd_odd_f32(x)); }
PD_INLINE pd_tf32 pd_tf32_from_f64(double x) { return pd_tf32_from_f32(pd_odd_f32(x)); }
PD_INLINE pd_f16 pd_f16_from_f64(double x) { return pd_f16_from_f32(pd_odd_f32(x)); }

#endif
