"""The built-in operators: from sizes to the program that a person would write first.

Every builder gives the *initial* form: one nest per statement, nothing fused, nothing reused, in
the order of the formula. All of them are registered by the hook that a vendor's are. The default
sizes are those of the paper's Table 3.
"""

from __future__ import annotations

from perfdojo_sdk.hookspecs.types import Operator, OperatorParameter

#: Added to a variance or mean square before its square root.
EPSILON = "1e-05"


def _operator(text: str, doc: str, sizes: dict[str, str], *defaults: tuple[int, ...]) -> Operator:
    """An operator whose text has a ``<size>`` for each of its parameters."""
    parameters = tuple(OperatorParameter(name, meaning) for name, meaning in sizes.items())
    name = text.split()[1].partition("(")[0]
    return Operator(name, doc, parameters, _Template(text, tuple(sizes)), defaults)


class _Template:
    """A builder that fills sizes into a text. A class, so that operators pickle."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.text, self.names = text, names

    def __call__(self, *sizes: int) -> str:
        text = self.text
        for name, size in zip(self.names, sizes, strict=True):
            text = text.replace(f"<{name}>", str(size))
        return text


_MATRIX = {"rows": "number of rows", "cols": "elements of a row"}

SOFTMAX = _operator(
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

MATMUL = _operator(
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

LAYERNORM = _operator(
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
    (16384, 1024),
    (4096, 4096),
)

RMSNORM = _operator(
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

ADD = _operator(
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

MUL = _operator(
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

RELU = _operator(
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

REDUCEMEAN = _operator(
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

OPERATORS = (SOFTMAX, MATMUL, LAYERNORM, RMSNORM, ADD, MUL, RELU, REDUCEMEAN)
