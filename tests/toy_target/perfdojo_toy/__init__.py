"""A tiny complete target: scalar C on threads. Every hook of the contract is here, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import LegalityCheck, Transformation
from perfdojo_sdk.hookspecs import hookimpl
from perfdojo_sdk.hookspecs.types import (
    Bound,
    Capabilities,
    HeuristicPass,
    KernelSource,
    MachineFigures,
    Operator,
    OperatorParameter,
    Runner,
    Target,
    Unavailable,
)
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.toolchain import find_toolchain

from .moves import UnrollShort, refuse_long_unrolling
from .performance import expert, roofline

PERFDOJO_API = (0, 1)
__version__ = "0.1.0"

CAPABILITIES = Capabilities.model_validate(
    yaml.safe_load(Path(__file__).with_name("toy.yaml").read_text(encoding="utf-8"))
)
TARGET = Target(CAPABILITIES.name, CAPABILITIES, CAPABILITIES.dialect(), "perfdojo-toy")


@dataclass(frozen=True)
class Generator:
    """The SDK's C emitter as it is."""

    def generate(self, program: Program, symbol: str) -> KernelSource:
        return CEmitter(program, symbol, TARGET.dialect).source()


def scale(size: int) -> str:
    buffers = f"x f32 [{size}] heap\ny f32 [{size}] heap"
    return f"kernel toy_scale(x) -> y\n{buffers}\n\n{size} y[{{0}}] = x[{{0}}] * 2\n"


@hookimpl
def perfdojo_targets() -> list[Target]:
    return [TARGET]


@hookimpl
def perfdojo_transformations(target: Target) -> list[Transformation]:
    return [UnrollShort()] if target.name == TARGET.name else []


@hookimpl
def perfdojo_legality_checks(target: Target) -> list[LegalityCheck]:
    return [refuse_long_unrolling] if target.name == TARGET.name else []


@hookimpl
def perfdojo_operators() -> list[Operator]:
    return [Operator("toy_scale", "y = 2 x.", (OperatorParameter("size", "elements"),), scale, ((1000,),))]


@hookimpl
def perfdojo_code_generator(target: Target) -> Generator | None:
    return Generator() if target.name == TARGET.name else None


@hookimpl
def perfdojo_runner(target: Target) -> Runner | None:
    return NativeRunner(CAPABILITIES.compiler_flags) if target.name == TARGET.name else None


@hookimpl
def perfdojo_heuristic_pass(target: Target) -> HeuristicPass | None:
    return expert if target.name == TARGET.name else None


@hookimpl
def perfdojo_math_accuracy(target: Target) -> Mapping[str, float] | None:
    return {"exp": 2.0} if target.name == TARGET.name else None


@hookimpl
def perfdojo_machine_figures(target: Target, refresh: bool) -> MachineFigures | None:
    return CAPABILITIES.figures if target.name == TARGET.name else None


@hookimpl
def perfdojo_roofline_bound(
    program: Program, target: Target, threads: int, figures: MachineFigures
) -> Bound | None:
    return roofline(program, threads, figures) if target.name == TARGET.name else None


@hookimpl
def perfdojo_unavailable(target: Target) -> Unavailable | None:
    if target.name != TARGET.name:
        return None
    try:
        find_toolchain()
    except UnavailableError as error:
        return Unavailable(error.what, error.hint)
    return None
