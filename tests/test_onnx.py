"""Models of the ONNX standard: its own node tests, shapes that come at run time, and hostile files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import X, model
from random_onnx import MAKERS, random_model

import perfdojo_sdk.onnx.backend as backend
from benchmarks import onnx_tests
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx import lowering
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.frontends.onnx.operators import RULES
from perfdojo_sdk.frontends.onnx.prepared import MOST_GRAPHS, Prepared
from perfdojo_sdk.frontends.onnx.supported import FIRST_OPSET, REASONS
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.running import interpreted, run_graph
from perfdojo_sdk.models.kernels import CompiledKernels
from perfdojo_sdk.plugins import load_plugins


@cache
def node_tests() -> dict[str, Any]:
    return {test.name: test for test in onnx_tests.tests()}


def outcomes(names: list[str], execute: Any = interpreted) -> dict[str, onnx_tests.Result]:
    found = onnx_tests.results([node_tests()[name] for name in names], execute, initialisers=False)
    return {result.name: result for result in found}


# -- the standard's tests --------------------------------------------------------------------------


def test_a_seeded_part_of_the_standards_tests_passes_and_none_is_wrong() -> None:
    import random

    names = random.Random(1).sample(sorted(node_tests()), 90)
    found = outcomes(names)
    counts = Counter(result.outcome for result in found.values())
    bad = [r for r in found.values() if r.outcome in (onnx_tests.WRONG, onnx_tests.CRASHED)]
    assert not bad
    assert counts[onnx_tests.PASSED] >= 50
    assert all(r.reason in Reason.__members__ for r in found.values() if r.outcome == onnx_tests.REFUSED)


def test_shape_like_inputs_may_be_constants_of_the_model_as_well() -> None:
    names = [n for n in sorted(node_tests()) if n.startswith(("test_reshape", "test_slice", "test_tile"))]
    found = [*onnx_tests.results([node_tests()[n] for n in names], interpreted, initialisers=True)]
    assert len(found) > 15 and {r.outcome for r in found} == {onnx_tests.PASSED}


COMPILED = [
    "test_and3d",
    "test_argmax_keepdims_example",
    "test_averagepool_2d_ceil",
    "test_basic_conv_with_padding",
    "test_cast_e8m0_FLOAT_to_FLOAT8E8M0",
    "test_cast_FLOAT16_to_FLOAT8E4M3FNUZ",
    "test_cast_FLOAT_to_FLOAT4E2M1",
    "test_cast_INT4_to_INT8",
    "test_cast_no_saturate_FLOAT_to_FLOAT8E5M2",
    "test_castlike_FLOAT_to_UINT2",
    "test_clip_default_int8_inbounds",
    "test_concat_3d_axis_1",
    "test_dequantizelinear_e4m3fn_zero_point",
    "test_dequantizelinear_int4",
    "test_layer_normalization_2d_axis1",
    "test_lstm_with_peepholes",
    "test_maxpool_with_argmax_2d_precomputed_pads",
    "test_qlinearmatmul_3D_uint8_float32",
    "test_quantizelinear_e5m2",
    "test_quantizelinear_uint4",
    "test_prelu_example",
    "test_where_long_example",
]


def test_compiled_kernels_pass_and_share_one_compilation() -> None:
    kernels = CompiledKernels.of(load_plugins(), "best", forks=True)
    found = outcomes(COMPILED, kernels)
    assert {r.name: r.detail for r in found.values() if r.outcome != onnx_tests.PASSED} == {}
    assert kernels.compilations == 1


#: Parts of a seeded tenth of the standard's tests, so that processes share them.
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_of_a_seeded_tenth_pass_all_legs(part: int) -> None:
    import random

    names = sorted(node_tests())
    names = random.Random(4).sample(names, len(names) // 10)
    kernels = onnx_tests.verified_kernels("best")
    found = outcomes(names[part::PARTS], kernels)
    bad = (onnx_tests.WRONG, onnx_tests.CRASHED)
    assert {r.name: r.detail for r in found.values() if r.outcome in bad} == {}
    assert kernels.verified and all(found.passed for found in kernels.verified.values())


def test_a_wrong_kernel_does_not_pass_the_legs(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CompiledKernels.code

    def wrong(self: Any, program: Any, symbol: str) -> Any:
        source = right(self, program, symbol)
        return replace(source, code=source.code.replace(" - pd_load", " + pd_load"))

    monkeypatch.setattr(CompiledKernels, "code", wrong)
    kernels = onnx_tests.verified_kernels("best")
    [found] = outcomes(["test_sub"], kernels).values()
    assert found.outcome == onnx_tests.CRASHED and "does not pass: numeric" in found.detail


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dict(RULES, Add=RULES["Sub"], Relu=lambda n: 1 / 0)
    monkeypatch.setattr(lowering, "RULES", wrong)
    found = outcomes(["test_add", "test_relu", "test_sub"])
    assert [found[n].outcome for n in ("test_add", "test_relu", "test_sub")] == ["wrong", "crashed", "passed"]


def test_results_are_kept_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--state", str(tmp_path), "--only", "test_bitwise_and"]
    assert onnx_tests.main(arguments) == 0
    assert "passed" in capsys.readouterr().out
    kept = (tmp_path / "INTERPRETER.jsonl").read_text()
    assert len(kept.splitlines()) == 4
    assert onnx_tests.main(arguments) == 0
    assert (tmp_path / "INTERPRETER.jsonl").read_text() == kept


def test_every_operator_has_a_rule_a_body_or_a_reason() -> None:
    """In the newest standard, nothing ends in a message that says no more than "not supported"."""
    reasons = {name for names in REASONS.values() for name in names}
    schemas = {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == ""}
    bodies = {name for name, s in schemas.items() if s.has_function or s.has_context_dependent_function}
    without = set(schemas) - set(RULES) - bodies - reasons - set(lowering.CONTROLS)
    assert not without
    assert not reasons & set(RULES) and reasons <= set(schemas)
    assert set(RULES) <= {s.name for s in onnx.defs.get_all_schemas_with_history()}


@pytest.mark.filterwarnings("ignore")
def test_random_nodes_agree_with_the_reference() -> None:
    """Other shapes, axes and attributes than in the standard's tests; the reference takes not all of them."""
    compared = Counter[str]()
    for seed in range(10 * len(MAKERS)):
        made, inputs = random_model(seed)
        names = [value.name for value in made.graph.input]
        try:
            [expected] = ReferenceEvaluator(made).run(None, dict(zip(names, inputs, strict=True)))
        except Exception:
            continue  # it lacks negative pads and some transposed convolutions
        [found] = backend.run_model(made, inputs, "INTERPRETER")
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), seed
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True), seed
        compared[MAKERS[seed % len(MAKERS)].__name__] += 1
    assert len(compared) == len(MAKERS) and min(compared.values()) >= 3


def _lstm(x: Any, w: Any, r: Any, bias: Any, lengths: Any, backward: bool) -> tuple[Any, Any, Any]:
    """One direction of an LSTM, row by row, each up to its own length."""

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    time, batch, hidden = x.shape[0], x.shape[1], r.shape[-1]
    y, last, cells = np.zeros((time, batch, hidden)), np.zeros((batch, hidden)), np.zeros((batch, hidden))
    for row in range(batch):
        h, c = np.zeros(hidden), np.zeros(hidden)
        steps = range(lengths[row])
        for t in reversed(steps) if backward else steps:
            i, o, f, g = np.split(w @ x[t, row] + r @ h + bias[: 4 * hidden] + bias[4 * hidden :], 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            y[t, row] = h
        last[row], cells[row] = h, c
    return y, last, cells


def test_a_recurrent_layer_of_two_directions_ends_each_row_at_its_length() -> None:
    d = np.random.default_rng(0)
    x, lengths = d.standard_normal((5, 3, 2)).astype(np.float32), np.array([5, 1, 3], np.int32)
    w, r, bias = (d.standard_normal(s).astype(np.float32) for s in ((2, 16, 2), (2, 16, 4), (2, 32)))
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "n"], ["y", "h", "c"], direction="bidirectional", hidden_size=4
    )
    given = {"x": x, "w": w, "r": r, "b": bias, "n": lengths}
    y, h, c = backend.run_model(model([node], given, ["y", "h", "c"]), list(given.values()), "INTERPRETER")
    for k in (0, 1):
        expected = _lstm(x, w[k], r[k], bias[k], lengths, bool(k))
        for found, right in zip((y[:, k], h[k], c[k]), expected, strict=True):
            assert np.allclose(found, right, atol=1e-5)


def test_the_largest_elements_count_nan_first() -> None:
    x = np.array([[1, np.nan, 3, 3, -np.inf]], np.float32)
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"])]
    made = model(nodes, {"x": x}, ["v", "i"], initializer=[numpy_helper.from_array(np.array([4]), "k")])
    values, places = backend.run_model(made, [x], "INTERPRETER")
    assert places.tolist() == [[1, 2, 3, 0]]
    assert np.isnan(values[0, 0]) and values[0, 1:].tolist() == [3, 3, 1]


def loop(condition: str, most: int) -> Any:
    """A loop that adds x to a sum, and stacks the sums; its condition is a constant or depends on data."""
    nodes = [
        helper.make_node("Add", ["s", "x"], ["s2"]),
        helper.make_node("ReduceMax", ["s2"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["data"], to=TensorProto.BOOL),
        helper.make_node("Identity", ["going"], ["constant"]),
    ]
    inputs = [onnx.ValueInfoProto(name=n) for n in ("t", "going", "s")]
    outputs = [onnx.ValueInfoProto(name=n) for n in (condition, "s2", "s2")]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    start = [
        numpy_helper.from_array(np.array(most), "most"),
        numpy_helper.from_array(np.zeros_like(X), "zero"),
    ]
    node = helper.make_node("Loop", ["most", "", "zero"], ["last", "all"], body=body)
    return model([node], {"x": X}, ["last", "all"], initializer=start)


def test_a_loop_of_known_length_is_unrolled_and_one_that_depends_on_data_is_refused() -> None:
    last, every = backend.run_model(loop("constant", 3), [X], "INTERPRETER")
    assert (last == 3 * X).all() and every.shape == (3, *X.shape) and (every[1] == 2 * X).all()
    assert [r.reason for r in lower(loop("data", 3)).refusals] == [Reason.CONTROL]
    assert [r.reason for r in lower(loop("constant", 10**6)).refusals] == [Reason.SIZE]


# -- versions, functions, branches ------------------------------------------------------------------


def test_a_version_out_of_force_is_refused_by_name() -> None:
    old = model([helper.make_node("PRelu", ["x", "x"], ["y"])], {"x": X}, ["y"], opset=6)
    [refusal] = lower(old).refusals
    assert refusal.reason is Reason.VERSION and "PRelu" in refusal.what


@pytest.mark.parametrize("opset", [FIRST_OPSET, 18, onnx.defs.onnx_opset_version()])
def test_axes_may_be_an_attribute_or_an_input(opset: int) -> None:
    node = helper.make_node("ReduceMax", ["x"], ["y"], axes=[1]) if opset < 18 else None
    axes = [numpy_helper.from_array(np.array([1]), "axes")] if opset >= 18 else []
    node = node or helper.make_node("ReduceMax", ["x", "axes"], ["y"])
    [y] = backend.run_model(model([node], {"x": X}, ["y"], opset=opset, initializer=axes), [X], "INTERPRETER")
    assert (y == X.max(1, keepdims=True)).all()


def test_functions_of_the_model_are_expanded() -> None:
    body = [
        helper.make_node("Constant", [], ["f"], value_float=3.0),
        helper.make_node("Mul", ["a", "f"], ["b"]),
    ]
    twice = helper.make_function("own", "Scaled", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    made = model([helper.make_node("Scaled", ["x"], ["y"], domain="own")], {"x": X}, ["y"])
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.functions.append(twice)
    assert (backend.run_model(made, [X], "INTERPRETER")[0] == 3 * X).all()


def branching(one: list[Any], other: list[Any], **more: Any) -> Any:
    """A model that is one list of nodes or another, from x and other inputs to r."""
    graphs = [helper.make_graph(nodes, "b", [], [onnx.ValueInfoProto(name="r")]) for nodes in (one, other)]
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=graphs[0], else_branch=graphs[1])
    return model([node], {"x": X, **more}, ["y"])


def test_a_condition_chooses_between_branches_of_equal_shapes_at_run_time() -> None:
    both = [[helper.make_node(op, ["x"], ["r"])] for op in ("Neg", "Abs")]
    made = branching(*both, c=(TensorProto.BOOL, ()))
    prepared = Prepared(made)
    for yes in (True, False):
        arrays = prepared.arrays([X, np.array(yes)])
        assert (run_graph(prepared.graph(arrays), arrays)[0] == (-X if yes else X)).all()
    assert prepared.lowerings == 1


def test_a_check_counts_only_in_the_branch_that_is_taken() -> None:
    one = [helper.make_node("Gather", ["x", "i"], ["r"])]
    other = [helper.make_node("Gather", ["x", "z"], ["r"])]
    index, zero = np.array([99, 0, 1]), np.zeros(3, np.int64)
    made = branching(one, other, c=(TensorProto.BOOL, ()), i=index, z=zero)
    [y] = backend.run_model(made, [X, np.array(False), index, zero], "INTERPRETER")
    assert (y == X[zero]).all()
    with pytest.raises(Malformed, match="beyond 3 elements"):
        backend.run_model(made, [X, np.array(True), index, zero], "INTERPRETER")


def test_branches_of_other_shapes_need_a_condition_that_is_no_data() -> None:
    one, other = [helper.make_node("Neg", ["x"], ["r"])], [helper.make_node("Flatten", ["x"], ["r"], axis=0)]
    for yes in (True, False):
        [y] = backend.run_model(branching(one, other, c=np.array(yes)), [X, np.array(yes)], "INTERPRETER")
        assert y.shape == (X.shape if yes else (1, 12))
    made = branching(one, other)
    top = helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0)
    made.graph.node.insert(0, helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL))
    made.graph.node.insert(0, top)
    assert [r.reason for r in lower(made).refusals] == [Reason.CONTROL]


def test_all_refusals_are_listed() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["n"], name="first"),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Softmax", ["places"], ["s"], name="second"),
    ]
    lowered = lower(model(nodes, {"x": X}, ["n", "s"]))
    assert lowered.graph is None
    assert [(r.node, r.reason) for r in lowered.refusals] == [
        ("first", Reason.RANDOM),
        ("second", Reason.LENGTH),
    ]


# -- shapes at run time --------------------------------------------------------------------------------


def reshaping() -> Prepared:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    return Prepared(
        model([node], {"x": (TensorProto.FLOAT, (None, None)), "shape": np.zeros(2, np.int64)}, ["y"])
    )


def test_a_graph_is_built_for_new_shapes_and_reused_for_other_data() -> None:
    prepared = reshaping()
    for scale in (1, 2):
        arrays = prepared.arrays([scale * X, np.array([4, 3])])
        assert (run_graph(prepared.graph(arrays), arrays)[0] == scale * X.reshape(4, 3)).all()
    built = prepared.lowerings
    assert prepared.shape_like == ("shape",) and built == 2  # the first found out what it depends on
    arrays = prepared.arrays([X, np.array([2, 6])])
    assert run_graph(prepared.graph(arrays), arrays)[0].shape == (2, 6) and prepared.lowerings == 3
    prepared.graph(prepared.arrays([X, np.array([4, 3])]))
    assert prepared.lowerings == 3


def test_the_number_of_graphs_is_bounded() -> None:
    prepared = reshaping()
    for rows in range(1, MOST_GRAPHS + 5):
        prepared.graph(prepared.arrays([np.zeros((rows, 2), np.float32), np.array([2, rows])]))
    assert len(prepared._graphs) == MOST_GRAPHS


def test_other_inputs_than_the_model_takes_are_refused() -> None:
    prepared = reshaping()
    with pytest.raises(Malformed, match="2 inputs, 3"):
        prepared.arrays([X, X, X])
    with pytest.raises(Malformed, match="shape is not given"):
        prepared.arrays([X])
    with pytest.raises(Refused, match="list"):
        prepared.arrays([[X], np.array([1])])
    with pytest.raises(Refused, match="complex64"):
        prepared.arrays([X.astype(np.complex64), np.array([1])])


# -- the backend ---------------------------------------------------------------------------------------


def test_the_backend_runs_nodes_and_knows_its_devices() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    [y] = backend.run_node(node, [X, np.array(5, np.float32)], "INTERPRETER")
    assert (y == np.minimum(X, 5)).all()
    assert backend.supports_device("CPU:0") and not backend.supports_device("CUDA")
    assert not backend.supports_device(None) and not backend.is_compatible(node, 3)
    with pytest.raises(DojoError, match="no device None"):
        backend.prepare(node, device=None)
    assert backend.PerfDojoBackend.prepare(model([node], {"x": X, "high": np.array(5, np.float32)}, ["y"]))
