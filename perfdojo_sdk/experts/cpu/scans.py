"""Rows of which every running sum, product or extremum is wanted: blocks of a row in step.

Each step of a scan waits for the one before it. Blocks of a row start from nothing instead and do not wait
for each other; what came before a block is combined with its results afterwards, in vectors, while these are
in the first cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.dtypes import BYTES, FLOAT_DTYPES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import Kind, Rules
from perfdojo_sdk.experts.cpu.analysis import Work, lanes_of, work_of
from perfdojo_sdk.experts.cpu.loops import cut_off_rest
from perfdojo_sdk.experts.cpu.row_kernels import worth_threads
from perfdojo_sdk.experts.cpu.steps import near_caches, settle_buffers, share_out, split, use_lanes
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse
from perfdojo_sdk.search.play import Play

#: Blocks of a row that go in step: more than the cycles that a step of floats waits for the one before it.
IN_STEP = 8

#: Cycles from a float addition to the next one that needs its result, on current processors. Integers take
#: one, so that their steps wait for memory only.
LATENCY = 4


@dataclass(frozen=True)
class ScanPlan:
    """The loop of a scan, and the blocks that it is cut into."""

    scope: str
    block: int
    """Iterations of a block."""
    lanes: int
    decision: Decision


def play_scans(root: Program, rules: Rules, target: Target) -> tuple[list[Play], list[Decision]]:
    """The game in which blocks of rows go in step; none where a loop is no scan that gains from it."""
    play = Play(root, rules)
    if play.rules.most < Kind.REASSOCIATES:
        return [], []
    fuse(play, depth=0)
    plans = [plan_scan(play.program, scope, target) for scope in play.innermost()]
    found = [plan for plan in plans if plan]
    if not found or len(found) < len(plans):
        return [], []
    decisions = [plan.decision for plan in found]
    try:
        for plan in found:
            _play_blocks(play, plan)
    except MoveError as error:
        return [], [Decision("blocks of scans", found[0].scope, "left as it is", error.what)]
    contract(play)
    use_lanes(play)
    for node in [node for node in play.program.body if isinstance(node, Scope)]:
        if any(worth_threads(root, target)):
            share_out(play, node.id, 0)
    settle_buffers(play)
    return [play], decisions


def plan_scan(program: Program, scope: Scope, target: Target) -> ScanPlan | None:
    """The blocks of a scan; None where the loop is none, or where blocks do not pay."""
    work = _running(program, scope)
    if work is None:
        return None
    dtype, size = work.statement.dtype, work.sizes[-1]
    lanes = lanes_of(work.statement, target.capabilities.lanes)
    if dtype not in FLOAT_DTYPES or lanes < 2 or size < 2 * IN_STEP * lanes:
        return None
    most = near_caches(target)[0] // (2 * IN_STEP * BYTES[dtype])
    least = -(-size // (IN_STEP * most))
    # An odd number of vectors, so that the blocks begin in different sets of the cache, and little left over.
    fitting = [_odd(size // (groups * IN_STEP * lanes)) * lanes for groups in range(least, 2 * least + 1)]
    block = min(filter(None, fitting), key=lambda block: size % (IN_STEP * block))
    numbers = {
        "elements of a row": size,
        "in step": IN_STEP,
        "elements of a block": block,
        "cycles that a step waits": LATENCY,
    }
    why = "each step of a row waits for the one before it, and blocks do not wait for each other"
    choice = f"{IN_STEP} blocks of a row go in step; what came before them is combined in vectors"
    return ScanPlan(scope.id, block, lanes, Decision("blocks of scans", scope.id, choice, why, numbers))


def _odd(number: int) -> int:
    """The largest odd number that is not above ``number``; 0 if there is none."""
    return max(number - 1 + number % 2, 0)


def _running(program: Program, scope: Scope) -> Work | None:
    """The accumulation of a loop of two statements, the other of which reads the result so far."""
    works = [work_of(program, program.place_of[node.id]) for node in scope.body]
    if len(works) != 2 or any(work.statement.guard for work in works):
        return None
    for work, other in (works, works[::-1]):
        target, along = work.statement.target, len(work.sizes) - 1
        if work.statement.accumulate and along in work.reduced and not other.statement.accumulate:
            if [r for r in other.statement.reads if r.array == target.array] == [target]:
                return work
    return None


def _play_blocks(play: Play, plan: ScanPlan) -> None:
    """Cut the loop of a scan into groups of blocks; what is left over goes on from them."""
    row = cut_off_rest(play, plan.scope, IN_STEP * plan.block)[0]
    group = split(play, row, IN_STEP * plan.block)[-1]
    blocks, along = play.split(group, plan.block)
    body = [node for node in play.scope(along).body if isinstance(node, Statement)]
    [array] = {node.target.array for node in body if node.accumulate}
    reader = next(node.id for node in body if not node.accumulate)
    parts = play.stage("split_scan", along, array=array).buffer
    play.must("stage_running", reader, array=parts, before=reader)
    if play.scope(along).body[-1].id != reader:
        play.must("reorder_statements", reader)
    results = play.fission(reader)
    combined = play.fission(results)
    in_step = play.fission(along)
    play.must("swap_scopes", in_step)
    for few in (blocks, in_step, combined):
        play.annotate(few, play.written_out)
    split(play, results, plan.lanes)
