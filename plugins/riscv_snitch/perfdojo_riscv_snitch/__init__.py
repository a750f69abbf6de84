"""The plugin of the target riscv_snitch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import yaml

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import LegalityCheck
from perfdojo_sdk.hookspecs import hookimpl
from perfdojo_sdk.hookspecs.search import SearchStrategy
from perfdojo_sdk.hookspecs.services import Experiment, Packager, Probe, TimeBreakdown
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    Capabilities,
    CodeGenerator,
    HeuristicPass,
    MachineFigures,
    Operator,
    Runner,
    RunRequest,
    Target,
)

PERFDOJO_API = (0, 3)

NAME = "riscv_snitch"


@cache
def _target() -> Target:
    text = resources.files(__package__).joinpath(f"{NAME}.yaml").read_text(encoding="utf-8")
    capabilities = Capabilities.model_validate(yaml.safe_load(text))
    return Target(NAME, capabilities, capabilities.dialect(), "perfdojo-riscv-snitch")


@hookimpl
def perfdojo_targets() -> list[Target]:
    return [_target()]


@hookimpl
def perfdojo_operators() -> tuple[Operator, ...]:
    from perfdojo_riscv_snitch.kernels import OPERATORS

    return OPERATORS


@hookimpl
def perfdojo_legality_checks(target: Target) -> list[LegalityCheck]:
    if target.name != NAME:
        return []
    from perfdojo_riscv_snitch.veto import HardwareLimits

    return [HardwareLimits()]


@hookimpl
def perfdojo_code_generator(target: Target) -> CodeGenerator | None:
    if target.name != NAME:
        return None
    from perfdojo_riscv_snitch.codegen import SnitchCodeGenerator

    return SnitchCodeGenerator(target.capabilities)


@hookimpl
def perfdojo_runner(target: Target) -> Runner | None:
    if target.name != NAME:
        return None
    from perfdojo_riscv_snitch.runner import SnitchRunner

    return SnitchRunner(float(target.capabilities.options["clock_hz"]))


@hookimpl
def perfdojo_math_accuracy(target: Target) -> Mapping[str, float] | None:
    if target.name != NAME:
        return None
    from perfdojo_riscv_snitch.codegen.functions import ACCURACY

    return ACCURACY


@hookimpl
def perfdojo_search_strategies() -> list[SearchStrategy]:
    from perfdojo_riscv_snitch.passes import GREEDY

    return [GREEDY]


@hookimpl
def perfdojo_heuristic_pass(target: Target) -> HeuristicPass | None:
    if target.name != NAME:
        return None
    from perfdojo_riscv_snitch.passes import heuristic

    return heuristic


@hookimpl
def perfdojo_packager(target: Target) -> Packager | None:
    if target.name != NAME:
        return None
    from perfdojo_riscv_snitch.packaging import SnitchPackager

    return SnitchPackager()


@hookimpl
def perfdojo_roofline_bound(
    program: Program, target: Target, threads: int, figures: MachineFigures
) -> Bound | None:
    if target.name != NAME:
        return None
    from perfdojo_riscv_snitch.peak import bound

    return bound(program, target.capabilities)


@hookimpl
def perfdojo_time_breakdown(
    program: Program, target: Target, artifact: Artifact, request: RunRequest
) -> TimeBreakdown | None:
    if target.name != NAME:
        return None
    from perfdojo_riscv_snitch.breakdown import breakdown

    return breakdown(artifact, request)


@hookimpl
def perfdojo_doctor_probes(target: Target) -> list[Probe]:
    if target.name != NAME:
        return []
    from perfdojo_riscv_snitch import cluster
    from perfdojo_sdk.measure.toolchain import probe_compiler

    return [probe_compiler(), cluster.probe()]


@hookimpl
def perfdojo_experiments() -> list[Experiment]:
    from perfdojo_riscv_snitch.experiments import experiments

    return experiments()
