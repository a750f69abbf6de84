"""Every way in which a kernel can fail or cheat is a result with its own reason."""

from __future__ import annotations

import json
import os
import pickle
import resource
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.types import (
    ArraySpec,
    Artifact,
    Failure,
    KernelSource,
    Measurement,
    Runner,
    RunRequest,
)
from perfdojo_sdk.measure import kernel_calls, worker
from perfdojo_sdk.measure import machine as machine_module
from perfdojo_sdk.measure import roofline as roofline_module
from perfdojo_sdk.measure import toolchain as toolchain_module
from perfdojo_sdk.measure.answer import RUNNER_FAULT, runner_fault
from perfdojo_sdk.measure.kernel_calls import DRAWN, Guarded, checksum, fill
from perfdojo_sdk.measure.machine import Cache, Calibration, calibrate, machine
from perfdojo_sdk.measure.native_runner import NativeRunner, harness
from perfdojo_sdk.measure.roofline import calibrated_figures
from perfdojo_sdk.measure.sandbox import Job, clock_problem, execute
from perfdojo_sdk.measure.shared_arrays import shared_array, source_of
from perfdojo_sdk.measure.timing import ratio_by_rounds
from perfdojo_sdk.measure.toolchain import Toolchain, find_toolchain
from perfdojo_sdk.measure.worker import FEWEST_TIMES, spread_of_median
from perfdojo_sdk.plugins import load_plugins

N = 1000
RUNNER = NativeRunner(("-O2",))
RIGHT = "for (int i = 0; i < N; i++) y[i] = 2 * x[i];"
ONCE = RunRequest(timeout_s=20)
TIMED = RunRequest(repeats=5, budget_s=0.05, timeout_s=20, memory_bytes=1 << 30)


def source(body: str, before: str = "", workspace: str = "0", symbol: str = "pd_k") -> KernelSource:
    code = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define N {N}
{before}
int {symbol}(const float *x, float *y, void *workspace, size_t bytes, int threads) {{ {body} return 0; }}
size_t {symbol}_workspace_bytes(int threads) {{ return {workspace}; }}
"""
    return KernelSource("pd_k", (ArraySpec("x", (N,), "f32"),), (ArraySpec("y", (N,), "f32"),), code)


def build(body: str, before: str = "", workspace: str = "0", symbol: str = "pd_k") -> Artifact:
    artifact = RUNNER.compile(source(body, before, workspace, symbol))
    assert isinstance(artifact, Artifact), artifact
    return artifact


def failure(request: RunRequest, body: str, before: str = "", workspace: str = "0") -> Failure:
    result = RUNNER.run(build(body, before, workspace), request)
    assert isinstance(result, Failure), result
    return result


# -- what works -----------------------------------------------------------------------------------


def test_outputs_of_given_inputs() -> None:
    x = np.arange(N, dtype=np.float32)
    result = RUNNER.run(build(RIGHT), replace(ONCE, inputs={"x": x}))
    assert isinstance(result, Measurement) and result.outputs is not None
    assert np.array_equal(result.outputs["y"], 2 * x)
    assert result.seconds == () and result.provenance == "measured"


def test_a_part_of_a_shared_array_is_read_in_its_place_and_kept_from_writing() -> None:
    """Whatever a kernel does to the file, the next one reads what was drawn."""
    pair = shared_array((2, N), np.dtype(np.float32))
    pair[0], pair[1] = 1, np.arange(N)
    request = replace(ONCE, inputs={"x": pair[1]})
    everything = "for (int f = 3; f < 64; f++) pwrite(f, y, sizeof(float) * N, sizeof(float) * N);"
    RUNNER.run(build(RIGHT + everything), request)
    result = RUNNER.run(build(RIGHT), request)
    assert isinstance(result, Measurement) and result.outputs is not None
    assert np.array_equal(result.outputs["y"], 2 * np.arange(N))
    source = source_of(pair[1])
    assert source is not None and source.at == 4 * N
    with pytest.raises(OSError):
        os.pwrite(source.file, b"x", 0)


def test_only_contiguous_parts_of_shared_arrays_have_a_source() -> None:
    shared = shared_array((4, 6), np.dtype(np.int32))
    assert source_of(shared) is not None and source_of(shared[2:]) is not None
    assert source_of(shared[:, 1]) is None and source_of(shared.copy()) is None


def test_the_file_of_a_shared_array_is_closed_with_its_last_view() -> None:
    shared = shared_array((4,), np.dtype(np.int32))
    view, source = shared[1:], source_of(shared)
    assert source is not None
    del shared
    os.fstat(source.file)
    del view
    with pytest.raises(OSError):
        os.fstat(source.file)


def test_drawn_inputs_follow_the_seed() -> None:
    artifact = build(RIGHT)
    first, again, other = (RUNNER.run(artifact, replace(ONCE, seed=s)) for s in (1, 1, 2))
    assert (
        isinstance(first, Measurement) and isinstance(again, Measurement) and isinstance(other, Measurement)
    )
    assert first.outputs and again.outputs and other.outputs
    assert np.array_equal(first.outputs["y"], again.outputs["y"])
    assert not np.array_equal(first.outputs["y"], other.outputs["y"])


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_a_large_input_is_drawn_in_part_and_repeated(dtype: str) -> None:
    large, small = Guarded("x", (2, DRAWN + 7), dtype), Guarded("x", (DRAWN,), dtype)
    for target in (large, small):
        fill(target, np.random.default_rng(3))
    assert np.array_equal(np.resize(small.array, large.array.size), large.array.reshape(-1))
    assert len(np.unique(small.array)) > 10


def test_workspace_has_the_size_asked_for_and_is_aligned() -> None:
    body = "if (bytes != 4096 || (size_t)workspace % 64 || (size_t)x % 64 || (size_t)y % 64) return 1;"
    body += "memset(workspace, 0, bytes);" + RIGHT
    assert isinstance(RUNNER.run(build(body, workspace="4096"), ONCE), Measurement)


def test_timed_warm() -> None:
    result = RUNNER.run(build("usleep(2000);" + RIGHT), TIMED)
    assert isinstance(result, Measurement)
    assert 0 < len(result.seconds) <= 5 and 0.002 <= result.median < 0.1
    assert not result.cold and result.details["calls"] == 1


def test_timed_cold_rotates_through_more_than_the_cache() -> None:
    toolchain = find_toolchain()
    request = replace(TIMED, cold=True)
    job = Job((build(RIGHT),), request, "test", harness(toolchain, 2), last_cache_bytes=64 << 10)
    [result] = execute(job)
    assert isinstance(result, Measurement) and result.cold
    assert result.details["sets"] * 2 * 4 * N > 3 * (64 << 10)
    [capped] = execute(replace(job, request=replace(request, memory_bytes=1 << 22), last_cache_bytes=1 << 30))
    assert isinstance(capped, Measurement) and not capped.cold, "what was not cold is not called so"


def test_tiny_kernels_are_timed_in_batches() -> None:
    result = RUNNER.run(build(RIGHT), TIMED)
    assert isinstance(result, Measurement)
    assert result.details["calls"] > 10 and result.median < 1e-4


def test_a_hopeless_kernel_is_given_up() -> None:
    result = RUNNER.run(build("usleep(50000);" + RIGHT), replace(TIMED, stop_above_s=0.01, repeats=1000))
    assert isinstance(result, Measurement)
    assert result.details["stopped"] and len(result.seconds) == 1 and result.median > 0.01


def test_timing_stops_when_the_median_is_known() -> None:
    request = replace(TIMED, repeats=100_000, budget_s=5, precision=1.0)
    result = RUNNER.run(build("usleep(1000);" + RIGHT), request)
    assert isinstance(result, Measurement) and FEWEST_TIMES <= len(result.seconds) < 100


def test_the_spread_of_a_median_covers_it() -> None:
    """The interval contains the known median of a skewed distribution in about 95 of 100 cases."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        times = list(rng.exponential(size=40))
        middle = sorted(times)[20]
        low, high = sorted(times)[13], sorted(times)[27]
        assert spread_of_median(times) == pytest.approx((high - low) / (2 * middle))
        held += low <= np.log(2) <= high
    assert 0.93 * 400 <= held <= 400
    assert spread_of_median([1.0] * (FEWEST_TIMES - 1)) == float("inf")
    assert spread_of_median([1.0] * FEWEST_TIMES) == 0


@pytest.mark.parametrize("size", [1, 8, 1000, 1 << 16, (1 << 16) + 5])
def test_a_checksum_sees_every_byte(size: int) -> None:
    content = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    before = checksum(content)
    for at in {0, size // 2, size - 1}:
        content[at] ^= 1
        assert checksum(content) != before
        content[at] ^= 1
    assert checksum(content) == before


def test_interleaved_tells_which_is_faster_and_keeps_failures_apart() -> None:
    artifacts = [
        build("usleep(1000);" + RIGHT),
        build("abort();"),
        build("usleep(30000);" + RIGHT),
        build("return 3;"),
    ]
    fast, crashed, slow, refused = RUNNER.time_interleaved(artifacts, replace(TIMED, repeats=8, budget_s=1))
    assert isinstance(fast, Measurement) and isinstance(slow, Measurement)
    assert isinstance(crashed, Failure) and crashed.reason == "crash"
    assert isinstance(refused, Failure) and refused.reason == "runtime"
    ratio = ratio_by_rounds([[s] for s in fast.seconds], [[s] for s in slow.seconds])
    assert ratio.decided and ratio.low <= ratio.value <= ratio.high < 1
    with pytest.raises(ValueError, match="interface"):
        other = replace(artifacts[0], inputs=(ArraySpec("x", (N, 1), "f32"),))
        RUNNER.time_interleaved([artifacts[0], other], TIMED)


PACKS = """
    float *p = workspace;
    for (int i = 0; i < N; i++) p[i] = 2 * x[i];
    for (int i = 0; i < N; i++) y[i] = p[i];
    return 0;
"""


def packing(again: str, before: str = "") -> Artifact:
    """A kernel that makes twice its input in its workspace, and the function for later calls."""
    head = "int pd_k_again(const float *x, float *y, void *workspace, size_t bytes, int threads)"
    made = build(before + PACKS, f"{head} {{ float *p = workspace; {again} }}", "4 * N")
    return replace(made, again="pd_k_again")


def test_later_calls_read_what_the_first_one_packed() -> None:
    artifact = packing("for (int i = 0; i < N; i++) y[i] = p[i]; return 0;")
    for request in (TIMED, replace(TIMED, first_look=True), replace(TIMED, cold=True)):
        found = RUNNER.run(artifact, request)
        assert isinstance(found, Measurement) and found.seconds, found
    together = RUNNER.time_interleaved([artifact, build(RIGHT, workspace="4 * N")], TIMED)
    assert all(isinstance(found, Measurement) for found in together), together


def test_a_long_pack_stops_no_kernel_whose_later_calls_are_fast() -> None:
    slow = packing("for (int i = 0; i < N; i++) y[i] = p[i]; return 0;", before="usleep(300000);")
    found = RUNNER.run(slow, replace(TIMED, first_look=True, stop_above_s=0.02))
    assert isinstance(found, Measurement) and found.median < 0.02 and not found.details["stopped"]
    several = RUNNER.time_interleaved([slow] * 3, TIMED)
    assert all(isinstance(one, Measurement) and one.median < 0.02 for one in several), several


def test_only_timed_runs_call_the_function_for_later_calls() -> None:
    adds = packing("for (int i = 0; i < N; i++) y[i] = p[i] + 1; return 0;")
    found = RUNNER.run(adds, TIMED)
    assert isinstance(found, Failure) and "change if the kernel does not pack again" in found.detail
    assert isinstance(RUNNER.run(adds, ONCE), Measurement)
    assert isinstance(RUNNER.run(replace(adds, again="pd_other"), ONCE), Measurement)
    absent = RUNNER.run(replace(adds, again="pd_other"), TIMED)
    assert isinstance(absent, Failure) and "cannot load pd_other" in absent.detail


def test_ratio_of_equal_times_is_undecided() -> None:
    rounds = [[1.0, 1.1], [0.9, 1.05, 0.95]]
    assert not ratio_by_rounds(rounds, rounds).decided
    for other in ([], rounds[:1], [[1.0], []]):
        with pytest.raises(ValueError, match="every round"):
            ratio_by_rounds(other, rounds)


def test_a_round_is_one_witness_however_many_calls_it_has() -> None:
    """Turns of a hundred calls, two on the fast level and one on the slow one, against a slower kernel."""
    turns = [[1.0] * 100, [1.0] * 100, [2.0] * 100]
    ratio = ratio_by_rounds(turns, [[1.1] * 100] * 3)
    assert ratio.value == pytest.approx(1 / 1.1) and not ratio.decided


def test_the_runner_is_a_value() -> None:
    assert isinstance(RUNNER, Runner)
    assert pickle.loads(pickle.dumps(RUNNER)) == RUNNER
    assert RUNNER.device() == machine().text


# -- what fails -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason", "detail"),
    [
        pytest.param("*(volatile int *)8 = 1;", "crash", "SIGSEGV", id="segfault"),
        pytest.param("for (;;);", "timeout", "1 s", id="endless"),
        pytest.param("_exit(0);", "runtime", "ended the process", id="exit"),
        pytest.param("return 7;", "runtime", "returned 7", id="status"),
        pytest.param(RIGHT + "y[N] = 1;", "wrong_result", "after y", id="past the end"),
        pytest.param(RIGHT + "y[-1] = 1;", "wrong_result", "before y", id="before the start"),
        pytest.param(RIGHT + "((float *)x)[N] = 1;", "wrong_result", "after x", id="beside an input"),
        pytest.param(RIGHT + "((char *)workspace)[0] = 1;", "wrong_result", "after the work", id="space"),
        pytest.param(RIGHT.replace("N;", "N - 1;"), "wrong_result", "1 of 1000 elements", id="unwritten"),
        pytest.param(RIGHT + "((float *)x)[3] = 0;", "input_modified", "input x", id="input"),
        pytest.param("static int k;" + RIGHT + "y[5] = k++;", "wrong_result", "call to call", id="unsteady"),
        pytest.param(
            "for (;;) { char *p = malloc(1 << 24); if (!p) return 1; memset(p, 1, 1 << 24); }",
            "memory", "", id="allocation bomb",
        ),
    ],
)  # fmt: skip
def test_failures(body: str, reason: str, detail: str) -> None:
    got = failure(RunRequest(timeout_s=1.0 if reason == "timeout" else 20, memory_bytes=1 << 28), body)
    assert got.reason == reason, got
    assert detail in got.detail


def test_runs_in_one_fork_stay_apart_and_a_crash_is_one_run_s_own() -> None:
    """The third input makes the kernel crash; the others' results are what they would be alone."""
    crashing = build("if (x[0] == 3) *(volatile int *)8 = 1;" + RIGHT)
    forking = replace(RUNNER, forks=True)
    requests = [replace(ONCE, inputs={"x": np.full(N, v, np.float32)}) for v in (1, 2, 3, 4)]
    for chosen in (requests[:2], requests):
        for request, found in zip(chosen, forking.run_together(crashing, chosen), strict=True):
            alone = forking.run(crashing, request)
            assert type(found) is type(alone)
            if isinstance(found, Failure):
                assert request is requests[2] and found.reason == "crash"
            else:
                assert isinstance(alone, Measurement) and found.outputs and alone.outputs
                assert found.outputs["y"].tobytes() == alone.outputs["y"].tobytes()


def test_many_runs_at_once_need_few_open_files() -> None:
    """A process may often have 1024 of them; nothing stays open with the results."""
    x = np.arange(N, dtype=np.float32)
    requests = [replace(ONCE, inputs={"x": x + k}) for k in range(150)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 280, limits[1]))
    try:
        found = replace(RUNNER, forks=True).run_together(build(RIGHT), requests)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(os.listdir("/proc/self/fd")) <= before + 5
    for k, each in enumerate(found):
        assert isinstance(each, Measurement) and each.outputs
        assert np.array_equal(each.outputs["y"], 2 * (x + k))


def test_a_workspace_beyond_the_limit() -> None:
    assert failure(replace(ONCE, memory_bytes=1 << 28), RIGHT, workspace="(size_t)1 << 40").reason == "memory"


def test_missing_symbol() -> None:
    artifact = build(RIGHT, symbol="pd_other")
    result = RUNNER.run(artifact, ONCE)
    assert isinstance(result, Failure) and result.reason == "runtime" and "pd_k" in result.detail


def test_compile_error_puts_the_commonest_message_first() -> None:
    result = RUNNER.compile(
        source("int a = nonsense; float b = (float)(struct s)0; float c = (float)(struct s)1;")
    )
    assert isinstance(result, Failure) and result.reason == "compile"
    assert "pd_k.c:" in result.detail and "error" in result.detail
    assert not result.detail.startswith("pd_k.c")


def test_compile_timeout() -> None:
    slow = Toolchain(("sh", "-c", "sleep 30"), "a slow one")
    result = slow.compile({"a.c": ""}, timeout_s=0.2)
    assert isinstance(result, Failure) and result.reason == "compile_timeout"


# -- what cheats ----------------------------------------------------------------------------------

CACHED_RESULT = (
    "static float kept[N]; static int known; if (!known) {"
    + RIGHT
    + """
    memcpy(kept, y, sizeof kept); known = 1; } memcpy(y, kept, sizeof kept);"""
)
CACHED_BY_ADDRESS = (
    "static const float *seen[64]; static float kept[64][N]; int k = 0;"
    + """
    while (seen[k] && seen[k] != x) k++;
    if (!seen[k]) { """
    + RIGHT
    + """ seen[k] = x; memcpy(kept[k], y, sizeof kept[k]); }
    memcpy(y, kept[k], sizeof kept[k]);"""
)
LAZY_LATER = "static int calls; if (++calls > 20) return 0;" + RIGHT


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        pytest.param(CACHED_RESULT, "earlier calls", id="first result kept"),
        pytest.param(CACHED_BY_ADDRESS, "addresses", id="result kept by address"),
        pytest.param(LAZY_LATER, "timed call", id="does nothing later"),
    ],
)
def test_cheats_in_timed_runs(body: str, detail: str) -> None:
    got = failure(TIMED, body)
    assert got.reason == "wrong_result" and detail in got.detail, got


@pytest.mark.parametrize("body", [CACHED_RESULT, CACHED_BY_ADDRESS], ids=["kept", "kept by address"])
def test_a_cheat_that_a_first_look_lets_pass_fails_in_a_race(body: str) -> None:
    cheat = build(body)
    assert isinstance(RUNNER.run(cheat, replace(TIMED, first_look=True)), Measurement)
    honest, found = RUNNER.time_interleaved([build(RIGHT), cheat], TIMED)
    assert isinstance(honest, Measurement)
    assert isinstance(found, Failure) and found.reason == "wrong_result"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        pytest.param(RIGHT.replace("N;", "N - 1;"), "never written", id="unwritten"),
        pytest.param(RIGHT + "y[N] = 1;", "after y", id="past the end"),
        pytest.param("static int k;" + RIGHT + "y[5] = k++;", "call to call", id="unsteady"),
        pytest.param(LAZY_LATER, "timed call", id="does nothing later"),
    ],
)
def test_a_first_look_sees_what_is_wrong(body: str, detail: str) -> None:
    got = failure(replace(TIMED, first_look=True), body)
    assert got.reason == "wrong_result" and detail in got.detail, got


def test_a_first_look_at_a_slow_kernel_is_two_calls() -> None:
    """The second one takes all the time that there is for timing, and is the time."""
    slow, short = build("usleep(60000);" + RIGHT), replace(TIMED, budget_s=0.05)
    look = RUNNER.run(slow, replace(short, first_look=True))
    assert isinstance(look, Measurement) and len(look.seconds) == look.details["sets"] == 1
    assert look.median >= 0.06 and not look.details["stopped"], "it may go on to win"
    whole = RUNNER.run(slow, short)
    assert isinstance(whole, Measurement) and whole.details["sets"] > 1
    for unsteady in ("static int k;" + RIGHT + "y[5] = k++;", RIGHT.replace("N;", "N - 1;")):
        assert failure(replace(short, first_look=True), "usleep(60000);" + unsteady).reason == "wrong_result"


def test_a_clock_brought_along_is_not_used() -> None:
    """The kernel's library defines clock_gettime itself, and time stands still in it."""
    before = "int clock_gettime(clockid_t c, struct timespec *t) { t->tv_sec = t->tv_nsec = c; return 0; }"
    result = RUNNER.run(build("usleep(3000);" + RIGHT, before), TIMED)
    assert isinstance(result, Measurement) and result.median >= 0.003


def test_a_patched_clock_is_caught() -> None:
    """The kernel reaches into the interpreter and makes its clock run at a hundredth of its speed."""
    body = """
    static int calls;
    if (calls++ == 0) {
        int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
        void (*leave)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
        int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
        int state = ensure();
        run("import time, __main__, perfdojo_sdk.measure.kernel_calls as calls\\n"
            "__main__.clock = calls.clock = lambda: time.monotonic_ns() // 100");
        leave(state);
    }
    usleep(20000);"""
    got = failure(replace(TIMED, repeats=10), body + RIGHT)
    assert got.reason == "runtime" and "tampers with time" in got.detail, got
    assert got.detail.startswith(RUNNER_FAULT), "it has no figure, and nothing is said of its result"


def test_clocks_may_differ_a_little() -> None:
    assert clock_problem(1.0, 1.05) is None
    assert clock_problem(0.0, None) is None
    assert clock_problem(0.5, 1.0) is not None
    assert clock_problem(1.3, 1.0) is None and clock_problem(2.0, 1.0) is not None


# -- compilers and machines -----------------------------------------------------------------------


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PERFDOJO_CC", raising=False)
    monkeypatch.setattr(toolchain_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError) as caught:
        find_toolchain()
    assert caught.value.code == "PD-M001" and "install" in caught.value.hint


def test_named_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOJO_CC", "no-such-compiler")
    with pytest.raises(UnavailableError, match="no-such-compiler"):
        find_toolchain()
    monkeypatch.delenv("PERFDOJO_CC")
    chosen = find_toolchain()
    monkeypatch.setenv("PERFDOJO_CC", " ".join(chosen.command))
    assert find_toolchain().version == chosen.version
    assert "-O3" in chosen.describe(["-O3"]) and "/" not in chosen.describe(["-O3"]).split()[0]


def test_machine_reads_its_own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(
        "model name\t: Test  Chip\nflags\t\t: fma extra\n\nmodel name : other\n"
    )
    for index, (kind, level, size, cpus) in enumerate(
        [("Data", 1, "32K", "0"), ("Instruction", 1, "32K", "0"), ("Unified", 3, "8M", "0-3")]
    ):
        folder = tmp_path / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("type", kind), ("level", level), ("size", size), ("shared_cpu_list", cpus)):
            (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine_module, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine_module, "_CPUS", tmp_path)
    found = machine.__wrapped__()
    assert found.model == "Test Chip" and found.flags == {"fma", "extra"}
    assert [(c.level, c.bytes, c.shared) for c in found.caches] == [(1, 32 << 10, False), (3, 8 << 20, True)]
    assert found.last_cache_bytes == 8 << 20 and "L3 8 MiB" in found.text
    numbers = "Features : fp asimd\nCPU implementer : 0x41\nCPU variant : 0x0\nCPU part : 0xd4f\n"
    (tmp_path / "cpuinfo").write_text(numbers)
    found = machine.__wrapped__()
    assert found.model == "processor 0x41:0xd4f variant 0x0" and found.flags == {"fp", "asimd"}


def test_calibration_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path))
    first = calibrate((), 16)
    assert first.provenance == "measured" and first.device == machine().text
    assert min(first.read_gbs, first.write_gbs, first.copy_gbs, first.fma_gflops, *first.cache_read_gbs) > 0
    assert len(first.cache_read_gbs) == len(machine().caches)
    [file] = tmp_path.glob("*.json")

    monkeypatch.setattr(machine_module, "_measure", lambda *_: pytest.fail("measured again"))
    assert calibrate((), 16) == first
    stored = json.loads(file.read_text())
    figures = {k: v for k, v in stored.items() if k not in ("device", "compiler", "threads", "provenance")}
    monkeypatch.setattr(
        machine_module, "_measure", lambda *_: {**figures, "cache_read_gbs": (1.0,), "read_gbs": 7.0}
    )
    for damage in (
        "{",
        "[]",
        "{}",
        json.dumps({**stored, "read_gbs": "fast"}),
        json.dumps({**stored, "copy_gbs": -1}),
    ):
        file.write_text(damage)
        assert calibrate((), 16).read_gbs == 7.0


def test_clocks_that_differ_once_are_bad_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that is late to hear of a mark is no kernel that cheats; one that does so does it again."""
    late = runner_fault("1 s of 2 s: the kernel tampers with time")
    answers: list[Failure | None] = [late, None, None]
    monkeypatch.setattr("perfdojo_sdk.measure.sandbox.clock_problem", lambda counted, seen: answers.pop(0))
    artifact = build(RIGHT)
    assert isinstance(RUNNER.run(artifact, TIMED), Measurement) and len(answers) == 1
    always = runner_fault("0 s of 2 s: the kernel tampers with time")
    monkeypatch.setattr("perfdojo_sdk.measure.sandbox.clock_problem", lambda counted, seen: always)
    assert RUNNER.run(artifact, TIMED) == always


def test_a_cache_is_never_slower_than_what_lies_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours may use a shared cache during its probe; a bound from that would doubt honest kernels."""
    levels = (Cache(1, 1 << 15, False), Cache(2, 1 << 20, False), Cache(3, 1 << 25, True))
    here = replace(machine(), caches=levels)
    monkeypatch.setattr(roofline_module, "machine", lambda: here)
    figures = {f.name: 20.0 for f in fields(Calibration) if f.type == "float"}
    found = Calibration(here.text, "cc", 1, **figures, cache_read_gbs=(90.0, 100.0, 16.0))  # type: ignore[arg-type]
    caches = calibrated_figures(next(iter(load_plugins().targets.values())).capabilities, found).caches
    assert {name: cache.read_gbs for name, cache in caches.items()} == {"L1": 100.0, "L2": 100.0, "L3": 20.0}


def test_plugins_of_the_last_contract_find_what_stood_in_the_worker() -> None:
    for name in ("CARRIER", "Kernel", "Memory", "Refused", "compare", "fill", "outputs_of", "bytes_of"):
        assert getattr(worker, name) is getattr(kernel_calls, name)
    with pytest.raises(AttributeError):
        worker.nothing  # noqa: B018
