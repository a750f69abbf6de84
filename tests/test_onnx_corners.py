"""Corners of ONNX's operators that a random comparison with the reference evaluator found wrong once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.prepared import Prepared
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.running import interpreted, run_graph
from perfdojo_sdk.onnx import backend


def one(
    op: str, given: dict[str, Any], known: tuple[str, ...] = (), outputs: int = 1, **attributes: Any
) -> Any:
    """A model of one operator; ``known`` operands are initialisers, the others are inputs."""
    results = [f"y{k}" for k in range(outputs)]
    return model(
        [helper.make_node(op, list(given), results, **attributes)],
        {name: each for name, each in given.items() if name not in known},
        results,
        initializer=[numpy_helper.from_array(given[name], name) for name in known],
    )


def run(made: Any, given: dict[str, Any]) -> list[Any]:
    prepared = Prepared(made)
    inputs = [given[value.name] for value in made.graph.input]
    arrays = prepared.arrays(inputs)
    return list(run_graph(prepared.graph(arrays), arrays, interpreted))


def alike(op: str, given: dict[str, Any], known: tuple[str, ...] = (), outputs: int = 1, **more: Any) -> None:
    """The results are those of the reference, to the sign of 0."""
    made = one(op, given, known, outputs, **more)
    named = {value.name: given[value.name] for value in made.graph.input}
    for found, right in zip(run(made, given), ReferenceEvaluator(made).run(None, named), strict=True):
        assert found.shape == right.shape
        np.testing.assert_allclose(found.astype(np.float64), right.astype(np.float64), rtol=2e-3, atol=1e-6)
        assert np.array_equal(np.signbit(found), np.signbit(right))


def test_a_scalar_has_no_subscripts() -> None:
    """``NonZero`` of a scalar has the shape (0, N), where NumPy has (1, N)."""
    alike("NonZero", {"x": np.array(5, np.float32)})


@pytest.mark.parametrize("size", [(1, 1, 2, 4), (2, 3, 1, 3), (1, 2, 2, 3, 4)])
@pytest.mark.parametrize("corners", [0, 1])
def test_grids_of_one_image_or_one_row(size: tuple[int, ...], corners: int) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(1).standard_normal((size[0], rank, rank + 1), np.float32)
    given = {"theta": theta, "size": np.array(size)}
    alike("AffineGrid", given, ("size",), align_corners=corners)


def test_a_threshold_is_reached_by_itself() -> None:
    """Activations of recurrent operators keep x >= alpha, unlike the operator ``ThresholdedRelu``."""
    ones = np.ones((1, 1, 1), np.float32)
    given = {"x": ones, "w": ones, "r": ones * 0}
    made = one("RNN", given, activations=["ThresholdedRelu"], activation_alpha=[1.0], hidden_size=1)
    assert run(made, given)[0].item() == 1


@pytest.mark.parametrize("padding", ["SAME_UPPER", "SAME_LOWER"])
def test_room_between_filters_that_a_stride_leaves(padding: str) -> None:
    given = {"x": np.array([[[5, 7, 3]]], np.float32), "w": np.ones((1, 1, 1), np.float32)}
    alike("ConvTranspose", given, auto_pad=padding, strides=[3])


def test_no_room_is_left_in_front_of_a_result_of_given_size() -> None:
    given = {"x": np.array([[[1, 2]]], np.float32), "w": np.ones((1, 1, 1), np.float32)}
    alike("ConvTranspose", given, strides=[3], output_shape=[6])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_short_floats_are_filled(mode: str) -> None:
    fill = numpy_helper.from_array(np.array([0.5], np.float16))
    alike("ConstantOfShape", {"shape": np.array([3])}, ("shape",), value=fill)
    given = {
        "x": np.arange(16, dtype=np.float16).reshape(1, 1, 4, 4),
        "roi": np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 1.2], np.float32),
        "scales": np.array([1, 1, 1, 2], np.float32),
    }
    how = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 0.1}
    alike("Resize", given, ("roi", "scales"), **how)


def test_the_largest_keep_their_sign() -> None:
    given = {"x": np.array([-0.0, -1, -np.inf], np.float32), "k": np.array([3])}
    alike("TopK", given, ("k",), outputs=2)


def test_statistics_of_f64_are_given_in_f32() -> None:
    given = {"x": np.arange(6.0).reshape(2, 3), "scale": np.ones(3)}
    made = one("LayerNormalization", given, outputs=3)
    found, mean, inverse = run(made, given)
    assert (found.dtype, mean.dtype, inverse.dtype) == (np.float64, np.float32, np.float32)
    assert mean.ravel().tolist() == [1, 4] and np.allclose(found[0], (given["x"][0] - 1) * inverse[0])


def test_a_region_without_room_for_its_samples_is_reported() -> None:
    given = {
        "x": np.ones((1, 1, 2, 2), np.float32),
        "rois": np.array([[0, 0, 9, 9]], np.float32),
        "images": np.array([0]),
    }
    with pytest.raises(Malformed, match="give sampling_ratio"):
        run(one("RoiAlign", given), given)


def test_an_array_of_another_dtype_is_refused_and_other_byte_orders_are_read() -> None:
    given = np.array([-1, 2, -3], np.float32)
    made = one("Relu", {"x": given})
    assert run(made, {"x": given.astype(">f4")})[0].tolist() == [0, 2, 0]
    for kind in (np.int32, np.uint32, np.float64, np.int64):
        with pytest.raises(Malformed, match=r"input x is \w+, the model takes f32") as refused:
            run(made, {"x": given.astype(kind)})
        assert "numpy.asarray(x).astype('float32')" in refused.value.hint


def test_numbers_of_python_take_the_dtype_that_is_declared() -> None:
    made = one("Neg", {"x": np.array(0, np.float32)})
    assert run(made, {"x": 3})[0] == -3 and run(made, {"x": 0.1})[0] == -np.float32(0.1)
    whole = one("Neg", {"x": np.array(0, np.int8)})
    assert run(whole, {"x": 3})[0] == -3
    for wrong in (2.5, 300, 2**64, float("nan"), float("inf")):
        with pytest.raises(Malformed, match=f"input x is {wrong}, and no i8 is that number"):
            run(whole, {"x": wrong})


def test_lengths_of_a_layer_stay_within_its_steps() -> None:
    steps, lengths = np.zeros((3, 2, 4), np.float32), np.array([9, 1], np.int32)
    weights = [np.zeros((1, 5, 4), np.float32), np.zeros((1, 5, 5), np.float32)]
    given = {"x": steps, "w": weights[0], "r": weights[1], "b": np.zeros((1, 10), np.float32), "n": lengths}
    with pytest.raises(Malformed, match="a length is beyond 3 elements"):
        run(one("RNN", given, ("w", "r", "b"), 2, hidden_size=5), given)


def test_the_backend_knows_its_devices_and_operators() -> None:
    made = one("Relu", {"x": np.zeros(3, np.float32)})
    assert backend.is_compatible(made) and backend.is_compatible(made, "INTERPRETER")
    assert not backend.is_compatible(made, "CUDA")
    with pytest.raises(DojoError, match="no device CUDA") as refused:
        backend.prepare(made, "CUDA")
    assert refused.value.hint == "its devices are CPU and INTERPRETER"
    made.graph.node[0].op_type = "Rilu"
    assert not backend.is_compatible(made)
    made = one("Relu", {"x": np.zeros(3, np.float32)})
    made.opset_import[0].version = 999
    assert not backend.is_compatible(made)
    with pytest.raises(Malformed, match="version 999"):
        backend.prepare(made)


def test_a_report_counts_what_is_compiled_moved_folded_and_unused() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["v"]),
        helper.make_node("Flatten", ["v"], ["f"], axis=0),
        helper.make_node("Neg", ["f"], ["y"]),
        helper.make_node("Exp", ["x"], ["nobody"]),
    ]
    made = backend.prepare(model(nodes, {"x": x}, ["y"]), "INTERPRETER")
    assert made.report([x]) == {"compiled": 2, "moved": 2, "folded": 1, "unused": 1}
    assert (made.run([x])[0] == -x.reshape(1, 6)).all() and made.prepared.lowerings == 1
