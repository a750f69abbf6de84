"""ROCm's runtime library, loaded when it is needed, and the first GPU through it.

The calls are those of HIP's C interface for modules (hip_runtime_api.h of ROCm 6 and 7); no package beside
the library itself is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from typing import Any

from perfdojo_sdk.measure.gpu_session import Arguments, Launch

#: Names of the library, the one of development packages first.
LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6")

_SUCCESS = 0
_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3
_RELAXED_CAPTURE = 2
_NAME_BYTES = 256

#: Function -> types of its arguments; all of these give a hipError_t.
_CALLS = {
    "hipInit": (c_uint,),
    "hipGetDeviceCount": (POINTER(c_int),),
    "hipSetDevice": (c_int,),
    "hipDeviceGetName": (c_char_p, c_int, c_int),
    "hipModuleLoadData": (POINTER(c_void_p), c_char_p),
    "hipModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "hipStreamCreate": (POINTER(c_void_p),),
    "hipStreamSynchronize": (c_void_p,),
    "hipMalloc": (POINTER(c_void_p), c_size_t),
    "hipFree": (c_void_p,),
    "hipMemset": (c_void_p, c_int, c_size_t),
    "hipMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    "hipMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "hipMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "hipModuleLaunchKernel": (
        c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p),
    ),
    "hipEventCreate": (POINTER(c_void_p),),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "hipStreamBeginCapture": (c_void_p, c_int),
    "hipStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "hipGraphInstantiate": (POINTER(c_void_p), c_void_p, POINTER(c_void_p), c_char_p, c_size_t),
    "hipGraphLaunch": (c_void_p, c_void_p),
}  # fmt: skip


def load(names: Sequence[str] = LIBRARIES) -> Any:
    """The library, initialised; OSError with the reason where there is none or no GPU."""
    library = _found(names)
    for name, arguments in _CALLS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    library.hipGetErrorName.argtypes, library.hipGetErrorName.restype = (c_int,), c_char_p
    _done(library, library.hipInit(0))
    count = c_int()
    _done(library, library.hipGetDeviceCount(byref(count)))
    if count.value < 1:
        raise OSError("ROCm's runtime finds no GPU")
    return library


def _found(names: Sequence[str]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"ROCm's runtime is not installed ({names[0]})")


def _done(library: Any, status: int) -> None:
    if status != _SUCCESS:
        raise OSError(f"the driver failed: {library.hipGetErrorName(status).decode()}")


@cache
def driver() -> Any:
    """The library of this machine; OSError where there is none."""
    return load()


def gpu_name(library: Any) -> str:
    """The name of the first GPU."""
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _done(library, library.hipDeviceGetName(name, _NAME_BYTES, 0))
    return name.value.decode()


@cache
def name_here() -> str:
    """The first GPU of this machine, or "" where there is none."""
    try:
        return gpu_name(driver())
    except OSError:
        return ""


class HipGpu:
    """The first GPU: a :class:`perfdojo_sdk.measure.gpu_session.Gpu`."""

    def __init__(self, library: Any) -> None:
        self.hip = library
        self.image = b""

    def _do(self, name: str, *arguments: Any) -> None:
        _done(self.hip, getattr(self.hip, name)(*arguments))

    def _new(self, name: str, *arguments: Any) -> Any:
        """The pointer that a call writes through its first argument."""
        made = c_void_p()
        self._do(name, byref(made), *arguments)
        return made

    def load(self, image: bytes) -> Any:
        self._do("hipSetDevice", 0)
        self.image = image  # the runtime may read it later
        return self._new("hipModuleLoadData", image)

    def function(self, module: Any, name: str, dynamic_bytes: int = 0) -> Any:
        return self._new("hipModuleGetFunction", module, name.encode())

    def stream(self) -> Any:
        return self._new("hipStreamCreate")

    def allocate(self, size: int) -> int:
        return int(self._new("hipMalloc", size).value or 0)

    def free(self, address: int) -> None:
        self._do("hipFree", address)

    def fill(self, address: int, content: int, size: int) -> None:
        self._do("hipMemset", address, content, size)

    def fill_in(self, stream: Any, address: int, content: int, size: int) -> None:
        self._do("hipMemsetAsync", address, content, size, stream)

    def copy_in(self, stream: Any, to: int, origin: int, size: int) -> None:
        self._do("hipMemcpyAsync", to, origin, size, _ON_DEVICE, stream)

    def put(self, address: int, host: int, size: int) -> None:
        self._do("hipMemcpy", address, host, size, _TO_DEVICE)

    def get(self, host: int, address: int, size: int) -> None:
        self._do("hipMemcpy", host, address, size, _TO_HOST)

    def launch(self, function: Any, launch: Launch, stream: Any, call: Arguments) -> None:
        addresses, values = call
        whole = ctypes.c_int64 if launch.index_bytes == 8 else ctypes.c_int32
        given = [*map(c_void_p, addresses), *map(whole, values)]
        pointers = (c_void_p * len(given))(*[ctypes.addressof(each) for each in given])
        sizes = (launch.blocks, 1, 1, launch.threads, 1, 1, launch.dynamic_bytes)
        self._do("hipModuleLaunchKernel", function, *sizes, stream, pointers, None)

    def wait(self, stream: Any) -> None:
        self._do("hipStreamSynchronize", stream)

    def event(self) -> Any:
        return self._new("hipEventCreate")

    def record(self, event: Any, stream: Any) -> None:
        self._do("hipEventRecord", event, stream)

    def seconds_between(self, start: Any, end: Any) -> float:
        milliseconds = c_float()
        self._do("hipEventElapsedTime", byref(milliseconds), start, end)
        return milliseconds.value * 1e-3

    def capture(self, stream: Any, work: Callable[[], None]) -> Any:
        self._do("hipStreamBeginCapture", stream, _RELAXED_CAPTURE)
        work()
        captured = c_void_p()
        self._do("hipStreamEndCapture", stream, byref(captured))
        return self._new("hipGraphInstantiate", captured, None, None, 0)

    def replay(self, graph: Any, stream: Any) -> None:
        self._do("hipGraphLaunch", graph, stream)
