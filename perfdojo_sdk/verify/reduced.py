"""The same game on a smaller kernel, so that a slow check can be used for a large one.

A trace is a list of moves. Moves name places, and only some of them, those that cut a range, name sizes. This
module shrinks the initial program and, if necessary, the cuts, and plays the same moves again. If each is
legal for the same reasons and gives the same tree, the small trace proves the same about the moves as the
large one.

A game like another one is tried first with what made that one small: one of the same moves at other sizes,
such as a convolution of more channels, or one with the same sizes and counts, such as that of another phase
of a transposed convolution.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.frozen import seldom_collected
from perfdojo_sdk.core.made import Copied, Halves
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Move, Rejection, Rules, Step, Trace
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.verify.extents import Extent, extents, resized, sizes_of, with_few_rows

#: Every size up to this one is tried; above it, only divisors of the original size.
_FEW = 24
#: How much larger a game may stay that is made as small as another one.
_NEAR = 3


def statement_instances(program: Program) -> int:
    """The number of statement instances in one run of the program."""
    return sum(node.instances for node in program.body)


@dataclass(frozen=True)
class Reduction:
    """A reduction of a game to smaller sizes, which is tried first on games that are like it."""

    root: Program
    moves: tuple[Move, ...]
    small_root: Program
    small_moves: tuple[Move, ...]
    instances: int
    """Most statement instances of a program of the small game."""

    @classmethod
    def of(cls, large: Trace, small: Trace) -> Reduction:
        return cls(large.root, tuple(large.moves), small.root, tuple(small.moves), _instances(small))

    def moves_of(self, trace: Trace) -> list[Move]:
        """The moves of ``trace``, those that stand in the large game with the factors of the small one."""
        known = dict(zip(self.moves, self.small_moves, strict=True))
        return [known.get(move, move) for move in trace.moves]

    def at_same_places(self, root: Program) -> Program | None:
        """Another root with extents at the same places, made as small as this game's; None for others."""
        own = {frozenset(extent.places): self._small(extent) for extent in extents(self.root)}
        for extent in extents(root):
            size = own.get(frozenset(extent.places))
            if size is None or size > extent.size:
                return None
            root = resized(root, extent, size) if size < extent.size else root
        return root

    def at_about_the_same_sizes(self, root: Program) -> Program | None:
        """Another root of about the same sizes, made as small as this game's; None for others."""
        mine, other = ([e for e in extents(r) if e.size > 2] for r in (self.root, root))
        if len(mine) != len(other) or any(abs(a.size - b.size) > 1 for a, b in zip(mine, other, strict=True)):
            return None
        for extent, same in zip(other, mine, strict=True):
            root = resized(root, extent, self._small(same))
        return root

    def _small(self, extent: Extent) -> int:
        """The size of an extent of the large root in the small one."""
        sizes = sizes_of(self.small_root)
        return min(sizes[place] for place, weight in extent.places.items() if weight == 1)


def kind_of_game(moves: Iterable[Move], rules: Rules) -> tuple[object, ...]:
    """The same for games of the same moves, whatever their counts of iterations or elements are."""
    return tuple([_without_counts(move, rules) for move in moves])


def _without_counts(move: Move, rules: Rules) -> tuple[object, ...]:
    counting = {p.name for p in rules.transformation(move.transformation).parameters if p.counts}
    others = tuple([pair for pair in move.parameters if pair[0] not in counting])
    return move.transformation, move.version, move.place, others


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
    game = _Game(trace, rules, keeps_units, alike_at_once)
    for each in like:
        if each.root == trace.root:
            alike = game.replayed(trace, each.small_root, each.moves_of(trace))
            if alike is not None and _instances(alike) <= max(most_instances, each.instances):
                return alike
    few = with_few_rows(trace.root)
    if few is not trace.root:
        trace = game.replayed(trace, few, trace.moves) or trace
    elif _instances(trace) > most_instances:
        for each in like:
            alike = game.as_small(trace, each)
            if alike is not None and _instances(alike) <= _NEAR * most_instances:
                return alike
    reduced = _one_by_one(_smaller_root(trace, game, most_instances), game, most_instances)
    if _instances(reduced) > most_instances and any(map(game.tiled, trace.steps)):
        together = _smaller_root(reduced, game, most_instances, in_proportion=True)
        reduced = _one_by_one(together, game, most_instances)
    return reduced


def _one_by_one(reduced: Trace, game: _Game, most_instances: int) -> Trace:
    """The game with smaller tiles, each tried by itself, and a smaller root after that."""
    while _instances(reduced) > most_instances:
        smaller = _smaller_root(_smaller_tiles(reduced, game), game, most_instances)
        if smaller.moves == reduced.moves and smaller.root == reduced.root:
            break
        reduced = smaller
    return reduced


def _smaller_root(trace: Trace, game: _Game, most_instances: int, in_proportion: bool = False) -> Trace:
    """The game on a smaller root: every extent as small as it can be. Those that wait for others, as an array
    for the windows that slide over it, are tried again once others have shrunk."""
    reduced, last = trace, None
    waiting = {frozenset(extent.places) for extent in extents(trace.root)}
    while reduced is not last:
        last, tried = reduced, waiting
        waiting = set()
        for extent in extents(reduced.root):
            if _instances(reduced) <= most_instances:
                return reduced
            places = frozenset(extent.places)
            if places in tried:
                tries = _Tries(reduced, extent, game, in_proportion)
                reduced = next(tries, reduced)
                waiting |= {places} if tries.waits else set()
    return reduced


class _Tries(Iterator[Trace]):
    """The games in which one extent is shorter, shortest first.

    Sizes for which a tile cannot fit, going by the sizes that were refused for it, are not tried.
    """

    def __init__(self, trace: Trace, extent: Extent, game: _Game, in_proportion: bool) -> None:
        self._trace, self._extent, self._game, self._in_proportion = trace, extent, game, in_proportion
        self.waits = False
        """True if a size was too short for what other extents have kept in the program."""
        cuts = game.cuts(trace)
        sizes = list(_shorter(extent.size, cuts))
        self._found = (t for longer in ((True, False) if cuts else (True,)) for t in self._of(sizes, longer))

    def __next__(self) -> Trace:
        return next(self._found)

    def _of(self, sizes: Iterable[int], longer: bool) -> Iterator[Trace]:
        tiles: list[_Tile] = []
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


def _smaller_tiles(reduced: Trace, game: _Game) -> Trace:
    """Smaller counts in the moves, inner tiles before those that they were cut from; if the game allows that,
    first the same one in all moves that are alike, whose loops may be joined later."""
    cuts = game.cuts(reduced)
    counting = [(k, name) for k in range(len(reduced.moves)) for name in game.counts(k) if k not in cuts]
    alike: dict[tuple[object, ...], list[tuple[int, str]]] = {}
    for k, name in counting:
        alike.setdefault((*_numbers(reduced.moves[k]), name), []).append((k, name))
    groups = [[each] for each in counting]
    groups += [group for group in alike.values() if len(group) > 1 and game.alike_at_once]
    for group in reversed(groups):
        places, name = [k for k, _ in group], group[0][1]
        tries = (_with(reduced.moves, places, name, v) for v in _smaller(reduced.moves[places[0]][name]))
        smaller = (game.replayed(reduced, reduced.root, moves) for moves in tries)
        reduced = next((t for t in smaller if t is not None), reduced)
    return reduced


@dataclass(frozen=True)
class _Tile:
    """A move that tiles a range."""

    iterations: int
    factor: int

    def fits(self, iterations: int) -> bool:
        """True if the factor tiles a range of so many iterations instead, and both loops still iterate."""
        return iterations % self.factor == 0 and iterations > self.factor


@dataclass(frozen=True)
class _Other:
    """No smaller game of the same moves. ``tile``: the one that does not fit the iterations that its range
    has ``now``, if that is the reason."""

    tile: _Tile | None = None
    now: int = 0


#: The smaller root is not a valid program.
NO_PROGRAM = _Other()


@dataclass(frozen=True)
class _Cut:
    """A move that cuts a range of ``size`` iterations: ``at`` of them, then the rest."""

    parameter: str
    size: int
    at: int

    def shortened(self, size: int, longer: bool) -> int | None:
        """The position at which to cut a range of ``size`` instead; None where it is too short for two such
        parts.

        The ``longer`` part, or else the other one, becomes shorter; but a part of two or more iterations
        keeps two.
        """
        missing = self.size - size
        if missing <= 0:
            return self.at
        first, second = (part - min(part, 2) for part in (self.at, self.size - self.at))
        if missing > first + second:
            return None
        from_first = (self.at >= self.size - self.at) == longer
        return self.at - (min(missing, first) if from_first else max(missing - second, 0))


def _tile(size: int, step: Step, name: str, now: int) -> int | None:
    """The factor that tiles a range of ``now`` iterations in place of ``size``: the largest that divides it
    and leaves both loops at least two iterations, if they had them; None where there is none."""
    factor = int(step.move[name])
    if now >= size:
        return factor
    inner, outer = min(factor, 2), min(size // factor, 2)
    fits = (d for d in range(min(factor, now), inner - 1, -1) if now % d == 0 and now // d >= outer)
    return next(fits, None)


def _shorter(size: int, cuts: Mapping[int, _Cut]) -> Iterator[int]:
    """Sizes to try for a range: smaller ones, and its remaining size when one of its parts is smaller."""
    parts = {part for cut in cuts.values() if cut.size == size for part in (cut.at, size - cut.at)}
    yield from sorted({*_smaller(size), *(size - part + less for part in parts for less in _smaller(part))})


def _with(moves: Sequence[Move], places: Sequence[int], name: str, value: int) -> list[Move]:
    """The moves with another value for one parameter of some of them."""
    return [_changed(move, name, value) if k in places else move for k, move in enumerate(moves)]


def _changed(move: Move, name: str, value: int) -> Move:
    return replace(move, parameters=tuple((n, value if n == name else v) for n, v in move.parameters))


def _numbers(move: Move) -> tuple[object, ...]:
    """The part of a move that does not name places."""
    return (move.transformation, *move.parameters)


def _size(program: Program, scope: str) -> int:
    """Iterations of a scope; 0 where it is none."""
    place = program.place_of.get(scope)
    return getattr(place.node, "size", 0) if place is not None else 0


def _smaller(size: int) -> Iterator[int]:
    """Sizes to try instead, smallest first: few iterations, then divisors, so that tiles still fit."""
    return (d for d in range(2, size) if d <= _FEW or size % d == 0)


def _instances(trace: Trace) -> int:
    return max(statement_instances(p) for p in (trace.root, *(s.after for s in trace.steps)))


class _Game:
    """The given trace, with which every smaller one is compared."""

    def __init__(
        self, trace: Trace, rules: Rules, keeps_units: bool = False, alike_at_once: bool = False
    ) -> None:
        self.rules, self.alike_at_once = rules, alike_at_once
        suffixes = rules.dialect.suffixes.values() if keeps_units else ()
        self.units = frozenset(suffix.name for suffix in suffixes if suffix.unit)
        self.expected = [(*self._form(step.after), step.legal) for step in trace.steps]
        self.transformations = [rules.transformation(move.transformation) for move in trace.moves]

    def counts(self, k: int) -> list[str]:
        """Parameters of move ``k`` that count iterations or elements."""
        return [p.name for p in self.transformations[k].parameters if p.counts]

    def as_small(self, trace: Trace, like: Reduction) -> Trace | None:
        """The game with the sizes and counts of a similar game's reduction; None where it is not similar
        or that gives another game."""
        if kind_of_game(trace.moves, self.rules) == kind_of_game(like.moves, self.rules):
            root = like.at_same_places(trace.root)
            found = self.attempted(trace, root, like.small_moves, as_given=True) if root is not None else None
            if isinstance(found, Trace):
                return found
        given = [k for k in range(len(trace.moves)) if self.counts(k)]
        pairs = zip(like.moves, like.small_moves, strict=True)
        counting = {move.transformation for move in map(trace.moves.__getitem__, given)}
        known = [(old, new) for old, new in pairs if old.transformation in counting]
        if [_numbers(trace.moves[k]) for k in given] != [_numbers(old) for old, _ in known]:
            return None
        root, moves = like.at_about_the_same_sizes(trace.root), [*trace.moves]
        for k, (_, new) in zip(given, known, strict=True):
            moves[k] = replace(moves[k], parameters=new.parameters)
        return self.replayed(trace, root, moves) if root is not None else None

    def cuts(self, trace: Trace) -> Mapping[int, _Cut]:
        """The moves of a trace of this game that cut a range in two, by position."""
        cuts = ((k, self._cut(k, step)) for k, step in enumerate(trace.steps))
        return {k: cut for k, cut in cuts if cut is not None}

    def _cut(self, k: int, step: Step) -> _Cut | None:
        if not isinstance(step.made, Copied):
            return None
        for name in self.counts(k):
            size = _size(step.before, step.move.place)
            parts = [_size(step.after, part) for part in step.made.parts]
            if len(parts) == 2 and sum(parts) == size and step.move[name] == parts[0]:
                return _Cut(name, size, parts[0])
        return None

    def tiled(self, step: Step) -> int:
        """Iterations of the scope that a step tiles; 0 for another kind of move."""
        if not isinstance(step.made, Halves):
            return 0
        size = _size(step.before, step.move.place)
        parts = [_size(step.after, part) for part in (step.made.outer, step.made.inner)]
        return size if prod(parts) == size else 0

    def replayed(self, known: Trace, root: Program, moves: Sequence[Move]) -> Trace | None:
        """The game of ``moves`` on ``root``; None where it is another game."""
        found = self.attempted(known, root, moves)
        return found if isinstance(found, Trace) else None

    def attempted(
        self,
        known: Trace,
        root: Program,
        moves: Sequence[Move],
        longer: bool = True,
        in_proportion: bool = False,
        as_given: bool = False,
    ) -> Trace | _Other:
        """The game of ``moves`` on ``root``, or the reason why it is another game.

        Steps that ``known``, a trace of as many moves, has at its start are taken from it. If a move that
        both have cuts a range that is shorter now, its cut changes, too: the ``longer`` part of the range
        shrinks, or else the other one. With ``in_proportion``, tiles of such a range shrink as well; with
        ``as_given``, nothing changes.
        """
        if next(violations(root, self.rules.dialect), None) is not None:
            return NO_PROGRAM
        same = zip(known.moves, moves, strict=True) if known.root == root else ()
        steps = list(known.steps[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], same))])
        given = known.moves
        for k in range(len(steps), len(moves)):
            before, move, expected = steps[-1].after if steps else root, moves[k], self.expected[k]
            now = _size(before, move.place)
            cut = self._cut(k, known.steps[k]) if move == given[k] and not as_given else None
            if cut is not None:
                at = cut.shortened(now, longer)
                if at is None:
                    return _Other()
                move = _changed(move, cut.parameter, at)
            tiled = self.tiled(known.steps[k])
            if in_proportion and tiled:
                [name] = self.counts(k)
                factor = _tile(tiled, known.steps[k], name, now)
                if factor is None:
                    return _Other()
                move = _changed(move, name, factor)
            try:
                step = self.rules.attempt(before, move)
            except MoveError:
                return _Other()
            if isinstance(step, Rejection) or (*self._form(step.after), step.legal) != expected:
                factors = [int(move[name]) for name in self.counts(k)] if tiled else []
                tile = _Tile(tiled, *factors) if len(factors) == 1 else None
                fails = tile is not None and not in_proportion and not tile.fits(now)
                return _Other(tile, now) if fails else _Other()
            steps.append(step)
        return Trace(root, tuple(steps))

    def _form(self, program: Program) -> tuple[object, ...]:
        """The part of a program that is the same in each smaller one."""
        return _skeleton(program), _units(program, self.units) if self.units else ()


def _skeleton(program: Program) -> tuple[object, ...]:
    return tuple([node.skeleton for node in program.body])


#: Scopes of a nest that a unit takes, at most: rows, columns and steps.
_NEST = 3


def _units(program: Program, suffixes: frozenset[str]) -> tuple[tuple[int, ...], ...]:
    """The sizes of the nests whose innermost scopes have one of these suffixes, in order."""
    found = []
    for path, scope in program.scopes:
        if scope.suffix in suffixes:
            around = [each.size for each in program.ancestors(path)]
            found.append(tuple([*around, scope.size][-_NEST:]))
    return tuple(found)
