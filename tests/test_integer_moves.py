"""Moves on whole numbers: typed identities, exact results, and no law of the reals."""

from __future__ import annotations

from random import Random

import pytest
from snippets import DIALECT, RULES, like, move, program

from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, integer_bounds
from perfdojo_sdk.core.laws import FLUSHED, LAWS, SQUARES, TO_ODD, holds
from perfdojo_sdk.core.operations import ACCUMULATIONS, identity
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Rejection, Trace
from perfdojo_sdk.core.transformations.factoring import FactorReduction
from perfdojo_sdk.core.transformations.laws import RebaseSquares
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace

SIGNS = tuple(ACCUMULATIONS.items())


def rows(dtype: str, start: str, step: str, more: str = "") -> Program:
    head = f"x {dtype} [3,8] heap\nc {dtype} [3] heap\ny {dtype} [3] heap\n"
    return program(f"{head}3\n| y[{{0}}] = {start}\n| 8 y[{{0}}] {step}{more}")


def sound(trace: Trace) -> None:
    for step in trace.steps:
        well_made(step.after)
    exact, proof = verify_exact_trace(trace, DIALECT), verify_dependence_trace(trace, RULES)
    assert exact.ok, f"{exact.problem}\n{trace.program}"
    assert proof.ok, f"{proof.problem}\n{trace.program}"


def well_made(made: Program) -> None:
    assert list(violations(made, DIALECT)) == [], made.text
    assert parse(made.text, DIALECT) == made, made.text


@pytest.mark.parametrize("dtype", [*INTEGER_DTYPES, "bool"])
@pytest.mark.parametrize(("operation", "sign"), SIGNS)
def test_partial_results_start_at_the_identity_of_their_dtype(dtype: str, operation: str, sign: str) -> None:
    if dtype == "bool" and operation in ("add", "mul"):
        return  # neither is an operation of it
    start = rows(dtype, "1", f"{sign} x[{{0}},{{1}}]")
    trace = Trace(start).play(RULES, move("split_reduction(s1, lane=s1)"))
    low, high = integer_bounds(dtype)
    wanted = {"add": 0, "mul": 1, "max": low, "min": high}[operation]
    assert f"y_p[{{0}},{{1}}] = {wanted}\n" in trace.program.text and identity(operation, dtype) == wanted
    sound(trace)


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
def test_a_common_factor_leaves_a_wrapping_sum(dtype: str) -> None:
    """a*c + b*c = (a+b)*c holds modulo 2^n, so the random integers of leg 1 agree to the bit."""
    start = rows(dtype, "0", "+= x[{0},{1}] * c[{0}]")
    sound(Trace(start).play(RULES, move("factor_reduction(s1)")))


SQUARES_OF_INTEGERS = """
x i32 [4,8] heap
c i32 [4] heap
t i32 [4] heap
q i32 [4] heap
y i32 [4] heap
4
| t[{0}] = 0
| 8 t[{0}] += x[{0},{1}]
| q[{0}] = 0
| 8 q[{0}] += (x[{0},{1}] - c[{0}]) * (x[{0},{1}] - c[{0}])
| y[{0}] = q[{0}] + t[{0}]
"""

REBASED = SQUARES_OF_INTEGERS.replace(
    "| 8 q[{0}] += (x[{0},{1}] - c[{0}]) * (x[{0},{1}] - c[{0}])",
    "| m[{0}] = t[{0}] / 8\n"
    "| 8 q[{0}] += (x[{0},{1}] - m[{0}]) * (x[{0},{1}] - m[{0}])\n"
    "| q[{0}] += (m[{0}] - c[{0}]) * (m[{0}] - c[{0}]) * 8",
).replace("q i32", "m i32 [4] heap\nq i32")


def test_whole_numbers_have_no_mean() -> None:
    """The check refuses the move, and the exact leg its result."""
    start = program(SQUARES_OF_INTEGERS)
    answer = RULES.attempt(start, move("rebase_squares(s2, sum=t)"))
    assert isinstance(answer, Rejection) and answer.requirement.code == "PD-T287"
    assert not verify_exact(start, program(REBASED), {SQUARES}, DIALECT).ok


def test_leg_three_refuses_laws_of_reals_on_whole_numbers() -> None:
    """The very relation that is proved for f32 is refuted for i32, because of the dtype alone."""
    start = program(SQUARES_OF_INTEGERS.replace("i32", "f32"))
    step = RULES.step(start, move("rebase_squares(s2, sum=t)"))
    relation, legal = RULES.relation(step), step.legal
    assert verify_dependence(start, step.after, relation, DIALECT, legal.kind, legal.laws).ok
    before, after = (like(p, p.text.replace("f32", "i32")) for p in (start, step.after))
    report = verify_dependence(before, after, relation, DIALECT, legal.kind, legal.laws)
    assert not report.ok and f"that i32 does not obey: {SQUARES}" in report.problem


def test_every_law_says_where_it_holds() -> None:
    """A law that is declared for all dtypes is tested on integers here."""
    assert {law for law in LAWS if holds(law, "i32")} == {FactorReduction.requirements[0].law}
    assert RebaseSquares.requirements[0].law in LAWS
    transformations = RULES.transformations.values()
    declared = {r.law for t in transformations for r in t.requirements if r.law}
    # Which sums in groups take small numbers for zeros is known at the site.
    assert {law for law in declared if "(x) =" not in law} | {FLUSHED, TO_ODD} == set(LAWS)


def integers(rng: Random) -> Program:
    """A small program of whole numbers: what moves with identities, constants and laws look for."""
    dtype = rng.choice(INTEGER_DTYPES)
    operation, sign = rng.choice(SIGNS)
    literal = rng.choice(integer_bounds(dtype))
    x, c = "x[{0},{1}]", "c[{0}]"
    terms = (x, f"{x} * {c}", f"{x} * {c} * {{1}}", f"({x} - {c}) * ({x} - {c})", f"max({x}, {literal})",
             f"{x} / 3 + t[{{0}},{{1}}]", f"select({x} > {literal}, {{1}}, {x})")  # fmt: skip
    head = f"x {dtype} [4,6] heap\nc {dtype} [4] heap\nt {dtype} [4,6] heap\ny {dtype} [4] heap\n"
    head += f"z {dtype} [4,6] heap\n"
    start = rng.choice((str(identity(operation, dtype)), "c[{0}]", "1"))
    guard = rng.choice(("", "", " if {1} >= 2"))
    return program(
        f"{head}4 6 t[{{0}},{{1}}] = x[{{0}},{{1}}] - {rng.choice(('1', '{1}', 'c[{0}]'))}\n"
        f"4\n| y[{{0}}] = {start}\n| 6 y[{{0}}] {sign} {rng.choice(terms)}{guard}\n"
        f"4 6 z[{{0}},{{1}}] = t[{{0}},{{1}}] * y[{{0}}]",
        "y",
    )


@pytest.mark.parametrize("seed", range(12))
def test_what_any_offered_move_makes_is_well_formed_and_reads_back(seed: int) -> None:
    rng = Random(seed)
    start = integers(rng) if seed % 3 else random_program(rng, 4)
    trace = random_walk(rng, start, RULES, 3)
    for before in {step.before.text: step.before for step in trace.steps}.values():
        for step in RULES.steps(before, max(Kind)):
            well_made(step.after)
            if seed % 3 and rng.random() < 0.1:
                exact = verify_exact(step.before, step.after, step.legal.laws, DIALECT, models=1)
                assert exact.ok, f"{step.move.text}: {exact.problem}\n{before}"


# -- the order of sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize(("operation", "sign"), SIGNS)
def test_no_order_changes_an_integer(dtype: str, operation: str, sign: str) -> None:
    start = rows(dtype, "1", f"{sign} x[{{0}},{{1}}]")
    for played in ("split_reduction(s1, lane=s1)", "annotate_scope(s1, suffix=v)"):
        found = RULES.attempt(start, move(played))
        if isinstance(found, Rejection):
            assert played.startswith("annotate"), found.why
            continue
        assert found.legal.kind is Kind.EXACT and not found.legal.laws
        sound(Trace(start, (found,)))


def ordered_by(dtype: str, term: str, more: str = "") -> Kind:
    """The kind of a move that adds up terms in another order."""
    head = f"x i32 [4,8] heap\nf f32 [4,8] heap\ny {dtype} [8] heap\nz f32 [1] heap\n"
    text = f"{head}8 y[{{0}}] = 0\n8 4 y[{{0}}] += {term}\n{more}"
    step = RULES.step(program(text), move("split_reduction(s2, lane=s2)"))
    sound(Trace(step.before, (step,)))
    return step.legal.kind


def test_what_is_added_up_decides_and_not_what_it_is_made_of() -> None:
    assert ordered_by("i32", "x[{1},{0}]") is Kind.EXACT
    assert ordered_by("i32", "i32(f[{1},{0}])") is Kind.EXACT, "each term is converted by itself"
    assert ordered_by("i32", "max(min(x[{1},{0}], 127), -128)") is Kind.EXACT, "each term saturates by itself"
    assert ordered_by("f32", "f32(x[{1},{0}])") is Kind.REASSOCIATES, "the sum is one of floats"
    assert ordered_by("f32", "f[{1},{0}]") is Kind.REASSOCIATES


def test_integers_beside_sums_of_floats_are_declared_with_them() -> None:
    """The dependence leg follows all accumulations of a program in order, or none."""
    assert ordered_by("i32", "x[{1},{0}]", "z[0] = 0\n8 z[0] += f[0,{0}]\n") is Kind.REASSOCIATES
    assert ordered_by("i32", "x[{1},{0}]", "z[0] = f[0,0] + 1.5\n") is Kind.EXACT
