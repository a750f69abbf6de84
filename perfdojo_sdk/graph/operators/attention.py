"""Attention as one kernel: scores, softmax and weighted values, everything between in one dtype."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.writer import Writer, computed_in, number

#: Rows of causal attention from which it is written in pieces, and the number of pieces: each has as many
#: columns as its last row sees, so that of the masked half of all scores only an eighth is computed.
PIECEWISE = 512
PIECES = 4


def attention(b: Builder, q: Value, k_: Value, v: Value, scale: float, causal: bool) -> Value:
    """softmax(scale * q k') v for each head; several heads of q may share one of k and v. ``causal``: row s
    sees the columns up to s."""
    dtype = same_dtype(q, k_, v)
    if q.rank != 4 or k_.rank != 4 or v.rank != 4 or q.shape[1] % max(k_.shape[1], 1):
        raise Malformed(f"attention of {q.text}, {k_.text} and {v.text}")
    batch, heads, rows, size = q.shape
    groups, columns, width = k_.shape[1], k_.shape[2], v.shape[3]
    if k_.shape != (batch, groups, columns, size) or v.shape[:3] != (batch, groups, columns):
        raise Malformed(f"attention of {q.text}, {k_.text} and {v.text}")
    each, kind = heads // max(groups, 1), computed_in(dtype)
    k = Writer(b, "attention")
    query, key, value = k.read(b.view(q, (batch, groups, each, rows, size))), k.read(k_), k.read(v)
    found = k.write((batch, groups, each, rows, width), dtype)
    at, row = ["{0}", "{1}", "{2}", "{3}", "{4}"], ["{0}", "{1}", "{2}", "{3}"]
    for first, count, seen in _pieces(rows, columns, causal):
        here = f"{{3}}+{first}" if first else "{3}"
        outer = (batch, groups, each, count)
        square = (*outer, seen)
        scores, masked, weights, parts = (k.local(square, kind) for _ in range(4))
        top, total = k.local(outer, kind), k.local(outer, kind)
        product = f"{query.load([*row[:3], here, '{5}'])} * {key.load(['{0}', '{1}', '{4}', '{5}'])}"
        k.nest(square, f"{scores(at)} = 0", ([size], f"{scores(at)} += {product}"))
        scaled = f"{scores(at)} * {number(scale, kind)}"
        k.nest(
            square, f"{masked(at)} = " + (f"select({{4}} <= {here}, {scaled}, -inf)" if causal else scaled)
        )
        k.nest(outer, f"{top(row)} = -inf", ([seen], f"{top(row)} max= {masked(at)}"))
        k.nest(square, f"{weights(at)} = exp({masked(at)} - {top(row)})")
        k.nest(outer, f"{total(row)} = 0", ([seen], f"{total(row)} += {weights(at)}"))
        k.nest(square, f"{parts(at)} = {weights(at)} / {total(row)}")
        sums = found if kind == dtype else k.local((*outer, width), kind)
        place = [*row[:3], here, "{4}"] if sums is found else at
        term = f"{parts([*row, '{5}'])} * {value.load(['{0}', '{1}', '{5}', '{4}'])}"
        k.nest((*outer, width), f"{sums(place)} = 0", ([seen], f"{sums(place)} += {term}"))
        if sums is not found:
            k.nest((*outer, width), f"{found([*row[:3], here, '{4}'])} = {found.store(sums(at))}")
    return b.view(k.done()[0], (batch, heads, rows, width))


def _pieces(rows: int, columns: int, causal: bool) -> Iterator[tuple[int, int, int]]:
    """The first row, the number of rows and the number of columns of each piece."""
    pieces = PIECES if causal and rows >= PIECEWISE and rows % PIECES == 0 and columns >= rows else 1
    share = rows // pieces
    for first in range(0, rows, share) if rows else ():
        seen = min(first + share, columns) if causal and pieces > 1 else columns
        yield first, share, seen
