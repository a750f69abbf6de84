/* Instructions taken apart once, before the run. */
#ifndef DECODE_H
#define DECODE_H

#include "types.h"

/* Who executes an instruction. */
enum Unit {
    UNIT_ILLEGAL,
    UNIT_ALU,
    UNIT_BRANCH,
    UNIT_JUMP,
    UNIT_LOAD,
    UNIT_STORE,
    UNIT_ATOMIC,
    UNIT_CSR,
    UNIT_FENCE,
    UNIT_ECALL,
    UNIT_EBREAK,
    UNIT_MULDIV,
    UNIT_SSR_CONFIG,
    UNIT_FREP,
    UNIT_FP_LOAD,
    UNIT_FP_STORE,
    UNIT_FPU,
    UNIT_FP_CSR, /* csrsi, csrci of the SSR enable bit */
};

enum AluOp { OP_ADD, OP_SUB, OP_SLL, OP_SLT, OP_SLTU, OP_XOR, OP_SRL, OP_SRA, OP_OR, OP_AND, OP_LUI, OP_AUIPC };
enum BranchOp { OP_BEQ, OP_BNE, OP_BLT = 4, OP_BGE, OP_BLTU, OP_BGEU };
enum MulOp { OP_MUL, OP_MULH, OP_MULHSU, OP_MULHU, OP_DIV, OP_DIVU, OP_REM, OP_REMU };
enum CsrOp { OP_CSRRW = 1, OP_CSRRS, OP_CSRRC };
enum SsrOp { OP_SCFGRI, OP_SCFGR, OP_SCFGWI, OP_SCFGW };

enum FpOp {
    FOP_ADD, FOP_SUB, FOP_MUL, FOP_FMADD, FOP_FMSUB, FOP_FNMSUB, FOP_FNMADD,
    FOP_SGNJ, FOP_SGNJN, FOP_SGNJX, FOP_MIN, FOP_MAX, FOP_LE, FOP_LT, FOP_EQ, FOP_CLASS,
    FOP_TO_INT_BITS, FOP_FROM_INT_BITS, FOP_F2F, FOP_F2I, FOP_I2F, FOP_PACK, FOP_VSUM, FOP_EXVSUM, FOP_DOTP,
    FOP_WIDEN, FOP_NARROW,
};

/* The FPU's blocks, in the order of its output arbiter. */
enum Group { GROUP_FMA, GROUP_DIV, GROUP_NONCOMP, GROUP_CONV, GROUP_DOTP };

/* Pipelines: multiply-add, compare and move for each format, conversion, dot product. */
enum { PIPE_FMA, PIPE_NONCOMP_S, PIPE_NONCOMP_D, PIPE_NONCOMP_H, PIPE_CONV, PIPE_DOTP, PIPES };

/* Where an instruction goes in the FP subsystem: through the ring of the sequencer, or past it. */
enum Path { PATH_BUFFERED, PATH_DIRECT };

/* Fields that name FP registers. */
enum { FIELD_RD = 1, FIELD_RS1 = 2, FIELD_RS2 = 4, FIELD_RS3 = 8 };

typedef struct Insn {
    u32 raw;
    u32 wait; /* integer registers that must not be pending */
    i32 imm;
    u8 unit, op;
    u8 rd, rs1, rs2, rs3;
    u8 size;       /* log2 of the bytes of a memory access */
    u8 is_signed;  /* loads */
    u8 writes_rd;  /* the issuing instruction uses the integer write port */
    u8 uses_imm;   /* second operand of an ALU instruction */
    u8 path, group, pipe, flops;
    u8 src, dst;   /* formats */
    u8 rm;
    u8 reads, writes; /* FP fields read; FIELD_RD in `writes` if rd is an FP register */
    u8 old_rd;     /* the third operand is the old rd */
    u8 source[3];  /* FP registers of the operands a, b, c; NO_REGISTER where there is none */
    u8 streams;    /* those among them that can be streams, as a mask */
    u32 fp_wait;   /* FP registers that must not be pending */
    u8 vector, replicate, negate, upper;
    u8 to_int;     /* the FPU's result goes to an integer register */
    u8 is_unsigned;
} Insn;

enum { NO_REGISTER = 32, STREAM_REGISTERS = 3 };

/* UNIT_ILLEGAL where the core would trap. */
Insn decode(u32 raw);

/* Derive source, streams and fp_wait from the register fields, pipe and flops from the rest. */
void find_operands(Insn *insn);

#endif
