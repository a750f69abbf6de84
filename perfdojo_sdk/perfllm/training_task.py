"""A training task: one kernel of one target, the player that plays it, and its progress."""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.perfllm.player import PerfLLM
from perfdojo_sdk.perfllm.recorded_games import GameContext


@dataclass
class TrainingTask:
    """One kernel of one target on which an agent is trained, and the progress so far."""

    kernel: Kernel
    context: BuildContext
    player: PerfLLM
    evaluator: Evaluator
    evaluations: int = 0
    since_best: int = 0
    """Evaluations since the last new best."""
    shown: int = 0
    """Programs evaluated before it plays: games of passes, games with slips, ends of corrected games."""
    finished: bool = False

    @property
    def name(self) -> str:
        return f"{self.kernel.name} on {self.context.target.name}"

    @property
    def replay_context(self) -> GameContext:
        """The rules under which recorded games of this task are replayed."""
        search = self.player.task
        return GameContext(
            self.player.agent, Trace(search.root), search.rules, search.most, search.target.name
        )

    def seconds(self, game: Trace) -> float | None:
        """The time of a demonstrated game in seconds; None when it fails."""
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
