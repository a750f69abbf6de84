"""A builder of graphs: rules add kernels, views and constants, and ask for values that shapes depend on.

Values that the rules must know (shapes, axes, numbers of copies) are computed by running their kernels in
the interpreter, when they are asked for and never otherwise; so shapes need no arithmetic of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import isfinite, prod

import numpy as np

from perfdojo_sdk.core.dtypes import BYTES, DTYPES, FLOAT_DTYPES
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.arrays import dtype_of, numpy_dtype
from perfdojo_sdk.graph.graph import Array, Check, Cut, Foreign, Graph, Node, Shape, Value
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused, ValueNeeded
from perfdojo_sdk.graph.running import interpreted

#: Most elements of any array; products of declared sizes are checked before anything is allocated.
MAX_ELEMENTS = 2**40
#: Most elements of an array whose values decide about shapes.
MAX_KNOWN = 2**16
#: Most elements of a constant of integers that is computed when the graph is built.
MAX_FOLDED = 2**12


class Builder:
    """A graph that is being made. Values that it returns are its own."""

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self.origin = ""
        """The node of the model to which kernels are credited from now on."""
        self._inputs: list[Value] = []
        self._values: dict[str, Value] = {}
        self._views: dict[str, str] = {}
        self._constants: dict[str, Array] = {}
        self._nodes: list[Node] = []
        self._checks: list[Check] = []
        self._foreign: list[Foreign] = []
        self._peers: set[str] = set()
        """Values that parts of peers compute."""
        self._counted: dict[str, tuple[int, Value]] = {}
        self._makers: dict[str, Node] = {}
        self._places: dict[int, int] = {}
        """``id()`` of a node -> its number."""
        self._numbers = count()

    # -- values

    def input(self, name: str, shape: Shape, dtype: str) -> Value:
        """An input of the graph."""
        value = self._new(shape, dtype, name)
        self._inputs.append(value)
        return value

    def constant(self, data: Array, name: str = "") -> Value:
        """Data that is known when the graph is built."""
        dtype = dtype_of(data)
        if dtype is None:
            raise Refused(Reason.DTYPE, f"a constant of {data.dtype}")
        value = self._new(data.shape, dtype, name)
        self._constants[value.name] = data
        return value

    def integers(self, numbers: Sequence[int], dtype: str = "i64") -> Value:
        """A constant of one dimension."""
        return self.constant(np.array(numbers, numpy_dtype(dtype)))

    def filled(self, shape: Shape, number: float, dtype: str) -> Value:
        """A constant whose elements are all equal; it must be small."""
        checked_shape(shape)
        if prod(shape) > MAX_KNOWN:
            raise Refused(Reason.SIZE, f"a constant of {prod(shape)} equal elements")
        return self.constant(np.full(shape, number, numpy_dtype(dtype)))

    def view(self, value: Value, shape: Shape) -> Value:
        """The elements of ``value`` in the same order under another shape."""
        if prod(shape) != value.elements:
            what = f"{value.elements} elements cannot have the shape [{','.join(map(str, shape))}]"
            raise Malformed(what)
        self._refuse_counted([value])
        return value if shape == value.shape else self._view(value, shape)

    def same_bits(self, value: Value, dtype: str) -> Value:
        """The bits of ``value`` as elements of another dtype of the same width."""
        self._refuse_counted([value])
        if dtype == value.dtype:
            return value
        if BYTES[dtype] != BYTES[value.dtype] or "bool" in (dtype, value.dtype):
            raise Malformed(f"the bits of {value.dtype} are none of {dtype}")
        return self._view(value, value.shape, dtype)

    def _view(self, value: Value, shape: Shape, dtype: str = "") -> Value:
        new = self._new(shape, dtype or value.dtype)
        self._views[new.name] = value.name
        return new

    # -- sizes that depend on data

    def counted(self, value: Value, axis: int, count: Value) -> Value:
        """``value``, of which only so many elements along an axis are meant as a kernel counts."""
        new = self._view(value, value.shape)
        self._counted[new.name] = (axis, count)
        return new

    def count_of(self, value: Value) -> tuple[int, Value] | None:
        """The axis and the number of elements that are meant, if that is not all of them."""
        return self._counted.get(value.name)

    def whole(self, value: Value) -> Value:
        """All elements of an array of the largest size, of which those beyond the count say nothing."""
        return self._view(value, value.shape) if value.name in self._counted else value

    def _refuse_counted(self, values: Sequence[Value]) -> None:
        """Refuse to read arrays whose size depends on data as if all of their elements were meant."""
        if any(value.name in self._counted for value in values):
            raise Refused(Reason.LENGTH, "it reads an array whose size depends on data")

    def _new(self, shape: Shape, dtype: str, name: str = "") -> Value:
        checked_shape(shape)
        if dtype not in DTYPES:
            raise Refused(Reason.DTYPE, f"arrays of {dtype}")
        name = name or f"v{next(self._numbers)}"
        while name in self._values:
            name = f"{name}.{next(self._numbers)}"
        value = Value(name, tuple(shape), dtype)
        self._values[name] = value
        return value

    # -- kernels

    def kernel(
        self, program: Program, inputs: Sequence[Value], outputs: Sequence[tuple[Shape, str]]
    ) -> tuple[Value, ...]:
        """Add a node; the values of its outputs, whose shapes and dtypes are given."""
        self._refuse_counted(inputs)
        made = tuple(self._new(shape, dtype) for shape, dtype in outputs)
        node = Node(program, tuple(v.name for v in inputs), tuple(v.name for v in made), self.origin)
        self._places[id(node)] = len(self._nodes)
        self._nodes.append(node)
        self._makers.update(dict.fromkeys(node.outputs, node))
        return made

    def check(self, value: Value, what: str) -> None:
        """Have a run fail, saying ``what``, unless the one element of ``value`` is 0."""
        self._checks.append(Check(value.name, what, self.origin))

    @property
    def number_of_checks(self) -> int:
        return len(self._checks)

    def drop_checks(self, first: int) -> None:
        """Forget checks from number ``first`` on, of a node that turned out to have no kernels."""
        del self._checks[first:]

    def change_checks(self, first: int, change: Callable[[Value], Value]) -> None:
        """Put others in place of the values of checks, from number ``first`` on."""
        for k in range(first, len(self._checks)):
            check = self._checks[k]
            self._checks[k] = replace(check, value=change(self._values[check.value]).name)

    # -- parts that peers run

    def peer_value(self, shape: Shape, dtype: str) -> Value:
        """A value that a part of a peer will compute; the part is given later."""
        value = self._new(shape, dtype)
        self._peers.add(value.name)
        return value

    def foreign(self, part: Foreign) -> None:
        """Add a part whose outputs are values of :meth:`peer_value`."""
        self._refuse_counted([self._values[name] for name in part.inputs])
        self._foreign.append(part)

    def home(self, value: Value) -> str:
        """The name of the value whose memory holds the elements."""
        return self._home(value.name)

    # -- knowledge

    def value(self, name: str) -> Value:
        return self._values[name]

    def is_known(self, value: Value) -> bool:
        """True if the elements follow from constants alone."""
        return not self._roots(value.name)

    def known(self, value: Value) -> Array:
        """The elements, which decide about shapes; :class:`ValueNeeded` names inputs that they depend on."""
        self._refuse_counted([value])
        roots = self._roots(value.name)
        if roots & self._peers:
            raise Refused(Reason.LENGTH, "a shape depends on what a peer computes")
        if roots:
            raise ValueNeeded(frozenset(roots))
        return self._computed(value.name)

    def known_integers(self, value: Value) -> tuple[int, ...]:
        """The elements as integers, whatever the shape."""
        found = self.known(value).reshape(-1).tolist()
        if not all(isfinite(each) for each in found):
            raise Malformed("a size, place or number that is NaN or infinite")
        return tuple(int(each) for each in found)

    def _roots(self, name: str) -> set[str]:
        """Inputs of the graph that a value depends on."""
        found: set[str] = set()
        seen: set[str] = set()
        todo = [name]
        while todo:
            name = todo.pop()
            if name in seen or name in self._constants:
                continue
            seen.add(name)
            if name in self._views:
                todo.append(self._views[name])
            elif name in self._makers:
                todo.extend(self._makers[name].inputs)
            else:
                found.add(name)
        return found

    def _computed(self, name: str) -> Array:
        """Run the kernels that a value follows from, in their order, and keep what they give."""
        needed: dict[int, Node] = {}
        todo = [name]
        while todo:
            home = self._home(todo.pop())
            maker = self._makers.get(home)
            if maker is not None and home not in self._constants and self._places[id(maker)] not in needed:
                needed[self._places[id(maker)]] = maker
                todo.extend(maker.inputs)
        for place in sorted(needed):
            self._run(needed[place])
        return self._data(name)

    def _run(self, node: Node) -> None:
        for each in (*node.inputs, *node.outputs):
            if self._values[each].elements > MAX_KNOWN:
                raise Refused(Reason.SIZE, f"a shape depends on {self._values[each].elements} elements")
        results = interpreted(node.program, [self._data(each) for each in node.inputs])
        self._constants.update(zip(node.outputs, results, strict=True))

    def _home(self, name: str) -> str:
        while name in self._views:
            name = self._views[name]
        return name

    def _data(self, name: str) -> Array:
        value = self._values[name]
        return self._constants[self._home(name)].view(numpy_dtype(value.dtype)).reshape(value.shape)

    # -- the result

    def graph(self, outputs: Mapping[str, Value]) -> Graph:
        """The finished graph: what no output needs is left out, small integers of constants are computed."""
        for node in self._nodes:
            if self._foldable(node):
                self._run(node)
        outputs, cuts = self._with_counts(outputs)
        needed = self._needed([*(value.name for value in outputs.values()), *(c.value for c in self._checks)])
        nodes = [n for n in self._nodes if not needed.isdisjoint(n.outputs)]
        nodes = [n for n in nodes if any(o not in self._constants for o in n.outputs)]
        named = {value.name: value for value in (*self._inputs, *outputs.values())}
        kept = needed | {o for n in nodes for o in n.outputs} | set(named)
        kept |= {o for part in self._foreign for o in part.outputs}
        views = {name: of for name, of in self._views.items() if name in kept}
        made = {name for node in nodes for name in node.outputs}
        finals = {name: self._final(name, value, views, kept) for name, value in outputs.items()}
        return Graph(
            self.name,
            tuple(self._inputs),
            tuple(finals.values()),
            tuple(nodes),
            {name: value for name, value in self._values.items() if name in kept},
            views,
            {n: a for n, a in self._constants.items() if n in kept and n not in made},
            tuple(self._checks),
            tuple(Cut(finals[name].name, axis, finals[count].name) for name, axis, count in cuts),
            tuple(part for part in self._foreign if not needed.isdisjoint(part.outputs)),
        )

    def _with_counts(
        self, outputs: Mapping[str, Value]
    ) -> tuple[dict[str, Value], list[tuple[str, int, str]]]:
        """The outputs, then a count for each number of elements that depends on data; which output is cut
        along which axis to which count."""
        found, cuts = dict(outputs), []
        counts: dict[str, str] = {}
        for name, value in outputs.items():
            axis, count = self._counted.get(value.name, (0, None))
            if count is not None:
                if count.name not in counts:
                    own = f"{name}.count"
                    while own in found:
                        own += "."
                    counts[count.name] = own
                    found[own] = count
                cuts.append((name, axis, counts[count.name]))
        return found, cuts

    def _final(self, name: str, value: Value, views: dict[str, str], kept: set[str]) -> Value:
        """An output under its own name: a view of the value that it is."""
        if name == value.name:
            return value
        if name in self._values:  # an input of the same name, or another output's value
            name = f"{name}.out"
        final = Value(name, value.shape, value.dtype)
        self._values[name] = final
        views[name] = value.name
        kept.add(name)
        return final

    def _foldable(self, node: Node) -> bool:
        """True for small integers that follow from constants."""
        values = [self._values[name] for name in (*node.inputs, *node.outputs)]
        return (
            all(self._home(name) in self._constants for name in node.inputs)
            and all(self._values[name].dtype not in FLOAT_DTYPES for name in node.outputs)
            and all(value.elements <= MAX_FOLDED for value in values)
        )

    def _needed(self, outputs: Sequence[str]) -> set[str]:
        """Values that the outputs depend on."""
        found: set[str] = set()
        parts = {name: part for part in self._foreign for name in part.outputs}
        todo = list(outputs)
        while todo:
            name = todo.pop()
            if name in found:
                continue
            found.add(name)
            if name in self._views:
                todo.append(self._views[name])
            elif name not in self._constants and name in self._makers:
                todo.extend(self._makers[name].inputs)
            elif name in parts:
                todo.extend(parts[name].inputs)
        return found


def checked_shape(shape: Sequence[int]) -> Shape:
    """The shape, if an array may have it."""
    if any(size < 0 for size in shape):
        raise Malformed(f"a dimension of {min(shape)} elements")
    if prod(size for size in shape if size) > MAX_ELEMENTS:
        what = f"an array of shape [{','.join(map(str, shape))}]"
        raise Refused(Reason.SIZE, what, f"arrays have at most {MAX_ELEMENTS} elements")
    if len(shape) > 16:
        raise Refused(Reason.SIZE, f"an array of {len(shape)} dimensions", "arrays have at most 16")
    return tuple(shape)
