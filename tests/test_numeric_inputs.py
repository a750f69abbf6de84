"""The inputs of leg 2 show what a generator may get wrong: faults planted in right C are refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pytest

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, KernelSource
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify.characters import ALIKE, CHARACTERS, SCALINGS, spread
from perfdojo_sdk.verify.groups import Groups, kept_dimensions
from perfdojo_sdk.verify.inputs import FLOAT_CLASSES, PASSING, classes, draw, draw_sets, drawings
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.zeros import signed_outputs, undivided

RUNNER = NativeRunner(("-O2",), forks=True)
HELPERS = """
static float big(float a, float b) { return a != a || b != b ? NAN : a > b ? a : b; }
static float bits(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static unsigned size(float f) { unsigned u; memcpy(&u, &f, 4); return u & 0x7fffffff; }
static int power(float f) { return !(size(f) & 0x7fffff) && size(f) > 0x41000000 && size(f) < 0x7f800000; }
static int below(float f) { return (size(f) & 0x7fffff) == 0x7fffff && size(f) < 0x7f800000; }
"""


def _matrix(rows: int, cols: int, body: str, more: str = "", inputs: str = "x") -> str:
    arrays = "".join(f"{name} f32 [{rows},{cols}] heap\n" for name in (*inputs.split(", "), "y"))
    return f"kernel k({inputs}) -> y\n{arrays}{more}\n{body}\n"


RELU = _matrix(40, 100, "40 100 y[{0},{1}] = max(x[{0},{1}], 0)")
RELU_C = "for (int k = 0; k < 4000; k++) { float v = x[k]; y[k] = big(v, 0); }"
ADD = _matrix(40, 100, "40 100 y[{0},{1}] = a[{0},{1}] + b[{0},{1}]", inputs="a, b")
ADD_C = "for (int k = 0; k < 4000; k++) { float v = a[k] + b[k]; y[k] = v; }"
MUL, MUL_C = ADD.replace(" + ", " * "), ADD_C.replace(" + ", " * ")
ROOT = _matrix(
    4,
    160,
    "4 160 y[{0},{1}] = (x[{0},{1}] - m[{1}]) / sqrt(v[{1}] + 1e-05)",
    "m f32 [160] heap\nv f32 [160] heap\n",
).replace("k(x)", "k(x, m, v)")
ROOT_C = "for (int k = 0; k < 640; k++) y[k] = (x[k] - m[k % 160]) / sqrtf(v[k % 160] + 1e-5f);"
LOG = _matrix(40, 100, "40 100 y[{0},{1}] = log(x[{0},{1}])")
LOG_C = "for (int k = 0; k < 4000; k++) { float v = x[k]; y[k] = logf(v); }"


def rmsnorm(rows: int, cols: int) -> str:
    return f"""kernel k(x) -> y
x f32 [{rows},{cols}] heap
q f32 [{rows}] heap
r f32 [{rows}] heap
y f32 [{rows},{cols}] heap

{rows}
| q[{{0}}] = 0
| {cols} q[{{0}}] += x[{{0}},{{1}}] * x[{{0}},{{1}}]
{rows} r[{{0}}] = sqrt(q[{{0}}] / {cols} + 1e-05)
{rows} {cols} y[{{0}},{{1}}] = x[{{0}},{{1}}] / r[{{0}}]
"""


RMSNORM_C = """
for (int i = 0; i < ROWS; i++) {
    float q = 0;
    for (int k = 0; k < COLS; k++) q += x[i*COLS + k] * x[i*COLS + k];
    float r = sqrtf(q / COLS + 1e-5f);
    for (int k = 0; k < COLS; k++) y[i*COLS + k] = x[i*COLS + k] / r;
}"""
SOFTMAX = """kernel k(x) -> y
x f32 [40,100] heap
m f32 [40] heap
e f32 [40,100] heap
s f32 [40] heap
y f32 [40,100] heap

40
| m[{0}] = -inf
| 100 m[{0}] max= x[{0},{1}]
40 100 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
40
| s[{0}] = 0
| 100 s[{0}] += e[{0},{1}]
40 100 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""
SOFTMAX_C = """
for (int i = 0; i < 40; i++) {
    float m = -INFINITY, s = 0;
    for (int k = 0; k < 100; k++) m = big(m, x[i*100 + k]);
    for (int k = 0; k < 100; k++) s += y[i*100 + k] = expf(x[i*100 + k] - m);
    for (int k = 0; k < 100; k++) y[i*100 + k] /= s;
}"""
MAXIMUM = (
    "kernel k(x) -> y\nx f32 [40,1000] heap\ny f32 [40] heap\n\n"
    "40\n| y[{0}] = -inf\n| 1000 y[{0}] max= x[{0},{1}]\n"
)
MAXIMUM_C = """
for (int i = 0; i < 40; i++) {
    float m = -INFINITY;
    for (int k = 0; k < 1000; k++) m = big(m, x[i*1000 + k]);
    y[i] = m;
}"""
#: The reduced dimension is not the last one.
DOWN = MAXIMUM.replace("[40,1000]", "[1000,40]").replace("x[{0},{1}]", "x[{1},{0}]")
DOWN_C = MAXIMUM_C.replace("x[i*1000 + k]", "x[k*40 + i]")
#: Everything is one group.
ALL = "kernel k(x) -> y\nx f32 [5000] heap\ny f32 [1] heap\n\n1\n| y[{0}] = -inf\n| 5000 y[{0}] max= x[{1}]\n"
ALL_C = "float m = -INFINITY; for (int k = 0; k < 5000; k++) m = big(m, x[k]); y[0] = m;"
#: The last columns of a product of matrices: the sum runs down the second operand.
MATMUL = """kernel k(a, b) -> y
a f32 [24,300] heap
b f32 [300,40] heap
y f32 [24,40] heap

24 40
| y[{0},{1}] = 0
| 300 y[{0},{1}] += a[{0},{2}] * b[{2},{1}]
"""
MATMUL_C = """
for (int i = 0; i < 24; i++) for (int j = 0; j < 40; j++) {
    float s = 0;
    for (int k = 0; k < 300; k++) s += a[i*300 + k] * b[k*40 + j];
    y[i*40 + j] = s;
}"""


WEIGHTED = (rmsnorm(5, 77).replace("k(x)", "k(x, w)").replace("q f32", "w f32 [77] heap\nq f32")).replace(
    "/ r[{0}]", "/ r[{0}] * w[{1}]"
)
WEIGHTED_C = (
    RMSNORM_C.replace("ROWS", "5")
    .replace("COLS", "77")
    .replace("y[i*77 + k] = x[i*77 + k] / r;", "{ float v = x[i*77 + k] / r * w[k]; y[i*77 + k] = v; }")
)
MEAN = """kernel k(x) -> y
x f32 [6,143] heap
s f32 [6] heap
y f32 [6] heap

6
| s[{0}] = 0
| 143 s[{0}] += x[{0},{1}]
6 y[{0}] = s[{0}] / 143
"""
MEAN_C = """
for (int i = 0; i < 6; i++) {
    float s = 0;
    for (int k = 0; k < 143; k++) s += x[i*143 + k];
    float v = s / 143;
    y[i] = v;
}"""


def sized(code: str, rows: int, cols: int) -> str:
    return code.replace("ROWS", str(rows)).replace("COLS", str(cols))


@lru_cache
def program(text: str) -> Program:
    return parse(text)


def look(text: str, body: str, seed: int = 0) -> NumericReport:
    """Leg 2's opinion of a kernel whose body is ``body``."""
    root = program(text)

    def specs(names: tuple[str, ...]) -> tuple[ArraySpec, ...]:
        return tuple(ArraySpec(n, root.buffer_of[n].shape, root.buffer_of[n].dtype) for n in names)

    types = {"f32": "float", "i32": "int"}
    kinds = {n: types[root.buffer_of[n].dtype] for n in (*root.inputs, *root.outputs)}
    arrays = [f"const {kinds[n]} *{n}" for n in root.inputs] + [f"{kinds[n]} *{n}" for n in root.outputs]
    code = f"""#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
{HELPERS}
int pd_k({", ".join(arrays)}, void *workspace, size_t bytes, int threads) {{ {body} return 0; }}
size_t pd_k_workspace_bytes(int threads) {{ return 0; }}
"""
    artifact = RUNNER.compile(KernelSource("pd_k", specs(root.inputs), specs(root.outputs), code))
    assert isinstance(artifact, Artifact), artifact
    accuracy = {"exp": 2.0, "log": 2.0}
    return verify_numeric(
        root, root, artifact, RUNNER, accuracy, CORE_DIALECT, seed, threads=(1,), forks=True
    )


SMALL_RELU = _matrix(7, 60, "7 60 y[{0},{1}] = max(x[{0},{1}], 0)")
SMALL_ADD = _matrix(7, 60, "7 60 y[{0},{1}] = a[{0},{1}] + b[{0},{1}]", inputs="a, b")
SCALED = """kernel k(x, w) -> y
x f32 [2,3,7,9] heap
w f32 [3] heap
y f32 [2,3,7,9] heap

2 3 7 9 y[{0},{1},{2},{3}] = x[{0},{1},{2},{3}] * w[{1}]
"""
SCALED_C = "for (int k = 0; k < 378; k++) { float v = x[k] * w[k / 63 % 3]; y[k] = v; }"
SHIFTED = """kernel k(x, w, b) -> y
x f32 [2,2,3,40] heap
w f32 [2] heap
b f32 [2] heap
y f32 [2,2,3,40] heap

2 2 3 40 y[{0},{1},{2},{3}] = x[{0},{1},{2},{3}] * w[{1}] + b[{1}]
"""
SHIFTED_C = """
for (int k = 0; k < 480; k++) { int c = k / 120 % 2; float v = x[k] * w[c] + b[c]; y[k] = v; }"""
#: Two taps of a filter.
TAPS = """kernel k(x, f) -> y
x f32 [1,41] heap
f f32 [2] heap
y f32 [1,40] heap

1 40 y[{0},{1}] = x[{0},{1}] * f[0] + x[{0},{1}+1] * f[1]
"""
TAPS_C = "for (int k = 0; k < 40; k++) { float v = x[k+1]; y[k] = x[k] * f[0] + v * f[1]; }"
GATE = """kernel k(x, w) -> y
x f32 [6,8] heap
w f32 [8,16] heap
p f32 [6,16] heap
y f32 [6,16] heap

6 16
| p[{0},{1}] = 0
| 8 p[{0},{1}] += x[{0},{2}] * w[{2},{1}]
6 16 y[{0},{1}] = p[{0},{1}] / (1 + exp(-p[{0},{1}]))
"""
GATE_C = """
for (int i = 0; i < 6; i++) for (int j = 0; j < 16; j++) {
    float p = 0;
    for (int k = 0; k < 8; k++) p += x[i*8 + k] * w[k*16 + j];
    y[i*16 + j] = p / (1 + expf(-p));
}"""
INTEGERS = """kernel k(x) -> y
x i32 [5,64] heap
y i32 [5] heap

5
| y[{0}] = -2147483648
| 64 y[{0}] max= x[{0},{1}]
"""
INTEGERS_C = """
for (int i = 0; i < 5; i++) {
    int m = INT_MIN;
    for (int k = 0; k < 64; k++) if (x[i*64 + k] > m) m = x[i*64 + k];
    y[i] = m;
}"""
WHOLE = "kernel k(x) -> y\nx i32 [5,64] heap\ny i32 [5,64] heap\n\n5 64 y[{0},{1}] = x[{0},{1}] * 3 - 7\n"
WHOLE_C = "for (int k = 0; k < 320; k++) { int v = x[k]; y[k] = (int)(3u * v - 7u); }"
COPY = _matrix(9, 33, "9 33 y[{1},{0}] = x[{0},{1}]").replace("y f32 [9,33]", "y f32 [33,9]")
COPY_C = "for (int i = 0; i < 9; i++) for (int k = 0; k < 33; k++) { float v = x[i*33 + k]; y[k*9 + i] = v; }"
NEGATIVE, NEGATIVE_C = (
    SMALL_RELU.replace("max(x[{0},{1}], 0)", "-x[{0},{1}]"),
    ("for (int k = 0; k < 420; k++) { float v = x[k]; y[k] = -v; }"),
)
RIGHT: Mapping[str, tuple[str, str]] = {
    "relu": (RELU, RELU_C),
    "add": (ADD, ADD_C),
    "small relu": (SMALL_RELU, RELU_C.replace("4000", "420")),
    "small add": (SMALL_ADD, ADD_C.replace("4000", "420")),
    "small softmax": tuple(t.replace("40", "9").replace("100", "33") for t in (SOFTMAX, SOFTMAX_C)),
    "channels": (SCALED, SCALED_C),
    "shifted channels": (SHIFTED, SHIFTED_C),
    "taps": (TAPS, TAPS_C),
    "gate": (GATE, GATE_C),
    "integers": (INTEGERS, INTEGERS_C),
    "whole": (WHOLE, WHOLE_C),
    "copy": (COPY, COPY_C),
    "negative": (NEGATIVE, NEGATIVE_C),
    "relu of another zero": (
        SMALL_RELU,
        "for (int k = 0; k < 420; k++) y[k] = x[k] == 0 ? x[k] : big(x[k], 0);",
    ),
    "mul": (MUL, MUL_C),
    "root": (ROOT, ROOT_C),
    "log": (LOG, LOG_C),
    "rmsnorm": (rmsnorm(8, 100), sized(RMSNORM_C, 8, 100)),
    "weighted rmsnorm": (WEIGHTED, WEIGHTED_C),
    "mean": (MEAN, MEAN_C),
    "rmsnorm of long rows": (rmsnorm(2, 65536), sized(RMSNORM_C, 2, 65536)),
    "softmax": (SOFTMAX, SOFTMAX_C),
    "maximum": (MAXIMUM, MAXIMUM_C),
    "maximum of columns": (DOWN, DOWN_C),
    "maximum of all": (ALL, ALL_C),
    "matmul": (MATMUL, MATMUL_C),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", [0, 1])
def test_right_kernels_pass(name: str, seed: int) -> None:
    report = look(*RIGHT[name], seed)
    assert report.ok, report.problem
    assert set(FLOAT_CLASSES) <= set(report.checked)


#: Kernel, what is replaced, by what.
FAULTS: Mapping[str, tuple[str, str, str]] = {
    "large numbers are lost": ("relu", "big(v, 0)", "v > 4999 ? 0 : big(v, 0)"),
    "only numbers around 5000 are lost": ("relu", "big(v, 0)", "v > 4000 && v < 6000 ? 0 : big(v, 0)"),
    "signs flip between 1e3 and 1e15": (
        "add",
        "y[k] = v",
        "y[k] = fabsf(v) > 1e3f && fabsf(v) < 1e15f ? -v : v",
    ),
    "infinite from 1e37 on": ("add", "y[k] = v", "y[k] = v > 1e37f ? INFINITY : v < -1e37f ? -INFINITY : v"),
    "largest instead of infinite": (
        "mul",
        "y[k] = v",
        "y[k] = isinf(v) && isfinite(a[k]) ? copysignf(3e38f, v) : v",
    ),
    "denormal results are flushed": ("mul", "y[k] = v", "y[k] = fabsf(v) < 0x1p-126f ? 0 : v"),
    "denormal operands are flushed": ("add", "a[k] + b[k]", "(fabsf(a[k]) < 0x1p-126f ? 0 : a[k]) + b[k]"),
    "sums are the largest number instead of infinite": (
        "small add",
        "y[k] = v",
        "y[k] = isinf(v) && isfinite(a[k]) && isfinite(b[k]) ? copysignf(3e38f, v) : v",
    ),
    "infinities of two signs are zero": (
        "small add",
        "y[k] = v",
        "y[k] = isinf(a[k]) && a[k] == -b[k] ? 0 : v",
    ),
    "infinity is lost before the end of a row": (
        "small relu",
        "big(v, 0)",
        "isinf(v) && k % 60 < 16 ? 3e38f : big(v, 0)",
    ),
    "a channel whose weight is zero": ("channels", "y[k] = v", "y[k] = w[k / 63 % 3] == 0 ? 1 : v"),
    "rows masked as a whole give 0": (
        "small softmax",
        "y[i*33 + k] /= s",
        "y[i*33 + k] = m == -INFINITY ? 0 : y[i*33 + k] / s",
    ),
    "a maximum of integers starts at 0": ("integers", "INT_MIN", "0"),
    "a maximum of integers starts at -1e9": ("integers", "INT_MIN", "-1000000000"),
    "infinities are lost": ("add", "y[k] = v", "y[k] = isinf(v) ? 0 : v"),
    "an epsilon is dropped from a root": ("root", " + 1e-5f", ""),
    "an epsilon of a root is a tenth": ("root", "1e-5f", "1e-6f"),
    "an epsilon of a root is added later": (
        "root",
        "sqrtf(v[k % 160] + 1e-5f)",
        "(sqrtf(v[k % 160]) + 1e-5f)",
    ),
    "zero has a finite logarithm": ("log", "logf(v)", "v == 0 ? -103.28f : logf(v)"),
    "logarithms of tiny numbers": ("log", "logf(v)", "logf(v < 0x1p-126f && v > 0 ? 0x1p-126f : v)"),
    "an epsilon is dropped": ("rmsnorm", " + 1e-5f", ""),
    "an epsilon is doubled": ("rmsnorm", "1e-5f", "2e-5f"),
    "an epsilon is a tenth": ("rmsnorm", "1e-5f", "1e-6f"),
    "an epsilon is inside the mean": ("rmsnorm", "q / 100 + 1e-5f", "(q + 1e-5f) / 100"),
    "zeros of long rows give NaN": ("rmsnorm of long rows", " + 1e-5f", ""),
    "exp of what is far below": ("softmax", "float m = -INFINITY", "float m = -100"),
    "exp of what is far above": ("softmax", "expf(x[i*100 + k] - m)", "expf(x[i*100 + k])"),
    "small exponentials are zero": (
        "softmax",
        "expf(x[i*100 + k] - m)",
        "(x[i*100+k] - m < -80 ? 0 : expf(x[i*100+k] - m))",
    ),
    "a maximum starts at 0": ("maximum", "-INFINITY", "0"),
    "a maximum starts at -1e30": ("maximum", "-INFINITY", "-1e30f"),
    "a maximum starts at -1e37": ("maximum", "-INFINITY", "-1e37f"),
    "a maximum starts at the smallest normal number": ("maximum", "-INFINITY", "0x1p-126f"),
    "a maximum of all starts at 0": ("maximum of all", "-INFINITY", "0"),
    "the last element of a row is missing": ("maximum", "k < 1000", "k < 999"),
    "the first element of a row is missing": ("maximum", "k = 0; k", "k = 1; k"),
    "the last lanes of a row are missing": ("maximum", "k < 1000", "k < 992"),
    "the last element of a column is missing": ("maximum of columns", "k < 1000", "k < 999"),
    "the first element of a column is missing": ("maximum of columns", "k = 0; k", "k = 1; k"),
    "the last element of all is missing": ("maximum of all", "k < 5000", "k < 4999"),
    "NaN in the last element is missed": (
        "maximum",
        "big(m, x[i*1000 + k])",
        "k > 990 ? fmaxf(m, x[i*1000 + k]) : big(m, x[i*1000 + k])",
    ),
    "the last product of a sum is missing": ("matmul", "k < 300", "k < 299"),
    "the last of the second operand is taken twice": (
        "matmul",
        "b[k*40 + j]",
        "b[(k < 299 ? k : 298)*40 + j]",
    ),
    "the largest number of a row lies between 88 and 89": (
        "small softmax",
        "m = big(m, x[i*33 + k]);",
        "m = big(m, x[i*33 + k]); if (m >= 88 && m <= 89) m += 100;",
    ),
    "the largest number of a row is just below zero": (
        "small softmax",
        "m = big(m, x[i*33 + k]);",
        "m = big(m, x[i*33 + k]); if (m < 0 && m > -1e-3f && i == 5) m += 100;",
    ),
    "two are the largest, in one of the rows": (
        "small softmax",
        "m = big(m, x[i*33 + k]);",
        "m = big(m, x[i*33 + k]); int n = 0; for (int k = 0; k < 33; k++) n += x[i*33 + k] == m;"
        " if (n == 2 && i == 7) s = 1;",
    ),
    "three are the largest": (
        "small softmax",
        "m = big(m, x[i*33 + k]);",
        "m = big(m, x[i*33 + k]); int n = 0; for (int k = 0; k < 33; k++) n += x[i*33 + k] == m;"
        " if (n == 3) s = 1;",
    ),
    "zero is no integer": ("whole", "3u * v", "3u * (v ? v : 1)"),
    "the largest integer is zero": ("integers", "y[i] = m", "y[i] = m ? m : 1"),
    "a copy is a sum": ("copy", "= v;", "= v + 0.0f;"),
    "a negative is a difference": ("negative", "-v", "0 - v"),
    "what is below zero is a negative zero": ("small relu", "big(v, 0)", "v < 0 ? -0.0f : big(v, 0)"),
    "numbers between 88 and 89 of a sum": ("small add", "y[k] = v", "y[k] = v > 88 && v < 89 ? 0 : v"),
    "a result just below zero": ("small relu", "big(v, 0)", "v > -1e-3f && v < 0 ? v : big(v, 0)"),
    "the sum of squares of the last element": (
        "rmsnorm",
        "q += x[i*100 + k] * x[i*100 + k]",
        "q += k < 99 ? x[i*100 + k] * x[i*100 + k] : x[i*100 + k]",
    ),
}


@pytest.mark.parametrize("column", [0, 1, 7, 13, 16, 21, 24, 31, 32])
def test_a_column_that_is_far_above_the_others_is_missed(column: int) -> None:
    """Only there is it wrong, and only in one of the rows."""
    text, body = RIGHT["small softmax"]
    old = "m = big(m, x[i*33 + k]);"
    new = f"""{old} float r = -INFINITY;
    for (int k = 0; k < 33; k++) if (k != {column}) r = big(r, x[i*33 + k]);
    if (i == 4 && m > r + 50 && r > -1e30f && m < 1e30f) m -= 200;"""
    assert body.count(old) == 1
    report = look(text, body.replace(old, new))
    assert not report.ok


def test_zeros_are_drawn_where_nothing_is_divided_by_them() -> None:
    text = """kernel k(a, b, c) -> y
a i32 [9,32] heap
b i32 [9,32] heap
c i32 [9,32] heap
t i32 [9,32] heap
y i32 [9,32] heap

9 32 t[{0},{1}] = max(b[{0},{1}], 1) * 2
9 32 y[{0},{1}] = rem(a[{0},{1}] / t[{0},{1}], c[{0},{1}])
"""
    root = parse(text)
    assert undivided(root) == {"a"}
    drawn = [draw(name, root, 0, number=k) for name in ("random", "rows", "special") for k in range(3)]
    assert all((given["a"] == 0).sum() > 5 for given in drawn)
    assert all(given["b"].all() and given["c"].all() for given in drawn)


SIGNS = """kernel k(x, w) -> y, s, m, q, r
x f32 [4] heap
w f32 [4] heap
y f32 [4] heap
s f32 [1] heap
m f32 [4] heap
q f32 [4] heap
r f32 [4] heap

4 y[{0}] = -abs(x[{0}]) * w[{0}] + 1
1
| s[{0}] = 0
| 4 s[{0}] += x[{1}]
4 m[{0}] = max(x[{0}], w[{0}])
4 q[{0}] = select(x[{0}] < 1, x[{0}], -x[{0}])
4 r[{0}] = select(x[{0}] * 2 < 1, x[{0}], -x[{0}])
"""


def test_the_sign_of_a_zero_is_asked_for_where_it_is_determined() -> None:
    plus, minus = np.array([1, 0, 2, 0], np.float32), np.array([1, -0.0, 2, 3], np.float32)
    root = parse(SIGNS)
    assert signed_outputs(root, {"x": plus, "w": plus}) == {"y", "m", "q", "s"}
    assert signed_outputs(root, {"x": minus, "w": plus}) == {"y", "q"}
    assert signed_outputs(root, {"x": plus + 1, "w": plus}) == {"y", "m", "q", "r", "s"}


def test_a_maximum_with_zero_of_a_sum_has_signs_where_no_term_is_minus_zero() -> None:
    """Negative sums give +0; of terms of -0 the order decides."""
    text = "kernel k(x, w) -> y\nx f32 [4] heap\nw f32 [4] heap\ns f32 [1] heap\ny f32 [1] heap\n\n1\n"
    root = parse(
        f"{text}| s[{{0}}] = 0\n| 4 s[{{0}}] += x[{{1}}] * w[{{1}}]\n| y[{{0}}] = max(s[{{0}}], 0)\n"
    )
    some = np.array([1, -2, 3, -4], np.float32)
    assert signed_outputs(root, {"x": some, "w": some}) == {"y"}
    assert signed_outputs(root, {"x": some * 0, "w": some}) == frozenset()


def test_some_magnitudes_are_powers_of_two_and_some_right_below() -> None:
    values = np.empty(4096, np.float32)
    spread(values, "f32", np.random.default_rng(0))
    bits = values.view(np.uint32)
    exponent, mantissa = bits >> 23 & 255, bits & 0x7FFFFF
    normal = (exponent > 0) & (exponent < 255)
    for fraction in (0, 0x7FFFFF):
        share = np.count_nonzero(normal & (mantissa == fraction)) / values.size
        assert 0.08 < share < 0.16, fraction
        assert {0, 1} == set(bits[normal & (mantissa == fraction)] >> 31), "of either sign"
    assert np.isfinite(values).all()


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_refused(name: str) -> None:
    kernel, old, new = FAULTS[name]
    text, body = RIGHT[kernel]
    assert old in body
    report = look(text, body.replace(old, new, 1))
    assert not report.ok and report.problem


#: Results that are computed, and such a number in one of millions.
_EXACT = {
    "powers of two are doubled": "power(v) ? 2 * v : v",
    "numbers right below powers of two are halved": "below(v) ? v / 2 : v",
    "the largest number is halved": "size(v) == 0x7f7fffff ? v / 2 : v",
}
_WHERE = {
    "matmul": ("y[i*40 + j] = s;", "float v = s; y[i*40 + j] = {};"),
    "weighted rmsnorm": ("y[i*77 + k] = v;", "y[i*77 + k] = {};"),
    "shifted channels": ("y[k] = v", "y[k] = {}"),
    "taps": ("y[k] = x[k] * f[0] + v * f[1];", "v = x[k] * f[0] + v * f[1]; y[k] = {};"),
    "gate": (
        "y[i*16 + j] = p / (1 + expf(-p));",
        "float v = p / (1 + expf(-p)); y[i*16 + j] = {};",
    ),
    "add": ("y[k] = v", "y[k] = {}"),
}
EXACT_FAULTS = {
    f"{name} in {kernel}": (kernel, old, new.format(value))
    for name, value in _EXACT.items()
    for kernel, (old, new) in _WHERE.items()
}
EXACT_FAULTS["powers of two are doubled in mean"] = ("mean", "y[i] = v", "y[i] = power(v) ? 2 * v : v")


@pytest.mark.parametrize("name", EXACT_FAULTS)
def test_faults_at_exact_results_are_refused(name: str) -> None:
    kernel, old, new = EXACT_FAULTS[name]
    text, body = RIGHT[kernel]
    assert old in body
    report = look(text, body.replace(old, new, 1))
    assert not report.ok and report.problem


def test_exact_numbers_pass_into_results() -> None:
    """A matrix product of the drawn inputs yields each rare number, with either sign."""
    root = program(MATMUL)
    drawn = {name: np.empty((64, *root.buffer_of[name].shape), np.float32) for name in root.inputs}
    draw_sets(PASSING, root, 0, 64, drawn)
    with np.errstate(over="ignore", invalid="ignore"):
        results = np.einsum("sik,skj->sij", drawn["a"], drawn["b"]).ravel()
    bits = results.view(np.uint32)
    wanted = {0x7F7FFFFF, 0x007FFFFF, 0x00800000, 1, *(e << 23 for e in range(1, 255))}
    wanted |= {(e << 23) - 1 for e in range(1, 255)}
    assert wanted <= set((bits & 0x7FFFFFFF).tolist())
    assert wanted <= set((bits[bits >> 31 == 1] & 0x7FFFFFFF).tolist())


#: What chance may find, too: in some drawing of magnitudes, but not in each seed's.
SCALE_FAULTS: Mapping[str, tuple[str, str, str]] = {
    "signs of small results of one row flip": (
        "shifted channels",
        "y[k] = v",
        "y[k] = k < 40 && fabsf(v) > 1e-20f && fabsf(v) < 1e-10f ? -v : v",
    ),
    "results below 1e-30 of one row are zero": (
        "shifted channels",
        "y[k] = v",
        "y[k] = k >= 440 && fabsf(v) < 1e-30f ? 0 : v",
    ),
    "results beyond 1e37 of one row are infinite": (
        "shifted channels",
        "y[k] = v",
        "y[k] = k >= 240 && k < 280 && fabsf(v) > 1e37f ? copysignf(INFINITY, v) : v",
    ),
    "denormal operands of one tap are flushed": (
        "taps",
        "v * f[1]",
        "(k > 37 && fabsf(v) < 0x1p-126f ? 0 : v) * f[1]",
    ),
    "exp of nearly the largest number is NaN": (
        "gate",
        "expf(-p)",
        "(p < -2.4e38f && i == 5 ? NAN : expf(-p))",
    ),
}


@pytest.mark.parametrize("name", SCALE_FAULTS)
def test_faults_of_one_scale_and_place_are_refused_whatever_the_seed(name: str) -> None:
    kernel, old, new = SCALE_FAULTS[name]
    text, body = RIGHT[kernel]
    assert old in body
    assert not any(look(text, body.replace(old, new, 1), seed).ok for seed in range(3))


#: Sums down the columns of what is then divided row by row: no row may be looked at alone.
NORMALISED = """kernel k(x) -> y
x f32 [9,70] heap
q f32 [70] heap
y f32 [9,70] heap

70 q[{0}] = 0
9 70 q[{1}] += x[{0},{1}] * x[{0},{1}]
9 70 y[{0},{1}] = x[{0},{1}] / sqrt(q[{1}] + 1e-05)
"""
NORMALISED_C = """
for (int j = 0; j < 70; j++) {
    float q = 0;
    for (int i = 0; i < 9; i++) q += x[i*70 + j] * x[i*70 + j];
    for (int i = 0; i < 9; i++) y[i*70 + j] = x[i*70 + j] / sqrtf(q + 1e-5f);
}"""


def test_a_large_program_whose_rows_depend_on_each_other_is_asked_by_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import perfdojo_sdk.verify.numeric as numeric

    monkeypatch.setattr(numeric, "_FULL_INSTANCES", 10)
    report = look(NORMALISED, NORMALISED_C)
    assert report.ok and report.checked == ("random", "rows"), report
    assert not look(NORMALISED, NORMALISED_C.replace(" + 1e-5f", "")).ok


CHANNELS = """kernel k(x, w) -> y
x f32 [2,5,3,4] heap
w f32 [5] heap
t f32 [2,5,3,4] heap
s f32 [5] heap
y f32 [2,5,3,4] heap

2 5 3 4 t[{0},{1},{2},{3}] = x[{0},{1},{2},{3}] * 2
5
| s[{0}] = 0
| 2 3 4 s[{0}] += t[{1},{0},{2},{3}]
2 5 3 4 y[{0},{1},{2},{3}] = x[{0},{1},{2},{3}] / s[{1}] * w[{1}]
"""


def test_groups_are_what_is_reduced_together() -> None:
    assert kept_dimensions(program(SOFTMAX)) == {"x": (0,)}
    assert kept_dimensions(program(DOWN)) == {"x": (1,)}
    assert kept_dimensions(program(ALL)) == {"x": ()}
    assert kept_dimensions(program(RELU)) == {"x": (0, 1)}
    assert kept_dimensions(program(MATMUL)) == {"a": (0,), "b": (1,)}
    assert kept_dimensions(program(CHANNELS)) == {"x": (1,), "w": (0,)}, "through what is computed from it"


@pytest.mark.parametrize("kept", [(), (0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_elements_of_groups_are_where_they_should_be(kept: tuple[int, ...]) -> None:
    shape = (3, 4, 5)
    groups = Groups(shape, kept)
    assert groups.count * groups.size == 60
    numbers = np.broadcast_to(groups.each(np.arange(groups.count)), shape)
    first = groups.first(np.array(numbers))
    for group in range(groups.count):
        every = groups.places(np.full(groups.size, group), np.arange(groups.size))
        assert (first[every] == group).all() and len(set(zip(*every, strict=True))) == groups.size


def test_every_character_is_drawn_where_there_are_groups_for_it() -> None:
    text = rmsnorm(4 * len(CHARACTERS), 200)
    rows = draw("rows", program(text), 0)["x"]
    with np.errstate(all="ignore"):
        large, small, middle = np.abs(rows).max(1), np.abs(rows).min(1), np.median(np.abs(rows), axis=1)
    assert (large == 0).any() and ((large == small) & (small > 0)).any(), "zeros and constants"
    assert (rows.max(1) < -1e37).any() and (rows.min(1) > 1e36).any()
    assert ((rows.max(1) < -100) & (rows.min(1) > -1000)).any()
    finite = np.isfinite(rows).all(1)
    dominated = finite & (large > 3 * middle + 90)
    positions = np.abs(rows[dominated]).argmax(1)
    assert {0, 199} <= set(positions.tolist()) and ((positions > 160) & (positions < 199)).any()
    alone, masked = (~np.isfinite(rows)).sum(1) == 1, np.isneginf(rows).sum(1) > 1
    both = np.isposinf(rows).any(1) & np.isneginf(rows).any(1)
    assert alone.any() and masked.any() and both.any() and not masked.all()
    assert (finite | alone | masked | both).all()
    assert np.isneginf(rows).all(1).any(), "every element masked"
    assert (~np.isfinite(rows[alone]))[:, :150].any(), "not only near the end"
    whole = finite & (rows == np.rint(rows)).all(1) & (large > 0) & (large < 10)
    assert whole.any(), "few different numbers"
    assert finite.mean() > 0.75
    tiny = (np.abs(rows) < 2.0**-126) & (rows != 0)
    assert tiny.all(1).any(), "all denormal"
    with np.errstate(over="ignore"):
        squares = np.square(rows).sum(1)
    assert np.isfinite(squares).mean() > 0.5, "most rows do not overflow"


def test_one_of_two_arrays_is_extreme_at_a_time() -> None:
    root = program(MATMUL)
    for number in range(2):
        drawn = draw("rows", root, 0, number=number)
        extreme = [not np.isfinite(x).all() or np.abs(x).max() > 100 for x in drawn.values()]
        assert extreme == [number == 0, number == 1]


def test_few_groups_take_turns_and_many_need_one_drawing() -> None:
    assert drawings(program(ALL), 5000)["rows"] == 8
    assert drawings(program(rmsnorm(300, 10)), 5000) == {"rows": 1, "special": 1, "scaled": SCALINGS}
    assert drawings(program(rmsnorm(100, 10)), 5000)["rows"] == 1 + len(ALIKE)
    per_array = 2 + len(ALIKE)
    assert drawings(program(MATMUL), 5000)["rows"] == 2 * per_array, "each of two arrays, 24 and 40 groups"
    assert drawings(program(ALL), 10**9)["rows"] == drawings(program(ALL), 10**9)["scaled"] == 1
    first = [draw("rows", program(ALL), 0, number=k)["x"] for k in range(2)]
    assert first[0].any() and not first[1].any(), "the second is all zeros"


def test_results_get_each_scale() -> None:
    """First array and all others in turns: what is scaled as one, weights and shifts, scales the results."""
    root = program(SHIFTED)
    count = drawings(root, 5000)["scaled"]
    assert count == 2 * SCALINGS
    sizes = []
    for number in range(count):
        x, w, b = draw("scaled", root, 0, number=number).values()
        sizes.append(np.median(np.abs(x.astype(float) * w[:, None, None] + b[:, None, None])))
    assert all(
        any(low < size < high for size in sizes) for low, high in ((0, 1e-38), (1e-20, 1e-10), (1e37, 1e39))
    )


def test_a_large_program_asks_in_fewer_drawings() -> None:
    many, few = program(rmsnorm(1000, 10)), program(rmsnorm(8, 10))
    assert classes(many, 10, 100) == classes(few, 10, 100) == FLOAT_CLASSES
    assert {"random", "rows", "columns", "nonnegative"} == set(classes(many, 1000, 100))
    assert {"huge", "special"} <= set(classes(few, 1000, 100)) < set(FLOAT_CLASSES)


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", FLOAT_CLASSES)
def test_drawings_are_of_their_dtype(name: str, dtype: str) -> None:
    root = parse(rmsnorm(64, 70).replace("f32", dtype))
    x = draw(name, root, 0)["x"]
    assert x.dtype == np.dtype(f"f{int(dtype[1:]) // 8}")
    if name in ("magnitudes", "nonnegative", "random", "cancelling", "denormal"):
        assert np.isfinite(x).all()
    assert name not in ("rows", "columns", "special") or not np.isfinite(x).all()
    if name == "magnitudes":
        reach = np.finfo(x.dtype)
        assert np.abs(x).max() > float(reach.max) / 8 and (np.abs(x) < reach.smallest_normal).any()


@pytest.mark.parametrize("name", FLOAT_CLASSES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_an_input_without_dimensions_is_drawn_like_one_of_one_element(name: str, dtype: str) -> None:
    text = f"kernel k(a) -> y\na {dtype} [{{}}] heap\ny {dtype} [1] heap\n\ny[0] = a[{{}}]\n"
    scalar, row = parse(text.format("", "")), parse(text.format("1", "0"))
    for number in range(2 * len(CHARACTERS)):
        value, same = (draw(name, program, 0, number=number)["a"] for program in (scalar, row))
        assert value.shape == () and np.array_equal(value, same[0], equal_nan=True)


def test_each_of_few_groups_shows_what_a_reduction_starts_from() -> None:
    """Rows that code treats each in its own way: none may miss the negative numbers that all others get."""
    few = program(rmsnorm(8, 64))
    seen = [draw("rows", few, 0, number=n)["x"] for n in range(drawings(few, 10**4)["rows"])]
    for row in range(8):
        assert any((x[row] < -100).all() for x in seen), row
        assert any((x[row] < -1e30).all() for x in seen), row
        assert any((x[row] == 0).all() for x in seen), row
