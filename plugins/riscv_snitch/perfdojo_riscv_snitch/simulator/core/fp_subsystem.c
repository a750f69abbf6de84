/* The FP side: what leaves the FPU, what enters it, and where offloaded instructions go.
 *
 * An offloaded instruction waits in the offload queue, in order, until its destination takes it: the
 * sequencer's ring, the FPU itself for those that must not be in the ring, the multiplier, or the
 * configuration port of the streams.
 */
#include "fpu.h"
#include "machine.h"

/* -- Leaving the FPU ----------------------------------------------------------------------------- */

enum { RETIRE_FP = 1 << 0, RETIRE_MULDIV = 1 << 1, RETIRE_CONFIG = 1 << 4 };

/* One result for the integer core in a cycle, from FPU, multiplier or stream configuration. */
static bool arbitrate_retirement(Machine *m, const Result *fp) {
    Muldiv *d = &m->muldiv;
    if (!fp && !m->config_responding && !d->product_valid && !d->quotient_valid) return false;
    u32 which = arbiter_requests(&d->output, (u32)d->product_valid | (u32)d->quotient_valid << 1);
    u32 wants = (fp ? RETIRE_FP : 0) | (which ? RETIRE_MULDIV : 0) | (m->config_responding ? RETIRE_CONFIG : 0);
    wants = arbiter_requests(&m->retire_arbiter, wants);
    bool room = !QUEUE_FULL(m->retire);
    u32 chosen = 1u << arbiter_pick(wants, m->retire_arbiter.pointer, 3);
    arbiter_settle(&m->retire_arbiter, wants, room, true);
    bool muldiv = room && chosen == RETIRE_MULDIV;
    bool quotient = which && arbiter_pick(which, d->output.pointer, 1);
    arbiter_settle(&d->output, which, muldiv, true);
    if (!room) return false;
    m->progress = m->cycle;
    if (chosen == RETIRE_FP) {
        QUEUE_PUSH(m->retire, ((Retire){(u32)fp->value, fp->rd}));
        return true;
    }
    if (chosen == RETIRE_CONFIG) {
        QUEUE_PUSH(m->retire, m->config_response);
        m->config_responding = 0;
    } else if (quotient) {
        QUEUE_PUSH(m->retire, d->quotient);
        d->quotient_valid = 0;
    } else {
        QUEUE_PUSH(m->retire, d->product);
        d->product_valid = 0;
    }
    return false;
}

static bool write_stream(Machine *m, const Result *r) {
    Mover *v = &m->mover[r->rd];
    if (!mover_is_writing(v)) {
        if (v->fifo.was) fail(m, ERROR_STREAM_DIRECTION, r->pc, r->rd);
        m->stuck = STUCK_STREAM_WRITE, m->stuck_pc = r->pc;
        return false;
    }
    if (v->fifo.was == STREAM_FIFO) {
        m->stuck = STUCK_STREAM_WRITE, m->stuck_pc = r->pc;
        return false;
    }
    QUEUE_PUSH(v->fifo, r->value);
    return true;
}

static void write_fp(Machine *m, u8 rd, u64 value) {
    m->f[rd] = value;
    m->fp_pending &= ~(1u << rd);
}

static int output_of_group(const Machine *m, int group, u32 formats) {
    switch (group) {
    case GROUP_FMA: return PIPE_FMA;
    case GROUP_NONCOMP: return PIPE_NONCOMP_S + arbiter_pick(formats, m->noncomp_arbiter.pointer, 3);
    case GROUP_CONV: return PIPE_CONV;
    default: return PIPE_DOTP;
    }
}

/* Move results on into free stages; one at the end that was not taken holds up the rest. */
static void advance_pipe(Machine *m, int k) {
    Pipe *p = &m->pipe[k];
    u32 bit = 1u << k;
    if (!(p->valid >> OUTPUT & 1)) {
        p->base = (p->base + PIPE_ENTRIES - 1) % PIPE_ENTRIES;
        p->valid = (u8)(p->valid << 1);
    } else if (!(p->valid >> 1 & 1) && p->valid & 1) {
        *pipe_stage(p, 1) = *pipe_stage(p, 0);
        p->valid ^= 3;
    }
    m->outputs = (u8)((m->outputs & ~bit) | (p->valid >> OUTPUT) << k);
    m->pipes_full |= (u8)((p->valid >> p->first & 1) << k);
    if (!p->valid) m->pipes_busy &= (u8)~bit;
}

static void output_done(Machine *m, Result *r, int pipe, u32 groups, u32 formats) {
    m->pipe[pipe].valid &= (u8)~(1u << OUTPUT);
    if (!r->to_int) write_fp(m, r->rd, r->value);
    m->fcsr |= r->flags;
    m->progress = m->cycle;
    arbiter_settle(&m->output_arbiter, groups, true, false);
    if (pipe >= PIPE_NONCOMP_S && pipe <= PIPE_NONCOMP_H)
        arbiter_settle(&m->noncomp_arbiter, formats, true, false);
}

void fpu_output(Machine *m) {
    u32 out = m->outputs, formats = out >> PIPE_NONCOMP_S & 7;
    Result *r = NULL;
    int chosen = 0;
    u32 groups = (out >> PIPE_FMA & 1) << GROUP_FMA | (u32)(formats != 0) << GROUP_NONCOMP |
                 (out >> PIPE_CONV & 1) << GROUP_CONV | (out >> PIPE_DOTP & 1) << GROUP_DOTP;
    if (groups) {
        chosen = output_of_group(m, arbiter_pick(groups, m->output_arbiter.pointer, 3), formats);
        r = pipe_stage(&m->pipe[chosen], OUTPUT);
    }
    m->fp_write_busy = r && !r->to_int;
    bool granted = arbitrate_retirement(m, r && r->to_int ? r : NULL);
    if (m->fp_write_busy) granted = !r->to_stream || write_stream(m, r);
    if (granted) output_done(m, r, chosen, groups, formats);
    m->pipes_full = 0;
    for (u32 left = m->pipes_busy; left; left &= left - 1) advance_pipe(m, __builtin_ctz(left));
}

/* The memory's answer to an FP load or store. */
void fp_respond(Machine *m, const Response *r) {
    m->fp_mem--;
    if (!r->write) {
        m->fp_loads--;
        write_fp(m, r->rd, r->data);
    }
    /* The core noted an access once, however often a loop repeats it. */
    if (!r->repeated) m->caq.popped = 1;
}

/* -- Entering the FPU ---------------------------------------------------------------------------- */

static bool is_stream(const Machine *m, u8 reg) { return m->streams_on && reg < MOVERS; }

/* Operand values; false while a stream has none. */
static bool operands(Machine *m, const Insn *i, u32 pc, u64 *value) {
    for (int k = 0; k < 3; k++) value[k] = m->f[i->source[k]];
    if (!m->streams_on || !i->streams) return true;
    for (int k = 0; k < 3; k++) {
        if (i->source[k] >= MOVERS || stream_read(m, i->source[k], pc, &value[k])) continue;
        m->stuck = STUCK_STREAM_READ, m->stuck_pc = pc;
        if (m->refused >> i->source[k] & 1) count_event(m, STREAM_CONFLICT);
        return false;
    }
    return true;
}

static void start(Machine *m, const Insn *i, const Offload *o, const u64 *value) {
    int rm = i->rm == DYN ? (int)(m->fcsr >> 5 & 7) : i->rm, flags = 0;
    if (rm > RMM && i->group != GROUP_NONCOMP) {
        fail(m, ERROR_ROUNDING, o->pc, (u32)rm);
        return;
    }
    bool from_int = i->op == FOP_I2F || i->op == FOP_FROM_INT_BITS;
    Pipe *p = &m->pipe[i->pipe];
    Result *r = pipe_stage(p, p->first);
    r->value = fpu_execute(i, from_int ? o->a : value[0], value[1], value[2], rm, &flags);
    r->pc = o->pc;
    r->flags = (u8)flags;
    r->rd = i->rd;
    r->to_int = i->to_int;
    r->to_stream = !i->to_int && is_stream(m, i->rd);
    p->valid |= (u8)(1u << p->first);
    m->pipes_busy |= (u8)(1u << i->pipe);
    if (p->first == OUTPUT) m->outputs |= (u8)(1u << i->pipe);
    m->state->counters[COUNT_FPU]++;
    m->state->counters[COUNT_FLOPS] += i->flops;
}

static bool memory_room(const Machine *m, bool store) {
    return m->fp_access.was < SPILL_DEPTH && m->fp_mem_was < OUTSTANDING &&
           (store || m->fp_loads_was < OUTSTANDING);
}

static void start_memory(Machine *m, const Insn *i, const Offload *o, u64 data, bool repeated) {
    bool store = i->unit == UNIT_FP_STORE;
    Access a = {.data = data, .address = o->address, .pc = o->pc, .write = store, .size = i->size, .rd = i->rd,
                .repeated = repeated, .from_fp = 1};
    QUEUE_PUSH(m->fp_access, a);
    m->fp_mem++;
    m->fp_loads += !store;
    count_event(m, COUNT_FP_MEMORY);
}

static void switch_streams(Machine *m, const Insn *i) {
    if (i->rs1 & 1) m->streams_on = i->op == OP_CSRRS;
}

/* The obstacle for an instruction, as a counter; 0 if there is none. */
static int obstacle(Machine *m, const Insn *i, u32 pc, u64 *value) {
    if (m->fp_pending_was & i->fp_wait) return STALL_FP_DEPENDENCY;
    if (!operands(m, i, pc, value)) return STALL_FP_STREAM;
    if (i->unit == UNIT_FPU) return m->pipes_full >> i->pipe & 1 ? STALL_FP_PIPELINE : 0;
    bool memory = i->unit == UNIT_FP_LOAD || i->unit == UNIT_FP_STORE;
    return memory && !memory_room(m, i->unit == UNIT_FP_STORE) ? STALL_FP_MEMORY : 0;
}

static bool issue_fp(Machine *m, const Insn *i, const Offload *o, bool repeated) {
    u64 value[3];
    if (i->unit == UNIT_ILLEGAL) {
        fail(m, ERROR_ILLEGAL, o->pc, i->raw);
        return false;
    }
    int counter = obstacle(m, i, o->pc, value);
    if (counter) {
        count_event(m, counter);
        return false;
    }
    u32 streams = m->streams_on ? i->streams : 0;
    if (i->unit == UNIT_FPU)
        start(m, i, o, value);
    else if (i->unit == UNIT_FP_CSR)
        switch_streams(m, i), count_event(m, FP_SWITCHES);
    else
        start_memory(m, i, o, value[1], repeated);
    for (; streams; streams &= streams - 1) stream_pop(m, __builtin_ctz(streams));
    if (i->writes) m->fp_pending |= 1u << i->rd;
    if (m->program->tracing) trace(m, TRACE_FP, o->pc, repeated);
    return true;
}

/* -- The offload queue --------------------------------------------------------------------------- */

static int leading_zeros(u32 value) { return value ? __builtin_clz(value) : 32; }

/* Cycles of the serial divider: the distance of the leading ones, none if the quotient is zero. */
static int division_cycles(u32 a, u32 b, bool is_signed) {
    u32 from = is_signed && (i32)a < 0 ? ~a << 1 : a, by = is_signed && (i32)b < 0 ? ~b : b;
    int shift = by ? leading_zeros(by) - leading_zeros(from) : 32;
    return shift < 0 ? 0 : shift + 1;
}

static u32 divide(u32 op, u32 a, u32 b) {
    bool is_signed = op == OP_DIV || op == OP_REM, remainder = op >= OP_REM;
    if (!b) return remainder ? a : ~0u;
    if (!is_signed) return remainder ? a % b : a / b;
    if (a == 0x80000000u && b == ~0u) return remainder ? 0 : a;
    return remainder ? (u32)((i32)a % (i32)b) : (u32)((i32)a / (i32)b);
}

static u32 multiply(u32 op, u32 a, u32 b) {
    switch (op) {
    case OP_MUL: return a * b;
    case OP_MULH: return (u32)((u64)((i64)(i32)a * (i32)b) >> 32);
    case OP_MULHSU: return (u32)((u64)((i64)(i32)a * (i64)b) >> 32);
    default: return (u32)((u64)a * b >> 32);
    }
}

static bool start_muldiv(Machine *m, const Offload *o) {
    Muldiv *d = &m->muldiv;
    const Insn *i = o->insn;
    if (i->op < OP_DIV) {
        if (d->product_valid) return false; /* still waiting to retire */
        d->product = (Retire){multiply(i->op, o->a, o->b), i->rd};
        d->product_valid = 1;
        return true;
    }
    if (d->divide_left || d->quotient_was) return false;
    d->quotient = (Retire){divide(i->op, o->a, o->b), i->rd};
    int cycles = division_cycles(o->a, o->b, i->op == OP_DIV || i->op == OP_REM);
    d->divide_left = (u8)cycles;
    d->quotient_valid = !cycles;
    return true;
}

static bool configure_stream(Machine *m, const Offload *o) {
    const Insn *i = o->insn;
    bool write = i->op >= OP_SCFGWI, immediate = i->op == OP_SCFGWI || i->op == OP_SCFGRI;
    u32 word = immediate ? (u32)i->imm : o->b & 0xfff, mover = word & 31;
    if (m->config_responding) return false;
    if (mover >= MOVERS && !(write && mover == 31)) {
        fail(m, ERROR_STREAM_REGISTER, o->pc, word);
        return false;
    }
    if (write && !stream_config_ready(m, mover)) {
        m->stuck = STUCK_STREAM_CONFIG, m->stuck_pc = o->pc;
        return false;
    }
    m->config_response = write ? (Retire){0, 0} : (Retire){stream_config_read(m, word), i->rd};
    m->config_responding = 1;
    if (!write) return true;
    m->configure = mover == 31 ? (1 << MOVERS) - 1 : (u8)(1 << mover);
    m->configure_register = (u8)(word >> 5);
    m->configure_value = o->a;
    m->configure_pc = o->pc;
    return true;
}

/* Hand the head of the queue to the ring, the multiplier or the streams. */
static bool dispatch(Machine *m, const Offload *o, const Offload **body, const Offload **frep) {
    switch (o->insn->unit) {
    case UNIT_MULDIV: return start_muldiv(m, o);
    case UNIT_SSR_CONFIG: return configure_stream(m, o);
    case UNIT_FREP:
        if (!sequencer_accepts_frep(&m->seq)) return false;
        *frep = o;
        return true;
    default:
        if (sequencer_full(&m->seq)) return false;
        *body = o;
        return true;
    }
}

/* The FP side has nothing to issue: because streams are being set up, because the integer core waits,
 * or because that is busy with something else. */
static void count_idle(Machine *m, const Offload *waiting) {
    count_event(m, STALL_FP_IDLE);
    u32 word = (m->pc - m->program->base) >> 2;
    const Insn *next = waiting ? waiting->insn : word < m->program->words ? &m->code[word] : NULL;
    if (!next) return;
    if (next->unit == UNIT_SSR_CONFIG || next->unit == UNIT_FP_CSR)
        count_event(m, IDLE_SETUP);
    else if (!waiting && (next->unit == UNIT_FENCE || m->pending & next->wait))
        count_event(m, IDLE_WAIT);
}

static bool is_direct(const Offload *o) {
    return o->insn->path == PATH_DIRECT && (o->insn->unit == UNIT_FPU || o->insn->unit == UNIT_FP_CSR);
}

void offload_step(Machine *m) {
    Sequencer *q = &m->seq;
    const Offload *waiting = m->offload.count ? &QUEUE_HEAD(m->offload) : NULL, *body = NULL, *frep = NULL;
    bool issued = false, taken = false, were_on = m->streams_on;
    u8 dividing = m->muldiv.divide_left;
    if (sequencer_has_work(q)) {
        Insn changed;
        issued = issue_fp(m, sequencer_peek(q, &changed), &q->ring[q->read], sequencer_repeats(q));
        if (issued) m->progress = m->cycle;
    } else if (waiting && is_direct(waiting)) {
        if (q->active) fail(m, ERROR_FREP_BODY, waiting->pc, 0);
        taken = issue_fp(m, waiting->insn, waiting, false);
    } else {
        if (q->active) m->stuck = STUCK_FREP_BODY;
        count_idle(m, waiting);
    }
    if (waiting && !is_direct(waiting)) taken = dispatch(m, waiting, &body, &frep);
    if (issued || body || frep) sequencer_step(m, issued, body, frep);
    if (taken) {
        QUEUE_POP(m->offload);
        m->progress = m->cycle;
    }
    if (dividing && !--m->muldiv.divide_left) m->muldiv.quotient_valid = 1;
    if (dividing) m->progress = m->cycle;
    if (were_on) m->fp_pending &= ~((1u << MOVERS) - 1);
}
