/* The core as a program of its own: runs what comes on its standard input, and knows nothing else.
 *
 * A job is a Job, a SnitchProgram, its code, and for each run a SnitchState with TCDM's content, all as they stand
 * in memory (simulator/run.py writes them); pointers are filled in here. The answer is, for each run, the state
 * and the content afterwards. */
#include "interface.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

typedef struct Job {
    u64 seconds; /* of processor time, at most */
    u64 bytes;   /* of address space, at most */
    u64 runs;
} Job;

typedef struct Run {
    SnitchState state;
    u8 memory[TCDM_SIZE];
} Run;

/* Status of an end that is not the program's fault: sysexits.h calls them EX_DATAERR and EX_OSERR. */
enum { END_BAD_JOB = 65, END_NO_MEMORY = 71 };

/* A signal, or a debugger, may end a call on a pipe early: go on until all is through. */
static void take(void *target, size_t size)
{
    for (char *at = target; size;) {
        ssize_t count = read(0, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            exit(END_BAD_JOB);
        at += count;
        size -= (size_t)count;
    }
}

static void tell(const void *source, size_t size)
{
    for (const char *at = source; size;) {
        ssize_t count = write(1, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            exit(END_BAD_JOB);
        at += count;
        size -= (size_t)count;
    }
}

static void limit(int resource, u64 most)
{
    struct rlimit both = {most, most};
    setrlimit(resource, &both);
}

int main(void)
{
    Job job;
    SnitchProgram program;
    static Run run;
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* die with the parent */
#endif
    take(&job, sizeof job);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, job.seconds);
    limit(RLIMIT_AS, job.bytes);
    take(&program, sizeof program);
    u32 *code = malloc((program.words + 1) * sizeof *code);
    if (!code)
        return END_NO_MEMORY;
    take(code, program.words * sizeof *code);
    program.code = code;
    for (u64 k = 0; k < job.runs; k++) {
        take(&run, sizeof run);
        run.state.memory = run.memory;
        snitch_run(&program, &run.state);
        tell(&run, sizeof run);
    }
    return 0;
}
