"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from perfdojo_sdk.frontends.torch.call import Call, Row, pointwise
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import convolutions, pooling, windows
from perfdojo_sdk.graph.operators import gathers as g
from perfdojo_sdk.graph.operators import movement as m
from perfdojo_sdk.graph.operators import reductions as r
from perfdojo_sdk.graph.operators.combinations import Taps, along
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.writer import Writer, is_float, levels


def _batched(c: Call, x: Value, rank: int) -> tuple[Value, bool]:
    """The image with a dimension of batches, and True if that was missing."""
    if x.rank == rank + 1:
        return c.b.view(x, (1, *x.shape)), True
    return x, False


def _unbatched(c: Call, x: Value, alone: bool) -> Value:
    return c.b.view(x, x.shape[1:]) if alone else x


def _conv(c: Call) -> Value:
    w = c["weight"]
    rank = w.rank - 2
    if c.flag("transposed"):
        return _transposed(c)
    x, alone = _batched(c, c["input"], rank)
    dilations = c.each("dilation", rank, 1)
    if isinstance(c.arguments.get("padding"), str):
        pads = _pads(c.text("padding"), w.shape[2:], dilations)
    else:
        pads = c.each("padding", rank, 0) * 2
    strides = c.each("stride", rank, 1)
    found = convolutions.conv(c.b, x, w, c.maybe("bias"), strides, dilations, pads, "", c.whole("groups", 1))
    return _unbatched(c, found, alone)


def _pads(padding: str, kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Padding by name: in front, then behind."""
    if padding == "valid":
        return [0] * (2 * len(kernel))
    totals = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
    return [t // 2 for t in totals] + [t - t // 2 for t in totals]


def _transposed(c: Call) -> Value:
    w = c["weight"]
    rank = w.rank - 2
    x, alone = _batched(c, c["input"], rank)
    strides, dilations = c.each("stride", rank, 1), c.each("dilation", rank, 1)
    begins = c.each("padding", rank, 0)
    more = c.each("output_padding", rank, 0)
    found = convolutions.conv_transpose(
        c.b, x, w, c.maybe("bias"), strides, dilations, begins * 2, "", c.whole("groups", 1), more, ()
    )
    return _unbatched(c, found, alone)


# -- pooling ---------------------------------------------------------------------------------------


def _axes(c: Call, x: Value, rank: int) -> tuple[windows.Axis, ...]:
    kernel = c.each("kernel_size", rank, 1)
    strides = c.ints("stride") or kernel
    strides = strides if len(strides) == rank else strides * rank
    return windows.axes(
        x.shape[2:], kernel, strides, c.each("dilation", rank, 1), c.each("padding", rank, 0) * 2, "",
        c.flag("ceil_mode"),
    )  # fmt: skip


def _max_pool(rank: int) -> Row:
    def row(c: Call) -> Sequence[Value | None]:
        x, alone = _batched(c, c["self"], rank)
        wanted = len(c.results) > 1 and c.uses(1)
        found = pooling.max_pool(c.b, x, _axes(c, x, rank), wanted, False)
        made: list[Value | None] = [_unbatched(c, found[0], alone)]
        if wanted:
            made.append(_unbatched(c, _in_plane(c, found[1], prod(x.shape[2:])), alone))
        elif len(c.results) > 1:
            made.append(None)
        return made

    return row


def _in_plane(c: Call, places: Value, size: int) -> Value:
    """Places in the whole array as places in a channel."""
    return pointwise(c, "in_plane", lambda a: f"rem({a}, {size})", places, dtype="i64")


def _average_pool(rank: int) -> Row:
    def row(c: Call) -> Value:
        x, alone = _batched(c, c["self"], rank)
        padded, divisor = bool(c.whole("count_include_pad", 1)), c.whole("divisor_override", 0)
        return _unbatched(c, pooling.average_pool(c.b, x, _axes(c, x, rank), padded, divisor), alone)

    return row


def _adaptive(rank: int, largest: bool) -> Row:
    """Windows from floor(i size / n) to ceil((i + 1) size / n)."""

    def row(c: Call) -> Sequence[Value | None]:
        x, alone = _batched(c, c["self"], rank)
        given = c.arguments.get("output_size")
        listed = list(given) if isinstance(given, list | tuple) else [given] * rank
        sizes = [s if n is None else int(n) for n, s in zip(listed, x.shape[2:], strict=True)]
        if min(sizes) < 1:
            raise Refused(Reason.CHOICE, f"{c.op} to the sizes {sizes}")
        even = all(s % n == 0 for n, s in zip(sizes, x.shape[2:], strict=True))
        wanted = len(c.results) > 1 and c.uses(1)
        if even:
            kernel = [s // n for n, s in zip(sizes, x.shape[2:], strict=True)]
            axes = windows.axes(x.shape[2:], kernel, kernel, [], [], "")
            if not largest:
                return [_unbatched(c, pooling.average_pool(c.b, x, axes, False), alone)]
            found: list[Value | None] = list(pooling.max_pool(c.b, x, axes, wanted, False))
            if wanted and found[1] is not None:
                found[1] = _in_plane(c, found[1], prod(x.shape[2:]))
            found = [v and _unbatched(c, v, alone) for v in found]
            return found if wanted else [found[0], None]
        if largest:
            made = _largest_of_uneven(c, x, sizes, wanted)
            return [v and _unbatched(c, v, alone) for v in made]
        for n, count in enumerate(sizes):
            size = x.shape[2 + n]
            rows = [_window(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
            x = along(c.b, "adaptive_average", x, 2 + n, rows)
        return [_unbatched(c, x, alone)]

    return row


def _largest_of_uneven(c: Call, x: Value, sizes: Sequence[int], wanted: bool) -> list[Value | None]:
    """The largest elements of windows of several sizes, whose last place counts more than once in shorter
    ones; and their places in the channel: the first of equal ones, and of NaN the last, as in PyTorch."""
    image, rank = x.shape[2:], len(sizes)
    taps: list[np.ndarray[Any, Any]] = []
    for size, count in zip(image, sizes, strict=True):
        starts = np.array([i * size // count for i in range(count)])
        ends = np.array([-(-(i + 1) * size // count) for i in range(count)])
        steps = np.arange(int((ends - starts).max()))
        taps.append(np.minimum(starts[:, None] + steps, ends[:, None] - 1))
    if not wanted:
        for n, places in enumerate(taps):
            found = g.gather(c.b, x, c.b.constant(places), 2 + n, negative=False)
            x = r.reduce(c.b, "adaptive_max", found, (3 + n,), False, "max=")
        return [x, None]
    for n, places in enumerate(taps):
        x = g.gather(c.b, x, c.b.constant(places), 2 + 2 * n, negative=False)
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)]
    turned = m.transpose(c.b, x, order)
    windows_ = c.b.view(turned, (*turned.shape[: 2 + rank], prod(turned.shape[2 + rank :])))
    flat = np.zeros((1,) * (2 * rank), np.int64)
    for n, places in enumerate(taps):
        shape = [1] * (2 * rank)
        shape[n], shape[rank + n] = places.shape
        flat = flat * image[n] + places.reshape(shape)
    table = c.b.constant(flat.reshape(*sizes, windows_.shape[-1]))
    top = r.reduce(c.b, "adaptive_max", windows_, (2 + rank,), False, "max=")
    first, last = (r.arg_extremum(c.b, windows_, 2 + rank, False, True, late) for late in (False, True))
    tap = first
    if is_float(top.dtype):
        k, names = Writer(c.b, "tap"), levels(2 + rank)
        t, p, q, y = k.read(top), k.read(first), k.read(last), k.write(top.shape, "i64")
        k.nest(top.shape, f"{y(names)} = select({t.load(names)} != {t.load(names)}, {q(names)}, {p(names)})")
        [tap] = k.done()
    k, names = Writer(c.b, "place_in_channel"), levels(2 + rank)
    p, z, y = k.read(tap), k.read(table), k.write(top.shape, "i64")
    place = z([*names[2:], f"clamp({p(names)}, 0, {windows_.shape[-1] - 1})"])
    k.nest(top.shape, f"{y(names)} = {place}")
    return [top, k.done()[0]]


def _window(first: int, last: int) -> Taps:
    return tuple((place, 1 / (last - first)) for place in range(first, last))


# -- columns -----------------------------------------------------------------------------------------


def _unfolded(c: Call) -> Value:
    """Columns of the blocks of an image: [batch, channels * taps, positions]."""
    x, alone = _batched(c, c["self"], 2)
    axes = windows.axes(
        x.shape[2:], c.each("kernel_size", 2, 1), c.each("stride", 2, 1), c.each("dilation", 2, 1),
        c.each("padding", 2, 0) * 2, "",
    )  # fmt: skip
    return _unbatched(c, convolutions.im2col(c.b, x, axes), alone)


def _folded(c: Call) -> Value:
    return convolutions.col2im(
        c.b, c["self"], c.each("output_size", 2, 1), c.each("kernel_size", 2, 1), c.each("stride", 2, 1),
        c.each("dilation", 2, 1), c.each("padding", 2, 0) * 2,
    )  # fmt: skip


ROWS: Mapping[str, Row] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _conv),
    **{f"conv_transpose{rank}d": _transposed for rank in (1, 2, 3)},
    **{f"max_pool{rank}d": _max_pool(rank) for rank in (1, 2, 3)},
    **{f"max_pool{rank}d_with_indices": _max_pool(rank) for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d": _average_pool(rank) for rank in (1, 2, 3)},
    **{f"adaptive_avg_pool{rank}d": _adaptive(rank, False) for rank in (1, 2, 3)},
    **{f"adaptive_max_pool{rank}d": _adaptive(rank, True) for rank in (1, 2, 3)},
    "im2col": _unfolded,
    "col2im": _folded,
}
