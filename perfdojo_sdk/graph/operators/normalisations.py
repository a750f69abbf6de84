"""Normalisations by mean and variance, by norms, by neighbours; softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.operators.pooling import power, root
from perfdojo_sdk.graph.operators.reductions import accumulate, split_levels
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import axis_of, broadcast
from perfdojo_sdk.graph.writer import Place, Writer, computed_in, converted, levels, number


def centred(
    k: Writer, x: Place, axes: Sequence[int], epsilon: float
) -> tuple[Place, Place, Place, list[str], tuple[int, ...]]:
    """Mean, variance and deviation sqrt(variance + epsilon) over axes, in the dtype that is computed in; the
    subscripts and the shape of all three."""
    every, kept = split_levels(len(x.shape), axes)
    inner, count = [x.shape[n] for n in axes], prod(x.shape[n] for n in axes)
    total, _, outer = accumulate(k, x, axes, "+=", lambda e: e)
    mean, square = k.local(outer, total.dtype), k.local(outer, total.dtype)
    k.nest(outer, f"{mean(kept)} = {total(kept)} / {count}")
    term = f"({x.load(every)} - {mean(kept)})"
    k.nest(outer, f"{square(kept)} = 0", (inner, f"{square(kept)} += {term} * {term}"))
    variance, deviation = k.local(outer, total.dtype), k.local(outer, total.dtype)
    k.nest(outer, f"{variance(kept)} = {square(kept)} / {count}")
    k.nest(outer, f"{deviation(kept)} = sqrt({variance(kept)} + {number(epsilon, 'f32')})")
    return mean, variance, deviation, kept, outer


def batch_norm(
    b: Builder, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float
) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with statistics that are given."""
    k = Writer(b, "batch_norm")
    a, names = k.read(x), levels(x.rank)
    channel = names[1] if x.rank > 1 else "0"
    m, v, s, c = (k.read(each).load([channel]) for each in (mean, variance, scale, bias))
    y = k.write(x.shape, x.dtype)
    kind = computed_in(x.dtype)
    m, v, s, c = (
        converted(text, computed_in(each.dtype), kind)
        for text, each in zip((m, v, s, c), (mean, variance, scale, bias), strict=True)
    )
    deviation = f"sqrt({v} + {number(epsilon, 'f32')})"
    k.nest(x.shape, f"{y(names)} = {y.store(f'({a.load(names)} - {m}) / {deviation} * {s} + {c}')}")
    return k.done()[0]


def batch_norm_training(
    b: Builder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    epsilon: float,
    momentum: float,
) -> list[Value]:
    """The same with statistics of ``x``, and the running statistics that follow from them."""
    same_dtype(x, scale, bias, mean, variance)
    k = Writer(b, "batch_norm_training")
    a, names = k.read(x), levels(x.rank)
    axes = [n for n in range(x.rank) if n != 1]
    m, v, d, _, _ = centred(k, a, axes, epsilon)
    y = k.write(x.shape, x.dtype)
    at = [names[1]]
    text = f"({a.load(names)} - {m(at)}) / {d(at)} * {k.read(scale).load(at)} + {k.read(bias).load(at)}"
    k.nest(x.shape, f"{y(names)} = {y.store(text)}")
    rest = number(1 - momentum, "f64")
    for before, now in ((mean, m), (variance, v)):
        after = k.write(before.shape, before.dtype)
        text = f"{k.read(before).load(['{0}'])} * {number(momentum, 'f32')} + {now(['{0}'])} * {rest}"
        k.nest(before.shape, f"{after(['{0}'])} = {after.store(text)}")
    return list(k.done())


def instance_norm(b: Builder, x: Value, scale: Value, bias: Value, epsilon: float) -> Value:
    """Each channel of each image by its own statistics, scaled and shifted by channel."""
    return _by_channel(b, "instance_norm", x, scale, bias, range(2, x.rank), epsilon)


def _by_channel(
    b: Builder, name: str, x: Value, scale: Value, bias: Value, axes: Sequence[int], epsilon: float
) -> Value:
    same_dtype(x, scale, bias)
    k = Writer(b, name)
    a, names = k.read(x), levels(x.rank)
    mean, _, deviation, _, _ = centred(k, a, list(axes), epsilon)
    at = [names[n] for n in range(x.rank) if n not in axes]
    y = k.write(x.shape, x.dtype)
    text = f"({a.load(names)} - {mean(at)}) / {deviation(at)}"
    text += f" * {k.read(scale).load([names[1]])} + {k.read(bias).load([names[1]])}"
    k.nest(x.shape, f"{y(names)} = {y.store(text)}")
    return k.done()[0]


def group_norm(b: Builder, x: Value, scale: Value, bias: Value, groups: int, epsilon: float) -> Value:
    """Groups of channels by their own statistics; scale and shift by channel, or by group."""
    same_dtype(x, scale, bias)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise Malformed(f"{x.text} in {groups} groups of channels")
    size = x.shape[1] // groups
    whole = b.view(x, (x.shape[0], groups, size, *x.shape[2:]))
    k = Writer(b, "group_norm")
    a, names = k.read(whole), levels(whole.rank)
    mean, _, deviation, _, _ = centred(k, a, range(2, whole.rank), epsilon)
    if scale.shape != bias.shape or scale.shape not in ((groups,), (x.shape[1],)):
        raise Malformed(f"a scale of {scale.text} and a bias of {bias.text} for {x.text}")
    channel = f"{names[1]}*{size}+{names[2]}" if scale.shape == (x.shape[1],) else names[1]
    y = k.write(whole.shape, x.dtype)
    at = names[:2]
    text = f"({a.load(names)} - {mean(at)}) / {deviation(at)}"
    text += f" * {k.read(scale).load([channel])} + {k.read(bias).load([channel])}"
    k.nest(whole.shape, f"{y(names)} = {y.store(text)}")
    return b.view(k.done()[0], x.shape)


def layer_norm(
    b: Builder, x: Value, scale: Value, bias: Value | None, axis: int, epsilon: float, statistics: bool
) -> list[Value]:
    """The dimensions from ``axis`` on by their mean and variance; with ``statistics`` also mean and
    1 / deviation, in the dtype that is computed in."""
    axis = axis_of(axis, x.rank)
    axes = list(range(axis, x.rank))
    k = Writer(b, "layer_norm")
    a, names = k.read(x), levels(x.rank)
    mean, _, deviation, kept, outer = centred(k, a, axes, epsilon)
    y = k.write(x.shape, x.dtype)
    text = f"({a.load(names)} - {mean(kept)}) / {deviation(kept)}"
    text += f" * {_spread(k, scale, x, names)}" + (f" + {_spread(k, bias, x, names)}" if bias else "")
    k.nest(x.shape, f"{y(names)} = {y.store(text)}")
    if statistics:
        one, other = k.write(outer, mean.dtype), k.write(outer, mean.dtype)
        k.nest(outer, f"{one(kept)} = {mean(kept)}")
        k.nest(outer, f"{other(kept)} = 1 / {deviation(kept)}")
    found = list(k.done())
    shape = (*x.shape[:axis], *[1] * len(axes))
    return [found[0], *(b.view(v, shape) for v in found[1:])]


def _spread(k: Writer, value: Value, x: Value, names: Sequence[str]) -> str:
    if broadcast(value.shape, x.shape) != x.shape:
        raise Malformed(f"{value.text} does not fit to {x.text}")
    text = k.read(value).broadcast(x.shape, names)
    return converted(text, computed_in(value.dtype), computed_in(x.dtype))


def rms_norm(b: Builder, x: Value, scale: Value, axis: int, epsilon: float) -> Value:
    """The dimensions from ``axis`` on divided by the root of their mean square."""
    axis = axis_of(axis, x.rank)
    axes = list(range(axis, x.rank))
    k = Writer(b, "rms_norm")
    a, names = k.read(x), levels(x.rank)
    total, kept, outer = accumulate(k, a, axes, "+=", lambda e: f"{e} * {e}")
    size = k.local(outer, total.dtype)
    count = prod(x.shape[n] for n in axes)
    k.nest(outer, f"{size(kept)} = sqrt({total(kept)} / {count} + {number(epsilon, 'f32')})")
    y = k.write(x.shape, scale.dtype)
    text = converted(f"{a.load(names)} / {size(kept)}", total.dtype, computed_in(scale.dtype))
    k.nest(x.shape, f"{y(names)} = {y.store(f'{text} * {k.read(scale).broadcast(x.shape, names)}')}")
    return k.done()[0]


def lp_norm(b: Builder, x: Value, axis: int, p: int) -> Value:
    """Elements divided by the p-norm along an axis; 0 where that is 0."""
    axis = axis_of(axis, x.rank)
    k = Writer(b, "lp_norm")
    a = k.read(x)
    total, kept, outer = accumulate(k, a, (axis,), "+=", lambda e: power(e, p))
    size = k.local(outer, total.dtype)
    k.nest(outer, f"{size(kept)} = {root(total(kept), p)}")
    y = k.write(x.shape, x.dtype)
    every, _ = split_levels(x.rank, (axis,))
    text = f"select({size(kept)} == 0, 0, {a.load(every)} / {size(kept)})"
    k.nest([*outer, x.shape[axis]], f"{y(every)} = {y.store(text)}")
    return k.done()[0]


def lrn(b: Builder, x: Value, size: int, alpha: float, beta: float, bias: float) -> Value:
    """Elements divided by a power of the sum of squares of ``size`` neighbouring channels."""
    if x.rank < 2 or size < 1:
        raise Malformed(f"LRN of {x.text} over {size} channels")
    k = Writer(b, "lrn")
    a, names = k.read(x), levels(x.rank)
    total = k.local(x.shape, computed_in(x.dtype))
    before, tap = (size - 1) // 2, f"{{{x.rank}}}"
    place = [*names]
    place[1] = f"{names[1]}+{tap}-{before}"
    guards = [f"{names[1]}+{tap} >= {before}", f"{names[1]}+{tap} < {x.shape[1] + before}"]
    square = f"{a.load(place)} * {a.load(place)}"
    k.nest(x.shape, f"{total(names)} = 0", ([size], f"{total(names)} += {square} if {' and '.join(guards)}"))
    y = k.write(x.shape, x.dtype)
    base = f"({number(bias, 'f32')} + {number(alpha / size, 'f64')} * {total(names)})"
    if beta == 0.75:
        scale = f"(sqrt({base}) * sqrt(sqrt({base})))"
    elif beta in (0.5, 1.0):
        scale = base if beta == 1.0 else f"sqrt({base})"
    else:
        scale = f"exp({number(beta, 'f32')} * log({base}))"
    k.nest(x.shape, f"{y(names)} = {y.store(f'{a.load(names)} / {scale}')}")
    return k.done()[0]


def softmax(b: Builder, x: Value, axis: int, logarithm: bool, masked: bool = False) -> Value:
    """exp(x - m) / sum(exp(x - m)) along an axis for its largest element m, or the logarithm of that.

    ``masked``: where all elements are -inf, the results are 0 in place of NaN.
    """
    if x.rank == 0:
        raise Malformed("softmax of a scalar")
    axis = axis_of(axis, x.rank)
    k = Writer(b, "log_softmax" if logarithm else "softmax")
    a = k.read(x)
    every, kept = split_levels(x.rank, (axis,))
    order = [*(n for n in range(x.rank) if n != axis), axis]
    loops = [x.shape[n] for n in order]
    top, _, outer = accumulate(k, a, (axis,), "max=", lambda e: e)
    moved = k.local(x.shape, top.dtype)
    if masked:
        finite = k.local(outer, top.dtype)
        k.nest(outer, f"{finite(kept)} = select({top(kept)} == -inf, 0, {top(kept)})")
        top = finite
    if logarithm:
        k.nest(loops, f"{moved(every)} = {a.load(every)} - {top(kept)}")
    else:
        k.nest(loops, f"{moved(every)} = exp({a.load(every)} - {top(kept)})")
    total = k.local(outer, top.dtype)
    term = f"exp({moved(every)})" if logarithm else moved(every)
    k.nest(outer, f"{total(kept)} = 0", ([x.shape[axis]], f"{total(kept)} += {term}"))
    if masked:  # a sum has the term exp(0), unless all elements are -inf
        some = k.local(outer, top.dtype)
        k.nest(outer, f"{some(kept)} = select({total(kept)} == 0, 1, {total(kept)})")
        total = some
    y = k.write(x.shape, x.dtype)
    text = f"{moved(every)} - log({total(kept)})" if logarithm else f"{moved(every)} / {total(kept)}"
    k.nest(loops, f"{y(every)} = {y.store(text)}")
    return k.done()[0]
