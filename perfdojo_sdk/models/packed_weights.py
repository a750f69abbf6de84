"""Constants of a graph with elements of less than a byte, packed: half of their bytes in the file and at each
call, or a quarter.

A constant is packed where kernels alone read it, as elements of its own dtype. Their programs declare it so,
and compute what they computed before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perfdojo_sdk.core.dtypes import PACKED_DTYPES
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.graph import Graph, Node, Value
from perfdojo_sdk.graph.packed_arrays import pack
from perfdojo_sdk.hookspecs.types import Elements


def with_packed_weights(graph: Graph, compiles: Callable[[Program], bool]) -> Graph:
    """The graph whose kernels read such constants packed; those that do not compile so leave them as they
    are."""
    chosen = _packable(graph)
    while chosen:
        nodes = tuple([_declared(graph, node, chosen) for node in graph.nodes])
        pairs = zip(graph.nodes, nodes, strict=True)
        refused = [old for old, new in pairs if new is not old and not compiles(new.program)]
        if not refused:
            return _packed(graph, nodes, chosen)
        chosen -= {graph.home(name) for node in refused for name in node.inputs}
    return graph


def _packable(graph: Graph) -> frozenset[str]:
    """The constants that kernels alone read, as elements of their own dtype."""
    found = {name for name in graph.constants if graph.values[name].dtype in PACKED_DTYPES}
    found = {name for name in found if graph.values[name].elements}
    read = {graph.home(name) for node in graph.nodes for name in node.inputs}
    others = [value.name for value in graph.outputs] + [check.value for check in graph.checks]
    others += [name for part in graph.foreign for name in part.inputs]
    turned = [
        view for view in graph.views if graph.values[view].dtype != graph.values[graph.home(view)].dtype
    ]
    return frozenset(found & read - {graph.home(name) for name in (*others, *turned)})


def _declared(graph: Graph, node: Node, chosen: frozenset[str]) -> Node:
    """The node whose program declares the chosen constants packed, and which reads them without views."""
    program, homes = node.program, [graph.home(name) for name in node.inputs]
    arrays = [a for a, home in zip(program.given, homes, strict=True) if home in chosen]
    if not arrays:
        return node
    buffers = tuple([replace(b, packed=True) if b.name in arrays else b for b in program.buffers])
    inputs = tuple([home if home in chosen else n for home, n in zip(homes, node.inputs, strict=True)])
    return replace(node, program=program.with_buffers(buffers), inputs=inputs)


def _packed(graph: Graph, nodes: tuple[Node, ...], chosen: frozenset[str]) -> Graph:
    constants, values = dict(graph.constants), dict(graph.values)
    for name in chosen:
        value = graph.values[name]
        constants[name] = pack(constants[name], Elements(value.shape, value.dtype))
        values[name] = Value(name, constants[name].shape, "u8")
    views = {view: home for view, home in graph.views.items() if graph.home(view) not in chosen}
    gone = graph.views.keys() - views.keys()
    values = {name: value for name, value in values.items() if name not in gone}
    return replace(graph, nodes=nodes, values=values, views=views, constants=constants)
