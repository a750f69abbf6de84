"""Orders in which the calls of a graph can be made: each after those whose results it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from perfdojo_sdk.graph.graph import Foreign, Graph, Node

C = TypeVar("C", bound="Node | Foreign")


def calls(graph: Graph) -> list[Node | Foreign]:
    """Kernels and parts that peers run, in an order in which they can be called."""
    return in_order(graph, graph.calls) if graph.foreign else list(graph.nodes)


def in_order(graph: Graph, nodes: Sequence[C]) -> list[C]:
    """The nodes with each after those whose results it reads, and else as they are."""
    makers = {name: k for k, node in enumerate(nodes) for name in node.outputs}
    done: set[int] = set()
    ordered: list[C] = []
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            k = stack[-1]
            before = {makers[home] for home in map(graph.home, nodes[k].inputs) if home in makers} - done
            if k in done or not before:
                stack.pop()
                if k not in done:
                    done.add(k)
                    ordered.append(nodes[k])
            else:
                assert before.isdisjoint(stack), "no path leads out of a group and back"
                stack.extend(sorted(before, reverse=True))
    return ordered
