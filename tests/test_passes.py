"""The generic passes, on sizes that fit the lanes, nearly fit, and do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snippets import DIALECT, RULES, program, tree

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.search.passes import greedy, naive, vectorise
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.verify.exact import verify_exact

SOFTMAX = """
8
| m[{0}] = -inf
| N m[{0}] max= x[{0},{1}]
8 N e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
8
| s[{0}] = 0
| N s[{0}] += e[{0},{1}]
8 N y[{0},{1}] = e[{0},{1}] / s[{0}]
"""


def softmax(size: int) -> Program:
    return program(SOFTMAX.replace("N", str(size)))


@pytest.mark.parametrize(
    ("size", "after"),
    [
        (7, ["7:v y[{0}] = x[{0}]"]),
        (16, ["16:v y[{0}] = x[{0}]"]),
        (24, ["2 12:v y[{0}*12+{1}] = x[{0}*12+{1}]"]),
        (64, ["4 16:v y[{0}*16+{1}] = x[{0}*16+{1}]"]),
        (17, ["16:v y[{0}] = x[{0}]", "1:v y[{0}+16] = x[{0}+16]"]),
        (31, ["16:v y[{0}] = x[{0}]", "15:v y[{0}+16] = x[{0}+16]"]),
        (1009, ["63 16:v y[{0}*16+{1}] = x[{0}*16+{1}]", "1:v y[{0}+1008] = x[{0}+1008]"]),
    ],
)
def test_full_vectors_and_a_masked_tail(size: int, after: list[str]) -> None:
    play = Play(program(f"{size} y[{{0}}] = x[{{0}}]"), RULES)
    found = vectorise(play, "s0")
    assert found is not None and play.scope(found).suffix == "v"
    assert tree(play.program).splitlines() == after


@pytest.mark.parametrize(
    "text", ["23 y[{0}] = x[22-{0}]", "23 y[{0}] = x[{0}*2]", "22 y[{0}] = 1\n17 y[{0}+1] = y[{0}]"]
)
def test_what_cannot_be_vectorised_is_left_alone(text: str) -> None:
    play = Play(program(text), RULES)
    scope = play.scopes()[-1]
    assert vectorise(play, scope.id) is None
    assert play.trace.steps == ()


@pytest.mark.parametrize("size", [1, 2, 13, 15, 17, 31, 96, 37])
def test_passes_keep_the_meaning(size: int) -> None:
    root = softmax(size)
    for player in (naive, greedy):
        trace = player(root, RULES)
        assert verify_exact(root, trace.program, trace.laws, DIALECT, models=1).ok


def test_every_row_of_prime_length_is_vectorised() -> None:
    trace = greedy(softmax(37), RULES)
    innermost = Play(trace.program, RULES).innermost()
    assert [s.head for s in innermost] == ["16:v", "5:v"] * 4


def test_elements_without_lanes_are_left_alone() -> None:
    scalar = replace(DIALECT, lanes={})
    play = Play(program("8 y[{0}] = x[{0}]"), Rules(scalar, GENERIC))
    assert vectorise(play, "s0") is None and play.trace.steps == ()
