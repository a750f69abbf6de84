"""``reproduce``: experiments that anybody can repeat by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdojo_sdk.cli.console import Json, emit, progress, table
from perfdojo_sdk.cli.paths import output_option
from perfdojo_sdk.cli.search_options import AgentOption
from perfdojo_sdk.cli.tune import duration
from perfdojo_sdk.core.errors import DojoError, UnavailableError, closest
from perfdojo_sdk.core.files import refuse_links

if TYPE_CHECKING:
    from perfdojo_sdk.hookspecs.services import Experiment, ExperimentRequest, ExperimentResult


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Run this one.", show_default=False)] = "",
    output: Annotated[
        Path | None, output_option(help="For its files; default: build/reproduce/NAME.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="In minutes, with fewer points.")] = False,
    target: Annotated[str, typer.Option(help="On this target, where an experiment is about any.")] = "best",
    kernels: Annotated[
        str, typer.Option(help="With these kernels instead of its own: 'softmax[64,64] matmul'.")
    ] = "",
    budget: Annotated[
        int | None,
        typer.Option(min=1, max=10**6, help="Evaluations of each search in it.", show_default=False),
    ] = None,
    agent: AgentOption = None,
    players: Annotated[
        list[str] | None,
        typer.Option(
            "--player", help="Only this one plays, where several do; may be repeated.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        str,
        typer.Option("--time", help="Stop after 90s, 10m, 2h and show what there is.", show_default=False),
    ] = "",
    as_json: Json = False,
) -> None:
    """List the experiments, or run one, print what it finds and draw it.

    An experiment that was stopped goes on where it was when it runs again with the same folder.
    """
    from perfdojo_sdk.hookspecs.services import ExperimentRequest
    from perfdojo_sdk.plugins import load_plugins

    experiments = load_plugins().experiments
    if not name:
        known = sorted(experiments.values(), key=lambda e: e.name)
        text = table(("experiment", "what it shows"), [(e.name, e.doc) for e in known])
        data = {"experiments": [{"name": e.name, "doc": e.doc} for e in known]}
        emit(text if known else "there is no experiment", data, as_json)
        return
    if name not in experiments:  # the prefix may be left out where one plugin alone has the rest
        meant = [known for known in experiments if known.rpartition("/")[2] == name]
        name = meant[0] if len(meant) == 1 else name
    if name not in experiments:
        hint = closest(name, list(experiments))
        raise UnavailableError("PD-G009", f"unknown experiment {name!r}", hint=hint)
    folder = output or Path("build", "reproduce", *name.split("/"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder, os.listdir(folder))
    except OSError as error:
        what = f"cannot write to {folder}: {error.strerror}"
        raise DojoError("PD-C011", what, hint="choose another folder with --output") from None
    seconds = duration(limit) if limit else None
    some = tuple(players or ())
    request = ExperimentRequest(folder, quick, target, kernels, budget, progress, agent, seconds, some)
    result = _run(experiments[name], request)
    files = [str(file) for file in result.files]
    text = "\n".join([result.text.rstrip("\n"), *(f"wrote {file}" for file in files)])
    emit(text, {"name": name, "quick": quick, "result": dict(result.data), "files": files}, as_json)


def _run(experiment: Experiment, request: ExperimentRequest) -> ExperimentResult:
    """Run a plugin's code; whatever goes wrong there is an error that names the experiment."""
    from perfdojo_sdk.hookspecs.services import ExperimentResult

    what = f"experiment {experiment.name} failed"
    try:
        result = experiment.run(request)
    except DojoError:
        raise
    except Exception as error:
        raise UnavailableError("PD-G010", what, why=f"{type(error).__name__}: {error}") from error
    if not isinstance(result, ExperimentResult):
        raise UnavailableError("PD-G010", what, why=f"it returned {type(result).__name__}")
    return result
