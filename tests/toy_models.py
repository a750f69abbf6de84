"""A small network of two layers, and models built for the toy target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import ROOT
from onnx import TensorProto, helper, numpy_helper

from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models import optimise as building
from perfdojo_sdk.plugins import load_plugins

W = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def network(rows: Any = 3) -> Any:
    """Two layers with the same activation, a view, and a constant as an output."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Relu", ["r"], ["t"]),
        helper.make_node("Flatten", ["t"], ["y"], axis=0),
        helper.make_node("Shape", ["x"], ["n"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, 6))],
        [onnx.ValueInfoProto(name=name) for name in ("y", "n")],
        initializer=[numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def built_for_toy(folder: Path, model: Any) -> None:
    """A model for the toy target, each node a kernel, with a search that plays nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "toy_target"))
        import perfdojo_toy

        plugins = load_plugins(targets=["toy"], extra=[perfdojo_toy], without=["perfdojo-x86-avx512"])
        # The toy's own packager links no function of a model; the index test below goes without it.
        patch.setattr(type(plugins), "packager", lambda self, target: None)
        graph = lower(model).graph
        assert graph is not None
        settings = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)
        result = building.optimise(plugins, plugins.target("toy"), graph, folder, settings, fuse=False)
        assert len(result.checks) == 2
