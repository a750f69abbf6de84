"""Costs of tuning: means of what is recorded, and what a library would cost by that."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Outcome, clear
from test_candidates import CONDITIONS, ROOT, SPLIT, evaluated
from test_records_exchange import filled
from test_store import key, record

from perfdojo_sdk.hookspecs.search import SearchStrategy
from perfdojo_sdk.search import strategies
from perfdojo_sdk.search.strategies import play_out
from perfdojo_sdk.store.candidates import StageSeconds
from perfdojo_sdk.store.cost import costs
from perfdojo_sdk.store.database import Records

TARGET = CONDITIONS.target


def test_means_are_over_all_evaluations_with_times(place: str) -> None:
    """One of two evaluations does not compile: its later stages count as zero, not as unknown."""
    with filled(place) as records:
        failed = evaluated(ROOT).model_copy(update={"took": StageSeconds(propose_s=3e-3, compile_s=1.5)})
        records.candidates.put(failed)
        done = record().model_copy(update={"build_seconds": {"measure": 6.0, "verify": 2.0}})
        settings = {**CONDITIONS.settings, "search": "walk"}
        records.add(key(target=TARGET, settings=settings), done)
        [walk] = costs(records)
        assert costs(records, "another") == [] and costs(records, TARGET) == [walk]
    assert (walk.search, walk.target, walk.kernels, walk.evaluations) == ("walk", TARGET, 1, 2)
    means = {"propose_s": 2e-3, "compile_s": 1.0, "measure_s": 0.5, "verify_s": None}
    assert dict(walk.stages) == pytest.approx(means)
    assert (walk.finished, walk.finish_s) == (1, 8.0)
    assert walk.node_hours(10, 100) == pytest.approx(10 * (100 * 1.502 + 8) / 3600)


def test_the_command_says_that_it_extrapolates(cli: Callable[..., Outcome]) -> None:
    filled("a.sqlite").close()
    words = ("cost", "--db", "a.sqlite")
    text = cli(*words, "--operators", "160", "--budget", "1000").out
    assert "extrapolated (estimated)" in text and "times of 1 recorded" in text and "1280" in text
    data = cli(*words, "--budget", "36", "--operators", "100", "--json").data
    [walk] = data["searches"]
    assert walk["node_hours"] == pytest.approx(1.501) and data["provenance"] == "estimated"
    assert walk["mean_seconds"] == {"propose_s": 1e-3, "compile_s": 0.5, "measure_s": 1.0, "verify_s": None}
    assert data["paper"]["node_hours"] == 1280 and data["recorded_evaluations"] == 1


def test_records_without_times_say_so(cli: Callable[..., Outcome]) -> None:
    filled("a.sqlite").close()
    clear(cli("cost", "--db", "a.sqlite", "--target", "another"), 5, "PD-L202", "another")
    Records("empty.sqlite").close()
    clear(cli("cost", "--db", "empty.sqlite"), 5, "PD-L202", "empty.sqlite")


def test_what_a_player_learns_counts_as_thinking_of_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(strategies, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def takes(seconds: float, answer: Any = None) -> Any:
        clock[0] += seconds
        return answer

    class Learning:
        def propose(self, count: int) -> Any:
            return takes(1.0, [SPLIT, ROOT])

        def observe(self, evaluations: Any) -> None:
            takes(10.0)

        def state(self) -> Any:
            return takes(100.0, {})

    strategy: Any = SearchStrategy("slow", "", lambda task, state: takes(1000.0, Learning()))
    thoughts: list[float] = []
    rounds: list[float] = []

    def after(progress: Any) -> bool:
        rounds.append(progress.proposing_s)
        return True

    play_out(strategy, None, lambda games: takes(1e6, []), 4, after=after, thought=thoughts.append)  # type: ignore
    assert thoughts == [1001 / 2, 111 / 2]
    assert rounds == [1111.0, 111.0]
