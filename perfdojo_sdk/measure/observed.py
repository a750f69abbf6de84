"""A runner with observers around each timed run; they add figures and can neither stop nor change it.

Its abilities are those of the runner inside, without observers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from perfdojo_sdk.hookspecs.abilities import Wrapper
from perfdojo_sdk.hookspecs.services import Observer
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Failure,
    KernelSource,
    Measurement,
    Runner,
    RunRequest,
)


@dataclass(frozen=True)
class Observed(Wrapper):
    """``runner`` with observers, each with its owner; a failure of one calls ``blame(owner, cause)``."""

    runner: Runner
    watching: tuple[tuple[Observer, object], ...]
    blame: Callable[[object, str], None]

    @property
    def inside(self) -> Runner:
        return self.runner

    def around(self, inside: Runner) -> Observed:
        return replace(self, runner=inside)

    def compile(self, source: KernelSource) -> Artifact | Failure:
        return self.runner.compile(source)

    def device(self) -> str:
        return self.runner.device()

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        """Run, with the observers' figures among the details; a run without timing has no observers."""
        if not request.repeats:
            return self.runner.run(artifact, request)
        notes = []
        for observer, owner in self.watching:
            try:
                notes.append((observer, owner, observer.before(artifact, request)))
            except Exception as error:
                self.blame(owner, f"observer {observer.name} failed: {error!r:.200}")
        measured = self.runner.run(artifact, request)
        if isinstance(measured, Failure):
            return measured
        added: dict[str, float] = {}
        for observer, owner, before in reversed(notes):
            try:
                added |= _named(observer.name, observer.after(before, measured))
            except Exception as error:
                self.blame(owner, f"observer {observer.name} failed: {error!r:.200}")
        return replace(measured, details={**measured.details, **added}) if added else measured


def _named(name: str, figures: Mapping[str, float]) -> dict[str, float]:
    named = {f"{name}.{figure}": float(value) for figure, value in figures.items()}
    for figure, value in named.items():
        if not isfinite(value):
            raise ValueError(f"{figure} is {value}")
    return named
