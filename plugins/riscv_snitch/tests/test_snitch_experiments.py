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
def test_fig9_says_where_each_figure_is_from(tmp_path: Path) -> None:
    result = experiments.fig9(ExperimentRequest(tmp_path, quick=True))
    first, second = result.data["rows"]
    assert first["cycles"]["xDSL"] == 45 and first["cycles"]["by hand"] is None
    assert second["cycles"]["xDSL"] is None and "published" in result.text
    if compiled_c.find_compiler():
        assert first["cycles"]["C"] > first["cycles"]["heuristic"]
        assert result.data["heuristic_over"]["C"]["kernels"] == 2
    else:
        assert first["cycles"]["C"] is None and "no C compiler" in first["why_no_c"]


@pytest.mark.usefixtures("two")
def test_without_matplotlib_there_is_data_and_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(experiments, "QUICK", "dsum[4,4]")
    result = experiments.fig8(ExperimentRequest(tmp_path, quick=True))
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
