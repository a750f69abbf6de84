"""Operators with much arithmetic for their data: products of matrices, convolutions, gated layers."""

from __future__ import annotations

from perfdojo_sdk.kernels.templates import operator

_MATRICES = {"m": "rows of a and c", "n": "columns of b and c", "k": "columns of a, rows of b"}

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
    _MATRICES,
    (768, 1024, 1024),
)

BMM = operator(
    """\
kernel bmm(a, b) -> c
a f32 [<batch>,<m>,<k>] heap
b f32 [<batch>,<k>,<n>] heap
c f32 [<batch>,<m>,<n>] heap

<batch> <m> <n>
| c[{0},{1},{2}] = 0
| <k> c[{0},{1},{2}] += a[{0},{1},{3}] * b[{0},{3},{2}]
""",
    "c = a b for each of a batch of matrices.",
    {"batch": "number of products", **_MATRICES},
    (192, 256, 256, 128),
)

CONV2D = operator(
    """\
kernel conv2d(x, f) -> y
x f32 [<n>,<c>,<h>,<w>] heap
f f32 [<o>,<c>,<r>,<r>] heap
y f32 [<n>,<o>,<h-r+1>,<w-r+1>] heap

<n> <o> <h-r+1> <w-r+1>
| y[{0},{1},{2},{3}] = 0
| <c> <r> <r> y[{0},{1},{2},{3}] += x[{0},{4},{2}+{5},{3}+{6}] * f[{1},{4},{5},{6}]
""",
    "y = x correlated with the filters f in two dimensions, stride 1, without padding.",
    {
        "n": "images",
        "c": "channels of an image",
        "h": "rows of an image",
        "w": "columns of an image",
        "o": "filters, channels of y",
        "r": "rows and columns of a filter",
    },
    conv1=(8, 3, 512, 512, 10, 5),
    conv2=(8, 64, 56, 56, 64, 3),
)

SWIGLU = operator(
    """\
kernel swiglu(x, v, w) -> y
x f32 [<m>,<k>] heap
v f32 [<k>,<n>] heap
w f32 [<k>,<n>] heap
p f32 [<m>,<n>] heap
q f32 [<m>,<n>] heap
y f32 [<m>,<n>] heap

<m> <n>
| p[{0},{1}] = 0
| <k> p[{0},{1}] += x[{0},{2}] * v[{2},{1}]
<m> <n>
| q[{0},{1}] = 0
| <k> q[{0},{1}] += x[{0},{2}] * w[{2},{1}]
<m> <n> y[{0},{1}] = p[{0},{1}] / (1 + exp(-p[{0},{1}])) * q[{0},{1}]
""",
    "y = silu(x v) * (x w), where silu(p) = p / (1 + exp(-p)).",
    {"m": "rows of x and y", "n": "columns of v, w and y", "k": "columns of x, rows of v and w"},
    (256, 448, 4096),
)

CONTRACTIONS = (MATMUL, BMM, CONV2D, SWIGLU)
