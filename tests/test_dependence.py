"""The dependence test that offers moves, against all pairs of iterations of small nests."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from snippets import RULES, move, program

from perfdojo_sdk.core.dependence import may_meet
from perfdojo_sdk.core.expression import Access, Index
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import Step

BUFFER = Buffer("x", "f32", (Dimension(10**6),), "heap", ("x",))
RELATED = {
    "=": lambda a, b: a == b, "<": lambda a, b: a < b, ">": lambda a, b: a > b, "*": lambda a, b: True,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_what_it_calls_apart_never_meets(seed: int) -> None:
    rng, cautious, apart = Random(seed), 0, 0
    for _ in range(1500):
        depth = rng.randint(1, 3)
        shared = rng.randint(0, depth)
        ours = [rng.randint(1, 4) for _ in range(depth)]
        theirs = ours[:shared] + [rng.randint(1, 4) for _ in range(depth - shared)]

        def form(constant: int) -> Index:
            return Index.of({l: rng.choice([0, 1, 2, 3, 4, 6, 8, -1, -2]) for l in range(depth)}, constant)  # noqa: B023

        one = form(rng.randint(0, 6))
        other = rng.choice([form(rng.randint(0, 6)), one, Index.of(dict(one.terms), rng.randint(0, 6))])
        signs = "".join(rng.choice("=<>*") for _ in range(shared))
        found = may_meet(BUFFER, Access("x", (one,)), ours, Access("x", (other,)), theirs, signs)
        meet = any(
            one.evaluate(i) == other.evaluate(j)
            for i in product(*map(range, ours))
            for j in product(*map(range, theirs))
            if all(RELATED[sign](i[l], j[l]) for l, sign in enumerate(signs))
        )
        assert found or not meet, (one, other, ours, theirs, signs)
        cautious, apart = cautious + (found and not meet), apart + (not found)
    assert cautious < apart / 10


@pytest.mark.parametrize(
    "text",
    [
        "8 4 y[{0}+{1}*8] = x[{0},{1}]",
        "4 4 y[{0}*4+{1}] = x[{0},{1}]",
        "y f32 [32] heap\n8 4 y[{1}*8-{0}+7] = x[{0},{1}]",
        "8 2 4 y[{0}+{1}*8+{2}*16] = x[{0},{1},{2}]",
    ],
)
def test_digits_of_a_number_are_independent(text: str) -> None:
    """Whichever digit the loop is: the others make multiples of something that it does not reach."""
    assert isinstance(RULES.attempt(program(text), move("annotate_scope(s0, suffix=p)")), Step)


def test_overlapping_digits_are_not() -> None:
    start = program("8 4 y[{0}+{1}*7] = x[{0},{1}]")
    assert not isinstance(RULES.attempt(start, move("annotate_scope(s0, suffix=p)")), Step)
