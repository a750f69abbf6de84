"""Recognition of kernels that put a border around an array: what padding by a number is."""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.expression import Literal, Read
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.subscripts import LEVELS


@dataclass(frozen=True)
class Border:
    """A copy of an array in the middle of a larger one, whose other elements are one number."""

    number: float
    begins: tuple[int, ...]
    """Elements before the copy in each dimension."""


def border_of(program: Program) -> Border | None:
    """The border that a kernel puts around its input; None if it does anything else."""
    if len(program.inputs) != 1 or len(program.outputs) != 1 or len(program.body) != 2:
        return None
    leaves = [leaf for node in program.body for leaf in node.leaves]
    if len(leaves) != 2 or any(s.guard or s.lookups or s.accumulate for s, _ in leaves):
        return None
    (fill, whole), (copy, sizes) = leaves
    source, shape = (program.buffer_of[a].shape for a in (program.inputs[0], program.outputs[0]))
    levels = LEVELS[: len(shape)]
    if not isinstance(fill.value, Literal) or not isinstance(copy.value, Read) or len(source) != len(shape):
        return None
    filled = fill.target.array == program.outputs[0] and fill.target.subscripts == levels and whole == shape
    read = copy.value.access
    copied = read.array == program.inputs[0] and read.subscripts == levels and sizes == source
    moves = [form.plus(level, -1) for form, level in zip(copy.target.subscripts, levels, strict=True)]
    if not filled or not copied or any(move.terms or move.quotients for move in moves):
        return None
    return Border(float(fill.value.value), tuple(move.constant for move in moves))
