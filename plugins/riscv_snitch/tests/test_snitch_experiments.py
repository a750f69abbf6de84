"""Figures 8 and 9 of the paper, in the quick form with two kernels, and the C that stands beside."""

from __future__ import annotations

import builtins
import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perfdojo_riscv_snitch import compiled_c, experiments
from snitch_support import Game, run

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.services import ExperimentRequest
from perfdojo_sdk.hookspecs.types import Measurement, RunRequest
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.build import RECORDS, build_library
from perfdojo_sdk.library.settings import Settings

TWO = "dsum[4,4] smaxpool[4,4]"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "QUICK", TWO)


def kernel(selection: str) -> Any:
    game = Game()
    return game, select(selection, game.plugins.operators_for(game.target), game.target.dialect)[0]


@pytest.mark.usefixtures("two")
def test_fig8_shows_fractions_of_peak(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = experiments.fig8(ExperimentRequest(tmp_path, quick=True))
    data, picture = (file.read_bytes() for file in result.files)
    found = json.loads(data)
    assert [row["kernel"] for row in found["rows"]] == TWO.split() and found == dict(result.data)
    assert found["rows"][0]["peak"] == 16 and picture.startswith(b"\x89PNG")
    for row in found["rows"]:
        assert 0 < row["fraction"]["naive"] <= row["fraction"]["greedy"] <= 1
        assert row["fraction"]["greedy"] <= row["fraction"]["heuristic"] <= 1
        assert row["fraction"]["naive"] == row["peak"] / row["cycles"]["naive"]
    fractions = [row["fraction"]["heuristic"] for row in found["rows"]]
    assert found["fraction"]["heuristic"] == pytest.approx(prod(fractions) ** 0.5)
    assert "geometric mean" in result.text and "simulated" in result.text


@pytest.mark.usefixtures("two")
def test_fig9_says_where_each_figure_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFDOJO_DB", raising=False)
    result = experiments.fig9(ExperimentRequest(tmp_path, quick=True))
    first, second = result.data["rows"]
    assert first["cycles"]["xDSL, there"] == 45 and first["cycles"]["by hand"] is None
    assert second["cycles"]["xDSL, there"] is None and "published: xDSL, there; by hand" in result.text
    assert first["cycles"]["tuned"] is None and "no tuned program is on record" in result.text
    assert "cycles: " in first["binds"] or "FPU" in first["binds"]
    if compiled_c.find_compiler():
        assert first["cycles"]["C"] > first["cycles"]["heuristic"]
        assert result.data["heuristic_over"]["C"]["kernels"] == 2
    else:
        assert first["cycles"]["C"] is None and "no C compiler" in first["missing"]["C"]


def test_tuned_programs_are_taken_from_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game, chosen = kernel("dsum[4,4]")
    built = build_library(game.plugins, game.target, [chosen], tmp_path, Settings())
    assert not built.failed
    monkeypatch.setenv("PERFDOJO_DB", str(tmp_path / RECORDS))
    bench = experiments.Bench()
    assert bench.tuned(chosen) == bench.heuristic(chosen)[0]


def test_what_xdsl_makes_runs_on_the_simulator() -> None:
    """Cycles stand within three in a hundred of those that are published."""
    pytest.importorskip("xdsl")
    bench = experiments.Bench()
    chosen = "dmatmul[4,16,8] dmatmul_transb[4,16,16] dconv3x3[4,4] dmaxpool[4,4] dsumpool[4,4]"
    for selection in f"{chosen} dsum[20,20] drelu[20,20] dfill[20,20]".split():
        _, chosen = kernel(selection)
        made = bench.by_xdsl(chosen)
        assert not isinstance(made, str), made
        assert bench.cycles(made) == pytest.approx(experiments.XDSL[selection], rel=0.03)
        own = bench.runner.run(bench.compile(chosen.program, chosen), RunRequest(repeats=1))
        theirs = bench.runner.run(made, RunRequest(repeats=1))
        assert all(np.allclose(theirs.outputs[n], a, rtol=1e-14) for n, a in own.outputs.items())


@pytest.mark.parametrize(
    ("name", "why"), [("dsoftmax[2,4]", "not among those"), ("dsum[4,4]", "pip install")]
)
def test_why_there_is_nothing_of_xdsl(name: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    found = experiments.Bench().by_xdsl(kernel(name)[1])
    assert isinstance(found, str) and why in found


def test_without_matplotlib_there_is_data_and_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    result = experiments.fig8(ExperimentRequest(tmp_path, kernels="dsum[4,4]"))
    assert [row["kernel"] for row in result.data["rows"]] == ["dsum[4,4]"]
    assert [file.name for file in result.files] == ["fig8.json"] and "pip install" in result.text


@pytest.mark.parametrize("selection", ["dmaxpool[4,4]", "sdense[2,4,8]"])
def test_the_c_computes_the_same(selection: str) -> None:
    if not compiled_c.find_compiler():
        pytest.skip("no C compiler for RISC-V")
    game, chosen = kernel(selection)
    rng = np.random.default_rng(0)
    types = {"f64": np.float64, "f32": np.float32}
    given = {a.name: rng.integers(-8, 8, a.shape).astype(types[a.dtype]) for a in chosen.inputs}
    made = compiled_c.compiled_c(chosen.program, game.target.dialect, "pd_c")
    assert not isinstance(made, str), made
    measured = game.runner.run(made, RunRequest(given, repeats=1))
    assert isinstance(measured, Measurement), measured
    expected = run(chosen.program, given).outputs
    for name, array in measured.outputs.items():
        assert np.array_equal(array, expected[name])


def test_why_there_is_no_c() -> None:
    program = parse("kernel k(x) -> y\nx f64 [4] heap\ny f64 [4] heap\n\n4 y[{0}] = log(x[{0}])\n")
    why = compiled_c.compiled_c(program, Game().target.dialect, "pd_c")
    assert isinstance(why, str) and ("no C of log" in why or "no C compiler" in why)
