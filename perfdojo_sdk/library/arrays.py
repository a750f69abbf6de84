"""Arrays that are passed to C: each argument becomes a view that a kernel may use, or is an error.

Nothing is copied or converted. NumPy arrays (those of the package ml_dtypes among them), and objects with
``__array_interface__`` or DLPack on the CPU, such as PyTorch tensors, are accepted when shape, dtype and
strides are exactly the kernel's.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.interface import MAX_THREADS
from perfdojo_sdk.library.bfloat16 import element_of, fresh, from_dlpack

Array: TypeAlias = np.ndarray[Any, Any]

ALIGNMENT = 64

#: dtype of a program -> NumPy's own; others are those of ml_dtypes.
NUMPY = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16",
    "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
}  # fmt: skip
DTYPES = {np.dtype(numpy): ours for ours, numpy in NUMPY.items()}


class ArgumentTypeError(DojoError, TypeError):
    """An argument of the wrong kind: no array, another dtype, another device."""


class ArgumentValueError(DojoError, ValueError):
    """An array of the wrong shape, with gaps, read-only, or overlapping another one."""


def dtype_name(dtype: np.dtype[Any]) -> str:
    """A program's name for ``dtype`` in any byte order; NumPy's own where programs have none."""
    return element_of(dtype) or DTYPES.get(dtype.newbyteorder("=")) or str(dtype)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype for fresh arrays of a program's."""
    return np.dtype(NUMPY[dtype]) if dtype in NUMPY else fresh(dtype)


def view(value: Any, name: str) -> Array:
    """``value`` as an array over the same memory."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if not hasattr(value, "__dlpack__"):
        what = f"{name} is {type(value).__name__}, expected an array"
        raise ArgumentTypeError("PD-L010", what, hint="pass a NumPy array, or one that speaks DLPack")
    _refuse_negated_when_read(value, name)
    try:
        rounded = from_dlpack(value)
        array: Array = np.from_dlpack(value) if rounded is None else rounded
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        what = f"{name} cannot be read through DLPack"
        hint = "pass one on the CPU, of a dtype that NumPy has, and without a gradient (detach it)"
        raise ArgumentTypeError("PD-L010", what, why=why, hint=hint) from error
    if array.flags.owndata and array.size:  # NumPy allocates where DLPack hands over no address
        what = f"{name} is {type(value).__name__} without memory of its own"
        hint = "pass a tensor that holds its elements, such as clone() of it, and none that is only traced"
        raise ArgumentTypeError("PD-L010", what, hint=hint)
    return array


def _refuse_negated_when_read(value: Any, name: str) -> None:
    """Raise for a PyTorch view with the negative bit: DLPack hands over the memory without the sign."""
    negated = getattr(value, "is_neg", None)
    if callable(negated) and negated() is True:
        what = f"{name} is a view that PyTorch negates when it reads it"
        raise ArgumentTypeError("PD-L010", what, hint="pass a tensor without it; resolve_neg() makes a copy")


def writable_view(value: Any, name: str) -> Array:
    """``value`` as an array over the same memory that may be written."""
    array = view(value, name)
    if not array.flags.writeable and not isinstance(value, np.ndarray) and hasattr(value, "__array__"):
        # Older DLPack cannot say "writable"; __array__ may, and is trusted when it did not copy.
        other = np.asarray(value)
        if other.ctypes.data == array.ctypes.data and other.strides == array.strides:
            array = other
    if not array.flags.writeable:
        raise ArgumentValueError("PD-L013", f"{name} is read-only", hint="pass a writable array")
    return array


def check_layout(array: Array, name: str, written: bool = False) -> None:
    """Raise unless an array has C order, no gaps, alignment to its elements and the machine's byte order.

    An array that is ``written`` cannot be replaced by a copy of it: the caller would not see the results.
    """
    fresh = "pass a fresh array in C order, and copy the result from there"
    if not array.flags.c_contiguous:
        what = f"{name} has strides {array.strides} bytes, expected an array in C order without gaps"
        raise ArgumentValueError(
            "PD-L012", what, hint=fresh if written else "pass numpy.ascontiguousarray of it"
        )
    if not array.flags.aligned or not array.dtype.isnative:
        what = f"{name} is not aligned to its elements, or not in this machine's byte order"
        raise ArgumentValueError("PD-L012", what, hint=fresh if written else "pass a fresh copy of it")


def refuse_overlap(outputs: Sequence[tuple[str, Array]], others: Sequence[tuple[str, Array]]) -> None:
    """Raise if an output shares memory with an input, the workspace or another output."""
    for k, (name, output) in enumerate(outputs):
        for other_name, other in (*others, *outputs[:k]):
            if np.may_share_memory(output, other):
                what = f"{name} and {other_name} overlap in memory"
                raise ArgumentValueError("PD-L014", what, hint="pass separate arrays")


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialised array that starts on a cache line."""
    return aligned_with_address(shape, np.dtype(dtype))[0]


def aligned_with_address(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Array, int]:
    """An uninitialised array that starts on a cache line, and its address. Takes about 1 us."""
    raw = np.empty(prod(shape) * dtype.itemsize + ALIGNMENT, np.uint8)
    address: int = raw.__array_interface__["data"][0]
    start = -address % ALIGNMENT
    return np.ndarray(shape, dtype, raw, start), address + start


def keywords(inputs: Sequence[str], own: Collection[str]) -> dict[str, str]:
    """Keyword -> the input that it gives. An input that is called as one of the call's ``own`` arguments gets
    an underscore behind its name, as parameters in headers do."""
    found: dict[str, str] = {}
    for name in inputs:
        word = name
        while word in own or (word != name and word in inputs):
            word += "_"
        found[word] = name
    return found


def by_keyword(words: Mapping[str, str]) -> str:
    """Advice on inputs whose keywords are not their names; nothing if there are none."""
    others = {word: name for word, name in words.items() if word != name}
    if not others:
        return ""
    names = " and ".join(f"{name}=" for name in others.values())
    has = "is an argument" if len(others) == 1 else "are arguments"
    instead = " and ".join(f"{word}=" for word in others)
    inputs = "the input" if len(others) == 1 else "the inputs"
    return f"{names} {has} of the call itself: give {inputs} by position, or by {instead}"


def thread_count(threads: Any) -> int:
    """``threads``, else ``PERFDOJO_NUM_THREADS``, else all cores that this process may use."""
    if threads is None:
        given = os.environ.get("PERFDOJO_NUM_THREADS", "").strip()
        if not given:
            return available_cores()
        if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= MAX_THREADS:
            what = f"PERFDOJO_NUM_THREADS is {given[:40]!r}, expected 1 .. {MAX_THREADS}"
            raise ArgumentValueError("PD-L015", what, hint="unset it to use all cores")
        return int(given)
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        what = f"threads is {type(threads).__name__}, expected an integer"
        raise ArgumentTypeError("PD-L015", what, hint="pass threads=1, or leave it out for all cores")
    if not 1 <= threads <= MAX_THREADS:
        what = f"threads is {threads}, expected 1 .. {MAX_THREADS}"
        raise ArgumentValueError("PD-L015", what, hint="leave it out for all cores")
    return int(threads)


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAX_THREADS)
    return min(os.cpu_count() or 1, MAX_THREADS)
