"""The same game on a smaller kernel, so that a slow check can be used for a large one.

A trace is a list of moves. This module shrinks the initial program and, if necessary, the tiles and cuts, and
plays the same moves again (``smaller_games.py``). If each is legal for the same reasons and gives the same
tree, the small trace proves the same about the moves as the large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perfdojo_sdk.core.frozen import seldom_collected
from perfdojo_sdk.core.transformation import Move, Rules, Trace
from perfdojo_sdk.verify.extents import Extent, extents, resized, with_few_rows
from perfdojo_sdk.verify.smaller_games import (
    NO_PROGRAM,
    Cut,
    GivenGame,
    Reduction,
    Tile,
    instances_of,
    numbers_of,
    with_count,
)

#: Every size up to this one is tried; above it, only divisors of the original size.
_FEW = 24
#: How much larger a game may stay that is made as small as another one.
_NEAR = 3


@seldom_collected()
def reduce_trace(
    trace: Trace,
    rules: Rules,
    most_instances: int,
    *like: Reduction,
    keeps_units: bool = False,
    alike_at_once: bool = False,
) -> Trace:
    """The same game on the smallest root needed to stay within ``most_instances``, if possible.

    First the root alone shrinks. If tiles keep it too large, they shrink with it, first each by itself and
    then, if need be, in proportion: the same moves at the same places, with smaller factors. No program of
    the result runs more than ``most_instances`` statement instances, unless the moves allow no shape that
    small; then it is the smallest shape found. Every scope that iterates in the given trace iterates at
    least twice in the result, since a loop that runs once hides faults of its order. A trace that is small
    enough is returned unchanged, but for large inputs that it reads at run-time indices. ``like``:
    reductions of other games; if one makes this one small enough, or almost so where the root is another,
    nothing else is tried. ``keeps_units``: nests that a unit of the machine takes keep their sizes.
    ``alike_at_once``: tiles that are alike may shrink together, which is for checks that do not look at code:
    with blocks of few threads, say, it has fewer barriers.
    """
    game = GivenGame(trace, rules, keeps_units, alike_at_once)
    for each in like:
        if each.root == trace.root:
            alike = game.replayed(trace, each.small_root, each.moves_of(trace))
            if alike is not None and instances_of(alike) <= max(most_instances, each.instances):
                return alike
    few = with_few_rows(trace.root)
    if few is not trace.root:
        trace = game.replayed(trace, few, trace.moves) or trace
    elif instances_of(trace) > most_instances:
        for each in like:
            alike = game.as_small(trace, each)
            if alike is not None and instances_of(alike) <= _NEAR * most_instances:
                return alike
    reduced = _one_by_one(_smaller_root(trace, game, most_instances), game, most_instances)
    if instances_of(reduced) > most_instances and any(map(game.tiled, trace.steps)):
        together = _smaller_root(reduced, game, most_instances, in_proportion=True)
        reduced = _one_by_one(together, game, most_instances)
    return reduced


def _one_by_one(reduced: Trace, game: GivenGame, most_instances: int) -> Trace:
    """The game with smaller tiles, each tried by itself, and a smaller root after that."""
    while instances_of(reduced) > most_instances:
        smaller = _smaller_root(_smaller_tiles(reduced, game), game, most_instances)
        if smaller.moves == reduced.moves and smaller.root == reduced.root:
            break
        reduced = smaller
    return reduced


def _smaller_root(trace: Trace, game: GivenGame, most_instances: int, in_proportion: bool = False) -> Trace:
    """The game on a smaller root: every extent as small as it can be. Those that wait for others, as an array
    for the windows that slide over it, are tried again once others have shrunk; those whose loops become one
    with loops of others shrink together with them."""
    reduced, last = trace, None
    waiting = {frozenset(extent.places) for extent in extents(trace.root)}
    while reduced is not last:
        last, tried = reduced, waiting
        waiting = set()
        for places in [frozenset(extent.places) for extent in extents(reduced.root)]:
            if instances_of(reduced) <= most_instances:
                return reduced
            extent = next((e for e in extents(reduced.root) if e.places.keys() == places), None)
            if extent is None or places not in tried:
                continue
            tries = _Tries(reduced, extent, game, in_proportion)
            smaller = next(tries, None)
            waiting |= {places} if tries.waits else set()
            if smaller is None and tries.tied:
                both = _with_those_tied_to(reduced, extent, game, in_proportion)
                tries = _Tries(reduced, both, game, in_proportion)
                smaller = next(tries, None) if both is not extent else None
            reduced = smaller or reduced
    return reduced


def _with_those_tied_to(trace: Trace, extent: Extent, game: GivenGame, in_proportion: bool) -> Extent:
    """The extent and those that shrink with it: of others in a whole ratio to it, each that brings the game
    further than it comes without."""
    reached = _reached(trace, extent, game, in_proportion)
    while reached < len(trace.moves):
        others = [e for e in extents(trace.root) if not e.places.keys() & extent.places.keys()]
        united = [both for both in map(extent.united, others) if both is not None]
        further = [(_reached(trace, both, game, in_proportion), both) for both in united]
        best = max(further, key=lambda pair: pair[0], default=(-1, extent))
        if best[0] <= reached:
            break
        reached, extent = best
    return extent


def _reached(trace: Trace, extent: Extent, game: GivenGame, in_proportion: bool) -> int:
    """The number of moves that the game has with the extent at its largest divisor."""
    size = max((d for d in range(2, extent.size) if extent.size % d == 0), default=extent.size - 1)
    root = resized(trace.root, extent, size)
    found = game.attempted(trace, root, trace.moves, in_proportion=in_proportion)
    return len(trace.moves) if isinstance(found, Trace) else found.at


class _Tries(Iterator[Trace]):
    """The games in which one extent is shorter, shortest first.

    Sizes for which a tile cannot fit, going by the sizes that were refused for it, are not tried.
    """

    def __init__(self, trace: Trace, extent: Extent, game: GivenGame, in_proportion: bool) -> None:
        self._trace, self._extent, self._game, self._in_proportion = trace, extent, game, in_proportion
        self.waits = False
        """True if a size was too short for what other extents have kept in the program."""
        self.tied = False
        """True if the game makes one loop of one that shrinks and of one that does not."""
        cuts = game.cuts(trace)
        sizes = list(_shorter(extent.size, cuts))
        self._found = (t for longer in ((True, False) if cuts else (True,)) for t in self._of(sizes, longer))

    def __next__(self) -> Trace:
        return next(self._found)

    def _of(self, sizes: Iterable[int], longer: bool) -> Iterator[Trace]:
        tiles: list[Tile] = []
        for size in sizes:
            less = self._extent.size - size
            if all(tile.fits(tile.iterations - less) for tile in tiles):
                root = resized(self._trace.root, self._extent, size)
                moves = self._trace.moves
                found = self._game.attempted(self._trace, root, moves, longer, self._in_proportion)
                if isinstance(found, Trace):
                    yield found
                elif found.tile is not None and found.tile.iterations - found.now == less:
                    tiles.append(found.tile)
                self.waits |= found is NO_PROGRAM
                if not isinstance(found, Trace) and found.apart:
                    self.tied = True
                    if not self._in_proportion:
                        return  # at any other size they come apart, too


def _smaller_tiles(reduced: Trace, game: GivenGame) -> Trace:
    """Smaller counts in the moves, inner tiles before those that they were cut from; if the game allows that,
    first the same one in all moves that are alike, whose loops may be joined later."""
    cuts = game.cuts(reduced)
    counting = [(k, name) for k in range(len(reduced.moves)) for name in game.counts(k) if k not in cuts]
    alike: dict[tuple[object, ...], list[tuple[int, str]]] = {}
    for k, name in counting:
        alike.setdefault((*numbers_of(reduced.moves[k]), name), []).append((k, name))
    groups = [[each] for each in counting]
    groups += [group for group in alike.values() if len(group) > 1 and game.alike_at_once]
    for group in reversed(groups):
        places, name = [k for k, _ in group], group[0][1]
        tries = (_with(reduced.moves, places, name, v) for v in _smaller(reduced.moves[places[0]][name]))
        smaller = (game.replayed(reduced, reduced.root, moves) for moves in tries)
        reduced = next((t for t in smaller if t is not None), reduced)
    return reduced


def _shorter(size: int, cuts: Mapping[int, Cut]) -> Iterator[int]:
    """Sizes to try for a range: smaller ones, and its remaining size when one of its parts is smaller."""
    parts = {part for cut in cuts.values() if cut.size == size for part in (cut.at, size - cut.at)}
    yield from sorted({*_smaller(size), *(size - part + less for part in parts for less in _smaller(part))})


def _with(moves: Sequence[Move], places: Sequence[int], name: str, value: int) -> list[Move]:
    """The moves with another value for one parameter of some of them."""
    return [with_count(move, name, value) if k in places else move for k, move in enumerate(moves)]


def _smaller(size: int) -> Iterator[int]:
    """Sizes to try instead, smallest first: few iterations, then divisors, so that tiles still fit."""
    return (d for d in range(2, size) if d <= _FEW or size % d == 0)
