"""OpenVINO: latency hint, float32, inputs and outputs in shared memory, and no copy of the results.

``InferRequest.infer()`` copies each output unless told not to, which costs more than most of these
operators; ``start_async`` and ``wait`` leave them where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from perfdojo_sdk.peers.operators import EPSILON, Array, Operator
from perfdojo_sdk.peers.systems import Bind, Call


def start(threads: int, library: str) -> OpenVino:
    return OpenVino(threads)


class OpenVino:
    version = ov.__version__.partition("-")[0]

    def __init__(self, threads: int) -> None:
        self._core = ov.Core()
        self._settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # the whole process is pinned
        }

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        graphs = _GRAPHS[operator.family]
        return {name: self._bind(operator, build) for name, build in graphs.items()}

    def _bind(self, operator: Operator, build: Callable[..., Any]) -> Bind:
        compiled: list[Any] = []

        def bind(inputs: list[Array], out: Callable[[], Array]) -> Call:
            if not compiled:
                parameters = [ops.parameter(list(shape), np.float32) for shape in operator.inputs]
                model = ov.Model([build(*parameters)], parameters, operator.name)
                compiled.append(self._core.compile_model(model, "CPU", self._settings))
            return _bound(compiled[0].create_infer_request(), inputs, out())

        return bind


def _bound(request: Any, inputs: list[Array], out: Array) -> Call:
    for k, array in enumerate(inputs):
        request.set_input_tensor(k, ov.Tensor(array, shared_memory=True))
    request.set_output_tensor(0, ov.Tensor(out, shared_memory=True))

    def call() -> Array:
        request.start_async()
        request.wait()
        return out

    return call


def _axes(*axes: int) -> Array:
    return np.asarray(axes, np.int64)


def _by_channel(values: Any) -> Any:
    return ops.reshape(values, _axes(1, -1, 1, 1), False)


def _batchnorm(x: Any, w: Any, b: Any) -> Any:
    centred = ops.subtract(x, ops.reduce_mean(x, _axes(0, 2, 3), True))
    variance = ops.reduce_mean(ops.multiply(centred, centred), _axes(0, 2, 3), True)
    scale = ops.divide(_by_channel(w), ops.sqrt(ops.add(variance, np.float32(EPSILON))))
    return ops.add(ops.multiply(centred, scale), _by_channel(b))


def _batchnorm_by_squares(x: Any, w: Any, b: Any) -> Any:
    mean = ops.reduce_mean(x, _axes(0, 2, 3), True)
    square = ops.reduce_mean(ops.multiply(x, x), _axes(0, 2, 3), True)
    variance = ops.subtract(square, ops.multiply(mean, mean))
    scale = ops.divide(_by_channel(w), ops.sqrt(ops.add(variance, np.float32(EPSILON))))
    return ops.add(ops.multiply(x, scale), ops.subtract(_by_channel(b), ops.multiply(mean, scale)))


def _mvn(x: Any, *axes: int) -> Any:
    return ops.mvn(x, _axes(*axes), True, EPSILON, "INSIDE_SQRT")


def _rmsnorm(x: Any, w: Any) -> Any:
    square = ops.reduce_mean(ops.power(x, np.float32(2)), _axes(-1), True)
    root = ops.sqrt(ops.add(square, np.float32(EPSILON)))
    return ops.multiply(ops.multiply(x, ops.divide(np.float32(1), root)), w)


def _matmul(a: Any, b: Any) -> Any:
    return ops.matmul(a, b, False, False)


_GRAPHS: dict[str, dict[str, Callable[..., Any]]] = {
    "add": {"shared": ops.add},
    "mul": {"shared": ops.multiply},
    "relu": {"shared": ops.relu},
    "relu_ffn": {
        "shared": lambda x, s, b: ops.relu(ops.add(ops.multiply(x, _by_channel(s)), _by_channel(b)))
    },
    "batchnorm": {
        "deviations squared": _batchnorm,
        "sum of squares": _batchnorm_by_squares,
        "MVN": lambda x, w, b: ops.add(ops.multiply(_mvn(x, 0, 2, 3), _by_channel(w)), _by_channel(b)),
    },
    "layernorm": {"MVN": lambda x, w, b: ops.add(ops.multiply(_mvn(x, -1), w), b)},
    "rmsnorm": {"RMS": _rmsnorm},
    "softmax": {"shared": lambda x: ops.softmax(x, 1)},
    "reducemean": {"shared": lambda x: ops.reduce_mean(x, _axes(1), False)},
    "matmul": {"shared": _matmul},
    "bmm": {"shared": _matmul},
    "swiglu": {"shared": lambda x, a, b: ops.multiply(ops.swish(_matmul(x, a)), _matmul(x, b))},
    "conv2d": {"shared": lambda x, w: ops.convolution(x, w, [1, 1], [0, 0], [0, 0], [1, 1])},
}
