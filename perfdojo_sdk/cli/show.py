"""``show``: print a program in one of its views."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit
from perfdojo_sdk.cli.model_accuracy import is_package
from perfdojo_sdk.cli.show_model import show_model
from perfdojo_sdk.cli.sources import SourceArgument, TargetOption, open_game, plugins_for
from perfdojo_sdk.core.transformation import line_numbers

if TYPE_CHECKING:
    from perfdojo_sdk.game import Game
    from perfdojo_sdk.plugins import Plugins


class View(StrEnum):
    text = "text"
    math = "math"
    graph = "graph"
    code = "code"


class Format(StrEnum):
    text = "text"
    unicode = "unicode"
    latex = "latex"
    svg = "svg"
    dot = "dot"
    source = "source"


#: View -> the formats in which it can be printed, the default first.
FORMATS = {
    View.text: (Format.text,),
    View.math: (Format.unicode, Format.latex),
    View.graph: (Format.svg, Format.dot),
    View.code: (Format.source,),
}


def command(
    source: SourceArgument,
    target: TargetOption = "",
    view: Annotated[View, typer.Option("--as", help="The program, or another view of it.")] = View.text,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", help="math: unicode, latex; graph: svg, dot (for Graphviz).", show_default=False
        ),
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Name the places that start on each line.")] = False,
    as_json: Json = False,
) -> None:
    """Print a program, a kernel, or a saved game as it stands.

    As text, as mathematics (what its tree computes), as a graph of the flow of data, or as the code
    that its target compiles (plain C for a target that brings no code generator). For the folder of a model
    that was built: what it takes and gives, and how many kernels a call of it runs.
    """
    if is_package(Path(source)):
        if view is not View.text or form is not None:
            raise typer.BadParameter("--as and --format are for programs; SOURCE is a model that was built")
        show_model(Path(source), as_json)
        return
    form = form or FORMATS[view][0]
    if form not in FORMATS[view]:
        raise typer.BadParameter(f"--as {view} has the formats {', '.join(FORMATS[view])}, not {form}")
    plugins = plugins_for(source, target)
    game = open_game(plugins, source, target)
    text = _printed(plugins, game, form, ids)
    data = {
        "name": game.program.name,
        "target": game.target.name,
        "form": view.value,
        "format": form.value,
        "text": text,
        "lines": dict(line_numbers(game.program)),
        "moves": [move.text for move in game.trace.moves],
    }
    emit(text, data, as_json)


def _printed(plugins: Plugins, game: Game, form: Format, ids: bool) -> str:
    from perfdojo_sdk.views import drawing, formula, graph

    program, dialect = game.program, game.rules.dialect
    if form is Format.unicode:
        return formula.unicode_math(program, dialect)
    if form is Format.latex:
        return formula.latex_math(program, dialect)
    if form is Format.svg:
        return drawing.svg(program)
    if form is Format.dot:
        return graph.dot(program)
    if form is Format.source:
        return _code(plugins, game)
    return game.show(ids)


def _code(plugins: Plugins, game: Game) -> str:
    from perfdojo_sdk.core.errors import UnavailableError
    from perfdojo_sdk.views.code import code

    try:
        generator = plugins.guarded_generator(game.target)
    except UnavailableError as error:
        if error.code != "PD-G005":
            raise
        generator = None
    return code(game.program, game.rules.dialect, generator)
