"""The numbers of one array, or of several sets of it, in each class of inputs.

A function for each class changes normally distributed numbers into its own; ``DRAW`` and ``IN_SETS`` list
them. Arrays of integers and of coded floats are drawn by their dtype, and the class says how far they reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite, prod
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.core.dtypes import NARROW_DTYPES, bits, carrier, integer_bounds
from perfdojo_sdk.core.formats import numbers, usual_codes
from perfdojo_sdk.verify.characters import ALIKE, CHARACTERS, enlarge_some, insert_specials, mix, mix_alike
from perfdojo_sdk.verify.coverage import level, scale, select_one, single, spread
from perfdojo_sdk.verify.groups import Array, Groups
from perfdojo_sdk.verify.mixture import RANGES

#: Classes of which many sets of inputs are drawn together.
LEVELS, PASSING = "levels", "passing"
INTEGERS = "integers"

#: Dtypes that are drawn in single precision, and rounded.
DRAWN_AS = {"f16": np.float32, "bf16": np.float32}

#: Most elements of one array that are drawn one by one; a larger array repeats them.
_DRAWN = 1 << 20
#: The share of zeros among integers that nothing is divided by, and of those at an end or next to a constant.
_ZERO_SHARE, _NEAR_SHARE = 1 / 16, 1 / 8
#: The share of the numbers read as run-time indices that are in range.
_INDEX_SHARE = 7 / 8


@dataclass(frozen=True)
class Turn:
    """The position of a drawing among those of its class."""

    number: int
    round: int
    """Number of earlier turns of this array."""
    asked: bool
    """True if it is this array's turn to be extreme."""
    largest: int
    """The largest absolute value of integers."""
    literals: tuple[float, ...] = ()
    """Constants of the program."""


def _block(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with so few rows that about ``_DRAWN`` elements remain; an odd number of rows."""
    return (min(shape[0], _DRAWN // prod(shape[1:]) | 1), *shape[1:])


def _repeat(block: Array, target: Array) -> None:
    """Fill an array with a block of rows again and again."""
    rows = len(block)
    if block.shape == target.shape:
        target[...] = block
        return
    for k in range(0, len(target), rows):
        target[k : k + rows] = block[: len(target) - k]


def codes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, name: str) -> Array:
    """Random codes of a coded dtype: of usual numbers, or of all that the class of inputs has."""
    values = numbers(dtype)
    known = {
        **dict.fromkeys(("special", LEVELS, PASSING), range(len(values))),
        **dict.fromkeys(("magnitudes", "scaled"), [c for c, v in enumerate(values) if isfinite(v)]),
        "huge": [c for c, v in enumerate(values) if isfinite(v) and abs(v) >= 1],
        "denormal": [c for c, v in enumerate(values) if abs(v) < 2**-5],
        "nonnegative": [c for c, v in enumerate(values) if v >= 0 and isfinite(v)],
    }.get(name, usual_codes(dtype))
    found: Array = rng.choice(np.array(known, np.uint8), shape)
    return found


_WHOLE_TYPES = {"i": "int", "u": "uint"}


def whole_numbers(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: str,
    name: str,
    zeros: bool,
    literals: Sequence[float],
) -> Array:
    """Random integers, with zeros only if the program divides by none of them; of bool, both values. Some are
    a constant of the program, or next to one; some, where the whole range is drawn, at its ends."""
    low, high = integer_bounds(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape, dtype=np.uint8)
    if name not in ("huge", "special", "magnitudes"):
        low, high = max(low, -100), min(high, 100)
    kind = np.dtype(f"{_WHOLE_TYPES[dtype[0]]}{bits(carrier(dtype))}")
    values = rng.integers(low, high, shape, dtype=kind, endpoint=True)
    least, most = integer_bounds(dtype)
    near = {int(each) + by for each in literals if each.is_integer() for by in (-1, 0, 1)}
    if (low, high) == (least, most):
        near |= {least, least + 1, -1, 1, most - 1, most}
    if found := [each for each in sorted(near) if least <= each <= most]:
        chosen = rng.random(shape, dtype=np.float32) < _NEAR_SHARE
        values = np.where(chosen, rng.choice(np.array(found, kind), shape), values)
    if zeros:
        return np.where(rng.random(shape, dtype=np.float32) < _ZERO_SHARE, kind.type(0), values)
    return np.where(values == 0, kind.type(1), values)


def put_in_range(
    rng: np.random.Generator, values: Array, dtype: str, indices: tuple[int, int], zeros: bool
) -> None:
    """Let most numbers be indices of this range, in any order, repeated or not; the others stay."""
    least, most = integer_bounds(dtype)
    low, high = max(least, indices[0]), min(most, indices[1])
    if low <= high:
        inside = rng.random(values.shape, dtype=np.float32) < _INDEX_SHARE
        drawn = rng.integers(low, high, values.shape, dtype=values.dtype, endpoint=True)
        values[...] = np.where(inside & ((drawn != 0) | zeros), drawn, values)


def whole_rows(
    rng: np.random.Generator, values: Array, dtype: str, groups: Groups, number: int, zeros: bool
) -> None:
    """Give each group of integers a character: as drawn, far below zero, the least or the largest number at
    the end or everywhere, all of one sign; with ``zeros`` also nothing but these, and one beside numbers of
    one sign."""
    low, high = integer_bounds(dtype)
    first, at = groups.first(values), groups.numbered(np.arange(groups.count))
    flat = first[at].reshape(groups.count, groups.size)
    sizes = np.abs(flat)
    turn = (np.arange(groups.count) + number) % (10 if zeros else 7)
    flat[turn == 1] = low if low else 1
    flat[turn == 4] = high
    flat[turn == 5] = sizes[turn == 5]
    if low:
        flat[turn == 0] = -sizes[turn == 0]
        flat[turn == 3] = low + sizes[turn == 3]
    flat[turn == 2, -1] = high
    flat[turn == 6, -1] = low or 1
    flat[turn == 7] = 0
    for one, sign in ((8, 1), (9, -1 if low else 1)):
        chosen = np.flatnonzero(turn == one)
        flat[chosen] = sign * np.where(sizes[chosen] == 0, 1, sizes[chosen])
        flat[chosen, rng.integers(0, groups.size, len(chosen))] = 0
    if dtype in NARROW_DTYPES:  # there is no dtype of NumPy that wraps so
        count = high - low + 1
        flat = (flat.astype(np.int64) - low) % count + low
    first[at] = flat.reshape(first[at].shape)


_Draw: TypeAlias = Callable[[np.random.Generator, Array, str, Groups, Turn], None]


def normal(rng: np.random.Generator, target: Array) -> None:
    """Normally distributed numbers."""
    if target.dtype == np.float32:
        rng.standard_normal(dtype=np.float32, out=target)
    else:
        target[...] = rng.standard_normal(target.shape, dtype=np.float32)


def _random(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    normal(rng, values)


def _in_groups(change: _Draw) -> _Draw:
    """A drawing of the whole array, since its groups may lie anywhere in it."""

    def drawn(rng: np.random.Generator, target: Array, dtype: str, groups: Groups, turn: Turn) -> None:
        block = np.empty(_block(target.shape), np.float32)
        normal(rng, block)
        # Halves are drawn as single precision, and rounded.
        values = np.empty(target.shape, np.float32) if target.dtype == np.float16 else target
        _repeat(block, values)
        change(rng, values, dtype, groups, turn)
        if values is not target:
            target[...] = values

    return drawn


def _one_by_one(change: _Draw) -> _Draw:
    """A drawing that computes each element. Of a large array it draws a block of rows and repeats that, since
    drawing all would cost more than everything else."""

    def drawn(rng: np.random.Generator, target: Array, dtype: str, groups: Groups, turn: Turn) -> None:
        values = np.empty(_block(target.shape), DRAWN_AS.get(dtype, target.dtype))
        normal(rng, values)
        change(rng, values, dtype, groups, turn)
        _repeat(values, target)

    return drawn


def _rows(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Give each group one character. Of several arrays one is extreme at a time, so that none hides a fault
    that another shows."""
    later = turn.round - ceil(len(CHARACTERS) / groups.count)
    if turn.asked and 0 <= later < len(ALIKE):
        mix_alike(values, groups, dtype, rng, ALIKE[later])
    elif turn.asked:
        mix(values, groups, dtype, rng, turn.round * groups.count)


def _columns(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """The same with groups along other dimensions, in all arrays: code may run through memory that way."""
    rank = values.ndim
    kept = rng.choice(rank, rng.integers(1, rank), replace=False) if rank > 1 else range(rank)
    mix(values, Groups(values.shape, tuple(sorted(map(int, kept)))), dtype, rng, int(rng.integers(99)))


def _magnitudes(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Each element over the whole range of the dtype, with either sign."""
    spread(values, dtype, rng)


def _scaled(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """All elements of about one size, and with them the results: a sum, too, has each size once."""
    if turn.asked:
        scale(values, groups, dtype, rng, turn.round)


def _huge(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Numbers up to the largest in some groups only: the others are compared."""
    enlarge_some(values, groups, dtype, rng)


def _special(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Infinities, NaN and zeros, one in a group, and most groups clean; many where none can hide another."""
    insert_specials(values, groups, dtype, rng, turn.number)


def _cancelling(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Neighbours along the last axis are nearly each other's negative."""
    shape = values.shape
    values *= np.exp2(rng.integers(-6, 7, shape)).astype(values.dtype)
    if shape[-1] > 1:
        pairs = shape[-1] // 2
        noise = 1 + 2**-10 * rng.standard_normal((*shape[:-1], pairs), dtype=np.float32)
        values[..., 1 : 2 * pairs : 2] = -values[..., 0 : 2 * pairs : 2] * noise


def _denormal(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Half of the elements denormal or nearly so."""
    reach = RANGES[dtype]
    exponents = rng.integers(reach.smallest - 1, reach.normal + 6, values.shape, dtype=np.int32)
    small = rng.random(values.shape, dtype=np.float32) < 0.5
    values[...] = np.where(small, np.ldexp(values, exponents), values)


def _nonnegative(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Nonnegative numbers, as for a variance, a probability or the argument of a logarithm; some are zero."""
    size = np.exp2(rng.uniform(-24, 4, values.shape)).astype(values.dtype)
    np.abs(values, out=values)
    values *= size
    values[rng.random(values.shape, dtype=np.float32) < 1 / 64] = 0


def _level(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Largest elements of any value, anywhere, alone or not."""
    if turn.asked:
        level(values, groups, dtype, rng)


def _passing(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    """Numbers that arithmetic seldom gives in one array; the others let them pass into results unchanged."""
    if turn.asked:
        single(values, groups, dtype, rng, turn.literals)
    else:
        select_one(values, groups, rng)


def _small_integers(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: Turn) -> None:
    values[...] = rng.integers(-turn.largest, turn.largest + 1, values.shape, dtype=np.int32)


IN_SETS: Mapping[str, _Draw] = {LEVELS: _level, PASSING: _passing}
DRAW: Mapping[str, _Draw] = {
    "random": _random,
    "rows": _in_groups(_rows),
    "columns": _in_groups(_columns),
    "magnitudes": _one_by_one(_magnitudes),
    "scaled": _in_groups(_scaled),
    "huge": _in_groups(_huge),
    "special": _in_groups(_special),
    "cancelling": _one_by_one(_cancelling),
    "denormal": _one_by_one(_denormal),
    "nonnegative": _one_by_one(_nonnegative),
    **{name: _in_groups(change) for name, change in IN_SETS.items()},
    INTEGERS: _one_by_one(_small_integers),
}
