"""Arrays whose groups of elements are each drawn in a way of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.core.dtypes import largest
from perfdojo_sdk.verify.groups import Array, Groups

Generator: TypeAlias = np.random.Generator


@dataclass(frozen=True)
class Range:
    """Binary exponents of a dtype: of its smallest number, of its smallest normal one, of its largest."""

    smallest: int
    normal: int
    largest: int


RANGES: Mapping[str, Range] = {
    "f16": Range(-24, -14, 15),
    "bf16": Range(-133, -126, 127),
    "f32": Range(-149, -126, 127),
    "f64": Range(-1074, -1022, 1023),
}
#: Most numbers that are drawn for one character; more repeat them.
_DRAWN = 1 << 18
#: NaN as arithmetic gives it, of either sign, since processors differ, and one with a payload.
NANS = tuple(
    float(bits.view(np.float64))
    for bits in np.array([0x7FF8 << 48, 0xFFF8 << 48, 0x7FF80000_20000000], np.uint64)
)
#: Special values of IEEE arithmetic.
SPECIALS = (np.nan, np.inf, -np.inf, -0.0, 0.0, *NANS[1:])


@dataclass(frozen=True)
class Mixture:
    """A transformation of an array of normally distributed numbers x: factor * x + term in each group, then
    some elements set to special values."""

    groups: Groups
    range: Range
    rng: Generator
    factors: Array
    terms: Array
    largest: float
    later: list[Callable[[Array], None]] = field(default_factory=list)
    """Functions applied to the array with the dimensions of the groups in front."""

    def powers(self, count: int, low: float, high: float) -> Array:
        """Positive numbers with exponents of that range, as far as the dtype has them."""
        low, high = max(low, self.range.smallest), min(high, self.range.largest + 0.99)
        return np.asarray(np.exp2(self.rng.uniform(min(low, high), high, count)))

    def signs(self, count: int) -> Array:
        return np.asarray(np.resize([1.0, -1.0], count) * self.rng.choice([-1.0, 1.0]))

    def set(self, chosen: Array, positions: Array, values: Array) -> None:
        """One element of each of the groups ``chosen``, which may name a group more than once."""
        places = self.groups.places(chosen, positions)

        def change(first: Array) -> None:
            first[places] = values

        self.later.append(change)

    def finite(self, values: Array) -> Array:
        return np.clip(values, -self.largest, self.largest)

    def set_all(self, chosen: Array, low: float, high: float) -> None:
        """All elements of the groups ``chosen``, with exponents from ``low`` to ``high`` and either sign."""
        at, shape = self.groups.numbered(chosen), (len(chosen), *self.groups.rest())
        count = min(prod(shape), _DRAWN)
        block = self.powers(count, low, high) * self.rng.choice([-1.0, 1.0], count)

        def change(first: Array) -> None:
            first[at] = np.resize(block.astype(first.dtype), shape if at else shape[1:])

        self.later.append(change)


def anywhere(mixture: Mixture, chosen: Array) -> Array:
    return mixture.rng.integers(0, mixture.groups.size, len(chosen))


def mixture_of(values: Array, groups: Groups, dtype: str, rng: Generator) -> Mixture:
    ones, zeros = np.ones(groups.count), np.zeros(groups.count)
    return Mixture(groups, RANGES[dtype], rng, ones, zeros, largest(dtype))


def finish(mixture: Mixture, values: Array) -> None:
    first = mixture.groups.first(values)
    for change in mixture.later:
        change(first)


def mix_in(values: Array, others: Sequence[float], share: float, rng: Generator) -> None:
    """Replace a share of the elements by others."""
    chosen = rng.random(values.shape, dtype=np.float32) < share
    np.copyto(values, rng.choice(np.array(others, values.dtype), values.shape), where=chosen)
