"""PerfLLM as a player: episodes, beams, resuming, agents on disk, plans, what it recalls."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from bag_encoder import BagEncoder  # noqa: E402
from learners import (  # noqa: E402
    MACHINE,
    QUICK,
    ROOT,
    TARGET,
    refused,
    use_bag_of_words,
    written_agent,
)
from snippets import DIALECT, RULES  # noqa: E402

from perfdojo_sdk.core.errors import UnavailableError  # noqa: E402
from perfdojo_sdk.core.text import parse  # noqa: E402
from perfdojo_sdk.core.transformation import Kind, Move, Trace  # noqa: E402
from perfdojo_sdk.hookspecs.search import Evaluation, SearchTask  # noqa: E402
from perfdojo_sdk.hookspecs.types import Failure, Measurement  # noqa: E402
from perfdojo_sdk.kernels.operators import REDUCEMEAN, SOFTMAX  # noqa: E402
from perfdojo_sdk.perfllm import agent_files, player, strategies  # noqa: E402
from perfdojo_sdk.perfllm import settings as agent_settings  # noqa: E402
from perfdojo_sdk.perfllm.agent import Agent  # noqa: E402
from perfdojo_sdk.perfllm.agent_files import Card  # noqa: E402
from perfdojo_sdk.perfllm.beam import BeamNode, BeamWidth, Look, beam  # noqa: E402
from perfdojo_sdk.perfllm.hybrid import Hybrid, _slope  # noqa: E402
from perfdojo_sdk.perfllm.learner import Learner  # noqa: E402
from perfdojo_sdk.perfllm.plan import read_plan  # noqa: E402
from perfdojo_sdk.perfllm.player import PerfLLM, name_of  # noqa: E402
from perfdojo_sdk.perfllm.recorded_games import GameContext, RecordedGames, remember_fastest  # noqa: E402
from perfdojo_sdk.perfllm.replay import STOP  # noqa: E402
from perfdojo_sdk.perfllm.settings import AgentSettings, kind_of  # noqa: E402
from perfdojo_sdk.search.explorer import digest  # noqa: E402
from perfdojo_sdk.search.passes import naive  # noqa: E402
from perfdojo_sdk.search.strategies import Progress, play_out  # noqa: E402
from perfdojo_sdk.store.candidates import Candidate, Proposer, result_of  # noqa: E402
from perfdojo_sdk.store.records import RecordKey, sha256  # noqa: E402


@pytest.fixture(autouse=True)
def bag(monkeypatch: pytest.MonkeyPatch) -> None:
    use_bag_of_words(monkeypatch)


def task(seed: int = 0, evaluations: int = 48, **options: str) -> SearchTask:
    quick = {k: str(v) for k, v in QUICK.model_dump().items() if v != AgentSettings.model_fields[k].default}
    chosen = {} if "agent" in options else quick
    return SearchTask(ROOT, RULES, TARGET, seed, evaluations=evaluations, options={**chosen, **options})


def evaluate(games: Sequence[Trace]) -> list[Evaluation]:
    return [Evaluation(game, MACHINE.seconds(game.program)) for game in games]


def started(name: str) -> Any:
    return next(s for s in strategies.LEARNED if s.name == name)


def played(name: str, evaluations: int, cut: int | None = None, **options: str) -> list[str]:
    """Texts of the programs proposed; with ``cut``, by two players, the second from the first one's state."""
    seen: list[str] = []

    def watched(games: Sequence[Trace]) -> list[Evaluation]:
        seen.extend(game.program.text for game in games)
        return evaluate(games)

    last: list[Progress] = []

    def after(progress: Progress) -> bool:
        last[:] = [progress]
        return cut is None or progress.evaluations < cut

    strategy, asked = started(name), task(**options)
    play_out(strategy, asked, watched, evaluations, after=after)
    if cut is not None:
        again = replace(last[0], state=json.loads(json.dumps(last[0].state)))
        play_out(strategy, asked, watched, evaluations, again)
    return seen


# -- playing --------------------------------------


@pytest.mark.parametrize("name", ["perfllm", "hybrid"])
def test_it_proposes_nothing_twice_and_does_as_before_with_the_same_seed(name: str) -> None:
    seen = played(name, 32)
    assert len(seen) == len(set(seen)) == 32
    assert seen == played(name, 32)
    assert seen != played(name, 32, epsilon_last="0.5", learning_rate="0.01")


@pytest.mark.parametrize("name", ["perfllm", "hybrid"])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(name: str) -> None:
    assert played(name, 40, cut=16) == played(name, 40)
    assert played(name, 24, cut=16, leap="5") == played(name, 24, leap="5")


BEAM = {"beam": "3", "temperature": "0.3", "epsilon_first": "0.3"}


def test_a_search_with_beams_proposes_nothing_twice_and_goes_on_where_it_was_stopped() -> None:
    seen = played("perfllm", 40, **BEAM)
    assert len(seen) == len(set(seen)) == 40
    assert played("perfllm", 40, cut=17, **BEAM) == seen
    assert seen != played("perfllm", 40, **{**BEAM, "beam": "4"})


def test_a_beam_evaluates_ends_and_what_looks_fast_and_remembers_only_their_ways() -> None:
    searching = search(replace_settings(beam=4, restarts=0.0))
    round_of(searching, 1, [8.0])
    games = round_of(searching, 6)
    assert len({len(game.steps) for game in games}) > 1
    replay = searching.agent.learner.replay
    passed = {name_of(step.after) for game in games for step in game.steps} | {name_of(ROOT)}
    assert {name.rpartition(" ")[2] for name in replay.names} == passed
    for game in games:
        number = replay.number[f"{searching.kernel} {name_of(game.program)}"]
        assert replay.states[number].listed and replay.states[number].reward is not None
        assert STOP in {t.action for t in replay.transitions if t.state == number}


def test_the_first_game_is_that_of_greedy_moves() -> None:
    searching = search(replace_settings(beam=2, restarts=0.0))
    round_of(searching, 1, [8.0])
    liked = player.greedy_game(Trace(ROOT), searching._look, searching.settings.most_moves).game
    assert round_of(searching, 6)[0] == liked


def test_the_first_beams_know_no_chance_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = list[BeamWidth]()

    def seen(start: Trace, look: Look, width: BeamWidth, chance: Random) -> list[BeamNode]:
        widths.append(width)
        return beam(start, look, width, chance)

    monkeypatch.setattr(player, "beam", seen)
    sure = {**BEAM, "evolved": "1", "widened": "2"}
    games = played("perfllm", 33, **sure)
    assert [width.places for width in widths] == [3, 6, 12]
    assert not any(width.noise or width.epsilon for width in widths)
    assert len(games) == len(set(games)) == 33
    assert played("perfllm", 33, cut=17, **sure) == games
    widths.clear()
    played("perfllm", 33, **{**BEAM, "widened": "1"})
    assert [width.places for width in widths[:4]] == [3, 6, 3, 3] and widths[-1].noise


EVOLVED = {**BEAM, "evolved": "0.6"}


def test_rounds_in_which_the_fastest_games_are_changed_need_no_pass_and_are_resumed() -> None:
    seen = played("perfllm", 48, **EVOLVED)
    assert len(seen) == len(set(seen)) == 48
    assert played("perfllm", 48, cut=17, **EVOLVED) == seen != played("perfllm", 48, **BEAM)
    wanted = replace(task(evolved="1"), expert=never)
    searching = PerfLLM(wanted, None, player.agent_for(wanted))
    round_of(searching, 1)
    round_of(searching, 8)  # the agent's own, to begin with
    known, own = len(searching.agent.learner.replay.transitions), len(searching.met)
    for _ in range(3):
        round_of(searching, 8)
    assert known == len(searching.agent.learner.replay.transitions) and len(searching.met) > own
    assert any(len(met.moves) > 1 for met in searching.met[own:])


def never(*_: object) -> Sequence[Trace]:
    raise AssertionError("the expert was asked")


def test_moves_outside_the_repertoire_are_not_looked_at() -> None:
    every = {kind_of(step.move) for step in RULES.steps(ROOT)}
    known = sorted(every)[:3]
    agent = Agent(BagEncoder(), Learner(replace_settings(repertoire={"": tuple(known)}), 32))
    listed = agent.listed(ROOT, RULES, Kind.DECLARED_LAW)
    assert {kind_of(step.move) for step in listed.steps} == set(known) < every
    assert len(listed.after) == 1 + len(listed.steps)
    told = agent_settings.changed(AgentSettings(), {"repertoire": ", ".join(known)})
    assert told.kinds("any target") == set(known)
    by_target = replace_settings(repertoire={"toy": known, "other": ()})
    assert by_target.kinds("toy") == set(known) and not by_target.kinds("other")
    agent = Agent(BagEncoder(), Learner(by_target, 32))
    narrow, wide = (agent.listed(ROOT, RULES, Kind.DECLARED_LAW, name) for name in ("toy", "another"))
    assert [step.move for step in narrow.steps] == [step.move for step in listed.steps]
    assert len(wide.steps) > len(narrow.steps)
    assert AgentSettings.model_validate_json(told.model_dump_json()) == told


def test_a_repertoire_may_name_a_number() -> None:
    moves = [step.move for step in RULES.steps(ROOT) if step.move.transformation == "split_scope"]
    assert {move["factor"] for move in moves} >= {2, 4}
    settings = replace_settings(repertoire={"": ("split_scope factor=4", "join_scopes")})
    listed = Agent(BagEncoder(), Learner(settings, 32)).listed(ROOT, RULES, Kind.DECLARED_LAW)
    split = [step.move for step in listed.steps if step.move.transformation == "split_scope"]
    assert split == [move for move in moves if move["factor"] == 4] != []
    assert {kind_of(step.move) for step in listed.steps} == {"split_scope", "join_scopes"}


def test_perfllm_starts_from_the_initial_program_alone() -> None:
    wanted = task()
    assert PerfLLM(wanted, None, player.agent_for(wanted)).starts == [Trace(ROOT)]


def test_a_player_thinks_with_one_thread_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        for told, expected in (("3", 3), (None, 1)):
            torch.set_num_threads(3)
            monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
            if told:
                monkeypatch.setenv("OMP_NUM_THREADS", told)
            started("perfllm").start(task(), None)
            assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def search(settings: AgentSettings = QUICK, **more: Any) -> PerfLLM:
    wanted = task(**more)
    return PerfLLM(wanted, None, Agent(BagEncoder(), Learner(settings, 32)))


def round_of(searching: PerfLLM, count: int, seconds: Sequence[float | None] | None = None) -> list[Trace]:
    games = list(searching.propose(count))
    results = evaluate(games)
    if seconds is not None:
        failure = Failure("runtime", "it crashed")
        results = [Evaluation(g, s, None if s else failure) for g, s in zip(games, seconds)]
    searching.observe(results)
    return games


def test_episodes_go_on_move_by_move_and_begin_anew_after_a_failure() -> None:
    searching = search()
    round_of(searching, 1, [1.0])
    first = round_of(searching, 4, [1.0, 1.0, None, 1.0])
    assert [len(game.steps) for game in first] == [1, 1, 1, 1]
    assert searching.episodes[2] == -1, "nothing is played on a program that fails"
    second = round_of(searching, 4)
    for k in (0, 1, 3):
        if len(second[k].steps) > 1:
            assert second[k].steps[:1] == first[k].steps


def test_what_was_seen_is_in_the_memory_with_its_rewards() -> None:
    searching = search()
    round_of(searching, 1, [8.0])
    round_of(searching, 2, [2.0, None])
    replay = searching.agent.learner.replay
    assert [state.reward for state in replay.states] == [1.0, 4.0, 0.0]
    moves = [t for t in replay.transitions if t.action]
    assert [(t.state, t.to) for t in moves] == [(0, 1), (0, 2)]
    listed = searching.agent.listed(ROOT, RULES, Kind.DECLARED_LAW)
    for transition, game in zip(moves, (searching.game(1), searching.game(2))):
        assert listed.steps[transition.action - 1].after.text == game.program.text


def test_leaps_leave_out_evaluations_but_remember_what_lay_between() -> None:
    searching = search(replace_settings(leap=6, restarts=0.0))
    round_of(searching, 1, [8.0])
    games = round_of(searching, 8)
    assert max(len(game.steps) for game in games) > 1
    replay = searching.agent.learner.replay
    for game in games:
        names = [f"{searching.kernel} {name_of(step.after)}" for step in game.steps]
        numbers = [0, *(replay.number[name] for name in names)]
        assert all(pair in replay.seen for pair in zip(numbers, numbers[1:]))
        assert replay.states[numbers[-1]].reward is not None
    assert any(state.reward is None for state in replay.states), "what lay between has no reward"


def test_a_program_met_before_costs_no_evaluation() -> None:
    """All that is next to the initial program is known: the next proposal lies two moves away."""
    searching = search(replace_settings(restarts=0.0))
    round_of(searching, 1)
    near = {name_of(step.after): Trace(ROOT, (step,)) for step in RULES.steps(ROOT)}
    near.pop(name_of(ROOT), None)
    searching.waiting = [(0, game) for game in near.values()]
    searching.observe(evaluate(list(near.values())))
    games = round_of(searching, 2)
    assert games and all(len(game.steps) >= 2 for game in games)


def replace_settings(**changes: Any) -> AgentSettings:
    return QUICK.model_copy(update=changes)


def test_without_chance_the_best_move_by_the_network_is_played() -> None:
    searching = search(replace_settings(epsilon_first=0.0, epsilon_last=0.0, restarts=0.0))
    round_of(searching, 1)
    listed = searching._listed(ROOT)
    best = int(searching.agent.values(listed).argmax())
    [game] = searching.propose(1)
    if best:
        assert game.program.text == listed.steps[best - 1].after.text


def test_an_opinion_counts_only_where_it_was_right() -> None:
    opinions = np.array([0.0, 1.0, 2.0, 3.0])
    assert _slope(opinions, np.array([3.0, 2.0, 1.0, 0.0])) == pytest.approx(-1.0)
    assert _slope(opinions, np.array([0.0, 1.0, 2.0, 3.0])) == 0.0, "it said the contrary of what is so"
    assert _slope(np.ones(4), np.arange(4.0)) == 0.0


def test_the_hybrid_is_an_evolution_that_learns() -> None:
    wanted = task()
    searching = Hybrid(wanted, None, player.agent_for(wanted))
    for _ in range(4):
        searching.observe(evaluate(searching.propose(8)))
    assert searching.agent.learner.steps > 0
    assert searching.agent.learner.replay.seen


# -- agents on disk -------------------------------


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return written_agent(tmp_path)


def test_an_agent_comes_back_from_disk(trained: Path) -> None:
    before, after = Learner(QUICK, 32, seed=7), agent_files.load(trained).learner
    pairs = zip(before.network.state_dict().values(), after.network.state_dict().values())
    assert all(torch.equal(a, b) for a, b in pairs)
    assert after.settings == QUICK
    record, _ = agent_files.read(trained)
    assert (record.card.kernels, record.encoder, record.width) == (("a",), "default", 32)


def test_a_search_plays_with_a_trained_agent(trained: Path) -> None:
    seen = played("perfllm", 16, agent=str(trained))
    assert len(seen) == 16
    assert seen == played("perfllm", 16, cut=8, agent=str(trained))


def test_files_that_are_no_agents_are_refused(trained: Path, tmp_path: Path) -> None:
    content = trained.read_bytes()
    bad = tmp_path / "bad.safetensors"
    for damaged in (b"", b"{}", content[:200], content[:-10], b"\xff" * 64):
        bad.write_bytes(damaged)
        refused(lambda: agent_files.load(bad), "PD-L303", "bad.safetensors")
    refused(lambda: agent_files.load(tmp_path / "none"), "PD-L303", "none")
    bad.write_bytes(agent_files.packed({"x": torch.zeros(2)}))
    refused(lambda: agent_files.load(bad), "PD-L303", "does not hold an agent")
    tensors = agent_files.unpacked(content)
    tensors["network.move.bias"][:] = float("nan")
    record, _ = agent_files.read(trained)
    bad.write_bytes(agent_files.packed(tensors, {agent_files.RECORD: record.model_dump_json(by_alias=True)}))
    refused(lambda: agent_files.load(bad), "PD-L303", "no numbers")


def test_an_agent_of_another_encoder_is_refused(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_files, "load_encoder", lambda spec: BagEncoder(version="1" * 64))
    refused(lambda: agent_files.load(trained), "PD-L304", "another encoder")


def test_a_search_refuses_an_agent_of_another_version_of_a_plugin(tmp_path: Path) -> None:
    trained = written_agent(tmp_path, Card(plugins={"sheet": "0.1.0+aaaa"}))
    searched = replace(task(), options={"agent": str(trained)}, versions={"sheet": "0.2.0+aaaa"})
    refused(lambda: player.agent_for(searched), "PD-L309", "0.2.0")


def test_without_pytorch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnavailableError) as caught:
        strategies.require_learning()
    assert caught.value.code == "PD-L301"
    assert "perfdojo-sdk[learn]" in caught.value.render()


# -- plans ----------------------------------------


def test_a_plan_comes_from_a_file_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    lines = ("evaluations: 5", "seed: 3", "agent: {objective: sum}", "lessons: [{target: toy, kernels: add}]")
    file.write_text("\n".join(lines))
    plan = read_plan(file, {"seed": 4})
    assert (plan.evaluations, plan.seed, plan.agent.objective, plan.lessons[0].target) == (5, 4, "sum", "toy")


@pytest.mark.parametrize(
    "text", ["- a", "evaluations: many", "colour: red", "a: [", "agent: !!python/object:os.system {}"]
)
def test_plans_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    refused(lambda: read_plan(file, {}), "PD-L306", "plan.yaml")
    refused(lambda: read_plan(tmp_path / "none.yaml", {}), "PD-L306", "none.yaml")


# -- remembering what others played ---------------


def recorded(game: Trace, provenance: str = "estimated") -> Candidate:
    conditions = RecordKey(
        kernel="k",
        program_sha256=sha256(game.root.text),
        target="sheet",
        target_sha256="0" * 64,
        device="paper",
        toolchain="none",
        plugins={},
        settings={},
    )
    measured = Measurement({}, (MACHINE.seconds(game.program),), provenance, "paper", 1)
    return Candidate.of(conditions, game, result_of(measured), Proposer(search="x"))


def test_recorded_games_are_remembered_move_by_move() -> None:
    game = naive(ROOT, RULES)
    other = Trace(parse(SOFTMAX.build(2, 8), DIALECT))
    thinking = Agent(BagEncoder(), Learner(QUICK, 32))
    found = [recorded(g) for g in (Trace(ROOT), game, other)]
    assert remember_fastest(GameContext(thinking, Trace(ROOT), RULES, Kind.DECLARED_LAW), found, 5) == 2
    replay = thinking.learner.replay
    moves = [t for t in replay.transitions if t.action]
    assert len(moves) == len(game.steps) and all(t.action in replay.states[t.state].shown for t in moves)
    assert replay.states[-1].shown == {STOP}
    rewards = [state.reward for state in replay.states]
    assert rewards[0] == 1.0 and rewards[-1] == pytest.approx(
        MACHINE.seconds(ROOT) / MACHINE.seconds(game.program)
    )
    assert rewards[1:-1] == [None] * (len(rewards) - 2), "nobody has run what lies between"
    listed = thinking.listed(ROOT, RULES, Kind.DECLARED_LAW)
    assert listed.steps[moves[0].action - 1].after.text == game.steps[0].after.text


@pytest.mark.parametrize(("provenance", "nearly"), [("simulated", 1.02), ("measured", 1.05)])
def test_measured_times_may_differ_by_more_and_be_as_good(provenance: str, nearly: float) -> None:
    best = naive(ROOT, RULES)
    context = GameContext(Agent(BagEncoder(), Learner(QUICK, 32)), Trace(ROOT), RULES, Kind.DECLARED_LAW)
    recorded_games = RecordedGames(context, [recorded(best, provenance)])
    other = Trace(ROOT, best.steps[:-1])
    for factor in (0.999, 1.001):
        recorded_games.seconds[digest(other)] = factor * nearly * MACHINE.seconds(best.program)
        assert recorded_games.shows(other) == (factor < 1)
    later = RecordedGames(context, [])
    later.read_notes(json.loads(json.dumps(recorded_games.notes())))
    assert later.notes() == recorded_games.notes()


def test_another_name_is_not_evaluated_again() -> None:
    root = parse(REDUCEMEAN.build(4, 8), DIALECT)
    read, written = Move("stage_read", "s2", (("array", "s"),)), Move("stage_write", "s0", (("array", "s"),))
    games = [Trace(root).play(RULES, move) for move in (read, written)]
    assert games[0].program.text != games[1].program.text
    context = GameContext(Agent(BagEncoder(), Learner(QUICK, 32)), Trace(root), RULES, Kind.DECLARED_LAW)
    recorded_games, asked = RecordedGames(context, []), list[Trace]()
    for game in games:
        recorded_games.evaluated(game, lambda game: (asked.append(game), 7.0)[1])
    assert asked == games[:1] and set(recorded_games.seconds.values()) == {7.0}
    known = RecordedGames(context, [recorded(games[1])])
    assert known.fastest(1) == games[1:]
    known.evaluated(games[0], lambda game: pytest.fail("it is known under another name"))
    assert len(set(known.seconds.values())) == 1


def test_other_orders_and_slips_are_remembered_too() -> None:
    thinking = Agent(BagEncoder(), Learner(QUICK, 32))
    recorded_games = RecordedGames(
        GameContext(thinking, Trace(ROOT), RULES, Kind.DECLARED_LAW), [recorded(naive(ROOT, RULES))]
    )
    [game] = recorded_games.fastest(5)
    recorded_games.remember(game)
    replay = thinking.learner.replay
    states, shown = len(replay.states), sum(len(state.shown) for state in replay.states)
    asked: list[Trace] = []

    def seconds(slipped: Trace) -> float | None:
        asked.append(slipped)
        return 1e3 if len(asked) % 2 else recorded_games.best

    count = recorded_games.vary([game], 2, 6, seconds, Random(0))
    assert 4 <= len(asked) <= count - 2 <= 6  # whoever slips the same way twice is not evaluated again
    assert len(replay.states) > states and sum(len(state.shown) for state in replay.states) > shown
    for k, slipped in enumerate(asked):
        end = replay.states[replay.number[f"{digest(Trace(ROOT))} {digest(slipped)}"]]
        if k % 2 and slipped.program.text != game.program.text:
            assert end.shown == {STOP}
    assert recorded_games.vary([], 2, 6, seconds, Random(0)) == 0
