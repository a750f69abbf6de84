"""A graph built for a target: each distinct kernel by the pipeline of libraries, then one package.

Every finished kernel is a record on disk, so an interrupted build goes on where it stopped. Before anything
is built, all kernels that the target does not generate are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import numpy as np

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError, VerificationError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array, Graph, Value
from perfdojo_sdk.graph.memory import MemoryPlan, plan_memory
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.running import Execute, interpreted, run_graph
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.arrays import ArgumentValueError
from perfdojo_sdk.library.build import BuildResult, Observer, build_library
from perfdojo_sdk.library.loader import Library, load_library
from perfdojo_sdk.library.manifest import FILE as LIBRARY_FILE
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.manifest import (
    FILE,
    LIBRARY,
    WEIGHTS,
    CheckEntry,
    ModelManifest,
    NodeEntry,
    ValueEntry,
    as_json,
)
from perfdojo_sdk.models.model import Model, load_model
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.tensors import write_tensors
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.verify.reduced import statement_instances

#: Most statement instances of a model that the interpreter runs, to compare results with it.
MOST_INTERPRETED = 300_000


class ModelError(DojoError):
    """A model cannot be built."""


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
) -> ModelResult:
    """Build a graph for ``target`` into ``directory``.

    :class:`Refused` when the target does not generate a kernel, :class:`ModelError` when a kernel does not
    pass verification, :class:`VerificationError` when the whole model does not do what its kernels do.
    """
    begin = perf_counter()
    refused = refused_by(plugins, target, graph)
    if refused:
        raise refused[0][1]
    result = None
    kernels = kernels_of(graph)
    if kernels:
        result = build_library(
            plugins, target, kernels, directory / LIBRARY, settings, observer, start_over=True
        )
        if result.failed:
            names = ", ".join(r.kernel.name for r in result.failed[:5])
            why = "; ".join(sorted({r.failure for r in result.failed})[:5])
            what = f"{len(result.failed)} of {len(kernels)} kernels could not be built: {names}"
            raise ModelError("PD-O013", what, why=why, hint="the same command tries them again")
    built = perf_counter()
    plan = plan_memory(graph)
    write_tensors(directory / WEIGHTS, graph.constants, directory)
    manifest = _manifest(target, graph, plan, directory)
    write_atomically(directory / FILE, as_json(manifest), directory)
    packaged = perf_counter()
    checks = _checked(graph, load_model(directory))
    seconds = {
        "kernels": built - begin,
        "package": packaged - built,
        "checks": perf_counter() - packaged,
    }
    return ModelResult(directory, manifest, result, plan, checks, seconds)


def _manifest(target: Target, graph: Graph, plan: MemoryPlan, directory: Path) -> ModelManifest:
    return ModelManifest(
        sdk_version=perfdojo_sdk.__version__,
        name=graph.name[:1024],
        target=target.name,
        inputs=tuple(v.name for v in graph.inputs),
        outputs=tuple(v.name for v in graph.outputs),
        values={n: ValueEntry(shape=v.shape, dtype=v.dtype) for n, v in graph.values.items()},
        nodes=tuple(
            NodeEntry(kernel=kernel_name(n.program), inputs=n.inputs, outputs=n.outputs, origin=n.origin)
            for n in graph.nodes
        ),
        views=dict(graph.views),
        constants=tuple(graph.constants),
        checks=tuple(CheckEntry(value=c.value, what=c.what, origin=c.origin[:1024]) for c in graph.checks),
        offsets=dict(plan.offsets),
        block_bytes=plan.total,
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
    """Random inputs: normal floats, small integers."""
    draw = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in values:
        kind = numpy_dtype(value.dtype)
        if kind.kind in "biu":
            found[value.name] = draw.integers(0, 2 if kind.kind == "b" else 4, value.shape).astype(kind)
        else:
            found[value.name] = draw.standard_normal(value.shape).astype(kind)
    return found


def _checked(graph: Graph, model: Model) -> tuple[str, ...]:
    """Checks of the package as a whole; each kernel was verified by itself."""
    inputs = drawn(graph.inputs, 0)
    try:
        found = model.run(inputs)
    except ArgumentValueError:  # an index beyond its array: zero is none
        whole = {n: np.zeros_like(a) if a.dtype.kind in "iu" else a for n, a in inputs.items()}
        inputs, found = whole, model.run(whole)
    checks = []
    if graph.nodes:
        alone = run_graph(graph, inputs, _by_library(load_library(model.directory / LIBRARY)))
        _compare("its kernels called one by one", found, alone, exact=True)
        checks.append("gives the bits of its kernels called one by one, with memory of their own")
    if sum(statement_instances(n.program) for n in graph.nodes) <= MOST_INTERPRETED:
        _compare("the interpreter", found, run_graph(graph, inputs, interpreted), exact=False)
        checks.append("agrees with the interpreter")
    return tuple(checks)


def _by_library(library: Library) -> Execute:
    """An executor by verified kernels."""

    def execute(program: Program, inputs: Sequence[Array]) -> list[Array]:
        made = library[kernel_name(program)](*inputs)
        return list(made) if isinstance(made, tuple) else [made]

    return execute


def _compare(what: str, found: Sequence[Array], expected: Sequence[Array], exact: bool) -> None:
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        if exact or one.dtype.kind in "biu":
            same = one.tobytes() == other.tobytes()
        else:
            wide, reference = one.astype(np.float64), other.astype(np.float64)
            scale = float(np.max(np.abs(reference[np.isfinite(reference)]), initial=0.0))
            same = np.allclose(wide, reference, rtol=1e-3, atol=1e-4 * max(scale, 1e-30), equal_nan=True)
        if not same:
            raise VerificationError("PD-O014", f"output {k} of the model differs from {what}")
