"""The node's side of a training: one job, played on this node's device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfdojo_sdk.cluster.equipment import Equipment
from perfdojo_sdk.cluster.worker import Assignment, Ended, Event, Sending, Tell, context_at, told
from perfdojo_sdk.library.attempts import Rejected
from perfdojo_sdk.library.evaluation import DeviceGone

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.episodes import Experience, Job


def act(wanted: Equipment, job: Job, place: Assignment) -> Iterator[Event]:
    """Play ``job`` and yield its candidates as they come. The last event is :class:`Ended`."""
    yield from told(lambda tell: Ended(experience=_experience(wanted, job, place, tell)))


def _experience(wanted: Equipment, job: Job, place: Assignment, tell: Tell) -> Experience:
    from perfdojo_sdk.perfllm.episodes import play

    try:
        return play(job, context_at(wanted, job.settings, place), Sending(job.known, tell))
    except DeviceGone as error:
        raise Rejected(f"the device is gone: {error}") from None
