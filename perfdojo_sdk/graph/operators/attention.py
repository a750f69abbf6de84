"""Attention as one kernel: scores, softmax and weighted values, everything between in one dtype."""

from __future__ import annotations

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Writer, computed_in, number


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
    each, kind = heads // groups, computed_in(dtype)
    k = Writer(b, "attention")
    query, key, value = k.read(q), k.read(k_), k.read(v)
    head = affine(("{1}", each), ("{2}", 1)) if each > 1 else "{1}"
    outer, row = (batch, groups, each, rows), ["{0}", "{1}", "{2}", "{3}"]
    scores = k.local((*outer, columns), kind)
    at = [*row, "{4}"]
    product = f"{query.load(['{0}', head, '{3}', '{5}'])} * {key.load(['{0}', '{1}', '{4}', '{5}'])}"
    k.nest((*outer, columns), f"{scores(at)} = 0", ([size], f"{scores(at)} += {product}"))
    masked = k.local((*outer, columns), kind)
    scaled = f"{scores(at)} * {number(scale, kind)}"
    k.nest(
        (*outer, columns),
        f"{masked(at)} = " + (f"select({{4}} <= {{3}}, {scaled}, -inf)" if causal else scaled),
    )
    top, total = k.local(outer, kind), k.local(outer, kind)
    k.nest(outer, f"{top(row)} = -inf", ([columns], f"{top(row)} max= {masked(at)}"))
    weights = k.local((*outer, columns), kind)
    k.nest((*outer, columns), f"{weights(at)} = exp({masked(at)} - {top(row)})")
    k.nest(outer, f"{total(row)} = 0", ([columns], f"{total(row)} += {weights(at)}"))
    parts = k.local((*outer, columns), kind)
    k.nest((*outer, columns), f"{parts(at)} = {weights(at)} / {total(row)}")
    found = k.write((batch, heads, rows, width), dtype)
    place = ["{0}", head, "{3}", "{4}"]
    sums = found if kind == dtype else k.local((batch, heads, rows, width), kind)
    term = f"{parts([*row, '{5}'])} * {value.load(['{0}', '{1}', '{5}', '{4}'])}"
    k.nest((*outer, width), f"{sums(place)} = 0", ([columns], f"{sums(place)} += {term}"))
    if sums is not found:
        k.nest((*outer, width), f"{found(place)} = {found.store(sums(place))}")
    return k.done()[0]
