"""Guards around a plugin's pass, generator, runner and vetoes: a fault names the plugin.

Each guard has the interface of the object that it guards. A fault of a pass or a generator is raised
as :class:`.faults.PluginFault`; that of a runner is a :class:`Failure`, that of a veto a refusal. As a
:class:`~perfdojo_sdk.hookspecs.abilities.Wrapper`, a guard has the abilities of its object, and guards
these too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args

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
from perfdojo_sdk.hookspecs.abilities import (
    ABILITIES,
    GeneratesAsFor,
    GivesRequirements,
    Imitation,
    KnowsConstants,
    Wrapper,
)
from perfdojo_sdk.hookspecs.services import SimulatedRun
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

#: Most games that a pass may return for one kernel.
MOST_GAMES = 1000

A = TypeVar("A")


@dataclass(frozen=True)
class GuardedPass(Wrapper):
    """An expert's pass of ``plugin``."""

    plugin: str
    play: HeuristicPass

    @property
    def inside(self) -> HeuristicPass:
        return self.play

    def around(self, inside: HeuristicPass) -> GuardedPass:
        return replace(self, play=inside)

    def able(self, asked: Callable[..., A], held: A) -> A:
        return cast(A, _Knowing(self, held)) if asked is KnowsConstants else held

    def __call__(self, root: Program, rules: Rules, target: Target) -> Sequence[Trace]:
        """The games; :class:`PluginFault` if the pass raises an error or returns anything else."""
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
class _Knowing:
    """The ability to play with constants; the pass that it returns is guarded, too."""

    guard: GuardedPass
    held: Any

    def knowing(self, constants: Collection[str]) -> HeuristicPass:
        """The guarded pass; :class:`PluginFault` for anything else."""
        plugin = self.guard.plugin
        made: object = guarded(plugin, "pass", lambda: self.held.knowing(constants))
        if not callable(made):
            raise _fault(plugin, f"its pass's knowing returned {shown(made)}, expected a pass")
        return self.guard.around(made)


@dataclass(frozen=True)
class GuardedGenerator(Wrapper):
    """A code generator of ``plugin``."""

    plugin: str
    generator: CodeGenerator

    @property
    def inside(self) -> CodeGenerator:
        return self.generator

    def around(self, inside: CodeGenerator) -> GuardedGenerator:
        return replace(self, generator=inside)

    def able(self, asked: Callable[..., A], held: A) -> A:
        return cast(A, _AsFor(self, held)) if asked is GeneratesAsFor else held

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """The source; :class:`DojoError` for what the target refuses, :class:`PluginFault` for a fault."""
        made: object = guarded(
            self.plugin, "code generator", lambda: self.generator.generate(program, symbol)
        )
        if not isinstance(made, KernelSource) or not isinstance(made.code, str):
            raise _fault(self.plugin, f"its code generator returned {shown(made)}, expected a source")
        if made.symbol != symbol:
            raise _fault(self.plugin, f"its code generator called {symbol} {made.symbol!r:.80}")
        _check_packed(program, made)
        return made


def _check_packed(program: Program, made: KernelSource) -> None:
    """Refuse code that reads a packed array as one of whole bytes: its generator is older than these."""
    holding = {array.name for array in made.inputs if array.holds is not None}
    others = [b.name for b in program.buffers if b.packed and b.name not in holding]
    if others:
        what = f"{program.name}: {', '.join(others)} is packed, which does not compile for this target yet"
        why = "its code generator reads an element from each byte"
        hint = f"declare {others[0]} without packed, and pass an array with an element in each byte"
        raise UnavailableError("PD-C001", what, why=why, hint=hint)


@dataclass(frozen=True)
class _AsFor:
    """The ability to choose as for another program; the generator that it returns is guarded, too."""

    guard: GuardedGenerator
    held: Any

    def as_for(self, program: Program) -> CodeGenerator:
        """The guarded generator; :class:`PluginFault` for anything else."""
        plugin = self.guard.plugin
        made: object = guarded(plugin, "code generator", lambda: self.held.as_for(program))
        if not isinstance(made, CodeGenerator):
            raise _fault(plugin, f"its code generator's as_for returned {shown(made)}, expected a generator")
        return self.guard.around(made)


@dataclass(frozen=True)
class GuardedRunner(Wrapper):
    """A runner of ``plugin``."""

    plugin: str
    runner: Runner

    @property
    def inside(self) -> Runner:
        return self.runner

    def around(self, inside: Runner) -> GuardedRunner:
        return replace(self, runner=inside)

    def able(self, asked: Callable[..., A], held: A) -> A:
        return cast(A, GuardedAbilities(self, held)) if asked in GuardedAbilities.KNOWN else held

    def compile(self, source: KernelSource) -> Artifact | Failure:
        """The artifact or a failure; :class:`UnavailableError` only if a tool is missing."""
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
        """A measurement that may count, or the reason why there is none."""
        try:
            found: object = self.within(request, lambda: self.runner.run(artifact, request))
        except DojoError as error:
            return self.failure(error)
        return self.checked(found)

    def device(self) -> str:
        """The device in words; :class:`PluginFault` for anything else."""
        device: object = guarded(self.plugin, "runner", self.runner.device)
        if not isinstance(device, str):
            raise _fault(self.plugin, f"its runner calls the device {shown(device)}, expected words")
        return device

    def within(self, request: RunRequest, work: Callable[[], object], kernels: int = 1) -> object:
        """The result of a call of the runner, which may run ``kernels`` kernels as requested."""
        return guarded(self.plugin, "runner", work, limit_s() + most_runs(kernels) * request.timeout_s)

    def failure(self, error: DojoError) -> Failure:
        """A call of the runner that raised ``error``."""
        return Failure("runtime", self._line("runner", error))

    def _line(self, part: str, error: DojoError) -> str:
        if isinstance(error, PluginFault):
            return error.what
        return note(self.plugin, said(part, error), error)

    def checked(self, found: object) -> Measurement | Failure:
        """The runner's result, if it may count."""
        if isinstance(found, Failure):
            return _sound(self.plugin, found)
        if not isinstance(found, Measurement):
            what = f"its runner returned {shown(found)}, expected a measurement"
            return Failure("runtime", note(self.plugin, what))
        wrong = why_no_measurement(found)
        # This is no fault of the kernel, which may be kept if other results support it.
        return runner_fault(note(self.plugin, f"its runner gave {wrong}")) if wrong else found


@dataclass(frozen=True)
class GuardedAbilities:
    """A runner's abilities, guarded like the rest of it."""

    #: The abilities that this class guards; a guarded runner passes on any other unchanged.
    KNOWN: ClassVar[frozenset[Callable[..., Any]]] = frozenset(
        declared.protocol for declared in ABILITIES if declared.kind == "runner"
    )

    guard: GuardedRunner
    held: Any

    def time_interleaved(
        self, artifacts: Sequence[Artifact], request: RunRequest
    ) -> list[Measurement | Failure]:
        count = len(artifacts)
        return self._several(count, request, lambda: self.held.time_interleaved(artifacts, request))

    def run_together(self, artifact: Artifact, requests: Sequence[RunRequest]) -> list[Measurement | Failure]:
        if not requests:
            return []
        longest = max(requests, key=lambda request: request.timeout_s)
        return self._several(len(requests), longest, lambda: self.held.run_together(artifact, requests))

    def run_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        try:
            found = self.guard.within(request, lambda: self.held.run_sets(artifact, request, sets))
        except DojoError as error:
            return self.guard.failure(error)
        return self.guard.checked(found)

    def simulate(self, program: Path, *, trace: bool = False, max_cycles: int | None = None) -> SimulatedRun:
        found = self._read(lambda: self.held.simulate(program, trace=trace, max_cycles=max_cycles))
        if not isinstance(found, SimulatedRun):
            raise self._strange("simulate returned", found, "a simulated run")
        return found

    @property
    def forks(self) -> bool:
        return self._yes_or_no("forks")

    @property
    def usable_in_forks(self) -> bool:
        return self._yes_or_no("usable_in_forks")

    @property
    def most_instances(self) -> int | None:
        found = self._read(lambda: self.held.most_instances)
        if found is not None and (type(found) is not int or found < 1):
            raise self._strange("says for most_instances", found, "a number of instances, or None")
        return found

    @property
    def imitation(self) -> Imitation:
        found = self._read(lambda: self.held.imitation)
        if found not in get_args(Imitation):
            raise self._strange("says for imitation", found, f"one of {get_args(Imitation)}")
        return cast(Imitation, found)

    @property
    def compile_timeout_s(self) -> float:
        found = self._read(lambda: self.held.compile_timeout_s)
        if not _is_number(found) or not cast(float, found) > 0:
            raise self._strange("says for compile_timeout_s", found, "seconds")
        return cast(float, found)

    def _several(
        self, count: int, request: RunRequest, work: Callable[[], object]
    ) -> list[Measurement | Failure]:
        """As many results as were asked for, each checked."""
        plugin = self.guard.plugin
        try:
            found = self.guard.within(request, work, kernels=count)
        except DojoError as error:
            return [self.guard.failure(error)] * count
        if not isinstance(found, list | tuple) or len(found) != count:
            what = f"its runner returned {shown(found)} for {number_of(count, 'kernels')}"
            return [Failure("runtime", note(plugin, what))] * count
        return [self.guard.checked(each) for each in found]

    def _yes_or_no(self, name: str) -> bool:
        found = self._read(lambda: getattr(self.held, name))
        if not isinstance(found, bool):
            raise self._strange(f"says for {name}", found, "yes or no")
        return found

    def _read(self, work: Callable[[], object]) -> object:
        return guarded(self.guard.plugin, "runner", work)

    def _strange(self, says: str, found: object, expected: str) -> PluginFault:
        return _fault(self.guard.plugin, f"its runner {says} {shown(found)}, expected {expected}")


@dataclass(frozen=True, eq=False)
class GuardedVeto(Wrapper):
    """A veto of ``plugin``: one that raises, or answers neither yes nor no, refuses the move."""

    plugin: str
    veto: LegalityCheck

    @property
    def inside(self) -> LegalityCheck:
        return self.veto

    def around(self, inside: LegalityCheck) -> GuardedVeto:
        return replace(self, veto=inside)

    def able(self, asked: Callable[..., A], held: A) -> A:
        return cast(A, _Requirements(self.plugin, held)) if asked is GivesRequirements else held

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


@dataclass(frozen=True)
class _Requirements:
    """The requirements that a veto names."""

    plugin: str
    held: Any

    @property
    def requirements(self) -> Sequence[Requirement[Any]]:
        """The requirements; :class:`PluginFault` for anything but a sequence of requirements."""
        found: object = guarded(self.plugin, "veto", lambda: tuple(self.held.requirements))
        assert isinstance(found, tuple)
        strange = next((each for each in found if not isinstance(each, Requirement)), None)
        if strange is not None:
            raise _fault(self.plugin, f"its veto names {shown(strange)}, expected requirements")
        return found


def most_runs(kernels: int) -> int:
    """The most runs of one kernel that an honest race of ``kernels`` kernels needs.

    If a race crashes, each kernel may have to run alone, the rest races again, and so on with one kernel less
    each time. Each of these runs is repeated once, in case the machine was too busy to watch it.
    """
    return 2 * kernels * (kernels + 1)


def why_no_measurement(found: Measurement) -> str:
    """The fault of a measurement, in words; "" where there is none."""
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
    """The failure, if it has a reason of the closed set and a text; else one that names the plugin."""
    if failure.reason in get_args(FailureReason) and isinstance(failure.detail, str):
        return failure
    what = f"a failure of the unknown reason {failure.reason!r:.40}: {failure.detail!s:.200}"
    return Failure("runtime", note(plugin, f"it gave {what}"))


def _fault(plugin: str, what: str) -> PluginFault:
    return PluginFault(plugin, note(plugin, what))
