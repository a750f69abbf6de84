"""Sums two terms of f32 at a time, or four of f16: partial sums in words, whose lanes are added up at the
end.

If both factors of a product, or the terms of a sum, lie next to each other along the sum, each pair is one
word for a mover and one instruction for the FPU. Eight pairs of partial sums are interleaved; another sum
adds up their halves, and two results of f32 are packed into a word for the mover that stores them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfdojo_riscv_snitch.codegen.plan import REPEATED
from perfdojo_riscv_snitch.steps import (
    arrays,
    collapsed,
    cut,
    free_mover,
    in_words,
    lanes_of,
    perfect,
    settle,
    several,
    staged_in_pairs,
)
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Path, Scope, Statement
from perfdojo_sdk.search.play import Play

#: Most sums at once: pairs and their results share the FP registers.
MOST = 8


def packed(play: Play, place: str) -> None:
    """Pack the nest at ``place``; MoveError where it is none that can be."""
    loops = perfect(play, place)
    inner = play.scope(loops[-1])
    sums = [child.id for child in inner.body if isinstance(child, Scope)]
    if not lanes_of(play, place):
        raise MoveError("PD-T001", "no words of several numbers")
    if len(sums) == 1 and len(inner.body) > 1:
        _several(play, loops[-1], sums[0])
    elif not sums and any(isinstance(c, Statement) and c.accumulate for c in inner.body):
        _one(play, loops)
    else:
        raise MoveError("PD-T001", "no sum, or more than one")


def _several(play: Play, place: str, terms: str) -> None:
    """Play a scope of independent sums: several of them at once."""
    size, width = play.scope(place).size, lanes_of(play, place)
    group = next((n for n in range(MOST, 1, -1) if size % n == 0), 0)
    if not group:
        raise MoveError("PD-T001", f"{size} sums are no groups")
    lanes = play.split(place, group)[1] if group < size else place
    buffers = list[str]()
    for array in arrays(play, lanes, written=True):
        buffers.append(play.stage("stage_write", lanes, array).buffer)
        play.may("remove_dead", play.program.buffer_of[array].name)
    path = play.program.paths[lanes]
    outer, inner = play.split(terms, width)
    buffers += play.must("split_reduction", outer, lane=inner).buffers
    for part in cut(play, lanes):
        if len(perfect(play, part)) > 2:
            play.must("swap_scopes", part)
    nests = _using(play, path, buffers)
    if len(nests) < 4:
        raise MoveError("PD-T001", "the sums are no nests of their own")
    pair = in_words(play, nests[-1])
    nests = _using(play, path, buffers)
    _finish(play, nests, [perfect(play, nest)[-1] for nest in nests[-4:-1]], grouped=True)
    if pair:
        for array in arrays(play, pair, written=True):
            free_mover(play, staged_in_pairs(play, "stage_write", pair, array))


def _one(play: Play, loops: Sequence[str]) -> None:
    """Play one sum over all iterations as a few sums of pairs."""
    place = collapsed(play, loops)
    [leaf] = several(play.scope(place).leaves, 1, "statements")
    path = play.program.paths[place]
    buffers = [play.stage("stage_accumulator", place, leaf.statement.target.array).buffer]
    size, width = play.scope(place).size, lanes_of(play, place)
    count = next((n for n in (4, 3, 2) if size % (n * width) == 0 and size > n * width), 1)
    outer, inner = play.split(place, count * width)
    buffers += play.must("split_reduction", outer, lane=inner).buffers
    lanes = [perfect(play, nest)[-1] for nest in _using(play, path, buffers)]
    pairs = [play.split(lane, width)[1] for lane in lanes] if count > 1 else lanes
    _finish(play, _using(play, path, buffers), pairs, grouped=count > 1)
    settle(play)


def _using(play: Play, path: Path, buffers: Collection[str]) -> list[str]:
    """The scopes beside ``path`` that use one of these buffers, which hold one array each."""
    beside = [node for node in play.program.siblings(path) if isinstance(node, Scope)]
    return [node.id for node in beside if not node.arrays.isdisjoint(buffers)]


def _finish(play: Play, nests: Sequence[str], pairs: Sequence[str], grouped: bool) -> None:
    """Add streams and repetition for partial sums, given the lanes of their start, their terms and their
    ends.

    ``nests``: all scopes that the sums were made of. ``grouped``: whether a scope of several sums stands
    around each of them.
    """
    for pair in pairs:
        play.must("annotate_scope", pair, suffix="v")
    if len(pairs) < 2:
        raise MoveError("PD-T001", "the sum has no nest of its own")
    terms = pairs[1]
    above = play.around(terms)
    if len(above) < 1 + grouped:
        raise MoveError("PD-T001", "no scope is left to repeat")
    repeated, group = (above[-2].id, above[-1].id) if grouped else (above[-1].id, terms)
    level = len(play.program.paths[group]) - 1
    staged = []
    for array in arrays(play, terms, written=False):
        varies = any(level in t.access.levels for t in play.scope(terms).touches[array])
        staged.append(staged_in_pairs(play, "stage_read", terms if varies else group, array))
    for name in staged:  # only now, when all are contracted and none is too large for the memory
        free_mover(play, name)
    for nest in nests:
        for scope in perfect(play, nest):
            if scope != repeated and not play.scope(scope).suffix:
                play.must("annotate_scope", scope, suffix="u")
    if grouped:
        play.may("annotate_scope", group, suffix="u")
    settle(play)
    play.must("annotate_scope", repeated, suffix=REPEATED)
