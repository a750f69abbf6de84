"""Elements read or written at places that are data: gathers, scatters, reversed sequences.

An index is clamped in the program, so no kernel reads outside of an array. Where the standard forbids an
index beyond the array, a check of the graph says whether there was one.
"""

from __future__ import annotations

from math import prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.operators import checks
from perfdojo_sdk.graph.operators.checks import lengths_within, reported
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.operators.movement import cut, gather_known
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of
from perfdojo_sdk.graph.writer import Writer, levels

#: Ways to combine elements that are written to one place -> the sign of the statement.
REDUCTIONS = {"none": "=", "add": "+=", "mul": "*=", "max": "max=", "min": "min="}
#: Most indices that become nests of their own where they are known.
FEW = 64


def within(index: str, size: int, negative: bool = True) -> str:
    """An index from 0 to ``size - 1`` as a subscript; with ``negative``, one below 0 counts from the end."""
    place = f"select({index} < 0, {index} + {size}, {index})" if negative else index
    return f"clamp({place}, 0, {size - 1})"


def checked(b: Builder, indices: Value, size: int, negative: bool = True, ignored: int | None = None) -> None:
    """Have the graph report an index above ``size - 1`` or below 0, with ``negative`` below ``-size``; but
    ``ignored`` is no index."""
    least = -size if negative else 0
    if indices.dtype not in ("i32", "i64"):
        raise Malformed(f"indices of {indices.dtype}")
    if not indices.elements:
        return
    if not size:
        raise Malformed(f"indices into {size} elements")
    if b.is_known(indices) and indices.elements <= checks.FEW:
        for place in b.known_integers(indices):
            if not least <= place < size and place != ignored:
                raise Malformed(f"index {place} into {size} elements")
        return

    def outside(element: str) -> str:
        found = f"or({element} < {least}, {element} >= {size})"
        skips = ignored is not None and not least <= ignored < size
        return f"and({found}, {element} != {ignored})" if skips else found

    reported(b, indices, outside, f"an index is beyond {size} elements", "outside")


def gather(b: Builder, x: Value, indices: Value, axis: int, negative: bool = True) -> Value:
    """Slices of ``x`` along an axis, in the places of the indices; ``negative``: as for :func:`within`."""
    axis = axis_of(axis, x.rank)
    if not x.rank:
        raise Malformed(f"a gather from {x.text}")
    checked(b, indices, x.shape[axis], negative)
    if b.is_known(indices) and indices.elements <= FEW:
        return gather_known(b, x, axis, b.known_integers(indices), indices.shape)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    k = Writer(b, "gather")
    a, i, y, names = k.read(x), k.read(indices), k.write(shape, x.dtype), levels(len(shape))
    index = within(i(names[axis : axis + indices.rank]), x.shape[axis], negative)
    k.nest(shape, f"{y(names)} = {a([*names[:axis], index, *names[axis + indices.rank :]])}")
    return k.done()[0]


def gather_elements(b: Builder, x: Value, indices: Value, axis: int, negative: bool = True) -> Value:
    """For each index the element at its own place but for the axis, where it is at the index; ``negative``:
    as for :func:`within`."""
    axis = axis_of(axis, x.rank)
    _fits(x, indices.shape, axis)
    checked(b, indices, x.shape[axis], negative)
    k = Writer(b, "gather_elements")
    a, i, y = k.read(x), k.read(indices), k.write(indices.shape, x.dtype)
    names = levels(x.rank)
    source = [*names]
    source[axis] = within(i(names), x.shape[axis], negative)
    k.nest(indices.shape, f"{y(names)} = {a(source)}")
    return k.done()[0]


def _fits(x: Value, shape: Shape, axis: int) -> None:
    if len(shape) != x.rank or any(s > x.shape[k] for k, s in enumerate(shape) if k != axis):
        raise Malformed(f"indices of shape {list(shape)} into {x.text} along axis {axis}")


def gather_nd(b: Builder, x: Value, indices: Value, batch: int) -> Value:
    """The slices that index tuples choose, within each of the outermost ``batch`` dimensions."""
    count = indices.shape[-1] if indices.rank else 0
    if not 0 <= batch < min(x.rank, indices.rank) or batch + count > x.rank or not count:
        raise Malformed(f"index tuples {indices.text} into {x.text} with {batch} dimensions of batches")
    if x.shape[:batch] != indices.shape[:batch]:
        raise Malformed(f"{x.text} and {indices.text} differ in their batches")
    inside, rest = indices.shape[batch:-1], x.shape[batch + count :]
    for n in range(count):
        checked(b, _column(b, indices, n), x.shape[batch + n])
    shape = (*x.shape[:batch], *inside, *rest)
    k = Writer(b, "gather_nd")
    a, i, y, names = k.read(x), k.read(indices), k.write(shape, x.dtype), levels(len(shape))
    outer = names[: batch + len(inside)]
    chosen = [within(i([*outer, n]), x.shape[batch + n]) for n in range(count)]
    k.nest(shape, f"{y(names)} = {a([*names[:batch], *chosen, *names[len(outer) :]])}")
    return k.done()[0]


def _column(b: Builder, indices: Value, n: int) -> Value:
    """The n-th index of each tuple."""
    begin = [0] * (indices.rank - 1) + [n]
    return cut(b, indices, begin, [1] * indices.rank, (*indices.shape[:-1], 1))


# -- writing at places that are data ---------------------------------------------------------------


def scatter_elements(
    b: Builder, x: Value, indices: Value, updates: Value, axis: int, reduction: str, negative: bool = True
) -> Value:
    """``x`` with updates at their own places but for the axis, where each is at its index; ``negative``: as
    for :func:`within`."""
    axis = axis_of(axis, x.rank)
    dtype, sign = same_dtype(x, updates), _sign(reduction, x)
    _fits(x, indices.shape, axis)
    if indices.shape != updates.shape:
        raise Malformed(f"{indices.text} indices for {updates.text} updates")
    checked(b, indices, x.shape[axis], negative)
    k = Writer(b, "scatter_elements")
    a, i, u, y = k.read(x), k.read(indices), k.read(updates), k.write(x.shape, dtype)
    names = levels(x.rank)
    k.nest(x.shape, f"{y(names)} = {a(names)}")
    target = [*names]
    target[axis] = within(i(names), x.shape[axis], negative)
    k.nest(indices.shape, f"{y(target)} {sign} {u(names)}")
    return k.done()[0]


def scatter_nd(b: Builder, x: Value, indices: Value, updates: Value, reduction: str) -> Value:
    """``x`` with the slices that index tuples choose replaced by updates, or combined with them."""
    count = indices.shape[-1] if indices.rank else 0
    dtype, sign = same_dtype(x, updates), _sign(reduction, x)
    if not 0 < count <= x.rank or updates.shape != (*indices.shape[:-1], *x.shape[count:]):
        raise Malformed(f"updates {updates.text} at {indices.text} of {x.text}")
    for n in range(count):
        checked(b, _column(b, indices, n), x.shape[n])
    k = Writer(b, "scatter_nd")
    a, i, u, y = k.read(x), k.read(indices), k.read(updates), k.write(x.shape, dtype)
    k.nest(x.shape, f"{y(levels(x.rank))} = {a(levels(x.rank))}")
    names, outer = levels(len(updates.shape)), indices.rank - 1
    chosen = [within(i([*names[:outer], n]), x.shape[n]) for n in range(count)]
    k.nest(updates.shape, f"{y([*chosen, *names[outer:]])} {sign} {u(names)}")
    return k.done()[0]


def _sign(reduction: str, x: Value) -> str:
    sign = REDUCTIONS.get(reduction)
    if sign is None:
        raise Malformed(f"a scatter by {ascii(reduction)[:40]}")
    if x.dtype == "bool" and sign in ("+=", "*="):
        raise Refused(Reason.DTYPE, f"sums of {x.dtype}")
    return sign


def write_rows(
    b: Builder, cache: Value, update: Value, starts: Value | None, axis: int, circular: bool
) -> Value:
    """A cache with an update from the start of each batch on, along an axis; circular: it goes on at the
    beginning."""
    axis = axis_of(axis, cache.rank)
    rest = [k for k in range(cache.rank) if k != axis]
    fits = update.rank == cache.rank and all(cache.shape[k] == update.shape[k] for k in rest)
    if not axis or not fits or update.shape[axis] > cache.shape[axis]:
        raise Malformed(f"an update {update.text} of a cache {cache.text} along axis {axis}")
    dtype, size, names = same_dtype(cache, update), cache.shape[axis], levels(cache.rank)
    k = Writer(b, "write_rows")
    a, u, y = k.read(cache), k.read(update), k.write(cache.shape, dtype)
    k.nest(cache.shape, f"{y(names)} = {a(names)}")
    target = [*names]
    if starts is not None:
        if starts.shape != cache.shape[:1]:
            raise Malformed(f"starts {starts.text} for a cache {cache.text}")
        checked(b, starts, size)
        place = f"{k.read(starts)(names[:1])} + {names[axis]}"
        target[axis] = f"rem(max({place}, 0), {size})" if circular else f"clamp({place}, 0, {size - 1})"
    k.nest(update.shape, f"{y(target)} = {u(names)}")
    return k.done()[0]


def unpool(b: Builder, x: Value, indices: Value, shape: Shape) -> Value:
    """Elements of ``x`` at their places in an array of this shape, counted row by row; 0 elsewhere."""
    if x.shape != indices.shape or 0 in shape:
        raise Malformed(f"{x.text} at {indices.text} of an array of shape {list(shape)}")
    size, names = prod(shape), levels(x.rank)
    checked(b, indices, size)
    k = Writer(b, "unpool")
    a, i, y = k.read(x), k.read(indices), k.write((size,), x.dtype)
    k.nest((size,), f"{y(['{0}'])} = 0")
    k.nest(x.shape, f"{y([f'clamp({i(names)}, 0, {size - 1})'])} = {a(names)}")
    return b.view(k.done()[0], shape)


# -- sequences ----------------------------------------------------------------------------------------


def reverse_sequences(b: Builder, x: Value, lengths: Value, batch: int, time: int) -> Value:
    """The first ``lengths[i]`` elements of sequence i in reverse, the others in their order. The graph
    reports lengths that are negative or beyond the sequences."""
    batch, time = axis_of(batch, x.rank), axis_of(time, x.rank)
    if batch == time or lengths.shape != (x.shape[batch],) or lengths.dtype not in ("i32", "i64"):
        raise Malformed(f"lengths {lengths.text} of sequences {x.text}")
    lengths_within(b, lengths, x.shape[time])
    k = Writer(b, "reverse_sequences")
    a, n, y, names = k.read(x), k.read(lengths), k.write(x.shape, x.dtype), levels(x.rank)
    length, at, source = n([names[batch]]), names[time], [*names]
    source[time] = f"clamp(select({at} < {length}, {length} - 1 - {at}, {at}), 0, {x.shape[time] - 1})"
    k.nest(x.shape, f"{y(names)} = {a(source)}")
    return k.done()[0]
