"""Models whose kernels come from the user's cache, from the command line to a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import perfdojo_sdk
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.operators import elementwise
from perfdojo_sdk.library.build import RECORDS
from perfdojo_sdk.library.builder import KernelBuilder
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.cache import MARK, CacheUse, KernelCache
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.optimise import optimise
from perfdojo_sdk.plugins import Plugins

W = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)
WORDS = ("optimize", "network.onnx", "--target", "toy", "--threads", "1")
SETTINGS = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    """An empty cache, and beside it a model of two kernels, one of which has a weight."""
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[1, 0]),
        helper.make_node("Softmax", ["t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 6))],
        [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="p")],
        initializer=[numpy_helper.from_array(W, "w")],
    )
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "network.onnx")
    return KernelCache(tmp_path / "cache" / "kernels")


def build(cli: Any, folder: str, *more: str) -> Any:
    outcome = cli(*WORDS, "-o", folder, *more, "--json", plugins="toy")
    assert outcome.code == 0, outcome.err
    return outcome.data


def test_a_second_folder_takes_its_kernels_from_the_cache(
    cli: Any, cache: KernelCache, tmp_path: Path
) -> None:
    first = build(cli, "one")
    kernels = first["kernels"]
    assert first["cached"] == 0 and len(cache.entries()) == kernels >= 2
    assert {entry.target for entry in cache.entries()} == {"toy"}
    text = cli(*WORDS, "-o", "two", plugins="toy")
    assert f"{kernels} of {kernels} kernels came from the cache" in text.out
    assert len(cache.entries()) == kernels
    one, two = (perfdojo_sdk.load_model(tmp_path / name) for name in ("one", "two"))
    assert all(np.array_equal(a, b) for a, b in zip(one(X), two(X), strict=True))
    for entry in cache.entries():
        assert (entry.folder / MARK).is_file()
        (entry.folder / RECORDS).write_bytes(b"no database")
    assert build(cli, "three")["cached"] == 0
    assert build(cli, "four")["cached"] == kernels, "what was damaged has been put there again"


def test_a_library_is_made_of_a_record(linking_toy: Plugins, tmp_path: Path) -> None:
    """A kernel that `optimize` put there is loaded as `torch.compile` does, and not played again."""
    b = Builder()
    given = b.input("x", (4, 8), "f32")
    graph = b.graph({"y": elementwise.relu(b, given)})
    target, use = linking_toy.target("toy"), CacheUse(KernelCache(tmp_path / "kernels"))
    optimise(linking_toy, target, graph, tmp_path / "model", SETTINGS, use=use)
    [program] = graph.programs

    class Idle(KernelBuilder):
        def build(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("it is there")

    builder = Idle(BuildContext.of(linking_toy, target, SETTINGS))
    assert use.cache.has(builder, program)
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    library = use.cache.library(builder, program)
    assert np.array_equal(library[kernel_name(program)](x), np.maximum(x, 0))


def test_a_cache_that_others_may_write_to_is_not_used(cli: Any, cache: KernelCache) -> None:
    cache.folder.mkdir(parents=True)
    cache.folder.chmod(0o777)
    outcome = cli(*WORDS, "-o", "one", plugins="toy")
    assert outcome.code == 0 and not list(cache.folder.iterdir())
    assert "no kernel came from the cache or went there: " in outcome.out
    assert "others may write to it" in outcome.out
