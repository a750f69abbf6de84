"""Expanded temporaries: the moves, their reverse, and plans that do not depend on how results are kept."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from math import prod
from random import Random

import pytest
from snippets import RULES, play, program, refusal
from test_made_targets import target
from test_ranges import verified

from perfdojo_sdk.core.program import Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind as Change
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu import normal_form
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.library.verification import VerificationCache, dependence, exact
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk

TARGET = target(vector_registers=32, peak_gflops={"f32": 100.0})
RULES_OF_TARGET = Rules(TARGET.dialect, GENERIC)

ONE_AT_A_TIME = {
    "a cell": "t f32 [8:N] heap\n8\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}] + 1",
    "a sum": "t f32 [4:N] heap\n4\n| t[{0}] = 0\n| 8 t[{0}] += x[{0},{1}]\n| y[{0}] = t[{0}] + 1",
    "a row": "t f32 [4:N,8] heap\n4\n| 8 t[{0},{1}] = x[{0},{1}] * 2\n| 8 y[{0},{1}] = t[{0},7-{1}]",
    "on threads": "t f32 [8:N] stack\n8:p\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}] + 1",
    "the same for all": "t f32 [4:N] heap\n4 8\n| t[{0}] = x[{0}] * 2\n| y[{0},{1}] = t[{0}]",
}


@pytest.mark.parametrize("text", ONE_AT_A_TIME.values(), ids=ONE_AT_A_TIME)
def test_a_dimension_that_is_kept_can_be_reused_again(text: str) -> None:
    start = program(text)
    kept, _ = verified(start, "keep_dims(t, dim=0)")
    assert ":N" not in kept.storage_lines
    again, _ = verified(kept, "reuse_dims(t, dim=0)")
    assert again.text == start.text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("PD-T732", "t f32 [4:N] heap\nt[0] = 1\n4\n| y[{0}] = t[{0}] * 2\n| t[{0}] = x[{0}]\ny[0] += t[3]"),
        ("PD-T733", "t f32 [4:N] heap\n4\n| t[{0}] = x[{0}] if {0} <= 2\n| y[{0}] = t[{0}]"),
        ("PD-T733", "t f32 [4:N] heap\n4\n| t[{0}] = 0 if {0} <= 0\n| t[{0}] += x[{0}]\n| y[{0}] = t[{0}]"),
        (
            "PD-T733",
            "t f32 [4:N,4] heap\n4\n| 3 t[{0},{1}] = x[{0},{1}]\n| t[{0},3] = 1 if {0} <= 0\n"
            "| y[{0}] = t[{0},3]",
        ),
    ],
    ids=["the iteration before", "a condition", "a running sum", "a cell of the row"],
)
def test_a_value_of_another_index_keeps_the_place_shared(code: str, text: str) -> None:
    assert refusal(program(text), "keep_dims(t, dim=0)") == code


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("t f32 [1] heap\n8\n| t[0] = x[{0}] * 2\n| y[{0}] = t[0] + 1", "s0"),
        ("t f32 [8] heap\n4\n| 8 t[{1}] = x[{0},{1}]\n| 8 y[{0},{1}] = t[7-{1}]", "s0"),
        ("t f32 [1] heap\n4 8\n| t[0] = x[{0},{1}]\n| y[{0},{1}] = t[0]", "s1"),
    ],
)
def test_scalars_become_arrays_in_two_moves(text: str, scope: str) -> None:
    start = program(text)
    longer, _ = verified(start, f"add_dim(t, scope={scope})")
    size = start.place_of[scope].node.size  # type: ignore[union-attr]
    assert f"t f32 [{size}:N," in longer.text
    kept, _ = verified(longer, "keep_dims(t, dim=0)")
    assert ":N" not in kept.storage_lines


def test_random_temporaries_are_expanded_and_proved() -> None:
    """In random programs after random moves; ``verified`` asks all legs."""
    found = {"keep_dims": 0, "add_dim": 0}
    for seed in range(400):
        rng = Random(seed)
        start = random_walk(rng, random_program(rng, 4), RULES, rng.randrange(8)).program
        for step in list(RULES.steps(start)):
            name = step.move.transformation
            if found.get(name, 9) < 6:
                found[name] += 1
                verified(start, step.move.text)
        if min(found.values()) == 6:
            return
    assert min(found.values()) > 2, found


# -- plans -------------------------------------------------------------------------------------------------

ROWS = """kernel rows(x, w, b) -> y
x f32 [48,64] heap
w f32 [64,96] heap
b f32 [96] heap
y f32 [48,96] heap
h f32 [48:N,64] heap
s f32 [48:N,96:N] heap
t f32 [48:N,96:N] heap

48
| 64 h[{0},{1}] = max(x[{0},{1}], 0)
| 96
| | s[{0},{1}] = 0
| | 64 s[{0},{1}] += h[{0},{2}] * w[{2},{1}]
| | t[{0},{1}] = s[{0},{1}] + b[{1}]
| | y[{0},{1}] = t[{0},{1}] * sigmoid(t[{0},{1}])
"""
COLUMNS = """kernel columns(x) -> y
x f32 [96,128] heap
y f32 [128] heap
s f32 [128:N] heap

128
| s[{0}] = 0
| 96 s[{0}] += x[{1},{0}]
| y[{0}] = s[{0}] / 96
"""
CHAIN = """kernel chain(x) -> y
x f32 [64,80] heap
y f32 [64,80] heap
a f32 [64:N,80:N] heap
e f32 [64:N,80:N] heap

64 80
| a[{0},{1}] = x[{0},{1}] * 2 + 1
| e[{0},{1}] = exp(a[{0},{1}])
| y[{0},{1}] = e[{0},{1}] * a[{0},{1}]
"""


def game(text: str) -> Play:
    """A game that begins with a program."""
    return Play(parse(text, TARGET.dialect), RULES_OF_TARGET)


def planned(text: str) -> list[str]:
    found = plan(parse(text, TARGET.dialect), RULES_OF_TARGET, TARGET)
    return [re.sub(r",1\]| heap| stack|,0\]", "]", each.program.text) for each in found.games]


@pytest.mark.parametrize("text", [ROWS, COLUMNS, CHAIN], ids=["rows", "columns", "chain"])
def test_plans_do_not_depend_on_how_results_are_kept(text: str) -> None:
    """One place for all results, as in C, and an array of them lead to the same games."""
    whole = planned(text.replace(":N", ""))
    assert ":v" in whole[0] and planned(text) == whole


def test_scalars_are_planned_as_arrays() -> None:
    scalar = CHAIN.replace("[64:N,80:N]", "[1]").replace("a[{0},{1}]", "a[0]").replace("e[{0},{1}]", "e[0]")
    games = planned(scalar)
    assert len(games) == len(planned(CHAIN)) and all(":v" in game for game in games)


PRODUCT = """kernel product(x, w) -> y
x f32 [48,64] heap
w f32 [64,96] heap
y f32 [48,96] heap

48 96 y[{0},{1}] = 0
"""


@pytest.mark.parametrize("order", list(permutations("ijk")), ids="".join)
def test_plans_do_not_depend_on_the_order_of_loops(order: tuple[str, ...]) -> None:
    at = {name: f"{{{level}}}" for level, name in enumerate(order)}
    i, j, k = (at[name] for name in "ijk")
    sizes = " ".join(str({"i": 48, "j": 96, "k": 64}[name]) for name in order)
    usual = PRODUCT + "48 96 64 y[{0},{1}] += x[{0},{2}] * w[{2},{1}]\n"
    assert planned(f"{PRODUCT}{sizes} y[{i},{j}] += x[{i},{k}] * w[{k},{j}]\n") == planned(usual)


def test_sums_in_one_loop_are_planned_as_in_two() -> None:
    head = (
        "kernel sums(x) -> y, z\nx f32 [48,64] heap\ny f32 [48] heap\nz f32 [48] heap\n\n"
        "48\n| y[{0}] = 0\n| z[{0}] = 0\n"
    )
    one = head + "| 64\n| | y[{0}] += x[{0},{1}]\n| | z[{0}] += x[{0},{1}] * x[{0},{1}]\n"
    two = head + "| 64 y[{0}] += x[{0},{1}]\n| 64 z[{0}] += x[{0},{1}] * x[{0},{1}]\n"
    assert planned(one) == planned(two)


def test_an_array_that_is_changed_in_steps_gets_a_loop_for_each() -> None:
    head = "kernel steps(x) -> y\nx f32 [48,64] heap\ny f32 [48,64] heap\n\n"
    steps = ("y[{0},{1}] = x[{0},{1}] * 2", "y[{0},{1}] += 1", "y[{0},{1}] = max(y[{0},{1}], 0)")
    one = head + "48 64\n" + "".join(f"| {step}\n" for step in steps)
    assert planned(one) == planned(head + "48\n" + "".join(f"| 64 {step}\n" for step in steps))


def test_loops_through_neighbours_stay_where_nothing_is_summed_up() -> None:
    text = "kernel turned(x) -> y\nx f32 [48,64] heap\ny f32 [64,48] heap\n\n48 64 y[{1},{0}] = x[{0},{1}]\n"
    start = game(text)
    assert not normal_form.order_loops(start, TARGET)


def test_iterations_that_depend_on_each_other_keep_their_places() -> None:
    text = (
        "kernel steps(x) -> y\nx f32 [16,32] heap\ny f32 [16,32] heap\nh f32 [32] heap\ng f32 [32] heap\n\n"
        "32 h[{0}] = 0\n16\n| 32 g[{1}] = h[{1}] * 2 + x[{0},{1}]\n| 32 h[{1}] = g[{1}]\n"
        "| 32 y[{0},{1}] = h[{1}]\n"
    )
    start = game(text)
    assert not normal_form.keep_results(start, TARGET) and not start.trace.steps


@pytest.mark.parametrize(
    "body",
    [
        "16\n| h[0] = 0\n| 32\n| | h[0] = h[0] * 0.5 + x[{0},{1}]\n| | y[{0},{1}] = max(h[0], 0)\n",
        "16\n| h[0] = 0\n| 32\n| | h[0] += x[{0},{1}]\n| | y[{0},{1}] = h[0]\n",
        "16 32\n| h[0] = 0\n| h[0] = x[{0},{1}-1] if {1} >= 1\n| h[0] += x[{0},{1}]\n| y[{0},{1}] = h[0]\n",
    ],
    ids=["recurrence", "running sum", "conditions"],
)
def test_values_that_registers_hold_best_stay_scalars(body: str) -> None:
    text = f"kernel k(x) -> y\nx f32 [16,32] heap\ny f32 [16,32] heap\nh f32 [1] heap\n\n{body}"
    start = game(text)
    assert not normal_form.keep_results(start, TARGET)
    assert not normal_form.cut_statements(start, TARGET)


def test_columns_are_not_cut_apart() -> None:
    text = (
        "kernel k(x) -> y\nx f32 [16,64] heap\ny f32 [16,64] heap\nm f32 [16] heap\n\n"
        "16 m[{0}] = -inf\n64\n| 16\n| | m[{1}] max= x[{1},{0}]\n| | y[{1},{0}] = m[{1}]\n"
    )
    start = game(text)
    assert not normal_form.cut_statements(start, TARGET)


def test_new_dimensions_stand_in_the_order_of_loops() -> None:
    start = program("t f32 [4] heap\n4 8\n| t[{0}] = x[{0},{1}]\n| y[{0},{1}] = t[{0}]")
    longer = play(start, "add_dim(t, scope=s1)")
    assert "t f32 [4,8:N] heap" in longer.text and "t[{0},{1}]" in longer.text


STEPS = """kernel steps(x, s, w) -> y
x f32 [48,64] heap
s f32 [64] heap
w f32 [64,96] heap
y f32 [48,96] heap
a f32 [] heap
c f32 [] heap

48 96
| c[] = 0
| 64
| | a[] = x[{0},{2}] * s[{2}]
| | a[] = a[] * sigmoid(a[])
| | c[] += a[] * w[{2},{1}]
| y[{0},{1}] = c[]
"""


def test_steps_of_one_value_become_one_expression() -> None:
    """Steps inside of a sum keep it from being a product of two elements."""
    start = game(STEPS)
    assert [d.place for d in normal_form.inline_steps(start, TARGET)] == ["a"]
    assert "a" not in [buffer.name for buffer in start.program.buffers]
    found = plan(parse(STEPS, TARGET.dialect), RULES_OF_TARGET, TARGET)
    assert any(d.rule == "parts" and d.choice == "contraction" for d in found.decisions)


def test_costly_steps_are_not_computed_again() -> None:
    text = (
        "kernel k(x) -> y\nx f32 [64] heap\ny f32 [64] heap\nt f32 [] heap\n\n"
        "64\n| t[] = exp(x[{0}])\n| y[{0}] = t[] * t[]\n"
    )
    start = game(text)
    assert not normal_form.inline_steps(start, TARGET)


def test_large_arrays_are_not_made_of_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal_form, "MOST_KEPT", 0)
    monkeypatch.setattr(normal_form, "KEPT_SHARE", 0)
    start = game(COLUMNS)
    assert not normal_form.keep_results(start, TARGET)


def test_a_loop_whose_statements_need_each_other_stays_whole() -> None:
    text = (
        "kernel sums(x) -> y\nx f32 [32] heap\ny f32 [32] heap\ns f32 [1] heap\n\n"
        "s[0] = 0\n32\n| s[0] += x[{0}]\n| y[{0}] = s[0]\n"
    )
    start = game(text)
    assert not normal_form.cut_statements(start, TARGET)


NEAREST = """kernel nearest(p, c) -> d
p f32 [64,3] heap
c f32 [32,3] heap
s f32 [1] heap
d f32 [64] heap

64
| d[{0}] = inf
| 32
| | s[0] = 0
| | 3 s[0] += (p[{0},{2}] - c[{1},{2}]) * (p[{0},{2}] - c[{1},{2}])
| | d[{0}] min= s[0]
"""
BODIES = """kernel bodies(x, z, m) -> ax, az
x f32 [48] heap
z f32 [48] heap
m f32 [48] heap
q f32 [1] heap
r f32 [1] heap
ax f32 [48] heap
az f32 [48] heap

48
| ax[{0}] = 0
| az[{0}] = 0
| 48
| | q[0] = sqrt((x[{1}] - x[{0}]) * (x[{1}] - x[{0}]) + (z[{1}] - z[{0}]) * (z[{1}] - z[{0}]) + 0.01)
| | r[0] = m[{1}] / (q[0] * q[0] * q[0])
| | ax[{0}] += (x[{1}] - x[{0}]) * r[0]
| | az[{0}] += (z[{1}] - z[{0}]) * r[0]
"""


@pytest.mark.parametrize("text", [NEAREST, BODIES], ids=["nearest", "bodies"])
def test_sums_of_values_that_scalars_keep_are_computed_in_lanes(text: str) -> None:
    """The values do not wait for each other, the sums of a loop of their own have partial results."""
    found = plan(parse(text, TARGET.dialect), RULES_OF_TARGET, TARGET)
    assert any(d.rule == "cut off sums" for d in found.decisions)
    for each in found.games:
        assert exact(each, RULES_OF_TARGET, 0).passed
        assert dependence(each, RULES_OF_TARGET, VerificationCache()).passed
        places = [p for p in each.program.places if isinstance(p.node, Statement)]
        often = [p for p in places if prod(p.sizes) >= 48 * 32]
        assert often and all(p.above[-1].suffix == "v" for p in often), each.program.text


def test_sums_stay_where_they_are_if_plans_may_not_add_them_up_in_another_order() -> None:
    rules = replace(RULES_OF_TARGET, most=Change.EXACT)
    found = plan(parse(BODIES, TARGET.dialect), rules, TARGET)
    assert found.games and not any(d.rule == "cut off sums" for d in found.decisions)
    nearest = plan(parse(NEAREST, TARGET.dialect), rules, TARGET)
    assert max(game.kind for game in (*found.games, *nearest.games)) is Change.EXACT


def test_a_minimum_of_distances_is_a_contraction_and_a_row() -> None:
    found = plan(parse(NEAREST, TARGET.dialect), RULES_OF_TARGET, TARGET)
    assert {"contraction"} <= {d.choice for d in found.decisions if d.rule == "parts"}


@pytest.mark.parametrize(
    "body",
    [
        "t[0] = s[0] * 0.5\n| s[0] += t[0] * x[{0}]",
        "t[0] = x[{0}] * 2\n| s[0] += t[0] * s[0]",
        "t[0] = x[{0}] * 2\n| s[0] += t[0] * t[0] if {0} >= 3",
        "t[0] += x[{0}]\n| s[0] += t[0] * t[0]",
    ],
    ids=["a value of the sum so far", "the sum itself", "a condition", "a value that runs on"],
)
def test_sums_that_their_values_wait_for_stay(body: str) -> None:
    head = "kernel k(x) -> s\nx f32 [32] heap\nt f32 [1] heap\ns f32 [1] heap\n\ns[0] = 0\nt[0] = 0\n32\n| "
    start = game(head + body + "\n")
    assert not normal_form.cut_off_sums(start, TARGET) and not start.trace.steps


def test_sums_through_distant_elements_stay_with_their_values() -> None:
    """Lanes would not add them up; apart, they would wait for memory, too."""
    text = BODIES.replace("x f32 [48]", "x f32 [48,3]", 1)
    start = game(re.sub(r"\bx\[({\d})\]", r"x[\1,0]", text))
    assert not normal_form.cut_off_sums(start, TARGET) and not start.trace.steps


@pytest.mark.parametrize(("most", "cut"), [(1 << 17, True), (16, False)])
def test_what_stands_between_sums_and_values_has_to_become_short(
    most: int, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All distances take 2 MiB; the plan keeps a few of them at a time, or the sums stay where they are."""
    monkeypatch.setattr(normal_form, "MOST_KEPT", most)
    monkeypatch.setattr(normal_form, "KEPT_SHARE", 0)
    many = NEAREST.replace("64", "16384")
    found = plan(parse(many, TARGET.dialect), RULES_OF_TARGET, TARGET)
    assert any(d.rule == normal_form.CUT_OFF for d in found.decisions) is cut
    sizes = [sum(b.bytes for b in temporaries(each.program)) for each in found.games]
    assert sizes and max(sizes) <= most, found.games[0].program.text
