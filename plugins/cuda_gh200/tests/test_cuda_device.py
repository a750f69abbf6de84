"""The way to a real GPU, with a stand-in for its driver that checks every call."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_support import emitted
from perfdojo_cuda_gh200.driver import CudaGpu
from perfdojo_cuda_gh200.runner import WORKER
from stand_in import Kernel, StandIn

from perfdojo_sdk.codegen.gpu.bundle import BUNDLE, pack
from perfdojo_sdk.codegen.gpu.figures import calls, read, read_workspace
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, Measurement, RunRequest
from perfdojo_sdk.measure.gpu_process import run_on_gpu
from perfdojo_sdk.measure.gpu_session import Result, Work, measure
from perfdojo_sdk.measure.kernel_calls import Refused

N = 64
TEXT = f"kernel k(x) -> y\nx f32 [{N}] heap\nt f32 [{N}] heap\ny f32 [{N}] heap\n\n"
#: Two launches that pass a temporary through the workspace.
TWO = TEXT + "2:g 32:b t[{0}*32+{1}] = x[{0}*32+{1}] * 2\n4:g 16:b y[{0}*16+{1}] = t[{0}*16+{1}] + 1\n"


def double(x: Any, t: Any) -> None:
    t[:N] = x[:N] * 2


def plus_one(y: Any, t: Any) -> None:
    y[:N] = t[:N] + 1


def run(second: Kernel = plus_one, seconds: float = 1e-3, **timing: Any) -> tuple[Result, StandIn]:
    source = emitted(TWO)
    cuda = StandIn({"pd_case_k0": (2, 32, double), "pd_case_k1": (4, 32, second)}, seconds)
    about = {"inputs": [["x", [N], "f32"]], "outputs": [["y", [N], "f32"]], "seed": 0}
    given = {"x": np.arange(N, dtype=np.float32)}
    launches = tuple(read(source.code))
    work = Work(about, given, b"machine code", launches, read_workspace(source.code), **timing)
    return measure(CudaGpu(cuda), work), cuda


def test_a_kernel_runs_launch_by_launch_and_gives_its_outputs() -> None:
    result, cuda = run()
    np.testing.assert_array_equal(result.outputs["y"], np.arange(N) * 2 + 1)
    assert cuda.launched == ["pd_case_k0", "pd_case_k1"] * 2 and not result.seconds
    assert not cuda.memory, "all memory is given back"


def test_calls_are_timed_by_events() -> None:
    result, cuda = run(repeats=5)
    assert result.seconds == pytest.approx([2e-3] * 5) and not result.graph and not cuda.graphs


def test_a_short_call_goes_as_a_graph() -> None:
    result, cuda = run(seconds=2e-6, repeats=5)
    assert result.graph and cuda.graphs == 6
    assert result.seconds == pytest.approx([4e-6] * 5)


def test_timing_ends_when_asked_to() -> None:
    assert len(run(repeats=50, budget_s=0.005)[0].seconds) == 3
    result, cuda = run(repeats=50, stop_above_s=1e-3)
    assert len(result.seconds) == 1 and len(cuda.launched) == 6, "twice for the outputs, once for the time"
    assert len(run(repeats=50, precision=0.05)[0].seconds) == 10


def outside(y: Any, t: Any) -> None:
    plus_one(y, t)
    y[N] = 7


def lazy(y: Any, t: Any) -> None:
    y[: N - 1] = t[: N - 1] + 1


def fault(y: Any, t: Any) -> None:
    raise FloatingPointError


class Unsteady:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, y: Any, t: Any) -> None:
        self.calls += 1
        y[:N] = t[:N] + self.calls


@pytest.mark.parametrize(
    ("kernel", "reason", "words"),
    [
        (outside, "wrong_result", "memory after y"),
        (lazy, "wrong_result", "1 of 64 elements of y are never written"),
        (Unsteady(), "wrong_result", "change from call to call"),
        (fault, "crash", "failed on the GPU"),
    ],
)
def test_what_no_kernel_may_do_is_refused(kernel: Kernel, reason: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        run(kernel)
    assert refused.value.reason == reason and words in refused.value.detail


def test_a_changed_input_is_refused() -> None:
    source = emitted(TWO)

    def greedy(x: Any, t: Any) -> None:
        double(x, t)
        x[0] = 5

    cuda = StandIn({"pd_case_k0": (2, 32, greedy), "pd_case_k1": (4, 32, plus_one)})
    about = {"inputs": [["x", [N], "f32"]], "outputs": [["y", [N], "f32"]], "seed": 0}
    work = Work(about, {}, b"machine code", tuple(read(source.code)), read_workspace(source.code))
    with pytest.raises(Refused) as refused:
        measure(CudaGpu(cuda), work)
    assert refused.value.reason == "input_modified"


def test_a_launch_may_ask_for_shared_memory() -> None:
    """The driver allows it to the kernel first; the other kernel asks for none."""
    source = emitted(TWO)
    cuda = StandIn({"pd_case_k0": (2, 32, double), "pd_case_k1": (4, 32, plus_one)})
    first, second = read(source.code)
    launches = (replace(first, dynamic_bytes=60_000), second)
    about = {"inputs": [["x", [N], "f32"]], "outputs": [["y", [N], "f32"]], "seed": 0}
    work = Work(about, {}, b"machine code", launches, read_workspace(source.code))
    measure(CudaGpu(cuda), work)
    assert cuda.dynamic == {"pd_case_k0": 60_000} and cuda.launched == ["pd_case_k0", "pd_case_k1"] * 2


def test_loops_of_the_host_give_their_iterators() -> None:
    text = "kernel k(x) -> y\nx f32 [3,2,8] heap\ny f32 [3,2,8] heap\n\n3\n"
    text += "| 2:g 8:b y[{0},{1},{2}] = x[{0},{1},{2}]\n| 1:g 8:b y[{0},0,{2}] = x[{0},1,{2}]\n"
    made = [(figures.kernel[-2:], values) for figures, values in calls(read(emitted(text).code))]
    assert made == [(name, (i,)) for i in range(3) for name in ("k0", "k1")]


# -- the process beside the GPU ------------------------------------------------------------------------

SPECS = (ArraySpec("x", (N,), "f32"),), (ArraySpec("y", (N,), "f32"),)


def answer_of(script: str, tmp_path: Path, timeout_s: float = 30.0) -> Measurement | Failure:
    path = tmp_path / "child.py"
    path.write_text(f"import sys\nimport numpy as np\n{script}\n")
    return run_by((sys.executable, "-P", str(path)), timeout_s)


def run_by(worker: Sequence[str], timeout_s: float = 30.0) -> Measurement | Failure:
    launches = [asdict(each) for each in read(emitted(TWO).code)]
    files = {"kernel.cubin": b"machine code", "launches.json": json.dumps(launches).encode()}
    content = pack({**files, "workspace.json": b"0"})
    artifact = Artifact("pd_case", *SPECS, BUNDLE, content)
    request = RunRequest(repeats=2, timeout_s=timeout_s)
    return run_on_gpu(artifact, request, "a GPU", 1 << 20, worker)


SEND = "np.savez(sys.argv[2], {})"


def test_an_answer_is_a_measurement(tmp_path: Path) -> None:
    parts = f"out_y=np.ones({N}, np.float32), seconds=np.array([1e-3, 2e-3]), graph=np.array(False)"
    result = answer_of(SEND.format(parts), tmp_path)
    assert isinstance(result, Measurement)
    assert (result.provenance, result.device, result.seconds) == ("measured", "a GPU", (1e-3, 2e-3))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (SEND.format("failure=np.array(['device', 'the GPU is gone'])"), "device"),
        (
            SEND.format("out_y=np.ones(3, np.float32), seconds=np.array([1.0]), graph=np.array(False)"),
            "runtime",
        ),
        ("open(sys.argv[2], 'w').write('nonsense')", "runtime"),
        ("print('no answer')", "runtime"),
        ("sys.exit(3)", "runtime"),
        ("import os; os.abort()", "crash"),
    ],
)
def test_whatever_goes_wrong_there_is_a_failure(script: str, reason: str, tmp_path: Path) -> None:
    result = answer_of(script, tmp_path)
    assert isinstance(result, Failure) and result.reason == reason


def test_a_child_that_hangs_is_a_timeout(tmp_path: Path) -> None:
    result = answer_of("import time; time.sleep(60)", tmp_path, timeout_s=1.0)
    assert isinstance(result, Failure) and result.reason == "timeout"


def test_the_child_runs_the_code_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in the current folder under the names of its packages."""
    (tmp_path / "perfdojo_sdk").mkdir()
    (tmp_path / "perfdojo_sdk" / "__init__.py").write_text("raise SystemExit('another checkout')")
    monkeypatch.chdir(tmp_path)
    result = run_by(WORKER)
    assert isinstance(result, Failure) and result.reason == "device", result
