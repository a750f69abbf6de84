"""Operators that read images at places which are data."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.operators.windows import kernel_fits
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import sampling as s
from perfdojo_sdk.graph.refusals import Malformed

#: Names of interpolations before version 20.
_OLDER = {"bilinear": "linear", "bicubic": "cubic"}


def _grid_sample(n: Operation) -> Value:
    mode = n.text("mode")
    corners = bool(n.whole("align_corners"))
    return s.grid_sample(n.b, n[0], n[1], _OLDER.get(mode, mode), n.text("padding_mode"), corners)


def _affine_grid(n: Operation) -> Value:
    return s.affine_grid(n.b, n[0], n.known_ints(1) or [], bool(n.whole("align_corners")))


def _deform_conv(n: Operation) -> Value:
    kernel_fits(n)
    how = s.Deformed(
        n.ints("strides"), n.ints("dilations"), n.ints("pads"), n.whole("group"), n.whole("offset_group")
    )
    return s.deform_conv(n.b, n[0], n[1], n[2], n.maybe(3), n.maybe(4), how)


def _roi_align(n: Operation) -> Value:
    mode, coordinates = n.text("mode"), n.text("coordinate_transformation_mode", "output_half_pixel")
    if mode not in ("avg", "max") or coordinates not in ("half_pixel", "output_half_pixel"):
        raise Malformed(f"RoiAlign by {ascii(mode)[:40]} with coordinates of {ascii(coordinates)[:40]}")
    how = s.Regions(
        n.whole("output_height"), n.whole("output_width"), n.real("spatial_scale"), n.whole("sampling_ratio"),
        coordinates == "half_pixel", mode == "max",
    )  # fmt: skip
    return s.roi_align(n.b, n[0], n[1], n[2], how)


def _max_roi_pool(n: Operation) -> Value:
    shape = n.ints("pooled_shape")
    if len(shape) != 2:
        raise Malformed(f"MaxRoiPool to {shape}")
    return s.max_roi_pool(n.b, n[0], n[1], s.Regions(shape[0], shape[1], n.real("spatial_scale")))


RULES: Mapping[str, Rule] = {
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "DeformConv": _deform_conv,
    "RoiAlign": _roi_align,
    "MaxRoiPool": _max_roi_pool,
}
