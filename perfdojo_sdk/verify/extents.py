"""The sizes of a program that can shrink, and the program with one of them smaller.

Sizes belong to *extents*: a scope and the array dimensions that its iterator alone indexes have the same
size and shrink together, also where it runs backwards; a dimension that is written in steps, or in groups,
shrinks by as much for each iteration. Conditions of accumulations, such as padding, keep their place at
both ends of a range. Other literals stay: a mean over 512 elements divides by 512 before and after the
moves, at any shape. So do tables, of which shorter loops read fewer elements. Of a large input whose rows
are chosen at run time, few rows stay, and the literals in its run-time indices that say how many it has
follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from perfdojo_sdk.core.expression import Access, AffineExpr, Expression, Literal, Read, map_expression
from perfdojo_sdk.core.geometry import index_values
from perfdojo_sdk.core.lookups import Lookup, clamped, lookups_in
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer

SizeKey: TypeAlias = Path | tuple[str, int]
"""The place of a size: a scope's path, or a buffer's name and a dimension's position."""

#: Most cells of an input whose rows are chosen at run time; of a larger one, so many rows stay.
_MOST_CHOSEN, _CHOSEN_ROWS = 1 << 14, 8
#: Most iterations by which loops over one dimension may differ, as over an array with a border and what is
#: inside of that; phases may differ by one.
_APART = 8


@dataclass(frozen=True)
class Extent:
    """Places that shrink together."""

    places: Mapping[SizeKey, int]
    """Place -> how much it shrinks when those of the least weight, 1, shrink by one."""
    size: int
    """The least size of those of weight 1."""

    def united(self, other: Extent) -> Extent | None:
        """Both as one, in which they keep the ratio of their sizes; None where that is no whole number."""
        less, more = sorted((self, other), key=lambda extent: extent.size)
        ratio, rest = divmod(more.size, less.size)
        if rest:
            return None
        return Extent({**less.places, **{k: ratio * weight for k, weight in more.places.items()}}, less.size)


def extents(root: Program) -> list[Extent]:
    """The sizes of a root program that can shrink, largest first."""
    sizes = sizes_of(root)
    groups = _Groups(sizes)
    pinned: list[SizeKey] = []
    in_parts = _read_in_parts(root)
    kept = {root.buffer_of[array].name for array in root.in_out}
    filled = _filled(root)
    margins = set[SizeKey]()
    for place, subscript, path, writes in _subscripts(root):
        if place in in_parts or place[0] in root.tables:
            pinned.append(place)  # what reads it may shrink without it
            continue
        scopes = [path[: level + 1] for level in sorted(subscript.levels)]
        leading = _leading(subscript, [sizes[path[: level + 1]] for level in range(len(path) - 1)])
        if _walks_all(subscript, path, sizes, place):
            pinned += groups.join(place, scopes[0])
        elif scopes and writes and (place[0] in kept or place in filled) and _is_shifted(subscript):
            # Other cells keep their values, or what is written to all of them.
            pinned += groups.join(place, scopes[0])
            margins.add(place)
        elif writes and leading is not None:
            level, step = leading
            pinned += groups.join(place, path[: level + 1], step)
            pinned += [path[: other + 1] for other in subscript.levels if other != level]
        else:
            # Any other form does not tell the dimension's size; and if it is written, fewer
            # iterations would leave cells unwritten.
            pinned += [*([place] if writes or place not in filled else []), *(scopes if writes else [])]
    pinned += _counted(root)
    fixed = {groups.leader(place)[0] for place in pinned}
    found = [_extent(ws, sizes, margins) for leader, ws in groups.members().items() if leader not in fixed]
    return sorted((each for each in found if each is not None), key=lambda extent: -extent.size)


def _filled(root: Program) -> set[SizeKey]:
    """Dimensions that some statement writes from end to end."""
    sizes = sizes_of(root)
    return {
        place
        for place, form, path, writes in _subscripts(root)
        if writes and _walks(form, sizes[place]) and sizes[path[: form.highest + 1]] == sizes[place]
    }


def _is_shifted(subscript: AffineExpr) -> bool:
    """True if a subscript is a scope's iterator and a constant."""
    return subscript == AffineExpr.of({subscript.highest: 1}, subscript.constant)


def _is_reversed(subscript: AffineExpr, size: int) -> bool:
    """True if a subscript of a dimension of this size runs backwards, from its last element on."""
    return bool(subscript.levels) and subscript == AffineExpr.of({subscript.highest: -1}, size - 1)


def _walks(subscript: AffineExpr, size: int) -> bool:
    """True if a subscript of a dimension of this size is a scope's iterator, or runs backwards with it."""
    forwards = bool(subscript.levels) and subscript == AffineExpr.level(subscript.highest)
    return forwards or _is_reversed(subscript, size)


def _walks_all(subscript: AffineExpr, path: Path, sizes: Mapping[SizeKey, int], place: SizeKey) -> bool:
    """True if a subscript walks through about the whole of a dimension, and not only its first part."""
    walks = _walks(subscript, sizes[place])
    return walks and sizes[place] - sizes[path[: subscript.highest + 1]] <= _APART


def _read_in_parts(root: Program) -> set[SizeKey]:
    """Dimensions of arrays that are only read, some of them elsewhere than at a scope's iterator or only in
    their first part, such as the rows of one gate in the weights of all gates."""
    sizes = sizes_of(root)
    written = {place for place, _, _, writes in _subscripts(root) if writes}
    return {
        place
        for place, subscript, path, _ in _subscripts(root)
        if place not in written and not _walks_all(subscript, path, sizes, place)
    }


def _leading(subscript: AffineExpr, sizes: Sequence[int]) -> tuple[int, int] | None:
    """Level and coefficient of the term whose steps the rest of a form does not reach across, if there is
    one: the form then counts parts of a dimension, such as phases, or channels of groups."""
    if subscript.quotients or not subscript.terms:
        return None
    level, step = max(subscript.terms, key=lambda term: term[1])
    rest = subscript.plus(AffineExpr.level(level), -step)
    low, high = rest.bounds(sizes)
    return (level, step) if step > 1 and low >= 0 and high < step else None


def _extent(
    weights: Mapping[SizeKey, Fraction], sizes: Mapping[SizeKey, int], margins: Set[SizeKey]
) -> Extent | None:
    """The extent of a group of places; None where one of them has a reason of its own for its size, such as
    a loop over a part of a dimension. ``margins``: dimensions that may be larger."""
    least = min(weights.values())
    counts = {place: weight / least for place, weight in weights.items()}
    parts = [sizes[place] / count for place, count in counts.items() if place not in margins]
    most = 1 if max(counts.values()) > 1 else _APART
    if any(count.denominator > 1 for count in counts.values()) or max(parts) - min(parts) > most:
        return None
    size = min(sizes[place] for place, count in counts.items() if count == 1)
    return Extent({place: int(count) for place, count in counts.items()}, size)


def sizes_of(root: Program) -> Mapping[SizeKey, int]:
    sizes: dict[SizeKey, int] = {path: n.size for path, n in root.walk() if isinstance(n, Scope)}
    for buffer in root.buffers:
        sizes |= {(buffer.name, k): dimension.size for k, dimension in enumerate(buffer.dimensions)}
    return sizes


def _subscripts(root: Program) -> Iterator[tuple[SizeKey, AffineExpr, Path, bool]]:
    """Every subscript: its dimension, itself without loops that run once beside others, its statement's path,
    whether it is written through."""
    for name, occurrences in root.occurrences.items():
        for occurrence in occurrences:
            for k, subscript in enumerate(occurrence.access.subscripts):
                yield (name, k), _moving(subscript, occurrence.sizes), occurrence.path, occurrence.writes


def _moving(subscript: AffineExpr, sizes: Sequence[int]) -> AffineExpr:
    """The subscript without the terms of loops that run once, unless it has no others."""
    kept = [(level, step) for level, step in subscript.terms if sizes[level] > 1]
    if not kept or len(kept) == len(subscript.terms):
        return subscript
    return AffineExpr.of(dict(kept), subscript.constant, subscript.quotients)


def _counted(root: Program) -> Iterator[Path]:
    """Scopes whose iterators take part in quotients, or in conditions that say which elements are written:
    there a size is also a number. Conditions of accumulations move with their ranges."""
    for path, node in root.walk():
        if isinstance(node, Statement):
            forms = [q.dividend for form in _forms(node) for q, _ in form.divisions]
            indices = [i for lookup in node.lookups for i in index_values(lookup.value)]
            forms += [index.index for index in indices]
            for form in (*(() if node.accumulate else node.guard), *forms):
                yield from (path[: level + 1] for level in form.levels)


def _forms(statement: Statement) -> Iterator[AffineExpr]:
    yield from statement.guard
    for access in (statement.target, *statement.every_read):
        yield from access.subscripts
    yield from (value.index for value in index_values(statement.value))


class _Groups:
    """Disjoint sets of places, each with its weight beside the set's leader."""

    def __init__(self, places: Iterable[SizeKey]) -> None:
        self.parent: dict[SizeKey, tuple[SizeKey, Fraction]] = {
            place: (place, Fraction(1)) for place in places
        }

    def leader(self, place: SizeKey) -> tuple[SizeKey, Fraction]:
        weight = Fraction(1)
        while self.parent[place][0] != place:
            place, factor = self.parent[place]
            weight *= factor
        return place, weight

    def join(self, a: SizeKey, b: SizeKey, weight: int = 1) -> list[SizeKey]:
        """Make ``a`` weigh ``weight`` times as much as ``b``; the places for which that cannot be."""
        (one, of_one), (other, of_other) = self.leader(a), self.leader(b)
        if one == other:
            return [] if of_one == weight * of_other else [a]
        self.parent[one] = (other, weight * of_other / of_one)
        return []

    def members(self) -> Mapping[SizeKey, Mapping[SizeKey, Fraction]]:
        found: dict[SizeKey, dict[SizeKey, Fraction]] = {}
        for place in self.parent:
            leader, weight = self.leader(place)
            found.setdefault(leader, {})[place] = weight
        return found


def resized(root: Program, extent: Extent, size: int) -> Program:
    """``root`` with the places of an extent shrunk until one is of this size; windows that slide over it,
    what runs over it backwards, and conditions at its end, follow."""
    less = {place: weight * (extent.size - size) for place, weight in extent.places.items()}

    def guard(form: AffineExpr, path: Path) -> AffineExpr:
        moved = sum(less.get(path[: level + 1], 0) * c for level, c in form.terms if c < 0)
        return form.plus(AffineExpr.of({}, moved))

    def access(found: Access) -> Access:
        buffer, forms = root.buffer_of[found.array], list(found.subscripts)
        for k, form in enumerate(forms):
            if (buffer.name, k) in less and _is_reversed(form, buffer.dimensions[k].size):
                forms[k] = form.plus(AffineExpr.of({}, -less[buffer.name, k]))
        return Access(found.array, tuple(forms))

    def read(leaf: Expression) -> Expression:
        return Read(access(leaf.access), leaf.dtype) if isinstance(leaf, Read) else leaf

    def tree(node: Node, path: Path) -> Node:
        if not isinstance(node, Scope):
            guards = tuple(guard(form, path) for form in node.guard)
            value = map_expression(node.value, read)
            return replace(node, guard=guards, target=access(node.target), value=value)
        body = tuple(tree(child, (*path, k)) for k, child in enumerate(node.body))
        return Scope(node.size - less.get(path, 0), body, node.suffix, node.id)

    body = tuple(tree(node, (k,)) for k, node in enumerate(root.body))

    def place(buffer: Buffer) -> Buffer:
        return _sized(buffer, lambda k, old: old - less.get((buffer.name, k), 0))

    changed = Program(root.name, root.inputs, root.outputs, tuple(map(place, root.buffers)), body)
    before, after = _reach(root), _reach(changed)

    def window(buffer: Buffer) -> Buffer:
        """The buffer with dimensions resized so that subscripts that filled them fill them again; a table
        keeps all of its elements."""
        if buffer.values is not None:
            return buffer
        return _sized(
            buffer, lambda k, old: after[buffer.name, k] if before.get((buffer.name, k)) == old else None
        )

    return replace(changed, buffers=tuple(window(buffer) for buffer in changed.buffers))


def _sized(buffer: Buffer, size: Callable[[int, int], int | None]) -> Buffer:
    """The buffer with new sizes for the dimensions for which ``size(position, old size)`` has one."""
    sizes = [size(k, dimension.size) for k, dimension in enumerate(buffer.dimensions)]
    new = [replace(d, size=s) if s else d for d, s in zip(buffer.dimensions, sizes, strict=True)]
    return replace(buffer, dimensions=tuple(new))


def _reach(root: Program) -> Mapping[tuple[str, int], int]:
    """For every dimension one more than the largest subscript that conditions let through."""
    reach: dict[tuple[str, int], int] = {}
    for name, occurrences in root.occurrences.items():
        for occurrence in occurrences:
            guards = occurrence.statement.guard
            for k, subscript in enumerate(occurrence.access.subscripts):
                # A condition of the form `limit - subscript >= 0` says how far the subscript reaches.
                sums = [guard.plus(subscript) for guard in guards]
                limits = [total.constant for total in sums if not total.levels]
                most = min([subscript.bounds(occurrence.sizes)[1], *limits])
                reach[name, k] = max(reach.get((name, k), 0), most + 1)
    return reach


# -- inputs whose rows are chosen at run time --------------------------------------------------------


def with_few_rows(root: Program) -> Program:
    """``root`` with few rows of each large input whose rows only clamped run-time indices choose; the very
    same program if it has none."""
    sizes = _chosen(root)
    if not sizes:
        return root

    def read(leaf: Expression) -> Expression:
        if not isinstance(leaf, Read):
            return leaf
        access, name = leaf.access, root.buffer_of[leaf.access.array].name
        forms = [
            _in_few_rows(form, sizes[name, k]) if (name, k) in sizes else form
            for k, form in enumerate(access.subscripts)
        ]
        return Read(Access(access.array, tuple(forms)), leaf.dtype)

    def tree(node: Node) -> Node:
        if isinstance(node, Scope):
            return Scope(node.size, tuple(map(tree, node.body)), node.suffix, node.id)
        return replace(node, value=map_expression(node.value, read))

    def place(buffer: Buffer) -> Buffer:
        return _sized(buffer, lambda k, _: _CHOSEN_ROWS if (buffer.name, k) in sizes else None)

    body, buffers = tuple(map(tree, root.body)), tuple(map(place, root.buffers))
    return Program(root.name, root.inputs, root.outputs, buffers, body)


def _chosen(root: Program) -> Mapping[tuple[str, int], int]:
    """Dimensions of large inputs that only clamped run-time indices go through, with their sizes."""
    found: dict[tuple[str, int], int] = {}
    for array in root.inputs:
        buffer = root.buffer_of[array]
        if buffer.values is not None or buffer.cells <= _MOST_CHOSEN:
            continue
        forms = [occurrence.access.subscripts for occurrence in root.occurrences[buffer.name]]
        for k, dimension in enumerate(buffer.dimensions):
            if dimension.size > _CHOSEN_ROWS and all(_clamps(each[k], dimension.size) for each in forms):
                found[buffer.name, k] = dimension.size
    return found


def _clamps(form: AffineExpr, size: int) -> bool:
    """True if a subscript is nothing but a run-time index, clamped to a dimension of this size."""
    lookups = lookups_in(form)
    if len(lookups) != 1 or form != AffineExpr.of({}, 0, ((lookups[0], 1),)):
        return False
    ends = clamped(lookups[0].value)
    return ends is not None and ends[1:] == (0, size - 1)


def _in_few_rows(form: AffineExpr, size: int) -> AffineExpr:
    """The subscript with the literals that say how many rows there are, or which is the last, changed."""
    few = {size: _CHOSEN_ROWS, size - 1: _CHOSEN_ROWS - 1, -size: -_CHOSEN_ROWS}

    def literal(leaf: Expression) -> Expression:
        if not isinstance(leaf, Literal):
            return leaf
        return Literal(few.get(int(leaf.value), leaf.value), leaf.dtype)

    [lookup] = lookups_in(form)
    value = map_expression(lookup.value, literal)
    return AffineExpr.of({}, 0, ((Lookup(value, lookup.tables), 1),))
