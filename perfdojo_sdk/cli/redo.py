"""``redo``: put back what ``undo`` took out."""

from __future__ import annotations

from perfdojo_sdk.cli.console import Json, emit
from perfdojo_sdk.cli.sources import OutputOption, SavedGameArgument, plugins_for, save


def command(source: SavedGameArgument, output: OutputOption = None, as_json: Json = False) -> None:
    """Put back what the last `undo` took out of a saved game, the moves that it dropped included.

    The game is then exactly what it was. A game remembers every undo until another move is played.
    """
    from perfdojo_sdk.game import Game

    game = Game.load(plugins_for(str(source), ""), source).redo()
    save(game, output)
    emit(game.program.text, {**game.as_json(), "program": game.program.text}, as_json)
