"""Faults that special values show where several arrays, positions or constants have to meet."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from numeric_kernels import look

INTS = "kernel k(x, w) -> y\nx i32 [9,40] heap\nw i32 [9,40] heap\ny i32 [9,40] heap\n\n"
FLOATS = INTS.replace("i32", "f32")
ROWS = "kernel k(x) -> y\nx f32 [40,48] heap\ny f32 [40] heap\n\n40\n"
MAXIMUM = f"{ROWS}| y[{{0}}] = -inf\n| 48 y[{{0}}] max= x[{{0}},{{1}}]\n"
#: Of a number that is NaN in the lane `at`, or is not, what the maximum of a row keeps.
MAXIMUM_C = """
for (int i = 0; i < 40; i++) {
    float m = -INFINITY;
    for (int k = 0; k < 48; k++) { float v = x[i*48 + k]; FAULT m = big(m, v); }
    y[i] = m;
}"""
DOT = f"""{ROWS.replace("(x)", "(x, w)").replace("y f32", "w f32 [40,48] heap" + chr(10) + "y f32")}\
| y[{{0}}] = 0
| 48 y[{{0}}] += x[{{0}},{{1}}] * w[{{0}},{{1}}]
"""
DOT_C = """
for (int i = 0; i < 40; i++) {
    float s = 0;
    for (int k = 0; k < 48; k++) { float a = x[i*48 + k], b = w[i*48 + k]; s += FAULT; }
    y[i] = s;
}"""
HARD = FLOATS + (
    "9 40 y[{0},{1}] = select(x[{0},{1}] > 2.5, 1, select(w[{0},{1}] < -1.75, -1, x[{0},{1}]))\n"
)
HARD_C = "for (int k = 0; k < 360; k++) y[k] = x[k] > 2.5f ? 1 : w[k] < -1.75f ? -1 : x[k];"
FLAGS = INTS + (
    "9 40 y[{0},{1}] = select(x[{0},{1}] >= 1000, x[{0},{1}], select(w[{0},{1}] == 70000, 1, 2))\n"
)
FLAGS_C = "for (int k = 0; k < 360; k++) y[k] = x[k] >= 1000 ? x[k] : w[k] == 70000 ? 1 : 2;"
RELU = f"{FLOATS}9 40 y[{{0}},{{1}}] = max(x[{{0}},{{1}}], w[{{0}},{{1}}])\n"
RELU_C = "for (int k = 0; k < 360; k++) { float v = x[k]; FAULT y[k] = big(v, w[k]); }"
DIVIDED = f"{INTS}9 40 y[{{0}},{{1}}] = x[{{0}},{{1}}] / w[{{0}},{{1}}]\n"
DIVIDED_C = "for (int k = 0; k < 360; k++) y[k] = w[k] == -1 ? (int)(0u - (unsigned)x[k]) : x[k] / w[k];"
DISTANCES = f"""{ROWS.replace("(x)", "(x, w)").replace("y f32", "w f32 [40,48] heap" + chr(10) + "y f32")}\
| y[{{0}}] = 0
| 48 y[{{0}}] += (x[{{0}},{{1}}] - w[{{0}},{{1}}]) * (x[{{0}},{{1}}] - w[{{0}},{{1}}])
"""
DISTANCES_C = DOT_C.replace("FAULT", "(a - b) * (a - b)")
MINIMUM, MINIMUM_C = (
    MAXIMUM.replace("-inf", "inf").replace("max=", "min="),
    """
for (int i = 0; i < 40; i++) {
    float m = FAULT;
    for (int k = 0; k < 48; k++) { float v = x[i*48 + k]; m = m != m || v != v ? NAN : v < m ? v : m; }
    y[i] = m;
}""",
)
BINS = f"{INTS}9 40 y[{{0}},{{1}}] = i32(floor(x[{{0}},{{1}}] / w[{{0}},{{1}}]))\n".replace("x i32", "x f32")
BINS = BINS.replace("w i32", "w f32")
BINS_C = """
for (int k = 0; k < 360; k++) {
    float q = x[k] / w[k], f = floorf(q);
    FAULT
    y[k] = f != f ? 0 : f <= -2147483648.f ? INT_MIN : f >= 2147483648.f ? INT_MAX : (int)f;
}"""
ROOTS = f"{FLOATS}9 40 y[{{0}},{{1}}] = select(sqrt(x[{{0}},{{1}}]) > 2, w[{{0}},{{1}}], 0)\n"
ROOTS_C = "for (int k = 0; k < 360; k++) y[k] = sqrtf(x[k]) > 2 ? w[k] : 0;"
LOG = f"{FLOATS}9 40 y[{{0}},{{1}}] = log(x[{{0}},{{1}}])\n".replace("(x, w)", "(x)").replace(
    "w f32 [9,40] heap\n", ""
)
LOG_C = "for (int k = 0; k < 360; k++) y[k] = FAULT logf(x[k]);"
REMAINDERS = f"{INTS}9 40 y[{{0}},{{1}}] = rem(x[{{0}},{{1}}], w[{{0}},{{1}}])\n"
REMAINDERS_C = "for (int k = 0; k < 360; k++) y[k] = w[k] == -1 ? 0 : x[k] % w[k];"
SHIFTED = f"{INTS}9 40 y[{{0}},{{1}}] = shl(x[{{0}},{{1}}], w[{{0}},{{1}}])\n".replace("i32", "u32")
SHIFTED_C = "for (int k = 0; k < 360; k++) y[k] = x[k] << w[k];"

RIGHT: Mapping[str, tuple[str, str]] = {
    "minimum": (MINIMUM, MINIMUM_C.replace("FAULT", "INFINITY")),
    "bins": (BINS, BINS_C.replace("FAULT", "")),
    "roots": (ROOTS, ROOTS_C),
    "logarithm": (LOG, LOG_C.replace("FAULT", "")),
    "remainder": (REMAINDERS, REMAINDERS_C),
    "shifted": (SHIFTED, SHIFTED_C),
    "maximum": (MAXIMUM, MAXIMUM_C.replace("FAULT", "")),
    "dot": (DOT, DOT_C.replace("FAULT", "a * b")),
    "thresholds": (HARD, HARD_C),
    "flags": (FLAGS, FLAGS_C),
    "relu": (RELU, RELU_C.replace("FAULT", "")),
    "quotient": (DIVIDED, DIVIDED_C),
    "distances": (DISTANCES, DISTANCES_C),
}
FAULTS: Mapping[str, tuple[str, str]] = {
    "a minimum from the largest number": (MINIMUM, MINIMUM_C.replace("FAULT", "3.40282347e38f")),
    "the floor of a whole quotient is one less": (BINS, BINS_C.replace("FAULT", "if (f == q) f -= 1;")),
    "a root of exactly two is above two": (ROOTS, ROOTS_C.replace("> 2", ">= 2")),
    "a logarithm near one by its first term": (
        LOG,
        LOG_C.replace("FAULT", "x[k] > 0.9999f && x[k] < 1.0001f ? x[k] - 1 :"),
    ),
    "shifted by one bit less of the count": (SHIFTED, SHIFTED_C.replace("w[k];", "(w[k] & 15);")),
    "a NaN of negative sign is lost": (
        RELU,
        RELU_C.replace("FAULT", "if (v != v && signbit(v)) v = -INFINITY;"),
    ),
    "a NaN with another payload is lost": (
        RELU,
        RELU_C.replace("FAULT", "unsigned u; memcpy(&u, &v, 4); if (v != v && (u & 0xffff)) v = -INFINITY;"),
    ),
    "zero times infinity is zero": (DOT, DOT_C.replace("FAULT", "(a == 0 ? 0 : a * b)")),
    "infinity times zero is zero": (DOT, DOT_C.replace("FAULT", "(b == 0 ? 0 : a * b)")),
    "at least for above": (HARD, HARD_C.replace("> 2.5f", ">= 2.5f")),
    "at most for below": (HARD, HARD_C.replace("< -1.75f", "<= -1.75f")),
    "a threshold of the next number": (HARD, HARD_C.replace("2.5f", "2.5000002f")),
    "above for at least": (FLAGS, FLAGS_C.replace(">= 1000", "> 1000")),
    "another constant": (FLAGS, FLAGS_C.replace("70000", "70001")),
    "the least number by minus one": (
        DIVIDED,
        DIVIDED_C.replace("(int)(0u - (unsigned)x[k])", "(x[k] == INT_MIN ? INT_MAX : -x[k])"),
    ),
    "squares multiplied out": (
        DISTANCES,
        DISTANCES_C.replace(
            "s += ", "s += fabsf(a) < 1e18f && fabsf(b) < 1e18f ? a * a - 2 * a * b + b * b : "
        ),
    ),
    **{
        f"NaN at {at} is lost": (MAXIMUM, MAXIMUM_C.replace("FAULT", f"if (k == {at} && v != v) continue;"))
        for at in (0, 3, 17, 36, 47)
    },
    **{
        f"infinity at {at} is lost": (
            MAXIMUM,
            MAXIMUM_C.replace("FAULT", f"if (k == {at} && v > 1e38f) continue;"),
        )
        for at in (3, 17)
    },
    "infinity beats NaN": (
        MAXIMUM,
        MAXIMUM_C.replace("FAULT", "if (v > 3e38f || m > 3e38f) { m = INFINITY; continue; }"),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", [0, 1])
def test_right_kernels_pass(name: str, seed: int) -> None:
    report = look(*RIGHT[name], seed, executions=seed == 0 and name in ("remainder", "shifted"))
    assert report.ok, report.problem


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_special_values_are_refused(name: str) -> None:
    assert not look(*FAULTS[name]).ok


CHOSEN = f"""{ROWS.replace("-> y", "-> y, c").replace("y f32", "c f32 [40] heap" + chr(10) + "y f32")}\
| y[{{0}}] = 0
| c[{{0}}] = -inf
| 48 y[{{0}}] += x[{{0}},{{1}}]
| 48 c[{{0}}] max= select(x[{{0}},{{1}}] > 0, 1, 0)
"""
CHOSEN_C = """
for (int i = 0; i < 40; i++) {
    float s = 0, m = -INFINITY;
    for (int k = 0; k < 48; k++) { float v = x[i*48 + k]; s += v; m = big(m, FAULT ? 1 : 0); }
    y[i] = s; c[i] = m;
}"""


@pytest.mark.parametrize(
    ("fault", "right"), [("v > 0", True), ("v > 0 && v < INFINITY", False), ("!(v <= 0)", False)]
)
def test_comparisons_of_inputs_are_certain_whatever_sums_may_do(fault: str, right: bool) -> None:
    """Moves that add in another order may change which results are NaN, but no element of an input."""
    report = look(CHOSEN, CHOSEN_C.replace("FAULT", f"({fault})"), nan_may_differ=True)
    assert report.ok == right, report.problem
