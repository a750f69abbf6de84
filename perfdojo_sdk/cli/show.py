"""``show``: print a program."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit
from perfdojo_sdk.cli.sources import SourceArgument, TargetOption, open_game, plugins_for
from perfdojo_sdk.core.transformation import line_numbers


class Form(StrEnum):
    text = "text"
    source = "source"


def command(
    source: SourceArgument,
    target: TargetOption = "",
    form: Annotated[Form, typer.Option("--as", help="The program, or what the target compiles.")] = Form.text,
    ids: Annotated[bool, typer.Option("--ids", help="Name the places that start on each line.")] = False,
    as_json: Json = False,
) -> None:
    """Print a program, a kernel, or a saved game as it stands."""
    plugins = plugins_for(source, target)
    game = open_game(plugins, source, target)
    program = game.program
    text = game.show(ids)
    if form is Form.source:
        text = plugins.code_generator(game.target).generate(program, f"pd_{program.name}").code
    data = {
        "name": program.name,
        "target": game.target.name,
        "form": form.value,
        "text": text,
        "lines": dict(line_numbers(program)),
        "moves": [move.text for move in game.trace.moves],
    }
    emit(text, data, as_json)
