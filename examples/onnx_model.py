"""A file of ONNX, written, built and called."""

import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import perfdojo_sdk

w = np.random.default_rng(0).standard_normal((32, 16), dtype=np.float32)
b = np.zeros(16, np.float32)
graph = helper.make_graph(
    [helper.make_node("Gemm", ["x", "w", "b"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
    "layer",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 32])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
    [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "layer.onnx")

dojo = [sys.executable, "-m", "perfdojo_sdk.cli"]  # or the command perfdojo-sdk
subprocess.run([*dojo, "optimize", "layer.onnx", "-o", "build/layer"], check=True)

model = perfdojo_sdk.load_model("build/layer")
x = np.ones((4, 32), np.float32)
print("largest difference from NumPy:", np.abs(model(x) - np.maximum(x @ w + b, 0)).max())
