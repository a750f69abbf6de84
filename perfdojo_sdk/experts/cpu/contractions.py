"""Contractions: a nest around sums of products, y[i,j] += a[i,k] * b[k,j].

A matrix product, a batch of them, a convolution and two products that share an operand are one
plan. One loop becomes the *rows* of a register tile: operand a uses it and b does not. Another
becomes its *lanes*: b uses it and a does not. Loops are ordered so that a panel of b (some vectors of
columns, all of the reduction) stays near while every row of a passes; the panel is packed where its
rows do not lie together, and the reduction is cut into blocks where it outgrows the cache. Sizes that
the tile does not divide are cut, and each part is a tile of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from perfdojo_sdk.core.dtypes import BYTES, FLOAT_DTYPES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.contraction_forms import WORTH_PACKING, forms
from perfdojo_sdk.experts.cpu.contraction_nests import Nest, gathered
from perfdojo_sdk.experts.cpu.contraction_plans import Plan, cheaper_form, row_cells
from perfdojo_sdk.experts.cpu.loops import arrange, chain, cut, cut_off_rest, move_inward, move_outward
from perfdojo_sdk.experts.cpu.matrix_tiles import matrix_plays
from perfdojo_sdk.experts.cpu.row_kernels import THREADS_COST
from perfdojo_sdk.experts.cpu.steps import (
    join_distant,
    largest_divisor,
    near_caches,
    share_out,
    split,
    transpose,
    use_groups,
    use_lanes,
    write_out,
)
from perfdojo_sdk.experts.cpu.tiles import Piece
from perfdojo_sdk.experts.cpu.windows import Windows, open_panel_windows, panel_ways
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract
from perfdojo_sdk.search.play import Play

#: Fraction of the second-level cache, as a divisor, for a panel whose rows lie apart: they share fewer sets.
LOOSE = 8

#: Most terms of a block of a float sum. They are added up one after the other, the error grows with them, and
#: other systems use blocks of a few hundred.
MOST_TERMS = 1024

#: The same for convolutions, which other systems add up in blocks of a few channels.
MOST_TAPPED_TERMS = 256

#: Terms that are left when such a sum is cut into blocks, at most, if there is a size of blocks for that.
FEW_TERMS = 8


def play_contractions(
    root: Program, rules: Rules, target: Target, runs: Mapping[str, int] = MappingProxyType({})
) -> list[Play]:
    """One game for each promising plan, best first; none when the program is no contraction. ``runs``: as
    for ``contraction_plans.plans``."""
    found = gathered(root, rules)
    if found is None:
        return []
    worth_threads = THREADS_COST * _statements_per_second(found[1].loops[0], target)
    plays: list[Play] = list(matrix_plays(*found, target, worth_threads))
    for form in forms(*found):
        start, nest, ways = cheaper_form(*form, target, runs)
        for plan in ways:
            for play in _packed_and_in_place(start, nest, plan, target):
                for windows in panel_ways(root, target):
                    mapped = Play(root, rules)
                    mapped.trace = play.trace
                    map_to_hardware(mapped, target, windows)
                    if all(mapped.program != other.program for other in plays):
                        plays.append(mapped)
    return plays


def _packed_and_in_place(start: Play, nest: Nest, plan: Plan, target: Target) -> list[Play]:
    """The plan played; twice where its panels are packed and may as well be read where they lie."""
    plays: list[Play] = []
    for in_place in (False, True):
        play = Play(start.trace.root, start.rules)
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
    packs, blocks = False, list[str]()
    for piece, lane in zip(pieces, lanes, strict=True):
        panel = _Panel(play, plan, piece, target, nest, in_place)
        panel.play(lane)
        packs = packs or panel.packs
        blocks += filter(None, [panel.blocks])
    for more in blocks[1:]:
        join_distant(play, blocks[0], more)
    return packs


class _Panel:
    """The moves on one piece of the lanes: panels of operand b that all rows pass."""

    def __init__(
        self, play: Play, plan: Plan, piece: Piece, target: Target, nest: Nest, in_place: bool
    ) -> None:
        self.moves, self.plan, self.piece, self.nest, self.in_place = play, plan, piece, nest, in_place
        self.cell = max(BYTES[play.program.buffer_of[b.array].dtype] for b in plan.columns)
        self.result = BYTES[nest.dtype]
        self.lanes = nest.sizes[plan.lane]
        self.grouped = int(nest.group is not None)
        """Loops of a group, inside of a register tile."""
        self.group = nest.group.size if nest.group else 1
        """Steps of the reduction in a group."""
        self.first_cache, self.second_cache = near_caches(target)
        self.tile_depth = 0
        """Loops of a register tile: the rows, and one or two over its columns."""
        self.blocked = False
        """True if the reduction is in blocks that add to the output."""
        self.partial = ""
        """The array of the sums of one block, where these start from zero."""
        self.blocks = ""
        """The loop over such blocks, if it stands outside of all panels."""
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
        if self.blocks and not self._blocks_outside(panels[0] if len(panels) > 1 else ""):
            self.blocks = ""

    def _blocks_outside(self, panels: str) -> bool:
        """Bring the loop over blocks outside of the panels, which then pass a part of the rows' operand that
        stays in the second cache; false where that does not pay, or no move allows it."""
        play, kept = self.moves, self.moves.trace
        if not self._reads_less_by_blocks():
            return False
        if not panels:
            return True
        try:
            for child in reversed(play.scope(panels).body[1:]):
                top = separate(play, child.id, panels)
                if child.id == self.blocks:
                    play.must("swap_scopes", top)
        except MoveError:
            play.trace = kept
            return False
        return True

    def _reads_less_by_blocks(self) -> bool:
        """True if the rows' operand outgrows the second cache, and a block of it with all results, to which
        it is added, does not."""
        play, plan, blocks = self.moves, self.plan, self.moves.scope(self.blocks).size
        columns = {b.array for b in plan.columns}
        rows = {a.array for p in self.nest.products for a in (p.one, p.other)} - columns
        size = sum(play.program.buffer_of[array].bytes for array in rows)
        results = sum(play.program.buffer_of[p.target.array].bytes for p in self.nest.products)
        near = size / blocks + results <= self.second_cache < size
        return near and not (plan.around or plan.inside)

    def _block_reduction(self, head: str) -> list[str]:
        """Cut the reduction where a panel outgrows half of the second cache, or a sum of floats has many
        terms.

        Returns the heads of the nests that hold the sums. What starts and what ends a sum in blocks
        becomes a nest of its own.
        """
        play = self.moves
        body = play.scope(chain(play, head)[-1]).body
        total = _only_sum(body)
        panel_row = self.piece.wide * self.piece.width * self.cell * len(self.plan.columns)
        share = LOOSE if self.in_place else 2
        taps = prod(total.leaves[0].sizes[1:])
        most = self.second_cache // share // panel_row // taps
        again = prod(play.scope(loop).size for loop in chain(play, head)[: len(self.plan.inside) + 1])
        apart = len(total.leaves) == 1 and total.leaves[0].statement.dtype in FLOAT_DTYPES
        terms = MOST_TERMS if taps == 1 else MOST_TAPPED_TERMS // taps
        long = apart and total.size > 2 * terms > 0
        if long:
            most = min(most, terms)
        self.blocked = 1 <= most < total.size and (long or again > self.plan.tiling.high)
        if not self.blocked:
            return [head]
        start = head
        for node in reversed(body[1:]):
            top = separate(play, node.id, start)
            head = top if node is total else head
        even = largest_divisor(total.size, most)
        step = even if 2 * even >= most else -(-total.size // -(-total.size // most))
        if apart and step != even:
            # What is left goes on with the sum of the blocks.
            step = next((s for s in range(most, most // 2, -1) if total.size % s <= FEW_TERMS), step)
        main, *rest = cut_off_rest(play, total.id, step)
        heads = [separate(play, part, head) for part in rest]
        block, *_ = split(play, main, step)
        if block != main:
            nest = chain(play, head)
            move_outward(play, nest[: nest.index(block) + 1])
            if apart:
                head = self._sum_blocks_apart(block) or head
        return [head, *heads]

    def _sum_blocks_apart(self, block: str) -> str:
        """Start each block from zero and add its sums to the output at its end; the head of the nest in which
        they stand, or nothing where that is no single sum."""
        play, kept = self.moves, self.moves.trace
        try:
            start, _ = play.split_reduction(block, lane=block)
            loops = chain(play, start)
            for loop in [loop for loop in loops for _ in range(2)]:
                play.must("join_scopes", loop)
        except MoveError:
            play.trace = kept
            return ""
        self.partial = play.scope(loops[0]).leaves[0].statement.target.array
        self.blocks = loops[0]
        return loops[1]

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
            goes_on = self.blocked and array != self.partial
            play.must("stage_accumulator" if goes_on else "stage_write", tile, array=array)
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
        read = next(t for t in play.scope(place).touches[array] if not t.writes)
        depth, columns = len(play.around(place)), self.piece.wide * self.piece.width
        cells = prod(size for k, size in enumerate(read.sizes, depth) if k in read.access.levels)
        steps = min(plan.steps, cells // columns)  # those of one block, if the place is inside of it
        width = self._row_length(array)
        return (
            prod(read.sizes) // (steps * columns) >= WORTH_PACKING * plan.tiling.high
            and width > columns * self.group
            and width * (steps // self.group) * self.cell > self.first_cache // 2
        )

    def _row_length(self, array: str) -> int:
        """Neighbouring cells of b in a row, or those that a joined loop passes."""
        return max(row_cells(self.moves.program.buffer_of[array], self.nest), self.lanes)


def _only_sum(body: Sequence[Node]) -> Scope:
    """The loops over the sums of a nest; :class:`MoveError` where sums of several lengths share it."""
    sums = [child for child in body if isinstance(child, Scope)]
    if len(sums) > 1:
        raise MoveError("PD-T001", "sums of several lengths share a nest, and cannot share a tile")
    return sums[0]
