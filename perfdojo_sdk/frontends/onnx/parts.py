"""Nodes of a model that a peer runs: as few parts as their order allows, each a model of its own.

A node without kernels belongs to the peer. So does what reads a result of it whose type or shape only the
peer knows, such as strings. Nodes of one level are one part: the level of a node is one more than the largest
number of parts, one after the other, that come before it by a way through our kernels; so no path leads out
of a part and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from perfdojo_sdk.frontends.onnx.edges import INNER, Edge, Unknown
from perfdojo_sdk.frontends.onnx.reading import dtype_name, shown
from perfdojo_sdk.frontends.onnx.types import element_type
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Foreign, Graph, Value
from perfdojo_sdk.graph.graph import Node as Kernel
from perfdojo_sdk.graph.passes import read_outside
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.models.peers import CROSSING, as_content
from perfdojo_sdk.models.racing import Offer

Edges = Mapping[str, "Edge | Unknown | None"]
#: Most elements of a constant that the inference of shapes is told.
MOST_TOLD = 2**12


@dataclass
class _Taken:
    """A node that the peer runs."""

    node: Any
    name: str
    level: int
    why: str


@dataclass
class Parts:
    """The parts of one model, while its nodes are walked through."""

    model: Any
    peer: str
    _taken: list[_Taken] = field(default_factory=list)
    _levels: dict[str, int] = field(default_factory=dict)
    """Value of the model -> twice the number of parts on the way to it, and one more if a part makes it."""
    _makers: dict[str, _Taken] = field(default_factory=dict)
    """Value of the model -> the peer's node that makes it."""
    _constants: dict[str, Any] = field(default_factory=dict)
    """Initializers of types that the language lacks."""

    def constant(self, tensor: Any) -> Unknown:
        """An initializer that only the peer can read."""
        self._constants[tensor.name] = tensor
        return INNER

    def ours(self, node: Any) -> None:
        """Note a node of kernels."""
        level = max((self._levels.get(name, 0) for name in reads(node)), default=0)
        self._levels.update(dict.fromkeys(node.output, level + level % 2))

    def take(
        self, builder: Builder, node: Any, name: str, edges: Edges, refused: Refused
    ) -> list[Edge | Unknown | None]:
        """The results of a node that the peer runs; :class:`Refused` if it cannot have its operands."""
        for each in reads(node):
            edge = edges.get(each)
            if edge is not None and edge is not INNER:
                _crossing(builder, each, edge)
        level = max((self._levels.get(each, 0) for each in reads(node)), default=0)
        taken = _Taken(node, name, level + 1 - level % 2, f"{refused.what} ({refused.reason.value})")
        for each in reads(node):
            maker = self._makers.get(each)
            if maker is not None and edges.get(each) is INNER and maker.level != taken.level:
                what = f"{shown(each)} would have to leave {self.peer}, and its type is not known"
                raise Refused(refused.reason, f"{refused.what}; {what}")
        found = self._results(builder, taken, edges)
        self._taken.append(taken)
        for each in node.output:
            self._levels[each] = taken.level
            self._makers[each] = taken
        return found

    def _results(self, builder: Builder, taken: _Taken, edges: Edges) -> list[Edge | Unknown | None]:
        """A value for each output whose type and shape the standard's inference tells."""
        inside = self._with_makers(taken, edges)
        outputs = [onnx.ValueInfoProto(name=name) for name in taken.node.output if name]
        part = self._model([each.node for each in inside], builder, edges, outputs, MOST_TOLD)[0]
        try:
            inferred = shape_inference.infer_shapes(part, data_prop=True)
        except (
            Exception
        ) as error:  # the standard's own code: of an operator that it does not know, or wrong types
            raise Malformed(f"node {taken.name} has operands of wrong types", str(error)[:300]) from None
        types = {each.name: each.type for each in inferred.graph.output}
        return [_value(builder, types[name]) if name else None for name in taken.node.output]

    def _with_makers(self, taken: _Taken, edges: Edges) -> list[_Taken]:
        """A node after those that make the operands whose types only the peer knows."""
        found: dict[int, _Taken] = {}
        todo = [taken]
        while todo:
            each = todo.pop()
            if id(each) not in found:
                found[id(each)] = each
                todo += [
                    self._makers[name]
                    for name in reads(each.node)
                    if edges.get(name) is INNER and name in self._makers
                ]
        places = {id(each): k for k, each in enumerate(self._taken)}
        return sorted(found.values(), key=lambda each: places.get(id(each), len(places)))

    def close(self, builder: Builder, edges: Edges) -> Iterator[tuple[str, str, Refused]]:
        """Add the parts to the graph; nodes that the peer does not run either, with their reasons."""
        wanted = {output.name for output in self.model.graph.output}
        wanted_by = {id(t.node): t.level for t in self._taken}
        for level in sorted({taken.level for taken in self._taken}):
            members = [taken for taken in self._taken if taken.level == level]
            outside = set(wanted)
            for node in self.model.graph.node:
                if wanted_by.get(id(node)) != level:
                    outside.update(reads(node))
            made = [name for taken in members for name in taken.node.output if name in outside]
            values = {name: edge for name in made if isinstance(edge := edges[name], Value)}
            if not values:
                continue
            outputs = [_typed(name, value) for name, value in values.items()]
            nodes = [taken.node for taken in members]
            try:
                model, inputs = self._model(nodes, builder, edges, outputs, None)
                content = as_content(self.peer, model)
            except Refused as refused:
                yield ", ".join(t.name for t in members), members[0].node.op_type, refused
                continue
            builder.foreign(
                Foreign(
                    f"part{level // 2}",
                    self.peer,
                    content,
                    tuple(value.name for value in inputs),
                    tuple(value.name for value in values.values()),
                    tuple(taken.name for taken in members),
                    "; ".join(dict.fromkeys(taken.why for taken in members)),
                )
            )

    def _model(
        self, nodes: Sequence[Any], builder: Builder, edges: Edges, outputs: Sequence[Any], most: int | None
    ) -> tuple[Any, list[Value]]:
        """A model of some nodes, and the values that are its inputs. Constants of at most so many elements
        are in it, the others inputs as well; None: all of them."""
        inside = {name for node in nodes for name in node.output}
        inputs: dict[str, Value] = {}
        tensors: dict[str, Any] = {}
        for name in dict.fromkeys(name for node in nodes for name in reads(node)):
            edge = edges.get(name)
            if name in inside or edge is None:
                continue
            if edge is INNER:
                if name in self._constants:
                    tensors[name] = self._constants[name]
                continue
            value = _crossing(builder, name, edge)
            data = _known(builder, value, most)
            if data is not None:
                tensors[name] = numpy_helper.from_array(data, name)
            else:
                inputs[name] = value
        graph = helper.make_graph(
            list(nodes),
            "part",
            [_typed(name, value) for name, value in inputs.items()],
            list(outputs),
            list(tensors.values()),
        )
        opsets = list(self.model.opset_import)
        made = helper.make_model(graph, opset_imports=opsets)
        # The oldest form that has these operators, and functions (8): a peer may not read the newest one.
        made.ir_version = max(8, helper.find_min_ir_version_for(opsets, ignore_unknown=True))
        made.functions.extend(self.model.functions)
        return made, list(inputs.values())


@dataclass(frozen=True)
class Sources:
    """The nodes of a model beside the values of its graph, of which a peer is offered parts."""

    parts: Parts
    builder: Builder
    edges: Edges
    names: Mapping[str, Sequence[Any]]
    """Name of a node -> the nodes that have it."""

    def offer(self, graph: Graph, members: frozenset[int], peer: str, name: str) -> Offer:
        """The part that does what these nodes of the graph do; :class:`Refused` if there is none."""
        kernels = [graph.nodes[k] for k in sorted(members)]
        if any(kernel.program.in_out for kernel in kernels):
            raise Refused(Reason.CHOICE, "a kernel changes an input in place")
        written = {output for kernel in kernels for output in kernel.outputs}
        inside = self._nodes(graph, kernels, written)
        made = {output: node for node in inside for output in node.output if output}
        values: dict[str, Value] = {}
        views: dict[str, str] = {}
        results: dict[str, Value] = {}
        for home in sorted(written & read_outside(graph, members)):
            known = [each for each in made if self._home(graph, each) == home]
            if not known:
                raise Refused(Reason.CHOICE, f"{graph.values[home].text} is no value of the original model")
            edge = self.edges[known[0]]
            assert isinstance(edge, Value)
            result = Value(f"{home}.{name}", edge.shape, edge.dtype)
            if (result.elements, result.dtype) != (graph.values[home].elements, graph.values[home].dtype):
                raise Refused(Reason.CHOICE, f"{home} has another type in the original model")
            values[result.name], views[home], results[known[0]] = result, result.name, result
        outputs = [_typed(each, value) for each, value in results.items()]
        model, inputs = self.parts._model(inside, self.builder, self.edges, outputs, None)
        for value in inputs:
            if value.name not in graph.values:
                values[value.name] = value
                if self.builder.home(value) != value.name:
                    views[value.name] = self.builder.home(value)
        part = Foreign(
            name,
            peer,
            as_content(peer, model),
            tuple(value.name for value in inputs),
            tuple(value.name for value in results.values()),
            tuple(dict.fromkeys(origin for kernel in kernels for origin in kernel.origin.split(", "))),
        )
        return Offer(members, part, values, views)

    def _nodes(self, graph: Graph, kernels: Sequence[Kernel], written: set[str]) -> list[Any]:
        """The nodes of the model whose work kernels do, and those without kernels that lie between them."""
        taken: dict[int, Any] = {}
        for origin in (origin for kernel in kernels for origin in kernel.origin.split(", ")):
            nodes = self.names.get(origin, ())
            if len(nodes) != 1:
                raise Refused(Reason.CHOICE, f"{origin or 'a kernel'} is not the name of one node")
            taken[id(nodes[0])] = nodes[0]
        others = {o for n in graph.nodes if n not in kernels for o in n.origin.split(", ")}
        makers = {name: node for node in self.parts.model.graph.node for name in node.output}
        titles = {id(node): name for name, nodes in self.names.items() for node in nodes}
        todo = list(taken.values())
        while todo:
            for each in reads(todo.pop()):
                maker = makers.get(each)
                if maker is None or id(maker) in taken or self._there(graph, each, written):
                    continue
                if titles[id(maker)] in others:
                    raise Refused(Reason.CHOICE, f"{shown(each)} is inside of another kernel")
                taken[id(maker)] = maker
                todo.append(maker)
        return [node for node in self.parts.model.graph.node if id(node) in taken]

    def _home(self, graph: Graph, name: str) -> str:
        """The value of the graph that holds a value of the model; empty if it has none."""
        edge = self.edges.get(name)
        return graph.home(self.builder.home(edge)) if isinstance(edge, Value) else ""

    def _there(self, graph: Graph, name: str, written: set[str]) -> bool:
        """True if an operand of a part is known, or another kernel computes it."""
        edge = self.edges.get(name)
        if not isinstance(edge, Value):
            return edge is None
        home = self._home(graph, name)
        there = {value.name for value in graph.inputs} | {o for call in graph.calls for o in call.outputs}
        return _known(self.builder, edge, None) is not None or home in there - written


def reads(node: Any) -> list[str]:
    """The values that a node reads, those included that graphs inside of it may take from around it."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            own |= {name for inner in graph.node for name in inner.output}
            found += [name for inner in graph.node for name in reads(inner) if name not in own]
            found += [output.name for output in graph.output if output.name not in own]
    return list(dict.fromkeys(found))


def _crossing(builder: Builder, name: str, edge: Edge | Unknown) -> Value:
    """An operand, which must be an array that can go to a peer."""
    if not isinstance(edge, Value):
        raise Refused(Reason.TYPE, f"{shown(name)} is no array, and cannot go to a peer")
    if builder.count_of(edge) is not None:
        raise Refused(Reason.LENGTH, f"the size of {shown(name)} depends on data, and it cannot go to a peer")
    if edge.dtype not in CROSSING:
        raise Refused(Reason.DTYPE, f"{shown(name)} is {edge.dtype}, which cannot go to a peer")
    return edge


def _known(builder: Builder, value: Value, most: int | None) -> Array | None:
    """The elements of a constant; None for what follows from inputs, or is large."""
    if most is not None and value.elements > most or not builder.is_known(value):
        return None
    try:
        return np.array(builder.known(value))
    except Refused:  # too large to be computed now; our kernels compute it
        return None


def _typed(name: str, value: Value) -> Any:
    return helper.make_tensor_value_info(name, element_type(value.dtype), value.shape)


def _value(builder: Builder, declared: Any) -> Edge | Unknown:
    """A value of an inferred type, or :data:`INNER` where it is open or none of the language's."""
    kind = declared.tensor_type
    if declared.WhichOneof("value") != "tensor_type" or not kind.HasField("shape"):
        return INNER
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in kind.shape.dim):
        return INNER
    try:
        dtype = dtype_name(kind.elem_type)
    except (Refused, Malformed):
        return INNER
    if dtype not in CROSSING:
        return INNER
    return builder.peer_value(tuple(dim.dim_value for dim in kind.shape.dim), dtype)
