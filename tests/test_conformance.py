"""The conformance kit passes correct plugins, and each of its checks finds its faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from faulty_toy import FAULTS, Fault, plant

from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing import reports
from perfdojo_sdk.testing.conformance import CHECKS, Check, Result, run_check
from perfdojo_sdk.testing.context import Budget, Context
from perfdojo_sdk.testing.walks import mutants

TINY = Budget("tiny", "for these tests", walks=4, moves=6, shapes=2, seconds=3)
BY_NAME = {check.name: check for check in CHECKS}


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Context]:
    """``context(fault, more)``: a copy of the toy target, installed with the fault."""

    def make(fault: Fault | None = None, more: str = "") -> Context:
        name = plant(tmp_path, fault, more)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PERFDOJO_PLUGINS", name)
        plugins = load_plugins()
        plugin = next(p for p in plugins.loaded if p.name == name)
        return Context(plugins, plugin, plugins.targets["toy"], TINY)

    return make


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_toy_target_passes(check: Check, context: Callable[..., Context]) -> None:
    result = run_check(context(), check)
    assert result.outcome == "passed", result.problems


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.filterwarnings("ignore::perfdojo_sdk.hookspecs.deprecated.PluginDeprecation")
def test_a_planted_fault_is_found_by_its_check(fault: Fault, context: Callable[..., Context]) -> None:
    result = run_check(context(fault), BY_NAME[fault.check])
    assert result.outcome == "failed"
    assert any(fault.words in problem for problem in result.problems), result.problems


def test_every_check_finds_a_fault() -> None:
    # Below, and in other files.
    others = {"up to date", "walks keep the meaning", "expected failures exist", "imports what plugins may"}
    assert {fault.check for fault in FAULTS} | others == set(BY_NAME)


def test_a_walk_that_loses_the_meaning_is_found(context: Callable[..., Context]) -> None:
    """No plugin can break the SDK's moves, so one of them is broken here: it joins what depends."""
    found = context()
    broken = next(m for m in mutants(found.rules) if m.transformation == "reorder_statements")
    found.rules = broken.rules
    found.budget = replace(found.budget, walks=6, moves=40, seconds=60)
    result = run_check(found, BY_NAME["walks keep the meaning"])
    assert result.outcome == "failed" and "reorder_statements" in result.problems[0]


def test_an_import_beside_the_contract_is_a_warning_that_says_what_to_use(
    context: Callable[..., Context],
) -> None:
    more = "\ndef late():\n    from perfdojo_sdk.cli import bench\n    import perfdojo_sdk.measure.answer\n"
    result = run_check(context(more=more), BY_NAME["imports what plugins may"])
    assert result.outcome == "passed" and len(result.warnings) == 2
    commands, measuring = result.warnings
    assert "__init__.py:" in commands and "imports perfdojo_sdk.cli.bench, " in commands
    assert commands.endswith("use the hooks; a plugin adds no commands")
    assert "perfdojo_sdk.measure.native_runner" in measuring
    assert "2 warnings" in reports.line(result) and f"warning: {commands}" in reports.text(result)
    assert reports.as_json(result)["warnings"] == [commands, measuring]


# -- expected failures -----------------------------------------------------------------------------

FLOAT_SIZES = next(fault for fault in FAULTS if fault.check == "texts round-trip")


def expecting(**expected: str) -> str:
    return f"\nPERFDOJO_EXPECTED_FAILURES = {{'toy': {expected!r}}}\n"


def test_an_expected_failure_shows_its_reason(context: Callable[..., Context]) -> None:
    found = context(FLOAT_SIZES, expecting(**{FLOAT_SIZES.check: "sizes are measured, not counted"}))
    result = run_check(found, BY_NAME[FLOAT_SIZES.check])
    assert result.outcome == "expected" and result.why == "sizes are measured, not counted"
    assert result.problems and not result.unavailable
    assert run_check(found, BY_NAME["expected failures exist"]).outcome == "passed"


def test_an_expected_failure_that_passes_is_a_failure(context: Callable[..., Context]) -> None:
    result = run_check(context(more=expecting(**{"texts round-trip": "once"})), BY_NAME["texts round-trip"])
    assert result.outcome == "failed" and "take the entry out" in result.problems[0]


def test_an_expected_failure_needs_a_reason(context: Callable[..., Context]) -> None:
    found = context(FLOAT_SIZES, expecting(**{FLOAT_SIZES.check: " "}))
    result = run_check(found, BY_NAME[FLOAT_SIZES.check])
    assert result.outcome == "failed" and "no reason is given" in result.problems[-1]


def test_only_checks_of_the_kit_can_be_expected_to_fail(context: Callable[..., Context]) -> None:
    found = context(more="PERFDOJO_EXPECTED_FAILURES = {'toy': {'speed': 'slow'}, 'toi': {}}")
    result = run_check(found, BY_NAME["expected failures exist"])
    assert [word in str(result.problems) for word in ("'speed'", "'toi'")] == [True, True]


# -- what is not there -----------------------------------------------------------------------------


def test_a_part_that_was_never_promised_is_skipped_without_a_remedy(context: Callable[..., Context]) -> None:
    found = context(more="del perfdojo_runner, perfdojo_code_generator")
    for name in ("kernels as written", "cheats are caught", "code is plain"):
        result = run_check(found, BY_NAME[name])
        assert result.outcome == "skipped" and "does not bring" in result.why and not result.unavailable
    assert run_check(found, BY_NAME["same seed, same game"]).outcome == "passed"


def test_a_target_that_cannot_run_here_is_skipped_with_the_remedy(
    context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOJO_CC", "no_such_compiler")
    found = context()
    result = run_check(found, BY_NAME["failures are results"])
    assert result.outcome == "skipped" and result.unavailable and "PERFDOJO_CC" in result.remedy
    assert run_check(found, BY_NAME["code is plain"]).outcome == "passed", "it needs no compiler"
    assert "need what this machine lacks" in reports.verdict([result])


def test_a_run_out_of_time_says_so(context: Callable[..., Context]) -> None:
    found = context()
    found.budget = replace(found.budget, seconds=0.0)
    result = run_check(found, BY_NAME["find and check agree"])
    assert result.outcome == "passed" and result.cut and result.cases == len(found.operators)
    assert "ended by the budget" in reports.line(result)


# -- what is left of a run -------------------------------------------------------------------------

PASSED, FAILED, EXPECTED = (
    Result(CHECKS[0], "", "passed", cases=3, seconds=1.0),
    Result(CHECKS[-1], "toy", "failed", ("cc1 said \x1b[31mno\x1b[0m & died", "twice"), seconds=0.5),
    Result(CHECKS[-2], "toy", "expected", ("slow",), "the clock is broken"),
)
UNAVAILABLE = Result(CHECKS[-3], "toy", "skipped", why="no device", remedy="buy one")


def test_a_junit_file_holds_every_check_and_nothing_that_xml_cannot(tmp_path: Path) -> None:
    suite = ElementTree.fromstring(reports.junit("toy", [PASSED, FAILED, EXPECTED, UNAVAILABLE]))[0]
    counted = [suite.get(name) for name in ("tests", "failures", "skipped", "errors")]
    assert counted == ["4", "1", "2", "0"]
    failure, expected, skipped = suite[1][0], suite[2][0], suite[3][0]
    assert failure.get("message") == "cc1 said ?[31mno?[0m & died" and "twice" in (failure.text or "")
    assert expected.get("message") == "the clock is broken" and "buy one" in (skipped.get("message") or "")


@pytest.mark.parametrize(
    ("results", "message", "color"),
    [
        ([PASSED, PASSED], "2 passed", "brightgreen"),
        ([PASSED, EXPECTED], "1 passed, 1 expected failures", "yellow"),
        ([PASSED, UNAVAILABLE], "1 passed, 1 not run", "lightgrey"),
        ([PASSED, FAILED, UNAVAILABLE, EXPECTED], "1 of 4 failed", "red"),
    ],
)
def test_a_badge_promises_no_more_than_was_seen(results: list[Result], message: str, color: str) -> None:
    badge = json.loads(reports.badge(results))
    assert (badge["schemaVersion"], badge["message"], badge["color"]) == (1, message, color)


def test_the_text_says_what_must_hold_and_what_to_try() -> None:
    assert "must hold: " + FAILED.check.doc in reports.text(FAILED) and "twice" in reports.text(FAILED)
    assert "try: buy one" in reports.text(UNAVAILABLE) and "slow" in reports.text(EXPECTED)
    assert reports.verdict([PASSED]) == "all 1 check passed"
    some = reports.verdict([PASSED, FAILED, EXPECTED, UNAVAILABLE])
    assert "1 failed, 1 passed, 1 skipped, 1 failed as expected; 1 need what" in some


# -- how it is called ------------------------------------------------------------------------------

VENDOR = """
from perfdojo_sdk.testing import TargetConformance

class TestToy(TargetConformance):
    target = "toy"
    budget = "quick"
"""


def test_pytest_runs_the_same_checks(
    context: Callable[..., Context], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vendor's file of four lines: each check is a test, which passes, fails, is skipped or xfails."""
    fault = next(fault for fault in FAULTS if fault.check == "refusals help")
    expected = expecting(**{"refusals help": "words to come", "texts round-trip": "once"})
    context(fault, f"{expected}\ndel perfdojo_runner\n")
    (tmp_path / "test_vendor.py").write_text(VENDOR)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entry or os.getcwd() for entry in sys.path))
    words = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    done = subprocess.run(
        [*words, tmp_path / "test_vendor.py", "-k", "refusals or texts or cheats or prefix"],
        **{"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 120},
    )
    assert "1 failed, 1 passed, 1 skipped" in done.stdout and "1 xfailed" in done.stdout, done.stdout
    assert "take the entry out" in done.stdout and "words to come" in done.stdout
    assert "does not bring a runner" in done.stdout and "Traceback" not in done.stdout
