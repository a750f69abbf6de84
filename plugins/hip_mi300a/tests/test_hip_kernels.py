"""The sixteen operators of Table 3 on 64 lanes: played, watched in emulation, compiled to code objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from perfdojo_hip_mi300a import HOOKS
from perfdojo_hip_mi300a.codegen import generator
from perfdojo_hip_mi300a.compile import compile_for_gpu, compiler, hipcc

from perfdojo_sdk.codegen.gpu.figures import read
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.experts.gpu.heuristic import expert
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.gpu_runner import DeviceCode
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.verify.numeric import verify_numeric

TARGET = HOOKS.target
GENERATOR = generator(TARGET.capabilities)
TABLE3 = (
    "add batchnorm1 batchnorm2 bmm conv1 conv2 layernorm1 layernorm2 matmul mul reducemean relu relu_ffn "
    "rmsnorm softmax swiglu"
)
needs_compiler = pytest.mark.skipif(not compiler(), reason="the ziglang wheel is not installed")


@cache
def plugins():  # type: ignore[no-untyped-def]
    return load_plugins(targets=["hip_mi300a"])


def kernels(text: str) -> list[Kernel]:
    return list(select(text, plugins().operators, TARGET.dialect))


def played(kernel: Kernel) -> Trace:
    """On vector units; a game on matrix units would be the second."""
    return expert(kernel.program, plugins().rules(plugins().target("hip_mi300a")), TARGET)[0]


def test_no_thread_of_table_3_works_alone() -> None:
    for kernel in kernels(TABLE3):
        for launch in read(GENERATOR.generate(played(kernel).program, kernel.symbol).code):
            assert launch.threads >= 64 and launch.threads % 64 == 0, f"{kernel.name}: {launch}"


@pytest.mark.parametrize("text", ["softmax[5,256]", "reducemean[3,1024]", "matmul[64,64,32]"])
def test_kernels_of_wavefronts_hold_under_watch(text: str) -> None:
    [kernel] = kernels(text)
    program, runner = played(kernel).program, EmulatedRunner(64)
    artifact = runner.compile(GENERATOR.generate(program, kernel.symbol))
    assert isinstance(artifact, Artifact), artifact.detail
    report = verify_numeric(
        kernel.program, program, artifact, runner, {"exp": 1.0}, TARGET.dialect,
        nan_may_differ=True, quick=True,
    )  # fmt: skip
    assert report.ok, report.problem


@needs_compiler
@pytest.mark.parametrize("text", ["softmax", "bmm"])
def test_a_code_object_tells_what_it_needs(text: str) -> None:
    [kernel] = kernels(text)
    source = GENERATOR.generate(played(kernel).program, kernel.symbol)
    code = compile_for_gpu(source, "gfx942")
    assert isinstance(code, DeviceCode), code
    assert code.files["kernel.hsaco"][:4] == b"\x7fELF"
    [resources] = code.resources
    assert resources.kernel == f"{kernel.symbol}_k0"
    [launch] = read(source.code)
    assert resources.figures["shared_bytes"] == launch.shared_bytes
    assert (resources.figures["scratch_bytes"], resources.figures["spilled_registers"]) == (0, 0)
    assert 1 <= resources.figures["occupancy_waves"] <= 16


LOG = "kernel k(x) -> y\nx f64 [64] heap\ny f64 [64] heap\n\n64:b y[{0}] = log(x[{0}])\n"

#: A stand-in for hipcc that takes the two calls of the plugin and no other.
HIPCC = """#!{python}
import pathlib, sys
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("HIP version: {version}.1.0-0")
    sys.exit()
options = ["--offload-arch=gfx942", "-std=c++17", "-O3", "./pd_k.hip", "-o"]
assert pathlib.Path("./pd_k.hip").exists() and pathlib.Path("pd_runtime.h").exists()
if arguments == ["--cuda-device-only", "-S", *options, "k.s"]:
    pathlib.Path("k.s").write_text("; nothing\\n")
elif arguments == ["--genco", *options, "k.hsaco"]:
    pathlib.Path("k.hsaco").write_bytes(b"code object")
else:
    sys.exit(f"unknown arguments {{arguments}}")
"""


@pytest.fixture
def with_hipcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    def install(version: int) -> None:
        path = tmp_path / "hipcc"
        path.write_text(HIPCC.format(python=sys.executable, version=version))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        hipcc.cache_clear()

    yield install
    hipcc.cache_clear()


def test_functions_of_f32_need_no_rocm() -> None:
    source = GENERATOR.generate(parse(LOG.replace("f64", "f32"), TARGET.dialect), "pd_k")
    assert not compiler() or isinstance(compile_for_gpu(source, "gfx942"), DeviceCode)


def test_what_needs_rocms_library_is_compiled_by_hipcc_alone(
    with_hipcc: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    hipcc.cache_clear()
    source = GENERATOR.generate(parse(LOG, TARGET.dialect), "pd_k")
    assert compile_for_gpu(source, "gfx942") is None
    with_hipcc(5)
    assert compile_for_gpu(source, "gfx942") is None, "release 5 does not know the GPU"
    with_hipcc(6)
    code = compile_for_gpu(source, "gfx942")
    assert isinstance(code, DeviceCode), code
    assert code.files["kernel.hsaco"] == b"code object" and code.toolchain.startswith("hipcc 6.1.0")
