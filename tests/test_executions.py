"""Executions in the child process: each shows the faults that it is for, and a right kernel stands all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from execution_faults import FAULTS, MET_BY
from test_measure import RIGHT, N, build

from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.process_state import changed, float_state

pytestmark = pytest.mark.usefixtures("impatient_executions")

RUNNER = NativeRunner(("-O2",))
PLAIN = RunRequest(timeout_s=20)
#: Threads that are more than there are, beside the usual ones.
ALL = replace(PLAIN, executions=tuple(EXECUTIONS), thread_counts=(2, 3, 5, 600, N + 1), busy_threads=2)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_only_one_execution_shows(name: str) -> None:
    fault = FAULTS[name]
    artifact = build(fault.body, fault.before, fault.workspace)
    runner = replace(RUNNER, forks=True)
    met = {fault.execution, *MET_BY.get(fault.execution, ()), *fault.also}
    for request in (PLAIN, replace(ALL, executions=tuple(e for e in EXECUTIONS if e not in met))):
        assert isinstance(found := runner.run(artifact, request), Measurement), found
    found = runner.run(artifact, ALL)
    assert isinstance(found, Failure) and found.reason == fault.reason, found
    assert found.detail.startswith(EXECUTIONS[fault.execution]) and fault.says in found.detail, found


def test_a_right_kernel_stands_all_executions_and_says_so() -> None:
    x = np.arange(N, dtype=np.float32)
    found = RUNNER.run(build(RIGHT), replace(ALL, inputs={"x": x}))
    assert isinstance(found, Measurement) and found.outputs is not None
    assert set(found.executions) == set(EXECUTIONS)
    assert np.array_equal(found.outputs["y"], 2 * x)
    plain = RUNNER.run(build(RIGHT), PLAIN)
    assert isinstance(plain, Measurement) and plain.executions == ()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("for (int i = 0; i < N; i++) y[i] = a[i] + b[i] * x[i];", None),
        (
            "for (int i = 0; i < N; i++) y[i] = a[i] + (b == x ? 0 : b[i]) * x[i];",
            "elements of y differ from those for two equal arrays",
        ),
    ],
)
def test_one_array_may_be_given_for_two_inputs(body: str, says: str | None) -> None:
    code = f"""
#include <stddef.h>
#define N {N}
size_t pd_case_workspace_bytes(int threads) {{ return 0; }}
int pd_case(const float *a, const float *b, const float *x, float *y, void *w, size_t bytes, int threads)
{{ {body} return 0; }}
"""
    # The first has a shape of its own.
    inputs = [ArraySpec("a", (1, N), "f32"), *(ArraySpec(name, (N,), "f32") for name in "bx")]
    source = KernelSource("pd_case", tuple(inputs), (ArraySpec("y", (N,), "f32"),), code)
    artifact = RUNNER.compile(source)
    assert isinstance(artifact, Artifact)
    found = RUNNER.run(artifact, ALL)
    if says is None:
        assert isinstance(found, Measurement) and "shared_inputs" in found.executions
    else:
        assert isinstance(found, Failure) and found.reason == "wrong_result"
        assert found.detail.startswith(EXECUTIONS["shared_inputs"]) and says in found.detail, found
        others = tuple(name for name in EXECUTIONS if name != "shared_inputs")
        assert isinstance(RUNNER.run(artifact, replace(ALL, executions=others)), Measurement)


def test_a_kernel_may_change_how_it_computes_while_it_computes() -> None:
    body = f"fenv_t before; fegetenv(&before); fesetround(FE_UPWARD); {RIGHT} fesetenv(&before);"
    found = RUNNER.run(build(body, "#include <fenv.h>"), ALL)
    assert isinstance(found, Measurement) and "float_control" in found.executions


def test_more_threads_than_one_to_begin_with_leave_executions_out() -> None:
    """A fork of a kernel with workers has none; to run what is left would show nothing."""
    found = RUNNER.run(build(RIGHT), replace(ALL, threads=2))
    assert isinstance(found, Measurement) and found.executions == ()


def test_the_state_of_floats_is_seen_by_what_arithmetic_does() -> None:
    before = float_state()
    assert not changed(before, float_state())
    assert changed(before, {**before, "rounding": ()}) == "rounding"
