"""``agents``: what stands in the file of a trained agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit


def command(
    agent: Annotated[Path, typer.Argument(metavar="FILE", help="An agent that `train` wrote.")],
    as_json: Json = False,
) -> None:
    """Say what a trained agent is: its encoder, its settings, and what it was trained on."""
    from perfdojo_sdk.perfllm.strategies import require_learning

    require_learning()
    from perfdojo_sdk.perfllm.agents import read, summary

    record, tensors = read(agent)
    card, count = record.card, sum(t.numel() for t in tensors.values())
    lines = [
        f"encoder: {record.encoder}, version {record.encoder_version[:16]}, {record.width} wide",
        f"network: {count} parameters; " + ", ".join(f"{k}={v}" for k, v in _pieces(record.settings)),
        f"trained for {', '.join(card.targets) or 'nothing'} by perfdojo-sdk {record.sdk}:",
        *(f"  {kernel}" for kernel in card.kernels),
        f"{card.evaluations} evaluations, {card.remembered} transitions, {card.steps} steps of learning",
    ]
    emit("\n".join([*lines, *([card.notes] if card.notes else [])]), summary(record), as_json)


def _pieces(settings: object) -> list[tuple[str, object]]:
    names = ("objective", "double", "duelling", "bounds", "scale", "gamma", "hidden")
    return [(name, getattr(settings, name)) for name in names]
