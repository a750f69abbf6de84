"""The plugin's hooks: it brings the target cuda_gh200."""

from __future__ import annotations

from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.hookspecs.types import Capabilities, CodeGenerator, Runner
from perfdojo_sdk.measure.gpu_hooks import GpuHooks

PERFDOJO_API = (0, 3)

#: A comment at the top of a library's header.
NOTICE = """\
/* Pointers are the GPU's, at multiples of 16 bytes; `threads` does not matter. Compile the sources of this
 * library with nvcc -arch=sm_90 to get these functions; NAME_on takes a stream as its last argument. A call
 * returns when its kernels are in the stream, not when they are done.
 */
"""


class CudaHooks(GpuHooks):
    """The SDK's hooks for grids and blocks, with what is CUDA's own."""

    def generator(self, capabilities: Capabilities) -> CodeGenerator:
        from perfdojo_cuda_gh200.codegen import generator

        return generator(capabilities)

    def runner(self, capabilities: Capabilities) -> Runner:
        from perfdojo_cuda_gh200.runner import CudaRunner

        return CudaRunner(capabilities)

    def probes(self) -> list[Probe]:
        from perfdojo_cuda_gh200.doctor import probes

        return probes()


HOOKS = CudaHooks("cuda_gh200", "perfdojo-cuda-gh200", __name__, NOTICE)
globals().update(HOOKS.by_name())
