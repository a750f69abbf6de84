"""Evolutionary search with a learned cost model: it makes many children and evaluates a few.

Each round draws parents among the fastest games, changes them anywhere (by one change or several in a row,
so that moves which only help together are found together), and asks the model which children to evaluate:
those that may be faster than anything so far. A part of each round is chosen at random, since a model knows
nothing about programs unlike those that it has seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp
from random import Random

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.search import SearchTask, State
from perfdojo_sdk.search.cost_model import CostModel
from perfdojo_sdk.search.explorer import Draw, Explorer, digest, openings
from perfdojo_sdk.search.features import Row, features
from perfdojo_sdk.search.neighbours import Edges, Sequences


@dataclass(frozen=True)
class EvolutionParameters:
    """The parameters of an evolution."""

    parents: int = 8
    """Games that have children: the fastest of all."""
    thought: int = 12
    """Children that are made for each one that is evaluated."""
    blind: float = 0.125
    """Fraction of each round that is chosen without the model."""
    optimism: float = 1.0
    """Standard deviations by which a child may be faster than expected."""
    again: float = 0.5
    """Probability of one more change, after each."""
    failure: float = 4.0
    """A failed game counts as this many times slower than the slowest that ran."""
    model: bool = True


class Evolution(Explorer):
    """Children of the fastest games, chosen by a model."""

    def __init__(self, task: SearchTask, state: State | None, parameters: EvolutionParameters) -> None:
        self.parameters = parameters
        self.rows: dict[int, Row] = {}
        super().__init__(task, state)
        self.anywhere = Sequences(task.rules, task.most, self.starts)
        self.onwards = Edges(task.rules, task.most)

    def opening_games(self) -> list[Trace]:
        return openings(self.task)

    def draws(self, chance: Random, count: int) -> Iterable[Draw]:
        ranked = sorted(self.timed, key=self.seconds)[: self.parameters.parents]
        blind = sum(chance.random() < self.parameters.blind for _ in range(count))
        children = self._children(chance, ranked, count * self.parameters.thought)
        chosen = self._chosen(children, count - blind) if self.parameters.model else []
        taken = {id(child) for child in chosen}
        yield from chosen
        yield from (child for child in children if id(child) not in taken)

    def _children(self, chance: Random, ranked: list[int], count: int) -> list[Draw]:
        """New games, in the order in which they were drawn."""
        best = self.seconds(ranked[0])
        # A parent's weight falls with its rank and with its time.
        weights = [exp(-k / 4) * best / self.seconds(n) for k, n in enumerate(ranked)]
        found: dict[str, Draw] = {}
        for _ in range(3 * count):
            parent = chance.choices(ranked, weights)[0]
            child = self._child(chance, self.game(parent))
            if child is not None and (name := digest(child)) not in self.known and name not in found:
                found[name] = (parent, child)
                if len(found) == count:
                    break
        return list(found.values())

    def _child(self, chance: Random, game: Trace) -> Trace | None:
        changed: Trace | None = None
        while True:
            step = self.onwards if chance.random() < 0.25 else self.anywhere
            changed = step(changed or game, chance) or changed
            if chance.random() >= self.parameters.again:
                return changed

    # -- the model -------------------------------------------------------------------------------

    def _chosen(self, children: list[Draw], count: int) -> list[Draw]:
        """The ``count`` most promising of ``children``."""
        if count <= 0 or len(self.timed) < 4 or not children:
            return []
        model = CostModel(*self._experience())
        rows = [features(game.program, self.task.target) for _, game in children if game is not None]
        mean, deviation = model.predict(rows)
        hope = mean - self.parameters.optimism * deviation
        order = sorted(range(len(children)), key=lambda k: (hope[k], k))
        return [children[k] for k in order[:count]]

    def _experience(self) -> tuple[list[Row], list[float]]:
        slowest = max(self.seconds(n) for n in self.timed)
        seconds = [
            slowest * self.parameters.failure if each.seconds is None else each.seconds for each in self.met
        ]
        return [self._row(number) for number in range(len(self.met))], seconds

    def _row(self, number: int) -> Row:
        if number not in self.rows:
            self.rows[number] = features(self.game(number).program, self.task.target)
        return self.rows[number]


@dataclass(frozen=True)
class StartEvolution:
    """Starts an evolution with its parameters. It is a class so that strategies can be pickled."""

    parameters: EvolutionParameters = EvolutionParameters()

    def __call__(self, task: SearchTask, state: State | None) -> Evolution:
        return Evolution(task, state, self.parameters)
