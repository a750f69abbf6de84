"""The writable memory of a loaded shared object, where its static variables are."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

_libc = ctypes.CDLL(None)
_libc.dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

#: The first bytes of a 64-bit ELF file, and formats for the place, size and number of program headers.
_MAGIC = b"\x7fELF\x02"
_OFFSET, _SIZES, _HEADER = struct.Struct("32x Q"), struct.Struct("54x 2H"), struct.Struct("2I 6Q")
_LOADED, _THREADS, _WRITABLE = 1, 7, 2


@dataclass(frozen=True)
class Segment:
    address: int
    size: int

    def content(self) -> bytes:
        return ctypes.string_at(self.address, self.size)

    def differences(self, before: bytes) -> int:
        """The number of bytes that have changed since ``before``."""
        now, then = (np.frombuffer(content, np.uint8) for content in (self.content(), before))
        return int(np.count_nonzero(now != then))


class _Found(ctypes.Structure):
    """``Dl_info``."""

    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p),
    )  # fmt: skip


def writable_segments(function: ctypes.c_void_p) -> list[Segment]:
    """The writable segments of the shared object that contains ``function``; none where it is unknown."""
    found = _Found()
    if not _libc.dladdr(function, ctypes.byref(found)) or not found.base:
        return []
    start = ctypes.string_at(found.base, 64)
    if not start.startswith(_MAGIC):
        return []
    [offset], [length, count] = _OFFSET.unpack_from(start), _SIZES.unpack_from(start)
    headers = ctypes.string_at(found.base + offset, length * count)
    segments = []
    for number in range(count):
        kind, flags, _, address, _, _, size, _ = _HEADER.unpack_from(headers, number * length)
        if kind == _LOADED and flags & _WRITABLE:
            segments.append(Segment(found.base + address, size))
        if kind == _THREADS and (own := _of_this_thread(found.base)):
            segments.append(Segment(own, size))
    return segments


class _Loaded(ctypes.Structure):
    """``struct dl_phdr_info``."""

    _fields_ = (
        ("base", ctypes.c_size_t), ("name", ctypes.c_char_p), ("headers", ctypes.c_void_p),
        ("count", ctypes.c_uint16), ("added", ctypes.c_ulonglong), ("removed", ctypes.c_ulonglong),
        ("module", ctypes.c_size_t), ("of_thread", ctypes.c_size_t),
    )  # fmt: skip


def _of_this_thread(base: int) -> int:
    """Address of the object's thread-local variables in this thread; 0 if there are none yet."""
    found = 0

    def look(loaded: Any, size: int, _: int) -> int:
        nonlocal found
        if loaded[0].base == base and size >= ctypes.sizeof(_Loaded):
            found = int(loaded[0].of_thread or 0)
        return found != 0

    _libc.dl_iterate_phdr(_LOOK(look), None)
    return found


_LOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)
