"""``optimize``: from a model to verified kernels in one package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.build_library import observer
from perfdojo_sdk.cli.console import Json, emit, progress, seconds, table
from perfdojo_sdk.cli.paths import output_option
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.interface import MAX_THREADS
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.graph.graph import Graph
    from perfdojo_sdk.models.optimise import ModelResult

_INPUT = re.compile(r"(?P<name>[^=]{1,1000})=(?:(?P<dtype>[a-z0-9]+)?\[(?P<sizes>[0-9, ]*)\])")

#: A module of PyTorch in a file.
_MODULE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")


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
    tune: Annotated[
        int | None, typer.Option(min=1, metavar="BUDGET", help="Search, evaluating so many for each kernel.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=MAX_THREADS, help="Default: all cores.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say what is supported, and build nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Build a model: lower it to kernels, play, verify and measure each, and package them with the weights.

    What is not supported is listed whole, with reasons, before anything is built. Equal kernels are built
    once. A finished kernel is recorded at once; after an interruption the same command goes on from there.
    Use the result from Python: perfdojo_sdk.load_model("build/models/NAME").
    """
    from perfdojo_sdk.library.settings import Settings
    from perfdojo_sdk.models.optimise import optimise, refused_by
    from perfdojo_sdk.plugins import load_plugins
    from perfdojo_sdk.search.strategies import AUTO

    graph, refused, operators = _lowered(model, _inputs(given or []))
    plugins = load_plugins(targets=[target])
    for problem in plugins.problems:
        progress(f"plugin {problem.plugin} is left out ({problem.stage}): {problem.cause}")
    found = plugins.target(target)
    rows = list(refused)
    if graph is not None:
        rows += [(node, "", r.what, r.reason.value) for node, r in refused_by(plugins, found, graph)]
    if listed:
        _list(graph, rows, operators, as_json)
        raise typer.Exit(1 if rows else 0)
    if rows or graph is None:
        progress(table(("node", "operator", "what", "why"), rows, "not supported"))
        raise _unsupported(Path(model).name, rows)
    settings = replace(Settings(), threads=threads or Settings().threads)
    if tune is not None:
        settings = replace(settings, search=AUTO, evaluations=tune)
    folder = output or Path("build", "models", _folder_name(model))
    progress(
        f"{number_of(len(graph.nodes), 'calls')} of {number_of(len(graph.programs), 'kernels')}"
        f" for {found.name} with {number_of(settings.threads, 'threads')}"
    )
    result = optimise(plugins, found, graph, folder, settings, observer())
    emit(_text(result), _data(result), as_json)


_Inputs = dict[str, tuple[str, tuple[int, ...]]]
"""Input -> its dtype, or nothing if that is left out, and its shape."""
_Row = tuple[str, str, str, str]
"""Node, operator, what, and why."""


def _lowered(model: str, inputs: _Inputs) -> tuple[Graph | None, Sequence[_Row], Any]:
    module = _MODULE.fullmatch(model)
    try:
        if module is not None:
            return _of_torch(Path(module["file"]), module["name"], inputs)
        from perfdojo_sdk.frontends.onnx.lowering import lower
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("onnx", "ml_dtypes", "google", "torch"):
            raise
        kind = "torch" if module is not None else "onnx"
        what = f"models of {'PyTorch' if module is not None else 'ONNX'} need the package {kind}"
        raise UnavailableError("PD-O015", what, hint=f"pip install 'perfdojo-sdk[{kind}]'") from None
    lowered = lower(Path(model), {name: shape for name, (_, shape) in inputs.items()})
    rows = [(r.node, r.operator, r.what, r.reason.value) for r in lowered.refusals]
    return lowered.graph, rows, lowered.operators


def _of_torch(path: Path, name: str, inputs: _Inputs) -> tuple[Graph | None, Sequence[_Row], Any]:
    from perfdojo_sdk.frontends.torch.packaging import exported_file

    given = {n: (dtype or "f32", shape) for n, (dtype, shape) in inputs.items()}
    made = exported_file(path, name, given)
    rows = [(e.node, e.operator, e.reason, "it has no kernel") for e in made.elsewhere]
    return made.graph, rows, made.operators


def _unsupported(name: str, rows: Sequence[tuple[str, ...]]) -> Exception:
    from perfdojo_sdk.core.errors import DojoError

    kinds = sorted({row[3] for row in rows})
    what = f"{number_of(len(rows), 'parts')} of {name} are not supported"
    return DojoError("PD-O004", what, why="; ".join(kinds), hint="the table above says where and why")


def _inputs(given: Sequence[str]) -> _Inputs:
    """Dtypes and shapes of inputs, such as ``x=f32[8,3]`` or ``x=[8,3]``."""
    found: _Inputs = {}
    for text in given:
        match = _INPUT.fullmatch(text.strip())
        sizes = [s.strip() for s in match["sizes"].split(",")] if match and match["sizes"].strip() else []
        if match is None or not all(s.isdigit() and len(s) <= 12 for s in sizes):
            raise typer.BadParameter(f"{text[:80]!r} is no input; write for example x=f32[8,3,224,224]")
        found[match["name"]] = (match["dtype"] or "", tuple(map(int, sizes)))
    return found


def _folder_name(model: str) -> str:
    module = _MODULE.fullmatch(model)
    model = f"{Path(module['file']).stem}_{module['name']}" if module is not None else model
    return re.sub(r"[^A-Za-z0-9_.-]", "_", Path(model).stem)[:100].strip(".") or "model"


def _list(
    graph: Graph | None, rows: Sequence[tuple[str, ...]], operators: dict[str, int], as_json: bool
) -> None:
    columns = ("node", "operator", "what", "why")
    kernels = 0 if graph is None else len(graph.programs)
    text = f"{number_of(sum(operators.values()), 'nodes')} of {number_of(len(operators), 'operators')}"
    text += f", {number_of(kernels, 'kernels')}" if graph is not None else ""
    lines = [text, table(columns, rows, "not supported") if rows else "everything is supported"]
    data = {"operators": operators, "kernels": kernels, "refused": [dict(zip(columns, r)) for r in rows]}
    emit("\n".join(lines), data, as_json)


def _text(result: ModelResult) -> str:
    counts: dict[str, int] = {}
    for node in result.manifest.nodes:
        counts[node.kernel] = counts.get(node.kernel, 0) + 1
    rows = []
    for entry in result.library.manifest.kernels if result.library and result.library.manifest else ():
        final = entry.timing.final
        each = final.median_s if final else 0.0
        rows.append((entry.name, counts[entry.name], seconds(each), seconds(each * counts[entry.name])))
    lines = [table(("kernel", "calls", "time", "together"), rows)] if rows else []
    mib = 2**20
    lines.append(
        f"memory between kernels: {result.plan.total / mib:.1f} MiB,"
        f" {result.plan.unshared / mib:.1f} MiB if no place were shared"
    )
    lines += [f"the model {check}" for check in result.checks]
    lines.append("the build took " + ", ".join(f"{k} {s:.1f} s" for k, s in result.seconds.items()))
    lines.append(f"model: {result.directory}")
    return "\n".join(lines)


def _data(result: ModelResult) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "directory": str(result.directory),
        "target": manifest.target,
        "kernels": len({node.kernel for node in manifest.nodes}),
        "calls": len(manifest.nodes),
        "block_bytes": result.plan.total,
        "unshared_bytes": result.plan.unshared,
        "checks": list(result.checks),
        "seconds": {name: round(s, 3) for name, s in result.seconds.items()},
    }
