"""Programs that several tests share, as text: initial forms, and forms that moves lead to.

Sizes are small; the interfaces of an initial form and of its transformed forms agree.
"""

from __future__ import annotations

from perfdojo_sdk.core.dialect import CORE_LOCATIONS, CORE_SUFFIXES, Dialect, Location
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move

#: The core's language with a place for named cells and a copy-out window, as a target may add.
DIALECT = Dialect(
    CORE_SUFFIXES,
    {
        **CORE_LOCATIONS,
        "reg": Location("reg", "named cells", shared=False, constant_subscripts=True),
        "nt": Location("nt", "a window that is copied out", shared=False, copy_out_only=True),
    },
    lanes={"f32": 16, "f64": 8},
    nested_parallel=True,
)

SOFTMAX = """
kernel softmax(x) -> y
x f32 [8,16] heap
m f32 [8] heap
e f32 [8,16] heap
s f32 [8] heap
y f32 [8,16] heap

8
| m[{0}] = -inf
| 16 m[{0}] max= x[{0},{1}]
8 16 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
8
| s[{0}] = 0
| 16 s[{0}] += e[{0},{1}]
8 16 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""

#: Fused over the rows, locals contracted, rows on threads, columns in lanes, reductions horizontal.
SOFTMAX_FUSED = """
kernel softmax(x) -> y
x f32 [8,16] heap
m f32 [8:N] stack
e f32 [8:N,16] stack
s f32 [8:N] stack
y f32 [8,16] heap

8:p
| m[{0}] = -inf
| 2 8:v m[{0}] max= x[{0},{1}*8+{2}]
| 2 8:v e[{0},{1}*8+{2}] = exp(x[{0},{1}*8+{2}] - m[{0}])
| s[{0}] = 0
| 2 8:v s[{0}] += e[{0},{1}*8+{2}]
| 2 8:v y[{0},{1}*8+{2}] = e[{0},{1}*8+{2}] / s[{0}]
"""

#: As above, with partial sums and maxima in eight lanes, and one division a row (a declared law).
SOFTMAX_PARTIAL = """
kernel softmax(x) -> y
x f32 [8,16] heap
mp f32 [8:N,8] stack
m f32 [8:N] stack
e f32 [8:N,16] stack
sp f32 [8:N,8] stack
s f32 [8:N] stack
r f32 [8:N] stack
w f32 [8:N,2:N,8] nt
y f32 [8,16] heap

8:p
| 8:v mp[{0},{1}] = -inf
| 2 8:v mp[{0},{2}] max= x[{0},{1}*8+{2}]
| m[{0}] = -inf
| 8:v m[{0}] max= mp[{0},{1}]
| 2 8:v e[{0},{1}*8+{2}] = exp(x[{0},{1}*8+{2}] - m[{0}])
| 8:v sp[{0},{1}] = 0
| 2 8:v sp[{0},{2}] += e[{0},{1}*8+{2}]
| s[{0}] = 0
| 8:v s[{0}] += sp[{0},{1}]
| r[{0}] = 1 / s[{0}]
| 2
| | 8:v w[{0},{1},{2}] = e[{0},{1}*8+{2}] * r[{0}]
| | 8:v y[{0},{1}*8+{2}] = w[{0},{1},{2}]
"""

MATMUL = """
kernel matmul(a, b) -> c
a f32 [8,6] heap
b f32 [6,8] heap
c f32 [8,8] heap

8 8
| c[{0},{1}] = 0
| 6 c[{0},{1}] += a[{0},{2}] * b[{2},{1}]
"""

#: Four by eight tiles of c in named cells, b packed into panels, tiles on threads.
MATMUL_TILED = """
kernel matmul(a, b) -> c
a f32 [8,6] heap
b f32 [6,8] heap
bp f32 [1,6,8] heap
acc f32 [2:N,1:N,4,8] reg
c f32 [8,8] heap

1 6 8:v bp[{0},{1},{2}] = b[{1},{0}*8+{2}]
2:p 1
| 4:u 8:v acc[{0},{1},{2},{3}] = 0
| 6 4:u 8:v acc[{0},{1},{3},{4}] += a[{0}*4+{3},{2}] * bp[{1},{2},{4}]
| 4:u 8:v c[{0}*4+{2},{1}*8+{3}] = acc[{0},{1},{2},{3}]
"""

LAYER_NORM = """
kernel layernorm(x, g, b) -> y
x f32 [4,8] heap
g f32 [8] heap
b f32 [8] heap
mean f32 [4] heap
var f32 [4] heap
y f32 [4,8] heap

4
| mean[{0}] = 0
| 8 mean[{0}] += x[{0},{1}] / 8
4
| var[{0}] = 0
| 8 var[{0}] += (x[{0},{1}] - mean[{0}]) * (x[{0},{1}] - mean[{0}]) / 8
4 8 y[{0},{1}] = (x[{0},{1}] - mean[{0}]) / sqrt(var[{0}] + 1e-05) * g[{1}] + b[{1}]
"""

#: One buffer holds the mean and, afterwards, the variance: the arrays alias.
LAYER_NORM_FUSED = """
kernel layernorm(x, g, b) -> y
x f32 [4,8] heap
g f32 [8] heap
b f32 [8] heap
d f32 [4:N,8] stack
stat f32 [4:N] stack -> mean, var
y f32 [4,8] heap

4:p
| mean[{0}] = 0
| 8 mean[{0}] += x[{0},{1}] / 8
| 8:v d[{0},{1}] = x[{0},{1}] - mean[{0}]
| var[{0}] = 0
| 8:v var[{0}] += d[{0},{1}] * d[{0},{1}] / 8
| 8:v y[{0},{1}] = d[{0},{1}] / sqrt(var[{0}] + 1e-05) * g[{1}] + b[{1}]
"""

ADD = """
kernel add(a, b) -> y
a f32 [6,8] heap
b f32 [8] heap
y f32 [6,8] heap

6 8 y[{0},{1}] = a[{0},{1}] + b[{1}]
"""

RELU = """
kernel relu(x) -> y
x f32 [48] heap
y f32 [48] heap

48 y[{0}] = max(x[{0}], 0)
"""

#: A masked tail: 48 = 3 * 13 + 9.
RELU_TAIL = """
kernel relu(x) -> y
x f32 [48] heap
y f32 [48] heap

3:p 13:v y[{0}*13+{1}] = max(x[{0}*13+{1}], 0)
9:v y[{0}+39] = max(x[{0}+39], 0)
"""

TOTAL = """
kernel total(x) -> y
x f32 [32] heap
y f32 [1] heap

y[0] = 0
32 y[0] += x[{0}]
"""

TOTAL_PARTIAL = """
kernel total(x) -> y
x f32 [32] heap
q f32 [4] heap
y f32 [1] heap

4 q[{0}] = 0
4:p 8 q[{0}] += x[{1}*4+{0}]
y[0] = 0
4 y[0] += q[{0}]
"""

ROW_MAX = """
kernel rowmax(x) -> y
x f32 [4,9] heap
y f32 [4] heap

4
| y[{0}] = -inf
| 9 y[{0}] max= x[{0},{1}]
"""

#: Initial form, transformed form, the laws that lead from one to the other.
PAIRS: dict[str, tuple[str, str, frozenset[str]]] = {
    "softmax_fused": (SOFTMAX, SOFTMAX_FUSED, frozenset()),
    "softmax_partial": (SOFTMAX, SOFTMAX_PARTIAL, frozenset({"x/y = x*(1/y)"})),
    "matmul_tiled": (MATMUL, MATMUL_TILED, frozenset()),
    "layernorm_fused": (LAYER_NORM, LAYER_NORM_FUSED, frozenset()),
    "relu_tail": (RELU, RELU_TAIL, frozenset()),
    "total_partial": (TOTAL, TOTAL_PARTIAL, frozenset()),
}


def program(text: str) -> Program:
    """Parse in the tests' dialect."""
    return parse(text, DIALECT)


#: A game on SOFTMAX.
SOFTMAX_MOVES = [
    Move.of("join_scopes", "s0"),
    Move.of("join_scopes", "s0"),
    Move.of("join_scopes", "s0"),
    Move.of("reuse_dims", "m", dim=0),
    Move.of("reuse_dims", "e", dim=0),
    Move.of("reuse_dims", "s", dim=0),
    Move.of("stage_reciprocal", "s7", array="s"),
    Move.of("split_scope", "s7", factor=8),
    Move.of("annotate_scope", "s7.i", suffix="v"),
    Move.of("annotate_scope", "s0", suffix="p"),
]


def large(text: str, **sizes: int) -> Program:
    """A shared program with other sizes: ``large(SOFTMAX, _8=24576)`` replaces 8."""
    for old, new in sizes.items():
        text = text.replace(f"[{old[1:]}", f"[{new}").replace(f",{old[1:]}]", f",{new}]")
        text = text.replace(f"\n{old[1:]}", f"\n{new}").replace(f" {old[1:]} ", f" {new} ")
    return program(text)
