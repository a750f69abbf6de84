"""The game as an environment: rewards, policies, forks, and states that come back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from perfdojo_sdk.core.errors import DojoError, MoveError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move
from perfdojo_sdk.environment import Environment, ModelClock, Policy, RunnerClock, Time, open_environment
from perfdojo_sdk.environment.environment import EVERYTHING, StateError
from perfdojo_sdk.game import SaveError
from perfdojo_sdk.plugins import Plugins, load_plugins

SMALL = "softmax[8,16]"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins()


def by_lines(program: Program) -> Time:
    """A clock that needs no machine: a second a line."""
    return Time(float(len(program.text.splitlines())), "estimated")


def opened(plugins: Plugins, policy: Policy = EVERYTHING, most_moves: int = 8) -> Environment:
    return open_environment(plugins, SMALL, "x86_avx2", by_lines, policy, most_moves)


# -- the native environment ------------------------------------------------------------------------


def test_the_reward_is_the_time_of_the_initial_program_over_that_of_the_new_one(plugins: Plugins) -> None:
    environment = opened(plugins)
    before = len(environment.program.text.splitlines())
    outcome = environment.step(environment.moves()[0].move)
    after = len(environment.program.text.splitlines())
    assert outcome.reward == before / after and not outcome.done
    assert outcome.time == Time(after, "estimated")


def test_stopping_ends_the_game_where_it_is(plugins: Plugins) -> None:
    environment = opened(plugins)
    played = environment.step(environment.moves()[3].move)
    program = environment.program
    stopped = environment.step(None)
    assert stopped.done and stopped.reward == played.reward and environment.program == program
    assert environment.moves() == ()
    with pytest.raises(MoveError, match="the game is over") as error:
        environment.step(None)
    assert error.value.code == "PD-A001"
    assert environment.reset() == environment.game.trace.root and environment.moves()


def test_a_game_ends_after_so_many_moves(plugins: Plugins) -> None:
    environment = opened(plugins, most_moves=2)
    assert not environment.step(environment.moves()[0].move).done
    assert environment.step(environment.moves()[0].move).done


def test_the_policy_says_what_is_offered(plugins: Plugins) -> None:
    everything = {step.legal.kind for step in opened(plugins).moves()}
    exact = opened(plugins, Policy(most=Kind.EXACT))
    assert everything > {Kind.EXACT} == {step.legal.kind for step in exact.moves()}
    splits = opened(plugins, Policy(only=frozenset({"split_scope"})))
    assert {step.move.transformation for step in splits.moves()} == {"split_scope"}
    other = next(s.move for s in opened(plugins).moves() if s.move.transformation != "split_scope")
    with pytest.raises(MoveError) as error:
        splits.step(other)
    assert error.value.code == "PD-A002" and splits.program == splits.game.trace.root


def test_an_illegal_move_is_refused_with_its_reason(plugins: Plugins) -> None:
    with pytest.raises(MoveError, match="PD-T001|no scope"):
        opened(plugins).step(Move.of("split_scope", "nowhere", factor=2))


def test_what_is_no_move_is_refused_in_words(plugins: Plugins) -> None:
    environment = opened(plugins)
    for wrong in ("split_scope(s0, factor=2)", 1, environment.moves()[0]):
        with pytest.raises(
            TypeError, match=r"takes a Move or None, not \w+; for example moves\(\)\[0\]\.move"
        ):
            environment.step(wrong)  # type: ignore[arg-type]
    assert environment.game.trace.steps == ()


def test_forks_are_independent(plugins: Plugins) -> None:
    environment = opened(plugins)
    environment.step(environment.moves()[0].move)
    offered = environment.moves()
    fork = environment.fork()
    assert fork.moves() is offered
    fork.step(fork.moves()[0].move)
    assert len(fork.game.trace.steps) == 2 and len(environment.game.trace.steps) == 1


def test_moves_are_taken_out_in_the_middle(plugins: Plugins) -> None:
    environment = opened(plugins)
    split = next(s.move for s in environment.moves() if s.move.transformation == "split_scope")
    environment.step(split)
    inner = next(s for s in environment.moves() if s.move.place.startswith(f"{split.place}."))
    environment.step(inner.move)
    [dropped] = environment.undo(0)
    assert dropped.move == inner.move and environment.program == environment.game.trace.root


def test_a_state_comes_back_through_json(plugins: Plugins) -> None:
    environment, other = opened(plugins), opened(plugins)
    for _ in range(3):
        environment.step(environment.moves()[-1].move)
    other.restore(plugins, json.loads(json.dumps(environment.state())))
    assert other.program == environment.program and other.game.trace.moves == environment.game.trace.moves


@pytest.mark.parametrize("state", [{}, {"game": 3}, {"game": {"schema": 9}}, []])
def test_a_state_that_is_none_is_refused(plugins: Plugins, state: Mapping[str, object]) -> None:
    environment = opened(plugins)
    with pytest.raises(SaveError, match="is no saved game"):
        environment.restore(plugins, state)


def test_a_state_of_another_kernel_is_refused(plugins: Plugins) -> None:
    other = open_environment(plugins, "softmax[8,24]", "x86_avx2", by_lines)
    with pytest.raises(StateError) as error:
        opened(plugins).restore(plugins, other.state())
    assert error.value.code == "PD-A003"


def test_a_bare_name_is_the_target_s_own_size_of_it(plugins: Plugins) -> None:
    environment = open_environment(plugins, "softmax", "riscv_snitch", by_lines)
    assert environment.program.name == "dsoftmax"
    assert open_environment(plugins, "softmax", "x86_avx2", by_lines).program.name == "softmax"


# -- clocks ----------------------------------------------------------------------------------------


def test_simulated_time_is_a_clock(plugins: Plugins) -> None:
    environment = open_environment(plugins, "dsum[4,4]", "riscv_snitch")
    outcome = environment.step(environment.moves()[0].move)
    assert outcome.time.provenance == "simulated" and outcome.reward > 0
    assert isinstance(environment.clock, RunnerClock) and len(environment.clock.known) == 2
    assert environment.outcome() == outcome and len(environment.clock.known) == 2


def test_a_program_without_a_time_earns_nothing(plugins: Plugins) -> None:
    environment = opened(plugins)
    root = environment.program
    environment.clock = lambda p: Time(1.0, "estimated") if p is root else Time(None, "", "compile: no")
    outcome = environment.step(environment.moves()[0].move)
    assert outcome.reward == 0 and outcome.time.problem == "compile: no"


def test_a_generator_that_fails_is_a_problem_not_an_error() -> None:
    class Broken:
        def generate(self, program: Program, symbol: str) -> object:
            raise RuntimeError("no code today")

    clock = RunnerClock(Broken(), None)  # type: ignore[arg-type]
    assert "no code today" in clock(opened(load_plugins()).program).problem


def test_a_clock_that_runs_on_another_target_is_refused(plugins: Plugins) -> None:
    """Its times would be rewards for code that this target never runs."""
    clock = open_environment(plugins, "dsum[4,4]", "riscv_snitch").clock
    assert open_environment(plugins, "drelu[4,4]", "riscv_snitch", clock).clock is clock
    with pytest.raises(DojoError, match="runs programs on riscv_snitch") as refused:
        open_environment(plugins, SMALL, "x86_avx2", clock)
    assert refused.value.code == "PD-A006"


def test_a_learned_clock_ranks_programs_like_those_it_saw(plugins: Plugins) -> None:
    environment = opened(plugins)
    programs = [environment.program, *(step.after for step in environment.moves())]
    seconds = [float(len(p.text.splitlines())) for p in programs]
    clock = ModelClock.learned(programs, seconds, environment.game.target)
    told = [clock(program).seconds for program in programs]
    assert np.corrcoef(seconds, np.array(told, float))[0, 1] > 0.5
    assert clock(programs[0]).provenance == "estimated"


# -- the page ---------------------------------------------------------------------------------------


def test_the_examples_of_the_page_run() -> None:
    pytest.importorskip("gymnasium")
    page = Path(__file__).parents[1].joinpath("docs", "environment.md").read_text()
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert names["reward"] > 0  # type: ignore[operator]
