"""``agents``: what stands in the file of a trained agent, and which come with the SDK."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.strategies import ShippedAgent


def command(
    agent: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="An agent that `train` wrote; without it: those of the SDK."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a trained agent is: its encoder, its settings, and what it was trained on."""
    from perfdojo_sdk.perfllm.strategies import every_shipped, require_learning

    if agent is None:
        emit("\n".join(_line(each) for each in every_shipped()), _data(every_shipped()), as_json)
        return
    require_learning()
    from perfdojo_sdk.perfllm.agent_files import read, summary

    record, tensors = read(agent)
    card, count = record.card, sum(t.numel() for t in tensors.values())
    lines = [
        f"encoder: {record.encoder}, version {record.encoder_version[:16]}, {record.width} wide",
        f"network: {count} parameters; " + ", ".join(f"{k}={v}" for k, v in _pieces(record.settings)),
        f"trained for {', '.join(card.targets) or 'nothing'} by perfdojo-sdk {record.sdk}:",
        *(f"  {kernel}" for kernel in card.kernels),
        f"{number_of(card.evaluations, 'evaluations')}, {number_of(card.remembered, 'transitions')}, "
        f"{number_of(card.steps, 'steps')} of learning",
    ]
    emit("\n".join([*lines, *([card.notes] if card.notes else [])]), summary(record), as_json)


def _line(agent: ShippedAgent) -> str:
    lines = [f"{agent.file}, helps on {', '.join(sorted(agent.helps_on))}"]
    pairs = [name.split(" on ") for name in sorted(agent.learned)]
    for target in sorted({target for _, target in pairs}):
        operators = ", ".join(operator for operator, there in pairs if there == target)
        lines += textwrap.wrap(f"{target}: {operators}", 100, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


def _data(agents: Sequence[ShippedAgent]) -> dict[str, object]:
    described = [(str(a.file), sorted(a.helps_on), sorted(a.learned)) for a in agents]
    return {"agents": [{"file": f, "helps_on": h, "learned": kernels} for f, h, kernels in described]}


def _pieces(settings: object) -> list[tuple[str, object]]:
    names = ("objective", "double", "duelling", "bounds", "scale", "gamma", "hidden")
    return [(name, getattr(settings, name)) for name in names]
