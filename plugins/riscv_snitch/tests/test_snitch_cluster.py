"""The hardware's own model as a runner, with a stand-in for it that checks what it is given."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import perfdojo_riscv_snitch as plugin
import pytest
from perfdojo_riscv_snitch import cluster
from perfdojo_riscv_snitch.kernels import OPERATORS
from snitch_support import Game, compiled

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.hookspecs.types import Failure, Measurement, RunRequest
from perfdojo_sdk.kernels.selection import select

STAND_IN = Path(__file__).with_name("model_stand_in.py")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "snitch_cluster.vlt"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv(cluster.VARIABLE, str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    return path


def run_on_it(selection: str = "ddot[128]", seconds: float = 60.0) -> Measurement | Failure:
    game = Game()
    (kernel,) = select(selection, {o.name: o for o in OPERATORS})
    artifact = game.compile(compiled(kernel.program, kernel.symbol))
    return game.runner.run(artifact, RunRequest(repeats=1, timeout_s=seconds))


@pytest.mark.parametrize("selection", ["ddot[128]", "ssoftmax[2,4]"])
def test_a_kernel_runs_on_the_model(selection: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = run_on_it(selection)
    assert isinstance(measured, Measurement), measured
    assert measured.details == {"snitch.cycles": 7.0} and measured.provenance == "simulated"
    assert model.name in measured.device
    monkeypatch.delenv(cluster.VARIABLE)
    own = run_on_it(selection)
    assert isinstance(own, Measurement) and "simulated at" in own.device
    for name, array in own.outputs.items():
        np.testing.assert_array_equal(measured.outputs[name], array)


def test_arguments_beyond_the_registers_reach_the_kernel(model: Path) -> None:
    names = [f"x{k}" for k in range(9)]
    arrays = "".join(f"{name} f64 [2] heap\n" for name in (*names, "y"))
    total = " + ".join(f"{name}[{{0}}]" for name in names)
    program = parse(f"kernel k({', '.join(names)}) -> y\n{arrays}\n2 y[{{0}}] = {total}\n")
    given = {name: np.array([1.0, 10.0]) * k for k, name in enumerate(names)}
    game = Game()
    measured = game.runner.run(game.compile(compiled(program)), RunRequest(given, repeats=1))
    assert isinstance(measured, Measurement), measured
    np.testing.assert_array_equal(measured.outputs["y"], [36, 360])


@pytest.mark.parametrize(
    ("misbehaviour", "reason", "words"),
    [("hang", "timeout", "no result after"), ("crash", "crash", "status"), ("flood", "crash", "status")]
    + [("garbage", "runtime", "told no result")],
)
def test_a_model_that_misbehaves_is_a_result_with_a_reason(
    misbehaviour: str, reason: str, words: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", misbehaviour)
    failed = run_on_it(seconds=1.0 if misbehaviour == "hang" else 60.0)
    assert isinstance(failed, Failure) and failed.reason == reason
    assert words in failed.detail and str(model) in failed.detail


def test_a_model_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cluster.VARIABLE, "/no/such/model")
    failed = run_on_it()
    assert isinstance(failed, Failure) and failed.reason == "crash" and "/no/such/model" in failed.detail


def test_the_doctor_tells_which_model_runs(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def probe() -> Probe:
        (found,) = [
            p for p in plugin.perfdojo_doctor_probes(Game().target) if p.part == "model of the hardware"
        ]
        return found

    assert probe().found == str(model)
    monkeypatch.setenv(cluster.VARIABLE, "/no/such/model")
    missing = probe()
    assert not missing.ok and missing.required and "unset" in missing.remedy
    monkeypatch.delenv(cluster.VARIABLE)
    assert probe().ok and cluster.VARIABLE in probe().found
