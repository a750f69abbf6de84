"""Movements and maxima of decoded bytes, done on the bytes: the same results, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model

from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.expression import Literal
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph import codes
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.codes import with_codes_moved
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.integer_kernel import Unit
from perfdojo_sdk.graph.integers import with_integer_sums
from perfdojo_sdk.graph.operators.quantisation import dequantise
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.graph.running import interpreted, run_graph
from perfdojo_sdk.graph.turning import turned
from perfdojo_sdk.graph.writer import parsed
from perfdojo_sdk.models import whole_checks

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
NODE = helper.make_node


def drawn(dtype: str, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def graph_of(nodes: list[Any], inputs: dict[str, Array], **constants: Any) -> Graph:
    initialisers = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    found = lower(model(nodes, inputs, ["y"], initializer=initialisers))
    assert found.graph is not None and not found.refusals
    return without_duplicates(found.graph)


def decoded(*nodes: Any, x: Array, scale: float = 0.1, zero: int = 3, **constants: Any) -> Graph:
    """Nodes behind a dequantisation of x."""
    first = NODE("DequantizeLinear", ["x", "sx", "zx"], ["f"])
    given = {"sx": np.float32(scale), "zx": np.array(zero, x.dtype)}
    return graph_of([first, *nodes], {"x": x}, **given, **constants)


def names(graph: Graph) -> list[str]:
    return [node.program.name for node in graph.nodes]


def same(graph: Graph, x: Array) -> Graph:
    """The graph with codes moved, which has the results of the graph in the same bits."""
    made = with_codes_moved(graph)
    for meant, found in zip(run_graph(graph, {"x": x}), run_graph(made, {"x": x}), strict=True):
        assert meant.dtype == found.dtype and meant.tobytes() == found.tobytes()
    return made


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


IMAGE = (1, 4, 6, 8)
WINDOW = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
MOVED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "max_pool": ([NODE("MaxPool", ["f"], ["y"], **WINDOW)], {}),
    "relu": ([NODE("Relu", ["f"], ["y"])], {}),
    "transpose": ([NODE("Transpose", ["f"], ["y"], perm=[0, 2, 3, 1])], {}),
    "slice": ([NODE("Slice", ["f", "from", "to"], ["y"])],
              {"from": ints(0, 1, 0, 2), "to": ints(1, 3, 6, 7)}),
    "reduce_max": ([NODE("ReduceMax", ["f", "axes"], ["y"], keepdims=0)], {"axes": ints(2, 3)}),
    "reduce_min": ([NODE("ReduceMin", ["f", "axes"], ["y"], keepdims=0)], {"axes": ints(1)}),
    "concat": ([NODE("Relu", ["f"], ["r"]), NODE("Concat", ["r", "f"], ["y"], axis=1)], {}),
    "max_pool of a view": ([NODE("Reshape", ["f", "to"], ["v"]), NODE("MaxPool", ["v"], ["y"], **WINDOW)],
                           {"to": ints(1, 2, 12, 8)}),
}  # fmt: skip


@pytest.mark.parametrize("what", MOVED)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_kernels_move_and_compare_bytes(what: str, dtype: str) -> None:
    nodes, more = MOVED[what]
    x = drawn(dtype, IMAGE)
    made = same(decoded(*nodes, x=x, **more), x)
    assert names(made)[-1] == "dequantise" and names(made).count("dequantise") == 1
    for node in made.nodes[:-1]:
        assert {buffer.dtype for buffer in node.program.buffers} == {made.nodes[-1].program.buffers[0].dtype}


def test_floats_that_come_from_bytes_become_them_again() -> None:
    """A network as tools quantise it: all that is left between its kernels are bytes."""
    x = drawn("uint8", IMAGE)
    back = [
        NODE("QuantizeLinear", ["p", "sx", "zx"], ["q"]),
        NODE("DequantizeLinear", ["q", "sx", "zx"], ["d"]),
        NODE("Relu", ["d"], ["r"]),
        NODE("QuantizeLinear", ["r", "sx", "zx"], ["y"]),
    ]
    made = same(decoded(NODE("MaxPool", ["f"], ["p"], **WINDOW), *back, x=x), x)
    assert names(made) == ["max_pool", "relu"]
    alone = same(decoded(NODE("QuantizeLinear", ["f", "sx", "zx"], ["y"]), x=x), x)
    assert not alone.nodes, "nothing is computed"


@pytest.mark.parametrize("other", [{"sy": np.float32(0.2)}, {"zy": np.uint8(4)}])
def test_another_quantisation_stays(other: dict[str, Any]) -> None:
    x = drawn("uint8", (1, 256))
    given = {"sy": np.float32(0.1), "zy": np.uint8(3), **other}
    graph = decoded(NODE("QuantizeLinear", ["f", "sy", "zy"], ["y"]), x=x, **given)
    assert same(graph, x) == graph


KEPT: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "it computes": ([NODE("AveragePool", ["f"], ["y"], kernel_shape=[2, 2])], {}),
    "no byte is this number": ([NODE("Clip", ["f", "low"], ["y"])], {"low": np.float32(0.05)}),
    "two quantisations": (
        [NODE("DequantizeLinear", ["x", "sy"], ["g"]), NODE("Concat", ["f", "g"], ["y"], axis=0)],
        {"sy": np.float32(0.1)},
    ),
    "bytes beside floats": (
        [NODE("Cast", ["x"], ["g"], to=TensorProto.FLOAT), NODE("Max", ["f", "g"], ["y"])], {},
    ),
    "there is more to decode": ([NODE("Expand", ["f", "to"], ["y"])], {"to": ints(3, 4, 6, 8)}),
    "places": ([NODE("MaxPool", ["f"], ["z", "y"], **WINDOW)], {}),
}  # fmt: skip


@pytest.mark.parametrize("why", KEPT)
def test_what_stays_in_floats(why: str) -> None:
    nodes, more = KEPT[why]
    x = drawn("uint8", IMAGE)
    graph = decoded(*nodes, x=x, **more)
    assert same(graph, x) == graph


@pytest.mark.parametrize("scale", [-0.1, 0.0])
def test_only_rising_floats_are_compared_as_bytes(scale: float) -> None:
    """A scale of 0 makes zeros of both signs, a negative one turns the order around; both may be moved."""
    x = drawn("uint8", IMAGE)
    graph = decoded(NODE("MaxPool", ["f"], ["y"], **WINDOW), x=x, scale=scale)
    assert same(graph, x) == graph
    turns = decoded(NODE("Transpose", ["f"], ["y"], perm=[0, 2, 3, 1]), x=x, scale=scale)
    assert names(same(turns, x)) == ["transpose", "dequantise"]


@pytest.mark.parametrize("scale", [1e-45, 1e-41, 1e36, 3e38, np.inf])
def test_the_ends_of_the_range(scale: float) -> None:
    """Products that are subnormal or overflow to infinity rise all the same; 0 * inf is no number."""
    x = drawn("int8", IMAGE)
    graph = decoded(NODE("MaxPool", ["f"], ["y"], **WINDOW), x=x, scale=scale)
    with np.errstate(all="ignore"):
        assert (same(graph, x) == graph) == (scale == np.inf)


def test_a_scale_that_is_not_known_and_one_for_each_channel() -> None:
    x = drawn("uint8", IMAGE)
    nodes = [NODE("DequantizeLinear", ["x", "s"], ["f"], axis=1), NODE("MaxPool", ["f"], ["y"], **WINDOW)]
    for graph in (
        graph_of(nodes, {"x": x, "s": np.ones(4, np.float32)}),
        graph_of(nodes, {"x": x}, s=np.arange(1, 5).astype(np.float32)),
    ):
        assert with_codes_moved(graph) == graph


POOL = """kernel pool(x) -> y
x f32 [8] heap
y f32 [SIZE] heap

SIZE
| y[{0}] = -inf
| 3 y[{0}] max= x[{0}*2+{1}-2] if {0}*2+{1} >= 2 and {0}*2+{1} <= 9
"""


@pytest.mark.parametrize(("size", "known"), [(5, True), (6, False)])
def test_a_window_without_elements_has_no_byte(size: int, known: bool) -> None:
    """The largest of no elements is -inf, which no byte stands for."""
    b, x = Builder("pool"), drawn("uint8", (8,))
    scale, zero = b.constant(np.array(0.1, np.float32)), b.constant(np.array(3, np.uint8))
    f = dequantise(b, b.input("x", (8,), "u8"), scale, zero, 0, 0, "f32")
    (y,) = b.kernel(parsed(POOL.replace("SIZE", str(size))), [f], [((size,), "f32")])
    graph = b.graph({"y": y})
    assert (same(graph, x) != graph) == known


def test_convolutions_around_a_maximum_are_sums_of_integers() -> None:
    """Pooling, pads, joined branches and means take channels as the convolutions give them."""
    x = drawn("uint8", (1, 4, 9, 8))
    nodes = [
        *_layer("f", "w1", "a"),
        NODE("MaxPool", ["a"], ["p"], **WINDOW),
        *_layer("p", "w2", "b"),
        NODE("Concat", ["p", "b"], ["c"], axis=1),
        *_layer("c", "w3", "d"),
        NODE("ReduceMean", ["d", "axes"], ["y"], keepdims=0),
    ]
    weights = {f"w{k}": drawn("int8", (5, inner, 3, 3)) for k, inner in ((1, 4), (2, 5), (3, 10))}
    graph = decoded(*nodes, x=x, **weights, sw=np.float32(0.01), sy=np.float32(0.9), axes=ints(2, 3))
    moved = same(graph, x)
    made, folds = with_integer_sums(moved, Unit("i16", "i16", 2), True)
    assert len(folds) == 3 and "transpose" not in names(made)
    meant, found = run_graph(moved, {"x": x})[0], run_graph(made, {"x": x})[0]
    assert np.abs(meant - found).max() <= 0.9


def test_a_built_model_is_compared_with_the_one_whose_bytes_are_decoded_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, pool = drawn("uint8", (1, 4, 5, 4)), NODE("MaxPool", ["f"], ["p"], **WINDOW)
    more = {"w1": drawn("int8", (5, 4, 3, 3)), "sw": np.float32(0.01), "sy": np.float32(0.9)}
    graph = decoded(pool, *_layer("p", "w1", "y"), x=x, **more)
    unit = Unit("i16", "i16", 2)
    (said,) = whole_checks.requantised(graph, unit, lambda graph: interpreted)
    assert "of 30 integers" in said, "the layer behind the maxima is one of integers"
    start = codes._OnBytes._start
    monkeypatch.setattr(codes._OnBytes, "_start", lambda *given: start(*given) and Literal(200, "u8"))
    with pytest.raises(VerificationError, match="decoded first"):
        whole_checks.requantised(graph, unit, lambda graph: interpreted)


def _layer(x: str, w: str, y: str) -> list[Any]:
    return [
        NODE("DequantizeLinear", [w, "sw"], [f"{w}f"]),
        NODE("Conv", [x, f"{w}f"], [f"{y}c"], pads=[1, 1, 1, 1]),
        NODE("Relu", [f"{y}c"], [f"{y}r"]),
        NODE("QuantizeLinear", [f"{y}r", "sy", "zx"], [f"{y}q"]),
        NODE("DequantizeLinear", [f"{y}q", "sy", "zx"], [y]),
    ]


TURNS = """kernel sums(x, s) -> y
x f32 [2,3,4,5] heap
s f32 [3] heap
t f32 [2,3] heap
y f32 [2,3] heap

2 3
| t[{0},{1}] = 0
| 4 5 t[{0},{1}] += x[{0},{1},{2},{3}]
2 3 y[{0},{1}] = t[{0},{1}] * s[{1}]
"""


def test_only_what_a_loop_around_walks_along_comes_last() -> None:
    found = turned(parsed(TURNS), {"x": [1]})
    assert found is not None and found[1:] == ({"x": 1}, 1)
    assert "x f32 [2,4,5,3]" in found[0].text and "x[{0},{2},{3},{1}]" in found[0].text
    for last in ({"x": [2]}, {"x": [0, 3]}, {"s": [0]}, {}):
        assert (turned(parsed(TURNS), last) is not None) == (0 in last.get("x", ()))
    products = TURNS.replace("x[{0},{1},{2},{3}]", "x[{0},{1},{2},{3}] * s[{1}]")
    assert turned(parsed(products), {"x": [1]}) is None


def test_a_view_of_truth_values_is_copied() -> None:
    """As of any other dtype: a mask that gets a dimension."""
    given = {"x": np.ones((2, 3), np.float32), "m": np.array([True, False, True])}
    nodes = [
        helper.make_node("Unsqueeze", ["m", "at"], ["more"]),
        helper.make_node("Where", ["more", "x", "zero"], ["y"]),
    ]
    graph = graph_of(nodes, given, at=np.array([0]), zero=np.float32(0))
    [found] = run_graph(with_codes_moved(graph), given)
    assert found.tolist() == [[1, 0, 1], [1, 0, 1]]
