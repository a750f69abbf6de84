"""Operators of ONNX in forms that the standard's own tests leave out, beside the reference or NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import X, model

import perfdojo_sdk.onnx.backend as backend
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.frontends.onnx.prepared import Prepared
from perfdojo_sdk.graph.refusals import Malformed, Reason
from perfdojo_sdk.graph.running import interpreted, run_graph
from perfdojo_sdk.models.kernels import CompiledKernels
from perfdojo_sdk.plugins import load_plugins


def chain(*nodes: Any, inputs: dict[str, Any], outputs: Sequence[str], **more: Any) -> Any:
    return model(
        [helper.make_node(op, list(i), list(o), **a) for op, i, o, a in nodes], inputs, list(outputs), **more
    )


def run(made: Any, *inputs: Any) -> list[Any]:
    return list(backend.run_model(made, list(inputs), "INTERPRETER"))


def agree(made: Any, *inputs: Any) -> None:
    """The results are those of the reference."""
    names = [value.name for value in made.graph.input]
    expected = ReferenceEvaluator(made).run(None, dict(zip(names, inputs, strict=True)))
    for found, right in zip(run(made, *inputs), expected, strict=True):
        one, other = (
            [each] if isinstance(each, np.ndarray | np.generic) else each for each in (found, right)
        )
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-5)


# -- sequences and optionals -----------------------------------------------------------------------

A, B = X, np.ones((2, 4), np.float32)
AT, LAST = np.array(1), np.array(-1)


@pytest.mark.parametrize("position", [0, 1, -1])
def test_elements_of_a_sequence(position: int) -> None:
    given = numpy_helper.from_array(np.array(position), "p")
    made = chain(
        ("SequenceConstruct", "ab", "s", {}), ("SequenceAt", "sp", "y", {}), ("SequenceErase", "sp", "e", {}),
        ("SequenceLength", "e", "n", {}), ("SequenceInsert", "ebp", "t", {}),
        ("SequenceLength", "t", "m", {}),
        inputs={"a": A, "b": B}, outputs=["y", "e", "n", "m"], initializer=[given],
    )  # fmt: skip
    found = run(made, A, B)
    assert (found[0] == (A, B)[position]).all() and (found[1][0] == (B, A)[position]).all()
    assert [int(found[2]), int(found[3])] == [1, 2]


@pytest.mark.parametrize(("axis", "new"), [(0, 0), (1, 0), (-1, 1)])
def test_sequences_are_joined(axis: int, new: int) -> None:
    made = chain(
        ("SequenceConstruct", "aab", "s", {}),
        ("ConcatFromSequence", "s", "y", {"axis": axis, "new_axis": new}),
        inputs={"a": A, "b": A}, outputs=["y"],
    )  # fmt: skip
    agree(made, A, 2 * A)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL])
def test_a_sequence_begins_empty(dtype: int) -> None:
    made = chain(
        ("SequenceEmpty", "", "s", {"dtype": dtype}), ("SequenceLength", "s", "n", {}),
        ("SequenceInsert", "sa", "t", {}),
        ("Optional", "t", "o", {}), ("OptionalHasElement", "o", "h", {}),
        ("OptionalGetElement", "o", "u", {}),
        inputs={"a": A}, outputs=["n", "h", "u"],
    )  # fmt: skip
    count, there, items = run(made, A)
    assert count == 0 and there and len(items) == 1 and (items[0] == A).all()


def test_sequences_and_optionals_cross_the_border_of_a_model() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    types = {"s": helper.make_sequence_type_proto(tensor), "o": helper.make_optional_type_proto(tensor)}
    made = chain(
        ("Identity", "s", "t", {}), ("Identity", "o", "p", {}), ("SequenceAt", ["s", "i"], "y", {}),
        inputs={}, outputs=["t", "p", "y"], initializer=[numpy_helper.from_array(AT, "i")],
    )  # fmt: skip
    made.graph.input.extend(helper.make_value_info(name, kind) for name, kind in types.items())
    prepared = Prepared(made)
    for optional in (A, None):
        inputs = [[A, B, A], optional]
        arrays = prepared.arrays(inputs)
        lowered = prepared.lowered(arrays, prepared.lengths(inputs))
        assert lowered.graph is not None
        items, one, y = lowered.outputs(run_graph(lowered.graph, arrays))
        assert len(items) == 3 and (y == B).all() and (one is None if optional is None else (one == A).all())
    graph = lower(made, {"s[0]": (3, 4), "s[1]": (2,), "o": (1,)}).graph
    assert graph is not None and [v.name for v in graph.inputs] == ["s[0]", "s[1]", "o"]
    with pytest.raises(Malformed, match="unknown length"):
        lower(made, {"o": (1,)})


def test_a_place_beyond_a_sequence_is_refused() -> None:
    made = chain(
        ("SequenceConstruct", "ab", "s", {}), ("SequenceAt", "sp", "y", {}),
        inputs={"a": A, "b": B}, outputs=["y"], initializer=[numpy_helper.from_array(np.array(2), "p")],
    )  # fmt: skip
    with pytest.raises(Malformed, match="SequenceAt at"):
        run(made, A, B)


# -- lengths that are data -------------------------------------------------------------------------


def test_a_length_passes_through_what_works_element_by_element() -> None:
    made = chain(
        ("NonZero", "x", "n", {}), ("Transpose", "n", "t", {}), ("Cast", "t", "f", {"to": TensorProto.FLOAT}),
        ("Mul", ["f", "two"], "d", {}), ("Unsqueeze", ["d", "zero"], "u", {}),
        ("Squeeze", ["u", "zero"], "y", {}),
        ("Slice", ["t", "zero", "one", "one"], "k", {}), ("Squeeze", ["k", "one"], "r", {}),
        ("Gather", ["x", "r"], "g", {}),
        inputs={"x": X}, outputs=["y", "g", "n"],
        initializer=[
            numpy_helper.from_array(np.array([v], k), name)
            for name, v, k in (("two", 2, np.float32), ("zero", 0, np.int64), ("one", 1, np.int64))
        ],
    )  # fmt: skip
    prepared = Prepared(made)
    for x in (
        X * (X % 3 == 0),
        np.zeros_like(X),
        np.ones_like(X),
        np.where(X == 11, np.nan, 0).astype(np.float32),
    ):
        arrays = prepared.arrays([x])
        y, g, n = run_graph(prepared.graph(arrays), arrays)
        places = np.argwhere(x)
        assert (n == places.T).all() and (y == 2 * places).all() and y.dtype == np.float32
        assert np.array_equal(g, x[places[:, 0]], equal_nan=True)
    assert prepared.lowerings == 1


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Softmax", {}), ("Shape", {}), ("ReduceSum", {}), ("Gather", {"axis": 1}), ("Div", {})],
)
def test_what_needs_the_length_is_refused(op: str, attributes: dict[str, int]) -> None:
    inputs = ["n", "x"] if op == "Gather" else ["n", "n"] if op == "Div" else ["n"]
    made = chain(
        ("NonZero", "x", "n", {}), (op, inputs, "y", attributes), inputs={"x": AT[None]}, outputs=["y"]
    )
    assert [r.reason for r in lower(made).refusals] == [Reason.LENGTH]


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_distinct_slices(ordered: int, axis: int | None) -> None:
    x = np.array([[2, 1, 2, 1], [0, 3, 0, 3], [2, 1, 2, 1]], np.float32)
    more = {} if axis is None else {"axis": axis}
    made = chain(("Unique", "x", "yijc", {"sorted": ordered, **more}), inputs={"x": x}, outputs="yijc")
    y, first, inverse, counts = run(made, x)
    slices = x.reshape(-1, 1) if axis is None else np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    found = y.reshape(-1, 1) if axis is None else np.moveaxis(y, axis, 0).reshape(len(first), -1)
    assert (found == slices[first]).all() and (found[inverse] == slices).all()
    assert (counts == np.bincount(inverse)).all() and len({tuple(s) for s in found}) == len(found)
    assert not ordered or [tuple(s) for s in found] == sorted(tuple(s) for s in found)
    assert ordered or (np.diff(first) > 0).all()


def test_of_no_elements_nothing_is_found() -> None:
    x = np.zeros((0, 3), np.float32)
    for op, outputs in (("NonZero", "y"), ("Unique", "yijc")):
        found = run(chain((op, "x", outputs, {}), inputs={"x": x}, outputs=outputs), x)
        assert all(each.size == 0 for each in found)


# -- the rest --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "p"), [((2, 3, 4), 1), ((1, 2, 3, 3), 2), ((2, 1, 2, 2, 2), 3)])
def test_norms_of_images(shape: tuple[int, ...], p: int) -> None:
    x = np.random.default_rng(p).standard_normal(shape).astype(np.float32)
    [y] = run(chain(("GlobalLpPool", "x", "y", {"p": p}), inputs={"x": x}, outputs="y"), x)
    right = (np.abs(x.astype(np.float64)) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)
    assert np.allclose(y, right, rtol=1e-5)


@pytest.mark.parametrize(("scale", "parts"), [(1.0, (2, 2)), (0.5, (1, 3)), (1.0, (3, 4))])
def test_largest_elements_of_regions(scale: float, parts: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 8)).astype(np.float32)
    rois = np.array([[0, 0, 0, 7, 5], [1, 2.4, 1.6, 5, 4], [1, 6, 5, 12, 9], [0, 9, 9, 9, 9]], np.float32)
    node = ("MaxRoiPool", "xr", "y", {"pooled_shape": parts, "spatial_scale": scale})
    [y] = run(chain(node, inputs={"x": x, "r": rois}, outputs="y"), x, rois)
    for n, (image, *ends) in enumerate(rois.astype(np.float64)):
        x1, y1, x2, y2 = (int(np.floor(e * scale + 0.5)) for e in ends)
        sizes = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i, j in np.ndindex(*parts):
            at = []
            for begin, size, k, count, most in zip((y1, x1), sizes, (i, j), parts, x.shape[2:], strict=True):
                ends_ = np.floor(k * size / count), np.ceil((k + 1) * size / count)
                at.append(slice(*(int(np.clip(begin + e, 0, most)) for e in ends_)))
            part = x[int(image), :, at[0], at[1]]
            assert np.allclose(y[n, :, i, j], part.max((1, 2)) if part.size else 0)


def test_a_region_of_another_image_is_reported() -> None:
    x, rois = np.ones((1, 1, 2, 2), np.float32), np.array([[1, 0, 0, 1, 1]], np.float32)
    node = ("MaxRoiPool", "xr", "y", {"pooled_shape": [1, 1]})
    with pytest.raises(Malformed, match="beyond 1 elements"):
        run(chain(node, inputs={"x": x, "r": rois}, outputs="y"), x, rois)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_take_as_many_samples_as_they_have_elements(mode: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 9)).astype(np.float32)
    rois, images = np.array([[0.5, 1, 8, 6], [2, 2, 3, 3]], np.float32), np.zeros(2, np.int64)
    node = (
        "RoiAlign",
        "xri",
        "y",
        {"output_height": 2, "output_width": 3, "mode": mode, "sampling_ratio": 0},
    )
    made = chain(node, inputs={"x": x, "r": rois, "i": images}, outputs="y")
    agree(made, x, rois, images)
    with pytest.raises(Malformed, match="takes more samples"):
        run(made, x, 10 * rois, images)


@pytest.mark.parametrize("size", [1, 4, 7])
def test_determinants_exchange_rows(size: int) -> None:
    draw = np.random.default_rng(size)
    x = draw.standard_normal((3, size, size)).astype(np.float64)
    x[0, 0, 0], x[1] = 0, x[1][:, :1] * x[1][:1]
    agree(chain(("Det", "x", "y", {}), inputs={"x": x}, outputs="y"), x)


def test_powers_of_integers_wrap_and_of_negative_exponents_vanish() -> None:
    x = np.array([3, -2, 0, 1, -1, -1, 5, 7], np.int32)
    y = np.array([40, 31, 0, -3, -3, -2, -1, 5], np.int64)
    [found] = run(chain(("Pow", "xy", "z", {}), inputs={"x": x, "y": y}, outputs="z"), x, y)
    wrapped = [
        int(np.array(int(a) ** int(b)).astype(object).item() + 2**31) % 2**32 - 2**31
        for a, b in zip(x[:3], y[:3])
    ]
    assert found.tolist() == [*wrapped, 1, -1, 1, 0, 7**5]


def test_remainders_of_floats_are_exact() -> None:
    x = np.array([1e30, -1e30, 5.5, -5.5, 1e-40, np.inf, 3, -0.0], np.float32)
    y = np.array([3, 7, -2, 2, 3e-41, 2, np.inf, 1], np.float32)
    [found] = run(chain(("Mod", "xy", "z", {"fmod": 1}), inputs={"x": x, "y": y}, outputs="z"), x, y)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(found, np.fmod(x, y), equal_nan=True)


def test_bits_are_kept_as_they_are() -> None:
    x = np.array([0x7FC00123, 1, -1, 0], np.int32)  # a NaN with a payload, the least number, another NaN
    nodes = [
        ("BitCast", "x", "f", {"to": TensorProto.FLOAT}),
        ("BitCast", "f", "y", {"to": TensorProto.INT32}),
    ]
    f, y = run(chain(*nodes, inputs={"x": x}, outputs="fy", opset=26), x)
    assert f.tobytes() == x.tobytes() and (y == x).all()
    wide = chain(("BitCast", "x", "y", {"to": TensorProto.INT64}), inputs={"x": x}, outputs="y", opset=26)
    with pytest.raises(Malformed, match="the bits of i32 are none of i64"):
        lower(wide)


def test_random_numbers_are_refused() -> None:
    for op in ("RandomNormal", "RandomUniform", "Multinomial", "RandomNormalLike", "RandomUniformLike"):
        inputs = "" if op in ("RandomNormal", "RandomUniform") else "x"
        made = chain((op, inputs, "y", {"shape": [2]} if not inputs else {}), inputs={"x": X}, outputs="y")
        assert [r.reason for r in lower(made).refusals] == [Reason.RANDOM]


# -- values that have no number, and sets that have no element -----------------------------------------


@pytest.fixture(scope="module")
def compiled() -> CompiledKernels:
    return CompiledKernels.of(load_plugins(), "best", forks=True)


def alike_everywhere(made: Any, compiled: CompiledKernels, *inputs: Any) -> list[Any]:
    """The results of the reference, which are those of the interpreter and of compiled kernels."""
    names = [value.name for value in made.graph.input]
    expected = ReferenceEvaluator(made).run(None, dict(zip(names, inputs, strict=True)))
    prepared = Prepared(made)
    arrays = prepared.arrays(list(inputs))
    for execute in (interpreted, compiled):
        for found, right in zip(run_graph(prepared.graph(arrays), arrays, execute), expected, strict=True):
            assert found.dtype == right.dtype and found.shape == right.shape
            assert np.array_equal(found, right, equal_nan=found.dtype.kind == "f"), (found, right)
    return list(expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_sign_of_nan_is_nan(compiled: CompiledKernels, dtype: Any) -> None:
    x = np.array([np.nan, -np.nan, 0, -0.0, 2, -2, np.inf, -np.inf], dtype)
    [y] = alike_everywhere(chain(("Sign", "x", "y", {}), inputs={"x": x}, outputs="y"), compiled, x)
    assert np.isnan(y[:2]).all() and y[2:].tolist() == [0, 0, 1, -1, 1, -1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_])
def test_extrema_of_nothing_are_the_ends_of_the_dtype(compiled: CompiledKernels, dtype: Any) -> None:
    x, axes = np.zeros((2, 0, 3), dtype), [numpy_helper.from_array(np.array([1]), "a")]
    nodes = [(f"Reduce{kind}", "xa", kind, {"keepdims": 0}) for kind in ("Max", "Min")]
    nodes = [(op, list(i), [o], a) for op, i, o, a in nodes]
    made = chain(*nodes, inputs={"x": x}, outputs=["Max", "Min"], initializer=axes)
    most, least = alike_everywhere(made, compiled, x)
    ends = {"f": (-np.inf, np.inf), "b": (False, True)}.get(np.dtype(dtype).kind)
    low, high = ends or (np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert (most == low).all() and (least == high).all() and most.shape == (2, 3)


@pytest.mark.parametrize("values", [[0, 0, 0], [-0.0], [3, 3], [-3, -3], [1, -2, 0.3], [3e38, -1e38]])
def test_numbers_without_a_range_are_quantised_by_a_scale_above_zero(
    compiled: CompiledKernels, values: list[float]
) -> None:
    x = np.array(values, np.float32)
    made = chain(("DynamicQuantizeLinear", "x", "ysz", {}), inputs={"x": x}, outputs="ysz")
    y, scale, _ = alike_everywhere(made, compiled, x)
    assert scale > 0 and (np.any(x) or not y.any())


def test_the_smallest_numbers_are_quantised_to_zeros() -> None:
    """Their range divided by 255 is 0, by which the reference divides."""
    x = np.array([1e-45, 0], np.float32)
    made = chain(("DynamicQuantizeLinear", "x", "ysz", {}), inputs={"x": x}, outputs="ysz")
    y, scale, zero = run(made, x)
    assert not y.any() and scale == np.float32(1 / 255) and zero == 0
