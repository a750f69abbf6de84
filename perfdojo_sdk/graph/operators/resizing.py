"""Images of another size: each element is a weighted sum along one axis after the other.

The places and weights are those of the standard; they are known when the graph is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.combinations import MOST_ROWS, MOST_TAPS, Taps, along
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.writer import is_float


@dataclass(frozen=True)
class Resizing:
    """The attributes of a resizing that are the same for all axes."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0
    region: Sequence[tuple[float, float]] = field(default=())
    """For each axis of a crop, its start and end as parts of the size."""


def resize(
    b: Builder, x: Value, axes: Sequence[int], scales: Sequence[float], sizes: Sequence[int], how: Resizing
) -> Value:
    """``x`` with ``sizes`` elements along ``axes``, at ``scales`` of its own."""
    for n, (axis, scale, size) in enumerate(zip(axes, scales, sizes, strict=True)):
        if scale == 1.0 and size == x.shape[axis] and how.coordinates != "tf_crop_and_resize":
            continue
        if not x.shape[axis] or size < 0 or scale <= 0:
            raise Malformed(f"axis {axis} of {x.text} resized to {size} elements by {scale}")
        region = how.region[n] if how.region else (0.0, 1.0)
        if size > MOST_ROWS or size * (1 + 4 / min(scale, 1.0)) > MOST_TAPS:
            raise Refused(Reason.SIZE, f"axis {axis} of {x.text} resized to {size} elements by {scale}")
        rows = [_row(k, x.shape[axis], size, scale, how, region) for k in range(size)]
        if how.mode != "nearest" and not is_float(x.dtype):
            raise Refused(Reason.DTYPE, f"interpolation of {x.dtype}")
        x = along(b, "resize", x, axis, rows, how.extrapolation)
    return x


def _row(k: int, size: int, result: int, scale: float, how: Resizing, region: tuple[float, float]) -> Taps:
    """Places and weights of one element."""
    at = _coordinate(k, size, result, scale, how.coordinates, region)
    if how.coordinates == "tf_crop_and_resize" and not 0 <= at <= size - 1:
        return ()
    if how.mode == "nearest":
        return ((min(max(_nearest(at, how.nearest), 0), size - 1), 1.0),)
    return weighted(at, size, scale, how)


def weighted(at: float, size: int, scale: float, how: Resizing) -> Taps:
    """The neighbours of a place among ``size`` elements, with their weights. ``scale``: an image that shrinks
    has wider kernels, if it is smoothed."""
    if how.mode not in ("linear", "cubic"):
        raise Malformed(f"interpolation by {ascii(how.mode)[:40]}")
    shrunk = min(scale, 1.0) if how.antialias else 1.0
    reach = (1 if how.mode == "linear" else 2) / shrunk
    places = range(floor(at - reach) + 1, ceil(at + reach))  # those inside of the kernel's open interval
    weights = [_weight((place - at) * shrunk, how) for place in places]
    if how.exclude_outside:
        weights = [w if 0 <= p < size else 0.0 for p, w in zip(places, weights, strict=True)]
    total = sum(weights)
    if not total:
        raise Malformed("the weights of an interpolation sum up to 0")
    if how.exclude_outside or how.antialias:
        weights = [w / total for w in weights]
    merged: dict[int, float] = {}
    for place, weight in zip(places, weights, strict=True):
        inside = min(max(place, 0), size - 1)
        merged[inside] = merged.get(inside, 0.0) + weight
    # Rows that differ by the roundings of their coordinates only shall be equal.
    return tuple((p, round(w, 12)) for p, w in sorted(merged.items()) if round(w, 12))


def _coordinate(
    k: int, size: int, result: int, scale: float, kind: str, region: tuple[float, float]
) -> float:
    """The place in the original of element ``k`` of the result, whose length before it is rounded counts."""
    length = scale * size
    if kind == "half_pixel":
        return (k + 0.5) / scale - 0.5
    if kind == "half_pixel_symmetric":
        adjustment = result / length
        centre = size / 2
        return centre * (1 - adjustment) + (k + 0.5) / scale - 0.5
    if kind == "pytorch_half_pixel":
        return (k + 0.5) / scale - 0.5 if length > 1 else -0.5
    if kind == "align_corners":
        return 0.0 if length == 1 else k * (size - 1) / (length - 1)
    if kind == "asymmetric":
        return k / scale
    if kind == "tf_half_pixel_for_nn":
        return (k + 0.5) / scale
    if kind == "tf_crop_and_resize":
        start, end = region
        if length > 1:
            return start * (size - 1) + k * (end - start) * (size - 1) / (length - 1)
        return 0.5 * (start + end) * (size - 1)
    raise Malformed(f"coordinates by {ascii(kind)[:40]}")


def _nearest(at: float, mode: str) -> int:
    if mode == "round_prefer_floor":
        return ceil(at - 0.5)
    if mode == "round_prefer_ceil":
        return floor(at + 0.5)
    if mode in ("floor", "ceil"):
        return floor(at) if mode == "floor" else ceil(at)
    raise Malformed(f"the nearest by {ascii(mode)[:40]}")


def _weight(distance: float, how: Resizing) -> float:
    distance = abs(distance)
    if how.mode == "linear":
        return max(1 - distance, 0.0)
    a = how.cubic
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    if distance < 2:
        return a * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    return 0.0
