"""Files of old versions of the standard, whose operators have other forms than today's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model

import perfdojo_sdk.onnx.backend as backend
from perfdojo_sdk.frontends.onnx.lowering import CONTROLS, lower
from perfdojo_sdk.frontends.onnx.operators import RULES
from perfdojo_sdk.frontends.onnx.prepared import Prepared
from perfdojo_sdk.frontends.onnx.schemas import schema_of
from perfdojo_sdk.frontends.onnx.supported import EARLIER, FIRST_OPSET
from perfdojo_sdk.graph.refusals import Reason
from perfdojo_sdk.graph.running import interpreted, run_graph
from perfdojo_sdk.models.kernels import CompiledKernels
from perfdojo_sdk.plugins import load_plugins

RANDOM = np.random.default_rng(0)
NEWEST = 20


def floats(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


X = floats(2, 3, 4, 5)


@dataclass(frozen=True)
class Form:
    """An operator, its operands beside the first, some of which have no name, and its attributes."""

    operands: Sequence[Any] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def model(self, op: str, opset: int, outputs: str, x: Any) -> Any:
        names = [f"c{k}" if each is not None else "" for k, each in enumerate(self.operands)]
        constants = [numpy_helper.from_array(v, n) for v, n in zip(self.operands, names, strict=True) if n]
        node = helper.make_node(op, ["x", *names], [*outputs], **self.attributes)
        return model([node], {"x": x}, [*outputs], opset=opset, initializer=constants)


@dataclass(frozen=True)
class Case:
    """An operator in old versions, and what means the same today."""

    op: str
    opsets: Sequence[int]
    old: Form
    new: Form | None = None
    """Today's form; None if it is the same."""
    x: Any = field(default_factory=lambda: X)
    outputs: str = "y"
    today: str = ""
    """The operator of the new form, where it has another name."""


def attributes(**given: Any) -> Form:
    return Form((), given)


def operands(*given: Any, **more: Any) -> Form:
    return Form(given, more)


SCALES = np.array([1, 1, 2, 3], np.float32)
DOUBLED = np.array([1, 1, 2, 2], np.float32)
STATISTICS = (floats(3), floats(3), floats(3), np.abs(floats(3)) + 1)
LIKE_UPSAMPLE: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
ROW, PLANE = floats(3), floats(4, 5)
SMALL, LARGE = np.array(-0.5, np.float32), np.array(0.5, np.float32)
LAST = np.array(np.finfo(np.float32).max)
ENDS = np.array([np.inf, -np.inf, np.nan, 2, -2], np.float32)

CASES = [
    Case("Squeeze", [1, 9, 11], attributes(axes=[0, 2]), operands(ints(0, 2)), floats(1, 3, 1, 2)),
    Case("Squeeze", [9], attributes(), operands(), floats(1, 3, 1, 2)),
    Case("Unsqueeze", [1, 9, 11], attributes(axes=[0, 3]), operands(ints(0, 3)), floats(3, 2)),
    Case("ReduceSum", [9, 12], attributes(axes=[1, -1], keepdims=0), operands(ints(1, 3), keepdims=0)),
    Case("Clip", [6, 10], attributes(min=-0.5, max=0.5), operands(SMALL, LARGE)),
    Case("Clip", [6, 9], attributes(min=-0.5), operands(SMALL, LAST), ENDS),
    Case("Clip", [10], attributes(), operands(-LAST, LAST), ENDS),
    Case("Clip", [9], attributes(), operands(), ENDS.astype(np.float16)),
    *(
        Case(
            "Pad",
            [2, 10],
            attributes(pads=[0, 0, 1, 2, 0, 0, 2, 1], mode=m),
            operands(ints(0, 0, 1, 2, 0, 0, 2, 1), mode=m),
        )
        for m in ("constant", "reflect", "edge")
    ),
    Case(
        "Pad",
        [9],
        attributes(pads=[1, 2], value=3.0),
        operands(ints(1, 2), np.array(3, np.float32)),
        floats(4),
    ),
    Case("Upsample", [9], operands(SCALES), operands(None, SCALES, **LIKE_UPSAMPLE), today="Resize"),
    Case(
        "Upsample",
        [7, 8],
        attributes(scales=[1.0, 1.0, 2.0, 3.0]),
        operands(None, SCALES, **LIKE_UPSAMPLE),
        today="Resize",
    ),
    Case(
        "Upsample",
        [7],
        attributes(scales=[1.0, 1.0, 2.0, 2.0], mode="linear"),
        operands(None, DOUBLED, mode="linear", **LIKE_UPSAMPLE),
        today="Resize",
    ),
    Case("Resize", [10], operands(SCALES), operands(None, SCALES, **LIKE_UPSAMPLE)),
    Case("Resize", [10], operands(1 / DOUBLED), operands(None, 1 / DOUBLED, **LIKE_UPSAMPLE)),
    Case(
        "Resize",
        [10],
        operands(DOUBLED, mode="linear"),
        operands(None, DOUBLED, mode="linear", **LIKE_UPSAMPLE),
    ),
    Case(
        "Resize",
        [11, 12],
        operands(np.zeros(0, np.float32), DOUBLED, mode="cubic"),
        operands(None, DOUBLED, mode="cubic"),
    ),
    Case(
        "Slice",
        [1, 9],
        attributes(starts=[1, 0], ends=[3, -1], axes=[1, 3]),
        operands(ints(1, 0), ints(3, -1), ints(1, 3)),
    ),
    Case("Slice", [9], attributes(starts=[0, 1], ends=[2, 10**6]), operands(ints(0, 1), ints(2, 10**6))),
    Case("Dropout", [7, 10, 12], attributes(), operands()),
    Case("Dropout", [6], attributes(is_test=1), operands()),
    Case("BatchNormalization", [7, 9, 12], operands(*STATISTICS)),
    Case("BatchNormalization", [6], operands(*STATISTICS, is_test=1), operands(*STATISTICS)),
    Case("TopK", [1, 9], attributes(k=2, axis=2), operands(ints(2), axis=2), outputs="vi"),
    Case("TopK", [10], operands(ints(2)), outputs="vi"),
    Case("Split", [2, 11], attributes(axis=1, split=[1, 2]), operands(ints(1, 2), axis=1), outputs="ab"),
    Case("Split", [2, 9, 12], attributes(axis=1), operands(axis=1, num_outputs=3), outputs="abc"),
    Case("Gather", [1, 9], operands(ints(0, 2), axis=1)),
    Case("Add", [1, 6], operands(ROW, broadcast=1, axis=1), operands(ROW.reshape(3, 1, 1))),
    Case("Mul", [6], operands(PLANE, broadcast=1), operands(PLANE)),
    Case(
        "Equal",
        [1],
        operands(ints(0, 2), broadcast=1, axis=0),
        operands(ints(0, 2).reshape(2, 1)),
        ints(0, 1, 2, 2).reshape(2, 2),
    ),
    Case("Gemm", [6, 7, 9], operands(floats(4, 5), floats(5)), x=floats(3, 4)),
    Case("MatMul", [1, 9], operands(floats(4, 5)), x=floats(3, 4)),
    Case("Reshape", [1], attributes(shape=[2, -1]), operands(ints(2, -1))),
    Case("Flatten", [1, 9], attributes(axis=2)),
    Case("MaxPool", [1, 8, 9], attributes(kernel_shape=[2, 2], strides=[1, 2])),
    Case("AveragePool", [7, 9], attributes(kernel_shape=[2, 2], pads=[1, 1, 0, 0])),
    Case("LpPool", [2, 9], attributes(kernel_shape=[2, 2])),
    Case("Conv", [1, 9], operands(floats(4, 3, 2, 2))),
    Case("ConvTranspose", [1, 9], operands(floats(3, 4, 2, 2))),
    Case("ArgMax", [1, 11, 12], attributes(axis=1)),
    Case("ArgMin", [9], attributes(axis=1, keepdims=0)),
    Case("DepthToSpace", [1, 9, 11], attributes(blocksize=2), x=floats(1, 8, 2, 2)),
    Case("SpaceToDepth", [1, 9], attributes(blocksize=2), x=floats(1, 2, 4, 4)),
    Case("NonZero", [9], attributes(), x=X[0, 0] * (X[0, 0] > 0)),
    Case("GatherElements", [11], operands(ints(0, 1).reshape(1, 2)), x=floats(3, 2)),
    Case("GatherND", [11, 12], operands(ints(0, 1).reshape(1, 2)), x=floats(3, 2)),
    Case("ScatterElements", [11], operands(ints(0, 1).reshape(1, 2), floats(1, 2)), x=floats(3, 2)),
    Case("ScatterND", [11], operands(ints(0, 1).reshape(1, 2), floats(1)), x=floats(3, 2)),
    Case("PRelu", [7, 9], operands(floats(3, 1, 1))),
    Case("Sign", [9, 12], attributes()),
    Case("IsNaN", [9], attributes(), x=ENDS),
    Case("Mod", [10], operands(ints(3, -4)), x=ints(5, 7)),
    Case("MeanVarianceNormalization", [9], attributes()),
    Case("Compress", [9], operands(np.array([True, False, True]), axis=1)),
]


@pytest.fixture(scope="module")
def compiled() -> CompiledKernels:
    return CompiledKernels.of(load_plugins(), "best", forks=True)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}-{c.opsets[0]}-{len(c.old.attributes)}")
def test_an_old_form_means_what_the_new_one_does(case: Case) -> None:
    today = (case.new or case.old).model(case.today or case.op, NEWEST, case.outputs, case.x)
    expected = ReferenceEvaluator(today).run(None, {"x": case.x})
    for opset in case.opsets:
        old = case.old.model(case.op, opset, case.outputs, case.x)
        found = backend.run_model(old, [case.x], "INTERPRETER")
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape, opset
            assert np.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True), opset


def normalised(op: str, x: Any, axis: int) -> Any:
    if op == "Hardmax":
        return np.eye(x.shape[axis], dtype=x.dtype)[x.argmax(axis)]
    e = np.exp(x - x.max(axis, keepdims=True))
    found = e / e.sum(axis, keepdims=True)
    return np.log(found) if op == "LogSoftmax" else found


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("execute", ["interpreter", "compiled"])
def test_an_axis_of_a_softmax_meant_all_axes_from_there_on(
    op: str, execute: str, compiled: CompiledKernels
) -> None:
    """The reference takes the axis alone in all versions, so the expected values are NumPy's."""
    for opset, axis in ((1, None), (9, 0), (9, 2), (11, -1), (12, None), (12, 3)):
        given = {} if axis is None else {"axis": axis}
        prepared = Prepared(attributes(**given).model(op, opset, "y", X))
        arrays = prepared.arrays([X])
        [y] = run_graph(prepared.graph(arrays), arrays, compiled if execute == "compiled" else interpreted)
        axis = 1 if axis is None else axis % 4
        flat = X.reshape(int(np.prod(X.shape[:axis])), -1)
        assert np.allclose(y, normalised(op, flat, 1).reshape(X.shape), rtol=1e-5, atol=1e-6), (opset, axis)
    newer = attributes(axis=1).model(op, FIRST_OPSET, "y", X)
    [y] = backend.run_model(newer, [X], "INTERPRETER")
    meant = normalised(op, np.moveaxis(X, 1, -1), -1)
    assert np.allclose(np.moveaxis(y, 1, -1), meant, rtol=1e-5, atol=1e-6)


def test_a_negative_place_of_an_old_one_hot_is_no_place() -> None:
    places, values = ints(0, 2, -1, 7), np.array([0, 1], np.float32)
    for opset, row in ((9, [0, 0, 0]), (11, [0, 0, 1])):
        [y] = backend.run_model(operands(np.array(3), values).model("OneHot", opset, "y", places), [places])
        assert y.tolist() == [[1, 0, 0], [0, 0, 1], row, [0, 0, 0]]


def test_every_operator_has_a_rule_for_its_versions_of_ten_years() -> None:
    """Nothing that is in force at opset 7 or later is refused for its version."""
    refused = {
        (op, opset)
        for op in {*RULES, *CONTROLS}
        for opset in range(7, FIRST_OPSET)
        if (schema := schema_of(op, opset)) is not None
        and schema.since_version
        < (EARLIER.get(op) or getattr(schema_of(op, FIRST_OPSET), "since_version", 0))
    }
    assert not refused


@pytest.mark.parametrize(
    ("op", "opset", "form"),
    [
        ("Resize", 10, operands(np.array([1, 1, 0.6, 0.6], np.float32))),
        ("BatchNormalization", 6, operands(*STATISTICS)),
        ("BatchNormalization", 7, operands(*STATISTICS, spatial=0)),
        ("Dropout", 6, attributes()),
    ],
)
def test_old_forms_without_a_clear_meaning_are_refused(op: str, opset: int, form: Form) -> None:
    [refusal] = lower(form.model(op, opset, "y", X)).refusals
    assert refusal.reason is Reason.CHOICE


def test_batch_normalisation_in_training_had_more_outputs() -> None:
    made = operands(*STATISTICS).model("BatchNormalization", 9, "ymvst", X)
    [refusal] = lower(made).refusals
    assert refusal.reason is Reason.CHOICE and "in training" in refusal.what


def test_a_network_of_version_nine_runs_on_compiled_kernels(compiled: CompiledKernels) -> None:
    """As PyTorch and others exported networks for years: weights are inputs with a value, too."""
    node = helper.make_node
    nodes = [
        node("Pad", ["x"], ["p"], pads=[0, 0, 1, 1, 0, 0, 1, 1]),
        node("Conv", ["p", "w"], ["c"], kernel_shape=[3, 3]),
        node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
        node("Clip", ["n"], ["r"], min=0.0, max=6.0),
        node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Dropout", ["m"], ["d"], ratio=0.5),
        node("ReduceMean", ["d"], ["g"], axes=[2, 3], keepdims=1),
        node("Squeeze", ["g"], ["f"], axes=[2, 3]),
        node("Slice", ["f"], ["s"], axes=[1], starts=[0], ends=[4]),
        node("Unsqueeze", ["s"], ["u"], axes=[2]),
        node("Softmax", ["u"], ["y"]),
    ]
    weights = {"w": floats(6, 2, 3, 3), "b": floats(6), "v": np.abs(floats(6)) + 1}
    constants = [numpy_helper.from_array(data, name) for name, data in weights.items()]
    x = floats(2, 2, 8, 8)
    made = model(nodes, {"x": x, **weights}, ["y"], opset=9, initializer=constants)
    prepared = Prepared(made)
    assert prepared.inputs == ("x",)
    arrays = prepared.arrays([x])
    [y] = run_graph(prepared.graph(arrays), arrays, compiled)

    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    c = np.einsum("nchwij,kcij->nkhw", windows, weights["w"])
    b, v = (weights[name].reshape(1, 6, 1, 1) for name in "bv")
    r = np.clip((c - b) / np.sqrt(v + 1e-5) * b + b, 0, 6)
    g = r.reshape(2, 6, 4, 2, 4, 2).max((3, 5)).mean((2, 3))
    assert np.allclose(y, normalised("Softmax", g[:, :4], 1)[:, :, None], rtol=1e-4, atol=1e-5)
