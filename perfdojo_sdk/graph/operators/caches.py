"""Attention over rows that are kept from call to call: caches, rotated positions, masks of many kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Writer, computed_in, converted, is_float, levels, number

Scored: TypeAlias = Callable[[Writer, str, str, str, str, str], str]
"""Makes the final text of a score from its plain text, the batch, the head, the row and the column."""


def scored_attention(
    b: Builder, q: Value, keys: Value, values: Value, scale: float, scored: Scored, sink: Value | None = None
) -> Value:
    """softmax(scored(scale * q k')) v for each head; several heads of q may share one of k and v. ``sink``: a
    score of each head that takes part in its sums and has no value."""
    dtype = same_dtype(q, keys, values)
    if q.rank != 4 or keys.rank != 4 or not keys.shape[1] or q.shape[1] % keys.shape[1]:
        raise Malformed(f"attention of {q.text} and {keys.text}")
    batch, heads, rows, size = q.shape
    groups, columns = keys.shape[1:3]
    if keys.shape != (batch, groups, columns, size) or values.shape[:3] != keys.shape[:3]:
        raise Malformed(f"attention of {q.text}, {keys.text} and {values.text}")
    each, kind, width = heads // groups, computed_in(dtype), values.shape[3]
    k = Writer(b, "scored_attention")
    query, key, value = k.read(q), k.read(keys), k.read(values)
    head = affine(("{1}", each), ("{2}", 1)) if each > 1 else "{1}"
    outer, row, at = (batch, groups, each, rows), levels(4), levels(5)
    full = (*outer, columns)
    products, scores, weights = (k.local(full, kind) for _ in range(3))
    term = f"{query.load(['{0}', head, '{3}', '{5}'])} * {key.load(['{0}', '{1}', '{4}', '{5}'])}"
    k.nest(full, f"{products(at)} = 0", ([size], f"{products(at)} += {term}"))
    plain = f"{products(at)} * {number(scale, kind)}"
    k.nest(full, f"{scores(at)} = {scored(k, plain, '{0}', head, '{3}', '{4}')}")
    top, total = k.local(outer, kind), k.local(outer, kind)
    extra = None if sink is None else k.read(sink).load([head])
    k.nest(outer, f"{top(row)} = {extra or '-inf'}", ([columns], f"{top(row)} max= {scores(at)}"))
    k.nest(full, f"{weights(at)} = exp({scores(at)} - {top(row)})")
    begin = f"exp({extra} - {top(row)})" if extra else "0"
    k.nest(outer, f"{total(row)} = {begin}", ([columns], f"{total(row)} += {weights(at)}"))
    y = k.write((batch, heads, rows, width), dtype)
    sums, place = k.local((*outer, width), kind), ["{0}", head, "{3}", "{4}"]
    part = f"{weights([*row, '{5}'])} * {value.load(['{0}', '{1}', '{5}', '{4}'])}"
    k.nest((*outer, width), f"{sums(at)} = 0", ([columns], f"{sums(at)} += {part}"))
    k.nest((*outer, width), f"{y(place)} = {y.store(f'{sums(at)} / {total(row)}')}")
    return k.done()[0]


def lengths_before(b: Builder, last: Value, rows: int) -> Value:
    """For each batch the rows that a cache held before ``rows`` came, of which ``last`` is the number of the
    last one."""
    k = Writer(b, "lengths_before")
    a, y = k.read(last), k.write((last.elements,), "i64")
    k.nest(y.shape, f"{y(['{0}'])} = max(i64({a(['{0}'])}) + 1 - {rows}, 0)")
    return k.done()[0]


def rotate(b: Builder, x: Value, cosines: Value, sines: Value, positions: Value, interleaved: bool) -> Value:
    """Pairs of elements of each row turned by the angles of its position: neighbours, or one of each half.
    ``x``: batch, head, row, element; ``positions``: by batch and row."""
    dtype = same_dtype(x, cosines, sines)
    if x.rank != 4 or cosines.rank != 2 or cosines.shape != sines.shape or 0 in cosines.shape:
        raise Malformed(f"angles {cosines.text} and {sines.text} for {x.text}")
    half = cosines.shape[1]
    if 2 * half > x.shape[3] or positions.shape != (x.shape[0], x.shape[2]):
        raise Malformed(f"angles {cosines.text} at {positions.text} for {x.text}")
    k = Writer(b, "rotate")
    a, c, s, p = k.read(x), k.read(cosines), k.read(sines), k.read(positions)
    y, names = k.write(x.shape, dtype), levels(4)
    k.nest(x.shape, f"{y(names)} = {a(names)}")
    row = f"clamp({p(['{0}', '{2}'])}, 0, {cosines.shape[0] - 1})"
    one = affine(("{3}", 2)) if interleaved else "{3}"
    other = affine(("{3}", 2), 1) if interleaved else affine(("{3}", 1), half)
    first, second = a.load([*names[:3], one]), a.load([*names[:3], other])
    cos, sin = c.load([row, "{3}"]), s.load([row, "{3}"])
    k.nest(
        (*x.shape[:3], half),
        f"{y([*names[:3], one])} = {y.store(f'{first} * {cos} - {second} * {sin}')}",
        f"{y([*names[:3], other])} = {y.store(f'{second} * {cos} + {first} * {sin}')}",
    )
    return k.done()[0]


def positions_from(b: Builder, starts: Value, rows: int) -> Value:
    """The positions of rows that follow ``starts`` others, by batch and row."""
    k = Writer(b, "positions")
    a, y = k.read(starts), k.write((starts.elements, rows), "i64")
    k.nest(y.shape, f"{y(['{0}', '{1}'])} = {a(['{0}'])} + {{1}}")
    return k.done()[0]


def unpacked(
    b: Builder,
    packed: Value,
    scales: Value,
    zeros: Value | None,
    size: tuple[int, int],
    bits: int,
    block: int,
) -> Value:
    """Columns of a matrix from blocks of numbers of 2, 4 or 8 bits, the lowest bits first: (number - zero) *
    scale of each block. ``size``: rows and columns of the result; ``packed``: column, block, byte; ``zeros``:
    packed as well, or numbers of the scales' dtype, by default the middle of the range."""
    rows, columns = size
    if bits not in (2, 4, 8) or block < 1 or block * bits % 8:
        raise Refused(Reason.CHOICE, f"numbers of {bits} bits in blocks of {block}")
    blocks, each = -(-rows // block), 8 // bits
    if packed.shape != (columns, blocks, block // each) or packed.dtype != "u8":
        raise Malformed(f"{columns} columns of {rows} numbers of {bits} bits in {packed.text}")
    if scales.elements != columns * blocks or not is_float(scales.dtype):
        raise Malformed(f"scales {scales.text} for {columns} columns of {blocks} blocks")
    k = Writer(b, "unpack_columns")
    a, s = k.read(packed), k.read(b.view(scales, (columns, blocks)))
    y, kind = k.write((rows, columns), scales.dtype), computed_in(scales.dtype)
    element = a(["{0}", "{1}", "{2}"])
    mask = 2**bits - 1
    digits = element if each == 1 else f"and(shr({element}, index({{3}}*{bits})), {mask})"
    zero = str(2 ** (bits - 1))
    if zeros is not None and is_float(zeros.dtype):
        if zeros.elements != columns * blocks:
            raise Malformed(f"zero points {zeros.text} for {columns} columns of {blocks} blocks")
        place = k.read(b.view(zeros, (columns, blocks)))
        zero = converted(place.load(["{0}", "{1}"]), computed_in(zeros.dtype), kind)
    elif zeros is not None:
        width = -(-blocks * bits // 8)
        if zeros.elements != columns * width or zeros.dtype != "u8":
            raise Malformed(f"zero points {zeros.text} for {columns} columns of {blocks} blocks")
        byte = k.read(b.view(zeros, (columns, width)))(["{0}", f"{{1}}//{each}"])
        zero = byte if each == 1 else f"and(shr({byte}, index({{1}}%{each}*{bits})), {mask})"
        zero = f"{kind}({zero})"
    text = f"({kind}({digits}) - {zero}) * {s.load(['{0}', '{1}'])}"
    place_of = affine(("{1}", block), ("{2}", each), ("{3}", 1))
    guard = f" if {place_of} < {rows}" if blocks * block > rows else ""
    k.nest((columns, blocks, block // each, each), f"{y([place_of, '{0}'])} = {y.store(text)}{guard}")
    return k.done()[0]
