"""``show`` for a package of a model: its inputs and outputs, and what a call of it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdojo_sdk.cli.console import emit, memory, table
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.models.buckets import BucketedModel
    from perfdojo_sdk.models.manifest import ModelManifest


def show_model(folder: Path, as_json: bool) -> None:
    """Print what a model that was built takes, gives and runs."""
    from perfdojo_sdk.models.buckets import BucketedModel, load_model

    model = load_model(folder)
    text = model.text if isinstance(model, BucketedModel) else model.manifest.text
    kinds = {**dict.fromkeys(model.inputs, "input"), **dict.fromkeys(model.outputs, "output")}
    arrays = [{"name": name, "kind": kind, "type": text(name)} for name, kind in kinds.items()]
    lines = [f"{model.manifest.name} for {model.manifest.target}"]
    lines.append(table(("array", "kind", "type"), [tuple(each.values()) for each in arrays]))
    data: dict[str, Any] = {"name": model.manifest.name, "target": model.manifest.target, "arrays": arrays}
    if isinstance(model, BucketedModel):
        more, buckets = _buckets(model)
        lines += more
        data |= buckets
    else:
        data |= _calls(model.manifest)
        calls = f"{number_of(data['calls'], 'calls')} of {number_of(data['kernels'], 'kernels')}"
        lines.append(f"{calls}, {memory(model.manifest.block_bytes)} between them")
    data["weights_bytes"] = sum(array.nbytes for array in model.weights.values())
    lines.append(f"{number_of(len(model.weights), 'weights')}, {memory(data['weights_bytes'])}")
    emit("\n".join(lines), data, as_json)


def _buckets(model: BucketedModel) -> tuple[list[str], dict[str, Any]]:
    """The buckets of a model, for a person and for a program."""
    manifest = model.manifest
    pads = {name: manifest.pads.get(name, 0.0) for name in manifest.axes if name in model.inputs}
    calls = {length: _calls(one.manifest) for length, one in model.models.items()}
    rows = [(n, each["calls"], each["kernels"], memory(each["block_bytes"])) for n, each in calls.items()]
    padded = ", ".join(f"{name} with {value:g}" for name, value in pads.items())
    lines = [
        f"any {manifest.dimension} from 1 to {manifest.lengths[-1]}, padded to a bucket: {padded}",
        table((manifest.dimension, "calls", "kernels", "between kernels"), rows),
        *(f"the model {check}" for check in manifest.checks),
    ]
    buckets = {str(length): each for length, each in calls.items()}
    data = {"dimension": manifest.dimension, "pads": pads, "buckets": buckets}
    return lines, {**data, "checks": list(manifest.checks)}


def _calls(manifest: ModelManifest) -> dict[str, Any]:
    kernels = len(set(manifest.kernels))
    return {"calls": len(manifest.nodes), "kernels": kernels, "block_bytes": manifest.block_bytes}
