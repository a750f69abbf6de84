"""Change the middle of a game: take a move out, put it back, put another one in or in its place.

Later moves are played again, each with its check. A place is a name, and moves create names; when a
move is taken out, another one may create the same name for something else. So a later move is kept only if
every name that it uses still comes from the same move as before. Moves that are not kept are
reported with the reason, and remembered: putting the move back restores them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfdojo_sdk.core.errors import DojoError, MoveError
from perfdojo_sdk.core.transformation import Move, Rules, Step, Trace


@dataclass(frozen=True)
class Dropped:
    """A move that a change could not keep, and why."""

    move: Move
    reason: DojoError
    position: int
    """Its number in the trace before the change."""


@dataclass(frozen=True)
class Undone:
    """The moves that an undo took out of a trace: positions in the trace as it was, ascending, and moves."""

    moves: tuple[tuple[int, Move], ...]


def undo(trace: Trace, rules: Rules, position: int) -> tuple[Trace, Undone, tuple[Dropped, ...]]:
    """Take out move ``position`` (from 0) and keep every later one that still applies.

    :class:`MoveError` when there is no such move. The trace with :func:`redo` of what was undone is
    the given one, exactly.
    """
    if not 0 <= position < len(trace.steps):
        raise _no_such_move(position, len(trace.steps))
    gone = trace.steps[position].move
    why = f"move {position}, {gone.text}, is gone"
    start = Trace(trace.root, trace.steps[:position])
    result, dropped = _Replay(trace, rules, why).play(start, range(position), position + 1)
    undone = Undone(((position, gone), *((d.position, d.move) for d in dropped)))
    return result, undone, dropped


def redo(trace: Trace, rules: Rules, undone: Undone) -> Trace:
    """Put back what :func:`undo` took out of the trace that it made of it.

    :class:`MoveError` when a move does not apply: ``trace`` is then another one.
    """
    back = dict(undone.moves)
    kept = iter(trace.moves)
    count = len(trace.steps) + len(back)
    if sorted(back) != [n for n, _ in undone.moves] or any(not 0 <= n < count for n in back):
        raise MoveError("PD-T008", "what was undone does not fit into the trace", hint=_EDITED)
    first = min(back, default=count)
    moves = [back[n] if n in back else next(kept) for n in range(count)]
    return Trace(trace.root, trace.steps[:first]).play_all(rules, moves[first:])


def insert(trace: Trace, rules: Rules, position: int, move: Move) -> tuple[Trace, tuple[Dropped, ...]]:
    """Play ``move`` before move ``position`` and keep every later one that still applies.

    :class:`MoveError` when there is no such place in the trace, or ``move`` is not legal there.
    """
    if not 0 <= position <= len(trace.steps):
        raise _no_such_move(position, len(trace.steps))
    start = Trace(trace.root, trace.steps[:position]).play(rules, move)
    why = f"{move.text} comes before it now"
    return _Replay(trace, rules, why).play(start, [*range(position), _INSERTED], position)


def replace(trace: Trace, rules: Rules, position: int, move: Move) -> tuple[Trace, tuple[Dropped, ...]]:
    """Play ``move`` in the place of move ``position`` and keep every later one that still applies.

    Names that the new move makes stand for those that the old one made: where both split a scope, later
    moves on the halves are kept. :class:`MoveError` when there is no such move, or ``move`` is not legal
    there.
    """
    if not 0 <= position < len(trace.steps):
        raise _no_such_move(position, len(trace.steps))
    start = Trace(trace.root, trace.steps[:position]).play(rules, move)
    why = f"{move.text} stands in the place of {trace.steps[position].move.text}"
    return _Replay(trace, rules, why).play(start, range(position + 1), position + 1)


_EDITED = "undo and redo belong together; a file that was edited by hand has to be undone again"
_ROOT, _INSERTED = -1, -2


def _no_such_move(position: int, count: int) -> MoveError:
    what = f"there is no move {position}; the trace has {count}"
    return MoveError("PD-T005", what, hint="moves count from 0")


class _Replay:
    """Plays the later moves of ``trace`` again, as long as their names mean what they meant."""

    def __init__(self, trace: Trace, rules: Rules, why: str) -> None:
        self.trace, self.rules, self.why = trace, rules, why

    def play(self, start: Trace, labels: Iterable[int], first: int) -> tuple[Trace, tuple[Dropped, ...]]:
        """Go on from ``start``, whose steps are the trace's moves ``labels``, with move ``first``."""
        result, known, dropped = start, list(labels), list[Dropped]()
        for position in range(first, len(self.trace.steps)):
            move = self.trace.steps[position].move
            try:
                self._check_names(move, position, result, known)
                result = result.play(self.rules, move)
            except MoveError as error:
                # Its traceback would hold this frame, and so itself and every program of the game.
                dropped.append(Dropped(move, error.with_traceback(None), position))
            else:
                known.append(position)
        return result, tuple(dropped)

    def _check_names(self, move: Move, position: int, now: Trace, labels: Sequence[int]) -> None:
        """:class:`MoveError` when a name exists, and comes from another move than it did."""
        before = self.trace.steps[:position]
        for name in (move.place, *(value for _, value in move.parameters)):
            if not isinstance(name, str) or not now.program.has(name):
                continue
            if not self.trace.steps[position].before.has(name):
                continue
            origin = _origin(name, before, range(position))
            if origin != _origin(name, now.steps, labels):
                what = f"{move.text} would act on another {name}"
                made = "the initial program" if origin == _ROOT else f"move {origin}"
                why = f"{name} came from {made}, and comes from elsewhere since {self.why}"
                raise MoveError("PD-T007", what, why=why, hint="play it again by hand where it belongs")


def _origin(name: str, steps: Sequence[Step], labels: Sequence[int]) -> int:
    """The label of the step that made ``name``, which is there at their end."""
    for step, label in zip(reversed(steps), reversed(labels), strict=True):
        if not step.before.has(name):
            return label
    return _ROOT
