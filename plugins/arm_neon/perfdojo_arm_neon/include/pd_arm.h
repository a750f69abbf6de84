/* The common part of the vectors of 64-bit Arm: included at the end of pd_neon.h and of pd_sve.h. */
#ifndef PD_ARM_H
#define PD_ARM_H

/* The core detects by itself that whole lines are written, and does not fetch them. */
PD_INLINE void pd_stream_f32v(float *p, pd_f32v v) { pd_store_f32v(p, v); }
PD_INLINE void pd_stream_fence(void) {}

PD_INLINE pd_f32v pd_max_number_f32v(float number, pd_f32v v) { return pd_max_f32v(pd_splat_f32v(number), v); }
PD_INLINE pd_f32v pd_min_number_f32v(float number, pd_f32v v) { return pd_min_f32v(pd_splat_f32v(number), v); }

#ifndef PD_ANYWHERE
/* For a function that is compiled for any 64-bit Arm, whatever the flags of the rest are. */
#define PD_ANYWHERE __attribute__((target("arch=armv8-a"), noinline, unused))
#endif

/* Whether the processor adds up products of bytes in groups of four: SDOT and UDOT. */
PD_ANYWHERE static int pd_has_dot_products(void)
{
#ifdef __linux__
    uint64_t features;
    __asm__("mrs %0, id_aa64isar0_el1" : "=r"(features));
    return (features >> 44 & 15) != 0;
#else
    return 0;
#endif
}

#include "pd_vector.h"

#endif
