"""A target whose compiler copies and whose clock reads what the test says, for the order of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs import API_VERSION, hookimpl
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    Capabilities,
    Failure,
    KernelSource,
    MachineFigures,
    Measurement,
    RunRequest,
    Target,
)
from perfdojo_sdk.kernels.selection import array_specs, select
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.build import BuildResult, build_library
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.store.records import LegResult, Verification

QUICK = Settings(threads=2, repeats=5, budget_s=0.02)


def parallel_pass(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """Give the first scope to the threads."""
    play = Play(root, rules)
    play.must("annotate_scope", "s0", suffix="p")
    return (play.trace,)


@dataclass
class Paper:
    """A target whose compiler copies and whose clock reads what the test says."""

    expert: Callable[..., tuple[Trace, ...]] | None = parallel_pass
    slow: float = 2e-3
    """Time of an initial program; what the pass made takes 1e-3 s."""
    bound: Bound | None = None
    recalibrated: Bound | None = None
    """The bound after the machine was measured again."""
    refuses: Callable[[str], bool] = lambda code: False
    """Sources that do not compile."""
    verifies: Callable[[Trace], bool] = lambda trace: True
    packaged_value: float = 1.0
    mark: str = ""
    compiled: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    bounded: list[Program] = field(default_factory=list)
    """Programs that a bound was asked for."""

    def plugins(self) -> Plugins:
        capabilities = Capabilities(name="paper", description="", suffixes=("u", "p"))
        target = Target("paper", capabilities, capabilities.dialect(), "")
        hooks: Mapping[str, Callable[..., Any]] = {
            "perfdojo_targets": lambda: [target],
            "perfdojo_code_generator": lambda target: self,
            "perfdojo_runner": lambda target: self,
            "perfdojo_heuristic_pass": lambda target: self.expert,
            "perfdojo_machine_figures": lambda target, refresh: self.figures(refresh),
            "perfdojo_roofline_bound": lambda program, target: self.bound_of(program),
        }
        marked = {name: hookimpl(hook) for name, hook in hooks.items()}
        plugin = SimpleNamespace(__name__="paper", PERFDOJO_API=API_VERSION, **marked)
        return load_plugins(strict=True, extra=[plugin])

    def bound_of(self, program: Program) -> Bound | None:
        self.bounded.append(program)
        return self.bound

    def figures(self, refresh: bool) -> MachineFigures:
        if refresh and self.recalibrated:
            self.bound = self.recalibrated
        return MachineFigures()

    def generate(self, program: Program, symbol: str) -> KernelSource:
        code = f"{self.mark}{program.text}"
        inputs, outputs = (array_specs(program, names) for names in (program.inputs, program.outputs))
        return KernelSource(symbol, inputs, outputs, code, language="paper")

    def compile(self, source: KernelSource) -> Artifact | Failure:
        self.compiled.append(source.symbol)
        if self.refuses(source.code):
            return Failure("compile", "paper jam\nand more")
        content = source.code.encode() or b"\0"
        return Artifact(source.symbol, source.inputs, source.outputs, "paper", content, "scissors 1.0")

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        self.runs.append(artifact.symbol)
        packaged = b"Links the kernels" in artifact.content
        value = self.packaged_value if packaged else 1.0
        outputs = {o.name: np.full(o.shape, value, np.float32) for o in artifact.outputs}
        seconds = (1e-3 if b":p" in artifact.content else self.slow,)
        limit = request.stop_above_s
        details = {"stopped": float(limit is not None and seconds[0] > limit)}
        timed = seconds if request.repeats else ()
        return Measurement(outputs, timed, "simulated", "desk", request.threads, details=details)

    def device(self) -> str:
        return "desk"


def judged(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> Paper:
    """``paper``, whose verification says what :attr:`Paper.verifies` says; no other plugin is installed."""

    def verify(subject: verification.Subject) -> Verification:
        leg = LegResult(passed=paper.verifies(subject.trace), detail="as the test says")
        return Verification(exact=leg, numeric=leg, dependence=leg)

    monkeypatch.setattr(verification, "verify", verify)
    monkeypatch.setattr("perfdojo_sdk.plugins.discovery.installed", lambda: ())
    return paper


def build(
    paper: Paper, folder: Path, kernels: str = "relu[4,8]", settings: Settings = QUICK, **options: Any
) -> BuildResult:
    plugins = paper.plugins()
    target = plugins.target("paper")
    return build_library(
        plugins, target, select(kernels, plugins.operators, target.dialect), folder, settings, **options
    )


def entry(result: BuildResult) -> Any:
    assert result.manifest
    [found] = result.manifest.kernels
    return found
