"""The base of exploring players: the games met so far, a random generator for each round, no game twice.

A subclass defines its initial games, how it draws the next game, and what it learns from results. Everything
else, including the state from which a search resumes, is here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, TypeAlias

from pydantic import Field, StringConstraints

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Move, Trace
from perfdojo_sdk.hookspecs.search import Evaluation, SearchTask, State
from perfdojo_sdk.search.passes import greedy, naive
from perfdojo_sdk.store.traces import SavedMove, Strict

NO_PARENT = -1

Draw: TypeAlias = tuple[int, Trace | None]
"""Number of the parent game (or NO_PARENT), and the game; None if no game came of the draw."""


def openings(task: SearchTask) -> list[Trace]:
    """The games that are known without searching: the expert's, greedy, naive, the initial program."""
    try:
        expert = tuple(task.expert(task.root, task.rules, task.target)) if task.expert else ()
    except DojoError:  # the expert's guard has reported it; a search can do without an expert
        expert = ()
    games = [*expert, greedy(task.root, task.rules), naive(task.root, task.rules), Trace(task.root)]
    different: dict[str, Trace] = {}
    for game in games:
        if game.kind <= task.most:
            different.setdefault(game.program.text, game)
    return list(different.values())


@dataclass
class Visit:
    """A game that was evaluated."""

    moves: tuple[Move, ...]
    program: str
    """Digest of its last program."""
    parent: int
    """Number of the game that it was made from, or NO_PARENT."""
    seconds: float | None
    """Time in seconds; None when it failed."""
    game: Trace | None = None
    """The replayed game; None after a resume until it is needed."""


class SavedVisit(Strict):
    """The file form of :class:`Visit`: only the moves that it does not share with its parent."""

    parent: Annotated[int, Field(strict=True, ge=NO_PARENT)]
    shared: Annotated[int, Field(strict=True, ge=0)]
    moves: tuple[SavedMove, ...]
    program: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{24}$")]
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None


def digest(game: Trace) -> str:
    """A digest of a game's last program, without ids, since different moves may lead to one program."""
    return hashlib.sha256(game.program.text.encode()).hexdigest()[:24]


class Explorer(ABC):
    """A player that makes new games from those that it has evaluated."""

    def __init__(self, task: SearchTask, state: State | None) -> None:
        self.task = task
        self.met: list[Visit] = []
        self.known: set[str] = set()
        self.round = 0
        self.waiting: list[Draw] = []
        self.starts = self.opening_games()
        if state is not None:
            self._remember(state)

    # -- what a player of this kind brings ---------------------------------------------------

    @abstractmethod
    def opening_games(self) -> list[Trace]:
        """The games that are evaluated before anything is drawn; the same each time."""

    @abstractmethod
    def draws(self, chance: Random, count: int) -> Iterable[Draw]:
        """Ideas for a round of ``count`` proposals, best first; only called when some game has a time."""

    def learn(self, numbers: range) -> None:
        """The games ``numbers`` of :attr:`met` were evaluated just now; nothing to learn by default."""
        return

    def notes(self) -> Mapping[str, Any]:
        """The subclass's part of the state, as JSON values."""
        return {}

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        """Take back what :meth:`notes` gave, which is nothing by default."""
        return

    # -- the player ----------------------------------------------------------------------------

    def propose(self, count: int) -> Sequence[Trace]:
        chance = Random(f"{self.task.seed} {self.round}")
        self.round += 1
        self.waiting = []
        if len(self.met) < len(self.starts):
            starts = self.starts[len(self.met) :][:count]
            self.waiting = [(NO_PARENT, game) for game in starts]
        elif self.timed:
            new: set[str] = set()
            for parent, game in self.draws(chance, count):
                name = digest(game) if game else ""
                if game is not None and name not in self.known and name not in new:
                    new.add(name)
                    self.waiting.append((parent, game))
                    if len(self.waiting) == count:
                        break
        return [game for _, game in self.waiting if game is not None]

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        first = len(self.met)
        for (parent, _), each in zip(self.waiting, evaluations, strict=True):
            name = digest(each.trace)
            self.met.append(Visit(each.trace.moves, name, parent, each.seconds, each.trace))
            self.known.add(name)
        self.waiting = []
        self.learn(range(first, len(self.met)))

    def state(self) -> State:
        return {"round": self.round, "met": [self._saved(each) for each in self.met], **self.notes()}

    # -- memory --------------------------------------------------------------------------------

    @property
    def timed(self) -> list[int]:
        """Numbers of the games that have a time."""
        return [n for n, each in enumerate(self.met) if each.seconds is not None]

    @property
    def best(self) -> int:
        """Number of the fastest game; ValueError when none has a time."""
        return min(self.timed, key=self.seconds)

    def seconds(self, number: int) -> float:
        seconds = self.met[number].seconds
        return float("inf") if seconds is None else seconds

    def game(self, number: int) -> Trace:
        met = self.met[number]
        if met.game is None:
            met.game = Trace(self.task.root).play_all(self.task.rules, met.moves)
        return met.game

    def _saved(self, met: Visit) -> dict[str, Any]:
        before = self.met[met.parent].moves if met.parent != NO_PARENT else ()
        shared = _shared(before, met.moves)
        return {
            "parent": met.parent,
            "shared": shared,
            "moves": [move.as_json() for move in met.moves[shared:]],
            "program": met.program,
            "seconds": met.seconds,
        }

    def _remember(self, state: State) -> None:
        """Restore the games of a saved state; ValueError if it is not a state of this player."""
        self.round = int(state["round"])
        for number, item in enumerate(state["met"]):
            saved = SavedVisit.model_validate(item)
            if saved.parent >= number:
                raise ValueError(f"game {number} comes from game {saved.parent}, which is not met yet")
            before = self.met[saved.parent].moves if saved.parent != NO_PARENT else ()
            moves = (*before[: saved.shared], *(each.move() for each in saved.moves))
            self.met.append(Visit(moves, saved.program, saved.parent, saved.seconds))
            self.known.add(saved.program)
        self.read_notes(state)


def _shared(a: Sequence[Move], b: Sequence[Move]) -> int:
    """Number of moves that both begin with."""
    count = 0
    for one, other in zip(a, b):
        if one != other:
            break
        count += 1
    return count
