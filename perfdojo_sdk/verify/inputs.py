"""Inputs that make a kernel show its faults, drawn by class.

The classes are: plain numbers; sums that cancel; rows (or whatever is reduced together) with different
characters; magnitudes over the whole range; a few magnitudes, each for all elements at once; huge numbers in
some rows; denormals; single infinities and NaN; numbers that are not negative; exact numbers that pass into
results unchanged; and small integers, on which additions and multiplications are exact in any order. Arrays
of integers hold small numbers or, in the classes of extremes, their dtype's whole range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod

import numpy as np

from perfdojo_sdk.core.dtypes import (
    CODED_DTYPES,
    FLOAT_DTYPES,
    bits,
)
from perfdojo_sdk.core.expression import Cast, Literal, Read, walk
from perfdojo_sdk.core.formats import middles
from perfdojo_sdk.core.geometry import index_ranges
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.measure.kernel_calls import CARRIER, carry
from perfdojo_sdk.verify.characters import ALIKE, CHARACTERS
from perfdojo_sdk.verify.coverage import SCALINGS
from perfdojo_sdk.verify.drawing import (
    DRAW,
    DRAWN_AS,
    IN_SETS,
    LEVELS,
    PASSING,
    Turn,
    codes,
    normal,
    put_in_range,
    whole_numbers,
    whole_rows,
)
from perfdojo_sdk.verify.groups import Array, Groups, kept_dimensions
from perfdojo_sdk.verify.mixture import SPECIALS
from perfdojo_sdk.verify.zeros import shift_counts, undivided

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
#: Most arrays in all sets of the class levels together: each costs time of its own.
_LEVEL_ARRAYS = 1 << 13
#: Classes of which rows have a character as well.
_CHARACTERISTIC = frozenset(
    {"magnitudes", "scaled", "huge", "special", "cancelling", "denormal", LEVELS, PASSING}
)

#: The classes for programs that only move data.
_MOVING = ("random", "special", "denormal")

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
#: With fewer groups than this, a character may miss the only groups that some part of the code works on.
_FEW_GROUPS = 8 * len(CHARACTERS)
#: Characters of ``ALIKE`` for a program of which one drawing has more instances than all drawings may have.
_ALIKE_OF_LARGE = 2


def _moves_data(program: Program) -> bool:
    """True if each statement copies an element or writes a constant: no number depends on another one, so
    that one drawing shows what a kernel does with each."""
    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    return all(not s.accumulate and isinstance(s.value, Read | Literal) for s in statements)


def drawings(program: Program, instances: int) -> Mapping[str, int]:
    """Class -> how many drawings of it a program of so many statement instances gets.

    If few elements are reduced together, there are many groups, and one drawing has all characters; if
    everything is reduced to one number, a drawing has one character. If there are few groups, each may have
    code of its own; then there are further drawings in which all groups have one character of ``ALIKE`` (if a
    drawing takes long, of its first ones).
    """
    if _moves_data(program):
        return {}
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
            target[...] = codes(rng, target.shape, dtype, name)
            continue
        if dtype not in FLOAT_DTYPES:
            target[...] = whole_numbers(rng, target.shape, dtype, name, array in zeros, literals)
            if array in counts:
                target[...] %= bits(dtype)
            if array in indices:
                put_in_range(rng, target, dtype, indices[array], array in zeros)
            continue
        values = np.empty(target.shape, DRAWN_AS.get(dtype, target.dtype))
        normal(rng, values)
        with np.errstate(under="ignore"):
            for first in range(min(len(floats), sets)):
                part = values[first :: len(floats)]
                turn = Turn(0, 0, first == floats.index(array) % sets, 1, literals)
                IN_SETS[name](rng, part, dtype, groups[array].of_sets(len(part)), turn)
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
    if _moves_data(program):
        return _MOVING
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
            target[...] = codes(rng, target.shape, dtype, name)
            continue
        if dtype not in FLOAT_DTYPES:
            target[...] = whole_numbers(rng, target.shape, dtype, name, array in zeros, literals)
            if name == "rows" and dtype != "bool":
                # Of several arrays, each has another character.
                whole_rows(rng, target, dtype, groups[array], number + 3 * index, array in zeros)
            if array in counts:
                target[...] %= bits(dtype)
            if array in indices:
                put_in_range(rng, target, dtype, indices[array], array in zeros)
            continue
        if name == "scaled":
            part, parts = min(floats.index(array), 1), _parts(floats)
            turn = Turn(number, number // parts, part == number % parts, largest)
        else:
            asked = array in large and large.index(array) % turns == number % turns
            turn = Turn(number, number // turns, asked, largest, literals)
        values[array] = np.empty(target.shape, np.float32) if dtype == "bf16" else target
        DRAW[name](rng, values[array], dtype, groups[array], turn)
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
