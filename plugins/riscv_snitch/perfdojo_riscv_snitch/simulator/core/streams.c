/* Stream movers: an address generator of up to four nested loops, a FIFO of four words, and a second
 * set of registers in which the next job waits.
 *
 * Movers 0 and 1 have a register behind the address generator (their hardware can also gather), so
 * their first access comes a cycle later than that of mover 2, and their job ends when the last
 * address leaves that register.
 */
#include "machine.h"

enum { REG_STATUS, REG_REPEAT, REG_BOUND, REG_STRIDE = 6, REG_INDIRECT = 10, REG_READ = 24, REG_WRITE = 28 };
enum { BROADCAST = 31, MAX_REPEAT = 15, MAX_BOUND = (1 << 14) - 1, POINTER_MASK = (1 << 17) - 1 };

static bool has_address(const Mover *v) {
    return v->cut ? v->addresses.count > 0 : !v->job.done;
}

u32 mover_requests(const Machine *m) {
    u32 requests = 0;
    for (int k = 0; k < MOVERS; k++) {
        const Mover *v = &m->mover[k];
        if (!has_address(v) || !v->credits || mover_flushes(v)) continue;
        bool wanted = v->job.write ? v->fifo.count > 0 : v->fifo.count < STREAM_FIFO;
        requests |= (u32)wanted << k;
    }
    return requests;
}

void mover_granted(Machine *m, int k, u64 data) {
    Mover *v = &m->mover[k];
    m->granted[k] = 1;
    v->direction = v->job.write;
    v->credits--;
    if (v->job.write) QUEUE_POP(v->fifo);
    v->next_response = data;
}

/* The value that reading the stream register yields now; false while there is none. */
bool stream_read(Machine *m, int k, u32 pc, u64 *value) {
    Mover *v = &m->mover[k];
    if (mover_is_writing(v)) {
        fail(m, ERROR_STREAM_DIRECTION, pc, (u32)k);
        return false;
    }
    if (!v->fifo.was) return false;
    *value = QUEUE_HEAD(v->fifo);
    return true;
}

void stream_pop(Machine *m, int k) {
    Mover *v = &m->mover[k];
    if (v->repeated != v->repeat) {
        v->repeated = (v->repeated + 1) & MAX_REPEAT;
        return;
    }
    v->repeated = 0;
    QUEUE_POP(v->fifo);
    v->credits++;
}

static u32 movers_of(u32 number) {
    if (number == BROADCAST) return (1 << MOVERS) - 1;
    return number < MOVERS ? 1u << number : 0;
}

bool stream_config_ready(const Machine *m, u32 mover) {
    u32 movers = movers_of(mover);
    for (int k = 0; k < MOVERS; k++)
        if (movers >> k & 1 && !m->mover[k].shadow.done) return false;
    return true;
}

u32 stream_config_read(const Machine *m, u32 word) {
    u32 number = word & 31, reg = word >> 5;
    if (number >= MOVERS) return 0;
    const Mover *v = &m->mover[number];
    if (reg == REG_STATUS)
        return (v->job.pointer & POINTER_MASK) | (u32)v->job.done << 31 | (u32)v->job.write << 30 |
               (u32)v->job.dims << 28;
    if (reg == REG_REPEAT) return v->repeat;
    if (reg >= REG_BOUND && reg < REG_BOUND + LOOPS) return v->bound[reg - REG_BOUND];
    if (reg >= REG_STRIDE && reg < REG_STRIDE + LOOPS) return v->stride[reg - REG_STRIDE] & POINTER_MASK;
    return 0;
}

static void start_job(Machine *m, Mover *v, u32 pointer, bool write, u32 dims) {
    if (pointer & 7) fail(m, ERROR_MISALIGNED, m->configure_pc, pointer);
    if (pointer - TCDM_BASE >= TCDM_SIZE) fail(m, ERROR_STREAM_RANGE, m->configure_pc, pointer);
    v->shadow = (Job){.pointer = pointer, .write = write, .dims = (u8)dims};
    v->job_pc = m->configure_pc;
}

static void write_register(Machine *m, Mover *v) {
    u32 reg = m->configure_register, value = m->configure_value;
    if (reg == REG_REPEAT) {
        if (value > MAX_REPEAT) fail(m, ERROR_STREAM_VALUE, m->configure_pc, value);
        v->next_repeat = (u8)value;
    } else if (reg >= REG_BOUND && reg < REG_BOUND + LOOPS) {
        if (value > MAX_BOUND) fail(m, ERROR_STREAM_VALUE, m->configure_pc, value);
        v->next_bound[reg - REG_BOUND] = value;
    } else if (reg >= REG_STRIDE && reg < REG_STRIDE + LOOPS) {
        if (value & 7) fail(m, ERROR_STREAM_VALUE, m->configure_pc, value);
        v->next_stride[reg - REG_STRIDE] = value;
    } else if (reg >= REG_READ && reg < REG_WRITE + LOOPS) {
        start_job(m, v, value, reg >= REG_WRITE, (reg - REG_READ) % LOOPS);
    } else {
        fail(m, ERROR_STREAM_REGISTER, m->configure_pc, reg << 5 | (u32)(v - m->mover));
    }
    v->dirty = 1;
}

/* Whether this element is the job's last; sets the loop whose stride leads to the next one. */
static bool last_element(const Mover *v, int *loop) {
    *loop = 0;
    if (v->index[0] != v->bound[0]) return false;
    for (int i = 1; i <= v->job.dims; i++)
        if (v->index[i] != v->bound[i]) {
            *loop = i;
            return false;
        }
    *loop = LOOPS - 1;
    return true;
}

static void next_element(Mover *v, int loop, bool last) {
    for (int i = 0; i < loop; i++) v->index[i] = 0;
    if (last)
        v->index[loop] = 0;
    else
        v->index[loop]++;
    v->job.pointer += v->stride[loop];
}

static void check_pointer(Machine *m, const Mover *v) {
    if (v->job.pointer - TCDM_BASE >= TCDM_SIZE) fail(m, ERROR_STREAM_RANGE, v->job_pc, v->job.pointer);
}

static void generate(Machine *m, Mover *v, bool granted) {
    int loop = 0;
    if (!v->cut) {
        if (!granted) return;
        bool last = last_element(v, &loop);
        next_element(v, loop, last);
        if (last)
            v->job.done = 1;
        else
            check_pointer(m, v);
        return;
    }
    bool was_last = granted && v->addresses.entry[v->addresses.head].last;
    if (granted) QUEUE_POP(v->addresses);
    if (!v->last_in_flight && v->addresses.was < SPILL_DEPTH) {
        bool last = last_element(v, &loop);
        u8 slot = (v->addresses.head + v->addresses.count++) % SPILL_DEPTH;
        v->addresses.entry[slot].address = v->job.pointer;
        v->addresses.entry[slot].last = last;
        next_element(v, loop, last);
        if (last)
            v->last_in_flight = 1;
        else
            check_pointer(m, v);
    }
    if (was_last) v->job.done = 1;
}

/* What waits in the shadow registers becomes active. */
static void adopt(Mover *v) {
    for (int i = 0; i < LOOPS; i++) v->stride[i] = v->next_stride[i], v->bound[i] = v->next_bound[i];
    v->repeat = v->next_repeat;
    v->last_in_flight = 0;
    if (!v->shadow.done) v->job = v->shadow;
    v->shadow.done = 1;
    v->dirty = 0;
}

static void take_response(Mover *v, bool writing) {
    if (writing)
        v->credits++;
    else
        QUEUE_PUSH(v->fifo, v->response);
}

void streams_step(Machine *m) {
    for (int k = 0; k < MOVERS; k++) {
        Mover *v = &m->mover[k];
        bool granted = m->granted[k], idle = v->job.done && !v->dirty && !(m->configure >> k & 1);
        if (v->respond) {
            take_response(v, v->respond_write);
            v->respond = 0;
        }
        if (granted) {
            v->respond = 1;
            v->respond_write = v->direction;
            v->response = v->next_response;
            m->granted[k] = 0;
        }
        if (idle && !granted) continue;
        bool was_done = v->job.done;
        if (!was_done) generate(m, v, granted);
        if (m->configure >> k & 1) write_register(m, v);
        if (was_done) adopt(v);
    }
    m->configure = 0;
}
