"""Attempts: programs on their way into a library, with the step that failed and the reason in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement
from perfdojo_sdk.measure.answer import at_fault


class Rejected(Exception):
    """Raised with the reason when a candidate does not enter the library; caught within this package."""


@dataclass(frozen=True)
class Attempt:
    """A program on its way into a library: its source, artifact and measurement, as far as it got, and the
    failure that stopped it."""

    trace: Trace
    source: KernelSource | None = None
    artifact: Artifact | None = None
    measured: Measurement | None = None
    reason: Failure | None = None
    suspect: str = ""
    """The reason why its time is too good to be believed."""
    began: bool = False
    """True for a game that was there before a search: the expert's, or what an earlier search has kept."""

    @property
    def failure(self) -> str:
        return in_a_line(self.reason) if self.reason else ""

    @property
    def untimed(self) -> bool:
        """True when it compiled, and its only fault is that the runner gave no time."""
        return self.artifact is not None and self.measured is None and at_fault(self.reason)

    @property
    def label(self) -> str:
        return "what the search found" if self.trace.steps else "the initial program"

    def timed(self, measured: Measurement | Failure) -> Attempt:
        if isinstance(measured, Failure):
            return replace(self, measured=None, reason=measured)
        return replace(self, measured=measured)


def median(attempt: Attempt) -> float:
    """The median time in seconds; infinite if the attempt did not run."""
    return attempt.measured.median if attempt.measured else float("inf")


def said(error: Exception) -> str:
    """The words of an error, one of a plugin's code included, with its reason where it has one."""
    if not isinstance(error, DojoError):
        return f"{type(error).__name__}: {error}"
    return f"{error.what}: {error.why}" if error.why else error.what


def in_a_line(failure: Failure) -> str:
    """A failure on one line."""
    return f"{failure.reason}: {failure.detail.partition(chr(10))[0]}"
