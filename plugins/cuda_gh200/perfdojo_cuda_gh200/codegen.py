"""The code generator: the SDK's emitter for grids and blocks with CUDA's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from perfdojo_sdk.codegen.gpu.emitter import GpuEmitter
from perfdojo_sdk.codegen.gpu.mapping import Machine
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import Capabilities, KernelSource

MATH_ACCURACY: Mapping[str, float] = {"exp": 1.0}
"""Function -> bound on its error in ulp; the polynomial is that of the SDK's C, measured over all inputs."""


@cache
def runtime() -> str:
    """The text of this dialect's ``pd_runtime.h``."""
    return resources.files(__package__).joinpath("include", "pd_runtime.h").read_text(encoding="utf-8")


def machine(capabilities: Capabilities) -> Machine:
    options = capabilities.options
    sizes = (options[name] for name in ("warp", "max_threads", "shared_bytes", "multiprocessors"))
    return Machine(*sizes, frozenset(options["matrix"]))


@dataclass(frozen=True)
class CudaCodeGenerator:
    """Programs to CUDA C++. Pure and picklable."""

    capabilities: Capabilities

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """CUDA source with entry point ``symbol``; PD-C001 for a dtype that does not compile."""
        dialect = self.capabilities.dialect()
        return GpuEmitter(program, symbol, dialect, machine(self.capabilities), runtime(), "cu").source()
