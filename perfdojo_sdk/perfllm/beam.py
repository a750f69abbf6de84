"""Beam search over games, guided by the network's values of moves alone.

Sampling seldom plays a game of twenty good moves when one slip loses it, and most of these moves may come in
many orders. The beam therefore keeps several programs at a time and adds up the probabilities of all orders
that lead to the same one. It returns every program it visits, with the probability that the agent stops
there. Programs that differ only in the names of local arrays count as one. The greedy game is played as
well, since prefixes that are likelier but end worse can fill a beam.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp, log
from random import Random
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.core.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.perfllm.agent import Listed
from perfdojo_sdk.perfllm.learner import TEMPERATURE
from perfdojo_sdk.perfllm.replay import STOP, Vector
from perfdojo_sdk.search.explorer import digest

#: A program is dropped if its log-probability is lower than the best end's by more than this.
HOPELESS = 12.0
#: Children of one program, for each place in the beam.
BRANCHES = 3

Look: TypeAlias = Callable[[Trace], tuple[Listed, Vector]]
"""The moves of a game's last program and the network's values, that of stopping first."""


@dataclass(frozen=True)
class BeamWidth:
    """The width of a beam, its depth and its randomness."""

    places: int
    moves: int
    """Maximal number of moves."""
    noise: float = 0.0
    """Scale of the Gumbel noise added to the log-probability of a program, in the network's scale."""
    epsilon: float = 0.0
    """Fraction of the places that are filled at random."""


@dataclass(frozen=True)
class BeamNode:
    """A node of the beam: a program and the game that leads to it."""

    game: Trace
    actions: tuple[int, ...]
    """The numbers of the moves since the beam's start, without a stop."""
    likely: float
    """Log-probability that the agent reaches this program."""
    stopping: float = 0.0
    """Log-probability that it stops here after reaching it."""
    worth: float = 0.0
    """The network's value of stopping here, in its scale."""

    @property
    def ending(self) -> float:
        """Log-probability of ending here, normalised by the number of moves so that short games gain
        nothing."""
        return self.likely / max(1, len(self.actions)) + self.stopping


def beam(start: Trace, look: Look, width: BeamWidth, chance: Random) -> list[BeamNode]:
    """All programs that the beam visits, in the order of the visits; the start is the first."""
    front, found, best_end = [BeamNode(start, (), 0.0)], list[BeamNode](), float("-inf")
    seen = {alpha_equivalence_key(start.program)}
    for moves in range(width.moves + 1):
        children: dict[str, BeamNode] = {}
        for place in front:
            listed, values = look(place.game)
            likely = log_softmax(values / TEMPERATURE)
            found.append(replace(place, stopping=float(likely[STOP]), worth=float(values[STOP])))
            best_end = max(best_end, place.likely + float(likely[STOP]))
            for key, child in _children(place, listed, likely, width, chance):
                if key not in seen:
                    known = children.get(key)
                    children[key] = _merged(known, child) if known else child
        hopeful = {n: child for n, child in children.items() if child.likely > best_end - HOPELESS}
        if moves == width.moves or not hopeful:
            break
        names = _given(hopeful, width, chance)
        seen.update(names)
        front = [hopeful[name] for name in names]
    return found


def greedy_game(start: Trace, look: Look, moves: int) -> BeamNode:
    """The end of the greedy game: the move of the highest value each time, at most ``moves`` of them.

    Unlike the beam it may return to an alpha-equivalent program. Experts' games do so where a copy replaces
    an array.
    """
    place, passed = BeamNode(start, (), 0.0), set[str]()
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
        place = BeamNode(game, (*place.actions, best), place.likely + float(likely[best]))


def log_softmax(values: Vector) -> Vector:
    """The logarithm of the softmax of ``values``."""
    shifted = values - values.max()
    found: Vector = shifted - np.log(np.exp(shifted).sum())
    return found


def _children(
    place: BeamNode, listed: Listed, likely: Vector, width: BeamWidth, chance: Random
) -> Iterator[tuple[str, BeamNode]]:
    """The likeliest moves and a random one, each with the alpha-equivalence key of its program."""
    order = [int(action) for action in (-likely).argsort(kind="stable") if action != STOP]
    chosen = order[: BRANCHES * width.places]
    if width.epsilon and len(order) > len(chosen):
        chosen.append(chance.choice(order[len(chosen) :]))
    for action in chosen:
        step = listed.steps[action - 1]
        game = replace(place.game, steps=(*place.game.steps, step))
        child = BeamNode(game, (*place.actions, action), place.likely + float(likely[action]))
        yield alpha_equivalence_key(game.program), child


def _merged(one: BeamNode, other: BeamNode) -> BeamNode:
    """The likelier of two games that lead to one program, with the sum of both probabilities."""
    better, worse = (one, other) if one.likely >= other.likely else (other, one)
    return replace(better, likely=better.likely + log(1 + exp(worse.likely - better.likely)))


def _given(children: dict[str, BeamNode], width: BeamWidth, chance: Random) -> list[str]:
    """The keys of the programs that stay in the beam: the likeliest under noise, and a few at random."""
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
