"""``optimize``: from a model to verified kernels in one package."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.build_library import observer
from perfdojo_sdk.cli.console import Json, emit, memory, progress, seconds, table
from perfdojo_sdk.cli.explain_plan import decision
from perfdojo_sdk.cli.kernel_table import kernel_data, kernel_lines
from perfdojo_sdk.cli.models import MODULE, buckets_of, inputs_of, numbers_of, read, unsupported
from perfdojo_sdk.cli.paths import output_option
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.cli.tune import duration
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.cli.models import Read
    from perfdojo_sdk.graph.graph import Graph
    from perfdojo_sdk.library.manifest import KernelEntry
    from perfdojo_sdk.models.bucketing import BucketsResult
    from perfdojo_sdk.models.budget import Spent
    from perfdojo_sdk.models.optimise import ModelResult
    from perfdojo_sdk.models.shortening import Shortened


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
        typer.Option(
            "--input",
            help="The shape of an input that the model leaves open: x=f32[8,3,224,224]. A name for the"
            " outermost size, x=f32[batch,128], leaves it free: the model then takes any number of rows.",
        ),
    ] = None,
    buckets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LENGTHS",
            help="Lengths of a size that inputs give a name, such as seq=16,32,64: a call of any length up to"
            " the largest runs in the next larger one, on padded inputs.",
        ),
    ] = None,
    pad: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=VALUE",
            help="The value that a mask is padded with, so that it hides the padding. Others get zeros.",
        ),
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS",
            help="Numbers of rows that kernels are built for if rows are free. Default: 1,4,16,64.",
        ),
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(min=1, max=2**40, help="Most free rows of a call. Default: 65536.")
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
    threads: Annotated[int | None, threads_option(help="Default: all cores.")] = None,
    fuse: Annotated[
        bool, typer.Option(help="Join kernels where that pays; `explain-plan MODEL` says where and why.")
    ] = True,
    freeze: Annotated[
        bool,
        typer.Option(
            "--freeze",
            help="Compute constants now, fold scales such as batch normalisation into weights, leave out"
            " products with weights of zero: declared laws, in float64, rounded once.",
        ),
    ] = False,
    most: Annotated[
        int | None,
        typer.Option("--max-memory", min=1, metavar="BYTES", help="Refuse a model whose call needs more."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="int8|int4|bf16",
            help="Give up precision: products of shorter numbers, where --calibrate and --max-error allow it;"
            " implies --freeze.",
        ),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option("--calibrate", metavar="FILE.npz", help="Inputs to quantise and to judge by: x=..."),
    ] = None,
    max_error: Annotated[
        float,
        typer.Option(
            "--max-error",
            min=0.0,
            max=1.0,
            metavar="REL",
            help="How far a layer and the model may be from float64, relative to the largest value.",
        ),
    ] = 0.05,
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

    What is not supported is listed whole, with reasons, before anything is built; with --fallback, it runs
    in another system, and the same list says what that is. Equal kernels are built once. A finished kernel
    is recorded at once; after an interruption the same command goes on from there.
    Use the result from Python: perfdojo_sdk.load_model("build/models/NAME").
    """
    from perfdojo_sdk.core.errors import DojoError
    from perfdojo_sdk.core.transformation import Kind
    from perfdojo_sdk.graph.calibration import BF16, SHORTER
    from perfdojo_sdk.library.settings import Settings
    from perfdojo_sdk.models.anywhere import open_anywhere
    from perfdojo_sdk.models.blocks import SIZES
    from perfdojo_sdk.models.bucketing import optimise_buckets
    from perfdojo_sdk.models.budget import Budget, Counting
    from perfdojo_sdk.models.cache import CacheUse, KernelCache
    from perfdojo_sdk.models.free_rows import optimise_rows
    from perfdojo_sdk.models.optimise import optimise, refused_by
    from perfdojo_sdk.models.peers import require_peer
    from perfdojo_sdk.models.policy import Policy
    from perfdojo_sdk.models.shortening import error_of, read_samples, reference_of, shortened
    from perfdojo_sdk.models.whole_checks import runs_of
    from perfdojo_sdk.plugins import load_plugins
    from perfdojo_sdk.search.strategies import AUTO

    if dtype is not None and dtype not in SHORTER:
        what = f"no model is brought to --dtype {ascii(dtype)[1:-1][:40]}"
        raise DojoError("PD-O061", what, hint=f"the dtypes are {', '.join(SHORTER)}")
    if dtype is not None and calibrate is None:
        hint = f"--dtype {dtype} --calibrate data.npz, with an array for each input of the model"
        raise DojoError("PD-O061", "--dtype needs --calibrate FILE.npz", hint=hint)
    if calibrate is not None and dtype is None:
        raise typer.BadParameter(f"--calibrate is for --dtype {'|'.join(SHORTER)}")
    policy = Policy(fallback or "", prefer_faster or "")
    for peer, option in ((policy.fallback, "--fallback"), (policy.prefer_faster, "--prefer-faster")):
        if peer:
            require_peer(peer, option)
            if dtype is not None:
                raise DojoError("PD-O061", f"--dtype beside {option}", hint="leave one of them out")
    sizes = numbers_of(blocks) if blocks else SIZES
    inputs = inputs_of(given or [])
    if pad and not buckets:
        raise typer.BadParameter("--pad is for models with buckets: --buckets seq=16,32,64")
    chosen = buckets_of(buckets, pad or []) if buckets else None
    if chosen is not None and (dtype or fallback or prefer_faster):
        option = "--dtype" if dtype else "--fallback" if fallback else "--prefer-faster"
        raise DojoError("PD-O054", f"--buckets beside {option}", hint="leave one of them out")
    plugins = load_plugins(targets=[target])  # before the model, for which PyTorch may be imported
    for problem in plugins.problems:
        progress(f"plugin {problem.plugin} is left out ({problem.stage}): {problem.cause}")
    found = plugins.target(target)
    asked = read(model, inputs, max_rows, policy, weights=weights, buckets=chosen)
    graph = asked.graph
    if dtype is not None and asked.free is not None:
        what = f"--dtype for a model whose size {asked.free.name} is open"
        raise DojoError("PD-O061", what, hint="give every size of the inputs: --input NAME=DTYPE[SIZES]")
    if graph is not None and asked.free is None and (blocks or max_rows):
        option = "--blocks" if blocks else "--max-rows"
        hint = "leave a size of an input open, as in --input 'x=f32[batch,64]'"
        raise typer.BadParameter(f"{option} is for models with any number of rows: {hint}")
    left = refused_by(plugins, found, graph or asked.rest)
    if left and policy.fallback:
        asked = read(model, inputs, max_rows, policy, {node: r.what for node, r in left})
        graph = asked.graph
        left = refused_by(plugins, found, graph or asked.rest)
    rows = [*asked.refused, *((node, asked.named.get(node, ""), r.what, r.reason.value) for node, r in left)]
    if listed:
        _list(asked, rows, as_json)
        raise typer.Exit(1 if rows else 0)
    if rows or graph is None:
        refused = unsupported(Path(model).name, rows)
        raise asked.dependent or refused
    settings = replace(Settings(), threads=threads or Settings().threads)
    budget = None if tune is None and time is None else Budget(tune, duration(time) if time else None)
    use = CacheUse(KernelCache())
    folder = output or Path("build", "models", _folder_name(model))
    if asked.lengths is not None:
        progress(f"buckets of {asked.lengths.name}: {', '.join(map(str, asked.lengths.buckets))}")
    if asked.free is not None:
        progress(f"{asked.free.name} is free: kernels for {', '.join(map(str, sizes))} rows")
    if graph.foreign:
        progress(_elsewhere(graph))
    progress(
        f"{number_of(len(graph.nodes), 'calls')} of {number_of(len(graph.programs), 'kernels')}"
        f"{' before fusion,' if fuse else ''} for {found.name} with {number_of(settings.threads, 'threads')}"
    )
    if not graph.nodes:
        progress(_nothing_to_build(graph))
    if asked.lengths is not None and asked.free is None:
        share = len(asked.lengths.buckets)
        budget = budget and Budget(
            budget.evaluations and max(1, budget.evaluations // share),
            budget.seconds and budget.seconds / share,
        )
        with_buckets = optimise_buckets(
            plugins, found, asked.lengths, folder, settings, observer(), fuse, freeze, most, budget, use=use
        )
        emit(_buckets_text(with_buckets), _buckets_data(with_buckets), as_json)
        return
    if asked.free is not None:
        if time is not None:
            raise typer.BadParameter("--time needs fixed sizes; with free rows, use --tune")
        if tune is not None:  # blocks share kernels, so that shares by time are not known
            each = max(1, tune // (len(sizes) * len(graph.programs)))
            settings = replace(settings, search=AUTO, evaluations=each)
        if asked.lengths is not None:
            with_buckets = optimise_buckets(
                plugins,
                found,
                asked.lengths,
                folder,
                settings,
                observer(),
                fuse,
                freeze,
                most,
                sizes=sizes,
                use=use,
            )
            emit(_buckets_text(with_buckets), _buckets_data(with_buckets), as_json)
            return
        counting = Counting(observer())
        result = optimise_rows(
            plugins, found, asked.free, folder, settings, counting, fuse, freeze, most, sizes, use
        )
        text, data = _text(result), _data(result)
        if tune is not None:
            text += f"\nthe search used {counting.evaluations} of {number_of(tune, 'evaluations')}"
            data |= {"search": {"evaluations": counting.evaluations}}
        emit(text, data, as_json)
        return
    if dtype is None:
        result = optimise(
            plugins, found, graph, folder, settings, observer(), fuse, freeze, most,
            policy=policy, offers=asked.offers, budget=budget, use=use,
        )  # fmt: skip
        emit(_text(result), _data(result), as_json)
        return
    if dtype == BF16:
        settings = replace(settings, most=Kind.CHANGES_PRECISION)
    samples = read_samples(calibrate, graph) if calibrate is not None else []
    run = runs_of(plugins, found)
    made = shortened(graph, samples, dtype, max_error, run)
    kept = sum(choice.quantised for choice in made.choices)
    progress(f"{dtype}: {kept} of {number_of(len(made.choices), 'layers')}")
    result = optimise(
        plugins, found, made.graph, folder, settings, observer(), fuse, True, most,
        declared=made.folds, budget=budget, use=use,
    )  # fmt: skip
    built = open_anywhere(folder, plugins)
    meant = reference_of(graph, samples, run)
    pairs = zip(samples, meant, strict=True)
    error = max(error_of(built.run(sample), outputs) for sample, outputs in pairs)
    emit(
        _accuracy(made, dtype, error, max_error) + "\n" + _text(result),
        _data(result) | {"error": error, "layers": [asdict(choice) for choice in made.choices]},
        as_json,
    )


def _accuracy(made: Shortened, dtype: str, error: float, most: float) -> str:
    rows = [(c.where, f"{c.error:.2%}", dtype if c.quantised else "float") for c in made.choices]
    lines = [table(("layer", f"error as {dtype}", "computed in"), rows)]
    beyond = (
        ", more than was allowed: the model itself, in float, may be that far off" if error > most else ""
    )
    lines.append(f"largest error of the model against float64 on the samples: {error:.3%}{beyond}")
    return "\n".join(lines)


def _nothing_to_build(graph: Graph) -> str:
    """A note on a model without kernels."""
    empty = [value for value in graph.outputs if not value.elements]
    if len(empty) < len(graph.outputs):
        return "note: nothing is computed: the results are inputs and constants"
    given = [value.text for value in graph.inputs if not value.elements]
    why = f", since an input has no elements ({', '.join(given)})" if given else ""
    return f"note: nothing is computed: the results are empty{why}; the model returns empty arrays"


def _folder_name(model: str) -> str:
    module = MODULE.fullmatch(model)
    model = f"{Path(module['file']).stem}_{module['name']}" if module is not None else model
    return re.sub(r"[^A-Za-z0-9_.-]", "_", Path(model).stem)[:100].strip(".") or "model"


def _list(asked: Read, rows: Sequence[tuple[str, ...]], as_json: bool) -> None:
    columns = ("node", "operator", "what", "why")
    graph, operators = asked.graph, dict(asked.operators)
    kernels = 0 if graph is None else len(graph.programs)
    text = f"{number_of(sum(operators.values()), 'nodes')} of {number_of(len(operators), 'operators')}"
    text += f", {number_of(kernels, 'kernels')} before fusion" if graph is not None else ""
    foreign = graph.foreign if graph is not None else ()
    lines = [text, table(columns, rows, "not supported")] if rows else [text]
    if not rows:
        lines.append(_elsewhere(graph) if graph is not None and foreign else "everything is supported")
    free = asked.free.name if asked.free is not None else None
    lines += [f"the outermost size {free} is free: 1 to {asked.free.most} rows"] if asked.free else []
    lengths = asked.lengths
    lines += [f"buckets of {lengths.name}: {', '.join(map(str, lengths.buckets))}"] if lengths else []
    listed = [dict(zip(columns, r)) for r in rows]
    parts = [
        {"peer": p.peer, "nodes": list(p.nodes), "why": p.why, "crossing_bytes": graph.crossing(p)}
        for p in foreign
        if graph is not None
    ]
    data = {"operators": operators, "kernels": kernels, "free": free, "refused": listed, "elsewhere": parts}
    data |= {"buckets": list(lengths.buckets)} if lengths else {}
    emit("\n".join(lines), data, as_json)


def _elsewhere(graph: Graph) -> str:
    """The parts that peers run, for a person."""
    rows = [(p.peer, p.origin, p.why, f"{graph.crossing(p):,}") for p in graph.foreign]
    return table(("runs in", "nodes", "why", "bytes that cross in a call"), rows, "runs elsewhere")


def _entries(result: ModelResult) -> tuple[KernelEntry, ...]:
    """The kernels of the model's library."""
    return result.library.manifest.kernels if result.library and result.library.manifest else ()


def _calls(result: ModelResult) -> Counter[str]:
    """Kernel -> its calls in one of the model, or in one for each block of rows; none if all of it is packed
    once."""
    graphs = result.manifest.blocks.values() or (result.manifest,)
    counts = Counter(kernel for graph in graphs for kernel in graph.kernels)
    if packed := result.manifest.packed:
        counts.subtract(call.kernel for call in packed.calls if call.whole)
    return counts


def _text(result: ModelResult) -> str:
    free, packed = result.manifest.rows, result.manifest.packed
    graphs = result.manifest.blocks.values() or (result.manifest,)
    counts = _calls(result)
    lines = kernel_lines(_entries(result), counts, result.manifest.parts.values())
    if taken := _taken(result):
        lines.append(f"{taken} of {number_of(len(_entries(result)), 'kernels')} came from the cache")
    if result.use is not None and result.use.trouble:
        lines.append(f"no kernel came from the cache or went there: {result.use.trouble}")
    if foreign := result.manifest.parts.values():
        crossing, spent = sum(p.crossing_bytes for p in foreign), sum(p.median_s for p in foreign)
        peers = " and ".join(sorted({str(p.peer) for p in foreign}))
        nodes = number_of(sum(len(p.nodes) for p in foreign), "nodes")
        lines.append(
            f"{nodes} run in {peers}, which the package needs:"
            f" {crossing:,} bytes cross in a call, {seconds(spent)} of its time are there"
        )
    if packed:
        known = {name for graph in graphs for name in graph.constants}
        read = number_of(len(known & {name for call in packed.calls for name in call.inputs}), "constants")
        lines.append(f"packed once for all calls, in no time above: {read}, as {memory(packed.bytes)}")
    lines += _groupings(result)
    lines += _races(result)
    if free is not None:
        blocks = zip(free.sizes, free.seconds, strict=True)
        lines.append(table((free.name, "time"), [(str(size), seconds(time)) for size, time in blocks]))
        lines.append(f"1 to {free.most} rows; memory is that of {number_of(free.sizes[-1], 'rows')}")
    elif result.spent is None and len(_entries(result)) > 1 and (spent := _spent(result)):
        lines.append(f"the kernels of a call take {seconds(spent)} together")
    peak = result.peak
    parts = {
        "weights": peak.weights,
        "inputs and outputs": peak.interface,
        "between kernels": peak.between,
    }
    parts |= {} if peak.inside is None else {"inside of a kernel": peak.inside}
    parts |= {"packed": peak.packed} if peak.packed else {}
    shares = ", ".join(f"{name} {memory(size)}" for name, size in parts.items())
    unknown = "" if peak.inside is not None else "; what kernels need inside is not known here"
    lines.append(f"peak memory of a call: {memory(peak.total)} ({shares}){unknown}")
    lines.append(f"between kernels: {memory(result.plan.unshared)} if no place were shared")
    folds = len(result.manifest.folds)
    lines += [f"{number_of(folds, 'folds')} of constants, listed in model.json"] if folds else []
    lines += [f"the model {check}" for check in result.checks]
    lines += [f"times are {origin}"] if (origin := _unmeasured(result)) else []
    lines.append("the build took " + ", ".join(f"{k} {s:.1f} s" for k, s in result.seconds.items()))
    lines.append(f"model: {result.directory}")
    lines += [_search(result.spent)] if result.spent is not None else []
    return "\n".join(lines)


def _search(spent: Spent) -> str:
    """The use and the gain of searches, for a person."""
    most, limit = spent.budget.evaluations, spent.budget.seconds
    used = f"{spent.evaluations} of {number_of(most, 'evaluations')}" if most is not None else ""
    used = used or number_of(spent.evaluations, "evaluations")
    within = f" within {limit:g} s" if limit is not None else ""
    kept = ""
    if spent.as_before:
        searched, count = number_of(len(spent.searched), "kernels"), len(spent.as_before)
        kept = f"of {searched} with a search, {count} won as before it in a race in turns, and so stay:"
        kept += f" {', '.join(spent.as_before)}\n"
    return (
        f"{kept}the search used {used}{within}; the kernels of a call take"
        f" {seconds(spent.after_s)}, {seconds(spent.before_s)} before it"
    )


def _unmeasured(result: ModelResult) -> str:
    """The places where times come from if they were not measured; "" if all were."""
    library = result.library.manifest if result.library else None
    times = [entry.timing.call for entry in _entries(result)]
    kinds = sorted({time.provenance for time in times if time and time.provenance != "measured"})
    return f"{' or '.join(kinds)} ({library.device})" if kinds and library else ""


def _taken(result: ModelResult) -> int:
    """The number of kernels that came from the cache."""
    return result.use.count(entry.name for entry in _entries(result)) if result.use is not None else 0


def _groupings(result: ModelResult) -> list[str]:
    """The edges at which other groupings were measured, for a person."""
    rows = [(e.value, e.producer, e.consumer, decision(e), e.why) for e in result.regrouped]
    columns = ("array", "from", "to", "decision", "why")
    return [table(columns, rows, "groupings, measured on this machine")] if rows else []


def _buckets_text(result: BucketsResult) -> str:
    dimension = result.manifest.dimension
    rows = [
        (
            str(length),
            str(len(made.manifest.nodes)),
            str(len(set(made.manifest.kernels))),
            seconds(_spent(made)),
            memory(made.peak.total),
        )
        for length, made in result.buckets.items()
    ]
    columns = (dimension, "calls", "kernels", "time of the kernels", "peak memory")
    lines = [table(columns, rows), f"weights, stored once for all buckets: {memory(result.weights)}"]
    lines += [f"the model {check}" for check in result.manifest.checks]
    lines += [f"bucket {n}: {check}" for n, made in result.buckets.items() for check in made.checks]
    lines.append("the build took " + ", ".join(f"{k} {s:.1f} s" for k, s in result.seconds.items()))
    lines.append(f"model: {result.directory}")
    lines += [f"bucket {n}: {_search(made.spent)}" for n, made in result.buckets.items() if made.spent]
    return "\n".join(lines)


def _spent(result: ModelResult) -> float:
    """Measured seconds of the kernels of a call, with the largest block of rows if they are free."""
    counts = Counter(result.manifest.kernels)
    if packed := result.manifest.packed:
        counts.subtract(call.kernel for call in packed.calls if call.whole)
    calls = {entry.name: entry.timing.call for entry in _entries(result)}
    return sum(call.median_s * counts[name] for name, call in calls.items() if call is not None)


def _buckets_data(result: BucketsResult) -> dict[str, Any]:
    return {
        "directory": str(result.directory),
        "target": result.manifest.target,
        "dimension": result.manifest.dimension,
        "buckets": {str(length): _data(made) for length, made in result.buckets.items()},
        "weights_bytes": result.weights,
        "checks": list(result.manifest.checks),
        "seconds": {name: round(s, 3) for name, s in result.seconds.items()},
    }


def _races(result: ModelResult) -> list[str]:
    """The races against a peer, for a person."""
    races = result.manifest.races
    if not races:
        return [result.manifest.verdict] if result.manifest.verdict else []
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
        "kernels": len({k for m in manifest.blocks.values() or (manifest,) for k in m.kernels}),
        "calls": len(manifest.nodes),
        "cached": _taken(result),
        "per_kernel": kernel_data(_entries(result), _calls(result)),
        "free": None if manifest.rows is None else manifest.rows.name,
        "blocks": list(manifest.rows.sizes) if manifest.rows is not None else [],
        "groupings": [asdict(edge) for edge in result.regrouped],
        "races": [race.model_dump(mode="json") for race in manifest.races],
        "verdict": manifest.verdict,
        "elsewhere": {name: part.model_dump(mode="json") for name, part in manifest.parts.items()},
        "block_bytes": result.plan.total,
        "unshared_bytes": result.plan.unshared,
        "peak_bytes": result.peak.total,
        "packed_bytes": result.peak.packed,
        "folds": [fold.what for fold in manifest.folds],
        "checks": list(result.checks),
        "times": _unmeasured(result) or "measured",
        "search": None if result.spent is None else asdict(result.spent),
        "seconds": {name: round(s, 3) for name, s in result.seconds.items()},
    }
