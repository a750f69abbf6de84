"""Drawings in which each group of elements has a character of its own, so that one run shows many faults.

A row of zeros shows a missing epsilon, a row far below zero a maximum that starts from a wrong value, one
large element at the end a loop that ends too early. A group is a set of elements that are reduced together
(:mod:`~perfdojo_sdk.verify.groups`): an overflow in one of them cannot hide a fault in another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, prod
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.core.dtypes import DIGITS
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
    "f32": Range(-149, -126, 127),
    "f64": Range(-1074, -1022, 1023),
}
#: Exponentials of numbers above this are infinite, and below its negative 0. f16 is computed in f32.
_EXPONENTIALS: Mapping[str, float] = {"f16": 130.0, "f32": 130.0, "f64": 800.0}
#: Most numbers that are drawn for one character; more repeat them.
_DRAWN = 1 << 18
#: The last positions of a group, at each of which a loop may end too early.
_TAIL = 33
#: NaN as arithmetic gives it, of either sign, since processors differ, and one with a payload.
NANS = tuple(
    float(bits.view(np.float64))
    for bits in np.array([0x7FF8 << 48, 0xFFF8 << 48, 0x7FF80000_20000000], np.uint64)
)
#: Numbers of less than 2^-4.7 of the limit that stay below it together, with room for many ordinary ones.
_SUMMED = 24
#: Special values of IEEE arithmetic.
SPECIALS = (np.nan, np.inf, -np.inf, -0.0, 0.0, *NANS[1:])
#: The share of special elements where no element can hide another.
_SPECIAL_SHARE = 0.5
#: Sizes of blocks at whose borders a loop may go wrong.
_BLOCKS = (4, 8, 16, 32, 64, 128, 256, 1024, 4096)


@dataclass(frozen=True)
class _Mixture:
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


_Character: TypeAlias = Callable[[_Mixture, Array], None]


def _plain(mixture: _Mixture, chosen: Array) -> None:
    """As drawn."""


def _constant(low: float, high: float) -> _Character:
    """Equal numbers."""

    def character(mixture: _Mixture, chosen: Array) -> None:
        count = len(chosen)
        mixture.factors[chosen] = 0
        mixture.terms[chosen] = mixture.powers(count, low, high) * mixture.signs(count)

    return character


def _around(centre: float) -> _Character:
    """Numbers around ``centre``: far enough from zero for ``exp`` to overflow or to underflow."""

    def character(mixture: _Mixture, chosen: Array) -> None:
        mixture.terms[chosen] = centre * mixture.rng.uniform(0.9, 1.5, len(chosen))

    return character


def _far(sign: int) -> _Character:
    """Numbers of one sign, as large as the dtype allows or nearly so."""

    def character(mixture: _Mixture, chosen: Array) -> None:
        most, count = mixture.range.largest, len(chosen)
        scale = mixture.powers(count, most * 0.3, most - 0.8)
        scale[::2] = mixture.powers(count, most - 1, most - 0.8)[::2]
        mixture.terms[chosen], mixture.factors[chosen] = sign * scale, scale / 16

    return character


def _lowest(mixture: _Mixture, chosen: Array) -> None:
    """Negative numbers near the lower end of the dtype's range."""
    most = mixture.range.largest
    scale = mixture.powers(len(chosen), most - 1, most - 0.8)
    mixture.terms[chosen], mixture.factors[chosen] = -scale, scale / 16


def _least(mixture: _Mixture, chosen: Array) -> None:
    """The dtype's lowest finite number, which shows a maximum that starts from a greater one."""
    mixture.terms[chosen], mixture.factors[chosen] = -mixture.largest, 0.0


def _scaled(low: float, high: float) -> _Character:
    """All elements of about one size, for example so small that an epsilon outweighs them."""

    def character(mixture: _Mixture, chosen: Array) -> None:
        mixture.factors[chosen] = mixture.powers(len(chosen), low, high)

    return character


def _dominated(
    position: Callable[[_Mixture, Array], Array], low: float, high: float, sign: int = 1
) -> _Character:
    """One element so much larger (or smaller) than the others that no sum of them is as large."""

    def character(mixture: _Mixture, chosen: Array) -> None:
        values = sign * (100 + mixture.powers(len(chosen), low, high))
        mixture.terms[chosen] = -sign * mixture.rng.choice([0.0, 30.0], len(chosen))
        mixture.set(chosen, position(mixture, chosen), mixture.finite(values))

    return character


def _first(mixture: _Mixture, chosen: Array) -> Array:
    return np.zeros(len(chosen), np.int64)


def _last(mixture: _Mixture, chosen: Array) -> Array:
    return np.full(len(chosen), mixture.groups.size - 1)


def _near_end(mixture: _Mixture, chosen: Array) -> Array:
    """Each of the last positions in turn."""
    turn = np.arange(len(chosen)) + mixture.rng.integers(_TAIL)
    return np.asarray(mixture.groups.size - 1 - turn % min(_TAIL, mixture.groups.size))


def _at_border(mixture: _Mixture, chosen: Array) -> Array:
    """The last element of a block or the first of the next."""
    size, count = mixture.groups.size, len(chosen)
    blocks = mixture.rng.choice(_BLOCKS, count)
    borders = blocks * mixture.rng.integers(1, np.maximum(size // blocks, 1) + 1)
    return np.asarray(np.clip(borders - mixture.rng.integers(0, 2, count), 0, size - 1))


def _mixed(low: Callable[[Range], float], high: Callable[[Range], float]) -> _Character:
    """Each element with a magnitude of its own."""

    def character(mixture: _Mixture, chosen: Array) -> None:
        mixture.set_all(chosen, low(mixture.range), high(mixture.range))

    return character


def _near_overflow(mixture: _Mixture, chosen: Array) -> None:
    """One element so large that a sum with a few like it overflows."""
    most = mixture.range.largest
    values = mixture.powers(len(chosen), most - 4, most + 0.9) * mixture.signs(len(chosen))
    mixture.set(chosen, _near_end(mixture, chosen), values)


def _anywhere(mixture: _Mixture, chosen: Array) -> Array:
    return mixture.rng.integers(0, mixture.groups.size, len(chosen))


def _large_in_all(mixture: _Mixture, chosen: Array) -> None:
    """Elements of about a sixteenth of the largest number, as many as no order of their sum can overflow."""
    numbers = np.repeat(chosen, _SUMMED)
    most, count = mixture.range.largest, len(numbers)
    values = mixture.powers(count, most - 3.95, most - 3.7) * mixture.rng.choice([-1.0, 1.0], count)
    mixture.set(numbers, _anywhere(mixture, numbers), values)


def _specials(*kinds: float, position: Callable[[_Mixture, Array], Array] = _near_end) -> _Character:
    """One infinity or NaN, or a zero of either sign."""

    def character(mixture: _Mixture, chosen: Array) -> None:
        mixture.set(chosen, position(mixture, chosen), np.resize(kinds, len(chosen)))

    return character


def _both_infinities(mixture: _Mixture, chosen: Array) -> None:
    """Their sum is NaN though no element is."""
    mixture.set(chosen, _first(mixture, chosen), np.full(len(chosen), np.inf))
    mixture.set(chosen, _last(mixture, chosen), np.full(len(chosen), -np.inf))


def _all(value: float) -> _Character:
    """Equal elements, each ``value``."""

    def character(mixture: _Mixture, chosen: Array) -> None:
        mixture.terms[chosen], mixture.factors[chosen] = value, 0

    return character


def _all_extreme(mixture: _Mixture, chosen: Array) -> None:
    """Equal elements, each the largest finite number or its negative."""
    mixture.terms[chosen], mixture.factors[chosen] = mixture.largest * mixture.signs(len(chosen)), 0


def _whole(mixture: _Mixture, chosen: Array) -> None:
    """Few different numbers whose mean is zero: several are the largest, and distances from another or from
    the mean are exactly zero."""
    at, size = mixture.groups.numbered(chosen), mixture.groups.size

    def change(first: Array) -> None:
        flat = np.rint(first[at]).reshape(len(chosen), size)
        half = size // 2
        if size > 1:
            flat[:, half:] = 0  # of an odd number, the one in the middle
            flat[:, size - half :] = -flat[:, :half][:, ::-1]
        first[at] = flat.reshape(first[at].shape)

    mixture.later.append(change)


def _ended(mixture: _Mixture, chosen: Array) -> None:
    """Few different numbers, zeros among them, and near the end NaN or an infinity, so that code which stops
    at a product of zero, or at any other result that seems final, is wrong."""
    _whole(mixture, chosen)
    mixture.set(chosen, _near_end(mixture, chosen), mixture.rng.choice([np.nan, np.inf], len(chosen)))


def _masked(mixture: _Mixture, chosen: Array) -> None:
    """-inf from some place on, as where a row of logits is masked; one element at least is left."""
    at, size = mixture.groups.numbered(chosen), mixture.groups.size
    kept = mixture.rng.integers(1, max(size, 2), len(chosen))

    def change(first: Array) -> None:
        flat = first[at].reshape(len(chosen), size)
        flat[np.arange(size) >= kept[:, None]] = -np.inf
        first[at] = flat.reshape(first[at].shape)

    mixture.later.append(change)


def _huge(mixture: _Mixture, chosen: Array) -> None:
    """One element in 64 and at least one up to the largest, so that products and sums may overflow."""
    numbers = np.repeat(chosen, max(1, mixture.groups.size // 64))
    count, most = len(numbers), mixture.range.largest
    values = mixture.powers(count, most * 0.48, most + 0.99) * mixture.rng.choice([-1.0, 1.0], count)
    mixture.set(numbers, mixture.rng.integers(0, mixture.groups.size, count), values)


def _cancelling(mixture: _Mixture, chosen: Array) -> None:
    """Neighbours are nearly each other's negative."""
    at = mixture.groups.numbered(chosen)

    def change(first: Array) -> None:
        if first.ndim == len(mixture.groups.kept):
            return
        group = first[at]
        pairs = group.shape[-1] // 2
        group[..., 1 : 2 * pairs : 2] = -group[..., : 2 * pairs : 2] * (1 + 2.0**-10)
        first[at] = group

    mixture.later.append(change)


#: The characters in the order in which groups get them. Their number is prime, so that a tile of groups gets
#: each of them at some time.
CHARACTERS: tuple[_Character, ...] = (
    _dominated(_last, 0, 4),
    _all(0.0),
    _around(-200),
    _scaled(-14, -7),
    _dominated(_last, 0, 4, -1),
    _far(-1),
    _dominated(_first, 0, 4),
    _mixed(lambda r: r.smallest, lambda r: r.largest),
    _constant(-10, 10),
    _dominated(_near_end, 0, 20),
    _far(1),
    _scaled(-74, -50),
    _around(200),
    _mixed(lambda r: -r.largest / 6, lambda r: r.largest / 2.2),
    _dominated(_at_border, 0, 4),
    _near_overflow,
    _specials(*NANS),
    _masked,
    _mixed(lambda r: r.smallest, lambda r: r.normal),
    _dominated(_near_end, 0, 4, -1),
    _around(-30),
    _specials(np.inf, -np.inf),
    _cancelling,
    _scaled(8, 20),
    _huge,
    _plain,
    _dominated(_last, 30, 60),
    _scaled(-9, -5),
    _specials(0.0, -0.0, np.inf, -np.inf, np.nan),
    _dominated(_first, 0, 20, -1),
    _dominated(_at_border, 0, 4, -1),
    _all(-np.inf),
    _whole,
    _specials(np.inf, -np.inf, position=_anywhere),
    _specials(*NANS, position=_anywhere),
    _both_infinities,
    _ended,
    _large_in_all,
    _dominated(_anywhere, 0, 4),
    _constant(-100, 100),
    _large_in_all,
    _all(np.inf),
    _all_extreme,
)


def _every_other(first: int) -> _Character:
    """Ordinary numbers, with NaN in every other group: code may leave its fast path for several at once."""
    nan = _specials(np.nan, position=_anywhere)
    return lambda mixture, chosen: nan(mixture, chosen[first::2])


#: Characters that all groups get at once, too: they show a wrong start of a reduction, a missing epsilon, and
#: effects of one group on another.
ALIKE: tuple[_Character, ...] = (
    _around(-200),
    _all(0.0),
    _lowest,
    _least,
    _every_other(0),
    _every_other(1),
)

#: Exponents that whole arrays are scaled by: denormal, far below and far above one, nearly the largest.
SCALES: tuple[Callable[[Range], int], ...] = (
    lambda r: (r.smallest + r.normal) // 2,
    lambda r: round(0.87 * r.normal),
    lambda r: round(0.4 * r.normal),
    lambda r: round(0.16 * r.largest),
    lambda r: r.largest - 2,
)
#: Drawings of one array in which each group has a scale of its own.
_SCALED_APART = 3
#: Drawings of one array that give results all scales: ``SCALES``, one with single elements, and those apart.
SCALINGS = len(SCALES) + 1 + _SCALED_APART


def scale(values: Array, groups: Groups, dtype: str, rng: Generator, number: int) -> None:
    """Scale all elements by the same factor; or leave one element in each group, so large that results come
    near the end of the range although no sum can overflow; or scale each group by a power of two, evenly over
    the range."""
    turn, reach = number % SCALINGS, RANGES[dtype]
    if turn < len(SCALES):
        values[...] = np.ldexp(values, np.int32(SCALES[turn](reach)))
        return
    if turn > len(SCALES):
        share = (rng.permutation(groups.count) + rng.random(groups.count)) / groups.count
        exponents = np.rint(reach.smallest + share * (reach.largest - 2 - reach.smallest))
        values[...] = np.ldexp(values, groups.each(exponents).astype(np.int32))
        return
    mixture = _mixture(values, groups, dtype, rng)
    chosen = np.arange(groups.count)
    values[...] = 0
    largest = mixture.powers(len(chosen), mixture.range.largest, mixture.range.largest + 0.5)
    mixture.set(chosen, _anywhere(mixture, chosen), largest * mixture.signs(len(chosen)))
    _finish(mixture, values)


def mix(values: Array, groups: Groups, dtype: str, rng: Generator, start: int = 0) -> None:
    """Give each group of normally distributed numbers a character; the first group the one at ``start``."""
    mixture = _mixture(values, groups, dtype, rng)
    for number, character in enumerate(CHARACTERS):
        first = (number - start) % len(CHARACTERS)
        if len(chosen := np.arange(first, groups.count, len(CHARACTERS))):
            character(mixture, chosen)
    _apply(mixture, values, dtype)


def mix_alike(values: Array, groups: Groups, dtype: str, rng: Generator, character: _Character) -> None:
    """Give all groups of normally distributed numbers one character."""
    mixture = _mixture(values, groups, dtype, rng)
    character(mixture, np.arange(groups.count))
    _apply(mixture, values, dtype)


def _apply(mixture: _Mixture, values: Array, dtype: str) -> None:
    groups = mixture.groups
    with np.errstate(over="ignore", under="ignore"):
        values *= groups.each(mixture.factors).astype(values.dtype)
        values += groups.each(mixture.terms).astype(values.dtype)
    if dtype == "f16":
        np.clip(values, -mixture.largest, mixture.largest, out=values, where=np.isfinite(values))
    _finish(mixture, values)


def _mixture(values: Array, groups: Groups, dtype: str, rng: Generator) -> _Mixture:
    largest = float(np.finfo(np.dtype("f2" if dtype == "f16" else values.dtype)).max)
    return _Mixture(groups, RANGES[dtype], rng, np.ones(groups.count), np.zeros(groups.count), largest)


def _finish(mixture: _Mixture, values: Array) -> None:
    first = mixture.groups.first(values)
    for change in mixture.later:
        change(first)


#: The groups, of every eight, whose largest element is far above the others, or equal to one or two of them.
_FAR, _TWO, _THREE = (0, 1, 2), (3, 4), (5,)


def level(values: Array, groups: Groups, dtype: str, rng: Generator) -> None:
    """Make of normally distributed numbers groups whose largest element is anywhere: of any value, at any
    position, alone, far above the others, or as large as one or two others. In some of the groups it is the
    smallest one. Where nothing is reduced, each element has any value.
    """
    if groups.apart:
        values[...] = _levels(values.size, dtype, rng).reshape(values.shape)
        _mix_in(values, SPECIALS, 1 / 64, rng)
        return
    first, order = groups.first(values), rng.permutation(groups.count)
    at = groups.numbered(order)
    flat = first[at].reshape(groups.count, groups.size).astype(np.float64)
    number = np.arange(groups.count)
    position = cycled = rng.permutation(groups.size)[number % groups.size]
    turn = number // groups.size + position
    top = _levels(groups.count, dtype, rng)[:, None]
    apart, near, close = (np.exp2(rng.uniform(*span, top.shape)) for span in ((5, 9), (-6, 7), (-12, 0)))
    distance = np.abs(flat) * np.where(rng.random(top.shape) < 0.5, near, np.abs(top) * close)
    # Exponentials of distances from the largest: where they begin another power of two.
    halfway = (turn // 8 % 8 == 5)[:, None]
    distance = np.where(halfway, _halfway(np.abs(flat) * 3, rng), distance)
    far = np.isin(turn % 8, _FAR)[:, None] & ~halfway
    flat = np.where(far, np.minimum(flat, top - apart), top - distance)
    for chosen in (number, *(number[np.isin(turn % 8, turns)] for turns in (_TWO, _THREE, _THREE))):
        flat[chosen, position[chosen]] = top[chosen, 0]
        position = rng.integers(0, groups.size, groups.count)
    flat[turn // 8 % 8 == 7] *= -1
    largest = float(np.finfo(np.dtype("f2" if dtype == "f16" else values.dtype)).max)
    flat = np.clip(flat, -largest, largest)
    # Infinities and NaN at each position in turn, in half of the groups with another one far from it.
    odd = number[turn // 8 % 8 == 3]
    for chosen, places in ((odd, cycled), (odd[::2], position)):
        flat[chosen, places[chosen]] = rng.choice([np.inf, -np.inf, *NANS], len(chosen))
    first[at] = flat.reshape(first[at].shape)


def _mix_in(values: Array, others: Sequence[float], share: float, rng: Generator) -> None:
    """Replace a share of the elements by others."""
    chosen = rng.random(values.shape, dtype=np.float32) < share
    np.copyto(values, rng.choice(np.array(others, values.dtype), values.shape), where=chosen)


def _halfway(steps: Array, rng: Generator) -> Array:
    """Numbers close to an odd multiple of ln(2)/2: there an exponential is taken of another remainder, times
    another power of two."""
    return np.asarray((np.rint(steps) + 0.5) * log(2) + rng.uniform(-2e-4, 2e-4, np.shape(steps)))


def _levels(count: int, dtype: str, rng: Generator) -> Array:
    """Numbers of both signs, evenly over the whole range of the dtype, more closely where limits of functions
    lie: over its powers of two around 1, and over the numbers whose exponential it holds, and some more; one
    in sixteen where exponentials begin another power of two, one close to 1, where logarithms are small."""
    reach = RANGES[dtype]
    share = (rng.permutation(count) + rng.random(count)) / max(count, 1)

    def powers(low: float, high: float, share: Array) -> Array:
        return np.asarray(np.exp2(low + np.abs(share) * (high - low)) * np.sign(share))

    parts = [share < 0.5, share < 0.8]
    within = np.select(parts, [share / 0.5, (share - 0.5) / 0.3], (share - 0.8) / 0.2) * 2 - 1
    around, whole = powers(-14, 10, within), powers(reach.smallest, reach.largest + 0.99, within)
    found = np.select(parts, [within * _EXPONENTIALS[dtype], around], whole)
    halfway = _halfway(rng.standard_normal(count) * 8, rng)
    near_one = 1 + np.exp2(-rng.uniform(1, DIGITS[dtype], count)) * np.sign(share)
    turn = rng.permutation(count) % 16
    return np.select([turn == 0, turn == 1], [halfway, near_one], found)


def spread(values: Array, dtype: str, rng: Generator) -> None:
    """Give each element a magnitude of its own, evenly over the whole range of the dtype, and either sign.
    One in eight is a power of two, one in eight the number right below one."""
    reach = RANGES[dtype]
    turn = rng.permutation(values.size).reshape(values.shape)
    share = (turn + rng.random(values.shape)) / max(values.size, 1)
    size = np.exp2(_at_powers(reach.smallest + share * (reach.largest + 0.99 - reach.smallest), turn // 2))
    with np.errstate(under="ignore"):
        np.copysign(size, 0.5 - turn % 2, out=values, casting="same_kind")
        below = turn // 2 % 8 == 7
        values[below] = np.nextafter(values[below], values.dtype.type(0))


def _at_powers(exponents: Array, turn: Array) -> Array:
    """The exponents, a quarter of them rounded down to whole numbers."""
    return np.where(turn % 8 >= 6, np.floor(exponents), exponents)


#: A number beside which an epsilon vanishes, and whose square, its mean, root and reciprocal are exact.
_LARGE_POWER = 2.0**20


def exact_numbers(values: Array, dtype: str, rng: Generator, literals: Sequence[float] = ()) -> None:
    """Numbers over the whole range of the dtype, of either sign, that arithmetic seldom gives: powers of two,
    the ends of the dtype and of its normal range, zeros, small whole numbers and halves, and ``literals``,
    with the neighbours of these on both sides; some ordinary."""
    native = np.dtype("f2") if dtype == "f16" else values.dtype
    reach, count = RANGES[dtype], values.size
    # References compute in f64: near its own end they have no room for an error bound.
    top = min(reach.largest, 1000)
    share = (rng.permutation(count) + rng.random(count)) / max(count, 1)
    exponents = reach.smallest + np.floor(share * (top + 1 - reach.smallest))
    kind = rng.permutation(count) % 8
    size = np.ldexp(np.ones(count), exponents.astype(np.int32)).astype(native)
    below, above = np.nextafter(size, native.type(0)), np.nextafter(size, native.type(np.inf))
    # Ordinary ones of any size, of those with a whole part and another one, and of those with an exponential.
    partly = np.exp2(rng.uniform(-1, 1, count) * DIGITS[dtype])
    scales = np.choose(rng.integers(0, 3, count), [size, partly, np.full(count, _EXPONENTIALS[dtype] / 2)])
    ordinary = (scales * (1 + rng.random(count))).astype(native)
    limits = np.finfo(native)
    least, normal = np.nextafter(native.type(0), native.type(1)), limits.smallest_normal
    largest = limits.max if top == reach.largest else native.type(np.ldexp(1.0, top))
    ends = rng.choice(np.array([largest, normal, normal - least, least], native), count)
    given = np.array([*np.arange(1, 8) / 2, 5, 10, *literals], native)
    given = np.concatenate(
        [given, np.nextafter(given, native.type(0)), np.nextafter(given, native.type(np.inf))]
    )
    told = np.where(rng.random(count) < 0.3, ordinary, rng.choice(given, count))
    several = [kind < 2, kind < 4, kind == 4, kind == 5, kind == 6]
    chosen = np.select(several, [size, below, above, ends, np.zeros_like(size)], told)
    values[...] = np.copysign(chosen, rng.choice([-1.0, 1.0], count)).reshape(values.shape)


def single(values: Array, groups: Groups, dtype: str, rng: Generator, literals: Sequence[float] = ()) -> None:
    """Exact numbers that pass through sums unchanged. A quarter of the groups have one such number and
    otherwise zeros, another quarter the same times the size of the group, so that the mean is the number; the
    others have such numbers only. One in 32 has an infinity or NaN, which often meets a zero of another
    array."""
    exact_numbers(values, dtype, rng, literals)
    odd = (np.inf, -np.inf, *NANS)
    if groups.size == 1 or groups.apart:
        _mix_in(values, odd, 1 / 32, rng)
        return
    mixture = _mixture(values, groups, dtype, rng)
    turn = rng.permutation(groups.count) % 4
    for chosen, factor in ((np.flatnonzero(turn == 0), 1), (np.flatnonzero(turn == 1), groups.size)):
        numbers = np.empty(len(chosen), values.dtype)
        exact_numbers(numbers, dtype, rng, literals)
        with np.errstate(over="ignore"):
            numbers = mixture.finite(numbers * values.dtype.type(factor))
        first, at = groups.first(values), groups.numbered(chosen)
        first[at] = 0
        mixture.set(chosen, _anywhere(mixture, chosen), numbers)
    chosen = np.flatnonzero(rng.permutation(groups.count) % 32 == 0)
    mixture.set(chosen, _anywhere(mixture, chosen), rng.choice(odd, len(chosen)))
    _finish(mixture, values)


def select_one(values: Array, groups: Groups, rng: Generator) -> None:
    """Factors that let the numbers of another array pass through sums of products unchanged: half of the
    groups have a single 1 (or a large power of two) and otherwise zeros, a quarter only zeros of either sign,
    an eighth only ones, an eighth only the large power."""
    if groups.apart:
        groups = Groups(groups.shape, tuple(range(values.ndim)))
    turn = rng.permutation(groups.count) % 8
    values[...] = groups.each(np.select([turn == 5, turn == 6, turn == 7], [-0.0, 1.0, _LARGE_POWER], 0.0))
    chosen = np.flatnonzero(turn < 4)
    ones = np.where(turn[chosen] == 3, _LARGE_POWER, 1.0)
    groups.first(values)[groups.places(chosen, rng.integers(0, groups.size, len(chosen)))] = ones


def enlarge_some(values: Array, groups: Groups, dtype: str, rng: Generator) -> None:
    """Make numbers of every fourth group huge."""
    mixture = _mixture(values, groups, dtype, rng)
    _huge(mixture, np.arange(rng.integers(4) if groups.count >= 4 else 0, groups.count, 4))
    _finish(mixture, values)


def insert_specials(values: Array, groups: Groups, dtype: str, rng: Generator, start: int = 0) -> None:
    """One infinity, NaN or zero in every fourth group; each kind at least once where groups allow it.

    If nothing is reduced, many elements are special or as large as possible: those of two arrays meet.
    """
    mixture = _mixture(values, groups, dtype, rng)
    if groups.apart:
        kinds = (*SPECIALS, mixture.largest, -mixture.largest)
        _mix_in(values, kinds, _SPECIAL_SHARE, rng)
        return
    turned = np.roll(SPECIALS, -start)
    step = max(1, min(4, groups.count // len(turned)))
    _specials(*turned)(mixture, np.arange(0, groups.count, step))
    _finish(mixture, values)
