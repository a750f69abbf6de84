"""Arrays in one safetensors file, which is mapped into memory and never unpickled.

The file is the number of bytes of its head, the head in JSON (name -> dtype, shape, place), and the data.
Arrays with wide elements come first, so that each starts at a multiple of its element's size. Elements of
less than a byte take one, under names of our own: the format has none for that.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from perfdojo_sdk.core.files import open_regular, write_whole
from perfdojo_sdk.graph.arrays import dtype_of, numpy_dtype
from perfdojo_sdk.graph.graph import Array
from perfdojo_sdk.library.manifest import LibraryError

_NAMES = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "i16": "I16",
    "i8": "I8", "u64": "U64", "u32": "U32", "u16": "U16", "u8": "U8", "bool": "BOOL",
    "f8e4m3fn": "F8_E4M3", "f8e5m2": "F8_E5M2", "f8e4m3fnuz": "F8_E4M3FNUZ", "f8e5m2fnuz": "F8_E5M2FNUZ",
    "f8e8m0": "F8_E8M0", "f4e2m1": "F4_E2M1_BYTES", "i4": "I4_BYTES", "u4": "U4_BYTES", "i2": "I2_BYTES",
    "u2": "U2_BYTES",
}  # fmt: skip
_OURS = {theirs: ours for ours, theirs in _NAMES.items()}
MAX_HEAD_BYTES = 100 << 20


def write_tensors(path: Path, arrays: Mapping[str, Array], inside: Path) -> None:
    """Write the file whole; data is in the machine's order, which is little-endian."""
    head: dict[str, Any] = {}
    order = places({name: (array.dtype.itemsize, array.nbytes) for name, array in arrays.items()})
    for name, at in order.items():
        array = arrays[name]
        dtype = dtype_of(array)
        assert dtype is not None, "constants of a graph have dtypes of the language"
        ends = [at, at + array.nbytes]
        head[name] = {"dtype": _NAMES[dtype], "shape": list(array.shape), "data_offsets": ends}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)  # the data starts on a cache line of the file
    parts = _parts(struct.pack("<Q", len(text)) + text, (arrays[name] for name in order))
    write_whole(path, parts, inside)


def places(sizes: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """The first byte of each array's data, by the bytes of an element and of the whole, in their order."""
    found: dict[str, int] = {}
    at = 0
    for name in sorted(sizes, key=lambda name: (-sizes[name][0], name)):
        found[name] = at
        at += sizes[name][1]
    return found


def _parts(head: bytes, arrays: Iterable[Array]) -> Iterator[bytes]:
    yield head
    for array in arrays:
        yield np.ascontiguousarray(array).tobytes()


def read_tensors(path: Path, inside: Path) -> dict[str, Array]:
    """Read-only arrays that share the file's memory; :class:`LibraryError` if the file is not one."""
    try:
        with open_regular(path, inside) as file:
            size = file.seek(0, 2)
            file.seek(0)
            head, start = _head(path, file.read(8), file, size)
            data = np.memmap(file, np.uint8, "r") if size else np.empty(0, np.uint8)
    except OSError as error:
        raise LibraryError("PD-O012", f"cannot read {path}: {error.strerror}") from None
    return {name: _array(path, data[start:], name, entry) for name, entry in head.items()}


def _head(path: Path, length: bytes, file: Any, size: int) -> tuple[dict[str, Any], int]:
    count = struct.unpack("<Q", length)[0] if len(length) == 8 else 0
    if not 2 <= count <= min(MAX_HEAD_BYTES, size - 8):
        raise LibraryError("PD-O012", f"{path} is no safetensors file", why="its head is cut off")
    try:
        head = json.loads(file.read(count))
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict):
        raise LibraryError("PD-O012", f"{path} is no safetensors file", why="its head is no JSON")
    head.pop("__metadata__", None)
    return head, 8 + count


def _array(path: Path, data: Array, name: str, entry: Any) -> Array:
    try:
        dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
        kind = numpy_dtype(_OURS[dtype])
        numbers = [*shape, first, last]
        right = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers)
        if not right or last > data.size or last - first != prod(shape) * kind.itemsize:
            raise ValueError
        found: Array = data[first:last].view(kind).reshape(shape)
    except (KeyError, TypeError, ValueError):
        why = f"tensor {ascii(name)[:80]} has no place in it"
        raise LibraryError("PD-O012", f"{path} is no safetensors file", why=why) from None
    return found
