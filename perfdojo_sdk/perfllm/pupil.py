"""One kernel of one target that an agent learns, and how far it is with it."""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.perfllm.player import PerfLLM
from perfdojo_sdk.perfllm.recall import Table


@dataclass
class Pupil:
    """One kernel of one target, and how far the agent is with it."""

    kernel: Kernel
    context: BuildContext
    player: PerfLLM
    evaluator: Evaluator
    evaluations: int = 0
    since_best: int = 0
    """Evaluations since the last new best."""
    shown: int = 0
    """Programs whose times it was told before it plays: games of passes, slips, ends of corrected games."""
    finished: bool = False

    @property
    def name(self) -> str:
        return f"{self.kernel.name} on {self.context.target.name}"

    @property
    def table(self) -> Table:
        """By which rules its games are played again."""
        task = self.player.task
        return Table(self.player.mind, Trace(task.root), task.rules, task.most, task.target.name)

    def seconds(self, game: Trace) -> float | None:
        """What a game takes that is shown to the agent; None when it fails."""
        self.shown += 1
        return self.evaluator.evaluate([game])[0].seconds

    @property
    def initial_s(self) -> float | None:
        return self.player.met[0].seconds if self.player.met else None

    @property
    def best_s(self) -> float | None:
        return self.player.seconds(self.player.best) if self.player.timed else None

    @property
    def speed_up(self) -> float | None:
        return self.initial_s / self.best_s if self.initial_s and self.best_s else None
