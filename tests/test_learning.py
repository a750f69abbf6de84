"""Experiments of learning: players, tables, runs side by side, and trained agents in them."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from bag_encoder import BagEncoder  # noqa: E402
from made_plugins import plugin  # noqa: E402
from snippets import DIALECT  # noqa: E402
from toy_target import perfdojo_toy  # noqa: E402

from perfdojo_sdk.core.errors import DojoError  # noqa: E402
from perfdojo_sdk.experiments import contest, learning, side_by_side, transfer  # noqa: E402
from perfdojo_sdk.experiments.catalogue import EXPERIMENTS  # noqa: E402
from perfdojo_sdk.hookspecs.services import ExperimentRequest  # noqa: E402
from perfdojo_sdk.hookspecs.types import Capabilities, Target  # noqa: E402
from perfdojo_sdk.kernels.selection import default_selection  # noqa: E402
from perfdojo_sdk.peers.systems import Peer  # noqa: E402
from perfdojo_sdk.perfllm import agent_files, player  # noqa: E402
from perfdojo_sdk.perfllm.agent import Agent  # noqa: E402
from perfdojo_sdk.perfllm.agent_files import Card  # noqa: E402
from perfdojo_sdk.perfllm.learner import Learner  # noqa: E402
from perfdojo_sdk.perfllm.settings import DQN, MAX_Q, AgentSettings, changed  # noqa: E402
from perfdojo_sdk.perfllm.strategies import agent_options  # noqa: E402
from perfdojo_sdk.plugins import Plugins, load_plugins  # noqa: E402
from perfdojo_sdk.search.passes import naive  # noqa: E402
from perfdojo_sdk.store.database import Records  # noqa: E402
from perfdojo_sdk.testing.estimate import AnalyticGenerator, AnalyticMachine, AnalyticRunner  # noqa: E402

LIST = ("softmax[2,4]", "softmax[4,8]", "relu[4,8]", "add[4,8]", "mul[4,8]", "matmul[4,4,4]")
CAPABILITIES = Capabilities(name="sheet", description="", lanes={"f32": 8}, selections={"default": LIST})
TARGET = Target("sheet", CAPABILITIES, DIALECT, "")
BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
ALL_TITLES = [each.title for each in learning.all_players(())]


@pytest.fixture(autouse=True)
def bag(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trained encoder, and no threads of PyTorch: a fork would wait for those that it does not have."""
    for module in (player, agent_files):
        monkeypatch.setattr(module, "load_encoder", lambda spec="default": BagEncoder())
    torch.set_num_threads(1)


@pytest.fixture
def sheet(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """A target whose times are reckoned on paper, and whose expert plays the naive pass."""
    made = plugin(
        "sheet",
        targets=lambda: [TARGET],
        code_generator=lambda target: AnalyticGenerator(),
        runner=lambda target: AnalyticRunner(AnalyticMachine(DIALECT, launch=100)),
        heuristic_pass=lambda target: lambda root, rules, target: (naive(root, rules),),
    )
    plugins = load_plugins(extra=[made], targets=["sheet"])
    monkeypatch.setattr(learning, "load_plugins", lambda: plugins)
    monkeypatch.setattr(contest, "available_cores", lambda: 1)
    return plugins


def asked(folder: Path, **more: Any) -> ExperimentRequest:
    folder.mkdir(exist_ok=True)
    usual: dict[str, Any] = {"kernels": "softmax[4,8]", "evaluations": 3}
    return ExperimentRequest(folder, quick=True, target="sheet", **{**usual, **more})


def nobody_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any, **more: Any) -> Any:
        raise AssertionError("it was played before")

    monkeypatch.setattr(contest, "play_out", never)


# -- who plays, on what ---------------------------


def test_the_players_are_the_papers_agent_without_each_of_its_pieces() -> None:
    by_title = {each.title: each for each in learning.all_players(())}
    settings = {title: changed(AgentSettings(), dict(each.options)) for title, each in by_title.items()}
    assert settings["DQN"] == DQN and settings["Max-Q"] == MAX_Q
    assert settings["Max-Q, not double"] == MAX_Q.model_copy(update={"double": False})
    assert settings["Max-Q, not duelling"] == MAX_Q.model_copy(update={"duelling": False})
    assert settings["PerfLLM"] == AgentSettings()
    assert by_title["DQN"].search == by_title["PerfLLM"].search == "perfllm"
    told = (("agent", "a"), ("agent_sha256", "0"))
    assert {each.title for each in learning.all_players(told)} - set(by_title) == {
        "PerfLLM, trained",
        "hybrid, trained",
    }


def test_marks_end_with_the_budget() -> None:
    assert learning.marks_within(1000) == [64, 200, 1000]
    assert learning.marks_within(300) == [64, 200, 300]
    assert learning.marks_within(6) == [6]


def test_without_a_choice_the_first_operators_of_the_targets_list_are_played(
    tmp_path: Path, sheet: Plugins
) -> None:
    request = asked(tmp_path, kernels="")
    names = [kernel.name for kernel in learning._kernels(request, sheet, TARGET)]
    assert names == ["softmax_4x8_f32", "relu_4x8_f32"]
    whole = learning._kernels(replace(request, quick=False), sheet, TARGET)
    assert [kernel.operator for kernel in whole] == ["softmax", "relu", "add", "mul"]


# -- what is shown --------------------------------


def test_all_stand_beside_the_expert(tmp_path: Path, sheet: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    request = asked(tmp_path, kernels="softmax[2,4] relu[4,8]")
    result = BY_NAME["learning"].run(request)
    softmax, relu = panels = result.data["panels"]
    for panel in panels:
        assert list(panel["best_s"]) == [learning.EXPERT.title, *ALL_TITLES]
        assert panel["provenance"] == "estimated"
        for title in ALL_TITLES:
            runs = panel["best_s"][title]
            assert len(runs) == len(panel["cpu_s"][title]) == learning.QUICK_SEEDS
            assert all(best == sorted(best, reverse=True) and 1 <= len(best) <= 3 for best in runs)
            assert all(a >= b >= 0 for a, b in zip(panel["cpu_s"][title], panel["thinking_s"][title]))
        assert len(panel["best_s"][learning.EXPERT.title]) == 1, "an expert has no seed"
    expert = result.data["expert_s"]
    [[*_, fused]] = softmax["best_s"]["expert"]
    assert expert[softmax["kernel"]] == fused < softmax["initial_s"]
    ratios = [min(p["best_s"]["DQN"][seed][-1] for seed in (0, 1)) / expert[p["kernel"]] for p in panels]
    found = result.data["over_expert"]["DQN"]["3"]
    assert found["kernels"] == 2 and found["mean"] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    assert "sheet, one thread, estimated" in result.text and "expert: " in result.text
    with (tmp_path / "learning.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(ALL_TITLES) and float(rows[0]["expert_s"]) == fused
    assert result.files[-1].suffix == ".png"
    assert json.loads((tmp_path / "learning.json").read_text()) == result.data
    nobody_plays(monkeypatch)
    assert BY_NAME["learning"].run(request).data == result.data


def test_some_of_the_players_play_first_and_the_others_later(tmp_path: Path, sheet: Plugins) -> None:
    lines: list[str] = []
    some = asked(tmp_path / "out", players=("max-q", "DQN"), progress=lines.append)
    result = BY_NAME["learning"].run(some)
    assert list(result.data["panels"][0]["best_s"]) == ["expert", "DQN", "Max-Q"]
    assert list(result.data["over_expert"]) == ["DQN", "Max-Q"] and len(lines) == 1 + 2 * learning.QUICK_SEEDS
    lines.clear()
    whole = BY_NAME["learning"].run(replace(some, players=()))
    assert list(whole.data["over_expert"]) == ALL_TITLES
    assert not any("Max-Q:" in line or "DQN" in line for line in lines), "they were played before"


@pytest.mark.parametrize("name", ["learning", "transfer", "fig13"])
def test_a_player_that_does_not_exist_is_refused_before_anything_plays(
    tmp_path: Path, sheet: Plugins, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "load_plugins", lambda: sheet)
    monkeypatch.setattr(transfer, "shipped_agents", lambda target: [])
    with pytest.raises(DojoError) as caught:
        BY_NAME[name].run(asked(tmp_path / "out", players=("anealing",)))
    assert caught.value.code == "PD-L203" and "annealing" in caught.value.hint
    assert not list((tmp_path / "out").iterdir())


def test_records_say_which_search_proposed_what(tmp_path: Path, sheet: Plugins) -> None:
    BY_NAME["learning"].run(asked(tmp_path, evaluations=6))
    with Records(tmp_path / "records.sqlite") as records:
        found = list(records.candidates)
    assert {each.proposer.search for each in found} >= {"perfllm", "sampling-edges", "annealing-edges"}
    drawn = [each for each in found if each.proposer.search == "perfllm"]
    assert all(1 <= each.proposer.number <= 6 for each in drawn)
    assert all(each.took.propose_s is not None for each in drawn)


def test_a_target_without_an_expert_has_no_ratios(
    tmp_path: Path, sheet: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asks in ("heuristic_pass", "guarded_pass"):
        monkeypatch.setattr(Plugins, asks, lambda self, target: None)
    result = BY_NAME["learning"].run(asked(tmp_path, evaluations=2))
    assert result.data["over_expert"] == {} and result.data["expert_s"] == {"softmax_4x8_f32": None}
    assert "expert: none for this kernel" in result.text


# -- side by side ---------------------------------


def best_of(folder: Path) -> Any:
    return [panel["best_s"] for panel in json.loads((folder / "learning.json").read_text())["panels"]]


def test_runs_side_by_side_find_what_runs_in_turn_find(
    tmp_path: Path, sheet: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    BY_NAME["learning"].run(asked(tmp_path / "one"))
    monkeypatch.setattr(contest, "available_cores", lambda: 2)
    here, played = os.getpid(), contest.KernelEvaluators.play

    def elsewhere(self: contest.KernelEvaluators, entry: contest.Entry, until: float | None) -> Any:
        assert os.getpid() != here
        return played(self, entry, until)

    monkeypatch.setattr(contest.KernelEvaluators, "play", elsewhere)
    BY_NAME["learning"].run(asked(tmp_path / "two"))
    assert best_of(tmp_path / "one") == best_of(tmp_path / "two")


def test_measured_runs_are_played_in_turn(
    tmp_path: Path, sheet: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "available_cores", lambda: 2)
    paper_run = AnalyticRunner.run
    monkeypatch.setattr(AnalyticRunner, "run", lambda *a: replace(paper_run(*a), provenance="measured"))
    jobs: list[int] = []

    def watched(table: contest.KernelEvaluators, entries: Any, number: int, until: float | None) -> Any:
        jobs.append(number)
        return true_runs(table, entries, 1, until)

    true_runs = contest._runs
    monkeypatch.setattr(contest, "_runs", watched)
    BY_NAME["learning"].run(asked(tmp_path, evaluations=1))
    assert jobs == [1]


def test_a_process_that_dies_is_an_error_and_costs_its_own_run_only(
    tmp_path: Path, sheet: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "available_cores", lambda: 2)
    played = contest.KernelEvaluators.play

    def dies(self: contest.KernelEvaluators, entry: contest.Entry, until: float | None) -> Any:
        if entry.player.title == "hybrid":
            os._exit(9)
        return played(self, entry, until)

    monkeypatch.setattr(contest.KernelEvaluators, "play", dies)
    with pytest.raises(DojoError) as caught:
        BY_NAME["learning"].run(asked(tmp_path, evaluations=2))
    assert caught.value.code == "PD-L201" and "goes on where it was" in caught.value.hint
    assert len((tmp_path / "learning.rows").read_text().splitlines()) > 1
    monkeypatch.setattr(contest.KernelEvaluators, "play", played)
    lines: list[str] = []
    BY_NAME["learning"].run(replace(asked(tmp_path, evaluations=2), progress=lines.append))
    runs = 1 + len(ALL_TITLES) * learning.QUICK_SEEDS
    assert any("hybrid" in line for line in lines) and len(lines) < runs


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_contest_ends_in_time_shows_what_it_has_and_goes_on(
    tmp_path: Path, sheet: Plugins, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(contest, "available_cores", lambda: jobs)
    played = contest.KernelEvaluators.play

    def endless(self: contest.KernelEvaluators, entry: contest.Entry, until: float | None) -> Any:
        """Plays out of time in the middle of a run for each player after DQN."""
        late = entry.seed or ALL_TITLES.index(entry.player.title) > 3 if entry.player.chance else False
        return played(self, entry, 0.0 if late else None)

    monkeypatch.setattr(contest.KernelEvaluators, "play", endless)
    request = asked(tmp_path / "out", seconds=1000.0)
    result = BY_NAME["learning"].run(request)
    assert result.data["runs"] == {"wanted": 1 + 2 * len(ALL_TITLES), "played": 5}
    [panel] = result.data["panels"]
    assert [len(panel["best_s"][title]) for title in ALL_TITLES] == [1] * 4 + [0] * (len(ALL_TITLES) - 4)
    assert "0 to 1 seeds" in result.text and "5 of 19 runs were played in time" in result.text
    monkeypatch.setattr(contest.KernelEvaluators, "play", played)
    whole = BY_NAME["learning"].run(replace(request, seconds=None))
    assert "played in time" not in whole.text and "over 2 seeds" in whole.text
    before, after = panel["best_s"], whole.data["panels"][0]["best_s"]
    assert all(after[title][: len(runs)] == runs for title, runs in before.items())


def test_a_contest_without_any_time_plays_nothing(tmp_path: Path, sheet: Plugins) -> None:
    result = BY_NAME["learning"].run(asked(tmp_path / "out", seconds=0.0))
    assert result.data["runs"]["played"] == 0 and result.data["expert_s"] == {"softmax_4x8_f32": None}


# -- trained agents -------------------------------


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    file = tmp_path / "agent.safetensors"
    agent_files.save(file, Agent(BagEncoder(), Learner(AgentSettings(hidden=16), 32, seed=7)), Card())
    return file


def test_a_trained_agent_plays_too_wherever_its_file_lies(
    tmp_path: Path, sheet: Plugins, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked(tmp_path / "out", evaluations=3, agent=trained)
    result = BY_NAME["learning"].run(request)
    [panel] = result.data["panels"]
    assert list(panel["best_s"])[-2:] == ["PerfLLM, trained", "hybrid, trained"]
    moved = trained.rename(tmp_path / "moved.safetensors")
    nobody_plays(monkeypatch)
    assert BY_NAME["learning"].run(replace(request, agent=moved)).data == result.data


def test_transfer_is_shown_on_kernels_that_the_agent_has_not_learned_from(
    tmp_path: Path, sheet: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "load_plugins", lambda: sheet)
    file, known = tmp_path / "agent.safetensors", ("softmax_2x4_f32", "relu_4x8_f32")
    card = Card(kernels=tuple(f"{kernel} on sheet" for kernel in known))
    agent_files.save(file, Agent(BagEncoder(), Learner(AgentSettings(hidden=16), 32, seed=7)), card)
    request = asked(tmp_path / "out", kernels="", evaluations=3, agent=file)
    result = BY_NAME["transfer"].run(request)
    assert [panel["kernel"] for panel in result.data["panels"]] == ["softmax_4x8_f32", "add_4x8_f32"]
    assert list(result.data["over_expert"]["PerfLLM, trained"]) == ["2", "3"]
    assert result.data["learned_from"] == list(card.kernels)
    assert all(title in result.text for title in ("PerfLLM, trained", "hybrid, untrained", "expert"))
    every = default_selection(sheet.operators_for(TARGET), TARGET.dialect, CAPABILITIES.selections)
    everything = Card(kernels=tuple(f"{kernel.name} on sheet" for kernel in every))
    agent_files.save(file, Agent(BagEncoder(), Learner(AgentSettings(hidden=16), 32, seed=7)), everything)
    with pytest.raises(DojoError) as caught:
        BY_NAME["transfer"].run(request)
    assert caught.value.code == "PD-L308" and caught.value.hint


@pytest.mark.parametrize("name", ["learning", "fig14", "transfer"])
def test_a_file_that_is_no_agent_is_refused_before_anything_plays(
    tmp_path: Path, sheet: Plugins, name: str
) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"{}")
    with pytest.raises(DojoError) as caught:
        BY_NAME[name].run(asked(tmp_path / "out", agent=bad))
    assert caught.value.code == "PD-L303" and not list((tmp_path / "out").iterdir())


# -- figure 14 ------------------------------------


def test_fig14_shows_the_agents_kernels_beside_the_peers_it_names(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = load_plugins(extra=[perfdojo_toy], targets=["toy"])
    monkeypatch.setattr(side_by_side, "load_plugins", lambda: plugins)
    nobody = Peer("Nobody", "nobody", ("a_module_that_is_not_there",), "nobody-at-all")
    monkeypatch.setattr(side_by_side, "ALL", {"torch": nobody, "jax": nobody})
    request = replace(asked(tmp_path / "out", agent=trained, kernels="relu[4,8]"), target="toy")
    result = BY_NAME["fig14"].run(request)
    assert list(result.data["missing"]) == ["Nobody"] and "pip install nobody-at-all" in result.text
    times = result.data["seconds"]["relu_4x8_f32"]
    assert set(times) == {side_by_side.EXPERT, side_by_side.LEARNED}
    assert set(result.data["speedup_of_ours"]) == {side_by_side.EXPERT}
    clock = iter([0.0, 0.0])  # the first kernel of the expert begins, and no other
    both = replace(request, kernels="relu[4,8] mul[4,8]", folder=tmp_path / "late", seconds=50.0)
    both.folder.mkdir()
    monkeypatch.setattr(side_by_side, "time", SimpleNamespace(monotonic=lambda: next(clock, 100.0)))
    late = BY_NAME["fig14"].run(both)
    assert set(late.data["seconds"]["relu_4x8_f32"]) == {side_by_side.EXPERT}
    assert list(late.data["failed"].values()) == ["the time was up"] * 3
    monkeypatch.undo()
    assert players_of(request) == {"heuristic": None, "perfllm": str(trained)}


def test_fig14_begins_as_tune_does(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = load_plugins(extra=[perfdojo_toy], targets=["toy"])
    monkeypatch.setattr(side_by_side, "load_plugins", lambda: plugins)
    monkeypatch.setattr(side_by_side, "ALL", {})
    for name, known in (("none", ()), ("shipped", agent_options(trained))):
        monkeypatch.setattr(side_by_side, "shipped_options", {"toy": known}.__getitem__)
        request = replace(asked(tmp_path / name, kernels="relu[4,8]"), target="toy")
        BY_NAME["fig14"].run(request)
        assert players_of(request) == {"heuristic": None, "perfllm": dict(known).get("agent")}


def players_of(request: ExperimentRequest) -> dict[str, str | None]:
    """The searches on record, and the agent that each began with."""
    with Records(request.folder / "records.sqlite") as records:
        return {key.settings["search"]: key.settings.get("option agent") for key, _ in records}
