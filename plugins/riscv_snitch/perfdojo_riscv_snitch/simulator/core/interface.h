/* The data that the Python side passes and gets back (simulator/native.py mirrors these structures). */
#ifndef INTERFACE_H
#define INTERFACE_H

#include "types.h"

enum { TCDM_BASE = 0x10000000, TCDM_SIZE = 128 << 10 };

enum Error {
    ERROR_NONE,
    ERROR_ILLEGAL,       /* detail: the instruction word */
    ERROR_FETCH,         /* pc outside the code, or not a multiple of four */
    ERROR_MISALIGNED,    /* detail: address */
    ERROR_OUT_OF_RANGE,  /* detail: address */
    ERROR_CYCLE_LIMIT,
    ERROR_DEADLOCK,      /* detail: enum Stuck */
    ERROR_STREAM_DIRECTION, /* detail: mover */
    ERROR_STREAM_REGISTER,  /* detail: register << 5 | mover */
    ERROR_STREAM_VALUE,     /* detail: the value */
    ERROR_STREAM_RANGE,     /* detail: address */
    ERROR_FREP_BODY,     /* an instruction that cannot be in a loop body */
    ERROR_FREP_NEST,
    ERROR_FREP_LENGTH,   /* detail: instructions in the body */
    ERROR_BREAKPOINT,
    ERROR_ROUNDING,
    ERROR_MEMORY,
};

/* What the FP side waits for in a deadlock. */
enum Stuck { STUCK_UNKNOWN, STUCK_STREAM_READ, STUCK_STREAM_WRITE, STUCK_FREP_BODY, STUCK_STREAM_CONFIG };

enum Late { LATE_MOVERS = 1, LATE_ACCESSES = 2 };

enum Counter {
    COUNT_CYCLES,
    COUNT_INSTRUCTIONS,   /* issued by the integer core */
    COUNT_FPU,            /* issued to the FPU's pipelines */
    COUNT_FP_MEMORY,
    COUNT_FLOPS,
    /* Integer core: why it did not issue */
    STALL_CORE_LOAD,
    STALL_CORE_FP,
    STALL_CORE_MULDIV,
    STALL_CORE_OFFLOAD,
    STALL_CORE_CONSISTENCY,
    STALL_CORE_MEMORY,
    STALL_CORE_FENCE,
    /* FP side: why it did not issue */
    STALL_FP_IDLE,
    STALL_FP_DEPENDENCY,
    STALL_FP_STREAM,
    STALL_FP_PIPELINE,
    STALL_FP_MEMORY,
    /* Memory: requests that had to wait for a bank or for the shared port */
    CONFLICT_CORE,
    CONFLICT_MOVER0,
    CONFLICT_MOVER1,
    CONFLICT_MOVER2,
    /* Parts of the above, and what else the FP side did: its cycles add up to all of them. */
    FP_SWITCHES,     /* of the streams, on and off */
    IDLE_SETUP,      /* of STALL_FP_IDLE: a stream was being configured */
    IDLE_WAIT,       /* of STALL_FP_IDLE: the integer core waited, too */
    STREAM_CONFLICT, /* of STALL_FP_STREAM: the datum had been refused by a bank */
    COUNTERS,
};

enum { TRACE_CORE, TRACE_FP };

typedef struct TraceRecord {
    u64 cycle;
    u32 pc;
    u8 source, repeated; /* TRACE_CORE or TRACE_FP; issued again by FREP */
} TraceRecord;

typedef struct SnitchProgram {
    const u32 *code;
    u32 words, base, entry;
    u32 tracing;
    u64 max_cycles;
} SnitchProgram;

typedef struct SnitchState {
    u8 *memory; /* TCDM_SIZE bytes */
    u32 x[32];
    u64 f[32];
    u32 fcsr;
    u32 used;     /* stream registers hold what an earlier program left there */
    u32 late;     /* accesses that wait because others keep the memory busy: enum Late */
    u32 unstored; /* movers, as a mask, that had something to store when the program ended */
    u32 left;     /* movers that still have a job, or data that nobody took, after all was done */
    u32 error, error_pc, error_detail;
    u64 error_cycle;
    u64 instructions;
    u64 cycle_reads; /* reads of mcycle */
    u64 first_read, second_read;
    u64 counters[COUNTERS];
    u64 at_first_read[COUNTERS], at_second_read[COUNTERS];
    TraceRecord *trace;
    u64 trace_length, trace_room;
} SnitchState;

/* Run to the first ecall and until everything that was started is done. 0, or enum Error. */
int snitch_run(const SnitchProgram *program, SnitchState *state);
void snitch_free_trace(SnitchState *state);

#endif
