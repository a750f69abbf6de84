"""The runner: the SDK's for grids and blocks, with the compilers for code objects and the way to a GPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from perfdojo_hip_mi300a.compile import compile_for_gpu
from perfdojo_hip_mi300a.driver import name_here
from perfdojo_sdk.hookspecs.types import Failure, KernelSource
from perfdojo_sdk.measure.gpu_runner import DeviceCode, GpuRunner

#: The command of the child process that uses the GPU.
WORKER = (sys.executable, "-P", "-m", "perfdojo_hip_mi300a.gpu_worker")


@dataclass(frozen=True)
class HipRunner(GpuRunner):
    """A runner as plain data: it can be pickled, and holds no device."""

    def compile_for_device(self, source: KernelSource) -> DeviceCode | Failure | None:
        return compile_for_gpu(source, self.capabilities.options["arch"])

    def device_name(self) -> str:
        return name_here()

    def worker(self) -> tuple[str, ...]:
        return WORKER
