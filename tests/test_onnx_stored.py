"""Models with arrays of fp8, fp4 and integers of less than a byte: files, casts, quantisation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_onnx import model

from perfdojo_sdk.core.dtypes import NARROW_DTYPES, UNCOMPUTED_DTYPES
from perfdojo_sdk.core.formats import FORMATS
from perfdojo_sdk.frontends.onnx.prepared import Prepared
from perfdojo_sdk.frontends.onnx.reading import array_of
from perfdojo_sdk.frontends.onnx.types import DTYPES, element_type
from perfdojo_sdk.graph.arrays import ML_DTYPES, as_list, dtype_of, from_list, numpy_dtype
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.library.arrays import dtype_name
from perfdojo_sdk.library.arrays import numpy_dtype as fresh
from perfdojo_sdk.models.tensors import read_tensors, write_tensors


def run(built: Any, *arrays: np.ndarray) -> np.ndarray:
    prepared = Prepared(built)
    given = prepared.arrays(list(arrays))
    [found] = run_graph(prepared.graph(given), given)
    return found


def test_one_dtype_for_each_element_type() -> None:
    assert set(UNCOMPUTED_DTYPES) < set(ML_DTYPES) and set(UNCOMPUTED_DTYPES) < set(DTYPES.values())
    for dtype in UNCOMPUTED_DTYPES:
        kind = numpy_dtype(dtype)
        assert kind.itemsize == 1 and dtype_name(kind) == dtype == dtype_of(np.zeros(1, kind))
        assert fresh(dtype) == kind == helper.tensor_dtype_to_np_dtype(element_type(dtype))


@pytest.mark.parametrize("dtype", UNCOMPUTED_DTYPES)
@pytest.mark.parametrize("raw", [True, False])
def test_elements_that_share_a_byte_are_read_in_order(dtype: str, raw: bool) -> None:
    values = np.array([0, 1, 1.5, 2, 3, -1, -2, 0.5, 1], np.float32)[: 9 if raw else 7]
    array = values.astype(numpy_dtype(dtype))
    tensor = numpy_helper.from_array(array, "t")
    if not raw:
        tensor = helper.make_tensor("t", element_type(dtype), array.shape, array.astype(np.float32))
        assert not tensor.HasField("raw_data")
    found = array_of(tensor)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.astype(np.float32), array.astype(np.float32))
    again = from_list(as_list(found), found.shape, dtype)
    np.testing.assert_array_equal(again.astype(np.float32), array.astype(np.float32))


def test_a_file_of_the_wrong_size_is_refused() -> None:
    tensor = numpy_helper.from_array(np.arange(5).astype(ml_dtypes.uint4), "t")
    assert len(tensor.raw_data) == 3
    tensor.raw_data += b"\0"
    with pytest.raises(Malformed, match="declares 5 elements and holds 4 bytes"):
        array_of(tensor)


def test_weights_of_every_dtype_are_kept_in_files(tmp_path: Any) -> None:
    arrays = {dtype: np.array([1, 0, 1]).astype(numpy_dtype(dtype)) for dtype in UNCOMPUTED_DTYPES}
    write_tensors(tmp_path / "w.safetensors", arrays, tmp_path)
    found = read_tensors(tmp_path / "w.safetensors", tmp_path)
    assert {name: array.dtype for name, array in found.items()} == {n: a.dtype for n, a in arrays.items()}
    assert all((found[n].view(np.uint8) == a.view(np.uint8)).all() for n, a in arrays.items())


def cast(to: str, **more: Any) -> Any:
    node = helper.make_node("Cast", ["x"], ["y"], to=element_type(to), **more)
    return model([node], {"x": (TensorProto.FLOAT, ("n",))}, ["y"], opset=25)


@pytest.mark.parametrize("dtype", FORMATS)
def test_casts_saturate_unless_told_otherwise(dtype: str) -> None:
    values = np.array([0, 1.0625, -3, 1e9, -1e9, np.inf, 460.0, 465.0], np.float32)
    kind = numpy_dtype(dtype)
    largest = float(ml_dtypes.finfo(kind).max)
    cut = np.clip(values, -largest, largest).astype(kind).astype(np.float32)
    np.testing.assert_array_equal(run(cast(dtype), values).astype(np.float32), cut)
    found = run(cast(dtype, saturate=0), values).astype(np.float32)
    np.testing.assert_array_equal(found, values.astype(kind).astype(np.float32))
    none = run(cast(dtype), np.array([np.nan], np.float32)).astype(np.float32)
    assert np.isnan(none).all() or dtype == "f4e2m1"


def test_powers_of_two_are_rounded_as_told() -> None:
    values = np.array([1, 1.1, 1.5, 1.9, 3, 2.0**-126 * 1.2, 0, 3e38], np.float32)
    modes = {
        "up": [1, 2, 2, 2, 4, 2.0**-125, 2.0**-127, 2.0**127],
        "down": [1, 1, 1, 1, 2, 2.0**-126, 2.0**-127, 2.0**127],
        "nearest": [1, 1, 2, 2, 4, 2.0**-126, 2.0**-127, 2.0**127],
    }
    for mode, expected in modes.items():
        found = run(cast("f8e8m0", round_mode=mode), values)
        assert found.astype(np.float64).tolist() == expected, mode
    found = run(cast("f8e8m0", round_mode="up", saturate=0), values).astype(np.float64)
    assert np.isnan(found[-2:]).all() and found[1] == 2
    with pytest.raises(Malformed, match="round_mode"):
        run(cast("f8e8m0", round_mode="sideways"), values)


@pytest.mark.parametrize("dtype", NARROW_DTYPES)
def test_integers_lose_their_higher_bits(dtype: str) -> None:
    values = np.arange(-20, 20).astype(np.float32)
    expected = values.astype(np.int32).astype(numpy_dtype(dtype)).astype(np.int32)
    np.testing.assert_array_equal(run(cast(dtype), values).astype(np.int32), expected)


def test_a_quantised_product_keeps_its_weights_in_fp8() -> None:
    """The scales are powers of two, as microscaling has them."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((16, 8)).astype(np.float32)
    scale = np.array(0.25, np.float32)
    coded = (weights / scale).astype(ml_dtypes.float8_e4m3fn)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    initialisers = [numpy_helper.from_array(coded, "w"), numpy_helper.from_array(scale, "s")]
    built = model(nodes, {"x": (TensorProto.FLOAT, (4, 16))}, ["y"], initializer=initialisers, opset=25)
    x = rng.standard_normal((4, 16)).astype(np.float32)
    expected = x @ (coded.astype(np.float32) * scale)
    np.testing.assert_allclose(run(built, x), expected, rtol=1e-5, atol=1e-5)
