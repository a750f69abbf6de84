"""Passes over graphs: pure functions from a graph to one that computes the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from perfdojo_sdk.graph.graph import Foreign, Graph, Node
from perfdojo_sdk.graph.joining import joined
from perfdojo_sdk.graph.order import calls, in_order


def without_dead_nodes(graph: Graph) -> Graph:
    """The graph without kernels, parts of peers, views, constants and values that no output and no check
    needs."""
    needed = {value.name for value in (*graph.inputs, *graph.outputs)}
    needed |= {check.value for check in graph.checks}
    kept: list[Node | Foreign] = []
    todo = set(needed)
    for call in reversed(calls(graph)):
        _follow(graph, todo)
        if not todo.isdisjoint(call.outputs):
            kept.append(call)
            todo.update(call.inputs, call.outputs)
    _follow(graph, todo)
    return replace(
        graph,
        nodes=tuple(each for each in reversed(kept) if isinstance(each, Node)),
        foreign=tuple(each for each in reversed(kept) if isinstance(each, Foreign)),
        values={name: value for name, value in graph.values.items() if name in todo},
        views={name: of for name, of in graph.views.items() if name in todo},
        constants={name: data for name, data in graph.constants.items() if name in todo},
    )


def _follow(graph: Graph, names: set[str]) -> None:
    """Add the values that views among ``names`` are views of."""
    for name in list(names):
        while name in graph.views:
            name = graph.views[name]
            names.add(name)


def without_duplicates(graph: Graph) -> Graph:
    """The graph in which equal kernels of equal values are computed once, and equal constants are one."""
    first: dict[object, str] = {}
    views = dict(graph.views)
    for name, data in graph.constants.items():
        key = (data.dtype.str, data.shape, sha256(np.ascontiguousarray(data).tobytes()).digest())
        if first.setdefault(key, name) != name:
            views[name] = first[key]
    known: dict[object, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        read = tuple((_home(views, name), graph.values[name].shape) for name in node.inputs)
        same = known.setdefault((node.program.text, read), node)
        if same is node:
            nodes.append(node)
        else:
            views.update(zip(node.outputs, same.outputs, strict=True))
    constants = {name: data for name, data in graph.constants.items() if name not in views}
    return without_dead_nodes(replace(graph, nodes=tuple(nodes), views=views, constants=constants))


def _home(views: dict[str, str], name: str) -> str:
    while name in views:
        name = views[name]
    return name


def read_outside(graph: Graph, members: frozenset[int]) -> frozenset[str]:
    """Values that the nodes of these numbers write, and others or the outputs of the graph need."""
    written = {name for k in members for name in graph.nodes[k].outputs}
    needed = [value.name for value in graph.outputs] + [check.value for check in graph.checks]
    needed += [name for k, node in enumerate(graph.nodes) if k not in members for name in node.inputs]
    needed += [name for part in graph.foreign for name in part.inputs]
    return frozenset(map(graph.home, needed)) & written


def with_groups_joined(graph: Graph, groups: Iterable[Sequence[int]]) -> Graph:
    """The graph whose groups of nodes, given by their numbers, are one kernel each; no path may lead out of
    a group and back."""
    of = {k: tuple(sorted(group)) for group in groups for k in group}
    members = list(dict.fromkeys(of.get(k, (k,)) for k in range(len(graph.nodes))))
    nodes = [
        graph.nodes[group[0]]
        if len(group) == 1
        else joined(graph, [graph.nodes[k] for k in group], read_outside(graph, frozenset(group)))
        for group in members
    ]
    together: list[Node | Foreign] = [*nodes, *graph.foreign]
    ordered = in_order(graph, together)
    return without_dead_nodes(replace(graph, nodes=tuple(each for each in ordered if isinstance(each, Node))))
