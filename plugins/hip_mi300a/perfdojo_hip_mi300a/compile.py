"""The compiler of HIP sources to a code object, with the compiler's report of registers and memory.

The clang of the ``ziglang`` wheel needs no ROCm: it makes assembly, whose metadata have the resources of a
kernel, and from that the file that the driver loads. It cannot compile a kernel that calls a function of
ROCm's own library (exp, log and others in f64); hipcc does that, and compiles all kernels if there is no such
wheel.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from perfdojo_sdk.hookspecs.types import Failure, KernelSource
from perfdojo_sdk.measure.gpu_runner import DeviceCode, Resources
from perfdojo_sdk.measure.tools import run_tool, write_sources

TIMEOUT_S = 120.0
#: The first release of ROCm whose compiler knows gfx942.
OLDEST_ROCM = 6
_MOST_NOTES = 4000
_ZIG = (sys.executable, "-m", "ziglang")

#: The linker's message for a missing function that only ROCm's library has.
_DEVICE_LIBRARY = re.compile(
    r"undefined.*symbol: (exp2?|expm1|log(2|1p)?|erf|cbrt|pow|a?(sin|cos|tan)h?)$", re.MULTILINE
)

#: Field of the code object's metadata -> the name of the figure.
_FIGURES = {
    ".vgpr_count": "registers",
    ".agpr_count": "accumulation_registers",
    ".sgpr_count": "scalar_registers",
    ".group_segment_fixed_size": "shared_bytes",
    ".private_segment_fixed_size": "scratch_bytes",
    ".vgpr_spill_count": "spilled_registers",
}


@cache
def compiler() -> str:
    """The version of the ``ziglang`` wheel's clang, or "" where there is none."""
    if importlib.util.find_spec("ziglang") is None:
        return ""
    done = run_tool([*_ZIG, "clang", "--version"], None, 60.0, errors=subprocess.DEVNULL)
    told = done.said.splitlines() if done and not done.status else []
    return f"zig clang ({told[0].strip()})" if told else ""


@cache
def hipcc() -> str:
    """The version of ROCm's compiler, or "" where there is none that knows the GPU."""
    if not shutil.which("hipcc"):
        return ""
    done = run_tool(["hipcc", "--version"], None, 60.0, errors=subprocess.DEVNULL)
    version = re.search(r"HIP version: ((\d+)\S*)", done.said) if done else None
    return f"hipcc {version[1]}" if version and int(version[2]) >= OLDEST_ROCM else ""


def compile_for_gpu(source: KernelSource, arch: str) -> DeviceCode | Failure | None:
    """The code object of ``source``; None where nothing on this machine can make one."""
    made = _by_zig(source, arch) if compiler() else None
    return _by_hipcc(source, arch) if made is None and hipcc() else made


def _by_zig(source: KernelSource, arch: str) -> DeviceCode | Failure | None:
    """The code object by zig's clang; None where the source needs ROCm's library."""
    # No fast-math: division, square root and denormal numbers are exact, as the language says.
    hip = ["-x", "hip", "--cuda-device-only", f"--offload-arch={arch}", "-nogpulib", "-nogpuinc"]
    hip += ["-DPD_DEVICE_ONLY", "-nostdinc", "-I.", "-std=c++17", "-O3", "-S"]
    steps = (
        [*_ZIG, "clang", *hip, f"./{source.symbol}.hip", "-o", "k.s"],
        [*_ZIG, "clang", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-c", "k.s", "-o", "k.o"],
        [*_ZIG, "ld.lld", "-shared", "--no-undefined", "k.o", "-o", "k.hsaco"],
    )
    made = _run(source, {"math.h": ""}, steps, f"{compiler()} --offload-arch={arch} -O3")
    return None if isinstance(made, Failure) and _DEVICE_LIBRARY.search(made.detail) else made


def _by_hipcc(source: KernelSource, arch: str) -> DeviceCode | Failure:
    options = [f"--offload-arch={arch}", "-std=c++17", "-O3", f"./{source.symbol}.hip"]
    steps = (
        ["hipcc", "--cuda-device-only", "-S", *options, "-o", "k.s"],
        ["hipcc", "--genco", *options, "-o", "k.hsaco"],
    )
    return _run(source, {}, steps, f"{hipcc()} --offload-arch={arch} -O3")


def _run(
    source: KernelSource, more: Mapping[str, str], steps: Sequence[Sequence[str]], toolchain: str
) -> DeviceCode | Failure:
    """Run commands, which leave ``k.s`` and ``k.hsaco``; the code in these."""
    with tempfile.TemporaryDirectory(prefix="perfdojo-hip-") as folder:
        refused = write_sources(folder, {f"{source.symbol}.hip": source.code, **more, **source.support})
        if refused:
            return Failure("compile", refused)
        for step in steps:
            done = run_tool(step, folder, TIMEOUT_S)
            if done is None:
                return Failure("compile_timeout", f"the compiler ran longer than {TIMEOUT_S:g} s")
            if done.status:
                why = done.said.strip()[:_MOST_NOTES]
                return Failure("compile", why or f"{step[0]} ended with {done.status}")
        assembly = Path(folder, "k.s").read_text(encoding="utf-8")
        files = {"kernel.hsaco": Path(folder, "k.hsaco").read_bytes(), "kernel.s": assembly.encode()}
    return DeviceCode(files, resources_of(assembly), toolchain)


_METADATA = re.compile(r"\.amdgpu_metadata\n(.*?)\.end_amdgpu_metadata", re.DOTALL)
_OCCUPANCY = re.compile(r"^; Occupancy: (\d+)", re.MULTILINE)


def resources_of(assembly: str) -> tuple[Resources, ...]:
    """Resources of each kernel by the assembly's metadata, with waves on a SIMD unit if all are known."""
    found = _METADATA.search(assembly)
    kernels = yaml.safe_load(found[1].rstrip())["amdhsa.kernels"] if found else []
    waves = [int(count) for count in _OCCUPANCY.findall(assembly)]
    report = []
    for k, kernel in enumerate(kernels):
        figures = {name: int(kernel.get(key, 0)) for key, name in _FIGURES.items()}
        if len(waves) == len(kernels):
            figures["occupancy_waves"] = waves[k]
        report.append(Resources(kernel[".name"], figures))
    return tuple(report)
