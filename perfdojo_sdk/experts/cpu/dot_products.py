"""Sums of products along rows of a large matrix, such as a product of a matrix and a vector.

Each element of the matrix is used once, so memory decides. One row after the other is one stream of data, and
a core keeps more of them under way: several rows go in step, each with a vector of partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.made import Staged
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.experts.cpu.analysis import lanes_of, seconds_to_move
from perfdojo_sdk.experts.cpu.loops import cut_off_rest, move_inward
from perfdojo_sdk.experts.cpu.row_kernels import THREADS_COST, cut_row, widen
from perfdojo_sdk.experts.cpu.steps import SHARES, data_bytes, near_caches, share_out, split, use_lanes
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract
from perfdojo_sdk.search.play import Play

#: Rows that go in step: streams of data that a core reads side by side.
ROWS = 8


@dataclass(frozen=True)
class Dots:
    """A loop over rows of a large matrix, with a sum of products along each."""

    rows: str
    total: str
    """The loop of the sum."""
    width: int
    """Lanes of a vector."""
    bytes: int
    """Bytes of the matrix."""


def find_dots(program: Program, root: Scope, target: Target) -> Dots | None:
    """The sums along rows of a large matrix that a nest at the root is made of, if it is."""
    loops, node = [root], root
    while len(node.body) == 1 and isinstance(node.body[0], Scope):
        node = node.body[0]
        loops.append(node)
    sums = [child for child in node.body if isinstance(child, Scope)]
    if len(sums) != 1 or len(node.body) < 2 or any(leaf.statement.guard for leaf in root.leaves):
        return None
    (total,), level = sums, len(loops)
    (statement, *others) = total.body
    if others or not isinstance(statement, Statement) or not statement.accumulate or total.suffix:
        return None
    width = lanes_of(statement, target.capabilities.lanes)
    along = [lane_stride(program.buffer_of[r.array], r.subscripts, level) for r in statement.reads]
    if level in statement.target.levels or any(step not in (0, 1) for step in along):
        return None
    if not 2 <= width <= total.size or node.size < ROWS or loops[-1].suffix:
        return None
    matrices = [r for r in statement.reads if {level - 1, level} <= {*r.levels}]
    shared = [r for r in statement.reads if level - 1 not in r.levels]
    size = max([program.buffer_of[r.array].cells * BYTES[statement.dtype] for r in matrices], default=0)
    if len(matrices) != 1 or not shared or size <= near_caches(target)[1]:
        return None
    return Dots(node.id, total.id, width, size)


def play_dots(root: Program, rules: Rules, target: Target) -> tuple[list[Play], list[Decision]]:
    """One game for a program with such sums; none where there are none, or a move is not legal."""
    play, decisions = Play(root, rules), []
    _join_units(play)
    _join_starts(play)
    start = play.program
    for node in start.body:
        found = find_dots(start, node, target) if isinstance(node, Scope) else None
        try:
            if found is not None:
                _in_step(play, found)
            elif isinstance(node, Scope):
                _in_vectors(play, node, target)
        except MoveError as error:
            return [], [Decision("rows in step", node.id, "left to other rules", error.what)]
        if found is None:
            continue
        why = "each row is a stream of its own from memory, and one stream leaves a core waiting"
        numbers = {"bytes": found.bytes, "second cache": near_caches(target)[1], "lanes": found.width}
        decisions.append(Decision("rows in step", node.id, f"{ROWS} rows go in step", why, numbers))
    if not decisions:
        return [], []
    for place in [node.id for node in play.program.body if isinstance(node, Scope)]:
        _most_outermost(play, place)
    contract(play)
    use_lanes(play)
    for scope in reversed(play.scopes()):
        few = scope.size <= ROWS and len(scope.body) == 1
        if play.around(scope.id) and few and not scope.suffix:
            play.annotate(scope.id, play.written_out)
    data = data_bytes(root)
    least = THREADS_COST * data / max(seconds_to_move(data, target), 1e-12) / BYTES["f32"]
    for place in [node.id for node in play.program.body if isinstance(node, Scope)]:
        share_out(play, place, least)
    return [play], decisions


def _join_units(play: Play) -> None:
    """Make one loop of a loop and the only one in it where one of them has a single iteration, such as the
    column of a result, so that rows stand right around their sums."""
    for place in [scope.id for scope in play.scopes()]:
        while place in play.program.paths:
            around = play.scope(place)
            inner = around.body[0]
            if len(around.body) > 1 or not isinstance(inner, Scope) or 1 not in (around.size, inner.size):
                break
            if play.may("collapse_scopes", place) is None:
                break


def _join_starts(play: Play) -> None:
    """Join a nest that starts sums with the nest behind it that adds to them, loop by loop."""
    loops = [node for node in play.program.body if isinstance(node, Scope)]
    for first, second in pairwise(loops):
        place = first.id
        alike = first.written_arrays == second.written_arrays and place in play.program.paths
        while alike and play.may("join_scopes", place):
            inside = play.scope(place).body
            if len(inside) != 2 or not all(isinstance(node, Scope) for node in inside):
                break
            place = inside[0].id


def _in_step(play: Play, found: Dots) -> None:
    """Split the sums into lanes, and the rows into groups whose sums go side by side. What is left of a sum
    behind its vectors is added to each result."""
    cut_off_rest(play, found.total, found.width)
    for part in cut_off_rest(play, found.rows, ROWS):
        rows = split(play, part, min(ROWS, play.scope(part).size))[-1]
        total = next(node.id for node in play.scope(rows).body if isinstance(node, Scope))
        outer, lanes = play.split(total, found.width)
        made = play.must("split_reduction", outer, lane=lanes)
        assert isinstance(made, Staged)
        inside = play.scope(rows).body
        sums = [node.id for node in inside if isinstance(node, Scope)]
        for node in reversed(inside[1:]):
            top = separate(play, node.id, rows)
            if node.id == sums[1]:  # between the start and the end of the partial results
                move_inward(play, top, 1)
        # Its dimensions are those of the loops, rows before lanes.
        rows_of_it = len(play.program.buffer_of[made.buffer].shape) - 2
        play.may("split_dim", made.buffer, dim=rows_of_it, size=ROWS)


def _most_outermost(play: Play, place: str) -> None:
    """Move the loop over groups of rows, if it has iterations enough for threads, around one that has not,
    such as the gates of a recurrence: threads start once for all of them."""
    outer = play.scope(place)
    if outer.size < SHARES and len(outer.body) == 1:
        (inner,) = outer.body
        if isinstance(inner, Scope) and inner.size >= SHARES and len(inner.body) > 1:
            play.may("swap_scopes", place)


def _in_vectors(play: Play, nest: Scope, target: Target) -> None:
    """Cut the innermost loops of a nest that starts or finishes the sums into vectors."""
    for loop in [
        scope.id for scope in play.innermost() if nest.id in (scope.id, *_ids(play.around(scope.id)))
    ]:
        for part in cut_row(play, loop, target.capabilities.lanes):
            widen(play, part, target.capabilities.lanes)


def _ids(scopes: Sequence[Scope]) -> list[str]:
    return [scope.id for scope in scopes]
