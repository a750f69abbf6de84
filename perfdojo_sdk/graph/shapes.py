"""Arithmetic of shapes: broadcasting, axes, sizes of windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from perfdojo_sdk.graph.graph import Shape
from perfdojo_sdk.graph.refusals import Malformed


def broadcast(*shapes: Shape) -> Shape:
    """The shape to which all are broadcast, right-aligned."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for k in range(rank):
        sizes = {shape[k - rank + len(shape)] for shape in shapes if k - rank + len(shape) >= 0} - {1}
        if len(sizes) > 1:
            shown = " and ".join(f"[{','.join(map(str, shape))}]" for shape in shapes)
            raise Malformed(f"shapes {shown} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def axis_of(axis: int, rank: int) -> int:
    """A dimension's number; a negative one counts from the end."""
    if not -rank <= axis < max(rank, 1):
        raise Malformed(f"there is no axis {axis} among {rank} dimensions")
    return axis % rank if rank else 0


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Numbers of dimensions in ascending order, each once."""
    found = sorted(axis_of(axis, rank) for axis in axes)
    if len(set(found)) < len(found):
        raise Malformed(f"axes {list(axes)} name a dimension twice")
    return tuple(found)


def flattened(shape: Shape, axis: int) -> tuple[int, int]:
    """Elements before and from an axis on."""
    return prod(shape[:axis]), prod(shape[axis:])


def reduced(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """The shape without some dimensions, or with 1 in their places."""
    if keepdims:
        return tuple(1 if k in axes else size for k, size in enumerate(shape))
    return tuple(size for k, size in enumerate(shape) if k not in axes)


def strides_of(shape: Shape) -> tuple[int, ...]:
    """Distance of neighbours along each dimension, in elements, row-major."""
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))


def flat_index(shape: Shape, subscripts: Sequence[str]) -> str:
    """The number of an element in row-major order, as text of the language."""
    terms = [name if s == 1 else f"{name}*{s}" for name, s in zip(subscripts, strides_of(shape), strict=True)]
    return "+".join(terms) or "0"


def affine(*terms: tuple[str, int] | int) -> str:
    """The text of a sum of iterators with coefficients, and constants."""
    constant = sum(term for term in terms if isinstance(term, int))
    text = ""
    for name, factor in (term for term in terms if not isinstance(term, int)):
        if factor:
            size = name if abs(factor) == 1 else f"{name}*{abs(factor)}"
            text += (("+" if factor > 0 else "-") if text or factor < 0 else "") + size
    if constant or not text:
        text += f"{constant:+d}" if text else str(constant)
    return text
