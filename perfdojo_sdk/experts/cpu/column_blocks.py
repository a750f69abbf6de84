"""Blocks of columns: attention over rows of scores that are too long for a cache.

A row of scores is as long as the sequence. Where few whole rows fit into the second cache, a block holds some
columns of many rows instead. The exponentials of a block are taken relative to the block's own maximum, as
is the sum of values that they weigh; one number for each row and block corrects both afterwards. (Dao, Fu,
Ermon, Rudra, Ré: "FlashAttention: Fast and memory-efficient exact attention with IO-awareness", 2022; here
the partial results of all blocks are kept and corrected at the end, and each step is a move.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import LEVELS, Operation, Read, exponent_difference, operations, performs
from perfdojo_sdk.core.made import Staged
from perfdojo_sdk.core.program import Statement
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.analysis import is_product
from perfdojo_sdk.experts.cpu.blocks import (
    BLOCK_ROWS,
    MOST_ROWS,
    common_loops,
    hold_in_block,
    join_row_blocks,
    lay_out,
    runs_of_nests,
)
from perfdojo_sdk.experts.cpu.loops import chain, join_nests, move_outward
from perfdojo_sdk.experts.cpu.steps import largest_divisor, near_caches, outermost, split
from perfdojo_sdk.experts.steps import inline_everywhere, isolate, separate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Whole rows that are enough: with as many in a block, what it reads is used often enough.
ENOUGH_ROWS = 32

#: Fewest columns of a block: fewer would need a correction too often.
LEAST_COLUMNS = 128


class Softmax(NamedTuple):
    """Exponentials of rows of scores, ``e = exp(x - m)`` or ``e = exp((x - m) * c)``, in a run of nests."""

    exponential: str
    """The statement that computes them."""
    maximum: str
    """The statement that takes x into m."""
    values: str
    """The array e."""
    level: int
    """Level of the loop over a row's columns."""
    columns: int


def join_blocks(play: Play, target: Target) -> list[Decision]:
    """Join nests that pass large arrays to each other around blocks of rows; and of columns, where rows of
    attention are long."""
    decisions = []
    for roots in list(runs_of_nests(play.program)):
        found = _softmax(play, roots)
        rows, columns = _block(play, target, roots, found) if found else (0, 0)
        if found and columns:
            kept = play.trace
            try:
                decisions += _in_blocks(play, roots, found, rows, columns)
                continue
            except MoveError as error:
                play.trace = kept
                decisions.append(Decision("keep columns together", roots[0], found.values, error.what))
        decisions += join_row_blocks(play, target, roots)
    return decisions


def _softmax(play: Play, roots: Sequence[str]) -> Softmax | None:
    """The softmax over the innermost loop in a run of nests whose values weigh a sum of products."""
    level = len(common_loops([play.scope(root) for root in roots]))
    leaves = [leaf for root in roots for leaf in play.node(root).leaves]
    statements = [leaf.statement for leaf in leaves]
    for statement, sizes in leaves:
        difference = _difference(statement)
        if len(sizes) != level + 1 or statement.accumulate or difference is None:
            continue
        element, other = difference.arguments
        if not (isinstance(element, Read) and isinstance(other, Read)) or level in other.levels:
            continue
        values = statement.target.array
        divided = {s.target.array for s in statements if _reads(s, values) and not s.accumulate}
        taken = [s for s in statements if s.accumulate == "max" and s.target.array == other.access.array]
        weighs = any(is_product(s) and _reads(s, values, *divided) for s in statements)
        if weighs and len(taken) == 1 and taken[0].value == element:
            return Softmax(statement.id, taken[0].id, values, level, sizes[-1])
    return None


def _difference(statement: Statement) -> Operation | None:
    """The x - m of ``e = exp(x - m)`` or ``e = exp((x - m) * c)``."""
    value = statement.value
    return exponent_difference(value.arguments[0]) if performs(value, "exp") else None


def _block(play: Play, target: Target, roots: Sequence[str], found: Softmax) -> tuple[int, int]:
    """Rows and columns of a block; 0 columns where enough whole rows fit into the second cache."""
    rows = common_loops([play.scope(root) for root in roots])[-1]
    values = play.program.buffer_of[found.values]
    row = 2 * found.columns * values.bytes // values.cells  # one is read, and one is written
    room = near_caches(target)[1] // 2
    if min(rows, room // row) >= min(ENOUGH_ROWS, rows):
        return rows, 0
    high = largest_divisor(rows, MOST_ROWS)
    wide = largest_divisor(found.columns, room * found.columns // row // high)
    return high, wide if LEAST_COLUMNS <= wide < found.columns else 0


def _in_blocks(play: Play, roots: list[str], found: Softmax, rows: int, columns: int) -> list[Decision]:
    """Play the moves; :class:`MoveError` where one is not legal."""
    before = play.program.paths[roots[0]][0]
    behind = len(play.program.body) - 1 - play.program.paths[roots[-1]][0]
    decisions = lay_out(play, roots)
    before += len(decisions)  # The copies stand in front.

    def nests() -> list[str]:
        """The roots of the run, as it is by now."""
        return [node.id for node in play.program.body[before : len(play.program.body) - behind]]

    _take_up_factors(play, found.values)
    sums = [s.id for s in play.statements() if s.accumulate == "add" and _reads(s, found.values)]
    for reduction in (found.maximum, *sums):
        isolate(play, play.around(reduction)[-1].id)
    scores = play.program.buffer_of[found.values].shape
    cut = [_cut(play, root, scores, found.level, rows, columns) for root in nests()]
    depth = cut[0].depth
    inside = _relative_to_blocks(play, found, sums, [nest.block for nest in cut if nest.block], depth)
    if depth == 0 or not join_nests(play, nests(), depth):
        raise MoveError("PD-T001", "the loops over rows cannot be joined")
    (root,) = nests()
    block = _join_blocks(play, root, inside, depth)
    for array in _passed(play, block):
        hold_in_block(play, block, array)
    for buffer in temporaries(play.program):
        for dim in range(min(depth + 1, len(buffer.dimensions))):
            play.may("reuse_dims", buffer.name, dim=dim)
    numbers = {"rows": rows, "columns": columns, "blocks of a row": found.columns // columns}
    why = "few whole rows fit into the second cache; the blocks of a row are corrected by their maxima"
    return [
        *decisions,
        Decision(BLOCK_ROWS, root, f"{len(inside)} nests in blocks of {rows} rows", why, numbers),
        Decision(BLOCK_ROWS, block, f"and {columns} columns", why, numbers),
    ]


def _reads(statement: Statement, *arrays: str) -> bool:
    return any(read.array in arrays for read in statement.reads)


def _take_up_factors(play: Play, values: str) -> None:
    """Let sums read the exponentials themselves: what divides these by their sum is a factor of the terms."""
    for statement in [s for s in play.statements() if _reads(s, values) and not s.accumulate]:
        innermost = play.around(statement.id)[-1].id
        for operation in operations(statement.value):
            if operation.name == "div" and isinstance(operation.arguments[1], Read):
                divisor = operation.arguments[1].access
                place = outermost(play, innermost, divisor)
                play.must("stage_reciprocal", place, array=divisor.array)
        if not inline_everywhere(play, statement.target.array):
            raise MoveError("PD-T001", f"{statement.target.array} is used elsewhere")


class _Cut(NamedTuple):
    """A nest whose loops were cut."""

    depth: int
    """Loops that all nests share: those over blocks of rows, and around them."""
    block: str
    """Its loop over blocks of columns, right inside of these; empty if it has none."""


def _cut(play: Play, root: str, scores: tuple[int, ...], level: int, rows: int, columns: int) -> _Cut:
    """Cut the loop over rows of a nest, and the one over the columns of scores, whose blocks come next."""
    (position,) = play.program.paths[root]
    parts = split(play, chain(play, root)[level - 1], rows)
    root = play.program.body[position].id  # The loop over blocks of rows, if none stands around it.
    depth = level - 1 + (len(parts) > 1)
    column = _column_loop(play, root, scores)
    if not column:
        return _Cut(depth, "")
    outer, _ = play.split(column, columns)
    loops = chain(play, root)
    move_outward(play, loops[depth : loops.index(outer) + 1])
    return _Cut(depth, outer)


def _column_loop(play: Play, root: str, scores: tuple[int, ...]) -> str:
    """The loop of a perfect nest over the last dimension of arrays with the shape of scores; empty if it
    touches none."""
    loops = chain(play, root)
    for leaf in play.node(root).leaves:
        for access in (leaf.statement.target, *leaf.statement.reads):
            if play.program.buffer_of[access.array].shape == scores and access.subscripts[-1] in LEVELS:
                (level,) = access.subscripts[-1].levels
                return loops[level] if level < len(loops) else ""
    return ""


def _relative_to_blocks(
    play: Play, found: Softmax, sums: list[str], blocks: list[str], depth: int
) -> list[str]:
    """Take exponentials, and sums of them, relative to the maximum of a block; the loops over blocks of all
    nests that work on one."""

    def block_of(statement: str) -> str:
        return play.around(statement)[depth].id

    start, _ = play.split_reduction(block_of(found.maximum), lane=block_of(found.maximum))
    (maximum,) = {s.target.array for s in play.statements() if s.id == found.maximum}
    play.must("rebase_exponent", found.exponential, maximum=maximum)
    gone = block_of(found.exponential)
    own, _ = [_named(play, found.exponential, gone) for _ in range(2)]
    if not inline_everywhere(play, found.values):
        raise MoveError("PD-T001", f"{found.values} is used elsewhere")
    for each in sums:
        made = play.must("factor_reduction", play.around(each)[-1].id)
        assert isinstance(made, Staged)
        separate(play, made.nests[-1].statement, block_of(each))
    return [start, own, *[block for block in blocks if block != gone]]


def _named(play: Play, statement: str, before: str) -> str:
    """Give the next factor of a statement's value an array, computed before the loop; the new nest."""
    made = play.must("stage_expression", statement, before=before, term=1)
    assert isinstance(made, Staged)
    return made.nests[0].top


def _join_blocks(play: Play, root: str, inside: list[str], depth: int) -> str:
    """Bring the nests that work on one block to the first of them, and join them; the loop over blocks."""
    around = chain(play, root)[depth - 1]
    nests = [node.id for node in play.scope(around).body if node.id in inside]
    for position, nest in enumerate(nests, play.program.paths[nests[0]][-1]):
        while (at := play.program.paths[nest][-1]) > position:
            play.must("reorder_statements", play.scope(around).body[at - 1].id)
    for _ in nests[1:]:
        play.must("join_scopes", nests[0])
    return nests[0]


def _passed(play: Play, block: str) -> list[str]:
    """The temporaries that only the nests of a block use."""
    mine = play.node(block).arrays
    others = [
        leaf.statement.arrays
        for node in play.program.body
        for leaf in node.leaves
        if all(scope.id != block for scope in play.around(leaf.statement.id))
    ]
    elsewhere = play.program.interface.union(*others)
    return [b.name for b in temporaries(play.program) if b.name in mine and b.name not in elsewhere]
