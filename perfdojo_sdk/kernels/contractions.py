"""Operators whose arithmetic outweighs their data: products of matrices and their kin."""

from __future__ import annotations

from perfdojo_sdk.kernels.templates import operator

MATMUL = operator(
    """\
kernel matmul(a, b) -> c
a f32 [<m>,<k>] heap
b f32 [<k>,<n>] heap
c f32 [<m>,<n>] heap

<m> <n>
| c[{0},{1}] = 0
| <k> c[{0},{1}] += a[{0},{2}] * b[{2},{1}]
""",
    "c = a b, the product of an m x k and a k x n matrix.",
    {"m": "rows of a and c", "n": "columns of b and c", "k": "columns of a, rows of b"},
    (768, 1024, 1024),
)

CONTRACTIONS = (MATMUL,)
