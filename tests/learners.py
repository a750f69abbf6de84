"""Shared by tests of agents and of trainings: a paper target, small agents, a watcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bag_encoder import BagEncoder
from made_plugins import plugin
from snippets import DIALECT

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Capabilities, Target
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.perfllm import agent_files, player
from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.agent_files import Card
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.plan import Lesson, TrainingPlan
from perfdojo_sdk.perfllm.settings import AgentSettings
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.testing.estimate import AnalyticGenerator, AnalyticMachine, AnalyticRunner

ROOT = parse(SOFTMAX.build(4, 8), DIALECT)
TARGET = Target("sheet", Capabilities(name="sheet", description="", lanes={"f32": 8}), DIALECT, "")
MACHINE = AnalyticMachine(DIALECT, launch=100)
QUICK = AgentSettings(hidden=16, batch=8, most_actions=16, most_moves=12, steps_per_evaluation=0.5)
PLAN = TrainingPlan(
    lessons=(Lesson(target="sheet", kernels="softmax[4,8] relu[8,16]"),), evaluations=16, agent=QUICK
)


def use_bag_of_words(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
    """No trained encoder: what is tested does not depend on how good it is."""
    for module in (player, agent_files, *modules):
        monkeypatch.setattr(module, "load_encoder", lambda spec="default": BagEncoder())


def on_paper(runner: Any = None) -> Plugins:
    """A target whose times are reckoned on paper: quick, and the same whenever they are asked for."""
    made = plugin(
        "sheet",
        targets=lambda: [TARGET],
        code_generator=lambda target: AnalyticGenerator(),
        runner=lambda target: runner or AnalyticRunner(MACHINE),
    )
    return load_plugins(extra=[made], targets=["sheet"])


def written_agent(folder: Path, card: Card | None = None) -> Path:
    """A file with an agent that has learned nothing."""
    file = folder / "agent.safetensors"
    agent = Agent(BagEncoder(), Learner(QUICK, 32, seed=7))
    agent_files.save(file, agent, card or Card(kernels=("a",), seed=7))
    return file


class Quiet:
    """A watcher that keeps what it hears; it may stop the training after so many rounds."""

    def __init__(self, rounds: int = 10**9) -> None:
        self.left, self.reports, self.games = rounds, list[Any](), dict[str, int]()
        self.beyond: dict[str, tuple[str, ...]] = {}
        self.studies: list[tuple[int, int]] = []

    def recalled(self, name: str, games: int, beyond: tuple[str, ...]) -> None:
        self.games[name], self.beyond[name] = games, beyond

    def corrected(self, name: str, states: int, slips: int) -> None:
        pass

    def studied(self, steps: int, count: int, loss: float | None) -> None:
        self.studies.append((steps, count))

    def round(self, report: Any) -> None:
        self.reports.append((report.evaluations, report.task.name))
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def refused(call: Any, code: str, *words: str) -> None:
    with pytest.raises(DojoError) as caught:
        call()
    assert caught.value.code == code
    said = caught.value.render()
    assert all(word in said for word in words), said
    assert caught.value.hint
