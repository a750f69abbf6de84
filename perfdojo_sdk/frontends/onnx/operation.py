"""One node of a model as rules see it: values, attributes with their defaults, and the graph to add to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from onnx import TensorProto

from perfdojo_sdk.frontends.onnx.edges import Edge, Items
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Value
from perfdojo_sdk.graph.refusals import Malformed

Rule: TypeAlias = "Callable[[Operation], Edge | Sequence[Edge | None]]"
"""Makes the results of an operator; None for an optional one that is not asked for."""


class Expand(Exception):
    """A rule does not take the node; the body of its function does."""


class Operation:
    """A node: its operands by number, its attributes by name."""

    def __init__(
        self,
        builder: Builder,
        op: str,
        version: int,
        inputs: Sequence[Edge | None],
        attributes: Mapping[str, Any],
        wanted: Sequence[bool],
    ) -> None:
        self.b, self.op, self.version = builder, op, version
        self.inputs, self.attributes, self._wanted = tuple(inputs), attributes, tuple(wanted)

    def with_inputs(self, inputs: Sequence[Edge | None]) -> Operation:
        """The same node with other operands."""
        return Operation(self.b, self.op, self.version, inputs, self.attributes, self._wanted)

    def __getitem__(self, k: int) -> Value:
        """An operand that must be there."""
        value = self.maybe(k)
        if value is None:
            raise Malformed(f"{self.op} lacks input {k}")
        return value

    def maybe(self, k: int) -> Value | None:
        """An operand that may be absent."""
        found = self.edge(k)
        if found is not None and not isinstance(found, Value):
            raise Malformed(f"input {k} of {self.op} is no array")
        return found

    def edge(self, k: int) -> Edge | None:
        """An operand of any type, which may be absent."""
        return self.inputs[k] if k < len(self.inputs) else None

    def items(self, k: int) -> list[Value]:
        """The arrays of an operand that is a sequence."""
        found = self.edge(k)
        if not isinstance(found, Items):
            raise Malformed(f"input {k} of {self.op} is no sequence")
        return list(found.values)

    @property
    def operands(self) -> list[Value]:
        """All operands of a variadic operator."""
        return [self[k] for k in range(len(self.inputs))]

    @property
    def outputs(self) -> int:
        return len(self._wanted)

    def wants(self, k: int) -> bool:
        """True if the model uses output ``k``."""
        return k < len(self._wanted) and self._wanted[k]

    # -- attributes

    def has(self, name: str) -> bool:
        return self.attributes.get(name) is not None

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.attributes.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int):
            raise Malformed(f"attribute {name} of {self.op} is no integer, or absent")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        value = self.attributes.get(name)
        value = default if value is None else value
        if not isinstance(value, float):
            raise Malformed(f"attribute {name} of {self.op} is no number, or absent")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.attributes.get(name)
        value = default if value is None else value
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if not isinstance(value, str):
            raise Malformed(f"attribute {name} of {self.op} is no text, or absent")
        return value

    def ints(self, name: str) -> list[int]:
        """A list of integers; empty if it is absent."""
        value = self.attributes.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
            raise Malformed(f"attribute {name} of {self.op} is no list of integers")
        return value

    def tensor(self, name: str) -> Any:
        """A constant array, as a message."""
        value = self.attributes.get(name)
        if not isinstance(value, TensorProto):
            raise Malformed(f"attribute {name} of {self.op} is no array, or absent")
        return value

    def reals(self, name: str) -> list[float]:
        """A list of numbers; empty if it is absent."""
        value = self.attributes.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, int | float) for each in value):
            raise Malformed(f"attribute {name} of {self.op} is no list of numbers")
        return [float(each) for each in value]

    # -- operands that decide about shapes

    def known(self, k: int) -> Array | None:
        """The elements of an operand, None if it is absent."""
        value = self.maybe(k)
        return None if value is None else self.b.known(value)

    def known_ints(self, k: int) -> list[int] | None:
        value = self.maybe(k)
        return None if value is None else list(self.b.known_integers(value))

    def axes(self, k: int = 1, name: str = "axes") -> list[int] | None:
        """Axes from an attribute or, in later versions, from operand ``k``; None if they are not given."""
        return self.ints(name) if self.has(name) else self.known_ints(k)
