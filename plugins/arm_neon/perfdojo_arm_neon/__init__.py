"""The plugin of 64-bit Arm with NEON or SVE: measured on an Arm machine, estimated on all others."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

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

PERFDOJO_API = (0, 3)

BASE = "arm_neon"
TARGETS = (BASE, "arm_sve")
"""One for each target file; those after the first say in what they differ from it."""


def _file(name: str) -> dict[str, Any]:
    # Imported here and not above, since the child processes of an emulation import this package, too.
    import yaml

    text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    said: dict[str, Any] = yaml.safe_load(text)
    return said


@cache
def _target(name: str) -> Target:
    from perfdojo_sdk.hookspecs.types import Capabilities, Target

    base, own = _file(BASE), _file(name)
    said = {**base, **own, "options": {**base["options"], **own["options"]}}
    capabilities = Capabilities.model_validate(said)
    return Target(name, capabilities, capabilities.dialect(), "perfdojo-arm-neon")


def at_home(target: Target) -> bool:
    """True if this processor has the target's instructions."""
    from perfdojo_sdk.measure.machine import machine

    capabilities = target.capabilities
    return platform.machine() == capabilities.machine and machine().flags.issuperset(capabilities.cpu_flags)


@hookimpl
def perfdojo_targets() -> list[Target]:
    return [_target(name) for name in TARGETS]


@hookimpl
def perfdojo_code_generator(target: Target) -> CodeGenerator | None:
    if target.name not in TARGETS:
        return None
    from perfdojo_arm_neon.codegen import ArmCodeGenerator

    return ArmCodeGenerator(target.capabilities)


@hookimpl
def perfdojo_legality_checks(target: Target) -> list[LegalityCheck]:
    if target.name not in TARGETS:
        return []
    from perfdojo_arm_neon.veto import RegisterFile

    return [RegisterFile(target.capabilities.vector_registers)]


@hookimpl
def perfdojo_runner(target: Target) -> Runner | None:
    if target.name not in TARGETS:
        return None
    if at_home(target):
        from perfdojo_sdk.measure.native_runner import NativeRunner

        return NativeRunner(target.capabilities.compiler_flags)
    from perfdojo_arm_neon.runner import ArmRunner

    return ArmRunner(target.capabilities)


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
    from perfdojo_arm_neon.codegen import MATH_ACCURACY

    return MATH_ACCURACY


@hookimpl
def perfdojo_machine_figures(target: Target, refresh: bool) -> MachineFigures | None:
    if target.name not in TARGETS or not at_home(target):
        return None
    from perfdojo_sdk.core.errors import UnavailableError
    from perfdojo_sdk.measure.machine import calibrate
    from perfdojo_sdk.measure.roofline import calibrated_figures

    capabilities = target.capabilities
    try:
        found = calibrate(capabilities.compiler_flags, 4 * capabilities.lanes["f32"], refresh=refresh)
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
def perfdojo_time_breakdown(
    program: Program, target: Target, artifact: Artifact, request: RunRequest
) -> TimeBreakdown | None:
    if target.name not in TARGETS or at_home(target):
        return None
    from perfdojo_arm_neon.breakdown import breakdown
    from perfdojo_arm_neon.runner import ArmRunner

    return breakdown(artifact, request, ArmRunner(target.capabilities))


@hookimpl
def perfdojo_doctor_probes(target: Target) -> list[Probe]:
    if target.name not in TARGETS:
        return []
    from perfdojo_sdk.measure.toolchain import probe_compiler

    if at_home(target):
        return [_probe_processor(target), *_probe_vectors(target), probe_compiler()]
    from perfdojo_arm_neon.crosstools import probe_cross_compiler

    return [probe_cross_compiler(), _probe_emulator(target), probe_compiler()]


def _probe_processor(target: Target) -> Probe:
    from perfdojo_sdk.hookspecs.services import Probe

    return Probe("processor", f"it has {', '.join(target.capabilities.cpu_flags)}; times are measured")


def _probe_vectors(target: Target) -> list[Probe]:
    """Probe of the vector length: for SVE the processor's must equal the target's."""
    from perfdojo_arm_neon.processor import sve_bits
    from perfdojo_sdk.hookspecs.services import Probe

    wanted = target.capabilities.options.get("vector_bits")
    if not wanted:
        return []
    bits = sve_bits()
    found = f"{bits} bits" if bits == wanted else ""
    why = f"vectors of SVE have {bits or 'an unknown number of'} bits here, the target's have {wanted}"
    default = "/proc/sys/abi/sve_default_vector_length"
    remedy = f"before this process starts and as root: echo {wanted // 8} > {default}; or take {BASE}"
    return [Probe("vectors", found, why, remedy)]


def _probe_emulator(target: Target) -> Probe:
    from importlib.metadata import PackageNotFoundError, version

    from perfdojo_sdk.hookspecs.services import Probe

    try:
        found = f"unicorn {version('unicorn')}; times are estimated"
    except PackageNotFoundError:
        found = ""
    lacking = " and ".join(target.capabilities.cpu_flags)
    why = f"this processor, {platform.machine()}, has no {lacking}, and there is no emulator"
    return Probe("emulator", found, why, "pip install 'perfdojo-arm-neon[emulation]'")
