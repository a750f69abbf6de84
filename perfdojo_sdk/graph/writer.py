"""A writer of programs: arrays are declared as they are met, loops without iterations are left out.

    k = Writer(b, "scale")
    a = k.read(x)
    y = k.write(x.shape, x.dtype)
    k.nest(x.shape, f"{y(...)} = {a(...)} * 2")
    (result,) = k.done()

Arrays without elements never reach the program: they can only stand in loops without iterations, so all that
an operator makes of them (an identity, a NaN, nothing) follows from the rest of its program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isinf, isnan
from typing import TypeAlias

import numpy as np

from perfdojo_sdk.core.dtypes import CODED_DTYPES, FLOAT_DTYPES, NARROW_DTYPES
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused

#: Float dtypes in which nothing is computed: values are converted to f32 when they are read, and back.
SHORT_FLOATS = ("f16", "bf16")


def computed_in(dtype: str) -> str:
    """The dtype in which values of ``dtype`` are computed."""
    if dtype in (*SHORT_FLOATS, *CODED_DTYPES):
        return "f32"
    return "i32" if dtype in NARROW_DTYPES else dtype


def is_float(dtype: str) -> bool:
    return dtype in FLOAT_DTYPES


def need(*operations: str) -> None:
    """Refuse what needs operations that the language does not have."""
    for name in operations:
        if name not in OPERATIONS:
            raise Refused(Reason.OPERATION, f"the language has no operation {name}")


def number(value: float | int, dtype: str) -> str:
    """A literal of a dtype: exact, and read back as the same number."""
    if not is_float(dtype):
        return str(int(value))
    value = float(value)
    if isnan(value):
        return "(0 / 0)"
    if isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def levels(count: int, first: int = 0) -> list[str]:
    """Iterators of ``count`` scopes from the one at depth ``first``."""
    return [f"{{{k}}}" for k in range(first, first + count)]


def converted(text: str, source: str, target: str) -> str:
    """``text`` of dtype ``source`` as a value of ``target``."""
    return text if source == target else f"{target}({text})"


@dataclass(frozen=True)
class Place:
    """An array of the program; called with subscripts, it is the text of an element."""

    name: str
    shape: Shape
    dtype: str

    def __call__(self, subscripts: Sequence[str | int]) -> str:
        if len(subscripts) != len(self.shape):
            shape = ",".join(map(str, self.shape))
            raise Malformed(f"an operand of shape [{shape}] where {len(subscripts)} dimensions are needed")
        return f"{self.name}[{','.join(map(str, subscripts))}]"

    def load(self, subscripts: Sequence[str | int]) -> str:
        """An element as a value of the dtype that is computed in."""
        return converted(self(subscripts), self.dtype, computed_in(self.dtype))

    def store(self, text: str) -> str:
        """A value of the dtype that is computed in, as one of the array."""
        return converted(text, computed_in(self.dtype), self.dtype)

    def number(self, value: float | int) -> str:
        """A number as an element, rounded to the dtype."""
        if self.dtype in SHORT_FLOATS:
            return number(float(numpy_dtype(self.dtype).type(value)), "f32")
        return self.store(number(value, computed_in(self.dtype)))

    def broadcast(self, shape: Shape, names: Sequence[str | int]) -> str:
        """The element that stands at ``names`` when the array is broadcast to ``shape``; loaded."""
        shift = len(shape) - len(self.shape)
        return self.load([0 if size == 1 else names[k + shift] for k, size in enumerate(self.shape)])


Child: TypeAlias = "str | tuple[Sequence[int], str]"
"""A statement, or one inside further scopes."""


class Writer:
    """One program in the making."""

    def __init__(self, builder: Builder, name: str) -> None:
        self.builder, self.name = builder, name
        self._reads: list[tuple[Place, Value]] = []
        self._writes: list[Place] = []
        self._locals: list[Place] = []
        self._lines: list[str] = []

    # -- arrays

    def read(self, value: Value) -> Place:
        """An input. The same value is one array, however often it is read."""
        for place, known in self._reads:
            if known.name == value.name:
                return place
        place = Place(f"x{len(self._reads)}", value.shape, value.dtype)
        self._reads.append((place, value))
        return place

    def write(self, shape: Shape, dtype: str) -> Place:
        """An output."""
        place = Place(f"y{len(self._writes)}", tuple(shape), dtype)
        self._writes.append(place)
        return place

    def local(self, shape: Shape, dtype: str) -> Place:
        """A temporary."""
        place = Place(f"t{len(self._locals)}", tuple(shape), dtype)
        self._locals.append(place)
        return place

    # -- loops

    def nest(self, sizes: Sequence[int], *children: Child) -> None:
        """A nest of loops around statements, of which each may stand in further loops."""
        if 0 in sizes:
            return
        parts = [(tuple(c[0]), c[1]) if isinstance(c, tuple) else ((), c) for c in children]
        parts = [part for part in parts if 0 not in part[0]]
        if not parts:
            return
        head = _sizes(sizes)
        if len(parts) == 1 or not head:
            self._lines += [" ".join([*head, *_sizes(inner), text]) for inner, text in parts]
            return
        self._lines.append(" ".join(head))
        self._lines += [" ".join(["|", *_sizes(inner), text]) for inner, text in parts]

    def sums(self, y: Place, inner: Sequence[int], term: str) -> None:
        """Each element of ``y`` as the sum of ``term`` over further loops, in the dtype of computing."""
        names, kind = levels(len(y.shape)), computed_in(y.dtype)
        total = y if kind == y.dtype else self.local(y.shape, kind)
        self.nest(y.shape, f"{total(names)} = 0", (inner, f"{total(names)} += {term}"))
        if total is not y:
            self.nest(y.shape, f"{y(names)} = {y.store(total(names))}")

    # -- the result

    def text(self) -> str:
        """The program; empty if it has nothing to write."""
        body = "\n".join(self._lines)
        outputs = [p for p in self._writes if 0 not in p.shape]
        if not outputs:
            return ""
        used = [p for p, _ in self._reads if f"{p.name}[" in body]
        places = [*used, *(p for p in self._locals if f"{p.name}[" in body), *outputs]
        inputs, results = (", ".join(p.name for p in places) for places in (used, outputs))
        head = f"kernel {self.name}({inputs}) -> {results}"
        declared = [f"{p.name} {p.dtype} [{','.join(map(str, p.shape))}] heap" for p in places]
        return "\n".join([head, *declared, "", body, ""])

    def done(self) -> tuple[Value, ...]:
        """Add the kernel to the graph; the values of its outputs, in the order of :meth:`write`."""
        text = self.text()
        made: dict[str, Value] = {}
        if text:
            program = parsed(text)
            by_name = {place.name: value for place, value in self._reads}
            outputs = [p for p in self._writes if 0 not in p.shape]
            values = self.builder.kernel(
                program, [by_name[n] for n in program.inputs], [(p.shape, p.dtype) for p in outputs]
            )
            made = {p.name: v for p, v in zip(outputs, values, strict=True)}
        return tuple(made.get(p.name) or self._empty(p) for p in self._writes)

    def _empty(self, place: Place) -> Value:
        return self.builder.constant(np.empty(place.shape, numpy_dtype(place.dtype)))


def _sizes(sizes: Sequence[int]) -> list[str]:
    return [str(size) for size in sizes]


@lru_cache(maxsize=4096)
def parsed(text: str) -> Program:
    """The program; equal texts are one object."""
    return parse(text)
