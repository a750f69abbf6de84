"""Moves of loops: the scopes of a perfect nest in another order, and ranges in parts."""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.search.play import Play


def arrange(play: Play, order: Sequence[str]) -> None:
    """Interchange the loops of a perfect nest until they stand in ``order``."""
    for position, wanted in enumerate(order):
        nest = sorted(order, key=lambda place: len(play.program.paths[place]))
        for outer in reversed(nest[position : nest.index(wanted)]):
            play.must("swap_scopes", outer)


def chain(play: Play, place: str) -> list[str]:
    """Ids of the scopes of a perfect nest, from ``place`` inwards."""
    found = [place]
    while len(body := play.scope(found[-1]).body) == 1 and isinstance(body[0], Scope):
        found.append(body[0].id)
    return found


def cut(play: Play, place: str, sizes: Sequence[int]) -> list[str]:
    """Cut the range of a scope into parts of these sizes; their ids."""
    found = []
    for size in sizes[:-1]:
        first, place = play.split_range(place, size)
        found.append(first)
    return [*found, place]


def cut_off_rest(play: Play, place: str, factor: int) -> list[str]:
    """Cut a range where ``factor`` stops dividing it; the id of the first part, or of both."""
    size = play.scope(place).size
    rest = size % factor
    return cut(play, place, [size - rest, rest]) if rest and rest < size else [place]


def move_inward(play: Play, place: str, steps: int) -> None:
    for _ in range(steps):
        play.must("swap_scopes", place)


def move_outward(play: Play, nest: Sequence[str]) -> None:
    """Move the last scope of ``nest``, which stands innermost, to its outside."""
    for outer in reversed(nest[:-1]):
        play.must("swap_scopes", outer)


def join_nests(play: Play, roots: Sequence[str], depth: int) -> bool:
    """Join neighbouring nests around their outermost loops, so many of them; false where that is not legal,
    with some of them joined."""
    for _ in roots[1:]:
        place = roots[0]
        for level in range(depth):
            if play.may("join_scopes", place) is None:
                return False
            if level + 1 < depth:
                (child, *_) = play.scope(place).body
                place = child.id
    return True
