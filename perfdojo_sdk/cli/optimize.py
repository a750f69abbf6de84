"""``optimize``: from a model to verified kernels in one package."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.build_library import observer
from perfdojo_sdk.cli.console import Json, emit, progress, seconds, table
from perfdojo_sdk.cli.models import MODULE, inputs_of, lowered, unsupported
from perfdojo_sdk.cli.paths import output_option
from perfdojo_sdk.cli.tune import duration
from perfdojo_sdk.core.interface import MAX_THREADS
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.graph.graph import Graph
    from perfdojo_sdk.models.optimise import ModelResult


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A file of ONNX, or FILE.py:NAME of a PyTorch module.")
    ],
    target: Annotated[
        str, typer.Option(help="Build for this target, or for the best that can run here.")
    ] = "best",
    output: Annotated[Path | None, output_option(help="Default: build/models/NAME.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", help="The shape of an input that the model leaves open: x=f32[8,3,224,224]."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="A checkpoint for a PyTorch module: a safetensors file, or the index of several."),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Search, evaluating so many in all, shared by parts of the time."
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Search for so long in all (90s, 30m, 2h), shared so.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=MAX_THREADS, help="Default: all cores.")] = None,
    fuse: Annotated[
        bool, typer.Option(help="Join kernels where that pays; `explain-plan MODEL` says where and why.")
    ] = True,
    freeze: Annotated[
        bool,
        typer.Option(
            "--freeze",
            help="Compute constants now, and fold scales such as batch normalisation into weights: declared"
            " laws, in float64, rounded once.",
        ),
    ] = False,
    most: Annotated[
        int | None,
        typer.Option("--max-memory", min=1, metavar="BYTES", help="Refuse a model whose call needs more."),
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(
            metavar="PEER",
            help="Run what is not supported in torch or onnxruntime, which the package needs then.",
        ),
    ] = None,
    prefer_faster: Annotated[
        str | None,
        typer.Option(
            metavar="PEER",
            help="Race kernels against torch or onnxruntime, which runs what it computes faster; the package"
            " needs it then.",
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say what is supported, and build nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Build a model: lower it to kernels, play, verify and measure each, and package them with the weights.

    What is not supported is listed whole, with reasons, before anything is built; with --fallback, it runs in
    another system, and the same list says what that is. Equal kernels are built
    once. A finished kernel is recorded at once; after an interruption the same command goes on from there.
    Use the result from Python: perfdojo_sdk.load_model("build/models/NAME").
    """
    from perfdojo_sdk.library.settings import Settings
    from perfdojo_sdk.models.budget import Budget
    from perfdojo_sdk.models.optimise import optimise, refused_by
    from perfdojo_sdk.models.peers import require_peer
    from perfdojo_sdk.models.policy import Policy
    from perfdojo_sdk.plugins import load_plugins

    policy = Policy(fallback or "", prefer_faster or "")
    for peer, option in ((policy.fallback, "--fallback"), (policy.prefer_faster, "--prefer-faster")):
        if peer:
            require_peer(peer, option)
    inputs = inputs_of(given or [])
    graph, refused, operators, offers = lowered(model, inputs, policy, weights=weights)
    plugins = load_plugins(targets=[target])
    for problem in plugins.problems:
        progress(f"plugin {problem.plugin} is left out ({problem.stage}): {problem.cause}")
    found = plugins.target(target)
    left = refused_by(plugins, found, graph) if graph is not None else []
    if left and policy.fallback:
        elsewhere = {node: r.what for node, r in left}
        graph, refused, operators, offers = lowered(model, inputs, policy, elsewhere)
        left = refused_by(plugins, found, graph) if graph is not None else []
    rows = [*refused, *((node, "", r.what, r.reason.value) for node, r in left)]
    if listed:
        _list(graph, rows, operators, as_json)
        raise typer.Exit(1 if rows else 0)
    if rows or graph is None:
        progress(table(("node", "operator", "what", "why"), rows, "not supported"))
        raise unsupported(Path(model).name, rows)
    settings = replace(Settings(), threads=threads or Settings().threads)
    budget = None if tune is None and time is None else Budget(tune, duration(time) if time else None)
    folder = output or Path("build", "models", _folder_name(model))
    if graph.foreign:
        progress(_elsewhere(graph))
    progress(
        f"{number_of(len(graph.nodes), 'calls')} of {number_of(len(graph.programs), 'kernels')}"
        f" for {found.name} with {number_of(settings.threads, 'threads')}"
    )
    result = optimise(
        plugins, found, graph, folder, settings, observer(), fuse, freeze, most, policy, offers, budget
    )
    emit(_text(result), _data(result), as_json)


def _folder_name(model: str) -> str:
    module = MODULE.fullmatch(model)
    model = f"{Path(module['file']).stem}_{module['name']}" if module is not None else model
    return re.sub(r"[^A-Za-z0-9_.-]", "_", Path(model).stem)[:100].strip(".") or "model"


def _list(
    graph: Graph | None, rows: Sequence[tuple[str, ...]], operators: Mapping[str, int], as_json: bool
) -> None:
    columns = ("node", "operator", "what", "why")
    kernels = 0 if graph is None else len(graph.programs)
    text = f"{number_of(sum(operators.values()), 'nodes')} of {number_of(len(operators), 'operators')}"
    text += f", {number_of(kernels, 'kernels')}" if graph is not None else ""
    foreign = graph.foreign if graph is not None else ()
    lines = [text, table(columns, rows, "not supported")] if rows else [text]
    if not rows:
        lines.append(_elsewhere(graph) if graph is not None and foreign else "everything is supported")
    parts = [
        {"peer": p.peer, "nodes": list(p.nodes), "why": p.why, "crossing_bytes": graph.crossing(p)}
        for p in foreign
        if graph is not None
    ]
    data = {
        "operators": dict(operators),
        "kernels": kernels,
        "refused": [dict(zip(columns, r)) for r in rows],
        "elsewhere": parts,
    }
    emit("\n".join(lines), data, as_json)


def _elsewhere(graph: Graph) -> str:
    """The parts that peers run, for a person."""
    rows = [(p.peer, p.origin, p.why, f"{graph.crossing(p):,}") for p in graph.foreign]
    return table(("runs in", "nodes", "why", "bytes that cross in a call"), rows, "runs elsewhere")


def _text(result: ModelResult) -> str:
    counts = Counter(result.manifest.kernels)
    rows = []
    for entry in result.library.manifest.kernels if result.library and result.library.manifest else ():
        final = entry.timing.final
        each = final.median_s if final else 0.0
        rows.append((entry.name, counts[entry.name], seconds(each), seconds(each * counts[entry.name])))
    for part in result.manifest.parts.values():
        time = seconds(part.median_s)
        rows.append((f"{part.peer}: {', '.join(part.nodes)}", 1, time, time))
    lines = [table(("kernel", "calls", "time", "together"), rows)] if rows else []
    if parts := result.manifest.parts.values():
        crossing, spent = sum(p.crossing_bytes for p in parts), sum(p.median_s for p in parts)
        peers = " and ".join(sorted({str(p.peer) for p in parts}))
        lines.append(
            f"{number_of(sum(len(p.nodes) for p in parts), 'nodes')} run in {peers}, which the package needs:"
            f" {crossing:,} bytes cross in a call, {seconds(spent)} of its time are there"
        )
    lines += _races(result)
    mib, peak = 2**20, result.peak
    memory = f"weights {peak.weights / mib:.1f}, inputs and outputs {peak.interface / mib:.1f}"
    memory += f", between kernels {peak.between / mib:.1f}, inside of a kernel {peak.inside / mib:.1f}"
    lines.append(f"peak memory of a call: {peak.total / mib:.1f} MiB ({memory})")
    lines.append(f"between kernels: {result.plan.unshared / mib:.1f} MiB if no place were shared")
    folds = len(result.manifest.folds)
    lines += [f"{number_of(folds, 'folds')} of constants, listed in model.json"] if folds else []
    lines += [f"the model {check}" for check in result.checks]
    lines.append("the build took " + ", ".join(f"{k} {s:.1f} s" for k, s in result.seconds.items()))
    lines.append(f"model: {result.directory}")
    return "\n".join(lines)


def _races(result: ModelResult) -> list[str]:
    """The races against a peer, for a person."""
    races = result.manifest.races
    if not races:
        return []
    rows = [
        (
            race.nodes,
            race.calls,
            seconds(race.kernels_s),
            "" if race.peer_s is None else seconds(race.peer_s),
            race.peer or "ours",
            race.why,
        )
        for race in races
    ]
    columns = ("nodes", "calls", "ours", "peer", "runs in", "why")
    lines = [table(columns, rows, "races, measured on this machine; equal kernels raced once")]
    return [*lines, *([result.manifest.verdict] if result.manifest.verdict else [])]


def _data(result: ModelResult) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "directory": str(result.directory),
        "target": manifest.target,
        "kernels": len(set(manifest.kernels)),
        "calls": len(manifest.nodes),
        "races": [race.model_dump(mode="json") for race in manifest.races],
        "verdict": manifest.verdict,
        "elsewhere": {name: part.model_dump(mode="json") for name, part in manifest.parts.items()},
        "block_bytes": result.plan.total,
        "unshared_bytes": result.plan.unshared,
        "peak_bytes": result.peak.total,
        "folds": [fold.what for fold in manifest.folds],
        "checks": list(result.checks),
        "seconds": {name: round(s, 3) for name, s in result.seconds.items()},
    }
