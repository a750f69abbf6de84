"""The runner: the SDK's for grids and blocks, with the compiler for code objects.

There is no way to a device yet: kernels run in emulation, and times are estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_hip_mi300a.compile import compile_for_gpu
from perfdojo_sdk.hookspecs.types import Failure, KernelSource
from perfdojo_sdk.measure.gpu_runner import DeviceCode, GpuRunner


@dataclass(frozen=True)
class HipRunner(GpuRunner):
    """A value: it pickles."""

    def compile_for_device(self, source: KernelSource) -> DeviceCode | Failure | None:
        return compile_for_gpu(source, self.capabilities.options["arch"])
