"""What this plugin brings: 64-bit Arm with NEON, measured where it is at home and estimated elsewhere."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from perfdojo_sdk.hookspecs import hookimpl

if TYPE_CHECKING:
    from perfdojo_sdk.core.program import Program
    from perfdojo_sdk.core.transformation import LegalityCheck
    from perfdojo_sdk.hookspecs.services import Probe, TimeBreakdown
    from perfdojo_sdk.hookspecs.types import (
        Artifact,
        Bound,
        CodeGenerator,
        HeuristicPass,
        MachineFigures,
        Runner,
        RunRequest,
        Target,
    )

PERFDOJO_API = (0, 2)

NAME = "arm_neon"


@cache
def _target() -> Target:
    # Imported here and not above: the child processes of an emulation are modules of this package too.
    import yaml

    from perfdojo_sdk.hookspecs.types import Capabilities, Target

    text = resources.files(__package__).joinpath(f"{NAME}.yaml").read_text(encoding="utf-8")
    capabilities = Capabilities.model_validate(yaml.safe_load(text))
    return Target(NAME, capabilities, capabilities.dialect(), "perfdojo-arm-neon")


def at_home() -> bool:
    """Whether this processor is of the target's family."""
    return platform.machine() == _target().capabilities.machine


@hookimpl
def perfdojo_targets() -> list[Target]:
    return [_target()]


@hookimpl
def perfdojo_code_generator(target: Target) -> CodeGenerator | None:
    if target.name != NAME:
        return None
    from perfdojo_arm_neon.codegen import ArmCodeGenerator

    return ArmCodeGenerator(target.capabilities)


@hookimpl
def perfdojo_legality_checks(target: Target) -> list[LegalityCheck]:
    if target.name != NAME:
        return []
    from perfdojo_arm_neon.veto import RegisterFile

    return [RegisterFile(target.capabilities.vector_registers)]


@hookimpl
def perfdojo_runner(target: Target) -> Runner | None:
    if target.name != NAME:
        return None
    if at_home():
        from perfdojo_sdk.measure.native_runner import NativeRunner

        return NativeRunner(target.capabilities.compiler_flags)
    from perfdojo_arm_neon.runner import ArmRunner

    return ArmRunner(target.capabilities)


@hookimpl
def perfdojo_heuristic_pass(target: Target) -> HeuristicPass | None:
    if target.name != NAME:
        return None
    from perfdojo_sdk.search.vectors import heuristic

    return heuristic


@hookimpl
def perfdojo_math_accuracy(target: Target) -> Mapping[str, float] | None:
    if target.name != NAME:
        return None
    from perfdojo_arm_neon.codegen import MATH_ACCURACY

    return MATH_ACCURACY


@hookimpl
def perfdojo_machine_figures(target: Target, refresh: bool) -> MachineFigures | None:
    if target.name != NAME or not at_home():
        return None
    from perfdojo_sdk.core.errors import UnavailableError
    from perfdojo_sdk.measure.machine import calibrate
    from perfdojo_sdk.measure.roofline import calibrated_figures

    capabilities = target.capabilities
    try:
        found = calibrate(capabilities.compiler_flags, 4 * capabilities.lanes["f32"], refresh=refresh)
    except UnavailableError:
        return capabilities.figures  # marked as not calibrated
    return calibrated_figures(capabilities, found)


@hookimpl
def perfdojo_roofline_bound(
    program: Program, target: Target, threads: int, figures: MachineFigures
) -> Bound | None:
    if target.name != NAME:
        return None
    from perfdojo_sdk.measure.roofline import roofline

    return roofline(program, threads, figures)


@hookimpl
def perfdojo_time_breakdown(
    program: Program, target: Target, artifact: Artifact, request: RunRequest
) -> TimeBreakdown | None:
    if target.name != NAME or at_home():
        return None
    from perfdojo_arm_neon.breakdown import breakdown
    from perfdojo_arm_neon.runner import ArmRunner

    return breakdown(artifact, request, ArmRunner(target.capabilities))


@hookimpl
def perfdojo_doctor_probes(target: Target) -> list[Probe]:
    if target.name != NAME:
        return []
    from perfdojo_sdk.measure.toolchain import probe_compiler

    if at_home():
        return [_probe_processor(target), probe_compiler()]
    from perfdojo_arm_neon.crosstools import probe_cross_compiler

    return [probe_cross_compiler(), _probe_emulator(), probe_compiler()]


def _probe_processor(target: Target) -> Probe:
    from perfdojo_sdk.hookspecs.services import Probe
    from perfdojo_sdk.measure.machine import machine

    lacking = [flag for flag in target.capabilities.cpu_flags if flag not in machine().flags]
    return Probe(
        "processor",
        "" if lacking else f"it has {', '.join(target.capabilities.cpu_flags)}; times are measured",
        why=f"this processor lacks {', '.join(lacking)}",
        remedy="build on a machine that has it",
    )


def _probe_emulator() -> Probe:
    from importlib.metadata import PackageNotFoundError, version

    from perfdojo_sdk.hookspecs.services import Probe

    try:
        found = f"unicorn {version('unicorn')}; times are estimated"
    except PackageNotFoundError:
        found = ""
    why = f"this processor is {platform.machine()}, and there is no emulator"
    return Probe("emulator", found, why, "pip install 'perfdojo-arm-neon[emulation]'")
