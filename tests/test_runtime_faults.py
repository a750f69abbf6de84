"""Executions of emitted code: faults in its runtime are found, and the number of threads is limited."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pytest

import perfdojo_sdk.codegen
from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.interface import EXECUTIONS, MAX_THREADS, TOO_MANY_THREADS
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.library.arrays import ArgumentValueError, thread_count
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.verification import Subject, numeric
from perfdojo_sdk.measure import thread_counts
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify.numeric import NumericReport, _with_executions, verify_numeric

pytestmark = pytest.mark.usefixtures("impatient_executions")

RUNNER = NativeRunner(("-O2",))
PLAIN = RunRequest(timeout_s=20)

ROWS = """kernel rows(x) -> y
x f32 [7,24] heap
t f32 [7:N,24] heap
m f32 [7] heap
y f32 [7,24] heap

7:p
| m[{0}] = -inf
| 24 m[{0}] max= x[{0},{1}]
| 24 t[{0},{1}] = x[{0},{1}] - m[{0}]
| 24 y[{0},{1}] = t[{0},{1}] * 2
"""


@lru_cache
def emitted() -> KernelSource:
    return CEmitter(parse(ROWS), "pd_k", CORE_DIALECT).source()


def judged(source: KernelSource) -> NumericReport:
    artifact = RUNNER.compile(source)
    assert isinstance(artifact, Artifact), artifact
    program = parse(ROWS)
    return verify_numeric(program, program, artifact, RUNNER, {}, CORE_DIALECT, threads=(1, 2))


def test_the_numeric_leg_puts_a_kernel_through_all_of_them() -> None:
    report = judged(emitted())
    assert report.ok, report.problem
    assert set(report.executions) == set(EXECUTIONS)


def test_four_threads_are_among_those_tried() -> None:
    source = emitted()
    old = "size * thread / threads, size * (thread + 1) / threads"
    text = source.support["pd_runtime.h"]
    assert text.count(old) == 1
    new = "size * thread / threads, size * (thread + 1) / threads - (threads == 4 && !thread)"
    planted = replace(source, support={**source.support, "pd_runtime.h": text.replace(old, new)})
    report = judged(planted)
    assert not report.ok and "on 4 threads" in report.problem, report.problem


def test_all_threads_that_sleep_are_woken_when_the_kernel_is_unloaded() -> None:
    source = emitted()
    old, text = "pd_pool.stop = 1;\n    pthread_cond_broadcast(", source.support["pd_runtime.h"]
    assert text.count(old) == 1
    for new in (old, old.replace("broadcast", "signal")):
        planted = replace(source, support={**source.support, "pd_runtime.h": text.replace(old, new)})
        artifact = RUNNER.compile(planted)
        assert isinstance(artifact, Artifact), artifact
        found = RUNNER.run(artifact, replace(PLAIN, executions=("unloaded",), thread_counts=(2, 3, 4, 5)))
        assert isinstance(found, Measurement) == (new == old), found
    assert isinstance(found, Failure) and found.reason == "timeout", found


@dataclass(frozen=True)
class OldRunner:
    """One of before there were executions: it reads nothing of them, and reports none."""

    def compile(self, source: KernelSource) -> Artifact | Failure:
        return RUNNER.compile(source)

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        known = RunRequest(request.inputs, request.seed, request.threads, timeout_s=request.timeout_s)
        found = RUNNER.run(artifact, known)
        if isinstance(found, Failure):
            return found
        return Measurement(found.outputs, found.seconds, found.provenance, found.device, found.threads)

    def device(self) -> str:
        return "old"


def test_a_runner_that_knows_no_executions_is_believed_to_have_run_none() -> None:
    made = RUNNER.compile(emitted())
    assert isinstance(made, Artifact)
    program = parse(ROWS)
    report = verify_numeric(program, program, made, OldRunner(), {}, CORE_DIALECT)
    assert report.ok and report.executions == ()
    rules = Rules(CORE_DIALECT, GENERIC)
    leg = numeric(Subject(Trace(program), rules, made, OldRunner(), {}, 1, 0))
    assert leg.passed and leg.figures["executions"] == ""
    assert leg.figures["executions_not_run"] == ", ".join(EXECUTIONS)


#: Each leaves a slot of the workspace to nobody; that two threads meet in one is hardly ever seen.
SHARED_SLOTS = {
    "all threads use one": "0",
    "pairs of threads use one": "thread / 2",
    "odd and even threads use one": "thread & 1",
    "the fifth uses that of the first": "thread & 3",
}


@pytest.mark.parametrize("slots", SHARED_SLOTS)
def test_threads_that_share_a_slot_of_the_workspace_are_certainly_seen(
    slots: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_counts, "COLLIDING_S", 0.0)
    source = emitted()
    old, text = "size * (thread + 1) / threads, thread)", source.support["pd_runtime.h"]
    assert text.count(old) == 1
    # They never meet: one thread after the other.
    new = f"{old.removesuffix('thread)')}{SHARED_SLOTS[slots]}), pthread_mutex_unlock(&turn)"
    text = text.replace(
        f"body(context, size * thread / threads, {old}",
        f"pthread_mutex_lock(&turn), body(context, size * thread / threads, {new}",
    )
    text = text.replace(
        "PD_INLINE void pd_run_block",
        "static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;\nPD_INLINE void pd_run_block",
    )
    report = judged(replace(source, support={**source.support, "pd_runtime.h": text}))
    assert not report.ok and "threads share what each should have" in report.problem, report.problem


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the plant sets this processor's control word")
def test_denormal_numbers_are_computed_by_several_threads() -> None:
    program = parse(
        "kernel k(a, b) -> y\na f32 [7,40] heap\nb f32 [7,40] heap\ny f32 [7,40] heap\n\n"
        "7:p\n| 40 y[{0},{1}] = a[{0},{1}] + b[{0},{1}]\n"
    )
    source = CEmitter(program, "pd_k", CORE_DIALECT).source()
    old = "pd_run_block(pd_pool.body, pd_pool.context, pd_pool.size, self, pd_pool.threads);"
    text = source.support["pd_runtime.h"]
    assert text.count(old) == 1
    new = "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); " + old
    for planted in (text, text.replace(old, new)):
        artifact = RUNNER.compile(replace(source, support={**source.support, "pd_runtime.h": planted}))
        assert isinstance(artifact, Artifact), artifact
        report = verify_numeric(program, program, artifact, RUNNER, {}, CORE_DIALECT, threads=(1, 2))
        assert report.ok == (planted == text), report.problem
    assert " threads: " in report.problem, "on one thread there is nothing to see"


def test_drawn_numbers_of_threads_are_others_for_other_seeds() -> None:
    program = parse(ROWS)
    counts = [_with_executions(PLAIN, program, CORE_DIALECT, seed).thread_counts for seed in range(40)]
    assert all(count[:5] == (2, 3, 4, 5, 8) for count in counts), "those that users have come first"
    assert len(set(counts)) > 30 and all(1 < n <= MAX_THREADS for count in counts for n in count)
    assert all(max(count) > 64 and set(range(2, 65)) < set(count) for count in counts)
    assert _with_executions(PLAIN, program, CORE_DIALECT, 3).busy_threads == 7
    guarded = parse(
        ROWS.replace("| 24 y[{0},{1}] = t[{0},{1}] * 2", "| 24 y[{0},{1}] = t[{0},{1}] * 2 if {0} >= 1")
    )
    assert _with_executions(PLAIN, guarded, CORE_DIALECT, 3).busy_threads == 0


PLANTS = {
    "the pool of the process before": ("owner && owner != getpid()", "0", "after_fork"),
    "blocks of rows, rounded down": (
        "size * thread / threads, size * (thread + 1) / threads",
        "size / threads * thread, size / threads * (thread + 1)",
        "threads",
    ),
    "no look at the workspace's size": (
        "if (!workspace || bytes < pd_workspace_bytes(shared, slot, threads))",
        "if (!workspace)",
        "workspace",
    ),
    "a workspace that is taken to be aligned": (
        "*base = (char *)workspace + -(uintptr_t)workspace % 64;",
        "*base = (char *)__builtin_assume_aligned(workspace, 64);"
        " if ((uintptr_t)workspace % 64) __builtin_trap();",
        "guard_pages",
    ),
    "a slot for all threads": (
        "return 63 + shared + slot * (size_t)(threads > 1 ? threads : 1);",
        "return 63 + shared + slot;",
        "threads",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_in_the_runtime_of_emitted_code(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, execution = PLANTS[plant]
    source = emitted()
    text = source.support["pd_runtime.h"]
    assert text.count(old) == 1
    monkeypatch.setattr("perfdojo_sdk.verify.numeric.RunRequest", partial_request)
    report = judged(replace(source, support={**source.support, "pd_runtime.h": text.replace(old, new)}))
    assert not report.ok and EXECUTIONS[execution] in report.problem, report.problem


def partial_request(*args: object, **options: object) -> RunRequest:
    """A request with a shorter time-out, since some of these kernels wait for ever."""
    return RunRequest(*args, **{**options, "timeout_s": 20.0})  # type: ignore[arg-type]


def test_a_kernel_that_does_nothing_on_too_many_threads() -> None:
    source = emitted()
    old = "if (threads > 1024)\n        return 3;"
    assert source.code.count(old) == 1
    report = judged(replace(source, code=source.code.replace(old, old.replace("3", "0"))))
    assert not report.ok and f"on {MAX_THREADS + 1} threads" in report.problem, report.problem


# -- how many threads there may be ---------------------------------------------------------------------


def test_runtime_loader_and_generator_agree_on_the_most_threads() -> None:
    include = Path(perfdojo_sdk.codegen.__file__).parent / "include"
    text = (include / "pd_runtime.h").read_text(encoding="utf-8")
    [most] = re.findall(r"PD_MAX_THREADS = (\d+)", text)
    assert int(most) == MAX_THREADS
    assert thread_count(MAX_THREADS) == MAX_THREADS and Settings(threads=MAX_THREADS).threads == MAX_THREADS
    for count in (0, MAX_THREADS + 1):
        for takes in (thread_count, lambda n: Settings(threads=n)):
            with pytest.raises(ArgumentValueError, match=f"1 .. {MAX_THREADS}") as caught:
                takes(count)
            assert caught.value.code == "PD-L015"


@pytest.mark.parametrize("threads", [MAX_THREADS, MAX_THREADS + 1])
def test_a_kernel_takes_the_most_threads_and_refuses_more(threads: int) -> None:
    made = RUNNER.compile(emitted())
    assert isinstance(made, Artifact)
    found = RUNNER.run(made, replace(PLAIN, threads=threads))
    if threads <= MAX_THREADS:
        assert isinstance(found, Measurement), found
    else:
        assert (
            isinstance(found, Failure) and f"returned {TOO_MANY_THREADS} (too many threads)" in found.detail
        )
