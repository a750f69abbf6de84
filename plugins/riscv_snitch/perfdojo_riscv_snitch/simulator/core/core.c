/* The integer core: one instruction a cycle, in order, unless something it needs is pending. Results
 * of loads and of offloaded instructions come back later and share the register file's write port,
 * which the issuing instruction has first.
 */
#include "fpu.h"
#include "machine.h"

static u32 alu(const Insn *i, u32 a, u32 b, u32 pc) {
    switch (i->op) {
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_SLL: return a << (b & 31);
    case OP_SLT: return (i32)a < (i32)b;
    case OP_SLTU: return a < b;
    case OP_XOR: return a ^ b;
    case OP_SRL: return a >> (b & 31);
    case OP_SRA: return (u32)((i32)a >> (b & 31));
    case OP_OR: return a | b;
    case OP_AND: return a & b;
    case OP_LUI: return (u32)i->imm;
    default: return pc + (u32)i->imm;
    }
}

static bool branch_taken(u32 op, u32 a, u32 b) {
    switch (op) {
    case OP_BEQ: return a == b;
    case OP_BNE: return a != b;
    case OP_BLT: return (i32)a < (i32)b;
    case OP_BGE: return (i32)a >= (i32)b;
    case OP_BLTU: return a < b;
    default: return a >= b;
    }
}

/* -- Consistency with the FP side's loads and stores ----------------------------------------------- */

static u16 caq_tag(u32 address) { return address >> 3 & CAQ_TAG_MASK; }

/* An integer load waits for an earlier FP store to the same word, a store for any FP access. */
static bool caq_blocks(const Machine *m, u32 address, bool alters) {
    const Caq *c = &m->caq;
    for (int k = 0; k < c->was; k++) {
        u16 entry = c->tag[(c->head + k) % CAQ_DEPTH];
        if ((entry & CAQ_TAG_MASK) == caq_tag(address) && (alters || entry >> 15)) return true;
    }
    return false;
}

static bool caq_full(const Machine *m) { return m->caq.was == CAQ_DEPTH && !m->caq.popped; }

static void caq_push(Machine *m, u32 address, bool write) {
    Caq *c = &m->caq;
    c->tag[(c->head + c->count++) % CAQ_DEPTH] = (u16)(caq_tag(address) | (u16)write << 15);
}

static void caq_settle(Machine *m) {
    Caq *c = &m->caq;
    if (c->popped) c->head = (c->head + 1) % CAQ_DEPTH, c->count--;
    c->popped = 0;
}

/* -- Instructions ---------------------------------------------------------------------------------- */

/* The result of an attempt to issue: done, or the counter of the obstacle. */
enum { ISSUED = -1 };

static int access_memory(Machine *m, const Insn *i, u32 a, u32 b) {
    bool store = i->unit == UNIT_STORE, atomic = i->unit == UNIT_ATOMIC;
    u32 address = a + (u32)i->imm;
    if (!memory_check(m, address, i->size, m->pc)) return ISSUED;
    if (caq_blocks(m, address, store || atomic)) return STALL_CORE_CONSISTENCY;
    if (QUEUE_FULL(m->core_access) || m->core_mem_was == OUTSTANDING || (!store && m->core_loads_was == OUTSTANDING))
        return STALL_CORE_MEMORY;
    Access access = {.data = b, .address = address, .pc = m->pc, .write = store, .size = i->size,
                     .is_signed = i->is_signed, .rd = i->rd, .atomic = atomic ? (u8)(0x20 | i->op) : 0};
    QUEUE_PUSH(m->core_access, access);
    m->core_mem++;
    if (!store) {
        m->core_loads++;
        m->pending |= 1u << i->rd;
        m->pending_load |= 1u << i->rd;
    }
    return ISSUED;
}

static int offload(Machine *m, const Insn *i, u32 a, u32 b) {
    bool memory = i->unit == UNIT_FP_LOAD || i->unit == UNIT_FP_STORE;
    u32 address = a + (u32)i->imm;
    if (memory && !memory_check(m, address, i->size, m->pc)) return ISSUED;
    if (memory && caq_full(m)) return STALL_CORE_CONSISTENCY;
    if (QUEUE_FULL(m->offload)) return STALL_CORE_OFFLOAD;
    if (memory) caq_push(m, address, i->unit == UNIT_FP_STORE);
    QUEUE_PUSH(m->offload, ((Offload){i, m->pc, a, b, address}));
    bool returns = i->to_int || i->unit == UNIT_MULDIV || (i->unit == UNIT_SSR_CONFIG && i->op <= OP_SCFGR);
    if (returns && i->rd) {
        m->pending |= 1u << i->rd;
        *(i->unit == UNIT_MULDIV ? &m->pending_muldiv : &m->pending_fp) |= 1u << i->rd;
    }
    return ISSUED;
}

enum {
    CSR_FFLAGS = 0x001, CSR_FRM, CSR_FCSR, CSR_MSTATUS = 0x300, CSR_MISA, CSR_FMODE = 0x800,
    CSR_MCYCLE = 0xb00, CSR_MINSTRET = 0xb02, CSR_MCYCLEH = 0xb80, CSR_MINSTRETH = 0xb82, CSR_MHARTID = 0xf14,
};

static void read_cycle_counter(Machine *m) {
    SnitchState *s = m->state;
    if (s->cycle_reads == 0) {
        s->first_read = m->cycle;
        __builtin_memcpy(s->at_first_read, s->counters, sizeof s->counters);
    } else if (s->cycle_reads == 1) {
        s->second_read = m->cycle;
        __builtin_memcpy(s->at_second_read, s->counters, sizeof s->counters);
    }
    s->cycle_reads++;
}

static u32 csr_update(const Insn *i, u32 old, u32 operand) {
    return i->op == OP_CSRRW ? operand : i->op == OP_CSRRS ? old | operand : old & ~operand;
}

/* The old value; `known` is false for a register that this core does not have. */
static u32 csr_access(Machine *m, const Insn *i, u32 operand, bool *known) {
    u32 old, shift, width;
    switch (i->imm) {
    case CSR_FFLAGS: shift = 0, width = 5; break;
    case CSR_FRM: shift = 5, width = 3; break;
    case CSR_FCSR: shift = 0, width = 8; break;
    case CSR_FMODE: /* the alternative formats are not modelled: only zero can be written */
        *known = !csr_update(i, 0, operand);
        return 0;
    case CSR_MCYCLE: read_cycle_counter(m); return (u32)m->cycle;
    case CSR_MCYCLEH: return (u32)(m->cycle >> 32);
    case CSR_MINSTRET: return (u32)m->instret;
    case CSR_MINSTRETH: return (u32)(m->instret >> 32);
    case CSR_MSTATUS: return 0x80006000u;
    case CSR_MISA: return 0x40801129u;
    case CSR_MHARTID: return 0;
    default: *known = false; return 0;
    }
    u32 mask = (1u << width) - 1;
    old = m->fcsr_was >> shift & mask;
    m->fcsr = (m->fcsr & ~(mask << shift)) | (csr_update(i, old, operand) & mask) << shift;
    return old;
}

static int execute_csr(Machine *m, const Insn *i, u32 a) {
    bool known = true;
    u32 old = csr_access(m, i, i->uses_imm ? i->rs1 : a, &known);
    if (!known) fail(m, ERROR_ILLEGAL, m->pc, i->raw);
    if (i->rd) m->x[i->rd] = old;
    return ISSUED;
}

/* Execute the instruction at the pc; `next` becomes the pc if it issues. */
static int execute(Machine *m, const Insn *i, u32 *next) {
    u32 a = m->x[i->rs1], b = m->x[i->rs2];
    switch (i->unit) {
    case UNIT_ALU:
        if (i->rd) m->x[i->rd] = alu(i, a, i->uses_imm ? (u32)i->imm : b, m->pc);
        return ISSUED;
    case UNIT_BRANCH:
        if (branch_taken(i->op, a, b)) *next = m->pc + (u32)i->imm;
        return ISSUED;
    case UNIT_JUMP:
        *next = i->uses_imm ? (a + (u32)i->imm) & ~1u : m->pc + (u32)i->imm;
        if (i->rd) m->x[i->rd] = m->pc + 4;
        return ISSUED;
    case UNIT_LOAD:
    case UNIT_STORE:
    case UNIT_ATOMIC: return access_memory(m, i, a, b);
    case UNIT_CSR: return execute_csr(m, i, a);
    case UNIT_FENCE: return !i->op && (m->core_mem_was || m->caq.was) ? STALL_CORE_FENCE : ISSUED;
    case UNIT_ECALL: m->halted = 1; return ISSUED;
    case UNIT_EBREAK: fail(m, ERROR_BREAKPOINT, m->pc, 0); return ISSUED;
    case UNIT_ILLEGAL: fail(m, ERROR_ILLEGAL, m->pc, i->raw); return ISSUED;
    default: return offload(m, i, a, b);
    }
}

static int pending_reason(const Machine *m, u32 waits) {
    if (waits & m->pending_load) return STALL_CORE_LOAD;
    return waits & m->pending_fp ? STALL_CORE_FP : STALL_CORE_MULDIV;
}

/* True if the instruction at the pc took the write port. */
static bool issue_core(Machine *m) {
    u32 word = (m->pc - m->program->base) >> 2;
    if (word >= m->program->words || m->pc & 3) {
        fail(m, ERROR_FETCH, m->pc, m->pc);
        return false;
    }
    const Insn *i = &m->code[word];
    u32 waits = m->pending & i->wait, next = m->pc + 4, at = m->pc;
    int outcome = waits ? pending_reason(m, waits) : execute(m, i, &next);
    if (outcome != ISSUED) {
        count_event(m, outcome);
        return false;
    }
    m->instret++;
    count_event(m, COUNT_INSTRUCTIONS);
    m->progress = m->cycle;
    if (m->program->tracing) trace(m, TRACE_CORE, at, 0);
    m->pc = m->halted ? m->pc : next;
    return i->writes_rd && i->rd;
}

static void finish(Machine *m, u8 rd, u32 value) {
    if (rd) m->x[rd] = value;
    m->pending &= ~(1u << rd);
    m->pending_load &= m->pending, m->pending_fp &= m->pending, m->pending_muldiv &= m->pending;
}

static void write_back(Machine *m, bool port_taken) {
    if (m->core_response.was) {
        Response *r = &QUEUE_HEAD(m->core_response);
        if (r->write) {
            m->core_mem--;
            QUEUE_POP(m->core_response);
        } else if (!port_taken) {
            finish(m, r->rd, (u32)r->data);
            m->core_mem--, m->core_loads--;
            QUEUE_POP(m->core_response);
            port_taken = true;
        } else {
            return;
        }
        m->progress = m->cycle;
    }
    if (m->retire.was && !port_taken) {
        Retire *r = &QUEUE_HEAD(m->retire);
        finish(m, r->rd, r->data);
        QUEUE_POP(m->retire);
        m->progress = m->cycle;
    }
}

void core_step(Machine *m) {
    bool port_taken = !m->halted && issue_core(m);
    write_back(m, port_taken);
    caq_settle(m);
}
