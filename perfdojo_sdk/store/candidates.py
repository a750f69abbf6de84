"""Candidates: programs that a search proposed, each with its time or its failure.

The module holds validated data classes and the interface through which a search stores them. The key of a
candidate is its program and everything else that its time depends on. The search that proposed it, its moves
and the date are in the record, not in the key. So a program is never measured twice, whatever moves led to
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Literal, Protocol

import numpy as np
from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from perfdojo_sdk.core.text import MAX_CHARACTERS
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Failure, FailureReason, Measurement
from perfdojo_sdk.store.records import RecordKey, Sha256, Text, Timing, sha256
from perfdojo_sdk.store.traces import SavedTrace, Strict

#: Most characters that are kept of a compiler's or kernel's message.
MAX_DETAIL = 4000

Duration = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Check = Literal["outputs", "exact", "numeric", "dependence"]


class CandidateKey(Strict):
    """The key of a candidate: everything that its time depends on."""

    conditions: RecordKey
    """Kernel and initial program, target, device, toolchain, plugins, and the way of measuring. The
    settings of the search are not included: a program takes the same time whichever search proposes it."""
    program_sha256: Sha256
    """SHA-256 of the candidate's own text."""

    @cached_property
    def digest(self) -> str:
        return sha256(f"{self.conditions.digest} {self.program_sha256}")


class Timed(Strict):
    """The candidate ran."""

    outcome: Literal["timed"] = "timed"
    timing: Timing
    spread_s: Duration
    """Between the quartiles of the timed calls, in seconds."""
    cut: bool = False
    """True if it was stopped after a few calls, because it could not win; such a time is never the best."""
    passed: tuple[Check, ...] = Field((), max_length=4)
    """The checks that passed: outputs of a run, or legs of verification."""


class Failed(Strict):
    """The candidate did not run, or must not count."""

    outcome: Literal["failed"] = "failed"
    reason: FailureReason
    detail: Annotated[str, StringConstraints(max_length=MAX_DETAIL)] = ""


Result = Annotated[Timed | Failed, Field(discriminator="outcome")]


def result_of(found: Measurement | Failure, passed: tuple[Check, ...] = ()) -> Timed | Failed:
    """Convert a measurement or failure to a stored result. A measurement without a usable time is a
    failure."""
    if isinstance(found, Failure):
        return Failed(reason=found.reason, detail=shortened(found.detail))
    if not found.seconds or not all(0 < s < float("inf") for s in found.seconds):
        return Failed(reason="runtime", detail="the runner gave no usable time")
    low, high = np.quantile(found.seconds, (0.25, 0.75))
    cut = bool(found.details.get("stopped"))
    return Timed(timing=Timing.of(found), spread_s=float(high - low), cut=cut, passed=passed)


def shortened(detail: str) -> str:
    """``detail`` in the form that is stored: its beginning and its end, without NUL characters."""
    text = detail.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")
    if len(text) <= MAX_DETAIL:
        return text
    mark = f"\n... {len(text) - MAX_DETAIL} characters and more left out ...\n"
    kept = MAX_DETAIL - len(mark)
    return text[: kept * 2 // 3] + mark + text[len(text) - kept + kept * 2 // 3 :]


class Proposer(Strict):
    """The search that proposed a candidate."""

    search: Text
    seed: Annotated[int, Field(strict=True, ge=-(2**63), lt=2**64)] = 0
    number: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 0
    """Number of the evaluation in its search, from 1; 0 when unknown."""


class StageSeconds(Strict):
    """Seconds of wall time that went into one candidate; None: that stage was not reached."""

    propose_s: Duration | None = None
    compile_s: Duration | None = None
    verify_s: Duration | None = None
    measure_s: Duration | None = None


class Candidate(Strict):
    """One evaluation of one program."""

    key: CandidateKey
    trace: SavedTrace
    """The moves that lead from the initial program to this one."""
    program: Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
    result: Result
    proposer: Proposer
    took: StageSeconds = StageSeconds()
    at: AwareDatetime
    """The time at which the evaluation ended."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Candidate:
        if sha256(self.program) != self.key.program_sha256:
            raise ValueError("the program is not the one that the key names")
        if sha256(self.trace.root) != self.key.conditions.program_sha256:
            raise ValueError("the trace does not start at the initial program that the key names")
        try:
            self.at.astimezone(UTC)
        except OverflowError:
            raise ValueError("the evaluation ended before the year 1 or after 9999, in UTC") from None
        if "\0" in self.trace.root:
            raise ValueError("the initial program holds a character that no database keeps")
        return self

    @classmethod
    def of(
        cls,
        conditions: RecordKey,
        trace: Trace,
        result: Timed | Failed,
        proposer: Proposer,
        took: StageSeconds | None = None,
        at: datetime | None = None,
    ) -> Candidate:
        """The record of a game that was evaluated just now, or at ``at``."""
        return cls(
            key=key_of(conditions, trace),
            trace=SavedTrace.of(trace),
            program=trace.program.text,
            result=result,
            proposer=proposer,
            took=took or StageSeconds(),
            at=at or datetime.now(UTC),
        )

    @property
    def seconds(self) -> float | None:
        """Median of the timed calls; None when it failed."""
        return self.result.timing.median_s if isinstance(self.result, Timed) else None

    @property
    def failure(self) -> Failure | None:
        result = self.result
        return Failure(result.reason, result.detail) if isinstance(result, Failed) else None


def key_of(conditions: RecordKey, trace: Trace) -> CandidateKey:
    """The key of the candidate at the end of ``trace``."""
    return CandidateKey(conditions=conditions, program_sha256=sha256(trace.program.text))


class CandidateLog(Protocol):
    """The part of a candidate store that a running search uses."""

    def find(self, key: CandidateKey) -> Candidate | None:
        """The candidate under ``key``, if it was evaluated before."""
        ...

    def put(self, candidate: Candidate) -> None:
        """Keep a candidate; it survives the end of this process from when this returns.

        Of two under one key the one that was evaluated later stays, so a repetition does not double.
        """
        ...

    def of(self, kernel: str, target: str) -> Iterator[Candidate]:
        """All candidates of a kernel for a target, on any device, in the order of their first put.

        ``kernel`` is a full name, with sizes and dtype: ``softmax_64x128_f32``.
        """
        ...


class CandidateStore(CandidateLog, Protocol):
    """A store of candidates. ``Records(place).candidates`` is one in a database.

    Any number of processes may use one database at once, each through an object that it opened itself
    or inherited from its parent.
    """

    def best(self, conditions: RecordKey) -> Candidate | None:
        """The fastest one that was timed to the end under equal conditions.

        A measured time is better than a simulated one, and that better than an estimate.
        """
        ...
