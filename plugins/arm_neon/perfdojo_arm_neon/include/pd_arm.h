/* The common part of the vectors of 64-bit Arm: included at the end of pd_neon.h and of pd_sve.h. */
#ifndef PD_ARM_H
#define PD_ARM_H

#define PD_VECTOR_BYTES 16

/* The core detects by itself that whole lines are written, and does not fetch them. */
PD_INLINE void pd_stream_f32v(float *p, pd_f32v v) { pd_store_f32v(p, v); }
PD_INLINE void pd_stream_fence(void) {}

PD_INLINE pd_f32v pd_max_number_f32v(float number, pd_f32v v) { return pd_max_f32v(pd_splat_f32v(number), v); }
PD_INLINE pd_f32v pd_min_number_f32v(float number, pd_f32v v) { return pd_min_f32v(pd_splat_f32v(number), v); }

#ifndef PD_ANYWHERE
/* For a function that is compiled for any 64-bit Arm, whatever the flags of the rest are. */
#define PD_ANYWHERE __attribute__((target("arch=armv8-a"), noinline, unused))
#endif

/* Four bits of a register that says what the processor has; 0 where the system does not let programs read it. */
#ifdef __linux__
#define PD_FEATURE(name, which, bit) \
    PD_ANYWHERE static int name(void) \
    { \
        uint64_t features; \
        __asm__("mrs %0, " which : "=r"(features)); \
        return (features >> bit & 15) != 0; \
    }
#else
#define PD_FEATURE(name, which, bit) \
    PD_ANYWHERE static int name(void) { return 0; }
#endif

/* Products of bytes in groups of four: SDOT and UDOT. */
PD_FEATURE(pd_has_dot_products, "id_aa64isar0_el1", 44)
/* Products of bytes of which one has a sign, USDOT, and products of small matrices of bytes: SMMLA, UMMLA and USMMLA. */
PD_FEATURE(pd_has_matrices_of_bytes, "id_aa64isar1_el1", 52)
/* Products of bf16: BFDOT and BFMMLA. */
PD_FEATURE(pd_has_sums_of_bf16, "id_aa64isar1_el1", 44)

#define PD_HOLD(v) __asm__("" : "+w"(v))
#include "pd_vector.h"

#endif
