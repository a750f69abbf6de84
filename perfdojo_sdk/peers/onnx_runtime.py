"""ONNX Runtime: one-operator graphs, all graph optimisations, inputs and outputs bound beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from perfdojo_sdk.peers.operators import EPSILON, Array, Operator
from perfdojo_sdk.peers.systems import Bind, Call

_OPSET = 18
_IR_VERSION = 10


def start(threads: int, library: str) -> OnnxRuntime:
    return OnnxRuntime(threads)


class OnnxRuntime:
    version = ort.__version__

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        if operator.family == "batchnorm":
            return {
                "deviations squared": self._bind(operator, _batchnorm_by_deviations),
                "sum of squares": self._bind(operator, _batchnorm_by_squares),
            }
        return {"bound": self._bind(operator, _GRAPHS[operator.family])}

    def _bind(self, operator: Operator, build: Callable[[_Graph], None]) -> Bind:
        session: list[Any] = []  # made when first needed, shared by all sets of inputs

        def bind(inputs: list[Array], out: Callable[[], Array]) -> Call:
            if not session:
                session.append(self._session(operator, build))
            return _bound(session[0], inputs, out())

        return bind

    def _session(self, operator: Operator, build: Callable[[_Graph], None]) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        graph = _Graph(operator)
        build(graph)
        return ort.InferenceSession(graph.model(), options, providers=["CPUExecutionProvider"])


def _bound(session: Any, inputs: list[Array], out: Array) -> Call:
    binding = session.io_binding()
    for k, array in enumerate(inputs):
        binding.bind_input(f"i{k}", "cpu", 0, np.float32, array.shape, array.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, out.shape, out.ctypes.data)

    def call() -> Array:
        session.run_with_iobinding(binding)
        return out

    return call


class _Graph:
    """A graph under construction: inputs ``i0``, ``i1``, ..., output ``y``."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.inputs = [f"i{k}" for k in range(len(operator.inputs))]
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def node(self, kind: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """Append a node and return its output's name."""
        output = to or f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, value: Any, dtype: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def by_channel(self, name: str) -> str:
        return self.node("Reshape", name, self.constant([1, -1, 1, 1], np.int64))

    def model(self) -> bytes:
        value = helper.make_tensor_value_info
        inputs = [value(n, TensorProto.FLOAT, s) for n, s in zip(self.inputs, self.operator.inputs)]
        outputs = [value("y", TensorProto.FLOAT, self.operator.output)]
        graph = helper.make_graph(self._nodes, self.operator.name, inputs, outputs, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = _IR_VERSION
        return bytes(model.SerializeToString())


def _single(kind: str, **attributes: Any) -> Callable[[_Graph], None]:
    def build(graph: _Graph) -> None:
        graph.node(kind, *graph.inputs, to="y", **attributes)

    return build


def _reducemean(graph: _Graph) -> None:
    graph.node("ReduceMean", "i0", graph.constant([1], np.int64), to="y", keepdims=0)


def _relu_ffn(graph: _Graph) -> None:
    scaled = graph.node("Mul", "i0", graph.by_channel("i1"))
    graph.node("Relu", graph.node("Add", scaled, graph.by_channel("i2")), to="y")


def _swiglu(graph: _Graph) -> None:
    gate = graph.node("MatMul", "i0", "i1")
    silu = graph.node("Mul", gate, graph.node("Sigmoid", gate))
    graph.node("Mul", silu, graph.node("MatMul", "i0", "i2"), to="y")


def _batchnorm_by_deviations(graph: _Graph) -> None:
    """Batch normalisation with the statistics of the batch, which ONNX's operator computes in training
    only."""
    axes = graph.constant([0, 2, 3], np.int64)
    centred = graph.node("Sub", "i0", graph.node("ReduceMean", "i0", axes, keepdims=1))
    variance = graph.node("ReduceMean", graph.node("Mul", centred, centred), axes, keepdims=1)
    deviation = graph.node("Sqrt", graph.node("Add", variance, graph.constant(EPSILON, np.float32)))
    scale = graph.node("Div", graph.by_channel("i1"), deviation)
    graph.node("Add", graph.node("Mul", centred, scale), graph.by_channel("i2"), to="y")


def _batchnorm_by_squares(graph: _Graph) -> None:
    """The same with fewer passes over the images: the variance is the mean square less the squared mean."""
    axes = graph.constant([0, 2, 3], np.int64)
    mean = graph.node("ReduceMean", "i0", axes, keepdims=1)
    count = graph.operator.output[0] * graph.operator.output[2] * graph.operator.output[3]
    squares = graph.node("ReduceSumSquare", "i0", axes, keepdims=1)
    square = graph.node("Div", squares, graph.constant(count, np.float32))
    variance = graph.node("Sub", square, graph.node("Mul", mean, mean))
    deviation = graph.node("Sqrt", graph.node("Add", variance, graph.constant(EPSILON, np.float32)))
    scale = graph.node("Div", graph.by_channel("i1"), deviation)
    shift = graph.node("Sub", graph.by_channel("i2"), graph.node("Mul", mean, scale))
    graph.node("Add", graph.node("Mul", "i0", scale), shift, to="y")


_GRAPHS: dict[str, Callable[[_Graph], None]] = {
    "add": _single("Add"),
    "mul": _single("Mul"),
    "relu": _single("Relu"),
    "relu_ffn": _relu_ffn,
    "layernorm": _single("LayerNormalization", axis=-1, epsilon=EPSILON),
    "rmsnorm": _single("SimplifiedLayerNormalization", axis=-1, epsilon=EPSILON),
    "softmax": _single("Softmax", axis=-1),
    "reducemean": _reducemean,
    "matmul": _single("MatMul"),
    "bmm": _single("MatMul"),
    "swiglu": _swiglu,
    "conv2d": _single("Conv"),
}
