"""The runner: the SDK's for grids and blocks, with CUDA's compilers and the way to a GPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from perfdojo_cuda_gh200.compile import compile_for_gpu
from perfdojo_cuda_gh200.driver import gpu_name, on_gpu
from perfdojo_sdk.hookspecs.types import Failure, KernelSource
from perfdojo_sdk.measure.gpu_runner import DeviceCode, GpuRunner

#: The command of the child process that uses the GPU.
WORKER = (sys.executable, "-P", "-m", "perfdojo_cuda_gh200.gpu_worker")


@dataclass(frozen=True)
class CudaRunner(GpuRunner):
    """A runner as plain data: it can be pickled, and holds no device."""

    def compile_for_device(self, source: KernelSource) -> DeviceCode | Failure | None:
        return compile_for_gpu(source, self.capabilities.options["arch"])

    def device_name(self) -> str:
        return gpu_name() if on_gpu() else ""

    def worker(self) -> tuple[str, ...]:
        return WORKER
