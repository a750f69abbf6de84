"""Drawings that cover a dtype: each size of numbers, and numbers that arithmetic seldom gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log

import numpy as np

from perfdojo_sdk.core.dtypes import DIGITS, largest, smallest_normal
from perfdojo_sdk.verify.groups import Array, Groups
from perfdojo_sdk.verify.mixture import (
    NANS,
    RANGES,
    SPECIALS,
    Generator,
    Range,
    anywhere,
    finish,
    mix_in,
    mixture_of,
)

#: Exponentials of numbers above this are infinite, and below its negative 0. f16 is computed in f32.
EXPONENTIALS: Mapping[str, float] = {"f16": 130.0, "bf16": 130.0, "f32": 130.0, "f64": 800.0}
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
    mixture = mixture_of(values, groups, dtype, rng)
    chosen = np.arange(groups.count)
    values[...] = 0
    largest = mixture.powers(len(chosen), mixture.range.largest, mixture.range.largest + 0.5)
    mixture.set(chosen, anywhere(mixture, chosen), largest * mixture.signs(len(chosen)))
    finish(mixture, values)


#: The groups, of every eight, whose largest element is far above the others, or equal to one or two of them.
_FAR, _TWO, _THREE = (0, 1, 2), (3, 4), (5,)


def level(values: Array, groups: Groups, dtype: str, rng: Generator) -> None:
    """Make of normally distributed numbers groups whose largest element is anywhere: of any value, at any
    position, alone, far above the others, or as large as one or two others. In some of the groups it is the
    smallest one. Where nothing is reduced, each element has any value.
    """
    if groups.apart:
        values[...] = _levels(values.size, dtype, rng).reshape(values.shape)
        mix_in(values, SPECIALS, 1 / 64, rng)
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
    flat = np.clip(flat, -largest(dtype), largest(dtype))
    # Infinities and NaN at each position in turn, in half of the groups with another one far from it.
    odd = number[turn // 8 % 8 == 3]
    for chosen, places in ((odd, cycled), (odd[::2], position)):
        flat[chosen, places[chosen]] = rng.choice([np.inf, -np.inf, *NANS], len(chosen))
    first[at] = flat.reshape(first[at].shape)


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
    found = np.select(parts, [within * EXPONENTIALS[dtype], around], whole)
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
        values[below] = _next(values[below], 0, dtype)


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
    below, above = _next(size, 0, dtype), _next(size, np.inf, dtype)
    # Ordinary ones of any size, of those with a whole part and another one, and of those with an exponential.
    partly = np.exp2(rng.uniform(-1, 1, count) * DIGITS[dtype])
    scales = np.choose(rng.integers(0, 3, count), [size, partly, np.full(count, EXPONENTIALS[dtype] / 2)])
    with np.errstate(over="ignore"):
        ordinary = (scales * (1 + rng.random(count))).astype(native)
    least, normal = np.ldexp(1.0, reach.smallest), smallest_normal(dtype)
    most = largest(dtype) if top == reach.largest else np.ldexp(1.0, top)
    ends = rng.choice(np.array([most, normal, normal - least, least], native), count)
    literals = [each for each in literals if abs(each) <= largest(dtype)]
    given = np.array([*np.arange(1, 8) / 2, 5, 10, *literals], native)
    given = np.concatenate([given, _next(given, 0, dtype), _next(given, np.inf, dtype)])
    told = np.where(rng.random(count) < 0.3, ordinary, rng.choice(given, count))
    several = [kind < 2, kind < 4, kind == 4, kind == 5, kind == 6]
    chosen = np.select(several, [size, below, above, ends, np.zeros_like(size)], told)
    values[...] = np.copysign(chosen, rng.choice([-1.0, 1.0], count)).reshape(values.shape)


def _next(values: Array, towards: float, dtype: str) -> Array:
    """The neighbours of numbers of a dtype; of bf16, which is carried in f32, those that it has."""
    if dtype != "bf16":
        return np.asarray(np.nextafter(values, values.dtype.type(towards)))
    step = np.int32(1 << 16) * np.where(np.sign(towards - values) == np.sign(values), 1, -1)
    return np.asarray((values.view(np.int32) + step.astype(np.int32)).view(np.float32))


def single(values: Array, groups: Groups, dtype: str, rng: Generator, literals: Sequence[float] = ()) -> None:
    """Exact numbers that pass through sums unchanged. A quarter of the groups have one such number and
    otherwise zeros, another quarter the same times the size of the group, so that the mean is the number; the
    others have such numbers only. One in 32 has an infinity or NaN, which often meets a zero of another
    array."""
    exact_numbers(values, dtype, rng, literals)
    odd = (np.inf, -np.inf, *NANS)
    if groups.size == 1 or groups.apart:
        mix_in(values, odd, 1 / 32, rng)
        return
    mixture = mixture_of(values, groups, dtype, rng)
    turn = rng.permutation(groups.count) % 4
    for chosen, factor in ((np.flatnonzero(turn == 0), 1), (np.flatnonzero(turn == 1), groups.size)):
        numbers = np.empty(len(chosen), values.dtype)
        exact_numbers(numbers, dtype, rng, literals)
        with np.errstate(over="ignore"):
            numbers = mixture.finite(numbers * values.dtype.type(factor))
        first, at = groups.first(values), groups.numbered(chosen)
        first[at] = 0
        mixture.set(chosen, anywhere(mixture, chosen), numbers)
    chosen = np.flatnonzero(rng.permutation(groups.count) % 32 == 0)
    mixture.set(chosen, anywhere(mixture, chosen), rng.choice(odd, len(chosen)))
    finish(mixture, values)


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
