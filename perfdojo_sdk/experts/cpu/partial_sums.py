"""Partial results for threads: long sums into fewer results than there are threads.

Threads share loops over results. A mean of a whole array, or of a few long rows, has none for them: its sum
is cut into blocks, each block adds up into a partial result of its own, and threads share the blocks.
"""

from __future__ import annotations

from math import gcd, prod

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.core.tree import divisors
from perfdojo_sdk.experts.balance import longest
from perfdojo_sdk.experts.cpu.analysis import Kind, facts_of
from perfdojo_sdk.experts.cpu.loops import cut_off_rest, move_inward, move_outward
from perfdojo_sdk.experts.cpu.steps import SHARES
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Blocks for each thread, so that one that starts late leaves little to wait for.
BLOCKS = 4

#: Blocks hold a multiple of so many terms, of which vectors of any width and all of their chains come out.
WHOLE = 256

#: Seconds that a block takes at least: many times as long as handing it to a thread.
LEAST = 1e-5

#: Work of the busiest thread, over that with blocks, up to which one pass less over memory pays.
MORE_WORK = 1.25


def sums_for_threads(play: Play, target: Target) -> list[Decision]:
    """Cut long sums into blocks with partial results, where their results are too few to share out."""
    decisions = []
    for nest in facts_of(play.program, target) if target.threads > 1 else ():
        for work in nest.works:
            results = prod(size for level, size in enumerate(work.sizes) if level not in work.reduced)
            wanted = -(-BLOCKS * target.threads // results)
            blocks = min(wanted, int(nest.seconds / LEAST / results))
            few = work.kind is Kind.REDUCTION and results < max(SHARES, target.threads) and blocks > 1
            if not few or not work.walks_along(len(work.sizes) - 1):
                continue
            kept = play.trace
            try:
                loop = _cut(play, work.statement.id, blocks)
            except MoveError as error:
                play.trace = kept
                decisions.append(Decision("partial sums", nest.place, "left in order", error.what))
                continue
            numbers = {"results": results, "blocks": play.scope(loop).size, "threads": target.threads}
            why = "there are fewer results than threads want"
            choice = "each block has a partial result"
            decisions.append(Decision("partial sums", nest.place, choice, why, numbers))
    return decisions


def takes_one_pass(game: Trace, other: Trace, target: Target) -> bool:
    """True if a game without blocks for threads sums elements and squares of their differences in one pass
    (:mod:`row_statistics`), and leaves little more to the busiest thread than ``other``, which has blocks."""
    if not any(move.transformation == "rebase_squares" for move in game.moves):
        return False
    one, two = (_busiest(trace.program, target) for trace in (game, other))
    return one <= MORE_WORK * two


def _busiest(program: Program, target: Target) -> float:
    """Statements that the busiest thread runs."""
    return sum(longest(node, target.dialect, target.threads, 0) for node in program.body)


def _cut(play: Play, statement: str, blocks: int) -> str:
    """Cut the first loop of a sum that is long enough into about so many blocks, each with a partial result;
    the loop over blocks."""
    node = play.node(statement)
    assert isinstance(node, Statement)
    around = play.around(statement)
    level = len(around)
    while level and level - 1 not in node.target.levels and len(around[level - 1].body) == 1:
        level -= 1
    loops = around[level:]
    steps = [WHOLE // gcd(WHOLE, prod(loop.size for loop in loops[k + 1 :])) for k, _ in enumerate(loops)]
    position = next((k for k, loop in enumerate(loops) if loop.size >= blocks * steps[k]), 0)
    move_outward(play, [loop.id for loop in loops[: position + 1]])
    block = -(-loops[position].size // blocks)
    size = max(block // steps[position] * steps[position], 1)
    even = (d for d in divisors(loops[position].size) if d % steps[position] == 0 and d <= size <= 2 * d)
    size = max(even, default=size)  # a rest is work for one thread
    whole, *rest = cut_off_rest(play, loops[position].id, size)
    loop_over, terms = play.split(whole, size)
    for part in (terms, *rest):
        move_inward(play, part, position)
    play.split_reduction(loop_over, lane=loop_over)
    if not play.annotate(loop_over, play.threads):
        raise MoveError("PD-T001", f"threads cannot share {loop_over}")
    return loop_over
