"""The manifest of a package that was built: graphs, kernels, edges and files as ``model.json`` says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import perfdojo_sdk
from perfdojo_sdk.core.files import remove
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.graph.folding import Fold
from perfdojo_sdk.graph.graph import Foreign, Graph, Node
from perfdojo_sdk.graph.memory import MemoryPlan
from perfdojo_sdk.graph.order import calls
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.library.build import (
    BuildResult,
)
from perfdojo_sdk.library.manifest import FILE as LIBRARY_FILE
from perfdojo_sdk.models.function import FILE as UNIT
from perfdojo_sdk.models.function import symbol_of
from perfdojo_sdk.models.fusion import Edge, FusionPlan
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
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.packing import (
    PackPlan,
)
from perfdojo_sdk.models.racing import (
    Race,
)


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
