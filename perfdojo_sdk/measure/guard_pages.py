"""Arrays between inaccessible pages: a kernel that reads or writes beyond one crashes or is detected."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.measure.kernel_calls import CARRIER, Guarded, bytes_of, poison_of

PAGE = mmap.PAGESIZE
#: Bytes that are inaccessible on either side of an array.
FENCE = max(PAGE, 1 << 16)
#: Bytes of a cache line; addresses that differ by a multiple of it have the same alignment.
CACHE_LINE = 64

_libc = ctypes.CDLL(None, use_errno=True)


class FencedArray(Guarded):
    """An array between two inaccessible areas, in memory large enough to move about in."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str, alignment: int) -> None:
        self.name, self.dtype, self.shape, self.checksum = name, dtype, shape, 0
        self.step = max(alignment, np.dtype(CARRIER[dtype]).itemsize)
        size = -(-bytes_of(shape, dtype) // PAGE) * PAGE + 2 * PAGE
        memory = mmap.mmap(-1, size + 2 * FENCE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)  # touching small pages may take longer than the calls
        whole = np.frombuffer(memory, np.uint8)
        for fence in (whole.ctypes.data, whole.ctypes.data + FENCE + size):
            if _libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(FENCE), 0):
                raise MemoryError
        self.inside = whole[FENCE : FENCE + size]
        self.at = -1

    def allow(self, access: int) -> None:
        """Set the access rights of all memory between the fences, as constants of ``mprotect``."""
        if _libc.mprotect(
            ctypes.c_void_p(self.inside.ctypes.data), ctypes.c_size_t(self.inside.size), access
        ):
            raise MemoryError

    def place(
        self, where: str | int, number: int, shape: tuple[int, ...] | None = None, turn: int = 0
    ) -> bool:
        """Put the array at the ``start``, in the ``middle``, at the ``end``, or so many bytes behind the
        middle; ``odd`` is an address with the least alignment allowed, another one for each ``number``, and
        an element further with each ``turn``. True if the array has moved."""
        shape, before = self.shape if shape is None else shape, self.at
        places = {
            "start": 0,
            "middle": PAGE,
            "odd": PAGE + self.step * (2 * number + 1 + turn) % CACHE_LINE,
            "end": (self.inside.size - bytes_of(shape, self.dtype)) // self.step * self.step,
        }
        self.at = PAGE + where if isinstance(where, int) else places[where]
        self.lie(self.inside, self.at, shape)
        return before != self.at


#: The place of all arrays, or of each; those that are not named lie in the middle.
Where: TypeAlias = str | Mapping[FencedArray, str | int]


def same(array: FencedArray, bits: np.ndarray[Any, Any]) -> bool:
    one, other = ctypes.c_void_p(array.address), ctypes.c_void_p(bits.ctypes.data)
    return not bits.nbytes or not _libc.memcmp(one, other, ctypes.c_size_t(bits.nbytes))


def untouched(array: FencedArray) -> bool:
    """True if the array is all poison: its first element is, and each equals the one before."""
    step = array.bits.itemsize
    one, next_one = ctypes.c_void_p(array.address), ctypes.c_void_p(array.address + step)
    alike = not _libc.memcmp(one, next_one, ctypes.c_size_t(array.bits.nbytes - step))
    return alike and int(array.bits[0]) == poison_of(array.dtype, 0)
