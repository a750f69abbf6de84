"""A kernel's leftovers, children and claims: nothing of it hangs, outlives or fools the parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_measure import ONCE, RIGHT, RUNNER, TIMED, N, build

from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.hookspecs.types import Failure, Measurement, RunRequest
from perfdojo_sdk.measure import fork_server, guarded_files, process_tree
from perfdojo_sdk.measure.answer import RUNNER_FAULT, Answer, KernelAnswer, Malformed, doubt, read_answer
from perfdojo_sdk.measure.guarded_files import private_folder

INCLUDES = """
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
static void leave(const char *text) {
    int f = open("result.json", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    write(f, text, strlen(text)); close(f);
}
"""
#: The ways to start a child.
WAYS = pytest.mark.parametrize("forks", [False, True], ids=["interpreter", "fork"])


def run(body: str, forks: bool = False, request: RunRequest = ONCE, more: str = "") -> Measurement | Failure:
    return replace(RUNNER, forks=forks).run(build(body, INCLUDES + more), request)


def answer_text(seconds: Any, **others: Any) -> str:
    kernel = {"failure": None, "seconds": seconds, "busy_s": 0.0, "details": {"calls": 1}}
    whole = {"elapsed_ns": 0, "cold": False, "kernels": [{**kernel, **others}]}
    return json.dumps(whole)


def quoted(text: str) -> str:
    return json.dumps(text)  # as C spells it, for what is tried here


# -- what lies in the folder ------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(
    "left",
    [
        'mkfifo("result.json", 0600);',
        'symlink("/dev/zero", "result.json");',
        'symlink("/dev/stdin", "result.json");',
        'mkdir("result.json", 0700);',
    ],
    ids=["fifo", "endless", "terminal", "folder"],
)
def test_a_result_that_is_no_file_is_not_waited_for(left: str, forks: bool) -> None:
    result = run(left + "_exit(0);", forks)
    assert isinstance(result, Failure) and result.reason == "runtime"
    assert result.detail.startswith(RUNNER_FAULT), result


@WAYS
def test_files_of_the_parent_cannot_be_replaced(forks: bool) -> None:
    body = 'unlink("said"); unlink("running"); mkfifo("said", 0600); mkfifo("running", 0600); return 7;'
    result = run(body, forks)
    assert isinstance(result, Failure) and "returned 7" in result.detail
    result = run(body.replace("return 7", "abort()"), forks)
    assert isinstance(result, Failure) and result.reason == "crash"


def test_a_result_that_goes_on_for_ever_is_not_read_whole(tmp_path: Path) -> None:
    """Sparse, so that only reading costs anything."""
    file = tmp_path / "result.json"
    with open(file, "wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(Malformed, match="larger than"):
        read_answer(file, ONCE, 1)


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_bounded(tmp_path / "file", 4, inside=tmp_path) == b"1234"
    for name, most in (("file", 3), ("link", 4), ("nothing", 4), (".", 4)):
        with pytest.raises(OSError):
            read_bounded(tmp_path / name, most, inside=(tmp_path / name).parent)


MALFORMED = (
    "",
    "{",
    "[]",
    "null",
    "{}",
    "[" * 100_000,
    "1" * 5000,
    '{"elapsed_ns": 0, "cold": false, "kernels": []}',
    '{"elapsed_ns": 0, "cold": false, "kernels": {}}',
    '{"elapsed_ns": 0, "cold": false, "kernels": [7]}',
    '{"elapsed_ns": "long", "cold": false, "kernels": [{}]}',
    answer_text([float("nan")]),
    answer_text([float("inf")]),
    answer_text([-1.0]),
    answer_text([0.0]),
    answer_text([1e-12]),
    answer_text([1e300]),
    answer_text([True]),
    answer_text([1.0] * 6),
    answer_text([]).replace("[{", "[{}, {"),
    answer_text(3),
    answer_text("111"),
    answer_text([], failure=["bored", "no reason that there is"]),
    answer_text([], failure=["crash"]),
    answer_text([], failure=["crash", 7]),
    answer_text([], failure="crash"),
    answer_text([], failure=7),
    answer_text([], failure=[["crash"], "x"]),
    answer_text([], details=[1]),
    answer_text([], details={"calls": "many"}),
    answer_text([], details={str(k): k for k in range(1000)}),
    answer_text([], busy_s=None),
    answer_text([]).replace("false", "0"),
)


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_result_is_none(text: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(Malformed):
        read_answer(file, TIMED, 1)
    file.write_bytes(b"\xff" + text.encode())
    with pytest.raises(Malformed):
        read_answer(file, TIMED, 1)


def test_a_well_formed_result_is_read(tmp_path: Path) -> None:
    """Also one whose words no encoding has: they are shown some day."""
    file = tmp_path / "result.json"
    file.write_text(answer_text([0.5]))
    assert read_answer(file, TIMED, 1).kernels[0].seconds == (0.5,)
    file.write_text(answer_text([], failure=["crash", "\ud800" + "x" * 9000]))
    failure = read_answer(file, TIMED, 1).kernels[0].failure
    assert failure and failure.reason == "crash" and len(failure.detail.encode()) <= 2000


@WAYS
def test_a_malformed_result_is_a_failure(forks: bool) -> None:
    result = run(f"leave({quoted(answer_text([], failure=['bored', 'x']))}); _exit(0);", forks)
    assert isinstance(result, Failure) and result.detail.startswith(RUNNER_FAULT)


@WAYS
def test_an_output_that_nobody_wrote_is_what_it_was(forks: bool) -> None:
    """The kernel speaks for itself, in vain: it has the memory of its outputs, of that size and no other."""
    cut = "for (int f = 3; f < 64; f++) ftruncate(f, 0);"
    result = run(cut + f"leave({quoted(answer_text([]))}); _exit(0);", forks)
    assert isinstance(result, Measurement) and result.outputs
    assert not result.outputs["y"].any() and result.outputs["y"].shape == (N,)


@WAYS
def test_output_is_bounded(forks: bool) -> None:
    """1.6 GB in four seconds were seen; the file ends long before."""
    body = """
    static char text[1 << 20]; long count = 0, wrote;
    while (count < 200 << 20 && (wrote = write(1, text, sizeof text)) > 0) count += wrote;
    if (count >= 100 << 20) return 9;"""
    assert isinstance(run(body + RIGHT, forks), Measurement)


def test_a_folder_goes_whatever_became_of_it(tmp_path: Path) -> None:
    with private_folder("test") as folder:
        here = os.getcwd()
        try:
            os.chdir(folder)
            for _ in range(2500):
                os.mkdir("d")
                os.chdir("d")
        finally:
            os.chdir(here)
    left = os.path.lexists(folder)
    subprocess.run(["rm", "-rf", folder], check=True)  # pytest would stumble over it, for ever after
    assert not left
    (tmp_path / "mine").write_text("kept")
    with private_folder("test") as folder:
        folder.rmdir()
        folder.symlink_to(tmp_path)
    assert not os.path.lexists(folder) and (tmp_path / "mine").exists()


#: Makes both kinds of folders, says which, and waits to be killed.
KILLED = """
import time
from perfdojo_sdk.measure.guarded_files import private_folder, process_folder
with private_folder("run") as folder:
    (folder / "inside").mkdir()
    (folder / "inside" / "file").write_text("left")
    (folder / "inside").chmod(0)
    print(folder, process_folder("headers"), flush=True)
    time.sleep(60)
"""
#: Makes a folder, which removes those of the dead, and ends.
LATER = "from perfdojo_sdk.measure.guarded_files import process_folder; process_folder('code')"


def started(code: str, temporary: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)


def folders_of(process: subprocess.Popen[str]) -> set[str]:
    assert process.stdout
    return {Path(name).name for name in process.stdout.readline().split()}


def test_folders_of_a_killed_process_go_with_the_next_one(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "mine").mkdir()
    (place / "mine" / "file").write_text("kept")
    (place / "perfdojo-run-of-an-older-version").mkdir()
    (place / f"perfdojo-run-link{guarded_files._HELD}").symlink_to(place / "mine")
    before = set(os.listdir(place))
    with started(KILLED, place) as dead, started(KILLED, place) as living:
        try:
            left, kept = folders_of(dead), folders_of(living)
            assert len(left) == len(kept) == 2 and set(os.listdir(place)) == before | left | kept
            dead.kill()
            dead.wait()
            assert started(LATER, place).wait() == 0
            assert set(os.listdir(place)) == before | kept
        finally:
            dead.kill()
            living.kill()
    assert (place / "mine" / "file").read_text() == "kept"


def test_folders_stay_where_others_may_exchange_them(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    left = place / f"perfdojo-run-left{guarded_files._HELD}"
    left.mkdir()
    assert started(LATER, place).wait() == 0 and os.listdir(place) == [left.name]
    place.chmod(0o1777)
    assert started(LATER, place).wait() == 0 and os.listdir(place) == []


def test_folders_of_another_machine_or_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    place.mkdir()
    elsewhere, theirs = place / "perfdojo-run-a.00000000.held", f"perfdojo-run-b{guarded_files._HELD}"
    elsewhere.mkdir()
    (place / theirs).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr(os, "getuid", lambda: os.stat(place).st_uid + 1)
    guarded_files._remove_abandoned.__wrapped__()
    assert set(os.listdir(place)) == {elsewhere.name, theirs}
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    guarded_files._remove_abandoned.__wrapped__()
    assert os.listdir(place) == [elsewhere.name]


def test_folders_are_made_in_memory_unless_it_is_small_or_shut_or_a_place_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"f_flag": 0, "f_bavail": 1 << 20, "f_frsize": 4096}
    monkeypatch.setattr(guarded_files, "_IN_MEMORY", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**found))
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert guarded_files._place() == str(tmp_path)
    for changed in ({"f_flag": os.ST_NOEXEC}, {"f_bavail": 1 << 10}):
        found |= changed
        assert guarded_files._place() == "/tmp"
        found |= {"f_flag": 0, "f_bavail": 1 << 20}
    tmp_path.chmod(0o777)
    assert guarded_files._place() == "/tmp"
    tmp_path.chmod(0o700)
    monkeypatch.setattr("tempfile.tempdir", "/var/tmp")
    assert guarded_files._place() == "/var/tmp"


def test_a_folder_that_goes_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who tidies up may meet a folder that is not locked yet."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    new, made = guarded_files._new, list[str]()

    def snatched(name: str) -> Any:
        kept = new(name)
        if name == "test":
            made.append(kept.name)
            if len(made) < 3:
                guarded_files._remove_if_abandoned(kept.name)
        return kept

    monkeypatch.setattr(guarded_files, "_new", snatched)
    with private_folder("test") as folder:
        assert folder.is_dir() and str(folder) == made[-1] and len(os.listdir(place)) == 1
    assert os.listdir(place) == []


# -- what it starts -----------------------------------------------------------------------------------

#: A grandchild that leaves the session, says who it is, and stays.
SURVIVOR = """
if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, 0); setsid();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, 0); setsid();
        FILE *f = fopen("PLACE.part", "w"); fprintf(f, "%d", getpid()); fclose(f);
        rename("PLACE.part", "PLACE");
        sleep(60);
    }
    _exit(0);
}
while (access("PLACE", F_OK)) usleep(1000);
"""


def gone(pid: int) -> bool:
    """True if a process has ended, within a second: somebody else may have to reap it."""
    for _ in range(100):
        if process_tree._status(pid)[0] in "ZX":
            return True
        time.sleep(0.01)
    return False


@WAYS
@pytest.mark.parametrize(
    "ending", ["", "for (;;);", "abort();", "_exit(0);"], ids=["well", "late", "dies", "exits"]
)
def test_no_descendant_survives(ending: str, forks: bool, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    request = replace(ONCE, timeout_s=1.0 if forks else 5.0) if "for" in ending else ONCE
    result = run(SURVIVOR.replace("PLACE", str(place)) + ending + RIGHT, forks, request)
    assert isinstance(result, Failure if ending else Measurement), result
    assert gone(int(place.read_text()))


def test_one_that_stops_its_supervisor_is_ended_all_the_same(tmp_path: Path) -> None:
    place = tmp_path / "pid"
    body = SURVIVOR.replace("PLACE", str(place)) + "kill(getppid(), SIGSTOP); for (;;);"
    result = run(body, request=replace(ONCE, timeout_s=5.0))
    assert isinstance(result, Failure) and result.reason == "timeout"
    assert gone(int(place.read_text()))


@WAYS
def test_processes_are_counted(forks: bool) -> None:
    body = (
        "for (int k = 0; k < 1000; k++) { int p = fork(); if (!p) { pause(); _exit(0); } if (p < 0) break; }"
    )
    # A thousand forks take longer than ten seconds where other work keeps the processors busy.
    result = run(body + "pause();", forks, replace(ONCE, timeout_s=60.0))
    assert isinstance(result, Failure) and "processes and threads" in result.detail, result


EACH = "char *p = malloc(%d << 20); memset(p, 1, %d << 20);"


@WAYS
def test_memory_is_that_of_all_descendants(forks: bool) -> None:
    """None takes more than is allowed, all together do."""
    body = f"for (int k = 0; k < 8; k++) if (!fork()) {{ setsid(); {EACH % (120, 120)} pause(); }} pause();"
    result = run(body, forks, replace(ONCE, timeout_s=10.0, memory_bytes=256 << 20))
    assert isinstance(result, Failure) and result.reason == "memory", result


@WAYS
def test_memory_that_descendants_share_counts_once(forks: bool) -> None:
    body = f"{EACH % (300, 300)} if (!fork()) {{ usleep(300000); _exit(0); }} wait(0); free(p);"
    result = run(body + RIGHT, forks, replace(ONCE, memory_bytes=256 << 20))
    assert isinstance(result, Measurement), result


def test_other_children_of_the_parent_are_left_alone() -> None:
    other = os.fork()
    if other == 0:
        time.sleep(60)
        os._exit(0)
    try:
        assert isinstance(run(RIGHT, forks=True), Measurement)
        assert process_tree._status(other)[0] not in "ZX"
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)


# -- the clock -----------------------------------------------------------------------------------------


@WAYS
def test_a_result_before_the_clock_s_marks_gives_no_figure(forks: bool) -> None:
    claimed = answer_text([1e-6] * 3, busy_s=3e-6)
    result = run(f"leave({quoted(claimed)}); _exit(0);", forks, TIMED)
    assert isinstance(result, Failure) and result.detail.startswith(RUNNER_FAULT)
    assert "second mark" in result.detail


def test_a_first_mark_alone_gives_no_figure() -> None:
    claimed = answer_text([1e-6] * 3, busy_s=3e-6)
    mark = 'struct stat s; if (!fstat(f, &s) && S_ISFIFO(s.st_mode)) write(f, "B", 1);'
    result = run(
        f"for (int f = 3; f < 64; f++) {{ {mark} }} leave({quoted(claimed)}); _exit(0);", request=TIMED
    )
    assert isinstance(result, Failure) and "second mark" in result.detail


def told(seconds: list[float], busy: float, elapsed: float, calls: float = 1) -> Answer:
    return Answer(elapsed, False, (KernelAnswer(None, tuple(seconds), {"calls": calls}, busy),))


LOOK = replace(TIMED, first_look=True, budget_s=0.05)


@pytest.mark.parametrize(
    ("answer", "request_", "marks", "lived", "believed"),
    [
        pytest.param(told([0.1] * 5, 0.6, 0.7), TIMED, "BE", 1.0, True, id="honest"),
        pytest.param(told([1e-5] * 5, 0.06, 0.07, 1000), TIMED, "BE", 1.0, True, id="batches"),
        pytest.param(told([0.1] * 5, 0.6, 0.7), TIMED, "B", 1.0, False, id="no second mark"),
        pytest.param(told([0.1] * 5, 0.6, 0.7), TIMED, "EB", 1.0, False, id="out of order"),
        pytest.param(told([0.1] * 5, 0.6, 0.7), TIMED, "BEBE", 1.0, False, id="more marks"),
        pytest.param(told([0.1] * 5, 0.0, 0.0), TIMED, "BE", 1.0, False, id="outside the marks"),
        pytest.param(told([0.1] * 5, 0.6, 0.5), TIMED, "BE", 1.0, False, id="more than there was"),
        pytest.param(told([0.2] * 5, 0.6, 0.7), TIMED, "BE", 1.0, False, id="more than calls took"),
        pytest.param(told([1e-3] * 5, 2.0, 2.1), TIMED, "BE", 3.0, False, id="a fraction of the calls"),
        pytest.param(told([1e-3] * 5, 6e-3, 2.1), TIMED, "BE", 3.0, False, id="a fraction of the time"),
        pytest.param(told([1e-5] * 5, 0.06, 0.07, 10**9), TIMED, "BE", 1.0, False, id="calls"),
        pytest.param(told([1e-5] * 5, 0.06, 0.07, 0.5), TIMED, "BE", 1.0, False, id="half a call"),
        pytest.param(told([0.1], 0.6, 0.7), ONCE, "BE", 1.0, False, id="not asked for"),
        pytest.param(told([0.1], 0.0, 0.0), ONCE, "", 1.0, False, id="not asked for at all"),
        pytest.param(told([0.06], 0.0, 0.0), replace(LOOK, repeats=0), "", 1.0, False, id="no budget"),
        pytest.param(told([0.2], 0.0, 0.0), replace(ONCE, stop_above_s=0.1), "", 1.0, True, id="hopeless"),
        pytest.param(told([], 0.0, 0.0), ONCE, "", 1.0, True, id="no times"),
        pytest.param(told([0.06], 0.0, 0.0), LOOK, "", 1.0, True, id="slow at first look"),
        pytest.param(told([0.04], 0.0, 0.0), LOOK, "", 1.0, False, id="not slow"),
        pytest.param(told([0.06] * 2, 0.0, 0.0), LOOK, "", 1.0, False, id="slow twice"),
        pytest.param(told([1.06], 0.0, 0.0), LOOK, "", 1.0, False, id="longer than it lived"),
        pytest.param(told([0.2], 0.0, 0.0), replace(TIMED, stop_above_s=0.1), "", 1.0, True, id="given up"),
    ],
)  # fmt: skip
def test_what_is_believed_of_times(
    answer: Answer, request_: RunRequest, marks: str, lived: float, believed: bool
) -> None:
    assert (doubt(answer, request_, marks, lived) == "") == believed


def test_a_time_that_is_changed_afterwards_does_not_add_up() -> None:
    """The kernel waits for the real result and divides its times by a million; the child's clock stays."""
    body = """
    static int calls;
    if (calls++ == 0) {
        int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
        void (*leave_)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
        int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
        int state = ensure();
        run("import __main__ as m; r = m.__dict__.setdefault('real', m.leave_result)\\n"
            "def leave(d, *more):\\n"
            "    for k in d['kernels']: k['seconds'] = [s * 1e-6 for s in k['seconds']]\\n"
            "    r(d, *more)\\n"
            "m.main.__globals__['leave_result'] = leave");
        leave_(state);
    }
    usleep(150000);"""
    result = run(body + RIGHT, request=replace(TIMED, repeats=5, budget_s=1.0))
    assert isinstance(result, Failure) and result.detail.startswith(RUNNER_FAULT), result


def children() -> list[int]:
    """The children of this process and of its fork servers, which stay."""
    servers = fork_server.running()
    below = [child for server in servers for child in process_tree.children(server)]
    return [child for child in process_tree.children(os.getpid()) if child not in servers] + below


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No child and no folder outlives its test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    # Numbers of processes wrap around, so a child that is new is one that was not there before.
    before = children()
    yield
    assert not set(children()) - set(before)
    assert not list(folder.iterdir())


def test_inputs_that_were_copied_cannot_be_changed() -> None:
    x = np.arange(N, dtype=np.float32)
    body = 'for (int f = 3; f < 64; f++) { ftruncate(f, 4); pwrite(f, "oops", 4, 0); }'
    result = run(RIGHT + body, request=replace(TIMED, inputs={"x": x}))
    assert isinstance(result, Measurement) and result.outputs
    assert np.array_equal(result.outputs["y"], 2 * x)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a kernel's words\n  and more", "a kernel's words\n  and more"),
        (
            'Traceback (most recent call last):\n  File "worker.py", line 3, in <module>\n    import numpy\n'
            "ModuleNotFoundError: No module named 'numpy'",
            "ModuleNotFoundError: No module named 'numpy'",
        ),
        (
            'ing>", line 9\n  File "x.py", line 3, in y\n\nOSError: gone\nCurrent thread 0x0 '
            "(most recent call first):\n  <no Python frame>",
            'ing>", line 9\nOSError: gone',
        ),
    ],
)
def test_what_a_child_says_is_shown_without_its_traceback(said: str, shown: str) -> None:
    from perfdojo_sdk.measure.sandbox import without_traceback

    assert without_traceback(said) == shown
