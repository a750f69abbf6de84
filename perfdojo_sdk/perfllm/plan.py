"""The plan of a training: validated data from a YAML file, from options, or both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.core.interface import MAX_THREADS
from perfdojo_sdk.perfllm.settings import AgentSettings
from perfdojo_sdk.store.reading import yaml_of
from perfdojo_sdk.store.traces import Strict, first_error

MAX_FILE_BYTES = 1 << 20

Words = Annotated[str, StringConstraints(max_length=4096)]


class Lesson(Strict):
    """Kernels of one target."""

    target: Words = "best"
    kernels: Words = ""
    """Kernels in the syntax of `build-library --kernels`; empty: the target's own list."""


class TrainingPlan(Strict):
    """Everything that a training depends on."""

    notes: Words = ""
    """A note for users of the agent; it is written into the card."""
    lessons: tuple[Lesson, ...] = Field((Lesson(),), min_length=1, max_length=100)
    evaluations: Annotated[int, Field(ge=1, le=10**7)] = 1000
    """Programs to evaluate for each kernel, at most."""
    seconds: Annotated[float, Field(gt=0)] | None = None
    """Most wall time."""
    plateau: Annotated[int, Field(ge=1)] | None = None
    """Evaluations of a kernel without a new best after which no more are spent on it."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] = 1
    encoder: Words = "default"
    agent: AgentSettings = AgentSettings()
    passes: bool = False
    """Evaluate the games of each target's own passes first, so that they are among the records."""
    recorded: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Recorded games of each kernel to learn from before anything is played, the fastest first."""
    orders: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Other orders of the best recorded games of each kernel to learn from."""
    slips: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Games of each kernel with a slip, and what still applies of a best game after it, to evaluate and to
    learn from."""
    corrected: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Rounds in which the agent plays each kernel and is shown in each state how to go on."""
    corrected_games: Annotated[int, Field(ge=1, le=1000)] = 1
    """Games of each kernel in such a round."""
    recorded_steps: Annotated[float, Field(ge=0, le=1000)] = 4.0
    """Steps of learning for each transition that they brought."""
    settling: Annotated[int, Field(ge=0, le=10**7)] = 0
    """Steps of learning after that from all of it, ever smaller ones, for the network to come to rest."""

    def steps_for(self, transitions: int) -> int:
        """Steps of learning that so many new transitions are worth."""
        return int(transitions * self.recorded_steps)


def read_plan(file: Path | None, changes: Mapping[str, Any]) -> TrainingPlan:
    """The plan in a YAML file, or the default one, with some fields changed.

    :class:`DojoError` when the file or a value is not understood.
    """
    hint = "docs/perfllm shows a plan with every field"
    data: Any = {}
    if file is not None:
        try:
            data = yaml_of(read_bounded(file, MAX_FILE_BYTES)) or {}
        except OSError as error:
            raise DojoError("PD-L306", f"cannot read {file}: {error.strerror}", hint=hint) from None
        except ValueError as error:
            raise DojoError("PD-L306", f"{file} is no YAML", why=str(error), hint=hint) from None
    what = f"{file} is no plan of a training" if file else "this is no plan of a training"
    if not isinstance(data, dict):
        raise DojoError("PD-L306", what, why="it holds no names with values", hint=hint)
    try:
        return TrainingPlan.model_validate({**data, **changes})
    except ValidationError as error:
        raise DojoError("PD-L306", what, why=first_error(error), hint=hint) from None
