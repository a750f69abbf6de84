"""Windows over images: their sizes, and text of subscripts that stay inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.movement import pad_constant
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import affine


@dataclass(frozen=True)
class Axis:
    """A window's way along one dimension."""

    size: int
    """Elements of the image."""
    kernel: int
    stride: int
    dilation: int
    begin: int
    """Padding in front."""
    end: int
    """Padding behind."""
    output: int
    """Positions of the window."""

    @property
    def reach(self) -> int:
        """The element of the image before which the last window ends."""
        return (self.output - 1) * self.stride + (self.kernel - 1) * self.dilation + 1 - self.begin

    def place(self, position: str, tap: str) -> str:
        """The subscript of a tap at a position."""
        return affine((position, self.stride), (tap, self.dilation), -self.begin)

    def inside(self, position: str, tap: str, extent: int | None = None) -> list[str]:
        """Conditions under which a tap is in the image, or below ``extent``; none that always hold."""
        extent = self.size if extent is None else extent
        text = affine((position, self.stride), (tap, self.dilation))
        found = [f"{text} >= {self.begin}"] if self.begin > 0 else []
        return found + ([f"{text} < {extent + self.begin}"] if self.reach > extent else [])


def axes(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    auto_pad: str,
    ceil: bool = False,
) -> tuple[Axis, ...]:
    """The window along each dimension. ``pads``: all in front, then all behind; empty lists are defaults."""
    rank = len(sizes)
    strides, dilations = list(strides) or [1] * rank, list(dilations) or [1] * rank
    pads = list(pads) or [0] * (2 * rank)
    if not (len(kernel) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank):
        what = f"a window of {len(kernel)} dimensions over {rank}"
        raise Malformed(what, "or strides, dilations or pads of another number")
    if min([*kernel, *strides, *dilations], default=1) < 1:
        raise Malformed("a window, stride or dilation below 1")
    found = []
    for k, size in enumerate(sizes):
        extent = (kernel[k] - 1) * dilations[k] + 1
        begin, end = _padding(size, extent, strides[k], auto_pad, (pads[k], pads[rank + k]))
        if begin < 0 or end < 0:
            raise Malformed("negative padding")
        room = size + begin + end - extent
        output = (-(-room // strides[k]) if ceil else room // strides[k]) + 1
        if ceil and (output - 1) * strides[k] >= size + begin:
            output -= 1  # windows that start behind the image and its padding are no positions
        if room < 0:
            raise Malformed(f"a window of {extent} elements over {size + begin + end}")
        found.append(Axis(size, kernel[k], strides[k], dilations[k], begin, end, max(output, 0)))
    return tuple(found)


def _padding(size: int, extent: int, stride: int, auto_pad: str, pads: tuple[int, int]) -> tuple[int, int]:
    if auto_pad in ("", "NOTSET"):
        return pads
    if auto_pad == "VALID":
        return 0, 0
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise Malformed(f"auto_pad is {ascii(auto_pad)[:40]}")
    total = max((-(-size // stride) - 1) * stride + extent - size, 0)
    return (total // 2, total - total // 2) if auto_pad == "SAME_UPPER" else (total - total // 2, total // 2)


def bordered(b: Builder, x: Value, borders: Sequence[tuple[int, int]], iterations: int) -> Value:
    """The image with zeros before and behind each of its dimensions; the image itself if that has more
    elements than there are ``iterations`` of the windows that go over it."""
    sizes = [p + size + q for size, (p, q) in zip(x.shape[2:], borders, strict=True)]
    if prod([*x.shape[:2], *sizes]) > iterations:
        return x
    begins, ends = ([0, 0, *[border[side] for border in borders]] for side in (0, 1))
    return pad_constant(b, x, begins, ends, None)


def without_padding(
    b: Builder, x: Value, spatial: Sequence[Axis], iterations: int
) -> tuple[Value, tuple[Axis, ...]]:
    """The image with a border as wide as windows reach, and their ways over it, which never leave it; both
    as they were if :func:`bordered` leaves the image."""
    whole = bordered(b, x, [(axis.begin, max(axis.reach - axis.size, 0)) for axis in spatial], iterations)
    if whole is x:
        return x, tuple(spatial)
    sizes = zip(spatial, whole.shape[2:], strict=True)
    return whole, tuple(replace(axis, size=size, begin=0, end=0) for axis, size in sizes)


def condition(conditions: Sequence[str]) -> str:
    """The end of a statement that runs where all conditions hold."""
    return f" if {' and '.join(conditions)}" if conditions else ""
