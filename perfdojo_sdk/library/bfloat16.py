"""Arrays of dtypes that NumPy itself has not, such as bf16: those of the package ml_dtypes, and tensors
through DLPack."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.graph.arrays import ML_DTYPES, numpy_dtype

#: The bits of bf16 where ml_dtypes is not installed: numbers of NumPy that say what they stand for.
BITS = np.dtype("u2", metadata={"element": "bf16"})


class MissingBfloat16(DojoError, TypeError):
    """An array of a dtype such as bf16 has to be made, and nothing is there that has such arrays."""


_OURS = {theirs: ours for ours, theirs in ML_DTYPES.items()}


def element_of(dtype: np.dtype[Any]) -> str:
    """A program's name for a dtype that NumPy itself has not; empty for any other one."""
    metadata = dtype.metadata
    return _OURS.get(dtype.name, "") or (str(metadata.get("element", "")) if metadata else "")


def fresh(dtype: str) -> np.dtype[Any]:
    """The dtype of fresh arrays; :class:`MissingBfloat16` (PD-L011) without ml_dtypes."""
    try:
        return numpy_dtype(dtype)
    except (ImportError, AttributeError) as error:
        hint = "install ml_dtypes, or pass arrays of your own with out=, such as PyTorch's"
        what = f"NumPy has no arrays of {dtype} for the result"
        raise MissingBfloat16("PD-L011", what, hint=hint) from error


# -- DLPack ----------------------------------------------------------------------------------------

_CPU, _BFLOAT = 1, 4


class _Tensor(ctypes.Structure):
    """``DLTensor`` of the standard, in the form that every version begins with."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Held:
    """Memory of a tensor, for NumPy; the capsule owns the tensor and frees it when nobody holds this."""

    def __init__(self, capsule: object, interface: dict[str, Any]) -> None:
        self.capsule, self.__array_interface__ = capsule, interface


def from_dlpack(value: Any) -> np.ndarray[Any, Any] | None:
    """A view of a tensor of bf16 on the CPU; None for any other one."""
    if value.__dlpack_device__()[0] != _CPU:
        return None
    capsule = value.__dlpack__()
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.argtypes, address.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    tensor = _Tensor.from_address(address(capsule, b"dltensor"))
    if (tensor.code, tensor.bits, tensor.lanes, tensor.device_type) != (_BFLOAT, 16, 1, _CPU):
        return None
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(2 * s for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    place = (tensor.data or 0) + tensor.byte_offset
    interface = {"shape": shape, "typestr": "<u2", "data": (place, False), "strides": strides, "version": 3}
    array: np.ndarray[Any, Any] = np.asarray(_Held(capsule, interface)).view(BITS)
    return array
