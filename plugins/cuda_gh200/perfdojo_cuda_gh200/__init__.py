"""The plugin's hooks: it brings the target cuda_gh200."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import yaml

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs import hookimpl
from perfdojo_sdk.hookspecs.services import Packager, Probe, TimeBreakdown
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    Capabilities,
    CodeGenerator,
    HeuristicPass,
    MachineFigures,
    Runner,
    RunRequest,
    Target,
)

PERFDOJO_API = (0, 3)

NAME = "cuda_gh200"

#: Stands above the header of a library.
NOTICE = """\
/* Pointers are the GPU's, at multiples of 16 bytes; `threads` does not matter. Compile the sources of this
 * library with nvcc -arch=sm_90 to get these functions; NAME_on takes a stream as its last argument. A call
 * returns when its kernels are in the stream, not when they are done.
 */
"""


@cache
def _target() -> Target:
    text = resources.files(__package__).joinpath(f"{NAME}.yaml").read_text(encoding="utf-8")
    capabilities = Capabilities.model_validate(yaml.safe_load(text))
    return Target(NAME, capabilities, capabilities.dialect(), "perfdojo-cuda-gh200")


@hookimpl
def perfdojo_targets() -> list[Target]:
    return [_target()]


@hookimpl
def perfdojo_code_generator(target: Target) -> CodeGenerator | None:
    if target.name != NAME:
        return None
    from perfdojo_cuda_gh200.codegen import generator

    return generator(target.capabilities)


@hookimpl
def perfdojo_runner(target: Target) -> Runner | None:
    if target.name != NAME:
        return None
    from perfdojo_cuda_gh200.runner import CudaRunner

    return CudaRunner(target.capabilities)


@hookimpl
def perfdojo_heuristic_pass(target: Target) -> HeuristicPass | None:
    if target.name != NAME:
        return None
    from perfdojo_sdk.experts.gpu.heuristic import expert

    return expert


@hookimpl
def perfdojo_math_accuracy(target: Target) -> Mapping[str, float] | None:
    if target.name != NAME:
        return None
    from perfdojo_sdk.codegen.gpu.generator import MATH_ACCURACY

    return MATH_ACCURACY


@hookimpl
def perfdojo_roofline_bound(
    program: Program, target: Target, threads: int, figures: MachineFigures
) -> Bound | None:
    if target.name != NAME:
        return None
    from perfdojo_sdk.measure.roofline import roofline

    return roofline(program, 1, figures)


@hookimpl
def perfdojo_packager(target: Target) -> Packager | None:
    if target.name != NAME:
        return None
    from perfdojo_sdk.codegen.gpu.packaging import GpuPackager

    return GpuPackager(target.capabilities, NOTICE)


@hookimpl
def perfdojo_time_breakdown(
    program: Program, target: Target, artifact: Artifact, request: RunRequest
) -> TimeBreakdown | None:
    if target.name != NAME:
        return None
    from perfdojo_sdk.codegen.gpu.estimate import breakdown

    return breakdown(artifact, target.capabilities)


@hookimpl
def perfdojo_doctor_probes(target: Target) -> list[Probe]:
    if target.name != NAME:
        return []
    from perfdojo_cuda_gh200.doctor import probes

    return probes()
