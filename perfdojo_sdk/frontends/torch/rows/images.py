"""Images of another size, and images read at the places of a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor

import numpy as np

from perfdojo_sdk.frontends.torch.call import Call, Row
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import sampling
from perfdojo_sdk.graph.operators.combinations import Taps, along
from perfdojo_sdk.graph.operators.resizing import Resizing, weighted

#: PyTorch's numbers of interpolations and of paddings.
MODES, PADDINGS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")


# -- resizing --------------------------------------------------------------------------------------


def _nearest(exact: bool = False, keeps_sizes: bool = False) -> Row:
    """The element at the start of each one's place or, ``exact``, at its middle."""

    def rows(c: Call, size: int, count: int, ratio: float) -> list[Taps]:
        step, shift = np.float32(ratio), np.float32(0.5 * exact)
        return [((min(floor((np.float32(i) + shift) * step), size - 1), 1.0),) for i in range(count)]

    return _resized(rows, keeps_sizes)


def _linear_rows(c: Call, size: int, count: int, ratio: float) -> list[Taps]:
    corners, rows = c.flag("align_corners"), []
    for i in range(count):
        if corners:
            place = i * (size - 1) / (count - 1) if count > 1 else 0.0
        else:
            place = max((i + 0.5) * ratio - 0.5, 0.0)
        first = min(floor(place), size - 1)
        weight = place - first
        taps = [(first, 1 - weight), (min(first + 1, size - 1), weight)]
        rows.append(tuple((p, w) for p, w in taps if w) if taps[0][0] != taps[1][0] else ((first, 1.0),))
    return rows


def _cubic_rows(c: Call, size: int, count: int, ratio: float) -> list[Taps]:
    corners, how = c.flag("align_corners"), Resizing("cubic")
    if corners:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
        return [weighted(i * step, size, 1.0, how) for i in range(count)]
    return [weighted((i + 0.5) * ratio - 0.5, size, 1.0, how) for i in range(count)]


def _smooth(mode: str) -> Row:
    """The row of a mode whose kernel is as wide as the step, where an image shrinks."""
    how = Resizing(mode, cubic=-0.5, exclude_outside=True, antialias=True)

    def rows(c: Call, size: int, count: int, ratio: float) -> list[Taps]:
        if c.flag("align_corners"):  # only the distance of the elements depends on it
            ratio = (size - 1) / (count - 1) if count > 1 else 0.0
        scale = 1 / ratio if ratio else 1.0
        return [weighted((i + 0.5) * ratio - 0.5, size, scale, how) for i in range(count)]

    return _resized(rows, keeps_sizes=True)


def _resized(rows_of: Callable[[Call, int, int, float], Sequence[Taps]], keeps_sizes: bool = False) -> Row:
    """The row for elements that ``rows_of`` describes along one axis, by the call, the axis's size, the
    size of the result, and the distance of its elements. ``keeps_sizes``: PyTorch leaves an axis as it is
    whose size stays, whatever the factor is; which modes do was tried."""

    def row(c: Call) -> Value:
        x = c["input"] if c.has("input") else c["self"]
        for n, (count, ratio) in enumerate(_ratios(c, x)):
            if keeps_sizes and count == x.shape[2 + n]:
                continue
            x = along(c.b, "resize", x, 2 + n, rows_of(c, x.shape[2 + n], count, ratio))
        return x

    return row


def _ratios(c: Call, x: Value) -> list[tuple[int, float]]:
    """For each dimension of the image, the size of the result, and the distance of its elements."""
    factors = c.arguments.get("scale_factors")
    if factors is None:
        names = ("scales_d", "scales_h", "scales_w")[-(x.rank - 2) :] if x.rank > 3 else ("scales",)
        factors = [c.arguments.get(name) for name in names]
    found = []
    for n, (size, count) in enumerate(zip(x.shape[2:], c.shape[2:], strict=True)):
        factor = factors[n] if n < len(factors) else None
        found.append((count, 1 / factor if factor else size / count))
    return found


# -- grids -----------------------------------------------------------------------------------------


def _grid_sample(c: Call) -> Value:
    mode, padding = MODES[c.whole("interpolation_mode", 0)], PADDINGS[c.whole("padding_mode", 0)]
    # The neighbours of a cubic interpolation are moved inside of the image one by one.
    return sampling.grid_sample(
        c.b, c["input"], c["grid"], mode, padding, c.flag("align_corners"), moved_inside=mode != "cubic"
    )


def _affine_grid(c: Call) -> Value:
    return sampling.affine_grid(c.b, c["theta"], c.ints("size"), c.flag("align_corners"), alone=0.0)


ROWS: Mapping[str, Row] = {
    **{f"upsample_nearest{rank}d": _nearest(keeps_sizes=rank == 2) for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d": _nearest(exact=True) for rank in (1, 2, 3)},
    **dict.fromkeys(
        ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
        _resized(_linear_rows, keeps_sizes=True),
    ),
    "upsample_bicubic2d": _resized(_cubic_rows),
    "_upsample_bilinear2d_aa": _smooth("linear"),
    "_upsample_bicubic2d_aa": _smooth("cubic"),
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), _grid_sample),
    "affine_grid_generator": _affine_grid,
}
