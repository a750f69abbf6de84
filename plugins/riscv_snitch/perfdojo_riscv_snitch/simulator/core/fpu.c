/* Scalar and packed execution: unbox or split, compute by format, box or join. */
#include "fpu.h"
#include "hostfloat.h"

/* One lane of an operation whose operands and result have one format. Called with constants so
 * that each format gets arithmetic of its own. */
static INLINE u64 lane(Format f, const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    switch (i->op) {
    case FOP_ADD: return fp_add(f, a, b, rm, flags);
    case FOP_SUB: return fp_add(f, a, b ^ zero(f, 1), rm, flags);
    case FOP_MUL: return fp_mul(f, a, b, rm, flags);
    case FOP_FMADD: return fp_fma(f, a, b, c, 0, 0, rm, flags);
    case FOP_FMSUB: return fp_fma(f, a, b, c, 0, 1, rm, flags);
    case FOP_FNMSUB: return fp_fma(f, a, b, c, 1, 0, rm, flags);
    case FOP_FNMADD: return fp_fma(f, a, b, c, 1, 1, rm, flags);
    case FOP_SGNJ: return fp_sign_inject(f, a, b, 0);
    case FOP_SGNJN: return fp_sign_inject(f, a, b, 1);
    case FOP_SGNJX: return fp_sign_inject(f, a, b, 2);
    case FOP_MIN: return fp_minmax(f, a, b, 0, flags);
    case FOP_MAX: return fp_minmax(f, a, b, 1, flags);
    case FOP_LE: return (u64)fp_compare(f, a, b, CMP_LE, i->negate, flags);
    case FOP_LT: return (u64)fp_compare(f, a, b, CMP_LT, i->negate, flags);
    case FOP_EQ: return (u64)fp_compare(f, a, b, CMP_EQ, i->negate, flags);
    case FOP_CLASS: return fp_classify(f, a);
    case FOP_F2I: return fp_to_int(f, a, i->is_unsigned, rm, flags);
    case FOP_I2F: return fp_from_int(f, (u32)a, i->is_unsigned, rm, flags);
    default: return 0;
    }
}

static u64 lane_s(const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    const Format f = {32, 8, 23, 127};
    u64 result;
    if (rm == RNE && host_s(i->op, a, b, c, &result, flags)) return result;
    return lane(f, i, a, b, c, rm, flags);
}

static u64 lane_d(const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    const Format f = {64, 11, 52, 1023};
    u64 result;
    if (rm == RNE && host_d(i->op, a, b, c, &result, flags)) return result;
    return lane(f, i, a, b, c, rm, flags);
}

static u64 lane_h(const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    const Format f = {16, 5, 10, 15};
    return lane(f, i, a, b, c, rm, flags);
}

static u64 box(Format f, u64 value) { return value | ~low_mask(f.width); }

/* A narrower value whose upper bits are not all ones counts as a NaN. */
static u64 unbox(Format f, u64 value) {
    return value >> 1 >> (f.width - 1) == low_mask(64 - f.width) ? value & low_mask(f.width) : canonical_nan(f);
}

static u64 part(u64 value, int width, int index) { return value >> (width * index) & low_mask(width); }

static u64 execute_vector(const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    int width = FORMATS[i->dst].width, lanes = 64 / width;
    u64 result = 0;
    for (int k = 0; k < lanes; k++) {
        u64 x = part(a, width, k), y = part(b, width, i->replicate ? 0 : k), z = part(c, width, k);
        u64 r = i->dst == FMT_S ? lane_s(i, x, y, z, rm, flags) : lane_h(i, x, y, z, rm, flags);
        result |= r << (i->to_int ? k : k * width);
    }
    return result;
}

static u64 execute_sums(const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    Format from = FORMATS[i->src], to = FORMATS[i->dst];
    const u64 one_h = 0x3c00;
    u64 result = 0;
    if (i->op == FOP_VSUM) {
        /* Pairs of neighbours collapse into the low half; the upper half is all ones. */
        for (int k = 0; k < 32 / to.width; k++)
            result |= fp_sum3(to, part(a, to.width, 2 * k), part(a, to.width, 2 * k + 1), part(c, to.width, k),
                              i->negate, rm, flags)
                      << (k * to.width);
        return result | ~low_mask(32);
    }
    for (int k = 0; k < 2; k++) {
        u64 b0 = i->op == FOP_DOTP ? part(b, 16, 2 * k) : one_h;
        u64 b1 = i->op == FOP_DOTP ? part(b, 16, 2 * k + 1) : one_h;
        result |= fp_dot2(from, to, part(a, 16, 2 * k), b0, part(a, 16, 2 * k + 1), b1, part(c, 32, k), i->negate,
                          rm, flags)
                  << (32 * k);
    }
    return result;
}

/* Casts of two values into a pair of lanes; the other lanes keep the old rd. */
static u64 execute_pack(const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    Format from = FORMATS[i->src], to = FORMATS[i->dst];
    u64 low = fp_convert(from, to, a & low_mask(from.width), rm, flags);
    u64 high = fp_convert(from, to, b & low_mask(from.width), rm, flags);
    u64 pair = high << to.width | low;
    int at = i->upper ? 2 * to.width : 0;
    u64 mask = low_mask(2 * to.width) << at;
    return (c & ~mask) | (pair << at & mask);
}

static u64 execute_halves(const Insn *i, u64 a, int rm, int *flags) {
    Format from = FORMATS[i->src], to = FORMATS[i->dst];
    u64 result = i->op == FOP_NARROW ? ~low_mask(32) : 0;
    if (i->upper) a >>= 32;
    for (int k = 0; k < 2; k++)
        result |= fp_convert(from, to, part(a, from.width, k), rm, flags) << (k * to.width);
    return result;
}

static u64 execute_cast(const Insn *i, u64 a, int rm, int *flags) {
    Format from = FORMATS[i->src], to = FORMATS[i->dst];
    u64 r = fp_convert(from, to, i->src == FMT_D ? a : unbox(from, a), rm, flags);
    return i->dst == FMT_D ? r : box(to, r);
}

static u64 execute_scalar(const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    Format f = FORMATS[i->dst];
    if (i->op != FOP_I2F) a = unbox(f, a);
    b = unbox(f, b), c = unbox(f, c);
    u64 r = i->dst == FMT_S ? lane_s(i, a, b, c, rm, flags) : lane_h(i, a, b, c, rm, flags);
    return i->to_int ? r : box(f, r);
}

u64 fpu_execute(const Insn *i, u64 a, u64 b, u64 c, int rm, int *flags) {
    switch (i->op) {
    case FOP_TO_INT_BITS: return i->dst == FMT_H ? (u64)(i64)(int16_t)a : a;
    case FOP_FROM_INT_BITS: return box(FORMATS[i->dst], a & low_mask(FORMATS[i->dst].width));
    case FOP_F2F: return execute_cast(i, a, rm, flags);
    case FOP_PACK: return execute_pack(i, a, b, c, rm, flags);
    case FOP_WIDEN:
    case FOP_NARROW: return execute_halves(i, a, rm, flags);
    case FOP_VSUM:
    case FOP_EXVSUM:
    case FOP_DOTP: return execute_sums(i, a, b, c, rm, flags);
    default: break;
    }
    if (i->vector) return execute_vector(i, a, b, c, rm, flags);
    if (i->dst == FMT_D) return lane_d(i, a, b, c, rm, flags);
    return execute_scalar(i, a, b, c, rm, flags);
}
