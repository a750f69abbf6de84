"""Call a library's kernels from Python on arrays of a GPU; a target adds the calls of its driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfdojo_sdk.codegen.gpu.bundle import BUNDLE, unpack
from perfdojo_sdk.codegen.gpu.figures import calls, launches_in
from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.hookspecs.types import ArraySpec
from perfdojo_sdk.library.manifest import LibraryError, read_artefact, read_manifest
from perfdojo_sdk.measure.gpu_session import Gpu
from perfdojo_sdk.measure.kernel_calls import bytes_of

#: dtype -> ``typestr`` of the CUDA array interface, which ROCm's tensors have too.
_TYPES = {
    "f32": "<f4", "f64": "<f8", "i64": "<i8", "i32": "<i4", "i16": "<i2", "i8": "|i1",
    "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "|u1", "bool": "|b1", "f16": "<f2", "bf16": "<V2",
}  # fmt: skip


class ArgumentError(DojoError):
    """An array that a kernel does not take."""


def kernel_files(library: str | Path, name: str) -> tuple[Mapping[str, bytes], tuple[ArraySpec, ...]]:
    """The files of the kernel ``name``, and its inputs, then its outputs; PD-L041 where there is none.

    :class:`LibraryError` (PD-L004) when they are not those that the manifest describes.
    """
    folder = Path(library)
    manifest = read_manifest(folder)
    entry = next((k for k in manifest.kernels if k.name == name), None)
    if entry is None:
        known = ", ".join(k.name for k in manifest.kernels)
        raise ArgumentError("PD-L041", f"{folder} holds no kernel {name}", hint=f"it holds {known}")
    code = manifest.code_of(entry)
    try:
        files = unpack(read_artefact(folder, code))
    except ValueError as error:
        hint = "build the library again"
        raise LibraryError(
            "PD-L004", f"cannot read {folder / code.path}", why=str(error), hint=hint
        ) from None
    arrays = (*entry.inputs, *entry.outputs)
    return files, tuple([array.spec for array in arrays])


class GpuKernel:
    """One kernel on one GPU, with a workspace of its own."""

    def __init__(
        self, gpu: Gpu, image: str, files: Mapping[str, bytes], specs: Sequence[ArraySpec], remedy: str
    ) -> None:
        """``image``: the file that the driver loads; ``remedy``: what to do where the library has none.

        :class:`UnavailableError` (PD-L042) without it, OSError when the driver refuses it.
        """
        if image not in files:
            raise UnavailableError(
                "PD-L042",
                "the library holds no machine code for the GPU",
                why=f"it was built where no compiler for GPUs was; its {BUNDLE} holds the emulation only",
                hint=f"{remedy}, then build the library again",
            )
        self.gpu, self.specs = gpu, tuple(specs)
        module = gpu.load(files[image])
        self.sequence = [
            (gpu.function(module, launch.kernel, launch.dynamic_bytes), launch, values)
            for launch, values in calls(launches_in(files))
        ]
        size = int(json.loads(files["workspace.json"]))
        self.workspace = gpu.allocate(size) if size else 0

    def __call__(self, *arrays: Any, stream: Any = 0) -> None:
        """Put the launches into ``stream``: inputs, then outputs, each with ``__cuda_array_interface__``.

        An array that is input and output is given twice: the same one is changed in place, another one starts
        with a copy of the first.

        :class:`ArgumentError` (PD-L041) for an array that the kernel does not take, OSError when the driver
        refuses a launch.
        """
        if len(arrays) != len(self.specs):
            names = ", ".join(spec.name for spec in self.specs)
            raise ArgumentError(
                "PD-L041", f"{number_of(len(arrays), 'arrays')} for {len(self.specs)}", hint=f"give {names}"
            )
        places = [(spec, _address(array, spec)) for spec, array in zip(self.specs, arrays, strict=True)]
        address = {spec.name: place for spec, place in places}
        for spec, start in places:
            if (to := address[spec.name]) != start:
                self.gpu.copy_in(stream, to, start, bytes_of(spec.shape, spec.dtype))
        for function, launch, values in self.sequence:
            given = [
                self.workspace + int(name[1:]) if name.startswith("@") else address[name]
                for name in launch.arrays
            ]
            call = (tuple(given), values)
            self.gpu.launch(function, launch, stream, call)


@dataclass(frozen=True)
class GpuLoader:
    """One vendor's kernels: what stands behind ``load`` and ``kernel_of`` of a plugin."""

    driver: Callable[[], Any]
    """The vendor's driver; OSError without a GPU."""
    gpu: Callable[[Any], Gpu]
    """The first GPU of a driver."""
    image: str
    """The file of a library that the driver loads."""
    remedy: str
    """The command that helps where the library has none."""
    machine: str
    """The machine to run on, in words."""

    def load(self, library: str | Path, name: str) -> GpuKernel:
        """The kernel ``name`` of a library; :class:`UnavailableError` without a GPU or without its code."""
        files, specs = kernel_files(library, name)
        try:
            return self.kernel_of(self.driver(), files, specs)
        except OSError as error:
            what, hint = "there is no GPU to run on", f"run on {self.machine}"
            raise UnavailableError("PD-L043", what, why=str(error), hint=hint) from None

    def kernel_of(self, driver: Any, files: Mapping[str, bytes], specs: Sequence[ArraySpec]) -> GpuKernel:
        """The kernel of a bundle's files."""
        return GpuKernel(self.gpu(driver), self.image, files, specs, self.remedy)


def _address(array: Any, spec: ArraySpec) -> int:
    """The address of an array of the GPU, if it is what the kernel takes there."""
    told = getattr(array, "__cuda_array_interface__", None)
    if told is None:
        what = f"{spec.name} is {type(array).__name__}, which does not say where it is on the GPU"
        raise ArgumentError(
            "PD-L041", what, hint="give a tensor on the GPU, or any array with __cuda_array_interface__"
        )
    start = int(told["data"][0])
    found = f"{told['typestr']} {tuple(told['shape'])}"
    typestr = told["typestr"].replace("|V2", "<V2")  # bfloat16, which NumPy has no name for
    if typestr != _TYPES.get(spec.dtype) or tuple(told["shape"]) != spec.shape:
        raise ArgumentError("PD-L041", f"{spec.name} is {found}, the kernel takes {spec.dtype} {spec.shape}",
                            hint="kernels are made for one shape; build one for this")  # fmt: skip
    if told.get("strides") is not None and not _dense(told["strides"], spec.shape, told["typestr"]):
        raise ArgumentError("PD-L041", f"{spec.name} has gaps", hint="pass array.contiguous()")
    if start % 16:
        raise ArgumentError("PD-L041", f"{spec.name} starts at no multiple of 16 bytes", hint="pass a copy")
    return start


def _dense(strides: Sequence[int], shape: Sequence[int], typestr: str) -> bool:
    step = int(typestr[2:])
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True
