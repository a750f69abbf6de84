"""The two structures of the search space (paper, section 4.2.1): the games that are one change away.

*Edges*: one more legal move, in the graph of transformations. *Sequences*: the whole game with a change at
any point, where later moves stay if they still apply, as a person tunes by hand: another parameter, one move
less or more, or the rest of another game (such as a pass's) from some point on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TypeAlias

from perfdojo_sdk.core import history
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Step, Trace

#: Length from which games get no further moves.
MOST_MOVES = 400

Neighbour: TypeAlias = Callable[[Trace, Random], Trace | None]
"""Draws a game one change away; None when no game came of this draw."""


#: Share of the moves for transformations that are played too rarely.
RARE = 0.25


def random_step(
    rng: Random,
    program: Program,
    rules: Rules,
    only: str | None = None,
    most: Kind = Kind.DECLARED_LAW,
    played: Mapping[str, int] | None = None,
    rarest: Sequence[str] = (),
) -> Step | None:
    """One random legal move; transformations are drawn evenly, then their places.

    ``only`` names the transformation to play. ``played``: how often each one was; one move in four is of
    the first of ``rarest`` that can be played, else of that which was played least. None when it (or every
    one) has no legal move.
    """
    names = [only] if only else rng.sample(list(rules.transformations), len(rules.transformations))
    if played is not None and rng.random() < RARE:
        names.sort(key=lambda name: played.get(name, 0))
        names.sort(key=lambda name: rarest.index(name) if name in rarest else len(rarest))
    for name in names:
        moves = list(rules.transformations[name].candidates(program, rules.dialect))
        rng.shuffle(moves)
        for move in moves:
            result = rules.attempt(program, move)
            if isinstance(result, Step) and result.legal.kind <= most:
                return result
    return None


class Edges:
    """One more move at the end of the game."""

    def __init__(self, rules: Rules, most: Kind) -> None:
        self.rules, self.most = rules, most

    def __call__(self, game: Trace, chance: Random) -> Trace | None:
        step = random_step(chance, game.program, self.rules, most=self.most)
        if step is None or len(game.steps) >= MOST_MOVES:
            return None
        return replace(game, steps=(*game.steps, step))


class Sequences:
    """One change anywhere in the game. ``donors`` are games from which pieces are taken."""

    def __init__(self, rules: Rules, most: Kind, donors: Sequence[Trace] = ()) -> None:
        self.rules, self.most, self.donors = rules, most, tuple(donors)
        self.changes = (self._alter, self._alter, self._take_out, self._insert, self._append, self._splice)

    def __call__(self, game: Trace, chance: Random) -> Trace | None:
        change = chance.choice(self.changes)
        try:
            changed = change(game, chance)
        except MoveError:
            return None
        if changed is None or changed.kind > self.most or changed.moves == game.moves:
            return None
        return changed

    def _alter(self, game: Trace, chance: Random) -> Trace | None:
        """The same move with another parameter; later moves act on what it makes now."""
        if not game.steps:
            return None
        position = chance.randrange(len(game.steps))
        step = game.steps[position]
        others = self._alternatives(step)
        return self._first(others, chance, lambda move: history.replace(game, self.rules, position, move)[0])

    def _alternatives(self, step: Step) -> list[Move]:
        move, transformation = step.move, self.rules.transformation(step.move.transformation)
        if not move.parameters:
            return []
        found = transformation.candidates(step.before, self.rules.dialect)
        return [m for m in found if m.place == move.place and m.parameters != move.parameters]

    def _take_out(self, game: Trace, chance: Random) -> Trace | None:
        if not game.steps:
            return None
        return history.undo(game, self.rules, chance.randrange(len(game.steps)))[0]

    def _insert(self, game: Trace, chance: Random) -> Trace | None:
        if len(game.steps) >= MOST_MOVES:
            return None
        position = chance.randint(0, len(game.steps))
        before = game.steps[position].before if position < len(game.steps) else game.program
        step = random_step(chance, before, self.rules, most=self.most)
        return history.insert(game, self.rules, position, step.move)[0] if step else None

    def _append(self, game: Trace, chance: Random) -> Trace | None:
        return Edges(self.rules, self.most)(game, chance)

    def _splice(self, game: Trace, chance: Random) -> Trace | None:
        """The beginning of this game, followed by those moves of another one that still apply."""
        if not self.donors:
            return None
        start = Trace(game.root, game.steps[: chance.randint(0, len(game.steps))])
        donor = chance.choice(self.donors).moves
        return play_applicable(start, self.rules, donor[chance.randint(0, len(donor)) :], self.most)

    def _first(self, moves: list[Move], chance: Random, play: Callable[[Move], Trace]) -> Trace | None:
        """The game that the first legal move of a shuffled list makes."""
        chance.shuffle(moves)
        for move in moves:
            try:
                return play(move)
            except MoveError:
                continue
        return None


def play_applicable(start: Trace, rules: Rules, moves: Sequence[Move], most: Kind) -> Trace:
    """``start`` followed by those of ``moves``, in order, that are legal when their turn comes."""
    game = start
    for move in moves:
        try:
            result = rules.attempt(game.program, move)
        except MoveError:
            continue
        if isinstance(result, Step) and result.legal.kind <= most and len(game.steps) < MOST_MOVES:
            game = replace(game, steps=(*game.steps, result))
    return game
