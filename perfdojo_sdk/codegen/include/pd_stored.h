/* Floats with fewer digits than a float: stored and converted, never computed with.
 *
 * bfloat16 is the upper half of a float; tf32 takes as many bytes as a float and has zeros in its last 13 bits.
 * Before inclusion: PD_INLINE and the fixed-width integers. A dialect whose hardware converts defines
 * PD_BF16_BITS(x) and PD_TF32_BITS(x), the bits of the number nearest to a float, ties to even.
 */
#ifndef PD_STORED_H
#define PD_STORED_H

typedef struct {
    uint16_t bits;
} pd_bf16;

typedef struct {
    uint32_t bits;
} pd_tf32;

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

#endif
