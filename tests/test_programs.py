"""Functions of ours as programs: they start, answer, and fail as values. And starts that are saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfdojo_sdk.codegen.packaging import CPackager
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.hookspecs.services import Packable
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, KernelSource, RunRequest
from perfdojo_sdk.measure import native_runner
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.programs import compile_program, run_program
from perfdojo_sdk.measure.sandbox import run_own
from perfdojo_sdk.measure.toolchain import find_toolchain
from perfdojo_sdk.verify.references import run_reference
from perfdojo_sdk.verify.runs import _batches

X, Y = ArraySpec("x", (2, 3), "f32"), ArraySpec("y", (2, 3), "f64")
#: Doubles; the first number of x says what else it does.
DOUBLES = """
#include <stddef.h>
#include <stdlib.h>
int pd_f(const float *x, double *y, void *workspace, size_t bytes, int threads)
{
    if (x[0] == 1) abort();
    if (x[0] == 2) for (;;) ;
    if (x[0] == 3 && !malloc((size_t)1 << 30)) return 1;
    for (int k = 0; k < 6; k++) y[k] = 2.0 * x[k];
    return workspace || bytes || threads != 1;
}
"""


@pytest.fixture(scope="module")
def doubles() -> Artifact:
    made = compile_program(KernelSource("pd_f", (X,), (Y,), DOUBLES), find_toolchain(), ("-O1",))
    assert isinstance(made, Artifact), made
    return made


def request_for(first: float, timeout_s: float = 20.0) -> RunRequest:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    x[0, 0] = first
    return RunRequest({"x": x}, timeout_s=timeout_s, memory_bytes=64 << 20)


def test_its_outputs_come_back(doubles: Artifact) -> None:
    found = run_own(doubles, request_for(7.0))
    assert not isinstance(found, Failure), found
    assert found["y"].tolist() == [[14.0, 2.0, 4.0], [6.0, 8.0, 10.0]]


@pytest.mark.parametrize(
    ("first", "timeout_s", "reason", "said"),
    [
        (1.0, 20.0, "crash", "killed by SIGABRT"),
        (2.0, 0.3, "timeout", "no result after 0.3 s"),
        (3.0, 20.0, "memory", "it ended with status 4"),
    ],
)
def test_each_way_to_fail_is_a_value(
    doubles: Artifact, first: float, timeout_s: float, reason: str, said: str
) -> None:
    found = run_own(doubles, request_for(first, timeout_s))
    assert isinstance(found, Failure) and found.reason == reason and said in found.detail, found
    with pytest.raises(VerificationError, match="the float64 reference did not run"):
        run_reference(doubles, request_for(first, timeout_s))


def test_arrays_that_it_does_not_have_are_refused(doubles: Artifact) -> None:
    found = run_program(doubles.content, [], 20.0, 64 << 20)
    assert found == Failure("runtime", "it was given other arrays than it has")


def test_code_that_does_not_compile_is_a_value() -> None:
    made = compile_program(KernelSource("pd_f", (X,), (Y,), "int pd_f("), find_toolchain(), ())
    assert isinstance(made, Failure) and made.reason == "compile"


def test_a_library_of_one_kernel_is_the_code_that_was_verified() -> None:
    """Compiled once: what was compiled lately is kept, and a failure is not."""
    workspace = "size_t pd_f_workspace_bytes(int threads) { return 0; }\n"
    source, runner = KernelSource("pd_f", (X,), (Y,), DOUBLES + workspace), NativeRunner(("-O0",))
    verified = runner.compile(source)
    assert isinstance(verified, Artifact)
    before = native_runner._compiled.cache_info()
    one = CPackager().package("lib", [Packable("f", "f", source)], runner)
    after = native_runner._compiled.cache_info()
    assert not isinstance(one, Failure) and one.files[1].content == verified.content
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 0)

    broken = KernelSource("pd_f", (X,), (Y,), "int pd_f(")
    assert isinstance(runner.compile(broken), Failure) and isinstance(runner.compile(broken), Failure)
    assert native_runner._compiled.cache_info().currsize == after.currsize


def test_plain_calls_share_a_child_as_long_as_time_and_memory_allow() -> None:
    def batches(instances: int, threads: tuple[int, ...] = (1,) * 6, size: int = 6) -> list[int]:
        output = ArraySpec("y", (size,), "f64")
        artifact = Artifact("pd_f", (X,), (output,), "shared_object", b"")
        plain = [(1, replace(request_for(7.0), threads=count)) for count in threads]
        put_through = (1, replace(plain[0][1], executions=("guard_pages",)))
        return [len(batch) for batch in _batches(artifact, [put_through, *plain], instances)]

    assert batches(10**6) == [1, 6]
    assert batches(10**6, (1, 2, 1, 2, 5)) == [1, 2, 2, 1]
    assert batches(5 * 10**7) == [1, 3, 3]
    assert batches(10**9) == [1] * 7
    assert batches(10**6, size=2 * 10**6) == [1, 2, 2, 2]
