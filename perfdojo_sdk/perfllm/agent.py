"""The agent: an encoder and a Q-network that learns; it lists the moves of a program and values them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.torch

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Rules, Step
from perfdojo_sdk.perfllm.encoder import Encoder
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.replay import STORED, Vector
from perfdojo_sdk.perfllm.settings import AgentSettings, kinds_of

#: Moves of one state that are listed at most, drawn evenly from all. More than this come from a few
#: transformations with very many parameters.
MOST_LISTED = 1024


@dataclass(frozen=True)
class Listed:
    """The moves of a program, and the vectors of the programs that they lead to."""

    steps: tuple[Step, ...]
    before: Vector
    after: Vector
    """[1 + moves, width]; row 0 is the program itself."""


class Agent:
    """An encoder of programs and the learner that values their moves.

    :mod:`perfdojo_sdk.perfllm.agent_files` reads and writes trained agents.
    """

    def __init__(self, encoder: Encoder, learner: Learner, encoder_spec: str = "default") -> None:
        """``encoder_spec``: the argument with which ``load_encoder`` finds the encoder again."""
        self.encoder, self.learner, self.encoder_spec = encoder, learner, encoder_spec

    def with_settings(self, settings: AgentSettings) -> Agent:
        """An agent with the same network and other settings. :class:`LearnError` when the network does not
        fit."""
        learner = Learner(settings, self.learner.width)
        learner.chance = self.learner.chance
        learner.load(self.learner.tensors())
        return Agent(self.encoder, learner, self.encoder_spec)

    def moves(self, program: Program, rules: Rules, most: Kind, target: str = "") -> tuple[Step, ...]:
        """The legal moves of ``program`` up to a kind, of the repertoire on ``target``."""
        repertoire = self.learner.settings.kinds(target)
        moves = (
            m for m in rules.candidates(program) if not repertoire or not repertoire.isdisjoint(kinds_of(m))
        )
        legal = (result for result in (rules.attempt(program, m) for m in moves) if isinstance(result, Step))
        return _evenly(tuple(step for step in legal if step.legal.kind <= most), MOST_LISTED)

    def listed(self, program: Program, rules: Rules, most: Kind, target: str = "") -> Listed:
        """The moves that :meth:`moves` gives, with the vectors of the programs they lead to."""
        steps = self.moves(program, rules, most, target)
        vectors = self.encoder.encode([program.text, *(step.after.text for step in steps)])
        # Rounded as the replay stores them, so that playing and learning see equal vectors.
        vectors = vectors.astype(STORED).astype(np.float32)
        return Listed(steps, vectors[0], vectors)

    def remember(self, number: int, listed: Listed) -> None:
        """Store the moves of state ``number`` in the replay."""
        self.learner.replay.expand(number, listed.before, listed.after[1:])

    def values(self, listed: Listed) -> Vector:
        """The value of each move [1 + moves], that of stopping first."""
        return self.learner.values(listed.before, listed.after)

    # -- between two sessions ----------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """Everything but the vectors, as JSON values; :meth:`read_notes` takes it back."""
        tensors = base64.b64encode(safetensors.torch.save(self.learner.tensors())).decode()
        return {
            "encoder": self.encoder.version,
            "settings": self.learner.settings.model_dump(mode="json"),
            "learner": self.learner.notes(),
            "tensors": tensors,
            "replay": self.learner.replay.skeleton(),
        }

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        """ValueError or :class:`LearnError` when the notes are of another agent."""
        if notes["encoder"] != self.encoder.version:
            raise ValueError(f"the search was made with another encoder, version {notes['encoder'][:16]}")
        if notes["settings"] != self.learner.settings.model_dump(mode="json"):
            raise ValueError("the search was made with other settings of the agent")
        tensors = safetensors.torch.load(base64.b64decode(notes["tensors"]))
        self.learner.restore(tensors, notes["learner"])
        self.learner.replay.rebuild(notes["replay"])


def _evenly(steps: Sequence[Step], most: int) -> tuple[Step, ...]:
    if len(steps) <= most:
        return tuple(steps)
    return tuple(steps[k] for k in np.linspace(0, len(steps) - 1, most).astype(int))
