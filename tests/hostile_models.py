"""Changes of ONNX models that a careless or hostile author could make: of single bytes, and of fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

#: Numbers at which sizes, places and counts go wrong.
EXTREMES = (
    0, -1, 1, 2, 3, 7, -7, 64, 1000, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32, 2**40, 2**48, 2**62, 2**63 - 1,
    -(2**63),
)  # fmt: skip
NAMES = ("", "x", "y", "\x1b[31mred", "..", "/etc/passwd", "a" * 2000, "\u202egnp", "v0", "x[0]")
REALS = (0.0, -1.0, float("nan"), float("inf"), 1e38, 1e-45)


def changed(model: Any, seed: int) -> bytes:
    """The model with one or two changes."""
    draw = np.random.default_rng(seed)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for _ in range(int(draw.integers(1, 3))):
        CHANGES[int(draw.integers(0, len(CHANGES)))](made, draw)
    content = bytearray(made.SerializeToString())
    if draw.random() < 0.2:
        for place in draw.integers(0, len(content), 2):
            content[place] = draw.integers(0, 256)
    return bytes(content[: draw.integers(1, len(content))] if draw.random() < 0.05 else content)


def _one(draw: Any, values: Any) -> Any:
    return values[int(draw.integers(0, len(values)))] if len(values) else None


def _attribute(made: Any, draw: Any) -> None:
    """Another value of an attribute."""
    node = _one(draw, made.graph.node)
    attribute = None if node is None else _one(draw, node.attribute)
    if attribute is None:
        return
    if attribute.ints:
        attribute.ints[int(draw.integers(0, len(attribute.ints)))] = _one(draw, EXTREMES)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = _one(draw, EXTREMES)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = _one(draw, REALS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = _one(draw, NAMES).encode()
    else:
        attribute.type = int(draw.integers(0, 15))


def _removed(made: Any, draw: Any) -> None:
    """An attribute, an input, an output or a node less."""
    node = _one(draw, made.graph.node)
    if node is None:
        return
    fields = [f for f in (node.attribute, node.input, node.output, made.graph.node) if len(f)]
    field = _one(draw, fields)
    if field is not None:
        del field[int(draw.integers(0, len(field)))]


def _wired(made: Any, draw: Any) -> None:
    """An input that is another value, or none."""
    node = _one(draw, made.graph.node)
    known = [v.name for v in made.graph.input] + [o for n in made.graph.node for o in n.output]
    if node is not None and len(node.input):
        node.input[int(draw.integers(0, len(node.input)))] = _one(draw, [*known, *NAMES])


def _more(made: Any, draw: Any) -> None:
    """One input of a node many times."""
    node = _one(draw, made.graph.node)
    if node is not None and len(node.input):
        node.input.extend([node.input[0]] * int(_one(draw, (1, 3, 100, 3000))))


def _named(made: Any, draw: Any) -> None:
    node = _one(draw, made.graph.node)
    if node is not None:
        node.name = _one(draw, NAMES)
        if len(node.output):
            node.output[int(draw.integers(0, len(node.output)))] = _one(draw, NAMES)


def _operator(made: Any, draw: Any) -> None:
    """Another operator for the same operands."""
    node = _one(draw, made.graph.node)
    if node is not None:
        node.op_type = _one(draw, sorted({s.name for s in onnx.defs.get_all_schemas()}))


def _shape(made: Any, draw: Any) -> None:
    """Another size, one dimension more, or another element type of an input."""
    value = _one(draw, made.graph.input)
    if value is None or not value.type.HasField("tensor_type"):
        return
    tensor = value.type.tensor_type
    kind = int(draw.integers(0, 3))
    if kind == 0 and len(tensor.shape.dim):
        _one(draw, tensor.shape.dim).dim_value = _one(draw, EXTREMES)
    elif kind == 1:
        tensor.shape.dim.add().dim_value = _one(draw, EXTREMES)
    else:
        tensor.elem_type = int(draw.integers(0, 28))


def _constant(made: Any, draw: Any) -> None:
    """An input as a constant of few extreme numbers, with sizes that are or are not its own."""
    value = _one(draw, made.graph.input)
    if value is None or not value.type.HasField("tensor_type"):
        return
    tensor = made.graph.initializer.add(name=value.name, data_type=value.type.tensor_type.elem_type)
    dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
    count = int(np.prod(dims)) if dims and 0 <= np.prod(np.float64(dims)) < 100 else 1
    tensor.dims.extend(dims if draw.random() < 0.8 else [_one(draw, EXTREMES)])
    if tensor.data_type == onnx.TensorProto.INT64:
        tensor.int64_data.extend(_one(draw, EXTREMES) for _ in range(count))
    elif tensor.data_type == onnx.TensorProto.FLOAT:
        tensor.float_data.extend(_one(draw, REALS) for _ in range(count))
    else:
        tensor.raw_data = bytes(draw.integers(0, 256, 4 * count).tolist())


def _opset(made: Any, draw: Any) -> None:
    if len(made.opset_import):
        made.opset_import[0].version = _one(draw, (*EXTREMES, 8, 11, 13, 18, 21))


CHANGES: tuple[Callable[[Any, Any], None], ...] = (
    _attribute, _attribute, _removed, _wired, _more, _named, _operator, _shape, _shape, _constant, _constant,
    _opset,
)  # fmt: skip
