"""Execution ``threads``: the kernel on many numbers of threads, absurd ones among them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from perfdojo_sdk.core.interface import MAX_THREADS, TOO_MANY_THREADS, WORKSPACE_TOO_SMALL
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.measure.guard_pages import CACHE_LINE, FencedArray, untouched
from perfdojo_sdk.measure.kernel_calls import Refused, check_status, poison_of
from perfdojo_sdk.measure.trial import ALONE, FEWEST_CALLS, FEWEST_COUNTS, TOGETHER, Trial

#: Seconds for threads that share a part of the workspace to collide: a collision shows only if both write at
#: the same moment.
COLLIDING_S = 0.3
#: Most threads for which calls are repeated for that time; with more, there is one call.
FEW_THREADS = 3
#: Seconds for trying numbers of threads; those beyond this many threads run in any case.
COUNTING_S, MANY_THREADS = 0.2, 64
#: Absurd numbers of threads: the least and the largest value of the argument.
LEAST_THREADS, MOST_THREADS = -(1 << 31), (1 << 31) - 1


def threads(trial: Trial) -> None:
    counts = trial.arguments.counts
    for count in counts[:FEWEST_COUNTS]:
        _with_threads(trial, count, _collide)
    end = time.monotonic() + COUNTING_S
    for count in counts[FEWEST_COUNTS:]:
        if count > MANY_THREADS or time.monotonic() < end:
            _with_threads(trial, count, _collide)
    for count in (0, -1, LEAST_THREADS):
        _with_threads(trial, count, _as_one)
    for count in (MAX_THREADS + 1, MOST_THREADS):
        _with_threads(trial, count, _too_many)


def _with_threads(trial: Trial, count: int, action: Callable[[Trial, int], None]) -> None:
    trial.tell("threads", str(count))
    try:
        action(trial, count)
    except Refused as refused:
        raise Refused(refused.reason, f"on {number_of(count, 'threads')}: {refused.detail}") from None


def _collide(trial: Trial, count: int) -> None:
    """Call once; or many times if each thread has a slot of the workspace, since two that share one by
    mistake seldom collide."""
    arguments = trial.arguments
    arguments.call("end", count)
    size = arguments.kernel.workspace_bytes(count)
    if size <= arguments.kernel.workspace_bytes(ALONE):
        return
    end = time.monotonic() + COLLIDING_S * (count <= FEW_THREADS)
    while time.monotonic() < end:
        check_status(arguments.kernel.enter(arguments.arrays, arguments.workspace, size, count))
        arguments.check()
    if count <= trial.job["busy_threads"] and arguments.kernel.used().threads >= count:
        _uses_its_slots(trial, size, count)


def _uses_its_slots(trial: Trial, size: int, count: int) -> None:
    """Raise unless threads have written into all slots of the workspace. If two threads share a slot, another
    slot stays unwritten, even if they do not collide; for some number of threads, it is the last one."""
    arguments = trial.arguments
    left = _unused(arguments.workspace)
    for _ in range(FEWEST_CALLS):  # a thread may start so late that others have done its work
        arguments.call("end", ALONE)
        spare = _unused(arguments.workspace)
        if left <= spare + CACHE_LINE:
            return
        arguments.call("end", count)
        left = min(left, _unused(arguments.workspace))
    raise Refused(
        "wrong_result",
        f"of {size} bytes of workspace that the kernel asks for, it leaves the last {left} as they are,"
        f" {spare} on one thread: threads share what each should have of its own",
    )


def _unused(array: FencedArray) -> int:
    """The number of bytes at the end of an array that are still poison."""
    written = np.flatnonzero(array.bytes != poison_of(array.dtype, 0))
    return array.bytes.size - (int(written[-1]) + 1 if written.size else 0)


def _as_one(trial: Trial, count: int) -> None:
    """Call with fewer than one thread, which counts as one."""
    trial.arguments.call("end", count)


def _too_many(trial: Trial, count: int) -> None:
    """Call with too many threads: the kernel has to refuse and write nothing, or to run on fewer."""
    arguments = trial.arguments
    size = arguments.arrange("end", TOGETHER)
    status = arguments.kernel.enter(arguments.arrays, arguments.workspace, size, count)
    if status == 0:
        arguments.check()
    elif status not in (TOO_MANY_THREADS, WORKSPACE_TOO_SMALL):
        raise Refused("wrong_result", f"the kernel returned {status} instead of {TOO_MANY_THREADS}")
    elif not all(map(untouched, arguments.outputs)):
        raise Refused("wrong_result", "the kernel refuses, and writes all the same")
