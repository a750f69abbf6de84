"""stage_sliding: each place of a window once, proved by both legs wherever random programs allow it."""

from __future__ import annotations

from random import Random

import pytest
from snippets import DIALECT, RULES, move, program, random_sliding, tree

from perfdojo_sdk.core.transformation import Move, Step
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace


@pytest.mark.parametrize("seed", range(24))
def test_what_slides_in_random_programs_is_proved(seed: int) -> None:
    rng = Random(seed)
    start = random_walk(rng, random_sliding(rng), RULES, rng.randrange(4)).program
    moves = [m for m in RULES.candidates(start) if m.transformation == "stage_sliding"]
    for step in (s for m in moves if isinstance(s := RULES.attempt(start, m), Step)):
        assert verify_exact(step.before, step.after, step.legal.laws, DIALECT, models=1).ok
        walk = random_walk(rng, step.after, RULES, 4)
        assert verify_dependence_trace(walk, RULES).ok and verify_exact_trace(walk, DIALECT).ok


def test_both_directions_of_an_image_slide() -> None:
    """Rows and columns of outputs and of taps: a buffer of the image's size, not of all four loops."""
    start = program("5 6\n| y[{0},{1}] = 0\n| 3 2 y[{0},{1}] += exp(x[{0}+{2},{1}+{3}]) * w[{2},{3}]")
    step = RULES.step(start, move("stage_sliding(c1, before=s0, term=1)"))
    lines = tree(step.after).splitlines()
    assert lines[0] == "7 7 y_v[{0},{1}] = exp(x[{0},{1}])"
    assert lines[-1].endswith("y[{0},{1}] += y_v[{0}+{2},{1}+{3}] * w[{2},{3}]")
    assert step.after.buffer_of["y_v"].shape == (7, 7)


def test_strides_slide_together_and_iterators_outside_stay_apart() -> None:
    start = program("4\n| 3\n| | y[{0},{1}] = 0\n| | 3 y[{0},{1}] += exp(x[{0},{1}*2+{2}*2+1]) * w[{2}]")
    inside = RULES.step(start, move("stage_sliding(c1, before=s1, term=1)"))
    assert tree(inside.after).splitlines()[1] == "| 5 y_v[{0},{1}] = exp(x[{0},{1}*2+1])"
    assert isinstance(RULES.attempt(start, move("stage_sliding(c1, before=s0, term=1)")), Step)
    assert not isinstance(RULES.attempt(start, move("stage_sliding(c1, before=s2, term=1)")), Step)


def test_iterators_with_other_factors_do_not_slide() -> None:
    start = program("4\n| y[{0}] = 0\n| 3 y[{0}] += exp(x[{0}*2+{1}]) * w[{1}]")
    assert not isinstance(RULES.attempt(start, Move.of("stage_sliding", "c1", before="s0", term=1)), Step)
