"""Models whose weights have less than a byte: packed in the file, and for the kernels that read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import perfdojo_sdk
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.graph import Graph, Value
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models import optimise as building
from perfdojo_sdk.models.optimise import WEIGHTS
from perfdojo_sdk.models.packed_weights import with_packed_weights
from perfdojo_sdk.plugins import load_plugins

ROOT = Path(__file__).parent.parent
W = (np.arange(32 * 6).reshape(32, 6) * 7 % 16 - 8).astype(ml_dtypes.int4)
S = (np.arange(2 * 6, dtype=np.float32).reshape(2, 6) + 1) / 8
CODES = np.linspace(-6, 6, 6).astype(ml_dtypes.float4_e2m1fn)
X = np.random.default_rng(2).standard_normal((3, 32)).astype(np.float32)
MEANT = X @ (W.astype(np.float32) * S.repeat(16, 0)) + CODES.astype(np.float32)


def network() -> Any:
    """x times weights of four bits, with a scale for each block of sixteen; numbers of four bits added."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=16),
        helper.make_node("MatMul", ["x", "d"], ["m"]),
        helper.make_node("Cast", ["c"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["m", "f"], ["y"]),
    ]
    constants = [numpy_helper.from_array(a, n) for n, a in (("w", W), ("s", S), ("c", CODES))]
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 6])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


@pytest.fixture(scope="module")
def graph() -> Graph:
    found = lower(network()).graph
    assert found is not None
    return found


def sizes(graph: Graph) -> dict[str, tuple[str, int]]:
    return {name: (str(a.dtype), a.nbytes) for name, a in graph.constants.items() if a.dtype != np.float32}


def test_constants_that_kernels_read_are_packed(graph: Graph) -> None:
    packed = with_packed_weights(graph, lambda program: True)
    assert sorted(sizes(graph).values()) == [("float4_e2m1fn", 6), ("int4", 192)]
    assert sorted(sizes(packed).values()) == [("uint8", 3), ("uint8", 96)]
    for made in (graph, packed):
        [y] = run_graph(made, {"x": X})
        np.testing.assert_allclose(y, MEANT, rtol=1e-4, atol=1e-4)
    assert np.array_equal(run_graph(graph, {"x": X})[0], run_graph(packed, {"x": X})[0])


def test_constants_that_others_read_stay_as_they_are(graph: Graph) -> None:
    assert with_packed_weights(graph, lambda program: False) is graph
    [name] = [n for n, a in graph.constants.items() if a.dtype == ml_dtypes.int4]
    shown = replace(graph, outputs=(*graph.outputs, graph.values[name]))
    kept = with_packed_weights(shown, lambda program: True)
    assert sorted(sizes(kept).values()) == [("int4", 192), ("uint8", 3)]
    turned = Value("turned", graph.values[name].shape, "u4")
    values, views = {**graph.values, "turned": turned}, {**graph.views, "turned": name}
    kept = with_packed_weights(replace(graph, values=values, views=views), lambda program: True)
    assert ("int4", 192) in sizes(kept).values()


@pytest.fixture(scope="module")
def built(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "toy_target"))
        import perfdojo_toy

        plugins = load_plugins(targets=["toy"], extra=[perfdojo_toy], without=["perfdojo-x86-avx512"])
        patch.setattr(type(plugins), "packager", lambda self, target: None)
        folder = tmp_path_factory.mktemp("blocks")
        settings = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)
        building.optimise(plugins, plugins.target("toy"), graph, folder, settings)
        yield folder


def test_a_model_with_packed_weights_has_fewer_bytes(built: Path) -> None:
    model = perfdojo_sdk.load_model(built)
    np.testing.assert_allclose(model(X), MEANT, rtol=1e-4, atol=1e-4)
    bytes_of = {name: array.nbytes for name, array in model.weights.items() if array.dtype == np.uint8}
    assert sorted(bytes_of.values()) == [3, 96]
    assert (built / WEIGHTS).stat().st_size - sum(a.nbytes for a in model.weights.values()) + 99 > 96
    model.repack({name: np.zeros_like(model.weights[name]) for name in bytes_of})
    np.testing.assert_array_equal(model(X), np.zeros((3, 6)))
