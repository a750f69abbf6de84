"""The code generator of targets with grids and blocks: the emitter, with the header of a dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perfdojo_sdk.codegen.gpu.emitter import GpuEmitter
from perfdojo_sdk.codegen.gpu.mapping import machine_of
from perfdojo_sdk.codegen.operations import ACCURACY
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import Capabilities, KernelSource

MATH_ACCURACY: Mapping[str, float] = {**dict.fromkeys(ACCURACY, 2.0), "exp": 1.1}
"""Function -> bound on its error in ulp. The polynomials of f32 are those of the SDK's C, measured over all
inputs and better than this; the rest is left to the GPU's library, which computes f64.
That of exp: 0.892 with fused multiply-adds, 1.02 without, as emulated kernels are compiled."""


@dataclass(frozen=True)
class GpuCodeGenerator:
    """Programs to the language of one dialect. Pure and picklable."""

    capabilities: Capabilities
    runtime: str = field(repr=False)
    """The text of the dialect's ``pd_runtime.h``."""
    language: str
    """Also the suffix of a source's file."""
    wide: bool = False
    """True if iterators have 64 bits even where 32 would do."""

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """Source with entry point ``symbol``; PD-C001 for a dtype that does not compile."""
        return self._emitter(program, symbol).source()

    def as_for(self, program: Program) -> GpuCodeGenerator:
        """This generator, taking iterators as wide as ``program`` needs them."""
        return replace(self, wide=self._emitter(program, "pd_as_for").wide)

    def _emitter(self, program: Program, symbol: str) -> GpuEmitter:
        dialect, machine = self.capabilities.dialect(), machine_of(self.capabilities)
        return GpuEmitter(program, symbol, dialect, machine, self.runtime, self.language, self.wide)
