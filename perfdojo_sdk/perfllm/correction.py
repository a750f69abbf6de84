"""Corrected games (DAgger): the agent plays, and in each state it is shown the moves of a good game.

An agent that learns from good games alone never sees the states to which its own mistakes lead (Ross, Gordon
and Bagnell 2011). The teacher is a good game. In each state of the agent's game its missing moves are played
as far as they apply. While the result stays as fast as the best known, the agent's moves did no harm, and
the teacher's next moves are stored as demonstrations. A move after which the result is slower is a slip: its
cost is stored, and a demonstrated move is played instead. A move that returns to an earlier state counts as
a slip too, since the teacher's moves would undo it for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from random import Random

import numpy as np

from perfdojo_sdk.core.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.core.transformation import Move, Step, Trace
from perfdojo_sdk.perfllm.learner import TEMPERATURE
from perfdojo_sdk.perfllm.recorded_games import RecordedGames
from perfdojo_sdk.perfllm.replay import STOP, Vector
from perfdojo_sdk.perfllm.variations import next_moves
from perfdojo_sdk.search.explorer import digest
from perfdojo_sdk.search.neighbours import play_applicable

#: Good games whose missing moves are tried in one state.
TEACHERS = 2
#: Scales of the Gumbel noise, one drawn for each game. 0: greedy moves only; 1: samples of the softmax.
NOISE_SCALES = (0.0, 0.5, 1.0)

Seconds = Callable[[Trace], float | None]
"""Evaluates a game."""


def correct(
    recorded: RecordedGames, good: Sequence[Trace], seconds: Seconds, chance: Random
) -> tuple[int, int]:
    """Play one game as the agent would. Returns the number of corrected states and the number of slips."""
    agent, rules = recorded.context.agent, recorded.context.rules
    noise, game = chance.choice(NOISE_SCALES), Trace(good[0].root)
    whole, slips, passed = _rest(recorded, game, good, seconds), 0, set[str]()
    for number in range(agent.learner.settings.most_moves):
        if not recorded.shows(whole):
            return number, slips
        right = list(next_moves(whole, len(game.steps), rules))
        recorded.show(game, whole, right)
        passed.add(alpha_equivalence_key(game.program))
        action, back = _chosen(recorded.values(game), noise, chance), False
        if action != STOP:
            step = _as_shown(recorded.step(game, action), right)
            back = step not in right and alpha_equivalence_key(step.after) in passed
            following = _with(game, step)
            rest = _rest(recorded, following, good, seconds)
            recorded.reached(following, rest)
        if action == STOP or back or not recorded.shows(rest):
            if not right:
                return number + 1, slips + (action != STOP)
            slips += 1
            following = _with(game, chance.choice(right))
            rest = _rest(recorded, following, good, seconds)
        game, whole = following, rest
    return agent.learner.settings.most_moves, slips


def missing(game: Trace, good: Trace) -> list[Move]:
    """The moves of a good game that ``game`` has not played yet, in order."""
    played, left = Counter(game.moves), list[Move]()
    for move in good.moves:
        if played[move]:
            played[move] -= 1
        else:
            left.append(move)
    return left


def _with(game: Trace, step: Step) -> Trace:
    return replace(game, steps=(*game.steps, step))


def _rest(recorded: RecordedGames, game: Trace, good: Sequence[Trace], seconds: Seconds) -> Trace:
    """The fastest continuation of ``game`` by the missing moves of a good game."""
    context, found = recorded.context, list[Trace]()
    for teacher in sorted(good, key=lambda each: len(missing(game, each)))[:TEACHERS]:
        found.append(play_applicable(game, context.rules, missing(game, teacher), context.most))
        recorded.evaluated(found[-1], seconds)
        if recorded.shows(found[-1]):
            break
    return min(found, key=lambda each: recorded.seconds[digest(each)] or float("inf"))


def _chosen(values: Vector, noise: float, chance: Random) -> int:
    """A move sampled by value: the maximum under Gumbel noise is a sample from the softmax."""
    drawn = [-log(-log(chance.uniform(1e-12, 1 - 1e-12))) for _ in values]
    return int((values / TEMPERATURE + noise * np.array(drawn)).argmax())


def _as_shown(step: Step, right: Sequence[Step]) -> Step:
    """The demonstrated step whose program is alpha-equivalent to that of ``step``, else ``step`` itself.

    The missing moves refer to the names that the demonstrated step creates.
    """
    wanted = alpha_equivalence_key(step.after)
    return next((each for each in right if alpha_equivalence_key(each.after) == wanted), step)
