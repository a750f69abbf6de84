"""Lowering of a model of the standard to a graph of kernels: node by node, by rules, functions expanded.

A node without a rule whose operator is a function of the standard, or of the model, becomes the nodes of its
body. What cannot be lowered is collected with its reason, and the walk goes on, so that a report is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from perfdojo_sdk.core.errors import DojoError, ProgramError
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.frontends.onnx import control
from perfdojo_sdk.frontends.onnx.edges import (
    INNER,
    Absent,
    Edge,
    Form,
    Items,
    Unknown,
    is_edge,
    item_name,
    items_of,
    merged,
    outputs_of,
    regrouped,
    values_of,
)
from perfdojo_sdk.frontends.onnx.operation import Expand, Operation, Rule
from perfdojo_sdk.frontends.onnx.operators import OTHERS, RULES
from perfdojo_sdk.frontends.onnx.operators.lengths import passed
from perfdojo_sdk.frontends.onnx.parts import Parts, Sources
from perfdojo_sdk.frontends.onnx.reading import (
    MAX_DEPTH,
    MAX_EXPANDED,
    array_of,
    dtype_name,
    named,
    read_model,
    shown,
    subgraphs,
)
from perfdojo_sdk.frontends.onnx.schemas import (
    attributes_of,
    body_of,
    defaults_of,
    is_function,
    opset_of,
    schema_of,
    uses_in,
    value_of,
)
from perfdojo_sdk.frontends.onnx.sizes import sizes_of
from perfdojo_sdk.frontends.onnx.supported import EARLIER, FIRST_OPSET, REASONS
from perfdojo_sdk.frontends.onnx.types import STANDARD
from perfdojo_sdk.frontends.sizes import fits, text_of
from perfdojo_sdk.graph.arrays import dtype_of
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Graph, Shape, Value
from perfdojo_sdk.graph.operators.elementwise import where
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused, ValueNeeded

#: Operators that hand on values as they are, however long.
CARRYING = ("Identity", "SequenceConstruct", "SequenceInsert", "Optional", "OptionalGetElement")
CONTROLS = ("If", "Loop", "Scan", "SequenceMap")


@dataclass(frozen=True)
class Refusal:
    """A node that is not supported, and why."""

    node: str
    operator: str
    reason: Reason
    what: str

    @property
    def text(self) -> str:
        return f"{self.node} ({self.operator}): {self.what} ({self.reason.value})"


class Unsupported(DojoError):
    """Parts of a model are not supported; :attr:`refusals` lists all of them."""

    def __init__(self, name: str, refusals: Sequence[Refusal]) -> None:
        self.name, self.refusals = name, tuple(refusals)
        why = "; ".join(r.text for r in self.refusals[:20])
        count, more = len(self.refusals), len(self.refusals) - 20
        super().__init__(
            "PD-O004",
            f"{number_of(count, 'nodes')} of {name} {'is' if count == 1 else 'are'} not supported",
            why=why + (f"; and {more} more" if more > 0 else ""),
            hint="`perfdojo-sdk optimize MODEL --list` prints all of them with their reasons",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Unsupported, (self.name, self.refusals))


class Fate(StrEnum):
    """The part of a graph that a node of a model becomes."""

    COMPILED = "compiled"
    MOVED = "moved"
    """Its results are arrays that are there, under another shape or in a sequence."""
    FOLDED = "folded"
    """Its results follow from constants and sizes."""
    UNUSED = "unused"


@dataclass(frozen=True)
class Lowered:
    """A model as a graph, or the reasons why it is none."""

    graph: Graph | None
    refusals: tuple[Refusal, ...]
    operators: Mapping[str, int] = field(default_factory=dict)
    """Operator -> its number of nodes in the model."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Node -> its operator."""
    forms: Mapping[str, Form] = field(default_factory=dict)
    """The model's outputs, and the graph's that each consists of."""
    fates: Mapping[Fate, int] = field(default_factory=dict)
    """Numbers of nodes by what they became."""
    sources: Sources | None = None
    """For races with a peer, if they were asked for."""
    needed: ValueNeeded | None = None
    """Inputs whose values decide about shapes; the nodes that need them are among the refusals."""
    rest: Graph | None = None
    """The part that can be lowered of a model that is none: a target may refuse kernels of that, too."""

    def outputs(self, found: Sequence[Array]) -> list[Any]:
        """The model's outputs from those of the graph: arrays, lists of arrays, or None."""
        names = [n for form in self.forms.values() for n in ([form] if isinstance(form, str) else form or ())]
        return regrouped(dict(zip(names, found, strict=True)), self.forms)


_REFUSED = Unknown()
_Edges = dict[str, "Edge | Unknown | None"]


def lower(
    source: Path | str | bytes | Any,
    shapes: Mapping[str, Shape] | None = None,
    known: Mapping[str, Array] | None = None,
    folder: Path | None = None,
    lengths: Mapping[str, int | None] | None = None,
    peer: str = "",
    elsewhere: Mapping[str, str] | None = None,
    races: bool = False,
    listed: bool = False,
) -> Lowered:
    """Lower a model. ``shapes``: of inputs, where the model leaves them open; ``known``: values of inputs on
    which shapes depend, which are constants then and stay inputs in the interface; ``folder``: of external
    data; ``lengths``: of inputs that are sequences, whose arrays are inputs ``name[k]``, None for an optional
    without a value; by default, ``shapes`` tell. ``peer``: runs nodes that are not supported, and those of
    ``elsewhere`` (node -> reason), as :attr:`Graph.foreign`. ``races``: keep what races need.
    ``listed``: list nodes whose shapes depend on values that are not known.

    :class:`Malformed` when the model breaks the standard, :class:`ValueNeeded` when shapes depend on inputs
    whose values are not known, and that is not to be ``listed``.
    """
    model, found = read_model(source)
    parts = Parts(model, peer) if peer else None
    walk = _Lowering(model, folder or found, shapes or {}, known or {}, lengths or {}, parts, elsewhere or {})
    found_graph = walk.run()
    if found_graph.needed is not None and not listed:
        raise found_graph.needed
    if not races or found_graph.graph is None:
        return found_graph
    names: dict[str, list[Any]] = {}
    for node in model.graph.node:
        names.setdefault(shown(node.name or (node.output or [""])[0]), []).append(node)
    sources = Sources(Parts(model, peer), walk.builder, walk.edges, names)
    return replace(found_graph, sources=sources)


def operators_refused(model: Any) -> list[Refusal]:
    """The nodes of a model, and of the bodies in it, whose operators have no rule."""
    walk = _Lowering(model, None, {}, {}, {}, None, {})
    for body in (model.graph, *model.functions):
        opsets = {**walk.opsets, **{o.domain: o.version for o in getattr(body, "opset_import", ())}}
        for graph, _ in subgraphs(body):
            for node in graph.node:
                try:
                    walk.rule(node, opsets)
                except Refused as refused:
                    walk.refuse(shown(node.name or (node.output or [""])[0]), shown(node.op_type), refused)
    return walk.refusals


class _Lowering:
    """The walk over one model."""

    def __init__(
        self,
        model: Any,
        folder: Path | None,
        shapes: Mapping[str, Shape],
        known: Mapping[str, Array],
        lengths: Mapping[str, int | None],
        parts: Parts | None,
        elsewhere: Mapping[str, str],
    ) -> None:
        self.model, self.folder, self.shapes, self.known = model, folder, shapes, known
        self.lengths, self.parts, self.elsewhere = lengths, parts, elsewhere
        self.builder = Builder(model.graph.name or "model")
        self.refusals: list[Refusal] = []
        self.needed: dict[str, frozenset[str]] = {}
        """Node -> the inputs whose values decide about its shapes."""
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.opsets = {o.domain: o.version for o in model.opset_import}
        self.operators: dict[str, int] = {}
        self.named: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        """Count -> the node that makes arrays of that length, with its operator."""
        self.node, self.operator = "", ""
        self.edges: _Edges = {}
        self.depth = 0
        self.expanded_nodes = 0

    def run(self) -> Lowered:
        graph = self.model.graph
        edges = self.edges = self.interface(graph)
        self.body(graph.node, edges, self.opsets, uses_in(graph))
        outputs: dict[str, Edge] = {}
        for output in graph.output:
            found = edges.get(output.name)
            if found is INNER:
                why = Refused(Reason.LENGTH, "only the peer knows its type and shape")
                self.refuse(f"output {shown(output.name)}", "output", why)
            elif found is not None and not isinstance(found, Unknown):
                outputs[output.name] = found
        if self.parts is not None and not self.refusals:
            for node, operator, refused in self.parts.close(self.builder, edges):
                self.refuse(node, operator, refused)
        if self.refusals:
            inputs = frozenset[str]().union(*self.needed.values())
            needed = ValueNeeded(inputs, list(self.needed)) if inputs else None
            rest = self.rest(edges)
            return Lowered(None, tuple(self.refusals), self.operators, self.named, needed=needed, rest=rest)
        missing = [o.name for o in graph.output if o.name not in outputs]
        if missing:
            raise Malformed(f"output {shown(missing[0])} is not computed")
        arrays, forms = outputs_of(outputs)
        made = self.builder.graph(arrays)
        return Lowered(made, (), self.operators, self.named, forms, self.fates(made))

    def rest(self, edges: _Edges) -> Graph:
        """The part that can be lowered of a model with refused nodes."""
        values = [v for edge in edges.values() if not isinstance(edge, Unknown) for v in values_of(edge)]
        made = {v.name: v for v in values if not self.builder.is_known(v)}
        return self.builder.graph({f"rest {k}": value for k, value in enumerate(made.values())})

    def fates(self, made: Graph) -> dict[Fate, int]:
        compiled = {node.origin for node in made.nodes}
        kept = {*map(made.home, made.values), *(value.name for value in made.inputs)}

        def fate(node: Any) -> Fate:
            if shown(node.name or (node.output or [""])[0]) in compiled:
                return Fate.COMPILED
            values = [v for name in node.output for v in values_of(self.edges.get(name))]
            if all(map(self.builder.is_known, values)):
                return Fate.FOLDED
            return Fate.MOVED if any(self.builder.home(v) in kept for v in values) else Fate.UNUSED

        return Counter(map(fate, self.model.graph.node))

    # -- inputs and constants

    def interface(self, graph: Any) -> _Edges:
        edges: _Edges = {"": None}
        given = {tensor.name for tensor in graph.initializer}
        for value in graph.input:
            if value.name in given:
                continue  # a default, which counts as a constant
            try:
                edges[value.name] = self.input(value)
            except Refused as refused:
                self.refuse(f"input {shown(value.name)}", "input", refused)
                edges[value.name] = _REFUSED
        for tensor in graph.initializer:
            try:
                edges[tensor.name] = self.builder.constant(array_of(tensor, self.folder), tensor.name)
            except Refused as refused:
                if self.parts is not None:
                    edges[tensor.name] = self.parts.constant(tensor)
                    continue
                self.refuse(f"initializer {shown(tensor.name)}", "initializer", refused)
                edges[tensor.name] = _REFUSED
        return edges

    def input(self, value: Any) -> Edge:
        return self.typed_input(value.name, value.type, 0)

    def typed_input(self, name: str, declared: Any, depth: int) -> Edge:
        """An input of a type: an optional is its content, a sequence an input for each of its arrays."""
        kind = declared.WhichOneof("value")
        if kind == "tensor_type":
            return self.array_input(name, declared.tensor_type)
        if kind == "optional_type" and not depth:
            absent = name in self.lengths and self.lengths[name] is None
            return Absent() if absent else self.typed_input(name, declared.optional_type.elem_type, 1)
        if kind != "sequence_type" or depth > 1:
            raise Refused(Reason.TYPE, f"an input of {(kind or 'no type').removesuffix('_type')}")
        element = declared.sequence_type.elem_type
        if element.WhichOneof("value") != "tensor_type":
            raise Refused(Reason.TYPE, "a sequence of what are no arrays")
        dtype_name(element.tensor_type.elem_type, f"input {shown(name)}")
        length = self.lengths.get(name)
        if length is None:
            length = len(items_of(name, self.shapes))
            if not length:
                hint = f"give the shapes of its arrays: --input '{shown(item_name(name, 0))}=...'"
                raise Malformed(f"input {shown(name)} is a sequence of unknown length", hint=hint)
        names = [item_name(name, k) for k in range(length)]
        return Items(tuple(self.array_input(each, element.tensor_type) for each in names))

    def array_input(self, name: str, tensor: Any) -> Value:
        dtype = dtype_name(tensor.elem_type, f"input {shown(name)}")
        declared = sizes_of(tensor) if tensor.HasField("shape") else None
        if name in self.shapes:
            shape = tuple(self.shapes[name])
            if declared is not None and not fits(shape, declared):
                what = f"input {shown(name)} has the sizes {text_of(declared)}, not {text_of(shape)}"
                raise Malformed(what, "a number in the file is fixed", "give sizes only where it has names")
        else:
            if declared is None:
                raise Malformed(f"input {shown(name)} declares no shape", hint="give one: --input NAME=...")
            names = [size for size in declared if isinstance(size, str)]
            if names:
                what = f"input {shown(name)} has the open size {shown(names[0])}"
                raise Malformed(what, hint="give its shape: --input NAME=DTYPE[SIZES]")
            shape = tuple(size for size in declared if isinstance(size, int))
        made = self.builder.input(name, shape, dtype)
        data = self.known.get(name)
        if data is None:
            return made
        if data.shape != shape or dtype_of(data) != dtype:
            raise Malformed(f"input {shown(name)} is {made.text}, its value is {data.dtype}{data.shape}")
        return self.builder.constant(np.array(data))

    def refuse(self, node: str, operator: str, refused: Refused) -> None:
        self.refusals.append(Refusal(node, operator, refused.reason, refused.what))

    # -- nodes

    def body(
        self,
        nodes: Sequence[Any],
        edges: _Edges,
        opsets: Mapping[str, int],
        uses: Mapping[str, int],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Lower nodes in order. ``attributes``: those of the function call around them."""
        for node in nodes:
            outermost = not self.depth
            if outermost:
                self.node, self.operator = shown(node.name or (node.output or [""])[0]), shown(node.op_type)
                self.builder.origin = self.node
                self.operators[self.operator] = self.operators.get(self.operator, 0) + 1
                self.named.setdefault(self.node, self.operator)
            else:
                self.expanded_nodes += 1
                if self.expanded_nodes > MAX_EXPANDED:
                    what = f"loops and functions of more than {MAX_EXPANDED} nodes together"
                    raise Refused(Reason.SIZE, what)
            checks = self.builder.number_of_checks
            try:
                if outermost and self.node in self.elsewhere:
                    raise Refused(Reason.TARGET, self.elsewhere[self.node])
                results = self.results(node, edges, opsets, uses, attributes)
                if outermost and self.parts is not None:
                    self.parts.ours(node)
            except Refused as refused:
                if not outermost:
                    raise
                results = self.without_kernels(node, edges, refused, checks)
            except ValueNeeded as needed:
                if not outermost:
                    raise
                self.builder.drop_checks(checks)
                self.needed[f"{self.node} ({self.operator})"] = needed.inputs
                self.refuse(self.node, self.operator, Refused(Reason.VALUES, needed.what))
                results = [_REFUSED] * len(node.output)
            except Malformed as malformed:
                if not outermost:
                    raise
                what = f"node {self.node} ({self.operator}): {malformed.what}"
                raise Malformed(what, malformed.why, malformed.hint) from None
            except ProgramError as error:  # a rule wrote no program: say which, and go on with the others
                if not outermost:
                    raise
                why = Refused(Reason.CHOICE, f"its program is refused: {error.what}")
                results = self.without_kernels(node, edges, why, checks)
            for name, value in zip(node.output, results, strict=False):
                if name:
                    edges[name] = value

    def without_kernels(
        self, node: Any, edges: _Edges, refused: Refused, checks: int
    ) -> list[Edge | Unknown | None]:
        """The results of a node that is not supported: what a peer computes, or nothing. ``checks``: the
        number that the graph had before it."""
        self.builder.drop_checks(checks)
        if self.parts is not None:
            try:
                return self.parts.take(self.builder, node, self.node, edges, refused)
            except Refused as no_part:
                refused = no_part
        self.refuse(self.node, self.operator, refused)
        return [_REFUSED] * len(node.output)

    def results(
        self,
        node: Any,
        edges: _Edges,
        opsets: Mapping[str, int],
        uses: Mapping[str, int],
        attributes: Mapping[str, Any] | None,
    ) -> Sequence[Edge | Unknown | None]:
        """The values of a node's outputs."""
        found = [self.edge(edges, name, node) for name in node.input]
        given = attributes_of(node, attributes or {})
        rule, version = self.rule(node, opsets)
        controls = version and node.op_type in CONTROLS
        operands = [value for value in found if not isinstance(value, Unknown)]
        if len(operands) < len(found):
            if self.depth or INNER in found:
                raise Refused(
                    Reason.OPERATOR, f"{shown(node.op_type)} needs an operand that is not supported"
                )
            for inside in self.lacking(node, opsets):
                self.refuse(self.node, self.operator, inside)
            return [_REFUSED] * len(node.output)
        if controls and node.op_type == "If":
            return self.branch(given, operands, edges, opsets, attributes)
        if controls:
            body = self.subgraph(given.get("body"), edges, opsets, attributes)
            unrolled = control.unrolled(node.op_type, version)
            return unrolled(self.builder, given, operands, body, len(node.output))
        if rule is not None:
            wanted = [bool(name) and bool(uses.get(name)) for name in node.output]
            operation = Operation(
                self.builder, node.op_type, version, operands, {**defaults_of(node, opsets), **given}, wanted
            )
            try:
                return self.made(rule, operation)
            except Expand:
                pass
        return self.expanded(node, operands, given, opsets)

    def lacking(self, node: Any, opsets: Mapping[str, int], depth: int = 0) -> list[Refused]:
        """The reasons of operators inside of a node that have no rule: in its graphs, or in its body if it is
        a function. For nodes that are not lowered, since their operands are not known."""
        bodies = [(a.g, opsets) for a in node.attribute if a.HasField("g")]
        bodies += [(graph, opsets) for a in node.attribute for graph in a.graphs]
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            bodies.append((function, {**opsets, **{o.domain: o.version for o in function.opset_import}}))
        found: dict[str, Refused] = {}
        for body, inside in bodies if depth < MAX_DEPTH else ():
            for each in body.node:
                try:
                    self.rule(each, inside)
                    reasons = self.lacking(each, inside, depth + 1)
                except Refused as refused:
                    reasons = [refused]
                found |= {reason.what: reason for reason in reasons}
        drawn = function is None and node.op_type in _NAMED and node.op_type not in RULES
        return [_without_rule(node.op_type)] if drawn else list(found.values())

    def made(self, rule: Rule, n: Operation) -> Sequence[Edge | None]:
        """The results of a rule. Operands as long as data says are seen whole by rules through which such a
        length passes; others refuse them."""
        counted = self.counts(n.inputs)
        length = passed(n) if counted else None
        if length is not None:
            n = n.with_inputs([self.builder.whole(v) if isinstance(v, Value) else v for v in n.inputs])
        elif counted and n.op not in CARRYING:
            made = " and ".join(dict.fromkeys(self.sources.get(count, "a node") for count in sorted(counted)))
            what = f"{n.op} reads an array whose size depends on data: on what {made} finds"
            raise Refused(Reason.LENGTH, what)
        found = rule(n)
        edges = [found] if is_edge(found) else list(found)
        if length is None:
            self.sources.update((count, f"{self.node} ({n.op})") for count in self.counts(edges) - counted)
            return edges
        return [self.builder.counted(v, *length) if isinstance(v, Value) else v for v in edges]

    def counts(self, edges: Sequence[Edge | None]) -> set[str]:
        """The numbers that say how long arrays are."""
        found = (self.builder.count_of(v) for v in edges if isinstance(v, Value))
        return {each[1].name for each in found if each is not None}

    @staticmethod
    def edge(edges: _Edges, name: str, node: Any) -> Edge | Unknown | None:
        if name not in edges:
            raise Malformed(f"{named(node)} reads {shown(name)}, which is not defined")
        return edges[name]

    def rule(self, node: Any, opsets: Mapping[str, int]) -> tuple[Rule | None, int]:
        """The rule for a node and the version of its schema; no rule for control flow, and neither for a
        function of the model."""
        if (node.domain, node.op_type) in self.functions:
            return None, 0
        if node.domain not in STANDARD:
            return self.other_rule(node, opsets)
        opset = opset_of(opsets, "")
        schema = schema_of(node.op_type, opset)
        if schema is None:
            raise Refused(Reason.OPERATOR, f"version {opset} of the standard has no {shown(node.op_type)}")
        if node.op_type not in (*RULES, *CONTROLS) and not is_function(schema):
            raise _without_rule(node.op_type)
        least = schema_of(node.op_type, FIRST_OPSET)
        first = EARLIER.get(node.op_type) or (least.since_version if least is not None else 0)
        if schema.since_version < first:
            what = f"{node.op_type} of version {schema.since_version}"
            raise Refused(Reason.VERSION, what, "convert the model with onnx.version_converter")
        return RULES.get(node.op_type), schema.since_version

    @staticmethod
    def other_rule(node: Any, opsets: Mapping[str, int]) -> tuple[Rule | None, int]:
        """The rule for an operator of another domain, and its version."""
        rules, version = OTHERS.get(node.domain), opsets.get(node.domain, 1)
        schema = None if rules is None else schema_of(node.op_type, version, node.domain)
        rule = None if rules is None else rules.get(node.op_type)
        if rule is None and not (schema is not None and is_function(schema)):
            name = f"{shown(node.domain)}.{shown(node.op_type)}"
            raise Refused(Reason.OPERATOR, f"{name} is not supported")
        return rule, version if schema is None else schema.since_version

    # -- functions and branches

    def expanded(
        self, node: Any, operands: Sequence[Edge | None], given: Mapping[str, Any], opsets: Mapping[str, int]
    ) -> Sequence[Edge | Unknown | None]:
        """The results of a function, by the nodes of its body."""
        if self.depth >= MAX_DEPTH:
            raise Malformed("functions are called more than 64 deep", "one of them may call itself")
        function = self.functions.get((node.domain, node.op_type))
        if function is None:
            function = body_of(node, opset_of(opsets, node.domain), operands, given)
        edges: _Edges = {"": None}
        for k, name in enumerate(function.input):
            edges[name] = operands[k] if k < len(operands) else None
        inside = {**opsets, **{o.domain: o.version for o in function.opset_import}}
        attributes = {a.name: value_of(a) for a in function.attribute_proto} | dict(given)
        if (node.domain, node.op_type) not in self.functions:
            attributes = {**defaults_of(node, opsets), **attributes}
        self.depth += 1
        try:
            self.body(function.node, edges, inside, uses_in(function), attributes)
        finally:
            self.depth -= 1
        return [edges.get(name) for name in function.output][: len(node.output)]

    def subgraph(
        self, graph: Any, edges: _Edges, opsets: Mapping[str, int], around: Mapping[str, Any] | None
    ) -> control.Body:
        """A subgraph as a function of its inputs, which also sees the values around it."""
        if not isinstance(graph, onnx.GraphProto):
            raise Malformed("a loop lacks its body")

        def run(values: Sequence[Edge]) -> list[Edge]:
            if len(values) != len(graph.input):
                raise Malformed(f"a body takes {len(graph.input)} values, {len(values)} are given")
            inner: _Edges = dict(edges)
            inner.update({i.name: value for i, value in zip(graph.input, values, strict=True)})
            found = self.inside(graph, inner, opsets, around)
            results = [e for e in found if e is not None and not isinstance(e, Unknown)]
            if len(results) < len(found):
                raise Malformed("an output of a body is not computed")
            return results

        return run

    def inside(
        self, graph: Any, edges: _Edges, opsets: Mapping[str, int], around: Mapping[str, Any] | None
    ) -> list[Edge | Unknown | None]:
        """The outputs of a subgraph whose inputs are among ``edges``."""
        if self.depth >= MAX_DEPTH:
            raise Malformed("subgraphs and functions stand more than 64 deep")
        for tensor in graph.initializer:
            edges[tensor.name] = self.builder.constant(array_of(tensor, self.folder))
        self.depth += 1
        try:
            self.body(graph.node, edges, opsets, uses_in(graph), around)
        finally:
            self.depth -= 1
        return [edges.get(output.name) for output in graph.output]

    def branch(
        self,
        given: Mapping[str, Any],
        operands: Sequence[Edge | None],
        edges: _Edges,
        opsets: Mapping[str, int],
        around: Mapping[str, Any] | None,
    ) -> Sequence[Edge | Unknown | None]:
        """The results of the branch that a known condition takes."""
        condition = operands[0] if operands else None
        if not isinstance(condition, Value) or condition.elements != 1 or condition.dtype != "bool":
            raise Malformed("the condition of If is no truth value")
        graphs = [given.get(name) for name in ("then_branch", "else_branch")]
        if not all(isinstance(graph, onnx.GraphProto) for graph in graphs):
            raise Malformed("If lacks a branch")
        known = self.builder.is_known(condition)
        chosen = None if known else self.chosen(condition, graphs, edges, opsets, around)
        if chosen is not None:
            return chosen
        taken = control.truth(self.builder, condition, "If with branches of different shapes and")
        return self.inside(graphs[0 if taken else 1], dict(edges), opsets, around)

    def chosen(
        self,
        condition: Value,
        graphs: Sequence[Any],
        edges: _Edges,
        opsets: Mapping[str, int],
        around: Mapping[str, Any] | None,
    ) -> list[Edge] | None:
        """The results of both branches, of which a condition chooses at run time; None if they differ in
        their types or shapes. Checks of a branch count only where it is taken."""
        b, found = self.builder, []
        for graph, sign in zip(graphs, (True, False), strict=True):
            before = b.number_of_checks
            found.append(self.inside(graph, dict(edges), opsets, around))
            b.change_checks(before, partial(control.only_if, b, condition, sign))
        results = []
        for one, other in zip(*found, strict=False):
            if isinstance(one, Unknown) or isinstance(other, Unknown) or one is None or other is None:
                raise Malformed("an output of a branch is not computed")
            both = merged(one, other, partial(where, b, b.view(condition, ())))
            if both is None:
                return None
            results.append(both)
        return results


#: Operators whose need is known, functions of the standard among them.
_NAMED = frozenset().union(*REASONS.values())


def _without_rule(op: str) -> Refused:
    for reason, names in REASONS.items():
        if op in names:
            return Refused(reason, f"{op} is not supported yet")
    return Refused(Reason.OPERATOR, f"{shown(op)} is not supported")
