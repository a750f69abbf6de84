"""Clocks: they give the time of a program, from which an environment computes rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Protocol

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    CodeGenerator,
    Failure,
    Measurement,
    Runner,
    RunRequest,
    Target,
)
from perfdojo_sdk.library.arrays import thread_count
from perfdojo_sdk.library.running import compiled, run
from perfdojo_sdk.plugins import Plugins

#: Short runs: an agent plays thousands of moves.
BRIEFLY = RunRequest(repeats=20, budget_s=0.1, want_outputs=False, precision=0.02)


@dataclass(frozen=True)
class Time:
    """The time of one program in seconds, or the reason why it has none."""

    seconds: float | None
    """None: it has no time, for the reason in ``problem``."""
    provenance: str
    """``measured``, ``simulated`` or ``estimated``."""
    problem: str = ""


class Clock(Protocol):
    """Times programs of one kernel. It never raises for a program that does not compile or run."""

    def __call__(self, program: Program) -> Time: ...


class RunnerClock:
    """Generates, compiles and runs through the target; each program once. The moves prove the result."""

    def __init__(
        self, generator: CodeGenerator, runner: Runner, request: RunRequest = BRIEFLY, target: str = ""
    ) -> None:
        self.generator, self.runner, self.request, self.target = generator, runner, request, target
        self.known: dict[str, Time] = {}

    @staticmethod
    def of(plugins: Plugins, target: Target, threads: int = 1) -> RunnerClock:
        """UnavailableError when this machine cannot run programs of the target; PD-L015 for a number of
        threads that no kernel takes."""
        plugins.require(target.name)
        runner, request = plugins.observed_runner(target), replace(BRIEFLY, threads=thread_count(threads))
        return RunnerClock(plugins.guarded_generator(target), runner, request, target.name)

    def __call__(self, program: Program) -> Time:
        text = program.text
        if text not in self.known:
            self.known[text] = self._timed(program)
        return self.known[text]

    def _timed(self, program: Program) -> Time:
        try:
            source = self.generator.generate(program, "pd_played")
        except Exception as error:  # a plugin's code
            return Time(None, "", f"no code can be generated: {error}")
        made = compiled(self.runner, source)
        result = run(self.runner, made, self.request) if isinstance(made, Artifact) else made
        if isinstance(result, Measurement) and result.seconds:
            return Time(result.median, result.provenance)
        if isinstance(result, Failure):
            return Time(None, "", f"{result.reason}: {result.detail}")
        return Time(None, "", "the runner gave no time")


class ModelClock:
    """A clock that predicts times with a model; ``estimated``, and never compared with measured times."""

    def __init__(self, predict: Callable[[Program], float]) -> None:
        self.predict = predict

    @staticmethod
    def learned(programs: Sequence[Program], seconds: Sequence[float], target: Target) -> ModelClock:
        """The searches' own cost model, fitted to programs of one kernel and their times.

        ValueError without programs.
        """
        from perfdojo_sdk.search.cost_model import CostModel
        from perfdojo_sdk.search.features import features

        model = CostModel([features(p, target) for p in programs], seconds)
        return ModelClock(lambda program: exp(model.predict([features(program, target)])[0][0]))

    def __call__(self, program: Program) -> Time:
        return Time(self.predict(program), "estimated")
