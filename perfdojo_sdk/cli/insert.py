"""``insert``: play a move in the middle of a game."""

from __future__ import annotations

from typing import Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit
from perfdojo_sdk.cli.movetext import parse_move
from perfdojo_sdk.cli.sources import OutputOption, SavedGameArgument, plugins_for, save
from perfdojo_sdk.cli.undo import NumberArgument, changed


def command(
    source: SavedGameArgument,
    number: NumberArgument,
    move: Annotated[
        str, typer.Argument(metavar="MOVE", help="A move, such as 'split_scope(s0, factor=16)'.")
    ],
    output: OutputOption = None,
    as_json: Json = False,
) -> None:
    """Play MOVE before move NUMBER of a saved game and keep every later move that still applies.

    Moves that no longer apply are named with the reason. With --output the game is saved.
    """
    from perfdojo_sdk.game import Game

    game = Game.load(plugins_for(str(source), ""), source)
    game, dropped = game.insert(number, parse_move(move, game.rules))
    save(game, output)
    emit(game.program.text, changed(game, dropped), as_json)
