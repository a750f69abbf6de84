"""A driver without a GPU: keeps memory on the host, runs kernels in Python, and checks every call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

Kernel = Callable[..., None]
"""Takes the arrays (as float32, as long as the allocation reaches) and whole numbers that it is given."""


class CUresult(Enum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class CUstreamCaptureMode(Enum):
    CU_STREAM_CAPTURE_MODE_RELAXED = 2


class CUfunction_attribute(Enum):
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


OK = CUresult.CUDA_SUCCESS


class StandIn:
    """As much of the driver as the runner uses. Anything out of order is an AssertionError."""

    CUresult, CUstreamCaptureMode = CUresult, CUstreamCaptureMode
    CUfunction_attribute = CUfunction_attribute

    def __init__(self, kernels: dict[str, tuple[int, int, Kernel]], seconds: float = 1e-3) -> None:
        self.kernels, self.seconds = kernels, seconds
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.next_address = 1 << 20
        self.clock = 0.0
        self.current = self.loaded = False
        self.capturing: list[Callable[[], None]] | None = None
        self.events: dict[int, float] = {}
        self.faulted = False
        self.launched: list[str] = []
        self.copied: list[int] = []
        self.graphs = 0
        self.dynamic: dict[str, int] = {}

    # -- context -------------------------------------------------------------------------------------

    def cuDeviceGet(self, number: int) -> Any:
        assert number == 0
        return OK, "device"

    def cuDevicePrimaryCtxRetain(self, device: str) -> Any:
        assert device == "device"
        return OK, "context"

    def cuCtxSetCurrent(self, context: str) -> Any:
        assert context == "context"
        self.current = True
        return (OK,)

    def cuModuleLoadData(self, image: bytes) -> Any:
        assert self.current and image == b"machine code"
        self.loaded = True
        return OK, "module"

    def cuModuleGetFunction(self, module: str, name: bytes) -> Any:
        assert self.loaded and module == "module" and name.decode() in self.kernels
        return OK, name.decode()

    def cuFuncSetAttribute(self, name: str, attribute: CUfunction_attribute, value: int) -> Any:
        assert attribute.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES" and self.loaded
        self.dynamic[name] = value
        return (OK,)

    # -- memory --------------------------------------------------------------------------------------

    def cuMemAlloc(self, size: int) -> Any:
        assert self.current and size > 0
        address = self.next_address
        self.memory[address] = np.full(size, 0x77, np.uint8)
        self.next_address += -(-size // 256) * 256 + (1 << 16)
        return OK, address

    def cuMemFree(self, address: int) -> Any:
        del self.memory[address]  # KeyError: freed twice, or never had
        return (OK,)

    def at(self, address: int, size: int) -> np.ndarray[Any, Any]:
        for start, block in self.memory.items():
            if start <= address and address + size <= start + block.size:
                return block[address - start : address - start + size]
        raise AssertionError(f"{size} bytes at {address} are not inside one allocation")

    def cuMemsetD8(self, address: int, content: int, size: int) -> Any:
        self.at(address, size)[:] = content
        return (OK,)

    def cuMemsetD8Async(self, address: int, content: int, size: int, stream: str) -> Any:
        assert stream == "stream"
        return self.cuMemsetD8(address, content, size)

    def cuMemcpyHtoD(self, address: int, host: int, size: int) -> Any:
        self.at(address, size)[:] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host))
        return (OK,)

    def cuMemcpyDtoH(self, host: int, address: int, size: int) -> Any:
        np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host))[:] = self.at(address, size)
        return (OK,)

    def cuMemcpyDtoDAsync(self, to: int, origin: int, size: int, stream: str) -> Any:
        assert stream == "stream" and self.capturing is None
        self.at(to, size)[:] = self.at(origin, size)
        self.copied.append(size)
        return (OK,)

    # -- work ----------------------------------------------------------------------------------------

    def cuStreamCreate(self, flags: int) -> Any:
        assert self.current
        return OK, "stream"

    def cuLaunchKernel(self, name: str, *sizes_and_more: Any) -> Any:
        gx, gy, gz, bx, by, bz, shared, stream, arguments, extra = sizes_and_more
        blocks, threads, kernel = self.kernels[name]
        assert (gx, gy, gz, bx, by, bz) == (blocks, 1, 1, threads, 1, 1)
        assert (shared, stream, extra) == (self.dynamic.get(name, 0), "stream", 0)
        values, kinds = arguments
        assert len(values) == len(kinds)

        def work() -> None:
            given = []
            for value, kind in zip(values, kinds, strict=True):
                if kind is ctypes.c_void_p:
                    start = next(s for s, b in self.memory.items() if s <= value < s + b.size)
                    block = self.memory[start]
                    assert value % 16 == 0, "arrays start at multiples of 16 bytes"
                    given.append(block[value - start :].view(np.float32))
                else:
                    assert kind in (ctypes.c_int32, ctypes.c_int64)
                    given.append(value)
            self.launched.append(name)
            self.clock += self.seconds
            try:
                kernel(*given)
            except FloatingPointError:
                self.faulted = True

        if self.capturing is not None:
            self.capturing.append(work)
        else:
            work()
        return (OK,)

    def cuStreamSynchronize(self, stream: str) -> Any:
        assert stream == "stream" and self.capturing is None
        return (CUresult.CUDA_ERROR_ILLEGAL_ADDRESS if self.faulted else OK,)

    def cuStreamBeginCapture(self, stream: str, mode: CUstreamCaptureMode) -> Any:
        assert stream == "stream" and isinstance(mode, CUstreamCaptureMode)
        self.capturing = []
        return (OK,)

    def cuStreamEndCapture(self, stream: str) -> Any:
        captured, self.capturing = self.capturing, None
        assert captured
        return OK, captured

    def cuGraphInstantiate(self, captured: list[Callable[[], None]], flags: int) -> Any:
        assert flags == 0
        return OK, captured

    def cuGraphLaunch(self, graph: list[Callable[[], None]], stream: str) -> Any:
        assert stream == "stream"
        self.graphs += 1
        for work in graph:
            work()
        return (OK,)

    def cuEventCreate(self, flags: int) -> Any:
        self.events[len(self.events)] = -1.0
        return OK, len(self.events) - 1

    def cuEventRecord(self, event: int, stream: str) -> Any:
        assert stream == "stream"
        self.events[event] = self.clock
        return (OK,)

    def cuEventElapsedTime(self, start: int, end: int) -> Any:
        assert 0 <= self.events[start] <= self.events[end]
        return OK, 1e3 * (self.events[end] - self.events[start])
