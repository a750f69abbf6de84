"""A model that is lowered when its inputs are seen: once for each set of shapes, and of values that decide
about shapes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfdojo_sdk.frontends.onnx.lowering import Unsupported, lower
from perfdojo_sdk.frontends.onnx.reading import read_model, shown
from perfdojo_sdk.graph.arrays import dtype_of
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
        self.shape_like: tuple[str, ...] = ()
        """Inputs whose values decide about shapes, as far as calls have shown."""
        self._graphs: OrderedDict[Hashable, Graph] = OrderedDict()
        self.lowerings = 0
        """The number of times that the model was lowered; equal keys reuse a graph."""

    def arrays(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Array]:
        """The inputs by name."""
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(self.inputs):
                raise Malformed(f"the model takes {len(self.inputs)} inputs, {len(inputs)} are given")
            inputs = dict(zip(self.inputs, inputs, strict=False))
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise Malformed(f"input {shown(missing[0])} is not given")
        found = {}
        for name in self.inputs:
            if not isinstance(inputs[name], np.ndarray | np.generic | float | int):
                raise Refused(Reason.TYPE, f"input {shown(name)} is {type(inputs[name]).__name__}")
            array = np.asarray(inputs[name])
            if dtype_of(array) is None:
                raise Refused(Reason.DTYPE, f"input {shown(name)} of {array.dtype}")
            found[name] = array
        return found

    def graph(self, arrays: Mapping[str, Array]) -> Graph:
        """The graph for inputs like these; :class:`Unsupported` when there is none."""
        while True:
            key = self._key(arrays)
            if key in self._graphs:
                self._graphs.move_to_end(key)
                return self._graphs[key]
            known = {name: arrays[name] for name in self.shape_like}
            try:
                graph = self._lowered(arrays, known)
            except ValueNeeded as needed:
                more = needed.inputs - set(self.shape_like)
                if not more <= set(arrays):
                    raise
                self.shape_like = tuple(sorted({*self.shape_like, *more}))
                continue
            self._graphs[key] = graph
            if len(self._graphs) > MOST_GRAPHS:
                self._graphs.popitem(last=False)
            return graph

    def _key(self, arrays: Mapping[str, Array]) -> Hashable:
        types = tuple((arrays[name].shape, arrays[name].dtype.str) for name in self.inputs)
        return types, tuple((name, arrays[name].tobytes()) for name in self.shape_like)

    def _lowered(self, arrays: Mapping[str, Array], known: Mapping[str, Array]) -> Graph:
        self.lowerings += 1
        shapes = {name: array.shape for name, array in arrays.items()}
        lowered = lower(self.model, shapes, known, self.folder)
        if lowered.graph is None:
            raise Unsupported(shown(self.model.graph.name), lowered.refusals)
        return lowered.graph
