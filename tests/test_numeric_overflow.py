"""Overflows in the numeric leg: it accepts only results that these very inputs allow."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numeric_checks import check
from numeric_kernels import look, program

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.hookspecs.types import Measurement, RunRequest
from perfdojo_sdk.verify.drawing import PASSING
from perfdojo_sdk.verify.independent_rows import outermost_rows
from perfdojo_sdk.verify.judgement import Expected, Outcome, Piece, _near, judge
from perfdojo_sdk.verify.reference_c import (
    BETWEEN,
    MINUS,
    NO_NUMBER,
    OUTCOMES,
    PLUS,
    ROWS,
    reference,
)
from perfdojo_sdk.verify.references import REFERENCE_FLAGS, compiled, run_reference

LINEAR = """kernel k(x, w, b) -> y
x f32 [12,64] heap
w f32 [64,32] heap
b f32 [32] heap
c f32 [12,32] heap
y f32 [12,32] heap

12 32
| c[{{0}},{{1}}] = b[{{1}}]
| 64 c[{{0}},{{1}}] += x[{{0}},{{2}}] * w[{{2}},{{1}}]
12 32 y[{{0}},{{1}}] = {epilogue}
"""
LINEAR_C = """
for (int i = 0; i < 12; i++) for (int j = 0; j < 32; j++) {{
    float s = {start};
    for (int k = 0; k < 64; k++) s {sign}= x[i*64 + k] * w[k*32 + j];
    {turn}
    y[i*32 + j] = {epilogue};
}}"""
CONV = """kernel k(x, f, b) -> y
x f32 [2,3,10,10] heap
f f32 [4,3,3,3] heap
b f32 [4] heap
c f32 [2,4,8,8] heap
y f32 [2,4,8,8] heap

2 4 8 8
| c[{0},{1},{2},{3}] = b[{1}]
| 3 3 3 c[{0},{1},{2},{3}] += x[{0},{4},{2}+{5},{3}+{6}] * f[{1},{4},{5},{6}]
2 4 8 8 y[{0},{1},{2},{3}] = max(c[{0},{1},{2},{3}], 0)
"""
CONV_C = """
for (int n = 0; n < 2; n++) for (int o = 0; o < 4; o++) for (int i = 0; i < 8; i++)
for (int j = 0; j < 8; j++) {
    float s = b[o];
    for (int c = 0; c < 3; c++) for (int p = 0; p < 3; p++) for (int q = 0; q < 3; q++)
        s += x[((n*3 + c)*10 + i + p)*10 + j + q] * f[((o*3 + c)*3 + p)*3 + q];
    y[((n*4 + o)*8 + i)*8 + j] = big(s, 0);
}"""
#: In the language and in C.
EPILOGUES: Mapping[str, tuple[str, str]] = {
    "relu": ("max({c}, 0)", "big(s, 0)"),
    "clamp": ("min(max({c}, 0), 6)", "s != s ? s : s < 0 ? 0 : s > 6 ? 6 : s"),
    "relu, scaled and shifted": ("max({c}, 0) * 0.5 - 3", "big(s, 0) * 0.5f - 3"),
    "exp": ("exp({c})", "expf(s)"),
    "sigmoid": ("1 / (1 + exp(-{c}))", "1 / (1 + expf(-s))"),
    "silu": ("{c} / (1 + exp(-{c}))", "s / (1 + expf(-s))"),
    "tanh": ("tanh({c})", "tanhf(s)"),
    "erf": ("erf({c})", "erff(s)"),
    "softplus": ("log(1 + exp({c}))", "logf(1 + expf(s))"),
    "leaky": ("max({c}, 0.25 * {c})", "big(s, 0.25f * s)"),
    "chosen": ("select({c} > 0, {c}, 0)", "s > 0 ? s : 0"),
    "rounded": ("max(floor({c}), -1)", "big(floorf(s), -1)"),
    "magnitude": ("min(abs({c}), 9)", "s != s ? s : fabsf(s) > 9 ? 9 : fabsf(s)"),
    "reciprocal": ("1 / (1 + abs({c}))", "1 / (1 + fabsf(s))"),
}


def linear(name: str) -> str:
    return LINEAR.format(epilogue=EPILOGUES[name][0].format(c="c[{0},{1}]"))


def linear_c(name: str, start: str = "b[j]", sign: str = "+", turn: str = "") -> str:
    return LINEAR_C.format(start=start, sign=sign, turn=turn, epilogue=EPILOGUES[name][1])


@pytest.mark.parametrize("name", EPILOGUES)
def test_sums_with_an_epilogue_verify(name: str) -> None:
    report = look(linear(name), linear_c(name))
    assert report.ok, report.problem


def test_convolutions_with_bias_and_relu_verify() -> None:
    report = look(CONV, CONV_C)
    assert report.ok, report.problem


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"start": "0"}, id="no bias"),
        pytest.param({"turn": "if (fabsf(s) > 1e30f) s = NAN;"}, id="NaN without overflow"),
        pytest.param({"turn": "if (s > 1e4f) s = -s;"}, id="sign"),
    ],
)
@pytest.mark.parametrize("name", ["relu", "sigmoid", "silu"])
def test_wrong_sums_with_an_epilogue_fail(name: str, fault: Mapping[str, str]) -> None:
    report = look(linear(name), linear_c(name, **fault))
    assert not report.ok


def outcomes(text: str, any_order: bool = False, **inputs: list[float]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """The outcomes that are possible for these very inputs."""
    root = program(text)
    given = {n: np.array(a, np.float32).reshape(1, *root.buffer_of[n].shape) for n, a in inputs.items()}
    options: dict[str, object] = {}
    if any_order:
        split = outermost_rows(root)
        assert split is not None
        count = split.count
        given[ROWS] = np.arange(count, dtype=np.int32).reshape(1, count, 1)
        options = {"rows": count, "split": split, "any_order": True}
    source = reference(root, OUTCOMES, {}, CORE_DIALECT, **options)  # type: ignore[arg-type]
    found = run_reference(compiled(source, REFERENCE_FLAGS), RunRequest(inputs=given))
    return {name: array[0] for name, array in found.items()}


def total(size: int, epilogue: str = "s[{0}]", rows: int = 1) -> str:
    return (
        f"kernel k(x) -> y\nx f32 [{rows},{size}] heap\ns f32 [{rows}] heap\ny f32 [{rows}] heap\n\n"
        f"{rows}\n| s[{{0}}] = 0\n| {size} s[{{0}}] += x[{{0}},{{1}}]\n{rows} y[{{0}}] = {epilogue}\n"
    )


BIG = 3e38


def test_nothing_may_overflow_where_no_part_of_a_sum_can() -> None:
    """Only parts of these terms are bounded, not the largest term times their number."""
    found = outcomes(total(8), any_order=True, x=[1e38, 1e38, 1e38, -1e38, -1e38, -1e38, 1, 2])
    assert found["y_far"] == 0 and np.isfinite(found["y_e"])


@pytest.mark.parametrize(
    ("x", "far"),
    [
        ([BIG, BIG, -BIG, 1], PLUS),
        ([BIG, -BIG, -BIG, 1], MINUS),
        ([BIG, BIG, -BIG, -BIG], PLUS | MINUS | NO_NUMBER),
        ([BIG, -BIG, 1, 1], 0),
    ],
)
def test_parts_of_a_sum_in_any_order(x: list[float], far: int) -> None:
    found = outcomes(total(4), any_order=True, x=x)
    assert found["y_far"] == far
    assert found["y_v"] == np.array(x, np.float32).astype(float).sum() and found["y_e"] < 1e33


def test_in_program_order_the_order_decides() -> None:
    assert outcomes(total(4), x=[BIG, -BIG, BIG, -BIG])["y_far"] == 0
    assert outcomes(total(4), x=[BIG, BIG, -BIG, -BIG])["y_far"] == PLUS
    assert outcomes(total(4), x=[-BIG, -BIG, -BIG, 1])["y_far"] == MINUS


@pytest.mark.parametrize(
    ("epilogue", "far", "low", "high"),
    [
        ("max(s[{0}], 0)", BETWEEN, 0, 0),
        ("min(max(s[{0}], -2), 5)", BETWEEN, -2, -2),
        ("max(s[{0}], -1) * 3 + 1", BETWEEN, -2, -2),
        ("exp(s[{0}])", BETWEEN, 0, 0),
        ("tanh(s[{0}])", BETWEEN, -1, -1),
        ("1 / (1 + exp(-s[{0}]))", BETWEEN, 0, 0),
        ("-s[{0}]", PLUS, 0, 0),
        ("abs(s[{0}])", PLUS, 0, 0),
        ("s[{0}] - s[{0}]", MINUS | PLUS | NO_NUMBER, 0, 0),
        ("sqrt(s[{0}])", NO_NUMBER, 0, 0),
    ],
)
def test_what_becomes_of_an_infinity(epilogue: str, far: int, low: float, high: float) -> None:
    """The terms add up to a finite number, but the first two of them to -inf."""
    found = outcomes(total(3, epilogue), x=[-BIG, -BIG, BIG])
    assert found["y_far"] == far
    if far & BETWEEN:
        assert found["y_lo"] == pytest.approx(low, abs=1e-6) and found["y_hi"] == pytest.approx(
            high, abs=1e-6
        )
        assert found["y_lo"] <= low <= high <= found["y_hi"]


@pytest.mark.parametrize(
    ("epilogue", "right"),
    [
        ("1 / (1 + exp(-s[{0}]))", 0.5),
        ("s[{0}] / (1 + exp(-s[{0}]))", 2.0**-31),
        ("exp(s[{0}])", 1.0),
        ("tanh(s[{0}])", 2.0**-30),
    ],
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sum_whose_sign_rounding_may_change_decides_no_exponential(
    epilogue: str, right: float, sign: float
) -> None:
    """f32 sums these terms to 2^-30, in f64 they are far from zero, where ``exp`` is infinite or vanishes."""
    terms = [6.3e29 * sign, -2.1267648e37 * sign, 2.1267647e37 * sign, 2.0**-30]
    found = outcomes(total(4, epilogue), any_order=True, x=terms)
    inside = found["y_far"] & BETWEEN and found["y_lo"] <= right <= found["y_hi"]
    with np.errstate(invalid="ignore"):
        assert inside or abs(found["y_v"] - right) <= found["y_e"], found


def product(size: int) -> str:
    return (
        f"kernel k(x) -> y\nx f32 [1,{size}] heap\ny f32 [1] heap\n\n"
        f"1\n| y[{{0}}] = 1\n| {size} y[{{0}}] *= x[{{0}},{{1}}]\n"
    )


def test_a_product_of_any_order_may_overflow_or_vanish() -> None:
    found = outcomes(product(4), any_order=True, x=[1e30, 1e-30, 1e30, 1e-30])
    assert found["y_far"] == PLUS | NO_NUMBER
    found = outcomes(product(4), any_order=True, x=[1e30, 1e-18, -1e30, 1e-18])
    assert found["y_far"] == MINUS, "no factors come to zero, and the sign is known"
    assert outcomes(product(4), any_order=True, x=[1e10, 1e-10, 1e10, 1e-10])["y_far"] == 0
    found = outcomes(product(4), any_order=True, x=[1e-30, 1e-30, 1e30, 1])
    assert found["y_far"] == 0 and found["y_e"] > 1e-16, "1e-60 is zero"
    found = outcomes(product(4), any_order=True, x=[1e30, 1e30, 0, 1])
    assert found["y_far"] == NO_NUMBER and found["y_v"] == found["y_e"] == 0, "an infinity cannot stay"


@pytest.mark.parametrize("sign", ["*", "/"])
def test_nothing_but_nan_comes_of_nan(sign: str) -> None:
    """Whatever the sign of what came to zero before."""
    text = product(3)
    if sign == "/":
        text = text.replace("y[{0}] *= x[{0},{1}]", "y[{0}] = x[{0},{1}] / y[{0}]")
    found = outcomes(text, x=[1e-30, 1e-30, float("nan")] if sign == "*" else [float("nan"), 1, 1])
    assert np.isnan(found["y_v"]) and found["y_far"] == found["y_e"] == 0


@pytest.mark.parametrize("any_order", [False, True])
def test_a_product_beyond_double_may_have_vanished_on_the_way(any_order: bool) -> None:
    """1e-60 is zero in f32, and stays it; without rounding it is 1e320 in the end."""
    found = outcomes(product(12), any_order=any_order, x=[1e-30, 1e-30, *[1e38] * 10])
    assert found["y_v"] == np.inf and found["y_far"].item() & PLUS
    assert found["y_e"] == np.inf, "zero is allowed"
    certain = outcomes(product(12), any_order=any_order, x=[1e30] * 12)
    assert certain["y_v"] == np.inf and certain["y_e"] == 0, "nothing vanishes here"
    assert not certain["y_far"].item() & BETWEEN


def test_a_product_that_leaves_the_range_of_a_double_on_the_way_is_known() -> None:
    found = outcomes(product(20), any_order=True, x=[*[1e-38] * 10, *[1e38] * 10])
    assert found["y_v"] == pytest.approx(1, rel=1e-5)


EXPECTED = {
    "near": (Expected(*map(np.array, ([1.0], [1.0], [0.1], [0], [0.0], [0.0]))), [1.05], True),
    "too far": (Expected(*map(np.array, ([1.0], [1.0], [0.1], [0], [0.0], [0.0]))), [1.2], False),
    "NaN": (Expected(*map(np.array, ([1.0], [1.0], [0.1], [0], [0.0], [0.0]))), [np.nan], False),
    "infinite": (Expected(*map(np.array, ([1.0], [1.0], [0.1], [0], [0.0], [0.0]))), [np.inf], False),
    "may": (Expected(*map(np.array, ([1.0], [1.0], [0.1], [PLUS], [0.0], [0.0]))), [np.inf], True),
    "other sign": (Expected(*map(np.array, ([1.0], [1.0], [0.1], [PLUS], [0.0], [0.0]))), [-np.inf], False),
    "no NaN": (Expected(*map(np.array, ([1.0], [1.0], [0.1], [PLUS], [0.0], [0.0]))), [np.nan], False),
    "between": (Expected(*map(np.array, ([9.0], [9.0], [0.1], [BETWEEN], [0.0], [1.0]))), [0.5], True),
    "not between": (Expected(*map(np.array, ([9.0], [9.0], [0.1], [BETWEEN], [0.0], [1.0]))), [2.0], False),
    "infinite over zero": (
        Expected(*map(np.array, ([np.inf], [np.inf], [0.0], [PLUS | MINUS], [0.0], [0.0]))),
        [-np.inf],
        True,
    ),
    "finite over zero": (
        Expected(*map(np.array, ([np.inf], [np.inf], [0.0], [PLUS | MINUS], [0.0], [0.0]))),
        [3e38],
        False,
    ),
    "the law's NaN": (
        Expected(*map(np.array, ([1.0], [np.nan], [0.0], [0], [0.0], [0.0]))),
        [np.nan],
        False,
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("nan_may_differ", [False, True])
def test_a_finite_value_gives_way_to_a_computed_overflow_only(name: str, nan_may_differ: bool) -> None:
    expected, got, right = EXPECTED[name]
    _, wrong = _near(np.array(got, np.float32), expected, nan_may_differ)
    assert wrong.tolist() == [not right]


def test_where_the_original_has_no_number_a_declared_move_decides() -> None:
    expected = Expected(*map(np.array, ([np.nan], [2.0], [0.1], [0], [0.0], [0.0])))
    got = np.array([2.05], np.float32)
    assert not _near(got, expected, True)[1].any()
    assert _near(got, expected, False)[1].all()
    assert _near(got + 1, expected, True)[1].all()


@pytest.mark.parametrize(
    ("value", "own", "got", "other_terms", "right"),
    [
        (1.0, np.nan, np.nan, True, True),
        (1.0, np.nan, np.nan, False, False),
        (1.0, 1.0, np.nan, True, False),
        (np.nan, np.inf, -np.inf, True, True),
        (np.nan, np.inf, 3.0, True, False),
    ],
)
def test_results_of_other_terms_share_what_is_not_finite(
    value: float, own: float, got: float, other_terms: bool, right: bool
) -> None:
    far = Expected(*(np.array([x]) for x in (value, own, 0.0)), np.zeros(1, np.uint8), *np.zeros((2, 1)))
    run = Measurement({"y": np.array([got], np.float32)}, (), "measured", "", 1)
    found = judge("rows", 1, run, Outcome((Piece("y", far),), 0.0), False, other_terms)
    assert (not found.problem) == right, found.problem


FOUR = """kernel k(x) -> y
x f32 [300,4] heap
y f32 [300] heap

300
| y[{0}] = 0
| 4 y[{0}] += x[{0},{1}]
"""


@pytest.mark.parametrize(("order", "right"), [("0 2 1 3", True), ("3 2 1 0", True), ("0 1 2", False)])
def test_what_cancels_in_one_order_leaves_what_another_order_rounds_away(order: str, right: bool) -> None:
    """Sums of x, -x and a small number: double precision in the order of the text may keep nothing."""
    lines = "".join(f"| y[{{0}}] = y[{{0}}] + x[{{0}},{k}]\n" for k in order.split())
    transformed = FOUR.rpartition("| 4")[0] + lines
    steps = "".join(f"y[i] += x[4 * i + {k}];" for k in order.split())
    body = f"for (int i = 0; i < 300; i++) {{ y[i] = 0; {steps} }}"
    report = check(FOUR, body, transformed)
    assert report.ok == right, report.problem


@pytest.mark.parametrize(("name", "right"), [(PASSING, True), ("rows", False)])
def test_only_where_numbers_cancel_exactly_the_original_may_be_the_less_exact(name: str, right: bool) -> None:
    value, own = np.array([0.0]), np.array([2.5])
    expected = Expected(value, own, np.array([1e-7]))
    run = Measurement({"y": own.astype(np.float32)}, (), "measured", "", 1)
    result = judge(name, 1, run, Outcome((Piece("y", expected),), 3e38), nan_may_differ=False)
    assert bool(result.problem) != right, result.problem
