"""Values that are proved to keep away from zero do; no others are said to."""

from __future__ import annotations

import pytest
from snippets import RULES, move, program

from perfdojo_sdk.core.magnitudes import invertible
from perfdojo_sdk.core.program import Program, Statement

SOFTMAX = """
8
| m[{0}] = -inf
| 16 m[{0}] max= x[{0},{1}]
8 16 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
8
| s[{0}] = 0
| 16 s[{0}] += e[{0},{1}]
8 16 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""


def proved(subject: Program) -> bool:
    """True if the divisor ``s`` of the last statement provably has a finite reciprocal."""
    reader = [node for _, node in subject.walk() if isinstance(node, Statement)][-1]
    [divisor] = [access for access in reader.reads if access.array == "s"]
    return invertible(subject, reader, divisor)


def divided_by(value: str) -> Program:
    return program(f"s[0] = {value}\n8 y[{{0}}] = x[{{0}}] / s[0]")


@pytest.mark.parametrize(
    "value",
    ["2", "-3", "abs(a[0]) + 1", "sqrt(a[0] * a[0] + 1e-05)", "max(a[0], 0.5)", "min(a[0], -1e-30)",
     "exp(abs(a[0]))", "-(abs(a[0]) + 1)", "select(a[0] > 0, 1, 2)", "exp(a[0]) + 1",
     "(abs(a[0]) + 1) / 3", "1e-37"],
)  # fmt: skip
def test_bounds_that_keep_away_from_zero(value: str) -> None:
    assert proved(divided_by(value))


@pytest.mark.parametrize(
    "value",
    ["a[0]", "1e-38", "a[0] + 1", "exp(a[0])", "abs(a[0])", "a[0] * a[0]", "exp(a[0]) - 1", "max(a[0], -1)",
     "sqrt(a[0])", "abs(a[0]) + 1 - abs(b[0])", "max(a[0], -1) + 1.00000001", "1e-20 * 1e-20 + 0",
     "1 / (abs(a[0]) + 1)", "select(a[0] > 0, 1, a[0])", "a[0] * b[0] + 1", "f32(i32(a[0])) + 1",
     "min(a[0] * a[0], 1) - 1 + 1.0000001"],
)  # fmt: skip
def test_what_may_come_near_zero(value: str) -> None:
    assert not proved(divided_by(value))


def test_a_sum_of_exponentials_less_their_maximum() -> None:
    assert proved(program(SOFTMAX))
    fused = program(SOFTMAX)
    for text in (*["join_scopes(s0)"] * 3, *[f"reuse_dims({array}, dim=0)" for array in "mes"]):
        fused = RULES.step(fused, move(text)).after
        assert proved(fused)
    one = SOFTMAX.replace("16", "1")
    assert proved(program(one))


#: The same with a maximum that is chosen, from a number below all others.
CHOSEN = SOFTMAX.replace("= -inf", "= -3.4028235e+38").replace(
    "m[{0}] max= x[{0},{1}]", "m[{0}] = select(x[{0},{1}] > m[{0}], x[{0},{1}], m[{0}])"
)


def test_a_maximum_may_be_chosen() -> None:
    assert proved(program(CHOSEN))


@pytest.mark.parametrize("exponent", ["(x[{0},{1}] - m[{0}]) * 0.125", "2 * (x[{0},{1}] - m[{0}]) / 3"])
def test_exponents_may_have_positive_factors(exponent: str) -> None:
    assert proved(program(SOFTMAX.replace("x[{0},{1}] - m[{0}]", exponent)))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("= -3.4028235e+38", "= -1e+38"),  # more than some elements
        ("x[{0},{1}] > m[{0}], x[{0},{1}], m[{0}]", "x[{0},{1}] > m[{0}], m[{0}], x[{0},{1}]"),  # the smaller
        ("x[{0},{1}] > m[{0}], x[{0},{1}], m[{0}]", "x[{0},{1}] > 0, x[{0},{1}], m[{0}]"),  # the last
        ("x[{0},{1}] > m[{0}], x[{0},{1}], m[{0}]", "x[{0},{1}] > m[{0}], x[{0},15-{1}], m[{0}]"),
        ("| 16 m[{0}] =", "| 15 m[{0}] ="),
        ("16 m[{0}] =", "16 m[{0}] = 3\n| 16 m[{0}] ="),
    ],
)
def test_a_maximum_that_is_chosen_otherwise_is_none(right: str, wrong: str) -> None:
    assert CHOSEN.count(right) == 1
    assert not proved(program(CHOSEN.replace(right, wrong)))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("| 16 m[{0}] max= x[{0},{1}]", "| 16 m[{0}] max= w[{0},{1}]"),  # of other elements
        ("| 16 s[{0}] += e[{0},{1}]", "| 15 s[{0}] += e[{0},{1}]"),  # the largest may be missing
        ("| 16 s[{0}] += e[{0},{1}]", "| 16 s[{0}] += e[{0},{1}] if {1} >= 1"),
        ("| 16 s[{0}] += e[{0},{1}]", "| 16 s[{0}] += e[{0},0]"),
        ("| 16 s[{0}] += e[{0},{1}]", "| 16 s[{0}] += e[7-{0},0]"),
        ("| s[{0}] = 0", "| s[{0}] = -1"),
        ("exp(x[{0},{1}] - m[{0}])", "exp(x[{0},{1}] - m[7-{0}])"),
        ("exp(x[{0},{1}] - m[{0}])", "exp(m[{0}] - x[{0},{1}])"),
        ("exp(x[{0},{1}] - m[{0}])", "-exp(x[{0},{1}] - m[{0}])"),
        ("exp(x[{0},{1}] - m[{0}])", "exp((x[{0},{1}] - m[{0}]) * w[{0},{1}])"),
        ("exp(x[{0},{1}] - m[{0}])", "exp(1 / (x[{0},{1}] - m[{0}]))"),
        ("exp(x[{0},{1}] - m[{0}])", "exp((x[{0},{1}] - m[{0}]) * -2)"),
        ("| m[{0}] = -inf", "| m[{0}] = 100"),  # more than the elements
        ("8 16 e[", "8 m[{0}] = m[{0}] + 200\n8 16 e["),
        ("8\n| s[", "8 16 e[{0},{1}] = e[{0},{1}] * 1e-30\n8\n| s["),
        ("8 16 y[", "8 s[{0}] = s[{0}] * 1e-38\n8 16 y["),
        ("8 16 y[", "8 s[{0}] += -1\n8 16 y["),
        ("8 16 y[", "8 s[{0}] min= 0\n8 16 y["),
    ],
)  # fmt: skip
def test_other_sums_prove_nothing(right: str, wrong: str) -> None:
    assert right in SOFTMAX
    assert not proved(program(SOFTMAX.replace(right, wrong)))


def test_a_sum_that_is_not_complete_when_it_divides() -> None:
    """The first exponentials alone may vanish."""
    running = SOFTMAX.replace("8 16 y[{0},{1}]", "| 16 y[{0},{1}]").replace(
        "| 16 s[{0}] += e[{0},{1}]\n| 16 y", "| 16\n| | s[{0}] += e[{0},{1}]\n| | y"
    )
    assert "| | y[" in running and not proved(program(running))


def test_one_cell_for_all_exponentials() -> None:
    """Every term of the sum is the last exponential if the row of them shares one cell."""
    assert not proved(program("e f32 [8,16:N] heap\n" + SOFTMAX))
    diagonal = """
m f32 [16] heap
16 m[{0}] = -inf
16 16 m[{0}] max= x[{0},{1}]
16 e[{0}] = exp(x[{0},{0}] - m[{0}])
s[0] = 0
16 s[0] += e[{0}]
16 y[{0}] = e[{0}] / s[0]
"""
    assert not proved(program(diagonal)), "none of these has to be the largest of its row"


def test_a_sum_of_an_input_may_be_anything() -> None:
    """No statement writes the terms of this sum, so nothing is known about their values."""
    start = program("s[0] = 0\n8 s[0] += x[{0}]\n8 y[{0}] = x[{0}] / s[0]")
    assert not proved(start)
    assert "select(abs(s[0]) < " in RULES.step(start, move("stage_reciprocal(s1, array=s)")).after.text
