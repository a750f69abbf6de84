"""A runner without a GPU: the figures that it computes, and those that it only estimates."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_support import TARGET, emitted
from perfdojo_cuda_gh200.runner import CudaRunner

from perfdojo_sdk.hookspecs.abilities import Imitates, ability
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement, RunRequest
from perfdojo_sdk.measure import gpu_runner
from perfdojo_sdk.measure.gpu_runner import MOST_INSTANCES

TEXT = "kernel k(x) -> y\nx f32 [8,64] heap\ny f32 [8,64] heap\n\n8:g 64:b y[{0},{1}] = x[{0},{1}] * 2\n"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CudaRunner:
    monkeypatch.setattr("perfdojo_cuda_gh200.runner.on_gpu", lambda: False)
    return CudaRunner(TARGET.capabilities)


def test_a_small_kernel_is_computed_and_a_large_one_only_estimated(
    runner: CudaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = runner.compile(emitted(TEXT))
    assert isinstance(artifact, Artifact), artifact
    x = np.arange(512, dtype=np.float32).reshape(8, 64)
    request = RunRequest(inputs={"x": x}, repeats=1)
    small = runner.run(artifact, request)
    monkeypatch.setattr(gpu_runner, "MOST_COMPUTED", 511)
    large = runner.run(artifact, request)
    untimed = runner.run(artifact, RunRequest(inputs={"x": x}))
    assert isinstance(small, Measurement) and isinstance(large, Measurement)
    assert small.outputs is not None and large.outputs is None
    np.testing.assert_array_equal(small.outputs["y"], 2 * x)
    assert (small.seconds, small.provenance) == (large.seconds, large.provenance) and small.seconds[0] > 0
    assert small.provenance == "estimated"
    assert isinstance(untimed, Measurement) and untimed.outputs is not None, "verifying computes in any case"


def test_it_emulates_where_there_is_no_device(runner: CudaRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, imitation in (("", "emulated"), ("a GPU", "")):
        monkeypatch.setattr(CudaRunner, "device_name", lambda self, name=name: name)
        told = ability(runner, Imitates)
        assert told is not None and told.imitation == imitation


def test_only_a_device_takes_kernels_of_any_size(runner: CudaRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.most_instances == MOST_INSTANCES
    monkeypatch.setattr("perfdojo_cuda_gh200.runner.on_gpu", lambda: True)
    monkeypatch.setattr("perfdojo_cuda_gh200.runner.gpu_name", lambda: "a GPU")
    assert runner.most_instances is None


def test_a_device_is_not_kept_busy_by_one_thread(runner: CudaRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The initial program of a product is one thread's: half an hour of a GPU, and nobody would run it."""
    monkeypatch.setattr("perfdojo_cuda_gh200.runner.on_gpu", lambda: True)
    monkeypatch.setattr("perfdojo_cuda_gh200.runner.gpu_name", lambda: "a GPU")
    ran: list[Artifact] = []

    def on_gpu(artifact: Artifact, *others: object) -> Measurement:
        ran.append(artifact)
        return Measurement(None, (1e-3,), "measured", "a GPU", 1)

    monkeypatch.setattr("perfdojo_sdk.measure.gpu_runner.run_on_gpu", on_gpu)
    text = "kernel k(x) -> y\nx f32 [{0}] heap\ny f32 [1] heap\n\ny[0] = 0\n{0} y[0] += x[{{0}}]\n"
    for size, is_run in ((64, True), (1 << 30, False)):
        artifact = runner.compile(emitted(text.format(size)))
        assert isinstance(artifact, Artifact), artifact
        for made in (runner.run(artifact, RunRequest()), *runner.run_together(artifact, [RunRequest()])):
            assert isinstance(made, Measurement if is_run else Failure), made
            if isinstance(made, Failure):
                assert made.reason == "timeout" and made.detail.endswith("it was not run")
    assert len(ran) == 2


def test_a_target_may_have_no_way_to_a_device() -> None:
    found = gpu_runner.GpuRunner(TARGET.capabilities).run_on_device(
        Artifact("k", (), (), "bundle", b""), RunRequest()
    )
    assert found == Failure("device", "cuda_gh200 has no way to a device")
