/* Stream movers: an address generator of up to four nested loops, a FIFO of four words, and a second
 * set of registers in which the next job waits.
 *
 * Movers 0 and 1 have a register behind the address generator (their hardware can also gather), so
 * their first access comes a cycle later than that of mover 2, and their job ends when the last
 * address leaves that register.
 */
#include "machine.h"

enum { REG_STATUS, REG_REPEAT, REG_BOUND, REG_STRIDE = 6, REG_READ = 24, REG_WRITE = 28 };
enum { BROADCAST = 31, MAX_REPEAT = 15, MAX_BOUND = (1 << 14) - 1, POINTER_MASK = (1 << 17) - 1 };

static bool has_address(const Mover *v) { return v->cut ? v->generated : !v->job.done; }

u32 mover_requests(const Machine *m) {
    u32 requests = 0;
    for (u32 left = m->movers_busy; left; left &= left - 1) {
        int k = __builtin_ctz(left);
        const Mover *v = &m->mover[k];
        if (!has_address(v) || !v->credits || mover_flushes(v)) continue;
        bool wanted = v->job.write ? v->fifo.count > 0 : v->fifo.count < STREAM_FIFO;
        requests |= (u32)wanted << k;
    }
    return requests;
}

void mover_granted(Machine *m, int k, u64 data) {
    Mover *v = &m->mover[k];
    m->granted |= (u8)(1u << k);
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
    m->refused &= (u8)~(1u << k);
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

/* On to the next element: the loop that does not end here steps, those within it start again. */
static void next_element(Machine *m, Mover *v) {
    int loop = 0;
    while (v->index[loop] == v->bound[loop] && loop < v->job.dims) v->index[loop++] = 0;
    v->index[loop]++;
    v->job.pointer += v->stride[loop];
    if (v->job.pointer - TCDM_BASE >= TCDM_SIZE) fail(m, ERROR_STREAM_RANGE, v->job_pc, v->job.pointer);
}

static void generate(Machine *m, Mover *v, bool granted) {
    if (granted) {
        v->generated -= v->cut;
        if (--v->left)
            next_element(m, v);
        else
            v->job.done = 1;
    }
    if (v->ungenerated && v->generated_was < SPILL_DEPTH) v->ungenerated--, v->generated++;
}

static void begin(Mover *v) {
    v->left = 1;
    for (int i = 0; i < LOOPS; i++) {
        v->index[i] = 0;
        if (i <= v->job.dims) v->left *= v->bound[i] + 1;
    }
    v->ungenerated = v->cut ? v->left : 0;
}

/* What waits in the shadow registers becomes active. */
static void adopt(Mover *v) {
    for (int i = 0; i < LOOPS; i++) v->stride[i] = v->next_stride[i], v->bound[i] = v->next_bound[i];
    v->repeat = v->next_repeat;
    v->dirty = 0;
    if (v->shadow.done) return;
    v->job = v->shadow;
    v->shadow.done = 1;
    begin(v);
}

static void take_response(Mover *v) {
    if (v->respond_write)
        v->credits++;
    else
        QUEUE_PUSH(v->fifo, v->response);
}

static void configure_or_adopt(Machine *m, Mover *v, int k, bool was_done) {
    if (m->configure >> k & 1) write_register(m, v);
    if (was_done && v->dirty) adopt(v);
    if (v->job.done && !v->dirty && !v->respond) m->movers_busy &= (u8)~(1u << k);
}

/* The usual case: amid the innermost loop of a read job, one element arrives and another was granted. */
static bool just_the_next_element(Machine *m, Mover *v, bool granted) {
    if (!granted || !v->respond || v->respond_write || v->direction || m->configure) return false;
    if (v->left < 2 || v->index[0] == v->bound[0]) return false;
    QUEUE_PUSH(v->fifo, v->response);
    v->response = v->next_response;
    v->left--;
    v->index[0]++;
    v->job.pointer += v->stride[0];
    if (v->job.pointer - TCDM_BASE >= TCDM_SIZE) fail(m, ERROR_STREAM_RANGE, v->job_pc, v->job.pointer);
    v->generated -= v->cut;
    if (v->ungenerated && v->generated_was < SPILL_DEPTH) v->ungenerated--, v->generated++;
    return true;
}

static void step(Machine *m, int k) {
    Mover *v = &m->mover[k];
    bool granted = m->granted >> k & 1, was_done = v->job.done;
    if (just_the_next_element(m, v, granted)) return;
    if (v->respond) take_response(v);
    v->respond = granted;
    if (granted) {
        v->respond_write = v->direction;
        v->response = v->next_response;
    }
    if (!was_done) generate(m, v, granted);
    if (m->configure || v->job.done) configure_or_adopt(m, v, k, was_done);
}

void streams_step(Machine *m) {
    m->movers_busy |= m->configure;
    for (u32 left = m->movers_busy; left; left &= left - 1) step(m, __builtin_ctz(left));
    m->configure = m->granted = 0;
}
