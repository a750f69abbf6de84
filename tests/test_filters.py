"""Filters by fewer products: the schemes are identities, and no other sums pass for them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import pytest
from snippets import DIALECT, RULES, like, move, program, random_filter

from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.laws import FILTER
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Bundle, Kind, PointProduct, Step
from perfdojo_sdk.core.transformations.filtering import scheme
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace

ROWS = """
4
| 2 y[{0}*2+{1}] = 0
| 2 8 3 y[{0}*2+{1}] += x[{2},{0}*2+{1}+{3}] * w[{2},{3}]
"""


@pytest.mark.parametrize(("outputs", "taps"), [(2, 2), (2, 3), (3, 2)])
def test_a_scheme_is_the_filter(outputs: int, taps: int) -> None:
    found = scheme(outputs, taps)
    assert found is not None and len(found.data) == outputs + taps - 1 < outputs * taps
    for s, i, k in product(range(outputs), range(outputs + taps - 1), range(taps)):
        parts = zip(found.outputs[s], found.data, found.taps, found.divisors, strict=True)
        total = sum(Fraction(a * data[i] * tap[k], divisor) for a, data, tap, divisor in parts)
        assert total == (i == s + k), "output s is the sum of x[s+k] * w[k]"


@pytest.mark.parametrize(("outputs", "taps"), [(1, 3), (3, 1), (3, 3), (2, 5)])
def test_other_sizes_have_none(outputs: int, taps: int) -> None:
    assert scheme(outputs, taps) is None


def filtered(text: str = ROWS, played: str = "minimal_filter(s2, taps=s4)") -> Step:
    step = RULES.attempt(program(text), move(played))
    assert isinstance(step, Step), str(step)
    return step


@pytest.mark.parametrize(
    ("text", "played"),
    [
        (ROWS, "minimal_filter(s2, taps=s4)"),
        ("3 y[{0}] = 0\n3 2 y[{0}] += x[{0}+{1}] * w[{1}]", "minimal_filter(s1, taps=s2)"),
        ("4 y[{0}] = 0\n2 3 4 y[{0}+2] += w[{1},{2}] * x[{0}+{1}+1,{2}]", "minimal_filter(s1, taps=s2)"),
        ("4 2 y[{0},{1}] = 0\n4 2 3 5 y[{0},{1}] += x[{1}+{2},{3}] * w[{2}]", "minimal_filter(s3, taps=s4)"),
        ("2 y[{0}] = 1\n2 2 y[{0}] += x[{0}+{1}] * w[0]", "minimal_filter(s1, taps=s2)"),
    ],
    ids=["rows", "three outputs", "taps first", "taps outside", "one weight"],
)
def test_both_legs_agree(text: str, played: str) -> None:
    step = filtered(text, played)
    assert step.legal.kind is Kind.DECLARED_LAW and step.legal.laws == {FILTER}
    assert verify_exact(step.before, step.after, step.legal.laws, DIALECT).ok
    relation = RULES.relation(step)
    report = verify_dependence(step.before, step.after, relation, DIALECT, step.legal.kind, step.legal.laws)
    assert report.ok, report.problem


@pytest.mark.parametrize("seed", range(60))
def test_whatever_filter_it_is(seed: int) -> None:
    rng = Random(seed)
    start = random_filter(rng)
    moves = [m for m in RULES.candidates(start) if m.transformation == "minimal_filter"]
    steps = [step for m in moves if isinstance(step := RULES.attempt(start, m), Step)]
    for step in steps:
        assert verify_exact(step.before, step.after, step.legal.laws, DIALECT, models=1).ok
        assert not problem(step)
        # What random moves make of it is judged as well.
        walk = random_walk(rng, step.after, RULES, 6)
        assert verify_dependence_trace(walk, RULES).ok and verify_exact_trace(walk, DIALECT).ok


def test_random_filters_are_filters() -> None:
    """The test above looks at something: of sixty nests most have the sizes of a scheme."""
    found = 0
    for seed in range(60):
        start = random_filter(Random(seed))
        moves = [m for m in RULES.candidates(start) if m.transformation == "minimal_filter"]
        found += any(isinstance(RULES.attempt(start, m), Step) for m in moves)
    assert found >= 40


def problem(step: Step, after: Program | None = None, **changes: object) -> str:
    """The answer of the dependence leg to another program, or to another relation."""
    relation = {**RULES.relation(step), **changes}
    laws = step.legal.laws
    return verify_dependence(
        step.before,
        after or step.after,
        relation,
        DIALECT,
        step.legal.kind,
        laws,  # type: ignore[arg-type]
    ).problem


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("x[{1},{0}*2+1] + x[{1},{0}*2+2]", "x[{1},{0}*2+1] - x[{1},{0}*2+2]", "another sum than output"),
        ("w[{1},2]) / 2", "w[{1},2]) / 4", "another sum than output"),
        ("x[{1},{0}*2+3] - x", "x[{1},{0}*2+2] - x", "another sum than output"),
        (
            "(x[{1},{0}*2+2] - x[{1},{0}*2]) * w[{1},0]",
            "(x[0,{0}*2+2] - x[{1},{0}*2]) * w[{1},0]",
            "no output",
        ),
        (
            "y[{0}*2] += y_q[{0},1] + y_q[{0},2]",
            "y[{0}*2] += y_q[{0},1] + y_q[{0},3]",
            "another sum than output",
        ),
        ("y_q[{0},3] = 0", "y_q[{0},3] = 1", "no sum of a product"),
    ],
)
def test_other_sums_are_refuted(old: str, new: str, words: str) -> None:
    step = filtered()
    assert step.after.text.count(old) == 1
    assert words in problem(step, like(step.after, step.after.text.replace(old, new)))


def test_a_law_that_is_not_declared_is_not_used() -> None:
    step = filtered()
    report = verify_dependence(step.before, step.after, RULES.relation(step), DIALECT, step.legal.kind)
    assert "needs a law that was not declared" in report.problem


def test_the_relation_has_to_be_true() -> None:
    step = filtered()
    relation = RULES.relation(step)
    outputs = {i: o for i, o in relation.items() if isinstance(o, Bundle)}
    first, second = outputs
    assert "another sum" in problem(step, **{first: outputs[second], second: outputs[first]})
    assert "no longer computed" in problem(step, **{first: outputs[second]})
    for other in (replace(outputs[first], statement="c9"), replace(outputs[first], iterators=(None,))):
        assert "the old program has no such" in problem(step, **{first: other})
    turned = replace(outputs[first], iterators=(AffineExpr(3, ((0, -1),)), *outputs[first].iterators[1:]))
    assert "answers for no output" in problem(step, **{first: turned})
    products = {i: o for i, o in relation.items() if isinstance(o, PointProduct)}
    swapped = {i: replace(o, outputs=o.taps, taps=o.outputs) for i, o in products.items()}
    assert problem(step, **swapped)
