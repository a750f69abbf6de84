"""A model with free rows, built: its graph for a few numbers of rows, in one package with one set of weights.

Kernels of fixed sizes are verified as ever. The proof that rows are independent
(:mod:`perfdojo_sdk.graph.rows`) makes them right for any number of rows, block by block.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np

from perfdojo_sdk.codegen.packaging import Unit
from perfdojo_sdk.graph.graph import Array, Graph
from perfdojo_sdk.graph.memory import MemoryPlan, plan_memory
from perfdojo_sdk.graph.rows import HINT, FreeRows
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.library.accepting import Found
from perfdojo_sdk.library.build import BuildResult, Observer, build_library, times_of
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.anywhere import open_anywhere
from perfdojo_sdk.models.blocks import MOST, SIZES, choices
from perfdojo_sdk.models.cache import CacheUse
from perfdojo_sdk.models.function import RowBlocks, rows_unit
from perfdojo_sdk.models.kernels import CompiledKernels
from perfdojo_sdk.models.manifest import LIBRARY, WEIGHTS, ModelManifest, RowsEntry
from perfdojo_sdk.models.model import Model
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.optimise import (
    ModelError,
    ModelResult,
    Ready,
    cached,
    kernels_of,
    peak_of,
    ready_to_build,
    refuse_beyond,
    refuse_failed,
    workspace_of,
)
from perfdojo_sdk.models.package_manifest import manifest_of, packed_entry, symbol_in, write_manifest
from perfdojo_sdk.models.packing import (
    PackPlan,
    by_symbols,
    constant_inputs,
    has_function,
    packed_values,
    packing_builder,
    packings_of,
    plan_packing,
)
from perfdojo_sdk.models.racing import drawn
from perfdojo_sdk.models.tensors import places, write_tensors
from perfdojo_sdk.models.whole_checks import checked, compare, not_called
from perfdojo_sdk.plugins import Plugins


def optimise_rows(
    plugins: Plugins,
    target: Target,
    model: FreeRows,
    directory: Path,
    settings: Settings | None = None,
    observer: Observer | None = None,
    fuse: bool = True,
    freeze: bool = False,
    max_memory: int | None = None,
    sizes: Sequence[int] = SIZES,
    use: CacheUse | None = None,
) -> ModelResult:
    """Build a model for any number of rows up to ``model.most``, of blocks of ``sizes`` rows.

    The rest, and errors, as for :func:`perfdojo_sdk.models.optimise.optimise`; the memory of a call is that
    of the largest block, with its part of inputs and outputs.
    """
    begin = perf_counter()
    blocks = ready_rows(plugins, target, model, sizes, fuse, freeze)
    graphs = with_shared_constants({rows: block.graph for rows, block in blocks.items()})
    blocks = {rows: replace(block, graph=graphs[rows]) for rows, block in blocks.items()}
    spent = perf_counter() - begin
    result = built_rows(plugins, target, model, blocks, directory, settings, observer, max_memory, use)
    return replace(result, seconds={"preparation": spent, **result.seconds})


def ready_rows(
    plugins: Plugins,
    target: Target,
    model: FreeRows,
    sizes: Sequence[int],
    fuse: bool,
    freeze: bool,
    widths: Mapping[str, int] | None = None,
) -> dict[int, Ready]:
    """The graph for each of ``sizes`` rows, ready to be built. ``widths``: the layout of weights, by default
    the best for the largest."""
    found: dict[int, Ready] = {}
    for rows in sorted(checked_sizes(sizes, model.most), reverse=True):
        made = ready_to_build(plugins, target, model.at(rows), fuse, freeze, own_weights=True, widths=widths)
        found[rows], widths = made, made.widths
    return {rows: found[rows] for rows in sorted(found)}


def built_rows(
    plugins: Plugins,
    target: Target,
    model: FreeRows,
    blocks: Mapping[int, Ready],
    directory: Path,
    settings: Settings | None = None,
    observer: Observer | None = None,
    max_memory: int | None = None,
    use: CacheUse | None = None,
    records: Path | None = None,
) -> ModelResult:
    """Build blocks that are ready, with equal names for equal constants; the rest as for
    :func:`optimise_rows`, and ``records`` as for :func:`perfdojo_sdk.models.optimise.built`."""
    begin = perf_counter()
    largest = max(blocks)
    every = [block.graph for block in blocks.values()]
    packs = has_function(plugins, target, every[0])
    memories = {
        rows: plan_memory(block.graph, packed_values(block.graph) if packs else ())
        for rows, block in blocks.items()
    }
    peaks = {rows: peak_of(block.graph, memories[rows]) for rows, block in blocks.items()}
    weights = {name: data for block in blocks.values() for name, data in block.graph.constants.items()}
    peak = replace(peaks[largest], weights=sum(data.nbytes for data in weights.values()))
    refuse_beyond(peak, max_memory)
    free = {v.name for v in (*model.graphs[0].inputs, *model.graphs[0].outputs)} & set(model.dimensions)
    kernels = tuple({k.name: k for b in blocks.values() for k in kernels_of(b.graph)}.values())
    if not kernels:
        what = "the model has no kernels, so it needs no free rows"
        raise ModelError("PD-O051", what, hint=HINT)
    symbols = {k.program.text: k.symbol for k in kernels}
    order = places({name: (data.dtype.itemsize, data.nbytes) for name, data in weights.items()})

    constants = constant_inputs(every) if packs else {}
    pack = PackPlan()

    def unit(found: Sequence[Found]) -> Unit:
        nonlocal pack
        pack = plan_packing(every, packings_of(found)) if packs else pack
        graphs = {rows: (block.graph, memories[rows]) for rows, block in blocks.items()}
        table = choices(seconds_of(blocks, times_of(found)))
        return rows_unit(RowBlocks(graphs, frozenset(free), model.most, table), order, symbols, pack)

    result = build_library(
        plugins,
        target,
        kernels,
        directory / LIBRARY,
        settings,
        observer,
        place=records,
        start_over=True,
        unit=unit,
        make_builder=cached(packing_builder(by_symbols([k.program for k in kernels], constants)), use),
    )
    refuse_failed(result)
    finished = perf_counter()
    if symbol := symbol_in(blocks[largest].graph, result):
        needed = workspace_of(directory / LIBRARY, symbol, (settings or Settings()).threads)
        inside = None if needed is None else needed - memories[largest].total
        peak = replace(peak, inside=inside, packed=pack.bytes)
        refuse_beyond(peak, max_memory)
    else:
        pack = PackPlan()
    write_tensors(directory / WEIGHTS, weights, directory)
    manifest = _manifest(target, model, blocks, memories, frozenset(free), result, directory, pack)
    write_manifest(manifest, directory)
    packaged = perf_counter()
    checks = _checked(plugins, target, model, blocks, open_anywhere(directory, plugins))
    seconds = {
        "kernels": finished - begin,
        "package": packaged - finished,
        "checks": perf_counter() - packaged,
    }
    return ModelResult(directory, manifest, result, memories[largest], checks, peak, seconds, use=use)


def checked_sizes(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    """The sizes of blocks, ascending; :class:`ModelError` if they compose not every number of rows."""
    found = tuple(sorted({size for size in sizes if size <= max(most, 1)}))
    if not found or found[0] < 1 or found[-1] > MOST or len(found) > 64:
        what = f"blocks of {', '.join(map(str, sizes)) or 'no'} rows"
        why = f"at most 64 sizes from 1 to {MOST}, and one that is not beyond the most rows of a call"
        raise ModelError("PD-O051", what, why=why, hint="for example --blocks 1,4,16,64")
    return found


_Key = TypeVar("_Key", bound=Hashable)


def with_shared_constants(graphs: Mapping[_Key, Graph]) -> dict[_Key, Graph]:
    """The graphs with one name for equal constants, and different names for others."""
    taken = {name for graph in graphs.values() for name in graph.values if name not in graph.constants}
    names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    found = {}
    for which, graph in graphs.items():
        mine = {}
        for name, data in graph.constants.items():
            key = _key(data)
            if key not in names:
                new = name
                while new in taken:
                    new += "."
                names[key] = new
                taken.add(new)
            mine[name] = names[key]
        found[which] = _renamed(graph, mine)
    return found


def _renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with other names of constants; one that is an output keeps its name, as a view."""
    kept = {value.name for value in graph.outputs}
    values = {name: value for name, value in graph.values.items() if name not in names or name in kept}
    values |= {new: replace(graph.values[name], name=new) for name, new in names.items()}
    views = {view: names.get(of, of) for view, of in graph.views.items()}
    views |= {name: new for name, new in names.items() if name in kept and new != name}
    nodes = tuple(replace(n, inputs=tuple(names.get(i, i) for i in n.inputs)) for n in graph.nodes)
    constants = {new: graph.constants[name] for name, new in names.items()}
    return replace(graph, values=values, views=views, nodes=nodes, constants=constants)


def _key(data: Array) -> tuple[str, tuple[int, ...], bytes]:
    return data.dtype.str, data.shape, sha256(np.ascontiguousarray(data).tobytes()).digest()


def seconds_of(blocks: Mapping[int, Ready], times: Mapping[str, float]) -> dict[int, float]:
    """The time of each block: that of its kernels; rows stand for seconds if a kernel has no time."""
    names = {rows: [kernel_name(n.program) for n in block.graph.nodes] for rows, block in blocks.items()}
    if any(name not in times for each in names.values() for name in each):
        return {rows: float(rows) for rows in blocks}
    return {rows: sum(times[name] for name in each) for rows, each in names.items()}


def _manifest(
    target: Target,
    model: FreeRows,
    blocks: Mapping[int, Ready],
    memories: Mapping[int, MemoryPlan],
    free: frozenset[str],
    result: BuildResult,
    directory: Path,
    pack: PackPlan,
) -> ModelManifest:
    made = {
        rows: manifest_of(
            target,
            b.graph,
            memories[rows],
            b.plan,
            (*b.folds, *b.layouts),
            result,
            directory,
            packed=packed_entry(pack, number),
        )
        for number, (rows, b) in enumerate(blocks.items())
    }
    entries = result.manifest.kernels if result.manifest else ()
    finals = {entry.name: entry.timing.call for entry in entries}
    seconds = seconds_of(blocks, {name: final.median_s for name, final in finals.items() if final})
    sizes = tuple(blocks)
    rows = RowsEntry(
        name=model.name[:1024],
        most=model.most,
        free={name: model.dimensions[name] for name in sorted(free)},
        sizes=sizes,
        seconds=tuple(seconds[size] for size in sizes),
        choices=choices(seconds),
        smaller=tuple(made[size].model_copy(update={"symbol": ""}) for size in sizes[:-1]),
    )
    whole = made[sizes[-1]].model_dump() | {"rows": rows.model_dump()}
    return ModelManifest.model_validate(whole)


def _checked(
    plugins: Plugins, target: Target, model: FreeRows, blocks: Mapping[int, Ready], loaded: Model
) -> tuple[str, ...]:
    """Checks of each block, and of whole calls beside their blocks."""
    found: dict[str, list[int]] = {}
    for rows, block in blocks.items():
        one = loaded.block(rows)
        for check in checked(block.graph, block.whole, one, lambda: CompiledKernels.of(plugins, target.name)):
            found.setdefault(check, []).append(rows)
    checks = [f"of {', '.join(map(str, rows))} rows {check}" for check, rows in found.items()]
    if loaded.linked is not None:
        largest = max(blocks)
        for rows in sorted({1, 2, 3, largest + 1, 2 * largest + 3}):
            if rows <= model.most:
                inputs = drawn(model.at(rows).inputs, rows)
                inputs = {n: np.zeros_like(a) if a.dtype.kind in "iu" else a for n, a in inputs.items()}
                compare("its blocks one by one", loaded.run(inputs), loaded.by_blocks(inputs), exact=True)
        checks.append("gives the bits of its blocks for other numbers of rows")
    return (*checks, *not_called(loaded))
