"""Rows of a padded image in the layout that a stencil reads best: aligned, what lanes read side by side."""

from __future__ import annotations

from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.experts.cpu.loops import cut_off_rest
from perfdojo_sdk.experts.cpu.stencils import Stencil
from perfdojo_sdk.search.play import Play


def lay_out_rows(play: Play, copy: str, image: str, found: Stencil) -> None:
    """Let rows of an image, and what a loop copies of each, begin where vectors may; windows that move by
    more than one element find the columns that they reach from one place side by side."""
    last = len(play.program.buffer_of[image].dimensions) - 1
    if found.step > 1:
        before = play.scope(copy).leaves[0].statement.target.subscripts[last].constant
        room = -before % (found.step * found.width)
        if room:
            play.may("shift_dim", image, dim=last, by=room)
        _part_columns(play, copy, image, found.step)
    _align_rows(play, image, found.width)


def _part_columns(play: Play, copy: str, image: str, step: int) -> None:
    """Let the columns that windows reach from one place stand side by side in each row of an image: with
    windows that move by two elements, the even columns before the odd ones."""
    last = len(play.program.buffer_of[image].dimensions) - 1
    kept, count = play.trace, _part_loop(play, copy, last, step)
    if not count:
        return
    for place in play.program.places:
        if (
            isinstance(place.node, Scope)
            and {*place.node.written_arrays} == {image}
            and place.node.size >= step
        ):
            _part_loop(play, place.node.id, last, step)
    if play.may("split_dim", image, dim=last, size=step) is None:
        play.trace = kept
        return
    play.must("reorder_dims", image, dim=last)


def _part_loop(play: Play, place: str, dim: int, step: int) -> bool:
    """Cut the innermost loop along a dimension of what is written, so that one loop of ``step`` iterations
    stands around the columns that lie ``step`` apart; false where the loop is no such one."""
    loop, level = play.scope(place), len(play.around(place))
    (child, *others) = loop.body
    if others or not isinstance(child, Statement) or loop.suffix:
        return False
    form = child.target.subscripts[dim]
    before = -form.constant % step
    if form.terms != ((level, 1),) or form.quotients or loop.size < before + step:
        return False
    if before:
        place = play.split_range(place, before)[1]
    place = cut_off_rest(play, place, step)[0]
    return play.scope(place).size == step or play.may("swap_scopes", play.split(place, step)[0]) is not None


def _align_rows(play: Play, image: str, width: int) -> None:
    """Let each row of an image begin where a vector may begin."""
    last = len(play.program.buffer_of[image].dimensions) - 1
    size = play.program.buffer_of[image].dimensions[last].size
    play.may("pad_dim", image, dim=last, size=-(-size // width) * width)
