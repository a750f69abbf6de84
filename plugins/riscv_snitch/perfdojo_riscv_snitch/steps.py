"""Steps that the passes of this target share: searches in the tree, and short sequences of moves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from perfdojo_riscv_snitch.codegen.pairs import LANES, LANES_OF
from perfdojo_riscv_snitch.codegen.streams import MOVERS
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.search.play import Play

T = TypeVar("T")


def several(found: Collection[T], count: int, what: str) -> list[T]:
    """``found``, which are ``count``; :class:`MoveError` where they are more or fewer."""
    if len(found) != count:
        raise MoveError("PD-T001", f"{len(found)} {what}, expected {count}")
    return list(found)


def perfect(play: Play, place: str) -> list[str]:
    """Ids of the scopes that hold nothing but each other, from ``place`` inwards."""
    found = [place]
    while len(body := play.scope(found[-1]).body) == 1 and isinstance(body[0], Scope):
        found.append(body[0].id)
    return found


def innermost(play: Play, path: tuple[int, ...]) -> Iterator[str]:
    """Scopes of statements below the node at ``path``; below the root for the empty path."""
    todo: list[Node] = list(play.program.children(path))
    while todo:
        each = todo.pop(0)
        if isinstance(each, Scope):
            if all(isinstance(c, Statement) for c in each.body):
                yield each.id
            else:
                todo = [*each.body, *todo]


def arrays(play: Play, place: str, written: bool) -> list[str]:
    """Arrays in memory that the scope touches, in order."""
    touches = play.scope(place).touches
    found = [a for a, each in touches.items() if any(t.writes is written for t in each)]
    return [a for a in found if play.program.buffer_of[a].location not in (*MOVERS, "reg")]


def streams(program: Program) -> set[str]:
    return {a for b in program.buffers if b.location in MOVERS for a in b.arrays}


def collapsed(play: Play, loops: Sequence[str]) -> str:
    place = loops[0]
    for _ in loops[1:]:
        place = play.collapse(place)
    return place


def cut(play: Play, place: str) -> list[str]:
    """Split a scope into one for each child; their ids."""
    return [place, *[play.fission(child.id) for child in play.scope(place).body[1:]]]


def bring_inside(play: Play, place: str) -> None:
    """Exchange a scope with those inside it until it holds statements."""
    while isinstance(play.scope(place).body[0], Scope):
        play.must("swap_scopes", place)


def hoist(play: Play, place: str) -> None:
    """Keep in registers what is the same in all iterations."""
    for array, touches in play.scope(place).touches.items():
        if not any(t.writes or t.access.levels for t in touches):
            made = play.may("stage_read", place, array=array)
            for name in made.buffers if made else ():
                play.may("set_location", name, location="reg")


def stage(play: Play, move: str, place: str, array: str) -> tuple[str, str]:
    """Stage an array and join the copy with the scope: name of the buffer, id of the joined scope."""
    made = play.stage(move, place, array)
    if move == "stage_read" and not made.scopes:  # one element for the whole scope: nothing to join
        return made.buffer, place
    first = place if move == "stage_write" else made.copy
    play.must("join_scopes", first)
    return made.buffer, first


def into_stream(play: Play, name: str) -> None:
    buffer = play.program.buffer(name)
    assert buffer is not None
    for k in buffer.materialised:
        play.must("reuse_dims", name, dim=k)
    free_mover(play, name)


def free_mover(play: Play, name: str) -> None:
    """Put a buffer into a stream register, one that no other uses if there is one."""
    used = {buffer.location for buffer in play.program.buffers}
    *others, last = sorted(MOVERS, key=lambda mover: mover in used)
    if not any(play.may("set_location", name, location=location) for location in others):
        play.must("set_location", name, location=last)


def streamed_reads(play: Play, place: str) -> str:
    for array in arrays(play, place, written=False):
        if array in arrays(play, place, written=True) or array not in play.program.interface:
            continue
        kept = play.trace
        try:
            name, place_now = stage(play, "stage_read", place, array)
            into_stream(play, name)
            place = place_now
        except MoveError:
            play.trace = kept
    return place


def contract_all(play: Play) -> None:
    for buffer in temporaries(play.program):
        for k in buffer.materialised:
            play.may("reuse_dims", buffer.name, dim=k)


def settle(play: Play) -> None:
    """Put each temporary that has no place into the nearest location that allows it."""
    contract_all(play)
    for buffer in temporaries(play.program):
        if buffer.location == play.rules.dialect.default_location:
            for location in ("reg", "tcdm"):
                if play.may("set_location", buffer.name, location=location):
                    break


# -- pairs ----------------------------------------------------------------------------------------


def lanes_of(play: Play, place: str) -> int:
    """Number of the scope's values that fit a word; 0 where one fills it, or the dtypes differ."""
    dtypes = {leaf.statement.dtype for leaf in play.scope(place).leaves}
    return LANES_OF.get(dtypes.pop(), 0) if len(dtypes) == 1 else 0


def of_singles(play: Play, place: str) -> bool:
    """True if all statements of the scope compute f32, of which two fit a word."""
    return lanes_of(play, place) == LANES


def staged_in_pairs(play: Play, move: str, place: str, array: str) -> str:
    """Stage the pairs of an array, ready for a mover; the name of the buffer."""
    name = play.stage(move, place, array).buffer
    buffer = play.program.buffer_of[name]
    for k in buffer.materialised[:-1]:
        play.must("reuse_dims", buffer.name, dim=k)
    for occurrence in play.program.occurrences[buffer.name]:
        if not occurrence.above:
            raise MoveError("PD-T001", f"{buffer.name} is one number")
        if (copy := occurrence.above[-1]).suffix != "v":
            play.must("annotate_scope", copy.id, suffix="v")
    return buffer.name


def in_words(play: Play, place: str) -> str:
    """Results of f32 in pairs where there is an even number of them: the scope of the pair, or none."""
    halves = play.may("split_scope", place, factor=LANES) if of_singles(play, place) else None
    if halves is None:
        return ""
    _, pair = halves.scopes
    play.must("annotate_scope", pair, suffix="v")
    return pair
