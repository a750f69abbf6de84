"""Products of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from perfdojo_sdk.frontends.onnx.operation import Expand, Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import contractions as c
from perfdojo_sdk.graph.operators.attention import attention
from perfdojo_sdk.graph.operators.determinants import det
from perfdojo_sdk.graph.operators.movement import transpose
from perfdojo_sdk.graph.refusals import Malformed


def _gemm(n: Operation) -> Value:
    turned = bool(n.whole("transA")), bool(n.whole("transB"))
    return c.gemm(n.b, n[0], n[1], n.maybe(2), n.real("alpha"), n.real("beta"), turned)


def _attention(n: Operation) -> Value:
    """The plain form with or without a causal mask; masks, caches and other outputs are expanded."""
    masked = any(n.maybe(k) is not None for k in range(3, 7)) or any(n.wants(k) for k in range(1, 4))
    windows = n.whole("left_window_size", -1) != -1 or n.whole("right_window_size", -1) != -1
    if masked or windows or n.real("softcap", 0.0) or n[0].rank not in (3, 4):
        raise Expand
    q, k, v = n[0], n[1], n[2]
    heads = n.whole("q_num_heads", 0), n.whole("kv_num_heads", 0)
    flat = q.rank == 3
    if flat:
        q, k, v = (_heads(n, x, count) for x, count in zip((q, k, v), (heads[0], heads[1], heads[1])))
    scale = n.real("scale") if n.has("scale") else 1 / sqrt(max(q.shape[-1], 1))
    y = attention(n.b, q, k, v, scale, bool(n.whole("is_causal")))
    if flat:
        y = transpose(n.b, y, (0, 2, 1, 3))
        y = n.b.view(y, (*y.shape[:2], y.shape[2] * y.shape[3]))
    return y


def _heads(n: Operation, x: Value, heads: int) -> Value:
    """Rows of several heads as an array for each head."""
    if heads < 1 or x.rank != 3 or x.shape[2] % heads:
        raise Malformed(f"{heads} heads in {x.text}")
    apart = n.b.view(x, (*x.shape[:2], heads, x.shape[2] // heads))
    return transpose(n.b, apart, (0, 2, 1, 3))


RULES: Mapping[str, Rule] = {
    "MatMul": lambda n: c.matmul(n.b, n[0], n[1]),
    "Gemm": _gemm,
    "Attention": _attention,
    "Det": lambda n: det(n.b, n[0]),
    "Einsum": lambda n: c.einsum(n.b, n.text("equation"), n.operands),
}
