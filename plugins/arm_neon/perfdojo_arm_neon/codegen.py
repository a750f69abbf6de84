"""The code generator of 64-bit Arm: the SDK's vector emitter with the header of NEON or that of SVE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from perfdojo_sdk.codegen.vector import ACCURACY, VectorEmitter
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import Capabilities, KernelSource

MATH_ACCURACY: Mapping[str, float] = ACCURACY
"""Function -> bound on its error in ulp, over all float32 inputs. The arithmetic is that of the SDK's one
text for every instruction set, which was measured over all 2^32 inputs on another; here a million were, in
the emulator. Both kinds of vectors give the same bits."""

VECTORS = "pd_arm_vectors.h"
"""The header of vectors besides whole registers of f32, which kernels include where they need it."""

HEADERS: Mapping[str, tuple[str, ...]] = {
    "neon": ("pd_neon.h", "pd_arm.h", VECTORS),
    "sve": ("pd_sve.h", "pd_arm.h", VECTORS),
}
"""The option ``vectors`` of a target file -> its headers, of which kernels include the first."""


ASKING: Mapping[str, str] = {
    "asimddp": "pd_has_dot_products()",
    "i8mm": "pd_has_matrices_of_bytes()",
    "bf16": "pd_has_sums_of_bf16()",
}
"""Flag of /proc/cpuinfo -> a condition in C, for the flags of sums in groups."""


@cache
def _header(name: str) -> str:
    return resources.files("perfdojo_arm_neon").joinpath("include", name).read_text(encoding="utf-8")


class SveEmitter(VectorEmitter):
    """An emitter of kernels that return a status, and do nothing, if there is no SVE or its vectors have
    another length than the code is for. The length is read at each call, since a thread can change its
    own."""

    requires = ("pd_has_sve()",)
    prologue = ("if (pd_other_vectors())", "    return PD_OTHER_VECTORS;")


@dataclass(frozen=True)
class ArmCodeGenerator:
    """Programs to C with intrinsics. Pure and picklable."""

    capabilities: Capabilities

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """C source of ``program`` with entry point ``symbol``; PD-C001 for a dtype that does not compile."""
        vectors = self.capabilities.options["vectors"]
        headers = {name: _header(name) for name in HEADERS[vectors]}
        kind = SveEmitter if vectors == "sve" else VectorEmitter
        emitter = kind(program, symbol, self.capabilities.dialect(), headers, VECTORS)
        flags = self.capabilities.flags_of_groups(program)
        emitter.requires = (*emitter.requires, *[ASKING[flag] for flag in flags])
        return emitter.source()
