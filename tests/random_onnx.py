"""Random nodes of the ONNX standard with random shapes and attributes, for comparison with its reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Draw = np.random.Generator
Case = tuple[Any, dict[str, np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]]]
"""A node, its inputs by name, and those of them that are constants of the model."""


def array(d: Draw, *shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    if np.dtype(dtype).kind == "f":
        return d.standard_normal(shape).astype(dtype)
    low = 0 if np.dtype(dtype).kind in "ub" else -9
    return d.integers(low, 10 if np.dtype(dtype).kind != "b" else 2, shape).astype(dtype)


def shape(d: Draw, least: int = 1, most: int = 4) -> list[int]:
    return [int(n) for n in d.integers(1, 6, d.integers(least, most + 1))]


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def _window(d: Draw) -> tuple[int, list[int], list[int], dict[str, Any]]:
    rank = int(d.integers(1, 3))
    kernel = [int(n) for n in d.integers(1, 4, rank)]
    dilations = [int(n) for n in d.integers(1, 3, rank)]
    extent = [(k - 1) * s + 1 for k, s in zip(kernel, dilations)]
    size = [int(e + n) for e, n in zip(extent, d.integers(0, 5, rank))]
    strides = [int(n) for n in d.integers(1, 4, rank)]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations}
    kind = d.integers(0, 3)
    if kind == 0:
        attributes["auto_pad"] = str(d.choice(["VALID", "SAME_UPPER", "SAME_LOWER"]))
    elif kind == 1:
        attributes["pads"] = [int(d.integers(0, max(e // 2, 1))) for e in extent * 2]
    return rank, kernel, size, attributes


def conv(d: Draw) -> Case:
    rank, kernel, size, attributes = _window(d)
    group, channels, filters = int(d.integers(1, 3)), int(d.integers(1, 3)), int(d.integers(1, 3))
    inputs = {"x": array(d, 2, group * channels, *size), "w": array(d, group * filters, channels, *kernel)}
    if d.integers(2):
        inputs["b"] = array(d, group * filters)
    return node("Conv", list(inputs), group=group, **attributes), inputs, {}


def conv_transpose(d: Draw) -> Case:
    rank, kernel, size, attributes = _window(d)
    attributes.pop("auto_pad", None)
    group, channels, filters = int(d.integers(1, 3)), int(d.integers(1, 3)), int(d.integers(1, 3))
    inputs = {"x": array(d, 1, group * channels, *size), "w": array(d, group * channels, filters, *kernel)}
    if d.integers(2):
        attributes["output_padding"] = [int(d.integers(0, s)) for s in attributes["strides"]]
    return node("ConvTranspose", list(inputs), group=group, **attributes), inputs, {}


def pool(d: Draw) -> Case:
    rank, kernel, size, attributes = _window(d)
    op = str(d.choice(["MaxPool", "AveragePool"]))
    more = {"count_include_pad": int(d.integers(2))} if op == "AveragePool" else {}
    attributes.pop("auto_pad", None)
    return node(op, ["x"], kernel_shape=kernel, **attributes, **more), {"x": array(d, 1, 2, *size)}, {}


def reduction(d: Draw) -> Case:
    dims = shape(d)
    count = int(d.integers(0, len(dims) + 1))
    axes = [int(a) - (len(dims) if d.integers(2) else 0) for a in d.permutation(len(dims))[:count]]
    op = str(d.choice(["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"]))
    constants = {"axes": np.array(axes, np.int64)}
    flags = {name: int(d.integers(2)) for name in ("keepdims", "noop_with_empty_axes")}
    made = node(f"Reduce{op}", ["x", "axes"], **flags)
    return made, {"x": array(d, *dims)}, constants


def arg(d: Draw) -> Case:
    dims = shape(d)
    made = node(
        str(d.choice(["ArgMax", "ArgMin"])), ["x"], axis=int(d.integers(-len(dims), len(dims))),
        keepdims=int(d.integers(2)), select_last_index=int(d.integers(2)),
    )  # fmt: skip
    return made, {"x": array(d, *dims, dtype=np.int32)}, {}


def slices(d: Draw) -> Case:
    dims = shape(d)
    axes = [int(a) for a in d.permutation(len(dims))[: d.integers(1, len(dims) + 1)]]
    limits = [[int(n) for n in d.integers(-8, 9, len(axes))] for _ in range(2)]
    steps = [int(d.choice([-3, -2, -1, 1, 2, 3])) for _ in axes]
    constants = {n: np.array(v, np.int64) for n, v in zip("seat", (*limits, axes, steps), strict=True)}
    return node("Slice", ["x", *"seat"]), {"x": array(d, *dims)}, constants


def pads(d: Draw) -> Case:
    dims = [int(n) + 2 for n in d.integers(1, 4, d.integers(1, 4))]
    mode = str(d.choice(["constant", "edge", "reflect", "wrap"]))
    amounts = d.integers(-1 if mode == "constant" else 0, 3, 2 * len(dims))
    return node("Pad", ["x", "p"], mode=mode), {"x": array(d, *dims)}, {"p": amounts.astype(np.int64)}


def resize(d: Draw) -> Case:
    dims = [1, 1, *(int(n) for n in d.integers(2, 6, 2))]
    mode = str(d.choice(["nearest", "linear", "cubic"]))
    coordinates = str(d.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]))
    wanted = [1, 1, *(int(n) for n in d.integers(1, 9, 2))]
    made = node(
        "Resize", ["x", "", "", "sizes"], mode=mode, coordinate_transformation_mode=coordinates,
        nearest_mode=str(d.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])),
    )  # fmt: skip
    return made, {"x": array(d, *dims)}, {"sizes": np.array(wanted, np.int64)}


def elementwise(d: Draw) -> Case:
    dims = shape(d, 0)
    other = [1 if d.integers(3) == 0 else n for n in dims][int(d.integers(0, len(dims) + 1)) :]
    op = str(d.choice(["Add", "Sub", "Mul", "Max", "Min", "Less", "GreaterOrEqual", "Equal", "Mod", "PRelu"]))
    dtype = d.choice([np.float32, np.int32, np.int64, np.uint8]) if op not in ("PRelu", "Mod") else np.float32
    if op == "Mod":
        dtype = d.choice([np.int32, np.int8, np.uint8])
    one, two = array(d, *dims, dtype=dtype), array(d, *other, dtype=dtype)
    two = np.where(two == 0, np.array(3, dtype), two) if op == "Mod" else two
    return node(op, ["x", "z"]), {"x": one, "z": two}, {}


def matmul(d: Draw) -> Case:
    m, k, n = (int(v) for v in d.integers(1, 5, 3))
    batch = shape(d, 0, 2)
    left = [1 if d.integers(3) == 0 else b for b in batch]
    right = [1 if d.integers(3) == 0 else b for b in batch][int(d.integers(0, len(batch) + 1)) :]
    return node("MatMul", ["x", "z"]), {"x": array(d, *left, m, k), "z": array(d, *right, k, n)}, {}


def moved(d: Draw) -> Case:
    dims = shape(d)
    op = str(d.choice(["Transpose", "Tile", "Expand", "CumSum", "Trilu", "Gather", "Flatten"]))
    x = {"x": array(d, *dims)}
    axis = int(d.integers(-len(dims), len(dims)))
    if op == "Transpose":
        return node(op, ["x"], perm=[int(n) for n in d.permutation(len(dims))]), x, {}
    if op == "Tile":
        return node(op, ["x", "r"]), x, {"r": d.integers(1, 4, len(dims))}
    if op == "Expand":
        wanted = [int(d.integers(1, 4)) if n == 1 else n for n in dims]
        return node(op, ["x", "r"]), x, {"r": np.array([2, *wanted], np.int64)}
    if op == "CumSum":
        made = node(op, ["x", "a"], exclusive=int(d.integers(2)), reverse=int(d.integers(2)))
        return made, x, {"a": np.array(axis, np.int64)}
    if op == "Trilu":
        x = {"x": array(d, 2, *dims[:1], 3)}
        return node(op, ["x", "k"], upper=int(d.integers(2))), x, {"k": np.array(d.integers(-5, 6))}
    if op == "Gather":
        size = dims[axis]
        return node(op, ["x", "i"], axis=axis), x, {"i": d.integers(-size, size, (2, 3))}
    return node(op, ["x"], axis=int(d.integers(-len(dims), len(dims) + 1))), x, {}


def normalised(d: Draw) -> Case:
    dims = shape(d, 2)
    axis = int(d.integers(-len(dims), len(dims)))
    op = str(d.choice(["Softmax", "LogSoftmax", "LayerNormalization", "Hardmax", "LpNormalization"]))
    if op == "LayerNormalization":
        inputs = {"x": array(d, *dims), "s": array(d, *dims[axis:]), "b": array(d, *dims[axis:])}
        return node(op, ["x", "s", "b"], axis=axis), inputs, {}
    return node(op, ["x"], axis=axis), {"x": array(d, *dims)}, {}  # the reference's norm for p=1 has signs


MAKERS: tuple[Callable[[Draw], Case], ...] = (
    conv, conv_transpose, pool, reduction, arg, slices, pads, resize, elementwise, matmul, moved, normalised
)  # fmt: skip


def random_model(seed: int) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """A model of one node, and its inputs."""
    d = np.random.default_rng(seed)
    made, inputs, constants = MAKERS[seed % len(MAKERS)](d)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    initial = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph([made], "random", given, [onnx.ValueInfoProto(name="y")], initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return model, list(inputs.values())
