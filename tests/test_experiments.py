"""Experiments by name: they write files, report what is missing, and resume."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from toy_target import perfdojo_toy

from perfdojo_sdk.core.transformation import Move
from perfdojo_sdk.experiments import contest, convergence, curves, sequence, side_by_side
from perfdojo_sdk.experiments.catalogue import EXPERIMENTS
from perfdojo_sdk.experiments.rows import Rows
from perfdojo_sdk.game import Game
from perfdojo_sdk.hookspecs.services import ExperimentRequest
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement, RunRequest
from perfdojo_sdk.kernels.operators import OPERATORS, SOFTMAX
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.peers import systems
from perfdojo_sdk.peers.operators import FAMILIES
from perfdojo_sdk.peers.systems import Peer
from perfdojo_sdk.plugins import Plugins, load_plugins

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """The toy target is all there is."""
    plugins = load_plugins(extra=[perfdojo_toy], targets=["toy"])
    for module in (convergence, side_by_side):
        monkeypatch.setattr(module, "load_plugins", lambda: plugins)
    return plugins


def request(folder: Path, **more: Any) -> ExperimentRequest:
    return ExperimentRequest(folder, quick=True, target="toy", **more)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def columns(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# -- what is found so far ---------------------------------------------------------------------------


def test_rows_survive_a_kill_and_depend_on_their_key(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    Rows(file).put({"a": 1}, [1.5, None])
    with file.open("a") as opened:
        opened.write('{"key": "torn", "resu')
    again = Rows(file)
    assert again.get({"a": 1}) == [1.5, None] and again.get({"a": 2}) is None
    again.put({"a": 2}, "two")
    third = Rows(file)
    assert third.get({"a": 1}) == [1.5, None] and third.get({"a": 2}) == "two"


@pytest.mark.parametrize("content", ["[1]\n", '{"result": 1}\n', "\0\xff\n", '"key"\n', "{" * 9999 + "\n"])
def test_rows_that_are_none_are_passed_over(tmp_path: Path, content: str) -> None:
    file = tmp_path / "rows"
    file.write_text(content, encoding="latin-1")
    rows = Rows(file)
    rows.put({}, 1)
    assert Rows(file).get({}) == 1


# -- figure 10 ------------------------------------------------------------------------------------------


def played(plugins: Plugins) -> Game:
    game = Game.new(plugins, "toy", SOFTMAX.build(8, 16))
    for move in (Move("join_scopes", "s0"), Move("join_scopes", "s0")):
        game = game.apply(move)
    return game


def test_fig10_times_every_move_once(tmp_path: Path, toy: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    game = played(toy)
    said: list[str] = []
    asked = replace(request(tmp_path), progress=said.append)
    result = sequence.along(asked, toy, game)
    points = result.data["points"]
    assert [p["text"] for p in points] == ["initial program", *(s.move.text for s in game.trace.steps)]
    assert all(p["median_s"] > 0 and not p["failure"] for p in points) and len(said) == 3
    assert points[0]["speedup"] == 1 and result.data["provenance"] == ["measured"]
    assert result.data["faster"] + result.data["slower"] + result.data["same"] == 2
    assert [file.suffix for file in result.files] == [".json", ".csv", ".png"]
    assert read(tmp_path, "fig10") == result.data
    assert [float(row["median_s"]) for row in columns(tmp_path, "fig10")] == [p["median_s"] for p in points]
    assert result.files[2].read_bytes().startswith(b"\x89PNG")

    def never(*arguments: Any) -> Failure:
        raise AssertionError("it was timed before")

    monkeypatch.setattr(NativeRunner, "run", never)
    assert sequence.along(asked, toy, game).data == result.data


def test_fig10_shows_what_has_no_time(tmp_path: Path, toy: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    true_run, texts = NativeRunner.run, []

    def run(self: NativeRunner, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        texts.append(artifact)
        return Failure("crash", "ouch\nmore") if len(texts) == 2 else true_run(self, artifact, request)

    monkeypatch.setattr(NativeRunner, "run", run)
    result = sequence.along(request(tmp_path), toy, played(toy))
    middle = result.data["points"][1]
    assert middle["median_s"] is None and middle["failure"] == "crash: ouch" and middle["speedup"] is None
    assert "crash: ouch" in result.text and result.data["points"][2]["speedup"] > 0


# -- figures 11 and 12 ----------------------------------------------------------------------------------


def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = {"nobody": Peer("Nobody", "nobody", ("a_module_that_is_not_there",), "nobody-at-all")}
    monkeypatch.setattr(side_by_side, "ALL", nobody)


def test_fig11_names_who_is_missing_and_goes_on(
    tmp_path: Path, toy: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    no_peers(monkeypatch)
    asked = request(tmp_path, kernels="softmax[4,6]", evaluations=2)
    result = BY_NAME["fig11"].run(asked)
    times = result.data["seconds"]["softmax_4x6_f32"]
    assert set(times) == {side_by_side.EXPERT, side_by_side.SEARCH} and all(t > 0 for t in times.values())
    assert result.data["missing"] == {"Nobody": "Nobody is not installed (pip install nobody-at-all)"}
    assert "pip install nobody-at-all" in result.text
    mean = result.data["speedup_of_ours"][side_by_side.EXPERT]
    expected = times[side_by_side.EXPERT] / times[side_by_side.SEARCH]
    assert mean == {"mean": pytest.approx(expected), "kernels": 1}
    assert result.files[-1].suffix == ".png" and read(tmp_path, "fig11") == result.data

    def never(*arguments: Any) -> Any:
        raise AssertionError("it raced before")

    monkeypatch.setattr(side_by_side, "race", never)
    assert BY_NAME["fig11"].run(asked).data == result.data


def test_fig12_does_not_mix_kinds_of_figures(
    tmp_path: Path, toy: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_run = NativeRunner.run

    def run(self: NativeRunner, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        found = true_run(self, artifact, request)
        return found if isinstance(found, Failure) else replace(found, provenance="simulated")

    def never(*arguments: Any) -> Any:
        raise AssertionError("a simulated time has nobody to race with")

    monkeypatch.setattr(NativeRunner, "run", run)
    monkeypatch.setattr(side_by_side, "race", never)
    result = BY_NAME["fig12"].run(request(tmp_path, kernels="softmax[4,6]", evaluations=1))
    [times] = result.data["seconds"].values()
    assert set(times) == {side_by_side.INITIAL, side_by_side.SEARCH}
    assert result.data["provenance"] == "simulated" and "simulated" in result.data["missing"]["other systems"]


def test_the_shapes_of_models_are_kernels_that_others_compute_too() -> None:
    file = Path(side_by_side.__file__).with_name("model_shapes.yaml")
    shapes = yaml.safe_load(file.read_text(encoding="utf-8"))["shapes"]
    operators = {operator.name: operator for operator in OPERATORS}
    kernels = [select(each["kernel"], operators)[0] for each in shapes]
    assert {kernel.operator for kernel in kernels} <= FAMILIES
    assert all(side_by_side.operator_of(kernel) for kernel in kernels)
    assert 3 <= sum(bool(each.get("quick")) for each in shapes) <= 6 and len(shapes) >= 20
    bert = next(kernel for kernel, each in zip(kernels, shapes) if each["layer"] == "ffn 1")
    operator = side_by_side.operator_of(bert)
    assert operator is not None and operator.inputs == ((128, 768), (768, 3072))
    assert operator.output == (128, 3072) and operator.names == (bert.name, "matmul")


def test_a_kernel_of_another_type_has_no_peers() -> None:
    [kernel] = select("softmax[4,6]", {"softmax": SOFTMAX})
    text = kernel.program.text.replace(" f32 ", " f64 ")
    from perfdojo_sdk.core.text import parse

    assert side_by_side.operator_of(kernel) is not None
    assert side_by_side.operator_of(replace(kernel, program=parse(text))) is None


def test_every_peer_is_named_with_what_installs_it() -> None:
    assert set(systems.PEERS) < set(systems.ALL) and "tvm" in systems.ALL
    assert all(peer.packages for peer in systems.ALL.values())


# -- figure 13 --------------------------------------------------------------------------------------------


def test_fig13_shows_quartiles_over_seeds(
    tmp_path: Path, toy: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    asked = request(tmp_path, kernels="softmax[4,6]", evaluations=3)
    result = BY_NAME["fig13"].run(asked)
    [panel] = result.data["panels"]
    assert set(panel["best_s"]) == set(convergence.SEARCHES) and panel["provenance"] == "measured"
    for runs in panel["best_s"].values():
        assert len(runs) == result.data["seeds"] == 3
        assert all(best == sorted(best, reverse=True) and 1 <= len(best) <= 3 for best in runs)
    rows = columns(tmp_path, "fig13")
    assert len(rows) == 3 * len(convergence.PLAYERS)
    last = [row for row in rows if row["player"] == "annealing"][-1]
    assert float(last["median_s"]) == sorted(best[-1] for best in panel["best_s"]["annealing"])[1]
    assert result.files[-1].suffix == ".png" and "median over 3 seeds" in result.text

    def never(*arguments: Any) -> Any:
        raise AssertionError("it was played before")

    monkeypatch.setattr(contest, "play_out", never)
    assert BY_NAME["fig13"].run(asked).data["panels"] == [panel]


def test_quartiles_keep_the_best_of_a_search_that_ended_early() -> None:
    runs: Sequence[Sequence[float | None]] = [[4.0, 2.0], [None, 3.0, 1.0], [5.0]]
    low, middle, high = curves.quartiles(runs, 3)
    assert middle.tolist() == [5.0, 3.0, 2.0]
    assert np.all(low <= middle) and np.all(middle <= high) and high[0] == np.inf


def test_all_players_see_the_same_time_of_a_program(tmp_path: Path, toy: Plugins) -> None:
    result = BY_NAME["fig13"].run(request(tmp_path, kernels="softmax[4,6]", evaluations=1))
    [panel] = result.data["panels"]
    for structure in (("annealing", "sampling"), ("annealing-edges", "sampling-edges")):
        firsts = {run[0] for name in structure for run in panel["best_s"][name]}
        assert len(firsts) == 1
