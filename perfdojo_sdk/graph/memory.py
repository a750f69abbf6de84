"""The memory plan of a graph: an offset in one block for each array between two kernels.

Two arrays share bytes if no kernel needs both. Inputs, outputs and constants have memory of their own; a
view has that of its value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.order import calls

ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    """Places of intermediate arrays in one block of memory."""

    offsets: Mapping[str, int]
    """Value -> its first byte, a multiple of :data:`ALIGNMENT`."""
    total: int
    """Bytes of the block."""
    unshared: int
    """Bytes that the arrays would take if none shared its place."""


@dataclass(frozen=True)
class _Live:
    """A value with the first and last kernel that needs it."""

    name: str
    bytes: int
    first: int
    last: int


def rounded_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def intermediates(graph: Graph, apart: Collection[str] = ()) -> tuple[str, ...]:
    """Values that calls write and that are no output, in the order in which they are written, but for those
    ``apart``, which have memory of their own."""
    kept = {graph.home(value.name) for value in graph.outputs}.union(apart)
    written = [name for call in calls(graph) for name in call.outputs]
    return tuple(name for name in written if name not in kept)


def plan_memory(graph: Graph, apart: Collection[str] = ()) -> MemoryPlan:
    """Place the large arrays first, each at the lowest offset that is free while it lives. ``apart``: values
    that have memory of their own."""
    live = _lives(graph, apart)
    placed: list[tuple[int, _Live]] = []
    offsets: dict[str, int] = {}
    for each in sorted(live, key=lambda v: (-v.bytes, v.first, v.name)):
        beside = [(at, v) for at, v in placed if v.first <= each.last and each.first <= v.last]
        offset = 0
        for at, other in sorted(beside, key=lambda place: place[0]):
            if at - offset >= each.bytes:
                break
            offset = max(offset, at + other.bytes)
        placed.append((offset, each))
        offsets[each.name] = offset
    total = max((at + v.bytes for at, v in placed), default=0)
    return MemoryPlan(offsets, total, sum(v.bytes for v in live))


def _lives(graph: Graph, apart: Collection[str]) -> list[_Live]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    order = calls(graph)
    for k, call in enumerate(order):
        for name in (*call.inputs, *call.outputs):
            home = graph.home(name)
            first.setdefault(home, k)
            last[home] = k
    for check in graph.checks:  # looked at after the last kernel
        last[graph.home(check.value)] = len(order)
    sizes = {name: rounded_up(graph.values[name].bytes) for name in intermediates(graph, apart)}
    return [_Live(name, size, first[name], last[name]) for name, size in sizes.items()]
