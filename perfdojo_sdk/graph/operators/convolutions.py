"""Convolutions in any number of dimensions: plain, transposed, and columns back to images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import windows
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Place, Writer, computed_in, levels

#: Most nests that a transposed convolution is written as: one for each phase of its strides.
MOST_NESTS = 16


def conv(
    b: Builder,
    x: Value,
    w: Value,
    bias: Value | None,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    auto_pad: str,
    group: int,
) -> Value:
    """x correlated with filters w, of which each group sees its channels only.

    A padded image is copied first, with zeros around it. A sum without conditions is built many times as
    fast, is at least as fast itself, and takes in the steps that follow it.
    """
    dtype = same_dtype(x, w, *([bias] if bias else []))
    _check(x, w, group, filters=w.shape[0] if w.rank else 0, channels=w.shape[1] if w.rank > 1 else 0)
    spatial = windows.axes(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    rank, per_group, channels = len(spatial), w.shape[0] // group, w.shape[1]
    shape = (x.shape[0], w.shape[0], *(axis.output for axis in spatial))
    x, spatial = windows.without_padding(b, x, spatial, prod(shape) * prod(w.shape[1:]))
    k = Writer(b, f"conv{rank}d")
    image, filters = k.read(x), k.read(w)
    if group == 1:
        outer: list[int] = [shape[0], shape[1], *shape[2:]]
        names = levels(rank + 2)
        channel, filter_, first, positions = f"{{{rank + 2}}}", "{1}", rank + 2, names[2:]
    else:  # groups have a loop of their own, so that all subscripts stay affine
        outer = [shape[0], group, per_group, *shape[2:]]
        first = rank + 3
        filter_ = affine(("{1}", per_group), ("{2}", 1))
        positions = levels(rank, 3)
        names = ["{0}", filter_, *positions]
        channel = affine(("{1}", channels), (f"{{{first}}}", 1))
    taps = levels(rank, first + 1)
    places = [axis.place(p, t) for axis, p, t in zip(spatial, positions, taps, strict=True)]
    guards = [c for axis, p, t in zip(spatial, positions, taps, strict=True) for c in axis.inside(p, t)]
    kind = computed_in(dtype)
    total = k.write(shape, dtype) if kind == dtype else k.local(shape, kind)
    start = k.read(bias).load([filter_]) if bias else "0"
    product = f"{image.load(['{0}', channel, *places])} * {filters.load([filter_, f'{{{first}}}', *taps])}"
    k.nest(
        outer,
        f"{total(names)} = {start}",
        ([channels, *w.shape[2:]], f"{total(names)} += {product}{windows.condition(guards)}"),
    )
    if kind != dtype:
        y = k.write(shape, dtype)
        plain = levels(rank + 2)
        k.nest(shape, f"{y(plain)} = {y.store(total(plain))}")
    return k.done()[0]


def _check(x: Value, w: Value, group: int, filters: int, channels: int) -> None:
    if x.rank < 3 or w.rank != x.rank:
        raise Malformed(f"a convolution of {x.text} and {w.text}")
    if group < 1 or filters % group or x.shape[1] != channels * group:
        raise Malformed(f"a convolution of {x.text} and {w.text} in {group} groups")


def conv_transpose(
    b: Builder,
    x: Value,
    w: Value,
    bias: Value | None,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    auto_pad: str,
    group: int,
    output_padding: Sequence[int],
    output_shape: Sequence[int],
) -> Value:
    """The gradient of a convolution by its image: each element adds a scaled filter to the result.

    Results that see the same taps make a nest, in which each is a sum of its own; with strides so large that
    there would be many such nests, elements are added to where they belong.
    """
    dtype = same_dtype(x, w, *([bias] if bias else []))
    if x.rank < 3 or w.rank != x.rank or group < 1 or x.shape[1] != w.shape[0] or w.shape[0] % group:
        raise Malformed(f"a transposed convolution of {x.text} and {w.text} in {group} groups")
    rank = x.rank - 2
    strides, dilations = list(strides) or [1] * rank, list(dilations) or [1] * rank
    more = list(output_padding) or [0] * rank
    begins, outputs = _transposed(x, w, strides, dilations, list(pads), auto_pad, more, list(output_shape))
    shape = (x.shape[0], w.shape[1] * group, *outputs)

    def dimensions(image: Value) -> Iterator[tuple[int, ...]]:
        return zip(image.shape[2:], w.shape[2:], strides, dilations, begins, outputs, strict=True)

    gathers = prod(strides) <= MOST_NESTS
    if gathers:
        borders = [_border(_phases(*each)) for each in dimensions(x)]
        whole = windows.bordered(b, x, borders, x.elements * prod(w.shape[1:]))
        if whole is not x:  # it begins earlier, so more of the result is left out
            begins = [p + s * before for p, s, (before, _) in zip(begins, strides, borders, strict=True)]
            x = whole
    k = Writer(b, f"conv_transpose{rank}d")
    image, taps_of = k.read(x), k.read(w)
    kind = computed_in(dtype)
    total = k.write(shape, dtype) if kind == dtype else k.local(shape, kind)
    start = k.read(bias) if bias else None
    if gathers:
        for phases in product(*[_phases(*each) for each in dimensions(x)]):
            _gather(k, image, taps_of, total, start, phases, group)
    else:
        steps = list(zip(strides, dilations, begins, outputs, strict=True))
        _scatter(k, image, taps_of, total, start, steps, group)
    if kind != dtype:
        y, plain = k.write(shape, dtype), levels(rank + 2)
        k.nest(shape, f"{y(plain)} = {y.store(total(plain))}")
    return k.done()[0]


@dataclass(frozen=True)
class _Phase:
    """The results of a transposed convolution along one dimension that see the same taps: every
    ``stride``-th, from ``first`` on. Position a sees element ``a + shift - j * back`` at tap
    ``tap + j * between``."""

    first: int
    stride: int
    positions: int
    taps: int
    tap: int
    between: int
    shift: int
    back: int
    size: int
    """Elements of the image."""

    def guards(self, position: str, tap: str) -> list[str]:
        """Conditions under which a tap is in the image; none that always hold."""
        text = affine((position, 1), (tap, -self.back))
        low = self.shift - (self.taps - 1) * self.back
        high = self.positions - 1 + self.shift
        found = [f"{text} >= {-self.shift}"] if low < 0 else []
        return found + ([f"{text} < {self.size - self.shift}"] if high >= self.size else [])


def _border(phases: Sequence[_Phase]) -> tuple[int, int]:
    """Elements before and behind a dimension of an image with which these see no element outside."""
    seen = [p for p in phases if p.taps]
    low = min((p.shift - (p.taps - 1) * p.back for p in seen), default=0)
    high = max((p.positions - 1 + p.shift - p.size for p in seen), default=-1)
    return max(-low, 0), max(high + 1, 0)


def _phases(size: int, kernel: int, stride: int, dilation: int, begin: int, output: int) -> list[_Phase]:
    """The phases of one dimension: as many as the stride, or as there are results."""
    common = gcd(stride, dilation)
    found = []
    for first in range(min(stride, output)):
        taps = [t for t in range(kernel) if (first + begin - t * dilation) % stride == 0]
        tap = taps[0] if taps else 0
        shift = (first + begin - tap * dilation) // stride
        positions = -(-(output - first) // stride)
        between, back = stride // common, dilation // common
        found.append(_Phase(first, stride, positions, len(taps), tap, between, shift, back, size))
    return found


def _gather(
    k: Writer,
    image: Place,
    filters: Place,
    total: Place,
    start: Place | None,
    phases: Sequence[_Phase],
    group: int,
) -> None:
    """One nest: the results of these phases, each the sum of what it sees."""
    rank, per_group, channels = len(phases), filters.shape[1], image.shape[1] // group
    outer = [image.shape[0], *([group] if group > 1 else []), per_group, *(p.positions for p in phases)]
    first = len(outer)
    filter_ = affine(("{1}", per_group), ("{2}", 1)) if group > 1 else "{1}"
    channel = affine(("{1}", channels), (f"{{{first}}}", 1)) if group > 1 else f"{{{first}}}"
    within = "{2}" if group > 1 else "{1}"
    positions, taps = levels(rank, first - rank), levels(rank, first + 1)
    ways = list(zip(phases, positions, taps, strict=True))
    places = [affine((p, 1), (t, -phase.back), phase.shift) for phase, p, t in ways]
    chosen = [affine((t, phase.between), phase.tap) for phase, _, t in ways]
    names = ["{0}", filter_, *(affine((p, phase.stride), phase.first) for phase, p, _ in ways)]
    guards = [condition for phase, p, t in ways for condition in phase.guards(p, t)]
    term = f"{image.load(['{0}', channel, *places])} * {filters.load([channel, within, *chosen])}"
    k.nest(
        outer,
        f"{total(names)} = {start.load([filter_]) if start else '0'}",
        ([channels, *(p.taps for p in phases)], f"{total(names)} += {term}{windows.condition(guards)}"),
    )


def _scatter(
    k: Writer,
    image: Place,
    filters: Place,
    total: Place,
    start: Place | None,
    steps: Sequence[tuple[int, int, int, int]],
    group: int,
) -> None:
    """Two nests: the start of all results, and what each element adds to them. ``steps``: stride, dilation,
    padding in front and results of each dimension."""
    rank, per_group, channels = len(steps), filters.shape[1], image.shape[1] // group
    k.nest(total.shape, f"{total(levels(rank + 2))} = {start.load(['{1}']) if start else '0'}")
    # Loops: image, group, filter, channel, positions, taps.
    positions, taps = levels(rank, 4), levels(rank, 4 + rank)
    channel = affine(("{1}", channels), ("{3}", 1)) if group > 1 else "{3}"
    places, guards = [], []
    for n, (stride, dilation, begin, output) in enumerate(steps):
        text = affine((positions[n], stride), (taps[n], dilation))
        reach = (image.shape[2 + n] - 1) * stride + (filters.shape[2 + n] - 1) * dilation - begin
        places.append(affine((positions[n], stride), (taps[n], dilation), -begin))
        guards += [f"{text} >= {begin}"] if begin > 0 else []
        guards += [f"{text} < {output + begin}"] if reach >= output else []
    filter_ = affine(("{1}", per_group), ("{2}", 1)) if group > 1 else "{2}"
    term = f"{image.load(['{0}', channel, *positions])} * {filters.load([channel, '{2}', *taps])}"
    k.nest(
        [image.shape[0], group, per_group, channels, *image.shape[2:], *filters.shape[2:]],
        f"{total(['{0}', filter_, *places])} += {term}{windows.condition(guards)}",
    )


def _transposed(
    x: Value,
    w: Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    auto_pad: str,
    more: Sequence[int],
    output_shape: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Padding in front and size of the result along each dimension."""
    rank = x.rank - 2
    pads = pads or [0] * (2 * rank)
    if not (len(strides) == len(dilations) == len(more) == rank and len(pads) == 2 * rank):
        raise Malformed("strides, dilations or pads of a transposed convolution of other dimensions")
    if min([*strides, *dilations], default=1) < 1 or min([*pads, *more], default=0) < 0:
        raise Malformed("a stride or dilation below 1, or negative padding")
    output_shape = list(output_shape)[-rank:]
    begins, outputs = [], []
    for n in range(rank):
        full = strides[n] * (x.shape[2 + n] - 1) + more[n] + (w.shape[2 + n] - 1) * dilations[n] + 1
        if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            output = output_shape[n] if output_shape else x.shape[2 + n] * strides[n]
            total = full - output  # with SAME below 0 where the stride leaves room behind the filter
            total = total if auto_pad.startswith("SAME") else max(total, 0)
            begins.append(total // 2 if auto_pad == "SAME_UPPER" else total - total // 2)
        else:
            explicit = auto_pad in ("", "NOTSET")
            begins.append(pads[n] if explicit else 0)
            output = full - (pads[n] + pads[rank + n] if explicit else 0)
        if output < 1:
            raise Malformed(f"a transposed convolution of {x.text} and {w.text} has no output")
        outputs.append(output)
    return begins, outputs


def col2im(
    b: Builder,
    x: Value,
    image: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Value:
    """The sum of the blocks that columns hold, each at its place in the image."""
    axes = windows.axes(image, block, strides, dilations, pads, "NOTSET")
    rank, positions = len(axes), [axis.output for axis in axes]
    if x.rank != 3 or x.shape[1] % prod(block) or x.shape[2] != prod(positions):
        raise Malformed(
            f"columns {x.text} do not fit to blocks of {list(block)} in an image of {list(image)}"
        )
    channels = x.shape[1] // prod(block)
    x = b.view(x, (x.shape[0], channels, *block, *positions))
    k = Writer(b, "col2im")
    columns = k.read(x)
    shape, kind = (x.shape[0], channels, *image), computed_in(x.dtype)
    total = k.write(shape, x.dtype) if kind == x.dtype else k.local(shape, kind)
    plain = levels(rank + 2)
    k.nest(shape, f"{total(plain)} = 0")
    taps, places = levels(rank, 2), levels(rank, 2 + rank)
    target = [axis.place(p, t) for axis, p, t in zip(axes, places, taps, strict=True)]
    guards = [c for axis, p, t in zip(axes, places, taps, strict=True) for c in axis.inside(p, t)]
    k.nest(
        [*shape[:2], *block, *positions],
        f"{total(['{0}', '{1}', *target])} += {columns.load(['{0}', '{1}', *taps, *places])}"
        f"{windows.condition(guards)}",
    )
    if kind != x.dtype:
        y = k.write(shape, x.dtype)
        k.nest(shape, f"{y(plain)} = {y.store(total(plain))}")
    return k.done()[0]


def im2col(b: Builder, x: Value, axes: Sequence[windows.Axis]) -> Value:
    """The blocks that a window sees, one in each column: [batch, channels * taps, positions]."""
    rank = len(axes)
    if x.rank != rank + 2:
        raise Malformed(f"columns of {x.text} by a window of {rank} dimensions")
    shape = (*x.shape[:2], *(axis.kernel for axis in axes), *(axis.output for axis in axes))
    k = Writer(b, "im2col")
    image, y, names = k.read(x), k.write(shape, x.dtype), levels(len(shape))
    pairs = list(zip(axes, names[2 + rank :], names[2 : 2 + rank], strict=True))
    guards = [c for axis, p, t in pairs for c in axis.inside(p, t)]
    if guards:
        k.nest(shape, f"{y(names)} = 0")
    source = [*names[:2], *(axis.place(p, t) for axis, p, t in pairs)]
    k.nest(shape, f"{y(names)} = {image(source)}{windows.condition(guards)}")
    columns = prod(axis.output for axis in axes)
    return b.view(k.done()[0], (x.shape[0], x.shape[1] * prod(axis.kernel for axis in axes), columns))
