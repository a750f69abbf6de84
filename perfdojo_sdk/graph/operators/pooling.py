"""Pooling: maxima, means and norms of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import windows
from perfdojo_sdk.graph.operators.reductions import start
from perfdojo_sdk.graph.operators.windows import Axis
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import flat_index
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float, levels, need, number


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
        self.guard = windows.condition([c for axis, p, t in self.pairs for c in axis.inside(p, t)])


def max_pool(b: Builder, x: Value, axes: Sequence[Axis], indices: bool, columns: bool) -> list[Value]:
    """The largest element of each window; with ``indices`` its place in the whole array, row-major in the
    image or by ``columns``."""
    w = _Windows(x, axes)
    k = Writer(b, "max_pool")
    a, y = k.read(x), k.write(w.shape, x.dtype)
    low = start("max=", computed_in(x.dtype))
    top = y if computed_in(x.dtype) == x.dtype else k.local(w.shape, computed_in(x.dtype))
    k.nest(w.shape, f"{top(w.names)} = {low}", (w.inner, f"{top(w.names)} max= {a.load(w.read)}{w.guard}"))
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
    # Of equal elements the first one in the order of the window counts.
    tap = flat_index(tuple(w.inner), [t for _, _, t in w.pairs])
    nearest, most = k.local(w.shape, "i64"), prod(w.inner)
    k.nest(
        w.shape,
        f"{nearest(w.names)} = {most}",
        (w.inner, f"{nearest(w.names)} min= select({found}, index({tap}), {most}){w.guard}"),
    )
    k.nest(
        w.shape,
        f"{place(w.names)} = 0",
        (
            w.inner,
            f"{place(w.names)} += select({nearest(w.names)} == index({tap}), index({first}), 0){w.guard}",
        ),
    )
    return list(k.done())


def _bracketed(text: str) -> str:
    return text if text.startswith("{") and text.endswith("}") and text.count("{") == 1 else f"({text})"


def average_pool(b: Builder, x: Value, axes: Sequence[Axis], with_padding: bool) -> Value:
    """The mean of each window; padding counts as zeros ``with_padding``, and not at all without."""
    w = _Windows(x, axes)
    k = Writer(b, "average_pool")
    a, kind = k.read(x), computed_in(x.dtype)
    total = k.local(w.shape, kind)
    k.nest(w.shape, f"{total(w.names)} = 0", (w.inner, f"{total(w.names)} += {a.load(w.read)}{w.guard}"))
    rank = len(axes)
    positions, taps = levels(rank), levels(rank, rank)
    guards = []
    for axis, p, t in zip(axes, positions, taps, strict=True):
        if with_padding:  # beyond the padding, where a last window may reach by rounding up, nothing counts
            guards += replace(axis, begin=0).inside(p, t, axis.size + axis.begin + axis.end)
        else:
            guards += axis.inside(p, t)
    y = k.write(w.shape, x.dtype)
    divisor = str(prod(w.inner))
    if guards:
        counts = k.local(w.shape[2:], kind)
        k.nest(
            w.shape[2:],
            f"{counts(positions)} = 0",
            (w.inner, f"{counts(positions)} += 1{windows.condition(guards)}"),
        )
        divisor = counts(w.names[2:])
    k.nest(w.shape, f"{y(w.names)} = {y.store(f'{total(w.names)} / {divisor}')}")
    return k.done()[0]


def lp_pool(b: Builder, x: Value, axes: Sequence[Axis], p: int) -> Value:
    """The p-norm of each window."""
    w = _Windows(x, axes)
    k = Writer(b, "lp_pool")
    a, total = k.read(x), k.local(w.shape, computed_in(x.dtype))
    term = power(a.load(w.read), p)
    k.nest(w.shape, f"{total(w.names)} = 0", (w.inner, f"{total(w.names)} += {term}{w.guard}"))
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
