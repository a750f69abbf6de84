"""A program on its way into a library: how far it came, and in words why not farther."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.search import Evaluation
from perfdojo_sdk.hookspecs.types import Artifact, CodeGenerator, Failure, KernelSource, Measurement
from perfdojo_sdk.measure.answer import at_fault, runner_fault
from perfdojo_sdk.measure.timing import ratio_by_rounds


class Rejected(Exception):
    """A candidate does not enter the library, and why. Never leaves this package."""


@dataclass(frozen=True)
class Attempt:
    """A program on its way: as far as it came, and why not farther."""

    trace: Trace
    source: KernelSource | None = None
    artifact: Artifact | None = None
    measured: Measurement | None = None
    reason: Failure | None = None
    suspect: str = ""
    """Why its time is too good to be believed."""

    @property
    def failure(self) -> str:
        return in_a_line(self.reason) if self.reason else ""

    @property
    def untimed(self) -> bool:
        """Whether it compiled, and all that is wrong is that the runner gave no figure."""
        return self.artifact is not None and self.measured is None and at_fault(self.reason)

    @property
    def label(self) -> str:
        return "what the search found" if self.trace.steps else "the initial program"

    def timed(self, measured: Measurement | Failure) -> Attempt:
        if isinstance(measured, Failure):
            return replace(self, measured=None, reason=measured)
        return replace(self, measured=measured)

    @property
    def evaluation(self) -> Evaluation:
        """What the player is told."""
        seconds = self.measured.median if self.measured else None
        return Evaluation(self.trace, seconds, None if self.measured else self.reason)


def generated(generator: CodeGenerator, game: Trace, symbol: str) -> KernelSource | Failure:
    """The game's last program as code; what the generator, a plugin's, does wrong is a failure."""
    try:
        return generator.generate(game.program, symbol)
    except Exception as error:
        return Failure("constraints", f"no code can be generated: {said(error)}")


def counted(measured: Measurement | Failure) -> Measurement | Failure:
    """The run, unless it holds no time."""
    if isinstance(measured, Measurement) and not measured.seconds:
        return runner_fault("the runner timed no call")
    return measured


def of_one_provenance(attempts: Sequence[Attempt]) -> bool:
    """Whether all who ran may be compared: what is estimated is no match for what is measured."""
    return len({attempt.measured.provenance for attempt in attempts if attempt.measured}) == 1


def untimed_last(attempts: Sequence[Attempt]) -> list[Attempt]:
    """In their order, but for those without a figure, which rank nothing."""
    return sorted(attempts, key=lambda attempt: attempt.untimed)


def median(attempt: Attempt) -> float:
    """Seconds; infinite for what did not run."""
    return attempt.measured.median if attempt.measured else float("inf")


def first_unbeaten(attempts: Sequence[Attempt]) -> Attempt | None:
    """Of attempts that took turns: the first that is not slower than the fastest beyond doubt.

    Many programs are as fast as memory allows, and luck would choose among them; what it chooses may be
    slow where memory is faster. None when nothing ran.
    """
    fastest = min(attempts, key=median, default=None)
    if fastest is None or fastest.measured is None:
        return None
    return next(a for a in attempts if a.measured and not _slower_beyond_doubt(a.measured, fastest.measured))


def _slower_beyond_doubt(one: Measurement, other: Measurement) -> bool:
    """By the rounds that both ran."""
    pairs = list(zip(one.seconds, other.seconds, strict=False))
    return ratio_by_rounds([[ours] for ours, _ in pairs], [[theirs] for _, theirs in pairs]).low > 1


def said(error: Exception) -> str:
    """What an error says, one of a plugin's code included, and why where it knows."""
    if not isinstance(error, DojoError):
        return f"{type(error).__name__}: {error}"
    return f"{error.what}: {error.why}" if error.why else error.what


def in_a_line(failure: Failure) -> str:
    """A failure on one line."""
    return f"{failure.reason}: {failure.detail.partition(chr(10))[0]}"
