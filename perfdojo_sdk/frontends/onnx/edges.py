"""Edges of a model: arrays, and sequences and optionals of them, which are known when the graph is built.

A sequence is a tuple of values, an optional is its content or :class:`Absent`; neither is ever a kernel. At
the border of a model each array of a sequence is an input or output of its own, ``name[k]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from perfdojo_sdk.graph.graph import Array, Value
from perfdojo_sdk.graph.refusals import Malformed

if TYPE_CHECKING:
    from typing_extensions import TypeIs

#: Most arrays of one sequence.
MOST_ITEMS = 2**16


@dataclass(frozen=True)
class Items:
    """A sequence."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Absent:
    """An optional without a value."""


class Unknown:
    """The result of a node that is not supported, or whose type only a peer knows."""


#: What a peer computes and keeps: its type, or its shape, is not known before it runs.
INNER = Unknown()

Edge: TypeAlias = "Value | Items | Absent"
Form: TypeAlias = "str | tuple[str, ...] | None"
"""An output: the array that it is, the arrays of a sequence, or None for an optional without a value."""


def is_edge(value: object) -> TypeIs[Edge]:
    return isinstance(value, Value | Items | Absent)


def values_of(edge: object) -> tuple[Value, ...]:
    """The arrays of an edge."""
    return edge.values if isinstance(edge, Items) else (edge,) if isinstance(edge, Value) else ()


def item_name(name: str, k: int) -> str:
    """The name of an array of a sequence at the border of a model."""
    return f"{name}[{k}]"


def items_of(name: str, given: Iterable[str]) -> list[str]:
    """The names of the arrays of a sequence that stand among others, from the first on without a gap."""
    among = set(given)
    return list(takewhile(among.__contains__, (item_name(name, k) for k in count())))


def outputs_of(edges: Mapping[str, Edge]) -> tuple[dict[str, Value], dict[str, Form]]:
    """The arrays of a model's outputs, each under a name of its own, and how they belong together."""
    arrays: dict[str, Value] = {}
    forms: dict[str, Form] = {}
    for name, edge in edges.items():
        if isinstance(edge, Value):
            arrays[name], forms[name] = edge, name
        elif isinstance(edge, Items):
            names = tuple(item_name(name, k) for k in range(len(edge.values)))
            arrays.update(zip(names, edge.values, strict=True))
            forms[name] = names
        else:
            forms[name] = None
    return arrays, forms


def regrouped(arrays: Mapping[str, Array], forms: Mapping[str, Form]) -> list[Any]:
    """The outputs of a model: arrays, lists of arrays, or None."""
    return [
        None if form is None else arrays[form] if isinstance(form, str) else [arrays[n] for n in form]
        for form in forms.values()
    ]


def merged(one: Edge, other: Edge, choose: Callable[[Value, Value], Value]) -> Edge | None:
    """An edge that is one of two by a choice for each array; None if they differ in kind, size or dtype."""
    pairs = list(_pairs(one, other))
    if any(pair is None for pair in pairs):
        return None
    chosen = [choose(*pair) for pair in pairs if pair is not None]
    if isinstance(one, Value):
        return chosen[0]
    return Items(tuple(chosen)) if isinstance(one, Items) else one


def _pairs(one: Edge, other: Edge) -> Iterator[tuple[Value, Value] | None]:
    """Arrays in the same place of two edges; None for what has no counterpart."""
    if isinstance(one, Value) and isinstance(other, Value):
        yield (one, other) if (one.shape, one.dtype) == (other.shape, other.dtype) else None
    elif isinstance(one, Items) and isinstance(other, Items) and len(one.values) == len(other.values):
        for pair in zip(one.values, other.values, strict=True):
            yield from _pairs(*pair)
    elif not (isinstance(one, Absent) and isinstance(other, Absent)):
        yield None


def arrays_of(edges: Sequence[object], what: str) -> list[Value]:
    """The edges, which must be arrays."""
    values = [edge for edge in edges if isinstance(edge, Value)]
    if len(values) < len(edges):
        raise Malformed(f"{what} takes arrays only")
    return values
