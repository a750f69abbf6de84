"""How an expert plays a product of matrices: tiles in shared memory, smaller ones in registers.

A block computes a tile of the output. Step by step it brings a slice of both operands into shared memory,
coalesced, and each thread multiplies a few rows with a few columns from there. Sizes that do not divide
get the largest tile that does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from perfdojo_sdk.codegen.gpu.expert.steps import (
    WIDE,
    arrange,
    chain,
    factors,
    next_to,
    only_statement,
    separate,
    split,
)
from perfdojo_sdk.codegen.gpu.mapping import BLOCK, GRID, Machine
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, Operation, Read
from perfdojo_sdk.core.program import Path, Scope, Statement
from perfdojo_sdk.search.play import Play

#: Rows or columns of a block's tile.
LARGEST = 128
#: Outputs that one thread adds up where nothing is shared.
OWN_OUTPUTS = 16
#: Steps of the sum in one slice that are written out.
WRITTEN_OUT = 16


@dataclass(frozen=True)
class Product:
    """``c[.., i, j] += a[.., i, k] * b[.., k, j]`` in a nest that starts with ``c = 0``."""

    outer: tuple[str, ...]
    row: str
    column: str
    total: str
    """Scope of the reduction."""
    rows: int
    columns: int
    steps: int
    left: str
    right: str
    target: str


@dataclass(frozen=True)
class Tile:
    """Of a block, and of a thread in it."""

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int
    depth: int

    @property
    def threads(self) -> int:
        return self.rows // self.thread_rows * (self.columns // self.thread_columns)


def find_product(play: Play, place: str) -> Product | None:
    """The product that a nest is, or None."""
    loops = chain(play, place)
    body = play.scope(loops[-1]).body
    if len(loops) < 2 or len(body) != 2 or not isinstance(body[1], Scope) or isinstance(body[0], Scope):
        return None
    statement = only_statement(play, body[1].id) if isinstance(body[1], Scope) else None
    if statement is None or statement.accumulate != "add":
        return None
    reads = _factors(statement)
    i, j, k = len(loops) - 2, len(loops) - 1, len(loops)
    if reads is None:
        return None
    for left, right in (reads, reads[::-1]):
        if (
            {i, k} <= left.levels
            and j not in left.levels
            and {k, j} <= right.levels
            and i not in right.levels
        ):
            sizes = [play.scope(s).size for s in (*loops[-2:], body[1].id)]
            return Product(
                tuple(loops[:-2]), loops[-2], loops[-1], body[1].id, *sizes,
                left.array, right.array, statement.target.array,
            )  # fmt: skip
    return None


def _factors(statement: Statement) -> tuple[_Form, _Form] | None:
    value = statement.value
    if not isinstance(value, Operation) or value.name != "mul":
        return None
    one, other = value.arguments
    if not isinstance(one, Read) or not isinstance(other, Read):
        return None
    return _Form.of(one.access), _Form.of(other.access)


def play_direct(play: Play, place: str) -> None:
    """A product of another form, such as a convolution: each thread adds up a few outputs in registers.

    ``left`` is what neighbouring outputs read side by side; outputs that read the same of it are a
    thread's own. Nothing happens where the nest is no such product.
    """
    loops = chain(play, place)
    body = play.scope(loops[-1]).body
    if len(loops) < 3 or len(body) != 2 or not isinstance(body[1], Scope) or isinstance(body[0], Scope):
        return
    total = body[1].id
    inner = chain(play, total)
    statement = only_statement(play, inner[-1])
    forms = _factors(statement) if statement is not None and statement.accumulate == "add" else None
    if statement is None or forms is None:
        return
    column = len(loops) - 1
    left, right = forms if column in forms[0].levels else forms[::-1]
    again = [k for k in range(len(loops)) if k not in left.levels]
    if column not in left.levels or column in right.levels or len(again) != 1 or again[0] == column:
        return
    own = split(play, loops[again[0]], _largest(play, loops[again[0]], OWN_OUTPUTS))
    threads = [loops[column]]
    if play.scope(threads[0]).size > 1024:
        raise MoveError("PD-T006", "a row of outputs is longer than a block")
    grid = [loop for k, loop in enumerate(loops[:-1]) if k != again[0]] + own[:-1]
    beside = loops[column - 1] if column - 1 != again[0] else None
    if beside is not None:
        rows = split(play, beside, _largest(play, beside, max(1, 512 // play.scope(threads[0]).size)))
        if len(rows) > 1:
            grid[grid.index(beside)] = rows[0]
            threads.insert(0, rows[1])
    arrange(play, [*grid, *threads, own[-1]])
    top = threads[0]
    play.must("stage_write", top, array=statement.target.array)
    compute = separate(play, total, top)
    end = next_to(play, compute, 1)
    nest = chain(play, compute)
    mine = nest[len(threads)]
    arrange(play, [*nest[: len(threads)], *nest[len(threads) + 1 :], mine])
    for each in (top, compute, end):
        for loop in chain(play, each)[: len(threads)]:
            play.may("annotate_scope", loop, suffix=BLOCK)
    for loop in grid:
        play.may("annotate_scope", loop, suffix=GRID)


def _largest(play: Play, loop: str, most: int) -> int:
    return factors(play.scope(loop).size, most)[-1]


@dataclass(frozen=True)
class _Form:
    array: str
    levels: frozenset[int]

    @staticmethod
    def of(access: Access) -> _Form:
        return _Form(access.array, frozenset(l for form in access.subscripts for l in form.levels))


def best_tile(product: Product, around: int, machine: Machine) -> Tile | None:
    """The tile that does most with each element that it loads, while there are blocks enough."""
    choices = []
    for thread_rows, thread_columns in ((8, 8), (8, 4), (4, 4), (2, 4), (2, 2), (1, 2), (1, 1)):
        for rows in factors(product.rows, LARGEST):
            for columns in factors(product.columns, LARGEST):
                if rows % thread_rows or columns % thread_columns:
                    continue
                depth = factors(product.steps, WRITTEN_OUT)[-1]
                tile = Tile(rows, columns, thread_rows, thread_columns, depth)
                if not machine.warp <= tile.threads <= 256:
                    continue
                if (rows + columns) * depth * 4 > machine.shared_bytes:
                    continue
                blocks = around * (product.rows // rows) * (product.columns // columns)
                choices.append((min(1, blocks / machine.multiprocessors), tile))

    def worth(choice: tuple[float, Tile]) -> float:
        busy, tile = choice
        reuse = tile.rows * tile.columns / (tile.rows + tile.columns)
        own = tile.thread_rows * tile.thread_columns / (tile.thread_rows + tile.thread_columns)
        return busy * own / (1 + own) * reuse / (16 + reuse) * min(1, tile.threads / 128)

    return max(choices, key=worth)[1] if choices else None


def play_tiles(play: Play, place: str, machine: Machine) -> None:
    """Play the product at ``place``; nothing where there is none, or no tile divides it."""
    product = find_product(play, place)
    if product is None:
        return
    around = prod(play.scope(loop).size for loop in product.outer)
    tile = best_tile(product, around, machine)
    if tile is None:
        return
    rows = split(play, product.row, tile.rows)
    columns = split(play, product.column, tile.columns)
    own_rows = split(play, rows[-1], tile.thread_rows)
    own_columns = split(play, columns[-1], tile.thread_columns)
    grid = [*product.outer, *rows[:-1], *columns[:-1]]
    threads = [own_rows[0], own_columns[0]]
    arrange(play, [*grid, *threads, *own_rows[1:], *own_columns[1:]])
    start, compute, end = in_slices(play, product, tile.depth, tile.threads, threads, inwards=2)
    for loop in chain(play, compute)[2:]:
        if play.scope(loop).size <= WRITTEN_OUT:
            play.may("annotate_scope", loop, suffix="u")
            break
    for top in (start, compute, end):
        for loop in chain(play, top)[:2]:
            play.may("annotate_scope", loop, suffix=BLOCK)
    _write_wide(play, end)
    for loop in grid:
        play.may("annotate_scope", loop, suffix=GRID)


def in_slices(
    play: Play, product: Product, depth: int, runners: int, threads: list[str], inwards: int
) -> tuple[str, str, str]:
    """Sums in a buffer of the block, slices of the operands, ``depth`` steps deep, in shared memory.

    ``threads``: the scopes of a block's threads or warps; ``runners``: how many threads copy the slices. The
    steps of a slice go so many scopes ``inwards``. Gives the nests that start the sums, add to them, and
    write them out.
    """
    start = threads[0]
    play.must("stage_write", start, array=product.target)
    total = separate(play, product.total, start)
    end = next_to(play, total, 1)
    nest = chain(play, total)
    arrange(play, [nest[-1], *nest[:-1]])
    slices = split(play, nest[-1], depth)
    if len(slices) == 1:
        raise MoveError("PD-T006", "a sum of one slice has nothing to share")
    for _ in range(inwards):
        play.must("swap_scopes", slices[1])
    compute = chain(play, slices[0])[1]
    for array in (product.left, product.right):
        play.must("stage_read", compute, array=array)
        _share_copy(play, play.program.paths[next_to(play, compute, -1)], runners)
    return start, compute, end


def _share_copy(play: Play, path: Path, threads: int) -> None:
    """Copy a slice with all threads: neighbours take neighbouring elements, four at a time if they can."""
    loops = chain(play, play.program.node(path).id)
    statement = only_statement(play, loops[-1])
    assert statement is not None
    source, target = statement.reads[0], statement.target
    first = len(play.around(loops[0]))
    address = play.program.buffer_of[source.array].address(source.subscripts)
    stored = play.program.buffer_of[target.array].address(target.subscripts)
    stride = {loop: address.coefficients.get(first + k, 0) for k, loop in enumerate(loops)}
    together = [
        loop for k, loop in enumerate(loops) if stride[loop] == stored.coefficients.get(first + k) == 1
    ]
    arrange(play, sorted(loops, key=lambda loop: -stride[loop]))
    lanes: list[str] = []
    if together and play.scope(together[0]).size % WIDE == 0:
        lanes = split(play, together[0], WIDE)[-1:]
    shared, turns = [], []
    for loop in reversed(chain(play, play.program.node(path).id)):
        if loop in lanes:
            continue
        part = factors(play.scope(loop).size, threads)[-1]
        parts = split(play, loop, part) if part > 1 else [loop]
        shared[:0] = parts[-1:] if part > 1 else []
        turns[:0] = parts[:-1] if part > 1 else parts
        threads //= part
    arrange(play, [*shared, *turns, *lanes])
    for lane in lanes:
        play.may("annotate_scope", lane, suffix="v")
    for loop in reversed(shared):
        play.may("annotate_scope", loop, suffix=BLOCK)


def _write_wide(play: Play, end: str) -> None:
    innermost = chain(play, end)[-1]
    if play.scope(innermost).size % WIDE == 0:
        play.may("annotate_scope", innermost, suffix="v")
