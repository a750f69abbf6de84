"""The veto: buffers whose cells are named fit the register file."""

from __future__ import annotations

import pytest
from arm_support import RULES, TARGET, program
from perfdojo_arm_neon.veto import fullest

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.transformation import Move, Rejection

#: Two tiles of 20 vectors each, in use together or one after the other.
TOGETHER = """kernel k(x) -> y
x f32 [40,4] heap
p f32 [20,4] reg
q f32 [20,4] stack
y f32 [20,4] heap

20:u 4:v p[{0},{1}] = x[{0},{1}]
20:u 4:v q[{0},{1}] = x[{0}+20,{1}]
20:u 4:v y[{0},{1}] = p[{0},{1}] + q[{0},{1}]
"""
APART = """kernel k(x) -> y, z
x f32 [40,4] heap
p f32 [20,4] reg
q f32 [20,4] stack
y f32 [20,4] heap
z f32 [20,4] heap

20:u 4:v p[{0},{1}] = x[{0},{1}]
20:u 4:v y[{0},{1}] = p[{0},{1}] * 2
20:u 4:v q[{0},{1}] = x[{0}+20,{1}]
20:u 4:v z[{0},{1}] = q[{0},{1}] * 2
"""
MOVE = Move.of("set_location", "q", location="reg")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(MoveError) as refused:
        RULES.step(program(TOGETHER), MOVE)
    error = refused.value
    assert error.code == "NEON-101" and "p, q take 40 vector registers" in error.why
    assert "stack" in error.hint


def test_buffers_that_are_not_in_use_together_share() -> None:
    step = RULES.step(program(APART), MOVE)
    assert sum(fullest(step.after, TARGET.dialect).values()) == 20


def test_a_program_that_is_too_full_may_be_mended() -> None:
    full = program(TOGETHER.replace("stack", "reg"))
    assert sum(fullest(full, TARGET.dialect).values()) == 40
    RULES.step(full, Move.of("set_location", "q", location="stack"))


def test_a_buffer_of_a_loop_is_in_use_in_all_of_it() -> None:
    """A value that is written before a loop and read in it is live through each iteration."""
    text = TOGETHER.replace("20:u 4:v y[{0},{1}] = p", "3 20:u 4:v y[{1},{2}] += p").replace(
        "p[{0},{1}] + q[{0},{1}]\n", "p[{1},{2}] + q[{1},{2}]\n"
    )
    text = text.replace("3 20:u", "20:u 4:v y[{0},{1}] = 0\n3 20:u")
    with pytest.raises(MoveError, match="registers are full"):
        RULES.step(program(text), MOVE)


def test_the_refusal_names_arrays_and_the_moves_that_may_help() -> None:
    rejection = RULES.attempt(program(TOGETHER), MOVE)
    assert isinstance(rejection, Rejection) and rejection.refusal.arrays == ("p", "q")
    assert rejection.established_by and set(rejection.established_by) <= set(RULES.transformations)
