"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import convolutions, pooling, windows
from perfdojo_sdk.graph.refusals import Malformed


def kernel_fits(n: Operation, filters: int = 1) -> None:
    """Refuse an attribute that is not the shape of the filters, operand number ``filters``."""
    if n.has("kernel_shape") and tuple(n.ints("kernel_shape")) != n[filters].shape[2:]:
        raise Malformed(f"kernel_shape is {n.ints('kernel_shape')}, the filters are {n[filters].text}")


def _conv(n: Operation) -> Value:
    kernel_fits(n)
    return convolutions.conv(
        n.b, n[0], n[1], n.maybe(2), n.ints("strides"), n.ints("dilations"), n.ints("pads"),
        n.text("auto_pad"), n.whole("group"),
    )  # fmt: skip


def _conv_transpose(n: Operation) -> Value:
    kernel_fits(n)
    return convolutions.conv_transpose(
        n.b, n[0], n[1], n.maybe(2), n.ints("strides"), n.ints("dilations"), n.ints("pads"),
        n.text("auto_pad"), n.whole("group"), n.ints("output_padding"), n.ints("output_shape"),
    )  # fmt: skip


def _col2im(n: Operation) -> Value:
    image, block = n.b.known_integers(n[1]), n.b.known_integers(n[2])
    return convolutions.col2im(
        n.b, n[0], image, block, n.ints("strides"), n.ints("dilations"), n.ints("pads")
    )


def _axes(n: Operation) -> tuple[windows.Axis, ...]:
    return windows.axes(
        n[0].shape[2:], n.ints("kernel_shape"), n.ints("strides"), n.ints("dilations"), n.ints("pads"),
        n.text("auto_pad"), bool(n.whole("ceil_mode", 0)),
    )  # fmt: skip


def _max_pool(n: Operation) -> Sequence[Value]:
    return pooling.max_pool(n.b, n[0], _axes(n), n.wants(1), bool(n.whole("storage_order", 0)))


RULES: Mapping[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Col2Im": _col2im,
    "MaxPool": _max_pool,
    "AveragePool": lambda n: pooling.average_pool(n.b, n[0], _axes(n), bool(n.whole("count_include_pad"))),
    "LpPool": lambda n: pooling.lp_pool(n.b, n[0], _axes(n), n.whole("p")),
    "GlobalMaxPool": lambda n: pooling.max_pool(n.b, n[0], pooling.global_axes(n[0]), False, False),
    "GlobalAveragePool": lambda n: pooling.average_pool(n.b, n[0], pooling.global_axes(n[0]), False),
    "GlobalLpPool": lambda n: pooling.lp_pool(n.b, n[0], pooling.global_axes(n[0]), n.whole("p")),
}
