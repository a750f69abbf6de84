"""How an expert plays a product of matrices: tiles in shared memory, a smaller tile in each thread's registers.

A block computes a tile of the output. Step by step it brings a slice of both operands into shared memory,
coalesced, and each thread multiplies a few rows with a few columns from there. Sizes that do not divide
get the largest tile that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.codegen.gpu.expert.steps import WIDE, chain, next_to, only_statement, split
from perfdojo_sdk.codegen.gpu.mapping import BLOCK, GRID, Machine
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, Operation, Read
from perfdojo_sdk.core.program import Path, Scope, Statement
from perfdojo_sdk.core.transformations.scopes import divisors
from perfdojo_sdk.search.play import Play

#: Blocks that give each multiprocessor one.
ENOUGH_BLOCKS = 132
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
        for rows in divisors(product.rows):
            for columns in divisors(product.columns):
                if rows % thread_rows or columns % thread_columns or max(rows, columns) > 128:
                    continue
                depth = max(d for d in divisors(product.steps) if d <= 16)
                tile = Tile(rows, columns, thread_rows, thread_columns, depth)
                if not machine.warp <= tile.threads <= 256:
                    continue
                if (rows + columns) * depth * 4 > machine.shared_bytes:
                    continue
                blocks = around * (product.rows // rows) * (product.columns // columns)
                choices.append((min(blocks, ENOUGH_BLOCKS) / ENOUGH_BLOCKS, tile))

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
    _arrange(play, [*grid, *threads, *own_rows[1:], *own_columns[1:]])
    start, compute, end = _in_registers(play, product, tile, threads)
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


def _in_registers(play: Play, product: Product, tile: Tile, threads: list[str]) -> tuple[str, str, str]:
    """Sums in registers, slices of the operands in shared memory.

    Gives the nests that start the sums, add to them, and write them out.
    """
    start = threads[0]
    play.must("stage_write", start, array=product.target)
    total = _separate(play, product.total, start)
    end = next_to(play, total, 1)
    nest = chain(play, total)
    _arrange(play, [nest[-1], *nest[:-1]])
    slices = split(play, nest[-1], tile.depth)
    if len(slices) == 1:
        raise MoveError("PD-T006", "a sum of one slice has nothing to share")
    for _ in threads:
        play.must("swap_scopes", slices[1])
    compute = chain(play, slices[0])[1]
    for array in (product.left, product.right):
        play.must("stage_read", compute, array=array)
        _share_copy(play, play.program.paths[next_to(play, compute, -1)], tile.threads)
    return start, compute, end


def _share_copy(play: Play, path: Path, threads: int) -> None:
    """Copy a slice with all threads: neighbours take neighbouring elements, four at a time if they can."""

    def nest() -> list[str]:
        return chain(play, play.program.node(path).id)

    loops = nest()
    statement = only_statement(play, loops[-1])
    assert statement is not None
    source, target = statement.reads[0], statement.target
    first = len(play.around(loops[0]))
    address = play.program.buffer_of[source.array].address(source.subscripts)
    stride = {loop: address.coefficients.get(first + k, 0) for k, loop in enumerate(loops)}
    stored = play.program.buffer_of[target.array].address(target.subscripts)
    together = [
        loop for k, loop in enumerate(loops) if stride[loop] == stored.coefficients.get(first + k) == 1
    ]
    _arrange(play, sorted(loops, key=lambda loop: -stride[loop]))
    lanes = (
        split(play, together[0], WIDE)[1:] if together and play.scope(together[0]).size % WIDE == 0 else []
    )
    if not lanes and together and play.scope(together[0]).size == WIDE:
        lanes = together
    while len(nest()) > 1 + len(lanes) and play.may("collapse_scopes", nest()[0]):
        pass
    one = nest()[0]
    shares = max(d for d in divisors(play.scope(one).size) if d <= threads)
    parts = split(play, one, shares)
    if len(parts) > 1:
        play.must("swap_scopes", parts[0])
    for lane in lanes:
        play.may("annotate_scope", lane, suffix="v")
    play.may("annotate_scope", parts[-1], suffix=BLOCK)


def _write_wide(play: Play, end: str) -> None:
    innermost = chain(play, end)[-1]
    if play.scope(innermost).size % WIDE == 0:
        play.may("annotate_scope", innermost, suffix="v")


def _arrange(play: Play, order: Sequence[str]) -> None:
    """Interchange the loops of a perfect nest until they stand in ``order``."""
    for position, wanted in enumerate(order):
        nest = sorted(order, key=lambda place: len(play.program.paths[place]))
        for outer in reversed(nest[position : nest.index(wanted)]):
            play.must("swap_scopes", outer)


def _separate(play: Play, place: str, top: str) -> str:
    """Cut every scope from the one around ``place`` up to ``top`` before ``place``; the second part."""
    while True:
        parent = play.around(place)[-1].id
        play.must("fission_scope", place)
        place = next_to(play, parent, 1)
        if parent == top:
            return place
