"""Slices of both operands of a product in shared memory, one after the other or two in turn.

In turn, the next slice is copied while the present one is multiplied: the loop over slices is cut into pairs,
each slice of a pair gets a buffer of its own, and the loop is rotated so that the copy of a slice stands in
front of the products of the one before it. Asynchronous copies then have the time of these products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from perfdojo_sdk.codegen.gpu.async_copies import WIDTHS
from perfdojo_sdk.codegen.gpu.mapping import BLOCK
from perfdojo_sdk.codegen.gpu.placement import ASYNC
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.made import Copied
from perfdojo_sdk.core.program import Path, Scope
from perfdojo_sdk.experts.gpu.steps import WIDE, arrange, chain, factors, only_statement, split
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.search.play import Play

#: Orders the dimensions of a slice: the game, the nest that reads it, its name.
LayOut: TypeAlias = Callable[[Play, str, str], None]


class Sliced(Protocol):
    """The parts of a product that slices need."""

    @property
    def total(self) -> str:
        """The scope of the sum."""

    @property
    def left(self) -> str: ...

    @property
    def right(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def after(self) -> str:
        """The statement that uses the sums where they are complete; empty without one."""


@dataclass(frozen=True)
class Slicing:
    """The way in which the sum is cut."""

    depth: int
    """Steps of a slice."""
    runners: int
    """Threads that copy the slices."""
    inwards: int
    """The number of scopes that the steps of a slice go inwards."""
    at_once: int = 0
    """Steps that go there; the loop over as many goes inside the scopes of threads. 0: all of them."""
    ahead: bool = False
    """True if slices come in pairs, so that :func:`copy_ahead` can copy one while the other is used."""


@dataclass(frozen=True)
class Sums:
    """The nests of a product in slices."""

    start: str
    """The nest that starts the sums."""
    compute: tuple[str, ...]
    """The nests that add a slice's products: one, or one for each slice of a pair."""
    end: str
    """The nest that writes the sums out."""
    turns: str
    """The loop over slices, or over pairs of them."""
    slices: tuple[str, ...]
    """The buffers of the slices."""

    @property
    def nests(self) -> tuple[str, ...]:
        return (self.start, *self.compute, self.end)


def in_slices(
    play: Play, product: Sliced, slicing: Slicing, threads: list[str], lay_out: LayOut | None = None
) -> Sums:
    """Cut the sum: sums are in a buffer of the block, slices of the operands in shared memory.

    ``threads``: the scopes of a block's threads or warps; ``lay_out`` orders a slice's dimensions.
    """
    start = threads[0]
    end = play.stage("stage_write", start, product.target).copy
    if product.after:
        # What follows reads the sums themselves, and nobody else does.
        play.must("remove_dead", product.target)
        end = separate(play, product.after, start)
    total = separate(play, product.total, start)
    nest = chain(play, total)
    arrange(play, [nest[-1], *nest[:-1]])
    slices = split(play, nest[-1], slicing.depth)
    if len(slices) == 1:
        raise MoveError("PD-T006", "a sum of one slice has nothing to share")
    steps = split(play, slices[1], slicing.at_once or slicing.depth)
    for step, inwards in zip(reversed(steps), (slicing.inwards, len(threads)), strict=False):
        for _ in range(inwards):
            play.must("swap_scopes", step)
    turns, parts = slices[0], tuple[str, ...]()
    if slicing.ahead:
        turns, pair = play.split(turns, 2)
        parts = play.split_range(pair, at=1)
    compute = tuple(chain(play, part)[1] for part in parts or (turns,))
    made = []
    for nest_ in compute:
        for array in (product.left, product.right):
            staged = play.stage("stage_read", nest_, array)
            made.append(staged.buffer)
            if lay_out is not None:
                lay_out(play, nest_, staged.buffer)
            place = arrange_copy if slicing.ahead else share_copy
            place(play, play.program.paths[staged.copy], slicing.runners)
    return Sums(start, compute, end, turns, tuple(made))


def copy_ahead(play: Play, sums: Sums) -> Sequence[str]:
    """Copy each slice of a pair while the products of the other one are added; gives all nests of threads.

    The body of the loop is: copies of the first slice, its products, copies of the second, its products.
    The second copies go in front of the first products; rotated, each iteration begins with them, and the
    first copies of the next iteration go in front of the second products.
    """
    grid = play.around(sums.turns)
    if not grid:
        raise MoveError("PD-T006", "without a grid each nest is a launch of its own")
    first, _ = [play.fission(nest) for nest in sums.compute]
    play.must("reorder_statements", first)
    for name in sums.slices:
        for dim in range(len(play.program.buffer_of[name].dimensions)):
            play.may("reuse_dims", name, dim=dim)
    made = play.must("rotate_scope", sums.turns, at=1)
    assert isinstance(made, Copied), "rotate_scope copies the loop's ends"
    _, between, _ = made.parts
    play.must("reorder_statements", play.scope(between).body[2].id)
    for name in sums.slices:
        play.may("set_location", name, location=ASYNC)
    return _nests(play, grid[-1].id)


def _nests(play: Play, place: str) -> list[str]:
    """The outermost scopes of several iterations below a scope that hold one statement."""
    found = []
    for node in play.scope(place).body:
        if isinstance(node, Scope):
            *_, last = chain(play, node.id)
            several = only_statement(play, last) is None
            found += _nests(play, node.id) if several or node.size == 1 else [node.id]
    return found


def map_threads(play: Play, nest: str, threads: int) -> None:
    """Give the outermost loops of a nest to as many threads of the block as there are."""
    for loop in chain(play, nest):
        size = play.scope(loop).size
        if size > threads or play.scope(loop).suffix:
            return
        play.may("annotate_scope", loop, suffix=BLOCK)
        threads //= size


def arrange_copy(play: Play, path: Path, threads: int) -> list[str]:
    """Order the loops that copy a slice, those for threads first, and give these.

    Neighbouring threads take neighbouring elements, 16 bytes at a time if they can.
    """
    loops = chain(play, play.program.node(path).id)
    statement = only_statement(play, loops[-1])
    assert statement is not None
    source, target = statement.reads[0], statement.target
    first = len(play.around(loops[0]))
    address = play.program.buffer_of[source.array].address(source.subscripts)
    stored = play.program.buffer_of[target.array].address(target.subscripts)
    stride = {loop: address.coefficients.get(first + k, 0) for k, loop in enumerate(loops)}
    together = [
        loop for k, loop in enumerate(loops) if stride[loop] == stored.coefficients.get(first + k) == 1
    ]
    arrange(play, sorted(loops, key=lambda loop: -stride[loop]))
    lanes: list[str] = []
    for wide in (WIDTHS.get(play.program.buffer_of[source.array].dtype, WIDE), WIDE):
        if together and not lanes and play.scope(together[0]).size % wide == 0:
            lanes = split(play, together[0], wide)[-1:]
    shared, turns = list[str](), list[str]()
    for loop in reversed(chain(play, play.program.node(path).id)):
        if loop in lanes:
            continue
        part = factors(play.scope(loop).size, threads)[-1]
        parts = split(play, loop, part) if part > 1 else [loop]
        shared[:0] = parts[-1:] if part > 1 else []
        turns[:0] = parts[:-1] if part > 1 else parts
        threads //= part
    arrange(play, [*shared, *turns, *lanes])
    for lane in lanes:
        play.may("annotate_scope", lane, suffix="v")
    return shared


def share_copy(play: Play, path: Path, threads: int) -> None:
    """Copy a slice with all threads of the block."""
    for loop in reversed(arrange_copy(play, path, threads)):
        play.may("annotate_scope", loop, suffix=BLOCK)
