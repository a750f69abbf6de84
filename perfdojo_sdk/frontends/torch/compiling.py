"""A graph of PyTorch compiled: kernels of ours where rows take it, PyTorch itself for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.interface import MAX_THREADS
from perfdojo_sdk.frontends.torch.capture import DependsOnData, Unchangeable, captured, without_changes
from perfdojo_sdk.frontends.torch.lowering import Elsewhere, Group, Lowered, lower, with_views_apart
from perfdojo_sdk.frontends.torch.running import GraphCall, forbidden
from perfdojo_sdk.frontends.torch.tensors import array_of, tensor_of
from perfdojo_sdk.frontends.torch.workshop import Workshop
from perfdojo_sdk.frontends.torch.writing import is_write, written_inputs
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.running import interpreted, run_graph
from perfdojo_sdk.models.packing import constant_inputs
from perfdojo_sdk.models.policy import Policy

#: Types of tensors whose memory a kernel may read as it is.
PLAIN = frozenset({Tensor, torch.nn.Parameter, torch.nn.Buffer})


class Unsupported(DojoError):
    """Parts of a model have no kernel, and nothing else may run them; :attr:`elsewhere` lists them."""

    def __init__(self, elsewhere: Sequence[Elsewhere], hint: str = "") -> None:
        self.elsewhere = tuple(elsewhere)
        why = "; ".join(each.text for each in self.elsewhere[:20])
        more = len(self.elsewhere) - 20
        many = len(self.elsewhere) > 1
        super().__init__(
            "PD-O004",
            f"{len(self.elsewhere)} parts of the model have no kernel"
            if many
            else "a part of the model has no kernel",
            why=why + (f"; and {more} more" if more > 0 else ""),
            hint=hint or 'leave out {"fallback": None}, and PyTorch runs them',
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Unsupported, (self.elsewhere, self.hint))


@dataclass(frozen=True)
class KernelReport:
    """One distinct kernel of a graph."""

    name: str
    calls: int
    origins: tuple[str, ...]
    """Nodes of PyTorch's graph that it computes."""
    legs: Mapping[str, str] = field(default_factory=dict)
    """Leg of verification -> its result in words; empty for the interpreter, which needs none."""
    median_s: float | None = None
    """The measured time of a call, without its pack."""
    packed_bytes: int = 0
    """Bytes that the kernel packs of parameters; 0 if it packs nothing."""


@dataclass(frozen=True)
class GraphReport:
    """One graph that was compiled: its kernels, and what runs elsewhere."""

    kernels: tuple[KernelReport, ...]
    elsewhere: tuple[Elsewhere, ...]
    whole: str = ""
    """The reason why PyTorch runs the whole graph; empty if it does not."""
    operators: Mapping[str, int] = field(default_factory=dict)


Step = tuple[Callable[..., Sequence[Any]], tuple[int, ...], tuple[int, ...]]


class CompiledGraph:
    """A function of the graph's inputs that returns the list of its outputs."""

    def __init__(self, original: Callable[..., Any], lowered: Lowered, calls: Mapping[int, Any]) -> None:
        self._original = original
        nodes = list(lowered.module.graph.nodes)
        places = [n for n in nodes if n.op == "placeholder"]
        self._count = len(places)
        self._written = written_inputs(lowered.module)
        numbers: dict[Node, int] = {node: k for k, node in enumerate(places)}
        steps: list[Step] = []
        for k, group in enumerate(lowered.groups):
            if not group.outputs and not any(map(is_write, group.nodes)):
                continue
            call = calls[k] if group.graph is not None else eager_call(lowered.module, group)
            if group.graph is not None:
                call = _laid_out(call, group, set(group.nodes))
            for node in group.outputs:
                numbers[node] = len(numbers)
            # Constants of a group of ours are in its graph, and PyTorch's calls read theirs themselves.
            given = tuple(numbers[n] for n in group.inputs if n.op != "get_attr")
            steps.append((call, given, tuple(numbers[n] for n in group.outputs)))
        self._size = len(numbers)
        [output] = [n for n in nodes if n.op == "output"]
        found = output.args[0]
        parts = list(found) if isinstance(found, list | tuple) else [found]
        self._single = not isinstance(found, list | tuple)
        attributes = [p for p in parts if isinstance(p, Node) and p.op == "get_attr"]
        self._held = {n: _held(lowered.module, n) for n in attributes}
        self._results = [
            (numbers[p], None) if isinstance(p, Node) and p not in self._held
            else (-1, self._held[p] if isinstance(p, Node) else p)
            for p in parts
        ]  # fmt: skip
        self._steps = steps
        places_of = [place for place, _ in self._results]
        #: One step over all inputs in their order, whose outputs are the results in their order.
        self._direct = (
            steps[0][0]
            if len(steps) == 1
            and steps[0][1] == tuple(range(self._count))
            and list(steps[0][2]) == places_of
            and not self._single
            else None
        )

    def repack(self) -> None:
        """Pack again at the next call, whatever versions say."""
        for call, _, _ in self._steps:
            if isinstance(call, GraphCall):
                call.repack()

    def __call__(self, *inputs: Any) -> Any:
        for value in inputs:
            if type(value) not in PLAIN and isinstance(value, Tensor):
                return self._original(*inputs)  # a fake tensor, or one of a kind of its own
        if self._written and _overlap(inputs, self._written):
            return self._original(*inputs)
        if self._direct is not None:
            return self._direct(*inputs)
        values: list[Any] = [None] * self._size
        values[: self._count] = inputs
        for call, given, made in self._steps:
            for place, value in zip(made, call(*[values[k] for k in given])):
                values[place] = value
        results = [values[place] if place >= 0 else held for place, held in self._results]
        return results[0] if self._single else results


def _overlap(inputs: Sequence[Any], written: Sequence[int]) -> bool:
    """True if an input that is written shares its memory with another one, or elements of it do."""
    memory = [v.untyped_storage().data_ptr() if isinstance(v, Tensor) else None for v in inputs]
    return any(
        inputs[k].numel() and (memory.count(memory[k]) > 1 or torch._debug_has_internal_overlap(inputs[k]))
        for k in written
    )


def _laid_out(call: Callable[..., Any], group: Group, members: set[Node]) -> Callable[..., Any]:
    """A call of kernels whose results lie in memory as PyTorch's do, where PyTorch sees them: a view that
    suits its layout may not suit that of a kernel, which is row by row."""
    strides: dict[int, tuple[int, ...]] = {}
    for k, node in enumerate(group.outputs):
        value = node.meta.get("val")
        seen = any(user not in members for user in node.users)
        if not seen or not isinstance(value, Tensor) or not value.numel() or value.is_contiguous():
            continue
        steps = sorted(zip(value.stride(), value.shape, strict=True))
        dense = all(
            step == prod(size for _, size in steps[:n]) for n, (step, size) in enumerate(steps) if size > 1
        )
        if dense:  # an expanded one, or one with gaps, stays row by row
            strides[k] = tuple(int(s) for s in value.stride())
    if not strides:
        return call

    def laid_out(*tensors: Any) -> list[Any]:
        results = list(call(*tensors))
        for k, wanted in strides.items():
            made = results[k]
            results[k] = torch.empty_strided(made.shape, wanted, dtype=made.dtype).copy_(made)
        return results

    return laid_out


def _held(module: GraphModule, node: Node) -> Any:
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def eager_call(module: GraphModule, group: Group) -> Callable[..., Sequence[Any]]:
    """The calls of a group as PyTorch runs them."""
    graph = FxGraph()
    copies: dict[Node, Node] = {}
    for node in group.inputs:
        if node.op == "get_attr":
            copies[node] = graph.get_attr(str(node.target))
        else:
            copies[node] = graph.placeholder(node.name)
    for node in group.nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(tuple(copies[n] for n in group.outputs))
    made: Callable[..., Sequence[Any]] = GraphModule(module, graph).forward
    return made


class InterpretedCall:
    """A graph in the language's interpreter, which is exact and slow."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        names = [value.name for value in self.graph.inputs]
        arrays = {n: array_of(t) for n, t in zip(names, tensors, strict=True)}
        try:
            found = run_graph(self.graph, arrays, interpreted)
        except Malformed as broken:  # a rule about data, such as that of indices
            raise forbidden(broken.what) from None
        return [tensor_of(each) for each in found]


@dataclass(frozen=True)
class Choices:
    """Options of ``torch.compile(backend="perfdojo", options={...})``."""

    target: str = "best"
    fallback: str | None = "eager"
    """None: refuse a graph that is not wholly ours."""
    tune: int | None = None
    threads: int | None = None
    """By default as many as PyTorch has."""
    pack: bool = True
    """Lay out parameters once, and again when their version says that they changed, or they lie elsewhere."""
    interpret: bool = False
    """Run kernels in the language's interpreter: exact, slow, and without a compiler."""

    def __post_init__(self) -> None:
        if self.fallback not in ("eager", None):
            what = f"the option fallback is {self.fallback!r}"
            why = "PyTorch runs what has no kernel (eager), or nothing does (None)"
            raise DojoError("PD-O021", what, why=why, hint="fallback='eager', or fallback=None")
        for name, most in (("threads", MAX_THREADS), ("tune", 10**6)):
            given = getattr(self, name)
            if given is not None and not (type(given) is int and 1 <= given <= most):
                what = f"the option {name} is {given!r}, expected an integer from 1 to {most}"
                raise DojoError("PD-O021", what, hint=f"{name}=1, or leave it out")
        for name in ("pack", "interpret"):
            if not isinstance(getattr(self, name), bool):
                what = f"the option {name} is {getattr(self, name)!r}, expected True or False"
                raise DojoError("PD-O021", what, hint=f"{name}=True, or leave it out")
        if not isinstance(self.target, str):
            what = f"the option target is {self.target!r}, expected the name of a target"
            raise DojoError("PD-O021", what, hint="target='best', or leave it out")

    @property
    def policy(self) -> Policy:
        """The policy about PyTorch as a peer: it runs parts without kernels, unless that is refused."""
        return Policy(fallback="torch" if self.fallback else "")


def choices(options: Mapping[str, Any] | None) -> Choices:
    """Checked options."""
    known = set(Choices.__dataclass_fields__)
    unknown = [name for name in options or {} if name not in known]
    if unknown:
        what = f"the backend perfdojo has no option {unknown[0]!r}"
        raise DojoError("PD-O021", what, hint=f"options are {', '.join(sorted(known))}")
    return Choices(**(options or {}))


def compile_graph(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    chosen: Choices,
    shop: Workshop | None,
    said: Callable[[str], None] | None = None,
) -> tuple[Callable[..., Any], GraphReport]:
    """Compile a function of tensors for inputs like these. ``shop``: None for the interpreter.

    :class:`Unsupported` if a part has no kernel and ``chosen.fallback`` is None.
    """
    try:
        module = with_views_apart(without_changes(captured(function, inputs), inputs_too=True))
    except (Unchangeable, DependsOnData) as reason:
        return _whole(function, chosen, str(reason))
    refused: dict[str, str] = {}
    constants: dict[str, tuple[str, ...]] = {}
    while True:
        lowered = lower(module, refused)
        if lowered.elsewhere and not chosen.policy.peer_for(None):
            raise Unsupported(lowered.elsewhere)
        if shop is None:
            break
        single, lowered = lowered, _joined(lowered, shop)
        programs = {p.text: p for g in lowered.groups if g.graph for p in g.graph.programs}
        constants = _constants(lowered, inputs) if chosen.pack else {}
        failed = shop.prepare(list(programs.values()), said, constants)
        if not failed:
            break
        # A joined kernel that failed is not made again; the call of a single one that failed is refused.
        for group in single.groups:
            for node in group.graph.nodes if group.graph else ():
                if node.program.text in failed:
                    error = failed[node.program.text]
                    refused[node.origin] = f"kernel {node.program.name}: {error.what}"
    calls: dict[int, Any] = {}
    for k, group in enumerate(lowered.groups):
        if group.graph is None:
            continue
        if shop is None:
            calls[k] = InterpretedCall(group.graph)
        else:
            kernels = {p.text: shop.kernel(p, constants.get(p.text, ())) for p in group.graph.programs}
            seldom = _parameters(lowered, group, inputs) if chosen.pack and shop.packs else ()
            calls[k] = GraphCall(group.graph, kernels, shop.threads, seldom)
    return CompiledGraph(function, lowered, calls), _report(lowered, shop, constants)


def _parameters(lowered: Lowered, group: Group, inputs: Sequence[Any]) -> tuple[str, ...]:
    """The inputs of a group's graph that are parameters or buffers of a module, or held by the graph."""
    assert group.graph is not None, "a group of ours"
    places = [node for node in lowered.module.graph.nodes if node.op == "placeholder"]
    kinds, written = (torch.nn.Parameter, torch.nn.Buffer), written_inputs(lowered.module)
    seldom = {
        node
        for k, (node, value) in enumerate(zip(places, inputs, strict=True))
        if isinstance(value, kinds) and k not in written
    }
    pairs = zip(group.graph.inputs, group.inputs, strict=True)
    return tuple(value.name for value, node in pairs if node in seldom)


def _constants(lowered: Lowered, inputs: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    """Text of a program -> its inputs that depend on parameters alone."""
    found: dict[str, tuple[str, ...]] = {}
    for group in lowered.groups:
        if group.graph is not None:
            mine = constant_inputs([group.graph], _parameters(lowered, group, inputs))
            found |= {text: names for text, names in mine.items() if text not in found}
    return found


def _joined(lowered: Lowered, shop: Workshop) -> Lowered:
    """The groups with their kernels joined where that pays."""
    groups = tuple(replace(g, graph=shop.joined(g.graph)) if g.graph else g for g in lowered.groups)
    return replace(lowered, groups=groups)


def _whole(
    function: Callable[..., Any], chosen: Choices, reason: str
) -> tuple[Callable[..., Any], GraphReport]:
    """The function itself, for a reason that concerns all of it."""
    if not chosen.policy.peer_for(None):
        raise Unsupported([Elsewhere("the whole graph", "", reason)])
    return function, GraphReport((), (), reason)


def _report(
    lowered: Lowered, shop: Workshop | None, constants: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> GraphReport:
    counts: dict[str, list[str]] = {}
    programs: dict[str, Any] = {}
    for group in lowered.groups:
        for node in group.graph.nodes if group.graph else ():
            counts.setdefault(node.program.text, []).append(node.origin)
            programs[node.program.text] = node.program
    kernels = []
    for text, origins in counts.items():
        legs, median, packed = {}, None, 0
        if shop is not None:
            _, entry = shop.kernel(programs[text], constants.get(text, ()))
            packed = entry.packing.bytes if entry.packing else 0
            legs = {
                name: ("passed: " if leg.passed else "failed: ") + leg.detail
                for name, leg in (
                    ("exact", entry.verification.exact),
                    ("numeric", entry.verification.numeric),
                    ("dependence", entry.verification.dependence),
                )
            }
            median = entry.timing.call.median_s if entry.timing.call else None
        kernels.append(
            KernelReport(
                programs[text].name, len(origins), tuple(dict.fromkeys(origins)), legs, median, packed
            )
        )
    return GraphReport(tuple(kernels), lowered.elsewhere, "", lowered.operators)
