"""``verify``: the three legs of verification on one game."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, progress
from perfdojo_sdk.cli.model_accuracy import is_package, verify_model
from perfdojo_sdk.cli.sources import SourceArgument, TargetOption, compile_game, open_game, plugins_for
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.game import Game
    from perfdojo_sdk.plugins import Plugins
    from perfdojo_sdk.store.records import Verification


def command(
    source: SourceArgument,
    target: TargetOption = "",
    threads: Annotated[int, threads_option(help="Run the compiled kernel on so many.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the models and of the inputs.")] = 0,
    data: Annotated[
        Path | None, typer.Option(help="Inputs of a model (.npz), by their names; SOURCE is its folder then.")
    ] = None,
    original: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="The model that the package was built from; by default, its saved programs."
        ),
    ] = None,
    most: Annotated[
        float,
        typer.Option("--max-error", min=0, help="Allowed error, as a part of an output's largest magnitude."),
    ] = 1e-3,
    as_json: Json = False,
) -> None:
    """Verify a game: exact (random algebraic models), numeric (compiled, against float64), dependence.

    The numeric leg compiles and runs the kernel, so the target must be one that can run here. The
    exit code is 4 when a leg fails.

    For a model (`verify build/models/NAME --data mine.npz`): its outputs beside a run of the original
    programs in float64, with the largest and mean error of each output. An array of the file is an input, or
    many along a new first axis. The exit code is 4 if an error is larger than allowed, or an integer another
    one.
    """
    if data is not None or is_package(Path(source)):
        verify_model(Path(source), data, original, most, threads, as_json)
        return
    plugins = plugins_for(source, target)
    game = open_game(plugins, source, target)
    plugins.require(game.target.name)
    result = three_legs(plugins, game, threads, seed)
    legs = {"exact": result.exact, "numeric": result.numeric, "dependence": result.dependence}
    lines = [f"{name:10}  {'passed' if leg.passed else 'FAILED'}  {leg.detail}" for name, leg in legs.items()]
    kind = f"{number_of(len(game.trace.steps), 'moves')}, {game.trace.kind.label}"
    laws = f" ({', '.join(sorted(game.trace.laws))})" if game.trace.laws else ""
    found: dict[str, Any] = {
        "name": game.program.name,
        "target": game.target.name,
        "kind": game.trace.kind.label,
        "laws": sorted(game.trace.laws),
        "passed": result.passed,
        "legs": {name: leg.model_dump(mode="json") for name, leg in legs.items()},
    }
    emit("\n".join([*lines, f"{game.program.name} for {game.target.name}: {kind}{laws}"]), found, as_json)
    if not result.passed:
        raise typer.Exit(VerificationError.exit_code)


def three_legs(plugins: Plugins, game: Game, threads: int, seed: int) -> Verification:
    """Compile the game's program and put it through every leg."""
    from perfdojo_sdk.library.verification import Subject, verify

    progress("compiling")
    artifact = compile_game(plugins, game)
    progress("verifying")
    runner, accuracy = plugins.guarded_runner(game.target), plugins.math_accuracy(game.target)
    generator = plugins.guarded_generator(game.target)
    return verify(Subject(game.trace, game.rules, artifact, runner, accuracy, threads, seed, generator))
