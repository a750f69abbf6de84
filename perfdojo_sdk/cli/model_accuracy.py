"""``verify`` for a package of a model: its accuracy on the user's data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfdojo_sdk.cli.console import emit, progress, table
from perfdojo_sdk.cli.models import Inputs, read, unsupported
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.graph.graph import Graph
    from perfdojo_sdk.models.accuracy import Accuracy
    from perfdojo_sdk.models.model import Model


def is_package(folder: Path) -> bool:
    """True if a folder holds a model that was built."""
    return (folder / "model.json").is_file()


def verify_model(
    folder: Path, data: Path | None, original: str | None, most: float, threads: int, as_json: bool
) -> None:
    """Print the errors of a model on data; exit with 4 if one is above ``most`` times the largest value."""
    from perfdojo_sdk.models.accuracy import expected, measured, samples, saved_graph
    from perfdojo_sdk.models.anywhere import device_of, open_anywhere

    if data is None:
        raise typer.BadParameter(f"{folder} is a folder; give inputs of its model: --data INPUTS.npz")
    model = open_anywhere(folder)
    graph = saved_graph(model) if original is None else _original(original, model)
    found, wanted = [], []
    for number, inputs in enumerate(samples(data, model), 1):
        progress(f"sample {number}")
        found.append(model.run(inputs, threads))
        wanted.append(expected(graph, inputs, model, threads))
    if not found:
        raise typer.BadParameter(f"{data} has no samples")
    results = measured(found, wanted, list(model.outputs))
    passed = all(result.within(most) for result in results)
    device = device_of(model)
    text = f"{_table(results, most)}\n{_against(len(found), original, model, device)}"
    outputs = [{**asdict(result), "passed": result.within(most)} for result in results]
    whole = {"model": str(folder), "samples": len(found), "max_error": most, "passed": passed}
    whole |= {"run_by": device or None}
    emit(text, {**whole, "outputs": outputs}, as_json)
    if not passed:
        raise typer.Exit(VerificationError.exit_code)


def _table(results: tuple[Accuracy, ...], most: float) -> str:
    rows = [
        (
            r.output,
            "elements that differ" if r.exact else "distance",
            f"{r.largest:.3g}",
            f"{r.mean:.3g}",
            "" if r.exact else f"{r.scale:.3g}",
            str(r.misplaced),
            "passed" if r.within(most) else "FAILED",
        )
        for r in results
    ]
    columns = ("output", "error", "largest", "mean", "largest value", "inf or NaN misplaced", "verdict")
    return table(columns, rows)


def _against(count: int, original: str | None, model: Model, device: str) -> str:
    against = original or "the saved programs of the package"
    if original is None and model.manifest.folds:
        against += f" (after its {number_of(len(model.manifest.folds), 'folds')} of constants)"
    peers = " and ".join(sorted({str(part.peer) for part in model.manifest.parts.values()}))
    rest = f"; what {peers} runs ran there, in its own dtypes" if peers else ""
    where = f"; its kernels were run, one after the other, by {device}" if device else ""
    return f"{number_of(count, 'samples')} against {against}, in float64{rest}{where}"


def _original(original: str, model: Model) -> Graph:
    """The graph of the model that a package was built from."""
    inputs: Inputs = {n: (str(entry.dtype), tuple(entry.shape)) for n, entry in model.inputs.items()}
    found = read(original, inputs)
    if found.graph is None:
        raise unsupported(Path(original).name, list(found.refused))
    theirs = [[(v.name, v.shape, v.dtype) for v in vs] for vs in (found.graph.inputs, found.graph.results)]
    mine = [[(n, tuple(e.shape), str(e.dtype)) for n, e in d.items()] for d in (model.inputs, model.outputs)]
    if theirs != mine:
        raise typer.BadParameter(f"{original} has other inputs or outputs than the package")
    return found.graph
