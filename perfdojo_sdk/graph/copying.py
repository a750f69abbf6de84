"""A graph on its way into a builder, node by node, for passes that put others in place of some nodes."""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Graph, Node, Value


class Copy:
    """A builder that has the inputs of a graph; constants and views come when they are asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.b = graph, Builder(graph.name)
        self.new: dict[str, Value] = {v.name: self.b.input(v.name, v.shape, v.dtype) for v in graph.inputs}
        """Value of the graph -> that of the builder."""

    def value(self, name: str) -> Value:
        """The new value for one of the graph."""
        if name not in self.new:
            value = self.graph.values[name]
            if name in self.graph.views:
                inside = self.b.view(self.value(self.graph.views[name]), value.shape)
                self.new[name] = self.b.same_bits(inside, value.dtype)
            else:
                self.new[name] = self.b.constant(self.graph.constants[name].reshape(value.shape), name)
        return self.new[name]

    def node(
        self, node: Node, program: Program | None = None, inputs: Sequence[Value] | None = None
    ) -> tuple[Value, ...]:
        """Add a node, with another program or other inputs if they are given; its outputs become the new
        values of the old ones."""
        self.b.origin = node.origin
        given = inputs if inputs is not None else [self.value(name) for name in node.inputs]
        values = [self.graph.values[name] for name in node.outputs]
        found = self.b.kernel(program or node.program, given, [(v.shape, v.dtype) for v in values])
        self.new.update(zip(node.outputs, found, strict=True))
        return found

    def checks(self) -> None:
        """Add the checks of the graph."""
        for check in self.graph.checks:
            self.b.origin = check.origin
            self.b.check(self.value(check.value), check.what)
