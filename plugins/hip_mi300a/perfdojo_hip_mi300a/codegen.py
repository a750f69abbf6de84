"""The code generator: the SDK's emitter for grids and blocks with HIP's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    return Machine(
        warp=options["warp"],
        max_threads=options["max_threads"],
        shared_bytes=options["shared_bytes"],
        multiprocessors=options["multiprocessors"],
        matrix=frozenset(options["matrix"]),
    )


@dataclass(frozen=True)
class HipCodeGenerator:
    """Programs to HIP. Pure and picklable."""

    capabilities: Capabilities
    wide: bool = False
    """Iterators have 64 bits even where 32 would do."""

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """HIP source with entry point ``symbol``; PD-C001 for a dtype that does not compile."""
        return self._emitter(program, symbol).source()

    def as_for(self, program: Program) -> HipCodeGenerator:
        """This generator, taking iterators as wide as ``program`` needs them."""
        return replace(self, wide=self._emitter(program, "pd_as_for").wide)

    def _emitter(self, program: Program, symbol: str) -> GpuEmitter:
        dialect, described = self.capabilities.dialect(), machine(self.capabilities)
        return GpuEmitter(program, symbol, dialect, described, runtime(), "hip", self.wide)
