"""What other searches have found, as experience: every recorded game is an episode that somebody played.

The states on the way to a program mostly have no time of their own, since whole games were proposed. Under
the objective "max" that does no harm: what is not known counts as nothing, and the worth of a move is the
best that comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Any

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Step, Trace
from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.replay import STOP, Vector
from perfdojo_sdk.perfllm.variations import disturbed, next_moves, reordered
from perfdojo_sdk.search.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.search.explorer import digest
from perfdojo_sdk.store.candidates import Candidate, Timed

#: A game that takes at most so many times what the fastest one takes shows how it is done,
NEARLY = 1.02
#: and so many where times are measured: a machine that others use is no more exact than that.
NEARLY_MEASURED = 1.05


@dataclass(frozen=True)
class Table:
    """Whose games of which kernel are remembered, and by which rules they are played again."""

    agent: Agent
    root: Trace
    """The kernel's game without moves."""
    rules: Rules
    most: Kind
    target: str = ""


@dataclass(frozen=True)
class Ways:
    """The moves of a program and what they lead to: little enough to be kept of all that a training meets."""

    moves: tuple[Move, ...]
    to: tuple[bytes, ...]
    """What tells the program that each leads to."""
    alike: Mapping[bytes, tuple[int, ...]]
    """The same, whatever it calls its local arrays -> the moves, from 1, that lead to such a program."""

    @staticmethod
    def of(steps: Sequence[Step]) -> Ways:
        alike: dict[bytes, tuple[int, ...]] = {}
        for action, step in enumerate(steps, 1):
            name = _short(alpha_equivalence_key(step.after))
            alike[name] = (*alike.get(name, ()), action)
        return Ways(tuple(s.move for s in steps), tuple(_short(s.after.text) for s in steps), alike)

    def leading_to(self, program: Program) -> Sequence[int]:
        """The moves, from 1, that lead to a program, whatever it calls its local arrays.

        A copy can often be made by staging what is read or what is written; only its name tells which.
        """
        return self.alike.get(_short(alpha_equivalence_key(program)), ())

    def action(self, step: Step) -> int | None:
        """Which move that is, from 1: by what it leads to, since another name of a place may lead there."""
        name = _short(step.after.text)
        return self.to.index(name) + 1 if name in self.to else None


class Recall:
    """The recorded games of one kernel, on their way into an agent's memory."""

    def __init__(self, table: Table, candidates: Iterable[Candidate]) -> None:
        """Games of other programs are left out. Only candidates of one device and one kind of figure may be
        given together."""
        self.table = table
        self.found = [c for c in candidates if c.trace.root == table.root.root.text]
        self.seconds = {c.key.program_sha256[:24]: c.seconds for c in self.found}
        """Digest of a program -> its time; None: it failed."""
        times = [s for s in self.seconds.values() if s]
        self.base = self.seconds.get(digest(table.root)) or max(times, default=None)
        self.best = min(times, default=None)
        timed = [c.result.timing for c in self.found if isinstance(c.result, Timed)]
        self.nearly = NEARLY_MEASURED if any(t.provenance == "measured" for t in timed) else NEARLY
        self.alike: dict[str, float | None] = {}
        """Likeness of a program, as a digest -> its time: a name is not worth an evaluation."""
        self._ways: dict[bytes, Ways] = {}
        """By text and ids: moves go by ids, and the vectors in the memory by the text alone."""

    def fastest(self, count: int) -> list[Trace]:
        """The ``count`` fastest games, played again; those whose moves no longer apply are left out."""
        games = []
        for candidate in sorted(self.found, key=lambda c: c.seconds or float("inf"))[:count]:
            try:
                games.append(candidate.trace.replay(self.table.rules))
            except DojoError:
                continue
            self.alike[_alike(games[-1])] = candidate.seconds
        return games if self.base is not None else []

    def better(self, seconds: float) -> bool:
        """Whether a game of that time leaves behind all that are known."""
        return self.best is None or self.nearly * seconds < self.best

    def shows(self, game: Trace) -> bool:
        """Whether a game is nearly as good as any."""
        seconds = self.seconds.get(digest(game))
        return seconds is not None and self.best is not None and seconds <= self.nearly * self.best

    def evaluated(self, game: Trace, seconds: Callable[[Trace], float | None]) -> None:
        """Have a game evaluated, unless the time of its program is known, by whatever names."""
        if digest(game) not in self.seconds:
            alike = _alike(game)
            if alike not in self.alike:
                self.alike[alike] = seconds(game)
            self.seconds[digest(game)] = self.alike[alike]

    def remember(self, game: Trace, begin: int = 0) -> None:
        """Remember a game move by move; what it shows, it shows from move ``begin`` on."""
        replay = self.table.agent.learner.replay
        played = [Trace(game.root, game.steps[:count]) for count in range(len(game.steps) + 1)]
        states = [self._state(each) for each in played]
        shows = self.shows(game)
        for number, (state, to) in enumerate(zip(states, states[1:])):
            if (state, to) in replay.seen or state == to:
                continue
            ways = self.ways(played[number])
            action = ways.action(game.steps[number])
            if action is not None:
                replay.move(state, action, to)
            if shows and number >= begin:
                for step in next_moves(game, number, self.table.rules):
                    for action in ways.leading_to(step.after):
                        replay.show(state, action)
        if shows:
            self.ways(played[-1])
            replay.show(states[-1], STOP)

    def vary(
        self,
        shown: list[Trace],
        orders: int,
        slips: int,
        seconds: Callable[[Trace], float | None],
        chance: Random,
    ) -> int:
        """Remember other orders of games that were shown, and games with slips; how many came of that.

        ``seconds`` evaluates a game with a slip.
        """
        table, count = self.table, 0
        for _ in range(orders if shown else 0):
            self.remember(reordered(chance.choice(shown), table.rules, chance))
            count += 1
        for _ in range(slips if shown else 0):
            game = reordered(chance.choice(shown), table.rules, chance)
            slipped = disturbed(game, table.rules, table.most, chance)
            if slipped is not None:
                self.evaluated(slipped.game, seconds)
                self.remember(slipped.game, slipped.begin)
                count += 1
        return count

    def show(self, game: Trace, whole: Trace, right: Sequence[Step]) -> None:
        """Remember that a good game, ``whole``, goes on after ``game`` with one of the moves ``right``."""
        replay, number, ways = self.table.agent.learner.replay, self._state(game), self.ways(game)
        if len(whole.steps) == len(game.steps):
            replay.show(number, STOP)
        for step in right:
            for action in ways.leading_to(step.after):
                replay.show(number, action)
        if right:
            self.reached(replace(game, steps=(*game.steps, right[0])), whole)

    def reached(self, game: Trace, whole: Trace) -> None:
        """Remember the last move of ``game``, and that ``whole``, which begins with it, was played."""
        replay, before = self.table.agent.learner.replay, Trace(game.root, game.steps[:-1])
        number, to = self._state(before), self._state(game)
        action = self.ways(before).action(game.steps[-1])
        left = len(whole.steps) - len(game.steps)
        replay.reached(to, replay.gamma**left * (self._reward(whole) or 0.0))
        if action is not None and number != to:
            replay.visit(number, action, to)

    # -- between two sessions ----------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """The times that are known, as JSON values; :meth:`read_notes` takes them back."""
        known = {"seconds": self.seconds, "alike": self.alike, "nearly": self.nearly}
        return known | {"base": self.base, "best": self.best}

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        self.seconds, self.alike = dict(notes["seconds"]), dict(notes["alike"])
        self.nearly, self.base, self.best = notes["nearly"], notes["base"], notes["best"]

    # -- what it knows of a program ----------------------------------------------------------------

    def ways(self, game: Trace) -> Ways:
        """The moves of a game's last program, which are listed in the memory from then on."""
        program, table, number = game.program, self.table, self._state(game)
        name = _short(" ".join([program.text, *program.paths]))
        if name not in self._ways:
            asked = program, table.rules, table.most, table.target
            if table.agent.learner.replay.states[number].listed:
                steps = table.agent.moves(*asked)
            else:
                listed = table.agent.listed(*asked)
                table.agent.remember(number, listed)
                steps = listed.steps
            self._ways[name] = Ways.of(steps)
        return self._ways[name]

    def step(self, game: Trace, action: int) -> Step:
        """What move number ``action`` of a game's last program leads to."""
        step = self.table.rules.attempt(game.program, self.ways(game).moves[action - 1])
        assert isinstance(step, Step), "it was legal when the moves were listed"
        return step

    def values(self, game: Trace) -> Vector:
        """What each move of a game's last program is worth, the stop first."""
        self.ways(game)
        learner = self.table.agent.learner
        before, after = learner.replay.vectors(self._state(game))
        return learner.values(before, after)

    def _state(self, game: Trace) -> int:
        kernel = digest(Trace(game.root))
        return self.table.agent.learner.replay.state(f"{kernel} {digest(game)}", self._reward(game))

    def _reward(self, game: Trace) -> float | None:
        known = self.seconds.get(digest(game), -1.0)
        if known == -1.0 or self.base is None:
            return None
        return self.base / known if known else 0.0


def recall(table: Table, candidates: Iterable[Candidate], games: int) -> int:
    """Remember the ``games`` fastest recorded games of one kernel; how many were played again."""
    recalling = Recall(table, candidates)
    found = recalling.fastest(games)
    for game in found:
        recalling.remember(game)
    return len(found)


def _alike(game: Trace) -> str:
    return _short(alpha_equivalence_key(game.program)).hex()


def _short(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
