"""Arrays that are input and output: copied before the first launch, watched in emulation, given to a GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_support import GENERATOR, TARGET, emitted, program
from perfdojo_cuda_gh200.driver import CudaGpu
from perfdojo_cuda_gh200.loader import kernel_of
from stand_in import StandIn
from test_cuda_loader import Tensor

from perfdojo_sdk.codegen.gpu.figures import read
from perfdojo_sdk.core.transformation import Move, Rejection
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.gpu_session import Result, Work, measure
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric

#: Caches of keys and values, a row of each changed by launches of their own and read by a third.
CACHES = """\
kernel step(x, k, v, p) -> y, k, v
x f32 [64] heap
k f32 [16,64] heap
v f32 [16,64] heap
p i64 [1] heap
y f32 [64] heap

64:b k[clamp(p[0], 0, 15),{0}] = x[{0}]
2:g 32:b v[clamp(p[0], 0, 15),{0}*32+{1}] += x[{0}*32+{1}] * 2
64:b
| y[{0}] = 0
| 16 y[{0}] += k[{1},{0}] * v[{1},{0}]
"""
#: A running mean, which other threads of the block read in the same launch.
STATISTICS = """\
kernel norm(x, m) -> y, m
x f32 [8,64] heap
s f32 [1:N,64] shared
m f32 [64] heap
y f32 [8,64] heap

1:g
| 64:b
| | s[{0},{1}] = 0
| | 8 s[{0},{1}] += x[{2},{1}]
| 64:b m[{1}] = m[{1}] * 0.875 + s[{0},{1}] * 0.015625
| 8 64:b y[{1},{2}] = x[{1},{2}] - m[-{2}+63]
"""
#: Rows that are put where an input says, some of them into one place: the last one stays.
SCATTER = """\
kernel sc(x, k, u) -> x
x f32 [20,6] heap
k i64 [5] heap
u f32 [5,6] heap

"""
ROW = "x[clamp(k[{0}], 0, 19),{1}] = u[{0},{1}]\n"
#: One thread; threads of a block that take the rows in turn; blocks that do.
SCATTERS = [f"{SCATTER}{head} {ROW}" for head in ("5 6", "5 6:b", "5:u 6:b")]
SCATTERS.append(f"{SCATTER}6:g 5 x[clamp(k[{{1}}], 0, 19),{{0}}] = u[{{1}},{{0}}]\n")


def checked(text: str, forget: str = "") -> NumericReport:
    """All executions of the emulated kernel, also between guard pages and in place."""
    source, runner, parsed = emitted(text), EmulatedRunner(), program(text)
    assert not forget or forget in source.code
    artifact = runner.compile(replace(source, code=source.code.replace(forget, "", 1)))
    assert isinstance(artifact, Artifact), artifact
    return verify_numeric(parsed, parsed, artifact, runner, {}, TARGET.dialect, quick=True, executions=True)


@pytest.mark.parametrize("text", [CACHES, STATISTICS, *SCATTERS])
def test_a_cell_keeps_its_value_until_a_thread_writes_it(text: str) -> None:
    report = checked(text)
    assert report.ok, report.problem
    assert {"guard_pages", "in_place"} <= set(report.executions)


@pytest.mark.parametrize(
    ("text", "forget", "says"),
    [
        (CACHES, "PD_GIVEN(k, pd_given_k, 1024);", "nobody wrote"),
        (SCATTERS[0], "PD_GIVEN(x, pd_given_x, 120);", "never written"),
        (STATISTICS, "pd_sync_block();", "data race"),
    ],
)
def test_a_copy_or_barrier_that_is_forgotten_is_noticed(text: str, forget: str, says: str) -> None:
    report = checked(text, forget)
    assert not report.ok and says in report.problem, report.problem


def test_rows_of_a_scatter_are_no_threads() -> None:
    """The move is refused, and emulation notices threads that it did not make."""
    plugins = load_plugins(targets=["cuda_gh200"])
    rules = plugins.rules(plugins.target("cuda_gh200"))
    start = program(SCATTERS[0])
    (outer,) = start.body
    for suffix in "bg":
        found = rules.attempt(start, Move("annotate_scope", outer.id, (("suffix", suffix),)))
        assert isinstance(found, Rejection), found
    report = checked(f"{SCATTER}5:b 6 {ROW}")
    assert not report.ok and "data race" in report.problem


COPIED = """\
kernel c(x, k) -> y, k
x f32 [256] heap
k f32 [256] heap
t f32 [256] async
y f32 [256] heap

1:g
"""


def test_what_is_copied_meanwhile_is_overwritten_behind_a_barrier() -> None:
    text = f"{COPIED}| 256:b t[{{1}}] = k[{{1}}]\n| 256:b k[{{1}}] = x[{{1}}]\n| 256:b y[{{1}}] = t[{{1}}]\n"
    code = emitted(text).code
    assert code.index("pd_copy_async(") < code.index("pd_copies_done();") < code.index("k[i1] = x[i1];")
    report = checked(text)
    assert report.ok, report.problem


def test_what_the_same_thread_overwrites_is_copied_at_once() -> None:
    text = f"{COPIED}| 256:b\n| | t[{{1}}] = k[{{1}}]\n| | k[{{1}}] = x[{{1}}]\n| 256:b y[{{1}}] = t[{{1}}]\n"
    assert "pd_copy_async(" not in emitted(text).code
    report = checked(text)
    assert report.ok, report.problem


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")
def test_the_hosts_part_compiles(tmp_path: Path) -> None:
    source = emitted(CACHES)
    for name, text in {"step.cu": source.code, **source.support}.items():
        (tmp_path / name).write_text(text)
    command = ["nvcc", "-arch=sm_90", "-std=c++17", "-c", "step.cu", "-o", "step.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "step.o").exists(), done.stderr


# -- on a GPU --------------------------------------------------------------------------------------

N = 64
SUM = (
    f"kernel add(x, k) -> k\nx f32 [{N}] heap\nk f32 [{N}] heap\n\n"
    "2:g 32:b k[{0}*32+{1}] += x[{0}*32+{1}]\n"
)


def stand_in(seconds: float = 1e-3) -> StandIn:
    def add(x: Any, k: Any) -> None:
        k[:N] += x[:N]

    return StandIn({"pd_case_k0": (2, 32, add)}, seconds)


def run(cuda: StandIn, **timing: Any) -> Result:
    about = {"inputs": [[n, [N], "f32"] for n in "xk"], "outputs": [["k", [N], "f32"]], "seed": 0}
    given = {"x": np.arange(N, dtype=np.float32), "k": np.full(N, 5, np.float32)}
    launches = tuple(read(emitted(SUM).code))
    assert [launch.arrays for launch in launches] == [("x", "k")]
    return measure(CudaGpu(cuda), Work(about, given, b"machine code", launches, 0, **timing))


def test_each_checked_call_starts_with_what_is_given() -> None:
    cuda = stand_in()
    np.testing.assert_array_equal(run(cuda).outputs["k"], np.arange(N) + 5)
    assert cuda.copied == [4 * N] * 2 and not cuda.memory


def test_calls_are_timed_in_place() -> None:
    cuda = stand_in(2e-6)
    result = run(cuda, repeats=5)
    assert result.graph and result.seconds == pytest.approx([2e-6] * 5) and cuda.copied == [4 * N] * 2


def test_one_tensor_is_changed_in_place_and_another_is_copied_to() -> None:
    cuda, source = stand_in(), emitted(SUM)
    files = {
        "kernel.cubin": b"machine code",
        "launches.json": json.dumps([asdict(each) for each in read(source.code)]).encode(),
        "workspace.json": b"0",
    }
    add = kernel_of(cuda, files, (*source.inputs, *source.outputs))
    x, k, apart = Tensor(cuda), Tensor(cuda), Tensor(cuda)
    x.cells[:N], k.cells[:N] = np.arange(N), 5
    add(x, k, apart, stream="stream")
    assert (k.cells[:N] == 5).all() and (apart.cells[:N] == np.arange(N) + 5).all()
    assert cuda.copied == [4 * N]
    add(x, k, k, stream="stream")
    assert (k.cells[:N] == np.arange(N) + 5).all() and cuda.copied == [4 * N]


def test_the_header_says_how_it_is_given() -> None:
    source = GENERATOR.generate(program(SUM), "pd_add")
    assert [a.name for a in source.inputs] == ["x", "k"] and [a.name for a in source.outputs] == ["k"]
    assert "int pd_add_on(const float *x, const float *pd_given_k, float *k, " in source.code
