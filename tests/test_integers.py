"""Sums of quantised numbers as integer kernels: the same integers, and floats by a declared law."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model

from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph import integer_kernel
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.integer_kernel import Unit
from perfdojo_sdk.graph.integers import REQUANTISATION, side_by_side, unit_of, with_integer_sums
from perfdojo_sdk.graph.operators.quantisation import widened
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.graph.running import interpreted, run_graph
from perfdojo_sdk.graph.writer import parsed
from perfdojo_sdk.models import whole_checks
from perfdojo_sdk.plugins import load_plugins

Array = np.ndarray[Any, Any]
BYTES, WORDS = Unit("u8", "i8", 4), Unit("i16", "i16", 2)
RANDOM = np.random.default_rng(0)


def graph_of(nodes: list[Any], x: Array, output: str, **constants: Any) -> Graph:
    initialisers = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    found = lower(model(nodes, {"x": x}, [output], initializer=initialisers))
    assert found.graph is not None and not found.refusals
    return without_duplicates(found.graph)


def drawn(dtype: str, shape: tuple[int, ...], low: int = 0) -> Array:
    limits = np.iinfo(dtype)
    return RANDOM.integers(max(low, limits.min), limits.max + 1, shape).astype(dtype)


def scales(count: int) -> Array:
    return (0.01 + RANDOM.random(count) / 50).astype(np.float32)


def convolution(
    x: Array,
    w: Array,
    quantised: bool,
    pads: tuple[int, ...] = (1, 1, 1, 1),
    stride: int = 1,
    group: int = 1,
    zero: int = 0,
) -> Graph:
    """A convolution of integers, or the same one of dequantised numbers with bias, ReLU and quantisation."""
    constants: dict[str, Any] = {
        "sx": np.float32(0.1), "zx": np.array(3, x.dtype), "w": w, "sw": scales(len(w)),
        "zw": np.full(len(w), zero, w.dtype), "sy": np.float32(2.7), "zy": np.uint8(5),
        "b": RANDOM.integers(-1000, 1000, len(w)).astype(np.int32),
    }  # fmt: skip
    more = {"pads": pads, "strides": [stride] * 2, "group": group}
    if quantised:
        names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
        return graph_of([helper.make_node("QLinearConv", names, ["y"], **more)], x, "y", **constants)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wf"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "sb"], ["bf"], axis=0),
        helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], **more),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "sy", "zy"], ["y"]),
    ]
    return graph_of(nodes, x, "y", **constants, sb=constants["sx"] * constants["sw"])


def compared(graph: Graph, unit: Unit, x: Array, sites: int = 1) -> tuple[Array, Array, Graph]:
    """The result of a graph, and that with integer kernels."""
    made, folds = with_integer_sums(graph, unit, laws=True)
    assert len(folds) == sites and len(made.nodes) < len(graph.nodes)
    return run_graph(graph, {"x": x})[0], run_graph(made, {"x": x})[0], made


CONVOLUTIONS: tuple[tuple[Any, ...], ...] = (
    ("uint8", "int8", (8, 8, 3, 3), (1, 1, 1, 1), 1, 1, 0),
    ("int8", "int8", (4, 3, 3, 3), (1, 1, 1, 1), 2, 1, 0),
    ("uint8", "uint8", (5, 6, 1, 1), (0, 0, 0, 0), 1, 1, 77),
    ("int8", "uint8", (5, 6, 3, 2), (1, 0, 1, 1), 2, 1, 118),
    ("int8", "int8", (6, 1, 3, 3), (1, 1, 1, 1), 1, 6, 0),
    ("int8", "uint8", (5, 3, 2, 7), (1, 3, 0, 4), 2, 1, 118),
)


@pytest.mark.parametrize(("image", "weights", "shape", "pads", "stride", "group", "zero"), CONVOLUTIONS)
def test_a_convolution_has_the_same_integers(
    image: str, weights: str, shape: tuple[int, ...], pads: Any, stride: int, group: int, zero: int
) -> None:
    x = drawn(image, (1, shape[1] * group, 5, 6))
    for unit, quantised in product((BYTES, WORDS), (True, False)):
        graph = convolution(x, drawn(weights, shape), quantised, pads, stride, group, zero)
        meant, found, made = compared(graph, unit, x)
        assert np.abs(meant.astype(int) - found.astype(int)).max() <= (0 if quantised else 1)
        assert len(np.unique(meant)) > 10
        guards = [leaf.statement.guard for node in made.nodes for n in node.program.body for leaf in n.leaves]
        assert not any(guards), "padding leaves no condition"


@pytest.mark.parametrize(
    ("shape", "way", "weights"),
    [
        ((4, 3, 2, 7), {}, "[2,11,4,2]"),
        ((4, 3, 7, 1), {}, "[7,2,4,2]"),
        ((4, 3, 2, 3), {"dilations": [1, 2]}, "[2,3,2,4,2]"),
        ((4, 4, 2, 3), {}, "[2,3,2,4,2]"),
    ],
)
def test_taps_beside_each_other_fill_groups(shape: tuple[int, ...], way: Any, weights: str) -> None:
    """7 taps of 3 channels are 11 pairs and not 14, where images have them one after the other."""
    x = drawn("uint8", (1, shape[1], 9, 10))
    nodes = [helper.make_node("ConvInteger", ["x", "w", "zx"], ["y"], pads=[1, 2, 0, 3], **way)]
    graph = graph_of(nodes, x, "y", w=drawn("int8", shape), zx=np.uint8(9))
    meant, found, made = compared(graph, WORDS, x)
    np.testing.assert_array_equal(meant, found)
    assert f"i16 {weights} heap" in made.nodes[0].program.text


def test_floats_change_only_where_laws_are_allowed() -> None:
    x = drawn("uint8", (1, 4, 4, 4))
    quantised, floats = (convolution(x, drawn("int8", (4, 4, 3, 3)), way) for way in (True, False))
    for laws in (False, True):
        assert [fold.law for fold in with_integer_sums(quantised, BYTES, laws)[1]] == ["none"]
    assert with_integer_sums(floats, BYTES, False) == (floats, ())
    assert [fold.law for fold in with_integer_sums(floats, BYTES, True)[1]] == [REQUANTISATION]


@pytest.mark.parametrize(("rows", "steps", "columns"), [(3, 6, 5), (1, 9, 4)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_of_matrices(rows: int, steps: int, columns: int, dtype: str) -> None:
    x, w = drawn("uint8", (rows, steps)), drawn(dtype, (steps, columns))
    zw, given = drawn(dtype, (columns,), 0), {"sx": np.float32(0.1), "zx": np.uint8(9), "w": w}
    given |= {"sw": scales(columns), "zw": zw, "sy": np.float32(3), "zy": np.uint8(5)}
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    exact = (
        [helper.make_node("QLinearMatMul", names, ["y"])],
        [helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["y"])],
    )
    turned = {
        **given,
        "w": w.T.copy(),
        "bias": scales(columns),
        "low": np.float32(-9),
        "high": np.float32(40),
    }
    dequantised = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wf"], axis=0),
    ]
    floats = (
        [*dequantised, helper.make_node("Gemm", ["xf", "wf", "bias"], ["y"], transB=1)],
        [
            *dequantised,
            helper.make_node("Transpose", ["wf"], ["wt"]),
            helper.make_node("MatMul", ["xf", "wt"], ["p"]),
            helper.make_node("Add", ["p", "bias"], ["s"]),
            helper.make_node("Clip", ["s", "low", "high"], ["c"]),
            helper.make_node("QuantizeLinear", ["c", "sy", "zy"], ["y"]),
        ],
    )
    for unit in (BYTES, WORDS):
        for nodes in exact:
            meant, found, _ = compared(graph_of(nodes, x, "y", **given), unit, x)
            assert np.array_equal(meant, found) and meant.dtype == found.dtype
        meant, found, _ = compared(graph_of(floats[0], x, "y", **turned), unit, x)
        assert np.allclose(meant, found, rtol=1e-5, atol=1e-4 * np.abs(meant).max())
        meant, found, made = compared(graph_of(floats[1], x, "y", **turned), unit, x)
        assert np.abs(meant.astype(int) - found.astype(int)).max() <= 1 and len(made.nodes) == 1


def test_zero_points_may_be_known_only_at_run_time() -> None:
    x = RANDOM.standard_normal((3, 8)).astype(np.float32)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["y"]),
    ]
    graph = graph_of(nodes, x, "y", w=drawn("int8", (8, 5), -128))
    for unit in (BYTES, WORDS):
        meant, found, _ = compared(graph, unit, x)
        assert np.array_equal(meant, found)


def residual() -> Graph:
    """Two convolutions, a sum with what was before, and a third one, all quantised between."""
    constants: dict[str, Any] = {"s": np.float32(0.1), "z": np.uint8(3)}
    nodes: list[Any] = []

    def quantised(source: str, name: str) -> None:
        nodes.append(helper.make_node("QuantizeLinear", [source, "s", "z"], [f"{name}.q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", "s", "z"], [name]))

    def conv(source: str, name: str, filters: int, channels: int, size: int) -> None:
        constants[f"{name}.w"] = drawn("int8", (filters, channels, size, size), -128)
        constants[f"{name}.s"] = scales(filters) / 10
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.w", f"{name}.s"], [f"{name}.f"], axis=0))
        nodes.append(helper.make_node("Conv", [source, f"{name}.f"], [name], pads=[size // 2] * 4))

    quantised("x", "a")
    conv("a", "b", 4, 3, 3)
    quantised("b", "c")
    conv("c", "d", 4, 4, 1)
    quantised("d", "e")
    nodes.append(helper.make_node("Add", ["c", "e"], ["f"]))
    nodes.append(helper.make_node("Relu", ["f"], ["g"]))
    quantised("g", "h")
    conv("h", "y", 5, 4, 3)
    return graph_of(nodes, X, "y", **constants)


X = RANDOM.standard_normal((1, 3, 5, 5)).astype(np.float32)


def test_kernels_pass_images_on_with_channels_last() -> None:
    graph = residual()
    meant, found, made = compared(graph, BYTES, X, sites=3)
    assert np.allclose(meant, found, atol=1e-4 * np.abs(meant).max())
    names = [node.program.name for node in made.nodes]
    assert names.count("conv2d_integers") == 3
    assert [n for n, node in enumerate(made.nodes) if node.program.name == "transpose"] == [len(names) - 1]
    shapes = {made.values[node.outputs[0]].shape for node in made.nodes if node.program.name == "add"}
    assert shapes == {(1, 5, 5, 4)}


def test_each_kernel_is_judged_beside_what_it_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = residual()
    beside, pairs = side_by_side(graph, BYTES)
    assert len(pairs) == 3 and len(beside.outputs) == 6
    (said,) = whole_checks.requantised(graph, BYTES, lambda graph: interpreted)
    assert "of 200 integers, 0 are one step apart" in said
    wrapped = integer_kernel.wrapped
    monkeypatch.setattr(integer_kernel, "wrapped", lambda data: wrapped(data + 2000))
    with pytest.raises(VerificationError, match="an integer kernel differs"):
        whole_checks.requantised(graph, BYTES, lambda graph: interpreted)


def test_each_channel_of_an_image_has_a_sum_of_its_own() -> None:
    """Weights beyond i8 need the sum of the image; here every channel is convolved by itself."""
    x = np.array([[[[1, 2, 3]], [[10, 20, 30]]]], np.uint8)
    w = np.array([200, 100, 200, 100], np.uint8).reshape(2, 1, 1, 2)
    graph = graph_of([helper.make_node("ConvInteger", ["x", "w"], ["y"], group=2)], x, "y", w=w)
    made, _ = with_integer_sums(graph, BYTES, laws=True)
    assert made.nodes != graph.nodes
    [found] = run_graph(made, {made.inputs[0].name: x})
    assert found.reshape(-1).tolist() == [400, 700, 4000, 7000]


@pytest.mark.parametrize("unit", [BYTES, WORDS], ids=["bytes", "words"])
def test_windows_that_never_reach_the_image_stay(unit: Unit) -> None:
    x, w = np.array([[[1], [2]]], np.uint8), np.ones((2, 2, 2), np.int8)
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], pads=[3, 0], strides=[3])
    graph = graph_of([node], x, "y", w=w, z=np.uint8(9))
    made, _ = with_integer_sums(graph, unit, laws=True)
    [found] = run_graph(made, {made.inputs[0].name: x})
    assert found.reshape(-1).tolist() == [0, 0]


def test_what_is_no_sum_of_bytes_and_constants_stays() -> None:
    x = drawn("uint8", (3, 6))
    w, sw = drawn("int8", (6, 4)), scales(4)
    last = helper.make_node("MatMul", ["xf", "wf"], ["y"])
    of_x = helper.make_node("DequantizeLinear", ["x", "sx"], ["xf"])
    of_w = helper.make_node("DequantizeLinear", ["w", "sw"], ["wf"], axis=1)
    kept: dict[str, Graph] = {
        "a scale along the sum": graph_of(
            [of_x, helper.make_node("DequantizeLinear", ["w", "sw"], ["wf"], axis=0), last],
            x, "y", w=w, sw=scales(6), sx=np.float32(0.1),
        ),
        "a scale for each row of the image": graph_of(
            [helper.make_node("DequantizeLinear", ["x", "sx"], ["xf"], axis=0), of_w, last],
            x, "y", w=w, sw=sw, sx=scales(3),
        ),
        "words": graph_of(
            [of_x, of_w, last], x, "y", w=drawn("int16", (6, 4)) | 0x4000, sw=sw, sx=np.float32(0.1)
        ),
        "weights that are floats": graph_of(
            [of_x, last], x, "y", wf=scales(24).reshape(6, 4), sx=np.float32(0.1)
        ),
        "weights that are computed": graph_of(
            [of_x, helper.make_node("Transpose", ["xf"], ["wf"]), last], x, "y", sx=np.float32(0.1)
        ),
        "what follows an integer sum in its kernel": graph_of(
            [
                helper.make_node("Cast", ["x"], ["xi"], to=TensorProto.INT32),
                helper.make_node("Gemm", ["xi", "wi", "c"], ["y"]),
            ],
            x, "y", wi=w.astype(np.int32), c=np.arange(4, dtype=np.int32),
        ),
        "a bias along the rows of an epilogue": graph_of(
            [of_x, of_w, helper.make_node("Gemm", ["xf", "wf", "c"], ["y"])],
            x, "y", w=w, sw=sw, sx=np.float32(0.1), c=scales(3).reshape(3, 1),
        ),
        "groups of several channels": convolution(
            drawn("uint8", (1, 4, 4, 4)), drawn("int8", (4, 2, 3, 3)), True, group=2
        ),
    }  # fmt: skip
    for why, graph in kept.items():
        assert with_integer_sums(graph, BYTES, True) == (graph, ()), why
    assert with_integer_sums(convolution(drawn("uint8", (1, 4, 4, 4)), drawn("int8", (4, 4, 1, 1)), True),
                             None, True)[1] == ()  # fmt: skip


@pytest.mark.parametrize(("number", "sites"), [(0, 1), (1, 0)])
def test_an_image_may_be_padded_by_a_node_of_its_own(number: int, sites: int) -> None:
    """Zeros are the zero point of the image; a number that is read is not."""
    x = drawn("uint8", (1, 4, 4, 3))
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["xf"]),
        helper.make_node("Pad", ["xf", "pads", *["number"] * number], ["p"]),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["wf"], axis=0),
        helper.make_node("Conv", ["p", "wf"], ["y"]),
    ]
    graph = graph_of(
        nodes, x, "y", w=drawn("int8", (5, 4, 3, 3)), sw=scales(5), sx=np.float32(0.1), zx=np.uint8(7),
        pads=np.array([0, 0, 2, 1, 0, 0, 0, 1]), number=np.float32(number),
    )  # fmt: skip
    made, folds = with_integer_sums(graph, BYTES, True)
    assert len(folds) == sites
    meant, found = run_graph(graph, {"x": x})[0], run_graph(made, {"x": x})[0]
    np.testing.assert_allclose(found, meant, rtol=1e-5, atol=1e-3)


PART = """kernel part(x, w) -> y
x i16 [3,4] heap
w i16 [4,COLUMNS] heap
y i32 [3,5] heap

3 5
| y[{0},{1}] = 0
| 4 y[{0},{1}] += i32(x[{0},{2}]) * i32(w[{2},{1}])
"""


@pytest.mark.parametrize("columns", [5, 6])
def test_a_part_of_the_weights_is_no_matrix(columns: int) -> None:
    b = Builder("part")
    x, w = b.input("x", (3, 4), "u8"), b.constant(drawn("int8", (4, columns)).astype(np.int16))
    words = widened(b, x, None, 0, "i16")
    (y,) = b.kernel(parsed(PART.replace("COLUMNS", str(columns))), [words, w], [((3, 5), "i32")])
    assert len(with_integer_sums(b.graph({"y": y}), BYTES, False)[1]) == (columns == 5)


def test_a_target_says_what_it_adds_up() -> None:
    plugins = load_plugins()
    units = {name: unit_of(target.dialect) for name, target in plugins.targets.items()}
    assert units["x86_avx512"] == BYTES and units["x86_avx2"] == WORDS and units["cuda_gh200"] is None
