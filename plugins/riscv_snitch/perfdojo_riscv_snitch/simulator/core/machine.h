/* The state of one core complex: integer core, offload queue, FP subsystem, streams, memory.
 *
 * One call of each unit advances it by one cycle. Units talk through small queues, as the hardware
 * does through registers: what is put in during a cycle is seen in the next, and room that a cycle
 * makes is room in the next. The order of the calls in machine.c (consumers first) gives the first
 * half of that rule, the counts `was` taken at the start of the cycle the second half.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include "decode.h"
#include "interface.h"

enum {
    SPILL_DEPTH = 2,      /* registers that cut a path hold two entries */
    RING_DEPTH = 32,      /* FP instructions in the sequencer */
    NEST_DEPTH = 2,       /* FREP loops */
    CAQ_DEPTH = 8,        /* FP memory accesses that the core remembers for consistency */
    CAQ_TAG_MASK = 0xff,  /* bits of the word address that it compares */
    OUTSTANDING = 4,      /* loads, and memory operations, in flight for each side; also in the memory port */
    MOVERS = STREAM_REGISTERS,
    STREAM_FIFO = 4,
    LOOPS = 4,
    BANKS = 32,
    PORTS = 3,
    QUIET_LIMIT = 256,    /* cycles without any progress that mean deadlock */
};

/* Round-robin arbiter; with `locked`, a choice that was not taken up stands. */
typedef struct Arbiter {
    u8 pointer, locked;
    u16 requests;
} Arbiter;

typedef struct Offload { /* an instruction on its way to the FP side, multiplier or streams */
    const Insn *insn;
    u32 pc, a, b, address;
} Offload;

typedef struct Access { /* a memory access of the core or of the FP subsystem */
    u64 data;
    u32 address, pc;
    u8 write, size, is_signed, rd, repeated, from_fp, atomic;
} Access;

typedef struct Response {
    u64 data;
    u32 ready; /* low bits of the cycle from which it is there */
    u8 write, rd, repeated, from_fp;
} Response;

typedef struct Retire { /* an offloaded instruction's result for the integer register file */
    u32 data;
    u8 rd;
} Retire;

#define QUEUE(type, depth)                                                                                             \
    struct {                                                                                                           \
        type entry[depth];                                                                                             \
        u8 head, count, was;                                                                                           \
    }
#define QUEUE_DEPTH(q) ((u8)(sizeof((q).entry) / sizeof((q).entry[0])))
#define QUEUE_HEAD(q) ((q).entry[(q).head])
#define QUEUE_FULL(q) ((q).was == QUEUE_DEPTH(q))
#define QUEUE_PUSH(q, value) ((q).entry[((q).head + (q).count++) % QUEUE_DEPTH(q)] = (value))
#define QUEUE_POP(q) ((q).head = (u8)(((q).head + 1) % QUEUE_DEPTH(q)), (q).count--)

typedef struct Result { /* a value in a pipeline of the FPU */
    u64 value;
    u32 pc;
    u8 flags, rd, to_int, to_stream;
} Result;

/* A pipeline of up to three stages; the last is the output. Stage k is entry[base + k], modulo the
 * entries, so that moving everything on by one stage turns the base. */
enum { STAGES = 3, OUTPUT = STAGES - 1, PIPE_ENTRIES = 4 };
typedef struct Pipe {
    Result entry[PIPE_ENTRIES];
    u8 base;
    u8 valid; /* stages that hold a result, as a mask */
    u8 first; /* the stage that an instruction enters */
} Pipe;

static inline Result *pipe_stage(Pipe *p, int stage) { return &p->entry[(u32)(p->base + stage) % PIPE_ENTRIES]; }

typedef struct Loop {
    u16 max_iter, iter;
    u8 max_inst, inst, base, stagger_max, stagger_mask;
} Loop;

typedef struct Sequencer {
    Offload ring[RING_DEPTH];
    u32 write, oldest; /* counts of all pushed and all freed entries */
    u8 read;           /* index of the entry to issue */
    Loop loop[NEST_DEPTH];
    u8 loops, current, active, received_all, stagger;
} Sequencer;

typedef struct Job {
    u32 pointer;
    u8 done, write, dims;
} Job;

typedef struct Mover {
    Job job, shadow;
    u32 stride[LOOPS], bound[LOOPS], next_stride[LOOPS], next_bound[LOOPS];
    u32 index[LOOPS];
    u64 left;        /* elements of the job that have not been accessed */
    u64 ungenerated; /* elements whose address has not left the generator, if `cut` */
    u8 cut;          /* has a register behind the address generator, of two entries ... */
    u8 generated, generated_was; /* ... of which so many are full */
    u8 repeat, next_repeat, repeated;
    u8 direction; /* of the last access: 1 write */
    u8 credits;
    u8 dirty;     /* the shadow registers differ from the active ones */
    u8 respond, respond_write;
    u64 response, next_response;
    u32 job_pc;   /* of the instruction that started the last job */
    QUEUE(u64, STREAM_FIFO) fifo;
} Mover;

typedef struct Caq {
    u16 tag[CAQ_DEPTH]; /* bit 15: write */
    u8 head, count, was, popped;
} Caq;

typedef struct Muldiv {
    Retire product, quotient;
    u8 product_valid, quotient_valid, quotient_was;
    u8 divide_left; /* cycles until the quotient is there */
    Arbiter output;
} Muldiv;

typedef struct Machine {
    const SnitchProgram *program;
    SnitchState *state;
    Insn *code;
    u8 *memory;
    u64 cycle, progress; /* the last cycle in which anything moved */

    /* Integer core */
    u32 pc, x[32];
    u32 pending, pending_load, pending_fp, pending_muldiv;
    u32 fcsr, fcsr_was;
    u8 halted;
    u64 instret;
    QUEUE(Offload, SPILL_DEPTH) offload;
    QUEUE(Access, SPILL_DEPTH) core_access;
    QUEUE(Response, SPILL_DEPTH) core_response;
    QUEUE(Retire, SPILL_DEPTH) retire;
    u8 core_loads, core_loads_was, core_mem, core_mem_was;
    Caq caq;

    /* Multiplier and stream configuration */
    Muldiv muldiv;
    Retire config_response;
    u8 config_responding;
    Arbiter retire_arbiter;

    /* FP subsystem */
    u64 f[33]; /* the last one stands for an operand that is not there */
    u32 fp_pending, fp_pending_was;
    u8 streams_on;
    u8 fp_write_busy; /* an FPU result wants the FP write port in this cycle */
    u8 stuck;         /* enum Stuck: what the oldest FP instruction waits for, if it may be for ever */
    u32 stuck_pc;
    Sequencer seq;
    Pipe pipe[PIPES];
    u8 outputs;    /* pipelines with a result at their end, as a mask */
    u8 pipes_busy; /* pipelines that hold a result anywhere */
    u8 pipes_full; /* pipelines that cannot take an instruction in this cycle */
    Arbiter output_arbiter, noncomp_arbiter;
    QUEUE(Access, SPILL_DEPTH) fp_access;
    u8 fp_loads, fp_loads_was, fp_mem, fp_mem_was;

    /* Streams */
    Mover mover[MOVERS];
    u8 movers_busy; /* movers with a job, a response or a new configuration */
    u8 refused;     /* movers whose next datum a bank has refused once */
    u8 configure;   /* movers that a configuration write addresses in this cycle */
    u8 configure_register;
    u32 configure_value, configure_pc;

    /* Memory */
    Arbiter lsu_arbiter, port_arbiter;
    QUEUE(Response, 8) responses;
    u8 outstanding, outstanding_was;
    u8 bank_pointer[BANKS + PORTS]; /* those beyond BANKS are never read */
    u32 atomic_bank;  /* busy with an atomic access ... */
    u64 atomic_until; /* ... until this cycle */
    u32 reservation;  /* address of a load-reserved, 1 if none */
    u8 granted;       /* movers, in this cycle */

    u8 failed;
} Machine;

/* Arbitration over up to eight requesters: a tree in which the pointer's bits break ties. */
static inline int arbiter_pick(u32 requests, u32 pointer, int levels) {
    int base = 0;
    if (!(requests & (requests - 1))) return __builtin_ctz(requests);
    for (int level = levels - 1; level >= 0; level--) {
        u32 half = 1u << level, mask = (1u << half) - 1;
        u32 low = requests >> base & mask, high = requests >> (base + (int)half) & mask;
        if (!low || (high && (pointer >> level & 1))) base += (int)half;
    }
    return base;
}

/* The pointer after a grant: the lowest requester above it, or the lowest. */
static inline u8 arbiter_next(u32 requests, u32 pointer) {
    u32 above = requests & ~((2u << pointer) - 1);
    return (u8)__builtin_ctz(above ? above : requests);
}

static inline u32 arbiter_requests(const Arbiter *a, u32 requests) { return a->locked ? a->requests : requests; }

static inline void arbiter_settle(Arbiter *a, u32 requests, bool granted, bool locks) {
    if (granted && requests) a->pointer = arbiter_next(requests, a->pointer);
    a->locked = locks && requests && !granted;
    a->requests = (u16)requests;
}

static inline void count_event(Machine *m, int counter) { m->state->counters[counter]++; }

/* Stop with an error that names the instruction at `pc`. */
void fail(Machine *m, int code, u32 pc, u32 detail);

void trace(Machine *m, int source, u32 pc, int repeated);

/* memory.c */
void memory_step(Machine *m);
void memory_respond(Machine *m);
bool memory_check(Machine *m, u32 address, int size, u32 pc);

/* streams.c */
u32 mover_requests(const Machine *m);
void mover_granted(Machine *m, int k, u64 data);
bool stream_read(Machine *m, int k, u32 pc, u64 *value);
void stream_pop(Machine *m, int k);
u32 stream_config_read(const Machine *m, u32 word);
bool stream_config_ready(const Machine *m, u32 mover);
void streams_step(Machine *m);

/* Data of the old direction must be gone before the first access in the new one. */
static inline bool mover_flushes(const Mover *v) {
    return v->job.write != v->direction && v->credits < STREAM_FIFO;
}

static inline bool mover_is_writing(const Mover *v) { return mover_flushes(v) ? v->direction : v->job.write; }

/* sequencer.c */
bool sequencer_has_work(const Sequencer *q);
bool sequencer_full(const Sequencer *q);
bool sequencer_accepts_frep(const Sequencer *q);
const Insn *sequencer_peek(const Sequencer *q, Insn *changed);
bool sequencer_repeats(const Sequencer *q);
void sequencer_step(Machine *m, bool issued, const Offload *body, const Offload *frep);

/* fp_subsystem.c */
void fpu_output(Machine *m);
void fp_respond(Machine *m, const Response *r);
void offload_step(Machine *m);

/* core.c */
void core_step(Machine *m);

#endif
