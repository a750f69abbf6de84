"""Products of other forms, such as convolutions: a patch of the output for each thread.

A thread computes outputs that read the same elements of one operand, in a few rows whose inputs overlap. The
other operand is the same for all threads of a block: they copy it into shared memory first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from perfdojo_sdk.codegen.gpu.mapping import BLOCK, GRID, Machine
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.experts.gpu.slices import share_copy
from perfdojo_sdk.experts.gpu.steps import (
    WIDE,
    arrange,
    chain,
    factors,
    only_statement,
    split,
)
from perfdojo_sdk.experts.gpu.tiles import ENOUGH_THREADS, factors_of
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.search.play import Play

#: Outputs that read the same, and rows of them, that one thread adds up.
OWN_OUTPUTS, OWN_ROWS = 16, 4
#: Threads of a block.
MOST_THREADS = 512
#: Most multiplications of one thread that are unrolled.
WRITTEN_OUT = 1024


@dataclass(frozen=True)
class Patch:
    """A patch of a thread: outputs that read the same, in so many rows; and threads of a block one below the
    other."""

    outputs: int
    rows: int
    threads: int
    shared: bool
    """True if what the block shares fits into its shared memory."""


def play_patches(play: Play, place: str, machine: Machine) -> None:
    """Play the nest at ``place``; nothing happens where it is no such product."""
    loops = chain(play, place)
    body = play.scope(loops[-1]).body
    if len(loops) < 3 or len(body) != 2 or not isinstance(body[1], Scope) or isinstance(body[0], Scope):
        return
    total = body[1].id
    inner = chain(play, total)
    statement = only_statement(play, inner[-1])
    forms = factors_of(statement) if statement is not None and statement.accumulate == "add" else None
    if statement is None or forms is None:
        return
    column = len(loops) - 1
    left, right = forms if column in forms[0].levels else forms[::-1]
    again = [k for k in range(len(loops)) if k not in left.levels]
    if column not in left.levels or column in right.levels or len(again) != 1 or again[0] == column:
        return
    sizes = [play.scope(loop).size for loop in loops]
    if sizes[column] > machine.max_threads:
        raise MoveError("PD-T006", "a row of outputs is longer than a block")
    beside = column - 1 if column - 1 != again[0] else None
    patch = _best_patch(sizes, again[0], beside, [play.scope(loop).size for loop in inner], machine)
    outputs = split(play, loops[again[0]], patch.outputs)
    grid = [loop for k, loop in enumerate(loops[:-1]) if k not in (again[0], beside)] + outputs[:-1]
    threads, own = [loops[column]], outputs[-1:]
    if beside is not None:
        rows = split(play, loops[beside], patch.rows)
        blocks = split(play, rows[0], patch.threads)
        if patch.threads > 1:
            threads.insert(0, blocks.pop())
        grid += blocks
        own = [*rows[1:], *own]
    arrange(play, [*grid, *threads, *own])
    top = threads[0]
    end = play.stage("stage_write", top, statement.target.array).copy
    compute = separate(play, total, top)
    nest = chain(play, compute)
    mine, steps = nest[len(threads) :][: len(own)], nest[len(threads) + len(own) :]
    arrange(play, [*nest[: len(threads)], *steps, *mine])
    if patch.shared:
        _share(play, compute, right.array, patch, prod(play.scope(loop).size for loop in threads))
    _write_out(play, steps, patch.outputs * patch.rows)
    for each in (top, compute, end):
        for loop in chain(play, each)[: len(threads)]:
            play.may("annotate_scope", loop, suffix=BLOCK)
    for loop in grid:
        play.may("annotate_scope", loop, suffix=GRID)


def _best_patch(
    sizes: Sequence[int], again: int, beside: int | None, steps: Sequence[int], machine: Machine
) -> Patch:
    """The patch that keeps most multipliers busy. ``sizes``: of the outputs' loops; ``steps``: of the
    sum's."""
    height, width = (1, *steps[1:])[-2:] if len(steps) > 1 else (1, 1)

    def worth(patch: Patch) -> float:
        threads = sizes[-1] * patch.threads
        blocks = prod(sizes) // (threads * patch.outputs * patch.rows)
        products = patch.outputs * patch.rows * height * width
        # Loads for one outer step: rows that overlap, and shared data, four elements at a time.
        loads: float = (patch.rows + height - 1) * width
        loads += patch.outputs * height * width / (WIDE if patch.shared else 1)
        # Rarely more than two blocks fit on a multiprocessor: the sums take many registers.
        together = min(-(-blocks // machine.multiprocessors), 2) * threads
        lanes = threads / (-(-threads // machine.warp) * machine.warp)
        busy = lanes * min(1.0, together / ENOUGH_THREADS) * machine.share_at_work(blocks)
        return busy * products / (products + 2 * loads)

    def patches() -> Iterator[Patch]:
        rows = sizes[beside] if beside is not None else 1
        for outputs in factors(sizes[again], OWN_OUTPUTS):
            fits = 4 * _padded(outputs) * prod(steps) <= machine.shared_bytes
            for own in factors(rows, OWN_ROWS):
                for threads in factors(rows // own, max(1, MOST_THREADS // sizes[-1])):
                    yield Patch(outputs, own, threads, fits)

    return max(patches(), key=worth)


def _padded(outputs: int) -> int:
    """Cells from one step to the next: whole fours, at odd multiples of four for most sizes."""
    return -(-outputs // WIDE) * WIDE + WIDE


def _share(play: Play, compute: str, array: str, patch: Patch, threads: int) -> None:
    """Copy all that a block reads of ``array`` into shared memory, with the outputs side by side."""
    staged = play.stage("stage_read", compute, array)
    name = staged.buffer
    share_copy(play, play.program.paths[staged.copy], threads)
    # Neighbouring threads copy neighbouring steps: these go to different banks.
    last = len(play.program.buffer_of[name].shape) - 1
    play.may("pad_dim", name, dim=last, size=_padded(patch.outputs))


def _write_out(play: Play, steps: Sequence[str], own: int) -> None:
    """Unroll the innermost loops, so that elements which rows and columns share are loaded once."""
    for loop in reversed(steps):
        own *= play.scope(loop).size
        if own > WRITTEN_OUT:
            return
        play.may("annotate_scope", loop, suffix="u")
