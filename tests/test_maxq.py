"""The agent in one file learns as the full one does, and plays."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bag_encoder import BagEncoder  # noqa: E402
from learners import MACHINE, ROOT, TARGET  # noqa: E402
from snippets import RULES  # noqa: E402

from perfdojo_sdk.core.program import Program  # noqa: E402
from perfdojo_sdk.core.transformation import Trace  # noqa: E402
from perfdojo_sdk.environment import Environment, Policy  # noqa: E402
from perfdojo_sdk.environment.clock import Time  # noqa: E402
from perfdojo_sdk.game import Game  # noqa: E402
from perfdojo_sdk.perfllm import learner as full  # noqa: E402
from perfdojo_sdk.perfllm import maxq  # noqa: E402
from perfdojo_sdk.perfllm.replay import STOP  # noqa: E402
from perfdojo_sdk.perfllm.settings import DQN, MAX_Q, AgentSettings  # noqa: E402

SMALL = {"hidden": 16, "batch": 16, "copy_every": 10}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors are small, and threads wait for each other where other tests run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def clock(program: Program) -> Time:
    return Time(MACHINE.seconds(program), "estimated")


def environment(most_moves: int = 6) -> Environment:
    return Environment(Game(TARGET, RULES, Trace(ROOT)), clock, most_moves=most_moves)


def encode(texts: Sequence[str]) -> Any:
    """As the full agent keeps vectors: with the digits of float16."""
    return BagEncoder().encode(texts).astype(np.float16).astype(np.float32)


def shared_experience(agent: maxq.Agent, learner: full.Learner) -> None:
    """Tell the full learner what an agent has seen, in the same order."""
    names = {id(state): text for text, state in agent.states.items()}
    for transition in agent.learner.replay.transitions:
        state, action, to = transition
        number = learner.replay.state(names[id(state)], state.reward)
        assert state.after is not None
        learner.replay.expand(number, state.after[0].numpy(), state.after[1:].numpy())
        if action != STOP:
            learner.replay.move(number, action, learner.replay.state(names[id(to)], to.reward))


@pytest.mark.parametrize(
    "changes",
    [{}, {"double": False}, {"duelling": False}, {"maximum": False}],
    ids=["paper", "no double", "no duelling", "sum"],
)
def test_it_learns_the_same_weights_as_the_full_learner(changes: dict[str, bool]) -> None:
    agent = maxq.Agent(
        environment(), encode, maxq.Settings(**{**SMALL, "steps_per_evaluation": 0, **changes})
    )
    list(agent.train(25))
    settings = MAX_Q if changes.get("maximum", True) else DQN
    rest = {name: value for name, value in changes.items() if name != "maximum"}
    chosen = AgentSettings.model_validate({**settings.model_dump(), **SMALL, **rest, "most_actions": 4096})
    learner = full.Learner(chosen, 32, seed=0)
    shared_experience(agent, learner)
    assert len(learner.replay) == len(agent.learner.replay.transitions) > 40
    agent.learner.learn(35)
    learner.learn(35)
    mine, theirs = agent.learner.network.state_dict(), learner.network.state_dict()
    assert mine.keys() == theirs.keys()
    for name, weights in mine.items():
        assert torch.allclose(weights, theirs[name], rtol=1e-4, atol=1e-5), name
    untrained = maxq.Learner(agent.settings, 32).network.state_dict()
    assert not torch.allclose(mine["body.weight"], untrained["body.weight"], atol=1e-2)


def test_it_finds_a_fast_program_and_each_is_timed_once() -> None:
    times: list[str] = []

    def counted(program: Program) -> Time:
        times.append(program.text)
        return clock(program)

    only = frozenset({"split_scope", "annotate_scope", "swap_scopes", "join_scopes"})
    game = Environment(Game(TARGET, RULES, Trace(ROOT)), counted, Policy(only=only), most_moves=8)
    agent = maxq.Agent(game, encode, maxq.Settings(hidden=32, batch=16))
    bests = list(agent.train(60))
    assert bests == sorted(bests) and bests[-1] > 3
    assert 60 <= len(agent.states) < 60 + game.most_moves
    assert set(times) == set(agent.states)


def test_it_is_the_same_with_the_same_seed() -> None:
    def texts(seed: int) -> list[str]:
        agent = maxq.Agent(environment(), encode, maxq.Settings(hidden=16, batch=8), seed)
        list(agent.train(15))
        return list(agent.states)

    assert texts(1) == texts(1) != texts(2)


def test_the_command_prints_the_fastest_program(capsys: pytest.CaptureFixture[str]) -> None:
    maxq.main(["dsum[4,4]", "--target", "riscv_snitch", "--evaluations", "6", "--most-moves", "3"])
    printed = capsys.readouterr()
    assert printed.out.startswith("kernel dsum") and "x\n" in printed.err


def test_it_stays_a_page_that_a_student_can_read() -> None:
    """It rests on nothing of the full agent, and is about 300 lines."""
    source = Path(maxq.__file__).read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 330
    imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and "perfllm" in name} == {"perfdojo_sdk.perfllm.encoder"}
