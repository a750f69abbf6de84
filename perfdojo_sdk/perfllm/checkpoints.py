"""A training between two rounds, on disk: one safetensors file, written whole or not at all.

It holds both networks, the optimiser, the memory with its vectors, chance, the games that each kernel
has met, and as long as games are corrected those that are shown; what is measured stays in the records. A
training that is killed goes on from the last one, and plays as it would have played.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.perfllm import agent_files
from perfdojo_sdk.perfllm.learner import LearnError
from perfdojo_sdk.perfllm.lecture import Lecture
from perfdojo_sdk.perfllm.pupil import Pupil
from perfdojo_sdk.perfllm.recall import Recall
from perfdojo_sdk.store.traces import SavedTrace, Strict, first_error

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.trainer import Training

RECORD = "perfdojo_checkpoint"
#: A memory of 20,000 transitions takes some 400 MB.
MAX_FILE_BYTES = 16 << 30


class SavedPupil(Strict):
    """One kernel; what its figures depend on is in ``key``."""

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
    """What is known of the times of one kernel's programs."""

    seconds: dict[Digest, Seconds]
    alike: dict[Digest, Seconds]
    nearly: Annotated[float, Field(ge=1)]
    base: Seconds
    best: Seconds


class SavedLecture(Strict):
    """What a pupil is shown."""

    games: tuple[SavedTrace, ...]
    times: SavedTimes


class Checkpoint(Strict):
    """What stands in the head of the file."""

    schema_version: Literal[3] = Field(3, alias="schema")
    plan: str
    """The plan, without its budget, which may change."""
    encoder_version: str
    elapsed_s: Annotated[float, Field(ge=0)]
    learner: dict[str, Any]
    replay: dict[str, Any]
    pupils: tuple[SavedPupil, ...]
    corrected: Annotated[int, Field(ge=0)]
    """Rounds of corrected games so far."""
    lectures: tuple[SavedLecture, ...]
    """One for each pupil, as long as games are corrected."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def beside(agent: Path) -> Path:
    """Where the checkpoint of a training is that writes ``agent``."""
    return agent.with_name(f"{agent.stem}.checkpoint.safetensors")


def save(file: Path, training: Training) -> None:
    learner = training.agent.learner
    record = Checkpoint(
        schema=3,
        plan=_plan(training),
        encoder_version=training.agent.encoder.version,
        elapsed_s=training.elapsed_s,
        learner=learner.notes(),
        replay=learner.replay.skeleton(),
        pupils=tuple(
            SavedPupil(
                key=pupil.evaluator.conditions.key.digest,
                evaluations=pupil.evaluations,
                since_best=pupil.since_best,
                shown=pupil.shown,
                finished=pupil.finished,
                loss=pupil.player.loss,
                player=dict(pupil.player.state()),
            )
            for pupil in training.pupils
        ),
        corrected=training.corrected,
        lectures=tuple(
            SavedLecture(
                games=tuple(SavedTrace.of(game) for game in lecture.shown),
                times=SavedTimes.model_validate(lecture.recalling.notes()),
            )
            for lecture in training.lectures
        ),
    )
    arrays = {name: torch.from_numpy(array) for name, array in learner.replay.arrays().items()}
    head = {RECORD: record.model_dump_json(by_alias=True)}
    write_atomically(file, agent_files.packed({**learner.tensors(), **arrays}, head))


def load(file: Path, training: Training) -> None:
    """Bring a training that was just set up to where the checkpoint is. :class:`LearnError` if it cannot."""
    head, tensors = agent_files.read_tensors(file, MAX_FILE_BYTES)
    try:
        record = Checkpoint.model_validate_json(head.get(RECORD, "{}"))
    except ValidationError as error:
        raise _refused(file, first_error(error)) from None
    if record.plan != _plan(training):
        raise _refused(file, "the plan is another one")
    keys = [pupil.evaluator.conditions.key.digest for pupil in training.pupils]
    if [pupil.key for pupil in record.pupils] != keys:
        raise _refused(file, "the kernels, device, toolchain or plugins are not those of that training")
    if record.encoder_version != training.agent.encoder.version:
        raise agent_files.other_encoder(str(file), record.encoder_version, training.agent.encoder)
    learner = training.agent.learner
    learner.restore(tensors, record.learner)
    try:
        learner.replay.rebuild(record.replay)
        learner.replay.fill({n: t.numpy() for n, t in tensors.items() if n.startswith("replay.")})
        for pupil, saved in zip(training.pupils, record.pupils):
            pupil.player = pupil.player.at(saved.player)
            pupil.player.loss = saved.loss
            pupil.evaluations, pupil.since_best = saved.evaluations, saved.since_best
            pupil.shown = saved.shown
            pupil.finished = saved.finished and saved.evaluations >= training.plan.evaluations
        training.lectures = [_lecture(*each) for each in zip(training.pupils, record.lectures)]
    except (KeyError, TypeError, ValueError, IndexError, DojoError) as error:
        raise _refused(file, f"{type(error).__name__}: {error}") from None
    training.recalled, training.corrected = not record.lectures, record.corrected
    training.before_s = record.elapsed_s
    training.before = training.evaluations


def _lecture(pupil: Pupil, saved: SavedLecture) -> Lecture:
    recalling = Recall(pupil.table, ())
    recalling.read_notes(saved.times.model_dump())
    return Lecture(pupil, recalling, [game.replay(pupil.table.rules) for game in saved.games])


def _plan(training: Training) -> str:
    """What must be the same to go on."""
    plan: dict[str, Any] = json.loads(training.plan.model_dump_json())
    return json.dumps({k: v for k, v in plan.items() if k not in ("seconds", "plateau")}, sort_keys=True)


def _refused(file: Path, why: str) -> LearnError:
    hint = "leave out --resume to begin again; what was measured is in the records"
    return LearnError("PD-L307", f"the training in {file} cannot go on", why=why, hint=hint)
