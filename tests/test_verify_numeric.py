"""The numeric leg: right kernels pass in any order, wrong ones fail, with hand-written C on both sides."""

from __future__ import annotations

import numpy as np
import pytest
from numeric_checks import ACCURACY, SOFTMAX, SOFTMAX_LOOP, check, compiled, run_reference
from numeric_kernels import RUNNER, program

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.verify.exact_integers import EXACT_INTEGERS, integer_range
from perfdojo_sdk.verify.independent_rows import outermost_rows
from perfdojo_sdk.verify.inputs import FLOAT_CLASSES, draw
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reference_c import BOUNDED, ROWS, WIDE

SUM = """kernel total(x) -> y
x f32 [2,4096] heap
y f32 [2] heap

2
| y[{0}] = 0
| 4096 y[{0}] += x[{0},{1}]
"""
#: The same sum as 16 partial sums that are added up at the end.
PARTIAL_SUMS = """kernel total(x) -> y
x f32 [2,4096] heap
p f32 [2,16] heap
y f32 [2] heap

2
| 16 p[{0},{1}] = 0
| 256 16 p[{0},{2}] += x[{0},{1}*16+{2}]
| y[{0}] = 0
| 16 y[{0}] += p[{0},{1}]
"""
#: The same sum, 16 lanes at once.
HORIZONTAL = """kernel total(x) -> y
x f32 [2,4096] heap
y f32 [2] heap

2
| y[{0}] = 0
| 256 16:v y[{0}] += x[{0},{1}*16+{2}]
"""
MAXIMUM = """kernel largest(x) -> y
x f32 [64,32] heap
y f32 [64] heap

64
| y[{0}] = -inf
| 32 y[{0}] max= x[{0},{1}]
"""
EXPONENTIAL = """kernel expo(x) -> y
x f32 [64,32] heap
y f32 [64,32] heap

64 32 y[{0},{1}] = exp(x[{0},{1}])
"""


#: The maximum of two zeros may be either of them, by the language; only 0 / 0 is the same for both.
ONE_OVER_ZERO = """kernel k(x) -> y
x f32 [64] heap
y f32 [64] heap

64 y[{0}] = 1 / max(-index({0}), 0)
"""
OVER_MINUS_ZERO = "for (int k = 0; k < 64; k++) y[k] = -INFINITY;"
ZERO_OVER_ZERO = ONE_OVER_ZERO.replace("1 / max", "0 / max")
SUM_IN_ORDER = (
    "for (int r = 0; r < 2; r++) { float s = 0; for (int k = 0; k < 4096; k++) s += x[r*4096+k]; y[r] = s; }"
)
SUM_IN_LANES = """
for (int r = 0; r < 2; r++) {
    float p[16] = {0}, s = 0;
    for (int k = 0; k < 4096; k++) p[k % 16] += x[r*4096+k];
    for (int l = 0; l < 16; l++) s += p[l];
    y[r] = s;
}"""
SUM_IN_TREES = """
for (int r = 0; r < 2; r++) {
    float s = 0;
    for (int k = 0; k < 4096; k += 16) {
        float t[16];
        memcpy(t, x + r*4096 + k, sizeof t);
        for (int w = 8; w; w /= 2) for (int l = 0; l < w; l++) t[l] += t[l + w];
        s += t[0];
    }
    y[r] = s;
}"""
MAX_LOOP = """
for (int r = 0; r < 64; r++) {
    float m = -INFINITY;
    for (int k = 0; k < 32; k++) { float v = x[r*32+k]; %s }
    y[r] = m;
}"""
NAN_WINS = "m = v != v || m != m ? NAN : v > m ? v : m;"
#: The nearest float of a good exp, some units in the last place away.
EXP_OFF = """
for (int k = 0; k < 64*32; k++) {
    float v = expf(x[k]);
    uint32_t bits;
    memcpy(&bits, &v, 4);
    if (v > 0 && v < 3e38f) bits += %d;
    memcpy(&v, &bits, 4);
    y[k] = v;
}"""


@pytest.mark.parametrize(
    ("original", "body", "transformed"),
    [
        pytest.param(SUM, SUM_IN_ORDER, SUM, id="sum"),
        pytest.param(SUM, SUM_IN_LANES, PARTIAL_SUMS, id="sum re-associated"),
        pytest.param(SUM, SUM_IN_TREES, HORIZONTAL, id="horizontal sum"),
        pytest.param(MAXIMUM, MAX_LOOP % NAN_WINS, MAXIMUM, id="maximum"),
        pytest.param(SOFTMAX, SOFTMAX_LOOP, SOFTMAX, id="softmax"),
        pytest.param(EXPONENTIAL, EXP_OFF % 1, EXPONENTIAL, id="exp off by one more"),
        pytest.param(ONE_OVER_ZERO, OVER_MINUS_ZERO, ONE_OVER_ZERO, id="zero of the other sign"),
    ],
)
def test_right_kernels_pass(original: str, body: str, transformed: str) -> None:
    report = check(original, body, transformed, forks=False)
    assert report.ok, report.problem
    assert set(FLOAT_CLASSES) <= set(report.checked)
    assert report.worst <= 1


@pytest.mark.parametrize(
    ("original", "body", "flags"),
    [
        pytest.param(SUM, SUM_IN_ORDER.replace("k = 0", "k = 1"), ("-O2",), id="dropped iteration"),
        pytest.param(
            SUM, SUM_IN_ORDER.replace("x[r*4096+k]", "x[r*4096+(k+1)%4095]"), ("-O2",), id="off by one"
        ),
        pytest.param(MAXIMUM, MAX_LOOP % "m = v > m ? v : m;", ("-O2",), id="NaN lost in max"),
        pytest.param(SOFTMAX, SOFTMAX_LOOP, ("-O2", "-ffast-math"), id="fast-math"),
        pytest.param(SOFTMAX, SOFTMAX_LOOP.replace("- m)", ")"), ("-O2",), id="softmax without its shift"),
        pytest.param(EXPONENTIAL, EXP_OFF % 50, ("-O2",), id="exp off by 50"),
        pytest.param(ZERO_OVER_ZERO, OVER_MINUS_ZERO, ("-O2",), id="zero over zero is no number"),
        pytest.param(
            SUM, SUM_IN_ORDER.replace("float s = 0", "float s = -0.5f"), ("-O2",), id="constant added"
        ),
    ],
)
def test_wrong_kernels_fail(original: str, body: str, flags: tuple[str, ...]) -> None:
    report = check(original, body, flags=flags)
    assert not report.ok
    assert report.problem


def test_integers_made_of_a_nan_that_a_law_may_bring_are_not_compared() -> None:
    """NaN where the original has an infinity is legal under the law, so what is made of it is, too."""
    head = "kernel whole(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{0}] = "
    original = head + "f32(i32(x[{0}]))"
    rebased = head + "f32(i32(x[{0}] + (x[{0}] - x[{0}])))"
    body = """for (int k = 0; k < 64; k++) {
        float v = x[k] + (x[k] - x[k]);
        y[k] = v != v ? 0 : v >= 0x1p31f ? 2147483647 : v <= -0x1p31f ? -0x1p31f : (float)(int)v; }"""

    def looked(nan_may_differ: bool) -> NumericReport:
        made = compiled(original, body)
        whole, parts = program(original), program(rebased)
        return verify_numeric(
            whole, parts, made, RUNNER, ACCURACY, CORE_DIALECT, threads=(1,), nan_may_differ=nan_may_differ
        )

    assert looked(True).ok, looked(True).problem
    assert not looked(False).ok


def test_small_integers_are_compared_to_the_bit() -> None:
    """An error below the bound of rounded sums: one unit in the last place."""
    nudged = SUM_IN_LANES.replace(
        "y[r] = s;", "y[r] = fabsf(s) >= 1 && fabsf(s) < 1e9f ? nextafterf(s, INFINITY) : s;"
    )
    report = check(SUM, nudged, PARTIAL_SUMS)
    assert not report.ok and report.problem.endswith("elements are wrong") and "within 0;" in report.problem


def test_flushing_denormals_is_wrong() -> None:
    copy = (
        "kernel twice(x) -> y\nx f32 [64,32] heap\ny f32 [64,32] heap\n\n64 32 y[{0},{1}] = x[{0},{1}] * 2\n"
    )
    body = "for (int k = 0; k < 64*32; k++) { float v = x[k] * 2; y[k] = fabsf(v) < 0x1p-126f ? 0 : v; }"
    report = check(copy, body)
    assert not report.ok and not report.problem.startswith("random")


def test_a_failing_run_is_a_problem() -> None:
    report = check(SUM, "return 5;")
    assert not report.ok and "returned 5" in report.problem


def test_integer_class_says_why_it_is_skipped() -> None:
    assert integer_range(program(SUM)) == (8, "")
    assert integer_range(program(SOFTMAX)) == (0, "it uses exp")
    scaled = program(SUM.replace("+= x[{0},{1}]", "+= x[{0},{1}] * 0.5"))
    assert integer_range(scaled) == (0, "it uses the constant 0.5")
    big = (
        "kernel p(x) -> y\nx f32 [1] heap\ny f32 [1] heap\n\n1\n| y[{0}] = 0\n| 5000 5000 y[{0}] += x[{0}]\n"
    )
    assert "2^24" in integer_range(program(big))[1]


def test_inputs_are_seeded_and_classes_do_what_they_say() -> None:
    root = program(SUM)
    for name in FLOAT_CLASSES:
        first, again = draw(name, root, 3)["x"], draw(name, root, 3)["x"]
        assert first.dtype == np.float32 and np.array_equal(first, again, equal_nan=True)
        assert not np.array_equal(first, draw(name, root, 4)["x"], equal_nan=True)
    special = np.stack([draw("special", root, 0, number=k)["x"] for k in range(3)])
    assert np.isnan(special).any() and np.isposinf(special).any() and np.isneginf(special).any()
    assert np.abs(draw("huge", root, 0)["x"]).max() > 1e30
    small = np.abs(draw("denormal", root, 0)["x"])
    assert ((small > 0) & (small < 1.1754944e-38)).any()
    cancelling = draw("cancelling", root, 0)["x"].astype(float)
    assert abs(cancelling.sum()) < 0.01 * np.abs(cancelling).sum()
    assert np.abs(draw("integers", root, 0, 8)["x"]).max() == 8 < EXACT_INTEGERS


@pytest.mark.parametrize(("sums", "sign"), [("", "="), ("+", "+=")], ids=["copy", "sum"])
def test_lanes_that_meet_load_before_any_stores(sums: str, sign: str) -> None:
    """Found by fuzzing, as a false alarm: lanes of one row that copy to each other's places."""
    text = (
        "kernel moved(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n"
        f"64 y[{{0}}] = x[{{0}}]\n8:v y[{{0}}+1] {sign} y[{{0}}]"
    )
    body = f"for (int k = 0; k < 64; k++) y[k] = x[k]; for (int k = %s) y[k+1] {sums}= y[k];"
    in_step = body % "7; k >= 0; k--"
    in_turn = body % "0; k < 8; k++"
    report = check(text, in_step)
    assert report.ok, report.problem
    assert not check(text, in_turn).ok


def test_reference_agrees_with_numpy() -> None:
    x = draw("random", program(SOFTMAX), 1)["x"]
    wide = x.astype(np.float64)
    expected = np.exp(wide - wide.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    for kind in (WIDE, BOUNDED):
        got = run_reference(kind, SOFTMAX, {"x": x})
        assert np.allclose(got["y_v"], expected, rtol=1e-13, atol=0)
    plain = np.exp(x - x.max(1, keepdims=True))
    plain /= plain.sum(1, keepdims=True)
    assert plain.dtype == np.float32 and (np.abs(plain - expected) <= got["y_e"]).all()
    assert (got["y_e"] < 1e-4 * expected).all(), "the bound is of use"


def test_reference_on_some_rows() -> None:
    assert outermost_rows(program(SOFTMAX)) is not None
    assert outermost_rows(program(PARTIAL_SUMS)) is not None
    across = "kernel t(x) -> y\nx f32 [4] heap\ny f32 [1] heap\n\n1 y[{0}] = 0\n4 1 y[0] += x[{0}]\n"
    assert outermost_rows(program(across)) is None
    x = draw("random", program(SOFTMAX), 1)["x"]
    whole = run_reference(WIDE, SOFTMAX, {"x": x})
    rows = np.array([0, 3, 15], np.int32)
    some = run_reference(
        BOUNDED,
        SOFTMAX,
        {"x": x, ROWS: rows[:, None]},
        rows=3,
        split=outermost_rows(program(SOFTMAX)),
        any_order=True,
    )
    assert np.array_equal(some["y_v"], whole["y_v"][rows])


def test_any_order_bound_covers_every_order() -> None:
    """Sums that cancel in order but not in another one."""
    x = np.tile(np.array([2.0**20, -(2.0**20) + 1], np.float32), (2, 2048))
    bound = run_reference(
        BOUNDED,
        SUM,
        {"x": x, ROWS: np.array([[0], [1]], np.int32)},
        rows=2,
        split=outermost_rows(program(SUM)),
        any_order=True,
    )
    worst = np.float32(0)
    for value in (*x[0, 0::2], *x[0, 1::2]):
        worst = np.float32(worst + value)
    assert abs(float(worst) - 2048) <= bound["y_e"][0]
