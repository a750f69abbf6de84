"""Call a library's kernels from Python on arrays of the GPU, such as the tensors of PyTorch for ROCm.

kernel = load("build/library/hip_mi300a", "softmax_24576x512_f32")
kernel(x, out)                       # inputs, then outputs, in the order of the kernel's interface
kernel(x, out, stream=torch.cuda.current_stream().cuda_stream)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfdojo_hip_mi300a.driver import HipGpu, driver
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.types import ArraySpec
from perfdojo_sdk.library.gpu_loader import ArgumentError, GpuKernel, kernel_files

__all__ = ["ArgumentError", "GpuKernel", "kernel_of", "load"]


def load(library: str | Path, name: str) -> GpuKernel:
    """The kernel ``name`` of a library; :class:`UnavailableError` without a GPU or without its code."""
    files, specs = kernel_files(library, name)
    try:
        return kernel_of(driver(), files, specs)
    except OSError as error:
        raise UnavailableError("PD-L043", "there is no GPU to run on", why=str(error),
                               hint="run on a machine with an AMD GPU and ROCm") from None  # fmt: skip


def kernel_of(hip: Any, files: Mapping[str, bytes], specs: Sequence[ArraySpec]) -> GpuKernel:
    """The kernel of a bundle's files on the first GPU of ROCm's runtime library ``hip``."""
    remedy = "pip install 'perfdojo-hip-mi300a[zig]'"
    return GpuKernel(HipGpu(hip), "kernel.hsaco", files, specs, remedy)
