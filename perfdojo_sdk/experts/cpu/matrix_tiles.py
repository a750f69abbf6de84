"""Products of matrices by an instruction that multiplies small matrices: rows by columns of sums at once.

Both operands are packed as the instruction takes them: the groups of some rows, then those of the next. A
register tile is some such matrices high and wide. Only products of whole tiles are planned, with one loop
over rows, one over columns and one over the reduction, inside of any loops that both operands share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfdojo_sdk.core.dialect import Group
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.groups import factors_in
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.experts.cpu.contraction_nests import Nest
from perfdojo_sdk.experts.cpu.loops import arrange, chain, move_outward
from perfdojo_sdk.experts.cpu.steps import groups_of, share_out, write_out
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, vectorise
from perfdojo_sdk.search.play import Play

#: Least number of tiles along each side: each operand is packed once for so many uses.
WORTH_PACKING = 2

#: Loops of a register tile: small matrices along both sides, and the rows and columns of each.
TILE = 4


@dataclass(frozen=True)
class Plan:
    """The role of each loop, by level of the nest, and the small matrices in a register tile."""

    group: Group
    rows: int
    columns: int
    arrays: tuple[str, str]
    """The operand of the rows, and that of the columns."""
    high: int
    wide: int


def matrix_plays(start: Play, nest: Nest, target: Target, worth_threads: float) -> Iterator[Play]:
    """The game for the largest group that an instruction for matrices adds up, if one fits.

    ``worth_threads``: statements that take longer than starting the threads.
    """
    for group in sorted(groups_of(start, tiles=True), key=lambda group: -group.size):
        plan = plan_matrices(nest, group, target)
        if plan is None:
            continue
        play = Play(start.trace.root, start.rules)
        play.trace = start.trace
        try:
            _play(play, nest, plan, worth_threads)
        except MoveError:  # for example, both operands are one array, read in several forms
            continue
        yield play
        return


def plan_matrices(nest: Nest, group: Group, target: Target) -> Plan | None:
    """The product in whole tiles of small matrices; None if it has none, or too few to pack operands for."""
    (product, *others), tile = nest.products, group.tile
    factors = factors_in(product.statement, group)
    if others or factors is None or tile is None:
        return None
    if len(product.sizes) != 1 or product.sizes[0] % group.size:
        return None
    rows, columns = _own_loop(factors, nest), _own_loop(factors[::-1], nest)
    if rows is None or columns is None or not {rows, columns} <= set(product.target.levels):
        return None
    sizes = nest.sizes[rows], nest.sizes[columns]
    if sizes[0] % tile[0] or sizes[1] % tile[1]:
        return None
    counts = sizes[0] // tile[0], sizes[1] // tile[1]
    sides = _sides(*counts, target.capabilities.vector_registers)
    return Plan(group, rows, columns, (factors[0].array, factors[1].array), *sides) if sides else None


def _own_loop(factors: tuple[Access, Access], nest: Nest) -> int | None:
    """The one loop of the nest along which the first factor moves and the second does not, if both move along
    all others but one."""
    levels = range(len(nest.loops))
    own = [l for l in levels if l in factors[0].levels and l not in factors[1].levels]
    idle = [l for l in levels if l not in factors[0].levels and l not in factors[1].levels]
    return own[0] if len(own) == 1 and not idle else None


def _sides(rows: int, columns: int, registers: int) -> tuple[int, int] | None:
    """The tile that loads least for its sums, of those that fit both sides and the registers."""
    fitting = [
        (high, wide)
        for high in range(1, min(rows // WORTH_PACKING, registers) + 1)
        for wide in range(1, min(columns // WORTH_PACKING, registers) + 1)
        if high * wide + high + wide < registers and rows % high == columns % wide == 0
    ]
    return max(fitting, key=lambda tile: (tile[0] * tile[1] / (tile[0] + tile[1]), tile[0]), default=None)


# -- playing -----------------------------------------------------------------------------------------


def _play(play: Play, nest: Nest, plan: Plan, worth_threads: float) -> None:
    assert plan.group.tile
    shared = [l for l in range(len(nest.loops)) if l not in (plan.rows, plan.columns)]
    arrange(play, [nest.loops[l].id for l in (*shared, plan.columns, plan.rows)])
    columns = _in_three(play, nest.loops[plan.columns].id, plan.wide, plan.group.tile[1])
    rows = _in_three(play, nest.loops[plan.rows].id, plan.high, plan.group.tile[0])
    panels, blocks, tile = columns[0], rows[0], [rows[1], columns[1], rows[2], columns[2]]
    arrange(play, [panels, blocks, *tile])
    lanes = _fill_registers(play, tile[0], plan.group)
    for array in plan.arrays:  # before all panels: copies of weights can then be made once for all calls
        for copy in play.stage("stage_read", panels, array).nests:
            vectorise(play, chain(play, copy.top)[-1])
    contract(play)
    _use_instruction(play, lanes, plan.group)
    write_out(play, play.rules.dialect.max_unroll)
    for scope in [node for node in play.program.body if isinstance(node, Scope)]:
        share_out(play, scope.id, worth_threads)


def _in_three(play: Play, loop: str, count: int, size: int) -> list[str]:
    """Blocks, small matrices in a block, and rows or columns of a matrix."""
    blocks, inner = play.split(loop, count * size)
    return [blocks, *play.split(inner, size)]


def _fill_registers(play: Play, tile: str, group: Group) -> list[str]:
    """Let the sums of a tile accumulate in registers, in steps of a group; the loops over the rows and the
    columns of a small matrix, and over a group."""
    (total,) = (node for node in play.scope(chain(play, tile)[TILE - 1]).body if isinstance(node, Scope))
    play.stage("stage_write", tile, total.leaves[0].statement.target.array)
    sums = tile
    for node in reversed(play.scope(chain(play, tile)[TILE - 1]).body[1:]):
        top = separate(play, node.id, tile)
        sums = top if node.id == total.id else sums
    nest = chain(play, sums)
    inner = nest[TILE]
    if play.scope(inner).size > group.size:
        steps, inner = play.split(inner, group.size)
        move_outward(play, [*nest[:TILE], steps])
    return [*nest[TILE - 2 : TILE], inner]


def _use_instruction(play: Play, lanes: list[str], group: Group) -> None:
    """Let the instruction add up a group in each row and column."""
    suffixes = play.rules.dialect.suffixes.values()
    adds = next(s.name for s in suffixes if group in s.groups)
    counts = next(s.name for s in suffixes if s.around_groups)
    for scope, suffix in zip(reversed(lanes), (adds, counts, counts), strict=True):
        play.must("annotate_scope", scope, suffix=suffix)
