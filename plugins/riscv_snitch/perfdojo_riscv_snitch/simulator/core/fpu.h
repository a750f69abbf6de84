/* The arithmetic of the FPU, without its timing. */
#ifndef FPU_H
#define FPU_H

#include "decode.h"
#include "softfloat.h"

/* a + b + c, and a*b + c*d + e with the products in a narrower format; `negate` changes the sign of
 * everything but the last term. */
u64 fp_sum3(Format f, u64 a, u64 b, u64 c, int negate, int rm, int *flags);
u64 fp_dot2(Format from, Format to, u64 a, u64 b, u64 c, u64 d, u64 e, int negate, int rm, int *flags);

/* The result register of an FPU instruction: 64 bits for an FP register, the low 32 for an integer
 * one. `a`, `b` are rs1 and rs2 (for conversions from integer, `a` is the integer), `c` is rs3 or
 * the old rd. Flags are ored into `flags`. */
u64 fpu_execute(const Insn *insn, u64 a, u64 b, u64 c, int rm, int *flags);

#endif
