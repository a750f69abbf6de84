"""The order in which attempts may enter a library: the fastest first, by times that chance does not
explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement
from perfdojo_sdk.library.attempts import Attempt, median
from perfdojo_sdk.library.suspicion import believable_first
from perfdojo_sdk.library.work import PATIENCE_S, KernelWork
from perfdojo_sdk.measure.timing import ratio_by_rounds

#: Number of the fastest games of a search that get a long timing, besides the expert's own.
FINALISTS = 4
#: Games get a long timing if they came within this factor of the fastest.
CLOSE = 1.25
#: A plainer game that is slower by less than this factor stays in front unless chance cannot explain it.
ALIKE = 1.05
#: Least number of moves of a game whose proofs take long.
LONG_GAME = 200
#: If the long timing is this many times the first time, the machine was busy, and it is repeated.
BUSY = 1.05
#: Most long timings of one game.
PATIENCE = 4


def ranked(work: KernelWork, attempts: Sequence[Attempt], initial: Attempt) -> list[Attempt]:
    """``attempts`` and the initial program, the best first; those without a figure come last.

    Those close to the fastest get a long timing; the initial program is among them if its time has the same
    provenance. A time that is not believed does not count.
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
    """The attempts, fastest first; those close to the fastest get a long timing, in turns if the runner can.

    If they take turns, a plainer game stays in front of others that are not significantly faster. The winner
    is timed alone once more before it ships.
    """
    work.stage("confirming")
    worth = work.context.settings.worth_of_proofs
    close, rest = near_fastest(attempts, worth)
    close.sort(key=plainness)
    artifacts = [attempt.artifact for attempt in close if attempt.artifact is not None]
    times = work.time_in_turns(artifacts) if len(close) > 1 else None
    if times is None:
        return sorted(
            [*(timed_again(attempt, work.time, work.patience_s) for attempt in close), *rest], key=median
        )
    return by_turns([a.timed(time) for a, time in zip(close, times, strict=True)], rest, worth)


def timed_again(
    attempt: Attempt, time: Callable[[Artifact], Measurement | Failure], patience_s: float = PATIENCE_S
) -> Attempt:
    """The attempt with a long timing, which is repeated if its first time was better: the machine was
    busy. There is no further one after ``patience_s`` seconds."""
    if attempt.artifact is None or attempt.measured is None:
        return attempt
    found: list[Measurement] = []
    begin = perf_counter()
    while not found or (
        len(found) < PATIENCE
        and found[-1].median > BUSY * attempt.measured.median
        and perf_counter() - begin < patience_s
    ):
        measured = time(attempt.artifact)
        if isinstance(measured, Failure):
            return replace(attempt, measured=None, reason=measured)
        found.append(measured)
    return replace(attempt, measured=min(found, key=lambda m: m.median))


# -- pure ------------------------------------------------------------------------------------------


def near_fastest(
    attempts: Sequence[Attempt], worth_of_proofs: float = 1.0
) -> tuple[list[Attempt], list[Attempt]]:
    """The attempts that ran and came within :data:`CLOSE` of the fastest, or near enough to be preferred if
    that is a long game, and the others, both in their order."""
    fastest = min(attempts, key=median, default=None)
    if fastest is None:
        return [], []
    factor = max(CLOSE, worth_of_proofs) if len(fastest.trace.steps) >= LONG_GAME else CLOSE
    limit = factor * median(fastest)
    close, rest = list[Attempt](), list[Attempt]()
    for attempt in attempts:
        (close if attempt.measured and median(attempt) <= limit else rest).append(attempt)
    return close, rest


def by_turns(
    took_turns: Sequence[Attempt], rest: Sequence[Attempt], worth_of_proofs: float = 1.0
) -> list[Attempt]:
    """The first unbeaten one of the attempts that took turns, then all others, fastest first."""
    unbeaten = first_unbeaten(took_turns, worth_of_proofs)
    others = [attempt for attempt in (*took_turns, *rest) if attempt is not unbeaten]
    return [*([unbeaten] if unbeaten else []), *sorted(others, key=median)]


def plainness(attempt: Attempt) -> tuple[bool, bool, int, int]:
    """The order of games whose times are alike: those that a search began with, before what it found; then
    those that change less of the arithmetic, and shorter ones, which take less to prove; the initial program
    last."""
    return not attempt.trace.steps, not attempt.began, attempt.trace.kind, len(attempt.trace.steps)


def first_unbeaten(attempts: Sequence[Attempt], worth_of_proofs: float = 1.0) -> Attempt | None:
    """The first of attempts that took turns that is slower than the fastest neither significantly nor by
    much, as seems where there was time for few rounds. A long game has to be faster by the factor
    ``worth_of_proofs`` than one of less than half its moves.

    Many programs are as fast as memory allows, and chance would choose among them; its choice may be slow on
    a machine with faster memory. None when nothing ran.
    """
    fastest = min(attempts, key=median, default=None)
    if fastest is None or fastest.measured is None:
        return None
    return next(a for a in attempts if a is fastest or _stays_in_front(a, fastest, worth_of_proofs))


def _stays_in_front(plain: Attempt, fastest: Attempt, worth_of_proofs: float) -> bool:
    """True if a plainer game than the fastest one is fast enough to stay in front of it."""
    if plain.measured is None or fastest.measured is None:
        return False
    slower, moves, most = median(plain) / median(fastest), len(plain.trace.steps), len(fastest.trace.steps)
    if most >= LONG_GAME and 0 < 2 * moves < most and slower <= worth_of_proofs:
        return True
    return slower <= ALIKE and not _slower_beyond_doubt(plain.measured, fastest.measured)


def _slower_beyond_doubt(one: Measurement, other: Measurement) -> bool:
    """True if the whole 95 % interval of their ratio, over the rounds that both ran, is above 1."""
    pairs = list(zip(one.seconds, other.seconds, strict=False))
    return ratio_by_rounds([[ours] for ours, _ in pairs], [[theirs] for _, theirs in pairs]).low > 1


def of_one_provenance(attempts: Sequence[Attempt]) -> bool:
    """True when the times of all attempts that ran have one provenance, so that they may be compared."""
    return len({attempt.measured.provenance for attempt in attempts if attempt.measured}) == 1


def untimed_last(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts in their order, but those without a time last."""
    return sorted(attempts, key=lambda attempt: attempt.untimed)
