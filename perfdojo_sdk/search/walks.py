"""The paper's two methods (section 4.2.2), each over both structures of the search space, and a beam.

*Sampling* draws among all programs met, where a program costs what its parent took: no time goes to the
children of a slow one. *Annealing* follows one game, which may get worse while it is hot.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Any

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.search import SearchTask, State
from perfdojo_sdk.search.explorer import NO_PARENT, Draw, Explorer, openings
from perfdojo_sdk.search.neighbours import Edges, Neighbour, Sequences

#: Draws for each game that is asked for; when all of them were met before, the player is finished.
DRAWS = 40


@dataclass(frozen=True)
class Space:
    """A structure of the search space: where a search starts, and what is next to a game."""

    starts: list[Trace]
    neighbour: Neighbour


def edges(task: SearchTask) -> Space:
    """The space of edges: a neighbour has one more move; the start is the initial program."""
    return Space([Trace(task.root)], Edges(task.rules, task.most))


def sequences(task: SearchTask) -> Space:
    """The space of sequences: a neighbour is a whole game with one change anywhere."""
    starts = openings(task)
    return Space(starts, Sequences(task.rules, task.most, starts))


MakeSpace = Callable[[SearchTask], Space]


class Walker(Explorer):
    """An explorer of one space."""

    def __init__(self, task: SearchTask, state: State | None, space: MakeSpace) -> None:
        self.space = space(task)
        super().__init__(task, state)

    def opening_games(self) -> list[Trace]:
        return self.space.starts

    @abstractmethod
    def draw(self, chance: Random) -> Draw:
        """One idea."""

    def draws(self, chance: Random, count: int) -> Iterable[Draw]:
        return (self.draw(chance) for _ in range(DRAWS * count))

    def next_to(self, number: int, chance: Random) -> Draw:
        return number, self.space.neighbour(self.game(number), chance)


class Sampling(Walker):
    """Draws a parent with a probability that falls with its time, then one of its children."""

    #: Probability falls with this power of the time: half as fast, a quarter of the visits.
    POWER = 2.0

    def draw(self, chance: Random) -> Draw:
        timed, fastest = self.timed, self.seconds(self.best)
        weights = [(fastest / self.seconds(n)) ** self.POWER for n in timed]
        return self.next_to(chance.choices(timed, weights)[0], chance)


class Annealing(Walker):
    """Follows one game. ``current`` is its number.

    A game that is slower by the factor f is followed with probability f^(-1/t), where the temperature t
    falls geometrically with the evaluations done, from HOT to COLD at the end of the task's budget.
    """

    HOT, COLD = 0.3, 0.01
    #: Evaluations without a new best after which it goes back to the best.
    PATIENCE = 100

    def __init__(self, task: SearchTask, state: State | None, space: MakeSpace) -> None:
        self.current, self.since_best = NO_PARENT, 0
        super().__init__(task, state, space)

    def draw(self, chance: Random) -> Draw:
        return self.next_to(self.current, chance)

    def learn(self, numbers: range) -> None:
        chance = Random(f"{self.task.seed} {self.round} accept")
        for number in numbers:
            accepted, seconds = chance.random(), self.met[number].seconds
            if seconds is None:
                continue
            if self.current == NO_PARENT:
                self.current = number
            self.since_best = 0 if number == self.best else self.since_best + 1
            slower = log(seconds / self.seconds(self.current))
            if slower <= 0 or accepted < exp(-slower / self.temperature):
                self.current = number
            if self.since_best > self.PATIENCE:
                self.current, self.since_best = self.best, 0

    @property
    def temperature(self) -> float:
        done = min(1.0, len(self.met) / max(1, self.task.evaluations))
        return float(self.HOT * (self.COLD / self.HOT) ** done)

    def notes(self) -> Mapping[str, Any]:
        return {"current": self.current, "since_best": self.since_best}

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        self.current, self.since_best = int(notes["current"]), int(notes["since_best"])


class Beam(Walker):
    """Keeps the WIDTH fastest games; from each as many children as fit into a generation."""

    WIDTH = 4
    GENERATION = 32

    def __init__(self, task: SearchTask, state: State | None, space: MakeSpace) -> None:
        self.beam: list[int] = []
        self.children: list[int] = []
        super().__init__(task, state, space)

    def draw(self, chance: Random) -> Draw:
        return self.next_to(chance.choice(self.beam or self.timed), chance)

    def learn(self, numbers: range) -> None:
        self.children += [n for n in numbers if self.met[n].seconds is not None]
        if not self.beam or len(self.children) >= self.GENERATION:
            # Of equally fast ones the newer: a plateau is crossed, not stood upon.
            ranked = sorted({*self.beam, *self.children}, key=lambda n: (self.seconds(n), -n))
            self.beam, self.children = ranked[: self.WIDTH], []

    def notes(self) -> Mapping[str, Any]:
        return {"beam": self.beam, "children": self.children}

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        self.beam, self.children = list(notes["beam"]), list(notes["children"])


@dataclass(frozen=True)
class StartWalk:
    """Starts a walker over one space. A class, so that strategies pickle."""

    walker: Callable[[SearchTask, State | None, MakeSpace], Walker]
    space: MakeSpace

    def __call__(self, task: SearchTask, state: State | None) -> Walker:
        return self.walker(task, state, self.space)
