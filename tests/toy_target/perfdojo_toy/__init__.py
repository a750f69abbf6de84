"""A tiny complete target: scalar C on threads. Every hook of the contract is here, once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import LegalityCheck, Transformation
from perfdojo_sdk.hookspecs import hookimpl
from perfdojo_sdk.hookspecs.search import SearchStrategy
from perfdojo_sdk.hookspecs.services import Experiment, Observer, Packager, Probe, TimeBreakdown
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    CodeGenerator,
    HeuristicPass,
    MachineFigures,
    Measurement,
    Operator,
    Runner,
    RunRequest,
    Target,
)
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.toolchain import probe_compiler

from .experiments import PASSES
from .moves import UnrollShort, refuse_long_unrolling
from .performance import breakdown, expert, roofline
from .services import HEARD, SizesPackager, Stopwatch
from .target import CAPABILITIES, SCALE, TARGET, Generator
from .walk import WALK

PERFDOJO_API = (0, 3)
__version__ = "0.1.0"


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
    return [SCALE]


@hookimpl
def perfdojo_search_strategies() -> list[SearchStrategy]:
    return [WALK]


@hookimpl
def perfdojo_observers(target: Target) -> list[Observer]:
    return [Stopwatch()] if target.name == TARGET.name else []


@hookimpl
def perfdojo_doctor_probes(target: Target) -> list[Probe]:
    return [probe_compiler()] if target.name == TARGET.name else []


@hookimpl
def perfdojo_experiments() -> list[Experiment]:
    return [PASSES]


@hookimpl
def perfdojo_code_generator(target: Target) -> CodeGenerator | None:
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
def perfdojo_packager(target: Target) -> Packager | None:
    return SizesPackager() if target.name == TARGET.name else None


@hookimpl
def perfdojo_time_breakdown(
    program: Program, target: Target, artifact: Artifact, request: RunRequest
) -> TimeBreakdown | None:
    return breakdown(program, artifact, request) if target.name == TARGET.name else None


@hookimpl
def perfdojo_measurement_recorded(target: Target, kernel: str, measurement: Measurement) -> None:
    HEARD.append(f"{kernel}: {measurement.median:.2g} s")


@hookimpl
def perfdojo_library_built(target: Target, directory: Path) -> None:
    HEARD.append(f"library for {target.name} in {directory}")
