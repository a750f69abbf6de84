"""Sums of products that are scattered, such as ``y[{0}*2+{1}] += x[{0}] * f[{1}]``, are made to gather.

No result of such a sum is complete before the whole nest is, so no register can keep it. Results that lie as
many elements apart as neighbours are scattered get a nest of their own (for a transposed convolution in
steps of two, the even and the odd rows). In it the loops are skewed: one goes over results, one over what
each adds up, under a condition at the borders. That is a padded convolution, which other rules know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.experts.cpu.analysis import is_product
from perfdojo_sdk.experts.cpu.loops import arrange, chain, cut, join_nests, move_inward, move_outward
from perfdojo_sdk.experts.cpu.preparation import decided
from perfdojo_sdk.experts.steps import neighbour
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Most nests that a sum becomes: each is planned by itself.
MOST_NESTS = 16


@dataclass(frozen=True)
class _Dim:
    """A dimension of the results: the loop that walks through it and, where results are scattered, the one
    that spreads them. Loops are levels of the nest of the sum."""

    size: int
    start: int
    kept: int
    step: int
    """Results from one iteration of the kept loop to the next."""
    tap: int = -1
    spread: int = 0
    """Results from one iteration of the tap to the next."""
    inner: int = -1
    """The loop through the results between two iterations of the kept loop, such as channels of a group."""

    @property
    def loops(self) -> tuple[int, ...]:
        """The loops over results."""
        return (self.kept, self.inner) if self.inner >= 0 else (self.kept,)

    @property
    def classes(self) -> int:
        """Neighbouring taps that never meet in a result."""
        return self.step // gcd(self.step, self.spread) if self.spread else 1


@dataclass(frozen=True)
class _Scattered:
    """A nest that starts results, the one right behind it that scatters a sum of products into them, and the
    dimensions of the results."""

    start: Scope
    total: Scope
    dims: tuple[_Dim, ...]


def gather_scattered(play: Play, target: Target) -> list[Decision]:
    """Turn sums of products that are scattered into ones that gather, class of results by class."""
    decisions = []
    for place in [node.id for node in play.program.body]:
        still = len(play.program.paths.get(place, ())) == 1  # it may have gone into another nest meanwhile
        found = _find(play.program, play.node(place)) if still else None
        if found is None:
            continue
        kept = play.trace
        try:
            nests = _gather(play, found)
        except MoveError as error:
            play.trace = kept
            decisions.append(Decision("gather sums", found.total.id, "left scattered", error.what))
            continue
        why = "a result that is complete after its loop stays in a register"
        choice = f"{nests} nests, each over results that the same taps reach"
        numbers = {"nests": nests, "classes": prod(dim.classes for dim in found.dims)}
        decisions.append(Decision("gather sums", found.total.id, choice, why, numbers))
    return decisions


def scatters(program: Program) -> bool:
    """True if a program scatters a sum of products."""
    return any(_find(program, node) for node in program.body)


# -- what is scattered ---------------------------------------------------------------------------------


def _find(program: Program, start: Node) -> _Scattered | None:
    """The sum that is scattered into what a nest at the root starts; None where there is none."""
    (at,) = program.paths[start.id]
    total = next(iter(program.body[at + 1 :]), None)
    if not isinstance(start, Scope) or not isinstance(total, Scope):
        return None
    (loops, first), (around, adds) = start.chain, total.chain
    if first is None or adds is None or first.accumulate or first.guard or not is_product(adds):
        return None
    if first.target.array != adds.target.array or any(scope.suffix for scope in (*loops, *around)):
        return None
    dims = [
        _dim(own, form, loops, around)
        for own, form in zip(first.target.subscripts, adds.target.subscripts, strict=True)
    ]
    found = tuple([dim for dim in dims if dim])
    used = sorted(level for dim in found for level in (*dim.loops, dim.tap) if level >= 0)
    whole = len(found) == len(dims) == len(loops) and used == sorted(adds.target.levels)
    plain = all(dim.tap < 0 and dim.inner < 0 for dim in found)
    if not whole or plain or prod(dim.classes for dim in found) > MOST_NESTS:
        return None
    return _Scattered(start, total, found)


def _dim(own: AffineExpr, form: AffineExpr, loops: Sequence[Scope], around: Sequence[Scope]) -> _Dim | None:
    """A dimension by the subscripts of what starts and of what adds; None where no rule knows them."""
    if len(own.terms) != 1 or own.constant or own.terms[0][1] != 1 or own.quotients or form.quotients:
        return None
    (start, _), size = own.terms[0], loops[own.terms[0][0]].size
    terms = sorted(form.terms, key=lambda term: -around[term[0]].size)
    if not 1 <= len(terms) <= 2 or any(step < 1 for _, step in terms):
        return None
    (kept, step), *spread = terms
    outer, inner = max(terms, key=lambda term: term[1]), min(terms, key=lambda term: term[1])
    if spread and not form.constant and inner[1] == 1 and outer[1] == around[inner[0]].size:
        whole = outer[1] * around[outer[0]].size == size
        return _Dim(size, start, *outer, inner=inner[0]) if whole else None
    if spread:
        return _Dim(size, start, kept, step, *spread[0])
    return _Dim(size, start, kept, step) if (step, form.constant) == (1, 0) else None


# -- sums that gather ----------------------------------------------------------------------------------


def _gather(play: Play, found: _Scattered) -> int:
    """Play the moves; the number of nests that sum."""
    totals = _totals(play, found)
    starts = {_first(play, root, found.dims): root for root in _starts(play, found)}
    for root in totals:
        start = starts.pop(_first(play, root, found.dims), "")
        if not start:
            raise MoveError("PD-T001", "nothing starts some of the results")
        start = _same_range(play, start, root, found.dims)
        while neighbour(play, start, 1) != root:
            play.must("reorder_statements", start)
        if not join_nests(play, [start, root], sum(len(dim.loops) for dim in found.dims)):
            raise MoveError("PD-T001", "results are not started in the order in which they are summed")
    return len(totals)


def _totals(play: Play, found: _Scattered) -> list[str]:
    """Nests of the sum, one for each class of results: loops over results, then over what each adds up."""
    loops = chain(play, found.total.id)
    results = {level for dim in found.dims for level in (*dim.loops, dim.tap)}
    reduced = [place for level, place in enumerate(loops) if level not in results]
    classes, pairs = [], []
    for dim in [dim for dim in found.dims if dim.tap >= 0]:
        outer, inner = _divide(play, loops[dim.tap], dim.classes)
        classes += [inner] if inner else []
        pairs += [(dim, outer)] if outer else []
    moved = [dim.kept for dim, _ in pairs]
    order = [loops[level] for dim in found.dims if dim.kept not in moved for level in dim.loops] + reduced
    order += [place for dim, tap in pairs for place in (loops[dim.kept], tap)]
    return [
        root
        for each in _by_class(play, classes, order)
        if (root := _trimmed(play, _skewed(play, each, found.dims, [dim for dim, _ in pairs])))
    ]


def _skewed(play: Play, root: str, dims: Sequence[_Dim], moved: Sequence[_Dim]) -> str:
    """A class with loops over its results outside, then over what each adds up. ``moved``: dimensions for
    which the last loops of the nest come in pairs, the kept one and the taps."""
    loops = chain(play, root)
    pairs = {dim: loops[len(loops) - 2 * (len(moved) - k) :][:2] for k, dim in enumerate(moved)}
    rest = [place for place in loops if all(place not in pair for pair in pairs.values())]
    plain = iter(rest)
    kept = [pairs[dim][0] if dim in pairs else next(plain) for dim in dims for _ in dim.loops]
    for dim, (outer, _) in pairs.items():
        play.must("skew_scopes", outer, factor=dim.spread // gcd(dim.step, dim.spread))
    arrange(play, [*kept, *plain, *[tap for _, tap in pairs.values()]])
    return kept[0]


def _starts(play: Play, found: _Scattered) -> list[str]:
    """Nests that start the results, one for each class of them."""
    loops = chain(play, found.start.id)
    classes, kept = [], []
    for dim in found.dims:
        outer, inner = _divide(play, loops[dim.start], dim.step if dim.tap >= 0 or dim.inner >= 0 else 1)
        if not outer:
            raise MoveError("PD-T001", "a class has one result at most")
        kept += [outer, inner] if dim.inner >= 0 else [outer]
        classes += [inner] if inner and dim.tap >= 0 else []
    return _by_class(play, classes, kept)


def _divide(play: Play, place: str, factor: int) -> tuple[str, str]:
    """The loop over groups of ``factor`` iterations and the one inside a group; ``""`` for one that there is
    none of."""
    size = play.scope(place).size
    if factor == 1:
        return place, ""
    if size <= factor:
        return "", place
    outer, inner = play.must(
        "split_scope" if size % factor == 0 else "split_with_condition", place, factor=factor
    ).scopes
    return outer, inner


def _by_class(play: Play, classes: Sequence[str], order: Sequence[str]) -> list[str]:
    """A nest for each iteration of the loops over classes, with the other loops in order and without the
    iterations that no class has; those that do nothing are left out."""
    arrange(play, [*classes, *order])
    roots = [[*classes, *order][0]]
    for _ in classes:
        parts = [part for root in roots for part in cut(play, root, [1] * play.scope(root).size)]
        roots = [play.collapse(part) for part in parts]
    return [root for each in roots if (root := _trimmed(play, each))]


def _trimmed(play: Play, root: str) -> str:
    """The nest without iterations at the ends of each loop in which its condition fails; ``""`` if it always
    does."""
    for position in range(len(chain(play, root))):
        statement = play.scope(root).leaves[0].statement
        sizes = play.program.place_of[statement.id].sizes
        known = [decided(form, sizes, position) for form in statement.guard]
        does = [k for k in range(sizes[position]) if all(each[k] is not False for each in known)]
        if not does:
            play.must("drop_unreached", statement.id)
            return ""
        root, others = _range(play, root, position, does[0], does[-1] + 1)
        for other in others:
            play.must("drop_unreached", play.scope(other).leaves[0].statement.id)
        play.may("drop_condition", play.scope(root).leaves[0].statement.id)
    return root


def _range(play: Play, root: str, position: int, first: int, end: int) -> tuple[str, list[str]]:
    """The nest with the loop at a position from iteration ``first`` up to ``end``, and nests with the
    iterations before and behind."""
    loops, others = chain(play, root)[: position + 1], []
    place = loops[-1]
    size = play.scope(place).size
    if (first, end) == (0, size):
        return root, []
    move_outward(play, loops)
    if end < size:
        place, behind = play.split_range(place, end)
        others.append(behind)
    if first > 0:
        before, place = play.split_range(place, first)
        others.append(before)
    root = chain(play, place)[min(1, position)]
    move_inward(play, place, position)
    return root, others


def _first(play: Play, root: str, dims: Sequence[_Dim]) -> tuple[int, ...]:
    """The class of the results of a nest: for each dimension, the first result that such a class may have."""
    target = play.scope(root).leaves[0].statement.target
    pairs = zip(target.subscripts, dims, strict=True)
    return tuple([form.constant % (dim.step if dim.tap >= 0 else 1) for form, dim in pairs])


def _same_range(play: Play, start: str, total: str, dims: Sequence[_Dim]) -> str:
    """The part of a nest that starts results over those that another nest sums."""
    position = 0
    for number, dim in enumerate(dims):
        one, other = (play.scope(each).leaves[0].statement.target for each in (start, total))
        first = other.subscripts[number].constant - one.subscripts[number].constant
        count = play.scope(chain(play, total)[position]).size
        start, _ = _range(play, start, position, first // dim.step, first // dim.step + count)
        position += len(dim.loops)
    return start
