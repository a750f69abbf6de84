"""What fuzzing found and what finds it: kept failures stay mended, and failures shrink."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from snippets import DIALECT, RULES, program

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rejection, Rules, Step, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.testing.fuzzing import FuzzFailure, fuzz, shrunk
from perfdojo_sdk.testing.shrink import shrink
from perfdojo_sdk.testing.walks import mutants
from perfdojo_sdk.verify.dependence import verify_dependence_trace, verify_races
from perfdojo_sdk.verify.exact import verify_exact

CORE = Rules(CORE_DIALECT, GENERIC)
CASES = sorted((Path(__file__).parent / "fuzz_cases").glob("*.json"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_kept_failures_stay_mended(case: Path) -> None:
    """The move is refused now, or right."""
    found = json.loads(case.read_text(encoding="utf-8"))
    saved, root = found["move"], parse(found["root"], CORE_DIALECT)
    move = Move.of(saved["transformation"], saved["place"], saved["version"], **saved["parameters"])
    step = CORE.attempt(root, move)
    if isinstance(step, Rejection):
        return
    exact = verify_exact(root, step.after, step.legal.laws, CORE_DIALECT)
    assert exact.ok, exact.problem
    proved = verify_dependence_trace(Trace(root, (step,)), CORE)
    assert proved.ok, proved.problem


def test_a_walk_counts_what_it_does() -> None:
    report = fuzz(3, RULES, 12)
    assert report.failure is None and sum(report.moves.values()) == 12
    assert report.statements >= 6 and report.by_leg["exact"] == 12 and report.by_leg["dependence"] == 1


def test_a_failure_shrinks_to_what_matters() -> None:
    """join_scopes without its dependence test, found on a program with much else in it."""
    start = program(
        """
        8 a[{0}] = x[{0}] * 2
        8 t[{0}] = a[{0}] + 1
        8 y[{0}] = t[7-{0}] + 3
        8 6 z[{0},{1}] = y[{0}] * w[{1}]
        """
    )
    rules = next(m.rules for m in mutants(RULES) if m.requirement.code == "PD-T125")
    step = rules.attempt(start, Move.of("join_scopes", "s1"))
    assert isinstance(step, Step)
    failure = FuzzFailure("exact", "", start, step.move, step.after)
    small = shrunk(failure, rules)
    assert small.leg == "exact" and small.problem
    assert len([1 for node in small.before.body for _ in node.leaves]) == 2


def test_a_race_that_a_move_brings_does_not_shrink_to_one_that_was_there() -> None:
    start = program("4 8:p\n| t[{0}] = x[{0}]\n| y[{1},{0}] = t[{0}]\n4 z[{0}] = x[{0}]")
    start = RULES.step(start, Move.of("inline_definition", "c1", array="t")).after
    stage = RULES.transformations["stage_write"].without("PD-T198")
    rules = replace(RULES, transformations={**RULES.transformations, "stage_write": stage})
    step = rules.attempt(start, Move.of("stage_write", "s0", array="t"))
    assert isinstance(step, Step)
    assert verify_exact(start, step.after, frozenset(), DIALECT).ok, "nobody reads what the race is about"
    small = shrunk(FuzzFailure("dependence", "", start, step.move, step.after), rules)
    assert "race" in small.problem and verify_races(small.before, DIALECT).ok
    assert small.before.statements == 2, "the temporary, and an output"


def test_shrinking_keeps_the_language() -> None:
    start = program("4 t[{0}] = x[{0}]\n4 u[{0}] = t[{0}]\n4 y[{0}] = u[{0}]")
    assert shrink(start, lambda p: True, DIALECT).text.count("=") == 1
