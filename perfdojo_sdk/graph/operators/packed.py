"""Products with weights of few bits, in blocks that have a scale each."""

from __future__ import annotations

import numpy as np

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Value
from perfdojo_sdk.graph.operators.caches import unpacked
from perfdojo_sdk.graph.operators.contractions import matmul
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Writer, is_float

#: Fewest rows for which a matrix is unpacked before it is multiplied.
LEAST_ROWS = 4


def product_of_blocks(
    b: Builder,
    x: Value,
    packed: Value,
    scales: Value,
    zeros: Value | None,
    size: tuple[int, int],
    bits: int,
    block: int,
) -> Value:
    """``x`` times a matrix in blocks, for which see :func:`.caches.unpacked`.

    A few rows read each number once or twice, so that unpacking the whole matrix would move eight times its
    bytes: they unpack where they multiply. Numbers of one byte go with elements of ``x`` that lie apart, so
    these are laid out before, all that meet the lowest bits, then the next.
    """
    rows, columns = size
    if not x.rank or x.shape[-1] != rows:
        raise Malformed(f"{x.text} times a matrix of {rows} rows")
    blocks, each = -(-rows // max(block, 1)), 8 // bits if bits in (2, 4, 8) else 1
    few = 0 < x.elements < LEAST_ROWS * rows and x.dtype == scales.dtype == "f32"
    plain = bits in (4, 8) and block >= each and blocks * block == rows and block % each == 0
    fits = packed.shape == (columns, blocks, block // each) and scales.elements == columns * blocks
    known = zeros is None or zeros.elements == columns * -(-blocks * bits // 8)
    if not (few and plain and fits and known) or (zeros is not None and is_float(zeros.dtype)):
        return matmul(b, x, unpacked(b, packed, scales, zeros, size, bits, block))
    k, count, width = Writer(b, "product_of_blocks"), x.elements // rows, block // each
    vector, w, s = k.read(b.view(x, (count, rows))), k.read(packed), k.read(b.view(scales, (columns, blocks)))
    apart = k.local((each, count, blocks, width), "f32") if each > 1 else None
    if apart is not None:
        source = affine(("{2}", block), ("{3}", each), ("{0}", 1))
        k.nest(apart.shape, f"{apart(['{0}', '{1}', '{2}', '{3}'])} = {vector(['{1}', source])}")
    zero = str(2 ** (bits - 1))
    if zeros is not None:
        byte = k.read(b.view(zeros, (columns, -(-blocks * bits // 8))))(["{1}", affine_part("{2}", each)])
        mask, shift = 2**bits - 1, f"index({{2}}%{each}*{bits})"
        zero = f"f32({byte})" if each == 1 else f"f32(and(shr({byte}, {shift}), {mask}))"
    terms = []
    for n in range(each):
        number = w(["{1}", "{2}", "{3}"])
        if each > 1:
            number = f"and({number}, {2**bits - 1})" if n == 0 else f"shr({number}, {bits * n})"
        at = affine(("{2}", block), ("{3}", 1))
        element = apart([n, "{0}", "{2}", "{3}"]) if apart is not None else vector(["{0}", at])
        terms.append(f"{element} * (f32({number}) - {zero})")
    y = k.write((count, columns), "f32")
    text = f"{y(['{0}', '{1}'])} += {s(['{1}', '{2}'])} * ({' + '.join(terms)})"
    k.nest((count, columns), f"{y(['{0}', '{1}'])} = 0", ((blocks, width), text))
    return b.view(k.done()[0], (*x.shape[:-1], columns))


def affine_part(level: str, each: int) -> str:
    """The subscript of the byte that holds the zero point of a block."""
    return level if each == 1 else f"{level}//{each}"


def from_q4_0(data: Array, columns: int, rows: int) -> tuple[Array, Array]:
    """The numbers and scales of a matrix in the layout Q4_0, as :func:`product_of_blocks` and ONNX Runtime's
    ``MatMulNBits`` take them, with ``bits`` 4 and ``block_size`` 32.

    A block of Q4_0 is a scale in f16 and 16 bytes: byte j holds element j of the block in its low half, and
    element j + 16 in its high half. Here byte j holds the elements 2j and 2j + 1. In both, a number n stands
    for ``(n - 8) * scale``. ``data``: bytes, those of each of the ``columns`` outputs after the other.
    """
    blocks = rows // 32
    if rows % 32 or data.dtype != np.uint8 or data.size != columns * blocks * 18:
        raise Malformed(f"{data.size} bytes for {columns} columns of {rows} numbers in Q4_0")
    parts = np.ascontiguousarray(data).reshape(columns, blocks, 18)
    scales = np.ascontiguousarray(parts[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    numbers = np.concatenate([parts[..., 2:] & 15, parts[..., 2:] >> 4], axis=-1)
    return (numbers[..., ::2] | numbers[..., 1::2] << 4).astype(np.uint8), scales
