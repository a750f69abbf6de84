/* The common part of the vectors of 64-bit Arm: included at the end of pd_neon.h and of pd_sve.h. */
#ifndef PD_ARM_H
#define PD_ARM_H

/* The core detects by itself that whole lines are written, and does not fetch them. */
PD_INLINE void pd_stream_f32v(float *p, pd_f32v v) { pd_store_f32v(p, v); }
PD_INLINE void pd_stream_fence(void) {}

PD_INLINE pd_f32v pd_max_number_f32v(float number, pd_f32v v) { return pd_max_f32v(pd_splat_f32v(number), v); }
PD_INLINE pd_f32v pd_min_number_f32v(float number, pd_f32v v) { return pd_min_f32v(pd_splat_f32v(number), v); }

#include "pd_vector.h"

#endif
