"""Models for a few lengths of a dimension: calls of any length, checks of the padding, and the folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import Outcome, clear
from onnx import TensorProto, helper, numpy_helper

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.rows import free_rows
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.bucketing import Lengths, compared_lengths, optimise_buckets
from perfdojo_sdk.models.buckets import BucketedModel, load_model, pad_of
from perfdojo_sdk.models.manifest import BUCKETS
from perfdojo_sdk.models.model import load_one
from perfdojo_sdk.models.optimise import ModelError, optimise
from perfdojo_sdk.plugins import Plugins

node = helper.make_node
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
QUICK = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)


def data(name: str, *shape: int) -> Any:
    draw = np.random.default_rng(sum(map(ord, name)))
    return numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)


def numbers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def attention(mask: bool, batch: int | str = 1) -> Any:
    """One head over ids, of which a mask hides some; without a mask all see all."""
    bias = [
        node("Cast", ["mask"], ["kept"], to=FLOAT),
        node("Sub", ["kept", "one"], ["hidden"]),
        node("Mul", ["hidden", "large"], ["bias"]),
        node("Unsqueeze", ["bias", "middle"], ["wide"]),
        node("Add", ["raw", "wide"], ["scores"]),
    ]
    nodes = [
        node("Gather", ["table", "ids"], ["x"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["x", "kt"], ["raw"]),
        *(bias if mask else [node("Identity", ["raw"], ["scores"])]),
        node("Softmax", ["scores"], ["p"]),
        node("MatMul", ["p", "x"], ["y"]),
    ]
    given = [helper.make_tensor_value_info("ids", INT, [batch, "length"])]
    given += [helper.make_tensor_value_info("mask", INT, [batch, "length"])] if mask else []
    constants = [data("table", 5, 8), data("wk", 8, 8), numbers("middle", 1)]
    constants += [numpy_helper.from_array(np.float32(v), n) for n, v in (("one", 1), ("large", 1e9))]
    graph = helper.make_graph(nodes, "m", given, [onnx.ValueInfoProto(name="y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def at(made: Any, names: tuple[str, ...], rows: int = 1) -> Callable[[int], Graph]:
    def lowered(length: int) -> Graph:
        graph = lower(made, dict.fromkeys(names, (rows, length))).graph
        assert graph is not None
        return graph

    return lowered


MASKED = at(attention(True), ("ids", "mask"))
BOTH = {"ids": (1,), "mask": (1,)}


def asked(length: int, rows: int = 1) -> dict[str, Any]:
    ids = np.random.default_rng(length).integers(0, 5, (rows, length))
    mask = np.ones((rows, length), np.int64)
    mask[:, 2:3] = 0
    return {"ids": ids, "mask": mask}


def close(found: Mapping[str, Any] | Any, expected: Any) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def built(linking_toy: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("buckets")
    model = Lengths("seq", (8, 4), BOTH, MASKED, {"mask": 0.0})
    result = optimise_buckets(linking_toy, linking_toy.target("toy"), model, folder, QUICK)
    assert result.manifest.checks == (
        "agrees with its graph as given at exactly seq = 1, 2, 3, 4, 5, 6, 7, 8",
    )
    assert list(result.buckets) == [4, 8] and result.weights == sum(
        a.nbytes for a in perfdojo_sdk.load_model(folder).weights.values()
    )
    yield folder


def test_every_length_gives_the_outputs_of_its_own_graph(built: Path) -> None:
    model = perfdojo_sdk.load_model(built)
    assert isinstance(model, BucketedModel) and list(model.models) == [4, 8]
    for length in range(1, 9):
        given = asked(length)
        y = model(given["ids"], given["mask"])
        assert close(y, run_graph(MASKED(length), given)[0]) and y.flags.c_contiguous and y.flags.writeable
        run = model.bind(**given, threads=1)
        assert np.array_equal(run(), y) and np.array_equal(model(mask=given["mask"], ids=given["ids"]), y)
    assert "2 buckets of seq (4, 8)" in repr(model) and model.text("ids") == "i64 [1,seq]"


def test_other_lengths_and_arrays_are_refused_in_words(built: Path) -> None:
    model = perfdojo_sdk.load_model(built)
    good = asked(3)
    with pytest.raises(
        ArgumentValueError, match=r"length 9 \(seq\), the model takes 1 to 8: .* 4, 8"
    ) as long:
        model(**asked(9))
    assert "--buckets seq=4,8,9" in long.value.hint
    with pytest.raises(ArgumentValueError, match="has the length 0"):
        model(**{n: a[:, :0] for n, a in good.items()})
    with pytest.raises(ArgumentValueError, match=r"ids has the length 3 \(seq\), mask has 2"):
        model(good["ids"], good["mask"][:, :2])
    with pytest.raises(ArgumentValueError, match=r"ids has the shape \[3\], the model takes i64 \[1,seq\]"):
        model(good["ids"][0], good["mask"])
    with pytest.raises(ArgumentValueError, match=r"mask has the shape \[2,3\]"):
        model(good["ids"], np.ones((2, 3), np.int64))
    with pytest.raises(ArgumentTypeError, match="ids is float64"):
        model(good["ids"].astype(float), good["mask"])
    with pytest.raises(ArgumentTypeError, match="input mask is missing"):
        model(good["ids"])
    with pytest.raises(ArgumentTypeError, match="takes 2 inputs"):
        model.bind(1, 2, 3)


def test_weights_lie_once_and_other_weights_reach_every_bucket(built: Path) -> None:
    files = [built / name / "weights.safetensors" for name in ("4", "8")]
    assert len({file.stat().st_ino for file in files}) == 1
    model = perfdojo_sdk.load_model(built)
    before = [model(**asked(length)) for length in (3, 7)]
    [table] = [name for name, array in model.weights.items() if array.shape == (5, 8)]
    model.repack({table: 2 * model.weights[table]})
    assert not any(close(model(**asked(n)), y) for n, y in zip((3, 7), before, strict=True))
    model.repack({table: perfdojo_sdk.load_model(built).weights[table]})
    assert all(np.array_equal(model(**asked(n)), y) for n, y in zip((3, 7), before, strict=True))


def test_a_changed_folder_is_refused(built: Path, tmp_path: Path) -> None:
    import shutil

    for number, (file, change, words) in enumerate(
        [
            (BUCKETS, lambda d: d.update(buckets=d["buckets"][::-1]), "not ascending"),
            (BUCKETS, lambda d: d.update(pads={"y2": 1.0}), "padded that has not"),
            (BUCKETS, lambda d: d.update(axes={"ids": [1]}), "inputs and outputs"),
            (BUCKETS, lambda d: d["axes"].update(ids=[7]), "inputs and outputs"),
            (BUCKETS, lambda d: d["buckets"][0].update(length=5), "cannot read"),
            ("4/model.json", lambda d: d.update(name="other"), "is not the bucket"),
        ]
    ):
        folder = tmp_path / str(number)
        shutil.copytree(built, folder)
        found = json.loads((folder / file).read_text())
        change(found)
        (folder / file).write_text(json.dumps(found))
        with pytest.raises(LibraryError, match=words):
            load_model(folder)
    (tmp_path / "0" / BUCKETS).write_text("{")
    with pytest.raises(LibraryError, match="is no manifest"):
        load_model(tmp_path / "0")


def test_padding_that_is_seen_is_refused_before_anything_is_built(
    linking_toy: Plugins, tmp_path: Path
) -> None:
    open_model = at(attention(False), ("ids",))
    toy = linking_toy.target("toy")
    with pytest.raises(ModelError, match="PD-O053") as refused:
        optimise_buckets(linking_toy, toy, Lengths("seq", (4, 8), {"ids": (1,)}, open_model), tmp_path, QUICK)
    error = refused.value
    assert "output y depends on the padding: at seq = 1, padded to the bucket 4, it differs by" in error.what
    assert "--pad MASK=0" in error.hint and not list(tmp_path.iterdir())
    # The mask is there, and what it is padded with hides nothing.
    model = Lengths("seq", (4,), BOTH, MASKED, {"mask": 1.0})
    with pytest.raises(ModelError, match="PD-O053"):
        optimise_buckets(linking_toy, toy, model, tmp_path, QUICK)


@pytest.mark.parametrize("dtype", [FLOAT, INT])
@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ArgMax"])
def test_extrema_over_the_length_see_the_padding(
    operator: str, dtype: int, linking_toy: Plugins, tmp_path: Path
) -> None:
    """Zeros are a maximum of negative numbers only, and a minimum of positive ones."""
    x = helper.make_tensor_value_info("x", dtype, [2, "length"])
    axes = {"axis": 1} if operator == "ArgMax" else {}
    constants = [] if axes else [numbers("axes", 1)]
    nodes = [node(operator, ["x", *(["axes"] if not axes else [])], ["y"], keepdims=0, **axes)]
    graph = helper.make_graph(nodes, "m", [x], [onnx.ValueInfoProto(name="y")], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model = Lengths("seq", (2, 5), {"x": (1,)}, at(made, ("x",), 2))
    with pytest.raises(ModelError, match="PD-O053"):
        optimise_buckets(linking_toy, linking_toy.target("toy"), model, tmp_path, QUICK)


def test_a_model_that_looks_back_only_needs_no_mask(linking_toy: Plugins, tmp_path: Path) -> None:
    def causal(length: int) -> Graph:
        nodes = [node("CumSum", ["x", "axis"], ["s"]), node("Mul", ["s", "w"], ["y"])]
        given = [helper.make_tensor_value_info("x", FLOAT, [2, length, 3])]
        constants = [numpy_helper.from_array(np.int64(1), "axis"), data("w", 3)]
        graph = helper.make_graph(nodes, "c", given, [onnx.ValueInfoProto(name="y")], constants)
        found = lower(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])).graph
        assert found is not None
        return found

    model = Lengths("n", (2, 5), {"x": (1,)}, causal)
    optimise_buckets(linking_toy, linking_toy.target("toy"), model, tmp_path, QUICK)
    loaded = load_model(tmp_path)
    for length in (1, 2, 3, 5):
        x = np.random.default_rng(0).standard_normal((2, length, 3)).astype(np.float32)
        assert close(loaded(x), run_graph(causal(length), {"x": x})[0])
    # A model without buckets takes the place of one with them, and the other way round.
    toy = linking_toy.target("toy")
    optimise(linking_toy, toy, causal(3), tmp_path, QUICK)
    assert not isinstance(load_model(tmp_path), BucketedModel)
    optimise_buckets(linking_toy, toy, model, tmp_path, QUICK)
    assert isinstance(load_model(tmp_path), BucketedModel) and not (tmp_path / "model.json").exists()


def test_equal_kernels_of_buckets_are_built_once(linking_toy: Plugins, tmp_path: Path) -> None:
    """A kernel that does not read the length is the same in all; its record is found by the second bucket."""
    from perfdojo_sdk.library.build import Observer

    class Stages(Observer):
        def __init__(self) -> None:
            self.measured: list[str] = []

        def stage(self, kernel: Any, stage: str) -> None:
            self.measured += [kernel.name] if stage == "verifying" else []

    def lowered(length: int) -> Graph:
        nodes = [node("Exp", ["t"], ["e"]), node("Relu", ["x"], ["y"])]
        given = [
            helper.make_tensor_value_info("x", FLOAT, [length]),
            helper.make_tensor_value_info("t", FLOAT, [3]),
        ]
        outputs = [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="e")]
        graph = helper.make_graph(nodes, "s", given, outputs)
        found = lower(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])).graph
        assert found is not None
        return found

    seen = Stages()
    model = Lengths("n", (2, 4), {"x": (0,)}, lowered)
    result = optimise_buckets(linking_toy, linking_toy.target("toy"), model, tmp_path, QUICK, seen)
    kernels = [set(made.manifest.kernels) for made in result.buckets.values()]
    shared = kernels[0] & kernels[1]
    assert len(shared) == 1 and all(seen.measured.count(name) == 1 for name in shared | kernels[1])
    y, e = load_model(tmp_path)(np.float32([-1, 1, 2]), np.zeros(3, np.float32))
    assert y.tolist() == [0, 1, 2] and e.tolist() == [1, 1, 1]


def running_sum(rows: int, length: int) -> Graph:
    nodes = [node("CumSum", ["x", "axis"], ["y"])]
    given = [helper.make_tensor_value_info("x", FLOAT, [rows, length])]
    constants = [numpy_helper.from_array(np.int64(1), "axis")]
    graph = helper.make_graph(nodes, "r", given, [onnx.ValueInfoProto(name="y")], constants)
    found = lower(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])).graph
    assert found is not None
    return found


def test_rows_are_free_beside_a_length(linking_toy: Plugins, tmp_path: Path) -> None:
    def lowered(length: int) -> Any:
        return free_rows(lambda rows: running_sum(rows, length), ["x"], "batch", 9)

    model = Lengths("seq", (3, 5), {"x": (1,)}, lowered)
    optimise_buckets(linking_toy, linking_toy.target("toy"), model, tmp_path, QUICK, sizes=(1, 2))
    loaded = load_model(tmp_path)
    assert isinstance(loaded, BucketedModel) and loaded.text("x") == "f32 [batch,seq]"
    for length, rows in ((1, 1), (2, 3), (5, 2), (4, 9)):
        x = np.random.default_rng(rows).standard_normal((rows, length)).astype(np.float32)
        assert close(loaded(x), np.cumsum(x, 1))
    with pytest.raises(ArgumentValueError, match="10 rows"):
        loaded(np.ones((10, 2), np.float32))


def test_outputs_that_cannot_be_cut_and_wrong_options_are_refused(
    linking_toy: Plugins, tmp_path: Path
) -> None:
    def doubled(length: int) -> Graph:
        nodes = [node("Concat", ["x", "x"], ["y"], axis=0)]
        given = [helper.make_tensor_value_info("x", FLOAT, [length])]
        graph = helper.make_graph(nodes, "d", given, [onnx.ValueInfoProto(name="y")])
        found = lower(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])).graph
        assert found is not None
        return found

    whole = Lengths("seq", (4, 8), BOTH, MASKED)
    for model, words in (
        (
            Lengths("n", (2, 4), {"x": (0,)}, doubled),
            "output y cannot be cut back .* 2 for 1, 4 for 2, 8 for 4",
        ),
        (replace(whole, buckets=()), "buckets of the lengths none"),
        (replace(whole, buckets=(0, 4)), "at most 64 lengths"),
        (replace(whole, pads={"nobody": 0}), "no input of this name .* ids, mask"),
        (replace(whole, pads={"mask": 0.5}), "mask is i64, which has no such value"),
    ):
        with pytest.raises(ModelError, match=f"(?s)PD-O054.*{words}"):
            optimise_buckets(linking_toy, linking_toy.target("toy"), model, tmp_path, QUICK)


def test_values_of_padding_are_those_of_the_dtype() -> None:
    good = [(-np.inf, "f32"), (-1e9, "f32"), (1, "bool"), (-5, "i8"), (255, "u8")]
    bad = [(-1e9, "f16"), (2, "bool"), (0.5, "i64"), (256, "u8"), (-1, "u8"), (np.inf, "i32"), (1e30, "i64")]
    assert all(pad_of(value, dtype) is not None for value, dtype in good)
    assert all(pad_of(value, dtype) is None for value, dtype in bad)


def test_lengths_that_are_compared() -> None:
    assert compared_lengths((16, 64)) == (1, 8, 15, 16, 17, 40, 63, 64)
    assert compared_lengths((1,)) == (1,)


# -- the command ------------------------------------------------------------------------------------


def test_the_command_shows_and_verifies(built: Path, cli: Callable[..., Outcome], tmp_path: Path) -> None:
    onnx.save(attention(True), tmp_path / "m.onnx")
    folder = str(built)
    shown = cli("show", folder, plugins="toy")
    assert shown.code == 0 and "i64 [1,seq]" in shown.out and "any seq from 1 to 8" in shown.out
    assert cli("show", folder, "--json", plugins="toy").data["pads"] == {"ids": 0, "mask": 0}
    assert "calls of" in cli("show", f"{folder}/4", plugins="toy").out
    several = {name: np.stack([array] * 3) for name, array in asked(3).items()}
    np.savez(tmp_path / "d.npz", **several)
    for more in ((), ("--original", "m.onnx")):
        verified = cli("verify", folder, "--data", "d.npz", *more, "--json", plugins="toy")
        assert verified.code == 0 and verified.data["samples"] == 3 and verified.data["passed"], verified.err
    np.savez(tmp_path / "long.npz", **asked(9))
    clear(cli("verify", folder, "--data", "long.npz", plugins="toy"), 1, "PD-L011")
    clear(cli("explain-plan", folder, plugins="toy"), 1, "PD-O010")
    assert cli("explain-plan", f"{folder}/4", plugins="toy").code == 0


def test_the_command_builds_buckets(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    given = [helper.make_tensor_value_info("x", FLOAT, ["batch", "length"])]
    graph = helper.make_graph([node("Relu", ["x"], ["y"])], "m", given, [onnx.ValueInfoProto(name="y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "m.onnx")
    words = ("m.onnx", "--input", "x=[1,seq]", "--buckets", "seq=3,2")
    listed = cli("optimize", *words, "--list", "--json", plugins="toy")
    assert listed.code == 0 and listed.data["buckets"] == [2, 3]
    made = cli("optimize", *words, "-o", "m", "--target", "toy", "--threads", "1", "--json", plugins="toy")
    assert made.code == 0 and list(made.data["buckets"]) == ["2", "3"], made.err
    assert made.data["checks"] == ["agrees with its graph as given at exactly seq = 1, 2, 3"]
    assert perfdojo_sdk.load_model(tmp_path / "m")(np.float32([[-1]])).tolist() == [[0]]


def test_the_command_refuses_what_goes_not_together(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    onnx.save(attention(True), tmp_path / "m.onnx")
    onnx.save(attention(False), tmp_path / "open.onnx")
    seen = cli("optimize", "open.onnx", "--buckets", "length=2,4", plugins="toy")
    clear(seen, 1, "PD-O053")
    assert "output y depends on the padding: at length = 1" in seen.err and "--pad" in seen.err
    clear(cli("optimize", "m.onnx", "--buckets", "seq=2,4", plugins="toy"), 1, "PD-O054")
    twice = cli("optimize", "m.onnx", "--buckets", "length=2", "--buckets", "seq=4", plugins="toy")
    clear(twice, 1, "PD-O054")
    assert "given 2 times, for length and seq" in twice.err and "--buckets length=16,32,64" in twice.err
    advice = cli("optimize", "m.onnx", plugins="toy")
    clear(advice, 1, "PD-O052")
    assert "--buckets length=16,32,64" in advice.err
    fallback = ("--buckets", "length=2", "--fallback", "torch")
    clear(cli("optimize", "m.onnx", *fallback, plugins="toy"), 1, "PD-O054")
    for words in (("--pad", "mask=0"), ("--buckets", "4,8"), ("--buckets", "length=4", "--pad", "mask=x")):
        assert cli("optimize", "m.onnx", *words, plugins="toy").code == 2


def test_a_folder_of_buckets_is_no_single_model(built: Path) -> None:
    with pytest.raises(DojoError, match="PD-O010.* holds a model for each of a few lengths") as refused:
        load_one(built)
    assert refused.value.hint.startswith(f"name one of {built / '4'}, ")
