"""Operators that move elements, and views, which move none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.operators.older import bound, bounds
from perfdojo_sdk.graph.graph import Array, Shape, Value
from perfdojo_sdk.graph.operators import movement as m
from perfdojo_sdk.graph.operators.resizing import Resizing, resize
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import axes_of, axis_of, flattened


def _reshape(n: Operation) -> Value:
    """A view; 0 keeps a size, -1 is whatever remains."""
    x = n[0]
    wanted = n.ints("shape") if n.version < 5 else list(n.b.known_integers(n[1]))
    if not n.whole("allowzero", 0):
        if any(size == 0 and k >= x.rank for k, size in enumerate(wanted)):
            raise Malformed(f"Reshape of {x.text} to {wanted} keeps a size that is not there")
        wanted = [x.shape[k] if size == 0 else size for k, size in enumerate(wanted)]
    if wanted.count(-1) > 1 or any(size < -1 for size in wanted):
        raise Malformed(f"Reshape to {wanted}")
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        if not rest or x.elements % rest:
            raise Malformed(f"{x.elements} elements cannot have the shape {wanted}")
        wanted[wanted.index(-1)] = x.elements // rest
    return n.b.view(x, tuple(wanted))


def _squeeze(n: Operation) -> Value:
    given, x = n.axes(), n[0]
    axes = [k for k, size in enumerate(x.shape) if size == 1] if given is None else axes_of(given, x.rank)
    if any(x.shape[k] != 1 for k in axes):
        raise Malformed(f"Squeeze of {x.text} along {list(axes)}")
    return n.b.view(x, tuple(size for k, size in enumerate(x.shape) if k not in axes))


def _unsqueeze(n: Operation) -> Value:
    given, x = n.axes() or [], n[0]
    axes = axes_of(given, x.rank + len(given))
    sizes = list(x.shape)
    for axis in axes:
        sizes.insert(axis, 1)
    return n.b.view(x, tuple(sizes))


def _flatten(n: Operation) -> Value:
    axis = n.whole("axis")
    if not -n[0].rank <= axis <= n[0].rank:
        raise Malformed(f"Flatten of {n[0].text} at axis {axis}")
    return n.b.view(n[0], flattened(n[0].shape, axis % (n[0].rank or 1) if axis != n[0].rank else axis))


def _transpose(n: Operation) -> Value:
    order = n.ints("perm") if n.has("perm") else list(range(n[0].rank))[::-1]
    return m.transpose(n.b, n[0], order)


def _slice(n: Operation) -> Value:
    given = bounds(n)
    return m.slice_(n.b, n[0], given.starts, given.ends, given.axes, given.steps)


def _split(n: Operation) -> Sequence[Value]:
    x, axis = n[0], axis_of(n.whole("axis"), n[0].rank)
    sizes = n.axes(1, "split")
    if sizes is None:
        parts = n.whole("num_outputs") if n.has("num_outputs") else n.outputs
        if parts < 1 or parts != n.outputs:
            raise Malformed(f"Split into {parts} parts has {n.outputs} outputs")
        each = -(-x.shape[axis] // parts)
        sizes = [min(each, max(x.shape[axis] - k * each, 0)) for k in range(parts)]
    if len(sizes) != n.outputs:
        raise Malformed(f"Split into {len(sizes)} parts has {n.outputs} outputs")
    return m.split(n.b, x, sizes, axis)


def _pad(n: Operation) -> Value:
    x, older = n[0], n.version < 11
    pads = n.ints("pads") if older else list(n.b.known_integers(n[1]))
    given = n.known_ints(3)
    axes = list(range(x.rank)) if given is None else [axis_of(a, x.rank) for a in given]
    if len(pads) != 2 * len(axes) or len(set(axes)) < len(axes):
        raise Malformed(f"pads {pads} for {len(axes)} axes")
    begins, ends = [0] * x.rank, [0] * x.rank
    for k, axis in enumerate(axes):
        begins[axis], ends[axis] = pads[k], pads[len(axes) + k]
    mode = n.text("mode")
    if mode == "constant":
        return m.pad_constant(n.b, x, begins, ends, bound(n, "value") if older else n.maybe(2))
    return m.pad(n.b, x, begins, ends, mode)


def _center_crop_pad(n: Operation) -> Value:
    """Each axis cut or padded to a size, in its middle."""
    x, sizes = n[0], n.b.known_integers(n[1])
    axes = [axis_of(a, x.rank) for a in n.ints("axes")] if n.has("axes") else list(range(x.rank))
    if len(sizes) != len(axes):
        raise Malformed(f"{len(sizes)} sizes for {len(axes)} axes")
    begins, ends = [0] * x.rank, [0] * x.rank
    for axis, size in zip(axes, sizes, strict=True):
        more = size - x.shape[axis]
        half = abs(more) // 2
        begins[axis] = half if more >= 0 else -half
        ends[axis] = more - begins[axis]
    return m.pad_constant(n.b, x, begins, ends, None)


def _trilu(n: Operation) -> Value:
    [diagonal] = n.known_ints(1) or [0]
    return m.trilu(n.b, n[0], diagonal, bool(n.whole("upper")))


def _block(n: Operation) -> tuple[int, bool]:
    return n.whole("blocksize"), n.text("mode", "DCR") == "DCR"


def _expand(n: Operation) -> Value:
    return m.expand(n.b, n[0], n.b.known_integers(n[1]))


def _tile(n: Operation) -> Value:
    return m.tile(n.b, n[0], n.b.known_integers(n[1]))


# -- resizing --------------------------------------------------------------------------------------


def _resize(n: Operation) -> Value:
    if n.version < 11:
        return _upsample(n)
    x = n[0]
    axes = [axis_of(a, x.rank) for a in n.ints("axes")] if n.has("axes") else list(range(x.rank))
    how = Resizing(
        mode=n.text("mode"),
        coordinates=n.text("coordinate_transformation_mode"),
        nearest=n.text("nearest_mode"),
        cubic=n.real("cubic_coeff_a"),
        exclude_outside=bool(n.whole("exclude_outside")),
        antialias=bool(n.whole("antialias", 0)),
        extrapolation=n.real("extrapolation_value"),
        region=_region(n, len(axes)),
    )
    given = n.known(2)
    if given is not None and given.size:
        scales = _finite(given)
        sizes = [int(x.shape[a] * s) for a, s in zip(axes, scales, strict=False)]
    else:
        wanted = n.known_ints(3)
        if not wanted or len(wanted) != len(axes):
            raise Malformed("Resize has neither scales nor sizes")
        scales, sizes = _scales(x.shape, axes, wanted, n.text("keep_aspect_ratio_policy", "stretch"))
    if len(scales) != len(axes):
        raise Malformed(f"{len(scales)} scales for {len(axes)} axes")
    return resize(n.b, x, axes, scales, sizes, how)


def _finite(given: Array) -> list[float]:
    scales = [float(scale) for scale in given.reshape(-1)]
    if not all(0 < scale < inf for scale in scales):
        raise Malformed(f"Resize by {scales[:8]}")
    return scales


def _region(n: Operation, axes: int) -> list[tuple[float, float]]:
    if n.text("coordinate_transformation_mode") != "tf_crop_and_resize":
        return []
    found = n.known(1)
    if found is None or found.size != 2 * axes:
        raise Malformed("Resize by tf_crop_and_resize needs a region for each axis")
    ends = [float(each) for each in found.reshape(-1)]
    return list(zip(ends[:axes], ends[axes:], strict=True))


def _scales(
    shape: Shape, axes: Sequence[int], wanted: Sequence[int], policy: str
) -> tuple[list[float], list[int]]:
    """Scales and sizes for sizes that are asked for; all of one scale unless the policy is to stretch."""
    if any(not shape[a] for a in axes):
        raise Malformed("Resize of an array without elements")
    scales = [size / shape[a] for a, size in zip(axes, wanted, strict=True)]
    if policy == "stretch":
        return scales, list(wanted)
    if policy not in ("not_larger", "not_smaller"):
        raise Malformed(f"keep_aspect_ratio_policy is {ascii(policy)[:40]}")
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [scale] * len(axes), [int(scale * shape[a] + 0.5) for a in axes]


def _upsample(n: Operation) -> Value:
    """Places along an axis are divided by its scale; the nearest is the one before. Smaller images by any
    scale have no such rule in the standard, and systems differ."""
    older = n.op == "Upsample" and n.version < 9
    scales = n.reals("scales") if older else _finite(n.b.known(n[1]))
    if len(scales) != n[0].rank:
        raise Malformed(f"{len(scales)} scales for {n[0].text}")
    if n.text("mode") == "nearest" and any(s < 1 and not float(1 / s).is_integer() for s in scales):
        raise Refused(Reason.CHOICE, f"{n.op} of version {n.version} by {min(scales):.3g}")
    how = Resizing(mode=n.text("mode"), coordinates="asymmetric", nearest="floor")
    sizes = [int(size * scale) for size, scale in zip(n[0].shape, scales, strict=True)]
    return resize(n.b, n[0], range(n[0].rank), scales, sizes, how)


RULES: Mapping[str, Rule] = {
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Concat": lambda n: m.concat(n.b, n.operands, n.whole("axis")),
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "CenterCropPad": _center_crop_pad,
    "Expand": _expand,
    "Tile": _tile,
    "Trilu": _trilu,
    "DepthToSpace": lambda n: m.depth_to_space(n.b, n[0], *_block(n)),
    "SpaceToDepth": lambda n: m.space_to_depth(n.b, n[0], *_block(n)),
    "Resize": _resize,
    "Upsample": _upsample,
}
