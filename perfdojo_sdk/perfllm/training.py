"""The state of a training: its tasks, its budget and the reports on its progress.

:mod:`perfdojo_sdk.perfllm.trainer` drives it, :mod:`perfdojo_sdk.perfllm.actors` drives it with games played
elsewhere, and :mod:`perfdojo_sdk.perfllm.checkpoints` saves and restores it. None of the three imports
another through it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.demonstrations import Demonstrations
from perfdojo_sdk.perfllm.plan import TrainingPlan
from perfdojo_sdk.perfllm.training_task import TrainingTask


@dataclass(frozen=True)
class Report:
    """The progress of a training after a round."""

    evaluations: int
    """Programs evaluated so far, over all tasks and sessions."""
    steps: int
    """Gradient steps so far."""
    loss: float | None
    epsilon: float
    per_minute: float
    """Evaluations per minute in this session."""
    task: TrainingTask
    """The task whose round it was."""


class TrainingObserver(Protocol):
    """Receives the progress of a training."""

    def recalled(self, name: str, games: int, beyond: tuple[str, ...]) -> None:
        """``games`` demonstrations of the task ``name`` were found.

        ``beyond``: kinds of moves that faster games use and the agent's repertoire lacks.
        """

    def corrected(self, name: str, states: int, slips: int) -> None:
        """The agent has played a game of the task ``name`` and was corrected in ``states`` states."""

    def studied(self, steps: int, count: int, loss: float | None) -> None:
        """``steps`` of ``count`` gradient steps on demonstrations are done."""

    def round(self, report: Report) -> None:
        """A round of games was played and evaluated."""


@dataclass
class Training:
    """A training in progress, or finished."""

    plan: TrainingPlan
    agent: Agent
    tasks: list[TrainingTask]
    observer: TrainingObserver
    recalled: bool = False
    """True once learning from demonstrations is finished; the agent plays from then on."""
    demonstrations: list[Demonstrations] = field(default_factory=list)
    """Demonstrations of each task, until :attr:`recalled`."""
    corrected: int = 0
    """Rounds of corrected games so far."""
    begin: float = field(default_factory=time.monotonic)
    before_s: float = 0.0
    """Seconds that earlier sessions took."""
    before: int = 0
    """Evaluations of earlier sessions."""

    @property
    def evaluations(self) -> int:
        return sum(task.evaluations for task in self.tasks)

    @property
    def elapsed_s(self) -> float:
        return self.before_s + time.monotonic() - self.begin

    @property
    def next(self) -> TrainingTask:
        """The unfinished task with the fewest evaluations."""
        return min((task for task in self.tasks if not task.finished), key=lambda task: task.evaluations)

    @property
    def late(self) -> bool:
        """True if the plan's time is used up."""
        return self.plan.seconds is not None and self.elapsed_s >= self.plan.seconds

    @property
    def over(self) -> bool:
        """True if time or budget is used up."""
        return self.late or all(task.finished for task in self.tasks)

    def played(self, task: TrainingTask, count: int, ended: bool) -> None:
        """Count ``count`` evaluations of a task, and finish it at its budget, its plateau or when it
        ``ended``."""
        task.evaluations += count
        settled = self.plan.plateau is not None and task.since_best >= self.plan.plateau
        task.finished = ended or settled or task.evaluations >= self.plan.evaluations
        self.observer.round(self._report(task))

    def _report(self, task: TrainingTask) -> Report:
        minutes = max(1e-9, (time.monotonic() - self.begin) / 60)
        return Report(
            self.evaluations,
            self.agent.learner.steps,
            task.player.loss,
            task.player.epsilon,
            (self.evaluations - self.before) / minutes,
            task,
        )
