"""Matrix products two columns of f32 at a time, or four of f16: words of the second factor's rows, and
numbers of the first factor in all lanes.

If results lie next to each other and the terms of one do not, two results share a register. A block of two
rows and eight pairs of columns is kept in registers, or one of four rows and four pairs if rows are short.
For each term, a number of each row is loaded, and each pair from a mover is used for all rows. Loads have
addresses, so the integer core runs this loop. In the low block, the loads of four terms come first: there are
registers for them, and no instruction waits for a load.
"""

from __future__ import annotations

from perfdojo_riscv_snitch.steps import (
    arrays,
    cut,
    free_mover,
    lanes_of,
    perfect,
    settle,
    several,
    staged_in_pairs,
)
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.search.play import Play

#: Rows and words of columns in a block.
SQUARE, LOW = (4, 4), (2, 8)
#: Number of terms that are unrolled, so that the loop costs less.
TERMS = 4


def columns(play: Play, place: str) -> None:
    """Pack the nest at ``place``; MoveError where it is none that can be."""
    loops = perfect(play, place)
    inner = play.scope(loops[-1])
    sums = [child.id for child in inner.body if isinstance(child, Scope)]
    flat = len(loops) == 2 and len(sums) == 1 and len(inner.body) == 2 and len(perfect(play, sums[0])) == 1
    if not flat or not lanes_of(play, place):
        raise MoveError("PD-T001", "no matrix of sums")
    outer, inside = loops
    low = _is_low(play, outer, inside, sums[0])
    row, column = _blocked(play, outer, inside, *(LOW if low else SQUARE))
    for array in arrays(play, row, written=True):
        play.must("stage_write", row, array=array)
    path = play.program.paths[row]
    cut(play, column)
    cut(play, row)
    start, products, results = several([n.id for n in play.program.siblings(path)], 3, "nests")
    terms = _terms_outside(play, products)
    pairs = [_halved(play, perfect(play, nest)[-1]) for nest in (start, results)]
    _operands(play, terms, low)
    for nest in (start, results):
        for scope in perfect(play, nest):
            play.may("annotate_scope", scope, suffix="u")
    settle(play)
    for array in arrays(play, pairs[1], written=True):
        free_mover(play, staged_in_pairs(play, "stage_write", pairs[1], array))


def _terms_outside(play: Play, nest: str) -> str:
    """Terms, then pairs of columns, then rows, then lanes; the scope of the terms."""
    row, column, terms = several(perfect(play, nest), 3, "loops")
    play.must("swap_scopes", column)
    play.must("swap_scopes", row)
    _halved(play, column)
    play.must("swap_scopes", row)
    return terms


def _halved(play: Play, place: str) -> str:
    """Split a scope into pairs; the id of the lanes."""
    lanes = lanes_of(play, place)
    if play.scope(place).size == lanes:
        play.must("annotate_scope", place, suffix="v")
        return place
    _, pair = play.split(place, lanes)
    play.must("annotate_scope", pair, suffix="v")
    return pair


def _is_low(play: Play, row: str, column: str, terms: str) -> bool:
    """True if low blocks divide the rows and columns, and blocks of terms divide the loop."""
    height, width = LOW
    rows, columns, count = (play.scope(each).size for each in (row, column, terms))
    fits = rows % height == 0 and columns % (width * lanes_of(play, column)) == 0
    return fits and count % TERMS == 0 and count > TERMS


def _operands(play: Play, terms: str, early: bool) -> None:
    """Numbers of the first factor into registers, pairs of the second through a mover.

    ``early``: numbers of several terms before any product.
    """
    written = play.scope(terms).size % TERMS == 0 and play.scope(terms).size > TERMS
    if written:
        _, terms = play.split(terms, TERMS)
    loops = perfect(play, terms)
    pair, row, lanes = several(loops[-3:], 3, "loops")
    for array in arrays(play, lanes, written=False):
        levels = {l for t in play.scope(lanes).touches[array] for l in t.access.levels}
        if len(play.program.paths[lanes]) - 1 in levels:
            free_mover(play, staged_in_pairs(play, "stage_read", row, array))
        else:
            play.must("stage_read", pair, array=array)
    nests = [node.id for node in play.scope(terms).body if isinstance(node, Scope)]
    for nest in nests:
        for each in perfect(play, nest):
            play.may("annotate_scope", each, suffix="u")
    play.must("annotate_scope", row, suffix="u")
    if written and early:
        nests = cut(play, terms)
    for each in nests if early else [terms] if written else []:
        play.must("annotate_scope", each, suffix="u")


def _blocked(play: Play, row: str, column: str, high: int, wide: int) -> tuple[str, str]:
    """Split both scopes so that those of a block, at most so high and wide, are the innermost; their ids."""
    rows, count = play.scope(row).size, play.scope(column).size
    height = next(n for n in (high, 3, 2, 1) if rows % n == 0)
    lanes = lanes_of(play, column)
    width = next((lanes * n for n in (wide, 3, 2, 1) if count % (lanes * n) == 0), 0)
    if not width:
        raise MoveError("PD-T001", f"{count} columns are no pairs")
    if height < rows:
        _, row = play.split(row, height)
    if width < count:
        _, column = play.split(column, width)
        play.must("swap_scopes", row)
    return row, column
