"""Several games played side by side, by what a network thinks of their moves and nothing else.

A game of twenty good moves is seldom played when one slip loses it, and most of its moves may come in many
orders. So a beam keeps some programs at a time, adds up how likely the ways to each are, and gives every
program on its way, with how likely the agent is to stop there. Programs that differ in the names of their
arrays alone are one. Beside it goes the game of the agent's favourite moves: likelier beginnings that end
worse may fill a beam.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp, log
from random import Random
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.perfllm.agent import Listed
from perfdojo_sdk.perfllm.learner import TEMPERATURE
from perfdojo_sdk.perfllm.replay import STOP, Vector
from perfdojo_sdk.search.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.search.explorer import digest

#: A program that is less likely than the likeliest end by this factor's logarithm is not gone on with.
HOPELESS = 12.0
#: Moves of one program that may go on, for each place in the beam.
BRANCHES = 3

Look: TypeAlias = Callable[[Trace], tuple[Listed, Vector]]
"""The moves of a game's last program, and what the network says each is worth, the stop first."""


@dataclass(frozen=True)
class Width:
    """How wide a beam is, and how much chance has a say in it."""

    places: int
    moves: int
    """Most moves of a beam."""
    noise: float = 0.0
    """How much, in the network's scale, chance adds to what a program is worth when places are given away."""
    epsilon: float = 0.0
    """Part of the places that are given away by chance alone."""


@dataclass(frozen=True)
class Place:
    """A program on the way of a beam."""

    game: Trace
    actions: tuple[int, ...]
    """Those since the beam's start, without a stop."""
    likely: float
    """Logarithm of how likely the agent comes here."""
    stopping: float = 0.0
    """Logarithm of how likely it stops here once it has come."""
    worth: float = 0.0
    """What the network thinks the program itself is worth, in its scale."""

    @property
    def ending(self) -> float:
        """How much the way here is a whole game: by its mean move, or else short games were always better."""
        return self.likely / max(1, len(self.actions)) + self.stopping


def beam(start: Trace, look: Look, width: Width, chance: Random) -> list[Place]:
    """Every program that a beam goes through, its start first, in the order in which it came there."""
    front, found, best_end = [Place(start, (), 0.0)], list[Place](), float("-inf")
    seen = {alpha_equivalence_key(start.program)}
    for moves in range(width.moves + 1):
        children: dict[str, Place] = {}
        for place in front:
            listed, values = look(place.game)
            likely = log_softmax(values / TEMPERATURE)
            found.append(replace(place, stopping=float(likely[STOP]), worth=float(values[STOP])))
            best_end = max(best_end, place.likely + float(likely[STOP]))
            for alike, child in _children(place, listed, likely, width, chance):
                if alike not in seen:
                    known = children.get(alike)
                    children[alike] = _merged(known, child) if known else child
        hopeful = {n: child for n, child in children.items() if child.likely > best_end - HOPELESS}
        if moves == width.moves or not hopeful:
            break
        names = _given(hopeful, width, chance)
        seen.update(names)
        front = [hopeful[name] for name in names]
    return found


def favourite(start: Trace, look: Look, moves: int) -> Place:
    """Where the agent comes to with the move that it likes best, each time, in at most so many moves.

    Unlike a beam it may come back to a program with other names: experts' games do, where a copy takes the
    place of an array.
    """
    place, passed = Place(start, (), 0.0), set[str]()
    while True:
        passed.add(digest(Trace(place.game.program)))
        listed, values = look(place.game)
        likely, best = log_softmax(values / TEMPERATURE), int(values.argmax())
        here = replace(place, stopping=float(likely[STOP]), worth=float(values[STOP]))
        if best == STOP or len(place.actions) == moves:
            return here
        game = replace(place.game, steps=(*place.game.steps, listed.steps[best - 1]))
        if digest(Trace(game.program)) in passed:
            return here
        place = Place(game, (*place.actions, best), place.likely + float(likely[best]))


def log_softmax(values: Vector) -> Vector:
    shifted = values - values.max()
    found: Vector = shifted - np.log(np.exp(shifted).sum())
    return found


def _children(
    place: Place, listed: Listed, likely: Vector, width: Width, chance: Random
) -> Iterator[tuple[str, Place]]:
    """The likeliest moves and one by chance, each with what the program that it leads to is like."""
    order = [int(action) for action in (-likely).argsort(kind="stable") if action != STOP]
    chosen = order[: BRANCHES * width.places]
    if width.epsilon and len(order) > len(chosen):
        chosen.append(chance.choice(order[len(chosen) :]))
    for action in chosen:
        step = listed.steps[action - 1]
        game = replace(place.game, steps=(*place.game.steps, step))
        child = Place(game, (*place.actions, action), place.likely + float(likely[action]))
        yield alpha_equivalence_key(game.program), child


def _merged(one: Place, other: Place) -> Place:
    """Two ways to one program: the likelier one, as likely as both together."""
    better, worse = (one, other) if one.likely >= other.likely else (other, one)
    return replace(better, likely=better.likely + log(1 + exp(worse.likely - better.likely)))


def _given(children: dict[str, Place], width: Width, chance: Random) -> list[str]:
    """Who goes on: the likeliest with some noise, and a few by chance."""
    scale = width.noise / TEMPERATURE
    noisy = {
        name: child.likely - scale * log(-log(chance.uniform(1e-12, 1 - 1e-12))) if scale else child.likely
        for name, child in children.items()
    }
    left = sorted(noisy, key=lambda name: -noisy[name])
    given = list[str]()
    while left and len(given) < width.places:
        at = chance.randrange(len(left)) if width.epsilon and chance.random() < width.epsilon else 0
        given.append(left.pop(at))
    return given
