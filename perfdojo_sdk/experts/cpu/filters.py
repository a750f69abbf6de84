"""Convolutions by fewer products: two rows of outputs at a time, from four sums.

`minimal_filter` needs a filter of three taps across the rows of an image, whose sums lie beside each other in
memory. What remains are four contractions with two thirds of the products, each planned like any other; the
sums of the filters are made once, those of the data once for all channels, and both pairs of rows stay in a
near cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, Operation, Read
from perfdojo_sdk.core.parts import part
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.experts.cpu.contraction_nests import Nest, find_nest, gathered, is_contraction
from perfdojo_sdk.experts.cpu.contraction_plans import Plan, every_plan
from perfdojo_sdk.experts.cpu.contractions import map_to_hardware, play_contraction
from perfdojo_sdk.experts.cpu.loops import arrange, chain, cut, move_inward
from perfdojo_sdk.experts.cpu.parts import replay
from perfdojo_sdk.experts.cpu.row_kernels import play_rows
from perfdojo_sdk.experts.cpu.steps import split
from perfdojo_sdk.experts.cpu.windows import Windows
from perfdojo_sdk.experts.steps import neighbour, separate
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse, vectorise
from perfdojo_sdk.search.play import Play

#: Outputs and taps of the scheme that is played.
OUTPUTS, TAPS = 2, 3

#: Products that are left, and what the sums cost beside them, as a fraction of the contraction as it is.
FEWER = 0.8

#: A sum is worth making when at least so many products use it.
WORTH_SUMS = 32


@dataclass(frozen=True)
class _Filter:
    """A contraction that is a filter along one of its loops."""

    nest: Nest
    plan: Plan
    """Plan of the contraction as it is; its parts get the same rows and lanes."""
    outputs: int
    """Level of the loop over the rows of outputs."""
    tap: int
    """Level of the loop over the taps."""

    @property
    def others(self) -> tuple[int, ...]:
        """Loops outside of a pair of rows."""
        return tuple(l for l in range(len(self.nest.loops)) if l not in (self.plan.row, self.plan.lane))


def play_filters(
    root: Program, rules: Rules, target: Target, runs: Mapping[str, int] = MappingProxyType({})
) -> list[Play]:
    """The game by fewer products; none when the program is no such filter. Steps on its results follow as
    nests of their own. ``runs``: as for ``contraction_plans.plans``."""
    plays = _filtered(root, rules, target, runs)
    if plays or len(root.body) == 1 or not is_contraction(root, rules):
        return plays
    for at in range(len(root.body) - 1, 0, -1):
        filtered = _filtered(part(root, root.body[:at]), rules, target, runs)
        if filtered:
            return _followed(root, filtered[0], part(root, root.body[at:]), target)
    return []


def _followed(root: Program, first: Play, rest: Program, target: Target) -> list[Play]:
    """The game of the first nests and that of the others, on the whole program."""
    play = Play(root, first.rules)
    try:
        for played in (first, play_rows(rest, first.rules, target)[0]):
            replay(play, played.trace)
    except MoveError:
        return []
    return [play]


def _filtered(root: Program, rules: Rules, target: Target, runs: Mapping[str, int]) -> list[Play]:
    whole = gathered(root, rules)
    found = _find(whole[0].program, whole[1], target, runs) if whole else None
    if whole is None or found is None:
        return []
    try:
        game = _Game(whole[0], found, target)
        game.play()
        game.map()
    except MoveError:  # for example, the target lacks a location
        return []
    return [game.moves]


def _find(program: Program, nest: Nest, target: Target, runs: Mapping[str, int]) -> _Filter | None:
    """The filter in a contraction: two loops whose sum selects the row of the data, and which the plan uses
    neither for rows nor for lanes."""
    if len(nest.products) != 1 or [type(node) for node in nest.body] != [Statement, Scope]:
        return None
    product, depth, total = nest.products[0], len(nest.loops), nest.body[1]
    assert isinstance(total, Scope)
    reductions = total.leaves[0].sizes
    found = every_plan(program, nest, target, runs, laid_out=True)
    for plan in [plan for plan in found if FEWER * plan.cost <= found[0].cost]:
        shared = min(nest.loops[plan.lane].size, product.steps // TAPS)
        for data, taps in ((product.one, product.other), (product.other, product.one)):
            if shared < WORTH_SUMS or plan.lane not in taps.levels or plan.row not in data.levels:
                continue
            for outputs, tap in _sums(data, depth):
                size = nest.loops[outputs].size
                free = outputs + 1 < depth and outputs not in (*taps.levels, plan.row, plan.lane)
                if free and reductions[tap - depth] == TAPS and size % OUTPUTS == 0 and size > OUTPUTS:
                    return _Filter(nest, plan, outputs, tap)
    return None


def _sums(data: Access, depth: int) -> Iterator[tuple[int, int]]:
    """Levels of a loop of the nest and of one of the reduction that the data uses as their sum, rows only."""
    for subscript in data.subscripts[:-1]:
        ones = [level for level, times in subscript.terms if times == 1]
        yield from ((s, k) for s in ones for k in ones if s < depth <= k)


class _Game:
    """The moves, in their order."""

    def __init__(self, start: Play, found: _Filter, target: Target) -> None:
        self.moves, self.found, self.target = start, found, target
        self.array = found.nest.products[0].target.array
        """The array that is computed."""

    def play(self) -> None:
        """Turn the nest into sums, four contractions, and rows of outputs."""
        play, found = self.moves, self.found
        whole = found.nest.loops[0].id
        top = separate(play, found.nest.body[1].id, whole)
        loops = chain(play, top)
        depth = len(found.nest.loops)
        _, pair = split(play, loops[found.outputs], OUTPUTS)
        move_inward(play, pair, depth - 1 - found.outputs)
        [self.sums] = play.must("minimal_filter", pair, taps=loops[found.tap]).buffers
        self._name_sums(loops[0])
        # The loop over the taps, which may be any of the reduction's loops, is gone.
        self._separate(loops[0], next(loop for loop in loops[depth:] if loop != loops[found.tap]))
        self._lay_out()
        for start in self._starts:
            self._contract(play.around(start.id)[0].id)
        self._zero(whole)
        self._order()
        fuse(play, len(found.others) - 1)
        for output in self._outputs:
            self._write(output.id)

    def map(self) -> None:
        """Vectors for the sums, whose loops are longer than one; everything else as for a contraction."""
        contract(self.moves)
        lanes = self.target.capabilities.lanes.get(self.found.nest.dtype, 1)
        for scope in self.moves.innermost():
            if scope.size > lanes and scope.size % lanes:
                # Full vectors and one short one, where equal ones would all be short.
                self.moves.may("split_range", scope.id, at=scope.size // lanes * lanes)
        for scope in self.moves.innermost():
            if scope.size > lanes:
                vectorise(self.moves, scope.id)
        map_to_hardware(self.moves, self.target, Windows())

    # -- the statements that the filter became -------------------------------------------------

    def _statements(self, role: str) -> list[Statement]:
        def of(statement: Statement) -> str:
            if statement.target.array != self.sums:
                # Any other statement that reads the sums copies them into accumulators.
                made_of_sums = any(r.array == self.sums for r in statement.reads)
                return "output" if made_of_sums and statement.target.array == self.array else ""
            return "product" if statement.accumulate else "start"

        return [statement for statement in self.moves.statements() if of(statement) == role]

    @property
    def _starts(self) -> list[Statement]:
        return self._statements("start")

    @property
    def _products(self) -> list[Statement]:
        return self._statements("product")

    @property
    def _outputs(self) -> list[Statement]:
        return self._statements("output")

    # -- sums ----------------------------------------------------------------------------------

    def _name_sums(self, outermost: str) -> None:
        """Give every sum of data and of taps a buffer, made before the whole nest, with as few elements as
        the sum has places."""
        for product in self._products:
            while factors := [
                k
                for k, term in enumerate(self._statement(product.id).value.terms)
                if k and term in _factors(self._statement(product.id))
            ]:
                place, term = product.id, factors[0]
                if not self.moves.may("stage_sliding", place, before=outermost, term=term):
                    self.moves.must("stage_expression", place, before=outermost, term=term)

    def _statement(self, identifier: str) -> Statement:
        node = self.moves.node(identifier)
        assert isinstance(node, Statement)
        return node

    def _separate(self, outermost: str, reduction: str) -> None:
        """Make a separate nest for each sum, with its start, and for each output."""
        play, products = self.moves, [p.id for p in self._products]
        starts, outputs = [s.id for s in self._starts], [o.id for o in self._outputs]
        for product in reversed(products[1:]):
            separate(play, product, reduction)
        for n in range(1, len(starts)):
            for start in reversed(starts[n:]):
                play.must("reorder_statements", start)
        for piece in reversed([*starts[1:], *outputs]):
            separate(play, piece, outermost)

    def _lay_out(self) -> None:
        """Lay out buffers so that lanes are neighbours in the results and in the sums of taps, and rows in
        the sums of data.

        Single taps are copied, to have the same layout as the sums.
        """
        play, plan = self.moves, self.found.plan
        for identifier in [p.id for p in self._products]:
            top = play.around(identifier)[0].id
            for read in self._statement(identifier).reads:
                if read.array in play.program.inputs and plan.lane in read.levels:
                    play.must("stage_read", top, array=read.array)
        self._bring_last(self._products[0].target, plan.lane)
        for product in self._products:
            for read in product.reads:
                self._bring_last(read, plan.lane if plan.lane in read.levels else plan.row)

    def _bring_last(self, access: Access, level: int) -> None:
        """Make the dimension of ``access`` that uses ``level`` the last one, and fill the buffer in that
        order."""
        play, buffer = self.moves, self.moves.program.buffer_of[access.array]
        at = next(k for k, s in enumerate(access.subscripts) if level in s.levels)
        for dim in range(at, len(access.subscripts) - 1):
            play.must("reorder_dims", buffer.name, dim=dim)
        makers = [s for s in play.statements() if s.target.array == access.array and not s.accumulate]
        if access.array != self.sums:
            [maker] = makers
            nest = [scope.id for scope in play.around(maker.id)]
            arrange(play, [nest[min(s.levels)] for s in maker.target.subscripts])

    # -- contractions and outputs --------------------------------------------------------------

    def _contract(self, top: str) -> None:
        play, wanted = self.moves, self.found.plan
        nest = find_nest(play.node(top))
        planned = every_plan(play.program, nest, self.target, laid_out=True) if nest else []
        same = [plan for plan in planned if (plan.row, plan.lane) == (wanted.row, wanted.lane)]
        if nest is None or not same:
            raise MoveError("PD-T001", f"no contraction stands at {top}")
        play_contraction(play, nest, same[0], self.target)

    def _zero(self, whole: str) -> None:
        """Start the outputs row by row, each in a nest like that of its sums."""
        play, found = self.moves, self.found
        rows = split(play, chain(play, whole)[found.outputs], OUTPUTS)
        parts = cut(play, rows[1], [1] * OUTPUTS)
        for piece in reversed(parts[1:]):
            separate(play, piece, whole)
        zeros = [s for s in play.statements() if s.target.array == self.array and not s.accumulate]
        for statement in (*zeros, *self._outputs):
            nest = [scope.id for scope in play.around(statement.id)]
            if not statement.accumulate:
                play.collapse(nest[found.outputs + 1])
                nest = [scope.id for scope in play.around(statement.id)]
            play_order = (*found.others, found.plan.row, found.plan.lane)
            arrange(play, [nest[level] for level in play_order])

    def _order(self) -> None:
        """Move copies of taps to the front, and each start of outputs right before its sums."""
        play = self.moves
        nests = play.program.body
        data = next(n.id for n in nests if n.leaves[0].statement.reads and not self._is_of_taps(n))
        for node in nests:
            if self._is_of_taps(node):
                self._move(node.id, data)
        zeros = [s for s in play.statements() if s.target.array == self.array and not s.accumulate]
        for zero, output in zip(zeros, self._outputs, strict=True):
            top, place = (play.around(s.id)[0].id for s in (zero, output))
            while neighbour(play, top, 1) != place:
                play.must("reorder_statements", top)

    def _is_of_taps(self, node: Node) -> bool:
        """True if a root nest makes or copies sums of taps."""
        product = self.found.nest.products[0]
        taps = product.other if self.found.outputs in product.one.levels else product.one
        return {read.array for leaf in node.leaves for read in leaf.statement.reads} == {taps.array}

    def _move(self, node: str, before: str) -> None:
        """Move a root nest in front of another that stands before it."""
        play = self.moves
        while (order := [n.id for n in play.program.body]).index(node) > order.index(before):
            play.must("reorder_statements", order[order.index(node) - 1])

    def _write(self, output: str) -> None:
        """Make a row of outputs in lanes, and write it where its elements are neighbours."""
        play, plan = self.moves, self.found.plan
        row = play.around(output)[-2].id
        before = neighbour(play, row, -1)
        play.must("join_scopes", before)
        row = play.around(output)[-2].id
        if plan.scattered:
            copy = chain(play, play.stage("stage_write", row, self.array).copy)
            arrange(play, [copy[1], copy[0]])


def _factors(product: Statement) -> Sequence[object]:
    """The factors of a product that are no single elements."""
    value = product.value
    assert isinstance(value, Operation)
    return [factor for factor in value.arguments if not isinstance(factor, Read)]
