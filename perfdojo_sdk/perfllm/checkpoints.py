"""Checkpoints of a training between two rounds: one safetensors file, written whole or not at all.

It holds both networks, the optimiser, the replay with its vectors, the state of the random generators, the
games that each task has met, and the demonstrations while games are corrected. Measurements stay in the
records. A training that was killed resumes from its last checkpoint and plays the same games.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.perfllm import agent_files
from perfdojo_sdk.perfllm.demonstrations import Demonstrations
from perfdojo_sdk.perfllm.learner import LearnError
from perfdojo_sdk.perfllm.recorded_games import RecordedGames
from perfdojo_sdk.perfllm.training import Training
from perfdojo_sdk.perfllm.training_task import TrainingTask
from perfdojo_sdk.store.traces import SavedTrace, Strict, first_error

RECORD = "perfdojo_checkpoint"
#: A memory of 20,000 transitions takes some 400 MB.
MAX_FILE_BYTES = 16 << 30


class SavedTask(Strict):
    """One task; ``key`` is the digest of the conditions of its measurements."""

    key: str
    evaluations: Annotated[int, Field(ge=0)]
    since_best: Annotated[int, Field(ge=0)]
    shown: Annotated[int, Field(ge=0)]
    finished: bool
    loss: float | None
    player: dict[str, Any]


Seconds = Annotated[float, Field(gt=0)] | None
Digest = Annotated[str, StringConstraints(max_length=64)]


class SavedTimes(Strict):
    """The known times of one task's programs, in seconds; see ``RecordedGames.notes``."""

    seconds: dict[Digest, Seconds]
    alike: dict[Digest, Seconds]
    nearly: Annotated[float, Field(ge=1)]
    base: Seconds
    best: Seconds


class SavedDemonstrations(Strict):
    """The demonstrations of one task."""

    games: tuple[SavedTrace, ...]
    times: SavedTimes


class Checkpoint(Strict):
    """The record in the head of the file. Its JSON keeps the older names ``pupils`` and ``lectures``."""

    schema_version: Literal[3] = Field(3, alias="schema")
    plan: str
    """The plan, without its budget, which may change."""
    encoder_version: str
    elapsed_s: Annotated[float, Field(ge=0)]
    learner: dict[str, Any]
    replay: dict[str, Any]
    tasks: tuple[SavedTask, ...] = Field(validation_alias="pupils", serialization_alias="pupils")
    corrected: Annotated[int, Field(ge=0)]
    """Rounds of corrected games so far."""
    demonstrations: tuple[SavedDemonstrations, ...] = Field(
        validation_alias="lectures", serialization_alias="lectures"
    )
    """One for each task, as long as games are corrected."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def beside(agent: Path) -> Path:
    """The path of the checkpoint of a training that writes its agent to ``agent``."""
    return agent.with_name(f"{agent.stem}.checkpoint.safetensors")


def save(file: Path, training: Training) -> None:
    """Write a checkpoint; the file is complete or untouched."""
    learner = training.agent.learner
    record = Checkpoint(
        schema=3,
        plan=_plan(training),
        encoder_version=training.agent.encoder.version,
        elapsed_s=training.elapsed_s,
        learner=learner.notes(),
        replay=learner.replay.skeleton(),
        tasks=tuple(
            SavedTask(
                key=task.evaluator.conditions.key.digest,
                evaluations=task.evaluations,
                since_best=task.since_best,
                shown=task.shown,
                finished=task.finished,
                loss=task.player.loss,
                player=dict(task.player.state()),
            )
            for task in training.tasks
        ),
        corrected=training.corrected,
        demonstrations=tuple(
            SavedDemonstrations(
                games=tuple(SavedTrace.of(game) for game in shown.shown),
                times=SavedTimes.model_validate(shown.recorded_games.notes()),
            )
            for shown in training.demonstrations
        ),
    )
    arrays = {name: torch.from_numpy(array) for name, array in learner.replay.arrays().items()}
    head = {RECORD: record.model_dump_json(by_alias=True)}
    write_atomically(file, agent_files.packed({**learner.tensors(), **arrays}, head))


def load(file: Path, training: Training) -> None:
    """Restore a new training from a checkpoint. :class:`LearnError` when they do not belong together."""
    head, tensors = agent_files.read_tensors(file, MAX_FILE_BYTES)
    try:
        record = Checkpoint.model_validate_json(head.get(RECORD, "{}"))
    except ValidationError as error:
        raise _refused(file, first_error(error)) from None
    if record.plan != _plan(training):
        raise _refused(file, "the plan is another one")
    keys = [task.evaluator.conditions.key.digest for task in training.tasks]
    if [task.key for task in record.tasks] != keys:
        raise _refused(file, "the kernels, device, toolchain or plugins are not those of that training")
    if record.encoder_version != training.agent.encoder.version:
        raise agent_files.other_encoder(str(file), record.encoder_version, training.agent.encoder)
    learner = training.agent.learner
    learner.restore(tensors, record.learner)
    try:
        learner.replay.rebuild(record.replay)
        learner.replay.fill({n: t.numpy() for n, t in tensors.items() if n.startswith("replay.")})
        for task, saved in zip(training.tasks, record.tasks):
            task.player = task.player.at(saved.player)
            task.player.loss = saved.loss
            task.evaluations, task.since_best = saved.evaluations, saved.since_best
            task.shown = saved.shown
            task.finished = saved.finished and saved.evaluations >= training.plan.evaluations
        training.demonstrations = [
            _demonstrations(*each) for each in zip(training.tasks, record.demonstrations)
        ]
    except (KeyError, TypeError, ValueError, IndexError, DojoError) as error:
        raise _refused(file, f"{type(error).__name__}: {error}") from None
    training.recalled, training.corrected = not record.demonstrations, record.corrected
    training.before_s = record.elapsed_s
    training.before = training.evaluations


def _demonstrations(task: TrainingTask, saved: SavedDemonstrations) -> Demonstrations:
    recorded_games = RecordedGames(task.replay_context, ())
    recorded_games.read_notes(saved.times.model_dump())
    return Demonstrations(
        task, recorded_games, [game.replay(task.replay_context.rules) for game in saved.games]
    )


def _plan(training: Training) -> str:
    """The fields of the plan that must be equal for a training to resume, as JSON."""
    plan: dict[str, Any] = json.loads(training.plan.model_dump_json())
    return json.dumps({k: v for k, v in plan.items() if k not in ("seconds", "plateau")}, sort_keys=True)


def _refused(file: Path, why: str) -> LearnError:
    hint = "leave out --resume to begin again; what was measured is in the records"
    return LearnError("PD-L307", f"the training in {file} cannot go on", why=why, hint=hint)
