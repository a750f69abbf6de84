"""The same game on a smaller root: which moves it has there, and whether it is the same.

Moves name places, and only some of them, those that cut a range, name sizes. A smaller game has the same
moves with smaller counts; each must be legal for the same reasons and give the same tree. What made one game
small is tried first on games that are like it: on one of the same moves at other sizes, such as a convolution
of more channels, or one with the same sizes and counts, such as that of another phase of a transposed
convolution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.made import Copied, Halves, Merged
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Move, Rejection, Rules, Step, Trace
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.verify.extents import Extent, extents, resized, sizes_of


def statement_instances(program: Program) -> int:
    """The number of statement instances in one run of the program."""
    return sum(node.instances for node in program.body)


def instances_of(trace: Trace) -> int:
    """Most statement instances in one run of a program of the game."""
    return max(statement_instances(p) for p in (trace.root, *(s.after for s in trace.steps)))


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
        return cls(large.root, tuple(large.moves), small.root, tuple(small.moves), instances_of(small))

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


@dataclass(frozen=True)
class Tile:
    """A move that tiles a range."""

    iterations: int
    factor: int

    def fits(self, iterations: int) -> bool:
        """True if the factor tiles a range of so many iterations instead, and both loops still iterate."""
        return iterations % self.factor == 0 and iterations > self.factor


@dataclass(frozen=True)
class OtherGame:
    """No smaller game of the same moves."""

    at: int = -1
    """The position of the move that is none of the game; -1: the root."""
    tile: Tile | None = None
    """The tile that does not fit the iterations that its range has ``now``, if that is the reason."""
    now: int = 0
    apart: bool = False
    """True if the move makes one loop of two whose sizes differ now."""


#: The smaller root is not a valid program.
NO_PROGRAM = OtherGame()


@dataclass(frozen=True)
class Cut:
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


def with_count(move: Move, name: str, value: int) -> Move:
    return replace(move, parameters=tuple((n, value if n == name else v) for n, v in move.parameters))


def numbers_of(move: Move) -> tuple[object, ...]:
    """The part of a move that does not name places."""
    return (move.transformation, *move.parameters)


def _size(program: Program, scope: str) -> int:
    """Iterations of a scope; 0 where it is none."""
    place = program.place_of.get(scope)
    return getattr(place.node, "size", 0) if place is not None else 0


def _come_apart(program: Program, step: Step) -> bool:
    """True if a step made one loop of two that differ in size in another program."""
    if not isinstance(step.made, Merged):
        return False
    one, other = step.made.pairs[0]
    return _size(program, one) != _size(program, other)


class GivenGame:
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
        if [numbers_of(trace.moves[k]) for k in given] != [numbers_of(old) for old, _ in known]:
            return None
        root, moves = like.at_about_the_same_sizes(trace.root), [*trace.moves]
        for k, (_, new) in zip(given, known, strict=True):
            moves[k] = replace(moves[k], parameters=new.parameters)
        return self.replayed(trace, root, moves) if root is not None else None

    def cuts(self, trace: Trace) -> Mapping[int, Cut]:
        """The moves of a trace of this game that cut a range in two, by position."""
        cuts = ((k, self._cut(k, step)) for k, step in enumerate(trace.steps))
        return {k: cut for k, cut in cuts if cut is not None}

    def _cut(self, k: int, step: Step) -> Cut | None:
        if not isinstance(step.made, Copied):
            return None
        for name in self.counts(k):
            size = _size(step.before, step.move.place)
            parts = [_size(step.after, part) for part in step.made.parts]
            if len(parts) == 2 and sum(parts) == size and step.move[name] == parts[0]:
                return Cut(name, size, parts[0])
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
    ) -> Trace | OtherGame:
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
                    return OtherGame(k)
                move = with_count(move, cut.parameter, at)
            tiled = self.tiled(known.steps[k])
            if in_proportion and tiled:
                [name] = self.counts(k)
                factor = _tile(tiled, known.steps[k], name, now)
                if factor is None:
                    return OtherGame(k)
                move = with_count(move, name, factor)
            try:
                step = self.rules.attempt(before, move)
            except MoveError:
                return OtherGame(k)
            if isinstance(step, Rejection) or (*self._form(step.after), step.legal) != expected:
                factors = [int(move[name]) for name in self.counts(k)] if tiled else []
                tile = Tile(tiled, *factors) if len(factors) == 1 else None
                fails = tile is not None and not in_proportion and not tile.fits(now)
                if fails:
                    return OtherGame(k, tile, now)
                return OtherGame(k, apart=_come_apart(before, known.steps[k]))
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
