"""Copies that go on while threads do something else: asked for by a location, waited for, watched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_support import TARGET, emitted, program
from perfdojo_cuda_gh200.compile import compile_for_gpu, nvrtc

from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.gpu_runner import DeviceCode
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric

HEAD = "kernel k(x) -> y\nx f32 [4,256] heap\nt f32 [256] async\ny f32 [4,256] heap\n\n"
#: Rows, each reversed by way of shared memory; ROW is how a row gets there.
ROWS = HEAD + "4:g\n| ROW\n| 256:b y[{0},{1}] = t[-{1}+255]\n"
ONE_BY_ONE = ROWS.replace("ROW", "256:b t[{1}] = x[{0},{1}]")
FOUR_AT_ONCE = ROWS.replace("ROW", "64:b 4:v t[{1}*4+{2}] = x[{0},{1}*4+{2}]")
#: The same buffer again and again, in a loop of the block.
IN_TURNS = HEAD + "1:g 4\n| 256:b t[{2}] = x[{1},{2}]\n| 256:b y[{1},{2}] = t[{2}] + t[-{2}+255]\n"
#: Each thread reads its own cell only: no barrier would be needed for a plain copy.
OWN_CELL = HEAD + "4:g\n| 256:b t[{1}] = x[{0},{1}]\n| 256:b y[{0},{1}] = t[{1}]\n"
ASYNC = "pd_copy_async("


def checked(text: str, forget: str = "") -> NumericReport:
    source, runner = emitted(text), EmulatedRunner()
    assert not forget or forget in source.code
    code = source.code.replace(forget, "", 1) if forget else source.code
    artifact = runner.compile(replace(source, code=code))
    assert isinstance(artifact, Artifact), artifact
    parsed = program(text)
    return verify_numeric(parsed, parsed, artifact, runner, {}, TARGET.dialect, quick=True)


@pytest.mark.parametrize(
    ("text", "word"),
    [(ONE_BY_ONE, ASYNC), (FOUR_AT_ONCE, "pd_copy_async16("), (IN_TURNS, ASYNC), (OWN_CELL, ASYNC)],
)
def test_a_copy_is_waited_for_in_front_of_a_barrier(text: str, word: str) -> None:
    code = emitted(text).code
    assert word in code and "pd_copies_done();\n    " in code
    assert code.count("pd_copies_done();") == code.count("pd_sync_block();") > 0
    report = checked(text)
    assert report.ok, report.problem


@pytest.mark.parametrize("forget", ["pd_copies_done();", "pd_sync_block();"])
def test_a_copy_that_nobody_waits_for_is_noticed(forget: str) -> None:
    report = checked(ONE_BY_ONE, forget)
    assert not report.ok and ("nobody wrote" in report.problem or "data race" in report.problem)


@pytest.mark.parametrize(
    "row",
    [
        "256:b t[{1}] = x[{0},{1}] * 2",  # no copy
        "256:b\n| | t[{1}] = x[{0},{1}]\n| | t[{1}] += 1",  # its own thread goes on with it
        "256 t[{1}] = x[{0},{1}]",  # one thread
    ],
)
def test_other_writes_stay_what_they_are(row: str) -> None:
    text = ROWS.replace("ROW", row)
    assert ASYNC not in emitted(text).code
    report = checked(text)
    assert report.ok, report.problem


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not installed; try: pip install nvidia-cuda-nvrtc")
def test_the_compiler_makes_asynchronous_copies_of_them() -> None:
    for text, kind in ((ONE_BY_ONE, b"ca"), (FOUR_AT_ONCE, b"cg")):
        code = compile_for_gpu(emitted(text), "sm_90")
        assert isinstance(code, DeviceCode), code
        ptx = code.files["kernel.ptx"]
        assert b"cp.async." + kind + b".shared.global" in ptx and b"cp.async.wait_all" in ptx
        assert code.resources[0].figures["spill_bytes"] == 0
