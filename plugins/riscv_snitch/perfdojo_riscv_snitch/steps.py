"""Steps that the passes of this target share: where to look, and small sequences of moves."""

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
        path = play.program.paths[place]
        play.must("collapse_scopes", place)
        node = play.program.node(path)
        place = node.id
    return place


def cut(play: Play, place: str) -> list[str]:
    """A scope of its own for each child; their ids."""
    path = play.program.paths[place]
    count = len(play.scope(place).body)
    for child in [c.id for c in play.scope(place).body][1:]:
        play.must("fission_scope", child)
    siblings = play.program.siblings(path)
    return [node.id for node in siblings[path[-1] : path[-1] + count]]


def bring_inside(play: Play, place: str) -> None:
    """Exchange a scope with those inside it until it holds statements."""
    while isinstance(play.scope(place).body[0], Scope):
        play.must("swap_scopes", place)


def hoist(play: Play, place: str) -> None:
    """Keep in registers what is the same in all iterations."""
    for array, touches in play.scope(place).touches.items():
        if not any(t.writes or t.access.levels for t in touches):
            before = {b.name for b in play.program.buffers}
            if play.may("stage_read", place, array=array):
                [name] = several({b.name for b in play.program.buffers} - before, 1, "new buffers")
                play.may("set_location", name, location="reg")


def stage(play: Play, move: str, place: str, array: str) -> tuple[str, str]:
    """Stage an array and join the copy with the scope: name of the buffer, id of the joined scope."""
    before = {b.name for b in play.program.buffers}
    path = play.program.paths[place]
    play.must(move, place, array=array)
    [name] = several({b.name for b in play.program.buffers} - before, 1, "new buffers")
    first = play.program.node(path)
    if isinstance(first, Statement):  # one element for the whole scope: nothing to join
        return name, play.program.siblings(path)[path[-1] + 1].id
    play.must("join_scopes", first.id)
    return name, first.id


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
    """The nearest location that takes each temporary which nothing has placed."""
    contract_all(play)
    for buffer in temporaries(play.program):
        if buffer.location == play.rules.dialect.default_location:
            for location in ("reg", "tcdm"):
                if play.may("set_location", buffer.name, location=location):
                    break


# -- pairs ----------------------------------------------------------------------------------------


def lanes_of(play: Play, place: str) -> int:
    """How many of the numbers that the scope computes fit a word; 0 where one fills it, or they differ."""
    dtypes = {leaf.statement.dtype for leaf in play.scope(place).leaves}
    return LANES_OF.get(dtypes.pop(), 0) if len(dtypes) == 1 else 0


def of_singles(play: Play, place: str) -> bool:
    """Whether all statements of the scope compute f32, of which two fit a word."""
    return lanes_of(play, place) == LANES


def staged_in_pairs(play: Play, move: str, place: str, array: str) -> str:
    """Stage the pairs of an array, ready for a mover; the name of the buffer."""
    before = {b.name for b in play.program.buffers}
    play.must(move, place, array=array)
    [buffer] = several([b for b in play.program.buffers if b.name not in before], 1, "new buffers")
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
    if not of_singles(play, place) or not play.may("split_scope", place, factor=LANES):
        return ""
    play.must("annotate_scope", f"{place}.i", suffix="v")
    return f"{place}.i"
