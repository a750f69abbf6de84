"""Inputs that make a kernel show its faults, drawn by class.

The classes are: plain numbers; sums that cancel; rows (or whatever is reduced together) with different
characters; magnitudes over the whole range; a few magnitudes, each for all elements at once; huge numbers in
some rows; denormals; single infinities and NaN; numbers that are not negative; exact numbers that pass into
results unchanged; and small integers, on which additions and multiplications are exact in any order. Arrays
of integers hold small numbers or, in the classes of extremes, their dtype's whole range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, inf, isfinite, log2, prod
from typing import TypeAlias, assert_never

import numpy as np

from perfdojo_sdk.core.dtypes import (
    CODED_DTYPES,
    DIGITS,
    FLOAT_DTYPES,
    NARROW_DTYPES,
    STORED_DTYPES,
    bits,
    carrier,
    integer_bounds,
)
from perfdojo_sdk.core.expression import Cast, Expression, IndexValue, Literal, Operation, Read, walk
from perfdojo_sdk.core.formats import middles, numbers, usual_codes
from perfdojo_sdk.core.geometry import index_ranges
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.validate import beyond_storage
from perfdojo_sdk.measure.kernel_calls import CARRIER, carry
from perfdojo_sdk.verify.characters import ALIKE, CHARACTERS, enlarge_some, insert_specials, mix, mix_alike
from perfdojo_sdk.verify.coverage import SCALINGS, level, scale, select_one, single, spread
from perfdojo_sdk.verify.groups import Array, Groups, kept_dimensions
from perfdojo_sdk.verify.mixture import RANGES, SPECIALS
from perfdojo_sdk.verify.zeros import shift_counts, undivided

#: Single precision holds every integer below this one.
EXACT_INTEGERS = 2**24

FLOAT_CLASSES = (
    "random",
    "rows",
    "columns",
    "magnitudes",
    "scaled",
    "huge",
    "special",
    "cancelling",
    "denormal",
    "nonnegative",
    "levels",
    "passing",
)
#: Classes of which many sets of inputs are drawn together.
LEVELS, PASSING = "levels", "passing"
INTEGERS = "integers"
#: Most arrays in all sets of the class levels together: each costs time of its own.
_LEVEL_ARRAYS = 1 << 13
#: Classes of which rows have a character as well.
_CHARACTERISTIC = frozenset(
    {"magnitudes", "scaled", "huge", "special", "cancelling", "denormal", LEVELS, PASSING}
)

_RANGES = (8, 4, 2, 1)

#: Dtypes that are drawn in single precision, and rounded.
_DRAWN_AS = {"f16": np.float32, "bf16": np.float32}

#: Most elements of one array that are drawn one by one; a larger array repeats them.
_DRAWN = 1 << 20
#: Most statement instances for all drawings of one class, and most drawings.
_INSTANCES, _DRAWINGS = 10**7, 44
#: Limits on all sets of the class levels: statement instances, bytes; wanted numbers of groups and elements.
_LEVEL_INSTANCES, _LEVEL_BYTES, _LEVEL_GROUPS, _LEVEL_ELEMENTS = 3 * 10**6, 1 << 28, 1 << 13, 1 << 16
#: Bytes for one element of an input or output, with its expected result.
_LEVEL_CELL = 64
#: The sets of the class passing: this part of those of levels, but at least so many (or all of them).
_PASSING_SHARE, _PASSING_SETS = 4, 16
#: One of so many middles between neighbouring codes is drawn as constants of the program are.
_MIDDLES = 9
#: In a program without floats, so many codes of each coded input; most sets for that.
_CODES, _CODED_SETS = 1 << 12, 64
#: The share of zeros among integers that nothing is divided by, and of those at an end or next to a constant.
_ZERO_SHARE, _NEAR_SHARE = 1 / 16, 1 / 8
#: The share of the numbers read as run-time indices that are in range.
_INDEX_SHARE = 7 / 8
#: With fewer groups than this, a character may miss the only groups that some part of the code works on.
_FEW_GROUPS = 8 * len(CHARACTERS)
#: Characters of ``ALIKE`` for a program of which one drawing has more instances than all drawings may have.
_ALIKE_OF_LARGE = 2


def drawings(program: Program, instances: int) -> Mapping[str, int]:
    """Class -> how many drawings of it a program of so many statement instances gets.

    If few elements are reduced together, there are many groups, and one drawing has all characters; if
    everything is reduced to one number, a drawing has one character. If there are few groups, each may have
    code of its own; then there are further drawings in which all groups have one character of ``ALIKE`` (if a
    drawing takes long, of its first ones).
    """
    floats = [name for name in program.inputs if program.buffer_of[name].dtype in FLOAT_DTYPES]
    groups, large = _all_groups(program), _large(program, floats)
    fewest = min((groups[name].count for name in large), default=1)
    turns = _turns(large)
    several = max(turns, min(_DRAWINGS, _INSTANCES // max(instances, 1)))
    wanted = turns * ceil(len(CHARACTERS) / fewest)
    alike = len(ALIKE) if instances <= _INSTANCES else _ALIKE_OF_LARGE
    alike = turns * alike if several >= wanted and fewest < _FEW_GROUPS else 0
    # Count small arrays, too: a zero or infinite weight of a channel shows faults that no image shows.
    smallest = min((groups[name].count for name in floats), default=1)
    special = min(several, ceil(len(SPECIALS) / smallest))
    scaled = min(_parts(floats) * SCALINGS, max(1, _INSTANCES // max(instances, 1)))
    return {"rows": min(several, wanted) + alike, "special": special, "scaled": scaled}


def _parts(floats: Sequence[str]) -> int:
    """The number of parts scaled separately: the first array, and all others together, such as weights and
    shifts."""
    return max(1, min(2, len(floats)))


def sets_of(program: Program, instances: int) -> Mapping[str, int]:
    """Class -> the number of sets that are drawn together; of levels, enough to cover the range densely."""
    levels = _sets_of_levels(program, instances)
    return {LEVELS: levels, PASSING: min(levels, max(_PASSING_SETS, levels // _PASSING_SHARE))}


def _sets_of_levels(program: Program, instances: int) -> int:
    floats = [name for name in program.inputs if program.buffer_of[name].dtype in FLOAT_DTYPES]
    if not floats:
        coded = [b.cells for name in program.inputs if (b := program.buffer_of[name]).dtype in CODED_DTYPES]
        return min(_CODED_SETS, ceil(_CODES / min(coded))) if coded else 1
    groups = _all_groups(program)
    wanted = max(_level_sets(groups[name]) for name in _large(program, floats))
    size = sum(_LEVEL_CELL * prod(program.buffer_of[n].shape) for n in (*program.inputs, *program.outputs))
    arrays = len(program.inputs) + len(program.outputs)
    allowed = min(
        _LEVEL_INSTANCES // max(instances, 1), _LEVEL_BYTES // max(size, 1), _LEVEL_ARRAYS // arrays
    )
    return max(1, min(len(floats) * wanted, allowed))


def _level_sets(groups: Groups) -> int:
    wanted = _LEVEL_ELEMENTS / prod(groups.shape) if groups.apart else _LEVEL_GROUPS / groups.count
    return ceil(wanted)


def draw_sets(name: str, program: Program, seed: int, sets: int, out: Mapping[str, Array]) -> None:
    """Draw ``sets`` sets of inputs of class ``name``, one behind the other in the arrays ``out``. In each set
    one array is extreme."""
    rng = np.random.default_rng([seed, *name.encode()])
    floats = [n for n in program.inputs if program.buffer_of[n].dtype in FLOAT_DTYPES]
    groups, zeros, literals = _all_groups(program), undivided(program), _literals(program)
    counts, indices = shift_counts(program), index_ranges(program)
    for array in program.inputs:
        dtype = program.buffer_of[array].dtype
        target = out[array].reshape(sets, *groups[array].shape)
        if array in program.tables:
            _put_table(program, array, target)
            continue
        if dtype in CODED_DTYPES:
            target[...] = _codes(rng, target.shape, dtype, name)
            continue
        if dtype not in FLOAT_DTYPES:
            target[...] = _whole_numbers(rng, target.shape, dtype, name, array in zeros, literals)
            if array in counts:
                target[...] %= bits(dtype)
            if array in indices:
                _put_in_range(rng, target, dtype, indices[array], array in zeros)
            continue
        values = np.empty(target.shape, _DRAWN_AS.get(dtype, target.dtype))
        _normal(rng, values)
        with np.errstate(under="ignore"):
            for first in range(min(len(floats), sets)):
                part = values[first :: len(floats)]
                turn = _Turn(0, 0, first == floats.index(array) % sets, 1, literals)
                _IN_SETS[name](rng, part, dtype, groups[array].of_sets(len(part)), turn)
            if name == PASSING and groups[array].apart:
                # Zeros of all arrays meet: a sum of two is -0 only where both are.
                values[::4] = np.copysign(0.0, rng.choice([-1.0, 1.0], values[::4].shape))
            carry(values, target, dtype)


def _turns(large: Sequence[str]) -> int:
    """The number of drawings of rows after which each of several arrays has been extreme."""
    return max(1, min(2, len(large)))


def classes(program: Program, small: bool) -> tuple[str, ...]:
    """The classes of floats to test. A program that is not ``small`` skips those that rows cover as
    characters, and those that show least about long sums."""
    if not program.inputs:
        return ("random",)
    if small:
        return FLOAT_CLASSES
    floats = [name for name in program.inputs if program.buffer_of[name].dtype in FLOAT_DTYPES]
    groups = _all_groups(program)
    many = any(groups[name].count >= 8 * len(CHARACTERS) for name in _large(program, floats))
    left_out = _CHARACTERISTIC if many else _CHARACTERISTIC - {"huge", "special", "denormal"}
    return tuple(name for name in FLOAT_CLASSES if name not in left_out)


def draw(
    name: str,
    program: Program,
    seed: int,
    largest: int = 1,
    out: Mapping[str, Array] | None = None,
    number: int = 0,
) -> Mapping[str, Array]:
    """Inputs of class ``name`` for every input of the program, in the arrays ``out`` if given;
    ``largest`` bounds the integers, ``number`` tells the drawings of one class apart."""
    rng = np.random.default_rng([seed, number, *name.encode()])
    drawn = out if out is not None else {n: _empty(program, n) for n in program.inputs}
    floats = [n for n in program.inputs if program.buffer_of[n].dtype in FLOAT_DTYPES]
    groups, large, zeros = _all_groups(program), _large(program, floats), undivided(program)
    turns, literals, counts = _turns(large), _literals(program), shift_counts(program)
    indices = index_ranges(program)
    values: dict[str, Array] = {}
    for index, array in enumerate(program.inputs):
        # An array without dimensions is drawn as one of a single element, in the same memory.
        dtype, target = program.buffer_of[array].dtype, drawn[array].reshape(drawn[array].shape or (1,))
        if dtype in CODED_DTYPES:
            target[...] = _codes(rng, target.shape, dtype, name)
            continue
        if dtype not in FLOAT_DTYPES:
            target[...] = _whole_numbers(rng, target.shape, dtype, name, array in zeros, literals)
            if name == "rows" and dtype != "bool":
                # Of several arrays, each has another character.
                _whole_rows(rng, target, dtype, groups[array], number + 3 * index, array in zeros)
            if array in counts:
                target[...] %= bits(dtype)
            if array in indices:
                _put_in_range(rng, target, dtype, indices[array], array in zeros)
            continue
        if name == "scaled":
            part, parts = min(floats.index(array), 1), _parts(floats)
            turn = _Turn(number, number // parts, part == number % parts, largest)
        else:
            asked = array in large and large.index(array) % turns == number % turns
            turn = _Turn(number, number // turns, asked, largest, literals)
        values[array] = np.empty(target.shape, np.float32) if dtype == "bf16" else target
        _DRAW[name](rng, values[array], dtype, groups[array], turn)
    if name == "cancelling":
        _cancel_arrays(rng, [values[array].reshape(drawn[array].shape) for array in floats])
    for array in floats:
        if values[array].dtype != drawn[array].dtype:
            carry(values[array].reshape(drawn[array].shape), drawn[array], program.buffer_of[array].dtype)
    for array in program.tables:
        _put_table(program, array, drawn[array])
    return drawn


def _put_table(program: Program, table: str, target: Array) -> None:
    """Fill an array, or several one behind the other, with the elements of a table."""
    buffer = program.buffer_of[table]
    kind = np.float64 if buffer.dtype in FLOAT_DTYPES else target.dtype
    values = np.broadcast_to(np.array(program.tables[table], kind).reshape(buffer.shape), target.shape)
    carry(values.astype(np.float32) if buffer.dtype == "bf16" else values, target, buffer.dtype)


def _cancel_arrays(rng: np.random.Generator, arrays: Sequence[Array]) -> None:
    """Every other row of arrays of one shape is nearly that of the first of them."""
    for array in arrays:
        like = next(a for a in arrays if a.shape == array.shape and a.dtype == array.dtype)
        if array is not like and array.ndim:
            noise = 1 + 2**-10 * rng.standard_normal(array[::2].shape, dtype=np.float32)
            array[::2] = (like[::2] * noise).astype(array.dtype)


def _literals(program: Program) -> tuple[float, ...]:
    """The finite constants of the program, without zero, and numbers in the middle between two codes."""
    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    casts = {part.dtype for node in statements for part in walk(node.value) if isinstance(part, Cast)}
    found = {middle for dtype in casts.intersection(CODED_DTYPES) for middle in middles(dtype)[::_MIDDLES]}
    found |= {
        float(part.value)
        for _, node in program.walk()
        if isinstance(node, Statement)
        for part in walk(node.value)
        if isinstance(part, Literal) and abs(part.value) < 1e30 and part.value
    }
    return tuple(sorted(found))


@dataclass(frozen=True)
class _Turn:
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


def _all_groups(program: Program) -> Mapping[str, Groups]:
    kept = kept_dimensions(program)
    return {name: _groups(program.buffer_of[name].shape or (1,), kept[name]) for name in program.inputs}


def _groups(shape: tuple[int, ...], kept: tuple[int, ...]) -> Groups:
    """The groups of an array; if nothing is reduced and it has several dimensions, its rows, to have more
    than one element in each."""
    if not shape:
        return Groups((1,), (0,))
    alone = len(kept) == len(shape) > 1
    return Groups(shape, kept[:-1], apart=True) if alone else Groups(shape, kept)


def _large(program: Program, floats: Sequence[str]) -> list[str]:
    """The arrays that are not much smaller than the largest: no weights and shifts of channels."""
    sizes = {name: prod(program.buffer_of[name].shape) for name in floats}
    return [name for name, size in sizes.items() if 64 * size >= max(sizes.values())]


def _empty(program: Program, name: str) -> Array:
    buffer = program.buffer_of[name]
    return np.empty(buffer.shape, CARRIER[buffer.dtype])


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


def _codes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, name: str) -> Array:
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


def _whole_numbers(
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


def _put_in_range(
    rng: np.random.Generator, values: Array, dtype: str, indices: tuple[int, int], zeros: bool
) -> None:
    """Let most numbers be indices of this range, in any order, repeated or not; the others stay."""
    least, most = integer_bounds(dtype)
    low, high = max(least, indices[0]), min(most, indices[1])
    if low <= high:
        inside = rng.random(values.shape, dtype=np.float32) < _INDEX_SHARE
        drawn = rng.integers(low, high, values.shape, dtype=values.dtype, endpoint=True)
        values[...] = np.where(inside & ((drawn != 0) | zeros), drawn, values)


def _whole_rows(
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


_Draw: TypeAlias = Callable[[np.random.Generator, Array, str, Groups, _Turn], None]


def _normal(rng: np.random.Generator, target: Array) -> None:
    """Normally distributed numbers."""
    if target.dtype == np.float32:
        rng.standard_normal(dtype=np.float32, out=target)
    else:
        target[...] = rng.standard_normal(target.shape, dtype=np.float32)


def _random(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    _normal(rng, values)


def _in_groups(change: _Draw) -> _Draw:
    """A drawing of the whole array, since its groups may lie anywhere in it."""

    def drawn(rng: np.random.Generator, target: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
        block = np.empty(_block(target.shape), np.float32)
        _normal(rng, block)
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

    def drawn(rng: np.random.Generator, target: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
        values = np.empty(_block(target.shape), _DRAWN_AS.get(dtype, target.dtype))
        _normal(rng, values)
        change(rng, values, dtype, groups, turn)
        _repeat(values, target)

    return drawn


def _rows(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Give each group one character. Of several arrays one is extreme at a time, so that none hides a fault
    that another shows."""
    later = turn.round - ceil(len(CHARACTERS) / groups.count)
    if turn.asked and 0 <= later < len(ALIKE):
        mix_alike(values, groups, dtype, rng, ALIKE[later])
    elif turn.asked:
        mix(values, groups, dtype, rng, turn.round * groups.count)


def _columns(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """The same with groups along other dimensions, in all arrays: code may run through memory that way."""
    rank = values.ndim
    kept = rng.choice(rank, rng.integers(1, rank), replace=False) if rank > 1 else range(rank)
    mix(values, Groups(values.shape, tuple(sorted(map(int, kept)))), dtype, rng, int(rng.integers(99)))


def _magnitudes(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Each element over the whole range of the dtype, with either sign."""
    spread(values, dtype, rng)


def _scaled(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """All elements of about one size, and with them the results: a sum, too, has each size once."""
    if turn.asked:
        scale(values, groups, dtype, rng, turn.round)


def _huge(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Numbers up to the largest in some groups only: the others are compared."""
    enlarge_some(values, groups, dtype, rng)


def _special(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Infinities, NaN and zeros, one in a group, and most groups clean; many where none can hide another."""
    insert_specials(values, groups, dtype, rng, turn.number)


def _cancelling(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Neighbours along the last axis are nearly each other's negative."""
    shape = values.shape
    values *= np.exp2(rng.integers(-6, 7, shape)).astype(values.dtype)
    if shape[-1] > 1:
        pairs = shape[-1] // 2
        noise = 1 + 2**-10 * rng.standard_normal((*shape[:-1], pairs), dtype=np.float32)
        values[..., 1 : 2 * pairs : 2] = -values[..., 0 : 2 * pairs : 2] * noise


def _denormal(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Half of the elements denormal or nearly so."""
    reach = RANGES[dtype]
    exponents = rng.integers(reach.smallest - 1, reach.normal + 6, values.shape, dtype=np.int32)
    small = rng.random(values.shape, dtype=np.float32) < 0.5
    values[...] = np.where(small, np.ldexp(values, exponents), values)


def _nonnegative(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Nonnegative numbers, as for a variance, a probability or the argument of a logarithm; some are zero."""
    size = np.exp2(rng.uniform(-24, 4, values.shape)).astype(values.dtype)
    np.abs(values, out=values)
    values *= size
    values[rng.random(values.shape, dtype=np.float32) < 1 / 64] = 0


def _level(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Largest elements of any value, anywhere, alone or not."""
    if turn.asked:
        level(values, groups, dtype, rng)


def _passing(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    """Numbers that arithmetic seldom gives in one array; the others let them pass into results unchanged."""
    if turn.asked:
        single(values, groups, dtype, rng, turn.literals)
    else:
        select_one(values, groups, rng)


def _small_integers(rng: np.random.Generator, values: Array, dtype: str, groups: Groups, turn: _Turn) -> None:
    values[...] = rng.integers(-turn.largest, turn.largest + 1, values.shape, dtype=np.int32)


_IN_SETS: Mapping[str, _Draw] = {LEVELS: _level, PASSING: _passing}
_DRAW: Mapping[str, _Draw] = {
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
    **{name: _in_groups(change) for name, change in _IN_SETS.items()},
    INTEGERS: _one_by_one(_small_integers),
}


def integer_range(program: Program) -> tuple[int, str]:
    """Largest input magnitude for which nothing leaves the exact integers; 0 with the reason if none."""
    for _, node in program.walk():
        if isinstance(node, Statement) and (why := _not_polynomial(node.value)):
            return 0, why
    if any(not float(each).is_integer() for values in program.tables.values() for each in values):
        return 0, "a table holds fractions"
    if other := {b.dtype for b in program.buffers} - {"f32", *STORED_DTYPES}:
        return 0, f"it uses {', '.join(sorted(other))}"
    for dtype in STORED_DTYPES:
        if use := next(beyond_storage(program, dtype, interface=True), ""):
            return 0, use
    for largest in _RANGES:
        if _magnitude(program, largest) < EXACT_INTEGERS:
            return largest, ""
    return 0, "its intermediates may exceed 2^24 even for inputs of -1, 0 and 1"


def _not_polynomial(value: Expression) -> str:
    """The reason why integer inputs do not give integer results; "" when they do."""
    for node in walk(value):
        if isinstance(node, Operation) and not OPERATIONS[node.name].exact_on_integers:
            return f"it uses {node.name}"
        if isinstance(node, Literal) and not (float(node.value).is_integer() or abs(node.value) == inf):
            return f"it uses the constant {node.text}"
    return ""


def _magnitude(program: Program, largest: int) -> float:
    """A bound on every intermediate, adding up the terms of a sum in any order.

    Follows the text once; values that travel around a loop through other buffers are caught by
    looking at what the reference really stored.
    """
    size: dict[str, float] = dict.fromkeys((b.name for b in program.buffers), 0.0)
    for name in program.inputs:
        table = program.tables.get(name, ())
        size[program.buffer_of[name].name] = max(map(abs, table)) if table else largest
    worst = 0.0
    for path, node in program.walk():
        if not isinstance(node, Statement):
            continue
        sizes = tuple(s.size for s in program.ancestors(path))
        value, inner = _expression_magnitude(node.value, program, size, sizes)
        buffer = program.buffer_of[node.target.array]
        used = {level for k in buffer.materialised for level in node.target.subscripts[k].levels}
        trips = prod(s for level, s in enumerate(sizes) if level not in used)
        if node.accumulate == "add":
            value = size[buffer.name] + trips * value
        elif node.accumulate == "mul":
            # Above the limit the exact power does not matter.
            factor = max(value, 1)
            grown = inf if factor > 1 and trips * log2(factor) > 64 else factor**trips
            value = max(size[buffer.name], 1) * grown
        size[buffer.name] = max(size[buffer.name], value)
        worst = max(worst, inner, value)
    return worst


def _expression_magnitude(
    value: Expression, program: Program, size: Mapping[str, float], sizes: tuple[int, ...]
) -> tuple[float, float]:
    """Bounds on the value and on everything computed on the way to it."""
    match value:
        case Literal():
            here = 0.0 if abs(value.value) == inf else abs(float(value.value))
            return here, here
        case IndexValue():
            here = float(max(map(abs, value.index.bounds(sizes))))
            return here, here
        case Read():
            here = size[program.buffer_of[value.access.array].name]
            return here, here
        case Cast():
            here, inner = _expression_magnitude(value.argument, program, size, sizes)
            exact = value.dtype not in DIGITS or here <= 2 ** DIGITS[value.dtype]
            return here, inner if exact else inf
        case Operation():
            parts = [_expression_magnitude(a, program, size, sizes) for a in value.arguments]
            ends = product(*((-bound, bound) for bound, _ in parts))
            values = [abs(OPERATIONS[value.name].floats(*corner)) for corner in ends]
            # Infinities that cancel give NaN at a corner: the other corners and the operands bound the value.
            here = max((v for v in values if v == v), default=0.0)
            return here, max(here, *(inner for _, inner in parts))
        case _:
            assert_never(value)
