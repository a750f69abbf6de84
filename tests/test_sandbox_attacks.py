"""Kernels that attack the process that they share with others: they harm only themselves."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_measure import ONCE, RIGHT, RUNNER, TIMED, N, build
from test_sandbox import INCLUDES, WAYS, children, run

from perfdojo_sdk.core.interface import EXECUTIONS, HARNESSED
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement
from perfdojo_sdk.measure import process_tree
from perfdojo_sdk.measure.answer import RUNNER_FAULT

MORE = """
#include <fenv.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/time.h>
"""
SHORT = replace(ONCE, timeout_s=1.0)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No child and no folder outlives its test, and this process is what it was."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    before = children()
    here, nice = os.getcwd(), os.getpriority(os.PRIO_PROCESS, 0)
    yield
    assert (os.getcwd(), os.getpriority(os.PRIO_PROCESS, 0)) == (here, nice)
    assert not set(children()) - set(before)
    assert not list(folder.iterdir())


def hostile(body: str) -> Artifact:
    return build(body + RIGHT, INCLUDES + MORE)


# -- alone -------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("stop", ["raise(SIGSTOP);", "raise(SIGUSR1);", 'execl("/bin/true", "true", NULL);'])
def test_one_that_has_itself_traced_has_not_ended_when_it_stops(stop: str, forks: bool) -> None:
    """To its parent each signal is a stop then, which ``waitpid`` reports unasked."""
    result = run(f"ptrace(PTRACE_TRACEME, 0, 0, 0); {stop}", forks, SHORT, MORE)
    assert isinstance(result, Failure) and result.reason == "timeout", result


#: Each generation forks and ends at once, so that a process is seldom there when it is looked at. All have
#: the lock; so that a failed test leaves nobody for ever, it goes on for ten seconds.
GENERATIONS = """
if (!fork()) {
    prctl(PR_SET_PDEATHSIG, 0); flock(open("PLACE", O_CREAT | O_RDWR, 0600), LOCK_EX); setsid();
    for (time_t begin = time(0); time(0) - begin < 10;) { EACH if (fork()) _exit(0); }
    _exit(0);
}
usleep(20000);
"""


@WAYS
@pytest.mark.parametrize("each", ["", "setsid();"], ids=["one session", "each its own"])
def test_one_that_forks_and_ends_over_and_over_is_ended(each: str, forks: bool, tmp_path: Path) -> None:
    place = tmp_path / "place"
    body = GENERATIONS.replace("PLACE", str(place)).replace("EACH", each)
    result = run(body + RIGHT, forks, replace(ONCE, timeout_s=5), "#include <sys/file.h>")
    assert isinstance(result, Measurement), result
    with open(place) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_that_all_have_ended_whom_one_met_is_no_sign_that_nobody_is_left() -> None:
    """A process that forked and ended is found dead, but its child is still alive."""
    pids = [os.fork()]
    if not pids[0]:
        os._exit(0)
    pids.append(os.fork())
    if not pids[1]:
        time.sleep(60)
        os._exit(1)
    os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOWAIT)

    def reap(pid: int) -> None:
        if os.waitpid(pid, os.WNOHANG)[0]:
            pids.remove(pid)

    process_tree.end(lambda: pids[:1], reap)
    assert not pids


#: Kills the fork server, the parent of the process above the kernel.
KILL_THE_SERVER = """
char name[64]; snprintf(name, 64, "/proc/%d/stat", getppid()); FILE *stat_ = fopen(name, "r");
int server = 0; fscanf(stat_, "%*d %*s %*c %d", &server); fclose(stat_); kill(server, SIGKILL);
"""


@pytest.mark.parametrize("rest", ["for (;;);", RIGHT], ids=["and goes on", "and is right"])
def test_one_that_kills_the_fork_server_fails_alone(rest: str) -> None:
    result = run(KILL_THE_SERVER + rest, False, SHORT, MORE + "#include <stdio.h>\n")
    assert isinstance(result, Failure) and result.reason == "crash", result
    assert isinstance(run(RIGHT, False), Measurement), "the next one has a server"


def test_many_processes_are_given_the_time_that_they_take_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of a large process takes tens of milliseconds to end, and there may be a thousand."""
    monkeypatch.setattr(process_tree, "PATIENCE_S", 0.02)
    pids = []
    for _ in range(20):
        pids.append(os.fork())
        if not pids[-1]:
            time.sleep(60)
            os._exit(1)

    def reap(pid: int) -> None:
        time.sleep(0.005)
        if os.waitpid(pid, os.WNOHANG)[0]:
            pids.remove(pid)

    process_tree.end(lambda: list(pids), reap)
    assert not pids


@WAYS
def test_the_current_folder_is_the_kernel_s_to_change(forks: bool, tmp_path: Path) -> None:
    """The harness finds its files after a kernel has changed the current folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    x = np.arange(N, dtype=np.float32)
    artifact = hostile(f'chdir("{elsewhere}");')
    result = replace(RUNNER, forks=forks).run(artifact, replace(TIMED, inputs={"x": x}))
    assert isinstance(result, Measurement) and result.outputs and len(result.seconds) == 5
    assert np.array_equal(result.outputs["y"], 2 * x) and not list(elsewhere.iterdir())


def test_nor_does_it_spare_a_kernel_the_executions_that_c_calls(tmp_path: Path) -> None:
    request = replace(ONCE, executions=tuple(e for e in EXECUTIONS if e in HARNESSED))
    result = RUNNER.run(hostile(f'chdir("{tmp_path}");'), request)
    assert isinstance(result, Failure) and result.detail.endswith("different: current folder")


@WAYS
@pytest.mark.parametrize("leave", ["symlink", "link"])
def test_a_result_is_not_written_through_a_link(leave: str, forks: bool, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("years of work")
    result = run(f'{leave}("{victim}", "result.json.part"); {RIGHT}', forks)
    assert isinstance(result, Measurement) and victim.read_text() == "years of work"


@WAYS
def test_nor_does_it_wait_for_who_reads_a_fifo(forks: bool) -> None:
    assert isinstance(run(f'mkfifo("result.json.part", 0600); {RIGHT}', forks), Measurement)


@pytest.mark.parametrize("together", [False, True])
def test_a_fork_has_none_of_its_parent_s_open_files(together: bool, tmp_path: Path) -> None:
    """Such as a database's, or a log's: its own are the memory of arrays and the pipe of marks."""
    artifact = hostile('for (int f = 0; f < 1024; f++) { ftruncate(f, 0); write(f, "ruined", 6); }')
    with open(tmp_path / "records", "w+b", buffering=0) as records:
        records.write(b"years of work")
        if together:
            RUNNER.run_together(artifact, [ONCE, ONCE])
        else:
            replace(RUNNER, forks=True).run(artifact, ONCE)
        assert (tmp_path / "records").read_bytes() == b"years of work"


# -- beside others -----------------------------------------------------------------------------------

#: Kernels that give the right result and change what the next one, or the child's own code, needs.
POISON = {
    "closes all files": ("for (int f = 0; f < 1024; f++) close(f);", "status 1"),
    "allows no more files": (
        "struct rlimit r = {0, 0}; setrlimit(RLIMIT_NOFILE, &r);",
        "Too many open files",
    ),
    "allows no more memory": ("struct rlimit r = {0, 0}; setrlimit(RLIMIT_AS, &r);", ""),
    "allows files no content": ("struct rlimit r = {0, 0}; setrlimit(RLIMIT_FSIZE, &r);", ""),
    "makes a folder of the result": ('mkdir("result.json", 0700);', "Is a directory"),
    "says what the clock says": (
        'signal(SIGPIPE, SIG_IGN); for (int f = 3; f < 4096; f++) write(f, "BEBEBEBE", 8);',
        RUNNER_FAULT,
    ),
    "calls for an alarm": (
        "struct itimerval t = {{0, 1000}, {0, 1000}}; setitimer(ITIMER_REAL, &t, 0); usleep(5000);",
        "SIGALRM",
    ),
    "leaves an abort to a later call": (
        "static int calls; if (calls++ == 5) { signal(SIGALRM, SIG_DFL); alarm(1); sleep(2); }",
        "SIGALRM",
    ),
}


@pytest.mark.parametrize(("name", "forks"), [*((name, True) for name in POISON), ("closes all files", False)])
def test_whoever_takes_a_race_down_is_found_and_the_others_race(name: str, forks: bool) -> None:
    body, says = POISON[name]
    racers = [build(RIGHT), hostile(body), build(RIGHT)]
    request = replace(TIMED, timeout_s=10)
    first, guilty, last = replace(RUNNER, forks=forks).time_interleaved(racers, request)
    assert isinstance(first, Measurement) and isinstance(last, Measurement), (first, last)
    assert isinstance(guilty, Failure) and says in guilty.detail, guilty


def test_kernels_that_get_along_only_alone_have_the_times_that_they_have_alone() -> None:
    """The first kernel leaves a state in which the second one fails; neither is at fault."""
    leaves = hostile('int f = open("met", O_CREAT | O_WRONLY, 0600); close(f);')
    meets = hostile('if (!access("met", F_OK)) abort();')
    results = RUNNER.time_interleaved([leaves, meets], replace(TIMED, inputs={"x": np.ones(N, np.float32)}))
    for result in results:
        assert isinstance(result, Measurement) and result.outputs and (result.outputs["y"] == 2).all()
        assert len(result.seconds) == 5


@WAYS
def test_how_one_kernel_computes_with_floats_is_not_how_the_next_one_does(forks: bool) -> None:
    x = np.arange(N, dtype=np.float32)
    thirds = build("for (int i = 0; i < N; i++) y[i] = x[i] / 3;")
    upward = build("fesetround(FE_UPWARD);" + RIGHT, MORE)
    results = replace(RUNNER, forks=forks).time_interleaved([upward, thirds], replace(TIMED, inputs={"x": x}))
    for result, expected in zip(results, (2 * x, x / 3), strict=True):
        assert isinstance(result, Measurement) and result.outputs
        assert np.array_equal(result.outputs["y"], expected)
