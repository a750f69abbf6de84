"""The micro-kernels of the Snitch literature, in f64 (``d...``), f32 (``s...``) and some in f16 (``h...``).

Names follow BLAS: ddot is the dot product of doubles. A maximum is written as a selection, as C programs
write it: where an input is NaN, the other operand wins, which is what the hardware's instruction does.
Shapes are those for which cycles are published: matrices of 4 x 4 and 20 x 20, products named rows x
inner x columns.
"""

from __future__ import annotations

from perfdojo_sdk.hookspecs.types import Operator
from perfdojo_sdk.kernels.templates import operator

#: Prefix -> dtype and its lowest number.
_PRECISIONS = {
    "d": ("f64", "-1.7976931348623157e308"),
    "s": ("f32", "-3.4028234663852886e38"),
    "h": ("f16", "-65504"),
}

_ELEMENTS = {"rows": "number of rows", "cols": "elements of a row"}
_WINDOWS = {"rows": "rows of the output", "cols": "columns of the output"}
_PRODUCT = {"m": "rows of a and c", "k": "columns of a, rows of b", "n": "columns of b and c"}
_SQUARES = ((4, 4), (20, 20))
_PACKED = (40, 40)

_SUM = """\
kernel <p>sum(a, b) -> y
a <t> [<rows>,<cols>] heap
b <t> [<rows>,<cols>] heap
y <t> [<rows>,<cols>] heap

<rows> <cols> y[{0},{1}] = a[{0},{1}] + b[{0},{1}]
"""
_FILL = """\
kernel <p>fill(v) -> y
v <t> [1] heap
y <t> [<rows>,<cols>] heap

<rows> <cols> y[{0},{1}] = v[0]
"""
_RELU = """\
kernel <p>relu(x) -> y
x <t> [<rows>,<cols>] heap
y <t> [<rows>,<cols>] heap

<rows> <cols> y[{0},{1}] = select(x[{0},{1}] > 0, x[{0},{1}], 0)
"""
_CONV = """\
kernel <p>conv3x3(x, f) -> y
x <t> [<rows+2>,<cols+2>] heap
f <t> [3,3] heap
y <t> [<rows>,<cols>] heap

<rows> <cols>
| y[{0},{1}] = 0
| 3 3 y[{0},{1}] += x[{0}+{2},{1}+{3}] * f[{2},{3}]
"""
_MAXPOOL = """\
kernel <p>maxpool(x) -> y
x <t> [<rows+2>,<cols+2>] heap
y <t> [<rows>,<cols>] heap

<rows> <cols>
| y[{0},{1}] = <lowest>
| 3 3 y[{0},{1}] = select(x[{0}+{2},{1}+{3}] > y[{0},{1}], x[{0}+{2},{1}+{3}], y[{0},{1}])
"""
_SUMPOOL = """\
kernel <p>sumpool(x) -> y
x <t> [<rows+2>,<cols+2>] heap
y <t> [<rows>,<cols>] heap

<rows> <cols>
| y[{0},{1}] = 0
| 3 3 y[{0},{1}] += x[{0}+{2},{1}+{3}]
"""
_MATMUL = """\
kernel <p>matmul(a, b) -> c
a <t> [<m>,<k>] heap
b <t> [<k>,<n>] heap
c <t> [<m>,<n>] heap

<m> <n>
| c[{0},{1}] = 0
| <k> c[{0},{1}] += a[{0},{2}] * b[{2},{1}]
"""
_MATMUL_TRANSB = """\
kernel <p>matmul_transb(a, b) -> c
a <t> [<m>,<k>] heap
b <t> [<n>,<k>] heap
c <t> [<m>,<n>] heap

<m> <n>
| c[{0},{1}] = 0
| <k> c[{0},{1}] += a[{0},{2}] * b[{1},{2}]
"""
_DOT = """\
kernel <p>dot(x, y) -> r
x <t> [<n>] heap
y <t> [<n>] heap
r <t> [1] heap

r[0] = 0
<n> r[0] += x[{0}] * y[{0}]
"""
_AXPY = """\
kernel <p>axpy(a, x, y) -> z
a <t> [1] heap
x <t> [<n>] heap
y <t> [<n>] heap
z <t> [<n>] heap

<n> z[{0}] = a[0] * x[{0}] + y[{0}]
"""
_DENSE = """\
kernel <p>dense(x, w, b) -> y
x <t> [<m>,<k>] heap
w <t> [<k>,<n>] heap
b <t> [<m>,<n>] heap
s <t> [<m>,<n>] heap
y <t> [<m>,<n>] heap

<m> <n>
| s[{0},{1}] = 0
| <k> s[{0},{1}] += x[{0},{2}] * w[{2},{1}]
<m> <n> s[{0},{1}] = s[{0},{1}] + b[{0},{1}]
<m> <n> y[{0},{1}] = select(s[{0},{1}] > 0, s[{0},{1}], 0)
"""

_SOFTMAX = """\
kernel <p>softmax(x) -> y
x <t> [<rows>,<cols>] heap
m <t> [<rows>] heap
e <t> [<rows>,<cols>] heap
s <t> [<rows>] heap
y <t> [<rows>,<cols>] heap

<rows>
| m[{0}] = <lowest>
| <cols> m[{0}] = select(x[{0},{1}] > m[{0}], x[{0},{1}], m[{0}])
<rows> <cols> e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
<rows>
| s[{0}] = 0
| <cols> s[{0}] += e[{0},{1}]
<rows> <cols> y[{0},{1}] = e[{0},{1}] / s[{0}]
"""
_LAYERNORM = """\
kernel <p>layernorm(x, w, b) -> y
x <t> [<rows>,<cols>] heap
w <t> [<cols>] heap
b <t> [<cols>] heap
t <t> [<rows>] heap
u <t> [<rows>] heap
d <t> [<rows>,<cols>] heap
q <t> [<rows>] heap
r <t> [<rows>] heap
y <t> [<rows>,<cols>] heap

<rows>
| t[{0}] = 0
| <cols> t[{0}] += x[{0},{1}]
<rows> u[{0}] = t[{0}] / <cols>
<rows> <cols> d[{0},{1}] = x[{0},{1}] - u[{0}]
<rows>
| q[{0}] = 0
| <cols> q[{0}] += d[{0},{1}] * d[{0},{1}]
<rows> r[{0}] = sqrt(q[{0}] / <cols> + 1e-05)
<rows> <cols> y[{0},{1}] = d[{0},{1}] / r[{0}] * w[{1}] + b[{1}]
"""
_GELU = """\
kernel <p>gelu(x) -> y
x <t> [<rows>,<cols>] heap
y <t> [<rows>,<cols>] heap

<rows> <cols> y[{0},{1}] = x[{0},{1}] * (1 / (1 + exp(x[{0},{1}] * -1.702)))
"""

#: Text, what it computes, its sizes, and the shapes in f64 and f32.
_KERNELS = (
    (_SUM, "y = a + b, element by element.", _ELEMENTS, _SQUARES, (*_SQUARES, _PACKED)),
    # One size: a library tells kernels of one name apart by the shapes of their inputs.
    (_FILL, "y = v in every element.", _ELEMENTS, _SQUARES[1:], _SQUARES[1:]),
    (_RELU, "y = x where x > 0, else 0.", _ELEMENTS, _SQUARES, (*_SQUARES, _PACKED)),
    (_CONV, "y = x correlated with a filter of 3 x 3.", _WINDOWS, _SQUARES, _SQUARES),
    (_MAXPOOL, "y = the largest number in each window of 3 x 3.", _WINDOWS, _SQUARES, _SQUARES),
    (_SUMPOOL, "y = the sum of each window of 3 x 3.", _WINDOWS, _SQUARES, _SQUARES),
    (
        _MATMUL,
        "c = a b.",
        _PRODUCT,
        ((4, 16, 8), (8, 8, 8), (1, 200, 5), (4, 32, 32), (4, 64, 64)),
        ((4, 16, 8), (4, 32, 32)),
    ),
    (_MATMUL_TRANSB, "c = a b with b transposed.", _PRODUCT, ((4, 16, 16),), ((4, 16, 16),)),
    (_DOT, "r = the sum of x y.", {"n": "elements"}, ((128,),), ((128,),)),
    (_AXPY, "z = a x + y.", {"n": "elements"}, ((64,),), ((64,),)),
    (_DENSE, "y = max(x w + b, 0).", _PRODUCT, ((8, 8, 8),), ((8, 8, 8),)),
    (_SOFTMAX, "y = exp(x) / sum(exp(x)) along each row.", _ELEMENTS, ((8, 32),), ((8, 32),)),
    (_LAYERNORM, "y = (x - mean) / sqrt(variance + 1e-5) w + b, by rows.", _ELEMENTS, ((8, 32),), ((8, 32),)),
    (_GELU, "y = x / (1 + exp(-1.702 x)).", _ELEMENTS, ((8, 32),), ((8, 32),)),
)


#: Text -> shapes in f16, for what works on whole words of four.
_HALVES = {
    _SUM: (*_SQUARES, _PACKED),
    _FILL: _SQUARES[1:],
    _RELU: (*_SQUARES, _PACKED),
    _MATMUL: ((4, 16, 8), (4, 32, 32)),
    _MATMUL_TRANSB: ((4, 16, 16), (4, 64, 16)),
    _DOT: ((128,),),
    _AXPY: ((64,),),
    _DENSE: ((8, 8, 8),),
}


def _operators() -> tuple[Operator, ...]:
    found = []
    for prefix, (dtype, lowest) in _PRECISIONS.items():
        for template, doc, sizes, doubles, singles in _KERNELS:
            shapes = {"f64": doubles, "f32": singles, "f16": _HALVES.get(template, ())}[dtype]
            if not shapes:
                continue
            text = template.replace("<p>", prefix).replace("<t>", dtype).replace("<lowest>", lowest)
            found.append(operator(text, doc, sizes, *shapes))
    return tuple(found)


OPERATORS = _operators()
