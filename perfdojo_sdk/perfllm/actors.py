"""A training whose games are played elsewhere: who plays, and how the learner follows.

Each pupil has at most one job out. When it comes back the learner merges its experience, learns what the
evaluations have earned, and orders the next one with the network as it is now. Which job comes back first is
chance, so such a training is not repeatable to the bit; what it has measured is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Protocol

from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.perfllm.episodes import EVALUATIONS, Copy, Experience, Job
from perfdojo_sdk.perfllm.learner import LearnError
from perfdojo_sdk.store.candidates import Candidate, CandidateLog

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.pupil import Pupil
    from perfdojo_sdk.perfllm.trainer import Training


class Actors(Protocol):
    """Who plays for a training. Whatever they measure is recorded before it is heard of here."""

    @property
    def room(self) -> int:
        """How many jobs they can be given at once; those that wait for a device included."""
        ...

    def context(self, target: str, settings: Settings) -> BuildContext:
        """What the learner needs to know of the place where ``target`` is: its device, its toolchain."""
        ...

    def order(self, job: Job) -> None:
        """Have it played. An actor that dies is their matter."""
        ...

    def next(self) -> tuple[Job, Experience] | None:
        """What came back; None when there was nothing for a few seconds."""
        ...

    def stop(self) -> None:
        """Give up all that is out."""
        ...


def rounds(training: Training, actors: Actors, store: CandidateLog | None) -> Generator[None, None, None]:
    """Train until it is over; each step of the generator is a moment between two changes."""
    away: set[int] = set()
    try:
        while not training.over:
            for number in _waiting(training, away)[: max(0, actors.room - len(away))]:
                away.add(number)
                actors.order(_job(training, number, store))
            back = actors.next()
            if back is not None:
                job, experience = back
                away.remove(job.number)
                _learn(training, training.pupils[job.number], experience)
            yield
    finally:
        actors.stop()


def _waiting(training: Training, away: set[int]) -> list[int]:
    """Pupils that can be given work, those with the fewest evaluations first."""
    idle = [(p.evaluations, n) for n, p in enumerate(training.pupils) if not p.finished and n not in away]
    return [number for _, number in sorted(idle)]


def _job(training: Training, number: int, store: CandidateLog | None) -> Job:
    plan, pupil = training.plan, training.pupils[number]
    return Job(
        number,
        pupil.context.target.name,
        pupil.kernel,
        pupil.context.settings,
        Copy.of(training.mind),
        pupil.player.state(),
        min(EVALUATIONS, plan.evaluations - pupil.evaluations),
        tuple(_new_to(pupil, store)) if store is not None else (),
    )


def _new_to(pupil: Pupil, store: CandidateLog) -> Iterator[Candidate]:
    """Recorded candidates that the pupil may yet propose, and its fastest one."""
    player, key = pupil.player, pupil.evaluator.conditions.key
    best = player.met[player.best].program if player.timed else ""
    for candidate in store.of(pupil.kernel.name, pupil.context.target.name):
        program = candidate.key.program_sha256[:24]
        if candidate.key.conditions == key and (program == best or program not in player.known):
            yield candidate


def _learn(training: Training, pupil: Pupil, experience: Experience) -> None:
    learner = training.mind.learner
    try:
        learner.replay.merge(experience.skeleton, experience.arrays)
        pupil.player = pupil.player.at(experience.player)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        what = f"what an actor has seen of {pupil.name} does not fit to what is known"
        hint = "see that all machines have equal plugins and encoders, and go on with --resume"
        raise LearnError("PD-N102", what, why=f"{type(error).__name__}: {error}", hint=hint) from None
    player = pupil.player
    player.loss = learner.evaluated(experience.evaluations)
    pupil.evaluator.tally.failures.update(experience.failures)
    pupil.since_best = len(player.met) - 1 - (player.best if player.timed else -1)
    training.played(pupil, experience.evaluations, experience.ended)
