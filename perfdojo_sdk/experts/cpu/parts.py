"""Games of a part of a program (``core/parts.py``), whose moves the whole program replays.

An expert that plans one nest sees nothing else that way, and every legality check is made again by the
rules when the whole program plays the moves.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.made import Made
from perfdojo_sdk.core.move import Move
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Step, Trace
from perfdojo_sdk.experts.cpu.blocks import loops_around, same_in_each
from perfdojo_sdk.search.play import Play


def replay(play: Play, trace: Trace, around: str = "") -> None:
    """Play the moves of a part's game on the whole program, which may have other names for what they make.
    ``around``: the outermost of the loops of which the part is one iteration; copies of what is the same in
    each iteration of one of them are made before that loop.

    There, loops may stand around the part: threads are theirs, so no scope of the part gets any, and what the
    moves make has one place for all iterations of these loops. :class:`MoveError` where a move is not legal
    on the whole program.
    """
    names: dict[str, str] = {}
    before_all: set[str] = set()
    """Copies before the loop: no iteration may use a place of it again for another element."""
    loops = [loop.id for loop in loops_around(play.program, around)] if around else []
    for step in trace.steps:
        move = step.move.renamed(names)
        parameters, place = dict(move.parameters), move.place
        if "dim" in parameters:
            further = _rank(play.program, move.place) - _rank(step.before, step.move.place)
            parameters["dim"] = int(parameters["dim"]) + further
        elif parameters.get("suffix") == play.threads and _stands_deeper(play.program, move, step):
            continue
        if place in before_all and move.transformation == "reuse_dims":
            continue
        if around and move.transformation == "stage_read":
            same = same_in_each([play.scope(loop) for loop in loops]).get(str(parameters["array"]))
            place = place if same is None else loops[same]
        made = play.must(move.transformation, place, **parameters)
        if place != move.place:
            before_all.update(made.buffers)
        for mine, theirs in zip(step.made.buffers, made.buffers, strict=True):
            for k in range(_rank(play.program, theirs) - _rank(step.after, mine)):
                play.may("reuse_dims", theirs, dim=k)
        names.update(_same(step.made, made))


def _rank(program: Program, buffer: str) -> int:
    return len(program.buffer_of[buffer].shape)


def _stands_deeper(program: Program, move: Move, step: Step) -> bool:
    """True if loops of the whole program stand around the part."""
    return len(program.paths[move.place]) > len(step.before.paths[step.move.place])


def _same(mine: Made, theirs: Made) -> Iterator[tuple[str, str]]:
    """Names that moves made, in pairs. What is copied before a loop has loops of its own outside."""
    further = len(theirs.scopes) - len(mine.scopes)
    yield from zip(mine.scopes, theirs.scopes[further:], strict=True)
    yield from zip(mine.statements, theirs.statements, strict=True)
    yield from zip(mine.buffers, theirs.buffers, strict=True)
