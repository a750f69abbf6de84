"""The emulated core against another emulator, QEMU, with a C library and threads that really run beside each
other (Debian: qemu-user, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from arm_support import (
    QEMU,
    QEMU_COMMAND,
    SVE,
    SYSTEM,
    TARGET,
    both_targets,
    compiled,
    kernel,
    needs_compiler,
    needs_qemu,
    played,
    run,
    source,
)
from perfdojo_arm_neon import crosstools

from perfdojo_sdk.hookspecs.types import KernelSource, RunRequest, Target
from perfdojo_sdk.measure.kernel_calls import bytes_of

KERNELS = ("softmax[6,40]", "layernorm[5,37]", "matmul[16,24,20]", "conv2d[2,3,9,9,4,3]", "swiglu[4,12,20]")

pytestmark = [needs_compiler, needs_qemu]


def program_of(kernel_source: KernelSource, threads: int) -> str:
    """A program that reads the inputs from one file and writes the outputs to another."""
    specs = (*kernel_source.inputs, *kernel_source.outputs)
    sizes = [bytes_of(spec.shape, spec.dtype) for spec in specs]
    arrays = "".join(f"static char a{k}[{size}] PD_ALIGNED;\n" for k, size in enumerate(sizes))
    inputs = range(len(kernel_source.inputs))
    outputs = range(len(kernel_source.inputs), len(specs))
    reads = "".join(f"    if (fread(a{k}, 1, sizeof a{k}, in) != sizeof a{k}) return 2;\n" for k in inputs)
    writes = "".join(f"    fwrite(a{k}, 1, sizeof a{k}, out);\n" for k in outputs)
    pointers = ", ".join(f"(void *)a{k}" for k in range(len(specs)))
    symbol = kernel_source.symbol
    return f"""{kernel_source.code}
#include <stdio.h>
#include <stdlib.h>
{arrays}
int main(void)
{{
    FILE *in = fopen("in", "rb"), *out = fopen("out", "wb");
{reads}    const size_t bytes = {symbol}_workspace_bytes({threads});
    const int status = {symbol}({pointers}, malloc(bytes), bytes, {threads});
{writes}    return status;
}}
"""


@both_targets
@pytest.mark.parametrize("selection", KERNELS)
def test_both_emulators_give_the_same_bits(
    selection: str, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One compiler on both sides: what it contracts decides the last bits.
    monkeypatch.setenv(crosstools.COMPILER_VARIABLE, crosstools.GNU)
    root, game = kernel(selection), played(selection, target)
    rng = np.random.default_rng(7)
    inputs = {s.name: rng.uniform(-1, 1, s.shape).astype(np.float32) for s in root.inputs}
    ours = run(compiled(game.program, target=target), RunRequest(threads=3, timeout_s=60), **inputs).outputs
    made = source(game.program, target=target)
    for name, text in {"k.c": program_of(made, 3), **made.support}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "in").write_bytes(b"".join(inputs[s.name].tobytes() for s in root.inputs))
    command = [crosstools.GNU, *target.capabilities.compiler_flags, "k.c", "-o", "k", "-pthread", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    subprocess.run([*QEMU_COMMAND, "./k"], cwd=tmp_path, check=True, timeout=60)
    theirs = (tmp_path / "out").read_bytes()
    assert ours is not None
    assert b"".join(ours[s.name].tobytes() for s in root.outputs) == theirs


def test_longer_vectors_are_noticed_and_nothing_is_written(tmp_path: Path) -> None:
    """A kernel on vectors of 256 bits returns 2 and leaves every output unchanged."""
    made = source("kernel k(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4:v y[{0}] = x[{0}] + 1\n", target=SVE)
    for name, text in {"k.c": program_of(made, 1), **made.support}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "in").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    command = [crosstools.GNU, *SVE.capabilities.compiler_flags, "k.c", "-o", "k", "-pthread", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    for quads, status, expected in ((1, 0, [1, 2, 3, 4]), (2, 2, [0, 0, 0, 0])):
        emulator = [part.replace("vq=1", f"vq={quads}") for part in QEMU_COMMAND]
        ended = subprocess.run([*emulator, "./k"], cwd=tmp_path, timeout=60)
        assert ended.returncode == status
        assert np.frombuffer((tmp_path / "out").read_bytes(), np.float32).tolist() == expected


MATRICES = """kernel sums(x, w) -> y
x bf16 [2,4] heap
w bf16 [2,4] heap
y f32 [2,2] heap

2:u 2:u y[{0},{1}] = 0
2:l 2:l 4:d y[{0},{1}] += f32(x[{0},{2}]) * f32(w[{1},{2}])
"""


def test_a_processor_without_an_instruction_gets_a_status(tmp_path: Path) -> None:
    """A kernel with BFMMLA returns 2 where there is none, and writes nothing."""
    made = source(MATRICES)
    for name, text in {"k.c": program_of(made, 1), **made.support}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "in").write_bytes(np.full(16, 0x3F80, np.uint16).tobytes())
    command = [crosstools.GNU, *TARGET.capabilities.compiler_flags, "k.c", "-o", "k", "-pthread", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    for cpu, status, expected in (("cortex-a72", 2, 0), ("max", 0, 4)):
        emulator = [str(QEMU), "-cpu", cpu, "-L", str(SYSTEM)]
        assert subprocess.run([*emulator, "./k"], cwd=tmp_path, timeout=60).returncode == status
        assert np.frombuffer((tmp_path / "out").read_bytes(), np.float32).tolist() == [expected] * 4


CALLER = """#include <stddef.h>
size_t pd_test_workspace_bytes(int threads);
int pd_test(const float *x, float *y, void *workspace, size_t workspace_bytes, int threads);
int main(void)
{
    static float x[40], y[40];
    const int status = pd_test_workspace_bytes(1) ? 9 : pd_test(x, y, 0, 0, 1);
    return y[0] == 1 ? status : status + 10;
}
"""


@pytest.mark.parametrize("compiler", ["gnu", "default"])
def test_a_processor_without_sve_gets_a_status_and_no_signal(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A C program that any processor runs calls the kernel; y stays as it was where there is no SVE."""
    if compiler == "gnu":
        monkeypatch.setenv(crosstools.COMPILER_VARIABLE, crosstools.GNU)
    text = "kernel k(x) -> y\nx f32 [40] heap\ny f32 [40] heap\n\n10 4:v y[{0}*4+{1}] = x[{0}*4+{1}] + 1\n"
    made = source(text, target=SVE)
    for name, content in {"k.c": made.code, "main.c": CALLER, **made.support}.items():
        (tmp_path / name).write_text(content)
    found = crosstools.find_cross_compiler()
    for command in (
        [*found.command, *found.spelled(SVE.capabilities.compiler_flags), "-c", "k.c", "-o", "k.o"],
        [crosstools.GNU, "main.c", "k.o", "-o", "main", "-pthread", "-lm"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    for cpu, status in (("cortex-a72", 12), ("max,sve-max-vq=1", 0)):
        emulator = [str(QEMU), "-cpu", cpu, "-L", str(SYSTEM)]
        ended = subprocess.run([*emulator, "./main"], cwd=tmp_path, timeout=60)
        assert ended.returncode == status, cpu
