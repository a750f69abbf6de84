"""Element types of the standard and dtypes of the language."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

#: Domains of the standard's own operators.
STANDARD = ("", "ai.onnx")

#: The standard's name of an element type -> the language's, if it has one or is to have one.
DTYPES = {
    "FLOAT": "f32", "DOUBLE": "f64", "FLOAT16": "f16", "BFLOAT16": "bf16", "INT64": "i64", "INT32": "i32",
    "INT16": "i16", "INT8": "i8", "UINT64": "u64", "UINT32": "u32", "UINT16": "u16", "UINT8": "u8",
    "BOOL": "bool", "FLOAT8E4M3FN": "f8e4m3fn", "FLOAT8E5M2": "f8e5m2", "FLOAT8E4M3FNUZ": "f8e4m3fnuz",
    "FLOAT8E5M2FNUZ": "f8e5m2fnuz", "FLOAT8E8M0": "f8e8m0", "FLOAT4E2M1": "f4e2m1", "INT4": "i4", "UINT4":
    "u4", "INT2": "i2", "UINT2": "u2",
}  # fmt: skip
_NAMES = {ours: theirs for theirs, ours in DTYPES.items()}


def element_type(dtype: str) -> int:
    """The standard's number of a dtype."""
    return int(onnx.TensorProto.DataType.Value(_NAMES[dtype]))


def array_type(array: np.ndarray[Any, Any]) -> int:
    """The standard's number of an array's element type."""
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))
