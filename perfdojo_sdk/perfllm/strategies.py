"""The searches that learn, by name. What they need is imported when one of them starts."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.search import Player, SearchStrategy, SearchTask, State

NEEDED = ("torch", "safetensors")
#: The trained agent that comes with the SDK; its card lies beside it and says where it was seen to help.
SHIPPED = Path(__file__).parent / "shipped" / "agent.safetensors"


def require_learning() -> None:
    """:class:`UnavailableError` when what learning needs is not installed."""
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


def think_alone() -> None:
    """One thread of PyTorch, unless the environment says how many.

    Vectors are small, so more gain little, and where anything else runs they wait for each other: a beam took
    68 s in place of 7 s on two cores of which one was busy.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)


def agent_options(file: Path) -> tuple[tuple[str, str], ...]:
    """What a search is told to play with a trained agent: its file, and a digest since that may change."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return ("agent", str(file.absolute())), ("agent_sha256", digest)


def shipped_options(target: str) -> tuple[tuple[str, str], ...]:
    """What a search is told to play with the SDK's own agent, if that was seen to help on the target."""
    known = json.loads(SHIPPED.with_suffix(".json").read_text(encoding="utf-8"))
    return agent_options(SHIPPED) if target in known["helps_on"] else ()


@dataclass(frozen=True)
class StartLearned:
    """Starts a player of ``perfdojo_sdk.perfllm``. A class, so that strategies pickle."""

    module: str
    starter: str

    def __call__(self, task: SearchTask, state: State | None) -> Player:
        require_learning()
        think_alone()
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
