"""Products with weights of few bits, in blocks that have a scale each."""

from __future__ import annotations

import numpy as np

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Value
from perfdojo_sdk.graph.operators.caches import unpacked
from perfdojo_sdk.graph.operators.contractions import matmul
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Writer, is_float, levels

#: Fewest rows for which numbers are unpacked before they are multiplied.
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

    A few rows read each number once or twice, so they unpack it where they multiply. For more rows, a target
    may unpack some columns at a time, and multiply them while they are near: all rows of ``x`` go with each
    column, which is why the loop over columns stands outside. Numbers that share a byte go with elements of
    ``x`` that lie apart, so these are laid out before: all that meet the lowest bits, then the next.
    """
    rows, columns = size
    if not x.rank or x.shape[-1] != rows:
        raise Malformed(f"{x.text} times a matrix of {rows} rows")
    each, block = 8 // bits if bits in (4, 8) else 0, max(block, 1)
    blocks = -(-rows // block)
    plain = each and x.elements and blocks * block == rows and block % each == 0
    floats = x.dtype == scales.dtype == "f32" and not (zeros is not None and is_float(zeros.dtype))
    fits = packed.shape == (columns, blocks, block // max(each, 1)) and scales.elements == columns * blocks
    known = zeros is None or zeros.elements == columns * -(-blocks * bits // 8)
    if not (plain and floats and fits and known and packed.dtype == "u8"):
        return matmul(b, x, unpacked(b, packed, scales, zeros, size, bits, block))
    form = _Blocks(b, b.view(x, (x.elements // rows, rows)), packed, scales, zeros, bits)
    y = form.few() if x.elements < LEAST_ROWS * rows else form.many()
    return b.view(y, (*x.shape[:-1], columns))


class _Blocks:
    """The program of one product."""

    def __init__(
        self, b: Builder, x: Value, packed: Value, scales: Value, zeros: Value | None, bits: int
    ) -> None:
        self.columns, self.blocks, self.width = packed.shape
        self.bits, self.each, self.count = bits, 8 // bits, x.shape[0]
        self.k = Writer(b, "product_of_blocks")
        self.x, self.packed = self.k.read(x), self.k.read(packed)
        self.scales = self.k.read(b.view(scales, (self.columns, self.blocks)))
        bytes_ = -(-self.blocks * bits // 8)
        self.zeros = None if zeros is None else self.k.read(b.view(zeros, (self.columns, bytes_)))

    def few(self) -> Value:
        """Each row unpacks for itself."""
        k, each = self.k, self.each
        shape = (each, self.count, self.blocks, self.width)
        apart = k.local(shape, "f32")
        source = affine(("{2}", self.width * each), ("{3}", each), ("{0}", 1))
        k.nest(shape, f"{apart(['{0}', '{1}', '{2}', '{3}'])} = {self.x(['{1}', source])}")
        elements = [apart([n, "{0}", "{2}", "{3}"]) for n in range(each)]
        numbers = [self._number("{1}", "{2}", "{3}", str(n * self.bits)) for n in range(each)]
        zero = self._zero("{1}", "{2}")
        if each > 1:  # one product with the zero point for all that share a byte
            together = k.local(shape[1:], "f32")
            parts = [apart([n, "{0}", "{1}", "{2}"]) for n in range(each)]
            k.nest(shape[1:], f"{together(['{0}', '{1}', '{2}'])} = {' + '.join(parts)}")
            products = " + ".join(f"{e} * {n}" for e, n in zip(elements, numbers, strict=True))
            value = f"{products} - {zero} * {together(['{0}', '{2}', '{3}'])}"
        else:
            value = f"{elements[0]} * ({numbers[0]} - {zero})"
        y, at = k.write((self.count, self.columns), "f32"), ["{0}", "{1}"]
        text = f"{y(at)} += {self.scales(['{1}', '{2}'])} * ({value})"
        k.nest(y.shape, f"{y(at)} = 0", ((self.blocks, self.width), text))
        return k.done()[0]

    def many(self) -> Value:
        """Columns are unpacked, and each then meets all rows."""
        k, each = self.k, self.each
        inner = (each, self.blocks, self.width)
        turned, numbers = k.local((*inner, self.count), "f32"), k.local((self.columns, *inner), "f32")
        source = affine(("{1}", self.width * each), ("{2}", each), ("{0}", 1))
        k.nest(turned.shape, f"{turned(levels(4))} = {self.x(['{3}', source])}")
        shift = f"index({{1}}*{self.bits})" if each > 1 else "0"
        number = f"({self._number('{0}', '{2}', '{3}', shift)} - {self._zero('{0}', '{2}')})"
        k.nest(numbers.shape, f"{numbers(levels(4))} = {number} * {self.scales(['{0}', '{2}'])}")
        y, at = k.write((self.count, self.columns), "f32"), ["{1}", "{0}"]
        factors = f"{turned(['{2}', '{3}', '{4}', '{1}'])} * {numbers(['{0}', '{2}', '{3}', '{4}'])}"
        k.nest((self.columns, self.count), f"{y(at)} = 0", (inner, f"{y(at)} += {factors}"))
        return k.done()[0]

    def _number(self, column: str, block: str, place: str, shift: str) -> str:
        """The text of a number; ``shift``: bits before it in its byte."""
        number = self.packed([column, block, place])
        if self.each > 1:
            moved = number if shift == "0" else f"shr({number}, {shift})"
            last = shift == str(8 - self.bits)  # no bits above
            number = moved if last else f"and({moved}, {2**self.bits - 1})"
        return f"f32({number})"

    def _zero(self, column: str, block: str) -> str:
        """The text of the zero point of a block."""
        if self.zeros is None:
            return str(2 ** (self.bits - 1))
        if self.each == 1:
            return f"f32({self.zeros([column, block])})"
        byte, shift = self.zeros([column, f"{block}//{self.each}"]), f"index({block}%{self.each}*{self.bits})"
        return f"f32(and(shr({byte}, {shift}), {2**self.bits - 1}))"


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
