"""Builds emitted kernels with the system's compiler and runs them between guard zones."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import perfdojo_x86_avx512 as plugin
import pytest
import yaml
from perfdojo_x86_avx512.codegen import X86CodeGenerator

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.types import CacheLevel, Capabilities, KernelSource, MachineFigures, Target
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.measure.toolchain import Toolchain
from perfdojo_sdk.plugins import load_plugins

PLUGIN = Path(__file__).parent.parent / "perfdojo_x86_avx512"
GUARD = 64
"""Elements around each array that no kernel may touch."""
SENTINEL = np.float32(-12345.5)

Array = np.ndarray[Any, np.dtype[np.float32]]


def capabilities(target: str) -> Capabilities:
    return Capabilities(**yaml.safe_load((PLUGIN / f"{target}.yaml").read_text()))


def generate(text: str, target: str, symbol: str = "kernel") -> KernelSource:
    caps = capabilities(target)
    return X86CodeGenerator(caps).generate(parse(text, caps.dialect()), symbol)


def compile_sources(
    sources: list[KernelSource], target: str, folder: Path, compiler: str = "gcc", units: int = 1
) -> ctypes.CDLL:
    """One shared object of several kernels, spread over ``units`` translation units."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    # Loading one path twice would give the first library again.
    folder = Path(tempfile.mkdtemp(dir=folder))
    for source in sources:
        (folder / f"{source.symbol}.c").write_text(source.code)
        for name, content in source.support.items():
            (folder / name).write_text(content)
    files = [f"unit{k}.c" for k in range(units)]
    for k, file in enumerate(files):
        included = [f'#include "{s.symbol}.c"\n' for s in sources[k::units]]
        (folder / file).write_text("".join(included))
    command = [
        compiler,
        *Toolchain((compiler,), compiler).spelled(capabilities(target).compiler_flags),
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    command += ["-Wno-unused-but-set-variable"]  # a program may write what it never reads
    command += ["-fPIC", "-shared", "-pthread", "-o", "kernels.so", *files]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return ctypes.CDLL(str(folder / "kernels.so"))


def guarded(shape: tuple[int, ...], offset: int = 0) -> tuple[Array, Array]:
    """An array ``offset`` elements past a 64-byte boundary, and the memory around it (with it)."""
    size = int(np.prod(shape))
    raw = np.empty(size + 2 * GUARD + 16 + offset, np.float32)
    start = (-raw.ctypes.data % 64) // 4 + offset
    memory = raw[start : start + size + 2 * GUARD]
    memory[:] = SENTINEL
    return memory[GUARD : GUARD + size].reshape(shape), memory


@dataclass
class Kernel:
    """A compiled kernel that checks its surroundings on every call."""

    source: KernelSource
    library: ctypes.CDLL

    def workspace_bytes(self, threads: int) -> int:
        query = self.library[f"{self.source.symbol}_workspace_bytes"]
        query.restype = ctypes.c_size_t
        return int(query(ctypes.c_int(threads)))

    def __call__(
        self, *inputs: Array, threads: int = 1, offset: int = 0, workspace: int | None = None
    ) -> list[Array]:
        given = [guarded(spec.shape, offset) for spec in self.source.inputs]
        for (array, _), values in zip(given, inputs, strict=True):
            array[:] = values
        made = [guarded(spec.shape, offset) for spec in self.source.outputs]
        size = self.workspace_bytes(threads) if workspace is None else workspace
        scratch, around = guarded((size // 4 + 1,), 1)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a, _ in (*given, *made)]
        pointers.append(ctypes.c_void_p(scratch.ctypes.data))
        code = self.library[self.source.symbol](*pointers, ctypes.c_size_t(size), ctypes.c_int(threads))
        assert code == 0, f"kernel returned {code}"
        for _, memory in (*given, *made):
            assert (memory[:GUARD] == SENTINEL).all() and (memory[-GUARD:] == SENTINEL).all()
        assert (around[:GUARD] == SENTINEL).all() and (around[-GUARD:] == SENTINEL).all()
        for (array, _), values in zip(given, inputs, strict=True):
            np.testing.assert_array_equal(array, values)
        return [array for array, _ in made]


def _has_flags(target: str) -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return set(capabilities(target).cpu_flags) <= set(flags)


def needs(target: str) -> None:
    """Skip the test where the processor cannot run ``target``."""
    if not _has_flags(target):
        pytest.skip(f"the processor cannot run {target}")


# -- the expert ----------------------------------------------------------------------------------------

PLUGINS = load_plugins(without=("x86_avx512",), extra=[plugin])

#: Caches so small that a short reduction outgrows them.
TINY = MachineFigures(
    caches={"L1": CacheLevel(bytes=1024, read_gbs=400), "L2": CacheLevel(bytes=4096, read_gbs=200)}
)


@dataclass(frozen=True)
class Game:
    """The expert's game on one kernel."""

    selection: str
    target: Target
    rules: Rules
    traces: tuple[Trace, ...]


def play(selection: str, target: str = "x86_avx512", figures: MachineFigures | None = None) -> Game:
    """``selection``: a kernel with its sizes, or the text of a program."""
    found = PLUGINS.target(target)
    if selection.startswith("kernel "):
        program = parse(selection, found.dialect)
    else:
        (kernel,) = select(selection, PLUGINS.operators, found.dialect)
        program = kernel.program
    expert, rules = PLUGINS.heuristic_pass(found), PLUGINS.rules(found)
    assert expert is not None
    traces = expert(program, rules, found.on(figures) if figures else found)
    return Game(selection, found, rules, tuple(traces))
