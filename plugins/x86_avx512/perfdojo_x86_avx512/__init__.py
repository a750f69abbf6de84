"""The plugin's hooks: it brings two targets of x86-64, one for each YAML file beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import yaml

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs import hookimpl
from perfdojo_sdk.hookspecs.services import Experiment, ExperimentRequest, ExperimentResult, Probe
from perfdojo_sdk.hookspecs.types import (
    Bound,
    Capabilities,
    CodeGenerator,
    HeuristicPass,
    MachineFigures,
    Runner,
    Target,
)

PERFDOJO_API = (0, 3)

TARGETS = ("x86_avx512", "x86_avx2")


@cache
def _target(name: str) -> Target:
    text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    capabilities = Capabilities.model_validate(yaml.safe_load(text))
    return Target(capabilities.name, capabilities, capabilities.dialect(), "perfdojo-x86-avx512")


@hookimpl
def perfdojo_targets() -> list[Target]:
    return [_target(name) for name in TARGETS]


@hookimpl
def perfdojo_code_generator(target: Target) -> CodeGenerator | None:
    if target.name not in TARGETS:
        return None
    from perfdojo_x86_avx512.codegen import X86CodeGenerator

    return X86CodeGenerator(target.capabilities)


@hookimpl
def perfdojo_runner(target: Target) -> Runner | None:
    if target.name not in TARGETS:
        return None
    from perfdojo_sdk.measure.native_runner import NativeRunner

    return NativeRunner(target.capabilities.compiler_flags)


@hookimpl
def perfdojo_heuristic_pass(target: Target) -> HeuristicPass | None:
    if target.name not in TARGETS:
        return None
    from perfdojo_sdk.experts.cpu import heuristic

    return heuristic


@hookimpl
def perfdojo_math_accuracy(target: Target) -> Mapping[str, float] | None:
    if target.name not in TARGETS:
        return None
    from perfdojo_x86_avx512.codegen import MATH_ACCURACY

    return MATH_ACCURACY[target.name]


@hookimpl
def perfdojo_machine_figures(target: Target, refresh: bool) -> MachineFigures | None:
    if target.name not in TARGETS:
        return None
    from perfdojo_sdk.core.errors import UnavailableError
    from perfdojo_sdk.measure.machine import calibrate
    from perfdojo_sdk.measure.roofline import calibrated_figures

    capabilities = target.capabilities
    lanes = capabilities.lanes["f32"]
    flags = (*capabilities.compiler_flags, "-include", "immintrin.h")
    try:
        found = calibrate(flags, 4 * lanes, capabilities.options["stream_store"], refresh)
    except UnavailableError:
        return capabilities.figures  # these are marked as not calibrated
    return calibrated_figures(capabilities, found)


@hookimpl
def perfdojo_roofline_bound(
    program: Program, target: Target, threads: int, figures: MachineFigures
) -> Bound | None:
    if target.name not in TARGETS:
        return None
    from perfdojo_sdk.measure.roofline import roofline

    return roofline(program, threads, figures)


@hookimpl
def perfdojo_doctor_probes(target: Target) -> list[Probe]:
    if target.name not in TARGETS:
        return []
    from perfdojo_sdk.measure.machine import machine
    from perfdojo_sdk.measure.toolchain import probe_compiler

    flags = target.capabilities.cpu_flags
    lacking = [flag for flag in flags if flag not in machine().flags]
    processor = Probe(
        "processor",
        "" if lacking else f"it has {', '.join(flags)}",
        why=f"this processor lacks {', '.join(lacking)}",
        remedy="build for x86_avx2, or on a machine with these instructions",
    )
    return [processor, probe_compiler()]


def _fig10(request: ExperimentRequest) -> ExperimentResult:
    from perfdojo_x86_avx512.experiments import fig10

    return fig10(request)


@hookimpl
def perfdojo_experiments() -> list[Experiment]:
    return [Experiment("x86_avx512/fig10", "Time along the softmax by hand, move by move.", _fig10)]
