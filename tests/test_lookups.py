"""Run-time indices: their ranges, what each leg says of them, and how they compile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Outcome

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.relation import Instance
from perfdojo_sdk.core.subscripts import AffineExpr
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.library.loader import load_library
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace, verify_races
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace
from perfdojo_sdk.views.formula import unicode_math
from tests.snippets import DIALECT, RULES, move, refusal

HEAD = """kernel rows(k, x) -> y
k i32 [5] heap
x f32 [10,4] heap
y f32 [5,4] heap

"""
GATHER = f"{HEAD}5 4 y[{{0}},{{1}}] = x[clamp(k[{{0}}], 0, 9),{{1}}]\n"


def rows(index: str) -> Program:
    return parse(f"{HEAD}5 4 y[{{0}},{{1}}] = x[{index},{{1}}]\n", DIALECT)


@pytest.mark.parametrize(
    ("index", "low", "high"),
    [
        ("clamp(k[{0}], 0, 9)", 0, 9),
        ("clamp(k[{0}], -3, 6)+3", 0, 9),
        ("clamp(k[{0}], 0, 4)*2+1", 1, 9),
        ("clamp(k[{0}], 0, 5)+{0}", 0, 9),
        ("-{0}-clamp(k[{0}], 0, 5)+9", 0, 9),
        ("clamp(select(k[{0}] < 0, k[{0}] + 10, k[{0}]), 0, 9)", 0, 9),
        ("rem(k[{0}], 5)+4", 0, 8),
        ("and(k[{0}], 7)", 0, 7),
        ("abs(rem(k[{0}], 10))", 0, 9),
        ("max(min(k[{0}], 9), 0)", 0, 9),
        ("rem(max(k[{0}], 0), 10)", 0, 9),
    ],
)
def test_a_range_follows_from_the_text_and_reads_back(index: str, low: int, high: int) -> None:
    program = rows(index)
    subscript = program.body[0].leaves[0].statement.reads[0].subscripts[0]
    assert subscript.bounds((5, 4)) == (low, high)
    assert parse(program.text, DIALECT) == program
    for number in (-(2**31), -11, -1, 0, 3, 9, 10, 2**31 - 1):
        given = {"k": [number] * 5, "x": [float(v) for v in range(40)]}
        assert all(low * 4 <= value <= high * 4 + 3 for value in interpret(program, given, ROUNDING)["y"])


@pytest.mark.parametrize(
    ("index", "code", "says"),
    [
        ("k[{0}]", "PD-P012", "reaches -2147483648 .. 2147483647"),
        ("clamp(k[{0}], 0, 10)", "PD-P012", "reaches 0 .. 10"),
        ("clamp(k[{0}], 0, 9) + {0}", "PD-P012", "reaches 0 .. 13"),
        ("k[{0}] * k[{0}]", "PD-P002", "expected"),
        ("clamp(k[{0}+1], 0, 9)", "PD-P012", "subscript {0}+1 reaches 1 .. 5"),
        ("clamp(f32(k[{0}]), 0, 9)", "PD-P010", "a run-time index is an integer, this is f32"),
        ("clamp(i32(x[{0},0]), 0, 9)", "PD-P017", "an index is made of integers alone"),
        ("clamp({0}, 0, 9)", "PD-P010", "a number without a dtype"),
        ("clamp(k[clamp(k[{0}], 0, 4)], 0, 9)", "PD-P017", "is chosen by a run-time index itself"),
        ("clamp(rem(k[{0}], k[0]), 0, 9)", "PD-P017", "has no result for some operands"),
        ("clamp(k[{0}] / 0, 0, 9)", "PD-P017", "has no result for some operands"),
        ("clamp(shl(k[{0}], 32), 0, 9)", "PD-P017", "has no result for some operands"),
        ("clamp(k[{0}], 9, 0)", "PD-P003", "no index is in 9 .. 0"),
        ("(clamp(k[{0}], 0, 9))//2", "PD-P017", "stands in brackets"),
    ],
)
def test_an_index_that_may_leave_its_array_is_refused(index: str, code: str, says: str) -> None:
    with pytest.raises(ProgramError) as refused:
        rows(index)
    assert refused.value.code == code and says in refused.value.what


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("5 t[{0}] = k[{0}]\n5 4 y[{0},{1}] = x[clamp(t[{0}], 0, 9),{1}]", "t is no input"),
        ("10 4 s[{0},{1}] = x[{0},{1}]\n5 4 y[{0},{1}] = s[clamp(k[{0}], 0, 9),{1}]", "s is no input"),
        ("5 4 y[{0},{1}] = x[{0},{1}] if clamp(k[{0}], 0, 9) > 3", "in a condition or a number"),
        ("5 4 y[{0},{1}] = index(clamp(k[{0}], 0, 9))", "in a condition or a number"),
        ("5 t[{0}] = 0\n5 t[clamp(k[{0}], 0, 4)] = 1\n5 4 y[{0},{1}] = x[{0},{1}]", "t is no output"),
    ],
)
def test_indices_choose_elements_of_inputs_by_inputs_and_are_nothing_else(body: str, says: str) -> None:
    declared = HEAD.replace("\ny f32", "\nt i32 [5] heap\ns f32 [10,4] heap\ny f32")
    with pytest.raises(ProgramError) as refused:
        parse(f"{declared}{body}\n", DIALECT)
    assert refused.value.code == "PD-P017" and says in refused.value.what


# -- moves and legs --------------------------------------------------------------------------------


def test_lanes_are_neighbours_of_an_element_that_was_chosen_not_chosen_themselves() -> None:
    program = parse(GATHER, DIALECT)
    assert refusal(program, "annotate_scope(s1, suffix=v)") == ""
    turned = RULES.step(program, move("swap_scopes(s0)")).after
    assert refusal(turned, f"annotate_scope({turned.body[0].body[0].id}, suffix=v)")  # type: ignore[union-attr]


def test_moves_on_chosen_elements_are_proved() -> None:
    trace = Trace(parse(GATHER, DIALECT))
    for text in ("stage_read(s1, array=x)", "split_scope(s1, factor=2)", "annotate_scope(s0, suffix=p)"):
        trace = Trace(trace.root, (*trace.steps, RULES.step(trace.program, move(text))))
    assert "x_r[{0},{1}] = x[clamp(k[{0}], 0, 9),{1}]" in trace.program.text
    assert verify_exact_trace(trace, DIALECT).ok
    report = verify_dependence_trace(trace, RULES)
    assert report, report.problem


@pytest.mark.parametrize(
    "wrong",
    [
        "x[clamp(k[-{0}+4], 0, 9),{1}]",
        "x[clamp(k[{0}], 0, 8),{1}]",
        "x[clamp(k[{0}] + 1, 0, 9),{1}]",
        "x[clamp(k[{0}], 0, 8)+1,{1}]",
        "x[clamp(k[{0}], 0, 9),-{1}+3]",
        "x[clamp(k[{1}], 0, 9),{1}]",
        "x[{0},{1}]",
    ],
)
def test_another_index_is_refuted_by_each_leg(wrong: str) -> None:
    right, other = parse(GATHER, DIALECT), parse(f"{HEAD}5 4 y[{{0}},{{1}}] = {wrong}\n", DIALECT)
    report = verify_dependence(right, other, {}, DIALECT, Kind.EXACT)
    assert not report and report.decided
    assert not verify_exact(right, other, (), DIALECT).ok


def test_equal_functions_of_other_iterators_are_proved_equal() -> None:
    right = parse(GATHER, DIALECT)
    turned = parse(f"{HEAD}4 5 y[{{1}},{{0}}] = x[clamp(k[{{1}}], 0, 9),{{0}}]\n", DIALECT)
    relation = {"c0": Instance("c0", (AffineExpr.level(1), AffineExpr.level(0)))}
    report = verify_dependence(right, turned, relation, DIALECT, Kind.EXACT)
    assert report, report.problem


def test_the_mathematics_shows_the_index() -> None:
    assert "x[max(min(k[i], 9), 0),j]" in unicode_math(parse(GATHER, DIALECT), DIALECT)


# -- writing at run-time indices -------------------------------------------------------------------

SCATTER_HEAD = """kernel scatter(n, x, y) -> y
n i32 [5] heap
x f32 [5,4] heap
y f32 [9,4] heap

"""
SCATTER = f"{SCATTER_HEAD}5 4 y[clamp(n[{{0}}], 0, 8),{{1}}] = x[{{0}},{{1}}]\n"
ADDED = f"{SCATTER_HEAD}5 4 y[clamp(n[{{0}}], 0, 8),{{1}}] += x[{{0}},{{1}}]\n"


def test_the_last_write_of_a_chosen_cell_counts_and_other_cells_stay() -> None:
    given = {"n": [2, -5, 2, 99, 0], "x": [float(v) for v in range(20)], "y": [-1.0] * 36}
    found = interpret(parse(SCATTER, DIALECT), given, ROUNDING)["y"]
    assert found[:4] == [16.0, 17.0, 18.0, 19.0] and found[8:12] == [8.0, 9.0, 10.0, 11.0]
    assert found[32:] == [12.0, 13.0, 14.0, 15.0] and found[4:8] == [-1.0] * 4


def test_an_output_that_is_written_at_chosen_cells_only_is_refused() -> None:
    with pytest.raises(ProgramError) as refused:
        parse(SCATTER.replace("(n, x, y)", "(n, x)"), DIALECT)
    assert refused.value.code == "PD-P013" and refused.value.hint == "start with a plain write"


@pytest.mark.parametrize("text", [SCATTER, ADDED])
def test_iterations_that_may_choose_one_cell_keep_their_order(text: str) -> None:
    program = parse(text, DIALECT)
    assert refusal(program, "annotate_scope(s0, suffix=p)") == "PD-T154"
    for suffix in "pv":
        assert refusal(program, f"annotate_scope(s1, suffix={suffix})") == ""
    for name in ("stage_write(s1, array=y)", "stage_accumulator(s1, array=y)"):
        assert refusal(program, name)
    turned = RULES.step(program, move("swap_scopes(s0)")).after
    assert verify_exact(program, turned, (), DIALECT).ok


def test_sums_into_chosen_cells_are_not_taken_apart() -> None:
    program = parse(ADDED.replace("0, 8),{1}] +=", "0, 8),0] +="), DIALECT)
    for name in ("swap_scopes(s0)", "split_reduction(s1, lane=s1)", "annotate_scope(s1, suffix=v)"):
        assert refusal(program, name), name


@pytest.mark.parametrize(
    "wrong",
    [
        "5 4 y[clamp(n[{0}], 0, 7),{1}] = x[{0},{1}]",
        "5 4 y[clamp(n[{0}], 0, 7)+1,{1}] = x[{0},{1}]",
        "5 4 y[clamp(n[0], 0, 8),{1}] = x[{0},{1}]",
        "5 4 y[clamp(n[{0}], 0, 8),-{1}+3] = x[{0},{1}]",
        "5 4 y[clamp(n[{0}], 0, 8),{1}] = x[{0},-{1}+3]",
        "5 4 y[{0},{1}] = x[{0},{1}]",
    ],
)
def test_another_place_is_refuted_by_each_leg(wrong: str) -> None:
    right, other = parse(SCATTER, DIALECT), parse(f"{SCATTER_HEAD}{wrong}\n", DIALECT)
    report = verify_dependence(right, other, {}, DIALECT, Kind.EXACT)
    assert not report and report.decided
    assert not verify_exact(right, other, (), DIALECT).ok


def test_another_order_of_writes_that_may_meet_is_refuted() -> None:
    two = f"{SCATTER}9 y[{{0}},0] += 1\n4 y[clamp(n[{{0}}], 0, 8),1] = x[{{0}},0]\n"
    program = parse(two, DIALECT)
    first, add, last = program.body
    for body in ((add, first, last), (last, add, first), (first, last, add)):
        report = verify_dependence(program, program.with_body(body), {}, DIALECT, Kind.REASSOCIATES)
        moved = verify_exact(program, program.with_body(body), (), DIALECT)
        assert bool(report) == moved.ok == (body == (first, last, add))


def test_a_race_of_chosen_cells_is_seen() -> None:
    racing = parse(SCATTER.replace("5 4 y", "5:p 4 y"), DIALECT)
    report = verify_races(racing, DIALECT)
    assert not report and "race in parallel scope" in report.problem
    assert verify_races(parse(SCATTER.replace("5 4 y", "5 4:p y"), DIALECT), DIALECT)


# -- compiled --------------------------------------------------------------------------------------

EMBEDDING = """kernel embedding(k, x, w) -> y
k i32 [7] heap
x f32 [20,24] heap
w f32 [24] heap
y f32 [7,24] heap

7 24 y[{0},{1}] = x[clamp(select(k[{0}] < 0, k[{0}] + 20, k[{0}]), 0, 19),{1}] * w[{1}]
"""


CACHE = """kernel cache(p, k, kc) -> kc
p i32 [1] heap
k f32 [3,16] heap
kc f32 [3,10,16] heap

3 16 kc[{0},clamp(p[0], 0, 9),{1}] = k[{0},{1}]
"""
HISTOGRAM = """kernel histogram(n, x) -> y
n u8 [40] heap
x f32 [40] heap
y f32 [256] heap

256 y[{0}] = 0
40 y[n[{0}]] += x[{0}]
"""


def test_a_library_writes_where_it_is_told(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "cache.dojo").write_text(CACHE)
    (tmp_path / "histogram.dojo").write_text(HISTOGRAM)
    built = cli("build-library", "--kernels", "cache.dojo histogram.dojo", "-o", "lib", plugins="toy")
    assert built.code == 0, built.err
    library, rng = load_library(tmp_path / "lib"), np.random.default_rng(0)
    k, cache = rng.standard_normal((3, 16), np.float32), np.zeros((3, 10, 16), np.float32)
    assert library.cache(np.array([7], np.int32), k, cache) is cache
    assert (cache[:, 7] == k).all() and not cache[:, :7].any() and not cache[:, 8:].any()
    n, x = rng.integers(0, 256, 40, np.uint8), rng.integers(0, 9, 40).astype(np.float32)
    assert (library.histogram(n, x) == np.bincount(n, x, 256)).all()


def test_a_library_gathers_and_clamps(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "embedding.dojo").write_text(EMBEDDING)
    built = cli("build-library", "--kernels", "embedding.dojo", "-o", "lib", plugins="toy")
    assert built.code == 0, built.err
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((20, 24), np.float32), rng.standard_normal(24, np.float32)
    k = np.array([0, 19, -1, -20, 7, 2**31 - 1, -(2**31)], np.int32)
    found = load_library(tmp_path / "lib").embedding(k, x, w)
    assert (found == x[[0, 19, 19, 0, 7, 19, 0]] * w).all()
