"""The benchmark of GPUs up to the point where a GPU is needed: a stand-in has the times and the memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks import gpu_table3
from benchmarks.gpu_table3 import (
    COMPILED,
    EAGER,
    LARGE,
    NO_GPU,
    OURS,
    Contender,
    Games,
    Row,
    goals,
    report,
    row,
)
from perfdojo_sdk.peers.operators import OPERATORS, Operator

ADD = Operator("add", "add", ((5, 7), (5, 7)), (5, 7), 35)


class Bundle(NamedTuple):
    """What a compiler made."""

    name: str


class FakeGames:
    def __init__(self, *made: Any) -> None:
        self.made = made

    def bundles(self, operator: Operator) -> Iterator[Any]:
        yield from self.made


class FakeGpu:
    """Arrays of NumPy and times that are told; a contender is a function of the inputs."""

    copy_bandwidth, peak = 1e9, 1e9

    def __init__(
        self, ours: dict[str, Any], peers: dict[str, Any], seconds: dict[str, Sequence[float]]
    ) -> None:
        self.kernels, self.formulas = ours, peers
        self.seconds = {name: list(values) for name, values in seconds.items()}
        self.names: dict[Callable[[], None], str] = {}

    def put(self, array: Any) -> Any:
        return array.copy()

    def get(self, tensor: Any) -> Any:
        return tensor

    def _contender(self, name: str, formula: Any, inputs: Sequence[Any]) -> Contender:
        result: list[Any] = []

        def call() -> None:
            result[:] = [formula(*inputs)]

        self.names[call] = name
        return Contender(call, lambda: result[0])

    def ours(self, made: Any, inputs: Sequence[Any], shape: Sequence[int]) -> Contender:
        if made.name not in self.kernels:
            raise OSError("the driver failed: CUDA_ERROR_NO_BINARY_FOR_GPU")
        return self._contender(made.name, self.kernels[made.name], inputs)

    def peers(self, operator: Operator, inputs: Sequence[Any]) -> dict[str, Contender]:
        return {name: self._contender(name, f, inputs) for name, f in self.formulas.items()}

    def timer(self, call: Callable[[], None]) -> Callable[[], float]:
        times = iter(self.seconds[self.names[call]])
        return lambda: next(times)


def test_the_fastest_right_game_counts_and_failures_are_told() -> None:
    gpu = FakeGpu(
        {"slow": np.add, "quick": np.add, "wrong": np.subtract},
        {EAGER: np.add, COMPILED: lambda a, b: a + b * np.nan},
        {"slow": [4e-6, 9e-6, 4e-6], "quick": [2e-6, 2e-6, 7e-6], EAGER: [5e-6, 6e-6, 5e-6]},
    )
    games = FakeGames(*map(Bundle, ("slow", "quick", "wrong", "broken")), "no compiler")
    found = row(ADD, games, gpu, repeats=3)
    assert found.seconds == {f"{OURS} 0": 4e-6, f"{OURS} 1": 2e-6, EAGER: 5e-6, OURS: 2e-6}
    assert found.problems[f"{OURS} 2"].startswith("wrong: relative error")
    assert "NO_BINARY" in found.problems[f"{OURS} 3"] and found.problems[f"{OURS} 4"] == "no compiler"
    assert found.problems[COMPILED] == "wrong: relative error inf"
    assert found.roofline_s == found.copy_s == 3 * 35 * 4 / 1e9 and found.best_peer_s == 5e-6
    table = list(report([found]))
    assert "2.0 us" in table[1] and "2.50x" in table[1] and "21%" in table[1] and "broken" not in table[1]


def measured(name: str, ours: float, eager: float, compiled: float, roof: tuple[float, float]) -> Row:
    size = {**OPERATORS, LARGE.name: LARGE}[name].bytes
    return Row(name, {OURS: ours, EAGER: eager, COMPILED: compiled}, {}, *roof, size)


def test_each_goal_stands_beside_its_figure() -> None:
    rows = [
        measured("mul", 2.0, 4.0, 3.0, (1.0, 0.1)),
        measured("add", 10.0, 10.0, 12.0, (9.5, 0.1)),
        measured("bmm", 10.0, 20.0, 12.0, (0.1, 5.0)),
        measured(LARGE.name, 10.0, 1.0, 1.0, (0.1, 7.0)),
    ]
    mean = "geometric mean over"
    assert list(goals(rows)) == [
        f"{mean} PyTorch eager, of 3 of 16 operators: 1.59x, the goal is 1.3x: reached",
        f"{mean} the better of the peers, of 3 of 16 operators: 1.22x, the goal is 1.0x: reached",
        "add, 151 MB, of the bandwidth of a copy: 95%, the goal is 90%: reached",
        "mul 6x14336 over PyTorch: 1.50x, the goal is 1.5x: reached",
        "product 4096^3, of the FMA units' peak: 70%, the goal is 80%: missed",
    ]
    slower = [replace(r, seconds={**r.seconds, OURS: 4 * r.seconds[OURS]}) for r in rows]
    assert all(line.endswith("missed") for line in goals(slower))
    assert list(goals([replace(r, seconds={EAGER: 1.0}) for r in rows])) == [], "no figure, no goal"


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_table3, "what_is_missing", lambda: "PyTorch finds no GPU here")
    assert gpu_table3.main(["--kernels", "add", "--json", str(tmp_path / "out.json")]) == NO_GPU
    printed = capsys.readouterr()
    assert printed.err == "nothing was measured: PyTorch finds no GPU here\n" and printed.out == ""
    assert not (tmp_path / "out.json").exists()


def test_unknown_kernels_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu_table3.main(["--kernels", "add,matmull"])
    assert "there is no matmull" in capsys.readouterr().err


def test_with_a_gpu_one_command_goes_from_kernels_to_goals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mul = OPERATORS["mul"]
    gpu = FakeGpu({"made": np.multiply}, {EAGER: np.multiply}, {"made": [2e-6] * 2, EAGER: [4e-6] * 2})
    gpu.name = "stand-in"  # type: ignore[attr-defined]
    monkeypatch.setattr(gpu_table3, "what_is_missing", lambda: "")
    monkeypatch.setattr(gpu_table3, "TorchGpu", lambda target: gpu)
    monkeypatch.setattr(gpu_table3, "Games", lambda target: FakeGames(Bundle("made")))
    out = tmp_path / "out.json"
    assert gpu_table3.main(["--kernels", "mul", "--repeats", "2", "--json", str(out)]) == 0
    told = json.loads(out.read_text())
    assert told["gpu"] == "stand-in" and told["rows"][0]["seconds"][OURS] == 2e-6
    assert told["rows"][0]["bytes"] == mul.bytes
    assert "mul 6x14336 over PyTorch: 2.00x, the goal is 1.5x: reached" in capsys.readouterr().out


def test_every_row_has_kernels() -> None:
    """The builders know all shapes of the table, and the large product."""
    games = Games("cuda_gh200")
    names = gpu_table3.selection(games.plugins.operators, list(OPERATORS.values()))
    assert len(names) == len(OPERATORS)
    [large] = gpu_table3.select(gpu_table3.LARGE_KERNEL, games.plugins.operators, games.target.dialect)
    assert [large.program.buffer_of[name].shape for name in large.program.inputs] == [*LARGE.inputs]
