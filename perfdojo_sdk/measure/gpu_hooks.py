"""The hooks of a plugin that brings one target with grids and blocks; the vendor adds its own parts.

The plugin says how its generator, its runner and its probes are made, and takes the hooks over::

    HOOKS = MyHooks("my_gpu", "perfdojo-my-gpu", __name__, NOTICE)
    globals().update(HOOKS.by_name())

Modules that take long to import are imported inside the hooks that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
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


class GpuHooks(ABC):
    """Answers for the target ``name``, whose file ``NAME.yaml`` stands in ``package``."""

    def __init__(self, name: str, distribution: str, package: str, notice: str) -> None:
        """``notice``: a comment in C that stands above the header of a library."""
        self.name, self.distribution, self.package, self.notice = name, distribution, package, notice

    @abstractmethod
    def generator(self, capabilities: Capabilities) -> CodeGenerator:
        """The code generator."""

    @abstractmethod
    def runner(self, capabilities: Capabilities) -> Runner:
        """The runner."""

    @abstractmethod
    def probes(self) -> list[Probe]:
        """The doctor's probes."""

    @cached_property
    def target(self) -> Target:
        text = resources.files(self.package).joinpath(f"{self.name}.yaml").read_text(encoding="utf-8")
        capabilities = Capabilities.model_validate(yaml.safe_load(text))
        return Target(self.name, capabilities, capabilities.dialect(), self.distribution)

    def by_name(self) -> dict[str, Callable[..., object]]:
        """The hooks, as the plugin's module is to have them."""
        return {name: getattr(self, name) for name in dir(type(self)) if name.startswith("perfdojo_")}

    @hookimpl
    def perfdojo_targets(self) -> list[Target]:
        return [self.target]

    @hookimpl
    def perfdojo_code_generator(self, target: Target) -> CodeGenerator | None:
        return self.generator(target.capabilities) if target.name == self.name else None

    @hookimpl
    def perfdojo_runner(self, target: Target) -> Runner | None:
        return self.runner(target.capabilities) if target.name == self.name else None

    @hookimpl
    def perfdojo_heuristic_pass(self, target: Target) -> HeuristicPass | None:
        if target.name != self.name:
            return None
        from perfdojo_sdk.experts.gpu.heuristic import expert

        return expert

    @hookimpl
    def perfdojo_math_accuracy(self, target: Target) -> Mapping[str, float] | None:
        if target.name != self.name:
            return None
        from perfdojo_sdk.codegen.gpu.generator import MATH_ACCURACY

        return MATH_ACCURACY

    @hookimpl
    def perfdojo_roofline_bound(
        self, program: Program, target: Target, threads: int, figures: MachineFigures
    ) -> Bound | None:
        if target.name != self.name:
            return None
        from perfdojo_sdk.measure.roofline import roofline

        return roofline(program, 1, figures)

    @hookimpl
    def perfdojo_packager(self, target: Target) -> Packager | None:
        if target.name != self.name:
            return None
        from perfdojo_sdk.codegen.gpu.packaging import GpuPackager

        return GpuPackager(target.capabilities, self.notice)

    @hookimpl
    def perfdojo_time_breakdown(
        self, program: Program, target: Target, artifact: Artifact, request: RunRequest
    ) -> TimeBreakdown | None:
        if target.name != self.name:
            return None
        from perfdojo_sdk.codegen.gpu.estimate import breakdown

        return breakdown(artifact, target.capabilities)

    @hookimpl
    def perfdojo_doctor_probes(self, target: Target) -> list[Probe]:
        return self.probes() if target.name == self.name else []
