"""Windows two columns of f32 at a time: sums and maxima over the neighbourhood of each result.

Two neighbouring results share a register. Operands at an even distance from them are words, which a mover
reads; at an odd distance the two numbers are loaded one by one and packed, several pairs in step. So the
columns of the window are unrolled, each as a nest of its own, in their order; and the next rows of results
reuse the packed pairs of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_riscv_snitch.codegen.pairs import LANES
from perfdojo_riscv_snitch.steps import (
    arrays,
    cut,
    free_mover,
    of_singles,
    perfect,
    settle,
    several,
    staged_in_pairs,
)
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.search.play import Play

#: Most pairs at once: they share the FP registers with the numbers that are packed.
MOST = 8
#: Most rows of pairs at once, which share packed pairs.
ROWS = 4
#: Widest window.
WIDEST = 7


def windows(play: Play, place: str) -> None:
    """Pack the nest at ``place``; MoveError where it is none that can be."""
    loops = perfect(play, place)
    inner = play.scope(loops[-1])
    sums = [child.id for child in inner.body if isinstance(child, Scope)]
    deep = len(loops) == len(inner.body) == 2 and len(sums) == 1 and len(perfect(play, sums[0])) == 2
    if not deep or not of_singles(play, place):
        raise MoveError("PD-T001", "no windows of f32")
    row, column = perfect(play, sums[0])
    if play.scope(column).size > WIDEST:
        raise MoveError("PD-T001", "the windows are too wide")
    outside = play.program.paths[place]
    block = _block(play, *loops)
    _keep(play, play.program.node(outside).id, block)
    for array in arrays(play, block[0], written=True):
        play.must("stage_write", block[0], array=array)
        play.may("remove_dead", play.program.buffer_of[array].name)
    path = play.program.paths[block[0]]
    for scope in reversed(block):
        cut(play, scope)
    nests = play.program.siblings(path)[path[-1] : path[-1] + 3]
    start, terms, end = several([node.id for node in nests], 3, "nests")
    for scope in reversed(perfect(play, terms)[: len(block)]):
        play.must("swap_scopes", scope)
        play.must("swap_scopes", scope)
    columns = _apart(play, column)
    for nest in (start, *columns, end):
        *above, lanes = perfect(play, nest)[-len(block) :]
        play.must("annotate_scope", lanes, suffix="v")
        for scope in above:
            play.must("annotate_scope", scope, suffix="u")
        if nest in columns:
            _words(play, lanes)
    play.may("annotate_scope", row, suffix="u")
    settle(play)
    for array in arrays(play, lanes, written=True):
        free_mover(play, staged_in_pairs(play, "stage_write", lanes, array))


def _block(play: Play, row: str, column: str) -> list[str]:
    """Scopes of the pairs that are computed at once, of some rows and columns; last that of their lanes."""
    pairs, lanes = play.split(column, LANES)
    rows, size = play.scope(row).size, play.scope(pairs).size
    blocks = [(n, _divisor(size, MOST // n)) for n in range(1, ROWS + 1) if rows % n == 0]
    height, width = max(blocks, key=lambda block: (block[0] * block[1], block[0]))
    found = [lanes]
    if width > 1:
        found = [_inner(play, pairs, width), *found]
    if height > 1:
        row = _inner(play, row, height)
        if width < size:
            play.must("swap_scopes", row)
        found = [row, *found]
    return found


def _divisor(size: int, most: int) -> int:
    return next(n for n in range(most, 0, -1) if size % n == 0)


def _inner(play: Play, scope: str, count: int) -> str:
    """Split ``count`` iterations of a scope off as an inner scope; its id."""
    if count == play.scope(scope).size:
        return scope
    return play.split(scope, count)[1]


def _apart(play: Play, column: str) -> list[str]:
    """Split a scope into scopes of one iteration; their ids."""
    found = list[str]()
    while play.scope(column).size > 1:
        first, column = play.split_range(column, 1)
        found.append(first)
    return [*found, column]


def _keep(play: Play, place: str, block: Sequence[str]) -> None:
    """Keep numbers that all results share, such as the weights of a filter, in registers."""
    mine = range(len(play.program.paths[place]) - 1, len(play.program.paths[block[-1]]))
    for array in arrays(play, place, written=False):
        touches = play.scope(place).touches[array]
        if not any(l in mine for t in touches for l in t.access.levels):
            for scope in play.stage("stage_read", place, array).scopes:
                play.must("annotate_scope", scope, suffix="u")


def _words(play: Play, lanes: str) -> None:
    """Stream words through a mover, if one is free."""
    level = len(play.program.paths[lanes]) - 1
    written = arrays(play, lanes, written=True)
    for array in arrays(play, lanes, written=False):
        if array not in written and any(level in t.access.levels for t in play.scope(lanes).touches[array]):
            kept = play.trace
            try:
                free_mover(play, staged_in_pairs(play, "stage_read", lanes, array))
            except MoveError:
                play.trace = kept
