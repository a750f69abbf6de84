/* The vector functions of 64-bit Arm's SVE where its vectors are 128 bits: 4 lanes of float32, 32 registers, and
 * predicates that mask loads, stores and selections. Needs -msve-vector-bits=128. */
#ifndef PD_SVE_H
#define PD_SVE_H

#include <arm_sve.h>

#include "pd_scalar.h"

typedef svfloat32_t pd_f32v __attribute__((arm_sve_vector_bits(128)));
enum { PD_LANES_F32 = 4, PD_OTHER_VECTORS = 2 };

/* For a function that is compiled for any 64-bit Arm, whatever the flags of the rest are. */
#define PD_ANYWHERE __attribute__((target("arch=armv8-a"), noinline, unused))

/* Whether processor and system have SVE. Linux answers for this register, which programs cannot read themselves. */
PD_ANYWHERE static int pd_has_sve(void)
{
#ifdef __linux__
    uint64_t features;
    __asm__("mrs %0, id_aa64pfr0_el1" : "=r"(features));
    return (features >> 32 & 15) != 0;
#else
    return 0;
#endif
}

/* The compiler relies on the length that it was told. With longer vectors, loads and stores would go beyond their
 * cells, so this asks the processor. */
PD_INLINE int pd_other_vectors(void)
{
    uint64_t bytes;
    __asm__("rdvl %0, #1" : "=r"(bytes));
    return bytes != sizeof(pd_f32v);
}

/* n is a constant at every call, so this is one instruction that is done once. */
#define PD_ALL svptrue_b32()
#define PD_FIRST(n) svwhilelt_b32_s32(0, n)

PD_INLINE pd_f32v pd_splat_f32v(float x) { return svdup_n_f32(x); }

/* Whole vectors without a mask, so that the compiler may load and store two at once. */
PD_INLINE pd_f32v pd_load_f32v(const float *p)
{
    pd_f32v v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
PD_INLINE void pd_store_f32v(float *p, pd_f32v v) { __builtin_memcpy(p, &v, sizeof v); }

PD_INLINE pd_f32v pd_load_first_f32v(const float *p, int n) { return svld1_f32(PD_FIRST(n), p); }
PD_INLINE void pd_store_first_f32v(float *p, int n, pd_f32v v) { svst1_f32(PD_FIRST(n), p, v); }
PD_INLINE pd_f32v pd_select_first_f32v(int n, pd_f32v a, pd_f32v b) { return svsel_f32(PD_FIRST(n), a, b); }

PD_INLINE pd_f32v pd_swap_f32v(pd_f32v v, int distance)
{
    const svfloat32_t pairs = v;
    if (distance == 2)
        return svext_f32(pairs, pairs, 2);
    return svreinterpret_f32_u64(svrevw_u64_x(svptrue_b64(), svreinterpret_u64_f32(pairs)));
}

/* One instruction each, and NaN when either operand is. */
PD_INLINE pd_f32v pd_max_f32v(pd_f32v a, pd_f32v b) { return svmax_f32_x(PD_ALL, a, b); }
PD_INLINE pd_f32v pd_min_f32v(pd_f32v a, pd_f32v b) { return svmin_f32_x(PD_ALL, a, b); }
PD_INLINE pd_f32v pd_abs_f32v(pd_f32v v) { return svabs_f32_x(PD_ALL, v); }
PD_INLINE pd_f32v pd_sqrt_f32v(pd_f32v v) { return svsqrt_f32_x(PD_ALL, v); }

/* One instruction beside the conversion, which rounds once however small the result is. */
PD_INLINE pd_f32v pd_scale_f32v(pd_f32v v, pd_f32v n)
{
    return svscale_f32_x(PD_ALL, v, svcvt_s32_f32_x(PD_ALL, n));
}

#define PD_WITHIN_OWN
PD_INLINE int pd_within_f32v(float limit, pd_f32v v)
{
    return !svptest_any(PD_ALL, svnot_b_z(PD_ALL, svacle_n_f32(PD_ALL, v, limit)));
}

#define PD_ROUNDINGS_OWN
PD_INLINE pd_f32v pd_floor_f32v(pd_f32v v) { return svrintm_f32_x(PD_ALL, v); }
PD_INLINE pd_f32v pd_ceil_f32v(pd_f32v v) { return svrintp_f32_x(PD_ALL, v); }
PD_INLINE pd_f32v pd_trunc_f32v(pd_f32v v) { return svrintz_f32_x(PD_ALL, v); }
PD_INLINE pd_f32v pd_round_f32v(pd_f32v v) { return svrintn_f32_x(PD_ALL, v); }

#include "pd_arm.h"

#endif
