"""Steps that the experts of CPUs and of GPUs share."""

from __future__ import annotations

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.search.play import Play


def separate(play: Play, place: str, top: str) -> str:
    """Cut every scope from the one around ``place`` up to ``top`` before ``place``; the second part.

    :class:`MoveError` where ``top`` does not stand around ``place``.
    """
    if all(scope.id != top for scope in play.around(place)):
        raise MoveError("PD-T001", f"{top} does not stand around {place}")
    while True:
        parent = play.around(place)[-1].id
        place = play.fission(place)
        if parent == top:
            return place


def isolate(play: Play, place: str) -> str:
    """Cut every scope around ``place`` before and after it; the nest at the root that holds it alone.

    :class:`MoveError` where that would change the order of what depends on it.
    """
    while around := play.around(place):
        body = around[-1].body
        at = next(k for k, node in enumerate(body) if node.id == place)
        if at + 1 < len(body):
            play.fission(body[at + 1].id)
        place = play.fission(place) if at > 0 else play.around(place)[-1].id
    return place


def neighbour(play: Play, place: str, distance: int) -> str:
    """The sibling so many places further on."""
    path = play.program.paths[place]
    return play.program.siblings(path)[path[-1] + distance].id


def inline_everywhere(play: Play, array: str) -> bool:
    """Compute an array's value wherever it is read, and take the array away; False where that cannot be."""
    kept = play.trace
    readers = [s.id for s in play.statements() if any(r.array == array for r in s.reads)]
    inlined = all(play.may("inline_definition", reader, array=array) is not None for reader in readers)
    if inlined and play.may("remove_dead", array):
        return True
    play.trace = kept
    return False
