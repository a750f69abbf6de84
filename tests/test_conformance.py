"""The conformance kit passes what is right, and each of its checks finds the faults that it is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Outcome
from faulty_toy import FAULTS, Fault, plant

from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.conformance import CHECKS, Check, Result, run_check
from perfdojo_sdk.testing.context import Budget, Context

Cli = Callable[..., Outcome]
TINY = Budget("tiny", "for these tests", walks=2, moves=6, shapes=2, seconds=3)
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
    others = {"up to date", "walks keep the meaning", "expected failures exist"}  # below, and in other files
    assert {fault.check for fault in FAULTS} | others == set(BY_NAME)
