"""Kernels called from Python: launches and refused arrays, with a stand-in for the driver."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from cuda_support import emitted
from perfdojo_cuda_gh200.loader import _LOADER, ArgumentError, GpuKernel, kernel_of
from stand_in import StandIn
from test_cuda_device import TWO, N, double, plus_one

from perfdojo_sdk.codegen.gpu.figures import read, read_workspace
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.library import gpu_loader


class Tensor:
    """An array on the stand-in's device."""

    def __init__(self, cuda: StandIn, shape: tuple[int, ...] = (N,), **other: Any) -> None:
        self.address = cuda.cuMemAlloc(4 * N + 64)[1]
        self.cells = cuda.memory[self.address].view(np.float32)
        told = {"shape": shape, "typestr": "<f4", "data": (self.address, False), "version": 3}
        self.__cuda_array_interface__ = {**told, **other}


def kernel(cuda: StandIn, files: tuple[str, ...] = ("kernel.cubin",)) -> GpuKernel:
    source = emitted(TWO)
    made = {
        "kernel.cubin": b"machine code",
        "launches.json": json.dumps([asdict(each) for each in read(source.code)]).encode(),
        "workspace.json": json.dumps(read_workspace(source.code)).encode(),
    }
    kept = {k: v for k, v in made.items() if k in files or k != "kernel.cubin"}
    return kernel_of(cuda, kept, (*source.inputs, *source.outputs))


def stand_in() -> StandIn:
    return StandIn({"pd_case_k0": (2, 32, double), "pd_case_k1": (4, 32, plus_one)})


def test_a_call_launches_the_kernel_on_the_arrays_given() -> None:
    cuda = stand_in()
    run = kernel(cuda)
    x, y = Tensor(cuda), Tensor(cuda)
    x.cells[:N] = np.arange(N)
    run(x, y, stream="stream")
    np.testing.assert_array_equal(y.cells[:N], np.arange(N) * 2 + 1)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"typestr": "<f8"}, "the kernel takes f32"),
        ({"shape": (N - 1,)}, "the kernel takes f32"),
        ({"strides": (8,)}, "has gaps"),
        ({"data": ((1 << 20) + 4, False)}, "multiple of 16 bytes"),
    ],
)
def test_an_array_that_the_kernel_does_not_take_is_refused(other: dict[str, Any], words: str) -> None:
    cuda = stand_in()
    run = kernel(cuda)
    with pytest.raises(ArgumentError) as refused:
        run(Tensor(cuda), Tensor(cuda, **other), stream="stream")
    assert refused.value.code == "PD-L041" and words in refused.value.what and refused.value.hint


def test_what_is_not_on_the_gpu_is_refused() -> None:
    cuda = stand_in()
    run = kernel(cuda)
    with pytest.raises(ArgumentError, match="ndarray"):
        run(np.zeros(N, np.float32), Tensor(cuda), stream="stream")
    with pytest.raises(ArgumentError, match="1 array for 2"):
        run(Tensor(cuda), stream="stream")


def test_a_library_without_machine_code_says_so() -> None:
    with pytest.raises(UnavailableError) as refused:
        kernel(stand_in(), ())
    assert refused.value.code == "PD-L042" and "nvrtc" in (refused.value.hint or "")


def test_where_there_is_no_gpu_loading_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> Any:
        raise OSError("no driver is installed")

    monkeypatch.setattr(gpu_loader, "kernel_files", lambda library, name: ({}, ()))
    with pytest.raises(UnavailableError) as refused:
        replace(_LOADER, driver=no_driver).load("library", "k")
    assert refused.value.code == "PD-L043" and refused.value.why == "no driver is installed"
    assert refused.value.hint == "run on a machine with an NVIDIA GPU"
