"""``undo``: take one move out of a game."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, progress
from perfdojo_sdk.cli.sources import OutputOption, SavedGameArgument, plugins_for, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfdojo_sdk.core.history import Dropped
    from perfdojo_sdk.game import Game

NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", help="A move; `replay` prints the numbers.")]


def command(
    source: SavedGameArgument, number: NumberArgument, output: OutputOption = None, as_json: Json = False
) -> None:
    """Take move NUMBER out of a saved game and keep every later move that still applies.

    Moves that no longer apply are named with the reason. With --output the game is saved; `redo` then
    puts everything back.
    """
    from perfdojo_sdk.game import Game

    game, dropped = Game.load(plugins_for(str(source), ""), source).undo(number)
    save(game, output)
    emit(game.program.text, changed(game, dropped), as_json)


def changed(game: Game, dropped: Sequence[Dropped]) -> dict[str, Any]:
    """A game after a change, as data; what the change dropped is told at once."""
    for each in dropped:
        progress(f"dropped move {each.position}, {each.move.text}: {each.reason.what}")
        if each.reason.why:
            progress(f"   why: {each.reason.why}")
    return {
        **game.as_json(),
        "program": game.program.text,
        "dropped": [
            {"number": d.position, "move": d.move.as_json(), "reason": d.reason.as_json()} for d in dropped
        ],
    }
