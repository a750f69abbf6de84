"""Evolution guided by an agent, which proposes moves and helps to choose the children to evaluate.

The evolution's cost model is fitted to features of the programs of this search. The agent values programs by
their text, from all games it has learned. The weight of its values is fitted to the times of this search, so
an untrained agent does no harm. It continues to learn from every result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import log
from random import Random
from typing import Any

import numpy as np

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.search import SearchTask, State
from perfdojo_sdk.perfllm.agent import Agent, Listed
from perfdojo_sdk.perfllm.player import AT_HAND, agent_for, name_of, relisted
from perfdojo_sdk.search.cost_model import CostModel
from perfdojo_sdk.search.evolution import Evolution, EvolutionParameters
from perfdojo_sdk.search.explorer import NO_PARENT, Draw, digest
from perfdojo_sdk.search.features import Row, features

#: Fraction of the children that the agent proposes.
PROPOSED_BY_AGENT = 0.25
#: Inverse temperature of the softmax over values from which a proposed move is drawn.
INVERSE_TEMPERATURE = 20.0


class Hybrid(Evolution):
    """One search in progress."""

    def __init__(self, task: SearchTask, state: State | None, agent: Agent) -> None:
        self.agent = agent
        self.opinions: dict[str, float] = {}
        """Digest of a program -> its value by the agent when it was first asked."""
        self._at_hand: OrderedDict[int, Listed] = OrderedDict()
        super().__init__(task, state, EvolutionParameters())

    # -- suggestions -------------------------------------------------------------------------------

    def _children(self, chance: Random, ranked: list[int], count: int) -> list[Draw]:
        each = round(count * PROPOSED_BY_AGENT / len(ranked)) or 1
        advised = [draw for number in ranked for draw in self._advised(number, chance, each)]
        names = {digest(game) for _, game in advised if game is not None}
        others = super()._children(chance, ranked, count - len(advised))
        return advised + [(n, game) for n, game in others if game is not None and digest(game) not in names]

    def _advised(self, number: int, chance: Random, count: int) -> list[Draw]:
        """The game with one more move, ``count`` times: moves of high value under Gumbel noise."""
        listed = self._listed(number)
        values = self.agent.values(listed)[1:]
        noise = np.array([-log(-log(chance.uniform(1e-9, 1 - 1e-9))) for _ in values])
        game, found = self.game(number), list[Draw]()
        for k in (-(values * INVERSE_TEMPERATURE + noise)).argsort(kind="stable"):
            step = listed.steps[k]
            if name_of(step.after) not in self.known:
                found.append((number, replace(game, steps=(*game.steps, step))))
            if len(found) == count:
                break
        return found

    def _listed(self, number: int) -> Listed:
        if number not in self._at_hand:
            task, game = self.task, self.game(number)
            listed = self.agent.listed(game.program, task.rules, task.most, task.target.name)
            self._at_hand[number] = listed
            self.agent.remember(self._state(number), listed)
            if len(self._at_hand) > AT_HAND:
                self._at_hand.popitem(last=False)
        return self._at_hand[number]

    # -- sifting -----------------------------------------------------------------------------------

    def _chosen(self, children: list[Draw], count: int) -> list[Draw]:
        games = [game for _, game in children if game is not None]
        if count <= 0 or len(self.timed) < 4 or not games:
            return []
        rows, seconds = self._experience()
        met = self._opinions([self.game(number) for number in range(len(self.met))])
        new = self._opinions(games)
        slope = _slope(met, np.log(seconds))
        model = CostModel(rows, list(np.exp(np.log(seconds) - slope * met)))
        mean, deviation = model.predict([self._features(game) for game in games])
        hope = mean + slope * new - self.parameters.optimism * deviation
        order = sorted(range(len(children)), key=lambda k: (hope[k], k))
        return [children[k] for k in order[:count]]

    def _features(self, game: Trace) -> Row:
        return features(game.program, self.task.target)

    def _opinions(self, games: Sequence[Trace]) -> Row:
        """The agent's value of each game's last program [games], in the network's scale."""
        names = [digest(game) for game in games]
        unknown = {name: game.program.text for name, game in zip(names, games) if name not in self.opinions}
        if unknown:
            vectors = self.agent.encoder.encode(list(unknown.values()))
            for name, vector in zip(unknown, vectors):
                self.opinions[name] = float(self.agent.learner.values(vector, vector[None])[0])
        return np.array([self.opinions[name] for name in names], np.float64)

    # -- learning ----------------------------------------------------------------------------------

    def learn(self, numbers: range) -> None:
        replay = self.agent.learner.replay
        for number in numbers:
            met, to = self.met[number], self._state(number)
            if met.parent == NO_PARENT or met.parent not in self._at_hand:
                continue
            if met.moves[:-1] == self.met[met.parent].moves:
                steps = self._at_hand[met.parent].steps
                actions = [k for k, step in enumerate(steps, 1) if step.move == met.moves[-1]]
                if actions:
                    replay.move(self._state(met.parent), actions[0], to)
        self.agent.learner.evaluated(len(numbers))

    def notes(self) -> Mapping[str, Any]:
        return {"opinions": self.opinions, **self.agent.notes()}

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        self.opinions = {str(name): float(value) for name, value in notes["opinions"].items()}
        self.agent.read_notes(notes)
        self.agent.learner.replay.relist = partial(relisted, self, self.agent)

    def _state(self, number: int) -> int:
        met, base = self.met[number], next((m.seconds for m in self.met if m.seconds is not None), None)
        reward = base / met.seconds if base and met.seconds else 0.0
        return self.agent.learner.replay.state(f"{digest(Trace(self.task.root))} {met.program}", reward)


def _slope(opinions: Row, times: Row) -> float:
    """Slope of the regression of log times on the agent's values; at most 0, since a higher value means
    faster."""
    spread = opinions - opinions.mean()
    variance = float(spread @ spread)
    return min(0.0, float(spread @ (times - times.mean())) / variance) if variance > 1e-9 else 0.0


def start(task: SearchTask, state: State | None) -> Hybrid:
    """A player for the task; see :func:`agent_for` for the options."""
    return Hybrid(task, state, agent_for(task))
