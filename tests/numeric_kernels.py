"""Programs, C that is right for each, and what leg 2 says of such C: for tests that plant faults in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from typing import Any
from unittest import mock

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, KernelSource, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify import numeric, references
from perfdojo_sdk.verify.groups import Array
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric

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


class Shared:
    """Inputs of one program, and the references' answers to them, for the next kernels that are compared with
    it: drawing and computing them again would be half of the time."""

    def __init__(self) -> None:
        self.program = ""
        self.inputs: dict[Any, list[dict[str, Array]]] = {}
        self.answers: dict[bytes, Mapping[str, Array]] = {}

    @contextmanager
    def by(self, program: str) -> Iterator[None]:
        """The numeric leg draws and computes nothing twice that it did for this program the last time."""
        if program != self.program:
            self.program = program
            self.inputs.clear()
            self.answers.clear()
        draw, answer = numeric._draw, references.run_reference

        def drawn(group: Any, root: Program, seed: int, inputs: Sequence[Mapping[str, Array]]) -> None:
            key = (root.text, seed, tuple(group))
            if key not in self.inputs:
                draw(group, root, seed, inputs)
                self.inputs[key] = [{name: array.copy() for name, array in each.items()} for each in inputs]
            for given, kept in zip(inputs, self.inputs[key], strict=True):
                for name, array in kept.items():
                    given[name][...] = array

        def answered(artifact: Artifact, request: RunRequest) -> Mapping[str, Array]:
            digest = sha256(artifact.content)
            for name, array in (request.inputs or {}).items():
                digest.update(f"{name} {array.shape} {array.dtype}".encode() + array.tobytes())
            if digest.digest() not in self.answers:
                found = answer(artifact, request)
                for array in found.values():
                    array.setflags(write=False)
                self.answers[digest.digest()] = found
            return self.answers[digest.digest()]

        with (
            mock.patch.object(numeric, "_draw", drawn),
            mock.patch.object(references, "run_reference", answered),
        ):
            yield


SHARED = Shared()


def look(
    text: str, body: str, seed: int = 0, nan_may_differ: bool = False, executions: bool = False
) -> NumericReport:
    """Leg 2's opinion of a kernel whose body is ``body``."""
    root = program(text)

    def specs(names: tuple[str, ...]) -> tuple[ArraySpec, ...]:
        return tuple(ArraySpec(n, root.buffer_of[n].shape, root.buffer_of[n].dtype) for n in names)

    types = {"f32": "float", "i32": "int", "u32": "unsigned"}
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
    accuracy = {"exp": 2.0, "log": 2.0, "tanh": 2.0, "erf": 2.0}  # what the C library is trusted to do
    with SHARED.by(text):
        return verify_numeric(
            root,
            root,
            artifact,
            RUNNER,
            accuracy,
            CORE_DIALECT,
            seed,
            (1,),
            nan_may_differ,
            forks=True,
            executions=executions,
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
