"""Quantised arrays: to integers and back, and products of them in 32 bits."""

from __future__ import annotations

from perfdojo_sdk.core.dtypes import NARROW_DTYPES, integer_bounds
from perfdojo_sdk.core.formats import FORMATS
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.operators.elementwise import coded, mapped
from perfdojo_sdk.graph.operators.reductions import reduce
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of, broadcast
from perfdojo_sdk.graph.writer import Writer, computed_in, converted, is_float, levels

#: Dtypes of quantised values. A quotient is cut to a multiple of their range before it becomes an integer, so
#: that no sum with a zero point wraps.
QUANTISED = ("u8", "i8", "u16", "i16", *NARROW_DTYPES)
_BEYOND = 200000


def _parameters(value: Value, shape: Shape, axis: int, block: int) -> list[str]:
    """Subscripts of a scale or zero point for each element: one for all, by axis, or by block."""
    names = levels(len(shape))
    if value.elements == 1 and value.rank <= 1:
        return ["0"] * value.rank
    axis = axis_of(axis, len(shape))
    if value.rank == 1 and value.shape == (shape[axis],):
        return [names[axis]]
    blocks = tuple(-(-size // block) if k == axis and block else size for k, size in enumerate(shape))
    if block < 1 or value.shape != blocks:
        raise Malformed(f"a scale or zero point of {value.text} for an array of shape {list(shape)}")
    names[axis] = f"{names[axis]}//{block}"
    return names


def _alike(zero: Value, scale: Value) -> bool:
    """True for a zero point of the scale's shape, or a single one beside a single scale."""
    single = zero.elements == scale.elements == 1 and max(zero.rank, scale.rank) < 2
    return single or zero.shape == scale.shape


def quantise(
    b: Builder,
    x: Value,
    scale: Value,
    zero: Value | None,
    axis: int,
    block: int,
    dtype: str,
    precision: str = "",
    saturate: bool = True,
) -> Value:
    """round(x / scale) + zero, cut to the range of ``dtype``; the quotient is rounded to ``precision``, by
    default the dtype of the scale. For a format of stored floats, it is rounded to a number of that, and cut
    where it is to ``saturate``."""
    if dtype not in (*QUANTISED, *FORMATS):
        raise Refused(Reason.DTYPE, f"quantisation to {dtype}")
    if zero is not None and (not _alike(zero, scale) or zero.dtype != dtype):
        raise Malformed(f"a zero point of {zero.text} beside a scale of {scale.text}")
    k = Writer(b, "quantise")
    names = levels(x.rank)
    places = _parameters(scale, x.shape, axis, block)
    a, s = k.read(x).load(names), k.read(scale).load(places)
    precision = precision or scale.dtype
    kind = computed_in(precision)
    quotient = f"{converted(a, computed_in(x.dtype), kind)} / {converted(s, computed_in(scale.dtype), kind)}"
    if precision != kind:  # a short float rounds the quotient
        quotient = f"{kind}({precision}({quotient}))"
    y = k.write(x.shape, dtype)
    at = _parameters(zero, x.shape, axis, block) if zero is not None else []
    if dtype in FORMATS:
        if zero is not None:
            quotient = f"{quotient} + {converted(k.read(zero)(at), zero.dtype, kind)}"
        k.nest(x.shape, f"{y(names)} = {coded(quotient, kind, dtype, saturate)}")
    else:
        number = f"i32(max(min(round({quotient}), {_BEYOND}), -{_BEYOND}))"
        k.nest(x.shape, f"{y(names)} = {_cut(number, k, zero, at, dtype)}")
    return k.done()[0]


def quantise_by_range(b: Builder, x: Value) -> list[Value]:
    """Floats as u8, with the scale and the zero point that their own range gives, 0 included. Of zeros
    alone, or of numbers whose range divided by 255 is no number above 0, the scale is 1/255."""
    axes = range(x.rank)
    top = reduce(b, "reduce_max", x, axes, False, "max=")
    bottom = reduce(b, "reduce_min", x, axes, False, "min=")

    def share(most: str, least: str) -> str:
        range_ = f"(max({most}, 0) - min({least}, 0)) / 255"
        return f"select({range_} == 0, 1 / 255, {range_})"

    def point(least: str, scale: str) -> str:
        return f"u8(max(min(round(0 - min({least}, 0) / {scale}), 255), 0))"

    scale = mapped(b, "range_scale", x.dtype, share, top, bottom)
    zero = mapped(b, "range_zero", "u8", point, bottom, scale, raw=True)
    return [quantise(b, x, scale, zero, 0, 0, "u8"), scale, zero]


def _cut(number: str, k: Writer, zero: Value | None, places: list[str], dtype: str) -> str:
    """An i32 with the zero point added, as the nearest value of ``dtype``."""
    low, high = integer_bounds(dtype)
    if zero is not None:
        number = f"{number} + i32({k.read(zero)(places)})"
    return f"{dtype}(max(min({number}, {high}), {low}))"


def dequantise(
    b: Builder, x: Value, scale: Value, zero: Value | None, axis: int, block: int, dtype: str
) -> Value:
    """(x - zero) * scale."""
    if not is_float(dtype):
        raise Malformed(f"dequantisation to {dtype}")
    if zero is not None and (not _alike(zero, scale) or zero.dtype != x.dtype):
        raise Malformed(f"a zero point of {zero.text} for {x.text} with a scale of {scale.text}")
    k = Writer(b, "dequantise")
    names = levels(x.rank)
    places = _parameters(scale, x.shape, axis, block)
    kind = computed_in(dtype)
    exact = kind if x.dtype in FORMATS else "i32"
    number = converted(k.read(x)(names), x.dtype, exact)
    if zero is not None:
        at = _parameters(zero, x.shape, axis, block)
        number = f"({number} - {converted(k.read(zero)(at), zero.dtype, exact)})"
    number = converted(number, exact, kind)
    factor = converted(k.read(scale).load(places), computed_in(scale.dtype), kind)
    y = k.write(x.shape, dtype)
    k.nest(x.shape, f"{y(names)} = {y.store(f'{number} * {factor}')}")
    return k.done()[0]


def widened(b: Builder, x: Value, zero: Value | None, axis: int, dtype: str = "i32") -> Value:
    """x - zero as a longer integer, with one zero point or one for each place along an axis."""
    if x.dtype not in ("u8", "i8"):
        raise Malformed(f"a quantised operand of {x.dtype}")
    k = Writer(b, "widen")
    names = levels(x.rank)
    text = f"{dtype}({k.read(x)(names)})"
    if zero is not None:
        if zero.dtype != x.dtype:
            raise Malformed(f"a zero point of {zero.dtype} for {x.dtype}")
        text += f" - {dtype}({_along(k, zero, x.shape, axis)})"
    y = k.write(x.shape, dtype)
    k.nest(x.shape, f"{y(names)} = {text}")
    return k.done()[0]


def _along(k: Writer, value: Value, shape: Shape, axis: int) -> str:
    """The element of a value that holds for an element of an array: one for all, one for each place along an
    axis, or broadcast."""
    names = levels(len(shape))
    if value.elements == 1:
        return k.read(value)(["0"] * value.rank)
    if value.rank == 1:
        axis = axis_of(axis, len(shape))
        if value.shape != (shape[axis],):
            raise Malformed(f"{value.text} along axis {axis} of {list(shape)}")
        return k.read(value)([names[axis]])
    if broadcast(value.shape, shape) != shape:
        raise Malformed(f"{value.text} for an array of shape {list(shape)}")
    shift = len(shape) - value.rank
    return k.read(value)([0 if s == 1 else names[n + shift] for n, s in enumerate(value.shape)])


def requantise(
    b: Builder,
    total: Value,
    scales: tuple[tuple[Value, int], tuple[Value, int], tuple[Value, int]],
    zero: Value,
    axis: int,
) -> Value:
    """round(total * (one * other / result)) + zero, cut to the zero point's range. ``scales``: of
    two operands and of the result, each with the axis of ``total`` that it goes along."""
    if zero.dtype not in QUANTISED:
        raise Refused(Reason.DTYPE, f"a quantised result of {zero.dtype}")
    k = Writer(b, "requantise")
    names = levels(total.rank)
    one, other, result = (
        converted(_along(k, scale, total.shape, along), scale.dtype, "f32") for scale, along in scales
    )
    product = f"f32({k.read(total)(names)}) * ({one} * {other} / {result})"
    number = f"i32(max(min(round({product}), {_BEYOND}), -{_BEYOND}))"
    low, high = integer_bounds(zero.dtype)
    y = k.write(total.shape, zero.dtype)
    added = f"{number} + i32({_along(k, zero, total.shape, axis)})"
    k.nest(total.shape, f"{y(names)} = {zero.dtype}(max(min({added}, {high}), {low}))")
    return k.done()[0]
