/* FREP: a ring of FP instructions that a nest of up to two loops issues again and again.
 *
 * The entries of a nest stay in the ring until its outermost loop ends. Pointers are indices into
 * the ring, compared without regard to how often they went round, as in the hardware.
 */
#include "machine.h"

static u8 ring_index(u32 count) { return count % RING_DEPTH; }

bool sequencer_full(const Sequencer *q) { return q->write - q->oldest == RING_DEPTH; }

bool sequencer_has_work(const Sequencer *q) {
    u32 held = q->write - q->oldest;
    return ring_index(q->read - q->oldest) < held;
}

static bool write_is_inside_nest(const Sequencer *q) {
    u8 start = q->loop[0].base, length = q->loop[0].max_inst;
    return ring_index(q->write - start) <= length;
}

bool sequencer_accepts_frep(const Sequencer *q) {
    return !q->loops || (!q->received_all && write_is_inside_nest(q));
}

bool sequencer_repeats(const Sequencer *q) { return q->loop[q->current].iter != 0; }

/* The instruction to issue: from the ring, with the stagger added to its register fields. */
const Insn *sequencer_peek(const Sequencer *q, Insn *changed) {
    const Insn *insn = q->ring[q->read].insn;
    u8 mask = q->loop[q->current].stagger_mask, by = q->stagger;
    if (!by || !mask) return insn;
    *changed = *insn;
    u8 registers = insn->reads | insn->writes | (insn->old_rd ? FIELD_RD : 0);
    if (mask & ~registers) {
        /* A field that is not a register: the bits change the instruction itself. */
        static const int at[4] = {7, 15, 20, 27};
        u32 raw = insn->raw;
        for (int k = 0; k < 4; k++)
            if (mask >> k & 1) raw = (raw & ~(31u << at[k])) | ((((raw >> at[k]) + by) & 31u)) << at[k];
        *changed = decode(raw);
        return changed;
    }
    if (mask & FIELD_RD) changed->rd = (changed->rd + by) & 31;
    if (mask & FIELD_RS1) changed->rs1 = (changed->rs1 + by) & 31;
    if (mask & FIELD_RS2) changed->rs2 = (changed->rs2 + by) & 31;
    if (mask & FIELD_RS3) changed->rs3 = (changed->rs3 + by) & 31;
    find_operands(changed);
    return changed;
}

/* What issuing the current instruction means for the nest. */
typedef struct Advance {
    bool last_inst[NEST_DEPTH], last_iter[NEST_DEPTH];
    int ending;    /* the outermost loop that ends with it, NEST_DEPTH if none */
    int remaining; /* the innermost loop that does not */
} Advance;

static bool inner_loops_in_last_iteration(const Sequencer *q, const Advance *a, int loop) {
    for (int j = loop + 1; j <= q->current; j++)
        if (!a->last_iter[j]) return false;
    return true;
}

static Advance look_ahead(const Sequencer *q) {
    Advance a = {.ending = NEST_DEPTH};
    for (int i = 0; i < NEST_DEPTH; i++) {
        a.last_inst[i] = q->loop[i].inst == q->loop[i].max_inst;
        a.last_iter[i] = q->loop[i].iter == q->loop[i].max_iter;
    }
    for (int i = q->current; i >= 0; i--)
        if (a.last_inst[i] && a.last_iter[i] && inner_loops_in_last_iteration(q, &a, i)) a.ending = i;
    a.remaining = a.ending == NEST_DEPTH ? q->current : a.ending - 1;
    return a;
}

/* An instruction counts for a loop when it is issued for the last time within it. */
static void count_instruction(Sequencer *q, const Advance *a) {
    for (int i = 0; i <= q->current && i < q->loops; i++) {
        Loop *l = &q->loop[i];
        if (i != q->current && !inner_loops_in_last_iteration(q, a, i)) continue;
        l->inst = a->last_inst[i] ? 0 : l->inst + 1;
        if (a->last_inst[i]) l->iter = a->last_iter[i] ? 0 : l->iter + 1;
    }
}

static void advance_stagger(Sequencer *q, const Advance *a, bool nest_ends) {
    const Loop *l = &q->loop[q->current];
    if (q->current != q->loops - 1) return; /* only the innermost loop staggers */
    if (nest_ends)
        q->stagger = 0;
    else if (a->last_inst[q->current])
        q->stagger = a->last_iter[q->current] || q->stagger == l->stagger_max ? 0 : q->stagger + 1;
}

static void configure(Machine *m, const Offload *frep) {
    Sequencer *q = &m->seq;
    u32 raw = frep->insn->raw;
    if (q->loops == NEST_DEPTH) {
        fail(m, ERROR_FREP_NEST, frep->pc, 0);
        return;
    }
    if (frep->insn->imm >= RING_DEPTH) {
        fail(m, ERROR_FREP_LENGTH, frep->pc, (u32)frep->insn->imm + 1);
        return;
    }
    Loop *l = &q->loop[q->loops++];
    *l = (Loop){.max_inst = (u8)frep->insn->imm, .max_iter = (u16)frep->a, .base = ring_index(q->write),
                .stagger_max = raw >> 12 & 7, .stagger_mask = raw >> 8 & 15};
}

/* The usual case: an instruction of the outer loop, not its last. */
static bool just_the_next(Sequencer *q) {
    Loop *l = &q->loop[0];
    if (q->current || q->loops != 1 || l->inst == l->max_inst) return false;
    l->inst++;
    q->read = ring_index(q->read + 1u);
    return true;
}

/* One cycle: an instruction was issued from the ring, one arrives, or a FREP does. */
void sequencer_step(Machine *m, bool issued, const Offload *body, const Offload *frep) {
    Sequencer *q = &m->seq;
    bool was_active = q->active, nest_ends = false, loop_ends = false;
    u8 had_loops = q->loops;
    if (issued && !body && !frep && was_active && just_the_next(q)) return;
    if (issued) {
        u8 next = ring_index(q->read + 1u);
        if (was_active) {
            Advance a = look_ahead(q);
            loop_ends = a.ending != NEST_DEPTH;
            nest_ends = a.ending == 0;
            if (!nest_ends && a.last_inst[a.remaining]) next = q->loop[a.remaining].base;
            if (nest_ends) q->oldest += q->loop[0].max_inst + 1u;
            advance_stagger(q, &a, nest_ends);
            count_instruction(q, &a);
            if (nest_ends)
                q->current = 0, q->loops = 0, q->active = 0;
            else if (loop_ends)
                q->current = (u8)a.remaining;
        } else {
            q->oldest++;
        }
        q->read = next;
    }
    if (body) {
        bool last_of_nest = had_loops && ring_index(q->write) == ring_index(q->loop[0].base + q->loop[0].max_inst);
        if (last_of_nest)
            q->received_all = 1;
        else if (nest_ends)
            q->received_all = 0;
        q->ring[ring_index(q->write++)] = *body;
    } else if (nest_ends) {
        q->received_all = 0;
    }
    if (frep) configure(m, frep);
    if (was_active && !loop_ends) {
        for (int i = q->current + 1; i < q->loops; i++)
            if (q->read == q->loop[i].base) q->current = (u8)i;
    }
    if (!nest_ends && q->loops && q->read == q->loop[0].base) q->active = 1;
}
