"""Call a library's kernels from Python on arrays of the GPU, such as the tensors of PyTorch or CuPy.

kernel = load("build/library/cuda_gh200", "softmax_24576x512_f32")
kernel(x, out)                       # inputs, then outputs, in the order of the kernel's interface
kernel(x, out, stream=torch.cuda.current_stream().cuda_stream)
"""

from __future__ import annotations

from perfdojo_cuda_gh200.driver import CudaGpu, driver
from perfdojo_sdk.library.gpu_loader import ArgumentError, GpuKernel, GpuLoader

__all__ = ["ArgumentError", "GpuKernel", "kernel_of", "load"]

_LOADER = GpuLoader(
    driver,
    CudaGpu,
    image="kernel.cubin",
    remedy="pip install 'perfdojo-cuda-gh200[nvrtc]'",
    machine="a machine with an NVIDIA GPU",
)
load, kernel_of = _LOADER.load, _LOADER.kernel_of
