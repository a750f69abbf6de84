"""Attempts in the order in which they may enter a library: who is fastest, beyond luck and beyond doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement
from perfdojo_sdk.library.attempts import Attempt, median
from perfdojo_sdk.library.suspicion import believable_first
from perfdojo_sdk.library.work import KernelWork
from perfdojo_sdk.measure.timing import ratio_by_rounds

#: So many of the fastest games of a search are timed at length, and the expert's own beside them,
FINALISTS = 4
#: if they came within this factor of the fastest.
CLOSE = 1.25
#: What took so many times as long at length as at first sight met a busy machine.
BUSY = 1.05
#: How often at most that is tried: a busy moment may last for seconds.
PATIENCE = 4


def ranked(work: KernelWork, attempts: Sequence[Attempt], initial: Attempt) -> list[Attempt]:
    """``attempts`` and the initial program, the best first; those without a figure come last.

    Those close to the fastest are timed at length; the initial program is among them where its time is of
    the same kind. A figure that is not believed ranks nothing.
    """
    order = [*attempts, initial]
    if any(attempt.measured for attempt in attempts):
        if of_one_provenance(order):
            order = confirmed(work, order)
        else:
            order = [*confirmed(work, attempts), initial]
        order = believable_first(work, order)
    return untimed_last(order)


def confirmed(work: KernelWork, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Fastest first; those close to it are timed at length, in turns where the runner can.

    In turns, an earlier attempt stays in front of all that are not faster beyond doubt. Who wins is timed
    alone once more before it ships.
    """
    work.stage("confirming")
    close, rest = near_fastest(attempts)
    artifacts = [attempt.artifact for attempt in close if attempt.artifact is not None]
    times = work.time_in_turns(artifacts) if len(close) > 1 else None
    if times is None:
        return sorted([*(timed_again(attempt, work.time) for attempt in close), *rest], key=median)
    return by_turns([a.timed(time) for a, time in zip(close, times, strict=True)], rest)


def timed_again(attempt: Attempt, time: Callable[[Artifact], Measurement | Failure]) -> Attempt:
    """The attempt timed at length; again where it was faster at first, as a busy moment may pass."""
    if attempt.artifact is None or attempt.measured is None:
        return attempt
    found: list[Measurement] = []
    while not found or (len(found) < PATIENCE and found[-1].median > BUSY * attempt.measured.median):
        measured = time(attempt.artifact)
        if isinstance(measured, Failure):
            return replace(attempt, measured=None, reason=measured)
        found.append(measured)
    return replace(attempt, measured=min(found, key=lambda m: m.median))


# -- pure ------------------------------------------------------------------------------------------


def near_fastest(attempts: Sequence[Attempt]) -> tuple[list[Attempt], list[Attempt]]:
    """The attempts that ran and came within :data:`CLOSE` of the fastest, and the others, both in their
    order."""
    limit = CLOSE * min(map(median, attempts), default=0.0)
    close, rest = list[Attempt](), list[Attempt]()
    for attempt in attempts:
        (close if attempt.measured and median(attempt) <= limit else rest).append(attempt)
    return close, rest


def by_turns(took_turns: Sequence[Attempt], rest: Sequence[Attempt]) -> list[Attempt]:
    """The first that is unbeaten among those that took turns, then everybody else, fastest first."""
    unbeaten = first_unbeaten(took_turns)
    others = [attempt for attempt in (*took_turns, *rest) if attempt is not unbeaten]
    return [*([unbeaten] if unbeaten else []), *sorted(others, key=median)]


def first_unbeaten(attempts: Sequence[Attempt]) -> Attempt | None:
    """The first of attempts that took turns that is not slower than the fastest beyond doubt.

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


def of_one_provenance(attempts: Sequence[Attempt]) -> bool:
    """True when all that ran may be compared: what is estimated is no match for what is measured."""
    return len({attempt.measured.provenance for attempt in attempts if attempt.measured}) == 1


def untimed_last(attempts: Sequence[Attempt]) -> list[Attempt]:
    """In their order, but for those without a figure, which rank nothing."""
    return sorted(attempts, key=lambda attempt: attempt.untimed)
