"""Reductions over axes, the places of extrema, and running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import axes_of, axis_of, reduced
from perfdojo_sdk.graph.writer import Place, Writer, computed_in, is_float, levels, number

#: Accumulation -> its operation.
_OPERATIONS = {"+=": "add", "*=": "mul", "max=": "max", "min=": "min"}


def start(sign: str, dtype: str) -> str:
    """The literal with which an accumulation starts."""
    return number(identity(_OPERATIONS[sign], dtype), dtype)


def split_levels(rank: int, axes: Sequence[int]) -> tuple[list[str], list[str]]:
    """Iterators when the axes of a reduction are the inner loops: of all dimensions, and of those kept."""
    outer = [k for k in range(rank) if k not in axes]
    name = {axis: f"{{{k}}}" for k, axis in enumerate([*outer, *axes])}
    return [name[k] for k in range(rank)], [name[k] for k in outer]


def accumulate(
    k: Writer, x: Place, axes: Sequence[int], sign: str, term: Callable[[str], str]
) -> tuple[Place, list[str], tuple[int, ...]]:
    """A temporary of the accumulation of ``term`` over axes; its subscripts and shape."""
    every, kept = split_levels(len(x.shape), axes)
    outer = reduced(x.shape, axes, False)
    total = k.local(outer, computed_in(x.dtype))
    k.nest(
        outer,
        f"{total(kept)} = {start(sign, total.dtype)}",
        ([x.shape[a] for a in axes], f"{total(kept)} {sign} {term(x.load(every))}"),
    )
    return total, kept, outer


def _itself(element: str) -> str:
    return element


def _total(total: str, count: int) -> str:
    return total


def reduce(
    b: Builder,
    name: str,
    x: Value,
    axes: Sequence[int],
    keepdims: bool,
    sign: str,
    term: Callable[[str], str] = _itself,
    final: Callable[[str, int], str] = _total,
) -> Value:
    """An accumulation over axes, of ``term`` of each element; ``final`` of the total and number of terms.

    An extremum or product of one element is this element: a view.
    """
    axes = axes_of(axes, x.rank)
    shape = reduced(x.shape, axes, keepdims)
    count = prod(x.shape[a] for a in axes)
    if count == 1 and axes and sign != "+=" and term is _itself and final is _total:
        return b.view(x, shape)
    if x.dtype == "bool":
        return _reduce_truth(b, name, x, axes, keepdims, sign)
    k = Writer(b, name)
    a = k.read(x)
    every, kept = split_levels(x.rank, axes)
    outer = reduced(x.shape, axes, False)
    inner = [x.shape[axis] for axis in axes]
    plain = final("", count) == "" and computed_in(x.dtype) == x.dtype
    if plain:
        y = k.write(outer, x.dtype)
        k.nest(
            outer,
            f"{y(kept)} = {start(sign, x.dtype)}",
            (inner, f"{y(kept)} {sign} {term(a.load(every))}"),
        )
    else:
        total, _, _ = accumulate(k, a, axes, sign, term)
        y = k.write(outer, x.dtype)
        k.nest(outer, f"{y(kept)} = {y.store(final(total(kept), count))}")
    return b.view(k.done()[0], shape)


def _reduce_truth(b: Builder, name: str, x: Value, axes: Sequence[int], keepdims: bool, sign: str) -> Value:
    """The largest or smallest truth value."""
    if sign not in ("max=", "min="):
        raise Refused(Reason.DTYPE, f"{name} of bool")
    k = Writer(b, name)
    a = k.read(x)
    every, kept = split_levels(x.rank, axes)
    outer = reduced(x.shape, axes, False)
    y = k.write(outer, "bool")
    k.nest(
        outer,
        f"{y(kept)} = {0 if sign == 'max=' else 1}",
        ([x.shape[axis] for axis in axes], f"{y(kept)} {sign} {a(every)}"),
    )
    return b.view(k.done()[0], reduced(x.shape, axes, keepdims))


def reduce_sum(b: Builder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return reduce(b, "reduce_sum", x, axes, keepdims, "+=")


def reduce_mean(b: Builder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """The mean; of nothing, NaN. Of integers, truncated towards zero."""
    count = prod(x.shape[a] for a in axes_of(axes, x.rank))
    if not count and not is_float(x.dtype):
        raise Malformed(f"the mean of no {x.dtype}")
    return reduce(b, "reduce_mean", x, axes, keepdims, "+=", final=lambda t, n: f"{t} / {n}")


def reduce_log_sum_exp(b: Builder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """log(sum(exp(x - m))) + m for the largest element m, or for 0 if that is infinite."""
    axes = axes_of(axes, x.rank)
    if not is_float(x.dtype):
        raise Refused(Reason.DTYPE, f"logarithms of {x.dtype}")
    k = Writer(b, "reduce_log_sum_exp")
    a = k.read(x)
    top, kept, outer = accumulate(k, a, axes, "max=", lambda e: e)
    shift = k.local(outer, top.dtype)
    k.nest(outer, f"{shift(kept)} = select(abs({top(kept)}) == inf, 0, {top(kept)})")
    total, _, _ = accumulate(k, a, axes, "+=", lambda e: f"exp({e} - {shift(kept)})")
    y = k.write(outer, x.dtype)
    k.nest(outer, f"{y(kept)} = {y.store(f'log({total(kept)}) + {shift(kept)}')}")
    return b.view(k.done()[0], reduced(x.shape, axes, keepdims))


def arg_extremum(
    b: Builder, x: Value, axis: int, keepdims: bool, largest: bool, last: bool, dtype: str = "i64"
) -> Value:
    """The place of the largest or smallest element along an axis, the first or last of several; NaN wins."""
    axis = axis_of(axis, x.rank)
    if x.rank == 0:
        return b.filled((), 0, dtype)
    if not x.shape[axis] and 0 not in reduced(x.shape, (axis,), False):
        raise Malformed("the place of an extremum among no elements")
    k = Writer(b, "argmax" if largest else "argmin")
    a = k.read(x)
    best, kept, outer = accumulate(k, a, (axis,), "max=" if largest else "min=", lambda e: e)
    every, _ = split_levels(x.rank, (axis,))
    y = k.write(outer, dtype)
    first, sign = ("-1", "max=") if last else (str(max(x.shape[axis] - 1, 0)), "min=")
    found = f"{a.load(every)} == {best(kept)}"
    if is_float(x.dtype):
        found = f"or({found}, {a.load(every)} != {a.load(every)})"
    place = f"select({found}, {every[axis]}, {first})"
    k.nest(outer, f"{y(kept)} = {first}", ([x.shape[axis]], f"{y(kept)} {sign} {place}"))
    return b.view(k.done()[0], reduced(x.shape, (axis,), keepdims))


def running(b: Builder, x: Value, axis: int, exclusive: bool, reverse: bool, sign: str = "+=") -> Value:
    """The running sum (or product) along an axis, from the left or right, with or without each element."""
    axis = axis_of(axis, x.rank)
    size = x.shape[axis] if x.rank else 1
    if x.rank == 0:
        x = b.view(x, (1,))
        return b.view(running(b, x, 0, exclusive, reverse, sign), ())
    k = Writer(b, "running_sum" if sign == "+=" else "running_product")
    a = k.read(x)
    kind = computed_in(x.dtype)
    y = k.write(x.shape, x.dtype)
    every, kept = split_levels(x.rank, (axis,))
    outer = reduced(x.shape, (axis,), False)
    total = k.local(outer, kind)
    along = every[axis]
    place = [f"{size - 1}-{along}" if reverse and n == axis else each for n, each in enumerate(every)]
    add = f"{total(kept)} {sign} {a.load(place)}"
    keep = f"{y(place)} = {y.store(total(kept))}"
    k.nest(outer, f"{total(kept)} = {start(sign, kind)}")
    k.nest([*outer, size], *([keep, add] if exclusive else [add, keep]))
    return k.done()[0]


def running_log_sum_exp(b: Builder, x: Value, axis: int) -> Value:
    """log(sum(exp(x))) of each element and those before it along an axis. The sum is that of exp(x - m) for
    the largest element m so far, or 0 if that is infinite."""
    if not is_float(x.dtype):
        raise Refused(Reason.DTYPE, f"logarithms of {x.dtype}")
    if not x.rank:
        return b.view(running_log_sum_exp(b, b.view(x, (1,)), 0), ())
    axis = axis_of(axis, x.rank)
    k = Writer(b, "running_log_sum_exp")
    a, y = k.read(x), k.write(x.shape, x.dtype)
    every, kept = split_levels(x.rank, (axis,))
    outer = reduced(x.shape, (axis,), False)
    top, shift, before, total = (k.local(outer, computed_in(x.dtype)) for _ in range(4))
    low = start("max=", top.dtype)
    k.nest(outer, f"{top(kept)} = {low}", f"{shift(kept)} = 0", f"{total(kept)} = 0")
    # A sum of nothing stays 0, whatever it is moved by: 0 * exp(inf) is NaN.
    moved = f"select({total(kept)} == 0, 0, {total(kept)} * exp({before(kept)} - {shift(kept)}))"
    k.nest(
        [*outer, x.shape[axis]],
        f"{top(kept)} max= {a.load(every)}",
        f"{before(kept)} = {shift(kept)}",
        f"{shift(kept)} = select(abs({top(kept)}) == inf, 0, {top(kept)})",
        f"{total(kept)} = {moved} + exp({a.load(every)} - {shift(kept)})",
        f"{y(every)} = {y.store(f'log({total(kept)}) + {shift(kept)}')}",
    )
    return k.done()[0]


def places_of_running_extrema(b: Builder, x: Value, extrema: Value, axis: int) -> Value:
    """The place of each running extremum along an axis: the last of equal ones, and of NaN the last."""
    if not x.rank:
        return b.filled((), 0, "i64")
    axis = axis_of(axis, x.rank)
    k, names = Writer(b, "candidates"), levels(x.rank)
    a, e, y = k.read(x), k.read(extrema), k.write(x.shape, "i64")
    found = f"{a.load(names)} == {e.load(names)}"
    if is_float(x.dtype):
        found = f"or({found}, {a.load(names)} != {a.load(names)})"
    k.nest(x.shape, f"{y(names)} = select({found}, {names[axis]}, 0)")
    return running(b, k.done()[0], axis, False, False, "max=")


def mean_square_free(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """(x - mean) / sqrt(variance), over axes, with the standard's epsilon of 1e-9 beside the deviation."""
    axes = axes_of(axes, x.rank)
    k = Writer(b, "mean_variance")
    a = k.read(x)
    every, kept = split_levels(x.rank, axes)
    inner, count = [x.shape[n] for n in axes], prod(x.shape[n] for n in axes)
    total, _, outer = accumulate(k, a, axes, "+=", lambda e: e)
    mean = k.local(outer, total.dtype)
    k.nest(outer, f"{mean(kept)} = {total(kept)} / {count}")
    square = k.local(outer, total.dtype)
    centred = f"({a.load(every)} - {mean(kept)})"
    k.nest(outer, f"{square(kept)} = 0", (inner, f"{square(kept)} += {centred} * {centred}"))
    deviation = k.local(outer, total.dtype)
    k.nest(outer, f"{deviation(kept)} = sqrt({square(kept)} / {count}) + 1e-09")
    y = k.write(x.shape, x.dtype)
    k.nest([*outer, *inner], f"{y(every)} = {y.store(f'{centred} / {deviation(kept)}')}")
    return k.done()[0]


def variance(
    b: Builder, x: Value, axes: Sequence[int], keepdims: bool, correction: float, root: bool
) -> list[Value]:
    """The sum of squared distances from the mean divided by the count less ``correction`` (or by 0 where that
    is more), or its ``root``; and the mean."""
    axes = axes_of(axes, x.rank)
    k = Writer(b, "deviation" if root else "variance")
    a = k.read(x)
    every, kept = split_levels(x.rank, axes)
    inner, count = [x.shape[n] for n in axes], prod(x.shape[n] for n in axes)
    total, _, outer = accumulate(k, a, axes, "+=", lambda e: e)
    mean, square = k.local(outer, total.dtype), k.local(outer, total.dtype)
    k.nest(outer, f"{mean(kept)} = {total(kept)} / {count}")
    centred = f"({a.load(every)} - {mean(kept)})"
    k.nest(outer, f"{square(kept)} = 0", (inner, f"{square(kept)} += {centred} * {centred}"))
    y, middle = k.write(outer, x.dtype), k.write(outer, x.dtype)
    ratio = f"{square(kept)} / {number(max(count - correction, 0.0), 'f32')}"
    k.nest(outer, f"{y(kept)} = {y.store(f'sqrt({ratio})' if root else ratio)}")
    k.nest(outer, f"{middle(kept)} = {middle.store(mean(kept))}")
    shape = reduced(x.shape, axes, keepdims)
    return [b.view(v, shape) for v in k.done()]


def hardmax(b: Builder, x: Value, axis: int) -> Value:
    """1 at the first largest element along an axis, 0 elsewhere."""
    axis = axis_of(axis, x.rank)
    place = arg_extremum(b, x, axis, True, True, False)
    k = Writer(b, "hardmax")
    index, names = k.read(place), levels(x.rank)
    y = k.write(x.shape, x.dtype)
    found = f"{index.broadcast(x.shape, names)} == {names[axis]}"
    k.nest(x.shape, f"{y(names)} = {y.store(f'select({found}, 1, 0)')}")
    return k.done()[0]
