"""Games of a part of a program (``core/parts.py``), whose moves the whole program replays.

An expert that plans one nest sees nothing else that way, and every legality check is made again by the
rules when the whole program plays the moves.
"""

from __future__ import annotations

from perfdojo_sdk.core.made import Made
from perfdojo_sdk.core.move import Move
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Step, Trace
from perfdojo_sdk.search.play import Play


def replay(play: Play, trace: Trace) -> None:
    """Play the moves of a part's game on the whole program, which may have other names for what they make.

    There, loops may stand around the part: threads are theirs, so no scope of the part gets any, and what the
    moves make has one place for all iterations of these loops. :class:`MoveError` where a move is not legal
    on the whole program.
    """
    names: dict[str, str] = {}
    for step in trace.steps:
        move = step.move.renamed(names)
        parameters = dict(move.parameters)
        if "dim" in parameters:
            further = _rank(play.program, move.place) - _rank(step.before, step.move.place)
            parameters["dim"] = int(parameters["dim"]) + further
        elif parameters.get("suffix") == play.threads and _stands_deeper(play.program, move, step):
            continue
        made = play.must(move.transformation, move.place, **parameters)
        for mine, theirs in zip(step.made.buffers, made.buffers, strict=True):
            for k in range(_rank(play.program, theirs) - _rank(step.after, mine)):
                play.may("reuse_dims", theirs, dim=k)
        names.update(zip(_made(step.made), _made(made), strict=True))


def _rank(program: Program, buffer: str) -> int:
    return len(program.buffer_of[buffer].shape)


def _stands_deeper(program: Program, move: Move, step: Step) -> bool:
    """True if loops of the whole program stand around the part."""
    return len(program.paths[move.place]) > len(step.before.paths[step.move.place])


def _made(made: Made) -> tuple[str, ...]:
    return (*made.scopes, *made.statements, *made.buffers)
