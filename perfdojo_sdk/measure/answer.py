"""The answer of a child process, parsed as untrusted input: the kernel in it may have forged it.

A kernel shares its process with the worker, so it can write any result in the worker's place. An answer is
accepted only in the right form, and times only as far as the parent's own clock confirms them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, get_args

from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.hookspecs.types import Failure, FailureReason, RunRequest
from perfdojo_sdk.measure.worker import MOST_CALLS

#: The start of the detail of a failure that the kernel probably did not cause.
RUNNER_FAULT = "runner fault"
#: Most characters of a detail.
MOST_SAID = 2000
_MOST_DETAILS, _MOST_DETAIL = 256, 1e18
_MOST_SECONDS = 1e6
#: Least seconds of a call: no processor calls a function and returns in less.
_LEAST_SECONDS = 5e-10
#: Seconds for which a busy machine may keep a process from running.
_SLACK_S = 0.5
#: Batches of calls have to take at least this part of the time between the marks; and timed batches, of the
#: time of all batches, at least this part of their share by number.
_LEAST_SHARE, _LEAST_TIMED = 1 / 20, 1 / 8


@dataclass(frozen=True)
class KernelAnswer:
    """The answer for one kernel."""

    failure: Failure | None
    seconds: tuple[float, ...]
    """Seconds of each timed call, or batch of calls."""
    details: Mapping[str, float]
    busy_s: float
    """All calls between the marks together; 0 when only the first calls were timed."""
    executions: tuple[str, ...] = ()
    """The requested executions that were run."""


@dataclass(frozen=True)
class Answer:
    """The answer for all kernels of a job."""

    elapsed_s: float
    """Seconds between the marks by the child's clock."""
    cold: bool
    kernels: tuple[KernelAnswer, ...]


class Malformed(Exception):
    """The content is no valid answer; the message gives the reason."""


def runner_fault(what: str) -> Failure:
    return Failure("runtime", f"{RUNNER_FAULT}: {what}")


def at_fault(result: object) -> bool:
    """True if the result is a failure made by :func:`runner_fault`."""
    return isinstance(result, Failure) and result.detail.startswith(RUNNER_FAULT)


def read_answer(path: Path, request: RunRequest, kernels: int) -> Answer:
    """The answer in a file; :class:`Malformed` when it is none."""
    most = (64 << 10) + kernels * (4 * MOST_SAID + 32 * request.repeats)
    try:
        raw = json.loads(read_bounded(path, most, inside=path.parent))
        told = [_kernel(each, request) for each in _sequence(raw["kernels"], kernels)]
        if len(told) != kernels:
            raise Malformed(f"it tells of {number_of(len(told), 'kernels')} instead of {kernels}")
        cold = raw["cold"]
        if not isinstance(cold, bool):
            raise Malformed("whether caches were cold is neither true nor false")
        return Answer(_number(raw["elapsed_ns"], _MOST_SECONDS * 1e9) * 1e-9, cold, tuple(told))
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise Malformed(f"{type(error).__name__} {error}"[:MOST_SAID]) from None


def _kernel(raw: Any, request: RunRequest) -> KernelAnswer:
    failure, raw = None, dict(raw)
    if raw["failure"] is not None:
        reason, detail = raw["failure"]
        if reason not in get_args(FailureReason) or not isinstance(detail, str):
            raise Malformed("a failure has a reason that there is not")
        failure = Failure(reason, detail[:MOST_SAID].encode("utf-8", "replace").decode())
    seconds = tuple(_number(s, _MOST_SECONDS) for s in _sequence(raw["seconds"], max(request.repeats, 1)))
    if seconds and min(seconds) < _LEAST_SECONDS:
        raise Malformed(f"a call took {min(seconds):g} s, which none can")
    details = {name[:64]: _number(value, _MOST_DETAIL) for name, value in dict(raw["details"]).items()}
    if len(details) > _MOST_DETAILS:
        raise Malformed(f"more than {_MOST_DETAILS} details")
    executions = tuple(_sequence(raw.get("executions", []), len(request.executions)))
    if not set(executions) <= set(request.executions):
        raise Malformed("it was put through an execution that nobody had asked for")
    return KernelAnswer(failure, seconds, details, _number(raw.get("busy_s", 0), _MOST_SECONDS), executions)


def _sequence(value: Any, most: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise Malformed(f"a list of at most {most} was expected")
    return value


def _number(value: Any, most: float) -> float:
    """A number from 0 to ``most``; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed("a number was expected")
    if not 0 <= value <= most or not isfinite(value):
        raise Malformed(f"a number from 0 to {most:g} was expected")
    return float(value)


def doubt(answer: Answer, request: RunRequest, marks: str, lived_s: float) -> str:
    """The reason why the answer's times are implausible; "" when they are plausible.

    ``marks``: what the child sent while it timed. ``lived_s``: how long it ran, by our own clock.
    """
    timed = [k for k in answer.kernels if k.seconds and not k.failure]
    if any(not k.busy_s and not _slow_at_once(k, request, lived_s) for k in timed):
        return "a kernel has a time that was not measured between the marks of the clock"
    raced = [k for k in timed if k.busy_s]
    if raced and not request.repeats:
        return "times came that nobody had asked for"
    if raced and marks != "BE":
        return "the child ended before the clock's second mark"
    busy = sum(k.busy_s for k in answer.kernels)
    if busy > answer.elapsed_s * 1.001 + 1e-4:
        return f"calls took {busy:.3g} s of the {answer.elapsed_s:.3g} s between the clock's marks"
    if raced and busy < (answer.elapsed_s - _SLACK_S) * _LEAST_SHARE:
        return f"calls took only {busy:.3g} s of the {answer.elapsed_s:.3g} s between the clock's marks"
    return next((words for k in raced if (words := _unaccounted(k))), "")


def _slow_at_once(kernel: KernelAnswer, request: RunRequest, lived_s: float) -> bool:
    """True if one of the first calls took so long that no further one was timed."""
    [slow, *more] = kernel.seconds
    given_up = request.stop_above_s is not None and slow > request.stop_above_s
    enough = request.repeats and request.first_look and slow >= request.budget_s
    return not more and slow <= lived_s and bool(given_up or enough)


def _unaccounted(kernel: KernelAnswer) -> str:
    """The reason why a kernel's times and numbers of calls do not fit the total time of its calls; "" if they
    do."""
    calls = kernel.details.get("calls", 0)
    if not (1 <= calls <= MOST_CALLS and calls == int(calls)):
        return f"{calls:g} calls in a batch"
    rounds = len(kernel.seconds)
    told = sum(kernel.seconds) * calls
    least = (kernel.busy_s - _SLACK_S) * rounds / (rounds + 2) * _LEAST_TIMED
    if least <= told <= kernel.busy_s * 1.001 + 1e-6:
        return ""
    return f"timed calls took {told:.3g} s of the {kernel.busy_s:.3g} s that all calls took"
