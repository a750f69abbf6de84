"""Trained agents on disk: one safetensors file each, with its settings and training history in the header.

Reading a file never runs code from it. The file is bounded in size and checked, and refused with a reason
when it belongs to another encoder or is truncated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import safetensors
import safetensors.torch
from pydantic import ConfigDict, Field, StringConstraints, ValidationError
from torch import Tensor

from perfdojo_sdk import __version__
from perfdojo_sdk.core.files import open_regular
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.encoder import Encoder, load_encoder
from perfdojo_sdk.perfllm.learner import Learner, LearnError
from perfdojo_sdk.perfllm.settings import AgentSettings
from perfdojo_sdk.store.traces import Strict, first_error

MAX_FILE_BYTES = 256 << 20
#: Where the head of an agent's file keeps its record.
RECORD = "perfdojo_agent"

Line = Annotated[str, StringConstraints(max_length=4096)]


class Card(Strict):
    """The training history of an agent, for people to read."""

    targets: tuple[Line, ...] = Field(default=(), max_length=1000)
    kernels: tuple[Line, ...] = Field(default=(), max_length=10_000)
    """``KERNEL on TARGET`` of each kernel it was trained on."""
    evaluations: Annotated[int, Field(ge=0)] = 0
    """Programs evaluated in its own episodes."""
    shown: Annotated[int, Field(ge=0)] = 0
    """Programs evaluated before those: games of passes, games with slips, ends of corrected games."""
    remembered: Annotated[int, Field(ge=0)] = 0
    """Transitions it learned from, including those of other searches."""
    steps: Annotated[int, Field(ge=0)] = 0
    """Gradient steps."""
    seed: int = 0
    plugins: dict[str, str] = {}
    """Version of the package of each plugin that was used."""
    notes: Line = ""


class AgentRecord(Strict):
    """The record in the header of an agent's file."""

    schema_version: Literal[1] = Field(1, alias="schema")
    sdk: Line
    encoder: Line
    """The argument of ``load_encoder``."""
    encoder_version: Line
    width: Annotated[int, Field(ge=1, le=65536)]
    settings: AgentSettings
    card: Card = Card()

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def save(file: Path, agent: Agent, card: Card) -> None:
    """Write the agent; the file is complete or untouched."""
    learner = agent.learner
    record = AgentRecord(
        schema=1,
        sdk=__version__,
        encoder=agent.encoder_spec,
        encoder_version=agent.encoder.version,
        width=learner.width,
        settings=learner.settings,
        card=card,
    )
    tensors = {name: t for name, t in learner.tensors().items() if name.startswith("network.")}
    write_atomically(file, packed(tensors, {RECORD: record.model_dump_json(by_alias=True)}))


def load(file: Path, seed: int = 0, versions: Mapping[str, str] | None = None) -> Agent:
    """Load an agent, which can continue to learn. :class:`LearnError` when the file holds no agent.

    ``versions``: those of the plugins it will play with; see :func:`require_versions`.
    """
    record, tensors = read(file)
    require_versions(file, record, versions or {})
    encoder = load_encoder(record.encoder)
    if encoder.version != record.encoder_version:
        raise other_encoder(str(file), record.encoder_version, encoder)
    learner = Learner(record.settings, record.width, seed)
    learner.load(tensors)
    return Agent(encoder, learner, record.encoder)


def read(file: Path) -> tuple[AgentRecord, dict[str, Tensor]]:
    """Read an agent's record and tensors. :class:`LearnError` when the file holds no agent."""
    head, tensors = read_tensors(file)
    try:
        return AgentRecord.model_validate_json(head.get(RECORD, "{}")), tensors
    except ValidationError as error:
        hint = "give a file that `perfdojo-sdk train` wrote"
        raise LearnError(
            "PD-L303", f"{file} does not hold an agent", why=first_error(error), hint=hint
        ) from None


def require_versions(file: Path, record: AgentRecord, versions: Mapping[str, str]) -> None:
    """Raise :class:`LearnError` when the agent learned with another release of a plugin (or of the SDK).

    ``versions``: plugin -> version and hash. Another hash of the same release is accepted: moves mean the
    same within a release, and the games of an agent are checked and verified like all others. Plugins that
    the agent has not learned with are ignored.
    """
    for plugin, version_here in versions.items():
        known, here = (each.partition("+")[0] for each in (record.card.plugins.get(plugin, ""), version_here))
        if known and known != here:
            raise LearnError(
                "PD-L309",
                f"the agent in {file} belongs to another version of {plugin}",
                why=f"it learned with {plugin} {known}; here is {here or 'one without a version'}",
                hint=f"use an agent trained with {plugin} {here}, or train one",
            )


def read_tensors(file: Path, most_bytes: int = MAX_FILE_BYTES) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The head and the tensors of a safetensors file of at most so many bytes."""
    hint = "give a file that `perfdojo-sdk train` wrote"
    try:
        with open_regular(file) as there:
            if os.fstat(there.fileno()).st_size > most_bytes:
                raise LearnError("PD-L303", f"{file} is larger than {most_bytes} bytes", hint=hint)
        with safetensors.safe_open(str(file), framework="pt") as opened:
            names = opened.keys()  # it is no mapping
            return dict(opened.metadata() or {}), {name: opened.get_tensor(name) for name in names}
    except OSError as error:
        raise LearnError("PD-L303", f"cannot read {file}: {error.strerror or error}", hint=hint) from None
    except safetensors.SafetensorError as error:
        what = f"{file} is no complete safetensors file"
        raise LearnError("PD-L303", what, why=str(error), hint=hint) from None


def packed(tensors: Mapping[str, Tensor], head: Mapping[str, str] | None = None) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    return bytes(safetensors.torch.save(dict(tensors), dict(head) if head else None))


def unpacked(content: bytes) -> dict[str, Tensor]:
    """The tensors that :func:`packed` wrote; ValueError when the bytes are no safetensors data."""
    try:
        return dict(safetensors.torch.load(content))
    except safetensors.SafetensorError as error:
        raise ValueError(f"no complete safetensors data: {error}") from None


def other_encoder(what: str, wanted: str, encoder: Encoder) -> LearnError:
    return LearnError(
        "PD-L304",
        f"{what} was made with another encoder",
        why=f"it belongs to version {wanted[:16]}; {encoder.name} is of version {encoder.version[:16]} here",
        hint="use the encoder of that version, or train again",
    )


def versions(packages: Mapping[str, str]) -> dict[str, str]:
    """Version of each plugin's package; ``packages``: plugin -> name of the package."""
    return {plugin: _version(package) for plugin, package in packages.items()}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def summary(record: AgentRecord) -> dict[str, Any]:
    """The record as JSON values."""
    data: dict[str, Any] = json.loads(record.model_dump_json(by_alias=True))
    return data
