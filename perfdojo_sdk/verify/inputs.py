"""Inputs that make a kernel show its faults: one drawing per class.

Plain numbers, sums that cancel, magnitudes near overflow, denormals, scattered infinities, NaNs
and zeros, and small integers on which additions and multiplications are exact in any order. Arrays of
integers hold small numbers, or in the classes of extremes their dtype's whole range.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log2, prod
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.dtypes import DIGITS, FLOAT_DTYPES, STORED_DTYPES, bits, integer_bounds
from perfdojo_sdk.core.expression import Expression, IndexValue, Literal, Operation, Read
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.measure.worker import CARRIER

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Single precision holds every integer below this one.
EXACT_INTEGERS = 2**24

FLOAT_CLASSES = ("random", "cancelling", "huge", "denormal", "special")
INTEGERS = "integers"

_POLYNOMIAL = frozenset({"add", "sub", "mul", "max", "min", "neg", "abs"})
_RANGES = (8, 4, 2, 1)

#: Elements of one array that are drawn one by one for a class other than random.
_DRAWN = 1 << 20

#: Exponents of what is drawn as huge and as denormal, where a dtype is narrower than f32.
_HUGE = {"f16": (8, 15)}
_TINY = {"f16": (-25, -13)}


def draw(
    name: str, program: Program, seed: int, largest: int = 1, out: Mapping[str, Array] | None = None
) -> Mapping[str, Array]:
    """Inputs of class ``name`` for every input of the program, in the arrays ``out`` if given;
    ``largest`` bounds the integers."""
    rng = np.random.default_rng([seed, *name.encode()])
    drawn = out if out is not None else {n: _empty(program, n) for n in program.inputs}
    for array in program.inputs:
        shape, dtype, target = drawn[array].shape, program.buffer_of[array].dtype, drawn[array]
        if dtype not in FLOAT_DTYPES:
            target[...] = _whole_numbers(rng, shape, dtype, name)
        elif name == "random":
            if dtype == "f32":
                rng.standard_normal(dtype=np.float32, out=target)
            else:
                target[...] = _random(rng, shape)
        else:
            # Of a large array, a block of rows is drawn and repeated: drawing would cost more than
            # everything that is done with it.
            rows = _block(shape)
            values = _integers(rng, rows, largest) if name == INTEGERS else _DRAWINGS[name](rng, rows, dtype)
            _repeat(values, target)
    return drawn


def _empty(program: Program, name: str) -> Array:
    buffer = program.buffer_of[name]
    return np.empty(buffer.shape, CARRIER[buffer.dtype])


def _repeat(block: Array, target: Array) -> None:
    """Fill an array with a block of rows again and again."""
    rows = len(block) if block.shape else 1
    if block.shape == target.shape:
        target[...] = block
        return
    for k in range(0, len(target), rows):
        target[k : k + rows] = block[: len(target) - k]


_WHOLE_TYPES = {"i": "int", "u": "uint"}


def _whole_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, name: str) -> Array:
    """No zeros, since a program may divide by them; of bool, both values."""
    low, high = integer_bounds(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape, dtype=np.uint8)
    if name not in ("huge", "special"):
        low, high = max(low, -100), min(high, 100)
    kind = np.dtype(f"{_WHOLE_TYPES[dtype[0]]}{bits(dtype)}")
    values = rng.integers(low, high, shape, dtype=kind, endpoint=True)
    return np.where(values == 0, kind.type(1), values)


def _block(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with so few rows that about ``_DRAWN`` elements remain; an odd number of rows."""
    rows = _DRAWN // prod(shape[1:]) | 1 if shape else 1
    return (min(shape[0], rows), *shape[1:]) if shape else shape


def _random(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)


def _cancelling(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Neighbours along the last axis are nearly each other's negative."""
    values = _random(rng, shape) * np.exp2(rng.integers(-6, 7, shape)).astype(np.float32)
    if shape and shape[-1] > 1:
        pairs = shape[-1] // 2
        noise = 1 + 2**-10 * _random(rng, (*shape[:-1], pairs))
        values[..., 1 : 2 * pairs : 2] = -values[..., 0 : 2 * pairs : 2] * noise
    return values


def _huge(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """One element in 64 up to the largest float, so that products and sums may overflow."""
    values = _random(rng, shape)
    at = rng.random(shape, dtype=np.float32) < 1 / 64
    count = int(np.count_nonzero(at))
    low, high = _HUGE.get(dtype, (60, 127))
    values[at] = (
        rng.uniform(1, 2, count) * np.exp2(rng.uniform(low, high, count).round()) * rng.choice([-1, 1], count)
    )
    largest = np.float32(np.finfo(np.float16 if dtype == "f16" else np.float32).max)
    return np.clip(values, -largest, largest)


def _denormal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Half of the elements denormal or nearly so."""
    values = _random(rng, shape)
    small = np.ldexp(values, rng.integers(*_TINY.get(dtype, (-150, -120)), shape, dtype=np.int32))
    return np.where(rng.random(shape, dtype=np.float32) < 0.5, small, values)


def _special(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Infinities, NaNs and zeros, about one for every second row; every kind at least once if it fits."""
    values = _random(rng, shape)
    size = values.size
    kinds = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], np.float32)
    count = min(size, max(len(kinds), size // (2 * shape[-1] if shape else 1)))
    at = rng.choice(size, count, replace=False) if size < 1 << 20 else rng.integers(0, size, count)
    values.reshape(-1)[at] = np.resize(kinds, count)
    return values


def _integers(rng: np.random.Generator, shape: tuple[int, ...], largest: int) -> Array:
    return rng.integers(-largest, largest + 1, shape, dtype=np.int32)


_DRAWINGS = {
    "cancelling": _cancelling,
    "huge": _huge,
    "denormal": _denormal,
    "special": _special,
}


def integer_range(program: Program) -> tuple[int, str]:
    """Largest input magnitude for which nothing leaves the exact integers; 0 with the reason if none."""
    for _, node in program.walk():
        if isinstance(node, Statement) and (why := _not_polynomial(node.value)):
            return 0, why
    if other := {b.dtype for b in program.buffers} - {"f32", *STORED_DTYPES}:
        return 0, f"it uses {', '.join(sorted(other))}"
    for largest in _RANGES:
        if _magnitude(program, largest) < EXACT_INTEGERS:
            return largest, ""
    return 0, "its intermediates may exceed 2^24 even for inputs of -1, 0 and 1"


def _not_polynomial(value: Expression) -> str:
    """Why integers do not stay integers, or nothing."""
    if isinstance(value, Literal):
        exact = float(value.value).is_integer() or abs(value.value) == inf
        return "" if exact else f"it uses the constant {value.text}"
    if isinstance(value, Operation):
        if value.name not in _POLYNOMIAL:
            return f"it uses {value.name}"
        return next((why for a in value.arguments if (why := _not_polynomial(a))), "")
    return ""


def _magnitude(program: Program, largest: int) -> float:
    """A bound on every intermediate, adding up the terms of a sum in any order.

    Follows the text once; values that travel around a loop through other buffers are caught by
    looking at what the reference really stored.
    """
    size: dict[str, float] = dict.fromkeys((b.name for b in program.buffers), 0.0)
    for name in program.inputs:
        size[program.buffer_of[name].name] = largest
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
            # Beyond what is asked for, the exact power does not matter.
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
    if isinstance(value, Literal):
        here = 0.0 if abs(value.value) == inf else abs(float(value.value))
        return here, here
    if isinstance(value, IndexValue):
        here = float(max(map(abs, value.index.bounds(sizes))))
        return here, here
    if isinstance(value, Read):
        here = size[program.buffer_of[value.access.array].name]
        return here, here
    if not isinstance(value, Operation):
        here, inner = _expression_magnitude(value.argument, program, size, sizes)
        exact = value.dtype not in DIGITS or here <= 2 ** DIGITS[value.dtype]
        return here, inner if exact else inf
    parts = [_expression_magnitude(a, program, size, sizes) for a in value.arguments]
    bounds = [bound for bound, _ in parts]
    here = (
        prod(bounds) if value.name == "mul" else sum(bounds) if value.name in ("add", "sub") else max(bounds)
    )
    return here, max(here, *(inner for _, inner in parts))
