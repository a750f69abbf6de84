"""Quantised operators."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.operators.windows import kernel_fits
from perfdojo_sdk.frontends.onnx.reading import dtype_name
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import quantisation as q
from perfdojo_sdk.graph.operators.contractions import matmul
from perfdojo_sdk.graph.operators.convolutions import conv

FACTOR, TOTAL = "i16", "i32"
"""Dtypes of the factors of a product, which hold a byte less its zero point, and of its sums. Instructions
add up pairs of such products."""


def _quantise(n: Operation) -> Value:
    given = n.whole("output_dtype", 0)
    zero = n.maybe(2)
    dtype = zero.dtype if zero is not None else dtype_name(given) if given else "u8"
    precision = dtype_name(n.whole("precision")) if n.whole("precision", 0) else ""
    axis, block, saturate = n.whole("axis", 1), n.whole("block_size", 0), bool(n.whole("saturate", 1))
    return q.quantise(n.b, n[0], n[1], zero, axis, block, dtype, precision, saturate)


def _dequantise(n: Operation) -> Value:
    given = n.whole("output_dtype", 0)
    dtype = dtype_name(given) if given else n[1].dtype
    return q.dequantise(n.b, n[0], n[1], n.maybe(2), n.whole("axis", 1), n.whole("block_size", 0), dtype)


def _matmul_integer(n: Operation) -> Value:
    x, y = n[0], n[1]
    left = q.widened(n.b, x, n.maybe(2), max(x.rank - 2, 0), FACTOR)
    return matmul(n.b, left, q.widened(n.b, y, n.maybe(3), y.rank - 1, FACTOR), TOTAL)


def _convolved(n: Operation, x: Value, w: Value, bias: Value | None) -> Value:
    return conv(
        n.b, x, w, bias, n.ints("strides"), n.ints("dilations"), n.ints("pads"), n.text("auto_pad"),
        n.whole("group"),
    )  # fmt: skip


def _conv_integer(n: Operation) -> Value:
    kernel_fits(n, 1)
    x, w = q.widened(n.b, n[0], n.maybe(2), 0), q.widened(n.b, n[1], n.maybe(3), 0)
    return _convolved(n, x, w, None)


def _qlinear_matmul(n: Operation) -> Value:
    a, b = n[0], n[3]
    left = q.widened(n.b, a, n[2], max(a.rank - 2, 0), FACTOR)
    total = matmul(n.b, left, q.widened(n.b, b, n[5], b.rank - 1, FACTOR), TOTAL)
    row, column = max(total.rank - 2, 0), max(total.rank - 1, 0)
    return q.requantise(n.b, total, ((n[1], row), (n[4], column), (n[6], row)), n[7], row)


def _qlinear_conv(n: Operation) -> Value:
    kernel_fits(n, 3)
    x, w = q.widened(n.b, n[0], n[2], 0), q.widened(n.b, n[3], n[5], 0)
    total = _convolved(n, x, w, n.maybe(8))
    return q.requantise(n.b, total, ((n[1], 0), (n[4], 1), (n[6], 0)), n[7], 0)


RULES: Mapping[str, Rule] = {
    "DynamicQuantizeLinear": lambda n: q.quantise_by_range(n.b, n[0]),
    "QuantizeLinear": _quantise,
    "DequantizeLinear": _dequantise,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "QLinearMatMul": _qlinear_matmul,
    "QLinearConv": _qlinear_conv,
}
