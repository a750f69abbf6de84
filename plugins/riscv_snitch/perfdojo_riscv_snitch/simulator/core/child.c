/* The core as a program of its own: it runs the job on its standard input, and has access to nothing else.
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

enum { JOB_IN, ANSWER_OUT }; /* standard input and output */

/* Read or write all of a block: a signal, or a debugger, may end a call on a pipe early. */
static void through(int file, void *block, size_t size)
{
    for (char *at = block; size;) {
        ssize_t count = file == JOB_IN ? read(file, at, size) : write(file, at, size);
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
    through(JOB_IN, &job, sizeof job);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, job.seconds);
    limit(RLIMIT_AS, job.bytes);
    through(JOB_IN, &program, sizeof program);
    u32 *code = malloc((program.words + 1) * sizeof *code);
    if (!code)
        return END_NO_MEMORY;
    through(JOB_IN, code, program.words * sizeof *code);
    program.code = code;
    for (u64 k = 0; k < job.runs; k++) {
        through(JOB_IN, &run, sizeof run);
        run.state.memory = run.memory;
        snitch_run(&program, &run.state);
        through(ANSWER_OUT, &run, sizeof run);
    }
    return 0;
}
