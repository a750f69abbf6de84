"""The table of published kernels, and its copy in the documentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from perfdojo_riscv_snitch.published import QUICK, _tuned, published

from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult

PAGE = Path(__file__).parents[3] / "docs" / "targets" / "riscv_snitch.md"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResult:
    return published(ExperimentRequest(tmp_path_factory.mktemp("published"), quick=True))


def test_none_is_slower_than_what_is_published(quick: ExperimentResult) -> None:
    rows = json.loads(quick.files[0].read_text())["rows"]
    assert [row["kernel"] for row in rows] == list(QUICK)
    for row in rows:
        assert row["expert"] <= row["published"] and row["expert"] <= row["greedy"] <= row["initial"]
        assert sum(row["parts"].values()) == row["expert"]
    assert "slower than published: none" in quick.text


def test_tuned_programs_on_record_are_compared() -> None:
    row = {"kernel": "dfill[4,4]", "published": 39, "expert": 26}
    text = _tuned([{**row, "tuned": 25.0}, {**row, "kernel": "other", "tuned": None}])
    assert "1.560 times in the geometric mean of 1 kernels" in text and "dfill[4,4] 26 -> 25" in text
    assert "slower than published: dfill[4,4]" in _tuned([{**row, "tuned": 40.0}])
    assert "no tuned program" in _tuned([{**row, "tuned": None}])


def test_the_documentation_shows_this_table(quick: ExperimentResult) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for line in quick.text.splitlines():
        if line.startswith("|"):
            assert line in page, f"docs: {line}"
