"""Small ONNX models for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper


def model(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **more: Any) -> Any:
    """A model whose inputs are arrays' types or (element type, shape)."""
    given = [
        helper.make_tensor_value_info(
            name, *((helper.np_dtype_to_tensor_dtype(i.dtype), i.shape) if isinstance(i, np.ndarray) else i)
        )
        for name, i in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    opset = more.pop("opset", 20)
    graph = helper.make_graph(nodes, "g", given, results, **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


X = np.arange(12, dtype=np.float32).reshape(3, 4)
