/* From 32 bits to an Insn. The cases follow the major opcodes of the RISC-V manual; opcode 0x0b is
 * FREP, 0x2b configures the streams, and 0x33 with funct7 of the form 10xxxxx is packed SIMD. */
#include "decode.h"

#include "softfloat.h"

static u32 bits(u32 raw, int high, int low) { return raw >> low & (u32)((1ull << (high - low + 1)) - 1); }

static i32 imm_i(u32 raw) { return (i32)raw >> 20; }
static i32 imm_s(u32 raw) { return ((i32)raw >> 25) * 32 + (i32)bits(raw, 11, 7); }
static i32 imm_b(u32 raw) {
    return ((i32)raw >> 31) * 4096 + (i32)(bits(raw, 7, 7) << 11 | bits(raw, 30, 25) << 5 | bits(raw, 11, 8) << 1);
}
static i32 imm_j(u32 raw) {
    return ((i32)raw >> 31) * (1 << 20) +
           (i32)(bits(raw, 19, 12) << 12 | bits(raw, 20, 20) << 11 | bits(raw, 30, 21) << 1);
}

static void waits_for(Insn *i, u8 reg) { i->wait |= 1u << reg; }

static void decode_op(Insn *i, u32 funct3, u32 funct7) {
    static const u8 ops[8] = {OP_ADD, OP_SLL, OP_SLT, OP_SLTU, OP_XOR, OP_SRL, OP_OR, OP_AND};
    waits_for(i, i->rs1), waits_for(i, i->rs2);
    if (funct7 == 1) {
        i->unit = UNIT_MULDIV;
        i->op = (u8)funct3;
        return;
    }
    if (funct7 && !(funct7 == 0x20 && (funct3 == 0 || funct3 == 5))) return;
    i->unit = UNIT_ALU;
    i->op = funct7 ? (funct3 ? OP_SRA : OP_SUB) : ops[funct3];
    i->writes_rd = 1;
}

static void decode_op_imm(Insn *i, u32 funct3, u32 funct7) {
    static const u8 ops[8] = {OP_ADD, OP_SLL, OP_SLT, OP_SLTU, OP_XOR, OP_SRL, OP_OR, OP_AND};
    bool shift = funct3 == 1 || funct3 == 5;
    if (shift && funct7 && !(funct7 == 0x20 && funct3 == 5)) return;
    waits_for(i, i->rs1);
    i->unit = UNIT_ALU;
    i->op = funct3 == 5 && funct7 ? OP_SRA : ops[funct3];
    i->imm = shift ? i->rs2 : imm_i(i->raw);
    i->uses_imm = i->writes_rd = 1;
}

static void decode_atomic(Insn *i, u32 funct3) {
    static const u32 known = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 8 | 1u << 12 | 1u << 16 |
                             1u << 20 | 1u << 24 | 1u << 28;
    u32 funct5 = i->raw >> 27;
    if (funct3 != 2 || !(known >> funct5 & 1) || (funct5 == 2 && i->rs2)) return;
    waits_for(i, i->rs1), waits_for(i, i->rs2);
    i->unit = UNIT_ATOMIC;
    i->op = (u8)funct5;
    i->size = 2;
    i->is_signed = 1;
}

static void decode_system(Insn *i, u32 funct3) {
    if (!funct3) {
        if (i->raw == 0x00000073) i->unit = UNIT_ECALL;
        if (i->raw == 0x00100073) i->unit = UNIT_EBREAK;
        return;
    }
    if (funct3 == 4) return;
    u32 csr = i->raw >> 20;
    i->op = funct3 & 3;
    i->uses_imm = funct3 >> 2;
    i->imm = (i32)csr;
    if (csr == 0x7c0) {
        /* Only the set and clear forms with an immediate reach the FP subsystem. */
        if (!i->uses_imm || i->op == OP_CSRRW) return;
        i->unit = UNIT_FP_CSR;
        i->path = PATH_DIRECT;
        return;
    }
    if (!i->uses_imm) waits_for(i, i->rs1);
    i->unit = UNIT_CSR;
    i->writes_rd = 1;
}

static void decode_ssr_config(Insn *i, u32 funct3, u32 funct7) {
    i->imm = (i32)(i->raw >> 20);
    if (funct3 == 2 && i->rd < 2) {
        i->op = i->rd ? OP_SCFGW : OP_SCFGWI;
        waits_for(i, i->rs1);
        if (i->rd) {
            if (funct7) return;
            waits_for(i, i->rs2);
        }
    } else if (funct3 == 1 && i->rs1 < 2) {
        i->op = i->rs1 ? OP_SCFGR : OP_SCFGRI;
        if (i->rs1) {
            if (funct7) return;
            waits_for(i, i->rs2);
        }
    } else {
        return;
    }
    i->unit = UNIT_SSR_CONFIG;
}

static void fp_memory(Insn *i, u32 funct3, bool store) {
    if (funct3 < 1 || funct3 > 3) return;
    waits_for(i, i->rs1);
    i->unit = store ? UNIT_FP_STORE : UNIT_FP_LOAD;
    i->size = (u8)funct3;
    i->imm = store ? imm_s(i->raw) : imm_i(i->raw);
    i->reads = store ? FIELD_RS2 : 0;
    i->writes = store ? 0 : FIELD_RD;
}

/* Format field of the scalar instructions: 0 s, 1 d, 2 h. */
static bool scalar_format(u32 field, u8 *format) {
    static const u8 formats[4] = {FMT_S, FMT_D, FMT_H, 0};
    *format = formats[field];
    return field != 3;
}

static bool known_rounding(u32 rm) { return rm <= RMM || rm == DYN; }

static void computes(Insn *i, u8 op, u8 group, u8 reads) {
    i->unit = UNIT_FPU;
    i->op = op;
    i->group = group;
    i->reads = reads;
    i->writes = FIELD_RD;
}

static void to_integer(Insn *i, bool direct) {
    i->writes = 0;
    i->to_int = 1;
    if (direct) i->path = PATH_DIRECT;
}

static void decode_fma(Insn *i, u32 opcode) {
    static const u8 ops[4] = {FOP_FMADD, FOP_FMSUB, FOP_FNMSUB, FOP_FNMADD};
    if (!scalar_format(bits(i->raw, 26, 25), &i->dst) || !known_rounding(i->rm)) return;
    i->src = i->dst;
    computes(i, ops[opcode >> 2 & 3], GROUP_FMA, FIELD_RS1 | FIELD_RS2 | FIELD_RS3);
}

static void decode_fp_convert(Insn *i) {
    u8 to = i->dst;
    if (i->rs2 > 2 || !scalar_format(i->rs2, &i->src) || i->src == to || !known_rounding(i->rm)) return;
    computes(i, FOP_F2F, GROUP_CONV, FIELD_RS1);
}

/* Which moves and conversions between the register files pass the sequencer's ring is a choice of
 * the hardware: those that Xfrep loops make use of are buffered. */
static void decode_fp_integer(Insn *i, u32 funct5, u32 funct3) {
    bool s = i->dst == FMT_S, d = i->dst == FMT_D, h = i->dst == FMT_H;
    i->is_unsigned = i->rs2 == 1;
    if (funct5 == 0x18 || funct5 == 0x1a) {
        if (i->rs2 > 1 || !known_rounding(i->rm)) return;
        if (funct5 == 0x18) {
            computes(i, FOP_F2I, GROUP_CONV, FIELD_RS1);
            to_integer(i, !d);
        } else {
            computes(i, FOP_I2F, GROUP_CONV, 0);
            waits_for(i, i->rs1);
            if (!d) i->path = PATH_DIRECT;
        }
    } else if (i->rs2) {
        return;
    } else if (funct5 == 0x1c && funct3 == 1) {
        computes(i, FOP_CLASS, GROUP_NONCOMP, FIELD_RS1);
        to_integer(i, true);
    } else if (funct5 == 0x1c && !funct3 && (s || h)) {
        computes(i, FOP_TO_INT_BITS, GROUP_NONCOMP, FIELD_RS1);
        to_integer(i, h);
    } else if (funct5 == 0x1e && !funct3 && (s || h)) {
        computes(i, FOP_FROM_INT_BITS, GROUP_NONCOMP, 0);
        waits_for(i, i->rs1);
        if (h) i->path = PATH_DIRECT;
    }
}

static void decode_fp(Insn *i, u32 funct3, u32 funct7) {
    static const u8 compares[3] = {FOP_LE, FOP_LT, FOP_EQ};
    u32 funct5 = funct7 >> 2;
    u8 both = FIELD_RS1 | FIELD_RS2;
    if (!scalar_format(funct7 & 3, &i->dst)) return;
    i->src = i->dst;
    switch (funct5) {
    case 0x00:
    case 0x01:
    case 0x02:
        if (known_rounding(funct3)) computes(i, (u8)(FOP_ADD + funct5), GROUP_FMA, both);
        return;
    case 0x04:
        if (funct3 < 3) computes(i, (u8)(FOP_SGNJ + funct3), GROUP_NONCOMP, both);
        return;
    case 0x05:
        if (funct3 < 2) computes(i, (u8)(FOP_MIN + funct3), GROUP_NONCOMP, both);
        return;
    case 0x08: decode_fp_convert(i); return;
    case 0x14:
        if (funct3 > 2) return;
        computes(i, compares[funct3], GROUP_NONCOMP, both);
        to_integer(i, !(i->dst == FMT_D && funct3 == 1)); /* flt.d is buffered */
        return;
    default: decode_fp_integer(i, funct5, funct3); return;
    }
}

static void three_terms(Insn *i, u8 op, u8 src, u8 reads, bool negate) {
    computes(i, op, GROUP_DOTP, reads);
    i->old_rd = 1;
    i->negate = negate;
    i->src = src;
    i->dst = op == FOP_VSUM ? src : FMT_S;
}

static void decode_vector_sum(Insn *i, u32 funct3, bool negate) {
    if (i->rs2 == 0x1c && funct3 == 0) three_terms(i, FOP_VSUM, FMT_S, FIELD_RS1, negate);
    if (i->rs2 == 0x1e && funct3 == 2) three_terms(i, FOP_VSUM, FMT_H, FIELD_RS1, negate);
    if (i->rs2 == 0x16 && funct3 == 0) three_terms(i, FOP_EXVSUM, FMT_H, FIELD_RS1, negate);
}

static void decode_vector_convert(Insn *i, u32 funct3) {
    i->replicate = 0;
    if (i->rs2 == 0x06 && !(funct3 & 2)) { /* f16 to f32, lower or upper half */
        computes(i, FOP_WIDEN, GROUP_CONV, FIELD_RS1);
        i->src = FMT_H, i->dst = FMT_S;
        i->upper = funct3 >> 2;
    } else if (i->rs2 == 0x04 && funct3 == 2) {
        computes(i, FOP_NARROW, GROUP_CONV, FIELD_RS1);
        i->src = FMT_S, i->dst = FMT_H;
    }
}

static void decode_pack(Insn *i, u32 funct3, u8 src) {
    i->replicate = 0;
    if (funct3 == 4) return; /* a second pair of f32 does not fit into 64 bits */
    computes(i, FOP_PACK, GROUP_CONV, FIELD_RS1 | FIELD_RS2);
    i->src = src;
    i->upper = funct3 >> 2;
    i->old_rd = i->dst == FMT_H;
}

static void decode_vector(Insn *i, u32 funct3, u32 funct7) {
    u8 both = FIELD_RS1 | FIELD_RS2;
    if (funct3 & 1) return; /* eight-bit formats */
    i->dst = i->src = funct3 & 2 ? FMT_H : FMT_S;
    i->vector = 1;
    i->rm = DYN;
    i->replicate = funct3 >> 2;
    switch (funct7) {
    case 0x41: computes(i, FOP_ADD, GROUP_FMA, both); return;
    case 0x42: computes(i, FOP_SUB, GROUP_FMA, both); return;
    case 0x43: computes(i, FOP_MUL, GROUP_FMA, both); return;
    case 0x45: computes(i, FOP_MIN, GROUP_NONCOMP, both); return;
    case 0x46: computes(i, FOP_MAX, GROUP_NONCOMP, both); return;
    case 0x47: decode_vector_sum(i, funct3, false); return;
    case 0x48:
    case 0x49:
        computes(i, funct7 & 1 ? FOP_FNMSUB : FOP_FMADD, GROUP_FMA, both);
        i->old_rd = 1;
        return;
    case 0x4b:
        if (!funct3) three_terms(i, FOP_DOTP, FMT_H, both, false);
        return;
    case 0x4c: decode_vector_convert(i, funct3); return;
    case 0x4d:
    case 0x4e:
    case 0x4f: computes(i, (u8)(FOP_SGNJ + funct7 - 0x4d), GROUP_NONCOMP, both); return;
    case 0x50:
    case 0x51:
    case 0x52:
    case 0x53:
    case 0x54:
    case 0x55: { /* eq, ne, lt, ge, le, gt: the odd ones negate the even ones */
        static const u8 ops[3] = {FOP_EQ, FOP_LT, FOP_LE};
        computes(i, ops[(funct7 - 0x50) >> 1], GROUP_NONCOMP, both);
        i->negate = funct7 & 1;
        to_integer(i, true);
        return;
    }
    case 0x57: decode_vector_sum(i, funct3, true); return;
    case 0x58: decode_pack(i, funct3, FMT_S); return;
    case 0x5a: decode_pack(i, funct3, FMT_D); return;
    case 0x5d:
        if (!funct3) three_terms(i, FOP_DOTP, FMT_H, both, true);
        return;
    default: return;
    }
}

static u8 pipe_of(const Insn *i) {
    switch (i->group) {
    case GROUP_FMA: return PIPE_FMA;
    case GROUP_NONCOMP: return PIPE_NONCOMP_S + i->dst;
    case GROUP_CONV: return PIPE_CONV;
    default: return PIPE_DOTP;
    }
}

/* Additions and multiplications. */
static u8 flops_of(const Insn *i) {
    int lanes = i->vector ? 64 / FORMATS[i->dst].width : 1;
    if (i->group == GROUP_DOTP) return i->op == FOP_DOTP ? 8 : i->op == FOP_EXVSUM ? 4 : (u8)lanes;
    if (i->group != GROUP_FMA) return 0;
    return (u8)(i->op >= FOP_FMADD ? 2 * lanes : lanes);
}

void find_operands(Insn *i) {
    i->source[0] = i->reads & FIELD_RS1 ? i->rs1 : NO_REGISTER;
    i->source[1] = i->reads & FIELD_RS2 ? i->rs2 : NO_REGISTER;
    i->source[2] = i->reads & FIELD_RS3 ? i->rs3 : i->old_rd ? i->rd : NO_REGISTER;
    i->fp_wait = i->writes ? 1u << i->rd : 0;
    i->streams = 0;
    i->pipe = pipe_of(i);
    i->flops = i->unit == UNIT_FPU ? flops_of(i) : 0;
    for (int k = 0; k < 3; k++) {
        if (i->source[k] == NO_REGISTER) continue;
        i->fp_wait |= 1u << i->source[k];
        if (i->source[k] < STREAM_REGISTERS) i->streams |= 1u << i->source[k];
    }
}

Insn decode(u32 raw) {
    Insn i = {.raw = raw};
    u32 opcode = raw & 0x7f, funct3 = bits(raw, 14, 12), funct7 = raw >> 25;
    i.rd = (u8)bits(raw, 11, 7), i.rs1 = (u8)bits(raw, 19, 15);
    i.rs2 = (u8)bits(raw, 24, 20), i.rs3 = (u8)(raw >> 27);
    i.rm = (u8)funct3;
    /* The core looks at the rd field whatever the instruction makes of those bits: a branch
     * offset or an FP register that coincides with a pending integer register stalls too. */
    waits_for(&i, i.rd);
    switch (opcode) {
    case 0x37:
    case 0x17:
        i.unit = UNIT_ALU;
        i.op = opcode == 0x37 ? OP_LUI : OP_AUIPC;
        i.imm = (i32)(raw & 0xfffff000u);
        i.writes_rd = 1;
        break;
    case 0x6f:
        i.unit = UNIT_JUMP;
        i.imm = imm_j(raw);
        i.writes_rd = 1;
        break;
    case 0x67:
        if (funct3) break;
        i.unit = UNIT_JUMP;
        i.imm = imm_i(raw);
        i.uses_imm = i.writes_rd = 1; /* jalr */
        waits_for(&i, i.rs1);
        break;
    case 0x63:
        if (funct3 == 2 || funct3 == 3) break;
        i.unit = UNIT_BRANCH;
        i.op = (u8)funct3;
        i.imm = imm_b(raw);
        waits_for(&i, i.rs1), waits_for(&i, i.rs2);
        break;
    case 0x03:
        if (funct3 == 3 || funct3 > 5) break;
        i.unit = UNIT_LOAD;
        i.size = funct3 & 3;
        i.is_signed = funct3 < 4;
        i.imm = imm_i(raw);
        waits_for(&i, i.rs1);
        break;
    case 0x23:
        if (funct3 > 2) break;
        i.unit = UNIT_STORE;
        i.size = (u8)funct3;
        i.imm = imm_s(raw);
        waits_for(&i, i.rs1), waits_for(&i, i.rs2);
        break;
    case 0x13: decode_op_imm(&i, funct3, funct7); break;
    case 0x33:
        if (funct7 >> 5 == 2)
            decode_vector(&i, funct3, funct7);
        else
            decode_op(&i, funct3, funct7);
        break;
    case 0x2f: decode_atomic(&i, funct3); break;
    case 0x0f:
        if (funct3 < 2) i.unit = UNIT_FENCE;
        i.op = (u8)funct3;
        break;
    case 0x73: decode_system(&i, funct3); break;
    case 0x0b:
        if (!(raw >> 7 & 1) || raw >> 31) break;
        i.unit = UNIT_FREP;
        i.imm = (i32)(raw >> 20);
        waits_for(&i, i.rs1);
        break;
    case 0x2b: decode_ssr_config(&i, funct3, funct7); break;
    case 0x07: fp_memory(&i, funct3, false); break;
    case 0x27: fp_memory(&i, funct3, true); break;
    case 0x43:
    case 0x47:
    case 0x4b:
    case 0x4f: decode_fma(&i, opcode); break;
    case 0x53: decode_fp(&i, funct3, funct7); break;
    default: break;
    }
    i.wait &= ~1u;
    find_operands(&i);
    return i;
}
