"""The program of one integer kernel: a sum of products of quantised numbers, and what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf, prod

import numpy as np

from perfdojo_sdk.core.dtypes import integer_bounds
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.subscripts import AffineExpr
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Value
from perfdojo_sdk.graph.quantised import Result, Sum
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Place, Writer, number


@dataclass(frozen=True)
class Unit:
    """The products that instructions of a target add up."""

    image: str
    weights: str
    size: int


# -- geometry ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The loops of a sum in the order of an integer kernel, as levels of the original one."""

    rows: tuple[int, ...]
    lane: int
    lane_dim: int
    """Dimension of the result."""
    taps: tuple[int, ...]
    """Reduced loops without that of the channels."""
    channels: int | None
    """The reduced loop along neighbours; None: each lane has an image of its own."""
    channel_dim: int
    """Dimension of the image."""
    batch: tuple[int, ...]
    """Loops of the result that weights have as well, without that of the lanes."""


def layout_of(total: Sum) -> Layout | None:
    """The layout of a sum; None where no order of its loops has lanes and groups."""
    sizes = total.sizes
    kept = _plain_levels(total.target, sizes)
    own = _plain_levels(total.of_weights, sizes)
    if kept is None or own is None:
        return None
    whole = tuple(1 if l == FIXED else sizes[l] for l in own) == total.weights.integers.shape
    if not whole or tuple(1 if l == FIXED else sizes[l] for l in kept) != total.target_shape:
        return None  # a part of the weights, or of the result
    image_levels = {l for form in total.of_image.subscripts for l in form.levels if sizes[l] > 1}
    quotients = any(form.quotients for form in total.of_image.subscripts)
    targets, weights = {l for l in kept if l != FIXED}, {l for l in own if l != FIXED}
    reduced = [l for l, size in enumerate(sizes) if size > 1 and l not in targets]
    if quotients or not set(reduced) <= weights or len(weights) != sum(l != FIXED for l in own):
        return None
    plain = {
        level: d for d, f in enumerate(total.of_image.subscripts) if (level := level_of(f, sizes)) is not None
    }
    once = {l for l in image_levels if sum(l in f.levels for f in total.of_image.subscripts) == 1}
    lanes = [l for l in targets & weights if l not in image_levels]
    along = [l for l in reduced if l in plain and l in once]
    channels: int | None = None
    if lanes and along:
        lane, channels = max(lanes, key=lambda l: sizes[l]), max(along, key=lambda l: sizes[l])
        dim = plain[channels]
    else:
        both = [l for l in targets & weights if l in plain and l in once]
        if lanes or not both:
            return None
        lane = max(both, key=lambda l: sizes[l])
        dim = plain[lane]
    rows = tuple(l for l in kept if l not in (FIXED, lane))
    taps = tuple(l for l in reduced if l != channels)
    batch = tuple(l for l in rows if l in weights)
    if not _inside(total) or not _reaches(total):
        return None
    return Layout(rows, lane, kept.index(lane), taps, channels, dim, batch)


FIXED = -1


def level_of(form: AffineExpr, sizes: Sequence[int]) -> int | None:
    """The iterator that a subscript is; ``FIXED`` for 0, None for any other form."""
    if form.quotients or form.constant:
        return None
    terms = [(level, step) for level, step in form.terms if sizes[level] > 1]
    if not terms:
        return FIXED
    return terms[0][0] if len(terms) == 1 and terms[0][1] == 1 else None


def _plain_levels(access: Access, sizes: Sequence[int]) -> list[int] | None:
    """The iterators that the subscripts of an access are; None if one is another form."""
    found = [level for form in access.subscripts if (level := level_of(form, sizes)) is not None]
    return found if len(found) == len(access.subscripts) else None


def _inside(total: Sum) -> bool:
    """True if the conditions of a sum say that elements of the image are inside of it, and nothing else."""
    allowed = set()
    for form, size in zip(total.of_image.subscripts, total.image_shape, strict=True):
        allowed |= {form, AffineExpr.of({}, size - 1).plus(form, -1)}
    return allowed.issuperset(total.guard)


def _reaches(total: Sum) -> bool:
    """True if some window of a sum has elements of the image, and not its border alone."""
    forms = zip(total.of_image.subscripts, total.image_shape, strict=True)
    ranges = [(form.bounds(total.sizes), size) for form, size in forms]
    return all(high >= 0 and low < size for (low, high), size in ranges)


# -- one kernel ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A sum that becomes an integer kernel, and what is made of it."""

    total: Sum
    layout: Layout
    result: Result


class IntegerKernel:
    """The program of one site. Its result has the channels last."""

    def __init__(self, b: Builder, site: Site, unit: Unit, source: Value, turned: bool, zero: Value | int):
        self.b, self.site, self.unit, self.turned = b, site, unit, turned
        self.total, self.layout = site.total, site.layout
        self.sizes, self.zero, self.source = self.total.sizes, zero, source
        self.k = Writer(b, f"{self.total.node.program.name}_integers"[:60])
        self.bytes_ = unit.image == "u8"
        self.shift = 128 if self.bytes_ and source.dtype == "i8" else 0
        self.dims = [d for d in range(len(self.total.image_shape)) if d != self.layout.channel_dim]
        self.dims.append(self.layout.channel_dim)

    def value(self) -> Value:
        """The result, with channels last."""
        k = self.k
        self._name_loops()
        weights, offset, of_zero, correction = self._constants()
        image = self._image()
        w = k.read(self.b.constant(weights))
        shape = tuple(self.sizes[l] if l != FIXED else 1 for l in self._kept())
        at = [self.names.get(l, "0") for l in self._kept()]
        plain = self.site.result.kind == "integers" and correction is None
        t = k.write(shape, "i32") if plain else k.local(shape, "i32")
        start = str(int(offset)) if offset.ndim == 0 else f"{k.read(self.b.constant(offset))([self.lane])}"
        if of_zero is not None:
            assert isinstance(self.zero, Value)
            zero = k.read(self.zero)(["0"] * self.zero.rank)
            start = f"{start} - i32({zero}) * {k.read(self.b.constant(of_zero))([self.lane])}"
        one = f"i32({image(self._image_at(self.inner))})"
        other = f"i32({w(self._weights_at())})"
        outer = [self.sizes[l] if l != FIXED else 1 for l in self.loops]
        k.nest(outer, f"{t(at)} = {start}", (self.inner_sizes, f"{t(at)} += {one} * {other}"))
        text = t(at)
        if correction is not None:
            text = (
                f"{text} - {k.read(self.b.constant(correction))([self.lane])} * {self._sum_of_image(image)}"
            )
        if not plain:
            y = k.write(shape, self.site.result.dtype)
            k.nest(outer, f"{y(at)} = {self._finished(text)}")
        return k.done()[0]

    def _kept(self) -> list[int]:
        """Loops of the result's dimensions, the channels last."""
        kept = _plain_levels(self.total.target, self.sizes) or []
        return [l for l in kept if l != self.layout.lane] + [self.layout.lane]

    def _name_loops(self) -> None:
        layout = self.layout
        rows = list(layout.rows)
        self.loops = [*(rows or [FIXED]), layout.lane]
        self.names = {l: f"{{{n}}}" for n, l in enumerate(self.loops) if l != FIXED}
        self.lane = self.names[layout.lane]
        first = len(self.loops)
        self.single = prod(self.sizes[l] for l in rows) == 1
        self.beside = self._taps_beside()
        taps = [l for l in layout.taps if l != self.beside]
        inner = {l: f"{{{first + n}}}" for n, l in enumerate(taps)}
        self.inner_sizes = [self.sizes[l] for l in taps]
        self.groups = 0
        """Groups of channels; 0: the sum goes through them one by one."""
        if layout.channels is not None and self.single:
            inner[layout.channels] = f"{{{first + len(inner)}}}"
            self.inner_sizes.append(self.sizes[layout.channels])
        elif layout.channels is not None:
            self.groups = self._groups_of(self.run)
            self.group = [f"{{{first + len(inner)}}}", f"{{{first + len(inner) + 1}}}"]
            self.inner_sizes += [self.groups, self.unit.size]
            inner[layout.channels] = affine((self.group[0], self.unit.size), (self.group[1], 1))
        self.inner = {**self.names, **inner}
        if not self.inner_sizes:
            self.inner_sizes = [1]

    def _groups_of(self, count: int) -> int:
        return -(-count // self.unit.size)

    @property
    def run(self) -> int:
        """The neighbours that are grouped: channels, of several taps where these lie beside each other."""
        assert self.layout.channels is not None
        return self.sizes[self.layout.channels] * (1 if self.beside is None else self.sizes[self.beside])

    def _taps_beside(self) -> int | None:
        """The loop whose taps lie beside each other in an image with channels last, if groups of several taps
        are fewer: 7 taps of 3 channels are 11 pairs, and 14 of each tap."""
        channels = self.layout.channels
        if channels is None or self.single or len(self.dims) < 2:
            return None
        forms = self.total.of_image.subscripts
        for level in self.layout.taps:
            count = self.sizes[level]
            fewer = self._groups_of(count * self.sizes[channels]) < count * self._groups_of(
                self.sizes[channels]
            )
            dims = [d for d, form in enumerate(forms) if level in form.levels]
            if fewer and dims == [self.dims[-2]] and (level, 1) in forms[dims[0]].terms:
                return level
        return None

    # -- weights

    def _constants(self) -> tuple[Array, Array, Array | None, Array | None]:
        """Weights in the order of the loops; what the sums start at, without and with a factor of the zero
        point; and the factor of the sums of the image, which is None where it is 0."""
        layout = self.layout
        own = [level_of(form, self.sizes) for form in self.total.of_weights.subscripts]
        data = self.total.weights.integers
        levels = [l for l in own if l != FIXED]
        data = data.reshape([s for s, l in zip(data.shape, own, strict=True) if l != FIXED])
        order = [*layout.batch, *(l for l in layout.taps if l != self.beside)]
        order += [l for l in (self.beside, layout.channels) if l is not None]
        data = data.transpose([levels.index(l) for l in (*order, layout.lane)])
        lanes = data.shape[-1]
        flat = data.reshape(-1, lanes)
        bias = self.total.bias if self.total.bias is not None and not self.total.scaled else np.zeros((), int)
        start = np.broadcast_to(bias, (lanes,)).astype(np.int64)
        correction, of_zero = None, None
        if self.bytes_:
            low, high = flat.min(0), flat.max(0)
            moved = np.where((low < -128) | (high > 127), -128 - low, 0)
            data, correction = data + moved, moved if moved.any() else None
            sums = data.reshape(-1, lanes).sum(0)
            known = self.zero if isinstance(self.zero, int) else 0
            start = start - (known + self.shift) * sums
            of_zero = wrapped(sums) if isinstance(self.zero, Value) else None
        data = self._in_groups(data)
        base = wrapped(start)
        offset = base if base.any() else np.zeros((), np.int32)
        kind = np.int8 if self.bytes_ else np.int16
        return data.astype(kind), offset, of_zero, None if correction is None else wrapped(correction)

    def _in_groups(self, data: Array) -> Array:
        """Weights whose channels are filled up to whole groups with zeros, each lane beside its group; for
        a single row, all that a lane needs lies together instead."""
        if not self.groups:
            return np.ascontiguousarray(np.moveaxis(data, -1, self._lane_at()))
        if self.beside is not None:
            data = data.reshape(*data.shape[:-3], self.run, data.shape[-1])
        more = self.groups * self.unit.size - data.shape[-2]
        data = np.concatenate([data, np.zeros((*data.shape[:-2], more, data.shape[-1]), np.int64)], axis=-2)
        data = data.reshape(*data.shape[:-2], self.groups, self.unit.size, data.shape[-1])
        return np.ascontiguousarray(np.moveaxis(data, -2, -1))

    def _weights_at(self) -> list[str]:
        layout = self.layout
        at = [self.inner[l] for l in (*layout.batch, *layout.taps) if l != self.beside]
        if not self.groups:
            at += [self.inner[layout.channels]] if layout.channels is not None else []
            at.insert(self._lane_at(), self.lane)
            return at
        return [*at, self.group[0], self.lane, self.group[1]]

    def _lane_at(self) -> int:
        """The dimension of the lanes among weights without groups."""
        layout = self.layout
        last = len(layout.batch) + len(layout.taps)
        return len(layout.batch) if self.single and layout.channels is not None else last

    # -- the image

    def _image(self) -> Place:
        """The image with the channels last, its zero point around it and whole groups of channels."""
        shape = self.total.image_shape
        forms = [self.total.of_image.subscripts[d] for d in self.dims]
        ranges = [form.bounds(self.sizes) for form in forms]
        sizes = [shape[d] for d in self.dims]
        extents = [high - low + 1 for low, high in ranges]
        if self.groups and self.beside is None:
            extents[-1] = self.groups * self.unit.size
        self.lows = [low for low, _ in ranges]
        stored = self.k.read(self.source)
        inside = all(low >= 0 and high < size for (low, high), size in zip(ranges, sizes, strict=True))
        fits = inside and extents[-1] <= sizes[-1] and self.source.dtype == self.unit.image
        if fits and (self.turned or self.dims == sorted(self.dims)):
            self.lows = [0] * len(self.lows)
            return stored
        whole = self._joined_extents(extents)
        image = self.k.local(tuple(whole), self.unit.image)
        names = [f"{{{n}}}" for n in range(len(extents))]
        first = [max(-low, 0) for low in self.lows]
        counts = [min(e, s - low) - f for e, s, low, f in zip(extents, sizes, self.lows, first, strict=True)]
        if counts != whole:
            self.k.nest(whole, f"{image(names[: len(whole)])} = {self._padding()}")
        places = [affine((n, 1), f + low) for n, f, low in zip(names, first, self.lows, strict=True)]
        if not self.turned:
            places = [places[self.dims.index(d)] for d in range(len(shape))]
        self.k.nest(
            counts,
            f"{image(self._joined([([(n, 1)], f) for n, f in zip(names, first, strict=True)]))}"
            f" = {self._element(stored(places))}",
        )
        return image

    def _joined_extents(self, extents: Sequence[int]) -> list[int]:
        """The shape of an image. Where taps lie beside each other, places and channels are one dimension that
        ends where the last group does."""
        if self.beside is None:
            return list(extents)
        channels = extents[-1]
        most = (extents[-2] - self.sizes[self.beside]) * channels + self.groups * self.unit.size
        return [*extents[:-2], most]

    def _joined(self, forms: Sequence[tuple[list[tuple[str, int]], int]]) -> list[str]:
        """Subscripts of an image, given as terms and a constant for each of its dimensions."""
        if self.beside is not None:
            channels = self.sizes[self.layout.channels] if self.layout.channels is not None else 1
            (terms, first), (more, then) = forms[-2:]
            one = [*((name, step * channels) for name, step in terms), *more]
            forms = [*forms[:-2], (one, first * channels + then)]
        return [affine(*terms, constant) for terms, constant in forms]

    def _zero_text(self) -> str:
        if isinstance(self.zero, int):
            return str(self.zero)
        return self.k.read(self.zero)(["0"] * self.zero.rank)

    def _padding(self) -> str:
        """An element whose number is 0."""
        if not self.bytes_:
            return "0"
        if isinstance(self.zero, int):
            return str(self.zero + self.shift)
        return f"u8(i32({self._zero_text()}) + {self.shift})" if self.shift else self._zero_text()

    def _element(self, text: str) -> str:
        """An element as the unit takes it: a byte without a sign, or a word less its zero point."""
        if not self.bytes_:
            if isinstance(self.zero, int):
                return f"i16({text}) - {self.zero}" if self.zero else f"i16({text})"
            return f"i16({text}) - i16({self._zero_text()})"
        return f"u8(i32({text}) + 128)" if self.shift else text

    def _image_at(self, names: dict[int, str]) -> list[str]:
        """Subscripts of an element of the image inside of the sum."""
        found = []
        for d, low in zip(self.dims, self.lows, strict=True):
            form = self.total.of_image.subscripts[d]
            terms = [(names[l], step) for l, step in form.terms if self.sizes[l] > 1 and l in names]
            found.append((terms, form.constant - low))
        return self._joined(found)

    def _sum_of_image(self, image: Place) -> str:
        """The text of the sum of the image's numbers at each place of the result: of one channel, where each
        has its own."""
        alone = all(self.layout.lane not in form.levels for form in self.total.of_image.subscripts)
        rows = self.loops[:-1] if alone else self.loops
        shape = tuple(self.sizes[l] if l != FIXED else 1 for l in rows)
        moved = {name: f"{{{n}}}" for n, name in enumerate(self._inner_levels(), len(rows))}
        names = {**{l: f"{{{n}}}" for n, l in enumerate(rows)}, **moved}
        at = [f"{{{n}}}" for n in range(len(rows))]
        found = self.k.local(shape, "i32")
        sizes = [self.sizes[l] for l in self._inner_levels()]
        element = f"i32({image(self._image_at(names))})"
        zero = f"i32({self._zero_text()})" if isinstance(self.zero, Value) else str(self.zero)
        less = f" - {zero}" if zero != "0" else ""
        less += f" - {self.shift}" if self.shift else ""
        self.k.nest(shape, f"{found(at)} = 0", (sizes, f"{found(at)} += {element}{less}"))
        return found(at)

    def _inner_levels(self) -> list[int]:
        found = list(self.layout.taps)
        return found + ([self.layout.channels] if self.layout.channels is not None else [])

    # -- the result

    def _finished(self, text: str) -> str:
        result = self.site.result
        if result.kind == "integers":
            return text
        value = f"f32({text})"
        factor = self._channels(result.factor)
        value = f"{value} * {factor}"
        if result.shift.any():
            value = f"{value} + {self._channels(result.shift)}"
        if result.kind == "numbers":
            return value
        low, high = integer_bounds(result.dtype)
        if not isinf(result.low):
            value = f"max({value}, {number(float(np.float32(result.low)), 'f32')})"
        if not isinf(result.high):
            value = f"min({value}, {number(float(np.float32(result.high)), 'f32')})"
        # Cut among floats, where both bounds are exact: rounding stays between whole numbers.
        whole = f"i32(round(max(min({value}, {high - result.zero}), {low - result.zero})))"
        return f"{result.dtype}({whole} + {result.zero})" if result.zero else f"{result.dtype}({whole})"

    def _channels(self, data: Array) -> str:
        """The text of a number, or of that of each channel."""
        rounded = data.astype(np.float32)
        if rounded.ndim == 0:
            return number(float(rounded), "f32")
        return self.k.read(self.b.constant(rounded))([self.lane])


def wrapped(data: Array) -> Array:
    """64-bit integers modulo 2^32."""
    return (data.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
