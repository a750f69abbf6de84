"""A kernel on a processor without its instructions says so, and does nothing; any x86-64 runs that much."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from perfdojo_x86_avx512.codegen import X86CodeGenerator
from perfdojo_x86_avx512.processor import CPUID, HINTS, requirements
from x86_support import capabilities, compile_sources, needs

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import KernelSource

TARGETS = ("x86_avx512", "x86_avx2")

#: It has a workspace and threads, and its loop is a vector's.
TWICE = """kernel twice(x) -> y
x f32 [64,16] heap
t f32 [64,16] heap
y f32 [64,16] heap

64:p 16 t[{0},{1}] = x[{0},{1}] * 2
64 16 y[{0},{1}] = t[{0},{1}]
"""


def generate(target: str, *more: str) -> KernelSource:
    """For the target, with ``more`` flags that the processor has to have."""
    found = capabilities(target)
    found = found.model_copy(update={"cpu_flags": (*found.cpu_flags, *more)})
    return X86CodeGenerator(found).generate(parse(TWICE, found.dialect()), "pd_twice")


def flags_here() -> set[str]:
    return set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)[1].split())  # type: ignore[index]


def call(library: ctypes.CDLL) -> tuple[int, np.ndarray, int]:
    """Status, output and workspace query of a call with enough of everything."""
    x, y = np.ones((64, 16), np.float32), np.full((64, 16), 7, np.float32)
    workspace = np.empty(1 << 20, np.uint8)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, y, workspace)]
    status = library.pd_twice(*pointers, ctypes.c_size_t(workspace.nbytes), ctypes.c_int(2))
    query = library.pd_twice_workspace_bytes
    query.restype = ctypes.c_size_t
    return status, y, query(ctypes.c_int(2))


@pytest.mark.parametrize("target", TARGETS)
def test_a_missing_flag_is_a_status_and_nothing_is_written(target: str, tmp_path: Path) -> None:
    absent = next((flag for flag in CPUID if flag not in flags_here()), None)
    if absent is None:
        pytest.skip("the processor has everything that can be asked for")
    library = compile_sources([generate(target, absent)], target, tmp_path)
    for _ in range(2):  # asked, and remembered
        status, y, workspace_bytes = call(library)
        assert status == 2 and (y == 7).all() and workspace_bytes == 0


@pytest.mark.parametrize("target", TARGETS)
def test_with_all_flags_the_kernel_runs(target: str, tmp_path: Path) -> None:
    needs(target)
    status, y, workspace_bytes = call(compile_sources([generate(target)], target, tmp_path))
    assert status == 0 and (y == 2).all() and workspace_bytes > 64 * 16 * 4


@pytest.mark.parametrize("target", TARGETS)
def test_every_flag_of_a_target_file_is_asked_for(target: str) -> None:
    flags = capabilities(target).cpu_flags
    code = generate(target).code
    assert all(f"/* {flag} */" in code for flag in flags if flag not in HINTS)
    assert "pd_system_keeps" in code


def test_what_the_processor_says_is_what_the_system_lists() -> None:
    """Each bit that the header reads, against the flags of /proc/cpuinfo."""
    code = ['#include "pd_processor.h"', "int pd_flag(int which)", "{", "    switch (which) {"]
    for k, (leaf, subleaf, register, bit) in enumerate(CPUID.values()):
        code.append(f"    case {k}: return pd_cpuid_bit({leaf:#x}, {subleaf}, PD_{register}, {bit});")
    code += ["    }", "    return -1;", "}", ""]
    source = generate("x86_avx2")
    source = KernelSource("pd_flags", (), (), "\n".join(code), support=source.support)
    with tempfile.TemporaryDirectory() as folder:
        library = compile_sources([source], "x86_avx2", Path(folder))
        here = flags_here()
        wrong = [f for k, f in enumerate(CPUID) if library.pd_flag(k) == 0 and f in here]
        # A system may hide from the list what the processor says that it has.
        assert wrong == []
        assert any(library.pd_flag(k) == 1 for k, f in enumerate(CPUID) if f in here)


def test_a_flag_that_nobody_knows_how_to_ask_for_is_an_error() -> None:
    with pytest.raises(ValueError, match="frobnication"):
        requirements(("avx2", "frobnication"))


#: Registers and mnemonics that only newer processors have: wide registers, VEX and EVEX, BMI and the like.
NEWER = re.compile(
    r"%[yz]mm|\b(v[a-z0-9]+|andn|bextr|bls[a-z]+|[lt]zcnt|mulx|pdep|pext|rorx|sarx|shlx|shrx|movbe)\b"
)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_called_before_the_answer_runs_on_any_processor(target: str, tmp_path: Path) -> None:
    """Disassembled: the entry points, the question, and what the system calls when the code is unloaded."""
    compile_sources([generate(target)], target, tmp_path)
    [library] = tmp_path.rglob("kernels.so")
    shown = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    functions = {m[1]: m[2] for m in re.finditer(r"<([\w.]+)>:\n(.*?)(?:\n\n|\Z)", shown, re.S)}
    todo = ["pd_twice", "pd_twice_workspace_bytes", "pd_stop_workers"]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen or "_here_" in name:
            continue
        seen.add(name)
        body = functions[name]
        assert not NEWER.search(re.sub(r"<[^>]*>", "", body)), f"{name}\n{body}"
        todo += re.findall(r"(?:call|jmp|j\w+)\s+\w+ <([\w.]+)>", body)
    assert any(name.startswith("pd_cpuid_bit") for name in seen)
    rest = "".join(body for name, body in functions.items() if name not in seen)
    assert NEWER.search(rest), "the kernel itself has them"
