"""A player that walks at random and goes on from the fastest place it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.search import Evaluation, SearchStrategy, SearchTask, State
from perfdojo_sdk.store.traces import SavedTrace


@dataclass
class Walk:
    """One walk. Each proposal is one legal move away from the best game so far."""

    task: SearchTask
    best: Trace
    seconds: float = float("inf")
    round: int = 0
    """Chance depends on the seed and on this number alone, so it is all there is to keep."""

    def propose(self, count: int) -> Sequence[Trace]:
        rules, most = self.task.rules, self.task.most
        moves = [step.move for step in rules.steps(self.best.program, most)]
        chance = Random(f"{self.task.seed} {self.round}")
        self.round += 1
        return [self.best.play(rules, move) for move in chance.sample(moves, min(count, len(moves)))]

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        for each in evaluations:
            if each.seconds is not None and each.seconds < self.seconds:
                self.best, self.seconds = each.trace, each.seconds

    def state(self) -> State:
        seconds = None if self.seconds == float("inf") else self.seconds
        return {"best": self.best.as_json(), "seconds": seconds, "round": self.round}


def start(task: SearchTask, state: State | None) -> Walk:
    if state is None:
        return Walk(task, Trace(task.root))
    best = SavedTrace.model_validate(state["best"]).replay(task.rules)
    seconds = float("inf") if state["seconds"] is None else float(state["seconds"])
    return Walk(task, best, seconds, int(state["round"]))


WALK = SearchStrategy("toy/walk", "Random moves from the fastest program met so far.", start)
