"""``moves``: what can be played now, and why the rest cannot."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, table
from perfdojo_sdk.cli.sources import SourceArgument, TargetOption, open_game, plugins_for
from perfdojo_sdk.core.transformation import Rejection, Step


def command(
    source: SourceArgument,
    target: TargetOption = "",
    every: Annotated[bool, typer.Option("--all", help="List refused moves too, with the reason.")] = False,
    only: Annotated[str, typer.Option("--only", help="Only this transformation.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Print at most so many; 0 prints all.")] = 60,
    as_json: Json = False,
) -> None:
    """List the legal moves with their kinds."""
    game = open_game(plugins_for(source, target), source, target)
    if only:
        game.rules.transformation(only)
    moves = (m for m in game.candidates() if not only or m.transformation == only)
    results = [game.rules.attempt(game.program, move) for move in moves]
    legal = [r for r in results if isinstance(r, Step)]
    refused = [r for r in results if isinstance(r, Rejection)]
    shown: list[Step | Rejection] = [*legal, *refused] if every else [*legal]
    cut = shown[:limit] if limit else shown
    data = {
        "program": game.program.text,
        "legal": len(legal),
        "refused": dict(Counter(r.code for r in refused)),
        "moves": [_data(r) for r in cut],
    }
    emit(_text(cut, len(shown), len(legal), len(refused)), data, as_json)


def _data(result: Step | Rejection) -> dict[str, Any]:
    if isinstance(result, Step):
        return {"move": result.move.text, "legal": True, "kind": result.legal.kind.label}
    return {
        "move": result.move.text,
        "legal": False,
        "code": result.code,
        "title": result.requirement.title,
        "why": result.why,
    }


def _text(shown: list[Step | Rejection], matching: int, legal: int, refused: int) -> str:
    rows = [
        (r.move.text, r.legal.kind.label)
        if isinstance(r, Step)
        else (r.move.text, f"refused {r.code}: {r.requirement.title}; {r.why}")
        for r in shown
    ]
    more = f"\n{matching - len(shown)} more; --limit 0 prints all" if matching > len(shown) else ""
    return f"{table(('move', 'kind'), rows)}\n{legal} legal, {refused} refused{more}"
