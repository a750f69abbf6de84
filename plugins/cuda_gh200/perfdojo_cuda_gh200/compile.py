"""The compiler of CUDA sources to machine code of the GPU, with the assembler's report of registers and
memory.

NVRTC from the package index needs no driver and no toolkit; otherwise nvcc is used if it is installed. A
machine with neither still runs kernels in emulation, and reports that nothing was compiled for the GPU.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from perfdojo_sdk.hookspecs.types import Failure, KernelSource
from perfdojo_sdk.measure.gpu_runner import DeviceCode, Resources
from perfdojo_sdk.measure.tools import run_tool, write_sources

#: Headers that NVRTC has built in, and that a source may include.
_BUILT_IN = ("math.h", "stdint.h", "stddef.h")
_MOST_NOTES = 4000
#: An option against NVRTC's cache: cached code comes without the assembler's report of registers and spills.
_NO_CACHE = ("--no-cache",)
_CACHES_SINCE = (12, 8)
NVCC_TIMEOUT_S = 120.0


def compile_for_gpu(source: KernelSource, arch: str) -> DeviceCode | Failure | None:
    """Machine code of ``source``; None where this machine has no compiler for GPUs."""
    if nvrtc() is not None:
        return _by_nvrtc(source, arch)
    if shutil.which("nvcc"):
        return _by_nvcc(source, arch)
    return None


@cache
def nvrtc() -> Any:
    """NVRTC's Python module, where it can be loaded."""
    try:
        from cuda.bindings import nvrtc as module

        error, _, _ = module.nvrtcVersion()
    except Exception:  # a missing or broken library, for which the binding may raise anything
        return None
    return module if error == module.nvrtcResult.NVRTC_SUCCESS else None


def _options(arch: str) -> list[str]:
    # No fast-math: division, square root and denormal numbers are exact, as the language says.
    return [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"]


def _by_nvrtc(source: KernelSource, arch: str) -> DeviceCode | Failure:
    module = nvrtc()
    _, *version = module.nvrtcVersion()
    flags = [*_options(arch), *(_NO_CACHE if tuple(version) >= _CACHES_SINCE else ())]
    headers = {**dict.fromkeys(_BUILT_IN, ""), **source.support}
    names, texts = [n.encode() for n in headers], [t.encode() for t in headers.values()]
    error, program = module.nvrtcCreateProgram(
        source.code.encode(), f"{source.symbol}.cu".encode(), len(names), texts, names
    )
    if error != module.nvrtcResult.NVRTC_SUCCESS:
        return Failure("compile", f"NVRTC does not take the source: {error}")
    try:
        options = [option.encode() for option in flags]
        (status,) = module.nvrtcCompileProgram(program, len(options), options)
        said = _text(module.nvrtcGetProgramLogSize, module.nvrtcGetProgramLog, program).decode(
            "utf-8", "replace"
        )
        if status != module.nvrtcResult.NVRTC_SUCCESS:
            return Failure("compile", said.strip()[:_MOST_NOTES] or str(status))
        cubin = _text(module.nvrtcGetCUBINSize, module.nvrtcGetCUBIN, program)
        ptx = _text(module.nvrtcGetPTXSize, module.nvrtcGetPTX, program)
    finally:
        module.nvrtcDestroyProgram(program)
    toolchain = f"NVRTC {'.'.join(map(str, version))} {' '.join(_options(arch))}"
    files = {"kernel.cubin": cubin, "kernel.ptx": ptx.rstrip(b"\0")}
    return DeviceCode(files, resources_of(said), toolchain)


def _text(size_of: Any, get: Any, program: Any) -> bytes:
    _, size = size_of(program)
    # A new buffer: bytes objects of length one are shared in the whole interpreter.
    buffer = bytearray(size)
    get(program, buffer)
    return bytes(buffer)


def _by_nvcc(source: KernelSource, arch: str) -> DeviceCode | Failure:
    with tempfile.TemporaryDirectory(prefix="perfdojo-nvcc-") as folder:
        refused = write_sources(folder, {f"{source.symbol}.cu": source.code, **source.support})
        if refused:
            return Failure("compile", refused)
        said = ""
        for kind in ("cubin", "ptx"):
            command = ["nvcc", f"-arch={arch}", "-std=c++17", "-O3", "-Xptxas=-v", "-diag-suppress=177,550"]
            command += [f"-{kind}", "-o", f"out.{kind}", f"./{source.symbol}.cu"]
            done = run_tool(command, folder, NVCC_TIMEOUT_S)
            if done is None:
                return Failure("compile_timeout", f"nvcc ran longer than {NVCC_TIMEOUT_S:g} s")
            if done.status:
                return Failure("compile", done.said.strip()[:_MOST_NOTES])
            said = said or done.said
        files = {f"kernel.{kind}": Path(folder, f"out.{kind}").read_bytes() for kind in ("cubin", "ptx")}
        return DeviceCode(files, resources_of(said), f"{nvcc_version()} -arch={arch} -O3")


@cache
def nvcc_version() -> str:
    """The line in which nvcc tells its version, or "" where there is none."""
    if not shutil.which("nvcc"):
        return ""
    done = run_tool(["nvcc", "--version"], None, 30.0)
    lines = [line for line in done.said.splitlines() if "release" in line] if done else []
    return f"nvcc ({lines[0].strip()})" if lines else "nvcc"


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FIGURES: Mapping[str, re.Pattern[str]] = {
    "registers": re.compile(r"Used (\d+) registers"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_bytes": re.compile(r"(\d+) bytes spill stores"),
}


def resources_of(said: str) -> tuple[Resources, ...]:
    """The figures in the assembler's report, kernel by kernel, in the order of their names."""
    parts = _ENTRY.split(said)[1:]
    found = []
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        figures = {key: int(m[1]) if (m := pattern.search(text)) else 0 for key, pattern in _FIGURES.items()}
        found.append(Resources(name, figures))
    return tuple(sorted(found, key=lambda r: r.kernel))
