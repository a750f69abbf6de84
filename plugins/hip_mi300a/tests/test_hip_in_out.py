"""Arrays that are input and output, on 64 lanes: watched in emulation, compiled, given to a stand-in."""

from __future__ import annotations

import ctypes
import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from perfdojo_hip_mi300a import HOOKS
from perfdojo_hip_mi300a.codegen import generator
from perfdojo_hip_mi300a.compile import compile_for_gpu, compiler
from perfdojo_hip_mi300a.driver import HipGpu, load
from perfdojo_hip_mi300a.loader import kernel_of
from test_hip_device import IMAGE, Build, N, stand_in  # noqa: F401
from test_hip_loader import Tensor

from perfdojo_sdk.codegen.gpu.figures import read
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, KernelSource
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.gpu_runner import DeviceCode
from perfdojo_sdk.measure.gpu_session import Work, measure
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric

TARGET = HOOKS.target
#: Caches of keys and values: rows written by one block, read by the wavefronts of another launch.
CACHES = """\
kernel step(x, k, v, p) -> y, k, v
x f32 [64] heap
k f32 [8,64] heap
v f32 [8,64] heap
p i64 [1] heap
s f32 [8] heap
y f32 [64] heap

64:b k[clamp(p[0], 0, 7),{0}] = x[{0}]
64:b v[clamp(p[0], 0, 7),{0}] += x[{0}] * 2
8:b
| s[{0}] = 0
| 64:s s[{0}] += k[{0},{1}] * x[{1}]
64:b
| y[{0}] = 0
| 8 y[{0}] += s[{1}] * v[{1},{0}]
"""
#: Running statistics: what one thread writes, others of its block read behind a barrier.
STATISTICS = """\
kernel norm(x, m) -> y, m
x f32 [8,128] heap
s f32 [1:N,128] shared
m f32 [128] heap
y f32 [8,128] heap

1:g
| 128:b
| | s[{0},{1}] = 0
| | 8 s[{0},{1}] += x[{2},{1}]
| 128:b m[{1}] = m[{1}] * 0.875 + s[{0},{1}] * 0.015625
| 8 128:b y[{1},{2}] = x[{1},{2}] - m[-{2}+127]
"""
#: Rows that are put where an input says, one after the other.
SCATTER = """\
kernel sc(x, k, u) -> x
x f32 [20,6] heap
k i64 [5] heap
u f32 [5,6] heap

5 6:b x[clamp(k[{0}], 0, 19),{1}] = u[{0},{1}]
"""
#: Launches of two kernels that the stand-in has: t = 2 * x, then k = t + 1; the caller's k is only copied.
TWO = (
    f"kernel two(x, k) -> k\nx f32 [{N}] heap\nk f32 [{N}] heap\nt f32 [{N}] heap\n\n"
    "2:g 32:b t[{0}*32+{1}] = x[{0}*32+{1}] * 2\n4:g 16:b k[{0}*16+{1}] = t[{0}*16+{1}] + 1\n"
)


def emitted(text: str) -> KernelSource:
    return generator(TARGET.capabilities).generate(parse(text, TARGET.dialect), "pd_case")


def checked(text: str, forget: str = "") -> NumericReport:
    source, runner, parsed = emitted(text), EmulatedRunner(64), parse(text, TARGET.dialect)
    assert not forget or forget in source.code
    artifact = runner.compile(replace(source, code=source.code.replace(forget, "", 1)))
    assert isinstance(artifact, Artifact), artifact
    return verify_numeric(parsed, parsed, artifact, runner, {}, TARGET.dialect, quick=True, executions=True)


@pytest.mark.parametrize("text", [CACHES, STATISTICS, SCATTER])
def test_a_cell_keeps_its_value_until_a_thread_writes_it(text: str) -> None:
    report = checked(text)
    assert report.ok, report.problem
    assert {"guard_pages", "in_place"} <= set(report.executions)


@pytest.mark.parametrize(
    ("text", "forget", "says"),
    [
        (CACHES, "PD_GIVEN(v, pd_given_v, 512);", "nobody wrote"),
        (STATISTICS, "pd_sync_block();", "data race"),
    ],
)
def test_a_copy_or_barrier_that_is_forgotten_is_noticed(text: str, forget: str, says: str) -> None:
    report = checked(text, forget)
    assert not report.ok and says in report.problem, report.problem


@pytest.mark.skipif(not compiler(), reason="the ziglang wheel is not installed")
def test_the_devices_part_compiles() -> None:
    assert isinstance(compile_for_gpu(emitted(CACHES), "gfx942"), DeviceCode)


def driver(library: Any) -> Any:
    hip = load([str(library)])
    hip.stand_in_complaint.restype = ctypes.c_char_p
    return hip


def test_each_checked_call_starts_with_what_is_given(stand_in: Build) -> None:  # noqa: F811
    hip, launches = driver(stand_in()), tuple(read(emitted(TWO).code))
    about = {"inputs": [[n, [N], "f32"] for n in "xk"], "outputs": [["k", [N], "f32"]], "seed": 0}
    given = {"x": np.arange(N, dtype=np.float32), "k": np.full(N, 5, np.float32)}
    result = measure(HipGpu(hip), Work(about, given, IMAGE, launches, 4 * N, repeats=3))
    np.testing.assert_array_equal(result.outputs["k"], np.arange(N) * 2 + 1)
    assert hip.stand_in_complaint() == b"" and hip.stand_in_copies() == 2, "timed calls go on in place"


def test_one_tensor_is_changed_in_place_and_another_is_copied_to(stand_in: Build) -> None:  # noqa: F811
    hip, source = driver(stand_in()), emitted(TWO)
    files = {
        "kernel.hsaco": IMAGE,
        "launches.json": json.dumps([asdict(each) for each in read(source.code)]).encode(),
        "workspace.json": json.dumps(4 * N).encode(),
    }
    run, gpu = kernel_of(hip, files, (*source.inputs, *source.outputs)), HipGpu(hip)
    x, k, apart, stream = Tensor(gpu), Tensor(gpu), Tensor(gpu), gpu.stream()
    x.cells[:], k.cells[:] = np.arange(N), 5
    run(x, k, apart, stream=stream)
    assert (k.cells == 5).all() and (apart.cells == np.arange(N) * 2 + 1).all()
    assert hip.stand_in_copies() == 1
    run(x, k, k, stream=stream)
    assert (k.cells == np.arange(N) * 2 + 1).all() and hip.stand_in_copies() == 1
    assert hip.stand_in_complaint() == b""
