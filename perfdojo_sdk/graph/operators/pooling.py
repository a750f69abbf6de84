"""Pooling: maxima, means and norms of windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import windows
from perfdojo_sdk.graph.operators.reductions import start
from perfdojo_sdk.graph.operators.windows import Axis
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import affine, flat_index
from perfdojo_sdk.graph.writer import Place, Writer, computed_in, is_float, levels, need, number


class _Windows:
    """Subscripts of positions and taps in the nest that visits all windows."""

    def __init__(self, x: Value, axes: Sequence[Axis]) -> None:
        rank = len(axes)
        if x.rank < 3 or rank != x.rank - 2:
            raise Malformed(f"pooling of {x.text} by a window of {rank} dimensions")
        self.axes = axes
        self.shape = (*x.shape[:2], *(axis.output for axis in axes))
        self.inner = [axis.kernel for axis in axes]
        self.names = levels(rank + 2)
        self.pairs = list(zip(axes, self.names[2:], levels(rank, rank + 2), strict=True))
        self.read = ["{0}", "{1}", *(axis.place(p, t) for axis, p, t in self.pairs)]
        conditions = [c for axis, p, t in self.pairs for c in axis.inside(p, t)]
        self.guard = windows.condition(conditions)
        self.borders = [(axis.begin, max(axis.reach - axis.size, 0)) for axis in axes]
        self.sizes = [p + axis.size + q for axis, (p, q) in zip(axes, self.borders, strict=True)]
        taps = prod([*self.shape[2:], *self.inner])
        self.copies = rank > 1 and bool(conditions) and prod(self.sizes) <= taps
        """True if windows go over a copy of the image with a border, and need no conditions. A row is no
        image that stays in a near cache, so one dimension keeps its conditions."""

    def taps(self, k: Writer, image: Place, outside: str) -> tuple[str, str]:
        """The element under a tap, and the condition for it; ``outside`` stands around a copy."""
        if not self.copies:
            return image.load(self.read), self.guard
        copy = k.local((*image.shape[:2], *self.sizes), computed_in(image.dtype))
        k.nest(copy.shape, f"{copy(self.names)} = {outside}")
        inner = [affine((name, 1), p) for name, (p, _) in zip(self.names[2:], self.borders, strict=True)]
        k.nest(image.shape, f"{copy(['{0}', '{1}', *inner])} = {image.load(self.names)}")
        moved = [affine((p, axis.stride), (t, axis.dilation)) for axis, p, t in self.pairs]
        return copy(["{0}", "{1}", *moved]), ""


def max_pool(b: Builder, x: Value, axes: Sequence[Axis], indices: bool, columns: bool) -> list[Value]:
    """The largest element of each window; with ``indices`` its place in the whole array, row-major in the
    image or by ``columns``: in the order of the window the first of equal ones, and the last NaN. Standards
    of models leave this order open; PyTorch's is taken."""
    w = _Windows(x, axes)
    k = Writer(b, "max_pool")
    a, y = k.read(x), k.write(w.shape, x.dtype)
    low = start("max=", computed_in(x.dtype))
    top = y if computed_in(x.dtype) == x.dtype else k.local(w.shape, computed_in(x.dtype))
    element, guard = w.taps(k, a, low)
    k.nest(w.shape, f"{top(w.names)} = {low}", (w.inner, f"{top(w.names)} max= {element}{guard}"))
    if top is not y:
        k.nest(w.shape, f"{y(w.names)} = {y.store(top(w.names))}")
    if not indices:
        return [k.done()[0]]
    place = k.write(w.shape, "i64")
    image = tuple(axis.size for axis in axes)
    order = list(range(len(axes)))[:: -1 if columns else 1]
    inside = flat_index(tuple(image[n] for n in order), [_bracketed(w.read[2 + n]) for n in order])
    first = flat_index((*x.shape[:2], prod(image)), ["{0}", "{1}", f"({inside})"])
    found = f"{a.load(w.read)} == {top(w.names)}"
    if is_float(x.dtype):
        found = f"or({found}, {a.load(w.read)} != {a.load(w.read)})"
    nearest, most = k.local(w.shape, "i64"), prod(w.inner)
    tap = f"index({flat_index(tuple(w.inner), [t for _, _, t in w.pairs])})"
    if is_float(x.dtype):
        tap = f"select({top(w.names)} != {top(w.names)}, {most - 1} - {tap}, {tap})"
    k.nest(
        w.shape,
        f"{nearest(w.names)} = {most}",
        (w.inner, f"{nearest(w.names)} min= select({found}, {tap}, {most}){w.guard}"),
    )
    k.nest(
        w.shape,
        f"{place(w.names)} = 0",
        (
            w.inner,
            f"{place(w.names)} += select({nearest(w.names)} == {tap}, index({first}), 0){w.guard}",
        ),
    )
    return list(k.done())


def _bracketed(text: str) -> str:
    return text if text.startswith("{") and text.endswith("}") and text.count("{") == 1 else f"({text})"


def average_pool(
    b: Builder, x: Value, axes: Sequence[Axis], with_padding: bool, divided_by: int = 0
) -> Value:
    """The mean of each window; padding counts as zeros ``with_padding``, and not at all without. The sum may
    be ``divided_by`` another number than that of elements."""
    w = _Windows(x, axes)
    k = Writer(b, "average_pool")
    a, kind = k.read(x), computed_in(x.dtype)
    total = k.local(w.shape, kind)
    element, guard = w.taps(k, a, "0")
    k.nest(w.shape, f"{total(w.names)} = 0", (w.inner, f"{total(w.names)} += {element}{guard}"))
    counts = [_counts(axis, with_padding) for axis in axes] if not divided_by else []
    arrays = [
        k.read(b.constant(np.array(found, numpy_dtype(kind))))([position])
        for found, position in zip(counts, w.names[2:], strict=not divided_by)
        if len(set(found)) > 1
    ]
    same = divided_by or prod(found[0] for found in counts if len(set(found)) == 1)
    divisor = f"({' * '.join(arrays + ([str(same)] if same != 1 else []))})" if arrays else str(same)
    y = k.write(w.shape, x.dtype)
    k.nest(w.shape, f"{y(w.names)} = {y.store(f'{total(w.names)} / {divisor}')}")
    return k.done()[0]


def _counts(axis: Axis, with_padding: bool) -> list[int]:
    """The number of taps that count at each position. Beyond the padding, where a last window may reach by
    rounding up, none does."""
    low, high = (-axis.begin, axis.size + axis.end) if with_padding else (0, axis.size)
    starts = [p * axis.stride - axis.begin for p in range(axis.output)]
    return [sum(low <= s + t * axis.dilation < high for t in range(axis.kernel)) for s in starts]


def lp_pool(b: Builder, x: Value, axes: Sequence[Axis], p: int) -> Value:
    """The p-norm of each window."""
    w = _Windows(x, axes)
    k = Writer(b, "lp_pool")
    a, total = k.read(x), k.local(w.shape, computed_in(x.dtype))
    element, guard = w.taps(k, a, "0")
    k.nest(w.shape, f"{total(w.names)} = 0", (w.inner, f"{total(w.names)} += {power(element, p)}{guard}"))
    y = k.write(w.shape, x.dtype)
    k.nest(w.shape, f"{y(w.names)} = {y.store(root(total(w.names), p))}")
    return k.done()[0]


def power(text: str, p: int) -> str:
    """The p-th power of a magnitude, p from 1 to 16."""
    if not 1 <= p <= 16:
        raise Malformed(f"a norm with p = {p}", "p is from 1 to 16")
    return " * ".join([f"abs({text})" if p % 2 else text] * p) if p != 1 else f"abs({text})"


def root(text: str, p: int) -> str:
    """The p-th root."""
    if p <= 2:
        return text if p == 1 else f"sqrt({text})"
    need("pow")
    return f"pow({text}, {number(1 / p, 'f32')})"


def global_axes(x: Value) -> tuple[Axis, ...]:
    """A window over whole images."""
    return tuple(Axis(size, size, 1, 1, 0, 0, 1) for size in x.shape[2:])
