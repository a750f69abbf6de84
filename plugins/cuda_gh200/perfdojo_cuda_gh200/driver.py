"""The GPU's driver, loaded when it is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from perfdojo_sdk.measure.gpu_session import Arguments, Launch


@cache
def driver() -> Any:
    """The driver's Python module, initialised; OSError with the reason where there is no GPU."""
    try:
        from cuda.bindings import driver as module
    except ImportError:
        raise OSError("cuda-bindings is not installed") from None
    try:
        (status,) = module.cuInit(0)
    except RuntimeError:  # the bindings find no libcuda.so
        raise OSError("NVIDIA's driver is not installed (libcuda.so)") from None
    if status != module.CUresult.CUDA_SUCCESS:
        raise OSError(f"the driver finds no GPU ({status.name})")
    return module


@cache
def on_gpu() -> bool:
    """True if this machine has a GPU that kernels run on."""
    try:
        return bool(gpu_name())
    except OSError:
        return False


def gpu_name() -> str:
    """The name and compute capability of the first GPU; OSError where there is none."""
    module = driver()
    device = value(module, module.cuDeviceGet(0))
    name = value(module, module.cuDeviceGetName(100, device)).split(b"\0")[0].decode()
    attribute = module.CUdevice_attribute
    major = value(module, module.cuDeviceGetAttribute(
        attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))  # fmt: skip
    minor = value(module, module.cuDeviceGetAttribute(
        attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))  # fmt: skip
    return f"{name} (sm_{major}{minor})"


def value(module: Any, answer: Any) -> Any:
    """The result of a call of the driver; OSError where it failed."""
    status, *rest = answer
    if status != module.CUresult.CUDA_SUCCESS:
        raise OSError(f"the driver failed: {status.name}")
    return rest[0] if len(rest) == 1 else rest


class CudaGpu:
    """The first GPU, through the driver's Python module: a :class:`perfdojo_sdk.measure.gpu_session.Gpu`."""

    def __init__(self, module: Any) -> None:
        self.cuda = module

    def _of(self, answer: Any) -> Any:
        return value(self.cuda, answer)

    def load(self, image: bytes) -> Any:
        cuda = self.cuda
        context = self._of(cuda.cuDevicePrimaryCtxRetain(self._of(cuda.cuDeviceGet(0))))
        self._of(cuda.cuCtxSetCurrent(context))
        return self._of(cuda.cuModuleLoadData(image))

    def function(self, module: Any, name: str, dynamic_bytes: int = 0) -> Any:
        found = self._of(self.cuda.cuModuleGetFunction(module, name.encode()))
        if dynamic_bytes:
            most = self.cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            value(self.cuda, (*self.cuda.cuFuncSetAttribute(found, most, dynamic_bytes), None))
        return found

    def stream(self) -> Any:
        return self._of(self.cuda.cuStreamCreate(0))

    def allocate(self, size: int) -> int:
        return int(self._of(self.cuda.cuMemAlloc(size)))

    def free(self, address: int) -> None:
        self._of(self.cuda.cuMemFree(address))

    def fill(self, address: int, content: int, size: int) -> None:
        self._of(self.cuda.cuMemsetD8(address, content, size))

    def fill_in(self, stream: Any, address: int, content: int, size: int) -> None:
        self._of(self.cuda.cuMemsetD8Async(address, content, size, stream))

    def copy_in(self, stream: Any, to: int, origin: int, size: int) -> None:
        self._of(self.cuda.cuMemcpyDtoDAsync(to, origin, size, stream))

    def put(self, address: int, host: int, size: int) -> None:
        self._of(self.cuda.cuMemcpyHtoD(address, host, size))

    def get(self, host: int, address: int, size: int) -> None:
        self._of(self.cuda.cuMemcpyDtoH(host, address, size))

    def launch(self, function: Any, launch: Launch, stream: Any, call: Arguments) -> None:
        addresses, values = call
        whole = ctypes.c_int64 if launch.index_bytes == 8 else ctypes.c_int32
        kinds = (*[ctypes.c_void_p] * len(addresses), *[whole] * len(values))
        arguments = ((*addresses, *values), kinds)
        sizes = (launch.blocks, 1, 1, launch.threads, 1, 1, launch.dynamic_bytes)
        self._of(self.cuda.cuLaunchKernel(function, *sizes, stream, arguments, 0))

    def wait(self, stream: Any) -> None:
        self._of(self.cuda.cuStreamSynchronize(stream))

    def event(self) -> Any:
        return self._of(self.cuda.cuEventCreate(0))

    def record(self, event: Any, stream: Any) -> None:
        self._of(self.cuda.cuEventRecord(event, stream))

    def seconds_between(self, start: Any, end: Any) -> float:
        return float(self._of(self.cuda.cuEventElapsedTime(start, end))) * 1e-3

    def capture(self, stream: Any, work: Callable[[], None]) -> Any:
        mode = self.cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._of(self.cuda.cuStreamBeginCapture(stream, mode))
        work()
        captured = self._of(self.cuda.cuStreamEndCapture(stream))
        return self._of(self.cuda.cuGraphInstantiate(captured, 0))

    def replay(self, graph: Any, stream: Any) -> None:
        self._of(self.cuda.cuGraphLaunch(graph, stream))
