"""Models from the command line to a call: one small model, built once for all tests of this file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import ROOT, Outcome, clear
from onnx import TensorProto, helper, numpy_helper
from toy_models import W, built_for_toy, network

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.models import optimise as building
from perfdojo_sdk.models import whole_checks
from perfdojo_sdk.models.manifest import read_model_manifest
from perfdojo_sdk.models.model import Model, base_of
from perfdojo_sdk.models.optimise import kernels_of
from perfdojo_sdk.models.tensors import read_tensors, write_tensors


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.maximum(x @ W, 0).reshape(1, -1)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network")
    built_for_toy(folder, network())
    return folder


def test_weights_that_lie_otherwise_are_refused(model: Model) -> None:
    weights = {name: np.array(array) for name, array in read_tensors_of(model).items()}
    with pytest.raises(LibraryError, match="do not lie"):
        base_of(weights)


@pytest.fixture
def model(built: Path) -> Model:
    return perfdojo_sdk.load_model(built)


X = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)


def test_a_model_gives_the_results_of_the_network(model: Model) -> None:
    y, n = model(X)
    assert np.allclose(y, expected(X), rtol=1e-5, atol=1e-6) and n.tolist() == [3, 6]
    assert y.shape == (1, 12) and np.array_equal(model(x=X, threads=1)[0], y)
    assert list(model.inputs) == ["x"] and list(model.outputs) == ["y", "n"]


#: A script that loads the model in a folder and calls it, where few modules but the standard library's are.
ALONE = """
import sys

ALLOWED = {"perfdojo_sdk", "numpy", "pydantic", "pluggy"}  # and what pydantic is made of:
ALLOWED |= {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}


class Others:
    def find_spec(self, name, *_):
        top = name.partition(".")[0]
        if top not in ALLOWED | sys.stdlib_module_names and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"no module {name} here", name=name)


sys.meta_path.insert(0, Others())
for other in ("onnx", "torch", "safetensors", "islpy", "sqlalchemy", "yaml", "rich", "typer", "ml_dtypes"):
    try:
        __import__(other)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{other} is not blocked")

import numpy as np
import perfdojo_sdk

model = perfdojo_sdk.load_model(sys.argv[1])
assert model.manifest.symbol and perfdojo_sdk.load_library(sys.argv[1] + "/library")
y, _ = model(np.load(sys.argv[2]))
model.repack({name: array for name, array in model.weights.items()})
np.save(sys.argv[3], y)
"""


def test_a_model_runs_where_nothing_but_the_base_install_is(built: Path, tmp_path: Path) -> None:
    """No package that only building needs is imported, and there is no compiler."""
    np.save(tmp_path / "x.npy", X)
    given = [built, tmp_path / "x.npy", tmp_path / "y.npy"]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *given],
        **{"cwd": tmp_path, "capture_output": True, "text": True},
        env={"PYTHONPATH": str(ROOT), "PATH": str(tmp_path), "PERFDOJO_PLUGINS": ""},
    )
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.load(tmp_path / "y.npy"), expected(X), rtol=1e-5, atol=1e-6)


def test_a_bound_call_reads_its_inputs_and_writes_its_outputs_anew(model: Model) -> None:
    x = X.copy()
    run = model.bind(x, threads=1)
    y, n = run()
    assert np.array_equal(y, model(x)[0]) and n.tolist() == [3, 6]
    x *= 2
    again, _ = run()
    assert again is y and np.array_equal(y, model(x)[0])
    for named, words in (({"z": x}, "z is no input"), ({"x": x}, "x is given twice"), ({"out": x}, "fresh")):
        with pytest.raises(TypeError) as caught:
            model.bind(x, **named)
        assert words in str(caught.value) and "takes 1 input (x)" in str(caught.value)
    with pytest.raises(ValueError, match="expected an array in C order"):
        model.bind(np.asfortranarray(x))


@pytest.mark.parametrize(
    ("shape", "what", "hint"),
    [
        ((18,), "x has 1 dimension, [18]; the model takes 2, f32 [3,6]", "x.reshape(3, 6)"),
        ((1, 3, 6), "x has 3 dimensions, [1,3,6]; the model takes 2, f32 [3,6]", "x.reshape(3, 6)"),
        ((6, 3, 1), "x has 3 dimensions", "the model was built for f32 [3,6]"),
        ((1, 5, 6), "x has 3 dimensions", "leave its first dimension out: x[0]"),
        ((6,), "x has 1 dimension, [6]; the model takes 2", "the model was built for f32 [3,6]"),
        ((), "x has 0 dimensions, []; the model takes 2", "the model was built for f32 [3,6]"),
        (
            (3, 5),
            "x has the shape [3,5], the model takes f32 [3,6]",
            "for these sizes with --input 'x=f32[3,5]'",
        ),
        ((4, 6), "x has the shape [4,6], the model takes f32 [3,6]", "--input 'x=f32[batch,6]'"),
    ],
)
def test_arrays_of_another_shape_are_refused_with_both_shapes(
    model: Model, shape: tuple[int, ...], what: str, hint: str
) -> None:
    for call in (model, model.bind):
        with pytest.raises(ArgumentValueError) as refused:
            call(np.ones(shape, np.float32))
        assert what in refused.value.what and hint in refused.value.hint


def test_a_bound_call_goes_on_with_the_weights_that_it_was_bound_to(model: Model) -> None:
    run = model.bind(X)
    before = run()[0].copy()
    model.repack({name: 2 * array for name, array in model.weights.items()})
    assert np.array_equal(run()[0], before) and not np.array_equal(model(X)[0], before)


def test_equal_kernels_are_built_once(model: Model) -> None:
    kernels = [node.kernel for node in model.manifest.nodes]
    assert len(kernels) == 3 and len(set(kernels)) == 2
    graph = lower(network()).graph
    assert graph is not None and {k.name for k in kernels_of(graph)} == set(kernels)


def test_one_function_in_c_gives_the_bits_of_the_kernels(model: Model, built: Path, tmp_path: Path) -> None:
    assert model.manifest.symbol == "pd_model_network"
    (header,) = (built / "library" / "include").glob("*.h")
    prototype = "int pd_model_network(const float *x0, float *y0, int64_t *y1, const void *weights,"
    assert prototype in header.read_text()
    apart = perfdojo_sdk.load_model(changed(built, tmp_path, lambda d: d.update(symbol="")))
    for wrong in ({}, {"x": None}, {"x": X, "threads": 0}):
        with pytest.raises((TypeError, ValueError)):
            apart.bind(**wrong)
    for results in (apart(X), apart.bind(X)()):
        assert all((one == other).all() for one, other in zip(model(X), results, strict=True))


def test_the_function_refuses_a_small_workspace(model: Model) -> None:
    library = perfdojo_sdk.load_library(model.directory / "library")
    run, needed = library.function(model.manifest.symbol, 4)
    y, n, space = np.zeros((1, 12), np.float32), np.zeros(2, np.int64), np.zeros(1 << 20, np.uint8)
    weights = b"".join(a.tobytes() for _, a in sorted(read_tensors_of(model).items(), key=wide_first))
    held = np.frombuffer(weights, np.uint8).copy()
    places = [a.ctypes.data for a in (X, y, n, held, space)]
    bytes_ = needed(1)
    assert run(*places, bytes_ - 1, 1) == 1 and not y.any()
    assert run(*places, bytes_, 1) == 0 and np.allclose(y, expected(X), rtol=1e-5, atol=1e-6)
    assert n.tolist() == [3, 6]


def read_tensors_of(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    return read_tensors(model.directory / "weights.safetensors", model.directory)


def wide_first(item: tuple[str, np.ndarray[Any, Any]]) -> tuple[int, str]:
    """The order of the file."""
    return -item[1].dtype.itemsize, item[0]


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
    with pytest.raises(ArgumentTypeError, match=r"1 input \(x\), not 2"):
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
        lambda d: d.update(cuts=[{"output": "y", "axis": 0, "count": "n"}]),
        lambda d: d.update(cuts=[{"output": "n", "axis": 0, "count": "y"}]),
        lambda d: d["values"]["y"].update(dtype="i64"),
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


def test_a_wrong_package_is_found(built: Path) -> None:
    """One whose arrays lie on each other although both are needed."""
    model, graph = perfdojo_sdk.load_model(built), lower(network()).graph
    assert graph is not None
    offsets = dict.fromkeys(model.manifest.offsets, 0)
    wrong = model.manifest.model_copy(update={"offsets": offsets, "symbol": ""})
    library = perfdojo_sdk.load_library(built / "library")
    with pytest.raises(DojoError, match="overlap|differs"):
        whole_checks.checked(graph, graph, Model(built, wrong, library, read_tensors_of(model)))


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
    made.graph.node.append(helper.make_node("RandomNormalLike", ["x"], ["z"], name="places"))
    made.graph.output.append(onnx.ValueInfoProto(name="z"))
    onnx.save(made, tmp_path / "m.onnx")
    refused = cli("optimize", "m.onnx", plugins="toy")
    clear(refused, 1, "PD-O004")
    assert "places" in refused.err and not (tmp_path / "build").exists()
    listed = cli("optimize", "m.onnx", "--list", "--json", plugins="toy")
    assert listed.code == 1 and [r["operator"] for r in listed.data["refused"]] == ["RandomNormalLike"]


def test_inputs_that_decide_about_shapes_are_listed_with_the_nodes_that_need_them(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["a"], name="border"),
        helper.make_node("RandomNormalLike", ["x"], ["b"], name="noise"),
        helper.make_node("Tile", ["x", "t"], ["c"], name="copies"),
    ]
    given = [("x", TensorProto.FLOAT, [3, 4]), ("p", TensorProto.INT64, [4]), ("t", TensorProto.INT64, [2])]
    inputs = [helper.make_tensor_value_info(*each) for each in given]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in "abc"])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    onnx.save(made, tmp_path / "m.onnx")
    listed = cli("optimize", "m.onnx", "--list", "--json", plugins="toy")
    assert listed.code == 1 and [r["node"] for r in listed.data["refused"]] == ["border", "noise", "copies"]
    refused = cli("optimize", "m.onnx", plugins="toy")
    clear(refused, 1, "PD-O003")
    assert "shapes depend on the values of p, t" in refused.err and "initializer" in refused.err
    assert "border (Pad), copies (Tile)" in refused.err
    del graph.node[1]
    del graph.output[1]
    values = {"p": [0, 1, 2, 0], "t": [2, 1]}
    graph.initializer.extend(numpy_helper.from_array(np.array(v), n) for n, v in values.items())
    onnx.save(helper.make_model(graph, opset_imports=made.opset_import), tmp_path / "m.onnx")
    assert cli("optimize", "m.onnx", "--list", plugins="toy").code == 0


def test_a_model_with_strings_is_listed_whole(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    """Nodes that need the strings as well, bodies of loops and functions, and whatever sizes strings have."""

    def noise(op: str) -> Any:
        node = helper.make_node(op, ["x"], ["n"])
        return helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="n")])

    found = helper.make_function(
        "own", "Noisy", ["a"], ["b"], [helper.make_node("Bernoulli", ["a"], ["b"])],
        [helper.make_opsetid("", 20)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Equal", ["s", "word"], ["same"], name="compare"),
        helper.make_node("Bernoulli", ["x"], ["a"], name="before"),
        helper.make_node("Cast", ["same"], ["number"], to=TensorProto.FLOAT, name="number"),
        helper.make_node("Bernoulli", ["number"], ["b"], name="behind"),
        helper.make_node("Noisy", ["number"], ["c"], name="called", domain="own"),
        helper.make_node(
            "If", ["same"], ["d"], name="branch",
            then_branch=noise("RandomNormalLike"), else_branch=noise("RandomUniformLike"),
        ),
        helper.make_node("SequenceAt", ["list", "zero"], ["e"], name="first"),
        helper.make_node("Abs", ["x"], ["f"], name="fine"),
    ]  # fmt: skip
    strings = helper.make_tensor_type_proto(TensorProto.STRING, None)
    inputs = [
        helper.make_tensor_value_info("s", TensorProto.STRING, ["n", "m"]),
        helper.make_value_info("list", helper.make_sequence_type_proto(strings)),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
    ]
    weights = [helper.make_tensor("word", TensorProto.STRING, [1], [b"a"])]
    weights.append(helper.make_tensor("zero", TensorProto.INT64, [], [0]))
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=n) for n in "abcdef"], weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=[found]), tmp_path / "m.onnx")
    listed = cli("optimize", "m.onnx", "--list", "--json", plugins="toy")
    rows = [(r["node"], r["what"].split()[0]) for r in listed.data["refused"]]
    assert sorted(rows) == [
        ("before", "RandomUniformLike"), ("behind", "Bernoulli"), ("branch", "RandomNormalLike"),
        ("branch", "RandomUniformLike"), ("called", "Bernoulli"), ("initializer word", "arrays"),
        ("input list", "arrays"), ("input s", "arrays"),
    ]  # fmt: skip


def test_what_a_target_lacks_is_listed_beside_what_has_no_rule(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["y"], name="places"),
        helper.make_node("Sin", ["x"], ["z"], name="wave"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in "yz"])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "m.onnx")
    words = ("optimize", "m.onnx", "--list", "--json", "--target")
    listed = cli(*words, "riscv_snitch", plugins="riscv_snitch")
    assert [r["node"] for r in listed.data["refused"]] == ["places", "wave"]
    assert [r["node"] for r in cli(*words, "toy", plugins="toy").data["refused"]] == ["places"]


@pytest.mark.parametrize(("rows", "node"), [("3", "total"), ("batch", "places")])
def test_the_operator_that_makes_a_size_of_data_is_named(
    cli: Callable[..., Outcome], tmp_path: Path, rows: str, node: str
) -> None:
    """Named by the one that needs the size, through others; and where rows cannot be free."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"], name="places"),
        helper.make_node("Transpose", ["n"], ["t"], name="turned"),
        helper.make_node("ReduceSum", ["t"], ["y"], name="total"),
    ]
    size = int(rows) if rows.isdigit() else rows
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, 4])]
    output = "y" if rows.isdigit() else "n"
    kept = nodes if rows.isdigit() else nodes[:1]
    graph = helper.make_graph(kept, "g", inputs, [onnx.ValueInfoProto(name=output)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    onnx.save(made, tmp_path / "m.onnx")
    listed = cli("optimize", "m.onnx", "--list", "--json", plugins="toy")
    [row] = listed.data["refused"]
    assert row["node"] == node and row["operator"] == ("ReduceSum" if node == "total" else "NonZero")
    assert node == "places" or "on what places (NonZero) finds" in row["what"]
    assert (
        "1 part of m.onnx is not supported" in cli("optimize", "m.onnx", plugins="toy").err
        or node == "places"
    )


def test_open_sizes_are_given_by_name(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    onnx.save(network("rows"), tmp_path / "m.onnx")
    refused = cli("optimize", "m.onnx", plugins="toy")  # its output n is the number of rows
    clear(refused, 1, "PD-O050")
    assert "output n" in refused.err
    listed = cli("optimize", "m.onnx", "--input", "x=f32[5,6]", "--list", "--json", plugins="toy")
    assert listed.code == 0 and listed.data["kernels"] == 2
    assert cli("optimize", "m.onnx", "--input", "x=5,6", "--list", plugins="toy").code == 2
    (tmp_path / "bad.onnx").write_bytes(b"\x00not a model")
    clear(cli("optimize", "bad.onnx", plugins="toy"), 1, "PD-O002")
    clear(cli("optimize", "missing.onnx", plugins="toy"), 1, "PD-O002")


def test_a_model_where_a_library_is_meant_is_told_with_its_library(
    cli: Callable[..., Outcome], built: Path
) -> None:
    refused = cli("bench", str(built), plugins="toy")
    clear(refused, 1, "PD-L001")
    assert "it holds a model" in refused.err and f"library is {built / 'library'}" in refused.err


# -- the guide -----------------------------------------------------------------------------------------


def test_the_guide_writes_a_model_that_is_supported_and_runs(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Its scripts, in order; the package of the network of this file stands for the one that they build."""
    blocks = (ROOT / "docs" / "models.md").read_text().split("```python\n")[1:]
    scripts = [block.partition("```")[0] for block in blocks if "torch" not in block.partition("```")[0]]
    names: dict[str, Any] = {"np": np}
    exec(compile(scripts[0], "models.md", "exec"), names)
    listed = cli("optimize", "cnn.onnx", "--input", "x=f32[2,3,16,16]", "--list", plugins="toy")
    assert listed.code == 0 and "everything is supported" in listed.out
    [backend] = [script for script in scripts if "onnx.backend" in script]
    made = onnx.load("cnn.onnx")
    for size in made.graph.input[0].type.tensor_type.shape.dim[2:]:
        size.dim_value = 4
    onnx.save(made, "small.onnx")
    small = backend.replace("(2, 3, 16, 16)", "(1, 3, 4, 4)").replace("cnn.onnx", "small.onnx")
    exec(compile(small, "models.md", "exec"), names)
    assert names["y"].shape == (1, 10) and np.allclose(names["y"].sum(), 1, atol=1e-5)
    assert 'load_model("build/models/cnn")' in scripts[1]


# -- indices that are data -------------------------------------------------------------------------


def test_indices_lengths_and_bits_that_are_data_pass_through_a_package(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Gather", ["x", "k"], ["y"], name="rows", axis=0),
        helper.make_node("NonZero", ["k"], ["n"]),
        helper.make_node("BitCast", ["y"], ["b"], to=TensorProto.INT32),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in "ynb"]
    given = [("x", TensorProto.FLOAT, (4, 3)), ("k", TensorProto.INT64, (5,))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*each) for each in given], outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)]), tmp_path / "g.onnx")
    built = cli("optimize", "g.onnx", "-o", "g", "--target", "toy", plugins="toy")
    assert built.code == 0, built.err
    model = perfdojo_sdk.load_model(tmp_path / "g")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for places in ([0, -1, 3, -4, 1], [0] * 5):
        y, found, bits = model(x, np.array(places))
        assert (y == x[places]).all() and bits.dtype == np.int32 and bits.tobytes() == y.tobytes()
        assert found.tolist() == [np.nonzero(places)[0].tolist()]
    assert list(model.outputs) == ["y", "n", "b"]
    for wrong in (4, -5, 2**62):
        with pytest.raises(ArgumentValueError) as refused:
            model(x, np.array([0, 1, wrong, 2, 3]))
        assert refused.value.code == "PD-O016" and "node rows" in refused.value.what


def test_the_arrays_of_a_sequence_are_inputs_of_a_package(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    node = helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0)
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    graph = helper.make_graph(
        [node], "g", [helper.make_value_info("q", kind)], [onnx.ValueInfoProto(name="y")]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "q.onnx")
    unknown = cli("optimize", "q.onnx", "--list", plugins="toy")
    clear(unknown, 1, "PD-O002")
    assert "--input 'q[0]=...'" in unknown.err
    given = ("--input", "q[0]=f32[2,3]", "--input", "q[1]=[1,3]")
    wrong = cli("optimize", "q.onnx", *given, "--input", "q[3]=[1,3]", plugins="toy")
    clear(wrong, 1, "PD-O062")
    built = cli("optimize", "q.onnx", *given, "-o", "q", "--target", "toy", plugins="toy")
    assert built.code == 0, built.err
    one, other = np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)
    model = perfdojo_sdk.load_model(tmp_path / "q")
    assert list(model.inputs) == ["q[0]", "q[1]"]
    assert (model(one, other) == np.concatenate([one, other])).all()


# -- memory ----------------------------------------------------------------------------------------


def test_a_model_that_needs_too_much_memory_is_refused_before_it_is_built(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    refused = cli("optimize", "m.onnx", "--max-memory", "200", plugins="toy")
    clear(refused, 1, "PD-O031")
    assert "weights 112" in refused.err and not (tmp_path / "build").exists()


def test_temporaries_of_kernels_count_as_memory() -> None:
    building.refuse_beyond(building.Peak(1, 2, 3, 4), 10)
    with pytest.raises(building.ModelError, match="needs 10 bytes, more than 9"):
        building.refuse_beyond(building.Peak(1, 2, 3, 4), 9)


def test_explain_plan_prints_a_verdict_for_each_array(
    cli: Callable[..., Outcome], built: Path, tmp_path: Path
) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    shown = cli("explain-plan", "m.onnx", "--json", plugins="toy")
    assert shown.code == 0 and [e["fused"] for e in shown.data["edges"]] == [True, True]
    assert shown.data["edges"][0]["bytes"] == 2 * 3 * 4 * 4 and shown.data["edges"][0]["seconds"] > 0
    text = cli("explain-plan", "m.onnx", plugins="toy")
    assert "2 of 2 arrays stay inside of a kernel" in text.out and "product" in text.out
    apart = cli("explain-plan", str(built), plugins="toy")
    assert apart.code == 0 and "no kernel reads" in apart.out
    onnx.save(network("rows"), tmp_path / "open.onnx")
    assert cli("explain-plan", "open.onnx", "--input", "x=f32[5,6]", plugins="toy").code == 0
    clear(cli("explain-plan", str(tmp_path), plugins="toy"), 1, "PD-O010")
    [name, *_] = shown.data["kernels"]
    assert f"  {name}\n" in text.out and "explains the plan of one of 1 kernel:" in text.out
    untold = cli("explain-plan", "m.onnx", "--kernel", name, plugins="toy")
    clear(untold, 3, "PD-G016")
    clear(cli("explain-plan", "m.onnx", "--kernel", "relu", plugins="toy"), 5, "PD-O063")
    for words in (("--constant", "w"), ("--kernel", name, "--constant", "w")):
        refused = cli("explain-plan", "m.onnx", *words, plugins="toy")
        assert refused.code == 2 and "--constant is for programs" in refused.err


def test_a_file_that_is_no_model_yet_is_to_be_built(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    with pytest.raises(LibraryError) as raised:
        read_model_manifest(tmp_path / "net.onnx")
    assert "perfdojo-sdk optimize" in raised.value.hint
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(LibraryError) as raised:
        read_model_manifest(tmp_path / "net.onnx")
    assert raised.value.hint == f"name the folder: {tmp_path}"
