"""The code generator of x86-64: the SDK's vector emitter with the headers of one of two instruction sets.

AVX-512 and AVX2 differ in two headers of intrinsics, which the target's YAML file names: one for whole
registers of f32, which most kernels use alone, and one for all other vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from perfdojo_sdk.codegen.vector import ACCURACY, VectorEmitter
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import Capabilities, KernelSource
from perfdojo_x86_avx512.processor import requirements

MATH_ACCURACY: Mapping[str, Mapping[str, float]] = {
    "x86_avx512": ACCURACY,
    "x86_avx2": {**ACCURACY, "exp": 1.5},
}
"""Target -> function -> bound on its error in ulp, over all float32 inputs. For exp a sweep over all 2^32
inputs measured 0.990 in AVX-512, 0.892 in scalar code and 1.334 in AVX2, whose table of eighths has entries
off by a third of an ulp. Square root and division are exactly rounded."""


@cache
def _header(name: str) -> str:
    return resources.files("perfdojo_x86_avx512").joinpath("include", name).read_text(encoding="utf-8")


PROCESSOR = "pd_processor.h"
"""The header with which a kernel tests whether the processor can run it; every kernel includes it."""


class X86Emitter(VectorEmitter):
    """An emitter of kernels that first test whether the processor can run them."""

    def _include_lines(self) -> str:
        return f'{super()._include_lines()}#include "{PROCESSOR}"\n'


@dataclass(frozen=True)
class X86CodeGenerator:
    """Programs to C with intrinsics. Pure and picklable."""

    capabilities: Capabilities

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """C source of ``program`` with entry point ``symbol``; PD-C001 for a dtype that does not compile."""
        name = self.capabilities.options["vector_header"]
        vectors = self.capabilities.options["vectors_header"]
        headers = {file: _header(file) for file in (name, PROCESSOR, vectors)}
        emitter = X86Emitter(program, symbol, self.capabilities.dialect(), headers, vectors)
        flags = (*self.capabilities.cpu_flags, *self.capabilities.flags_of_groups(program))
        emitter.requires = requirements(flags)
        return emitter.source()
