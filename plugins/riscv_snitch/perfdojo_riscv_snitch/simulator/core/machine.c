/* The clock: one call of each unit in a cycle, until the program ends or fails. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

void fail(Machine *m, int code, u32 pc, u32 detail) {
    SnitchState *s = m->state;
    if (m->failed) return;
    m->failed = 1;
    s->error = (u32)code, s->error_pc = pc, s->error_detail = detail;
    s->error_cycle = m->cycle;
}

void trace(Machine *m, int source, u32 pc, int repeated) {
    SnitchState *s = m->state;
    if (s->trace_length == s->trace_room) {
        u64 room = s->trace_room ? 2 * s->trace_room : 4096;
        TraceRecord *grown = realloc(s->trace, room * sizeof *grown);
        if (!grown) {
            fail(m, ERROR_MEMORY, pc, 0);
            return;
        }
        s->trace = grown, s->trace_room = room;
    }
    s->trace[s->trace_length++] = (TraceRecord){m->cycle, pc, (u8)source, (u8)repeated};
}

/* Room and contents of queues count as they were at the start of the cycle. */
static void latch(Machine *m) {
    m->offload.was = m->offload.count;
    m->core_access.was = m->core_access.count;
    m->core_response.was = m->core_response.count;
    m->retire.was = m->retire.count;
    m->fp_access.was = m->fp_access.count;
    m->core_loads_was = m->core_loads, m->core_mem_was = m->core_mem;
    m->fp_loads_was = m->fp_loads, m->fp_mem_was = m->fp_mem;
    m->outstanding_was = m->outstanding;
    m->caq.was = m->caq.count;
    m->muldiv.quotient_was = m->muldiv.quotient_valid;
    m->fcsr_was = m->fcsr;
    m->fp_pending_was = m->fp_pending;
    for (int k = 0; k < MOVERS; k++) {
        m->mover[k].fifo.was = m->mover[k].fifo.count;
        m->mover[k].generated_was = m->mover[k].generated;
    }
}

static void clock_cycle(Machine *m) {
    latch(m);
    m->stuck = STUCK_UNKNOWN;
    memory_step(m);
    fpu_output(m);
    memory_respond(m);
    offload_step(m);
    core_step(m);
    streams_step(m);
    m->cycle++;
}

static bool streams_drained(const Machine *m) {
    for (int k = 0; k < MOVERS; k++) {
        const Mover *v = &m->mover[k];
        if (mover_is_writing(v) && (v->fifo.count || v->credits != STREAM_FIFO)) return false;
    }
    return true;
}

/* Movers with a job that has not ended, or that waits. */
static u32 movers_at_work(const Machine *m) {
    u32 found = 0;
    for (int k = 0; k < MOVERS; k++)
        if (!m->mover[k].job.done || !m->mover[k].shadow.done) found |= 1u << k;
    return found;
}

static u32 movers_that_store(const Machine *m) {
    u32 found = 0;
    for (int k = 0; k < MOVERS; k++) {
        const Mover *v = &m->mover[k];
        bool job = !v->job.done && v->job.write, next = !v->shadow.done && v->shadow.write;
        if (job || next || (mover_is_writing(v) && v->fifo.count)) found |= 1u << k;
    }
    return found;
}

static u32 movers_with_data(const Machine *m) {
    u32 found = 0;
    for (int k = 0; k < MOVERS; k++)
        if (m->mover[k].fifo.count) found |= 1u << k;
    return found;
}

static bool drained(const Machine *m) {
    const Muldiv *d = &m->muldiv;
    bool queues_empty = !m->offload.count && m->seq.write == m->seq.oldest && !m->core_access.count &&
                        !m->fp_access.count && !m->responses.count && !m->core_response.count &&
                        !m->retire.count && !m->config_responding;
    bool units_idle = !m->pipes_busy && !d->product_valid && !d->quotient_valid && !d->divide_left;
    return queues_empty && units_idle && streams_drained(m);
}

static void check_progress(Machine *m) {
    if (m->cycle >= m->program->max_cycles) {
        fail(m, ERROR_CYCLE_LIMIT, m->pc, 0);
    } else if (m->cycle - m->progress > QUIET_LIMIT) {
        bool at_fp = m->stuck != STUCK_UNKNOWN && m->stuck != STUCK_FREP_BODY;
        if (m->stuck == STUCK_UNKNOWN && !streams_drained(m)) m->stuck = STUCK_STREAM_WRITE;
        fail(m, ERROR_DEADLOCK, at_fp ? m->stuck_pc : m->pc, m->stuck);
    }
}

static void check_end(Machine *m) {
    if (m->seq.loops) fail(m, ERROR_DEADLOCK, m->pc, STUCK_FREP_BODY);
}

/* Sets the registers as a program with jobs of four loops and repeated elements leaves them. */
static void leave_registers(Mover *v) {
    v->repeat = v->next_repeat = 2;
    for (u32 i = 0; i < LOOPS; i++) {
        v->bound[i] = v->next_bound[i] = 1 + i;
        v->stride[i] = v->next_stride[i] = 8 * (3 + 2 * i);
    }
}

static void set_up(Machine *m, const SnitchProgram *program, SnitchState *state) {
    static const u8 depth[PIPES] = {3, 1, 1, 1, 2, 3};
    m->program = program, m->state = state;
    m->memory = state->memory;
    m->pc = program->entry;
    memcpy(m->x, state->x, sizeof m->x);
    memcpy(m->f, state->f, sizeof state->f);
    m->f[NO_REGISTER] = ~0ull;
    m->x[0] = 0;
    m->fcsr = state->fcsr & 0xff;
    m->reservation = 1;
    /* The state that start-up code leaves: its last FPU instruction is a move to the core. */
    m->output_arbiter.pointer = GROUP_NONCOMP;
    for (int k = 0; k < PIPES; k++) m->pipe[k].first = STAGES - depth[k];
    for (int k = 0; k < MOVERS; k++) {
        Mover *v = &m->mover[k];
        v->job.done = v->shadow.done = 1;
        v->credits = STREAM_FIFO;
        v->cut = k < 2;
        if (state->used) leave_registers(v);
    }
}

static void hand_back(const Machine *m, SnitchState *state) {
    memcpy(state->x, m->x, sizeof m->x);
    memcpy(state->f, m->f, sizeof state->f);
    state->fcsr = m->fcsr;
    state->instructions = m->instret;
    state->counters[COUNT_CYCLES] = m->cycle;
}

static void run(Machine *m) {
    while (!m->failed && !m->halted) {
        clock_cycle(m);
        check_progress(m);
    }
    m->state->unstored = movers_that_store(m);
    while (!m->failed && !drained(m)) {
        clock_cycle(m);
        check_progress(m);
    }
    if (!m->failed) check_end(m);
    m->state->left = movers_at_work(m) | movers_with_data(m);
}

int snitch_run(const SnitchProgram *program, SnitchState *state) {
    Machine *m = calloc(1, sizeof *m);
    Insn *code = malloc(sizeof *code * (program->words ? program->words : 1));
    if (!m || !code) {
        free(m), free(code);
        state->error = ERROR_MEMORY;
        return ERROR_MEMORY;
    }
    for (u32 k = 0; k < program->words; k++) code[k] = decode(program->code[k]);
    m->code = code;
    set_up(m, program, state);
    run(m);
    hand_back(m, state);
    free(code);
    free(m);
    return (int)state->error;
}

void snitch_free_trace(SnitchState *state) {
    free(state->trace);
    state->trace = NULL;
    state->trace_length = state->trace_room = 0;
}
