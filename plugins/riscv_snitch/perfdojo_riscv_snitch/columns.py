"""Products of f32 two columns at a time, of f16 four: rows of the second factor in words, numbers of the
first for all lanes.

Where results lie next to each other and the terms of one do not, two results share a register. A block of
four rows and four pairs of columns is kept in registers; for each term, four numbers are loaded and each pair
that a mover brings is used for all four rows. Loads have addresses, so the integer core runs this loop.
"""

from __future__ import annotations

from perfdojo_riscv_snitch.steps import arrays, cut, free_mover, lanes_of, perfect, settle, staged_in_pairs
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.search.play import Play

ROWS = PAIRS = 4
#: Terms that are written out, so that the loop costs less.
TERMS = 4


def columns(play: Play, place: str) -> None:
    """Pack the nest at ``place``; MoveError where it is none that can be."""
    loops = perfect(play, place)
    inner = play.scope(loops[-1])
    sums = [child.id for child in inner.body if isinstance(child, Scope)]
    flat = len(loops) == 2 and len(sums) == 1 and len(inner.body) == 2 and len(perfect(play, sums[0])) == 1
    if not flat or not lanes_of(play, place):
        raise MoveError("PD-T001", "no matrix of sums")
    row, column = _blocked(play, *loops)
    for array in arrays(play, row, written=True):
        play.must("stage_write", row, array=array)
    path = play.program.paths[row]
    cut(play, column)
    cut(play, row)
    start, products, results = [node.id for node in play.program.siblings(path)]
    terms = _terms_outside(play, products)
    pairs = [_halved(play, perfect(play, nest)[-1]) for nest in (start, results)]
    _operands(play, terms)
    for nest in (start, results):
        for scope in perfect(play, nest):
            play.may("annotate_scope", scope, suffix="u")
    settle(play)
    for array in arrays(play, pairs[1], written=True):
        free_mover(play, staged_in_pairs(play, "stage_write", pairs[1], array))


def _terms_outside(play: Play, nest: str) -> str:
    """Terms, then pairs of columns, then rows, then lanes; the scope of the terms."""
    row, column, terms = perfect(play, nest)
    play.must("swap_scopes", column)
    play.must("swap_scopes", row)
    _halved(play, column)
    if play.scope(column if column in play.program.paths else f"{column}.o").size > 1:
        play.must("swap_scopes", row)
    return terms


def _halved(play: Play, place: str) -> str:
    """Split a scope into pairs; the id of the lanes."""
    lanes = lanes_of(play, place)
    if play.scope(place).size == lanes:
        play.must("annotate_scope", place, suffix="v")
        return place
    play.must("split_scope", place, factor=lanes)
    play.must("annotate_scope", f"{place}.i", suffix="v")
    return f"{place}.i"


def _operands(play: Play, terms: str) -> None:
    """Numbers of the first factor into registers, pairs of the second through a mover."""
    *_, pair, row, lanes = perfect(play, terms)
    for array in arrays(play, lanes, written=False):
        levels = {l for t in play.scope(lanes).touches[array] for l in t.access.levels}
        if len(play.program.paths[lanes]) - 1 in levels:
            free_mover(play, staged_in_pairs(play, "stage_read", row, array))
        else:
            play.must("stage_read", pair, array=array)
    for scope in [s.id for s in play.scope(terms).body if isinstance(s, Scope)]:
        for each in perfect(play, scope):
            play.may("annotate_scope", each, suffix="u")
    play.must("annotate_scope", row, suffix="u")
    if play.scope(terms).size % TERMS == 0 and play.scope(terms).size > TERMS:
        play.must("split_scope", terms, factor=TERMS)
        play.must("annotate_scope", f"{terms}.i", suffix="u")


def _blocked(play: Play, row: str, column: str) -> tuple[str, str]:
    """Split both scopes so that a block's are the innermost two; their ids."""
    rows, count = play.scope(row).size, play.scope(column).size
    height = next(n for n in (ROWS, 3, 2, 1) if rows % n == 0)
    lanes = lanes_of(play, column)
    width = next((lanes * n for n in (PAIRS, 3, 2, 1) if count % (lanes * n) == 0), 0)
    if not width:
        raise MoveError("PD-T001", f"{count} columns are no pairs")
    if height < rows:
        play.must("split_scope", row, factor=height)
        row = f"{row}.i"
    if width < count:
        play.must("split_scope", column, factor=width)
        play.must("swap_scopes", row)
        column = f"{column}.i"
    return row, column
