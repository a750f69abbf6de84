"""Kernels called from Python on tensors of ROCm: launches and refusals, on the stand-in.

What arrays are taken is the SDK's, and tested with the other GPU's loader.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from perfdojo_hip_mi300a.driver import HipGpu, load
from perfdojo_hip_mi300a.loader import _LOADER, ArgumentError, GpuKernel, kernel_of
from test_hip_device import IMAGE, Build, N, stand_in, two  # noqa: F401

from perfdojo_sdk.codegen.gpu.figures import read, read_workspace
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.library import gpu_loader


class Tensor:
    """An array on the stand-in's device, whose memory is the host's."""

    def __init__(self, gpu: HipGpu, **other: Any) -> None:
        address = gpu.allocate(4 * N)
        self.cells = np.ctypeslib.as_array((ctypes.c_float * N).from_address(address))
        told = {"shape": (N,), "typestr": "<f4", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = {**told, **other}


def kernel(hip: Any, image: str = "kernel.hsaco") -> GpuKernel:
    source = two()
    files = {
        image: IMAGE,
        "launches.json": json.dumps([asdict(each) for each in read(source.code)]).encode(),
        "workspace.json": json.dumps(read_workspace(source.code)).encode(),
    }
    return kernel_of(hip, files, (*source.inputs, *source.outputs))


def test_a_call_launches_the_kernel_on_the_tensors_given(stand_in: Build) -> None:  # noqa: F811
    hip = load([str(stand_in())])
    hip.stand_in_complaint.restype = ctypes.c_char_p
    run, gpu = kernel(hip), HipGpu(hip)
    x, y, stream = Tensor(gpu), Tensor(gpu), gpu.stream()
    x.cells[:] = np.arange(N)
    run(x, y, stream=stream)
    gpu.wait(stream)
    assert hip.stand_in_complaint() == b""
    np.testing.assert_array_equal(y.cells, np.arange(N) * 2 + 1)
    with pytest.raises(ArgumentError, match="the kernel takes f32"):
        run(x, Tensor(gpu, typestr="<f8"), stream=stream)
    with pytest.raises(ArgumentError, match="ndarray"):
        run(np.zeros(N, np.float32), y, stream=stream)


def test_a_library_without_machine_code_says_so(stand_in: Build) -> None:  # noqa: F811
    with pytest.raises(UnavailableError) as refused:
        kernel(load([str(stand_in())]), "kernel.s")
    assert refused.value.code == "PD-L042" and "zig" in (refused.value.hint or "")


def test_where_there_is_no_gpu_loading_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> Any:
        raise OSError("no driver is installed")

    monkeypatch.setattr(gpu_loader, "kernel_files", lambda library, name: ({}, ()))
    with pytest.raises(UnavailableError) as refused:
        replace(_LOADER, driver=no_driver).load("library", "k")
    assert refused.value.code == "PD-L043" and refused.value.why == "no driver is installed"
    assert refused.value.hint == "run on a machine with an AMD GPU and ROCm"
