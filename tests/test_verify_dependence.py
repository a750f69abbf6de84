"""The integer-set check: legal moves are proved, each kind of damage is found and named.

Programs before and after are written by hand, with the relation that a move would claim.
"""

from __future__ import annotations

from functools import partial

import pytest
from dependence_programs import STAGED, SUM, TWO, check, kernel, proved, refuted

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Definition, Instance, Kind
from perfdojo_sdk.verify import dependence
from perfdojo_sdk.verify.dependence import verify_dependence, verify_races
from perfdojo_sdk.verify.sets import Session

LAW = "x/y = x*(1/y)"


# -- iterations: split, swap, join, fission, reorder -----------------------------------------------

SCALE = "x f32 [64] heap\ny f32 [64] heap"
PLAIN = kernel(SCALE, "64 y[{0}] = x[{0}] * 2")


def test_split() -> None:
    split = kernel(SCALE, "4 16 y[{0}*16+{1}] = x[{0}*16+{1}] * 2")
    assert proved(check(PLAIN, split, "c0 {0}*16+{1}"))
    assert refuted(check(PLAIN, split, "c0 {0}*16"), "no longer computed")
    assert refuted(check(PLAIN, split, "c0 {0}+{1}*4"), "input x")


def test_dropped_iteration_is_named() -> None:
    short = kernel(SCALE, "3 21 y[{0}*21+{1}] = x[{0}*21+{1}] * 2")
    assert refuted(check(PLAIN, short, "c0 {0}*21+{1}"), "c0 `y[{0}] = x[{0}] * 2`", "computed at [63]")
    unrelated = kernel(SCALE, "63 y[{0}] = x[{0}] * 2")
    assert refuted(check(PLAIN, unrelated), "no longer computed at [63]")


def test_duplicated_iteration_is_named() -> None:
    twice = kernel(SCALE, "64 y[{0}] = x[{0}] * 2\n64 y[{0}] = x[{0}] * 2")
    assert refuted(check(PLAIN, twice, "c0 {0}", "c0 {0}"), "computed more than once")


def test_iteration_outside_the_old_scopes() -> None:
    moved = kernel(SCALE.replace("64", "65"), "65 y[{0}] = x[{0}] * 2")
    wide = kernel(SCALE.replace("64", "65"), "64 y[{0}] = x[{0}] * 2\n y[64] = x[64] * 2")
    assert refuted(check(wide, moved, "c0 {0}"), "[64], outside its scopes")


def test_peeled_iteration_is_legal() -> None:
    peeled = kernel(SCALE, "63 y[{0}] = x[{0}] * 2\ny[63] = x[63] * 2")
    assert proved(check(PLAIN, peeled, "c0 {0}", "c0 63"))


def test_relation_must_fit_the_programs() -> None:
    assert refuted(check(PLAIN, PLAIN, "c7 {0}"), "no statement c7")
    assert refuted(check(PLAIN, PLAIN, "c0"), "gives 0 old iterators")
    assert refuted(check(PLAIN, PLAIN, "combine"), "is no PartialCombine")
    extra = verify_dependence(PLAIN, PLAIN, {"c9": Definition()}, CORE_DIALECT, Kind.EXACT)
    assert refuted(extra, "names c9")


def test_other_expression_or_literal() -> None:
    assert refuted(check(PLAIN, kernel(SCALE, "64 y[{0}] = x[{0}] * 3")), "another value")
    assert refuted(check(PLAIN, kernel(SCALE, "64 y[{0}] = 2 * x[{0}]")), "another value")
    assert refuted(check(PLAIN, kernel(SCALE, "64 y[{0}] = x[{0}] + 2")), "another value")
    index_of = kernel(SCALE, "64 y[{0}] = x[{0}] * {0}")
    assert refuted(check(PLAIN, index_of), "another value")
    reversed_order = kernel(SCALE, "64 y[63-{0}] = x[63-{0}] * index(63-{0})")
    assert proved(check(index_of, reversed_order, "c0 63-{0}"))
    wrong = kernel(SCALE, "64 y[63-{0}] = x[63-{0}] * {0}")
    assert refuted(check(index_of, wrong, "c0 63-{0}"), "the integer [")


def test_interface_is_fixed() -> None:
    assert refuted(check(PLAIN, kernel(SCALE.replace("64", "65"), "64 y[{0}] = x[{0}] * 2")), "interface")


def test_accumulation_order_is_the_difference_between_exact_and_reassociating() -> None:
    halves = kernel(TWO, "8\n| y[{0}] = 0\n| 2 8 y[{0}] += x[{0},{1}*8+{2}]")
    assert proved(check(SUM, halves, "c0 {0}", "c1 {0} {1}*8+{2}"))
    swapped = kernel(TWO, "8\n| y[{0}] = 0\n| 8 2 y[{0}] += x[{0},{1}+{2}*8]")
    origins = ("c0 {0}", "c1 {0} {1}+{2}*8")
    assert refuted(check(SUM, swapped, *origins), "adds onto y[{0}]", "c1")
    assert proved(check(SUM, swapped, *origins, kind=Kind.REASSOCIATES))
    law = frozenset({LAW})
    assert refuted(check(SUM, swapped, *origins, kind=Kind.DECLARED_LAW, laws=law), "adds onto")


def test_swap_of_independent_scopes_is_exact() -> None:
    apart = kernel(TWO, "8 y[{0}] = 0\n8 16 y[{0}] += x[{0},{1}]")
    turned = kernel(TWO, "8 y[{0}] = 0\n16 8 y[{1}] += x[{1},{0}]")
    assert proved(check(apart, turned, "c0 {0}", "c1 {1} {0}"))


def test_swap_that_turns_a_dependence_around() -> None:
    names = "x f32 [8,8] heap\nt f32 [9,9] heap\ny f32 [8,8] heap"
    start = "9 9 t[{0},{1}] = 1\n"
    end = "\n8 8 y[{0},{1}] = t[{0},{1}]"
    before = kernel(names, start + "8 8 t[{0}+1,{1}] = t[{0},{1}+1] * x[{0},{1}]" + end)
    after = kernel(names, start + "8 8 t[{1}+1,{0}] = t[{1},{0}+1] * x[{1},{0}]" + end)
    for kind in (Kind.EXACT, Kind.REASSOCIATES):
        report = check(before, after, "c0 {0} {1}", "c1 {1} {0}", "c2 {0} {1}", kind=kind)
        assert refuted(report, "reads t[{0},{1}+1]", "before the move it sees c1")


PAIR = "x f32 [8] heap\nt f32 [8] heap\ny f32 [8] heap"


def test_join_and_fission() -> None:
    apart = kernel(PAIR, "8 t[{0}] = x[{0}] * 2\n8 y[{0}] = t[{0}] + 1")
    together = kernel(PAIR, "8\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}] + 1")
    assert proved(check(apart, together))
    assert proved(check(together, apart))


def test_join_with_a_backward_dependence() -> None:
    apart = kernel(PAIR, "8 t[{0}] = x[{0}] * 2\n8 y[{0}] = t[7-{0}] + 1")
    together = kernel(PAIR, "8\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[7-{0}] + 1")
    assert refuted(check(apart, together), "reads t[-{0}+7] at [0]: nothing was written")
    apart = kernel(PAIR, "8 t[{0}] = 1\n8 t[{0}] = x[{0}] * 2\n8 y[{0}] = t[7-{0}] + 1")
    together = kernel(PAIR, "8 t[{0}] = 1\n8\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[7-{0}] + 1")
    assert refuted(check(apart, together), "c2", "before the move it sees c1", "after it c0")


def test_figure_6_contraction_needs_the_fusion() -> None:
    apart = "8 t[{0}] = x[{0}] * 2\n8 y[{0}] = t[{0}] + 1"
    together = "8\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}] + 1"
    contracted = PAIR.replace("t f32 [8]", "t f32 [8:N]")
    assert proved(check(kernel(PAIR, together), kernel(contracted, together)))
    report = check(kernel(PAIR, apart), kernel(contracted, apart))
    assert refuted(report, "c1 `y[{0}] = t[{0}] + 1` reads t[{0}] at [0]", "at [0], after it c0", "at [7]")


def test_fission_of_a_contracted_buffer() -> None:
    contracted = PAIR.replace("t f32 [8]", "t f32 [8:N]")
    together = kernel(contracted, "8\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}] + 1")
    apart = kernel(contracted, "8 t[{0}] = x[{0}] * 2\n8 y[{0}] = t[{0}] + 1")
    assert refuted(check(together, apart), "reads t[{0}]")


def test_reorder() -> None:
    names = PAIR + "\nu f32 [8] heap"
    before = kernel(names, "8\n| t[{0}] = x[{0}]\n| u[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}] + u[{0}]")
    after = kernel(names, "8\n| u[{0}] = x[{0}] * 2\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}] + u[{0}]")
    assert proved(check(before, after, "c1 {0}", "c0 {0}", "c2 {0}"))
    used = kernel(names, "8\n| u[{0}] = 0\n| u[{0}] = x[{0}] * 2\n| y[{0}] = u[{0}]")
    late = kernel(names, "8\n| u[{0}] = 0\n| y[{0}] = u[{0}]\n| u[{0}] = x[{0}] * 2")
    report = check(used, late, "c0 {0}", "c2 {0}", "c1 {0}")
    assert refuted(report, "reads u[{0}]", "before the move it sees c1", "after it c0")


# -- other kinds of accumulation on one cell ---------------------------------------------------------


def test_order_of_different_accumulations_counts_even_when_reassociating() -> None:
    names = "x f32 [8] heap\nz f32 [8] heap\ny f32 [1] heap"
    before = kernel(names, "y[0] = 0\n8 y[0] += x[{0}]\n8 y[0] max= z[{0}]")
    after = kernel(names, "y[0] = 0\n8 y[0] max= z[{0}]\n8 y[0] += x[{0}]")
    report = check(before, after, "c0", "c2 {0}", "c1 {0}", kind=Kind.REASSOCIATES)
    assert refuted(report, "adds onto y[0]")
    backward = kernel(names, "y[0] = 0\n8 y[0] += x[7-{0}]\n8 y[0] max= z[{0}]")
    assert proved(check(before, backward, "c0", "c1 7-{0}", "c2 {0}", kind=Kind.REASSOCIATES))
    other = kernel(names, "y[0] = 0\n8 y[0] += x[{0}]\n8 y[0] min= z[{0}]")
    assert refuted(check(before, other, kind=Kind.REASSOCIATES), "accumulates another way")


MIXED = "x f32 [8,4] heap\nz f32 [8] heap\ny f32 [2] heap\nt f32 [1] heap\np f32 [4] heap"
IN_TURN = "t[0] = 0\n8 t[0] max= z[{0}]\n8 4 t[0] min= x[{0},{1}]\n2 y[{0}] = t[0]"
START, TERMS, COMBINE = "4 p[{0}] = inf", "8 4 p[{1}] min= x[{0},{1}]", "4 t[0] min= p[{0}]"
MAXIMUM = "8 t[0] max= z[{0}]"
PART_OF = {
    "t[0] = 0": "c0",
    MAXIMUM: "c1 {0}",
    START: "start",
    TERMS: "c2 {0} {1}",
    COMBINE: "combine",
    COMBINE.replace("4 ", "2 "): "combine",
    COMBINE.replace("4 ", "2 ").replace("{0}", "{0}+2"): "combine",
    "2 y[{0}] = t[0]": "c3 {0}",
}


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_partial_results_are_placed_by_their_combination(first: int) -> None:
    """The other kind of accumulation may be anywhere, also among the terms, as long as it comes before the
    first combination."""
    lines = [START, TERMS]
    lines.insert(min(first, 2), MAXIMUM)
    lines = ["t[0] = 0", *lines, COMBINE] if first < 3 else [START, "t[0] = 0", TERMS, MAXIMUM, COMBINE]
    lines.append("2 y[{0}] = t[0]")
    before, after = kernel(MIXED, IN_TURN), kernel(MIXED, "\n".join(lines))
    assert proved(check(before, after, *(PART_OF[line] for line in lines), kind=Kind.REASSOCIATES))


@pytest.mark.parametrize("late", [0, 1])
def test_no_partial_result_is_combined_too_early(late: int) -> None:
    two = COMBINE.replace("4 ", "2 ")
    combinations = [two, MAXIMUM, two.replace("{0}", "{0}+2")] if late else [COMBINE, MAXIMUM]
    lines = ["t[0] = 0", START, TERMS, *combinations, "2 y[{0}] = t[0]"]
    before, after = kernel(MIXED, IN_TURN), kernel(MIXED, "\n".join(lines))
    report = check(before, after, *(PART_OF[line] for line in lines), kind=Kind.REASSOCIATES)
    assert refuted(report, "adds onto t[0]")


def test_partial_results_do_not_outlive_the_other_kind_of_accumulation() -> None:
    """Each iteration takes the maximum between its terms and those of the next."""
    before = kernel(MIXED, "t[0] = 0\n8\n| t[0] max= z[{0}]\n| 4 t[0] min= x[{0},{1}]\n2 y[{0}] = t[0]")
    origins = ("c0", "c1 {0}", "start", "c2 {0} {1}", "combine", "c3 {0}")
    each = """t[0] = 0\n8\n| t[0] max= z[{0}]\n| 4 p[{1}] = inf\n| 4 p[{1}] min= x[{0},{1}]
| 4 t[0] min= p[{1}]\n2 y[{0}] = t[0]"""
    assert proved(check(before, kernel(MIXED, each), *origins, kind=Kind.REASSOCIATES))
    end = """t[0] = 0\n4 p[{0}] = inf\n8\n| t[0] max= z[{0}]\n| 4 p[{1}] min= x[{0},{1}]
4 t[0] min= p[{0}]\n2 y[{0}] = t[0]"""
    origins = ("c0", "start", "c1 {0}", "c2 {0} {1}", "combine", "c3 {0}")
    assert refuted(check(before, kernel(MIXED, end), *origins, kind=Kind.REASSOCIATES), "adds onto t[0]")


def test_a_partial_result_of_two_cells_is_in_place_in_both() -> None:
    names = MIXED + "\nu f32 [1] heap\nq f32 [1] heap"
    before = kernel(names, IN_TURN.replace("2 y[{0}] = t[0]", "y[0] = t[0]\ny[1] = t[0]"))
    parts = "t[0] = 0\nu[0] = t[0]\nq[0] = -inf\n8 q[0] max= z[{0}]\n" + f"{START}\n{TERMS}\n"
    right, wrong = (
        "{0}[0] max= q[0]\n4 {0}[0] min= p[{{0}}]\n",
        "4 {0}[0] min= p[{{0}}]\n{0}[0] max= q[0]\n",
    )
    origins = ("c0", "definition", "start", "c1 {0}", "start", "c2 {0} {1}", *("combine",) * 4, "c3", "c4")
    for one, other in ((right, right), (right, wrong), (wrong, right)):
        text = parts + one.format("t") + other.format("u") + "y[0] = t[0]\ny[1] = u[0]"
        report = check(before, kernel(names, text), *origins, kind=Kind.REASSOCIATES)
        assert proved(report) if one == other else refuted(report)


def test_terms_are_followed_through_a_copy_though_lanes_meet() -> None:
    """Lanes that accumulate into one cell are compared as sets of terms; so is what comes after them."""
    names = "x f32 [8] heap\nz f32 [8] heap\ny f32 [1] heap\np f32 [1] heap"
    lanes, copied = "8:v y[0] min= x[{0}]", "p[0] = y[0]\n8 p[0] += z[{0}]\ny[0] = p[0]"
    before = kernel(names, f"y[0] = 0\n{lanes}\n8 y[0] += z[{{0}}]")
    staged = ("definition", "c2 {0}", "definition")
    after = kernel(names, f"y[0] = 0\n{lanes}\n{copied}")
    assert proved(check(before, after, "c0", "c1 {0}", *staged))
    early = kernel(names, f"y[0] = 0\n{copied}\n{lanes}")
    assert refuted(check(before, early, "c0", *staged, "c1 {0}"), "output y")
    assert refuted(check(before, early, "c0", *staged, "c1 {0}", kind=Kind.REASSOCIATES), "adds onto y[0]")


# -- staging -----------------------------------------------------------------------------------------

DOUBLE = kernel(STAGED.replace("b f32 [4,8] heap\n", ""), "4 8 y[{0},{1}] = x[{0},{1}] * 2")


def test_stage_read() -> None:
    staged = kernel(STAGED, "4\n| 8 b[{0},{1}] = x[{0},{1}]\n| 8 y[{0},{1}] = b[{0},{1}] * 2")
    assert proved(check(DOUBLE, staged, "definition", "c0 {0} {1}"))
    small = kernel(
        STAGED.replace("b f32 [4,", "b f32 [4:N,"),
        "4\n| 8 b[{0},{1}] = x[{0},{1}]\n| 8 y[{0},{1}] = b[{0},{1}] * 2",
    )
    assert proved(check(DOUBLE, small, "definition", "c0 {0} {1}"))
    wrong = kernel(STAGED, "4\n| 8 b[{0},7-{1}] = x[{0},{1}]\n| 8 y[{0},{1}] = b[{0},{1}] * 2")
    assert refuted(check(DOUBLE, wrong, "definition", "c0 {0} {1}"), "input x at [0, 0]", "input x at [0, 7]")
    part = kernel(STAGED, "4\n| 7 b[{0},{1}] = x[{0},{1}]\n| 8 y[{0},{1}] = b[{0},{1}] * 2")
    assert refuted(check(DOUBLE, part, "definition", "c0 {0} {1}"), "at [0, 7]: nothing was written")


def test_stage_read_through_two_copies() -> None:
    names = STAGED + "\nd f32 [8,4] heap"
    copies = "4 8 b[{0},{1}] = x[{0},{1}]\n4 8 d[{1},{0}] = b[{0},{1}]\n"
    staged = kernel(names, copies + "4 8 y[{0},{1}] = d[{1},{0}] * 2")
    assert proved(check(DOUBLE, staged, "definition", "definition", "c0 {0} {1}"))


def test_stage_read_with_a_write_in_between() -> None:
    names = "x f32 [8] heap\nt f32 [8] heap\nb f32 [8] heap\ny f32 [8] heap"
    before = kernel(names, "8 t[{0}] = x[{0}]\n8\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}]")
    after = kernel(names, "8 t[{0}] = x[{0}]\n8 b[{0}] = t[{0}]\n8\n| t[{0}] = x[{0}] * 2\n| y[{0}] = b[{0}]")
    report = check(before, after, "c0 {0}", "definition", "c1 {0}", "c2 {0}")
    assert refuted(report, "c2 `y[{0}] = t[{0}]`", "before the move it sees c1", "after it c0")


STAGED_SUM = TWO + "\na f32 [8] heap"
#: Copy in, accumulate, copy out, inside the outer half of the reduction.
IN_AND_OUT = """
8
| y[{0}] = 0
| 2
| | a[{0}] = y[{0}]
| | 8 a[{0}] += x[{0},{1}*8+{2}]
| | y[{0}] = a[{0}]
"""


def test_stage_an_accumulator() -> None:
    origins = ("c0 {0}", "definition", "c1 {0} {1}*8+{2}", "definition")
    assert proved(check(SUM, kernel(STAGED_SUM, IN_AND_OUT), *origins))
    register = kernel(STAGED_SUM.replace("a f32 [8]", "a f32 [8:N]"), IN_AND_OUT)
    assert proved(check(SUM, register, *origins))
    for kind in (Kind.EXACT, Kind.REASSOCIATES):
        without_in = kernel(STAGED_SUM, "8 a[{0}] = 0\n" + IN_AND_OUT.replace("| | a[{0}] = y[{0}]\n", ""))
        report = check(SUM, without_in, "definition", "c0 {0}", *origins[2:], kind=kind)
        assert refuted(report, "sees c0 `a[{0}] = 0`, which is no value of the old program")
        other_cell = kernel(STAGED_SUM, IN_AND_OUT.replace("a[{0}] = y[{0}]", "a[{0}] = y[7-{0}]", 1))
        assert refuted(check(SUM, other_cell, *origins, kind=kind), "nothing was written")
        body = IN_AND_OUT.replace("{1}*8+{2}]\n| | y[{0}] = a[{0}]", "{1}*8+{2}]")
        body = body.replace("a[{0}] = y[{0}]\n", "a[{0}] = y[{0}]\n| | y[{0}] = a[{0}]\n")
        out_early = kernel(STAGED_SUM, body)
        early = check(SUM, out_early, origins[0], origins[1], origins[3], origins[2], kind=kind)
        assert refuted(early, "c1 `y[{0}] += x[{0},{1}]`" if kind is Kind.EXACT else "output y at [0]")


def test_stage_an_accumulator_that_some_iterations_leave_alone() -> None:
    """Copies feed copies for a number of iterations, so a closed form is needed."""
    names = "x f32 [6] heap\na f32 [6] heap\ny f32 [6] heap"
    before = kernel(names, "6 y[{0}] = 0\n6 y[{0}] += x[{0}]")
    body = "6 y[{0}] = 0\n6\n| 6 a[{1}] = y[{1}]\n| a[{0}] += x[{0}]\n| 6 y[{1}] = a[{1}]"
    origins = ("c0 {0}", "definition", "c1 {0}", "definition")
    assert proved(check(before, kernel(names, body), *origins))
    wrong = kernel(names, body.replace("y[{1}] = a[{1}]", "y[{1}] = a[{0}]"))
    assert not check(before, wrong, *origins)


def test_stage_write() -> None:
    names = STAGED.replace("b f32", "w f32")
    staged = kernel(names, "4\n| 8 w[{0},{1}] = x[{0},{1}] * 2\n| 8 y[{0},{1}] = w[{0},{1}]")
    assert proved(check(DOUBLE, staged, "c0 {0} {1}", "definition"))
    window = kernel(
        names.replace("[4,8] heap\ny", "[4:N,8:N] heap\ny"),
        "4 8\n| w[{0},{1}] = x[{0},{1}] * 2\n| y[{0},{1}] = w[{0},{1}]",
    )
    assert proved(check(DOUBLE, window, "c0 {0} {1}", "definition"))
    short = kernel(names, "4\n| 8 w[{0},{1}] = x[{0},{1}] * 2\n| 7 y[{0},{1}] = w[{0},{1}]")
    assert refuted(check(DOUBLE, short, "c0 {0} {1}", "definition"), "output y at [0, 7]: nothing")
    crossed = kernel(names, "4\n| 8 w[{0},{1}] = x[{0},{1}] * 2\n| 8 y[{0},{1}] = w[{0},7-{1}]")
    assert refuted(check(DOUBLE, crossed, "c0 {0} {1}", "definition"), "output y at [0, 0]")


def test_reciprocal_needs_its_law() -> None:
    names = "x f32 [4,8] heap\nz f32 [4] heap\nr f32 [4] heap\ny f32 [4,8] heap"
    divided = kernel(names.replace("r f32 [4] heap\n", ""), "4 8 y[{0},{1}] = x[{0},{1}] / z[{0}]")
    body = "4\n| r[{0}] = 1 / z[{0}]\n| 8 y[{0},{1}] = x[{0},{1}] * r[{0}]"
    multiplied, origins = kernel(names, body), ("definition", "c0 {0} {1}")
    lawful = partial(check, kind=Kind.DECLARED_LAW, laws=frozenset({LAW}))
    assert proved(lawful(divided, multiplied, *origins))
    assert refuted(check(divided, multiplied, *origins), "another value")
    for wrong in (body.replace("1 / z", "2 / z"), body.replace("* r[{0}]", "* r[3-{0}]")):
        assert not lawful(divided, kernel(names, wrong), *origins)
    late = "4 r[{0}] = 1 / z[{0}]\nr[2] = 1 / z[1]\n4 8 y[{0},{1}] = x[{0},{1}] * r[{0}]"
    report = lawful(divided, kernel(names, late), "definition", "definition", "c0 {0} {1}")
    assert refuted(report, "partly a new definition")


def test_the_same_program_reads_a_definition_in_place_of_its_value() -> None:
    names = "x f32 [4,8] heap\nz f32 [4] heap\nr f32 [4] heap\ny f32 [4,8] heap"
    plain = kernel(names, "4 r[{0}] = 0\n4 8 y[{0},{1}] = x[{0},{1}] + exp(z[{0}])")
    shared = kernel(names, "4 r[{0}] = exp(z[{0}])\n4 8 y[{0},{1}] = x[{0},{1}] + r[{0}]")
    only = kernel(names, "4 8 y[{0},{1}] = x[{0},{1}] + exp(z[{0}])")
    assert proved(check(only, shared, "definition", "c0 {0} {1}"))
    assert refuted(check(plain, shared, "definition", "c1 {0} {1}"), "c0 `r[{0}] = 0`: no longer computed")


# -- storage -----------------------------------------------------------------------------------------


def test_storage_is_judged_by_cells() -> None:
    body = "4 8 t[{0},{1}] = x[{0},{1}]\n4 8 y[{0},{1}] = t[{0},{1}]"
    names = "x f32 [4,8] heap\nt f32 [4,8] heap\ny f32 [4,8] heap"
    turned = kernel(names.replace("t f32 [4,8]", "t f32 [8,4]"), body.replace("t[{0},{1}]", "t[{1},{0}]"))
    assert proved(check(kernel(names, body), turned))
    inner = kernel(names.replace("t f32 [4,8]", "t f32 [4,8:N]"), body)
    assert refuted(check(kernel(names, body), inner), "reads t[{0},{1}]", "at [0, 7]")


def test_arrays_that_share_a_buffer_alias() -> None:
    body = "8 t[{0}] = x[{0}]\n8 u[{0}] = x[{0}] * 2\n8 y[{0}] = t[{0}] + u[{0}]"
    apart = kernel("x f32 [8] heap\nt f32 [8] heap\nu f32 [8] heap\ny f32 [8] heap", body)
    shared = kernel("x f32 [8] heap\ns f32 [8] heap -> t, u\ny f32 [8] heap", body)
    assert refuted(check(apart, shared), "reads t[{0}]", "before the move it sees c0", "after it c1")


# -- partial sums --------------------------------------------------------------------------------------

PARTIAL = TWO + "\np f32 [8,4] heap"
SPLIT = """
8
| y[{0}] = 0
| 4 p[{0},{1}] = 0
| 4 4 p[{0},{2}] += x[{0},{1}*4+{2}]
| 4 y[{0}] += p[{0},{1}]
"""
ORIGINS = ("c0 {0}", "start", "c1 {0} {1}*4+{2}", "combine")


def test_split_reduction() -> None:
    split = kernel(PARTIAL, SPLIT)
    assert proved(check(SUM, split, *ORIGINS, kind=Kind.REASSOCIATES))
    assert refuted(check(SUM, split, *ORIGINS), "makes partial results, and the move is exact")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("p[{0},{1}] = 0", "p[{0},{1}] = 1", "that c1 `p[{0},{1}] = 1` takes part in"),
        ("y[{0}] += p", "y[{0}] max= p", "takes part in"),
        ("4 y[{0}] += p[{0},{1}]", "3 y[{0}] += p[{0},{1}]", "output y"),
        ("4 y[{0}] += p[{0},{1}]", "2 4 y[{0}] += p[{0},{2}]", "combined more than once"),
        ("4 y[{0}] += p[{0},{1}]", "4 y[{0}] += p[{0},0]", "combined more than once"),
    ],
)
def test_damaged_partial_sums(old: str, new: str, word: str) -> None:
    damaged = kernel(PARTIAL, SPLIT.replace(old, new, 1))
    assert refuted(check(SUM, damaged, *ORIGINS, kind=Kind.REASSOCIATES), word)


def test_integers_are_split_exactly() -> None:
    """They wrap, so the kind of the move may be exact; what loses or doubles a term is refuted as ever."""
    for dtype in ("i32", "u8"):
        start = kernel(TWO.replace("f32", dtype), "8\n| y[{0}] = 0\n| 16 y[{0}] += x[{0},{1}]")
        head = PARTIAL.replace("f32", dtype)
        assert proved(check(start, kernel(head, SPLIT), *ORIGINS))
        for new in ("3 y[{0}] += p[{0},{1}]", "2 4 y[{0}] += p[{0},{2}]", "4 y[{0}] += p[{0},0]"):
            damaged = SPLIT.replace("4 y[{0}] += p[{0},{1}]", new, 1)
            assert refuted(check(start, kernel(head, damaged), *ORIGINS), "")


SCANNED = "x f32 [32] heap\nt f32 [1] heap\ny f32 [32] heap"
SCAN = kernel(SCANNED, "t[0] = 0\n4 8\n| t[0] += x[{0}*8+{1}]\n| y[{0}*8+{1}] = t[0]")
BLOCKS = """
t[0] = 0
4
| p[{0}] = 0
| 8
| | p[{0}] += x[{0}*8+{1}]
| | y[{0}*8+{1}] = t[0] + p[{0}]
| t[0] += p[{0}]
"""
SCAN_ORIGINS = ("c0", "start", "c1 {0} {1}", "c2 {0} {1}", "combine")


def test_split_scan() -> None:
    blocks = kernel(SCANNED + "\np f32 [4] heap", BLOCKS)
    assert proved(check(SCAN, blocks, *SCAN_ORIGINS, kind=Kind.REASSOCIATES))
    assert refuted(check(SCAN, blocks, *SCAN_ORIGINS), "makes partial results, and the move is exact")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("t[0] + p[{0}]", "t[0] * p[{0}]", "takes part in"),
        ("t[0] + p[{0}]", "max(t[0], p[{0}])", "takes part in"),
        ("t[0] + p[{0}]", "t[0] - p[{0}]", "another value"),
        ("t[0] + p[{0}]", "t[0] + x[{0}]", "takes part in"),
        ("t[0] + p[{0}]", "t[0] + p[0]", "combined more than once"),
        ("t[0] + p[{0}]", "t[0] + t[0]", "takes part in"),
        ("p[{0}] = 0", "p[{0}] = 1", "`p[{0}] = 1` takes part in"),
        ("= t[0] + p[{0}]", "= t[0]", "before the move it sees c1"),
        ("= t[0] + p[{0}]", "= p[{0}]", "no value of the old program"),
        ("t[0] += p[{0}]", "t[0] max= p[{0}]", "takes part in"),
        ("| t[0] += p[{0}]", "3 t[0] += p[{0}]", "sees"),
    ],
)
def test_damaged_scans_of_blocks(old: str, new: str, word: str) -> None:
    damaged = kernel(SCANNED + "\np f32 [4] heap", BLOCKS.replace(old, new, 1))
    assert refuted(check(SCAN, damaged, *SCAN_ORIGINS, kind=Kind.REASSOCIATES), word)


def test_a_block_is_not_read_after_it_was_combined() -> None:
    late = "t[0] = 0\n4\n| p[{0}] = 0\n| 8 p[{0}] += x[{0}*8+{1}]\n| t[0] += p[{0}]\n"
    late += "| 8 y[{0}*8+{1}] = t[0] + p[{0}]"
    origins = ("c0", "start", "c1 {0} {1}", "combine", "c2 {0} {1}")
    report = check(SCAN, kernel(SCANNED + "\np f32 [4] heap", late), *origins, kind=Kind.REASSOCIATES)
    assert refuted(report, "combined more than once")


def test_partial_sums_may_not_be_started_in_the_middle() -> None:
    late = SPLIT.replace("| 4 p[{0},{1}] = 0\n", "").replace("| 4 4 p", "| 4\n| | 4 p[{0},{2}] = 0\n| | 4 p")
    assert refuted(check(SUM, kernel(PARTIAL, late), *ORIGINS, kind=Kind.REASSOCIATES), "output y")


# -- where the flow of the library for sets is wrong -----------------------------------------------------


def test_an_accumulation_under_a_condition_with_quotients_is_not_overlooked() -> None:
    """isl's own flow loses the accumulation onto t[0,2] here."""
    text = """kernel k(x) -> t
x f32 [3] heap
t f32 [6,3] heap

18
| t[{0}%6,{0}//6] = 1
| t[{0}%6,{0}//6] += x[{0}//6] if {0}%6+{0}//6 >= 1
"""
    split = text.replace("18", "3 6").replace("{0}//6", "#").replace("{0}%6", "{1}").replace("#", "{0}")
    relation = {c: Instance(c, (AffineExpr.of({0: 6, 1: 1}),)) for c in ("c0", "c1")}
    assert proved(verify_dependence(parse(text), parse(split), relation, CORE_DIALECT, Kind.EXACT))


def test_a_write_under_a_condition_with_quotients_is_not_overlooked() -> None:
    """isl's flow through a schedule tree loses the second write of t[1,0,0] here."""
    text = """kernel k(x) -> t
x f32 [4] heap
t f32 [2,6,6] heap

3 2 12
| t[{2}//6,{0}*2+{1},{2}%6] = x[0]
| t[{2}//6,{0}*2+{1},{2}%6] = 2 if {0}*2+{1}+{2}%6 <= 0 and {2}%6 <= 3
"""
    split = text.replace("3 2 12", "3 2 2 6").replace("{2}//6", "{2}").replace("{2}%6", "{3}")
    whole, apart = parse(text), parse(split)
    pairs = (AffineExpr.level(0), AffineExpr.level(1), AffineExpr.of({2: 6, 3: 1}))
    relation = {c: Instance(c, pairs) for c in ("c0", "c1")}
    assert proved(verify_dependence(whole, apart, relation, CORE_DIALECT, Kind.EXACT))


def test_writes_in_strides_under_conditions_are_not_overlooked() -> None:
    """isl's own flow finds no write of t[0,1] here, and no quotient is about."""
    text = """kernel k(x) -> y
x f32 [6] heap
t f32 [6,6] heap
y f32 [6] heap

6 2 1
| 2 t[{1}*2+{2}+{3}*4,{0}] = x[{0}] if {1}*2+{2}+{3}*4 <= 5
| 2 t[{1}*2+{2}+{3}*4+1,{0}] = x[{0}] if {1}*2+{2}+{3}*4 <= 4
y[0] = 0
5
| y[{0}+1] = 0
| 2 4 y[{0}+1] += t[{1}*4+{2},{0}+1] if {1}*4+{2} <= 5
"""
    assert proved(verify_races(parse(text), CORE_DIALECT))


# -- limits ------------------------------------------------------------------------------------------


def test_giving_up_is_not_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependence, "Session", partial(Session, max_operations=50))
    report = check(SUM, SUM)
    assert not report and report.problem.startswith("undecided: more than 50 operations")


def test_other_failures_of_the_library_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(sets: object) -> None:
        Session().affine("S0", 1, "", ["not a form"])

    monkeypatch.setattr(dependence, "check_races", broken)
    with pytest.raises(VerificationError) as caught:
        verify_races(SUM, CORE_DIALECT)
    assert caught.value.code == "PD-V041" and "syntax error" in caught.value.why
