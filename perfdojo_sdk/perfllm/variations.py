"""Variations of a good game: its moves in another order, and games with a slip that later moves undo.

A game demonstrates one move in each of its states, and nothing in other states. Most of its moves could be
played earlier or later as well, and an agent that slips once is in a state that no game has demonstrated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Step, Trace
from perfdojo_sdk.search.neighbours import play_applicable, random_step

#: Exchanges of neighbouring moves that are tried, for each move of a game.
EXCHANGES = 12
#: Most random moves in one deviation from a game.
SLIPS = 2
#: Number of later moves that are tried as the next one; the work grows with its square.
AHEAD = 10


@dataclass(frozen=True)
class Shown:
    """A game that is a demonstration from some move on."""

    game: Trace
    begin: int = 0
    """Number of the first demonstrated move."""


def reordered(game: Trace, rules: Rules, chance: Random) -> Trace:
    """The same moves in another order that leads to the same program.

    Neighbours change places again and again, where both orders lead to the same program with the same ids.
    """
    steps = list(game.steps)
    for _ in range(EXCHANGES * len(steps) if len(steps) > 1 else 0):
        k = chance.randrange(len(steps) - 1)
        swapped = exchanged(steps[k], steps[k + 1], rules)
        if swapped:
            steps[k : k + 2] = swapped
    return Trace(game.root, tuple(steps))


def exchanged(first: Step, second: Step, rules: Rules) -> tuple[Step, Step] | None:
    """Both moves in the opposite order; None where that is illegal or leads to another program."""
    earlier = _attempt(rules, first.before, second.move)
    later = _attempt(rules, earlier.after, first.move) if earlier else None
    if earlier is None or later is None or not same(later.after, second.after):
        return None
    return earlier, later


def next_moves(game: Trace, begin: int, rules: Rules) -> Iterator[Step]:
    """The moves of the rest of a game that could come next, after ``begin`` moves, without losing the others.

    The first is the one that does. One of the :data:`AHEAD` moves after it is found where it changes places
    with each one before it.
    """
    for k in range(begin, min(len(game.steps), begin + 1 + AHEAD)):
        step: Step | None = game.steps[k]
        for before in reversed(game.steps[begin:k]):
            swapped = exchanged(before, step, rules) if step else None
            step = swapped[0] if swapped else None
            if step is None:
                break
        if step is not None:
            yield step


def disturbed(game: Trace, rules: Rules, most: Kind, chance: Random) -> Shown | None:
    """A slip of one move or two anywhere in a game, then all that still applies of its rest.

    None when no slip was found. Whether the rest has made up for it is for an evaluation to say.
    """
    begin = chance.randrange(len(game.steps)) if game.steps else 0
    slipped = Trace(game.root, game.steps[:begin])
    for _ in range(chance.randint(1, SLIPS)):
        step = random_step(chance, slipped.program, rules, most=most)
        if step is None:
            return None
        slipped = Trace(game.root, (*slipped.steps, step))
    rest = [step.move for step in game.steps[begin:]]
    return Shown(play_applicable(slipped, rules, rest, most), len(slipped.steps))


def same(one: Program, other: Program) -> bool:
    """True if both programs have equal texts and equal node ids, so that moves mean the same in both."""
    if one.text != other.text:
        return False
    return [node.id for _, node in one.walk()] == [node.id for _, node in other.walk()]


def _attempt(rules: Rules, program: Program, move: Move) -> Step | None:
    try:
        result = rules.attempt(program, move)
    except MoveError:
        return None
    return result if isinstance(result, Step) else None
