"""The emulation of blocks and warps: right kernels give right results, and each planted fault is found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import support_text
from perfdojo_sdk.codegen.gpu.emitter import GPU_SUPPORT
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.emulated_runner import EXECUTED, FAULTS, EmulatedRunner
from perfdojo_sdk.measure.toolchain import find_toolchain

try:
    find_toolchain()
except UnavailableError as missing:
    pytest.skip(missing.what, allow_module_level=True)

N = 128
#: Each block of 64 threads reverses its part of x; blocks share nothing.
REVERSE = """
    PD_SHARED(float, 64, part);
    part[pd_thread] = x[pd_block*64 + pd_thread];
    pd_sync_block();
    y[pd_block*64 + pd_thread] = part[63 - pd_thread];
"""
WAIT = "    pd_sync_block();\n"


@dataclass(frozen=True)
class Planted:
    """A fault in a kernel body, and the words of the fault that must be reported."""

    name: str
    body: str
    status: int


PLANTED = (
    Planted(
        "no barrier between a write and another thread's read",
        REVERSE.replace("    part[", "    part[pd_thread] = 0;\n    pd_sync_block();\n    part[", 1).replace(
            WAIT + "    y", "    y"
        ),
        103,
    ),
    Planted(
        "no barrier before the cell is written again",
        REVERSE + "    part[pd_thread] = 0;\n",
        103,
    ),
    Planted(
        "only a warp waits, where the other warp wrote",
        REVERSE.replace("pd_sync_block()", "pd_sync_warp()"),
        103,
    ),
    Planted(
        "two blocks write one cell",
        REVERSE + "    if (pd_thread == 0)\n        y[0] = 1;\n",
        103,
    ),
    Planted(
        "half of the threads wait",
        REVERSE + "    if (pd_thread < 32)\n    " + WAIT,
        104,
    ),
    Planted(
        "threads wait at two different barriers",
        REVERSE.replace(WAIT, f"    if (pd_thread < 32)\n    {WAIT}    else\n    {WAIT}"),
        104,
    ),
    Planted("one lane takes no part in a shuffle", REVERSE + """
    float sum = 1;
    if (pd_lane != 3)
        sum = pd_warp_add_f32(sum);
    y[pd_block*64 + pd_thread] = sum;
""", 104),
    Planted("one cell past the end of shared memory", REVERSE.replace("part[63 -", "part[64 -"), 101),
    Planted("one cell past the end of an output", REVERSE.replace("y[pd_block*64", "y[pd_block*64 + 1"), 101),
    Planted("one cell before an input", REVERSE.replace("x[pd_block*64", "x[pd_block*64 - 1"), 101),
    Planted(
        "shared memory that nobody wrote",
        REVERSE.replace("part[pd_thread] =", "if (pd_thread != 5)\n        part[pd_thread] ="),
        102,
    ),
    Planted(
        "shared memory of the block before",
        REVERSE.replace("part[pd_thread] =", "if (pd_block == 0)\n        part[pd_thread] ="),
        102,
    ),
    Planted("an output that is read before it is written", REVERSE.replace("= part[", "+= part["), 102),
    Planted(
        "four floats from an odd place",
        REVERSE + "    y[pd_block*64 + pd_thread] = pd_load4(x, 1).x;\n",
        105,
    ),
    *(
        Planted(
            f"four {dtype} to an odd place",
            f"    PD_SHARED(pd_{dtype}, 64, short_);\n    const pd_{dtype} one = pd_{dtype}_from_f32(1);\n"
            f"    if (pd_thread == 0)\n        pd_store4_{dtype}(short_, 2, one, one, one, one);\n" + REVERSE,
            105,
        )
        for dtype in ("bf16", "tf32")
    ),
)  # fmt: skip


def source(body: str, name: str = "pd_case", threads: int = 64) -> KernelSource:
    code = f"""
#include "pd_gpu.h"
#define THREADS {threads}
PD_KERNEL({name}_k0, THREADS)(PD_INPUT(float, {N}, x), PD_ARRAY(float, {N}, y))
{{{body}}}

PD_HOST size_t {name}_workspace_bytes(int threads) {{ return 0; }}
PD_HOST int {name}(const float *x, float *y, void *workspace, size_t bytes, int threads)
{{
    PD_BEGIN_CALL();
    PD_LAUNCH({name}_k0, {N // threads}, {threads}, x, y);
    return PD_END_CALL();
}}
"""
    support = {n: support_text(n) for n in GPU_SUPPORT}
    return KernelSource(
        name, (ArraySpec("x", (N,), "f32"),), (ArraySpec("y", (N,), "f32"),), code, "cu", support
    )


def result_of(body: str, warp: int = 32, checked: bool = True, threads: int = 64) -> Measurement | Failure:
    runner = EmulatedRunner(warp, checked)
    artifact = runner.compile(source(body, threads=threads))
    assert isinstance(artifact, Artifact), artifact
    x = np.arange(N, dtype=np.float32)
    return runner.run(artifact, RunRequest(inputs={"x": x}))


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("    volatile float beyond = x[N];\n", "outside of its arrays, after x"),
        ("    volatile float beyond = x[-1];\n", "outside of its arrays, before x"),
        ("    static int calls;\n    if (++calls == 2000)\n        y[0] = 1;\n", "1 of 128 elements"),
    ],
)
def test_executions_show_what_a_plain_call_does_not(extra: str, words: str) -> None:
    """Unwatched, as a large kernel runs, so that nothing but the pages around an array sees who leaves it."""
    runner = EmulatedRunner(checked=False)
    asked = RunRequest(executions=tuple(EXECUTIONS))
    for body, right in ((REVERSE, True), (REVERSE + extra.replace("N", str(N)), False)):
        artifact = runner.compile(source(body))
        assert isinstance(artifact, Artifact), artifact
        assert isinstance(runner.run(artifact, RunRequest()), Measurement)
        found = runner.run(artifact, asked)
        if right:
            assert isinstance(found, Measurement) and set(found.executions) == EXECUTED
        else:
            assert isinstance(found, Failure) and words in found.detail, found


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("warp", [32, 64])
def test_a_right_kernel_passes(warp: int, checked: bool) -> None:
    result = result_of(REVERSE, warp, checked)
    assert isinstance(result, Measurement), result
    assert result.provenance == "simulated" and not result.seconds
    expected = np.arange(N).reshape(2, 64)[:, ::-1].reshape(-1)
    assert result.outputs is not None
    np.testing.assert_array_equal(result.outputs["y"], expected)


@pytest.mark.parametrize("scratch", ["own", "own[1]"])
def test_what_one_thread_keeps_where_all_write_is_noticed(scratch: str) -> None:
    """Threads that run one after the other would each find their own."""
    mine = scratch.replace("[1]", "[0]")
    body = f"""
    float {scratch};
    {mine} = x[pd_block*64 + pd_thread];
    const float other = x[pd_block*64 + 63 - pd_thread];
    y[pd_block*64 + pd_thread] = other - {mine};
"""
    assert isinstance(result_of(body), Measurement)
    found = result_of(body.replace("float own", "static float own"))
    assert isinstance(found, Failure) and "change from call to call" in found.detail, found


#: A block's sum is kept in one number, and each thread's distance from it in shared memory.
SUM = """
    float sum;
    PD_SHARED(float, THREADS, part);
    sum = 0;
    for (int k = 0; k < THREADS; k++)
        sum += x[pd_block*THREADS + k];
    part[pd_thread] = x[pd_block*THREADS + pd_thread] - sum;
    pd_sync_block();
    y[pd_block*THREADS + pd_thread] = part[THREADS - 1 - pd_thread];
"""


@pytest.mark.parametrize("threads", [4, 64])
@pytest.mark.parametrize(
    ("own", "common"),
    [
        ("float sum", "static float sum"),
        ("PD_SHARED(float, THREADS, part)", "alignas(16) static float part[THREADS]"),
    ],
    ids=["number", "array"],
)
def test_what_a_block_keeps_where_all_blocks_write_is_noticed(own: str, common: str, threads: int) -> None:
    """Blocks that run one after the other would each find their own, or what they all agree on."""
    right = result_of(SUM, threads=threads)
    assert isinstance(right, Measurement) and right.outputs is not None, right
    rows = np.arange(N, dtype=np.float32).reshape(-1, threads)
    expected = (rows - rows.sum(1, keepdims=True))[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(right.outputs["y"], expected)
    assert SUM.count(own) == 1
    found = result_of(SUM.replace(own, common), threads=threads)
    assert isinstance(found, Failure) and "change from call to call" in found.detail, found


def test_what_is_stored_is_read_when_others_had_their_turn() -> None:
    """Nothing watched stands between the number's two uses."""
    body = "    float own;\n    own = x[pd_block*64 + pd_thread];\n    y[pd_block*64 + pd_thread] = own;\n"
    assert isinstance(result_of(body), Measurement)
    found = result_of(body.replace("float own", "static float own"))
    assert isinstance(found, Failure) and "change from call to call" in found.detail, found


def test_one_process_has_room_for_a_hundred_kernels() -> None:
    """Stacks of blocks in flight are for as many threads as there are, and given back."""
    runner = EmulatedRunner()
    artifact = runner.compile(source(REVERSE))
    assert isinstance(artifact, Artifact), artifact
    found = runner.run_together(artifact, [RunRequest()] * 100)
    assert [type(each) for each in found] == [Measurement] * 100


def test_many_sets_are_as_many_calls() -> None:
    """Each set's results are its own, and a fault in one of them fails."""
    x = np.arange(3 * N, dtype=np.float32).reshape(3, N)
    runner, late = EmulatedRunner(), "    if (x[0] == 2*N)\n        y[pd_thread + 100] = 1;\n"
    found = []
    for body in (REVERSE, REVERSE + late.replace("N", str(N))):
        artifact = runner.compile(source(body))
        assert isinstance(artifact, Artifact), artifact
        found.append(runner.run_sets(artifact, RunRequest(inputs={"x": x}), 3))
    right, wrong = found
    assert isinstance(right, Measurement) and right.provenance == "simulated" and right.outputs is not None
    expected = x.reshape(3, 2, 64)[:, :, ::-1].reshape(3, N)
    np.testing.assert_array_equal(right.outputs["y"], expected)
    assert isinstance(wrong, Failure) and wrong.detail in (FAULTS[101], FAULTS[103]), wrong


@pytest.mark.parametrize("checked", [True, False])
def test_four_floats_move_at_once(checked: bool) -> None:
    """Into shared memory and out of it, and to an array of the caller, watched or not."""
    body = """
    PD_SHARED(float, 64, part);
    if (pd_thread < 16) {
        const pd_f32x4 four = pd_load4(x, pd_block*64 + pd_thread*4);
        pd_store4(part, pd_thread*4, four.w, four.z, four.y, four.x);
        const pd_f32x4 again = pd_load4(part, pd_thread*4);
        pd_store4(y, pd_block*64 + pd_thread*4, again.x, again.y, again.z, again.w);
    }
"""
    result = result_of(body, checked=checked)
    assert isinstance(result, Measurement) and result.outputs is not None, result
    expected = np.arange(N).reshape(-1, 4)[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(result.outputs["y"], expected)


@pytest.mark.parametrize("warp", [32, 64])
def test_a_warp_has_so_many_lanes(warp: int) -> None:
    result = result_of(
        "    y[pd_block*64 + pd_thread] = pd_warp_add_f32(x[pd_block*64 + pd_thread]);\n", warp
    )
    assert isinstance(result, Measurement), result
    sums = np.arange(N, dtype=np.float32).reshape(-1, warp).sum(1)
    assert result.outputs is not None
    np.testing.assert_array_equal(result.outputs["y"], np.repeat(sums, warp))


def test_every_planted_fault_is_reported() -> None:
    """All in one source, which spares compilations: each kernel is a function of its own."""
    runner = EmulatedRunner()
    cases = [source(planted.body, f"pd_case{k}") for k, planted in enumerate(PLANTED)]
    artifact = runner.compile(replace(cases[0], code="".join(case.code for case in cases)))
    assert isinstance(artifact, Artifact), artifact
    inputs = {"x": np.arange(N, dtype=np.float32)}
    for planted, case in zip(PLANTED, cases, strict=True):
        made = Artifact(case.symbol, case.inputs, case.outputs, artifact.kind, artifact.content)
        result = runner.run(made, RunRequest(inputs=inputs))
        assert isinstance(result, Failure), f"{planted.name}: not noticed"
        assert (result.reason, result.detail) == ("wrong_result", FAULTS[planted.status]), planted.name


def test_what_is_no_code_does_not_compile() -> None:
    result = EmulatedRunner().compile(source("    this is no code\n"))
    assert isinstance(result, Failure) and result.reason == "compile"
