"""A plugin's pass, generator, runner and vetoes as the SDK calls them: what they do wrong names the plugin.

Each guard stands for what it guards and answers in the same way. A fault of a pass or a generator is raised
as :class:`.faults.PluginFault`; that of a runner is a :class:`Failure`, that of a veto a refusal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, get_args

import numpy as np

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import (
    LegalityCheck,
    Move,
    Objection,
    Refusal,
    Requirement,
    Rules,
    Trace,
)
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    CodeGenerator,
    Failure,
    FailureReason,
    HeuristicPass,
    KernelSource,
    Measurement,
    Provenance,
    Runner,
    RunRequest,
    Target,
)
from perfdojo_sdk.measure.answer import runner_fault
from perfdojo_sdk.plugins.calls import shown
from perfdojo_sdk.plugins.faults import PluginFault, guarded, limit_s, note, said

#: More games than that no pass may play of one kernel.
MOST_GAMES = 1000


@dataclass(frozen=True)
class GuardedPass:
    """An expert's pass of ``plugin``."""

    plugin: str
    play: HeuristicPass

    def __call__(self, root: Program, rules: Rules, target: Target) -> Sequence[Trace]:
        """The games; :class:`PluginFault` for whatever else the pass does."""
        try:
            games = guarded(self.plugin, "pass", lambda: self._games(root, rules, target))
        except PluginFault:
            raise
        except DojoError as error:
            raise PluginFault(self.plugin, note(self.plugin, said("pass", error), error)) from error
        strange = next((game for game in games if not isinstance(game, Trace)), None)
        if strange is not None:
            raise _fault(self.plugin, f"its pass returned {shown(strange)}, expected games")
        if len(games) > MOST_GAMES:
            raise _fault(self.plugin, f"its pass played more than {MOST_GAMES} games")
        return games

    def _games(self, root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
        return tuple(islice(self.play(root, rules, target), MOST_GAMES + 1))


@dataclass(frozen=True)
class GuardedGenerator:
    """A code generator of ``plugin``."""

    plugin: str
    generator: CodeGenerator

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """The source; :class:`DojoError` for what the target refuses, :class:`PluginFault` for a fault."""
        made: object = guarded(
            self.plugin, "code generator", lambda: self.generator.generate(program, symbol)
        )
        if not isinstance(made, KernelSource) or not isinstance(made.code, str):
            raise _fault(self.plugin, f"its code generator returned {shown(made)}, expected a source")
        if made.symbol != symbol:
            raise _fault(self.plugin, f"its code generator called {symbol} {made.symbol!r:.80}")
        return made

    def __getattr__(self, name: str) -> Any:
        return _of(self, "generator", name)


@dataclass(frozen=True)
class GuardedRunner:
    """A runner of ``plugin``; the attributes that it has beside are there too."""

    plugin: str
    runner: Runner

    def compile(self, source: KernelSource) -> Artifact | Failure:
        """:class:`UnavailableError` where a tool is missing; whatever else goes wrong is a failure."""
        try:
            made: object = guarded(self.plugin, "compiler", lambda: self.runner.compile(source))
        except UnavailableError:
            raise
        except DojoError as error:
            return Failure("compile", self._line("compiler", error))
        if isinstance(made, Failure):
            return _sound(self.plugin, made)
        if not isinstance(made, Artifact) or not isinstance(made.content, bytes):
            what = f"its compiler returned {shown(made)}, expected an artifact"
            return Failure("compile", note(self.plugin, what))
        return made

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        """What was measured and may count, or why nothing was."""
        try:
            found: object = self._within(request, lambda: self.runner.run(artifact, request))
        except DojoError as error:
            return Failure("runtime", self._line("runner", error))
        return self._checked(found)

    def _interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Measurement | Failure]:
        together: Any = self.runner
        try:
            found: object = self._within(request, lambda: together.time_interleaved(artifacts, request))
        except DojoError as error:
            return [Failure("runtime", self._line("runner", error))] * len(artifacts)
        if not isinstance(found, list | tuple) or len(found) != len(artifacts):
            what = f"its runner returned {shown(found)} for {number_of(len(artifacts), 'kernels')}"
            return [Failure("runtime", note(self.plugin, what))] * len(artifacts)
        return [self._checked(each) for each in found]

    def _sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        several: Any = self.runner
        try:
            found: object = self._within(request, lambda: several.run_sets(artifact, request, sets))
        except DojoError as error:
            return Failure("runtime", self._line("runner", error))
        return self._checked(found)

    def device(self) -> str:
        """The device in words; :class:`PluginFault` for anything else."""
        device: object = guarded(self.plugin, "runner", self.runner.device)
        if not isinstance(device, str):
            raise _fault(self.plugin, f"its runner calls the device {shown(device)}, expected words")
        return device

    def replaced(self, **changes: Any) -> GuardedRunner:
        """With other values of the runner's own fields."""
        return replace(self, runner=replace(self.runner, **changes))  # type: ignore[type-var]

    def __getattr__(self, name: str) -> Any:
        found = _of(self, "runner", name)
        return {"time_interleaved": self._interleaved, "run_sets": self._sets}.get(name, found)

    def _within(self, request: RunRequest, work: Callable[[], object]) -> object:
        return guarded(self.plugin, "runner", work, limit_s() + request.timeout_s)

    def _line(self, part: str, error: DojoError) -> str:
        if isinstance(error, PluginFault):
            return error.what
        return note(self.plugin, said(part, error), error)

    def _checked(self, found: object) -> Measurement | Failure:
        if isinstance(found, Failure):
            return _sound(self.plugin, found)
        if not isinstance(found, Measurement):
            what = f"its runner returned {shown(found)}, expected a measurement"
            return Failure("runtime", note(self.plugin, what))
        wrong = why_no_measurement(found)
        # It says nothing of the kernel: whoever has another reason to believe in that may keep it.
        return runner_fault(note(self.plugin, f"its runner gave {wrong}")) if wrong else found


@dataclass(frozen=True, eq=False)
class GuardedVeto:
    """A veto of ``plugin``: one that raises, or answers neither yes nor no, refuses the move."""

    plugin: str
    veto: LegalityCheck

    @property
    def requirements(self) -> Sequence[Requirement[Any]]:
        found: Sequence[Requirement[Any]] = getattr(self.veto, "requirements", ())
        return found

    def __call__(
        self, before: Program, move: Move, after: Program, dialect: Dialect
    ) -> str | Objection | None:
        try:
            answer: object = guarded(
                self.plugin, "veto", lambda: self.veto(before, move, after, dialect), everywhere=False
            )
        except PluginFault as fault:
            return fault.what
        except DojoError as error:
            return note(self.plugin, said("veto", error), error)
        if answer is None or isinstance(answer, str):
            return answer
        if isinstance(answer, Objection) and isinstance(answer.requirement, Requirement):
            if isinstance(answer.refusal, Refusal):
                return answer
        return note(self.plugin, f"its veto returned {shown(answer)}, expected a reason or None")


def why_no_measurement(found: Measurement) -> str:
    """What is wrong with a measurement, in words; "" where nothing is."""
    if found.provenance not in get_args(Provenance):
        return f"times of the unknown provenance {found.provenance!r:.40}"
    if not isinstance(found.seconds, Sequence) or not all(map(_is_number, found.seconds)):
        return f"the times {shown(found.seconds)}, expected seconds"
    impossible = next((s for s in found.seconds if not 0 < s < math.inf), None)
    if impossible is not None:
        return f"a time of {impossible:g} s"
    if not isinstance(found.details, Mapping) or not all(map(_is_number, found.details.values())):
        return f"the details {shown(found.details)}, expected figures"
    if found.outputs is not None and not (
        isinstance(found.outputs, Mapping) and all(isinstance(o, np.ndarray) for o in found.outputs.values())
    ):
        return f"the outputs {shown(found.outputs)}, expected arrays"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)


def _sound(plugin: str, failure: Failure) -> Failure:
    """A failure of the closed set of reasons, with words."""
    if failure.reason in get_args(FailureReason) and isinstance(failure.detail, str):
        return failure
    what = f"a failure of the unknown reason {failure.reason!r:.40}: {failure.detail!s:.200}"
    return Failure("runtime", note(plugin, f"it gave {what}"))


def _fault(plugin: str, what: str) -> PluginFault:
    return PluginFault(plugin, note(plugin, what))


def _of(guard: object, field: str, name: str) -> Any:
    """An attribute of what is guarded; while it is unpickled or copied there is nothing yet."""
    inside = guard.__dict__.get(field)
    if inside is None or name.startswith("__"):
        raise AttributeError(name)
    return getattr(inside, name)
