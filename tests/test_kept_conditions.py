"""Moves on statements under conditions: staging, partial results, laws and inlining keep what the condition
excludes as it was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random

import pytest
from snippets import DIALECT, RULES, move, play, program, refusal, tree

from perfdojo_sdk.core.program import Statement
from perfdojo_sdk.core.projection import follows, reached, weakest
from perfdojo_sdk.core.subscripts import AffineExpr
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.verify.dependence import DependenceReport, verify_dependence, verify_races
from perfdojo_sdk.verify.exact import verify_exact

TRIANGLE = "8\n| y[{0}] = 0\n| 8 y[{0}] += x[{0},{1}] * w[{1}] if {1} <= {0}"
WINDOW = "8\n| y[{0}] = 0\n| 3 y[{0}] += exp(x[{0}+{1}-1]) * w[{1}] if {0}+{1} >= 1 and {0}+{1} <= 8"
ROWS = "8 t[{0}] = x[{0},0] if {0} <= 4\n8 8 t[{0}] max= x[{0},{1}] if {1} <= {0} and {0} <= 4\n"
ROWS += "8 y[{0}] = 0\n8 y[{0}] = t[{0}] if {0} <= 4"
RAGGED = "8 y[{0}] = 0\n8 8 y[{0}] += x[{0},{1}] * c[{0}] if {1} >= 3 and {0}+{1} <= 7"
DIVIDED = "8 t[{0}] = x[{0}] if {0} >= 2\n8 y[{0}] = 0\n8 8 y[{0}] += w[{1}] / t[{0}] if {0}+{1} >= 9"
DEFINED = "8 t[{0}] = exp(x[{0}]) if {0} >= 2\n8\n| y[{0}] = 0\n"
DEFINED += "| 3 y[{0}] += t[{0}+{1}] if {0} >= 2 and {0}+{1} <= 7"
SCANNED = "8 t[{0}] = 0 if {0} <= 4\n8 8 y[{0},{1}] = 0\n8 8\n"
SCANNED += "| t[{0}] += x[{0},{1}] if {1} >= 3 and {0} <= 4\n| y[{0},{1}] = t[{0}] if {0} <= 4"

#: program, move, lines of the result that the condition reaches
KEPT: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a triangle has a term in every row": (
        TRIANGLE, "split_reduction(s1, lane=s1)",
        ("| 8 y_p[{0},{1}] = 0", "| 8 y_p[{0},{1}] += x[{0},{1}] * w[{1}] if {0}-{1} >= 0",
         "| 8 y[{0}] += y_p[{0},{1}]"),
    ),
    "partial results of rows that do not exist are left": (
        ROWS, "split_reduction(s1, lane=s2)",
        ("8 8 t_p[{0},{1}] = -inf", "8 8 t_p[{0},{1}] max= x[{0},{1}] if {0}-{1} >= 0 and {0} <= 4",
         "8 8 t[{0}] max= t_p[{0},{1}] if {0} <= 4"),
    ),
    "an accumulator of a window": (
        WINDOW, "stage_accumulator(s1, array=y)",
        ("| y_a[{0}] = y[{0}]", "| y[{0}] = y_a[{0}]"),
    ),
    "an accumulator of rows that exist": (
        ROWS, "stage_accumulator(s1, array=t)",
        ("8 t_a[{0}] = t[{0}] if {0} <= 4", "8 t[{0}] = t_a[{0}] if {0} <= 4"),
    ),
    "results of rows that exist": (
        ROWS, "stage_write(s0, array=t)",
        ("8 t_w[{0}] = x[{0},0] if {0} <= 4", "8 t[{0}] = t_w[{0}] if {0} <= 4"),
    ),
    "a start without a condition writes every element": (
        TRIANGLE, "stage_write(s0, array=y)", ("8 y[{0}] = y_w[{0}]",),
    ),
    "what a window reads of a temporary": (
        "8 t[{0}] = x[{0}]\n" + WINDOW.replace("x[", "t["), "stage_read(s2, array=t)",
        ("| 3 t_r[{0},{1}] = t[{0}+{1}-1] if {0}+{1} >= 1 and {0}+{1} <= 8",),
    ),
    "what a window reads outside of an input": (
        WINDOW, "stage_read(s1, array=x)",
        ("| 3 x_r[{0},{1}] = x[{0}+{1}-1] if {0}+{1} >= 1 and {0}+{1} <= 8",),
    ),
    "the weakest of two conditions": (
        "8 t[{0}] = x[{0}] if {0} >= 1\n8 y[{0}] = 0\n"
        "8\n| y[{0}] = t[{0}] if {0} >= 5\n| y[{0}] += t[{0}] if {0} >= 2",
        "stage_read(s2, array=t)", ("8 t_r[{0}] = t[{0}] if {0} >= 2",),
    ),
    "a factor of rows with a term": (
        RAGGED, "factor_reduction(s2)",
        ("| y_f[{0}] = 0", "| 8 y_f[{0}] += x[{0},{1}] if {1} >= 3 and {0}+{1} <= 7",
         "| y[{0}] += y_f[{0}] * c[{0}] if {0} <= 4"),
    ),
    "a reciprocal of rows with a term": (
        DIVIDED, "stage_reciprocal(s2, array=t)", ("8 t_i[{0}] = 1 / t[{0}] if {0} >= 2",),
    ),
    "a definition where every reader is": (
        DEFINED, "inline_definition(c2, array=t)",
        ("| 3 y[{0}] += exp(x[{0}+{1}]) if {0} >= 2 and {0}+{1} <= 7",),
    ),
    "a definition of inner elements in a window with a border": (
        "8 t[{0}] = x[{0}] * 2\n" + WINDOW.replace("x[", "t["), "inline_definition(c2, array=t)",
        ("| 3 y[{0}] += exp(x[{0}+{1}-1] * 2) * w[{1}] if {0}+{1} >= 1 and {0}+{1} <= 8",),
    ),
    "a value computed where it is used": (
        "8 y[{0}] = 0\n8 8 y[{0}] += exp(x[{0}-2]) * w[{1}] if {0} >= 2 and {0}+{1} >= 5",
        "stage_expression(c1, before=s2, term=1)", ("| y_v[{0}] = exp(x[{0}-2]) if {0} >= 2",),
    ),
    "a scan of rows that exist": (
        SCANNED, "split_scan(s4, array=t)",
        ("| t_p[{0}] = 0", "| | t_p[{0}] += x[{0},{1}] if {1} >= 3 and {0} <= 4",
         "| | y[{0},{1}] = t[{0}] + t_p[{0}] if {0} <= 4", "| t[{0}] += t_p[{0}] if {0} <= 4"),
    ),
    "a running result that is not always read": (
        SCANNED, "stage_running(c3, array=t, before=c3)",
        ("| t_k[{0},{1}] = t[{0}] if {0} <= 4", "| y[{0},{1}] = t_k[{0},{1}] if {0} <= 4"),
    ),
    "squares of some rows": (
        "4\n| t[{0}] = 0\n| 8 t[{0}] += x[{0},{1}]\n| q[{0}] = t[{0}]\n"
        "| 8 q[{0}] += (x[{0},{1}] - c[{0}]) * (x[{0},{1}] - c[{0}]) if {0} >= 2\n4 y[{0}] = q[{0}]",
        "rebase_squares(s2, sum=t)",
        ("| t_m[{0}] = t[{0}] / 8 if {0} >= 2",
         "| q[{0}] += (t_m[{0}] - c[{0}]) * (t_m[{0}] - c[{0}]) * 8 if {0} >= 2"),
    ),
    "squares of no row": (
        "4\n| t[{0}] = 0\n| 8 t[{0}] += x[{0},{1}]\n| q[{0}] = t[{0}]\n"
        "| 8 q[{0}] += (x[{0},{1}] - c[{0}]) * (x[{0},{1}] - c[{0}]) if {0} >= 4\n4 y[{0}] = q[{0}]",
        "rebase_squares(s2, sum=t)", ("| t_m[{0}] = t[{0}] / 8 if {0} >= 4",),
    ),
    "a value that no row uses": (
        "8 y[{0}] = 0\n8 y[{0}] += exp(x[{0}]) if {0} >= 8", "stage_expression(c1, before=c1, term=0)",
        ("| y_v[{0}] = exp(x[{0}]) if {0} >= 8",),
    ),
    "a value that slides along a border": (
        WINDOW, "stage_sliding(c1, before=s0, term=1)",
        ("10 y_v[{0}] = exp(x[{0}-1]) if {0} >= 1 and {0} <= 8",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", KEPT)
def test_a_move_keeps_the_condition(what: str) -> None:
    text, played, lines = KEPT[what]
    step = RULES.step(program(text), move(played))
    shown = tree(step.after).splitlines()
    assert not [line for line in lines if line not in shown], tree(step.after)
    assert not list(violations(step.after, DIALECT)) and parse(step.after.text, DIALECT) == step.after
    exact = verify_exact(step.before, step.after, step.legal.laws, DIALECT)
    assert exact.ok, exact.problem
    report = verify_dependence(
        step.before, step.after, RULES.relation(step), DIALECT, step.legal.kind, step.legal.laws
    )
    assert report.ok and verify_races(step.after, DIALECT).ok, report.problem


def judged(text: str, played: str, line: str, instead: str) -> tuple[bool, DependenceReport]:
    """The answers of two legs on a move whose result has another line than it should."""
    step = RULES.step(program(text), move(played))
    assert f"{step.after.text}\n".count(f"{line}\n") == 1
    other = parse(f"{step.after.text}\n".replace(f"{line}\n", f"{instead}\n"), DIALECT)
    [path] = [path for path, node in other.walk() if node.text != dict(step.after.walk())[path].text
              and isinstance(node, Statement)]  # fmt: skip
    changed, made = dict(other.walk())[path], dict(step.after.walk())[path]
    assert isinstance(changed, Statement)
    wrong = step.after.replaced(path, (changed.named(made.id),))
    exact = verify_exact(step.before, wrong, step.legal.laws, DIALECT)
    kind, laws = step.legal.kind, step.legal.laws
    return exact.ok, verify_dependence(step.before, wrong, RULES.relation(step), DIALECT, kind, laws)


WRONG: dict[str, tuple[str, str, str, str, str]] = {
    "a combination into a row that does not exist": (
        *KEPT["partial results of rows that do not exist are left"][:2],
        "8 8 t[{0}] max= t_p[{0},{1}] if {0} <= 4", "8 8 t[{0}] max= t_p[{0},{1}]", "nothing was written",
    ),
    "a combination into too few rows": (
        *KEPT["partial results of rows that do not exist are left"][:2],
        "8 8 t[{0}] max= t_p[{0},{1}] if {0} <= 4", "8 8 t[{0}] max= t_p[{0},{1}] if {0} <= 3", "after it",
    ),
    "partial results that start under the condition": (
        *KEPT["a triangle has a term in every row"][:2],
        "| 8 y_p[{0},{1}] = 0", "| 8 y_p[{0},{1}] = 0 if {1} <= {0}", "nothing was written",
    ),
    "a copy back of rows that do not exist": (
        *KEPT["results of rows that exist"][:2],
        "8 t[{0}] = t_w[{0}] if {0} <= 4", "8 t[{0}] = t_w[{0}]", "nothing was written",
    ),
    "a copy of elements that were never written": (
        *KEPT["the weakest of two conditions"][:2],
        "8 t_r[{0}] = t[{0}] if {0} >= 2", "8 t_r[{0}] = t[{0}]", "nothing was written",
    ),
    "a copy of too few elements": (
        *KEPT["the weakest of two conditions"][:2],
        "8 t_r[{0}] = t[{0}] if {0} >= 2", "8 t_r[{0}] = t[{0}] if {0} >= 3", "nothing was written",
    ),
    "a factor of rows without a term": (
        *KEPT["a factor of rows with a term"][:2],
        "| y[{0}] += y_f[{0}] * c[{0}] if {0} <= 4", "| y[{0}] += y_f[{0}] * c[{0}]", "does not run where",
    ),
    "a scan that is combined in rows that do not exist": (
        *KEPT["a scan of rows that exist"][:2],
        "| t[{0}] += t_p[{0}] if {0} <= 4", "| t[{0}] += t_p[{0}]", "nothing was written",
    ),
    "squares that are corrected in too many rows": (
        *KEPT["squares of some rows"][:2],
        "| q[{0}] += (t_m[{0}] - c[{0}]) * (t_m[{0}] - c[{0}]) * 8 if {0} >= 2",
        "| q[{0}] += (t_m[{0}] - c[{0}]) * (t_m[{0}] - c[{0}]) * 8 if {0} >= 1", "nothing was written",
    ),
    "a factor in too few rows": (
        *KEPT["a factor of rows with a term"][:2],
        "| y[{0}] += y_f[{0}] * c[{0}] if {0} <= 4", "| y[{0}] += y_f[{0}] * c[{0}] if {0} <= 3",
        "does not run where",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_the_dependence_leg_refutes_another_condition(what: str) -> None:
    text, played, line, instead, words = WRONG[what]
    exact, report = judged(text, played, line, instead)
    assert not report.ok and words in report.problem, report.problem
    # A row without a term adds nothing but zero times a factor, which has no effect in an exact domain.
    assert exact == (what == "a factor of rows without a term")


def test_a_definition_that_some_reader_has_not_is_kept() -> None:
    wider = DEFINED.replace("if {0} >= 2 and", "if {0} >= 1 and")
    assert refusal(program("8 t[{0}] = 1\n" + wider), "inline_definition(c3, array=t)") == "PD-T259"
    alone = "8 t[{0}] = exp(x[{0}]) if {0} >= 2\n8 y[{0}] = 0\n8 y[{0}] = t[{0}] if {0} >= {least}"
    assert refusal(program(alone.replace("{least}", "2")), "inline_definition(c2, array=t)") == ""
    assert refusal(program(alone.replace("{least}", "1")), "inline_definition(c2, array=t)") == "PD-T259"


def test_a_read_of_what_the_scope_does_not_write_is_no_reason_for_a_copy() -> None:
    """Element 1 is from before the scope, and the new buffer would not have it."""
    text = "8 t[{0}] = 0\n8\n| t[{0}] = x[{0}] if {0} >= 2\n| y[{0}] = t[{0}] if {0} >= {least}"
    stage = "stage_write(s1, array=t)"
    start = "8 y[{0}] = 0\n"
    assert refusal(program(start + text.replace("{least}", "1")), stage.replace("s1", "s2")) == "PD-T194"
    staged = play(program(start + text.replace("{least}", "3")), stage.replace("s1", "s2"))
    assert "8 t[{0}] = t_w[{0}] if {0} >= 2" in tree(staged).splitlines()


def test_a_copy_of_an_array_that_others_change_reads_no_more() -> None:
    """Each thread reads and writes its own element; a copy of the whole row would race with the writes."""
    text = "kernel f(x) -> y, x\nx f32 [8] heap\ny f32 [8,8] heap\n\n8:p\n| 8 y[{0},{1}] = 0\n"
    text += "| 8 y[{0},{1}] = x[{1}] if {0}-{1} >= 0 and {0}-{1} <= 0\n| x[{0}] = 0\n"
    staged = play(parse(text, DIALECT), "stage_read(s2, array=x)")
    assert "| 8 x_r[{1}] = x[{1}] if {0}-{1} >= 0 and -{0}+{1} >= 0" in tree(staged).splitlines()
    assert verify_races(staged, DIALECT).ok


def test_lanes_of_a_masked_sum_get_partial_results() -> None:
    """A masked sum is cut, each lane gets a sum, and the lanes run in lockstep."""
    start = program("4\n| y[{0}] = 0\n| 64 y[{0}] += x[{0},{1}] if {1} <= {0}*9+3")
    moves = (
        "split_scope(s1, factor=16)",
        "split_reduction(s1.o, lane=s1.i)",
        "annotate_scope(s1.i, suffix=v)",
    )
    end = play(start, *moves)
    assert "| 4 16:v y_p[{0},{2}] += x[{0},{1}*16+{2}] if {0}*9-{1}*16-{2} >= -3" in tree(end).splitlines()
    assert verify_exact(start, end, frozenset(), DIALECT).ok


# -- conditions of fewer iterators -----------------------------------------------------------------


def iterations(sizes: Sequence[int], guard: Sequence[AffineExpr]) -> set[tuple[int, ...]]:
    return {i for i in product(*map(range, sizes)) if all(form.evaluate(i) >= 0 for form in guard)}


def test_reached_says_exactly_for_which_iterators_some_iteration_is_left() -> None:
    rng, known = Random(0), 0
    for _ in range(600):
        sizes = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 4)))
        guard = tuple(
            AffineExpr.of(
                {level: rng.choice((-3, -2, -1, 0, 1, 1, 2)) for level in range(len(sizes))},
                rng.randint(-4, 6),
            )
            for _ in range(rng.randint(1, 3))
        )
        gone = [level for level in range(len(sizes)) if rng.random() < 0.5]
        found = reached(guard, sizes, gone)
        if found is None:
            continue
        known += 1
        assert not any(level in form.levels for form in found for level in gone)
        kept = [level for level in range(len(sizes)) if level not in gone]
        some, said = ({tuple([i[k] for k in kept]) for i in iterations(sizes, g)} for g in (guard, found))
        assert some == said, (guard, sizes, gone, found)
    assert known > 300


def test_the_weakest_condition_holds_wherever_one_does() -> None:
    rng, sizes, known = Random(1), (4, 5), 0
    for _ in range(300):
        conditions = [
            tuple(
                AffineExpr.of({0: rng.randint(-1, 1), 1: rng.randint(-1, 1)}, rng.randint(-4, 4))
                for _ in range(n)
            )
            for n in (1, 2)
        ]
        whole = set().union(*[iterations(sizes, each) for each in conditions])
        found = weakest(conditions, sizes)
        assert found is None or iterations(sizes, found) == whole
        assert not follows(conditions[0], conditions[1], sizes) or iterations(sizes, conditions[0]) == whole
        known += found is not None
    assert known > 60
