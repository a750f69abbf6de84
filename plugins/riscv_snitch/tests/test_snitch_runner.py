"""The runner: faults of kernels, the content of a measurement, and a library from end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fcntl import F_GETPIPE_SZ, fcntl, ioctl
from pathlib import Path
from termios import FIONREAD

import numpy as np
import pytest
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.elf import load_elf
from perfdojo_riscv_snitch.program import TCDM_BYTES
from perfdojo_riscv_snitch.runner import SnitchRunner
from perfdojo_riscv_snitch.simulator.native import child_path
from perfdojo_riscv_snitch.simulator.run import answer_bytes, finish, job, prepare
from snitch_support import Game, golden

from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.hookspecs.abilities import Imitates, RunsSets, ability
from perfdojo_sdk.hookspecs.types import (
    ArraySpec,
    Artifact,
    Failure,
    KernelSource,
    Measurement,
    RunRequest,
)
from perfdojo_sdk.kernels.selection import default_selection, select
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.loader import load_library
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.settings import Settings

QUERY = "pd_k_workspace_bytes: li a0, 0\nret\n"


def kernel(body: str, query: str = QUERY, size: int = 4) -> KernelSource:
    """A kernel of one input and one output, as assembly."""
    text = f".text\npd_k:\n{body}\nli a0, 0\nret\n{query}"
    arrays = [(ArraySpec(name, (size,), "f64"),) for name in "xy"]
    return KernelSource("pd_k", *arrays, text, "s")


def outcome(
    body: str, query: str = QUERY, request: RunRequest | None = None, size: int = 4
) -> Measurement | Failure:
    runner = SnitchRunner()
    artifact = runner.compile(kernel(body, query, size))
    assert isinstance(artifact, Artifact), artifact
    return runner.run(artifact, request or RunRequest(repeats=3))


#: Copies four doubles.
COPY = "\n".join(f"fld ft{k}, {8 * k}(a0)\nfsd ft{k}, {8 * k}(a1)" for k in range(4))


def test_it_says_that_it_simulates() -> None:
    told = ability(SnitchRunner(), Imitates)
    assert told is not None and told.imitation == "simulated"


def test_a_measurement_says_cycles() -> None:
    measured = outcome(COPY, request=RunRequest({"x": np.arange(4.0)}, repeats=3))
    assert isinstance(measured, Measurement) and measured.provenance == "simulated"
    np.testing.assert_array_equal(measured.outputs["y"], np.arange(4.0))
    assert measured.seconds == (measured.details["snitch.cycles"] * 1e-9,)
    assert 8 < measured.details["snitch.cycles"] < 40
    again = outcome(COPY, request=RunRequest({"x": np.arange(4.0)}, want_outputs=False))
    assert isinstance(again, Measurement) and again.seconds == () and again.outputs is None
    assert again.details == measured.details


@pytest.mark.parametrize(
    "body, reason, word",
    [
        (COPY.replace("24(a1)", "16(a1)"), "wrong_result", "never written"),
        (f"{COPY}\nfsd ft0, 32(a1)", "wrong_result", "outside"),
        (f"{COPY}\nfsd ft0, -8(a0)", "wrong_result", "outside"),
        (f"{COPY}\nfsd ft1, 0(a0)", "input_modified", "x"),
        ("li a0, 1\nret", "runtime", "returned 1"),
        ("1: j 1b", "timeout", "PD-S005"),
        ("lw t0, 2(a0)", "crash", "PD-S003"),
        ("sw t0, 0(zero)", "crash", "PD-S004"),
        ("fld ft0, 0(a1)\nfsd ft0, 0(a1)", "wrong_result", "read first"),
        (f"{COPY}\nfadd.d ft0, ft0, ft9\nfsd ft0, 0(a1)", "wrong_result", "nobody has set"),
        (f"{COPY}\nadd t0, t0, t5\nsw t0, 0(a1)", "wrong_result", "nobody has set"),
        (f"{COPY}\nfsd ft0, 0(sp)", "wrong_result", "outside"),
    ],
)
def test_what_a_kernel_may_not_do(body: str, reason: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfdojo_riscv_snitch.calls.MAX_CYCLES", 100_000)
    failed = outcome(body)
    assert isinstance(failed, Failure) and failed.reason == reason and word in failed.detail, failed


@pytest.mark.parametrize("beyond", ["32(a0)", "-8(a0)", "32(a1)"])
def test_what_a_kernel_reads_outside_of_its_arrays_decides_nothing(beyond: str) -> None:
    """Even where it is multiplied by zero."""
    nothing = f"fld fa0, {beyond}\nfcvt.d.w fa1, zero\nfmul.d fa0, fa0, fa1"
    failed = outcome(f"{nothing}\n{COPY}\nfadd.d ft0, ft0, fa0\nfsd ft0, 0(a1)")
    assert isinstance(failed, Failure) and failed.reason == "wrong_result", failed


#: A workspace of eight bytes, refused when it is smaller.
ASKS = QUERY.replace("li a0, 0", "li a0, 8")
REFUSES = "li t0, 8\nbgeu a3, t0, 1f\nli a0, 1\nret\n1:"


def test_executions_on_the_simulator() -> None:
    request = RunRequest(executions=tuple(EXECUTIONS))
    found = outcome(f"{REFUSES}\n{COPY}", ASKS, request)
    assert isinstance(found, Measurement) and found.executions == (
        "alignment",
        "workspace",
        "float_control",
        "repeated",
    )
    for body, words in (
        (COPY, "returned 0 instead of 1"),
        (f"{COPY}\n{REFUSES}", "wrote into its arrays all the same"),
        (f"{REFUSES}\nandi t1, a0, 63\nbeqz t1, 2f\nli a0, 7\nret\n2:\n{COPY}", "returned 7"),
    ):
        assert isinstance(outcome(body, ASKS), Measurement)
        failed = outcome(body, ASKS, request)
        assert isinstance(failed, Failure) and words in failed.detail, failed


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{COPY}\nli s3, 1", "s3 differ"),
        (f"{COPY}\nfcvt.d.w fs4, zero", "fs4 differ"),
        (f"{COPY}\naddi sp, sp, -16", "sp differ"),
        (f"{COPY}\nli tp, 3", "tp differ"),
        (f"{COPY}\ncsrsi 0x7c0, 1", "streams"),
        (f"{COPY}\ncsrwi frm, 1", "rounding mode differ"),
    ],
)
def test_what_is_the_caller_s_is_kept(body: str, words: str) -> None:
    """The simulated core after the call, against the calling convention."""
    assert isinstance(outcome(body), Measurement), "a plain call does not show it"
    failed = outcome(body, request=RunRequest(executions=("float_control",)))
    assert isinstance(failed, Failure) and (words in failed.detail or "streams" in words), failed


def setting(register: int, value: str, stream: int = 0) -> str:
    """One of a stream's registers: 1 how often each element, 2 its bound, 6 its stride, 24 read, 28 write."""
    return f"scfgwi {value}, {32 * register + stream}\n"


#: Copies four doubles, by a stream that reads and one that stores, which is waited for.
THREE, EIGHT, REPEAT = "li t0, 3\n", "li t1, 8\n", setting(1, "zero", 31)
SET = f"{THREE}{EIGHT}{REPEAT}{setting(2, 't0', 31)}{setting(6, 't1', 31)}"
MOVED = "csrsi 0x7c0, 1\n" + 4 * "fmv.d ft1, ft0\n" + "csrci 0x7c0, 1\n"
WAITED = 3 * "scfgri zero, 1\n" + "1: scfgri t0, 1\nbgez t0, 1b\n"
STREAMED = SET + setting(24, "a0") + setting(28, "a1", 1) + MOVED + WAITED


def test_a_kernel_sets_every_register_of_a_stream_that_it_uses() -> None:
    """An earlier kernel has left others there."""
    assert isinstance(outcome(STREAMED, request=RunRequest(executions=tuple(EXECUTIONS))), Measurement)
    for missing in (REPEAT, setting(2, "t0", 31), setting(6, "t1", 31)):
        failed = outcome(STREAMED.replace(missing, ""))
        assert isinstance(failed, Failure), missing


#: The same from a stack of its own, where the elements are stored one by one before.
KEPT = "\n".join(f"fld ft3, {8 * k}(a0)\nfsd ft3, {8 * k}(sp)" for k in range(4))
STACKED = f"addi sp, sp, -32\n{KEPT}\nfence\n{STREAMED.replace('a0', 'sp')}addi sp, sp, 32\n"


@pytest.mark.parametrize(
    ("body", "missing", "words"),
    [
        (STREAMED, WAITED, "before ft1 had stored all"),
        (STACKED, "fence\n", "fifty calls in a row"),
    ],
)
def test_calls_in_a_row_while_others_keep_the_memory_busy(body: str, missing: str, words: str) -> None:
    request = RunRequest(executions=("repeated",))
    assert isinstance(outcome(body, request=request), Measurement)
    late = body.replace(missing, "")
    assert isinstance(outcome(late), Measurement), "a plain call does not show it"
    failed = outcome(late, request=request)
    assert isinstance(failed, Failure) and words in failed.detail, failed


def test_a_stream_that_reads_too_much_is_left_to_the_next_kernel() -> None:
    long = STREAMED.replace(setting(24, "a0"), f"li t2, 4\n{setting(2, 't2')}{setting(24, 'a0')}")
    assert isinstance(outcome(long), Measurement), "a plain call does not show it"
    failed = outcome(long, request=RunRequest(executions=("float_control",)))
    assert isinstance(failed, Failure) and "ft0 has a job or data left" in failed.detail, failed


def test_a_loop_that_nobody_set_is_left_to_the_next_kernel() -> None:
    """An earlier kernel left a bound there, and the job goes on: only the next kernel's wait would tell."""
    deep = STREAMED.replace(setting(24, "a0"), setting(25, "a0"))
    assert isinstance(outcome(deep), Measurement), "a plain call does not show it"
    failed = outcome(deep, request=RunRequest(executions=("float_control",)))
    assert isinstance(failed, Failure) and "ft0 has a job or data left" in failed.detail, failed


def test_many_sets_are_as_many_calls() -> None:
    """More than one child runs; each set's results are its own, and what is wrong in one of them fails."""
    inputs = {"x": np.arange(4.0 * 70).reshape(70, 4)}
    runner = SnitchRunner()
    artifact, beyond = (
        runner.compile(kernel(body))
        for body in (COPY, f"{COPY}\nli t0, 276\nfcvt.w.d t1, ft0\nbne t0, t1, 1f\nfsd ft0, 32(a1)\n1:")
    )
    assert isinstance(artifact, Artifact) and isinstance(beyond, Artifact)
    found = runner.run_sets(artifact, RunRequest(inputs), 70)
    assert isinstance(found, Measurement) and found.outputs is not None
    np.testing.assert_array_equal(found.outputs["y"], inputs["x"])
    failed = runner.run_sets(beyond, RunRequest(inputs), 70)
    assert isinstance(failed, Failure) and "outside its arrays" in failed.detail, failed


def test_a_model_of_the_hardware_runs_no_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ability(SnitchRunner(), RunsSets) is not None
    monkeypatch.setattr("perfdojo_riscv_snitch.cluster.binary", lambda: "/bin/true")
    assert ability(SnitchRunner(), RunsSets) is None


def test_a_kernel_that_runs_too_long_is_stopped() -> None:
    failed = outcome("1: j 1b", request=RunRequest(timeout_s=0.5))
    assert isinstance(failed, Failure) and failed.reason == "timeout"


def waiting(pipe: int) -> int:
    """Bytes that can be read from a pipe."""
    return int.from_bytes(ioctl(pipe, FIONREAD, bytes(4)), sys.byteorder)


def test_a_simulator_that_is_stopped_amid_its_answer_tells_all_of_it(tmp_path: Path) -> None:
    """Whatever stops it: a debugger, a shell, a batch system. The stop ends its write to the pipe early."""
    program = assemble("ecall")
    runs = [prepare(program, bytes([k]) * TCDM_BYTES, {}, 100) for k in (1, 2)]
    (tmp_path / "job").write_bytes(job(runs, 60, 8 << 30))
    with open(tmp_path / "job", "rb") as given:
        child = subprocess.Popen([child_path()], stdin=given, stdout=subprocess.PIPE)
    with child:
        assert child.stdout
        full = fcntl(child.stdout, F_GETPIPE_SZ)
        assert full < answer_bytes(runs) // 2, "the first run's answer does not fit the pipe"
        while waiting(child.stdout.fileno()) < full:
            assert child.poll() is None, "it ends before it has told all"
            time.sleep(0.005)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        child.send_signal(signal.SIGCONT)
        said = child.stdout.read()
    assert len(said) == answer_bytes(runs)
    assert [run.memory for run in finish(program, runs, said)] == [bytes([k]) * TCDM_BYTES for k in (1, 2)]


def test_an_answer_with_a_part_missing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "child"
    script.write_text("#!/bin/sh\ncat >/dev/null\nhead -c 263216 /dev/zero\n")
    script.chmod(0o700)
    monkeypatch.setattr("perfdojo_riscv_snitch.calls.child_path", lambda: script)
    failed = outcome(COPY)
    assert isinstance(failed, Failure) and failed.reason == "runtime"
    assert "263216 bytes instead of" in failed.detail


def test_arrays_that_do_not_fit_are_refused() -> None:
    failed = outcome(COPY, size=10_000)
    assert isinstance(failed, Failure) and failed.reason == "memory" and "131072" in failed.detail


@pytest.mark.parametrize("query", ["", "pd_k_workspace_bytes: j pd_k_workspace_bytes"])
def test_an_object_without_a_workspace_query_is_refused(query: str) -> None:
    failed = outcome(COPY, query)
    assert isinstance(failed, Failure) and failed.reason == "runtime"


def test_what_is_no_object_or_no_assembly_is_a_failure() -> None:
    failed = SnitchRunner().compile(kernel("frobnicate a0"))
    assert isinstance(failed, Failure) and failed.reason == "compile" and "frobnicate" in failed.detail
    artifact = SnitchRunner().compile(kernel(COPY))
    assert isinstance(artifact, Artifact)
    failed = SnitchRunner().run(replace(artifact, content=b"\x7fELF"), RunRequest())
    assert isinstance(failed, Failure) and failed.reason == "runtime"


def test_a_workspace_is_given() -> None:
    body = f"li t0, 4096\nbne a3, t0, 1f\nsw a0, 4092(a2)\n{COPY}\nj 2f\n1: li a0, 1\nret\n2:"
    body = body.replace("sw a0, 4092(a2)", "li t0, 4092\nadd t0, t0, a2\nsw a0, 0(t0)")
    assert isinstance(outcome(body, "pd_k_workspace_bytes: li a0, 1\nslli a0, a0, 12\nret"), Measurement)


def test_the_default_selection_is_the_micro_kernels() -> None:
    game = Game()
    operators = game.plugins.operators_for(game.target)
    lists = game.target.capabilities.selections
    names = {k.operator for k in default_selection(operators, game.target.dialect, lists)}
    assert names == set(lists["default"])
    assert {"dmatmul", "srelu"} <= names and "softmax" not in names
    both = select("f64 ddot[128]", operators, game.target.dialect, lists)
    assert {k.operator for k in both} == set(lists["f64"])


def test_a_library_from_end_to_end(tmp_path: Path) -> None:
    game = Game()
    operators = game.plugins.operators_for(game.target)
    kernels = select("drelu[4,4] sdense[2,3,4]", operators, game.target.dialect)
    result = build_library(game.plugins, game.target, kernels, tmp_path, Settings(threads=1))
    assert result.manifest and not result.failed
    for entry in result.manifest.kernels:
        assert entry.verification.passed
        assert entry.timing.final and entry.timing.final.provenance == "simulated"
    (code,) = {entry.code for entry in result.manifest.kernels}
    program = load_elf((tmp_path / code).read_bytes())
    assert {entry.symbol for entry in result.manifest.kernels} <= program.symbols.keys()
    header = (tmp_path / "include" / "perfdojo_riscv_snitch.h").read_text()
    golden("perfdojo_riscv_snitch.h", header)
    with pytest.raises(LibraryError, match="cannot be called from Python") as error:
        load_library(tmp_path)
    assert error.value.code == "PD-L017"
    assert json.loads((tmp_path / "manifest.json").read_text())["target"] == "riscv_snitch"
