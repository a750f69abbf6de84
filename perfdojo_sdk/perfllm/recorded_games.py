"""Recorded games of other searches as experience of an agent: each is stored in the replay as an episode.

Most states along a recorded game have no time of their own, since searches evaluate whole games. Under the
objective "max" that does no harm: an unknown reward counts as 0, and the value of a move is the best reward
after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Any

from perfdojo_sdk.core.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Step, Trace
from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.replay import STOP, Vector
from perfdojo_sdk.perfllm.variations import disturbed, next_moves, reordered
from perfdojo_sdk.search.explorer import digest
from perfdojo_sdk.store.candidates import Candidate, Timed

#: A game is demonstrated if its time is at most this factor times the fastest one,
NEARLY = 1.02
#: or this factor where times are measured: those of a shared machine are no more exact.
NEARLY_MEASURED = 1.05


@dataclass(frozen=True)
class GameContext:
    """The agent that learns, the kernel's initial game, and the rules under which games are replayed."""

    agent: Agent
    root: Trace
    """The kernel's game without moves."""
    rules: Rules
    most: Kind
    target: str = ""


@dataclass(frozen=True)
class MoveTable:
    """The legal moves of a program with digests of the resulting programs; small enough to keep for a whole
    training."""

    moves: tuple[Move, ...]
    to: tuple[bytes, ...]
    """Digest of the text of the program that each move leads to."""
    by_key: Mapping[bytes, tuple[int, ...]]
    """Digest of an alpha-equivalence key -> numbers, from 1, of the moves that lead to such a program."""

    @staticmethod
    def of(steps: Sequence[Step]) -> MoveTable:
        by_key: dict[bytes, tuple[int, ...]] = {}
        for action, step in enumerate(steps, 1):
            name = _short(alpha_equivalence_key(step.after))
            by_key[name] = (*by_key.get(name, ()), action)
        return MoveTable(tuple(s.move for s in steps), tuple(_short(s.after.text) for s in steps), by_key)

    def leading_to(self, program: Program) -> Sequence[int]:
        """The numbers, from 1, of the moves that lead to a program alpha-equivalent to ``program``.

        Staging a read and staging a write often make the same copy under different names.
        """
        return self.by_key.get(_short(alpha_equivalence_key(program)), ())

    def action(self, step: Step) -> int | None:
        """The number of ``step`` from 1, found by the program it leads to, since its place may have another
        id; None when there is none."""
        name = _short(step.after.text)
        return self.to.index(name) + 1 if name in self.to else None


class RecordedGames:
    """The recorded games of one kernel, and the replay of the agent into which they are stored."""

    def __init__(self, context: GameContext, candidates: Iterable[Candidate]) -> None:
        """Games of other programs are left out. All candidates must be of one device and one provenance."""
        self.context = context
        self.found = [c for c in candidates if c.trace.root == context.root.root.text]
        self.seconds = {c.key.program_sha256[:24]: c.seconds for c in self.found}
        """Digest of a program -> its time; None: it failed."""
        times = [s for s in self.seconds.values() if s]
        self.base = self.seconds.get(digest(context.root)) or max(times, default=None)
        self.best = min(times, default=None)
        timed = [c.result.timing for c in self.found if isinstance(c.result, Timed)]
        self.nearly = NEARLY_MEASURED if any(t.provenance == "measured" for t in timed) else NEARLY
        self.seconds_by_key: dict[str, float | None] = {}
        """Digest of an alpha-equivalence key -> time in seconds, so that a renamed program is not evaluated
        again."""
        self._move_tables: dict[bytes, MoveTable] = {}
        """Keyed by text and node ids: moves refer to ids, while the vectors in the replay depend on the text
        alone."""

    def fastest(self, count: int) -> list[Trace]:
        """The ``count`` fastest games, replayed; games whose moves no longer apply are left out."""
        games = []
        for candidate in sorted(self.found, key=lambda c: c.seconds or float("inf"))[:count]:
            try:
                games.append(candidate.trace.replay(self.context.rules))
            except DojoError:
                continue
            self.seconds_by_key[_key_of(games[-1])] = candidate.seconds
        return games if self.base is not None else []

    def better(self, seconds: float) -> bool:
        """True if a game of that time is faster than all known ones by more than the tolerance."""
        return self.best is None or self.nearly * seconds < self.best

    def shows(self, game: Trace) -> bool:
        """True if the time of a game is within the tolerance of the fastest known."""
        seconds = self.seconds.get(digest(game))
        return seconds is not None and self.best is not None and seconds <= self.nearly * self.best

    def evaluated(self, game: Trace, seconds: Callable[[Trace], float | None]) -> None:
        """Evaluate a game unless the time of an alpha-equivalent program is known."""
        if digest(game) not in self.seconds:
            key = _key_of(game)
            if key not in self.seconds_by_key:
                self.seconds_by_key[key] = seconds(game)
            self.seconds[digest(game)] = self.seconds_by_key[key]

    def remember(self, game: Trace, begin: int = 0) -> None:
        """Store a game in the replay move by move; its moves from ``begin`` on are demonstrations if it is
        fast enough."""
        replay = self.context.agent.learner.replay
        played = [Trace(game.root, game.steps[:count]) for count in range(len(game.steps) + 1)]
        states = [self._state(each) for each in played]
        shows = self.shows(game)
        for number, (state, to) in enumerate(zip(states, states[1:])):
            if (state, to) in replay.seen or state == to:
                continue
            moves = self.moves(played[number])
            action = moves.action(game.steps[number])
            if action is not None:
                replay.move(state, action, to)
            if shows and number >= begin:
                for step in next_moves(game, number, self.context.rules):
                    for action in moves.leading_to(step.after):
                        replay.show(state, action)
        if shows:
            self.moves(played[-1])
            replay.show(states[-1], STOP)

    def vary(
        self,
        shown: list[Trace],
        orders: int,
        slips: int,
        seconds: Callable[[Trace], float | None],
        chance: Random,
    ) -> int:
        """Store other orders of demonstrated games, and games with slips; returns their number.

        ``seconds`` evaluates a game with a slip.
        """
        context, count = self.context, 0
        for _ in range(orders if shown else 0):
            self.remember(reordered(chance.choice(shown), context.rules, chance))
            count += 1
        for _ in range(slips if shown else 0):
            game = reordered(chance.choice(shown), context.rules, chance)
            slipped = disturbed(game, context.rules, context.most, chance)
            if slipped is not None:
                self.evaluated(slipped.game, seconds)
                self.remember(slipped.game, slipped.begin)
                count += 1
        return count

    def show(self, game: Trace, whole: Trace, right: Sequence[Step]) -> None:
        """Store that the good game ``whole`` continues after ``game`` with one of the moves ``right``."""
        replay, number, moves = self.context.agent.learner.replay, self._state(game), self.moves(game)
        if len(whole.steps) == len(game.steps):
            replay.show(number, STOP)
        for step in right:
            for action in moves.leading_to(step.after):
                replay.show(number, action)
        if right:
            self.reached(replace(game, steps=(*game.steps, right[0])), whole)

    def reached(self, game: Trace, whole: Trace) -> None:
        """Store the last move of ``game``, and the reward of ``whole``, a game that begins with ``game``."""
        replay, before = self.context.agent.learner.replay, Trace(game.root, game.steps[:-1])
        number, to = self._state(before), self._state(game)
        action = self.moves(before).action(game.steps[-1])
        left = len(whole.steps) - len(game.steps)
        replay.reached(to, replay.gamma**left * (self._reward(whole) or 0.0))
        if action is not None and number != to:
            replay.visit(number, action, to)

    # -- between two sessions ----------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """The known times in seconds, as JSON values; :meth:`read_notes` restores them."""
        known = {"seconds": self.seconds, "alike": self.seconds_by_key, "nearly": self.nearly}
        return known | {"base": self.base, "best": self.best}

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        self.seconds, self.seconds_by_key = dict(notes["seconds"]), dict(notes["alike"])
        self.nearly, self.base, self.best = notes["nearly"], notes["base"], notes["best"]

    # -- what it knows of a program ----------------------------------------------------------------

    def moves(self, game: Trace) -> MoveTable:
        """The moves of a game's last program, which are then stored in the replay."""
        program, context, number = game.program, self.context, self._state(game)
        name = _short(" ".join([program.text, *program.paths]))
        if name not in self._move_tables:
            asked = program, context.rules, context.most, context.target
            if context.agent.learner.replay.states[number].listed:
                steps = context.agent.moves(*asked)
            else:
                listed = context.agent.listed(*asked)
                context.agent.remember(number, listed)
                steps = listed.steps
            self._move_tables[name] = MoveTable.of(steps)
        return self._move_tables[name]

    def step(self, game: Trace, action: int) -> Step:
        """The step that move number ``action``, from 1, makes in a game's last program."""
        step = self.context.rules.attempt(game.program, self.moves(game).moves[action - 1])
        assert isinstance(step, Step), "it was legal when the moves were listed"
        return step

    def values(self, game: Trace) -> Vector:
        """The value of each move of a game's last program [1 + moves], that of stopping first."""
        self.moves(game)
        learner = self.context.agent.learner
        before, after = learner.replay.vectors(self._state(game))
        return learner.values(before, after)

    def _state(self, game: Trace) -> int:
        kernel = digest(Trace(game.root))
        return self.context.agent.learner.replay.state(f"{kernel} {digest(game)}", self._reward(game))

    def _reward(self, game: Trace) -> float | None:
        known = self.seconds.get(digest(game), -1.0)
        if known == -1.0 or self.base is None:
            return None
        return self.base / known if known else 0.0


def remember_fastest(context: GameContext, candidates: Iterable[Candidate], games: int) -> int:
    """Store the ``games`` fastest recorded games of one kernel in the replay; returns the number that
    replayed."""
    recorded_games = RecordedGames(context, candidates)
    found = recorded_games.fastest(games)
    for game in found:
        recorded_games.remember(game)
    return len(found)


def _key_of(game: Trace) -> str:
    return _short(alpha_equivalence_key(game.program)).hex()


def _short(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
