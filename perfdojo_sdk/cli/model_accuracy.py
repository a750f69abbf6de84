"""``verify`` for a package of a model: its accuracy on the user's data."""

from __future__ import annotations

from collections.abc import Mapping
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
    from perfdojo_sdk.models.manifest import ValueEntry
    from perfdojo_sdk.models.model import Model


def is_package(folder: Path) -> bool:
    """True if a folder holds a model that was built."""
    return (folder / "model.json").is_file() or (folder / "buckets.json").is_file()


def verify_model(
    folder: Path, data: Path | None, original: str | None, most: float, threads: int, as_json: bool
) -> None:
    """Print the errors of a model on data; exit with 4 if one is above ``most`` times the largest value."""
    from perfdojo_sdk.models.accuracy import expected, length_in, measured, samples, saved_graph
    from perfdojo_sdk.models.anywhere import device_of, open_anywhere
    from perfdojo_sdk.models.buckets import BucketedModel, load_model

    if data is None:
        raise typer.BadParameter(f"{folder} is a folder; give inputs of its model: --data INPUTS.npz")
    model = load_model(folder, open_anywhere)
    if isinstance(model, BucketedModel):
        length = length_in(data, model)
        one = model.bucket(length)
        inputs = {name: model.entry(name, length) for name in model.inputs}
        outputs = {name: model.entry(name, length) for name in model.outputs}
    else:
        one, length, inputs, outputs = model, 0, model.inputs, model.outputs
    graph = saved_graph(one) if original is None else _original(original, inputs, outputs)
    found, wanted = [], []
    for number, sample in enumerate(samples(data, inputs, one.manifest.rows), 1):
        progress(f"sample {number}")
        found.append(model.run(sample, threads))
        if isinstance(model, BucketedModel) and original is None:
            padded = expected(graph, model.padded(sample, length), one, threads)
            wanted.append(model.cut(padded, length))
        else:
            wanted.append(expected(graph, sample, one, threads))
    if not found:
        raise typer.BadParameter(f"{data} has no samples")
    results = measured(found, wanted, list(outputs))
    passed = all(result.within(most) for result in results)
    device = device_of(one)
    text = f"{_table(results, most)}\n{_against(len(found), original, one, device)}"
    told = [{**asdict(result), "passed": result.within(most)} for result in results]
    whole = {"model": str(folder), "samples": len(found), "max_error": most, "passed": passed}
    whole |= {"run_by": device or None}
    emit(text, {**whole, "outputs": told}, as_json)
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
            "passed" if r.within(most) else "FAILED" if r.compared else "FAILED: no finite number",
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


def _original(original: str, inputs: Mapping[str, ValueEntry], outputs: Mapping[str, ValueEntry]) -> Graph:
    """The graph of the model that a package was built from, for these inputs and outputs."""
    given: Inputs = {n: (str(entry.dtype), tuple(entry.shape)) for n, entry in inputs.items()}
    found = read(original, given)
    if found.graph is None:
        raise unsupported(Path(original).name, list(found.refused))
    theirs = [[(v.name, v.shape, v.dtype) for v in vs] for vs in (found.graph.inputs, found.graph.results)]
    mine = [[(n, tuple(e.shape), str(e.dtype)) for n, e in d.items()] for d in (inputs, outputs)]
    if theirs != mine:
        raise typer.BadParameter(f"{original} has other inputs or outputs than the package")
    return found.graph
