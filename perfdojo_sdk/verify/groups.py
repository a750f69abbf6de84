"""Groups: the elements of an input that are reduced together. A fault may show only if a whole group has one
character.

Of a matrix whose rows are summed up, a group is a row; of the second factor of a product of matrices, a
column; of images that are normalised by channels, a channel of all images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.program import Program, Statement

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def kept_dimensions(program: Program) -> Mapping[str, tuple[int, ...]]:
    """Input -> the dimensions that no reduction runs over; all of them where nothing is reduced."""
    reduced = _reduced_dimensions(program)
    ranks = {name: len(program.buffer_of[name].shape) for name in program.inputs}
    return {
        name: tuple(k for k in range(rank) if (program.buffer_of[name].name, k) not in reduced)
        for name, rank in ranks.items()
    }


def _reduced_dimensions(program: Program) -> set[tuple[str, int]]:
    """Buffer and dimension over which values are accumulated, directly or in what is computed from them."""
    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    found: set[tuple[str, int]] = set()
    # Values flow from the front to the back, so a pass from the back finds most, a second one the rest.
    for statement in 2 * statements[::-1]:
        target = program.buffer_of[statement.target.array]
        into = list(enumerate(statement.target.subscripts))
        carried = {level for _, form in into for level in form.levels}
        lost = {level for k, form in into if (target.name, k) in found for level in form.levels}
        for read in statement.reads:
            buffer = program.buffer_of[read.array]
            for k, form in enumerate(read.subscripts):
                levels = set(form.levels)
                if levels & lost or (statement.accumulate and levels - carried):
                    found.add((buffer.name, k))
    return found


@dataclass(frozen=True)
class Groups:
    """The elements of an array, in groups that share their subscripts in the dimensions ``kept``."""

    shape: tuple[int, ...]
    kept: tuple[int, ...]
    apart: bool = False
    """True if nothing is reduced, so that no element can hide a fault which another shows."""

    @property
    def count(self) -> int:
        return prod(self.shape[k] for k in self.kept)

    @property
    def size(self) -> int:
        """Elements of one group."""
        return prod(self.shape) // max(self.count, 1)

    def of_sets(self, sets: int) -> Groups:
        """The groups of ``sets`` arrays that are stacked along a new first dimension."""
        return Groups((sets, *self.shape), (0, *(k + 1 for k in self.kept)), self.apart)

    def each(self, values: Array) -> Array:
        """One value for each group, in a shape that broadcasts to the array's."""
        return values.reshape([n if k in self.kept else 1 for k, n in enumerate(self.shape)])

    def first(self, array: Array) -> Array:
        """The array with the dimensions ``kept`` in front: a view."""
        return np.moveaxis(array, self.kept, range(len(self.kept)))

    def numbered(self, groups: Array) -> tuple[Array, ...]:
        """The subscripts of groups in the dimensions ``kept``."""
        return np.unravel_index(groups, [self.shape[k] for k in self.kept]) if self.kept else ()

    def rest(self) -> tuple[int, ...]:
        """The shape of one group."""
        return tuple(n for k, n in enumerate(self.shape) if k not in self.kept)

    def places(self, groups: Array, positions: Array) -> tuple[Array, ...]:
        """The subscripts in what :meth:`first` gives of the elements at ``positions`` of ``groups``."""
        rest = self.rest()
        return (*self.numbered(groups), *(np.unravel_index(positions, rest) if rest else ()))
