"""Moves as data: a transformation, its place and its parameters; and the kinds of change that they make."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.tree import NodeId


class Kind(IntEnum):
    """The changes that a move may make, from none to most."""

    EXACT = 0
    """Every cell gets the same value, bit for bit."""
    REASSOCIATES = 1
    """The terms of a reduction are combined in another order."""
    DECLARED_LAW = 2
    """Uses an algebraic law that rounding breaks, such as x/y = x*(1/y); the law is named."""
    CHANGES_PRECISION = 3
    """Values are computed in another dtype."""

    @property
    def label(self) -> str:
        return ("exact", "re-associates", "uses a declared law", "changes precision")[self]


@frozen
class Move:
    """A transformation, the node or buffer on which it acts, its parameters."""

    transformation: str
    place: NodeId | str
    """Id of the node, or name of the buffer."""
    parameters: tuple[tuple[str, int | str], ...] = ()
    version: int = 1
    """Version of the transformation; what is played gets the version that played it."""

    @staticmethod
    def of(transformation: str, place: str, version: int = 1, **parameters: int | str) -> Move:
        return Move(transformation, place, tuple(sorted(parameters.items())), version)

    def __getitem__(self, name: str) -> Any:
        return dict(self.parameters)[name]

    def renamed(self, names: Mapping[str, str]) -> Move:
        """The move with other names of places and arrays, where ``names`` has them."""
        parameters = [(k, names.get(v, v) if isinstance(v, str) else v) for k, v in self.parameters]
        return Move(self.transformation, names.get(self.place, self.place), tuple(parameters), self.version)

    @property
    def text(self) -> str:
        arguments = [self.place, *(f"{k}={v}" for k, v in self.parameters)]
        return f"{self.transformation}({', '.join(arguments)})"

    def as_json(self) -> dict[str, object]:
        return {
            "transformation": self.transformation,
            "version": self.version,
            "place": self.place,
            "parameters": dict(self.parameters),
        }
