"""Drawings in which each group of elements has a character of its own, so that one run shows many faults.

A row of zeros shows a missing epsilon, a row far below zero a maximum that starts from a wrong value, one
large element at the end a loop that ends too early. A group is a set of elements that are reduced together
(:mod:`~perfdojo_sdk.verify.groups`): an overflow in one of them cannot hide a fault in another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.verify.groups import Array, Groups
from perfdojo_sdk.verify.mixture import (
    NANS,
    SPECIALS,
    Generator,
    Mixture,
    Range,
    anywhere,
    finish,
    mix_in,
    mixture_of,
)

#: The last positions of a group, at each of which a loop may end too early.
_TAIL = 33
#: Numbers of less than 2^-4.7 of the limit that stay below it together, with room for many ordinary ones.
_SUMMED = 24
#: The share of special elements where no element can hide another.
_SPECIAL_SHARE = 0.5
#: Sizes of blocks at whose borders a loop may go wrong.
_BLOCKS = (4, 8, 16, 32, 64, 128, 256, 1024, 4096)


_Character: TypeAlias = Callable[[Mixture, Array], None]


def _plain(mixture: Mixture, chosen: Array) -> None:
    """As drawn."""


def _constant(low: float, high: float) -> _Character:
    """Equal numbers."""

    def character(mixture: Mixture, chosen: Array) -> None:
        count = len(chosen)
        mixture.factors[chosen] = 0
        mixture.terms[chosen] = mixture.powers(count, low, high) * mixture.signs(count)

    return character


def _around(centre: float) -> _Character:
    """Numbers around ``centre``: far enough from zero for ``exp`` to overflow or to underflow."""

    def character(mixture: Mixture, chosen: Array) -> None:
        mixture.terms[chosen] = centre * mixture.rng.uniform(0.9, 1.5, len(chosen))

    return character


def _far(sign: int) -> _Character:
    """Numbers of one sign, as large as the dtype allows or nearly so."""

    def character(mixture: Mixture, chosen: Array) -> None:
        most, count = mixture.range.largest, len(chosen)
        scale = mixture.powers(count, most * 0.3, most - 0.8)
        scale[::2] = mixture.powers(count, most - 1, most - 0.8)[::2]
        mixture.terms[chosen], mixture.factors[chosen] = sign * scale, scale / 16

    return character


def _lowest(mixture: Mixture, chosen: Array) -> None:
    """Negative numbers near the lower end of the dtype's range."""
    most = mixture.range.largest
    scale = mixture.powers(len(chosen), most - 1, most - 0.8)
    mixture.terms[chosen], mixture.factors[chosen] = -scale, scale / 16


def _least(mixture: Mixture, chosen: Array) -> None:
    """The dtype's lowest finite number, which shows a maximum that starts from a greater one."""
    mixture.terms[chosen], mixture.factors[chosen] = -mixture.largest, 0.0


def _scaled(low: float, high: float) -> _Character:
    """All elements of about one size, for example so small that an epsilon outweighs them."""

    def character(mixture: Mixture, chosen: Array) -> None:
        mixture.factors[chosen] = mixture.powers(len(chosen), low, high)

    return character


def _dominated(
    position: Callable[[Mixture, Array], Array], low: float, high: float, sign: int = 1
) -> _Character:
    """One element so much larger (or smaller) than the others that no sum of them is as large."""

    def character(mixture: Mixture, chosen: Array) -> None:
        values = sign * (100 + mixture.powers(len(chosen), low, high))
        mixture.terms[chosen] = -sign * mixture.rng.choice([0.0, 30.0], len(chosen))
        mixture.set(chosen, position(mixture, chosen), mixture.finite(values))

    return character


def _first(mixture: Mixture, chosen: Array) -> Array:
    return np.zeros(len(chosen), np.int64)


def _last(mixture: Mixture, chosen: Array) -> Array:
    return np.full(len(chosen), mixture.groups.size - 1)


def _near_end(mixture: Mixture, chosen: Array) -> Array:
    """Each of the last positions in turn."""
    turn = np.arange(len(chosen)) + mixture.rng.integers(_TAIL)
    return np.asarray(mixture.groups.size - 1 - turn % min(_TAIL, mixture.groups.size))


def _at_border(mixture: Mixture, chosen: Array) -> Array:
    """The last element of a block or the first of the next."""
    size, count = mixture.groups.size, len(chosen)
    blocks = mixture.rng.choice(_BLOCKS, count)
    borders = blocks * mixture.rng.integers(1, np.maximum(size // blocks, 1) + 1)
    return np.asarray(np.clip(borders - mixture.rng.integers(0, 2, count), 0, size - 1))


def _mixed(low: Callable[[Range], float], high: Callable[[Range], float]) -> _Character:
    """Each element with a magnitude of its own."""

    def character(mixture: Mixture, chosen: Array) -> None:
        mixture.set_all(chosen, low(mixture.range), high(mixture.range))

    return character


def _near_overflow(mixture: Mixture, chosen: Array) -> None:
    """One element so large that a sum with a few like it overflows."""
    most = mixture.range.largest
    values = mixture.powers(len(chosen), most - 4, most + 0.9) * mixture.signs(len(chosen))
    mixture.set(chosen, _near_end(mixture, chosen), values)


def _just_below_overflow(mixture: Mixture, chosen: Array) -> None:
    """Elements of about a sixteenth of the largest number, as many as no order of their sum can overflow."""
    numbers = np.repeat(chosen, _SUMMED)
    most, count = mixture.range.largest, len(numbers)
    values = mixture.powers(count, most - 3.95, most - 3.7) * mixture.rng.choice([-1.0, 1.0], count)
    mixture.set(numbers, anywhere(mixture, numbers), values)


def _specials(*kinds: float, position: Callable[[Mixture, Array], Array] = _near_end) -> _Character:
    """One infinity or NaN, or a zero of either sign."""

    def character(mixture: Mixture, chosen: Array) -> None:
        mixture.set(chosen, position(mixture, chosen), np.resize(kinds, len(chosen)))

    return character


def _both_infinities(mixture: Mixture, chosen: Array) -> None:
    """Their sum is NaN though no element is."""
    mixture.set(chosen, _first(mixture, chosen), np.full(len(chosen), np.inf))
    mixture.set(chosen, _last(mixture, chosen), np.full(len(chosen), -np.inf))


def _all(value: float) -> _Character:
    """Equal elements, each ``value``."""

    def character(mixture: Mixture, chosen: Array) -> None:
        mixture.terms[chosen], mixture.factors[chosen] = value, 0

    return character


def _all_extreme(mixture: Mixture, chosen: Array) -> None:
    """Equal elements, each the largest finite number or its negative."""
    mixture.terms[chosen], mixture.factors[chosen] = mixture.largest * mixture.signs(len(chosen)), 0


def _whole(mixture: Mixture, chosen: Array) -> None:
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


def _ended(mixture: Mixture, chosen: Array) -> None:
    """Few different numbers, zeros among them, and near the end NaN or an infinity, so that code which stops
    at a product of zero, or at any other result that seems final, is wrong."""
    _whole(mixture, chosen)
    mixture.set(chosen, _near_end(mixture, chosen), mixture.rng.choice([np.nan, np.inf], len(chosen)))


def _masked(mixture: Mixture, chosen: Array) -> None:
    """-inf from some place on, as where a row of logits is masked; one element at least is left."""
    at, size = mixture.groups.numbered(chosen), mixture.groups.size
    kept = mixture.rng.integers(1, max(size, 2), len(chosen))

    def change(first: Array) -> None:
        flat = first[at].reshape(len(chosen), size)
        flat[np.arange(size) >= kept[:, None]] = -np.inf
        first[at] = flat.reshape(first[at].shape)

    mixture.later.append(change)


def _huge(mixture: Mixture, chosen: Array) -> None:
    """One element in 64 and at least one up to the largest, so that products and sums may overflow."""
    numbers = np.repeat(chosen, max(1, mixture.groups.size // 64))
    count, most = len(numbers), mixture.range.largest
    values = mixture.powers(count, most * 0.48, most + 0.99) * mixture.rng.choice([-1.0, 1.0], count)
    mixture.set(numbers, mixture.rng.integers(0, mixture.groups.size, count), values)


def _cancelling(mixture: Mixture, chosen: Array) -> None:
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
    _specials(np.inf, -np.inf, position=anywhere),
    _specials(*NANS, position=anywhere),
    _both_infinities,
    _ended,
    _just_below_overflow,
    _dominated(anywhere, 0, 4),
    _constant(-100, 100),
    _just_below_overflow,
    _all(np.inf),
    _all_extreme,
)


def _every_other(first: int) -> _Character:
    """Ordinary numbers, with NaN in every other group: code may leave its fast path for several at once."""
    nan = _specials(np.nan, position=anywhere)
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


def mix(values: Array, groups: Groups, dtype: str, rng: Generator, start: int = 0) -> None:
    """Give each group of normally distributed numbers a character; the first group the one at ``start``."""
    mixture = mixture_of(values, groups, dtype, rng)
    for number, character in enumerate(CHARACTERS):
        first = (number - start) % len(CHARACTERS)
        if len(chosen := np.arange(first, groups.count, len(CHARACTERS))):
            character(mixture, chosen)
    _apply(mixture, values, dtype)


def mix_alike(values: Array, groups: Groups, dtype: str, rng: Generator, character: _Character) -> None:
    """Give all groups of normally distributed numbers one character."""
    mixture = mixture_of(values, groups, dtype, rng)
    character(mixture, np.arange(groups.count))
    _apply(mixture, values, dtype)


def _apply(mixture: Mixture, values: Array, dtype: str) -> None:
    groups = mixture.groups
    with np.errstate(over="ignore", under="ignore"):
        values *= groups.each(mixture.factors).astype(values.dtype)
        values += groups.each(mixture.terms).astype(values.dtype)
    if dtype == "f16":
        np.clip(values, -mixture.largest, mixture.largest, out=values, where=np.isfinite(values))
    finish(mixture, values)


def enlarge_some(values: Array, groups: Groups, dtype: str, rng: Generator) -> None:
    """Make numbers of every fourth group huge."""
    mixture = mixture_of(values, groups, dtype, rng)
    _huge(mixture, np.arange(rng.integers(4) if groups.count >= 4 else 0, groups.count, 4))
    finish(mixture, values)


def insert_specials(values: Array, groups: Groups, dtype: str, rng: Generator, start: int = 0) -> None:
    """One infinity, NaN or zero in every fourth group; each kind at least once where groups allow it.

    If nothing is reduced, many elements are special or as large as possible: those of two arrays meet.
    """
    mixture = mixture_of(values, groups, dtype, rng)
    if groups.apart:
        kinds = (*SPECIALS, mixture.largest, -mixture.largest)
        mix_in(values, kinds, _SPECIAL_SHARE, rng)
        return
    turned = np.roll(SPECIALS, -start)
    step = max(1, min(4, groups.count // len(turned)))
    _specials(*turned)(mixture, np.arange(0, groups.count, step))
    finish(mixture, values)
