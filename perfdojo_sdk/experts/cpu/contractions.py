"""Contractions: a nest around sums of products, y[i,j] += a[i,k] * b[k,j].

A matrix product, a batch of them, a convolution and two products that share an operand are one
plan. One loop becomes the *rows* of a register tile: operand a uses it and b does not. Another
becomes its *lanes*: b uses it and a does not. Loops are ordered so that a panel of b (some vectors of
columns, all of the reduction) stays near while every row of a passes; the panel is packed where its
rows do not lie together, and the reduction is cut into blocks where it outgrows the cache. Sizes that
the tile does not divide are cut, and each part is a tile of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import gcd, prod
from types import MappingProxyType
from typing import TypeAlias

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.contraction_forms import WORTH_PACKING, forms, with_joined_loops
from perfdojo_sdk.experts.cpu.contraction_nests import Nest, Product, gathered
from perfdojo_sdk.experts.cpu.loops import arrange, chain, cut, cut_off_rest, move_inward, move_outward
from perfdojo_sdk.experts.cpu.matrix_tiles import matrix_plays
from perfdojo_sdk.experts.cpu.row_kernels import THREADS_COST
from perfdojo_sdk.experts.cpu.steps import (
    largest_divisor,
    near_caches,
    share_out,
    split,
    transpose,
    use_groups,
    use_lanes,
    write_out,
)
from perfdojo_sdk.experts.cpu.tiles import NEAR, Lines, Piece, Tiling, best_tiling
from perfdojo_sdk.experts.cpu.windows import Windows, open_panel_windows, panel_ways
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract
from perfdojo_sdk.search.play import Play

#: Cost of moving one number to or from a strided place, in multiply-adds of vectors.
SCATTER = 2.0

#: A plan may be the fastest if its cost is at most this factor above the best.
NEARLY = 1.1

#: Cost of a byte of a panel that is packed or read anew, in bytes of the rows' operand.
AGAIN = 3

#: Loops are joined if that lowers the cost of the best plan below this fraction.
JOINED = 0.97

#: Fraction of the second-level cache, as a divisor, for a panel whose rows lie apart: they share fewer sets.
LOOSE = 8

#: Bytes of a cache line, and rows of a tile, for which the lines of several products are compared.
CACHE_LINE, TYPICAL_ROWS = 64, 4

#: Bytes after which addresses fall into the same sets of a typical first-level cache.
PAGE = 4096

#: Least number of different offsets in a page at which rows begin, for a panel to have room in a cache.
PLACES = 16


_Pair: TypeAlias = tuple[Access, Access]
"""Operands a and b of a product."""


@dataclass(frozen=True)
class Plan:
    """The role of each loop. Loops are levels of the nest."""

    row: int
    lane: int
    around: tuple[int, ...]
    """Loops outside of a panel of b."""
    inside: tuple[int, ...]
    """Loops that use the same panel again."""
    columns: tuple[Access, ...]
    """Operand b of each product."""
    must_pack: bool
    """True if the lanes are no neighbours in b."""
    may_pack: bool
    """True if packing makes no cell twice."""
    may_stay: bool
    """True if the rows of b may be read in place: they do not all begin in a few sets of a cache."""
    scattered: bool
    """True if the lanes are no neighbours in the output."""
    steps: int
    """Steps of the reduction."""
    tiling: Tiling
    cost: float
    """In multiply-adds of vectors."""


# -- choosing ----------------------------------------------------------------------------------------


def plans(
    program: Program,
    nest: Nest,
    target: Target,
    runs: Mapping[str, int] = MappingProxyType({}),
    laid_out: bool = False,
) -> list[Plan]:
    """The best way to lay rows and lanes over the loops, and the best with other lanes if it is near.

    None where each sum alone, with lanes along the reduction, costs less. ``runs``: array -> how often the
    program runs on the same elements of it, for which one packing does. ``laid_out``: values of the rows will
    be neighbours, wherever they are now.
    """
    ways = permutations(range(len(nest.loops)), 2)
    found = [p for row, lane in ways if (p := _plan(program, nest, row, lane, target, runs, laid_out))]
    found.sort(key=lambda plan: (plan.cost, -plan.row))
    best_of_lane = {plan.lane: plan for plan in reversed(found)}
    most = min([_cost_of_dots(program, nest, target), *(NEARLY * plan.cost for plan in found[:1])])
    return [plan for plan in found if plan is best_of_lane[plan.lane] and plan.cost <= most][:2]


def _plan(
    program: Program,
    nest: Nest,
    row: int,
    lane: int,
    target: Target,
    runs: Mapping[str, int],
    laid_out: bool,
) -> Plan | None:
    pairs = [pair for p in nest.products if (pair := _operands(p, row, lane)) is not None]
    if len(pairs) < len(nest.products) or not all({row, lane} <= {*p.target.levels} for p in nest.products):
        return None
    columns = tuple(b for _, b in pairs)
    size, sizes, steps = nest.group.size if nest.group else 1, nest.sizes, nest.products[0].steps
    if nest.group and any(of_rows != 1 for of_rows, _ in _strides_in_group(program, nest, pairs)):
        return None
    must_pack = _must_pack(program, nest, pairs, lane)
    depth = (*sizes, *nest.products[0].sizes)
    may_pack = all(_cells_differ(program.buffer_of[b.array], b, depth) for b in columns)
    figures = target.capabilities
    lanes = figures.lanes.get(nest.dtype, 0)
    if not lanes or (must_pack and not may_pack):
        return None
    rows = [program.buffer_of[b.array].bytes // prod(program.buffer_of[b.array].shape[:-1]) for b in columns]
    may_stay = not must_pack and all(gcd(row, PAGE) * PLACES <= PAGE for row in rows)
    once = min(runs.get(b.array, 1) for b in columns)
    # What is laid out for many runs is read in one form. Instructions for groups need full vectors.
    registers, alike = figures.vector_registers or 8, once > 1
    far = NEAR if laid_out else _lines(program, nest, [a for a, _ in pairs], row)
    tiling = best_tiling(sizes[row], sizes[lane], lanes, registers, len(columns), alike, far, short=size)
    others = [l for l in range(len(sizes)) if l not in (row, lane)]
    inside = _inside(program, nest, pairs, others, sizes[lane], tiling, target)
    around = tuple(l for l in others if l not in inside)
    scattered = any(
        lane_stride(program.buffer_of[a.array], a.subscripts, lane) != 1 for a in _outputs(program, nest)
    )
    if sizes[row] == 1 and not (must_pack or scattered or nest.group):
        return None  # nothing is read twice: sums along columns read each row of b once, in order
    cost = steps / size * tiling.cost * prod(sizes[l] for l in others)
    if scattered:
        cost += SCATTER * prod(sizes)
    if must_pack:
        cost += SCATTER * steps * sizes[lane] * prod(sizes[l] for l in around) / once
    return Plan(
        row, lane, around, inside, columns, must_pack, may_pack, may_stay, scattered, steps, tiling, cost
    )


def _must_pack(program: Program, nest: Nest, pairs: Sequence[_Pair], lane: int) -> bool:
    """True if the lanes are no neighbours in an operand b, or are in other groups than the instruction's."""
    strides = [lane_stride(program.buffer_of[b.array], b.subscripts, lane) for _, b in pairs]
    if not nest.group:
        return any(stride != 1 for stride in strides)
    in_group = _strides_in_group(program, nest, pairs)
    return any(of_lanes != 1 for _, of_lanes in in_group) or any(s != nest.group.size for s in strides)


def _strides_in_group(
    program: Program, nest: Nest, pairs: Sequence[_Pair]
) -> list[tuple[int | None, int | None]]:
    """Distances of neighbours in a group, in both operands of each product."""
    last = len(nest.sizes) + len(nest.products[0].sizes) - 1

    def stride(access: Access) -> int | None:
        return lane_stride(program.buffer_of[access.array], access.subscripts, last)

    return [(stride(a), stride(b)) for a, b in pairs]


def _inside(
    program: Program,
    nest: Nest,
    pairs: Sequence[_Pair],
    others: Sequence[int],
    columns: int,
    tiling: Tiling,
    target: Target,
) -> tuple[int, ...]:
    """The loops inside of those over panels: all that do not change a panel, but for the outermost of several
    where the other operand would leave the near caches between the panels."""
    inside = tuple(l for l in others if not any(l in b.levels for _, b in pairs))
    parts = nest.sizes[inside[0]] if len(inside) > 1 else 1
    rows = sum(program.buffer_of[a.array].bytes for a, _ in pairs)
    panels = nest.products[0].steps * columns * BYTES[nest.dtype]
    passes = sum(piece.tiles for piece in tiling.pieces)
    leaves = parts > 1 and _far_between_passes(rows, passes, parts * panels, target)
    return inside[1:] if leaves else inside


def _far_between_passes(rows: int, passes: int, panels: int, target: Target) -> bool:
    """True if the operand of the rows, of so many bytes, leaves the near caches between the passes of the
    panels, so that it pays to run all panels on a part of it, such as an image, and read ``panels`` bytes of
    theirs anew for each part."""
    return rows > near_caches(target)[1] and passes * rows > rows + AGAIN * panels


def _operands(product: Product, row: int, lane: int) -> _Pair | None:
    """(a, b): the operand with the rows and the one with the lanes."""
    for a, b in ((product.one, product.other), (product.other, product.one)):
        if row in a.levels and lane in b.levels and row not in b.levels and lane not in a.levels:
            return a, b
    return None


def _cells_differ(buffer: Buffer, access: Access, sizes: tuple[int, ...]) -> bool:
    """True if packing makes no cell twice: each subscript counts its iterators like digits of a number, or
    the address does, where loops were joined."""
    if any(subscript.quotients for subscript in access.subscripts):
        return _counts(buffer.address(access.subscripts), sizes)
    return all(_counts(subscript, sizes) for subscript in access.subscripts)


def _counts(form: AffineExpr, sizes: tuple[int, ...]) -> bool:
    most = 0
    for level, step in sorted(form.terms, key=lambda term: abs(term[1])):
        if sizes[level] == 1:
            continue
        if abs(step) <= most:
            return False
        most += abs(step) * (sizes[level] - 1)
    return not form.quotients


def _lines(program: Program, nest: Nest, operands: Sequence[Access], row: int) -> Lines:
    """The cache lines, for each step of the reduction, that the values of the rows take more than values
    that are all neighbours. Steps go through neighbours as far as the innermost loops of the reduction do."""
    worst, sizes = NEAR, (*nest.sizes, *nest.products[0].sizes)
    for access in operands:
        buffer, run = program.buffer_of[access.array], 1
        inner = [level for level in access.levels if level >= len(nest.sizes) and sizes[level] > 1]
        for level in reversed(inner):
            if lane_stride(buffer, access.subscripts, level) != run:
                break
            run *= sizes[level]
        in_line = CACHE_LINE // BYTES[buffer.dtype]
        more = (1 / min(run, in_line) - 1 / in_line) * (nest.group.size if nest.group else 1)
        apart = abs(lane_stride(buffer, access.subscripts, row) or in_line)
        found = Lines(more, 0.0) if apart >= in_line else Lines(more * apart / in_line, more)
        worst = max(worst, found, key=lambda lines: lines.cost(TYPICAL_ROWS))
    return worst


def _outputs(program: Program, nest: Nest) -> Iterator[Access]:
    for loop in nest.loops[:1]:
        for leaf in loop.leaves:
            if leaf.statement.target.array in program.outputs:
                yield leaf.statement.target


def _cost_of_dots(program: Program, nest: Nest, target: Target) -> float:
    """Cost of each sum alone, with lanes along the reduction where both operands allow it."""
    lanes = target.capabilities.lanes.get(nest.dtype, 1)
    cost = 0.0
    for product in nest.products:
        level = max((*product.one.levels, *product.other.levels))
        strides = [
            lane_stride(program.buffer_of[a.array], a.subscripts, level) for a in (product.one, product.other)
        ]
        last = prod(product.sizes[-2:]) if nest.group else product.sizes[-1]
        width = min(lanes, last) if all(stride in (0, 1) for stride in strides) else 1
        cost += 2 / max(width, 2) * product.steps * prod(nest.sizes)
    return cost


# -- playing -----------------------------------------------------------------------------------------


def play_contractions(
    root: Program, rules: Rules, target: Target, runs: Mapping[str, int] = MappingProxyType({})
) -> list[Play]:
    """One game for each promising plan, best first; none when the program is no contraction. ``runs``: as
    for :func:`plans`."""
    found = gathered(root, rules)
    if found is None:
        return []
    worth_threads = THREADS_COST * _statements_per_second(found[1].loops[0], target)
    plays: list[Play] = list(matrix_plays(*found, target, worth_threads))
    for form in forms(*found):
        start, nest, ways = _cheaper(*form, target, runs)
        for plan in ways:
            for play in _packed_and_in_place(start, nest, plan, target):
                for windows in panel_ways(root, target):
                    mapped = Play(root, rules, rules.most)
                    mapped.trace = play.trace
                    map_to_hardware(mapped, target, windows)
                    if all(mapped.program != other.program for other in plays):
                        plays.append(mapped)
    return plays


def best_plan(
    root: Program, rules: Rules, target: Target, runs: Mapping[str, int] = MappingProxyType({})
) -> Plan | None:
    """The plan of the contraction as it is, without groups; None where no tiles pay. ``runs``: as for
    :func:`plans`."""
    found = gathered(root, rules)
    return next(iter(_cheaper(*found, target, runs)[2]), None) if found else None


def _cheaper(
    start: Play, nest: Nest, target: Target, runs: Mapping[str, int]
) -> tuple[Play, Nest, list[Plan]]:
    """The contraction and its plans; with joined loops if that makes it cheaper."""
    own = plans(start.program, nest, target, runs)
    joined = with_joined_loops(start, nest)
    if joined is not None:
        others = plans(joined[0].program, joined[1], target, runs)
        if others and (not own or others[0].cost < JOINED * own[0].cost):
            return *joined, others
    return start, nest, own


def _packed_and_in_place(start: Play, nest: Nest, plan: Plan, target: Target) -> list[Play]:
    """The plan played; twice where its panels are packed and may as well be read where they lie."""
    plays: list[Play] = []
    for in_place in (False, True):
        play = Play(start.trace.root, start.rules, start.most)
        play.trace = start.trace
        try:
            packs = play_contraction(play, nest, plan, target, in_place)
        except MoveError:  # for example, an operand is read in several forms
            break
        plays.append(play)
        if not packs or not plan.may_stay:
            break
    return plays


def map_to_hardware(play: Play, target: Target, windows: Windows) -> None:
    """Map tiles to registers and vectors to lanes; use threads for work that takes longer than starting
    them."""
    for buffer in temporaries(play.program):
        play.may("remove_dead", buffer.name)
    wishes = dict(open_panel_windows(play, target, windows))
    contract(play)
    transpose(play)
    use_groups(play)
    use_lanes(play)
    write_out(play, target.capabilities.vector_registers, outermost=True)
    for scope in [node for node in play.program.body if isinstance(node, Scope)]:
        share_out(play, scope.id, THREADS_COST * _statements_per_second(scope, target))
    for window, location in wishes.items():
        play.may("set_location", window, location=location)


def _statements_per_second(scope: Scope, target: Target) -> float:
    """Statements per second: of sums at the peak of the arithmetic, of copies at the speed of memory."""
    capabilities, dtype = target.capabilities, scope.leaves[0].statement.dtype
    if any(leaf.statement.accumulate for leaf in scope.leaves):
        return capabilities.peak_gflops.get(dtype, 1) * 1e9 / 2
    return capabilities.memory.copy_gbs * 1e9 / BYTES[dtype] if capabilities.memory else 0


def play_contraction(play: Play, nest: Nest, plan: Plan, target: Target, in_place: bool = False) -> bool:
    """Play ``plan`` on the nest, and pack no panel that may be read ``in_place``; whether one was packed.

    :class:`MoveError` where a move that it needs is refused.
    """
    order = [nest.loops[level].id for level in (*plan.around, plan.lane, *plan.inside, plan.row)]
    arrange(play, order)
    pieces = plan.tiling.pieces
    lanes = cut(play, nest.loops[plan.lane].id, [piece.columns for piece in pieces])
    packs = False
    for piece, lane in zip(pieces, lanes, strict=True):
        panel = _Panel(play, plan, piece, target, nest, in_place)
        panel.play(lane)
        packs = packs or panel.packs
    return packs


class _Panel:
    """The moves on one piece of the lanes: panels of operand b that all rows pass."""

    def __init__(
        self, play: Play, plan: Plan, piece: Piece, target: Target, nest: Nest, in_place: bool
    ) -> None:
        self.moves, self.plan, self.piece, self.in_place = play, plan, piece, in_place
        self.cell = max(BYTES[play.program.buffer_of[b.array].dtype] for b in plan.columns)
        self.result = BYTES[nest.dtype]
        self.lanes = nest.sizes[plan.lane]
        self.grouped = int(nest.group is not None)
        """Loops of a group, inside of a register tile."""
        self.first_cache, self.second_cache = near_caches(target)
        self.tile_depth = 0
        """Loops of a register tile: the rows, and one or two over its columns."""
        self.blocked = False
        """True if the reduction is in blocks that add to the output."""
        self.packs = False
        """True if something was copied that might have been read where it lies."""

    def play(self, lane: str) -> None:
        """Turn ``lane``, the loop over the columns of the piece, into panels of register tiles."""
        play, piece = self.moves, self.piece
        inner = chain(play, lane)[1:]
        panels = split(play, lane, piece.wide * piece.width)
        vectors = split(play, panels[-1], piece.width)
        self.tile_depth = 1 + len(vectors)
        for vector in reversed(vectors):
            move_inward(play, vector, len(inner))
        heads = self._block_reduction(inner[0])
        tiles = [tile for head in heads for tile in self._tile_rows(head)]
        if len(panels) > 1 and len(heads) == 1:
            self._pack(panels[:1])
        else:
            self._pack(heads if self.plan.inside else tiles)

    def _block_reduction(self, head: str) -> list[str]:
        """Cut the reduction where a panel outgrows half of the second cache.

        Returns the heads of the nests that hold the sums. What starts and what ends a sum in blocks
        becomes a nest of its own.
        """
        play = self.moves
        body = play.scope(chain(play, head)[-1]).body
        total = _only_sum(body)
        panel_row = self.piece.wide * self.piece.width * self.cell * len(self.plan.columns)
        share = LOOSE if self.in_place else 2
        most = self.second_cache // share // panel_row // prod(total.leaves[0].sizes[1:])
        again = prod(play.scope(loop).size for loop in chain(play, head)[: len(self.plan.inside) + 1])
        self.blocked = 1 <= most < total.size and again > self.plan.tiling.high
        if not self.blocked:
            return [head]
        start = head
        for node in reversed(body[1:]):
            top = separate(play, node.id, start)
            head = top if node is total else head
        even = largest_divisor(total.size, most)
        step = even if 2 * even >= most else -(-total.size // -(-total.size // most))
        main, *rest = cut_off_rest(play, total.id, step)
        heads = [separate(play, part, head) for part in rest]
        block, *_ = split(play, main, step)
        if block != main:
            nest = chain(play, head)
            move_outward(play, nest[: nest.index(block) + 1])
        return [head, *heads]

    def _tile_rows(self, head: str) -> list[str]:
        """Cut the rows into register tiles; the scopes that pass a panel, one for each kind of tile."""
        play, plan = self.moves, self.plan
        row = chain(play, head)[len(plan.inside)]
        tiles = []
        for part in cut_off_rest(play, row, plan.tiling.high):
            nest = split(play, part, plan.tiling.high)
            if plan.scattered:
                self._collect_output(nest)
            sums = self._fill_registers(nest[-1])
            tiles.append(nest[0] if len(nest) > 1 else sums)
        return tiles

    def _collect_output(self, nest: list[str]) -> None:
        """Write the output's lanes, which lie apart, from a buffer where they are neighbours."""
        play, vectors = self.moves, self.tile_depth - 1
        cells = play.scope(nest[0]).size * self.piece.wide * self.piece.width
        if len(nest) > 1:
            cells *= self.plan.tiling.high
        place = nest[0] if cells * self.result <= self.first_cache // 2 else nest[-1]
        for array in [name for name in play.program.outputs if name in play.scope(place).touches]:
            move = "stage_accumulator" if self.blocked else "stage_write"
            for copy in play.stage(move, place, array).nests:
                for loop in reversed(copy.scopes[:-vectors]):
                    move_inward(play, loop, vectors)
                if len(copy.scopes) - vectors > 1:
                    # One loop over all rows, so that squares of rows and lanes are transposed in registers.
                    play.may("collapse_scopes", copy.scopes[-vectors - 2])

    def _fill_registers(self, tile: str) -> str:
        """Let the sums of a tile accumulate in registers; the outermost scope of the sums."""
        play, depth = self.moves, self.tile_depth
        body = play.scope(chain(play, tile)[depth - 1]).body
        total = _only_sum(body)
        for array in dict.fromkeys(leaf.statement.target.array for leaf in total.leaves):
            play.must("stage_accumulator" if self.blocked else "stage_write", tile, array=array)
        sums = tile
        for node in reversed(body[1:]):
            top = separate(play, node.id, tile)
            sums = top if node.id == total.id else sums
        nest = chain(play, sums)
        for reduction in nest[depth : len(nest) - self.grouped]:
            move_outward(play, [*nest[:depth], reduction])
        # Sums that share a row stay together in it: one value of the row then serves them all.
        for statement in reversed(play.scope(nest[-1 if self.grouped else depth - 1]).body[1:]):
            separate(play, statement.id, nest[depth - 1])
        return nest[depth]

    def _pack(self, places: list[str]) -> None:
        """Copy what a panel reads of b into a buffer where it lies together."""
        play = self.moves
        for array in dict.fromkeys(b.array for b in self.plan.columns):
            for place in places:
                worth = not self.in_place and self._worth_packing(array, place)
                if self.plan.must_pack or worth:
                    self.packs = self.packs or not self.plan.must_pack
                    copy = play.stage("stage_read", self._before_all(place, array), array).copy
                    self._read_in_order(copy, place, array)

    def _before_all(self, place: str, array: str) -> str:
        """The outermost scope of the perfect nest around ``place`` in which no loop changes what is read."""
        around, used = self.moves.around(place), set[int]()
        for touch in self.moves.scope(place).touches[array]:
            used |= set(touch.access.levels)
        for level in reversed(range(len(around))):
            if len(around[level].body) != 1 or level in used:
                break
            place = around[level].id
        return place

    def _read_in_order(self, copy: str, place: str, array: str) -> None:
        """Copy all panels together, a few rows of b at a time: as many as stay in the first cache, so that
        each panel gets several of its lines at once. Panels lie at distances that share a set of a cache."""
        play, vectors = self.moves, self.tile_depth - 1 + self.grouped
        nest = chain(play, copy)
        steps = len(nest) - vectors - 1
        if play.scope(copy).size != play.scope(place).size or steps < 1:
            return
        rows = nest[steps]
        move_inward(play, copy, steps)
        near = self.first_cache // 2 // (self._row_length(array) * self.cell)
        if not self.plan.must_pack:
            for few in split(play, rows, largest_divisor(play.scope(rows).size, near))[1:]:
                move_inward(play, few, 1)

    def _worth_packing(self, array: str, place: str) -> bool:
        """True if rows of the panel lie apart, exceed the first cache and are read again and again."""
        play, plan = self.moves, self.plan
        if not plan.may_pack:
            return False
        reads = [t for t in play.scope(place).touches[array] if not t.writes]
        again = prod(reads[0].sizes) // (plan.steps * self.piece.wide * self.piece.width)
        width = self._row_length(array)
        return (
            again >= WORTH_PACKING * plan.tiling.high
            and width > self.piece.wide * self.piece.width
            and width * plan.steps * self.cell > self.first_cache // 2
        )

    def _row_length(self, array: str) -> int:
        """Neighbouring cells of b in a row: of its last dimension, or those that a joined loop passes."""
        return max(self.moves.program.buffer_of[array].shape[-1], self.lanes)


def _only_sum(body: Sequence[Node]) -> Scope:
    """The loops over the sums of a nest; :class:`MoveError` where sums of several lengths share it."""
    sums = [child for child in body if isinstance(child, Scope)]
    if len(sums) > 1:
        raise MoveError("PD-T001", "sums of several lengths share a nest, and cannot share a tile")
    return sums[0]
