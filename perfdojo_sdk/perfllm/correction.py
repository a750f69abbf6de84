"""Games that the agent plays itself while it is shown, at each of its states, how to go on from there.

An agent that learns from good games alone knows nothing of where its own slips lead (Ross, Gordon and Bagnell
2011, whose algorithm DAgger this is). The teacher is a good game: what it still has to play, as far as that
applies, is played out from each state that the agent comes to. As long as the end is as good as any, the
agent's moves were harmless, and the moves that belong to the rest are shown. A move after which the rest
does not make up for it is a slip: what it costs is remembered, and a move that was shown is played instead.
So is a move that leads back to where the game was: the rest makes up for it, round after round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from random import Random

import numpy as np

from perfdojo_sdk.core.transformation import Move, Step, Trace
from perfdojo_sdk.perfllm.learner import TEMPERATURE
from perfdojo_sdk.perfllm.recall import Recall
from perfdojo_sdk.perfllm.replay import STOP, Vector
from perfdojo_sdk.perfllm.variations import next_moves
from perfdojo_sdk.search.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.search.explorer import digest
from perfdojo_sdk.search.neighbours import followed

#: Good games whose rest is tried at one state.
TEACHERS = 2
#: How keen on its favourite moves the agent is in a game: 0, only on these; 1, as likely as a softmax says.
KEENNESS = (0.0, 0.5, 1.0)

Seconds = Callable[[Trace], float | None]
"""Evaluates a game."""


def correct(recalling: Recall, good: Sequence[Trace], seconds: Seconds, chance: Random) -> tuple[int, int]:
    """Play one game as the agent would: in how many states it was shown how to go on, and its slips."""
    agent, rules = recalling.table.agent, recalling.table.rules
    noise, game = chance.choice(KEENNESS), Trace(good[0].root)
    whole, slips, passed = _rest(recalling, game, good, seconds), 0, set[str]()
    for number in range(agent.learner.settings.most_moves):
        if not recalling.shows(whole):
            return number, slips
        right = list(next_moves(whole, len(game.steps), rules))
        recalling.show(game, whole, right)
        passed.add(alpha_equivalence_key(game.program))
        action, back = _chosen(recalling.values(game), noise, chance), False
        if action != STOP:
            step = _as_shown(recalling.step(game, action), right)
            back = step not in right and alpha_equivalence_key(step.after) in passed
            following = _with(game, step)
            rest = _rest(recalling, following, good, seconds)
            recalling.reached(following, rest)
        if action == STOP or back or not recalling.shows(rest):
            if not right:
                return number + 1, slips + (action != STOP)
            slips += 1
            following = _with(game, chance.choice(right))
            rest = _rest(recalling, following, good, seconds)
        game, whole = following, rest
    return agent.learner.settings.most_moves, slips


def missing(game: Trace, good: Trace) -> list[Move]:
    """The moves of a good game that were not played yet, in its order."""
    played, left = Counter(game.moves), list[Move]()
    for move in good.moves:
        if played[move]:
            played[move] -= 1
        else:
            left.append(move)
    return left


def _with(game: Trace, step: Step) -> Trace:
    return replace(game, steps=(*game.steps, step))


def _rest(recalling: Recall, game: Trace, good: Sequence[Trace], seconds: Seconds) -> Trace:
    """The game and what still applies of a good one: the fastest such end."""
    table, found = recalling.table, list[Trace]()
    for teacher in sorted(good, key=lambda each: len(missing(game, each)))[:TEACHERS]:
        found.append(followed(game, table.rules, missing(game, teacher), table.most))
        recalling.evaluated(found[-1], seconds)
        if recalling.shows(found[-1]):
            break
    return min(found, key=lambda each: recalling.seconds[digest(each)] or float("inf"))


def _chosen(values: Vector, noise: float, chance: Random) -> int:
    """A move drawn by its value: the largest of values with Gumbel noise is a draw from their softmax."""
    drawn = [-log(-log(chance.uniform(1e-12, 1 - 1e-12))) for _ in values]
    return int((values / TEMPERATURE + noise * np.array(drawn)).argmax())


def _as_shown(step: Step, right: Sequence[Step]) -> Step:
    """The step, under the names that a shown one gives where both lead to the same program but for names.

    The moves that are still missing go by these names.
    """
    wanted = alpha_equivalence_key(step.after)
    return next((each for each in right if alpha_equivalence_key(each.after) == wanted), step)
