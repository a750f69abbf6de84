"""Findings of fuzzing, and what finds them: kept failures stay mended, and failures shrink."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT
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


def long_run(state: Path, moves: int) -> dict[str, Any]:
    """The benchmark's figures after so many moves in all."""
    command = [sys.executable, str(ROOT / "benchmarks" / "fuzz.py"), "--state", str(state), "--json"]
    command += ["--moves", str(moves), "--length", "5", "--processes", "1", "--targets", "core"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_long_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = long_run(tmp_path, 20)
    assert (first["walks"], first["moves"], first["checks_by_leg"]["exact"]) == (4, 20, 20)
    assert sum(first["moves_by_transformation"].values()) == sum(first["moves_by_kind"].values()) == 20
    assert first["moves_by_transformation"].keys() == GENERIC.keys()
    record = tmp_path / "walks.jsonl"
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    failed = {**json.loads(lines[-1]), "failure": "exact: mended since"}
    # One walk failed with other code, and the writer of the last line was killed.
    record.write_text("".join([*lines[:-1], json.dumps(failed), "\n", '{"seed": 99, "mo']), encoding="utf-8")
    again = long_run(tmp_path, 20)
    assert (again["walks"], again["moves"], again["failures"]) == (4, 20, 0)
    assert again["failures_of_earlier_runs"] == 1
    seeds = [json.loads(line)["seed"] for line in record.read_text(encoding="utf-8").splitlines()]
    assert seeds == [0, 1, 2, 3, 3]


def test_a_walk_that_raises_is_a_failure_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("bool")

    monkeypatch.setattr(RULES.transformations["split_scope"], "candidates", broken)
    failure = next(filter(None, (fuzz(seed, RULES, 12).failure for seed in range(20))), None)
    assert failure is not None and failure.leg == "crash" and "KeyError: 'bool'" in failure.problem
    assert failure.move is None and shrunk(failure, RULES) is failure
