"""Mutants: each semantic reason to refuse, switched off, is caught by two legs of verification.

The fuzz set is the programs of the refusal tests and random programs with a few random moves
played. On it, every move that only the mutant offers is verified; a leg counts when it refutes
such a move, a crash does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from snippets import DIALECT, RULES, move, play, program
from test_transformations import REFUSALS

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move, Step
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import Mutant, mutants, newly_allowed, random_walk
from perfdojo_sdk.verify.dependence import verify_dependence, verify_races
from perfdojo_sdk.verify.exact import verify_exact

MUTANTS = mutants(RULES)


def fuzz_set(code: str) -> Iterator[tuple[Program, tuple[Move, ...]]]:
    """Programs, with the moves to try besides the candidates."""
    text, outputs, first, refused = REFUSALS[code]
    yield play(program(text, outputs), *first), (move(refused),)
    for other, (text, outputs, first, _) in REFUSALS.items():
        if other != code and "65536" not in text and len(text) < 1000:
            yield play(program(text, outputs), *first), ()
    for seed in range(40):
        rng = Random(seed)
        yield random_walk(rng, random_program(rng, 4), RULES, rng.randrange(6)).program, ()


def refuted_by(step: Step, mutant: Mutant) -> set[str]:
    legs = set()
    if not verify_exact(step.before, step.after, step.legal.laws, DIALECT, models=1).ok:
        legs.add("exact")
    kind = max(step.legal.kind, Kind.EXACT)
    relation = mutant.rules.relation(step)
    report = verify_dependence(step.before, step.after, relation, DIALECT, kind, step.legal.laws)
    if not (report.ok and verify_races(step.after, DIALECT).ok):
        legs.add("dependence")
    return legs


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.requirement.code)
def test_two_legs_catch(mutant: Mutant) -> None:
    caught: set[str] = set()
    for start, moves in fuzz_set(mutant.requirement.code):
        for step in newly_allowed(mutant, RULES, start, moves):
            caught |= refuted_by(step, mutant)
            if len(caught) == 2:
                return
    pytest.fail(f"{mutant.transformation} without {mutant.requirement.code}: caught by {caught or 'nothing'}")


def test_one_mutant_for_each_semantic_reason() -> None:
    reasons = [r.code for t in GENERIC.values() for r in t.requirements if r.semantic]
    assert sorted(m.requirement.code for m in MUTANTS) == sorted(reasons)
