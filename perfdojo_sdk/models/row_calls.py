"""Calls of a model with free rows, from Python: by its function in C, or block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array, Shape
from perfdojo_sdk.library.arrays import ArgumentValueError, aligned_with_address
from perfdojo_sdk.models.blocks import Block, blocks_of
from perfdojo_sdk.models.manifest import ModelManifest

RunBlock: TypeAlias = Callable[[Mapping[str, Array], int], Sequence[Array]]
"""Computes the outputs of a block from its inputs, with so many threads."""
Function: TypeAlias = Callable[[Sequence[int], int], None]
"""The model's function in C: the number of rows and the addresses of arrays, and threads."""


class _Rows(NamedTuple):
    """The shape of an input or output without its rows, of which each takes ``each`` places; none if its size
    is fixed. Read from the manifest once, since a call of a small model takes few microseconds."""

    before: Shape
    each: int | None
    after: Shape
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, manifest: ModelManifest, name: str) -> _Rows:
        shape, dtype = manifest.shape(name, 1), numpy_dtype(str(manifest.values[name].dtype))
        dimension = manifest.rows.free.get(name) if manifest.rows is not None else None
        if dimension is None:
            return cls(shape, None, (), dtype)
        return cls(shape[:dimension], shape[dimension], shape[dimension + 1 :], dtype)

    def shape(self, rows: int) -> Shape:
        return self.before if self.each is None else (*self.before, self.each * rows, *self.after)


class RowCalls:
    """Calls with any number of rows. ``blocks``: rows -> what computes so many."""

    def __init__(
        self, manifest: ModelManifest, blocks: Mapping[int, RunBlock], function: Function | None
    ) -> None:
        assert manifest.rows is not None, "the model has free rows"
        self.manifest, self.rows = manifest, manifest.rows
        self._blocks, self._function = blocks, function
        self._arrays = {n: _Rows.of(manifest, n) for n in (*manifest.inputs, *manifest.outputs)}
        self._counted = [(n, self.rows.free[n]) for n in manifest.inputs if n in self.rows.free]

    def shape(self, name: str, given: Array) -> Shape:
        """The shape that an input has to have with as many rows as ``given``."""
        dimension = self.rows.free.get(name)
        if dimension is None or given.ndim <= dimension:
            return self._arrays[name].shape(self.rows.sizes[-1])
        return self._arrays[name].shape(given.shape[dimension])

    def run(self, inputs: Mapping[str, Array], threads: int) -> list[Array]:
        """The outputs, with as many rows as the inputs, which have the right shapes.

        :class:`ArgumentValueError` if inputs differ in that number, or it is 0 or too large.
        """
        rows = self._count(inputs)
        kinds = [self._arrays[name] for name in self.manifest.outputs]
        made = [aligned_with_address(kind.shape(rows), kind.dtype) for kind in kinds]
        outputs = [array for array, _ in made]
        if self._function is not None:
            given = [inputs[name].__array_interface__["data"][0] for name in self.manifest.inputs]
            self._function([rows, *given, *[address for _, address in made]], threads)
        else:
            named = dict(zip(self.manifest.outputs, outputs, strict=True))
            for block in blocks_of(rows, self.rows.choices):
                self._run_block(block, inputs, named, threads)
        return outputs

    def in_equal_blocks(
        self, inputs: Mapping[str, Array], run: Callable[[Mapping[str, Array]], Sequence[Array]]
    ) -> list[Array]:
        """The outputs of ``run`` on blocks of the largest size, in whatever dtypes it gives them."""
        rows, size, free = self._count(inputs), self.rows.sizes[-1], self.rows.free
        found: dict[str, list[Array]] = {name: [] for name in self.manifest.outputs}
        for first in range(0, rows, size):
            block = Block(first, min(size, rows - first), size)
            parts = run({name: self._padded(name, array, block) for name, array in inputs.items()})
            for (name, kept), part in zip(found.items(), parts, strict=True):
                kept.append(self._part(name, part, block, 0) if name in free else part)
        return [np.concatenate(kept, free[n]) if n in free else kept[-1] for n, kept in found.items()]

    def _run_block(
        self, block: Block, inputs: Mapping[str, Array], made: Mapping[str, Array], threads: int
    ) -> None:
        given = {name: self._padded(name, array, block) for name, array in inputs.items()}
        found = self._blocks[block.size](given, threads)
        for (name, whole), part in zip(made.items(), found, strict=True):
            target = whole if name not in self.rows.free else self._part(name, whole, block)
            target[...] = part if name not in self.rows.free else self._part(name, part, block, 0)

    def _part(self, name: str, array: Array, block: Block, first: int | None = None) -> Array:
        """The rows of a block, a view; from another first row if that is given."""
        dimension = self.rows.free[name]
        each = self.manifest.shape(name, 1)[dimension]
        start = (block.first if first is None else first) * each
        places = slice(start, start + block.rows * each)
        return array[(slice(None),) * dimension + (places,)]

    def _padded(self, name: str, array: Array, block: Block) -> Array:
        """The rows of a block, the last one as often as the block needs."""
        if name not in self.rows.free:
            return array
        dimension = self.rows.free[name]
        part = self._part(name, array, block)
        last = np.take(part, [-1], axis=dimension)
        parts = [part, *[last] * (block.size - block.rows)]
        return np.concatenate(parts, axis=dimension) if len(parts) > 1 else np.ascontiguousarray(part)

    def _count(self, inputs: Mapping[str, Array]) -> int:
        """The number of rows of a call."""
        first, dimension = self._counted[0]
        rows: int = inputs[first].shape[dimension]
        for name, dimension in self._counted:
            if (count := inputs[name].shape[dimension]) != rows:
                what = f"{first} has {rows} rows ({self.rows.name}), {name} has {count}"
                raise ArgumentValueError("PD-L011", what)
        if not 1 <= rows <= self.rows.most:
            what = f"{first} has {rows} rows, the model takes 1 to {self.rows.most}"
            hint = "build it with a larger --max-rows" if rows else ""
            raise ArgumentValueError("PD-L011", what, hint=hint)
        return rows
