"""Moves that change precision: rounded values, permission, and the legs that notice undeclared roundings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snippets import DIALECT, RULES, move, program, tree

from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Instance, Kind, Trace
from perfdojo_sdk.verify import modular_vm
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import ExactReport, verify_exact, verify_exact_trace

LAW = rounding_law("bf16")
PRODUCT = """4 8
| c[{0},{1}] = 0
| 16 c[{0},{1}] += a[{0},{2}] * b[{2},{1}]"""
#: Copies of both operands, rounded.
GAME = (
    "stage_read(s0, array=a)",
    "stage_read(s0, array=b)",
    "lower_precision(a_r, dtype=bf16)",
    "lower_precision(b_r, dtype=bf16)",
)


def lowered(text: str, name: str = "t", dtype: str = "bf16") -> Trace:
    return Trace(program(text)).play(RULES, move(f"lower_precision({name}, dtype={dtype})"))


@pytest.mark.parametrize(
    ("dtype", "law"),
    [("bf16", "bf16(x) = x*(1+d), |d| <= 2^-8"), ("tf32", "tf32(x) = x*(1+d), |d| <= 2^-11")],
)
def test_the_law_names_the_unit_roundoff(dtype: str, law: str) -> None:
    assert rounding_law(dtype) == law
    game = [text.replace("bf16", dtype) for text in GAME]
    trace = Trace(program(PRODUCT)).play_all(RULES, map(move, game))
    assert trace.kind is Kind.CHANGES_PRECISION and trace.laws == {law}
    assert "c[{0},{1}] += f32(a_r[{0},{2}]) * f32(b_r[{1},{2}])" in tree(trace.program)
    assert parse(trace.program.text, DIALECT) == trace.program
    exact, sets = verify_exact_trace(trace, DIALECT), verify_dependence_trace(trace, RULES)
    assert exact.ok and sets.ok, (exact.problem, sets.problem)


def test_nobody_is_offered_it_unasked() -> None:
    start = program("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}] * t[{0}]")
    asked = [s.move.text for s in RULES.steps(start, Kind.CHANGES_PRECISION)]
    unasked = [s.move.text for s in RULES.steps(start)]
    assert set(asked) - set(unasked) == {"lower_precision(t, dtype=bf16)", "lower_precision(t, dtype=tf32)"}
    narrow = replace(RULES, dialect=replace(DIALECT, roundings=frozenset(("bf16",))))
    assert {*asked} - {s.move.text for s in narrow.steps(start, Kind.CHANGES_PRECISION)} == {
        "lower_precision(t, dtype=tf32)"
    }
    plain = replace(RULES, dialect=replace(DIALECT, roundings=frozenset()))
    assert [s.move.text for s in plain.steps(start, Kind.CHANGES_PRECISION)] == unasked


@pytest.mark.parametrize(
    "before, after",
    [
        ("8 t[{0}] = 0\n8 y[{0}] = t[{0}] + x[{0}]", "8 t[{0}] = 0\n8 y[{0}] = f32(t[{0}]) + x[{0}]"),
        (
            "8 t[{0}] = select(x[{0}] < 0, 1, x[{0}])\n8 y[{0}] = exp(t[{0}])",
            "8 t[{0}] = bf16(select(x[{0}] < 0, 1, x[{0}]))\n8 y[{0}] = exp(f32(t[{0}]))",
        ),
        (
            "t f32 [2] heap -> t, u\n8\n| t[0] = x[{0}]\n| u[1] = t[0] * 2\n| y[{0}] = u[1]",
            "8\n| t[0] = bf16(x[{0}])\n| u[1] = bf16(f32(t[0]) * 2)\n| y[{0}] = f32(u[1])",
        ),
    ],
)
def test_all_arrays_of_the_buffer_are_rounded(before: str, after: str) -> None:
    trace = lowered(before)
    assert tree(trace.program) == after
    exact, sets = verify_exact_trace(trace, DIALECT), verify_dependence_trace(trace, RULES)
    assert exact.ok and sets.ok, (exact.problem, sets.problem)


def test_what_was_rounded_once_is_not_rounded_again() -> None:
    trace = lowered("8 t[{0}] = x[{0}]\n8 u[{0}] = t[{0}]\n8 y[{0}] = u[{0}]")
    trace = trace.play(RULES, move("lower_precision(u, dtype=bf16)"))
    assert tree(trace.program).splitlines()[1] == "8 u[{0}] = t[{0}]"
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES).ok


def judged(before: Program, after: Program, laws: frozenset[str] = frozenset((LAW,))) -> ExactReport:
    return verify_exact(before, after, laws, DIALECT)


@pytest.mark.parametrize("engine", ["C", "interpreter"])
def test_the_exact_leg_sees_roundings_that_nobody_declared(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "interpreter":
        monkeypatch.setattr(modular_vm, "available", lambda: False)
    [step] = lowered("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}] * t[{0}]").steps
    assert judged(step.before, step.after).ok
    assert not judged(step.before, step.after, frozenset()).ok
    for dtype in ("f16", "tf32"):
        other = parse(step.after.text.replace("bf16", dtype), DIALECT)
        assert not judged(step.before, other).ok, "another dtype than the one that was declared"
        assert judged(step.before, other, frozenset((rounding_law(dtype),))).ok
    through_half = step.after.text.replace("bf16(x[{0}])", "bf16(f16(x[{0}]))").replace("bf16", "tf32")
    narrow = judged(step.before, parse(through_half, DIALECT), frozenset((rounding_law("tf32"),)))
    assert not narrow.ok, "as many digits, and a smaller range"
    other = parse(step.after.text.replace("* f32", "+ f32"), DIALECT)
    assert not judged(step.before, other).ok, "the law excuses nothing else"


def test_an_infinity_stays_one_when_it_is_rounded() -> None:
    """Also where nothing is declared: the step after the one that rounds has no law."""
    start = program("4\n| t[{0}] = -inf\n| m[{0}] = t[{0}]\n| 8 m[{0}] max= x[{0},{1}]")
    trace = Trace(start).play(RULES, move("lower_precision(t, dtype=bf16)"))
    trace = trace.play(RULES, move("annotate_scope(s1, suffix=u)"))
    report = verify_exact_trace(trace, DIALECT)
    assert report.ok, report.problem


def test_the_dependence_leg_knows_which_statements_round() -> None:
    """Under the law no model sees any rounding to bf16: these proofs are what holds a move to its word."""
    [step] = lowered("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}] * t[{0}]\n8 z[{0}] = x[{0}]").steps
    relation = RULES.relation(step)
    assert {name: o.rounded for name, o in relation.items() if isinstance(o, Instance)} == {
        "c0": "bf16", "c1": "bf16",
    }  # fmt: skip

    def proved(after: Program, laws: frozenset[str] = step.legal.laws) -> bool:
        return verify_dependence(step.before, after, relation, DIALECT, step.legal.kind, laws).ok

    assert proved(step.after) and not proved(step.after, frozenset())
    mutants = {
        "z[{0}] = x[{0}]": "z[{0}] = f32(bf16(x[{0}]))",  # rounds what it did not declare
        "f32(t[{0}]) * f32(t[{0}])": "f32(t[{0}] * t[{0}])",  # works in the shorter dtype
        "bf16(x[{0}])": "bf16(f32(f16(x[{0}])))",  # rounds to another one on the way
        "= bf16(x[{0}])": "= bf16(f32(tf32(x[{0}])))",
    }
    for old, new in mutants.items():
        assert step.after.text.count(old) == 1
        wrong = parse(step.after.text.replace(old, new), DIALECT)
        assert not proved(wrong), new


def test_the_dependence_leg_refuses_sums_in_the_shorter_dtype() -> None:
    """The law is about values on their way to a cell; a sum would be rounded at each of its steps."""
    start = program("4\n| t[{0}] = x[{0},0]\n| 8 t[{0}] += x[{0},{1}]\n4 y[{0}] = t[{0}]")
    careless = RULES.transformations["lower_precision"].without("PD-T604")
    rules = replace(RULES, transformations={**RULES.transformations, "lower_precision": careless})
    trace = Trace(start).play(rules, move("lower_precision(t, dtype=bf16)"))
    report = verify_dependence_trace(trace, rules)
    assert not report.ok and "rounds a sum at each of its steps" in report.problem


def test_later_moves_work_on_rounded_buffers() -> None:
    start = program("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}] * t[{0}]")
    trace = Trace(start).play(RULES, move("lower_precision(t, dtype=bf16)"))
    for text in ("join_scopes(s0)", "reuse_dims(t, dim=0)", "split_scope(s0, factor=4)"):
        trace = trace.play(RULES, move(text))
    assert "t bf16 [8:N] heap" in trace.program.text
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES).ok
