"""The sum and the squares of a row that is larger than the caches, in one pass over it.

The row is cut into blocks that fit into a cache. For each block the sum is computed, then the squares of
the differences from the block's own mean; a correction for the row's mean follows, from one number for
each block. (Chan, Golub, LeVeque: "Updating formulae and a pairwise algorithm for computing
sample variances", 1979; here each step is a move.)
"""

from __future__ import annotations

from perfdojo_sdk.core.expression import Read, operations, performs
from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.core.transformations.scopes import divisors
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.steps import join_distant, largest_divisor, perfect_nest, split
from perfdojo_sdk.experts.steps import inline_everywhere
from perfdojo_sdk.search.play import Play

#: Elements of a block below which its bookkeeping costs more than a second pass.
LEAST_BLOCK = 32

_CHEAP = frozenset({"add", "sub", "mul", "neg"})


def compute_again(play: Play) -> None:
    """Compute a value again if that takes less time than keeping it."""
    for buffer in temporaries(play.program):
        definitions = [s for s in play.statements() if s.target.array == buffer.name]
        if len(definitions) != 1 or definitions[0].accumulate or not _cheap(play, definitions[0]):
            continue
        inline_everywhere(play, buffer.name)


def _cheap(play: Play, definition: Statement) -> bool:
    """True if the definition takes one input element and little arithmetic."""
    elements = [r for r in definition.reads if r.array in play.program.inputs]
    whole = any(r.levels == definition.target.levels for r in elements)
    return whole and _CHEAP.issuperset(o.name for o in operations(definition.value))


def sum_and_squares_together(play: Play, block_cells: int, lanes: int, threads: bool) -> None:
    """Take sums and squares of the same elements block by block, at most ``block_cells`` in each.

    A block is made of vectors of ``lanes`` where one of about that size divides the row. With
    ``threads``, blocks are shared out: a row alone is work for all of them.
    """
    for scope in [s.id for s in play.scopes()]:
        found = _sum_and_squares(play, scope)
        if found:
            kept = play.trace
            if not _by_blocks(play, *found, block_cells, lanes, threads):
                play.trace = kept


def _sum_and_squares(play: Play, row: str) -> tuple[str, str] | None:
    """The nest that sums elements and the nest that sums their squared differences, in one row."""
    if row not in play.program.paths:
        return None
    sums: dict[Read, str] = {}
    for child in play.scope(row).body:
        nest, statement = perfect_nest(play, child.id) if isinstance(child, Scope) else ([], None)
        if statement is None or statement.accumulate != "add":
            continue
        value = statement.value
        if isinstance(value, Read):
            sums[value] = child.id
        elif performs(value, "mul") and value.arguments[0] == value.arguments[1]:
            difference = value.arguments[0]
            if performs(difference, "sub"):
                element = difference.arguments[0]
                if isinstance(element, Read) and element in sums:
                    return sums[element], child.id
    return None


def _by_blocks(play: Play, total: str, squares: str, block_cells: int, lanes: int, threads: bool) -> bool:
    partial, places = "", list[str]()
    for place in (total, squares):
        nest, _ = perfect_nest(play, place)
        if len(nest) == 1 or play.scope(nest[-1]).size > block_cells:
            nest[-1:] = split(play, nest[-1], _block(play.scope(nest[-1]).size, block_cells, lanes))
            place = nest[0]
        outer, cells = len(nest) - 1, play.scope(nest[-1]).size
        while outer > 1 and cells * play.scope(nest[outer - 1]).size <= block_cells:
            outer -= 1
            cells *= play.scope(nest[outer]).size
        if len(nest) == 1 or cells < LEAST_BLOCK:
            return False
        for lane in nest[:outer]:
            if not play.may("split_reduction", place, lane=lane):
                return False
        _, statement = perfect_nest(play, place)
        assert statement is not None
        if place == total:
            partial = statement.target.array
        elif not play.may("rebase_squares", nest[outer], sum=partial):
            return False
        else:
            _part_with_correction(play, nest[:outer])
        if threads and not play.annotate(place, play.threads):
            return False
        places.append(place)
    return join_distant(play, *places)


def _block(cells: int, most: int, lanes: int) -> int:
    """The largest part of a row that divides it, of whole vectors if that is half of what may be or more."""
    most = min(cells, most)
    whole = max((d for d in divisors(cells) if d <= most and d % lanes == 0), default=1)
    return whole if 2 * whole >= most else largest_divisor(cells, most)


def _part_with_correction(play: Play, nest: list[str]) -> None:
    """Move the correction, which needs the row's mean, to a nest of its own behind the blocks."""
    last = play.scope(nest[-1]).body[-1].id
    for _ in nest:
        last = play.fission(last)
