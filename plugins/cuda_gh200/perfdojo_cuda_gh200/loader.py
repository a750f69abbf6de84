"""Call a library's kernels from Python on arrays of the GPU, such as the tensors of PyTorch or CuPy.

kernel = load("build/library/cuda_gh200", "softmax_24576x512_f32")
kernel(x, out)                       # inputs, then outputs, in the order of the kernel's interface
kernel(x, out, stream=torch.cuda.current_stream().cuda_stream)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfdojo_cuda_gh200.driver import CudaGpu, driver
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
                               hint="run on a machine with an NVIDIA GPU") from None  # fmt: skip


def kernel_of(cuda: Any, files: Mapping[str, bytes], specs: Sequence[ArraySpec]) -> GpuKernel:
    """The kernel of a bundle's files on the first GPU of the driver's module ``cuda``."""
    remedy = "pip install 'perfdojo-cuda-gh200[nvrtc]'"
    return GpuKernel(CudaGpu(cuda), "kernel.cubin", files, specs, remedy)
