"""Products of matrices."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import contractions as c


def _gemm(n: Operation) -> Value:
    turned = bool(n.whole("transA")), bool(n.whole("transB"))
    return c.gemm(n.b, n[0], n[1], n.maybe(2), n.real("alpha"), n.real("beta"), turned)


RULES: Mapping[str, Rule] = {
    "MatMul": lambda n: c.matmul(n.b, n[0], n[1]),
    "Gemm": _gemm,
    "Einsum": lambda n: c.einsum(n.b, n.text("equation"), n.operands),
}
