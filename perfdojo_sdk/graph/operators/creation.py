"""Arrays made of numbers and places alone."""

from __future__ import annotations

import numpy as np

from perfdojo_sdk.graph.arrays import dtype_of
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Shape, Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import affine, axis_of
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float, levels


def fill(b: Builder, shape: Shape, value: Array) -> Value:
    """An array of equal elements."""
    dtype = dtype_of(value)
    if dtype is None:
        raise Refused(Reason.DTYPE, f"a fill of {value.dtype}")
    k = Writer(b, "fill")
    y, names = k.write(shape, dtype), levels(len(shape))
    k.nest(shape, f"{y(names)} = {y.number(value.reshape(-1)[0])}")
    return k.done()[0]


def eye_like(b: Builder, shape: Shape, diagonal: int, dtype: str) -> Value:
    """1 on a diagonal, 0 elsewhere."""
    if len(shape) != 2:
        raise Malformed(f"a diagonal of {len(shape)} dimensions")
    k = Writer(b, "eye")
    y, names = k.write(shape, dtype), levels(2)
    diagonal = max(-shape[0], min(shape[1], diagonal))
    one = f"select({names[1]} == index({affine((names[0], 1), diagonal)}), 1, 0)"
    k.nest(shape, f"{y(names)} = {one if computed_in(dtype) == dtype else f'{dtype}(f32({one}))'}")
    return k.done()[0]


def range_(b: Builder, start: Value, limit: Value, delta: Value) -> Value:
    """start + k * delta below the limit."""
    dtype = same_dtype(start, limit, delta)
    if any(v.elements != 1 for v in (start, limit, delta)):
        raise Malformed(f"a range from {start.text} to {limit.text} by {delta.text}")
    first, last, step = (b.known(v).reshape(-1)[0] for v in (start, limit, delta))
    if step == 0 or not np.isfinite([np.float64(v) for v in (first, last, step)]).all():
        raise Malformed("a range with step 0, or of infinite length")
    if is_float(dtype):
        count = int(max(np.ceil((np.float64(last) - np.float64(first)) / np.float64(step)), 0))
    else:
        count = len(range(int(first), int(last), int(step)))
    k = Writer(b, "range")
    one, by = k.read(b.view(start, ())), k.read(b.view(delta, ()))
    y = k.write((count,), dtype)
    k.nest((count,), f"{y(['{0}'])} = {y.store(f'{one.load([])} + {{0}} * {by.load([])}')}")
    return k.done()[0]


def one_hot(b: Builder, indices: Value, depth: int, values: Value, axis: int) -> Value:
    """``values[1]`` where the index is the place along a new axis, ``values[0]`` elsewhere; negative indices
    count from the end."""
    axis = axis_of(axis, indices.rank + 1)
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    if values.shape != (2,):
        raise Malformed(f"values of OneHot are {values.text}")
    k = Writer(b, "one_hot")
    index, pair, names = k.read(indices), k.read(values), levels(len(shape))
    y = k.write(shape, values.dtype)
    at = index.load([n for n_, n in enumerate(names) if n_ != axis])
    at = at if index.dtype == "i64" else f"i64({at})"
    found = f"or({at} == {names[axis]}, {at} + {depth} == {names[axis]})"
    k.nest(shape, f"{y(names)} = select({found}, {pair(['1'])}, {pair(['0'])})")
    return k.done()[0]
