"""A graph built for a target: each distinct kernel by the pipeline of libraries, then one package.

Every finished kernel is a record on disk, so an interrupted build goes on where it stopped. Before anything
is built, all kernels that the target does not generate are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import numpy as np

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError, VerificationError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.folding import Fold, folded
from perfdojo_sdk.graph.graph import Array, Graph, Value
from perfdojo_sdk.graph.integer_kernel import Unit
from perfdojo_sdk.graph.integers import REQUANTISATION, side_by_side, unit_of, with_integer_sums
from perfdojo_sdk.graph.memory import MemoryPlan, plan_memory
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.running import Execute, interpreted, run_graph
from perfdojo_sdk.graph.sparsity import with_zeros_left_out
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.arrays import ArgumentValueError
from perfdojo_sdk.library.build import BuildResult, Observer, build_library
from perfdojo_sdk.library.loader import Library, load_library
from perfdojo_sdk.library.manifest import FILE as LIBRARY_FILE
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.function import FILE as UNIT
from perfdojo_sdk.models.function import model_unit, symbol_of
from perfdojo_sdk.models.fusion import Edge, FusionPlan, fused, plan_fusion
from perfdojo_sdk.models.kernels import CompiledKernels
from perfdojo_sdk.models.manifest import (
    FILE,
    LIBRARY,
    WEIGHTS,
    CheckEntry,
    CutEntry,
    EdgeEntry,
    FoldEntry,
    ModelManifest,
    NodeEntry,
    ValueEntry,
    as_json,
)
from perfdojo_sdk.models.model import Model, load_model
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.panels import panel_widths, with_panels
from perfdojo_sdk.models.tensors import places, write_tensors
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.verify.reduced import statement_instances

#: Most statement instances of a model that the interpreter runs, to compare results with it.
MOST_INTERPRETED = 300_000
#: Most statement instances of a model that plain code runs, for the same purpose.
MOST_COMPILED = 2 * 10**10


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

    @property
    def total(self) -> int:
        return self.weights + self.interface + self.between + self.inside


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
) -> ModelResult:
    """Build a graph for ``target`` into ``directory``.

    Kernels are joined where that pays (:mod:`.fusion`), unless ``fuse`` is false; the whole model is compared
    with the graph as it was given. ``freeze``: constants are computed now, scales of sums folded into
    weights (:mod:`perfdojo_sdk.graph.folding`), weights that are zero left out
    (:mod:`perfdojo_sdk.graph.sparsity`), and sums of dequantised numbers become sums of integers
    (:mod:`perfdojo_sdk.graph.integers`); the manifest declares each. ``max_memory``: bytes that a call
    may need; a model that needs more is refused, before anything is built if that is known by then.
    ``declared``: how the graph itself came to differ from the user's model; the manifest lists it.

    :class:`Refused` when the target does not generate a kernel, :class:`ModelError` when a kernel does not
    pass verification, :class:`VerificationError` when the whole model does not do what its kernels do.
    """
    begin = perf_counter()
    refused = refused_by(plugins, target, graph)
    if refused:
        raise refused[0][1]
    given = graph
    groups = unit_of(target.dialect)
    graph, whole, plan, folds = prepared(plugins, target, graph, fuse, freeze)
    folds = (*declared, *folds)
    if freeze:
        graph, layouts = with_panels(graph, panel_widths(graph, target))
        folds = (*folds, *layouts)
    memory = plan_memory(graph)
    peak = peak_of(graph, memory)
    refuse_beyond(peak, max_memory)
    result = None
    kernels = kernels_of(graph)
    if kernels:
        unit = model_unit(graph, memory, weight_places(graph), {k.program.text: k.symbol for k in kernels})
        result = build_library(
            plugins, target, kernels, directory / LIBRARY, settings, observer, start_over=True, unit=unit
        )
        refuse_failed(result)
    built = perf_counter()
    if symbol := symbol_in(graph, result):
        threads = (settings or Settings()).threads
        needed = load_library(directory / LIBRARY).function(
            symbol, len(graph.inputs) + len(graph.outputs) + 1
        )
        peak = replace(peak, inside=int(needed[1](threads)) - memory.total)
        refuse_beyond(peak, max_memory)
    write_tensors(directory / WEIGHTS, graph.constants, directory)
    manifest = manifest_of(target, graph, memory, plan, folds, result, directory)
    write_atomically(directory / FILE, as_json(manifest), directory)
    packaged = perf_counter()
    plain = lambda: CompiledKernels.of(plugins, target.name)  # noqa: E731
    meant = "the model as it was given" if whole is given else "its graph of integer kernels as written"
    checks = checked(graph, whole, load_model(directory), plain, meant)
    if whole is not given and groups is not None:
        checks = (*checks, *_requantised(without_duplicates(given), groups, runs_of(plugins, target)))
    seconds = {
        "kernels": built - begin,
        "package": packaged - built,
        "checks": perf_counter() - packaged,
    }
    return ModelResult(directory, manifest, result, memory, checks, peak, seconds)


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
) -> ModelManifest:
    return ModelManifest(
        sdk_version=perfdojo_sdk.__version__,
        name=graph.name[:1024],
        target=target.name,
        inputs=tuple(v.name for v in graph.inputs),
        outputs=tuple(v.name for v in graph.outputs),
        values={n: ValueEntry(shape=v.shape, dtype=v.dtype) for n, v in graph.values.items()},
        nodes=tuple(
            NodeEntry(
                kernel=kernel_name(n.program), inputs=n.inputs, outputs=n.outputs, origin=n.origin[:1024]
            )
            for n in graph.nodes
        ),
        views=dict(graph.views),
        constants=tuple(graph.constants),
        checks=tuple(CheckEntry(value=c.value, what=c.what, origin=c.origin[:1024]) for c in graph.checks),
        cuts=tuple(CutEntry(output=c.output, axis=c.axis, count=c.count) for c in graph.cuts),
        edges=tuple(map(edge_entry, plan.edges)),
        folds=tuple(FoldEntry(law=f.law, where=f.where[:1024], what=f.what[:1024]) for f in folds),
        symbol=symbol_in(graph, result),
        offsets=dict(memory.offsets),
        block_bytes=memory.total,
        weights_sha256=file_sha256(directory / WEIGHTS),
        library_sha256=file_sha256(directory / LIBRARY / LIBRARY_FILE) if graph.nodes else "0" * 64,
    )


def file_sha256(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# -- the whole model -------------------------------------------------------------------------------


def drawn(values: Sequence[Value], seed: int) -> dict[str, Array]:
    """Random inputs: normal floats, bytes of the whole range, other integers small, since they may choose
    elements."""
    draw = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in values:
        kind = numpy_dtype(value.dtype)
        if kind.kind in "iu" and kind.itemsize == 1:
            limits = np.iinfo(kind)
            found[value.name] = draw.integers(limits.min, limits.max + 1, value.shape).astype(kind)
        elif kind.kind in "biu":
            found[value.name] = draw.integers(0, 2 if kind.kind == "b" else 4, value.shape).astype(kind)
        else:
            found[value.name] = draw.standard_normal(value.shape).astype(kind)
    return found


def checked(
    graph: Graph,
    given: Graph,
    model: Model,
    plain: Callable[[], CompiledKernels] | None = None,
    meant: str = "the model as it was given",
) -> tuple[str, ...]:
    """Checks of the package as a whole, whose kernels are those of ``graph``, which was made of the graph
    that was ``given``; each kernel was verified by itself. ``plain``: compiles programs as they stand, for
    models that are too large for the interpreter. ``meant``: words for ``given``."""
    inputs = drawn(graph.inputs, 0)
    try:
        found = model.run(inputs)
    except ArgumentValueError:  # an index beyond its array: zero is none
        whole = {n: np.zeros_like(a) if a.dtype.kind in "iu" else a for n, a in inputs.items()}
        inputs, found = whole, model.run(whole)
    checks = []
    if graph.nodes:
        alone = run_graph(graph, inputs, _by_library(load_library(model.directory / LIBRARY)))
        compare("its kernels called one by one", found, alone, exact=True)
        checks.append("gives the bits of its kernels called one by one, with memory of their own")
    instances = sum(statement_instances(n.program) for n in given.nodes)
    if instances <= MOST_INTERPRETED:
        compare("the interpreter", found, run_graph(given, inputs, interpreted), exact=False)
        checks.append(f"agrees with the interpreter on {meant}")
    elif plain is not None and instances <= MOST_COMPILED:
        try:
            execute = plain()
            execute.prepare(given.programs)
            expected = run_graph(given, inputs, execute)
        except Refused as refused:
            checks.append(f"was not compared with plain code of each node: {refused.what}")
        else:
            compare("plain code of each node", found, expected, exact=False)
            checks.append(f"agrees with {meant}, node by node in plain code")
    return tuple(checks)


def _requantised(given: Graph, unit: Unit, prepare: Callable[[Graph], Execute]) -> tuple[str, ...]:
    """Each integer kernel beside the kernels of floats that it stands for, on the same inputs."""
    beside, pairs = side_by_side(given, unit)
    instances = sum(statement_instances(n.program) for n in beside.nodes)
    if instances > MOST_COMPILED:
        return ("has integer kernels that were not compared with those of floats: the model is too large",)
    execute = prepare(beside)
    found = run_graph(beside, drawn(beside.inputs, 0), execute)
    steps, elements = 0, 0
    for pair, after, before in zip(pairs, found[: len(pairs)], found[len(pairs) :], strict=True):
        what = f"the floats that it stands for, in {pair.where or pair.before}"
        if before.dtype.kind == "f":
            compare(what, [after], [before], exact=False)
            continue
        apart = np.abs(after.astype(np.int64) - before.astype(np.int64))
        if apart.max(initial=0) > (0 if pair.exact else 1):
            raise VerificationError("PD-O014", f"an integer kernel differs from {what}")
        steps, elements = steps + int(np.count_nonzero(apart)), elements + apart.size
    return (
        f"has integer kernels that agree with those of floats on the same inputs: of {elements} integers,"
        f" {steps} are one step apart",
    )


def runs_of(plugins: Plugins, target: Target) -> Callable[[Graph], Execute]:
    """Makes a way to run a graph as it stands: the interpreter, or plain code if the graph is large."""

    def prepare(graph: Graph) -> Execute:
        if sum(statement_instances(n.program) for n in graph.nodes) <= MOST_INTERPRETED:
            return interpreted
        compiled = CompiledKernels.of(plugins, target.name)
        compiled.prepare(graph.programs)
        return compiled

    return prepare


def _by_library(library: Library) -> Execute:
    """An executor by verified kernels."""

    def execute(program: Program, inputs: Sequence[Array]) -> list[Array]:
        made = library[kernel_name(program)](*inputs)
        return list(made) if isinstance(made, tuple) else [made]

    return execute


def compare(what: str, found: Sequence[Array], expected: Sequence[Array], exact: bool) -> None:
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        if exact or one.dtype.kind in "biu":
            same = one.tobytes() == other.tobytes()
        else:
            wide, reference = one.astype(np.float64), other.astype(np.float64)
            scale = float(np.max(np.abs(reference[np.isfinite(reference)]), initial=0.0))
            same = np.allclose(wide, reference, rtol=1e-3, atol=1e-4 * max(scale, 1e-30), equal_nan=True)
        if not same:
            raise VerificationError("PD-O014", f"output {k} of the model differs from {what}")
