"""``apply``: play moves."""

from __future__ import annotations

from typing import Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit, progress
from perfdojo_sdk.cli.movetext import parse_move
from perfdojo_sdk.cli.sources import OutputOption, SourceArgument, TargetOption, open_game, plugins_for, save


def command(
    source: SourceArgument,
    moves: Annotated[
        list[str], typer.Argument(metavar="MOVE", help="Moves, such as 'split_scope(s0, factor=16)'.")
    ],
    target: TargetOption = "",
    output: OutputOption = None,
    as_json: Json = False,
) -> None:
    """Play moves, one after the other, and print the program that results.

    With --output the game is saved; give the same file to go on with a saved game. When a move is
    refused, nothing is saved.
    """
    game = open_game(plugins_for(source, target), source, target)
    for text in moves:
        game = game.apply(parse_move(text, game.rules))
        last = game.trace.steps[-1]
        progress(f"move {len(game.trace.steps) - 1}: {last.move.text} ({last.legal.kind.label})")
    save(game, output)
    emit(game.program.text, {**game.as_json(), "program": game.program.text}, as_json)
