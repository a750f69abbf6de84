"""Images read at places that are computed: grids, regions, convolutions with offsets.

A first kernel finds, along each dimension, the neighbours of every place and their weights; a second one sums
the products. A neighbour outside of the image has the index -1 and is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.operators.gathers import checked
from perfdojo_sdk.graph.operators.movement import transpose
from perfdojo_sdk.graph.operators.windows import Axis
from perfdojo_sdk.graph.operators.windows import axes as window_axes
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Writer, computed_in, converted, is_float, levels, number

#: Interpolation -> the distances of its neighbours from the one at or below a place.
_NEIGHBOURS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
PADDINGS = ("zeros", "border", "reflection")
#: The parameter of the cubic interpolation.
_CUBIC = -0.75
#: Channels from which on an image is read by rows of them.
MANY_CHANNELS = 8
#: Most dimensions of an image beside batches and channels.
MOST_SPATIAL = 4


@dataclass(frozen=True)
class Neighbours:
    """Along one dimension: the index of each neighbour of each place, -1 outside, and its weight."""

    index: Value
    weight: Value


def inside(index: str) -> str:
    """True for an index that is not that of a neighbour outside of the image."""
    return f"{index} >= 0"


def _at(index: str, size: int) -> str:
    """An index as a subscript; -1, which is not used, reads the first element."""
    return f"clamp({index}, 0, {size - 1})"


def _spatial(x: Value) -> Shape:
    spatial = x.shape[2:]
    if not 1 <= len(spatial) <= MOST_SPATIAL:
        raise Malformed(f"an image {x.text}")
    if 0 in spatial:
        raise Malformed(f"{x.text} has no element to read")
    return spatial


def _weights(mode: str, rest: str) -> list[str]:
    """The weight of each neighbour, for the distance of a place from the one below it."""
    if mode == "nearest":
        return ["1"]
    if mode == "linear":
        return [f"1 - {rest}", rest]
    a = _CUBIC

    def near(t: str) -> str:
        return f"(({a + 2} * {t} - {a + 3}) * {t} * {t} + 1)"

    def far(t: str) -> str:
        return f"((({a} * {t} - {5 * a}) * {t} + {8 * a}) * {t} - {4 * a})"

    return [far(f"({rest} + 1)"), near(rest), near(f"(1 - {rest})"), far(f"(2 - {rest})")]


def _reflected(place: str, low: float, high: float) -> str:
    """A place mirrored at both ends as often as it takes to lie between them."""
    width = high - low
    if width <= 0:
        return f"({place} * 0 + {low})"
    beyond = f"select({place} < {low}, {low} - {place}, max({place} - {high}, 0))"
    times = f"floor({beyond} / {width})"
    rest = f"({beyond} - {times} * {width})"
    even = f"{times} - 2 * floor({times} / 2) == 0"
    below = f"select({even}, {low} + {rest}, {high} - {rest})"
    above = f"select({even}, {high} - {rest}, {low} + {rest})"
    return f"select({place} < {low}, {below}, select({place} > {high}, {above}, {place}))"


# -- grids -----------------------------------------------------------------------------------------


def grid_sample(
    b: Builder, x: Value, grid: Value, mode: str, padding: str, corners: bool, moved_inside: bool = True
) -> Value:
    """``x`` at the places of a grid, whose coordinates from -1 to 1 name the image's innermost dimension
    first; ``corners``: -1 and 1 are the middles of the outermost elements, not their edges. ``moved_inside``:
    a padding other than zeros moves places inside of the image before their neighbours are found, too."""
    spatial = _spatial(x)
    if mode not in _NEIGHBOURS or padding not in PADDINGS:
        raise Malformed(f"GridSample by {ascii(mode)[:40]} with padding {ascii(padding)[:40]}")
    if grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != len(spatial):
        raise Malformed(f"a grid {grid.text} for {x.text}")
    if not is_float(grid.dtype) or (mode != "nearest" and not is_float(x.dtype)):
        raise Malformed(f"a grid of {grid.dtype} for {x.dtype} by {mode}")
    points, size = grid.shape[1:-1], prod(spatial)
    if size > 2**31 - 1:
        raise Refused(Reason.SIZE, f"a grid for {x.text}")
    index, weight = _grid_taps(b, grid, spatial, mode, padding, corners, moved_inside)
    batches, channels, taps = *x.shape[:2], index.shape[0]
    image = b.view(x, (batches, channels, size))
    # Neighbours lie together as rows of channels; turning the image and the result costs two copies.
    rows = channels >= MANY_CHANNELS and taps > 1 and taps * prod(points) >= 2 * size
    if rows:
        image = transpose(b, image, (0, 2, 1))
    k = Writer(b, "grid_sample")
    a, names = k.read(image), levels(3)
    i, w = (k.read(b.view(each, (taps, batches, prod(points)))) for each in (index, weight))
    shape = (batches, prod(points), channels) if rows else (batches, channels, prod(points))
    point, channel = names[1:] if rows else reversed(names[1:])
    y = k.write(shape, x.dtype)
    here = [0 if mode == "nearest" else "{3}", names[0], point]
    at = _at(i(here), size)
    there, element = inside(i(here)), a([names[0], at, channel] if rows else [names[0], channel, at])
    if mode == "nearest":
        k.nest(shape, f"{y(names)} = select({there}, {element}, 0)")
    else:
        kind = computed_in(x.dtype)
        factor = converted(w(here), computed_in(grid.dtype), kind)
        k.sums(y, [taps], f"select({there}, {factor} * {converted(element, x.dtype, kind)}, 0)")
    made = k.done()[0]
    return b.view(transpose(b, made, (0, 2, 1)) if rows else made, (batches, channels, *points))


def affine_grid(b: Builder, theta: Value, size: Sequence[int], corners: bool, alone: float = -1.0) -> Value:
    """The grid of an image of ``size`` (images, channels and two or three dimensions) whose places go through
    the affine maps ``theta``; ``corners``: as for :func:`grid_sample`, with ``alone`` for the only element of
    a dimension."""
    rank, spatial = len(size) - 2, size[2:]
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(spatial) < 1:
        raise Malformed(f"maps {theta.text} for an image of {list(size)}")
    if not is_float(theta.dtype):
        raise Malformed(f"maps of {theta.dtype}")
    k = Writer(b, "affine_grid")
    shape, kind = (size[0], *spatial, rank), computed_in(theta.dtype)
    a, y, names = k.read(theta), k.write(shape, theta.dtype), levels(rank + 2)

    def load(column: int) -> str:
        return a.load([names[0], names[-1], column])

    text = load(rank)
    for column, (name, extent) in enumerate(zip(reversed(names[1:-1]), reversed(spatial), strict=True)):
        place = f"{kind}({name}) * 2 / {extent - 1} - 1" if corners and extent > 1 else str(alone)
        if not corners:
            place = f"({kind}({name}) * 2 + 1) / {extent} - 1"
        text += f" + {load(column)} * ({place})"
    k.nest(shape, f"{y(names)} = {y.store(text)}")
    return k.done()[0]


def _texts(
    k: Writer, found: Sequence[Neighbours], places: Sequence[Sequence[str]]
) -> tuple[list[str], list[str]]:
    """The elements of indices and weights at a place for each dimension."""
    indices = [k.read(each.index)(place) for each, place in zip(found, places, strict=True)]
    weights = [k.read(each.weight)(place) for each, place in zip(found, places, strict=True)]
    return indices, weights


def _all(conditions: Iterable[str]) -> str:
    """A condition that holds where all do."""
    text = ""
    for each in conditions:
        text = f"and({text}, {each})" if text else each
    return text


def _grid_taps(
    b: Builder, grid: Value, spatial: Shape, mode: str, padding: str, corners: bool, moved_inside: bool
) -> tuple[Value, Value]:
    """The neighbours of each place of a grid: the number of its element in the image, -1 outside, and its
    weight: arrays of [neighbours, batches, places...]."""
    k = Writer(b, "grid_taps")
    a, points = k.read(grid), grid.shape[:-1]
    names, kind = levels(len(points)), computed_in(grid.dtype)
    found: list[list[tuple[str, str]]] = []
    for n, size in enumerate(spatial):
        given = a.load([*names, len(spatial) - 1 - n])
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        place, start = k.local(points, kind), k.local(points, kind)
        text = f"({given} + 1) / 2 * {size - 1}" if corners else f"(({given} + 1) * {size} - 1) / 2"
        k.nest(points, f"{place(names)} = {f'round({text})' if mode == 'nearest' else text}")
        here = place(names)
        if padding == "border" and moved_inside:
            beyond = f"or({here} < {low}, {here} > {high})"
            k.nest(points, f"{here} = select({beyond}, min(max({here}, 0), {size - 1}), {here})")
        elif padding == "reflection" and moved_inside:
            k.nest(points, f"{here} = {_reflected(here, low, high)}")
        k.nest(points, f"{start(names)} = {here if mode == 'nearest' else f'floor({here})'}")
        found.append([])
        weights = _weights(mode, f"({here} - {start(names)})")
        for distance, text in zip(_NEIGHBOURS[mode], weights, strict=True):
            index, weight = k.local(points, "i32"), k.local(points, kind)
            neighbour = _moved(start(names), distance)
            k.nest(points, f"{index(names)} = {_padded(neighbour, size, padding, low, high)}")
            k.nest(points, f"{weight(names)} = {text}")
            found[n].append((index(names), weight(names)))
    taps = list(product(*found))
    number_of, factor = k.write((len(taps), *points), "i32"), k.write((len(taps), *points), kind)
    for t, tap in enumerate(taps):
        flat = tap[0][0]
        for (each, _), size in zip(tap[1:], spatial[1:], strict=True):
            flat = f"({flat} * {size} + {each})"
        there = _all(inside(each) for each, _ in tap)
        k.nest(points, f"{number_of([t, *names])} = select({there}, {flat}, -1)")
        k.nest(points, f"{factor([t, *names])} = {' * '.join(weight for _, weight in tap)}")
    made = k.done()
    return made[0], made[1]


def _moved(text: str, distance: int) -> str:
    """A float and a distance from it."""
    return f"({text} {'+' if distance > 0 else '-'} {abs(distance)})" if distance else text


def _padded(place: str, size: int, padding: str, low: float, high: float) -> str:
    """The index of a neighbour: -1 outside, or that of the element which stands for it."""
    if padding == "zeros":
        return f"select(and({place} >= 0, {place} <= {size - 1}), i32({place}), -1)"
    if padding == "border":
        return f"i32(min(max({place}, 0), {size - 1}))"
    return f"i32(min(max({_reflected(place, low, high)}, 0), {size - 1}))"


# -- convolutions with offsets ---------------------------------------------------------------------


@dataclass(frozen=True)
class Deformed:
    """The attributes of a convolution whose taps are moved."""

    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    groups: int
    offset_groups: int


def deform_conv(
    b: Builder, x: Value, w: Value, offset: Value, bias: Value | None, mask: Value | None, how: Deformed
) -> Value:
    """A convolution, each tap of which is moved by an offset of its own, interpolated linearly and, with a
    mask, weighted; beyond the image are zeros."""
    spatial, kernel = _spatial(x), w.shape[2:]
    groups, moved = how.groups, how.offset_groups
    dtype = same_dtype(x, w, offset, *(v for v in (bias, mask) if v is not None))
    channels, results = x.shape[1], w.shape[0]
    if not is_float(dtype) or len(kernel) != len(spatial) or min(groups, moved) < 1:
        raise Malformed(f"filters {w.text} for {x.text}")
    if channels != w.shape[1] * groups or results % groups or channels % moved:
        raise Malformed(f"filters {w.text} in {groups} groups, offsets in {moved}, for {x.text}")
    window = window_axes(spatial, kernel, how.strides, how.dilations, how.pads, "NOTSET")
    output, taps = tuple(axis.output for axis in window), prod(kernel)
    if offset.shape != (x.shape[0], moved * taps * len(spatial), *output):
        raise Malformed(f"offsets {offset.text} for taps {list(kernel)} and an output {list(output)}")
    if mask is not None and mask.shape != (x.shape[0], moved * taps, *output):
        raise Malformed(f"a mask {mask.text} for taps {list(kernel)} and an output {list(output)}")
    if bias is not None and bias.shape != (results,):
        raise Malformed(f"a bias {bias.text} for {results} channels")
    found = _tap_neighbours(b, b.view(offset, (x.shape[0], moved, *kernel, len(spatial), *output)), window)
    k = Writer(b, "deform_conv")
    a, f, y = k.read(x), k.read(w), k.write((x.shape[0], results, *output), dtype)
    inner, every = channels // groups, results // groups
    # Batches, groups, channels of a group, positions; then channels that are read, taps, neighbours.
    rank = len(spatial)
    names = levels(3 + rank + 1 + 2 * rank)
    batch, group, own = names[:3]
    position, read = names[3 : 3 + rank], names[3 + rank]
    tap, near = names[4 + rank : 4 + 2 * rank], names[4 + 2 * rank :]
    source = affine((group, inner), (read, 1))
    part = f"({source})//{channels // moved}" if moved > 1 else "0"
    place = [batch, part, *tap, *position]
    indices, weights = _texts(k, found, [[*place, each] for each in near])
    element = a.load([batch, source, *(_at(i, s) for i, s in zip(indices, spatial, strict=True))])
    factors = [*weights, f.load([affine((group, every), (own, 1)), read, *tap])]
    if mask is not None:
        shaped = b.view(mask, (x.shape[0], moved, *kernel, *output))
        factors.append(k.read(shaped).load(place))
    outer = (x.shape[0], groups, every, *output)
    total, at = k.local(outer, computed_in(dtype)), names[: 3 + rank]
    channel = affine((group, every), (own, 1))
    begin = "0" if bias is None else k.read(bias).load([channel])
    term = f"select({_all([inside(i) for i in indices])}, {' * '.join([*factors, element])}, 0)"
    k.nest(outer, f"{total(at)} = {begin}", ([inner, *kernel, *[2] * rank], f"{total(at)} += {term}"))
    k.nest(outer, f"{y([batch, channel, *position])} = {y.store(total(at))}")
    return k.done()[0]


def _tap_neighbours(b: Builder, offset: Value, window: Sequence[Axis]) -> list[Neighbours]:
    """The neighbours of each moved tap: offsets by batch, group, tap, dimension, position."""
    rank = len(window)
    k = Writer(b, "tap_neighbours")
    a, kind = k.read(offset), computed_in(offset.dtype)
    points = (*offset.shape[: 2 + rank], *offset.shape[3 + rank :])
    names = levels(len(points))
    tap, position = names[2 : 2 + rank], names[2 + rank :]
    for n, axis in enumerate(window):
        place, start = k.local(points, kind), k.local(points, kind)
        moved = a.load([*names[: 2 + rank], n, *position])
        k.nest(points, f"{place(names)} = index({axis.place(position[n], tap[n])}) + {moved}")
        k.nest(points, f"{start(names)} = floor({place(names)})")
        index, weight = k.write((*points, 2), "i32"), k.write((*points, 2), kind)
        texts = _weights("linear", f"({place(names)} - {start(names)})")
        for t, text in enumerate(texts):
            neighbour = _padded(_moved(start(names), t), axis.size, "zeros", 0, 0)
            k.nest(points, f"{index([*names, t])} = {neighbour}")
            k.nest(points, f"{weight([*names, t])} = {text}")
    made = k.done()
    return [Neighbours(made[2 * n], made[2 * n + 1]) for n in range(rank)]


# -- regions ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regions:
    """The attributes of a pooling over regions."""

    height: int
    width: int
    scale: float
    samples: int = 0
    """In each part of a region, along each dimension; 0: as many as it has elements."""
    shifted: bool = False
    """True if the middle of an element has its coordinate, not the upper left corner."""
    largest: bool = False
    """True for the largest weighted neighbour of all samples, not their mean."""


def roi_align(b: Builder, x: Value, rois: Value, batches: Value, how: Regions) -> Value:
    """Each region (x1, y1, x2, y2) of an image as an image of a size of its own: samples of its parts,
    interpolated linearly, by their mean or their largest weighted neighbour."""
    dtype = same_dtype(x, rois)
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or batches.shape != rois.shape[:1]:
        raise Malformed(f"regions {rois.text} of images {batches.text} for {x.text}")
    if not is_float(dtype) or min(how.height, how.width) < 1 or how.samples < 0:
        raise Malformed(f"regions of {how.height} by {how.width} parts of {dtype}")
    _spatial(x)
    checked(b, batches, x.shape[0])
    sizes, parts = x.shape[2:], (how.height, how.width)
    found = [_samples(b, rois, n, sizes[n], parts[n], how) for n in (0, 1)]
    counts = [each[1] for each in found]
    k = Writer(b, "roi_align")
    a, image = k.read(x), k.read(batches)
    shape, kind = (rois.shape[0], x.shape[1], *parts), computed_in(dtype)
    y, names = k.write(shape, dtype), levels(4)
    sample, near = ("{4}", "{5}"), ("{6}", "{7}")
    indices, weights = _texts(
        k, [each[0] for each in found], [[names[0], names[2 + n], sample[n], near[n]] for n in (0, 1)]
    )
    element = a.load(
        [
            _at(image(names[:1]), x.shape[0]),
            names[1],
            *(_at(i, s) for i, s in zip(indices, sizes, strict=True)),
        ]
    )
    grid = [k.read(count)(names[:1]) for count in counts]
    taken = _all([f"{place} < {number_}" for place, number_ in zip(sample, grid, strict=True)])
    value = f"select({_all([inside(i) for i in indices])}, {weights[0]} * {weights[1]} * {element}, 0)"
    most = [each[0].index.shape[2] for each in found]
    total = k.local(shape, kind)
    if how.largest:
        k.nest(
            shape,
            f"{total(names)} = -inf",
            ([*most, 2, 2], f"{total(names)} max= select({taken}, {value}, -inf)"),
        )
        none = f"or({grid[0]} < 1, {grid[1]} < 1)"
        k.nest(shape, f"{y(names)} = {y.store(f'select({none}, 0, {total(names)})')}")
    else:
        k.nest(
            shape, f"{total(names)} = 0", ([*most, 2, 2], f"{total(names)} += select({taken}, {value}, 0)")
        )
        number_of = f"{kind}(max({grid[0]} * {grid[1]}, 1))"
        k.nest(shape, f"{y(names)} = {y.store(f'{total(names)} / {number_of}')}")
    return k.done()[0]


def _samples(
    b: Builder, rois: Value, dimension: int, size: int, parts: int, how: Regions
) -> tuple[Neighbours, Value]:
    """Along one dimension, the neighbours of each sample of each part of each region; how many samples a part
    of each region has. Regions that take more than the image has elements are reported."""
    most = how.samples or ceil(size / parts) + 1
    k = Writer(b, "region_samples")
    a, kind = k.read(rois), computed_in(rois.dtype)
    number_of = rois.shape[0]
    begin, width = k.local((number_of,), kind), k.local((number_of,), kind)
    count, beyond = k.write((number_of,), "i32"), k.write((), "i32")
    region = ["{0}"]
    ends = [f"{a.load(['{0}', 1 - dimension + 2 * end])} * {number(how.scale, 'f32')}" for end in (0, 1)]
    shift = " - 0.5" if how.shifted else ""
    k.nest((number_of,), f"{begin(region)} = {ends[0]}{shift}")
    extent = f"{ends[1]}{shift} - {begin(region)}"
    k.nest((number_of,), f"{width(region)} = {extent if how.shifted else f'max({extent}, 1)'}")
    part = f"{width(region)} / {parts}"
    needed = str(how.samples) if how.samples else f"i32(min(max(ceil({part}), 0), {most + 1}))"
    k.nest((number_of,), f"{count(region)} = {needed}")
    k.nest((), f"{beyond([])} = 0")
    k.nest((number_of,), f"{beyond([])} max= i32({count(region)} > {most})")
    points, names = (number_of, parts, most), levels(3)
    place, start = k.local(points, kind), k.local(points, kind)
    inner = f"({names[2]} + 0.5) * ({part}) / {kind}(max({count(region)}, 1))"
    k.nest(points, f"{place(names)} = {begin(region)} + {names[1]} * ({part}) + {inner}")
    here = place(names)
    k.nest(points, f"{start(names)} = min(floor(max({here}, 0)), {size - 1})")
    index, weight = k.write((*points, 2), "i32"), k.write((*points, 2), kind)
    outside = f"or({here} < -1, {here} > {size})"
    last = f"{start(names)} >= {size - 1}"
    rest = f"select({last}, 0, max({here}, 0) - {start(names)})"
    for t, text in enumerate((f"1 - {rest}", rest)):
        neighbour = f"i32(min({_moved(start(names), t)}, {size - 1}))"
        k.nest(points, f"{index([*names, t])} = select({outside}, -1, {neighbour})")
        k.nest(points, f"{weight([*names, t])} = {text}")
    counts, more, indices, weights = k.done()
    if not how.samples:
        b.check(more, "a region takes more samples than its image has; give sampling_ratio")
    return Neighbours(indices, weights), counts


def max_roi_pool(b: Builder, x: Value, rois: Value, how: Regions) -> Value:
    """The largest element of each part of each region (image, x1, y1, x2, y2), 0 for an empty part."""
    dtype = same_dtype(x, rois)
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 5 or not is_float(dtype):
        raise Malformed(f"regions {rois.text} for {x.text}")
    if min(how.height, how.width) < 1:
        raise Malformed(f"regions of {how.height} by {how.width} parts")
    if prod(x.shape[1:]) * rois.shape[0] * how.height * how.width > 2**40:
        raise Refused(Reason.SIZE, f"regions {rois.text} of {x.text}")
    _spatial(x)
    sizes, parts = x.shape[2:], (how.height, how.width)
    images = _images(b, rois, x.shape[0])
    ranges = [_ranges(b, rois, n, sizes[n], parts[n], how.scale) for n in (0, 1)]
    k = Writer(b, "max_roi_pool")
    a, image = k.read(x), k.read(images)
    shape = (rois.shape[0], x.shape[1], *parts)
    y, names = k.write(shape, dtype), levels(4)
    total, place = k.local(shape, computed_in(dtype)), ("{4}", "{5}")
    limits = [
        (k.read(r)([names[0], names[2 + n], 0]), k.read(r)([names[0], names[2 + n], 1]))
        for n, r in enumerate(ranges)
    ]
    within = _all(
        [
            c
            for at, (low, high) in zip(place, limits, strict=True)
            for c in (f"{at} >= {low}", f"{at} < {high}")
        ]
    )
    element = a.load([_at(image(names[:1]), x.shape[0]), names[1], *place])
    k.nest(shape, f"{total(names)} = -inf", (sizes, f"{total(names)} max= select({within}, {element}, -inf)"))
    none = f"or({limits[0][0]} >= {limits[0][1]}, {limits[1][0]} >= {limits[1][1]})"
    k.nest(shape, f"{y(names)} = {y.store(f'select({none}, 0, {total(names)})')}")
    return k.done()[0]


def _images(b: Builder, rois: Value, count: int) -> Value:
    """The number of each region's image."""
    k = Writer(b, "region_images")
    a, y = k.read(rois), k.write((rois.shape[0],), "i64")
    k.nest(y.shape, f"{y(['{0}'])} = i64({a.load(['{0}', 0])})")
    images = k.done()[0]
    checked(b, images, count)
    return images


def _ranges(b: Builder, rois: Value, dimension: int, size: int, parts: int, scale: float) -> Value:
    """Along one dimension, the first element of each part of each region and the one behind its last."""
    k = Writer(b, "region_ranges")
    a, kind = k.read(rois), computed_in(rois.dtype)
    points = (rois.shape[0], parts)
    begin, width = k.local(points[:1], kind), k.local(points[:1], kind)
    y, region = k.write((*points, 2), "i32"), ["{0}"]
    ends = []
    for end in (0, 1):
        scaled = f"({a.load(['{0}', 2 - dimension + 2 * end])} * {number(scale, 'f32')})"
        ends.append(f"select({scaled} < 0, ceil({scaled} - 0.5), floor({scaled} + 0.5))")
    k.nest(points[:1], f"{begin(region)} = {ends[0]}")
    k.nest(points[:1], f"{width(region)} = max({ends[1]} - {begin(region)} + 1, 1)")
    for end, text in enumerate(
        (f"floor({{1}} * ({width(region)} / {parts}))", f"ceil(({{1}} + 1) * ({width(region)} / {parts}))")
    ):
        k.nest(points, f"{y(['{0}', '{1}', end])} = i32(min(max({text} + {begin(region)}, 0), {size}))")
    return k.done()[0]
