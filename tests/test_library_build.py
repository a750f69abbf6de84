"""Building never loses work, never ends empty-handed, and says where its time went."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paper_target import QUICK, Paper, build, entry, judged, parallel_pass

from perfdojo_sdk.cli.build_library import _data, _text
from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.errors import NothingFoundError, UnavailableError, VerificationError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.game import Game
from perfdojo_sdk.hookspecs.types import (
    Bound,
    Target,
)
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.library.attempts import Rejected
from perfdojo_sdk.library.build import KernelResult, Observer, build_library, exclusive
from perfdojo_sdk.library.builder import KernelBuilder
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.manifest import LibraryError, read_manifest
from perfdojo_sdk.library.stage_times import StageTimes
from perfdojo_sdk.library.tuning import SearchStatus


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    return judged(Paper(), monkeypatch)


def test_what_the_pass_found_enters_the_library(paper: Paper, tmp_path: Path) -> None:
    paper.bound = Bound(5e-4, "paper speed", "estimated", calibrated=False)
    result = build(paper, tmp_path)
    kernel = entry(result)
    assert [m.transformation for m in kernel.moves] == ["annotate_scope"]
    assert kernel.speed_up == pytest.approx(2) and kernel.roofline_fraction == pytest.approx(0.5)
    assert kernel.timing.final.provenance == "simulated" and kernel.notes == ()
    assert result.failed == () and read_manifest(tmp_path) == result.manifest


def test_a_kernel_of_a_named_size_says_so(paper: Paper, tmp_path: Path) -> None:
    names = ("layernorm1", "layernorm1[4,8]")
    kernels = [entry(build(paper, tmp_path / name, kernels=name)) for name in names]
    assert [(k.operator, k.alias) for k in kernels] == [("layernorm", "layernorm1"), ("layernorm", None)]


def test_the_files_are_those_that_the_manifest_lists(paper: Paper, tmp_path: Path) -> None:
    result = build(paper, tmp_path, "relu[4,8] add[2,3]")
    assert result.manifest
    listed = {a.path for a in result.manifest.artefacts}
    assert listed >= {"src/relu_4x8_f32.paper", "traces/add_2x3_f32.json", "programs/add_2x3_f32.dojo"}
    assert "include/perfdojo_paper.h" in listed and "lib/libperfdojo_paper.paper" in listed
    there = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert there == listed | {"manifest.json", "records.sqlite", ".lock"}
    build(paper, tmp_path, "add[2,3]", start_over=True)
    assert not (tmp_path / "src/relu_4x8_f32.paper").exists(), "who starts over keeps nothing"


def test_a_trace_of_the_library_is_a_saved_game(paper: Paper, tmp_path: Path) -> None:
    kernel = entry(build(paper, tmp_path))
    game = Game.load(paper.plugins(), tmp_path / kernel.trace)
    assert game.program.text == (tmp_path / kernel.program).read_text()


# -- never empty-handed ----------------------------------------------------------------------------


def raises(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    raise IndexError("the pass tripped")


def plays_elsewhere(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    return (Trace(replace(root, name="other")),)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"expert": None}, "no pass"),
        ({"expert": raises}, "IndexError: the pass tripped"),
        ({"expert": plays_elsewhere}, "another program"),
        ({"slow": 1e-4}, "slower"),
        ({"verifies": lambda trace: not trace.steps}, "verification failed (exact: as the test says"),
        ({"refuses": lambda code: ":p" in code.partition("\n\n")[2]}, "compile: paper jam"),
    ],
    ids=["no pass", "raises", "elsewhere", "slower", "wrong", "does not compile"],
)
def test_the_initial_program_takes_the_place(
    paper: Paper, tmp_path: Path, change: dict[str, Any], note: str
) -> None:
    for name, value in change.items():
        setattr(paper, name, value)
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves == () and kernel.speed_up == 1
    assert note in " ".join(kernel.notes)


def proposes_nothing(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    return ()


def changes_precision(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    (trace,) = parallel_pass(root, rules, target)
    legal = replace(trace.steps[0].legal, kind=Kind.CHANGES_PRECISION)
    return (replace(trace, steps=(replace(trace.steps[0], legal=legal),)),)


def compiles_no_moves(code: str) -> bool:
    return ":p" in code.partition("\n\n")[2]


@pytest.mark.parametrize(
    ("change", "cause", "help"),
    [
        ({"expert": None}, "no pass for target paper", "--tune N"),
        ({"expert": proposes_nothing}, "nothing else was proposed for it", "`explain-plan`"),
        ({"expert": raises}, "the expert failed", "--debug"),
        ({"expert": plays_elsewhere}, "no game of the expert was allowed (it is about another", "its plugin"),
        ({"expert": changes_precision}, "was allowed (it changes precision)", "--allow"),
        ({"slow": 1e-4}, "the only game of the expert is slower, and takes 10.00 times", "`explain-plan`"),
        ({"verifies": lambda trace: not trace.steps}, "no faster game of the expert passed", "`verify GAME"),
        (
            {"refuses": compiles_no_moves},
            "no game of the expert ran to the end (compile: paper jam",
            "doctor",
        ),
    ],
    ids=["none", "nothing", "raises", "elsewhere", "not allowed", "slower", "wrong", "does not compile"],
)
def test_a_kept_initial_program_is_told_with_its_cause_and_what_may_help(
    paper: Paper, tmp_path: Path, change: dict[str, Any], cause: str, help: str
) -> None:
    for name, value in change.items():
        setattr(paper, name, value)
    result = build(paper, tmp_path)
    [note] = [note for note in entry(result).notes if note.startswith("the initial program is kept: ")]
    assert cause in note and help in note, note
    assert f"note: relu_4x8_f32: {note}" in _text(result), "people read it"
    [kernel] = _data(result)["kernels"]
    assert note in kernel["notes"], "programs read it"


def test_a_search_without_a_faster_program_says_how_many_it_tried(paper: Paper, tmp_path: Path) -> None:
    paper.expert, paper.slow = None, 1e-4
    settings = replace(QUICK, search="sampling", evaluations=5)
    notes = entry(build(paper, tmp_path, settings=settings)).notes
    [note] = [note for note in notes if note.startswith("the initial program is kept: ")]
    assert " programs was faster and passed all checks" in note and "a larger --tune N" in note


def test_long_naive_loops_are_timed_only_where_nothing_else_passes(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfdojo_sdk.library.tuning.LONG", 7)
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves and kernel.timing.initial is None and kernel.speed_up is None
    assert any("the initial program has no time: timeout: naive loops" in note for note in kernel.notes)
    paper.verifies = lambda trace: not trace.steps
    kernel = entry(build(paper, tmp_path / "alone"))
    assert kernel.moves == () and kernel.speed_up == 1
    assert "verification failed" in " ".join(kernel.notes)


def test_a_kind_that_is_not_allowed_is_not_used(paper: Paper, tmp_path: Path) -> None:
    def reassociates(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
        (trace,) = parallel_pass(root, rules, target)
        legal = replace(trace.steps[0].legal, kind=Kind.CHANGES_PRECISION)
        return (replace(trace, steps=(replace(trace.steps[0], legal=legal),)),)

    paper.expert = reassociates
    kernel = entry(build(paper, tmp_path))
    assert kernel.moves == () and "changes precision" in kernel.notes[0]


def test_who_allows_another_precision_gets_it_and_is_told(paper: Paper, tmp_path: Path) -> None:
    """The expert learns from the rules what was asked for; the manifest says what came of it."""
    law, asked = rounding_law("bf16"), []

    def rounds(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
        asked.append(rules.most)
        (trace,) = parallel_pass(root, rules, target)
        legal = replace(trace.steps[0].legal, kind=rules.most, laws=frozenset((law,)))
        return (replace(trace, steps=(replace(trace.steps[0], legal=legal),)),)

    paper.expert = rounds
    kernel = entry(build(paper, tmp_path, settings=replace(QUICK, most=Kind.CHANGES_PRECISION)))
    assert asked == [Kind.CHANGES_PRECISION] and kernel.kind == "changes precision"
    assert kernel.laws == (law,) and kernel.notes == (f"changes precision: {law}",)


def test_a_kernel_that_is_kept_may_be_of_a_kind_that_is_not_asked_for_now(paper: Paper) -> None:
    """A build that allows less verifies and times it again all the same."""
    plugins = paper.plugins()
    target = plugins.target("paper")
    [kernel] = select("relu[4,8]", plugins.operators, target.dialect)
    [trace] = parallel_pass(kernel.program, plugins.rules(target), target)
    legal = replace(trace.steps[0].legal, kind=Kind.CHANGES_PRECISION)
    trace = replace(trace, steps=(replace(trace.steps[0], legal=legal),))
    builder = KernelBuilder(BuildContext.of(plugins, target, QUICK))
    found = builder.again(kernel, trace, Observer())
    assert found.record.kind == "changes precision" and found.record.initial and found.record.final
    paper.verifies = lambda trace: False
    with pytest.raises(Rejected, match="verification failed"):
        builder.again(kernel, trace, Observer())


def test_a_kernel_that_fails_verification_never_enters(paper: Paper, tmp_path: Path) -> None:
    paper.verifies = lambda trace: trace.root.name != "relu"
    result = build(paper, tmp_path, "relu[4,8] add[2,3]")
    assert entry(result).operator == "add"
    [failed] = result.failed
    assert failed.kernel.operator == "relu" and "verification failed" in failed.failure
    paper.verifies = lambda trace: False
    empty = build(paper, tmp_path / "empty", "mul[2,3]")
    assert empty.manifest is None and len(empty.failed) == 1
    assert not (tmp_path / "empty" / "manifest.json").exists()


def test_packaged_code_that_differs_is_refused_and_the_old_library_stays(
    paper: Paper, tmp_path: Path
) -> None:
    before = build(paper, tmp_path).manifest
    paper.packaged_value = 2.0
    with pytest.raises(VerificationError, match="not the kernel that was verified"):
        build(paper, tmp_path, "relu[4,8] add[2,3]")
    assert read_manifest(tmp_path) == before


def test_a_broken_toolchain_is_one_clear_error(paper: Paper, tmp_path: Path) -> None:
    paper.refuses = lambda code: True
    with pytest.raises(UnavailableError, match="compiler of target paper does not work"):
        build(paper, tmp_path)


def test_no_kernels_is_an_error(paper: Paper, tmp_path: Path) -> None:
    plugins = paper.plugins()
    with pytest.raises(NothingFoundError):
        build_library(plugins, plugins.target("paper"), [], tmp_path)


# -- interruption, resumption, exclusion -----------------------------------------------------------


class Interrupt(Observer):
    """Ctrl-C while the second kernel is being verified."""

    def __init__(self) -> None:
        self.number = 0

    def started(self, kernel: Kernel, number: int, count: int) -> None:
        self.number = number

    def stage(self, kernel: Kernel, stage: str) -> None:
        if self.number == 2 and stage == "verifying":
            raise KeyboardInterrupt


class Log(Observer):
    def __init__(self) -> None:
        self.reused: dict[str, bool] = {}
        self.stages: list[str] = []

    def stage(self, kernel: Kernel, stage: str) -> None:
        self.stages.append(f"{kernel.operator} {stage}")

    def finished(self, result: KernelResult) -> None:
        assert result.found
        self.reused[result.kernel.operator] = result.found.reused


def test_an_interrupted_build_goes_on_where_it_stopped(paper: Paper, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(paper, tmp_path, "relu[4,8] add[2,3] mul[2,3]", observer=Interrupt())
    assert not (tmp_path / "manifest.json").exists()
    log = Log()
    result = build(paper, tmp_path, "relu[4,8] add[2,3] mul[2,3]", observer=log)
    assert log.reused == {"relu": True, "add": False, "mul": False}
    assert not any(stage.startswith("relu") for stage in log.stages)
    assert result.manifest and len(result.manifest.kernels) == 3


class Rounds(Observer):
    """The status of a search after each round; Ctrl-C after the last of so many."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.seen: list[SearchStatus] = []

    def round(self, kernel: Kernel, status: SearchStatus) -> None:
        self.seen.append(status)
        if len(self.seen) == self.most:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupted_search_goes_on_where_it_stopped(kept: bool, paper: Paper, tmp_path: Path) -> None:
    plugins, search = paper.plugins(), replace(QUICK, search="annealing", evaluations=32)
    kernels, target = select("relu[4,8]", plugins.operators), plugins.target("paper")
    earlier, later = Rounds(2), Rounds()
    with pytest.raises(KeyboardInterrupt):
        build_library(plugins, target, kernels, tmp_path, search, earlier)
    [state] = (tmp_path / "tuned").iterdir()
    if not kept:
        state.write_text("{}")
    assert build_library(plugins, target, kernels, tmp_path, search, later).manifest
    assert later.seen[0].resumed == kept
    rounds = [status.evaluations for status in earlier.seen]
    assert later.seen[0].evaluations == rounds[0] if not kept else later.seen[0].evaluations >= rounds[1]


def test_nothing_is_repeated_under_an_equal_key_and_everything_under_another(
    paper: Paper, tmp_path: Path
) -> None:
    first = entry(build(paper, tmp_path))
    log = Log()
    assert entry(build(paper, tmp_path, observer=log)) == first and log.reused == {"relu": True}
    plugins = paper.plugins()
    target = plugins.target("paper")
    log = Log()
    other = replace(QUICK, seed=1)
    build_library(plugins, target, select("relu[4,8]", plugins.operators), tmp_path, other, log)
    assert log.reused == {"relu": False}


def test_a_record_that_leads_to_other_code_is_not_used(paper: Paper, tmp_path: Path) -> None:
    build(paper, tmp_path)
    paper.mark = "/* a generator that changed */"
    log = Log()
    build(paper, tmp_path, observer=log)
    assert log.reused == {"relu": False}


def test_two_builds_do_not_share_a_folder(paper: Paper, tmp_path: Path) -> None:
    with exclusive(tmp_path), pytest.raises(LibraryError, match="another build is writing"):
        build(paper, tmp_path)
    assert build(paper, tmp_path).manifest


# -- where the time goes ---------------------------------------------------------------------------


def test_a_stage_inside_another_is_taken_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    monkeypatch.setattr("perfdojo_sdk.library.stage_times.perf_counter", lambda: next(times))
    spent = StageTimes()
    with spent.on("search"), spent.on("measure"):
        pass
    with spent.on("search"):
        pass
    assert spent.rounded == {"search": 1.0 + 3.0 + 5.0, "measure": 2.0}


def test_a_search_says_where_the_time_went_as_a_pass_does(paper: Paper, tmp_path: Path) -> None:
    search = replace(QUICK, search="annealing", evaluations=8)
    stages = {"compile", "measure", "search", "verify"}
    assert set(entry(build(paper, tmp_path, settings=search)).build_seconds) == stages


def test_the_manifest_says_where_the_time_went(paper: Paper, tmp_path: Path) -> None:
    result = build(paper, tmp_path)
    assert set(entry(result).build_seconds) == {"compile", "measure", "search", "verify"}
    assert set(result.seconds) == {"set-up", "kernels", "packaging"}
    again = build(paper, tmp_path)
    assert entry(again).build_seconds == entry(result).build_seconds, "a record keeps what its build took"
