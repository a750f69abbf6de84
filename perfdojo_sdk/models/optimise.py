"""A graph built for a target: each distinct kernel by the pipeline of libraries, then one package.

Every finished kernel is a record on disk, so an interrupted build goes on where it stopped. Before anything
is built, all kernels that the target does not generate are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from types import MappingProxyType

import perfdojo_sdk
from perfdojo_sdk.codegen import packaging
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import remove, write_whole
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.graph.folding import Fold, folded
from perfdojo_sdk.graph.graph import Foreign, Graph, Node
from perfdojo_sdk.graph.integers import REQUANTISATION, unit_of, with_integer_sums
from perfdojo_sdk.graph.memory import MemoryPlan, plan_memory
from perfdojo_sdk.graph.order import calls
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.sparsity import with_zeros_left_out
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.accepting import Found
from perfdojo_sdk.library.build import BuildResult, Observer, build_library
from perfdojo_sdk.library.loader import load_library
from perfdojo_sdk.library.manifest import FILE as LIBRARY_FILE
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.budget import Budget
from perfdojo_sdk.models.function import FILE as UNIT
from perfdojo_sdk.models.function import model_unit, symbol_of
from perfdojo_sdk.models.fusion import Edge, FusionPlan, fused, plan_fusion
from perfdojo_sdk.models.kernels import CompiledKernels
from perfdojo_sdk.models.manifest import (
    BUCKETS,
    FILE,
    LIBRARY,
    WEIGHTS,
    CheckEntry,
    CutEntry,
    EdgeEntry,
    FoldEntry,
    ModelManifest,
    NodeEntry,
    PackCallEntry,
    PackEntry,
    PartEntry,
    RaceEntry,
    ValueEntry,
    as_json,
)
from perfdojo_sdk.models.model import Model, load_one, part_path
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.packed_weights import with_packed_weights
from perfdojo_sdk.models.packing import (
    PackPlan,
    constant_inputs,
    has_function,
    kept_warm,
    packed_values,
    packing_builder,
    packings_of,
    plan_packing,
)
from perfdojo_sdk.models.panels import panel_widths, with_panels
from perfdojo_sdk.models.policy import KERNELS_ONLY, Policy
from perfdojo_sdk.models.racing import (
    Offers,
    Race,
    raced,
    timed_models,
    timed_part,
    with_offers,
)
from perfdojo_sdk.models.tensors import places, write_tensors
from perfdojo_sdk.models.whole_checks import checked, requantised, runs_of
from perfdojo_sdk.plugins import Plugins


class ModelError(DojoError):
    """A model cannot be built."""


@dataclass(frozen=True)
class Peak:
    """Bytes that a call needs at most, by what they are for."""

    weights: int
    interface: int
    """Inputs and outputs."""
    between: int
    """Arrays between kernels."""
    inside: int = 0
    """Temporaries of the kernel that has the most; the library says it once it is built."""
    packed: int = 0
    """Results of work on weights that is done once for all calls; known once the library is built."""

    @property
    def total(self) -> int:
        return self.weights + self.interface + self.between + self.inside + self.packed


@dataclass(frozen=True)
class ModelResult:
    """A model that was built."""

    directory: Path
    manifest: ModelManifest
    library: BuildResult | None
    """None for a model without kernels."""
    plan: MemoryPlan
    checks: tuple[str, ...]
    """The checks that the whole model passed, in words."""
    peak: Peak
    seconds: Mapping[str, float] = field(default_factory=dict)


def kernels_of(graph: Graph) -> tuple[Kernel, ...]:
    """The distinct kernels of a graph."""
    return tuple(Kernel(kernel_name(p), kernel_name(p), p) for p in graph.programs)


def refused_by(plugins: Plugins, target: Target, graph: Graph) -> list[tuple[str, Refused]]:
    """Nodes of the model whose kernels the target does not generate, each kernel once."""
    generator = plugins.guarded_generator(target)
    found = []
    for program in graph.programs:
        try:
            generator.generate(program, f"pd_{kernel_name(program)}")
        except DojoError as error:
            origin = next(n.origin for n in graph.nodes if n.program.text == program.text)
            found.append((origin, Refused(Reason.TARGET, f"{program.name}: {error.what}")))
    return found


def optimise(
    plugins: Plugins,
    target: Target,
    graph: Graph,
    directory: Path,
    settings: Settings | None = None,
    observer: Observer | None = None,
    fuse: bool = True,
    freeze: bool = False,
    max_memory: int | None = None,
    declared: Sequence[Fold] = (),
    policy: Policy = KERNELS_ONLY,
    offers: Offers | None = None,
    budget: Budget | None = None,
) -> ModelResult:
    """Build a graph for ``target`` into ``directory``.

    Kernels are joined where that pays (:mod:`.fusion`), unless ``fuse`` is false; the whole model is compared
    with the graph as it was given. ``freeze``: constants are computed now, scales of sums folded into
    weights (:mod:`perfdojo_sdk.graph.folding`), weights that are zero left out
    (:mod:`perfdojo_sdk.graph.sparsity`), and sums of dequantised numbers become sums of integers
    (:mod:`perfdojo_sdk.graph.integers`); the manifest declares each. ``max_memory``: bytes that a call
    may need; a model that needs more is refused, before anything is built if that is known by then.
    ``declared``: how the graph itself came to differ from the user's model; the manifest lists it.
    ``offers``: the model in its own format, of which the peer of ``policy.prefer_faster`` takes what it
    computes faster. ``budget``: of a search that begins when all kernels are built and timed.

    :class:`Refused` when the target does not generate a kernel, :class:`ModelError` when a kernel does not
    pass verification, :class:`VerificationError` when the whole model does not do what its kernels do.
    """
    begin = perf_counter()
    ready = ready_to_build(plugins, target, graph, fuse, freeze, declared, own_weights=offers is not None)
    spent = perf_counter() - begin
    result = built(plugins, target, ready, directory, settings, observer, max_memory, policy, offers, budget)
    return replace(result, seconds={"preparation": spent, **result.seconds})


@dataclass(frozen=True)
class Ready:
    """A graph that is ready to be built, and how it came to be."""

    given: Graph
    """As the model says it."""
    graph: Graph
    """As it is built."""
    whole: Graph
    """The one that it is compared with, which is ``given`` unless sums of floats became sums of integers."""
    plan: FusionPlan
    folds: tuple[Fold, ...]
    widths: Mapping[str, int] = field(default_factory=dict)
    """Constant -> the columns of its panels, among them those that the graph does not have."""


def ready_to_build(
    plugins: Plugins,
    target: Target,
    given: Graph,
    fuse: bool,
    freeze: bool,
    declared: Sequence[Fold] = (),
    own_weights: bool = False,
    widths: Mapping[str, int] | None = None,
) -> Ready:
    """Join the kernels of a graph, use its constants and lay its weights out, as for :func:`optimise`.

    ``own_weights``: leave short weights as the model has them, since a peer reads them. ``widths``: the
    layout of weights, by default the best for this graph. :class:`Refused` when the target does not generate
    a kernel.
    """
    if refused := refused_by(plugins, target, given):
        raise refused[0][1]
    graph, whole, plan, folds = prepared(plugins, target, given, fuse, freeze)
    folds = (*declared, *folds)
    if freeze:
        widths = panel_widths(graph, target) if widths is None else widths
        graph, layouts = with_panels(graph, widths)
        folds = (*folds, *layouts)
    if not own_weights:
        graph = with_packed_weights(graph, partial(_compiles, plugins, target))
    return Ready(given, graph, whole, plan, folds, widths or {})


def built(
    plugins: Plugins,
    target: Target,
    ready: Ready,
    directory: Path,
    settings: Settings | None = None,
    observer: Observer | None = None,
    max_memory: int | None = None,
    policy: Policy = KERNELS_ONLY,
    offers: Offers | None = None,
    budget: Budget | None = None,
    records: Path | None = None,
) -> ModelResult:
    """Build what is ready into ``directory``, with the rest and errors as for :func:`optimise`.

    ``records``: the file of records of finished kernels, by default one beside the model's library.
    """
    begin = perf_counter()
    graph, whole, plan, folds = ready.graph, ready.whole, ready.plan, ready.folds
    packs = has_function(plugins, target, graph)
    memory = plan_memory(graph, packed_values(graph) if packs else ())
    peak = peak_of(graph, memory)
    refuse_beyond(peak, max_memory)
    result, pack = None, PackPlan()
    kernels = kernels_of(graph)
    if kernels:
        symbols = {k.program.text: k.symbol for k in kernels}
        constants = constant_inputs([graph]) if packs else {}
        weights = sum(array.nbytes for array in graph.constants.values())
        figures = plugins.machine_figures(target)
        constants, cold = kept_warm([k.program for k in kernels], constants, weights, figures)

        def unit(found: Sequence[Found]) -> packaging.Unit:
            nonlocal pack
            pack = plan_packing([graph], packings_of(found)) if packs else pack
            return model_unit(graph, memory, weight_places(graph), symbols, pack)

        build = partial(
            build_library,
            plugins,
            target,
            kernels,
            directory / LIBRARY,
            settings,
            observer,
            place=records,
            start_over=True,
            unit=None if graph.foreign else unit,
            make_builder=packing_builder(
                {symbols[text]: names for text, names in constants.items()},
                [symbols[program.text] for program in cold],
            ),
        )
        result = build()
        if budget is not None and not result.failed:
            result = build(own=budget.shared(_times(graph, result), settings or Settings()))
        refuse_failed(result)
    finished = perf_counter()
    threads = (settings or Settings()).threads
    if symbol := symbol_in(graph, result):
        needed = load_library(directory / LIBRARY).function(
            symbol, len(graph.inputs) + len(graph.outputs) + 1 + bool(pack)
        )
        peak = replace(peak, inside=int(needed[1](threads)) - memory.total, packed=pack.bytes)
        refuse_beyond(peak, max_memory)
    else:
        pack = PackPlan()
    write_tensors(directory / WEIGHTS, graph.constants, directory)

    def packaged(graph: Graph, races: Sequence[Race] = (), verdict: str = "") -> Model:
        return _packaged(target, graph, plan, folds, result, directory, threads, pack, races, verdict)

    model = packaged(graph)
    if policy.prefer_faster and offers is not None and result is not None:
        graph, model = _raced(graph, model, offers, policy, threads, packaged)
    written = perf_counter()
    plain = lambda: CompiledKernels.of(plugins, target.name)  # noqa: E731
    meant = "the model as it was given" if whole is ready.given else "its graph of integer kernels as written"
    checks = checked(graph, whole, model, plain, meant)
    groups = unit_of(target.dialect)
    if whole is not ready.given and groups is not None:
        checks = (*checks, *requantised(without_duplicates(ready.given), groups, runs_of(plugins, target)))
    seconds = {
        "kernels": finished - begin,
        "package": written - finished,
        "checks": perf_counter() - written,
    }
    return ModelResult(directory, model.manifest, result, plan_memory(graph), checks, peak, seconds)


def _compiles(plugins: Plugins, target: Target, program: Program) -> bool:
    """True if the target generates a kernel of a program."""
    try:
        plugins.guarded_generator(target).generate(program, f"pd_{kernel_name(program)}")
    except DojoError:
        return False
    return True


def _times(graph: Graph, result: BuildResult) -> dict[str, float]:
    """Kernel -> the measured seconds of all of its calls."""
    counts = Counter(kernel_name(node.program) for node in graph.nodes)
    found = {}
    for entry in result.manifest.kernels if result.manifest is not None else ():
        if entry.timing.call is not None:
            found[entry.name] = entry.timing.call.median_s * counts[entry.name]
    return found


def _packaged(
    target: Target,
    graph: Graph,
    plan: FusionPlan,
    folds: Sequence[Fold],
    result: BuildResult | None,
    directory: Path,
    threads: int,
    pack: PackPlan,
    races: Sequence[Race],
    verdict: str,
) -> Model:
    """The model, written and loaded again; weights are there."""
    timed = {part.name: timed_part(graph, part, threads) for part in graph.foreign}
    for part in graph.foreign:
        write_whole(part_path(directory, part.name, part.peer), part.content, directory)
    if graph.foreign:  # such a model is called kernel by kernel
        pack = PackPlan()
    memory = plan_memory(graph, pack.values[0] if pack else ())
    manifest = manifest_of(
        target, graph, memory, plan, folds, result, directory, races, verdict, timed, packed_entry(pack, 0)
    )
    write_manifest(manifest, directory)
    return load_one(directory)


def _raced(
    graph: Graph,
    model: Model,
    offers: Offers,
    policy: Policy,
    threads: int,
    packaged: Callable[[Graph, Sequence[Race], str], Model],
) -> tuple[Graph, Model]:
    """The graph with the parts that a peer computes faster, if the whole model is faster with them."""
    races, won = raced(graph, load_library(model.directory / LIBRARY), offers, policy, threads)
    if not won:
        return graph, packaged(graph, races, "")
    mixed = with_offers(graph, won)
    other = packaged(mixed, races, "")
    ours_s, mixed_s = timed_models([model, other], graph.inputs, threads)
    on = number_of(threads, "threads")
    verdict = f"a call takes {mixed_s * 1e6:.1f} us with the parts that {policy.prefer_faster} won, and"
    verdict += f" {ours_s * 1e6:.1f} us without them, measured here with {on}"
    if policy.peer_for(ours_s, mixed_s):
        return mixed, packaged(mixed, races, verdict)
    lost = [
        replace(race, peer="", why="the whole model is not faster") if race.peer else race for race in races
    ]
    return graph, packaged(graph, lost, f"{verdict}: none is used")


def frozen(graph: Graph) -> tuple[Graph, tuple[Fold, ...]]:
    """The graph in which the values of constants are used, and the laws by which they are."""
    graph, floats = folded(graph)
    graph, zeros = with_zeros_left_out(graph)
    return graph, (*floats, *zeros)


def prepared(
    plugins: Plugins, target: Target, given: Graph, fuse: bool, freeze: bool
) -> tuple[Graph, Graph, FusionPlan, tuple[Fold, ...]]:
    """The graph whose kernels are built; the one that it is compared with, which is ``given`` unless sums of
    floats became sums of integers; the verdicts on edges, and the declared folds."""
    graph, integers = with_integer_sums(without_duplicates(given), unit_of(target.dialect), laws=freeze)
    whole = graph if any(fold.law == REQUANTISATION for fold in integers) else given
    graph, folds = frozen(graph) if freeze else (graph, ())
    plan = plan_for(plugins, target, graph) if fuse else FusionPlan((), ())
    return fused(graph, plan), whole, plan, (*integers, *folds)


def refuse_failed(result: BuildResult) -> None:
    """:class:`ModelError` if a kernel was not built."""
    if result.failed:
        names = ", ".join(r.kernel.name for r in result.failed[:5])
        why = "; ".join(sorted({r.failure for r in result.failed})[:5])
        what = f"{len(result.failed)} of {len(result.results)} kernels could not be built: {names}"
        raise ModelError("PD-O013", what, why=why, hint="the same command tries them again")


def plan_for(
    plugins: Plugins, target: Target, graph: Graph, why_not: Callable[[Program], str] = lambda program: ""
) -> FusionPlan:
    """The kernels to join for a target, by the figures of this machine and by what its generator takes.

    ``why_not``: further reasons not to make a joined kernel; nothing if there is none.
    """
    generator = plugins.guarded_generator(target)

    def accepts(program: Program) -> str:
        if reason := why_not(program):
            return reason
        try:
            generator.generate(program, f"pd_{kernel_name(program)}")
        except DojoError as error:
            return f"the target does not generate the joined kernel: {error.what}"
        return ""

    return plan_fusion(graph, target.on(plugins.machine_figures(target)), accepts)


def edge_entry(edge: Edge) -> EdgeEntry:
    return EdgeEntry(
        value=edge.value,
        producer=edge.producer[:1024],
        consumer=edge.consumer[:1024],
        fused=edge.fused,
        why=edge.why[:1024],
        bytes=edge.bytes,
        seconds=edge.seconds,
    )


def peak_of(graph: Graph, memory: MemoryPlan) -> Peak:
    """The bytes of a call without the temporaries of kernels."""
    weights = sum(array.nbytes for array in graph.constants.values())
    return Peak(weights, sum(value.bytes for value in (*graph.inputs, *graph.outputs)), memory.total)


def refuse_beyond(peak: Peak, most: int | None) -> None:
    """:class:`ModelError` if a call needs more bytes than it may."""
    if most is None or peak.total <= most:
        return
    what = f"a call of the model needs {peak.total} bytes, more than {most}"
    parts = f"weights {peak.weights}, inputs and outputs {peak.interface}"
    why = f"{parts}, arrays between kernels {peak.between}, inside of a kernel {peak.inside}"
    why += f", packed {peak.packed}" if peak.packed else ""
    raise ModelError("PD-O031", what, why=why, hint="give it a smaller batch, or allow more")


def weight_places(graph: Graph) -> dict[str, int]:
    """The first byte of each constant in the file of weights."""
    return places({name: (array.dtype.itemsize, array.nbytes) for name, array in graph.constants.items()})


def symbol_in(graph: Graph, result: BuildResult | None) -> str:
    """The function of the model, if the library has one."""
    sources = result.manifest.artefacts if result and result.manifest else ()
    return symbol_of(graph.name) if any(a.path == f"src/{UNIT}" for a in sources) else ""


def manifest_of(
    target: Target,
    graph: Graph,
    memory: MemoryPlan,
    plan: FusionPlan,
    folds: Sequence[Fold],
    result: BuildResult | None,
    directory: Path,
    races: Sequence[Race] = (),
    verdict: str = "",
    timed: Mapping[str, float] = MappingProxyType({}),
    packed: PackEntry | None = None,
) -> ModelManifest:
    """The manifest of a package. ``timed``: part of a peer -> its seconds in a call."""
    return ModelManifest(
        sdk_version=perfdojo_sdk.__version__,
        name=graph.name[:1024],
        target=target.name,
        inputs=tuple(v.name for v in graph.inputs),
        outputs=tuple(v.name for v in graph.outputs),
        values={n: ValueEntry(shape=v.shape, dtype=v.dtype) for n, v in graph.values.items()},
        nodes=tuple(
            NodeEntry(
                kernel=kernel_name(call.program) if isinstance(call, Node) else "",
                part="" if isinstance(call, Node) else call.name,
                inputs=call.inputs,
                outputs=call.outputs,
                origin=call.origin[:1024],
            )
            for call in calls(graph)
        ),
        views=dict(graph.views),
        constants=tuple(graph.constants),
        checks=tuple(CheckEntry(value=c.value, what=c.what, origin=c.origin[:1024]) for c in graph.checks),
        cuts=tuple(CutEntry(output=c.output, axis=c.axis, count=c.count) for c in graph.cuts),
        edges=tuple(map(edge_entry, plan.edges)),
        folds=tuple(FoldEntry(law=f.law, where=f.where[:1024], what=f.what[:1024]) for f in folds),
        parts={part.name: _part_entry(graph, part, timed[part.name]) for part in graph.foreign},
        races=tuple(map(_race_entry, races)),
        verdict=verdict,
        symbol=symbol_in(graph, result),
        packed=packed,
        offsets=dict(memory.offsets),
        block_bytes=memory.total,
        weights_sha256=file_sha256(directory / WEIGHTS),
        library_sha256=file_sha256(directory / LIBRARY / LIBRARY_FILE) if graph.nodes else "0" * 64,
    )


def write_manifest(manifest: ModelManifest, directory: Path) -> None:
    """Write the manifest of the model in ``directory``, which from then on holds no buckets."""
    write_atomically(directory / FILE, as_json(manifest), directory)
    remove(directory / BUCKETS, directory)


def packed_entry(pack: PackPlan, number: int) -> PackEntry | None:
    """The pack, as the manifest of graph ``number`` says it."""
    if not pack:
        return None
    calls = tuple(
        PackCallEntry(
            kernel=kernel_name(call.node.program),
            whole=call.packing is None,
            inputs=tuple(name for name, _ in call.inputs),
            bytes=call.bytes,
        )
        for call in pack.calls
    )
    return PackEntry(bytes=pack.bytes, calls=calls, values=dict(pack.values[number]))


def _race_entry(race: Race) -> RaceEntry:
    return RaceEntry(
        kernels=race.kernels,
        nodes=race.nodes[:4096],
        calls=race.calls,
        kernels_s=race.ours_s,
        peer_s=race.peer_s,
        peer=race.peer,
        why=race.why[:4096],
    )


def _part_entry(graph: Graph, part: Foreign, median_s: float) -> PartEntry:
    return PartEntry(
        peer=part.peer,
        sha256=sha256(part.content).hexdigest(),
        nodes=tuple(name[:1024] for name in part.nodes),
        why=part.why[:4096],
        crossing_bytes=graph.crossing(part),
        median_s=median_s,
        kernels_s=part.ours_s or None,
    )


def file_sha256(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
