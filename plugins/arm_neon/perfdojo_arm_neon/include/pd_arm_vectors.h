/* Vectors of every dtype on 64-bit Arm, 128 bits each: NEON's instructions, which a processor with SVE has as well. */
#ifndef PD_ARM_VECTORS_H
#define PD_ARM_VECTORS_H

#include <arm_neon.h>

#define PD_OWN_QUOTIENTS
#define PD_OWN_ROOT(v) vsqrtq_f64((float64x2_t)(v))
#include "pd_vectors.h"

#define pd_max_f32x4(a, b) ((pd_f32x4)pd_max_f32v((pd_f32v)(a), (pd_f32v)(b)))
#define pd_min_f32x4(a, b) ((pd_f32x4)pd_min_f32v((pd_f32v)(a), (pd_f32v)(b)))
/* One instruction each; NaN when either operand is. */
#define pd_max_f64x2(a, b) ((pd_f64x2)vmaxq_f64((float64x2_t)(a), (float64x2_t)(b)))
#define pd_min_f64x2(a, b) ((pd_f64x2)vminq_f64((float64x2_t)(a), (float64x2_t)(b)))
#define pd_sqrt_f64x2(v) ((pd_f64x2)PD_OWN_ROOT(v))
#define pd_floor_f64x2(v) ((pd_f64x2)vrndmq_f64((float64x2_t)(v)))
#define pd_ceil_f64x2(v) ((pd_f64x2)vrndpq_f64((float64x2_t)(v)))
#define pd_trunc_f64x2(v) ((pd_f64x2)vrndq_f64((float64x2_t)(v)))
#define pd_round_f64x2(v) ((pd_f64x2)vrndnq_f64((float64x2_t)(v)))

#define pd_f32x4_from_f16x4(v) ((pd_f32x4)vcvt_f32_f16((float16x4_t)(v)))
#define pd_f16x4_from_f32x4(v) ((pd_f16x4)vcvt_f16_f32((float32x4_t)(v)))

/* Sums of products in groups of four bytes. The instructions are spelled out, since the flags of a whole kernel are those
 * of processors that lack them; a kernel with one asks for it when it is called. */
#define PD_SPLAT_GROUP(T, V, N) \
    PD_INLINE PD_TYPE(T, N) PD_OF(splat_group, T, N)(const void *p) \
    { \
        int32_t group; \
        __builtin_memcpy(&group, p, sizeof group); \
        return (PD_TYPE(T, N))PD_OF(splat, i32, V)(group); \
    }
/* K: of elements, as the assembler has it. */
#define PD_ADD_UP(name, T, A, B, V, N, K, feature, instruction) \
    PD_INLINE PD_TYPE(T, V) pd_##name##_##T##x##V##_##A##_##B(PD_TYPE(T, V) sum, PD_TYPE(A, N) a, PD_TYPE(B, N) b) \
    { \
        __asm__(".arch_extension " feature "\n\t" instruction " %0." #V "s, %1." #N #K ", %2." #N #K \
                : "+w"(sum) : "w"(a), "w"(b)); \
        return sum; \
    }
#define PD_GROUPS(V, N, H) \
    PD_SPLAT_GROUP(i8, V, N) PD_SPLAT_GROUP(u8, V, N) PD_SPLAT_GROUP(bf16, V, H) \
    PD_ADD_UP(group, i32, i8, i8, V, N, b, "dotprod", "sdot") PD_ADD_UP(group, i32, u8, u8, V, N, b, "dotprod", "udot") \
    PD_ADD_UP(group, u32, u8, u8, V, N, b, "dotprod", "udot") PD_ADD_UP(group, i32, u8, i8, V, N, b, "i8mm", "usdot") \
    PD_ADD_UP(group, f32, bf16, bf16, V, H, h, "bf16", "bfdot")
PD_GROUPS(4, 16, 8)
PD_GROUPS(2, 8, 4)

/* Two rows by two columns of sums: of eight bytes, or of four bf16. */
PD_ADD_UP(tile, i32, i8, i8, 4, 16, b, "i8mm", "smmla")
PD_ADD_UP(tile, i32, u8, u8, 4, 16, b, "i8mm", "ummla")
PD_ADD_UP(tile, u32, u8, u8, 4, 16, b, "i8mm", "ummla")
PD_ADD_UP(tile, i32, u8, i8, 4, 16, b, "i8mm", "usmmla")
PD_ADD_UP(tile, f32, bf16, bf16, 4, 8, h, "bf16", "bfmmla")

#endif
