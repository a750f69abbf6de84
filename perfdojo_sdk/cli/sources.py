"""Resolution of a command's argument to a saved game, a program in a file, or a kernel.

``GAME.json`` is a saved game, ``FILE.dojo`` a program, anything else a kernel such as
``matmul[64,64,64]``. All of them open as games; a program alone is a game without moves.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdojo_sdk.cli.console import progress
from perfdojo_sdk.cli.paths import output_option
from perfdojo_sdk.core.errors import UnavailableError, VerificationError
from perfdojo_sdk.core.transformation import Rules

if TYPE_CHECKING:
    from perfdojo_sdk.game import Game
    from perfdojo_sdk.hookspecs.types import Artifact, Target
    from perfdojo_sdk.kernels.selection import Kernel
    from perfdojo_sdk.plugins import Plugins

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A saved game (GAME.json), a program (FILE.dojo) or a kernel.")
]
TargetOption = Annotated[
    str,
    typer.Option(
        help="Play for this target; by default the best that this machine can run.", show_default=False
    ),
]
SavedGameArgument = Annotated[Path, typer.Argument(metavar="GAME", help="A saved game (GAME.json).")]
OutputOption = Annotated[
    Path | None, output_option(help="Save the game in this file; a missing folder is made.")
]


def plugins_for(source: str, target: str) -> Plugins:
    """The plugins that playing ``source`` needs; without a target, any of them may bring the best one."""
    from perfdojo_sdk.game import read_saved
    from perfdojo_sdk.plugins import load_plugins

    if is_saved_game(source):
        target = read_saved(Path(source)).target
    return load_plugins(targets=[target] if target else None)


def is_saved_game(source: str) -> bool:
    return source.lower().endswith(".json")


def open_game(plugins: Plugins, source: str, target: str = "") -> Game:
    """The game that ``source`` names. A saved game is for the target that it was saved with."""
    from perfdojo_sdk.game import Game

    if not is_saved_game(source):
        found = choose_target(plugins, target)
        return Game.new(plugins, found.name, one_kernel(plugins, source, found).program)
    game = Game.load(plugins, Path(source))
    if target and target != game.target.name:
        raise typer.BadParameter(f"{source} is a game for {game.target.name}, not for {target}")
    return game


def save(game: Game, output: Path | None) -> None:
    """Save a game where ``--output`` says, if it does; say where, and which folder was made for it."""
    if output is None:
        return
    new = "" if output.parent.is_dir() else f", in the new folder {output.parent}"
    game.save(output)
    progress(f"saved as {output}{new}")


def one_kernel(plugins: Plugins, source: str, target: Target) -> Kernel:
    """The one kernel that ``source`` names."""
    from perfdojo_sdk.kernels.selection import SelectionError, select

    kernels = select(source, plugins.operators_for(target), target.dialect)
    if len(kernels) > 1:
        sizes = [f"{k.operator}[{','.join(str(size) for _, size in k.sizes)}]" for k in kernels]
        raise SelectionError(
            "PD-C008", f"{source} names {len(kernels)} kernels", hint=f"choose {' or '.join(sizes)}"
        )
    return kernels[0]


def choose_target(plugins: Plugins, name: str) -> Target:
    """The target called ``name``; without a name, the best one. Playing needs no machine that runs it."""
    if name:
        return plugins.target(name)
    try:
        return plugins.target("best")
    except UnavailableError:
        if not plugins.targets:
            raise
    best = max(plugins.targets.values(), key=lambda t: (t.capabilities.rank, t.name))
    return plugins.target(best.name)


def compile_game(plugins: Plugins, game: Game) -> Artifact:
    """The game's program, compiled for its target."""
    from perfdojo_sdk.hookspecs.types import Failure

    source = plugins.guarded_generator(game.target).generate(game.program, f"pd_{game.program.name}")
    artifact = plugins.guarded_runner(game.target).compile(source)
    if isinstance(artifact, Failure):
        what = f"{game.program.name} does not compile for {game.target.name}"
        hint = (
            "`perfdojo-sdk show SOURCE --as code` prints what was compiled; "
            f"`perfdojo-sdk plugins doctor --target {game.target.name}` tries the compiler"
        )
        raise VerificationError("PD-C006", what, why=f"{artifact.reason}: {artifact.detail}", hint=hint)
    return artifact


def rules_for(plugins: Plugins, target: str) -> Rules:
    """The rules of a target; the core's own where no plugin brings a target."""
    from perfdojo_sdk.core.dialect import CORE_DIALECT
    from perfdojo_sdk.core.transformations import GENERIC

    if not target and not plugins.targets:
        return Rules(CORE_DIALECT, GENERIC)
    return plugins.rules(choose_target(plugins, target))
