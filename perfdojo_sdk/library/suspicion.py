"""Times that look too good: a time far below a calibrated roofline is marked as suspect; the kernel is kept.

First the kernel is timed again, then the machine is measured again, since the roofline may come from a busy
moment. A time that stays suspect is marked wherever it is shown, and no kernel loses a comparison with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfdojo_sdk.hookspecs.types import Bound, Failure, Measurement
from perfdojo_sdk.library.attempts import Attempt, Rejected, in_a_line
from perfdojo_sdk.library.work import KernelWork
from perfdojo_sdk.measure.answer import at_fault

#: A time below this fraction of a calibrated bound is not believed.
SUSPECT = 0.85
#: How often the machine is measured again before a time counts as suspect; the best figures count.
PROBES = 3


def plausible(work: KernelWork, attempt: Attempt) -> tuple[Attempt, Bound | None]:
    """The attempt, timed again if its time looked too good and suspect if it still does; and its bound.

    :class:`Rejected` when it does not run any more. A roofline from figures that were not measured on this
    device makes no time suspect, nor does that of a whole kernel the time of calls that do not pack again.
    """
    measured, bound = attempt.measured, work.roofline.bound(work.kernel, attempt.trace)
    of_calls_that_pack = attempt.artifact is None or not attempt.artifact.again
    if measured is None or bound is None or not bound.calibrated or attempt.suspect or not of_calls_that_pack:
        return attempt, bound
    if measured.median < SUSPECT * bound.seconds:
        measured = _again(work, attempt)
    for _ in range(PROBES):
        if measured.median >= SUSPECT * bound.seconds:
            break
        work.roofline.probe()
        bound = work.roofline.bound(work.kernel, attempt.trace) or bound
        if measured.median < SUSPECT * bound.seconds:
            # If memory is shared with others, the kernel may have met a better moment than any probe.
            measured = _again(work, attempt)
    why = ""
    if measured.median < SUSPECT * bound.seconds:
        why = f"{measured.median:.3g} s beats the roofline of {bound.seconds:.3g} s"
    return replace(attempt, measured=measured, suspect=why), bound


def believable_first(work: KernelWork, order: Sequence[Attempt]) -> list[Attempt]:
    """``order``, fastest first, but with the first game whose time is believed before all suspect ones.

    If there is no such game, suspect games stay before the initial program, which has no better claim.
    """
    doubted: list[Attempt] = []
    rest = list(order)
    while rest and rest[0].artifact is not None:
        try:
            rest[0], _ = plausible(work, rest[0])
        except Rejected:
            break
        if not rest[0].suspect:
            break
        doubted.append(rest.pop(0))
    doubted.sort(key=lambda attempt: not attempt.trace.steps)
    if rest and rest[0].trace.steps and rest[0].measured:
        return [rest[0], *doubted, *rest[1:]]
    return [*doubted, *rest]


def _again(work: KernelWork, attempt: Attempt) -> Measurement:
    assert attempt.artifact is not None
    measured = work.time(attempt.artifact)
    if at_fault(measured) and attempt.measured is not None:
        return attempt.measured  # the runner failed: the earlier time stays
    if isinstance(measured, Failure):
        raise Rejected(f"it ran once and not twice: {in_a_line(measured)}")
    return measured
