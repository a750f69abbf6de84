"""A graph built for a target: each distinct kernel by the pipeline of libraries, then one package.

Every finished kernel is a record on disk, so an interrupted build goes on where it stopped. Before anything
is built, all kernels that the target does not generate are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter

from perfdojo_sdk.codegen import packaging
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import write_whole
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.graph.codes import with_codes_moved
from perfdojo_sdk.graph.folding import Fold, folded
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.integers import REQUANTISATION, unit_of, with_integer_sums
from perfdojo_sdk.graph.memory import MemoryPlan, plan_memory
from perfdojo_sdk.graph.passes import with_groups_joined, without_duplicates
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.sparsity import with_zeros_left_out
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.accepting import Found
from perfdojo_sdk.library.build import (
    TUNED,
    BuildResult,
    KernelResult,
    Observer,
    Own,
    build_kernels,
    build_library,
)
from perfdojo_sdk.library.builder import MakeBuilder
from perfdojo_sdk.library.loader import Library, load_library, not_here
from perfdojo_sdk.library.manifest import read_manifest
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.anywhere import open_anywhere
from perfdojo_sdk.models.budget import Budget, Counting, Spent
from perfdojo_sdk.models.cache import CacheUse
from perfdojo_sdk.models.function import model_unit
from perfdojo_sdk.models.fusion import Accepts, Edge, FusionPlan, fused, plan_fusion
from perfdojo_sdk.models.kernels import CompiledKernels
from perfdojo_sdk.models.manifest import (
    LIBRARY,
    WEIGHTS,
    ModelManifest,
)
from perfdojo_sdk.models.model import Model, part_path
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.package_manifest import manifest_of, packed_entry, symbol_in, write_manifest
from perfdojo_sdk.models.packed_weights import with_packed_weights
from perfdojo_sdk.models.packing import (
    PackPlan,
    by_symbols,
    constant_homes,
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
from perfdojo_sdk.models.regrouping import MEASURED, PART, Groups, Trials, regrouped
from perfdojo_sdk.models.tensors import places, write_tensors
from perfdojo_sdk.models.turns import Side, in_turns, keep, kept, key_of
from perfdojo_sdk.models.whole_checks import checked, most_compiled, not_called, requantised, runs_of
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.store.records import KernelRecord


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
    inside: int | None = None
    """Temporaries of the kernel that has the most; the library says it once it is built, if it loads here."""
    packed: int = 0
    """Results of work on weights that is done once for all calls; known once the library is built."""

    @property
    def total(self) -> int:
        return self.weights + self.interface + self.between + (self.inside or 0) + self.packed


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
    regrouped: tuple[Edge, ...] = ()
    """The edges at which other groupings were measured."""
    use: CacheUse | None = None
    """The use that was made of the cache, if it was asked for."""
    spent: Spent | None = None
    """The use and the gain of searches, if there was a budget for them."""


def kernels_of(graph: Graph) -> tuple[Kernel, ...]:
    """The distinct kernels of a graph."""
    return tuple(Kernel(kernel_name(p), kernel_name(p), p) for p in graph.programs)


def refused_by(plugins: Plugins, target: Target, graph: Graph | None) -> list[tuple[str, Refused]]:
    """Nodes of the model whose kernels the target does not generate, each kernel once; none without one."""
    found: list[tuple[str, Refused]] = []
    if graph is None:
        return found
    generator = plugins.guarded_generator(target)
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
    use: CacheUse | None = None,
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
    computes faster. ``budget``: of a search that begins when all kernels are built and timed; a part of it
    goes to other groupings of the nodes (:mod:`.regrouping`), the rest to kernels.
    ``use``: that of the user's cache of kernels, if any.

    :class:`Refused` when the target does not generate a kernel, :class:`ModelError` when a kernel does not
    pass verification, :class:`VerificationError` when the whole model does not do what its kernels do.
    """
    begin = perf_counter()
    ready = ready_to_build(plugins, target, graph, fuse, freeze, declared, own_weights=offers is not None)
    spent = perf_counter() - begin
    result = built(
        plugins, target, ready, directory, settings, observer, max_memory, policy, offers, budget, use
    )
    return replace(result, seconds={"preparation": spent, **result.seconds})


@dataclass(frozen=True)
class Lay:
    """A graph whose kernels may be joined in other ways."""

    single: Graph
    """The graph with none joined."""
    out: Callable[[Groups], tuple[Graph, tuple[Fold, ...]]]
    """The graph with groups joined and weights laid out, and the layouts."""


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
    """All but the layouts of weights."""
    layouts: tuple[Fold, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    """Constant -> the columns of its panels, among them those that the graph does not have."""
    lay: Lay | None = None
    """Lays the graph out with other kernels joined; None if they are to stay."""


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
    single, whole, folds = single_kernels(target, given, freeze)
    plan = plan_for(plugins, target, single) if fuse else FusionPlan((), ())

    def lay(groups: Groups) -> tuple[Graph, tuple[Fold, ...], Mapping[str, int]]:
        graph, layouts, columns = with_groups_joined(single, groups), tuple[Fold, ...](), widths or {}
        if freeze:
            columns = panel_widths(graph, target) if widths is None else widths
            graph, layouts = with_panels(graph, columns)
        if not own_weights:
            graph = with_packed_weights(graph, partial(_compiles, plugins, target))
        return graph, layouts, columns

    graph, layouts, columns = lay(plan.groups)
    may_change = Lay(single, lambda groups: lay(groups)[:2]) if fuse else None
    return Ready(given, graph, whole, plan, (*declared, *folds), layouts, columns, may_change)


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
    use: CacheUse | None = None,
    records: Path | None = None,
) -> ModelResult:
    """Build what is ready into ``directory``, with the rest and errors as for :func:`optimise`.

    ``records``: the file of records of finished kernels, by default one beside the model's library.
    """
    begin = perf_counter()
    given, whole, plan = ready.given, ready.whole, ready.plan
    settings, pack = settings or Settings(), PackPlan()
    counting, spent = Counting(observer), None
    site = _Site(plugins, target, directory / LIBRARY, settings, counting, use, records)

    @lru_cache(maxsize=2)  # two plans are compared; each copy may hold weights in another layout
    def lay(groups: Groups) -> _Laid:
        if ready.lay is None or groups == ready.plan.groups:
            return _laid(plugins, target, ready.graph, ready.layouts)
        return _laid(plugins, target, *ready.lay.out(groups))

    laid, tried = lay(ready.plan.groups), tuple[Edge, ...]()
    refuse_beyond(laid.peak, max_memory)
    result = None
    if laid.graph.nodes:
        result, pack = site.library(laid)
        if budget is not None and not result.failed:
            inside = _inside(laid, result, settings.threads) or 0

            def refuses(other: _Laid) -> str:
                beyond = max_memory is not None and other.peak.total + inside > max_memory
                return "a call would need more bytes than it may" if beyond else ""

            trials = Trials(lay, site.kernels, budget.part(PART), refuses, site.in_turns)
            trials.learn(result.results)
            before_s = trials.of_a_call(laid)
            if ready.lay is not None:
                plan, tried = regrouped(ready.lay.single, plan, accepted_by(plugins, target), trials)
            laid = lay(plan.groups)
            left = budget.less(trials.evaluations, trials.seconds)
            own, first = left.shared(_times(laid.graph, trials), settings), dict(trials.records)
            result, pack = site.library(laid, own)
            trials.learn(result.results)
            slower = () if result.failed else site.beaten(laid, first, trials.records) & own.keys()
            if slower:
                result, pack = site.library(laid, {k: v for k, v in own.items() if k not in slower})
                trials.learn(result.results)
            used = trials.evaluations + counting.evaluations
            spent = Spent(
                budget, used, before_s, trials.of_a_call(laid), tuple(sorted(own)), tuple(sorted(slower))
            )
        refuse_failed(result)
    graph, peak, folds = laid.graph, laid.peak, (*ready.folds, *laid.folds)
    finished = perf_counter()
    threads = settings.threads
    if symbol_in(graph, result):
        peak = replace(peak, inside=_inside(laid, result, threads), packed=pack.bytes)
        refuse_beyond(peak, max_memory)
    else:
        pack = PackPlan()
    write_tensors(directory / WEIGHTS, graph.constants, directory)

    def packaged(graph: Graph, races: Sequence[Race] = (), verdict: str = "") -> Model:
        _write(target, graph, plan, folds, result, directory, threads, pack, races, verdict)
        return open_anywhere(directory, plugins)

    model = packaged(graph)
    if policy.prefer_faster and offers is not None and result is not None:
        graph, model = _raced(graph, model, offers, policy, threads, packaged)
    written = perf_counter()
    plain = lambda: CompiledKernels.of(plugins, target.name)  # noqa: E731
    meant = "the model as it was given" if whole is given else "its graph of integer kernels as written"
    checks = (*checked(graph, whole, model, plain, meant), *not_called(model))
    integers = unit_of(target.dialect)
    if whole is not given and integers is not None:
        most = most_compiled(model)
        checks = (*checks, *requantised(without_duplicates(given), integers, runs_of(plugins, target), most))
    seconds = {
        "kernels": finished - begin,
        "package": written - finished,
        "checks": perf_counter() - written,
    }
    return ModelResult(
        directory, model.manifest, result, plan_memory(graph), checks, peak, seconds, tried, use, spent
    )


def cached(make: MakeBuilder, use: CacheUse | None) -> MakeBuilder:
    """Makes builders that use the cache, if any."""
    return use.around(make) if use is not None else make


@dataclass(frozen=True)
class _Site:
    """The place where the kernels of a model are built."""

    plugins: Plugins
    target: Target
    directory: Path
    settings: Settings
    observer: Observer | None
    use: CacheUse | None
    records: Path | None

    def library(self, laid: _Laid, own: Mapping[str, Own] | None = None) -> tuple[BuildResult, PackPlan]:
        """The library of a graph, and the plan of what its function packs."""
        pack = PackPlan()

        def unit(found: Sequence[Found]) -> packaging.Unit:
            nonlocal pack
            pack = plan_packing([laid.graph], packings_of(found)) if laid.packs else pack
            symbols = {k.program.text: k.symbol for k in kernels_of(laid.graph)}
            return model_unit(laid.graph, laid.memory, weight_places(laid.graph), symbols, pack)

        result = build_library(
            self.plugins,
            self.target,
            kernels_of(laid.graph),
            self.directory,
            self.settings,
            self.observer,
            place=self.records,
            start_over=True,
            unit=None if laid.graph.foreign else unit,
            make_builder=cached(packing_builder(*laid.fixed), self.use),
            own=own,
        )
        return result, pack

    def kernels(self, laid: _Laid, programs: Collection[Program]) -> list[KernelResult]:
        """Some kernels of a graph; the library stays as it is."""
        return build_kernels(
            self.plugins,
            self.target,
            [kernel for kernel in kernels_of(laid.graph) if kernel.program in programs],
            self.directory,
            self.settings,
            self.observer,
            cached(packing_builder(*laid.fixed), self.use),
        )

    def in_turns(
        self,
        before: tuple[_Laid, Counter[str]],
        after: tuple[_Laid, Counter[str]],
        records: Mapping[str, KernelRecord | None],
    ) -> tuple[float, float] | None:
        """Times of both sides as :class:`~perfdojo_sdk.models.regrouping.Turns` says, kept for a build that
        goes on."""
        return self._race(self._side(*before, records), self._side(*after, records))

    def beaten(
        self,
        laid: _Laid,
        before: Mapping[str, KernelRecord | None],
        after: Mapping[str, KernelRecord | None],
    ) -> set[str]:
        """The kernels of a graph whose second program is not faster than the first, both timed in turns; by
        their records, if a kernel cannot be timed so."""
        found = set[str]()
        for kernel in kernels_of(laid.graph):
            text = kernel.program.text
            one, other = before.get(text), after.get(text)
            if one is None or other is None or one.source_sha256 == other.source_sha256:
                continue
            calls = Counter({text: 1})
            times = None
            if (
                one.call is not None
                and other.call is not None
                and one.call.provenance == other.call.provenance
            ):
                times = (one.call.median_s, other.call.median_s)
                if one.call.provenance == MEASURED:
                    sides = (self._side(laid, calls, records) for records in (before, after))
                    times = self._race(*sides) or times
            if times is not None and times[1] >= times[0]:
                found.add(kernel.name)
        return found

    def _race(self, before: Side, after: Side) -> tuple[float, float] | None:
        """Seconds of both sides in turns."""
        folder = self.directory / TUNED
        key = key_of(before, after, self.settings.threads)
        known = kept(folder).get(key)
        if known is None:
            known = in_turns(before, after)
            if known is not None:
                keep(folder, key, known)
        return known

    def _side(self, laid: _Laid, calls: Counter[str], records: Mapping[str, KernelRecord | None]) -> Side:
        builder = packing_builder(*laid.fixed)(self.plugins, self.target, self.settings)
        kernels = [kernel for kernel in kernels_of(laid.graph) if kernel.program.text in calls]
        return Side(builder.context, kernels, calls, records)


def _compiles(plugins: Plugins, target: Target, program: Program) -> bool:
    """True if the target generates a kernel of a program."""
    try:
        plugins.guarded_generator(target).generate(program, f"pd_{kernel_name(program)}")
    except DojoError:
        return False
    return True


def _inside(laid: _Laid, result: BuildResult | None, threads: int) -> int | None:
    """Bytes of temporaries of the kernel that has the most; None if the library does not say it here."""
    symbol = symbol_in(laid.graph, result)
    needed = workspace_of(result.directory, symbol, threads) if result is not None and symbol else None
    return None if needed is None else needed - laid.memory.total


def _times(graph: Graph, trials: Trials[_Laid]) -> dict[str, float]:
    """Kernel -> the measured seconds of all of its calls."""
    counts = Counter(node.program for node in graph.nodes)
    times = {program: trials.time(program.text) for program in counts}
    return {kernel_name(p): time * counts[p] for p, time in times.items() if time is not None}


@dataclass(frozen=True)
class _Laid:
    """A graph as it is built under one plan."""

    graph: Graph
    folds: tuple[Fold, ...]
    """The layouts of weights."""
    memory: MemoryPlan
    peak: Peak
    packs: bool
    fixed: tuple[Mapping[str, Sequence[str]], Sequence[str]]
    """Symbol of a kernel -> its constant inputs, and the symbols of kernels that are timed cold."""

    @property
    def calls(self) -> Counter[str]:
        """Text of a program -> its calls, but for those that are made once for all calls of the model."""
        once = constant_homes(self.graph)[1] if self.packs else ()
        return Counter(node.program.text for k, node in enumerate(self.graph.nodes) if k not in once)


def _laid(plugins: Plugins, target: Target, graph: Graph, layouts: tuple[Fold, ...]) -> _Laid:
    """A graph whose kernels are joined and whose weights are laid out, with its memory."""
    packs = has_function(plugins, target, graph)
    memory = plan_memory(graph, packed_values(graph) if packs else ())
    constants = constant_inputs([graph]) if packs else {}
    weights = sum(array.nbytes for array in graph.constants.values())
    constants, cold = kept_warm(graph.programs, constants, weights, plugins.machine_figures(target))
    fixed = by_symbols(graph.programs, constants), [f"pd_{kernel_name(program)}" for program in cold]
    return _Laid(graph, layouts, memory, peak_of(graph, memory), packs, fixed)


def _write(
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
) -> None:
    """Write the parts of peers and the manifest; weights are there."""
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


def _raced(
    graph: Graph,
    model: Model,
    offers: Offers,
    policy: Policy,
    threads: int,
    packaged: Callable[[Graph, Sequence[Race], str], Model],
) -> tuple[Graph, Model]:
    """The graph with the parts that a peer computes faster, if the whole model is faster with them."""
    if not isinstance(model.library, Library):
        verdict = f"nothing raced: kernels for {model.manifest.target} do not run in this process"
        return graph, packaged(graph, (), verdict)
    races, won = raced(graph, model.library, offers, policy, threads)
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


def single_kernels(target: Target, given: Graph, freeze: bool) -> tuple[Graph, Graph, tuple[Fold, ...]]:
    """The graph before kernels are joined; the one that it is compared with, which is ``given`` unless sums
    of floats became sums of integers; and the declared folds."""
    graph = with_codes_moved(without_duplicates(given))
    graph, integers = with_integer_sums(graph, unit_of(target.dialect), laws=freeze)
    whole = graph if any(fold.law == REQUANTISATION for fold in integers) else given
    graph, folds = frozen(graph) if freeze else (graph, ())
    return graph, whole, (*integers, *folds)


def prepared(
    plugins: Plugins, target: Target, given: Graph, fuse: bool, freeze: bool
) -> tuple[Graph, Graph, FusionPlan, tuple[Fold, ...]]:
    """The graph whose kernels are built; the one that it is compared with; the verdicts on edges, and the
    declared folds."""
    graph, whole, folds = single_kernels(target, given, freeze)
    plan = plan_for(plugins, target, graph) if fuse else FusionPlan((), ())
    return fused(graph, plan), whole, plan, folds


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
    figures = plugins.machine_figures(target)
    return plan_fusion(graph, target.on(figures), accepted_by(plugins, target, why_not))


def accepted_by(
    plugins: Plugins, target: Target, why_not: Callable[[Program], str] = lambda program: ""
) -> Accepts:
    """Says why a target does not take a program, by what its generator takes."""
    generator = plugins.guarded_generator(target)

    def accepts(program: Program) -> str:
        if reason := why_not(program):
            return reason
        try:
            generator.generate(program, f"pd_{kernel_name(program)}")
        except DojoError as error:
            return f"the target does not generate the joined kernel: {error.what}"
        return ""

    return accepts


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
    why = f"{parts}, arrays between kernels {peak.between}, inside of a kernel {peak.inside or 0}"
    why += f", packed {peak.packed}" if peak.packed else ""
    raise ModelError("PD-O031", what, why=why, hint="give it a smaller batch, or allow more")


def weight_places(graph: Graph) -> dict[str, int]:
    """The first byte of each constant in the file of weights."""
    return places({name: (array.dtype.itemsize, array.nbytes) for name, array in graph.constants.items()})


def workspace_of(library: Path, symbol: str, threads: int) -> int | None:
    """Bytes of the workspace of a model's function; None if the library does not load here."""
    if not_here(read_manifest(library)):
        return None
    return int(load_library(library).function(symbol, 0)[1](threads))
