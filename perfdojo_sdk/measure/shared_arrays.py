"""Arrays in memory that a child can be given as an open file, without a copy for each child.

The first use of a page is slow, above all on virtual machines. So hundreds of megabytes of inputs are drawn
once, and read by every run of a kernel and of its references. The child's file is open for reading only.
"""

from __future__ import annotations

import mmap
import os
import weakref
from math import prod
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Source(NamedTuple):
    """The file and offset at which a child finds the bytes of an array."""

    file: int
    at: int


_FILES: weakref.WeakKeyDictionary[mmap.mmap, int] = weakref.WeakKeyDictionary()


def shared_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array of zeros; its memory lives as long as a view of it."""
    size = max(prod(shape) * dtype.itemsize, 1)
    writable = memory_file()
    try:
        os.ftruncate(writable, size)
        memory = mmap.mmap(writable, size)
        readable = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)
    _FILES[memory] = readable
    weakref.finalize(memory, os.close, readable)
    return np.frombuffer(memory, dtype, prod(shape)).reshape(shape)


def memory_file() -> int:
    """A new file that exists in memory only, empty and open for writing."""
    return os.memfd_create("perfdojo-array", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def source_of(array: Array) -> Source | None:
    """The file and the place in it of a contiguous part of a shared array; None for any other array."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        start, owner = owner, owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or owner not in _FILES or not array.flags.c_contiguous:
        return None
    return Source(_FILES[owner], array.ctypes.data - start.ctypes.data)
