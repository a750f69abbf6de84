"""Models with shorter numbers: which layers are quantised, and by which samples."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import Outcome, clear
from onnx import helper, numpy_helper
from onnx_models import model

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.calibration import BF16, INT4, INT8, in_float64, layers_of
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.integer_kernel import Unit
from perfdojo_sdk.graph.integers import REQUANTISATION, with_integer_sums
from perfdojo_sdk.graph.running import interpreted, run_graph
from perfdojo_sdk.models import shortening
from perfdojo_sdk.models.shortening import error_of, read_samples, reference_of, shortened

RANDOM = np.random.default_rng(0)
SAMPLES = [{"x": RANDOM.standard_normal((4, 6)).astype(np.float32)} for _ in range(2)]


def network() -> Any:
    """Three layers, the second of which has weights of very different sizes along its sums."""
    weights = {
        name: RANDOM.standard_normal(shape).astype(np.float32)
        for name, shape in {"u": (6, 8), "v": (8, 8), "w": (8, 3), "b": (8,)}.items()
    }
    weights["v"][0] *= 300
    nodes = [
        helper.make_node("Gemm", ["x", "u", "b"], ["p"], name="first"),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "v"], ["r"], name="second"),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"], name="third"),
    ]
    initialisers = [numpy_helper.from_array(data, name) for name, data in weights.items()]
    return model(nodes, {"x": np.zeros((4, 6), np.float32)}, ["y"], initializer=initialisers)


@pytest.fixture(scope="module")
def graph() -> Graph:
    found = lower(network()).graph
    assert found is not None
    return found


def prepare(graph: Graph) -> Any:
    return interpreted


@pytest.mark.parametrize("dtype", [INT8, BF16])
def test_layers_stay_in_float_where_their_error_is_too_large(graph: Graph, dtype: str) -> None:
    every = shortened(graph, SAMPLES, dtype, 1.0, prepare)
    errors = {choice.where: choice.error for choice in every.choices}
    assert list(errors) == ["first", "second", "third"] and all(c.quantised for c in every.choices)
    assert 1e-4 < every.error < 0.1
    most = sorted(errors.values())[1]
    some = shortened(graph, SAMPLES, dtype, most, prepare)
    worst = max(errors, key=lambda name: errors[name])
    assert some.error <= most and not {c.where: c.quantised for c in some.choices}[worst]
    assert f"stays in float: as {dtype}" in {f.where: f.what for f in some.folds}[worst]
    none = shortened(graph, SAMPLES, dtype, 1e-6, prepare)
    assert not any(choice.quantised for choice in none.choices) and none.error < 1e-5
    meant, found = (reference_of(graph, SAMPLES, prepare), [run_graph(every.graph, s) for s in SAMPLES])
    assert max(error_of(f, m) for f, m in zip(found, meant, strict=True)) == every.error


def test_the_whole_model_keeps_the_limit_too(graph: Graph) -> None:
    """Errors of layers add up: where each keeps the limit and all together do not, the worst go first."""
    every = shortened(graph, SAMPLES, INT8, 1.0, prepare)
    limit = max(choice.error for choice in every.choices) * 1.0001
    some = shortened(graph, SAMPLES, INT8, limit, prepare)
    assert some.error <= limit < every.error or every.error <= limit
    assert [c.error for c in some.choices] == [c.error for c in every.choices]


def test_a_quantised_model_becomes_integer_kernels(graph: Graph) -> None:
    every = shortened(graph, SAMPLES, INT8, 1.0, prepare)
    made, folds = with_integer_sums(every.graph, Unit("u8", "i8", 4), laws=True)
    assert [fold.law for fold in folds] == [REQUANTISATION] * 3
    assert [node.program.name for node in made.nodes] == [
        "quantise",
        *["gemm_integers"],
        *["matmul_integers"] * 2,
    ]
    for sample in SAMPLES:
        [one], [other] = run_graph(made, sample), run_graph(every.graph, sample)
        assert np.abs(one - other).max() <= 0.02 * np.abs(other).max()


@pytest.mark.parametrize("operator", ["MatMul", "Gemm", "Gemm, turned"])
def test_weights_of_four_bits_are_blocks(operator: str) -> None:
    x, w = RANDOM.standard_normal((2, 64)).astype(np.float32), RANDOM.standard_normal((64, 5))
    turned, gemm = operator.endswith("turned"), operator.startswith("Gemm")
    constants = {"w": (w.T if turned else w).astype(np.float32), "b": np.arange(5, dtype=np.float32)}
    more = {"transB": 1} if turned else {}
    node = helper.make_node(operator.split(",")[0], ["x", "w", "b"] if gemm else ["x", "w"], ["y"], **more)
    initialisers = [numpy_helper.from_array(data, name) for name, data in constants.items()]
    found = lower(model([node], {"x": x}, ["y"], initializer=initialisers)).graph
    assert found is not None
    made = shortened(found, [{"x": x}], INT4, 0.3, prepare)
    assert [choice.quantised for choice in made.choices] == [True] and 0.005 < made.error < 0.3
    assert made.graph.nodes[0].program.name == "product_of_blocks"
    [y], bias = run_graph(made.graph, {"x": x}), constants["b"] if gemm else 0
    assert error_of([y], [x @ w + bias]) == pytest.approx(made.error, rel=1e-3)
    assert "32 with a scale" in made.folds[0].what
    whole = lower(network()).graph
    assert whole is not None and layers_of(whole, INT4) == (), "sums that are no whole blocks"


def test_what_is_no_layer_is_not_quantised() -> None:
    x = np.zeros((4, 4), np.float32)
    found = lower(model([helper.make_node("MatMul", ["x", "x"], ["y"])], {"x": x}, ["y"])).graph
    assert found is not None and layers_of(found) == ()
    made = shortened(found, [{"x": x}], INT8, 0.1, prepare)
    assert made.choices == () and made.error == 0
    assert in_float64(found).outputs[0].dtype == "f64"


# -- samples -----------------------------------------------------------------------------------------


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_samples_are_single_or_several(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, several = np.ones((4, 6), np.float32), np.ones((5, 4, 6), np.float32)
    assert len(read_samples(saved(tmp_path / "a.npz", x=one, more=one), graph)) == 1
    assert [s["x"].shape for s in read_samples(saved(tmp_path / "b.npz", x=several), graph)] == [(4, 6)] * 5
    monkeypatch.setattr(shortening, "MOST_SAMPLES", 2)
    assert len(read_samples(tmp_path / "b.npz", graph)) == 2


def test_a_file_without_samples_is_refused(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = np.ones((4, 6), np.float32)
    bad: dict[str, dict[str, Any]] = {
        "no array 'x'": {"z": good},
        "and the model takes": {"x": good[:3]},
        r"float64\[4, 6\]": {"x": good.astype(np.float64)},
        "a NaN": {"x": good * np.nan},
        r"\[0\] samples": {"x": np.ones((0, 4, 6), np.float32)},
        r"object\[4, 6\]": {"x": np.array([[None] * 6] * 4)},
    }
    for words, arrays in bad.items():
        with pytest.raises(DojoError) as caught:
            read_samples(saved(tmp_path / "bad.npz", **arrays), graph)
        assert caught.value.code == "PD-O060"
        assert re.search(words, caught.value.why), (words, caught.value.why)
    for path, content in {"none": None, "text": b"text", "zip": _zip_of_junk()}.items():
        if content is not None:
            (tmp_path / path).write_bytes(content)
        with pytest.raises(DojoError, match="holds no samples"):
            read_samples(tmp_path / path, graph)
    monkeypatch.setattr(shortening, "MOST_BYTES", 90)
    with pytest.raises(DojoError) as caught:
        read_samples(saved(tmp_path / "large.npz", x=good), graph)
    assert "more than 90 bytes" in str(caught.value.why)


def _zip_of_junk() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("x.npy", b"junk")
    return buffer.getvalue()


def test_the_command_line_asks_for_samples(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    onnx.save(network(), "net.onnx")
    outcome = cli("optimize", "net.onnx", "--dtype", "int8")
    clear(outcome, 1, "PD-O061")
    assert "--dtype int8 --calibrate data.npz" in outcome.err
    alone = cli("optimize", "net.onnx", "--calibrate", "x.npz")
    assert alone.code == 2 and "--calibrate is for --dtype" in alone.err


@pytest.mark.parametrize("more", [(), ("--calibrate", "x.npz")])
def test_a_dtype_that_does_not_exist_is_refused_before_anything_else_is_asked_for(
    cli: Callable[..., Outcome], more: tuple[str, ...]
) -> None:
    outcome = cli("optimize", "missing.onnx", "--dtype", "fp8", *more)
    clear(outcome, 1, "PD-O061")
    assert "--dtype fp8" in outcome.err and "int8, int4, bf16" in outcome.err
    assert "calibrate" not in outcome.err
