"""Products of matrices: tiles in shared memory, smaller ones in registers.

A block computes a tile of the output. Step by step it loads a slice of both operands into shared memory,
coalesced, and each thread multiplies a few rows with a few columns from there. The tile is the largest that
divides the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod

from perfdojo_sdk.codegen.gpu.mapping import GRID, Machine
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, Cast, Read, performs
from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.experts.gpu.slices import Slicing, copy_ahead, in_slices, map_threads
from perfdojo_sdk.experts.gpu.steps import WIDE, arrange, chain, factors, only_statement, split
from perfdojo_sdk.experts.steps import neighbour, separate
from perfdojo_sdk.search.play import Play

VECTOR = "v"
#: Rows or columns of a block's tile.
LARGEST = 128
#: Most steps of the sum in one slice that are unrolled.
WRITTEN_OUT = 16
#: Most steps in a slice that is copied ahead: while the next one is on its way, its addresses take registers.
DEPTH_AHEAD = 8
#: Threads of a multiprocessor that keep its multipliers busy.
ENOUGH_THREADS = 384
#: Parts that a sum is cut into at most, and the steps that each of them has at least.
MOST_PARTS, LEAST_STEPS = 16, 128
#: Cost of one more partial sum that goes through memory, and of one more launch on each multiprocessor, in
#: multiplications at full speed.
PARTIAL_COST, LAUNCH_COST = 80.0, 450_000.0


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
    after: str = ""
    """The statement in the nest that uses the complete sums, if there is one."""


@dataclass(frozen=True)
class Tile:
    """The tile of a block, and of a thread in it."""

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
    statement = only_statement(play, body[1].id)
    if statement is None or statement.accumulate != "add":
        return None
    reads = factors_of(statement)
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
            rows, columns, steps = [play.scope(s).size for s in (*loops[-2:], body[1].id)]
            return Product(
                tuple(loops[:-2]), loops[-2], loops[-1], body[1].id, rows, columns, steps,
                left.array, right.array, statement.target.array,
            )  # fmt: skip
    return None


def factors_of(statement: Statement) -> tuple[Form, Form] | None:
    """The two factors of the value, where it is a product of two elements, or of two that are widened."""
    value = statement.value
    if not performs(value, "mul"):
        return None
    one, other = (v.argument if isinstance(v, Cast) else v for v in value.arguments)
    if not isinstance(one, Read) or not isinstance(other, Read):
        return None
    return Form.of(one.access), Form.of(other.access)


def take_epilogue(play: Play, product: Product) -> Product:
    """The product with the next nest in its own, if that is one statement for each sum, its only user."""
    loops, kept = [*product.outer, product.row, product.column], play.trace
    at = play.program.paths[loops[0]][0] + 1
    if product.target in play.program.interface or at >= len(play.program.body):
        return product
    users = [s.id for s in play.statements() if any(r.array == product.target for r in s.reads)]
    try:
        for loop in loops:
            play.must("join_scopes", loop)
    except MoveError:
        play.trace = kept
        return product
    *_, last = play.scope(product.column).body
    if isinstance(last, Statement) and not last.accumulate and users == [last.id]:
        return replace(product, after=last.id)
    play.trace = kept
    return product


@dataclass(frozen=True)
class Form:
    """An element that is read: of which array, and which iterators choose it."""

    array: str
    levels: frozenset[int]

    @staticmethod
    def of(access: Access) -> Form:
        return Form(access.array, frozenset(l for form in access.subscripts for l in form.levels))


def best_tile(product: Product, around: int, machine: Machine, ahead: bool = False) -> Tile | None:
    """The tile with the least :func:`_cost`."""
    tiles = _tiles(product, machine, ahead)
    return min(tiles, key=lambda tile: _cost(product, tile, around, machine), default=None)


def _tiles(product: Product, machine: Machine, ahead: bool = False) -> Iterator[Tile]:
    """Tiles that divide the product, of blocks that the machine can have."""
    for thread_rows, thread_columns in ((8, 8), (8, 4), (4, 4), (2, 4), (2, 2), (1, 2), (1, 1)):
        deepest = WRITTEN_OUT if thread_rows * thread_columns > 16 else 2 * WRITTEN_OUT
        # At least two slices, since data that is used once need not be shared; ahead, two pairs of them.
        most = min(deepest, product.steps - 1)
        depth = factors(product.steps // 2, min(DEPTH_AHEAD, most // 2))[-1] if ahead else most
        depth = factors(product.steps, depth)[-1]
        if ahead and product.steps % (2 * depth):
            return
        for rows in factors(product.rows, LARGEST):
            for columns in factors(product.columns, LARGEST):
                if rows % thread_rows or columns % thread_columns:
                    continue
                tile = Tile(rows, columns, thread_rows, thread_columns, depth)
                fits = (1 + ahead) * (rows + columns) * depth * 4 <= machine.shared_bytes
                if machine.warp <= tile.threads <= 256 and fits:
                    yield tile


def _cost(product: Product, tile: Tile, around: int, machine: Machine) -> float:
    """The time of the product with a tile, in multiplications at full speed.

    Its constants come from times of such kernels on one H100; they rank tiles, and are no model of a time.
    """
    blocks = around * (product.rows // tile.rows) * (product.columns // tile.columns)
    # Loads from shared memory, and loads of a block from memory, for each multiplication.
    own = tile.thread_rows * tile.thread_columns / (tile.thread_rows + tile.thread_columns)
    reuse = tile.rows * tile.columns / (tile.rows + tile.columns)
    lanes = tile.threads / (-(-tile.threads // machine.warp) * machine.warp)
    together = -(-blocks // machine.multiprocessors) * tile.threads
    awake: float = min(1.0, together / ENOUGH_THREADS) ** 0.7
    speed = own / (2.5 + own) * reuse / (4 + reuse) * lanes * awake * machine.share_at_work(blocks)
    return around * product.rows * product.columns * product.steps / speed


def _parts(product: Product, around: int, machine: Machine) -> int:
    """The number of parts for the sums, to have enough blocks; 1 if that does not pay."""
    cells = around * product.rows * product.columns

    def cost(parts: int) -> float:
        part = replace(product, steps=product.steps // parts)
        made = [_cost(part, tile, around * parts, machine) for tile in _tiles(part, machine)]
        added = cells * parts * PARTIAL_COST + LAUNCH_COST * machine.multiprocessors if parts > 1 else 0.0
        return min(made, default=inf) + added

    choices = [n for n in factors(product.steps, MOST_PARTS) if n == 1 or product.steps // n >= LEAST_STEPS]
    return min(choices, key=cost)


def _in_parts(play: Play, product: Product, parts: int) -> Product:
    """Cut the sums into parts, and add these up in a nest behind; gives the product whose sums are parts."""
    outer = [*product.outer, product.row, product.column]
    position = play.program.paths[outer[0]][0]
    cut, _ = split(play, product.total, product.steps // parts)
    start, _ = play.split_reduction(cut, cut)
    play.must("join_scopes", start)
    # The start of the whole sums comes before the parts.
    beginning = neighbour(play, start, -1)
    play.must("reorder_statements", beginning)
    separate(play, beginning, outer[0])
    nest = chain(play, play.program.body[position].id)
    arrange(play, [*nest[:-3], nest[-1], *nest[-3:-1]])
    found = find_product(play, play.program.body[position].id)
    if found is None:
        raise MoveError("PD-T006", "the parts are no product")
    for dim in reversed(range(len(product.outer), len(product.outer) + 2)):
        play.must("reorder_dims", found.target, dim=dim)
    return found


def play_tiles(play: Play, place: str, machine: Machine, ahead: bool = False) -> None:
    """Play the product at ``place``; nothing where there is none, or no tile divides it.

    ``ahead``: the next slices are copied while the present ones are multiplied.
    """
    product = find_product(play, place)
    if product is None:
        return
    around = prod(play.scope(loop).size for loop in product.outer)
    parts = _parts(product, around, machine)
    if parts > 1 and play.rules.most >= Kind.REASSOCIATES:
        product, around = _in_parts(play, product, parts), around * parts
    tile = best_tile(product, around, machine, ahead)
    if tile is None:
        return
    if parts == 1:
        product = take_epilogue(play, product)
    rows = split(play, product.row, tile.rows)
    columns = split(play, product.column, tile.columns)
    own_rows = _own(play, rows[-1], tile.thread_rows)
    own_columns = _own(play, columns[-1], tile.thread_columns)
    grid = [*product.outer, *rows[:-1], *columns[:-1]]
    threads = [own_rows[0], own_columns[0]]
    arrange(play, [*grid, *threads, *own_rows[1:], *own_columns[1:]])
    lay_out = partial(_lay_out, own=(len(own_rows), len(own_columns)))
    sums = in_slices(
        play, product, Slicing(tile.depth, tile.threads, inwards=2, ahead=ahead), threads, lay_out
    )
    for compute in sums.compute:
        _spread_steps(play, compute)
        for loop in chain(play, compute)[2:]:
            if play.scope(loop).size <= WRITTEN_OUT:
                play.may("annotate_scope", loop, suffix="u")
                break
    for nest in copy_ahead(play, sums) if ahead else sums.nests:
        map_threads(play, nest, tile.threads)
    _write_wide(play, sums.end)
    for loop in grid:
        play.may("annotate_scope", loop, suffix=GRID)


def _own(play: Play, loop: str, count: int) -> list[str]:
    """The scope of the threads, then those of the ``count`` rows or columns that are each thread's own.

    They come four at a time, and the next four beyond those of all the other threads, so that neighbouring
    threads read neighbouring fours, from different banks of shared memory.
    """
    groups = split(play, loop, play.scope(loop).size * WIDE // count) if count % WIDE == 0 else [loop]
    threads = split(play, groups[-1], min(count, WIDE))
    return [threads[0], *groups[:-1], *threads[1:]]


def _lay_out(play: Play, compute: str, array: str, own: tuple[int, int]) -> None:
    """Give a slice's dimensions the order: groups of fours, steps, threads, four.

    ``own``: how many scopes :func:`_own` has made, of the rows and of the columns.
    """
    row = len(play.around(compute))
    column, step = row + 1, row + 2
    groups = [step + 1] * (own[0] == 3) + [step + own[0]] * (own[1] == 3)
    inner = [*groups, step, row, column]

    def place(level: int) -> int:
        return inner.index(level) if level in inner else -1 if level < row else len(inner)

    order = [place(subscript.highest) for subscript in _slice(play, compute, array).subscripts]
    for end in range(len(order), 1, -1):
        for k in range(end - 1):
            if order[k] > order[k + 1]:
                play.must("reorder_dims", array, dim=k)
                order[k : k + 2] = order[k + 1], order[k]


def _slice(play: Play, compute: str, array: str) -> Access:
    """The access by which the products of the nest read a slice."""
    statement = only_statement(play, chain(play, compute)[-1])
    assert statement is not None
    return next(read for read in statement.reads if read.array == array)


def _spread_steps(play: Play, compute: str) -> None:
    """Room for one thread more between steps, where a slice is copied along its steps.

    Neighbouring threads write a step apart then, and these are in different banks.
    """
    row = len(play.around(compute))
    statement = only_statement(play, chain(play, compute)[-1])
    assert statement is not None
    for read in statement.reads:
        copy = next(s for s in play.statements() if s.target.array == read.array)
        if play.around(copy.id)[-1].suffix != VECTOR:
            dim = next(k for k, form in enumerate(read.subscripts) if form.highest in (row, row + 1))
            size = play.program.buffer_of[read.array].shape[dim]
            play.may("pad_dim", read.array, dim=dim, size=size + 1)


def _write_wide(play: Play, end: str) -> None:
    innermost = chain(play, end)[-1]
    if play.scope(innermost).size % WIDE == 0:
        play.may("annotate_scope", innermost, suffix="v")
