"""Moves that give a factor of a sum another sign, keep it short, and compute once what iterations share."""

from __future__ import annotations

from random import Random

import pytest
from snippets import DIALECT, RULES, like, move, play, program, refusal, tree

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.laws import FACTOR
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.relation import Instance, Relation, Remainder
from perfdojo_sdk.core.transformation import Kind, Move, Rejection, Step, Trace
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace

BYTES = """a i8 [4,6] heap
b i8 [6,5] heap
y i32 [4,5] heap
4 5
| y[{0},{1}] = 0
| 6 y[{0},{1}] += i32(a[{0},{2}]) * i32(b[{2},{1}])"""

SHIFTED = BYTES.replace("6 y", "6\n| | y").replace(
    "i32(a[{0},{2}]) * i32(b[{2},{1}])",
    "(i32(a[{0},{2}]) + 128) * i32(b[{2},{1}])\n| | y[{0},{1}] += i32(b[{2},{1}]) * -128",
)

LEVELS = tuple(map(AffineExpr.level, range(3)))


def passes(trace: Trace) -> bool:
    exact = verify_exact_trace(trace, DIALECT, models=2)
    return exact.ok and bool(verify_dependence_trace(trace, RULES))


def proof(before: Program, after: Program, relation: Relation) -> str:
    return verify_dependence(before, after, relation, DIALECT, Kind.EXACT).problem


# -- shift_factor ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["by=128, factor=0", "by=3, factor=1", "by=2147483647, factor=0"])
def test_a_shifted_factor_changes_no_bit(number: str) -> None:
    trace = Trace(program(BYTES)).play(RULES, move(f"shift_factor(c1, {number})"))
    assert trace.kind is Kind.EXACT and not trace.laws and passes(trace)
    ends = {"a": [-128, 127] * 12, "b": [-128] * 15 + [127] * 15}
    assert interpret(trace.root, ends, ROUNDING, DIALECT) == interpret(trace.program, ends, ROUNDING, DIALECT)


@pytest.mark.parametrize(
    ("was", "now", "found"),
    [
        ("* -128", "* -127", "does not take away"),
        ("+ 128", "- 128", "does not take away"),
        ("i32(b[{2},{1}]) * -128", "i32(b[{2},0]) * -128", "which is something else than"),
        ("i32(b[{2},{1}]) * -128", "i32(a[{0},{2}]) * -128", "which is something else than"),
        ("| | y[{0},{1}] += i32(b", "| | y[{0},0] += i32(b", "adds onto something else"),
        ("* -128", "* -128 if {2} >= 1", "and sees a sum from which nothing is taken away"),
        (
            "(i32(a[{0},{2}]) + 128) * i32(b[{2},{1}])",
            "(i32(a[{0},0]) + 128) * i32(b[{2},{1}])",
            "before the",
        ),
    ],
)
def test_leg_three_refuses_what_takes_away_something_else(was: str, now: str, found: str) -> None:
    before, relation = program(BYTES), {"c2": Remainder("c1")}
    assert proof(before, program(SHIFTED), relation) == ""
    wrong = program(SHIFTED.replace(was, now))
    assert found in proof(before, wrong, relation)
    assert not verify_exact(before, wrong, frozenset(), DIALECT, models=1).ok


def test_a_remainder_is_one_of_integers() -> None:
    before, after = (program(text.replace("i32", "f32")) for text in (BYTES, SHIFTED))
    assert "is no Remainder" in proof(before, after, {"c2": Remainder("c1")})


def test_nothing_may_read_the_sum_in_between() -> None:
    more = "\n| | t[{0},{1},{2}] = f32(y[{0},{1}])"
    before = program(BYTES.replace("6 y", "6\n| | y") + more, outputs="y")
    after = program(SHIFTED.replace("i32(b[{2},{1}])\n", f"i32(b[{{2}},{{1}}]){more}\n"), outputs="y")
    assert "nothing is taken away yet" in proof(
        before, after, {"c2": Instance("c2", LEVELS), "c3": Remainder("c1")}
    )


# -- narrow_integer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "dtype", "fits"),
    [
        ("i32(a[{0}]) + 128", "u8", True),
        ("i32(a[{0}]) + 127", "u8", False),
        ("i32(a[{0}]) * i32(a[{0}])", "i16", True),
        ("i32(a[{0}]) * i32(a[{0}]) * 2", "u16", False),
        ("max(min(k[{0}], 127), -128)", "i8", True),
        ("max(min(k[{0}], 127), -128)", "u8", False),
        ("0 - i32(a[{0}])", "i8", False),
        ("i32(i8(k[{0}])) - i32(a[{0}])", "i16", True),
        ("k[{0}] * 2", "i16", False),
    ],
)
def test_only_a_dtype_that_holds_every_value_stands_between(term: str, dtype: str, fits: bool) -> None:
    """By the move, and by the dependence leg without it."""
    head = "a i8 [8] heap\nk i32 [8] heap\ny i32 [8] heap\n"
    start = program(f"{head}8 y[{{0}}] = {term}")
    assert refusal(start, f"narrow_integer(c0, dtype={dtype}, term=0)") == ("" if fits else "PD-T693")
    narrowed = program(f"{head}8 y[{{0}}] = i32({dtype}({term}))")
    assert (proof(start, narrowed, {}) == "") == fits


# -- run_once ----------------------------------------------------------------------------------------

ALIKE = """4 8
| t[{0},{1}] = 0
| 16 t[{0},{1}] += w[{1},{2}]
4 8 y[{0},{1}] = x[{0},{1}] + t[3-{0},{1}]"""
ONCE = """8
| t[0,{0}] = 0
| 16 t[0,{0}] += w[{0},{1}]
4 8 y[{0},{1}] = x[{0},{1}] + t[0,{1}]"""


def once(level: int = 0, last: int = 0) -> Relation:
    number, one, two = AffineExpr.of({}, last), AffineExpr.level(0), AffineExpr.level(1)
    return {
        "c0": Instance("c0", (number, one), repeated=level),
        "c1": Instance("c1", (number, one, two), repeated=level),
    }


def test_what_all_iterations_do_is_done_once() -> None:
    trace = Trace(program(ALIKE)).play(RULES, move("run_once(s0)"))
    assert tree(trace.program) == ONCE and trace.kind is Kind.EXACT and passes(trace)
    assert proof(trace.root, trace.program, once(last=3)) == "", "any iteration stands for all"


@pytest.mark.parametrize(
    ("before", "after", "relation", "found"),
    [
        (ALIKE.replace("w[{1},{2}]", "w[{1},{2}] * x[{0},{1}]"),
         ONCE.replace("w[{0},{1}]", "w[{0},{1}] * x[0,{0}]"), once(),
         "which is not the same in all iterations"),
        (ALIKE.replace("w[{1},{2}]", "w[{1},{2}] * {0}"), ONCE.replace("w[{0},{1}]", "w[{0},{1}] * 0"),
         once(), "which is not the same in all iterations"),
        (ALIKE.replace("w[{1},{2}]", "w[{1},{2}] if {0} <= 2"), ONCE, once(last=3), "does not run it"),
        (ALIKE, ONCE, once(last=4), "does not run it"),
        (ALIKE, ONCE, once(level=1), "no single iteration"),
        (ALIKE, ONCE, once(level=5), "names level 5"),
        (ALIKE.replace("t[{0},{1}] +=", "t[0,{1}] +=").replace("t[3-{0},{1}]", "t[0,{1}]"), ONCE, once(),
         "which is not the same in all iterations"),
        (ALIKE.replace("| t[{0},{1}] = 0\n", "").replace("4 8\n", "4 8 t[{0},{1}] = 0\n4 8\n").replace(
            "t[{0},{1}] +=", "t[0,{1}] +="), ONCE, once(), "which is not the same in all iterations"),
    ],
)  # fmt: skip
def test_leg_three_refuses_what_is_no_repetition(
    before: str, after: str, relation: Relation, found: str
) -> None:
    assert found in proof(program(before), program(after), relation)


def test_a_repetition_keeps_the_order_of_sums() -> None:
    start, end = program(ALIKE), program(ONCE)
    report = verify_dependence(start, end, once(), DIALECT, Kind.REASSOCIATES)
    assert "changes the order of sums" in report.problem


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (ALIKE.replace("w[{1},{2}]", "w[{0},{2}]"), "PD-T702"),
        (ALIKE.replace("w[{1},{2}]", "w[{1},{2}] if {0} <= 2"), "PD-T702"),
        (ALIKE.replace("w[{1},{2}]", "w[{1},{2}] * f32({0})"), "PD-T702"),
        (ALIKE.replace("+= w", "+= t[0,{1}] * w"), "PD-T703"),
        ("4 8 y[{0},{1}] = w[{1}]", "PD-T703"),
        ("8 t[{0}] = 0\n4 8 t[{1}] = w[{1}]\n8 y[{0}] = t[{0}]", "PD-T703"),
        ("4 8 t[{0},{1}] = w[{1}]\nt[3,0] = 1\n4 8 y[{0},{1}] = t[{0},{1}]", "PD-T703"),
    ],
)
def test_iterations_that_differ_stay(text: str, code: str) -> None:
    start = program(text)
    scope = "s1" if text.startswith("8 t") else "s0"
    assert refusal(start, f"run_once({scope})") == code


def test_results_that_are_the_same_for_all_iterations_need_no_copies() -> None:
    start = program("4 8\n| y[{1}] = 0\n| 16 y[{1}] += w[{1},{2}]")
    assert tree(play(start, "run_once(s0)")) == "8\n| y[{0}] = 0\n| 16 y[{0}] += w[{0},{1}]"


# -- together ----------------------------------------------------------------------------------------


def test_a_product_of_bytes_with_one_sign_becomes_one_of_both() -> None:
    """By small moves, which sum once for each column what is too much."""
    trace = Trace(program(BYTES))
    for each in (
        "shift_factor(c1, by=128, factor=0)", "narrow_integer(c1, dtype=u8, term=1)",
        "fission_scope(c1.fix)", "factor_reduction(s2.c1.fix)",
        "reorder_statements(s2)", "reorder_statements(c0)",
        "reorder_statements(s2)", "reorder_statements(c0)",
        "fission_scope(c0)", "fission_scope(s1.c0)", "run_once(s0)",
    ):  # fmt: skip
        trace = trace.play(RULES, move(each))
    assert tree(trace.program).splitlines() == [
        "5",
        "| y_f[0,{0}] = 0",
        "| 6 y_f[0,{0}] += i32(b[{1},{0}])",
        "4 5",
        "| y[{0},{1}] = 0",
        "| 6 y[{0},{1}] += i32(u8(i32(a[{0},{2}]) + 128)) * i32(b[{2},{1}])",
        "| y[{0},{1}] += y_f[0,{1}] * -128",
    ]
    assert trace.laws == {FACTOR} and passes(trace)


@pytest.mark.parametrize("name", ["shift_factor", "narrow_integer", "run_once"])
def test_random_places(name: str) -> None:
    """Each place where a move is legal, after other moves, passes both legs."""
    transformation, found = RULES.transformation(name), 0
    for seed in range(400):
        rng = Random(seed)
        start = random_walk(rng, random_program(rng, 3), RULES, rng.randrange(6)).program
        for each in transformation.candidates(start, DIALECT):
            step = RULES.attempt(start, each)
            if isinstance(step, Step):
                found += 1
                assert like(step.after, step.after.text).text == step.after.text
                assert verify_exact(start, step.after, step.legal.laws, DIALECT, models=1).ok, each.text
                report = verify_dependence(start, step.after, RULES.relation(step), DIALECT, step.legal.kind)
                assert report, f"{each.text}: {report.problem}"
        if found >= 12:
            return
    assert found >= 12


@pytest.mark.parametrize(
    ("text", "played", "code", "said"),
    [
        (BYTES, "factor=0, by=0", "PD-T682", "0 changes nothing"),
        (
            BYTES,
            "factor=0, by=0",
            "PD-T682",
            "from -2147483647 to 2147483647; 128 gives the factor's numbers",
        ),
        (BYTES, f"factor=0, by={1 << 31}", "PD-T682", "i32 holds numbers from -2147483648 to 2147483647"),
        (BYTES, "factor=2, by=128", "PD-T681", "has no factor 2"),
        (BYTES, "factor=2, by=128", "PD-T681", "0 is i32(a[{0},{2}]), 1 is i32(b[{2},{1}])"),
        (BYTES.replace("+=", "max="), "factor=0, by=128", "PD-T681", "adds no product of two integers"),
        (BYTES.replace("i32", "u32"), "factor=0, by=128", "PD-T682", "none, as u32 has no sign"),
    ],
)
def test_a_number_that_cannot_be_added_is_answered_with_those_that_can(
    text: str, played: str, code: str, said: str
) -> None:
    given = dict(word.split("=") for word in played.split(", "))
    asked = Move.of("shift_factor", "c1", factor=int(given["factor"]), by=int(given["by"]))
    found = RULES.attempt(program(text), asked)
    assert isinstance(found, Rejection) and found.code == code and said in f"{found.why} {found.hint}"
