"""Races and lanes: iterations of parallel scopes that meet in a cell, and values that they cannot hand on."""

from __future__ import annotations

from dependence_programs import STAGED, SUM, TWO, check, kernel, proved, refuted

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.verify.dependence import DependenceReport, verify_races

# -- parallel scopes -------------------------------------------------------------------------------


def races(body: str, declarations: str = STAGED) -> DependenceReport:
    return verify_races(kernel(declarations, body), CORE_DIALECT)


def between(body: str) -> str:
    """Parallel scopes that work on ``b``, which is written before and read after them."""
    return f"4 8 b[{{0}},{{1}}] = 0\n{body}\n4 8 y[{{0}},{{1}}] = b[{{0}},{{1}}]"


def test_race_between_parallel_iterations() -> None:
    assert proved(races("4:p 8 y[{0},{1}] = x[{0},{1}]"))
    report = races(between("4:p 8 b[0,{1}] = x[{0},{1}]"))
    assert refuted(report, "race in parallel scope 4:p ({0})", "writes b[0,{1}] in iteration 0")
    assert refuted(races(between("4:p 8 b[0,{1}] += x[{0},{1}]")), "c1 `b[0,{1}] += x[{0},{1}]`")
    shifted = races(between("3:p 8 b[{0},{1}] = b[{0}+1,{1}]"))
    assert refuted(shifted, "writes b[{0},{1}]", "reads b[{0}+1,{1}]")


def test_parallel_inside_sequential() -> None:
    inner = "4 8:p y[{0},{1}] = x[{0},{1}]"
    assert proved(races(inner))
    assert proved(races(between("4 8:p b[0,{1}] = x[{0},{1}]")))
    assert refuted(races(between("4 8:p b[{0},0] = x[{0},{1}]")), "race in parallel scope 8:p ({1})")


def test_temporaries_inside_a_parallel_scope_are_private() -> None:
    body = "4:p\n| 8 b[{0},{1}] = x[{0},{1}]\n| 8 y[{0},{1}] = b[{0},{1}]"
    assert proved(races(body, STAGED.replace("b f32 [4,", "b f32 [4:N,")))
    outside = "4:p 8 b[{0},{1}] = x[{0},{1}]\n4:p 8 y[{0},{1}] = b[{0},{1}]"
    assert proved(races(outside))
    assert refuted(races(outside, STAGED.replace("b f32 [4,", "b f32 [4:N,")), "race in parallel scope")


def test_a_value_cannot_outlive_its_parallel_iteration() -> None:
    names = STAGED.replace("b f32 [4,8]", "b f32 [4:N,8]")
    carried = "4:SUFFIX\n| 8 b[{0},{1}] = x[{0},{1}]\n| 8 y[{0},{1}] = b[{0},{1}]".replace
    assert proved(races(carried("SUFFIX", "p"), names))
    leak = "4:p 8\n| y[{0},{1}] = x[{0},{1}]\n| b[0,7-{1}] = y[{0},{1}]\n| y[{0},{1}] = b[0,{1}]"
    assert refuted(races(leak, names), "nothing was written")
    # Sequential iterations share the buffer, so the earlier ones have written before.
    before = kernel(names, "4 8 b[{0},{1}] = x[{0},{1}]\n4\n| 8 y[{0},{1}] = b[{0},{1}]\n| 8 b[{0},{1}] = 0")
    assert proved(check(before, before))


def test_a_scope_made_parallel_loses_what_was_carried() -> None:
    names = "x f32 [4] heap\nt f32 [1] heap\ny f32 [4] heap"
    body = "4\n| 2 t[0] = x[{0}]\n| y[{0}] = t[0]"
    assert proved(check(kernel(names, body), kernel(names, body.replace("4\n", "4:p\n", 1))))


# -- lockstep ----------------------------------------------------------------------------------------


def test_lanes_load_before_any_stores() -> None:
    names = "x f32 [9] heap\nt f32 [9] heap\ny f32 [9] heap"
    body = "9 t[{0}] = x[{0}]\n8 t[{0}+1] = t[{0}] * 2\n9 y[{0}] = t[{0}]"
    chain, vector = kernel(names, body), kernel(names, body.replace("\n8 ", "\n8:v "))
    assert refuted(check(chain, vector), "reads t[{0}]", "before the move it sees c1")
    assert proved(check(vector, vector))
    ahead = "9 t[{0}] = x[{0}]\n8 t[{0}] = t[{0}+1] * 2\n9 y[{0}] = t[{0}]"
    assert proved(check(kernel(names, ahead), kernel(names, ahead.replace("\n8 ", "\n8:v "))))


def test_horizontal_reduction_reassociates() -> None:
    vector = kernel(TWO, "8\n| y[{0}] = 0\n| 16:v y[{0}] += x[{0},{1}]")
    assert refuted(check(SUM, vector), "adds onto")
    assert proved(check(SUM, vector, kind=Kind.REASSOCIATES))
    assert proved(check(vector, vector))
    turned = TWO.replace("[8,16]", "[16,8]")
    lanes = kernel(turned, "8 y[{0}] = 0\n16 8:v y[{1}] += x[{0},{1}]")
    apart = kernel(turned, "8 y[{0}] = 0\n16 8 y[{1}] += x[{0},{1}]")
    assert proved(check(apart, lanes))


def test_a_lane_missing_from_a_horizontal_sum_is_seen_by_an_exact_move() -> None:
    """All lanes but one could vanish behind the last one, were only the last write looked at."""
    names = "x f32 [16] heap\nt f32 [2] heap\ny f32 [2] heap"
    body = "2 t[{0}] = 0\n16:v t[0] += x[{0}]\n2 y[{0}] = t[{0}]"
    before = kernel(names, body)
    apart = "2 t[{0}] = 0\n15:v t[1] += x[{0}]\nt[0] += x[15]\n2 y[{0}] = t[{0}]"
    report = check(before, kernel(names, apart), "c0 {0}", "c1 {0}", "c1 15", "c2 {0}")
    assert refuted(report, "t[{0}]")


def test_lanes_that_overwrite_each_other() -> None:
    assert refuted(races(between("4 8:v b[{0},0] = x[{0},{1}]")), "all lanes write one cell")


def test_malformed_programs() -> None:
    names = "x f32 [8] heap\nt f32 [8] heap\ny f32 [8] heap"
    assert refuted(races("7 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}]", names), "reads t[{0}] at [7]: nothing")
    assert refuted(races("7 y[{0}] = x[{0}]", names), "output y at [7]: nothing")
    assert refuted(races("7 y[{0}] = 0\n8 y[{0}] += x[{0}]", names), "adds onto y[{0}] at [7]: nothing")
