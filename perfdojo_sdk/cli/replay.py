"""``replay``: play a saved game again."""

from __future__ import annotations

from typing import Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit, table
from perfdojo_sdk.cli.sources import SavedGameArgument, plugins_for


def command(
    source: SavedGameArgument,
    programs: Annotated[bool, typer.Option("--programs", help="Print the program after each move.")] = False,
    as_json: Json = False,
) -> None:
    """Play a saved game again from its initial program, checking every move, and print the result."""
    from perfdojo_sdk.game import Game

    game = Game.load(plugins_for(str(source), ""), source)
    steps = game.trace.steps
    rows = [(n, step.move.text, step.legal.kind.label) for n, step in enumerate(steps)]
    lines = [table(("move", "text", "kind"), rows), ""] if rows else []
    if programs:
        for n, step in enumerate(steps):
            lines += [f"# after move {n}: {step.move.text}", step.after.text]
    else:
        lines.append(game.program.text)
    data = {
        "target": game.target.name,
        "root": game.trace.root.text,
        "kind": game.trace.kind.label,
        "laws": sorted(game.trace.laws),
        "moves": [
            {"number": n, "move": s.move.text, "kind": s.legal.kind.label, "program": s.after.text}
            for n, s in enumerate(steps)
        ],
        "program": game.program.text,
    }
    emit("\n".join(lines), data, as_json)
