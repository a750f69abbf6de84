"""The built-in operators: builders from sizes to the program that a person would write first.

Every builder gives the *initial* form: one nest per statement, nothing fused, nothing reused, in
the order of the formula. They are registered by the same hook as a vendor's operators. This module has
those that are bound by memory, ``contractions.py`` the others. The default sizes are those of the
paper's Table 3.
"""

from __future__ import annotations

from perfdojo_sdk.kernels.contractions import CONTRACTIONS
from perfdojo_sdk.kernels.templates import operator

#: Added to a variance or mean square before its square root.
EPSILON = "1e-05"

_MATRIX = {"rows": "number of rows", "cols": "elements of a row"}
_IMAGES = {"n": "images", "c": "channels", "h": "rows of an image", "w": "columns of an image"}

SOFTMAX = operator(
    """\
kernel softmax(x) -> y
x f32 [<rows>,<cols>] heap
m f32 [<rows>] heap
e f32 [<rows>,<cols>] heap
s f32 [<rows>] heap
y f32 [<rows>,<cols>] heap

<rows>
| m[{0}] = -inf
| <cols> m[{0}] max= x[{0},{1}]
<rows> <cols> e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
<rows>
| s[{0}] = 0
| <cols> s[{0}] += e[{0},{1}]
<rows> <cols> y[{0},{1}] = e[{0},{1}] / s[{0}]
""",
    "y = exp(x - max(x)) / sum(exp(x - max(x))) along each row.",
    _MATRIX,
    (24576, 512),
)

LAYERNORM = operator(
    f"""\
kernel layernorm(x, w, b) -> y
x f32 [<rows>,<cols>] heap
w f32 [<cols>] heap
b f32 [<cols>] heap
t f32 [<rows>] heap
u f32 [<rows>] heap
d f32 [<rows>,<cols>] heap
q f32 [<rows>] heap
r f32 [<rows>] heap
y f32 [<rows>,<cols>] heap

<rows>
| t[{{0}}] = 0
| <cols> t[{{0}}] += x[{{0}},{{1}}]
<rows> u[{{0}}] = t[{{0}}] / <cols>
<rows> <cols> d[{{0}},{{1}}] = x[{{0}},{{1}}] - u[{{0}}]
<rows>
| q[{{0}}] = 0
| <cols> q[{{0}}] += d[{{0}},{{1}}] * d[{{0}},{{1}}]
<rows> r[{{0}}] = sqrt(q[{{0}}] / <cols> + {EPSILON})
<rows> <cols> y[{{0}},{{1}}] = d[{{0}},{{1}}] / r[{{0}}] * w[{{1}}] + b[{{1}}]
""",
    "y = (x - mean) / sqrt(variance + 1e-5) * w + b, mean and variance along each row.",
    _MATRIX,
    layernorm1=(16384, 1024),
    layernorm2=(4096, 4096),
)

RMSNORM = operator(
    f"""\
kernel rmsnorm(x, w) -> y
x f32 [<rows>,<cols>] heap
w f32 [<cols>] heap
q f32 [<rows>] heap
r f32 [<rows>] heap
y f32 [<rows>,<cols>] heap

<rows>
| q[{{0}}] = 0
| <cols> q[{{0}}] += x[{{0}},{{1}}] * x[{{0}},{{1}}]
<rows> r[{{0}}] = sqrt(q[{{0}}] / <cols> + {EPSILON})
<rows> <cols> y[{{0}},{{1}}] = x[{{0}},{{1}}] / r[{{0}}] * w[{{1}}]
""",
    "y = x / sqrt(mean of squares + 1e-5) * w along each row.",
    _MATRIX,
    (3072, 4096),
)

ADD = operator(
    """\
kernel add(a, b) -> y
a f32 [<rows>,<cols>] heap
b f32 [<rows>,<cols>] heap
y f32 [<rows>,<cols>] heap

<rows> <cols> y[{0},{1}] = a[{0},{1}] + b[{0},{1}]
""",
    "y = a + b, element by element.",
    _MATRIX,
    (3072, 4096),
)

MUL = operator(
    """\
kernel mul(a, b) -> y
a f32 [<rows>,<cols>] heap
b f32 [<rows>,<cols>] heap
y f32 [<rows>,<cols>] heap

<rows> <cols> y[{0},{1}] = a[{0},{1}] * b[{0},{1}]
""",
    "y = a * b, element by element.",
    _MATRIX,
    (6, 14336),
)

RELU = operator(
    """\
kernel relu(x) -> y
x f32 [<rows>,<cols>] heap
y f32 [<rows>,<cols>] heap

<rows> <cols> y[{0},{1}] = max(x[{0},{1}], 0)
""",
    "y = max(x, 0), element by element; NaN stays NaN.",
    _MATRIX,
    (4096, 4096),
)

REDUCEMEAN = operator(
    """\
kernel reducemean(x) -> y
x f32 [<rows>,<cols>] heap
s f32 [<rows>] heap
y f32 [<rows>] heap

<rows>
| s[{0}] = 0
| <cols> s[{0}] += x[{0},{1}]
<rows> y[{0}] = s[{0}] / <cols>
""",
    "y = the mean of each row of x.",
    _MATRIX,
    (4096, 4096),
)

RELU_FFN = operator(
    """\
kernel relu_ffn(x, s, b) -> y
x f32 [<n>,<c>,<h>,<w>] heap
s f32 [<c>] heap
b f32 [<c>] heap
y f32 [<n>,<c>,<h>,<w>] heap

<n> <c> <h> <w> y[{0},{1},{2},{3}] = max(x[{0},{1},{2},{3}] * s[{1}] + b[{1}], 0)
""",
    "y = max(x * s + b, 0) with a scale and a shift for each channel; NaN stays NaN.",
    _IMAGES,
    (8, 64, 112, 112),
)

BATCHNORM = operator(
    f"""\
kernel batchnorm(x, w, b) -> y
x f32 [<n>,<c>,<h>,<w>] heap
w f32 [<c>] heap
b f32 [<c>] heap
t f32 [<c>] heap
u f32 [<c>] heap
d f32 [<n>,<c>,<h>,<w>] heap
q f32 [<c>] heap
r f32 [<c>] heap
y f32 [<n>,<c>,<h>,<w>] heap

<c>
| t[{{0}}] = 0
| <n> <h> <w> t[{{0}}] += x[{{1}},{{0}},{{2}},{{3}}]
<c> u[{{0}}] = t[{{0}}] / <n*h*w>
<n> <c> <h> <w> d[{{0}},{{1}},{{2}},{{3}}] = x[{{0}},{{1}},{{2}},{{3}}] - u[{{1}}]
<c>
| q[{{0}}] = 0
| <n> <h> <w> q[{{0}}] += d[{{1}},{{0}},{{2}},{{3}}] * d[{{1}},{{0}},{{2}},{{3}}]
<c> r[{{0}}] = sqrt(q[{{0}}] / <n*h*w> + {EPSILON})
<n> <c> <h> <w> y[{{0}},{{1}},{{2}},{{3}}] = d[{{0}},{{1}},{{2}},{{3}}] / r[{{1}}] * w[{{1}}] + b[{{1}}]
""",
    "y = (x - mean) / sqrt(variance + 1e-5) * w + b, mean and variance of each channel over the batch.",
    _IMAGES,
    batchnorm1=(8, 3, 2048, 2048),
    batchnorm2=(8, 64, 300, 300),
)

OPERATORS = (
    SOFTMAX,
    LAYERNORM,
    RMSNORM,
    BATCHNORM,
    ADD,
    MUL,
    RELU,
    RELU_FFN,
    REDUCEMEAN,
    *CONTRACTIONS,
)
