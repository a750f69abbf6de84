"""The code generator: the SDK's for grids and blocks with HIP's dialect."""

from __future__ import annotations

from functools import cache
from importlib import resources

from perfdojo_sdk.codegen.gpu.generator import GpuCodeGenerator
from perfdojo_sdk.hookspecs.types import Capabilities


@cache
def runtime() -> str:
    """The text of this dialect's ``pd_runtime.h``."""
    return resources.files(__package__).joinpath("include", "pd_runtime.h").read_text(encoding="utf-8")


def generator(capabilities: Capabilities) -> GpuCodeGenerator:
    return GpuCodeGenerator(capabilities, runtime(), "hip")
