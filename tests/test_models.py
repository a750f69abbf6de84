"""Models from the command line to a call: one small model, built once for all tests of this file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import ROOT, Outcome, clear
from onnx import TensorProto, helper, numpy_helper

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models import optimise as building
from perfdojo_sdk.models.model import Model
from perfdojo_sdk.models.optimise import kernels_of
from perfdojo_sdk.models.tensors import read_tensors, write_tensors
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


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.maximum(x @ W, 0).reshape(1, -1)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The network for the toy target, with a search that plays nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "toy_target"))
        import perfdojo_toy

        plugins = load_plugins(targets=["toy"], extra=[perfdojo_toy], without=["perfdojo-x86-avx512"])
        folder = tmp_path_factory.mktemp("network")
        graph = lower(network()).graph
        assert graph is not None
        settings = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)
        result = building.optimise(plugins, plugins.target("toy"), graph, folder, settings)
        assert len(result.checks) == 2
        yield folder


@pytest.fixture
def model(built: Path) -> Model:
    return perfdojo_sdk.load_model(built)


X = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)


def test_a_model_gives_the_results_of_the_network(model: Model) -> None:
    y, n = model(X)
    assert np.allclose(y, expected(X), rtol=1e-5, atol=1e-6) and n.tolist() == [3, 6]
    assert y.shape == (1, 12) and np.array_equal(model(x=X, threads=1)[0], y)
    assert list(model.inputs) == ["x"] and list(model.outputs) == ["y", "n"]


def test_equal_kernels_are_built_once(model: Model) -> None:
    kernels = [node.kernel for node in model.manifest.nodes]
    assert len(kernels) == 3 and len(set(kernels)) == 2
    graph = lower(network()).graph
    assert graph is not None and {k.name for k in kernels_of(graph)} == set(kernels)


def test_outputs_belong_to_the_caller(model: Model) -> None:
    y, n = model(X)
    before = y.copy()
    n[:] = 0
    other, again = model(2 * X)
    assert np.array_equal(y, before) and again.tolist() == [3, 6] and not np.array_equal(other, y)


def test_several_threads_may_call_at_once(model: Model) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: model(k * X)[0], range(20)))
    assert all(np.allclose(y, expected(k * X), rtol=1e-5, atol=1e-5) for k, y in enumerate(found))


def test_arrays_of_other_kinds_are_refused(model: Model) -> None:
    with pytest.raises(ArgumentValueError, match="takes f32 .3,6"):
        model(X[:2])
    with pytest.raises(ArgumentTypeError, match="float64"):
        model(X.astype(np.float64))
    with pytest.raises(ArgumentTypeError, match="1 inputs, not 2"):
        model(X, X)
    with pytest.raises(ArgumentTypeError, match="z is no input"):
        model(z=X)
    with pytest.raises(ArgumentTypeError, match="x is missing"):
        model()
    strided = np.asfortranarray(X)
    assert np.array_equal(model(strided)[0], model(X)[0])


# -- folders that somebody sent ----------------------------------------------------------------------


def changed(built: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of the model with another manifest."""
    folder = tmp_path / "copy"
    shutil.copytree(built, folder)
    data = json.loads((folder / "model.json").read_text())
    change(data)
    (folder / "model.json").write_text(json.dumps(data))
    return folder


def view_of_itself(data: dict[str, Any]) -> None:
    view = next(iter(data["views"]))
    data["views"][view] = view


def another_kernel(data: dict[str, Any]) -> None:
    data["nodes"][0]["kernel"] = data["nodes"][1]["kernel"]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["values"]["x"]["shape"].append(2),
        lambda d: d["nodes"].reverse(),
        lambda d: d["nodes"].pop(),
        lambda d: d["nodes"][0]["inputs"].reverse(),
        lambda d: d["nodes"][1].update(outputs=["x"]),
        lambda d: d.update(block_bytes=64),
        lambda d: d["offsets"].update({next(iter(d["offsets"])): 8}),
        lambda d: d["offsets"].clear(),
        lambda d: d["outputs"].append("nothing"),
        lambda d: d.update(weights_sha256="0" * 64),
        lambda d: d.update(library_sha256="0" * 64),
        lambda d: d.update(schema_version=2),
        view_of_itself,
        another_kernel,
    ],
)
def test_a_changed_manifest_is_refused(built: Path, tmp_path: Path, change: Callable[[Any], object]) -> None:
    with pytest.raises(LibraryError) as refused:
        perfdojo_sdk.load_model(changed(built, tmp_path, change))
    assert refused.value.code in ("PD-O011", "PD-L004")


def test_changed_or_missing_files_are_refused(built: Path, tmp_path: Path) -> None:
    folder = changed(built, tmp_path, lambda d: None)
    weights = folder / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(LibraryError, match="not those"):
        perfdojo_sdk.load_model(folder)
    weights.unlink()
    with pytest.raises(LibraryError, match="No such file"):
        perfdojo_sdk.load_model(folder)
    with pytest.raises(LibraryError, match="no model"):
        perfdojo_sdk.load_model(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(LibraryError, match="no manifest"):
        perfdojo_sdk.load_model(tmp_path)


def test_a_wrong_package_is_found(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose arrays lie on each other although both are needed."""
    model, graph = perfdojo_sdk.load_model(built), lower(network()).graph
    assert graph is not None
    offsets = dict.fromkeys(model.manifest.offsets, 0)
    wrong = model.manifest.model_copy(update={"offsets": offsets})
    monkeypatch.setattr(model, "manifest", wrong)
    with pytest.raises(DojoError, match="overlap|differs"):
        building._checked(graph, model)


# -- weights -------------------------------------------------------------------------------------------


def test_tensors_are_written_and_mapped_aligned(tmp_path: Path) -> None:
    import ml_dtypes

    arrays = {
        "a": np.arange(3, dtype=np.uint8),
        "b": np.arange(4, dtype=np.float64).reshape(2, 2),
        "c": np.array(True),
        "d": np.arange(5).astype(ml_dtypes.bfloat16),
        "e": np.empty((0, 2), np.float32),
    }
    write_tensors(tmp_path / "w.safetensors", arrays, tmp_path)
    found = read_tensors(tmp_path / "w.safetensors", tmp_path)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)
        assert found[name].flags.aligned and not found[name].flags.writeable
    safetensors = pytest.importorskip("safetensors.numpy")
    theirs = safetensors.load_file(tmp_path / "w.safetensors")
    assert np.array_equal(theirs["b"], arrays["b"]) and theirs["c"].shape == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        b"\x02" + b"\0" * 7 + b"[]",
        b"\x02" + b"\0" * 7 + b"{",
        *(
            len(head).to_bytes(8, "little") + head
            for head in (
                b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
                b'{"w":{"dtype":"F32","shape":[-2],"data_offsets":[8,0]}}',
                b'{"w":{"dtype":"F33","shape":[],"data_offsets":[0,0]}}',
                b'{"w":{"shape":[],"data_offsets":[0,0]}}',
                b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,true]}}',
            )
        ),
    ],
)
def test_a_file_that_is_no_safetensors_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(LibraryError) as refused:
        read_tensors(tmp_path / "w", tmp_path)
    assert refused.value.code == "PD-O012"


# -- the command -----------------------------------------------------------------------------------


def test_what_is_not_supported_is_listed_before_anything_is_built(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    made = network()
    made.graph.node.append(helper.make_node("NonZero", ["x"], ["z"], name="places"))
    made.graph.output.append(onnx.ValueInfoProto(name="z"))
    onnx.save(made, tmp_path / "m.onnx")
    refused = cli("optimize", "m.onnx", plugins="toy")
    clear(refused, 1, "PD-O004")
    assert "places" in refused.err and not (tmp_path / "build").exists()
    listed = cli("optimize", "m.onnx", "--list", "--json", plugins="toy")
    assert listed.code == 1 and [r["operator"] for r in listed.data["refused"]] == ["NonZero"]


def test_open_sizes_are_given_by_name(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    onnx.save(network("rows"), tmp_path / "m.onnx")
    clear(cli("optimize", "m.onnx", "--list", plugins="toy"), 1, "PD-O002")
    listed = cli("optimize", "m.onnx", "--input", "x=f32[5,6]", "--list", "--json", plugins="toy")
    assert listed.code == 0 and listed.data["kernels"] == 2
    assert cli("optimize", "m.onnx", "--input", "x=5,6", "--list", plugins="toy").code == 2
    (tmp_path / "bad.onnx").write_bytes(b"\x00not a model")
    clear(cli("optimize", "bad.onnx", plugins="toy"), 1, "PD-O002")
    clear(cli("optimize", "missing.onnx", plugins="toy"), 1, "PD-O002")


# -- the guide -----------------------------------------------------------------------------------------


def test_the_guide_writes_a_model_that_is_supported_and_runs(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Its scripts, in order; the package of the network of this file stands for the one that they build."""
    blocks = (ROOT / "docs" / "models.md").read_text().split("```python\n")[1:]
    scripts = [block.partition("```")[0] for block in blocks]
    names: dict[str, Any] = {"np": np}
    exec(compile(scripts[0], "models.md", "exec"), names)
    listed = cli("optimize", "cnn.onnx", "--input", "x=f32[2,3,16,16]", "--list", plugins="toy")
    assert listed.code == 0 and "everything is supported" in listed.out
    [backend] = [script for script in scripts if "onnx.backend" in script]
    small = backend.replace("(2, 3, 16, 16)", "(1, 3, 4, 4)")
    exec(compile(small, "models.md", "exec"), names)
    assert names["y"].shape == (1, 10) and np.allclose(names["y"].sum(), 1, atol=1e-5)
    assert 'load_model("build/models/cnn")' in scripts[1]


# -- indices that are data -------------------------------------------------------------------------


def test_an_index_beyond_its_array_is_reported_by_the_model(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    nodes = [helper.make_node("Gather", ["x", "k"], ["y"], name="rows", axis=0)]
    given = [("x", TensorProto.FLOAT, (4, 3)), ("k", TensorProto.INT64, (5,))]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*each) for each in given], [onnx.ValueInfoProto(name="y")]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "g.onnx")
    built = cli("optimize", "g.onnx", "-o", "g", "--target", "toy", plugins="toy")
    assert built.code == 0, built.err
    model = perfdojo_sdk.load_model(tmp_path / "g")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert (model(x, np.array([0, -1, 3, -4, 1])) == x[[0, -1, 3, -4, 1]]).all()
    for wrong in (4, -5, 2**62):
        with pytest.raises(ArgumentValueError) as refused:
            model(x, np.array([0, 1, wrong, 2, 3]))
        assert refused.value.code == "PD-O016" and "node rows" in refused.value.what
