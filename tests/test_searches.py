"""Players propose games, get results, stop and resume; an error names a player that breaks the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from toy_target import perfdojo_toy
from toy_target.perfdojo_toy.walk import WALK

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.search import Evaluation, Player, SearchStrategy, SearchTask
from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.search.passes import greedy, naive
from perfdojo_sdk.search.strategies import STRATEGIES, PlayerFailed, play_out

ROOT = parse(SOFTMAX.build(4, 6))
TARGET = perfdojo_toy.TARGET
RULES = Rules(TARGET.dialect, GENERIC)
BY_NAME = {strategy.name: strategy for strategy in STRATEGIES}


def task(seed: int = 0, **more: Any) -> SearchTask:
    return SearchTask(ROOT, RULES, TARGET, seed, **more)


def evaluate(traces: Sequence[Trace]) -> list[Evaluation]:
    """A clock that depends on the program alone; some programs fail."""
    results = []
    for trace in traces:
        cells = sum(len(line) for line in trace.program.text.splitlines())
        failure = Failure("timeout") if cells % 5 == 0 else None
        results.append(Evaluation(trace, None if failure else cells * 1e-6, failure))
    return results


def played(strategy: SearchStrategy, evaluations: int, **more: Any) -> list[str]:
    """The programs that a strategy has evaluated, in order."""
    seen: list[str] = []

    def watch(traces: Sequence[Trace]) -> list[Evaluation]:
        seen.extend(t.program.text for t in traces)
        return evaluate(traces)

    play_out(strategy, task(**more), watch, evaluations)
    return seen


@pytest.mark.parametrize("name", ["naive", "greedy"])
def test_a_pass_is_a_player_that_plays_once(name: str) -> None:
    passes: dict[str, Callable[..., Trace]] = {"naive": naive, "greedy": greedy}
    assert played(BY_NAME[name], 100) == [passes[name](ROOT, RULES).program.text]


def test_the_heuristic_strategy_plays_what_the_expert_plays() -> None:
    expert = perfdojo_toy.expert
    games = expert(ROOT, RULES, TARGET)
    assert played(BY_NAME["heuristic"], 100, expert=expert) == [g.program.text for g in games]
    assert played(BY_NAME["heuristic"], 100) == []


def test_the_same_seed_plays_the_same_game() -> None:
    first = played(WALK, 40, seed=3)
    assert len(first) == 40 and played(WALK, 40, seed=3) == first
    assert played(WALK, 40, seed=4) != first


def test_a_search_learns() -> None:
    seen: list[float] = []

    def watch(traces: Sequence[Trace]) -> list[Evaluation]:
        results = evaluate(traces)
        seen.extend(r.seconds for r in results if r.seconds)
        return results

    play_out(WALK, task(), watch, 80)
    assert min(seen[40:]) < min(seen[:8])


def rounds(player: Player, count: int) -> list[list[str]]:
    """So many rounds of a search, as the texts proposed."""
    proposed = []
    for _ in range(count):
        games = player.propose(5)
        proposed.append([g.program.text for g in games])
        player.observe(evaluate(games))
    return proposed


@pytest.mark.parametrize("strategy", [WALK, *STRATEGIES], ids=lambda s: s.name)
def test_a_stopped_search_goes_on_as_if_it_had_not_stopped(strategy: SearchStrategy) -> None:
    whole = rounds(strategy.start(task(expert=perfdojo_toy.expert), None), 6)
    player = strategy.start(task(expert=perfdojo_toy.expert), None)
    before = rounds(player, 3)
    state = json.loads(json.dumps(player.state()))
    after = rounds(strategy.start(task(expert=perfdojo_toy.expert), state), 3)
    assert before + after == whole


class Wild:
    """A player that breaks one promise."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def propose(self, count: int) -> Sequence[Trace]:
        if self.fault == "propose":
            raise RuntimeError("no idea")
        return [Trace(ROOT)] * (count + 1 if self.fault == "too many" else 1)

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        if self.fault == "observe":
            raise RuntimeError("not listening")

    def state(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("fault", "words"),
    [("propose", "no idea"), ("observe", "not listening"), ("too many", "proposed 9 games, asked for 8")],
)
def test_a_player_that_fails_is_told_apart_from_what_it_proposed(fault: str, words: str) -> None:
    wild = SearchStrategy("wild", "", lambda task, state: Wild(fault))
    with pytest.raises(PlayerFailed, match=words):
        play_out(wild, task(), evaluate, 20)

    def broken(traces: Sequence[Trace]) -> list[Evaluation]:
        raise ZeroDivisionError("the compiler is gone")

    with pytest.raises(ZeroDivisionError):
        play_out(SearchStrategy("tame", "", lambda task, state: Wild("")), task(), broken, 20)


def test_a_player_that_never_stops_is_stopped() -> None:
    tame = SearchStrategy("tame", "", lambda task, state: Wild(""))
    assert len(played(tame, 21)) == 21
