"""stage_window and shift_dim, and definitions beside a border; both legs prove what they do."""

from __future__ import annotations

from random import Random

import pytest
from snippets import DIALECT, RULES, move, play, program, random_sliding, refusal, tree

from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.transformation import Step, Trace
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace


def verified(start: Program, *moves: str) -> Program:
    """The program after the moves, which the exact and the dependence leg have looked at."""
    trace = Trace(start)
    for text in moves:
        trace = trace.play(RULES, move(text))
    assert verify_dependence_trace(trace, RULES).ok and verify_exact_trace(trace, DIALECT).ok
    return trace.program


PADDED = "10 p[{0}] = 0\n8 p[{0}+1] = x[{0}]\n"


@pytest.mark.parametrize("name", ["stage_window", "shift_dim"])
@pytest.mark.parametrize("seed", range(12))
def test_moves_in_random_programs_are_proved(seed: int, name: str) -> None:
    rng = Random(seed)
    start = random_walk(rng, random_sliding(rng), RULES, 1 + rng.randrange(4)).program
    moves = [m for m in RULES.candidates(start) if m.transformation == name]
    for step in (s for m in moves[:4] if isinstance(s := RULES.attempt(start, m), Step)):
        assert verify_exact(step.before, step.after, step.legal.laws, DIALECT, models=1).ok
        walk = random_walk(rng, step.after, RULES, 3)
        assert verify_dependence_trace(walk, RULES).ok and verify_exact_trace(walk, DIALECT).ok


def test_windows_of_a_stride_are_copied_once() -> None:
    """Tiles of four rows share a row, which each of them copies; nothing is copied twice for one tile."""
    sum_ = "3 3 y[{0},{1},{2}] += x[{0}*8+{1}*2+{3},{2}*2+{4}] * w[{3},{4}]"
    text = f"3\n| 4 5\n| | y[{{0}},{{1}},{{2}}] = 0\n| | {sum_}"
    after = verified(program(text), "stage_window(s1, array=x)")
    lines = tree(after).splitlines()
    assert lines[1] == "| 9 11 x_r[{0},{1},{2}] = x[{0}*8+{1},{2}]"
    assert lines[-1].endswith("+= x_r[{0},{1}*2+{3},{2}*2+{4}] * w[{3},{4}]")
    assert after.buffer_of["x_r"].shape == (3, 9, 11)


def test_taps_that_are_written_out_share_a_copy() -> None:
    text = "4\n| y[{0}] = x[{0}+1] * 3\n| 3 y[{0}] += x[{0}+{1}]"
    after = verified(program(text), "stage_window(s0, array=x)")
    assert tree(after).splitlines()[:2] == ["6 x_r[{0}] = x[{0}]", "4"]
    assert "| y[{0}] = x_r[{0}+1] * 3" in tree(after)


@pytest.mark.parametrize(
    "body",
    [
        "4\n| y[{0}] = x[{0}*2]\n| 2 y[{0}] += x[{0}*2+{1}*4+1]",
        "4 4 y[{0},{1}] = x[{0}+{1},{0}]",
        "4\n| y[{0}] = x[9-{0}]\n| 3 y[{0}] += x[{0}+{1}]",
    ],
)
def test_elements_that_nothing_reads_are_not_copied(body: str) -> None:
    """They may be of a temporary that has no value there."""
    assert refusal(program(body), "stage_window(s0, array=x)") == "PD-T712"


def test_a_definition_may_leave_a_border_to_another_statement() -> None:
    """Each read takes the value of the statement that wrote its element last."""
    start = program(PADDED + "y[0] = p[0]\n8 y[{0}+1] = p[{0}+1]\ny[9] = p[9]")
    moves = [f"inline_definition({c}, array=p)" for c in ("c2", "c3", "c4")]
    after = verified(start, *moves, "remove_dead(p)")
    assert tree(after) == "y[0] = 0\n8 y[{0}+1] = x[{0}]\ny[9] = 0"


@pytest.mark.parametrize(
    "text",
    [
        "9 y[{0}] = p[{0}]",
        "p[3] = 2\n8 y[{0}] = p[{0}+1]",
        "4 p[{0}*2] += x[{0}]\n8 y[{0}] = p[{0}+1]",
        "8\n| y[{0}] = p[{0}+1]\n| p[8-{0}] = 1\n8 z[{0}] = p[{0}]",
        "8\n| p[4] = 1\n| y[{0}] = p[{0}+1]",
    ],
)
def test_a_read_that_others_may_have_written_is_kept(text: str) -> None:
    start = program(PADDED + text)
    reader = next(n.id for _, n in start.walk() if isinstance(n, Statement) and n.target.array == "y")
    assert refusal(start, f"inline_definition({reader}, array=p)") == "PD-T252"


def test_arrays_of_one_buffer_are_kept() -> None:
    """The element may be read by another name in the same statement, which goes on to read it."""
    start = program("t f32 [8] heap -> a, b\n8 a[{0}] = 1\n8 b[{0}] = x[{0}]\n8 y[{0}] = b[{0}] + a[3]")
    assert refusal(start, "inline_definition(c2, array=b)") == "PD-T252"


def test_what_is_written_behind_the_read_does_not_count() -> None:
    start = program(PADDED + "8\n| y[{0}] = p[{0}+1]\n| p[{0}] = 1\n8 z[{0}] = p[{0}]")
    assert "| y[{0}] = x[{0}]" in tree(verified(start, "inline_definition(c2, array=p)"))


def test_a_row_with_a_border_begins_where_vectors_may() -> None:
    start = program(PADDED + "8 y[{0}] = p[{0}] + p[{0}+2]")
    offered = [m.text for m in RULES.candidates(start) if m.transformation == "shift_dim"]
    assert offered[0].startswith("shift_dim(p, ") and move(offered[0]) in list(RULES.candidates(start))
    after = verified(start, "shift_dim(p, dim=0, by=15)")
    assert "8 p[{0}+16] = x[{0}]" in tree(after) and after.buffer_of["p"].shape == (25,)
    assert play(start, "shift_dim(p, dim=0, by=15)").body == after.body
