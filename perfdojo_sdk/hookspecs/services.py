"""Services of plugins around a target: figures, packages, diagnoses, experiments.

Plain data and small protocols, like :mod:`.types`; all of it pickles as long as the callables in it
are functions of a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Failure,
    KernelSource,
    Measurement,
    Provenance,
    Runner,
    RunRequest,
)

# -- figures beside the time ---------------------------------------------------------------------


@runtime_checkable
class Observer(Protocol):
    """Adds figures of its own to each timed run: counters read before it and after it."""

    @property
    def name(self) -> str:
        """The prefix of its figures: observer ``power`` adds ``power.joules``."""
        ...

    def before(self, artifact: Artifact, request: RunRequest) -> object:
        """Called before a run; the result is passed to :meth:`after`."""
        ...

    def after(self, before: object, measurement: Measurement) -> Mapping[str, float]:
        """Called after a run that did not fail; returns figure -> value."""
        ...


# -- diagnosis -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """One thing that a target needs of a machine, found or missing."""

    part: str
    """Its name: "C compiler", "device", "simulator"."""
    found: str
    """The thing that is there, with its version; empty when it is missing."""
    why: str = ""
    """The reason, when it is missing."""
    remedy: str = ""
    """The remedy; preferably a command."""
    required: bool = True
    """True if the target cannot run here without it."""

    @property
    def ok(self) -> bool:
        return bool(self.found)


# -- where time goes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TimePart:
    """One part of a kernel's time."""

    name: str
    amount: float
    """In the unit of the breakdown."""
    why: str = ""
    """An explanation of the part, or of the way in which it was obtained."""


@dataclass(frozen=True)
class TimeBreakdown:
    """A kernel's time in parts that add up to all of it."""

    unit: Literal["seconds", "cycles"]
    parts: tuple[TimePart, ...]
    provenance: Provenance
    limit: str = ""
    """The limit that binds the kernel, in words."""

    @property
    def total(self) -> float:
        return sum(part.amount for part in self.parts)


# -- the plan of an expert ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """One choice of an expert's pass."""

    rule: str
    """The rule that made it."""
    place: str
    """Id of the node or name of the array that it is about; empty: the whole program."""
    choice: str
    reason: str
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    """The figures that the rule compared."""


@dataclass(frozen=True)
class Plan:
    """The games that an expert's pass proposes for a program, likeliest first, and why."""

    decisions: tuple[Decision, ...]
    games: tuple[Trace, ...]


# -- programs of a target's own machine code ---------------------------------------------------------


@dataclass(frozen=True)
class SimulatedRun:
    """The run of a program in a target's machine code on its simulator."""

    cycles: int
    figures: Mapping[str, float]
    """Other counts of the simulator: name -> value."""
    stalls: Mapping[str, int]
    """Reason why no instruction was issued -> cycles."""
    registers: Mapping[str, str]
    """Registers at the end, as text."""
    trace: tuple[str, ...] = ()
    """One line for each instruction, where a trace was asked for."""


@runtime_checkable
class Simulator(Protocol):
    """Runs a program of the target's own assembly or machine code, which nobody generated.

    Used by ``perfdojo-sdk simulate``.
    """

    def simulate(self, program: Path, *, trace: bool = False, max_cycles: int | None = None) -> SimulatedRun:
        """Run a file of assembly or machine code. A fault of the program is a DojoError with its place."""
        ...


# -- packages ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packable:
    """One verified kernel on its way into a library."""

    name: str
    operator: str
    source: KernelSource


@dataclass(frozen=True)
class PackagedFile:
    """One file of a library."""

    kind: str
    """``header``, ``report``, or the kind of artifact that the target's runner runs."""
    path: str
    """Relative, of letters, digits, ``_``, ``.`` and ``/``."""
    content: bytes = field(repr=False)
    kernels: tuple[str, ...] = ()
    """Names of the kernels whose code it holds: together with ``kind`` and ``content``, each of them
    makes an :class:`Artifact` that the runner runs."""


@dataclass(frozen=True)
class Package:
    """The files that a packager made: every kernel's code stands in exactly one of them."""

    files: tuple[PackagedFile, ...]
    toolchain: str
    """Compiler, version and flags, as one line."""


@runtime_checkable
class Packager(Protocol):
    """Puts verified kernels into the files of a library.

    Sources, programs, traces and the manifest are written by the SDK; a packager makes the compiled
    code and what a user of it needs. The SDK runs every packaged kernel once more before it writes.
    """

    def package(self, name: str, kernels: Sequence[Packable], runner: Runner) -> Package | Failure:
        """``name``: an identifier for the whole, such as ``perfdojo_TARGET``."""
        ...


# -- experiments ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExperimentRequest:
    """The settings of a run of an experiment."""

    folder: Path
    """An existing folder for every file that the experiment writes."""
    quick: bool = False
    """True for minutes instead of hours, with wider error bars or fewer points."""
    target: str = "best"
    """A target's name, or ``best``. An experiment about one target ignores it."""
    kernels: str = ""
    """A selection that replaces the experiment's own kernels, if it has any."""
    evaluations: int | None = None
    """Evaluations of each search in it, instead of the experiment's own number."""
    progress: Callable[[str], None] = field(default=lambda line: None, repr=False)
    """Shows a line of progress to the user."""
    agent: Path | None = None
    """The file of a trained agent, for experiments whose searches can play with one."""
    seconds: float | None = None
    """Most time for long experiments, which then stop, show their results so far, and can go on later."""
    players: tuple[str, ...] = ()
    """Titles of the players beside the expert, if there are several; empty: all of them."""


@dataclass(frozen=True)
class ExperimentResult:
    """The findings of an experiment."""

    text: str
    """The result for a person."""
    data: Mapping[str, Any]
    """The result as JSON values."""
    files: tuple[Path, ...] = ()
    """The files that were written: figures, tables."""


@dataclass(frozen=True)
class Experiment:
    """An experiment that anybody can repeat by name."""

    name: str
    doc: str
    """One sentence: what it shows."""
    run: Callable[[ExperimentRequest], ExperimentResult] = field(repr=False)
