"""Elements moved and not changed: transposed, joined, cut, repeated, padded, picked."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.operators.combinations import MOST_ROWS, Taps, along
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import affine, axis_of, broadcast
from perfdojo_sdk.graph.writer import Writer, levels

#: Most arrays of one kernel's interface.
MOST_ARRAYS = 32


def transpose(b: Builder, x: Value, order: Sequence[int]) -> Value:
    """Dimension k of the result is dimension ``order[k]`` of ``x``."""
    if sorted(order) != list(range(x.rank)):
        raise Malformed(f"{list(order)} is no order of {x.rank} dimensions")
    shape = tuple(x.shape[n] for n in order)
    if [n for n in order if x.shape[n] != 1] == [n for n in range(x.rank) if x.shape[n] != 1]:
        return b.view(x, shape)
    k = Writer(b, "transpose")
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(x.rank)
    source = [names[list(order).index(n)] for n in range(x.rank)]
    k.nest(shape, f"{y(names)} = {a(source)}")
    return k.done()[0]


def expand(b: Builder, x: Value, shape: Shape) -> Value:
    """``x`` broadcast to ``shape`` and itself."""
    shape = broadcast(x.shape, shape)
    if prod(shape) == x.elements:
        return b.view(x, shape)
    k = Writer(b, "expand")
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(len(shape))
    shift = len(shape) - x.rank
    source = [0 if s == 1 else names[n + shift] for n, s in enumerate(x.shape)]
    k.nest(shape, f"{y(names)} = {a(source)}")
    return k.done()[0]


def tile(b: Builder, x: Value, repeats: Sequence[int]) -> Value:
    """``x`` repeated along each dimension."""
    if len(repeats) != x.rank or min(repeats, default=1) < 0:
        raise Malformed(f"{x.text} repeated {list(repeats)} times")
    shape = tuple(s * r for s, r in zip(x.shape, repeats, strict=True))
    if shape == x.shape:
        return x
    k = Writer(b, "tile")
    a, y = k.read(x), k.write(shape, x.dtype)
    copies, names = levels(x.rank), levels(x.rank, x.rank)
    target = [affine((c, s), (n, 1)) for c, n, s in zip(copies, names, x.shape, strict=True)]
    k.nest([*repeats, *x.shape], f"{y(target)} = {a(names)}")
    return k.done()[0]


def concat(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """Arrays one behind the other along an axis."""
    dtype = same_dtype(*values)
    axis = axis_of(axis, values[0].rank)
    rest = {(*v.shape[:axis], *v.shape[axis + 1 :]) for v in values}
    if len(rest) > 1 or not values[0].rank:
        raise Malformed(f"{', '.join(v.text for v in values[:8])} do not concatenate along axis {axis}")
    while len(values) > MOST_ARRAYS:
        values = [concat(b, values[:MOST_ARRAYS], axis), *values[MOST_ARRAYS:]]
    if len(values) == 1:
        return values[0]
    shape = list(values[0].shape)
    shape[axis] = sum(v.shape[axis] for v in values)
    k = Writer(b, "concat")
    y, names, at = k.write(tuple(shape), dtype), levels(len(shape)), 0
    for value in values:
        a, target = k.read(value), [*names]
        target[axis] = affine((names[axis], 1), at)
        k.nest(value.shape, f"{y(target)} = {a(names)}")
        at += value.shape[axis]
    return k.done()[0]


def cut(b: Builder, x: Value, starts: Sequence[int], steps: Sequence[int], shape: Shape) -> Value:
    """Elements from ``starts`` on in ``steps``, which may be negative."""
    if shape == x.shape and all(s == 0 for s in starts) and all(s == 1 for s in steps):
        return x
    k = Writer(b, "slice")
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(x.rank)
    source = [
        start if size == 1 else affine((n, step), start)
        for n, start, step, size in zip(names, starts, steps, shape, strict=True)
    ]
    k.nest(shape, f"{y(names)} = {a(source)}")
    return k.done()[0]


def slice_(
    b: Builder,
    x: Value,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Value:
    """x[start:end:step] along axes, with Python's rules for bounds."""
    axes = list(range(len(starts))) if axes is None else [axis_of(a, x.rank) for a in axes]
    steps = [1] * len(starts) if steps is None else list(steps)
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(set(axes)) < len(axes):
        raise Malformed("starts, ends, axes and steps of a slice differ in number, or an axis appears twice")
    if 0 in steps:
        raise Malformed("a slice with step 0")
    begin, step, shape = [0] * x.rank, [1] * x.rank, list(x.shape)
    for axis, first, last, by in zip(axes, starts, ends, steps, strict=True):
        places = range(*slice(first, last, by).indices(x.shape[axis]))
        begin[axis], step[axis], shape[axis] = places.start if places else 0, by, len(places)
    return cut(b, x, begin, step, tuple(shape))


def split(b: Builder, x: Value, sizes: Sequence[int], axis: int) -> list[Value]:
    """Parts along an axis."""
    axis = axis_of(axis, x.rank)
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise Malformed(f"{x.text} does not split into {list(sizes)[:20]} along axis {axis}")
    found, at = [], 0
    for size in sizes:
        begin, shape = [0] * x.rank, list(x.shape)
        begin[axis], shape[axis] = at, size
        found.append(cut(b, x, begin, [1] * x.rank, tuple(shape)))
        at += size
    return found


def pad_constant(
    b: Builder, x: Value, begins: Sequence[int], ends: Sequence[int], fill: Value | None
) -> Value:
    """Elements around ``x``, all equal to ``fill`` or 0; negative numbers take some away."""
    shape = tuple(max(s + p + q, 0) for s, p, q in zip(x.shape, begins, ends, strict=True))
    if all(p == q == 0 for p, q in zip(begins, ends)):
        return x
    k = Writer(b, "pad")
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(x.rank)
    if fill is not None:
        same_dtype(x, fill)
        value = k.read(b.view(fill, ()))([])
    else:
        value = "0"
    if any(p > 0 or q > 0 for p, q in zip(begins, ends)):
        k.nest(shape, f"{y(names)} = {value}")
    kept = [max(min(s, s + q) - max(0, -p), 0) for s, p, q in zip(x.shape, begins, ends, strict=True)]
    target = [affine((n, 1), max(p, 0)) for n, p in zip(names, begins, strict=True)]
    source = [affine((n, 1), max(-p, 0)) for n, p in zip(names, begins, strict=True)]
    k.nest(kept, f"{y(target)} = {a(source)}")
    return k.done()[0]


def pad(b: Builder, x: Value, begins: Sequence[int], ends: Sequence[int], mode: str) -> Value:
    """Elements around ``x`` that repeat it: its ``edge``, mirrored without the edge (``reflect``), or as if
    it were periodic (``wrap``)."""
    for axis, (before, behind) in enumerate(zip(begins, ends, strict=True)):
        size = x.shape[axis]
        places, count = range(-before, size + behind), size + before + behind
        if count == size and not before:
            continue
        if count > 0 and not size:
            raise Malformed(f"{x.text} has no element to pad with")
        if count <= MOST_ROWS:
            x = along(b, "pad", x, axis, _copies(places, size, mode))
        else:  # the middle as a whole, and an array for each edge
            edges = [range(-before, 0), range(size, size + behind)]
            if min(before, behind) < 0 or max(before, behind) > MOST_ROWS:
                raise Refused(Reason.SIZE, f"padding of {x.text} by {before} and {behind} elements")
            first, last = (along(b, "pad", x, axis, _copies(edge, size, mode)) for edge in edges)
            x = concat(b, [part for part in (first, x, last) if part.shape[axis]], axis)
    return x


def _copies(places: range, size: int, mode: str) -> list[Taps]:
    """For each place along an axis the element that stands there."""
    return [((_padded(place, size, mode), 1.0),) for place in places]


def _padded(place: int, size: int, mode: str) -> int:
    if mode == "edge":
        return min(max(place, 0), size - 1)
    if mode == "wrap":
        return place % size
    if mode != "reflect":
        raise Malformed(f"padding by {ascii(mode)[:40]}")
    period = max(2 * (size - 1), 1)
    place %= period
    return min(place, period - place) if size > 1 else 0


def gather_known(b: Builder, x: Value, axis: int, indices: Sequence[int], shape: Shape) -> Value:
    """Elements along an axis at places that are known; ``shape`` is that of the places."""
    axis = axis_of(axis, x.rank)
    size = x.shape[axis] if x.rank else 0
    for place in indices:
        if not -size <= place < size:
            raise Malformed(f"index {place} into axis {axis} of {x.text}")
    found = along(b, "gather", x, axis, [((place % size, 1.0),) for place in indices])
    return b.view(found, (*x.shape[:axis], *shape, *x.shape[axis + 1 :]))


# -- blocks and diagonals --------------------------------------------------------------------------


def depth_to_space(b: Builder, x: Value, block: int, columns_first: bool) -> Value:
    """Channels as blocks of the image; ``columns_first``: the block's channels are outermost (DCR)."""
    if x.rank != 4 or block < 1 or x.shape[1] % (block * block):
        raise Malformed(f"{x.text} in blocks of {block}")
    n, c, h, w = x.shape
    depth = c // (block * block)
    if columns_first:
        split_, order = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split_, order = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    return b.view(transpose(b, b.view(x, split_), order), (n, depth, h * block, w * block))


def space_to_depth(b: Builder, x: Value, block: int, columns_first: bool = True) -> Value:
    """Blocks of the image as channels."""
    if x.rank != 4 or block < 1 or x.shape[2] % block or x.shape[3] % block:
        raise Malformed(f"{x.text} in blocks of {block}")
    n, c, h, w = x.shape
    apart = b.view(x, (n, c, h // block, block, w // block, block))
    order = (0, 3, 5, 1, 2, 4) if columns_first else (0, 1, 3, 5, 2, 4)
    moved = transpose(b, apart, order)
    return b.view(moved, (n, c * block * block, h // block, w // block))


def trilu(b: Builder, x: Value, diagonal: int, upper: bool) -> Value:
    """The triangle above or below a diagonal; 0 elsewhere."""
    if x.rank < 2:
        raise Malformed(f"a triangle of {x.text}")
    k = Writer(b, "trilu")
    a, y, names = k.read(x), k.write(x.shape, x.dtype), levels(x.rank)
    row, column = names[-2:]
    # Beyond the matrix, all diagonals are alike.
    diagonal = max(-x.shape[-2], min(x.shape[-1], diagonal))
    sign = ">=" if upper else "<="
    k.nest(
        x.shape, f"{y(names)} = select({column} {sign} index({affine((row, 1), diagonal)}), {a(names)}, 0)"
    )
    return k.done()[0]


def diagonal(b: Builder, x: Value, offset: int, one: int, other: int) -> Value:
    """The diagonal of two dimensions, which becomes the last dimension; ``offset`` counts along ``other``."""
    if x.rank < 2 or one == other:
        raise Malformed(f"a diagonal of {x.text}")
    down, right = max(-offset, 0), max(offset, 0)
    length = max(min(x.shape[one] - down, x.shape[other] - right), 0)
    rest = [n for n in range(x.rank) if n not in (one, other)]
    shape = (*(x.shape[n] for n in rest), length)
    k = Writer(b, "diagonal")
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(len(shape))
    source = [""] * x.rank
    for n, name in zip(rest, names, strict=False):
        source[n] = name
    source[one], source[other] = affine((names[-1], 1), down), affine((names[-1], 1), right)
    k.nest(shape, f"{y(names)} = {a(source)}")
    return k.done()[0]


def diagonal_matrix(b: Builder, x: Value, offset: int) -> Value:
    """Matrices with the last dimension of ``x`` on a diagonal and 0 elsewhere."""
    if not x.rank:
        raise Malformed("a diagonal of a scalar")
    down, right = max(-offset, 0), max(offset, 0)
    size = x.shape[-1] + abs(offset)
    shape = (*x.shape[:-1], size, size)
    k = Writer(b, "diagonal_matrix")
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(len(shape))
    k.nest(shape, f"{y(names)} = 0")
    along_ = names[x.rank - 1]
    target = [*names[: x.rank - 1], affine((along_, 1), down), affine((along_, 1), right)]
    k.nest(x.shape, f"{y(target)} = {a(names[: x.rank])}")
    return k.done()[0]


def sliding(b: Builder, x: Value, axis: int, size: int, step: int) -> Value:
    """Windows of ``size`` elements along an axis, ``step`` apart; the elements become the last dimension."""
    if size < 1 or step < 1 or size > x.shape[axis]:
        raise Malformed(f"windows of {size} elements in steps of {step} along axis {axis} of {x.text}")
    count = (x.shape[axis] - size) // step + 1
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)
    k = Writer(b, "sliding")
    a, y, names = k.read(x), k.write(shape, x.dtype), levels(len(shape))
    source = names[: x.rank]
    source[axis] = affine((names[axis], step), (names[-1], 1))
    k.nest(shape, f"{y(names)} = {a(source)}")
    return k.done()[0]


def placed(b: Builder, x: Value, part: Value, starts: Sequence[int], steps: Sequence[int]) -> Value:
    """``x`` with ``part`` in the place of its elements from ``starts`` on in ``steps``."""
    ends = [s + (n - 1) * t for s, n, t in zip(starts, part.shape, steps, strict=True)]
    if part.rank != x.rank or any(e >= size for e, size in zip(ends, x.shape, strict=True)):
        raise Malformed(f"{part.text} in the place of a part of {x.text}")
    dtype = same_dtype(x, part)
    k = Writer(b, "placed")
    a, c, y, names = k.read(x), k.read(part), k.write(x.shape, dtype), levels(x.rank)
    k.nest(x.shape, f"{y(names)} = {a(names)}")
    target = [affine((n, t), s) for n, t, s in zip(names, steps, starts, strict=True)]
    k.nest(part.shape, f"{y(target)} = {c(names)}")
    return k.done()[0]
