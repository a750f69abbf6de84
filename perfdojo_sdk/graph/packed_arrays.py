"""Packed arrays in NumPy: elements of less than a byte, several in each, the first in the lowest bits."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from perfdojo_sdk.core.dtypes import bits, carrier, in_a_byte, integer_bounds, packed_bytes
from perfdojo_sdk.hookspecs.types import ArraySpec, Elements

Array = np.ndarray[Any, Any]


def pack(values: Array, elements: Elements, rest: int = 0) -> Array:
    """The bytes of elements that lie in a byte each, of which the lowest bits count.

    Further dimensions in front stay. ``rest`` has the bits of the last byte that belong to no element.
    """
    before = values.shape[: values.ndim - len(elements.shape)]
    count, width, share = prod(elements.shape), bits(elements.dtype), in_a_byte(elements.dtype)
    size = packed_bytes(count, elements.dtype)
    flat = np.empty((*before, size * share), np.uint8)
    flat[..., :count] = values.reshape(*before, count).view(np.uint8)
    flat[..., count:] = [rest >> width * k for k in range(size * share - count)]
    flat &= (1 << width) - 1
    found = flat[..., ::share].copy()
    for k in range(1, share):
        found |= flat[..., k::share] << width * k
    return found


def unpack(packed: Array, elements: Elements) -> Array:
    """The elements in a byte each, as arrays that are not packed hold them; dimensions in front stay."""
    before, width = packed.shape[:-1], bits(elements.dtype)
    parts = [packed >> width * k & ((1 << width) - 1) for k in range(in_a_byte(elements.dtype))]
    flat = np.stack(parts, -1).reshape(*before, -1)[..., : prod(elements.shape)]
    found = flat.reshape((*before, *elements.shape))
    if carrier(elements.dtype) == "u8":
        return found
    sign = -integer_bounds(elements.dtype)[0]
    return (found.astype(np.int8) ^ sign) - np.int8(sign)


def as_passed(array: Array, spec: ArraySpec, rest: int = 0) -> Array:
    """An array of a program as a kernel takes it: packed, if its interface says so and it is not yet."""
    if spec.holds is None or (array.dtype == np.uint8 and array.shape == spec.shape):
        return array
    return pack(array, spec.holds, rest)
