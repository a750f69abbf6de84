/* Three ports into 32 single-cycle banks. Port 0 is shared by mover 0 and by the loads and stores of
 * core and FP subsystem, which come together in an arbiter of their own. A granted access is done at
 * once and its response is there in the next cycle.
 */
#include <string.h>

#include "machine.h"

static u32 bank_of(u32 address) { return address >> 3 & (BANKS - 1); }

static u8 *at(Machine *m, u32 address) { return m->memory + (address - TCDM_BASE); }

bool memory_check(Machine *m, u32 address, int size, u32 pc) {
    if (address & ((1u << size) - 1)) {
        fail(m, ERROR_MISALIGNED, pc, address);
        return false;
    }
    if (address - TCDM_BASE > TCDM_SIZE - (1u << size)) {
        fail(m, ERROR_OUT_OF_RANGE, pc, address);
        return false;
    }
    return true;
}

/* Ports whose request for a bank is granted, out of those in `wanted`. The others have banks of
 * their own in `bank`, see free_banks. */
static u32 grant_banks(Machine *m, u32 wanted, const u32 *bank) {
    u32 granted = 0;
    if (bank[0] != bank[1] && bank[1] != bank[2] && bank[0] != bank[2] && m->cycle >= m->atomic_until) {
        for (u32 k = 0; k < PORTS; k++) m->bank_pointer[bank[k]] = (u8)k;
        return wanted;
    }
    for (u32 left = wanted; left;) {
        u32 b = bank[__builtin_ctz(left)];
        u32 rivals = left & ((bank[0] == b) | (u32)(bank[1] == b) << 1 | (u32)(bank[2] == b) << 2);
        left &= ~rivals;
        if (m->cycle < m->atomic_until && b == m->atomic_bank) continue;
        u8 *pointer = &m->bank_pointer[b];
        if (!(rivals & (rivals - 1))) { /* the usual case */
            granted |= rivals;
            *pointer = (u8)__builtin_ctz(rivals);
            continue;
        }
        granted |= 1u << arbiter_pick(rivals, *pointer, 2);
        *pointer = arbiter_next(rivals, *pointer);
    }
    return granted;
}

/* Banks of ports that want none: they do not exist, and differ. */
static void free_banks(u32 *bank) {
    for (u32 k = 0; k < PORTS; k++) bank[k] = BANKS + k;
}

static u32 atomic_result(u32 op, u32 old, u32 operand) {
    switch (op) {
    case 0x00: return old + operand;
    case 0x01: return operand;
    case 0x04: return old ^ operand;
    case 0x08: return old | operand;
    case 0x0c: return old & operand;
    case 0x10: return (i32)old < (i32)operand ? old : operand;
    case 0x14: return (i32)old > (i32)operand ? old : operand;
    case 0x18: return old < operand ? old : operand;
    default: return old > operand ? old : operand;
    }
}

static u64 do_atomic(Machine *m, const Access *a) {
    u32 old, op = a->atomic & 0x1f, operand = (u32)a->data;
    memcpy(&old, at(m, a->address), 4);
    if (op == 2) { /* load-reserved */
        m->reservation = a->address & ~7u;
        return old;
    }
    if (op == 3) { /* store-conditional: 0 is success */
        bool success = m->reservation == (a->address & ~7u);
        if (success) memcpy(at(m, a->address), &operand, 4);
        m->reservation = 1;
        return !success;
    }
    u32 value = atomic_result(op, old, operand);
    memcpy(at(m, a->address), &value, 4);
    m->atomic_bank = bank_of(a->address);
    m->atomic_until = m->cycle + 3; /* compute, write back */
    return old;
}

static void do_access(Machine *m, const Access *a) {
    Response r = {.ready = (u32)m->cycle + 1, .write = a->write, .rd = a->rd, .repeated = a->repeated,
                  .from_fp = a->from_fp};
    u8 *where = at(m, a->address);
    size_t bytes = (size_t)1 << a->size;
    if (a->atomic) {
        r.data = do_atomic(m, a);
    } else if (a->write) {
        memcpy(where, &a->data, bytes);
    } else {
        u64 value = 0;
        memcpy(&value, where, bytes);
        int shift = 64 - 8 * (int)bytes;
        if (a->from_fp)
            value |= ~(~0ull >> shift); /* a narrow FP value is boxed with ones */
        else if (a->is_signed)
            value = (u64)((i64)(value << shift) >> shift);
        r.data = value;
    }
    QUEUE_PUSH(m->responses, r);
    m->outstanding++;
}

static void serve_mover(Machine *m, int k) {
    Mover *v = &m->mover[k];
    u8 *where = at(m, v->job.pointer);
    u64 data = 0;
    if (v->job.write)
        memcpy(where, &QUEUE_HEAD(v->fifo), 8);
    else
        memcpy(&data, where, 8);
    mover_granted(m, k, data);
}

/* The access that core and FP subsystem present to the memory port; one of them has one. */
static Access *chosen_access(Machine *m, u32 *requests, int *who) {
    u32 now = (u32)(m->core_access.count > 0) | (u32)(m->fp_access.count > 0) << 1;
    /* However busy the memory is, an FP load finds what the core stored before. */
    *requests = m->state->late && now & 1 ? 1 : arbiter_requests(&m->lsu_arbiter, now);
    *who = arbiter_pick(*requests, m->lsu_arbiter.pointer, 1);
    return *who ? &QUEUE_HEAD(m->fp_access) : &QUEUE_HEAD(m->core_access);
}

static void serve_movers(Machine *m, u32 movers, u32 served) {
    for (u32 left = movers; left; left &= left - 1) {
        int k = __builtin_ctz(left);
        if (served >> k & 1)
            serve_mover(m, k);
        else {
            count_event(m, CONFLICT_MOVER0 + k);
            m->refused |= (u8)(1u << k);
        }
    }
}

static void serve_streams_alone(Machine *m, u32 movers) {
    u32 bank[PORTS];
    free_banks(bank);
    for (u32 left = movers; left; left &= left - 1)
        bank[__builtin_ctz(left)] = bank_of(m->mover[__builtin_ctz(left)].job.pointer);
    u32 granted = grant_banks(m, movers, bank);
    if (movers & 1) m->port_arbiter = (Arbiter){.locked = !(granted & 1), .requests = 1};
    serve_movers(m, movers, granted);
}

static void serve_all(Machine *m, u32 movers) {
    u32 requests = 0, bank[PORTS];
    int who = 0;
    free_banks(bank);
    Access *access = chosen_access(m, &requests, &who);
    bool presented = m->outstanding_was < OUTSTANDING;
    u32 port_requests = arbiter_requests(&m->port_arbiter, (movers & 1) | (u32)presented << 1);
    bool for_access = port_requests && arbiter_pick(port_requests, m->port_arbiter.pointer, 1);
    for (u32 left = movers; left; left &= left - 1)
        bank[__builtin_ctz(left)] = bank_of(m->mover[__builtin_ctz(left)].job.pointer);
    if (for_access) bank[0] = bank_of(access->address);

    u32 granted = grant_banks(m, movers | (u32)for_access, bank);
    bool accessed = for_access && granted & 1;
    arbiter_settle(&m->port_arbiter, port_requests, granted & 1, true);
    arbiter_settle(&m->lsu_arbiter, requests, accessed, true);
    serve_movers(m, movers, granted & ~(u32)for_access);
    if (accessed) {
        do_access(m, access);
        if (who)
            QUEUE_POP(m->fp_access);
        else
            QUEUE_POP(m->core_access);
    } else if (presented) {
        count_event(m, CONFLICT_CORE);
    }
}

/* True if an access of this kind must wait: others keep the memory busy, except in a few cycles of each period. */
static bool late(const Machine *m, u32 what) {
    enum { PERIOD = 128, LEFT = 8 };
    return m->state->late & what && m->cycle % PERIOD >= LEFT;
}

void memory_step(Machine *m) {
    u32 movers = m->movers_busy ? mover_requests(m) : 0;
    bool accesses = m->core_access.count || m->fp_access.count;
    if (!movers && !accesses) return;
    m->progress = m->cycle;
    if (late(m, LATE_MOVERS)) movers = 0;
    if (late(m, LATE_ACCESSES)) accesses = false;
    if (!movers && !accesses) return;
    if (accesses)
        serve_all(m, movers);
    else
        serve_streams_alone(m, movers);
}

/* Responses come in order; one that cannot be taken blocks the rest. */
void memory_respond(Machine *m) {
    if (!m->responses.count) return;
    Response *r = &QUEUE_HEAD(m->responses);
    if (r->ready > (u32)m->cycle) return;
    if (r->from_fp) {
        if (!r->write && m->fp_write_busy) return;
        fp_respond(m, r);
    } else {
        if (QUEUE_FULL(m->core_response)) return;
        QUEUE_PUSH(m->core_response, *r);
    }
    QUEUE_POP(m->responses);
    m->outstanding--;
    m->progress = m->cycle;
}
