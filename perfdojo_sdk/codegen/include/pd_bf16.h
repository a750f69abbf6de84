/* bfloat16, the upper half of a float: stored and converted, never computed with.
 *
 * Before inclusion: PD_INLINE and the fixed-width integers. A dialect whose hardware converts defines
 * PD_BF16_BITS(x), the bits of the bfloat16 nearest to a float.
 */
#ifndef PD_BF16_H
#define PD_BF16_H

typedef struct {
    uint16_t bits;
} pd_bf16;

PD_INLINE pd_bf16 pd_bf16_of(uint16_t bits)
{
    const pd_bf16 x = {bits};
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

PD_INLINE float pd_f32_from_bf16(pd_bf16 x)
{
    const union { uint32_t bits; float value; } u = {(uint32_t)x.bits << 16};
    return u.value;
}

#endif
