"""The GPU's driver, loaded when it is needed."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def driver() -> Any:
    """The driver's Python module, initialised; OSError with the reason where there is no GPU."""
    try:
        from cuda.bindings import driver as module
    except ImportError:
        raise OSError("cuda-bindings is not installed") from None
    try:
        (status,) = module.cuInit(0)
    except RuntimeError as error:  # the bindings find no libcuda.so
        raise OSError(f"no driver: {error}") from None
    if status != module.CUresult.CUDA_SUCCESS:
        raise OSError(f"the driver finds no GPU ({status.name})")
    return module


@cache
def on_gpu() -> bool:
    """Whether this machine has a GPU that kernels run on."""
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
    """What a call of the driver gives; OSError where it failed."""
    status, *rest = answer
    if status != module.CUresult.CUDA_SUCCESS:
        raise OSError(f"the driver failed: {status.name}")
    return rest[0] if len(rest) == 1 else rest
