"""Matrix products, linear layers, einsum, attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt

import numpy as np

from perfdojo_sdk.frontends.torch.call import Call, Row, in_single, literal, pointwise
from perfdojo_sdk.frontends.torch.rows.reductions import norm
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import contractions as rules
from perfdojo_sdk.graph.operators.attention import attention
from perfdojo_sdk.graph.operators.creation import fill
from perfdojo_sdk.graph.operators.determinants import det
from perfdojo_sdk.graph.operators.movement import expand
from perfdojo_sdk.graph.operators.normalisations import softmax
from perfdojo_sdk.graph.operators.reductions import reduce_sum
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.writer import is_float


def product(c: Call, x: Value, y: Value) -> Value:
    """The matrix product; of many rows with one matrix, a single product of matrices."""
    if x.dtype == "bool":
        raise Refused(Reason.DTYPE, "products of bool")
    if x.rank > 2 and y.rank == 2 and x.shape[-1] == y.shape[0]:
        flat = c.b.view(x, (rules.rows(x), x.shape[-1]))
        found = rules.gemm(c.b, flat, y, None, 1.0, 1.0, (False, False))
        return c.b.view(found, (*x.shape[:-1], y.shape[1]))
    return rules.matmul(c.b, x, y)


def _matmul(c: Call) -> Value:
    return product(c, c["self"], c["other"] if c.has("other") else c["mat2"])


def _linear(c: Call) -> Value:
    x, w = c["input"], c["weight"]
    if w.rank != 2:
        raise Refused(Reason.CHOICE, f"a linear layer with weights {w.text}")
    flat = c.b.view(x, (rules.rows(x), x.shape[-1]))
    found = rules.gemm(c.b, flat, w, c.maybe("bias"), 1.0, 1.0, (False, True))
    return c.b.view(found, (*x.shape[:-1], w.shape[0]))


def _addmm(c: Call) -> Value:
    alpha, beta = c.real("alpha", 1.0), c.real("beta", 1.0)
    if not alpha:
        return _plus(c, c["self"])
    shift = c["self"] if beta else None  # PyTorch does not look at what counts nothing
    return rules.gemm(c.b, c["mat1"], c["mat2"], shift, alpha, beta, (False, False))


def _plus(c: Call, made: Value) -> Value:
    """beta * self + alpha * made."""
    alpha, beta = c.real("alpha", 1.0), c.real("beta", 1.0)
    kind = "f32" if is_float(c.dtype) else c.dtype
    if not alpha and not beta:
        return fill(c.b, c.shape, np.array(0, numpy_dtype(c.dtype)))
    if not alpha or not beta:
        rest, factor = (c["self"], beta) if beta else (made, alpha)
        scaled = pointwise(c, "scaled", lambda a: f"{literal(factor, kind)} * {a}", rest)
        return expand(c.b, scaled, c.shape)
    one, other = (("" if f == 1.0 else f"{literal(f, kind)} * ") for f in (beta, alpha))
    return pointwise(c, "plus_product", lambda a, p: f"{one}{a} + {other}{p}", c["self"], made)


def _baddbmm(c: Call) -> Value:
    return _plus(c, product(c, c["batch1"], c["batch2"]))


def _addbmm(c: Call) -> Value:
    return _plus(c, reduce_sum(c.b, product(c, c["batch1"], c["batch2"]), (0,), False))


def _outer(c: Call) -> Value:
    x, y = c["self"], c["vec2"]
    return pointwise(
        c, "outer", lambda a, d: f"{a} * {d}", c.b.view(x, (x.elements, 1)), c.b.view(y, (1, y.elements))
    )


def _bilinear(c: Call) -> Value:
    one, other, w = c["input1"], c["input2"], c["weight"]
    first = rules.einsum(c.b, "nij,...i->...nj", [w, one])
    found = rules.einsum(c.b, "...nj,...j->...n", [first, other])
    bias = c.maybe("bias")
    return found if bias is None else pointwise(c, "plus", lambda a, d: f"{a} + {d}", found, bias)


def _einsum(c: Call) -> Value:
    values = c.values("tensors")
    equation = c.text("equation")
    if len(values) <= 2:
        return rules.einsum(c.b, equation, values)
    # Two at a time, from the left, as PyTorch does without a path.
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow or "." in equation:
        raise Refused(Reason.CHOICE, f"einsum {ascii(equation)[:60]} of {len(values)} tensors")
    terms = left.split(",")
    if len(terms) != len(values):
        raise Malformed(f"einsum {ascii(equation)[:60]} of {len(values)} tensors")
    while len(values) > 2:
        later = set("".join(terms[2:]) + right)
        kept = "".join(dict.fromkeys(letter for letter in terms[0] + terms[1] if letter in later))
        values = [rules.einsum(c.b, f"{terms[0]},{terms[1]}->{kept}", values[:2]), *values[2:]]
        terms = [kept, *terms[2:]]
    return rules.einsum(c.b, f"{terms[0]},{terms[1]}->{right}", values)


def _attention(c: Call) -> Value:
    """Scaled dot-product attention: whole without a mask, in parts with one."""
    q, k, v, mask = c["query"], c["key"], c["value"], c.maybe("attn_mask")
    if c.real("dropout_p", 0.0) > 0:
        raise Refused(Reason.RANDOM, "attention with dropout")
    if q.rank < 3 or not q.rank == k.rank == v.rank:
        raise Refused(Reason.CHOICE, f"attention of {q.text}, {k.text} and {v.text}")
    scale = c.real("scale", 1 / sqrt(max(q.shape[-1], 1)))
    causal = c.flag("is_causal")
    if mask is None and all(x.shape[:-3] == q.shape[:-3] for x in (k, v)):
        q4, k4, v4 = (_four(c, x) for x in (q, k, v))
        if q4.shape[1] == k4.shape[1] or c.flag("enable_gqa"):
            found = attention(c.b, q4, k4, v4, scale, causal)
            return c.b.view(found, c.shape)
    if causal or c.flag("enable_gqa") or mask is None:
        raise Refused(Reason.CHOICE, f"attention of {q.text}, {k.text} and {v.text} with such options")
    letters = "".join(chr(ord("a") + n) for n in range(q.rank - 2))
    scores = rules.einsum(c.b, f"{letters}mx,{letters}nx->{letters}mn", [q, k])
    kind = replace(c.results[0], shape=scores.shape).dtype
    factor = literal(scale, "f32")
    if mask.dtype == "bool":
        formula = lambda s, m: f"select({m} != 0, {s} * {factor}, -inf)"  # noqa: E731
    else:
        formula = lambda s, m: f"{s} * {factor} + {m}"  # noqa: E731
    masked = pointwise(c, "masked_scores", formula, scores, mask, dtype=kind)
    weights = softmax(c.b, masked, -1, False, masked=True)
    return rules.einsum(c.b, f"{letters}mn,{letters}nx->{letters}mx", [weights, v])


def _four(c: Call, x: Value) -> Value:
    """[batch, heads, rows, size] of any number of outer dimensions."""
    if x.rank == 3:
        return c.b.view(x, (x.shape[0], 1, *x.shape[1:]))
    outer = 1
    for size in x.shape[:-3]:
        outer *= size
    return c.b.view(x, (outer, *x.shape[-3:]))


def _pairwise(c: Call) -> Value:
    """Distances of all pairs of rows; 0 where these have no elements."""
    x, y, p = c["x1"], c["x2"], c.real("p", 2.0)
    if x.rank < 2 or y.rank != x.rank or x.shape[:-2] != y.shape[:-2]:
        raise Refused(Reason.CHOICE, f"cdist of {x.text} and {y.text} with p = {p}")
    one = c.b.view(x, (*x.shape[:-1], 1, x.shape[-1]))
    other = c.b.view(y, (*y.shape[:-2], 1, *y.shape[-2:]))
    if p not in (1.0, 2.0) and x.shape[-1]:
        gap = pointwise(c, "difference", lambda a, d: f"{a} - {d}", one, other)
        over = (gap.rank - 1,)
        if p == 0:  # of NaN NaN, where a norm counts it as a number
            counted = pointwise(
                c, "counted", lambda a: f"select({a} != {a}, {a}, select({a} != 0, 1, 0))", gap
            )
            return reduce_sum(c.b, counted, over, False)
        if p == float("inf"):  # PyTorch passes over NaN
            gap = pointwise(c, "numbers", lambda a: f"select({a} != {a}, 0, {a})", gap)
        return norm(c, gap, p, over, False)
    text = "abs({a} - {d})" if p == 1.0 else "({a} - {d}) * ({a} - {d})"
    terms = pointwise(c, "distance_terms", lambda a, d: text.replace("{a}", a).replace("{d}", d), one, other)
    total = reduce_sum(c.b, terms, (terms.rank - 1,), False)
    return total if p == 1.0 or not x.shape[-1] else pointwise(c, "sqrt", lambda a: f"sqrt({a})", total)


ROWS: Mapping[str, Row] = {
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": _matmul,
    "linear": _linear,
    "addmm": _addmm,
    "baddbmm": in_single(_baddbmm),
    "addbmm": in_single(_addbmm),
    "addmv": in_single(lambda c: _plus(c, product(c, c["mat"], c["vec"]))),
    "mv": lambda c: product(c, c["self"], c["vec"]),
    "dot": lambda c: product(c, c["self"], c["tensor"]),
    "inner": lambda c: (
        rules.einsum(c.b, "...k,...k->...", [c["self"], c["other"]])
        if c["other"].rank == 1
        else _refuse_inner(c)
    ),
    "outer": _outer,
    "ger": _outer,
    "bilinear": _bilinear,
    "einsum": _einsum,
    "scaled_dot_product_attention": in_single(_attention, lambda c: c.has("attn_mask")),
    "cdist": in_single(_pairwise),
    "linalg_det": lambda c: det(c.b, c["A"]),
    "det": lambda c: det(c.b, c["self"]),
}


def _refuse_inner(c: Call) -> Value:
    raise Refused(Reason.CHOICE, f"inner of {c['self'].text} and {c['other'].text}")
