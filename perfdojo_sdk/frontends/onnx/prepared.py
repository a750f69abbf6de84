"""A model that is lowered when its inputs are seen: once for each set of shapes, and of values that decide
about shapes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.frontends.onnx.edges import item_name
from perfdojo_sdk.frontends.onnx.lowering import Lowered, Unsupported, lower
from perfdojo_sdk.frontends.onnx.reading import read_model, shown
from perfdojo_sdk.frontends.onnx.sizes import dtype_in, sequences_in
from perfdojo_sdk.graph.arrays import dtype_of, numpy_dtype
from perfdojo_sdk.graph.graph import Array, Graph
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused, ValueNeeded

#: Most graphs of one model that are kept; the one that was used longest ago goes first.
MOST_GRAPHS = 64


class Prepared:
    """A model and its graphs."""

    def __init__(self, source: Path | str | bytes | Any) -> None:
        self.model, self.folder = read_model(source)
        given = {tensor.name for tensor in self.model.graph.initializer}
        self.inputs = tuple(v.name for v in self.model.graph.input if v.name not in given)
        self.outputs = tuple(v.name for v in self.model.graph.output)
        kinds = {v.name: v.type.WhichOneof("value") for v in self.model.graph.input}
        self._dtypes = {v.name: dtype_in(v.type) for v in self.model.graph.input}
        self._optionals = {name for name, kind in kinds.items() if kind == "optional_type"}
        self._sequences = sequences_in(self.model)
        self.shape_like: tuple[str, ...] = ()
        """Inputs whose values decide about shapes, as far as calls have shown."""
        self._graphs: OrderedDict[Hashable, Lowered] = OrderedDict()
        self.lowerings = 0
        """The number of times that the model was lowered; equal keys reuse a graph."""

    def arrays(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Array]:
        """The inputs by name; the arrays of a sequence each by its own, ``name[k]``."""
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(self.inputs):
                raise Malformed(f"the model takes {len(self.inputs)} inputs, {len(inputs)} are given")
            inputs = dict(zip(self.inputs, inputs, strict=False))
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise Malformed(f"input {shown(missing[0])} is not given")
        found: dict[str, Array] = {}
        for name in self.inputs:
            given = inputs[name]
            if isinstance(given, list | tuple) and name in self._sequences:
                found.update((item_name(name, k), self._array(name, each)) for k, each in enumerate(given))
            elif given is not None or name not in self._optionals:
                found[name] = self._array(name, given)
        return found

    def _array(self, name: str, given: Any) -> Array:
        """An input, or an array of one, as an array of the dtype that the model declares; numbers of Python
        take it."""
        if not isinstance(given, np.ndarray | np.generic | float | int):
            raise Refused(Reason.TYPE, f"input {shown(name)} is {type(given).__name__}")
        declared = self._dtypes[name]
        if declared is not None and not isinstance(given, np.ndarray | np.generic):
            given = _number(name, given, declared)
        array = np.asarray(given)
        found = dtype_of(array)
        if found is None:
            raise Refused(Reason.DTYPE, f"input {shown(name)} of {array.dtype}")
        if declared not in (None, found):
            what = f"input {shown(name)} is {found}, the model takes {declared}"
            raise Malformed(what, hint=f"convert it: numpy.asarray(x).astype({numpy_dtype(declared).name!r})")
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def lengths(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, int | None]:
        """The numbers of arrays of inputs that are sequences; None for optionals without a value."""
        if not isinstance(inputs, Mapping):
            inputs = dict(zip(self.inputs, inputs, strict=False))
        several = {n: len(v) for n, v in inputs.items() if isinstance(v, list | tuple)}
        return {**several, **{name: None for name, given in inputs.items() if given is None}}

    def graph(self, arrays: Mapping[str, Array], lengths: Mapping[str, int | None] | None = None) -> Graph:
        """The graph for inputs like these; :class:`Unsupported` when there is none."""
        graph = self.lowered(arrays, lengths).graph
        assert graph is not None, "a model with refusals is not kept"
        return graph

    def lowered(
        self, arrays: Mapping[str, Array], lengths: Mapping[str, int | None] | None = None
    ) -> Lowered:
        """The model for inputs like these, with the graph; :class:`Unsupported` when there is none."""
        lengths = lengths or {}
        while True:
            key = self._key(arrays, lengths)
            if key in self._graphs:
                self._graphs.move_to_end(key)
                return self._graphs[key]
            known = {name: arrays[name] for name in self.shape_like if name in arrays}
            try:
                lowered = self._lowered(arrays, known, lengths)
            except ValueNeeded as needed:
                more = needed.inputs - set(self.shape_like)
                if not more or not more <= set(arrays):
                    raise
                self.shape_like = tuple(sorted({*self.shape_like, *more}))
                continue
            self._graphs[key] = lowered
            if len(self._graphs) > MOST_GRAPHS:
                self._graphs.popitem(last=False)
            return lowered

    def _key(self, arrays: Mapping[str, Array], lengths: Mapping[str, int | None]) -> Hashable:
        types = tuple((name, array.shape, array.dtype.str) for name, array in arrays.items())
        known = tuple((name, arrays[name].tobytes()) for name in self.shape_like if name in arrays)
        return types, known, tuple(sorted(lengths.items(), key=str))

    def _lowered(
        self, arrays: Mapping[str, Array], known: Mapping[str, Array], lengths: Mapping[str, int | None]
    ) -> Lowered:
        self.lowerings += 1
        shapes = {name: array.shape for name, array in arrays.items()}
        lowered = lower(self.model, shapes, known, self.folder, lengths)
        if lowered.graph is None:
            raise Unsupported(shown(self.model.graph.name), lowered.refusals)
        return lowered


def _number(name: str, given: float, declared: str) -> Array:
    """A number of Python in the dtype that is declared, which has to hold it if it is one of integers."""
    try:
        with np.errstate(all="ignore"):
            number = np.asarray(given).astype(numpy_dtype(declared))
        if declared in FLOAT_DTYPES or number == given:
            return number
    except OverflowError:
        pass
    raise Malformed(f"input {shown(name)} is {given}, and no {declared} is that number")
