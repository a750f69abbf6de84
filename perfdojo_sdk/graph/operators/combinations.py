"""Elements that are weighted sums of others along one axis: resized images, paddings, picked elements.

Elements that are made in one way in equal steps become one nest. Where that takes more than a few, the places
and weights of all of them are constant arrays, and one nest reads its elements at run-time indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float, levels, number

#: Most elements along an axis whose places, and most places, that are looked at one by one.
MOST_ROWS, MOST_TAPS = 2**16, 2**20
FEW_ROWS = 2**12
#: Most nests of one kernel.
MOST_NESTS = 1000
#: Most nests of a kernel that reads no constant arrays instead.
FEW_NESTS = 8
#: Most weighted elements that are written as one sum.
FEW_TAPS = 4

Taps: TypeAlias = tuple[tuple[int, float], ...]
"""The elements along an axis that an element of the result is made of, with their weights."""


@dataclass(frozen=True)
class _Run:
    """Elements of the result in equal steps, made in one way of elements that are in equal steps, too."""

    start: int
    step: int
    count: int
    taps: Taps
    """Taps of the first element."""
    moves: int
    """Step of the taps' places."""


def along(b: Builder, name: str, x: Value, axis: int, rows: Sequence[Taps], fill: float = 0.0) -> Value:
    """Each element along an axis as a weighted sum of elements of ``x``; of none, it is ``fill``."""
    size = x.shape[axis]
    for taps in rows:
        if any(not 0 <= place < size for place, _ in taps):
            raise Malformed(f"an element outside of axis {axis} of {x.text}")
    if list(rows) == [((n, 1.0),) for n in range(size)]:
        return x
    runs = _best_runs(rows)
    if len(runs) > FEW_NESTS and all(rows):
        return _at_places(b, name, x, axis, rows)
    if len(runs) > MOST_NESTS:
        what = f"{name} of {x.text} along axis {axis} takes {len(runs)} nests"
        raise Refused(Reason.SIZE, what, f"a kernel has at most {MOST_NESTS}")
    return _in_nests(b, name, x, axis, len(rows), runs, fill)


def _in_nests(
    b: Builder, name: str, x: Value, axis: int, count: int, runs: Sequence[_Run], fill: float
) -> Value:
    """A nest for each run."""
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    k = Writer(b, name)
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(x.rank)
    for run in runs:
        target = [*names]
        target[axis] = affine((names[axis], run.step), run.start)
        sizes = [*shape]
        sizes[axis] = run.count
        plain = len(run.taps) == 1 and run.taps[0][1] == 1.0
        terms = []
        for place, weight in run.taps:
            source = [*names]
            source[axis] = affine((names[axis], run.moves), place)
            terms.append(a(source) if plain else _weighted(a.load(source), weight, x.dtype))
        if not terms:
            text = y.number(fill)
        else:
            text = terms[0] if plain else y.store(" + ".join(terms))
        k.nest(sizes, f"{y(target)} = {text}")
    return k.done()[0]


def _at_places(b: Builder, name: str, x: Value, axis: int, rows: Sequence[Taps]) -> Value:
    """One nest for all rows, whose places and weights are arrays with a row for each tap."""
    most = max(map(len, rows))
    padded = [_padded(taps, most) for taps in rows]
    kind = computed_in(x.dtype)
    plain = most == 1 and all(taps[0][1] == 1.0 for taps in padded)
    if not plain and not is_float(x.dtype):
        raise Refused(Reason.DTYPE, f"weights for elements of {x.dtype}")
    shape = (*x.shape[:axis], len(rows), *x.shape[axis + 1 :])
    k = Writer(b, name)
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(x.rank)
    places = k.read(b.constant(np.array([[p for p, _ in taps] for taps in padded], np.int32).T.copy()))

    def element(tap: str | int) -> str:
        source = [*names]
        source[axis] = f"clamp({places([tap, names[axis]])}, 0, {x.shape[axis] - 1})"
        return a(source) if plain else a.load(source)

    if plain:
        k.nest(shape, f"{y(names)} = {element(0)}")
        return k.done()[0]
    numbers = np.array([[w for _, w in taps] for taps in padded], numpy_dtype(kind)).T.copy()
    weights = k.read(b.constant(numbers))

    def term(tap: str | int) -> str:
        return f"{weights([tap, names[axis]])} * {element(tap)}"

    if most <= FEW_TAPS:
        k.nest(shape, f"{y(names)} = {y.store(' + '.join(map(term, range(most))))}")
        return k.done()[0]
    k.sums(y, [most], term(f"{{{x.rank}}}"))
    return k.done()[0]


def _padded(taps: Taps, count: int) -> Taps:
    """The taps of a row, of which there are to be ``count``: the last one in parts that are powers of two of
    it, so that their sum is the same to the bit. A weight of 0 would make a NaN of an infinite element."""
    place, weight = taps[-1]
    more = count - len(taps)
    parts = [weight / 2 ** (k + 1) for k in range(more)] + [weight / 2**more]
    return (*taps[:-1], *((place, part) for part in parts))


def _weighted(text: str, weight: float, dtype: str) -> str:
    if not is_float(dtype):
        raise Refused(Reason.DTYPE, f"weights for elements of {dtype}")
    return text if weight == 1.0 else f"{number(weight, 'f64')} * {text}"


def _best_runs(rows: Sequence[Taps]) -> list[_Run]:
    """The fewest runs that a period of 1 to 32 gives; the first few enough, if there are many rows."""
    best = _runs(rows, 1, MOST_NESTS + 1)  # one more is too many in any case
    for period in range(2, min(32, max(len(rows), 1)) + 1):
        if len(rows) > FEW_ROWS and len(best) <= 2 * period:
            break
        found = _runs(rows, period, len(best))
        best = found if len(found) < len(best) else best
    return best


def _runs(rows: Sequence[Taps], period: int, most: int) -> list[_Run]:
    """The runs of a period; of more than ``most`` only so many."""
    chains = (_chain(rows, first, period) for first in range(min(period, len(rows))))
    return list(islice(chain.from_iterable(chains), most))


def _chain(rows: Sequence[Taps], first: int, period: int) -> Iterator[_Run]:
    at = first
    while at < len(rows):
        taps, count = rows[at], 1
        moves = _moved(taps, rows[at + period]) if at + period < len(rows) else 0
        while moves is not None and at + count * period < len(rows):
            here = tuple((place + count * moves, weight) for place, weight in taps)
            if rows[at + count * period] != here:
                break
            count += 1
        yield _Run(at, period if count > 1 else 0, count, taps, (moves or 0) if count > 1 else 0)
        at += count * period


def _moved(one: Taps, other: Taps) -> int | None:
    """The distance of the second row's places from those of the first; None if it is no move of it."""
    if len(one) != len(other):
        return None
    if not one:
        return 0
    distance = other[0][0] - one[0][0]
    return distance if all(b == (p + distance, w) for (p, w), b in zip(one, other, strict=True)) else None
