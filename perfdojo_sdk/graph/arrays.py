"""NumPy's dtypes for those of the language, and constants of one shape and value."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfdojo_sdk.core.dtypes import DTYPES, FLOAT_DTYPES
from perfdojo_sdk.graph.graph import Array

_NUMPY = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16",
    "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
    "bf16": "bfloat16",
}  # fmt: skip
_OURS = {numpy: ours for ours, numpy in _NUMPY.items()}


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype; bf16 is that of the package ``ml_dtypes``, which comes with ONNX."""
    if dtype == "bf16":
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return kind
    return np.dtype(_NUMPY[dtype])


def dtype_of(array: Array) -> str | None:
    """The language's name of an array's dtype; None if it has none."""
    name = _OURS.get(array.dtype.name)
    return name if name in DTYPES else None


def as_list(array: Array) -> list[Any]:
    """The elements in row-major order, as the interpreter takes them: floats, and integers for the rest."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind in "biu":
        return [int(each) for each in flat.tolist()]
    return [float(each) for each in flat.astype(np.float64).tolist()]


def from_list(elements: list[Any], shape: tuple[int, ...], dtype: str) -> Array:
    """The array that holds the interpreter's values."""
    kind = numpy_dtype(dtype)
    wide = np.array(elements, np.float64 if dtype in FLOAT_DTYPES else kind)
    with np.errstate(all="ignore"):  # a NaN is no invalid value
        return wide.astype(kind).reshape(shape)
