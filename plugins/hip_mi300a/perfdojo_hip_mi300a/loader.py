"""Call a library's kernels from Python on arrays of the GPU, such as the tensors of PyTorch for ROCm.

kernel = load("build/library/hip_mi300a", "softmax_24576x512_f32")
kernel(x, out)                       # inputs, then outputs, in the order of the kernel's interface
kernel(x, out, stream=torch.cuda.current_stream().cuda_stream)
"""

from __future__ import annotations

from perfdojo_hip_mi300a.driver import HipGpu, driver
from perfdojo_sdk.library.gpu_loader import ArgumentError, GpuKernel, GpuLoader

__all__ = ["ArgumentError", "GpuKernel", "kernel_of", "load"]

_LOADER = GpuLoader(
    driver,
    HipGpu,
    image="kernel.hsaco",
    remedy="pip install 'perfdojo-hip-mi300a[zig]'",
    machine="a machine with an AMD GPU and ROCm",
)
load, kernel_of = _LOADER.load, _LOADER.kernel_of
