"""Random walks over random programs: bounded and seeded here, for hours in the benchmarks.

After every move: the program is still one of the language, its text parses to itself, and leg 1
agrees. Leg 3 looks at every third move and at the end of each walk.
"""

from __future__ import annotations

from random import Random

import pytest
from snippets import DIALECT, RULES

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.search.neighbours import random_step
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence, verify_races
from perfdojo_sdk.verify.exact import verify_exact

WALKS = 48
LENGTH = 9


@pytest.mark.parametrize("seed", range(WALKS))
def test_random_walk_keeps_the_meaning(seed: int) -> None:
    rng = Random(seed)
    trace = random_walk(rng, random_program(rng, rng.randint(2, 5)), RULES, LENGTH)
    for number, step in enumerate(trace.steps):
        where = f"seed {seed}, move {number}: {step.move.text}\n{step.before}\n{step.after}"
        assert not list(violations(step.after, DIALECT)), where
        assert not list(violations(step.after, DIALECT, step.before)), where
        assert parse(step.after.text, DIALECT) == step.after, where
        exact = verify_exact(step.before, step.after, step.legal.laws, DIALECT, seed=seed, models=1)
        assert exact.ok, f"{exact.problem}\n{where}"
        if number % 3 == 0:
            report = verify_dependence(
                step.before, step.after, RULES.relation(step), DIALECT, step.legal.kind, step.legal.laws
            )
            assert report.ok, f"{report.problem}\n{where}"
    end = trace.program
    assert verify_races(end, DIALECT).ok, end
    assert verify_exact(trace.root, end, trace.laws, DIALECT, seed=seed + 1).ok, f"seed {seed}\n{end}"


@pytest.mark.parametrize("name", GENERIC)
def test_each_transformation_finds_places_in_random_programs(name: str) -> None:
    """Otherwise the walks above would prove nothing about it."""
    played = 0
    for seed in range(240):
        rng = Random(seed)
        program = random_walk(rng, random_program(rng, 4), RULES, rng.randrange(5)).program
        played += random_step(rng, program, RULES, only=name, most=max(Kind)) is not None
        if played == 3:
            return
    pytest.fail(f"played {played} times")
