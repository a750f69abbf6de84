"""A training whose games are played by other processes: the interface of actors, and the learner's loop.

Each task has at most one job in flight. When a job returns, the learner merges its experience, takes the
gradient steps due for its evaluations, and sends the next job with the current network. The order in which
jobs return is not determined, so such a training does not repeat bit for bit; its records stay valid.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Protocol

from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.perfllm.episodes import EVALUATIONS, AgentSnapshot, Experience, Job
from perfdojo_sdk.perfllm.learner import LearnError
from perfdojo_sdk.perfllm.training import Training
from perfdojo_sdk.perfllm.training_task import TrainingTask
from perfdojo_sdk.store.candidates import Candidate, CandidateLog


class Actors(Protocol):
    """Plays games for a training. Each measurement is recorded before its job is returned."""

    @property
    def room(self) -> int:
        """The most jobs that may be in flight at once, those waiting for a device included."""
        ...

    def context(self, target: str, settings: Settings) -> BuildContext:
        """A context that describes the machine of ``target``: its device and toolchain."""
        ...

    def order(self, job: Job) -> None:
        """Send a job. If its actor dies, the implementation sends the job again."""
        ...

    def next(self) -> tuple[Job, Experience] | None:
        """A returned job and its experience; None when none returned for a few seconds."""
        ...

    def stop(self) -> None:
        """Cancel all jobs in flight."""
        ...


def rounds(training: Training, actors: Actors, store: CandidateLog | None) -> Generator[None, None, None]:
    """Train until the training is over. The state is consistent, and can be saved, at each yield."""
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
                _learn(training, training.tasks[job.number], experience)
            yield
    finally:
        actors.stop()


def _waiting(training: Training, away: set[int]) -> list[int]:
    """Numbers of unfinished tasks without a job in flight, those with the fewest evaluations first."""
    idle = [(p.evaluations, n) for n, p in enumerate(training.tasks) if not p.finished and n not in away]
    return [number for _, number in sorted(idle)]


def _job(training: Training, number: int, store: CandidateLog | None) -> Job:
    plan, task = training.plan, training.tasks[number]
    return Job(
        number,
        task.context.target.name,
        task.kernel,
        task.context.settings,
        AgentSnapshot.of(training.agent),
        task.player.state(),
        min(EVALUATIONS, plan.evaluations - task.evaluations),
        tuple(_new_to(task, store)) if store is not None else (),
    )


def _new_to(task: TrainingTask, store: CandidateLog) -> Iterator[Candidate]:
    """Recorded candidates that the task's player has not met, and its fastest one."""
    player, key = task.player, task.evaluator.conditions.key
    best = player.met[player.best].program if player.timed else ""
    for candidate in store.of(task.kernel.name, task.context.target.name):
        program = candidate.key.program_sha256[:24]
        if candidate.key.conditions == key and (program == best or program not in player.known):
            yield candidate


def _learn(training: Training, task: TrainingTask, experience: Experience) -> None:
    learner = training.agent.learner
    try:
        learner.replay.merge(experience.skeleton, experience.arrays)
        task.player = task.player.at(experience.player)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        what = f"what an actor has seen of {task.name} does not fit to what is known"
        hint = "see that all machines have equal plugins and encoders, and go on with --resume"
        raise LearnError("PD-N102", what, why=f"{type(error).__name__}: {error}", hint=hint) from None
    player = task.player
    player.loss = learner.evaluated(experience.evaluations)
    task.evaluator.tally.failures.update(experience.failures)
    task.since_best = len(player.met) - 1 - (player.best if player.timed else -1)
    training.played(task, experience.evaluations, experience.ended)
