"""Work that depends on constants alone, done once for all calls of a model: the plan of what is packed.

A kernel whose program has such a half (:mod:`perfdojo_sdk.core.packing`) offers functions for both halves; a
kernel that reads nothing but constants is such work as a whole. What they make lies in one block of memory,
the same for all numbers of rows, and equal work is done once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from perfdojo_sdk.codegen.packed import PackingGenerator
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.graph import Graph, Node
from perfdojo_sdk.graph.memory import rounded_up
from perfdojo_sdk.hookspecs.types import MachineFigures, Packing, Target
from perfdojo_sdk.library.accepting import Found
from perfdojo_sdk.library.builder import KernelBuilder, MakeBuilder
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.manifest import ModelManifest
from perfdojo_sdk.models.manifest import home as home_of
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.plugins import Plugins

#: Most times that a kernel uses each weight, if memory and not arithmetic takes its time.
FEW_USES = 4


@dataclass(frozen=True)
class PackCall:
    """One call that packs."""

    node: Node
    packing: Packing | None
    """The pack of its kernel; None: the whole kernel is called, and reads constants only."""
    places: tuple[int, ...]
    """First byte, in the block, of what the pack makes, or of each output of the kernel."""
    inputs: tuple[tuple[str, int | None], ...]
    """The constants that it reads, or what an earlier call made, with its place in the block."""
    bytes: int = 0
    """Bytes of what it makes."""


@dataclass(frozen=True)
class PackPlan:
    """The packs of graphs that share their constants."""

    calls: tuple[PackCall, ...] = ()
    values: tuple[Mapping[str, int], ...] = ()
    """For each graph: value that a kernel of constants makes -> its place in the block."""
    nodes: tuple[Mapping[int, int], ...] = ()
    """For each graph: number of a node -> the place of what its kernel's pack makes."""
    packings: Mapping[str, Packing] = field(default_factory=dict)
    """Text of a program -> the pack of its kernel."""
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.calls)


def constant_homes(graph: Graph, seldom: Collection[str] = ()) -> tuple[frozenset[str], frozenset[int]]:
    """The values that depend on constants alone, but for those that callers get or a check looks at, and the
    numbers of the nodes that make them. None in a graph with parts that peers run. ``seldom``: inputs that
    count as constants."""
    constants = {*graph.constants, *seldom}
    if graph.foreign:
        return frozenset(constants), frozenset()
    kept = {graph.home(value.name) for value in graph.outputs}
    kept |= {graph.home(check.value) for check in graph.checks}
    return _spread(constants, graph.nodes, kept, graph.home)


class _Call(Protocol):
    """A call by the names of its arrays."""

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...


def _spread(
    constants: Collection[str], calls: Sequence[_Call], kept: Collection[str], home: Callable[[str], str]
) -> tuple[frozenset[str], frozenset[int]]:
    """The constants, with what calls make of constants alone, and the numbers of these calls. ``kept``:
    values that are no such result."""
    known, alone = set(constants), set()
    for k, call in enumerate(calls):
        if all(home(name) in known for name in call.inputs) and not any(n in kept for n in call.outputs):
            known.update(call.outputs)
            alone.add(k)
    return frozenset(known), frozenset(alone)


def packed_values(graph: Graph, seldom: Collection[str] = ()) -> tuple[str, ...]:
    """The values that kernels make of constants alone."""
    _, nodes = constant_homes(graph, seldom)
    return tuple(name for k in sorted(nodes) for name in graph.nodes[k].outputs)


def has_function(plugins: Plugins, target: Target, graph: Graph) -> bool:
    """True if the model will be a function in C: only that packs."""
    if graph.foreign or not graph.nodes or plugins.packager(target) is not None:
        return False
    return plugins.guarded_generator(target).generate(graph.nodes[0].program, "pd_asked").language == "c"


def packings_of(kernels: Iterable[Found]) -> dict[str, Packing]:
    """Text of a program -> the pack of its kernel, where it has one."""
    return {f.kernel.program.text: f.source.packing for f in kernels if f.source.packing is not None}


def constant_inputs(graphs: Sequence[Graph], seldom: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Text of a program -> its inputs that are constants, in most of the nodes where any is: a kernel has one
    pack, and nodes with other constants call it whole."""
    found = []
    for graph in graphs:
        constants, alone = constant_homes(graph, seldom)
        for k, node in enumerate(graph.nodes):
            if k not in alone and not graph.foreign:
                pairs = zip(node.program.given, node.inputs, strict=True)
                names = tuple(array for array, name in pairs if graph.home(name) in constants)
                found.append((node.program.text, names))
    return _commonest(found)


def _commonest(calls: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Kernel -> the constant inputs that most of its calls with any have."""
    counts: dict[str, Counter[tuple[str, ...]]] = {}
    for kernel, names in calls:
        if names:
            counts.setdefault(kernel, Counter())[names] += 1
    return {kernel: counted.most_common(1)[0][0] for kernel, counted in counts.items()}


def constants_of_package(
    manifest: ModelManifest, given: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Kernel of a model that was built -> its inputs that are constants, as :func:`constant_inputs` finds
    them. ``given``: kernel -> the names of its inputs."""
    found = []
    for graph in manifest.blocks.values() or (manifest,):
        home = partial(home_of, graph.views)
        kept = {home(name) for name in (*graph.outputs, *(check.value for check in graph.checks))}
        constants, alone = _spread(graph.constants, graph.nodes, kept, home)
        for k, node in enumerate(graph.nodes):
            if k not in alone and node.kernel and manifest.symbol:
                pairs = zip(given[node.kernel], node.inputs, strict=True)
                found.append((node.kernel, tuple(array for array, name in pairs if home(name) in constants)))
    return _commonest(found)


def seldom_cached(
    programs: Iterable[Program], constants: Mapping[str, Sequence[str]], weights: int, figures: MachineFigures
) -> list[Program]:
    """The programs whose data no cache holds when they are called, since a model has more bytes of
    ``weights`` than the last one holds, if they use each element of their constants, most of their data, few
    times. ``constants``: text of a program -> its constant inputs.

    Other layouts gain them nothing, so they need no pack: a pack would be used once, from memory as well.
    """
    found, cache = [], max((level.bytes for level in figures.caches.values()), default=weights)
    for program in programs if weights > cache else ():
        arrays = {array: program.buffer_of[array] for array in program.interface}
        fixed = [arrays[array] for array in constants.get(program.text, ())]
        most = max((buffer.cells for buffer in fixed), default=0)
        uses = max(node.instances for node in program.body)
        if uses <= FEW_USES * most and 2 * sum(b.bytes for b in fixed) > sum(
            b.bytes for b in arrays.values()
        ):
            found.append(program)
    return found


def kept_warm(
    programs: Iterable[Program], constants: Mapping[str, Sequence[str]], weights: int, figures: MachineFigures
) -> tuple[dict[str, tuple[str, ...]], list[Program]]:
    """The constant inputs of programs but for those of :func:`seldom_cached`, and the latter programs; the
    arguments are the same."""
    cold = seldom_cached(programs, constants, weights, figures)
    left_out = {program.text for program in cold}
    return {text: tuple(names) for text, names in constants.items() if text not in left_out}, cold


def packing_builder(constants: Mapping[str, Sequence[str]], cold: Collection[str] = ()) -> MakeBuilder:
    """Makes builders of kernels that offer packs. ``constants``: symbol of a kernel -> its constant
    inputs; ``cold``: symbols of :func:`seldom_cached`."""

    def make(
        plugins: Plugins, target: Target, settings: Settings, figures: MachineFigures | None = None
    ) -> KernelBuilder:
        return KernelBuilder(with_packs(BuildContext.of(plugins, target, settings, figures), constants, cold))

    return make


def by_symbols(
    programs: Iterable[Program], constants: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """The constant inputs of kernels by their symbols: that of a model's library, and that of the cache, in
    which these inputs are told. ``constants``: text of a program -> its constant inputs."""
    given = {program: constants[program.text] for program in programs if program.text in constants}
    return {f"pd_{kernel_name(p, told)}": names for p, names in given.items() for told in ((), names)}


def with_packs(
    context: BuildContext, constants: Mapping[str, Sequence[str]], cold: Collection[str] = ()
) -> BuildContext:
    """The context in which kernels offer packs; arguments as for :func:`packing_builder`."""
    generator = PackingGenerator(context.generator, context.rules.dialect, constants)
    return replace(context, generator=generator, constants=constants, cold=cold)


def plan_packing(
    graphs: Sequence[Graph], packings: Mapping[str, Packing], seldom: Collection[str] = ()
) -> PackPlan:
    """The plan for graphs that share their constants. ``packings``: text of a program -> the pack of its
    kernel; ``seldom``: inputs that count as constants."""
    calls: list[PackCall] = []
    known: dict[object, tuple[int, ...]] = {}
    total = 0

    def placed(key: object, sizes: Sequence[int], call: PackCall) -> tuple[int, ...]:
        nonlocal total
        if key not in known:
            places = []
            for size in sizes:
                places.append(total)
                total += rounded_up(size)
            known[key] = tuple(places)
            calls.append(replace(call, places=known[key], bytes=sum(sizes)))
        return known[key]

    values, nodes = [], []
    for graph in graphs:
        constants, alone = constant_homes(graph, seldom)
        mine: dict[str, int] = {}
        own: dict[int, int] = {}
        for k, node in enumerate(graph.nodes):
            homes = {a: graph.home(n) for a, n in zip(node.program.given, node.inputs, strict=True)}
            packing = None if k in alone else packings.get(node.program.text)
            if k in alone:
                read = tuple((home, mine.get(home)) for home in homes.values())
                sizes = [graph.values[name].bytes for name in node.outputs]
                key: object = (node.program.text, read)
                found = placed(key, sizes, PackCall(node, None, (), read))
                mine.update(zip(node.outputs, found, strict=True))
            elif packing and all(homes[each.name] in constants for each in packing.constants):
                read = tuple((homes[a.name], mine.get(homes[a.name])) for a in packing.constants)
                call = PackCall(node, packing, (), read)
                [own[k]] = placed((packing.identity, read), [packing.bytes], call)
        values.append(mine)
        nodes.append(own)
    return PackPlan(tuple(calls), tuple(values), tuple(nodes), dict(packings), total)
