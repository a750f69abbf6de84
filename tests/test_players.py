"""Players that explore: neighbours of a game, choices of each player, learning of the model. No clock."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest
from snippets import DIALECT, RULES, program, tree

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Move, Trace
from perfdojo_sdk.hookspecs.search import Evaluation, SearchStrategy, SearchTask
from perfdojo_sdk.hookspecs.types import Capabilities, Failure, Target
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.search import cost_model
from perfdojo_sdk.search.cost_model import CostModel
from perfdojo_sdk.search.evolution import EvolutionParameters, StartEvolution
from perfdojo_sdk.search.explorer import Explorer, openings
from perfdojo_sdk.search.features import features
from perfdojo_sdk.search.neighbours import MOST_MOVES, Edges, Sequences, play_applicable
from perfdojo_sdk.search.passes import greedy, naive
from perfdojo_sdk.search.strategies import AUTO, PASSES, STRATEGIES, play_out
from perfdojo_sdk.search.walks import Annealing, Beam, Sampling, edges, sequences
from perfdojo_sdk.testing.estimate import AnalyticMachine

ROOT = parse(SOFTMAX.build(16, 32), DIALECT)
CAPABILITIES = Capabilities(name="sheet", description="", lanes={"f32": 16})
TARGET = Target("sheet", CAPABILITIES, DIALECT, "")
MACHINE = AnalyticMachine(DIALECT, launch=100)
EXPLORING = [s for s in STRATEGIES if s.name not in (*PASSES, AUTO)]
EXACT = Kind.EXACT


def task(seed: int = 0, **more: Any) -> SearchTask:
    return SearchTask(ROOT, RULES, TARGET, seed, evaluations=64, **more)


def evaluate(games: Sequence[Trace]) -> list[Evaluation]:
    return [Evaluation(game, MACHINE.seconds(game.program)) for game in games]


def played(strategy: SearchStrategy, evaluations: int, **more: Any) -> list[Evaluation]:
    seen: list[Evaluation] = []

    def watched(games: Sequence[Trace]) -> list[Evaluation]:
        results = evaluate(games)
        seen.extend(results)
        return results

    play_out(strategy, task(**more), watched, evaluations)
    return seen


def texts(evaluations: Sequence[Evaluation]) -> list[str]:
    return [e.trace.program.text for e in evaluations]


# -- every player ---------------------------------


def test_the_collector_seldom_interrupts_a_search() -> None:
    usual, seen = gc.get_threshold(), []

    def watched(games: Sequence[Trace]) -> list[Evaluation]:
        seen.append(gc.get_threshold())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_out(EXPLORING[0], task(), watched, 1)
    assert seen[0][0] > usual[0] and gc.get_threshold() == usual


@pytest.mark.parametrize("strategy", EXPLORING, ids=lambda s: s.name)
def test_a_player_finds_better_than_it_starts_with(strategy: SearchStrategy) -> None:
    seen = played(strategy, 224)
    player = strategy.start(task(), None)
    assert isinstance(player, Explorer)
    starts = len(player.opening_games())
    assert 0 < starts < len(seen)
    assert min(e.seconds for e in seen if e.seconds) < min(e.seconds for e in seen[:starts] if e.seconds)


@pytest.mark.parametrize("strategy", EXPLORING, ids=lambda s: s.name)
def test_a_seed_decides_and_nothing_is_proposed_twice(strategy: SearchStrategy) -> None:
    first = texts(played(strategy, 20, seed=1))
    assert texts(played(strategy, 20, seed=1)) == first
    assert texts(played(strategy, 20, seed=2)) != first
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("strategy", EXPLORING, ids=lambda s: s.name)
def test_no_player_goes_beyond_what_moves_may_change(strategy: SearchStrategy) -> None:
    assert all(e.trace.kind <= EXACT for e in played(strategy, 32, most=EXACT))


@pytest.mark.parametrize("strategy", EXPLORING, ids=lambda s: s.name)
def test_a_player_that_meets_failures_only_comes_to_an_end(strategy: SearchStrategy) -> None:
    rounds = 0

    def hopeless(games: Sequence[Trace]) -> list[Evaluation]:
        nonlocal rounds
        rounds += 1
        return [Evaluation(game, None, Failure("compile", "no")) for game in games]

    play_out(strategy, task(), hopeless, 1000)
    assert rounds < 5


def test_a_tiny_space_is_exhausted() -> None:
    root = program("2 y[{0}] = x[{0}]")
    strategy = next(s for s in STRATEGIES if s.name == "annealing-edges")
    count = 0

    def counted(games: Sequence[Trace]) -> list[Evaluation]:
        nonlocal count
        count += len(games)
        return evaluate(games)

    play_out(strategy, SearchTask(root, RULES, TARGET, most=EXACT), counted, 10**4)
    assert 1 < count < 10**4


def test_the_openings_are_different_and_the_expert_is_first() -> None:
    def expert(*_: object) -> tuple[Trace, ...]:
        return naive(ROOT, RULES), naive(ROOT, RULES)

    found = openings(task(expert=expert))
    assert [g.moves for g in found[:2]] == [naive(ROOT, RULES).moves, greedy(ROOT, RULES).moves]
    assert len({g.program.text for g in found}) == len(found) and found[-1].steps == ()


def test_a_state_that_is_none_is_refused() -> None:
    state = {
        "round": 1,
        "met": [{"parent": 3, "shared": 0, "moves": [], "program": "0" * 24, "seconds": 1.0}],
    }
    with pytest.raises(ValueError, match="not met yet"):
        Sampling(task(), state, edges)
    with pytest.raises(ValueError):
        Sampling(task(), {"round": 1, "met": [{"moves": "all"}]}, edges)


# -- what is next to a game ---------------------------------


def test_an_edge_is_one_more_legal_move() -> None:
    game, chance = Trace(ROOT), Random(0)
    for length in range(1, 12):
        found = Edges(RULES, EXACT)(game, chance)
        assert found is not None and found.moves[:-1] == game.moves and len(found.steps) == length
        assert found.kind <= EXACT
        game = found


def test_a_long_game_gets_no_longer() -> None:
    game = naive(ROOT, RULES)
    long = Trace(ROOT, game.steps * (MOST_MOVES // len(game.steps) + 1))
    assert Edges(RULES, EXACT)(long, Random(0)) is None


def test_a_sequence_changes_anywhere_and_replays() -> None:
    """Whatever the change: a legal game on the same root, another than before."""
    start = greedy(ROOT, RULES)
    space = Sequences(RULES, Kind.DECLARED_LAW, openings(task()))
    first_changes = set()
    for seed in range(60):
        found = space(start, Random(seed))
        if found is None:
            continue
        assert found.root is ROOT and found.moves != start.moves
        assert Trace(ROOT).play_all(RULES, found.moves).program == found.program
        same = [a == b for a, b in zip(start.moves, found.moves)]
        first_changes.add(same.index(False) if False in same else len(same))
    assert len(first_changes) > 8


def test_an_altered_split_keeps_what_comes_after_it() -> None:
    root = program("48 y[{0}] = x[{0}]")
    split, unroll = Move.of("split_scope", "s0", factor=4), Move.of("annotate_scope", "s0.i", suffix="u")
    game = Trace(root).play_all(RULES, [split, unroll])
    space = Sequences(RULES, EXACT)
    found = {tree(g.program) for g in (space._alter(game, Random(s)) for s in range(40)) if g}
    assert {"24 2:u y[{0}*2+{1}] = x[{0}*2+{1}]", "16 3:u y[{0}*3+{1}] = x[{0}*3+{1}]"} <= found


def test_what_no_longer_applies_is_left_out() -> None:
    root = program("48 y[{0}] = x[{0}]")
    split, unroll = Move.of("split_scope", "s0", factor=4), Move.of("annotate_scope", "s0.i", suffix="u")
    assert play_applicable(Trace(root), RULES, [unroll, split, unroll], EXACT).moves == (split, unroll)


# -- how each chooses ---------------------------------


#: Different games: the initial one, and one move further.
NEAR = [Trace(ROOT), *(Trace(ROOT, (step,)) for step in islice(RULES.steps(ROOT, EXACT), 8))]


def met(player: Explorer, seconds: Sequence[float | None]) -> None:
    """Let a player that has evaluated nothing meet so many different games."""
    player.waiting = [(-1, game) for game in NEAR[: len(seconds)]]
    player.observe([Evaluation(game, s) for game, s in zip(NEAR, seconds)])


def test_sampling_visits_children_of_fast_programs() -> None:
    player = Sampling(task(), None, edges)
    met(player, [1.0, 10.0, None, 1.0])
    parents = [player.draw(Random(seed))[0] for seed in range(200)]
    assert 2 not in parents and parents.count(1) < 12
    assert parents.count(0) > 60 and parents.count(3) > 60


def test_annealing_goes_uphill_while_it_is_hot() -> None:
    def followed(seconds: float, done: int) -> float:
        """The number of times that a game of so many seconds is followed, from one of a second."""
        count = 0
        for seed in range(100):
            player = Annealing(SearchTask(ROOT, RULES, TARGET, seed, evaluations=100), None, edges)
            met(player, [1.0])
            player.met += [player.met[0]] * done
            player.waiting = [(0, Trace(ROOT))]
            player.observe([Evaluation(Trace(ROOT), seconds)])
            count += player.current == len(player.met) - 1
        return count / 100

    assert followed(0.9, 0) == followed(0.9, 100) == 1
    assert 0.3 < followed(1.3, 0) < 0.55  # 1.3^(-1/0.3) = 0.42
    assert followed(1.3, 100) == 0
    assert followed(1.01, 100) > 0.25  # 1.01^(-1/0.01) = 0.37


def test_annealing_goes_back_to_the_best_in_the_end() -> None:
    player = Annealing(task(), None, edges)
    met(player, [1.0, 1.02])
    player.current, player.since_best = 1, Annealing.PATIENCE
    player.waiting = [(1, Trace(ROOT))]
    player.observe([Evaluation(Trace(ROOT), 50.0)])
    assert player.current == player.best == 0


def test_a_beam_keeps_the_fastest_of_a_generation() -> None:
    player = Beam(task(), None, edges)
    met(player, [5.0])
    assert player.beam == [0]
    met(player, [9.0, 2.0, 3.0, None, 4.0, 4.0])
    player.GENERATION = 4  # type: ignore[misc]
    met(player, [8.0])
    assert [player.seconds(n) for n in player.beam] == [2.0, 3.0, 4.0, 4.0]
    assert player.beam[2] > player.beam[3], "of equals the newer comes first"


def test_the_model_chooses_what_is_evaluated() -> None:
    """The model finds a faster program than a search without it, after equally many evaluations."""
    best = {}
    for model in (True, False):
        strategy = SearchStrategy("evolution", "", StartEvolution(EvolutionParameters(model=model)))
        best[model] = min(e.seconds for e in played(strategy, 32, seed=0) if e.seconds)
    assert best[True] < best[False]


# -- the model ---------------------------------


def test_features_are_finite_of_one_length_and_tell_programs_apart() -> None:
    games = [*openings(task()), *(Trace(ROOT, (step,)) for step in RULES.steps(ROOT))]
    rows = [features(game.program, TARGET) for game in games]
    assert len({row.shape for row in rows}) == 1 and all(np.isfinite(row).all() for row in rows)
    assert len({row.tobytes() for row in rows}) > len(rows) / 4
    again = features(parse(games[0].program.text, DIALECT), TARGET)
    assert (again == rows[0]).all(), "ids take no part"


def test_the_model_learns_a_law_and_knows_what_it_does_not_know() -> None:
    rng = np.random.default_rng(0)
    rows = list(rng.normal(size=(150, 6)))
    seconds = [float(np.exp(row[0] + 0.5 * row[1] ** 2)) for row in rows]
    model = CostModel(rows[:100], seconds[:100])
    mean, deviation = model.predict(rows[100:])
    truth = np.log(seconds[100:])
    assert np.corrcoef(mean, truth)[0, 1] > 0.8
    known, _ = model.predict(rows[:100])
    assert np.abs(known - np.log(seconds[:100])).max() < 0.5
    _, far = model.predict([np.full(6, 30.0)])
    assert far[0] > deviation.mean()


def test_the_model_takes_equal_rows_and_any_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    row = np.ones(3)
    mean, deviation = CostModel([row, row, row], [1.0, 1.0, 1.0]).predict([row])
    assert abs(mean[0]) < 1e-6 and np.isfinite(deviation[0])
    rng = np.random.default_rng(0)
    monkeypatch.setattr(cost_model, "MOST_ROWS", 40)
    many = list(rng.normal(size=(60, 2)))
    model = CostModel(many, [float(np.exp(r[0])) for r in many])
    assert len(model.rows) == 40


# -- the machine on paper ---------------------------------


def test_the_paper_machine_likes_what_a_real_one_likes() -> None:
    def seconds(text: str) -> float:
        return MACHINE.seconds(program(text))

    plain = seconds("4096 64 y[{0},{1}] = x[{0},{1}]")
    assert seconds("4096 4 16:v y[{0},{1}*16+{2}] = x[{0},{1}*16+{2}]") < plain / 2
    assert seconds("4096:p 64 y[{0},{1}] = x[{0},{1}]") < plain / 1.5
    assert seconds("4:p 64 y[{0},{1}] = x[{0},{1}]") > seconds("4 64 y[{0},{1}] = x[{0},{1}]") / 2


def test_the_state_is_plain_json_and_shares_what_games_share() -> None:
    player = Sampling(task(), None, sequences)
    for _ in range(6):
        player.observe(evaluate(player.propose(8)))
    state = player.state()
    assert json.loads(json.dumps(state)) == state
    moves = sum(len(m.moves) for m in player.met)
    assert sum(len(m["moves"]) for m in state["met"]) < moves / 2
