"""Times that are too good: doubted, taken again, and never a reason to lose a kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paper_target import Paper, build, entry, judged, parallel_pass

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    Measurement,
    RunRequest,
    Target,
)
from perfdojo_sdk.search.play import Play


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    return judged(Paper(), monkeypatch)


def test_a_time_below_a_calibrated_roofline_is_not_believed(paper: Paper, tmp_path: Path) -> None:
    """The kernel is kept, and its figure claims nothing."""
    paper.bound = Bound(1.5e-3, "paper speed", "measured", calibrated=True)
    result = build(paper, tmp_path)
    kernel = entry(result)
    assert kernel.moves and kernel.speed_up is None and kernel.roofline_fraction is None
    assert "suspect" in kernel.notes[0] and "beats the roofline" in kernel.timing.suspect
    [reused] = build(paper, tmp_path).results
    assert reused.found and reused.found.reused and reused.found.record.suspect == kernel.timing.suspect
    paper.bound = replace(paper.bound, calibrated=False)
    kernel = entry(build(paper, tmp_path / "other"))
    assert kernel.moves and "not measured on this device" in kernel.notes[0]
    assert kernel.timing.suspect == "" and kernel.speed_up


def test_where_every_time_is_suspect_the_kernel_is_built_all_the_same(paper: Paper, tmp_path: Path) -> None:
    paper.bound = Bound(1.0, "paper speed", "measured", calibrated=True)
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves and kernel.timing.suspect
    paper.expert = None
    kernel = entry(build(paper, tmp_path / "initial"))
    assert not kernel.moves and kernel.timing.suspect


def both_ways(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """An expert with two games: a parallel scope, and an unrolled one."""
    play = Play(root, rules)
    play.must("annotate_scope", "s1", suffix="u")
    return (*parallel_pass(root, rules, target), play.trace)


class TwoWays(Paper):
    """A target on which unrolled code takes 1.5e-3 s and other code takes less than the roofline allows."""

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        found = super().run(artifact, request)
        if b":u" in artifact.content and isinstance(found, Measurement):
            return replace(found, seconds=(1.5e-3,) if request.repeats else ())
        return found


def test_a_suspect_time_does_not_win_against_one_that_is_believed(paper: Paper, tmp_path: Path) -> None:
    two = TwoWays(expert=both_ways, bound=Bound(1.4e-3, "paper speed", "measured", calibrated=True))
    kernel = entry(build(two, tmp_path))
    assert [m.parameters["suffix"] for m in kernel.moves] == ["u"] and kernel.timing.suspect == ""


def test_a_roofline_that_was_wrong_is_measured_anew(paper: Paper, tmp_path: Path) -> None:
    """Figures taken while the machine was busy must not cost anybody a fast kernel."""
    paper.bound = Bound(1.5e-3, "paper speed", "measured", calibrated=True)
    paper.recalibrated = Bound(0.8e-3, "paper speed", "measured", calibrated=True)
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves and kernel.notes == ()
    assert kernel.roofline_fraction == pytest.approx(0.8)


class Passing(Paper):
    """Twice as fast as memory allows, for the first few runs of what the pass made."""

    moments: int = 4

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        found = super().run(artifact, request)
        if b":p" in artifact.content and isinstance(found, Measurement) and self.moments:
            self.moments -= 1
            return replace(found, seconds=(5e-4,))
        return found


@pytest.mark.parametrize(("moments", "believed"), [(4, True), (99, False)], ids=["it passes", "it stays"])
def test_a_time_from_a_better_moment_is_taken_again(
    paper: Paper, tmp_path: Path, moments: int, believed: bool
) -> None:
    shared = Passing(bound=Bound(1e-3, "paper speed", "measured", calibrated=True))
    shared.moments = moments
    kernel = entry(build(shared, tmp_path))
    assert kernel.moves and bool(kernel.timing.suspect) != believed
    assert kernel.timing.final.median_s == pytest.approx(1e-3 if believed else 5e-4)
