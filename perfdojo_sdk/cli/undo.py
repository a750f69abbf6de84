"""``undo``: take one move out of a game."""

from __future__ import annotations

from typing import Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit, progress
from perfdojo_sdk.cli.sources import OutputOption, SavedGameArgument, plugins_for


def command(
    source: SavedGameArgument,
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", help="The move to take out; `replay` prints the numbers.")
    ],
    output: OutputOption = None,
    as_json: Json = False,
) -> None:
    """Take move NUMBER out of a saved game and keep every later move that still applies.

    Moves that no longer apply are named with the reason. With --output the game is saved.
    """
    from perfdojo_sdk.game import Game

    game, dropped = Game.load(plugins_for(str(source), ""), source).undo(number)
    for each in dropped:
        progress(f"dropped {each.move.text}: {each.reason.what}")
    if output:
        game.save(output)
    data = {
        **game.as_json(),
        "program": game.program.text,
        "dropped": [{"move": d.move.as_json(), "reason": d.reason.as_json()} for d in dropped],
    }
    emit(game.program.text, data, as_json)
