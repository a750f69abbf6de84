/* The vector functions of 64-bit Arm's NEON: 4 lanes of float32, 32 registers. */
#ifndef PD_NEON_H
#define PD_NEON_H

#include <arm_neon.h>

#include "pd_scalar.h"

typedef float32x4_t pd_f32v;
enum { PD_LANES_F32 = 4 };

PD_INLINE pd_f32v pd_splat_f32v(float x) { return vdupq_n_f32(x); }
PD_INLINE pd_f32v pd_load_f32v(const float *p) { return vld1q_f32(p); }
PD_INLINE void pd_store_f32v(float *p, pd_f32v v) { vst1q_f32(p, v); }

/* There are no masks: n is a constant at every call, so one of these is a load or two. */
PD_INLINE pd_f32v pd_load_first_f32v(const float *p, int n)
{
    const pd_f32v zero = vdupq_n_f32(0.0f);
    if (n >= 4)
        return vld1q_f32(p);
    if (n >= 2) {
        const pd_f32v two = vcombine_f32(vld1_f32(p), vget_low_f32(zero));
        return n == 3 ? vld1q_lane_f32(p + 2, two, 2) : two;
    }
    return n == 1 ? vld1q_lane_f32(p, zero, 0) : zero;
}

PD_INLINE void pd_store_first_f32v(float *p, int n, pd_f32v v)
{
    if (n >= 4) {
        vst1q_f32(p, v);
        return;
    }
    if (n >= 2)
        vst1_f32(p, vget_low_f32(v));
    if (n == 3)
        vst1q_lane_f32(p + 2, v, 2);
    if (n == 1)
        vst1q_lane_f32(p, v, 0);
}

PD_INLINE pd_f32v pd_select_first_f32v(int n, pd_f32v a, pd_f32v b)
{
    static const uint32_t window[8] = {~0u, ~0u, ~0u, ~0u, 0, 0, 0, 0};
    return vbslq_f32(vld1q_u32(window + 4 - n), a, b);
}

PD_INLINE pd_f32v pd_swap_f32v(pd_f32v v, int distance)
{
    return distance == 2 ? vextq_f32(v, v, 2) : vrev64q_f32(v);
}

/* One instruction each, and NaN when either operand is. */
PD_INLINE pd_f32v pd_max_f32v(pd_f32v a, pd_f32v b) { return vmaxq_f32(a, b); }
PD_INLINE pd_f32v pd_min_f32v(pd_f32v a, pd_f32v b) { return vminq_f32(a, b); }
PD_INLINE pd_f32v pd_abs_f32v(pd_f32v v) { return vabsq_f32(v); }
PD_INLINE pd_f32v pd_sqrt_f32v(pd_f32v v) { return vsqrtq_f32(v); }

/* 2^n for whole n in [-126, 127]. */
PD_INLINE pd_f32v pd_power_of_two_f32v(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

/* Two steps, because 2^n alone may lie outside the range of normal numbers; only the last rounds. */
PD_INLINE pd_f32v pd_scale_f32v(pd_f32v v, pd_f32v n)
{
    const int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    return v * pd_power_of_two_f32v(half) * pd_power_of_two_f32v(vsubq_s32(whole, half));
}

#define PD_WITHIN_OWN
PD_INLINE int pd_within_f32v(float limit, pd_f32v v) { return vminvq_u32(vcaleq_f32(v, vdupq_n_f32(limit))) != 0; }

#define PD_ROUNDINGS_OWN
PD_INLINE pd_f32v pd_floor_f32v(pd_f32v v) { return vrndmq_f32(v); }
PD_INLINE pd_f32v pd_ceil_f32v(pd_f32v v) { return vrndpq_f32(v); }
PD_INLINE pd_f32v pd_trunc_f32v(pd_f32v v) { return vrndq_f32(v); }
PD_INLINE pd_f32v pd_round_f32v(pd_f32v v) { return vrndnq_f32(v); }

#include "pd_arm.h"

#endif
