"""The learning searches by name. PyTorch is imported when one of them starts."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.files import open_regular
from perfdojo_sdk.hookspecs.search import Player, SearchStrategy, SearchTask, State

NEEDED = ("torch", "safetensors")
#: The folder of the trained agents that come with the SDK, each with a card that says where it helped.
SHIPPED = Path(__file__).parent / "shipped"
#: In place of an agent's file: one of those, by target and operator; or one that knows nothing.
SHIPPED_AGENT, NO_AGENT = "shipped", "none"


def require_learning() -> None:
    """Raise :class:`UnavailableError` when a package that learning needs is not installed."""
    for name in NEEDED:
        try:
            import_module(name)
        except ImportError as error:
            raise UnavailableError(
                "PD-L301",
                f"learning needs the package {name}",
                why=str(error),
                hint="pip install 'perfdojo-sdk[learn]'",
            ) from None


def limit_torch_threads() -> None:
    """Let PyTorch use one thread, unless ``OMP_NUM_THREADS`` is set.

    The vectors are small, so more threads gain little, and they wait for each other on a busy machine: a
    beam took 68 s instead of 7 s on two cores of which one was busy.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)


def agent_options(file: Path) -> tuple[tuple[str, str], ...]:
    """The search options for a trained agent: its file, and the file's SHA-256, since the file may change."""
    with open_regular(file) as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return ("agent", str(file.absolute())), ("agent_sha256", digest)


@dataclass(frozen=True)
class ShippedAgent:
    """A trained agent that comes with the SDK."""

    file: Path
    helps_on: frozenset[str]
    """Targets on which searches were measured to be better with it."""
    learned: frozenset[str]
    """``OPERATOR on TARGET``, of all kernels that it was trained on."""


#: What the cards name: ``conv2d_8x64x56x56x64x3_f32 on TARGET``.
_LESSON = re.compile(r"(?P<operator>\w+?)_\d+(x\d+)*_\w+ on (?P<target>\w+)")


def shipped_agents(target: str) -> list[ShippedAgent]:
    """The shipped agents that help on a target. :class:`UnavailableError` when there is none."""
    there = _helping(target)
    if not there:
        helped = sorted({name for agent in every_shipped() for name in agent.helps_on})
        raise UnavailableError(
            "PD-L310",
            f"no agent that comes with the SDK is for {target}",
            why=f"they were seen to help on {', '.join(helped)} alone",
            hint="`perfdojo-sdk train` trains one; --option agent=none learns from nothing",
        )
    return there


def shipped_agent(target: str, operator: str) -> Path:
    """The file of the shipped agent for a kernel: one trained on its operator, else the first for the
    target."""
    there = shipped_agents(target)
    return next((agent for agent in there if f"{operator} on {target}" in agent.learned), there[0]).file


def shipped_options(target: str) -> tuple[tuple[str, str], ...]:
    """The search options for the shipped agents of a target; empty when none helps there."""
    there = _helping(target)
    digest = hashlib.sha256(b"".join(agent.file.read_bytes() for agent in there)).hexdigest()
    return (("agent", SHIPPED_AGENT), ("agent_sha256", digest)) if there else ()


@cache
def every_shipped() -> tuple[ShippedAgent, ...]:
    return tuple(_of_card(card) for card in sorted(SHIPPED.glob("*.json")))


def _helping(target: str) -> list[ShippedAgent]:
    return [agent for agent in every_shipped() if target in agent.helps_on]


def _of_card(card: Path) -> ShippedAgent:
    known = json.loads(card.read_text(encoding="utf-8"))
    lessons = [_LESSON.fullmatch(name) for name in known["card"]["kernels"]]
    learned = {f"{lesson['operator']} on {lesson['target']}" for lesson in lessons if lesson}
    return ShippedAgent(card.with_suffix(".safetensors"), frozenset(known["helps_on"]), frozenset(learned))


@dataclass(frozen=True)
class StartLearned:
    """Starts a player of ``perfdojo_sdk.perfllm``. A class, so that strategies pickle."""

    module: str
    starter: str

    def __call__(self, task: SearchTask, state: State | None) -> Player:
        require_learning()
        limit_torch_threads()
        start = getattr(import_module(f"perfdojo_sdk.perfllm.{self.module}"), self.starter)
        player: Player = start(task, state)
        return player


LEARNED = (
    SearchStrategy(
        "perfllm",
        "Reinforcement learning from the initial program, without any pass (Max-Q; --agent: a trained one).",
        StartLearned("player", "start"),
    ),
    SearchStrategy(
        "hybrid",
        "Evolution whose children a learning agent suggests and sifts.",
        StartLearned("hybrid", "start"),
    ),
)
