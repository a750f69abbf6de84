"""A graph of kernels as frozen data: values, nodes, views of values, and data of constants.

A node is a program of the language together with the values that its arrays are bound to. A view is a value
that has the elements of another one, in the same row-major order, under another shape; it costs nothing. It
may also have their bits, as elements of another dtype of the same width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.program import Program

Shape: TypeAlias = tuple[int, ...]
Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Value:
    """An array that flows along an edge."""

    name: str
    """Unique in its graph."""
    shape: Shape
    """May hold zeros: arrays without elements are values, and no kernel ever sees them."""
    dtype: str
    """As the language names it."""

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * BYTES[self.dtype]

    @property
    def text(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Node:
    """A kernel and the values that its arrays are bound to."""

    program: Program = field(repr=False)
    inputs: tuple[str, ...]
    """Values of ``program.inputs``, in their order."""
    outputs: tuple[str, ...]
    """Values of ``program.outputs``, in their order."""
    origin: str = ""
    """The node of the model that it was made from."""


@dataclass(frozen=True)
class Foreign:
    """A part of a model that a peer runs, in a format of the peer's own."""

    name: str
    """Unique among the parts of a graph."""
    peer: str
    content: bytes = field(repr=False)
    """The part as the peer reads it; its inputs and outputs have the order of those below."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    """The nodes of the model that it consists of."""
    why: str = ""
    ours_s: float = 0.0
    peer_s: float = 0.0
    """Median seconds of our kernels and of the peer in a race; 0 if there was none."""

    @property
    def origin(self) -> str:
        return ", ".join(self.nodes)


@dataclass(frozen=True)
class Check:
    """A number that must be 0 after the kernels have run; else an input breaks a rule of the standard."""

    value: str
    what: str
    """Words for what is wrong then."""
    origin: str = ""
    """The node of the model that asks for it."""


@dataclass(frozen=True)
class Cut:
    """An output whose size depends on data: its array has the largest size, a kernel counts what is meant."""

    output: str
    axis: int
    count: str
    """An output of one element: of so many elements along the axis the result consists."""


@dataclass(frozen=True)
class Graph:
    """Kernels in an order in which each follows those whose results it reads."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    """May be inputs, constants and views as well."""
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    """Every value by its name."""
    views: Mapping[str, str]
    """View -> the value whose elements it has."""
    constants: Mapping[str, Array] = field(repr=False)
    """Value -> its data."""
    checks: tuple[Check, ...] = ()
    cuts: tuple[Cut, ...] = ()
    """Their counts are the last outputs, which callers of a model do not see."""
    foreign: tuple[Foreign, ...] = ()
    """Parts that peers run. What they read and write says when."""

    def crossing(self, part: Foreign) -> int:
        """The bytes that go to a part and come back in one call; constants stay where they are."""
        moved = [name for name in (*part.inputs, *part.outputs) if self.home(name) not in self.constants]
        return sum(self.values[name].bytes for name in moved)

    @property
    def calls(self) -> tuple[Node | Foreign, ...]:
        """Kernels, then parts of peers; :func:`perfdojo_sdk.graph.order.calls` puts them in order."""
        return (*self.nodes, *self.foreign)

    @property
    def results(self) -> tuple[Value, ...]:
        """The outputs that callers see."""
        return self.outputs[: len(self.outputs) - len({cut.count for cut in self.cuts})]

    def home(self, name: str) -> str:
        """The value whose memory holds the elements of ``name``: itself, unless it is a view."""
        while name in self.views:
            name = self.views[name]
        return name

    @property
    def programs(self) -> tuple[Program, ...]:
        """The distinct programs, in the order of their first use."""
        return tuple({node.program.text: node.program for node in self.nodes}.values())
