"""Plans of a contraction: which loops become the rows and lanes of register tiles, by a model of the cost.

Nothing is played here. The cost counts multiply-adds of vectors, loads, cache lines that values of the rows
come from, and copies of what lies apart; ``contractions.py`` plays a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import gcd, prod
from types import MappingProxyType
from typing import TypeAlias

from perfdojo_sdk.core.dtypes import BYTES, FLOAT_DTYPES
from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.experts.cpu.contraction_forms import with_dense_operand, with_joined_loops
from perfdojo_sdk.experts.cpu.contraction_nests import Nest, Product, gathered
from perfdojo_sdk.experts.cpu.steps import near_caches
from perfdojo_sdk.experts.cpu.tiles import ADDITIONS, IN_FLIGHT, NEAR, Lines, Tiling, best_tiling
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Cost of moving one number to or from a strided place, in multiply-adds of vectors.
SCATTER = 2.0

#: Cost of vectors of groups that are not full where none is, in that of full ones: a masked load is an
#: instruction more. Beside full ones they count as often as a group has products.
SHORT_GROUPS = 1.25

#: A plan may be the fastest if its cost is at most this factor above the best.
NEARLY = 1.1

#: Runs of a program on the same elements of a constant: more than anybody counts.
ALL_CALLS = 10**9

#: Cost of a byte of a panel that is packed or read anew, in bytes of the rows' operand.
AGAIN = 3

#: Loops are joined if that lowers the cost of the best plan below this fraction.
JOINED = 0.97

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


def best_plan(
    root: Program, rules: Rules, target: Target, runs: Mapping[str, int] = MappingProxyType({})
) -> Plan | None:
    """The plan of the contraction as it is, without groups; None where no tiles pay. ``runs``: as for
    :func:`plans`."""
    found = gathered(root, rules)
    return next(iter(cheaper_form(*found, target, runs)[2]), None) if found else None


def cheaper_form(
    start: Play, nest: Nest, target: Target, runs: Mapping[str, int]
) -> tuple[Play, Nest, list[Plan]]:
    """The contraction and its plans; with joined loops, or a dense copy of an operand, if that makes it
    cheaper."""
    best = start, nest, plans(start.program, nest, target, runs)
    forms = [(joined, 0) for joined in [with_joined_loops(start, nest)] if joined]
    if dense := with_dense_operand(start, nest):
        play, found, copied = dense
        forms.append((with_joined_loops(play, found) or (play, found), copied))
    for form, copied in forms:
        others = plans(form[0].program, form[1], target, runs)
        if others and (not best[2] or others[0].cost + SCATTER * copied < JOINED * best[2][0].cost):
            best = *form, others
    return best


def plans(
    program: Program, nest: Nest, target: Target, runs: Mapping[str, int] = MappingProxyType({})
) -> list[Plan]:
    """The best way to lay rows and lanes over the loops, and the best with other lanes if it is near.

    None where each sum alone, with lanes along the reduction, costs less. ``runs``: array -> how often the
    program runs on the same elements of it, for which one packing does.
    """
    found = every_plan(program, nest, target, runs)
    best_of_lane = {plan.lane: plan for plan in reversed(found)}
    most = min([_cost_of_dots(program, nest, target), *(NEARLY * plan.cost for plan in found[:1])])
    return [plan for plan in found if plan is best_of_lane[plan.lane] and plan.cost <= most][:2]


def every_plan(
    program: Program,
    nest: Nest,
    target: Target,
    runs: Mapping[str, int] = MappingProxyType({}),
    laid_out: bool = False,
) -> list[Plan]:
    """A plan for each way to choose rows and lanes, by cost. ``runs``: as for :func:`plans`; ``laid_out``:
    values of the rows will be neighbours, wherever they are now."""
    ways = permutations(range(len(nest.loops)), 2)
    found = [p for row, lane in ways if (p := _plan(program, nest, row, lane, target, runs, laid_out))]
    return sorted(found, key=lambda plan: (plan.cost, -plan.row))


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
    panels = [program.buffer_of[b.array] for b in columns]
    rows = [row_cells(panel, nest) * BYTES[panel.dtype] for panel in panels]
    may_stay = not must_pack and all(gcd(row, PAGE) * PLACES <= PAGE for row in rows)
    once = min(runs.get(b.array, 1) for b in columns)
    # What is laid out for the iterations of a loop is read in one form; within one run, it may be in several.
    alike, apart = once not in (1, ALL_CALLS), adds_apart(nest)
    registers = (figures.vector_registers or 8) - apart
    in_flight = ADDITIONS if apart and nest.dtype not in FLOAT_DTYPES else IN_FLIGHT
    far = NEAR if laid_out else _lines(program, nest, [a for a, _ in pairs], row)
    vector = steps * lanes * max(BYTES[panel.dtype] for panel in panels)
    near = near_caches(target)[0] // 2 / vector
    short = size if sizes[lane] > lanes else SHORT_GROUPS if nest.group else 1.0
    tiling = best_tiling(
        sizes[row], sizes[lane], lanes, registers, len(columns), alike, far, short, near, in_flight
    )
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


def adds_apart(nest: Nest) -> bool:
    """True if a product comes in a register of its own, and another instruction adds it to the sum: those of
    integers, unless an instruction for groups does both, and values that are no products."""
    if nest.group:
        return nest.group.adds_apart
    return nest.dtype not in FLOAT_DTYPES or not all(product.multiplies for product in nest.products)


def row_cells(buffer: Buffer, nest: Nest) -> int:
    """Neighbouring cells in a row of operand b: those of its last dimension; where that is a group, of the
    groups of a row."""
    last = buffer.shape[-1]
    grouped = nest.group and last == nest.group.size and len(buffer.shape) > 1
    return last * buffer.shape[-2] if grouped else last


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
        in_line = int(CACHE_LINE / buffer.element_bytes)
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
        last = product.sizes[-1]

        def strides(level: int, product: Product = product) -> set[int | None]:
            operands = (product.one, product.other)
            return {lane_stride(program.buffer_of[a.array], a.subscripts, level) for a in operands}

        if nest.group and len(product.sizes) > 1 and strides(level - 1) <= {0, last}:
            last *= product.sizes[-2]  # groups that lie one after the other
        width = min(lanes, last) if strides(level) <= {0, 1} else 1
        cost += 2 / max(width, 2) * product.steps * prod(nest.sizes)
    return cost
