"""The plugin's hooks: it brings the target hip_mi300a."""

from __future__ import annotations

from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.hookspecs.types import Capabilities, CodeGenerator, Runner
from perfdojo_sdk.measure.gpu_hooks import GpuHooks

PERFDOJO_API = (0, 3)

#: A comment at the top of a library's header.
NOTICE = """\
/* Pointers are the GPU's, at multiples of 16 bytes; `threads` does not matter. Compile the sources of this
 * library with hipcc --offload-arch=gfx942 to get these functions; NAME_on takes a stream as its last
 * argument. A call returns when its kernels are in the stream, not when they are done.
 */
"""


class HipHooks(GpuHooks):
    """The SDK's hooks for grids and blocks, with what is HIP's own."""

    def generator(self, capabilities: Capabilities) -> CodeGenerator:
        from perfdojo_hip_mi300a.codegen import generator

        return generator(capabilities)

    def runner(self, capabilities: Capabilities) -> Runner:
        from perfdojo_hip_mi300a.runner import HipRunner

        return HipRunner(capabilities)

    def probes(self) -> list[Probe]:
        from perfdojo_hip_mi300a.doctor import probes

        return probes()


HOOKS = HipHooks("hip_mi300a", "perfdojo-hip-mi300a", __name__, NOTICE)
globals().update(HOOKS.by_name())
