"""The way to a real GPU, with a stand-in for ROCm's runtime library that checks every call."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perfdojo_hip_mi300a import HOOKS
from perfdojo_hip_mi300a.codegen import generator
from perfdojo_hip_mi300a.driver import HipGpu, gpu_name, load
from perfdojo_hip_mi300a.runner import HipRunner

from perfdojo_sdk.codegen.gpu.bundle import BUNDLE, pack
from perfdojo_sdk.codegen.gpu.figures import read, read_workspace
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.gpu_process import run_on_gpu
from perfdojo_sdk.measure.gpu_session import Result, Work, measure
from perfdojo_sdk.measure.kernel_calls import Refused
from perfdojo_sdk.measure.toolchain import Compiled, find_toolchain

N = 64
#: Two launches that pass a temporary through the workspace.
TWO = (
    f"kernel k(x) -> y\nx f32 [{N}] heap\nt f32 [{N}] heap\ny f32 [{N}] heap\n\n"
    "2:g 32:b t[{0}*32+{1}] = x[{0}*32+{1}] * 2\n4:g 16:b y[{0}*16+{1}] = t[{0}*16+{1}] + 1\n"
)
IMAGE = b"machine code"

Build = Callable[..., Path]


def two() -> KernelSource:
    target = HOOKS.target
    return generator(target.capabilities).generate(parse(TWO, target.dialect), "pd_case")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("stand_in")
    code = Path(__file__).with_name("stand_in.c").read_text()

    def build(**macros: object) -> Path:
        flags = ("-O1", *(f"-D{name}={value}" for name, value in macros.items()))
        made = find_toolchain().compile({"stand_in.c": code}, flags)
        assert isinstance(made, Compiled), made
        path = folder / f"libamdhip64_{len(list(folder.iterdir()))}.so"
        path.write_bytes(made.content)
        return path

    return build


def run(library: Path, **timing: Any) -> tuple[Result, Any]:
    """The two launches; everything that the stand-in has to complain about fails here."""
    source, hip = two(), load([str(library)])
    hip.stand_in_complaint.restype = ctypes.c_char_p
    about = {"inputs": [["x", [N], "f32"]], "outputs": [["y", [N], "f32"]], "seed": 0}
    given = {"x": np.arange(N, dtype=np.float32)}
    work = Work(about, given, IMAGE, tuple(read(source.code)), read_workspace(source.code), **timing)
    try:
        return measure(HipGpu(hip), work), hip
    finally:
        assert hip.stand_in_complaint() == b""


def test_a_kernel_runs_launch_by_launch_and_gives_its_outputs(stand_in: Build) -> None:
    result, hip = run(stand_in())
    np.testing.assert_array_equal(result.outputs["y"], np.arange(N) * 2 + 1)
    assert hip.stand_in_calls() == 4 and not result.seconds
    assert hip.stand_in_blocks() == 0, "all memory is given back"


def test_calls_are_timed_by_events_and_short_ones_as_a_graph(stand_in: Build) -> None:
    result, hip = run(stand_in(), repeats=5)
    assert result.seconds == pytest.approx([2e-3] * 5, rel=1e-4) and not result.graph
    assert hip.stand_in_replays() == 0
    result, hip = run(stand_in(SECONDS="2e-6"), repeats=5)
    assert result.graph and hip.stand_in_replays() == 6
    assert result.seconds == pytest.approx([4e-6] * 5, rel=1e-2)


@pytest.mark.parametrize(
    ("number", "reason", "words"),
    [
        (1, "wrong_result", "memory after y"),
        (2, "wrong_result", "1 of 64 elements of y are never written"),
        (3, "wrong_result", "change from call to call"),
        (4, "crash", "hipErrorIllegalAddress"),
    ],
)
def test_what_no_kernel_may_do_is_refused(number: int, reason: str, words: str, stand_in: Build) -> None:
    with pytest.raises(Refused) as refused:
        run(stand_in(MISBEHAVE=number))
    assert refused.value.reason == reason and words in refused.value.detail


def test_the_stand_in_complains(stand_in: Build) -> None:
    """Calls out of order, or on memory that is not there, do not pass."""
    gpu = HipGpu(load([str(stand_in())]))
    for wrong in (gpu.stream, lambda: gpu.load(b"no code"), lambda: gpu.free(4096)):
        with pytest.raises(OSError, match="hipErrorInvalidValue"):
            wrong()


def test_a_gpu_has_a_name_and_a_missing_library_a_reason(stand_in: Build) -> None:
    assert gpu_name(load([str(stand_in())])) == "a stand-in"
    with pytest.raises(OSError, match="ROCm's runtime is not installed"):
        load(["libnot_there.so"])


def test_the_child_beside_the_gpu_gives_a_measurement(stand_in: Build) -> None:
    """Through the process, as the runner does it, with the stand-in for the library."""
    source = two()
    launches = [asdict(each) for each in read(source.code)]
    files = {"kernel.hsaco": IMAGE, "launches.json": json.dumps(launches).encode()}
    files["workspace.json"] = json.dumps(read_workspace(source.code)).encode()
    artifact = Artifact("pd_case", source.inputs, source.outputs, BUNDLE, pack(files))
    script = (
        "from perfdojo_hip_mi300a.driver import HipGpu, load\n"
        "from perfdojo_sdk.measure.gpu_worker import serve\n"
        f"serve(lambda: HipGpu(load([{str(stand_in())!r}])), 'kernel.hsaco')\n"
    )
    inputs = {"x": np.ones(N, np.float32)}
    request = RunRequest(inputs=inputs, repeats=3)
    result = run_on_gpu(artifact, request, "a GPU", 1 << 16, (sys.executable, "-c", script))
    assert isinstance(result, Measurement), result
    assert result.provenance == "measured" and result.seconds == pytest.approx([2e-3] * 3, rel=1e-4)
    assert result.outputs is not None and set(result.outputs["y"]) == {3.0}


def test_without_rocm_kernels_run_in_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfdojo_hip_mi300a.runner.name_here", lambda: "")
    runner = HipRunner(HOOKS.target.capabilities)
    assert runner.most_instances and runner.device().startswith("no GPU")
    monkeypatch.setattr("perfdojo_hip_mi300a.runner.name_here", lambda: "a GPU")
    assert runner.most_instances is None and runner.device() == "a GPU"
