"""Layers of common models, as the ONNX front end writes them, each beside PyTorch.

    python benchmarks/layers.py [--threads 1] [--rounds 5] [--only conv] [--compile] [--json]

Each layer is one ONNX node, lowered to one kernel (with the copy that pads its image), planned by the
target's expert, compiled, and timed beside PyTorch's function; both take turns. A ratio is the median over
the rounds of peer / ours in the same round; the peer is the better of eager and, with ``--compile``,
``torch.compile``. Times are measured, warm. Nothing is verified here but that results agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cliff.programs import KernelCase
from benchmarks.cliff.race import beside_eager, contest


def _layer(
    operator: str,
    inputs: dict[str, tuple[int, ...]],
    function: Callable[..., Any],
    positive: str = "",
    **attributes: Any,
) -> KernelCase:
    """One kernel that does all of a node of ONNX, beside ``function``, which takes PyTorch's functional
    module and the inputs by name. ``positive``: letters of inputs without negative numbers."""
    from onnx import TensorProto, helper

    from perfdojo_sdk.graph.passes import with_groups_joined
    from perfdojo_sdk.onnx import lower

    node = helper.make_node(operator, list(inputs), ["y"], **attributes)
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "layer", given, [result])
    lowered = lower(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])).graph
    assert lowered, "every layer has a rule"
    (kernel,) = with_groups_joined(lowered, [range(len(lowered.nodes))]).nodes
    homes = [lowered.home(value) for value in kernel.inputs]
    name_of = dict(zip(kernel.program.inputs, homes, strict=True))
    shapes = {array: kernel.program.buffer_of[array].shape for array in name_of}

    def call(F: Any, **tensors: Any) -> Any:
        return function(F, **{name_of[a]: t.reshape(inputs[name_of[a]]) for a, t in tensors.items()})

    least = frozenset(array for array, name in name_of.items() if name in positive)
    return KernelCase(operator, shapes, positive=least, function=call, given=kernel.program)


def _conv(
    channels: int, size: int, out: int, taps: int, stride: int = 1, group: int = 1, dilation: int = 1
) -> KernelCase:
    pad = dilation * (taps - 1) // 2
    return _layer(
        "Conv",
        {"x": (1, channels, size, size), "w": (out, channels // group, taps, taps), "b": (out,)},
        lambda F, x, w, b: F.conv2d(x, w, b, stride, pad, dilation, group),
        strides=[stride] * 2, pads=[pad] * 4, group=group, dilations=[dilation] * 2,
    )  # fmt: skip


def _transposed(channels: int, size: int, out: int, taps: int, stride: int, pad: int) -> KernelCase:
    return _layer(
        "ConvTranspose",
        {"x": (1, channels, size, size), "w": (channels, out, taps, taps)},
        lambda F, x, w: F.conv_transpose2d(x, w, None, stride, pad),
        strides=[stride] * 2, pads=[pad] * 4,
    )  # fmt: skip


def _gemm(m: int, n: int, k: int, turned: bool) -> KernelCase:
    return _layer(
        "Gemm",
        {"a": (m, k), "b": (n, k) if turned else (k, n), "c": (n,)},
        (lambda F, a, b, c: F.linear(a, b, c)) if turned else (lambda F, a, b, c: F.linear(a, b.t(), c)),
        transB=int(turned),
    )


def _rows(
    operator: str, shape: tuple[int, ...], function: Callable[..., Any], **attributes: Any
) -> KernelCase:
    return _layer(operator, {"x": shape}, function, **attributes)


LAYERS: dict[str, Callable[[], KernelCase]] = {
    "resnet_stem": lambda: _conv(3, 224, 64, 7, 2),
    "resnet_3x3": lambda: _conv(64, 56, 64, 3),
    "resnet_1x1": lambda: _conv(256, 56, 64, 1),
    "resnet_1x1_s2": lambda: _conv(256, 56, 512, 1, 2),
    "resnet_7x7": lambda: _conv(512, 7, 512, 3),
    "mobile_depthwise": lambda: _conv(96, 56, 96, 3, 1, 96),
    "mobile_depthwise_s2": lambda: _conv(96, 112, 96, 3, 2, 96),
    "mobile_depthwise_5x5": lambda: _conv(120, 28, 120, 5, 1, 120),
    "resnext_grouped": lambda: _conv(128, 28, 128, 3, 1, 32),
    "dilated": lambda: _conv(64, 56, 64, 3, 1, 1, 2),
    "unet_up": lambda: _transposed(128, 32, 64, 2, 2, 0),
    "gan_up": lambda: _transposed(128, 16, 64, 4, 2, 1),
    "gemm_bert": lambda: _gemm(128, 768, 768, True),
    "gemm_skinny": lambda: _gemm(768, 8, 768, False),
    "gemm_flat": lambda: _gemm(8, 4096, 768, True),
    "gemv": lambda: _gemm(1, 4096, 4096, True),
    "gemv_turned": lambda: _gemm(1, 4096, 4096, False),
    "maxpool": lambda: _rows(
        "MaxPool", (1, 64, 112, 112), lambda F, x: F.max_pool2d(x, 3, 2, 1),
        kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
    ),
    "avgpool": lambda: _rows(
        "AveragePool", (1, 64, 56, 56), lambda F, x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        kernel_shape=[3, 3], pads=[1, 1, 1, 1],
    ),
    "global_pool": lambda: _rows("GlobalAveragePool", (8, 256, 14, 14), lambda F, x: F.adaptive_avg_pool2d(x, 1)),  # noqa: E501
    "softmax": lambda: _rows("Softmax", (512, 1000), lambda F, x: F.softmax(x, -1)),
    "log_softmax": lambda: _rows("LogSoftmax", (512, 1000), lambda F, x: F.log_softmax(x, -1)),
    "gelu": lambda: _rows("Gelu", (128, 3072), lambda F, x: F.gelu(x)),
    "hard_swish": lambda: _rows("HardSwish", (1, 96, 56, 56), lambda F, x: F.hardswish(x)),
    "layernorm": lambda: _layer(
        "LayerNormalization", {"x": (128, 768), "g": (768,), "b": (768,)},
        lambda F, x, g, b: F.layer_norm(x, (768,), g, b),
    ),
    "batchnorm": lambda: _layer(
        "BatchNormalization",
        {"x": (1, 64, 56, 56), "g": (64,), "b": (64,), "m": (64,), "v": (64,)},
        lambda F, x, g, b, m, v: F.batch_norm(x, m, v, g, b),
        positive="v",
    ),
    "instancenorm": lambda: _layer(
        "InstanceNormalization", {"x": (1, 64, 56, 56), "g": (64,), "b": (64,)},
        lambda F, x, g, b: F.instance_norm(x, weight=g, bias=b),
    ),
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(contest(__doc__, LAYERS, lambda race, name: race.row(LAYERS[name]()), beside_eager))
