"""NumPy's dtypes for those of the language, and constants of one shape and value."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfdojo_sdk.core.dtypes import (
    CODED_DTYPES,
    DTYPES,
    FLOAT_DTYPES,
    NARROW_DTYPES,
    UNCOMPUTED_DTYPES,
    carrier,
)
from perfdojo_sdk.graph.graph import Array

_NUMPY = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16",
    "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
}  # fmt: skip

#: dtype of the language -> that of the package ``ml_dtypes``, which comes with ONNX. Each of their elements
#: takes whole bytes, as ours does.
ML_DTYPES = {
    "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu", "f4e2m1": "float4_e2m1fn",
    "i4": "int4", "u4": "uint4", "i2": "int2", "u2": "uint2",
}  # fmt: skip
_OURS = {numpy: ours for ours, numpy in (_NUMPY | ML_DTYPES).items()}


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype, or that of ``ml_dtypes``."""
    if dtype in ML_DTYPES:
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, ML_DTYPES[dtype]))
        return kind
    return np.dtype(_NUMPY[dtype])


def dtype_of(array: Array) -> str | None:
    """The language's name of an array's dtype; None if it has none."""
    name = _OURS.get(array.dtype.name)
    return name if name in DTYPES else None


def as_list(array: Array) -> list[Any]:
    """The elements in row-major order, as the interpreter takes them: floats, codes, and integers for the
    rest.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    dtype = dtype_of(array)
    if dtype in CODED_DTYPES:
        flat = flat.view(np.uint8)
    elif dtype in NARROW_DTYPES:
        flat = flat.astype(numpy_dtype(carrier(dtype)))
    if flat.dtype.kind in "biu":
        return [int(each) for each in flat.tolist()]
    return [float(each) for each in flat.astype(np.float64).tolist()]


def from_list(elements: list[Any], shape: tuple[int, ...], dtype: str) -> Array:
    """The array that holds the interpreter's values."""
    kind = numpy_dtype(dtype)
    if dtype in UNCOMPUTED_DTYPES:
        return np.array(elements, numpy_dtype(carrier(dtype))).view(kind).reshape(shape)
    wide = np.array(elements, np.float64 if dtype in FLOAT_DTYPES else kind)
    with np.errstate(all="ignore"):  # a NaN is no invalid value
        return wide.astype(kind).reshape(shape)
