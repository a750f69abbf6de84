"""Building never loses work, never ends empty-handed, and says where its time went."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from paper_target import QUICK, Paper, build, entry, parallel_pass
from perfdojo_sdk.library.forge import FINALISTS, SLOW_S, Forge
from toy_target import perfdojo_toy

from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.errors import NothingFoundError, VerificationError
from perfdojo_sdk.core.laws import FILTER
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Legal, Move, Rules, Trace
from perfdojo_sdk.game import Game
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    Failure,
    KernelSource,
    Measurement,
    Runner,
    RunRequest,
    Target,
)
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.beside import beside
from perfdojo_sdk.library.build import KernelResult, Observer, build_library, exclusive
from perfdojo_sdk.library.manifest import LibraryError, read_manifest
from perfdojo_sdk.library.spent import Spent
from perfdojo_sdk.library.tuning import BUDGET_S, Standing
from perfdojo_sdk.measure.toolchain import Compiled, find_toolchain
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.store.records import LegResult, Verification
from perfdojo_sdk.verify import numeric


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    """A paper target whose verification says what :attr:`Paper.verifies` says."""
    made = Paper()

    def verify(trace: Trace, *_: object) -> Verification:
        leg = LegResult(passed=made.verifies(trace), detail="as the test says")
        return Verification(exact=leg, numeric=leg, dependence=leg)

    monkeypatch.setattr(verification, "verify", verify)
    monkeypatch.setattr("perfdojo_sdk.plugins.discovery.installed", lambda: ())
    return made


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
    """For the threads, and written out."""
    play = Play(root, rules)
    play.must("annotate_scope", "s1", suffix="u")
    return (*parallel_pass(root, rules, target), play.trace)


class TwoWays(Paper):
    """What is written out takes 1.5e-3 s, and memory has a bound for what goes to the threads alone."""

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
    with pytest.raises(LibraryError, match="compiler of target paper does not work"):
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
    """What a search says after each round; Ctrl-C after the last of so many."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.seen: list[Standing] = []

    def round(self, kernel: Kernel, standing: Standing) -> None:
        self.seen.append(standing)
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
    rounds = [standing.evaluations for standing in earlier.seen]
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
    monkeypatch.setattr("perfdojo_sdk.library.spent.perf_counter", lambda: next(times))
    spent = Spent()
    with spent.on("search"), spent.on("measure"):
        pass
    with spent.on("search"):
        pass
    assert spent.rounded == {"search": 1.0 + 3.0 + 5.0, "measure": 2.0}


def test_the_manifest_says_where_the_time_went(paper: Paper, tmp_path: Path) -> None:
    result = build(paper, tmp_path)
    assert set(entry(result).build_seconds) == {"compile", "measure", "search", "verify"}
    assert set(result.seconds) == {"set-up", "kernels", "packaging"}
    again = build(paper, tmp_path)
    assert entry(again).build_seconds == entry(result).build_seconds, "a record keeps what its build took"


def test_a_slow_initial_program_is_called_once_and_the_record_says_so(paper: Paper, tmp_path: Path) -> None:
    paper.slow = 10 * SLOW_S
    kernel = entry(build(paper, tmp_path))
    assert kernel.timing.initial.details["stopped"] and not kernel.timing.final.details.get("stopped")
    paper.expert = None
    kernel = entry(build(paper, tmp_path / "alone"))
    assert kernel.moves == () and not kernel.timing.final.details.get("stopped"), (
        "what is shipped is timed well"
    )


def test_only_games_close_to_the_fastest_are_timed_again(paper: Paper, tmp_path: Path) -> None:
    def two_games(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
        (threads,) = parallel_pass(root, rules, target)
        return threads, Trace(root).play(rules, Move.of("annotate_scope", "s1", suffix="u"))

    def timings(slow: float) -> int:
        paper.slow, paper.runs = slow, []
        build(paper, tmp_path / f"{slow}")
        return len(paper.runs)

    paper.expert = two_games
    assert timings(1.2e-3) == timings(2e-3) + 2, "the slow game, and the initial program"


class Changing(Paper):
    """A good moment for what has a parallel scope, which is over when kernels take turns."""

    def time_interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Any]:
        found = [self.run(artifact, request) for artifact in artifacts]
        slow = [3 if b":p" in artifact.content else 1 for artifact in artifacts]
        return [replace(f, seconds=tuple(k * s for s in f.seconds)) for f, k in zip(found, slow, strict=True)]


@pytest.mark.parametrize(("initial", "kept"), [(1.2e-3, True), (2e-3, False)], ids=["close", "far behind"])
def test_the_initial_program_takes_turns_with_what_hardly_beats_it(
    paper: Paper, tmp_path: Path, initial: float, kept: bool
) -> None:
    kernel = entry(build(Changing(slow=initial), tmp_path))
    assert (kernel.moves == ()) == kept
    assert ("what the search found is slower" in " ".join(kernel.notes)) == kept


class Estimating(Paper):
    """Says of an initial program what a model thinks, which is too good."""

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        found = super().run(artifact, request)
        model = isinstance(found, Measurement) and b":p" not in artifact.content
        return replace(found, provenance="estimated" if model else "measured")


def test_an_estimate_wins_over_no_measurement(paper: Paper, tmp_path: Path) -> None:
    kernel = entry(build(Estimating(slow=1e-4), tmp_path))
    assert kernel.moves and kernel.timing.initial.provenance == "estimated"


def test_a_game_that_saves_products_is_bound_by_what_it_computes(paper: Paper) -> None:
    plugins = paper.plugins()
    target = plugins.target("paper")
    kernel, other = select("relu[4,8] add[2,3]", plugins.operators, target.dialect)
    forge = Forge(plugins, target, QUICK)
    (trace,) = parallel_pass(kernel.program, plugins.rules(target), target)
    forge._bound(kernel, trace)
    legal = Legal(Kind.DECLARED_LAW, frozenset((FILTER,)))
    saves = replace(trace, steps=(replace(trace.steps[0], legal=legal, after=other.program),))
    forge._bound(kernel, saves)
    assert paper.bounded[-2:] == [kernel.program, other.program]


class Lucky(Paper):
    """Whoever challenges the champion of a search has luck; at length, times are what they are."""

    def __init__(self, known: Mapping[str, float], others: tuple[float, ...]) -> None:
        """``known``: programs that always take so long; ``others``: what all others take."""
        super().__init__()
        self.known = {text.encode(): seconds for text, seconds in known.items()}
        self.others, self.won = others, set[bytes]()

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        known = self.known.get(artifact.content)
        seconds = (known,) * len(self.others) if known else self.others
        seconds = seconds if request.repeats else ()
        return replace(super().run(artifact, request), seconds=seconds, provenance="measured", details={})

    def time_interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Any]:
        found = [self.run(artifact, request) for artifact in artifacts]
        if request.budget_s <= BUDGET_S:
            found[0] = replace(found[0], seconds=tuple(s * 0.95 for s in found[0].seconds))
            self.won |= {artifacts[0].content} if found[0].median < 0.99 * found[1].median else set()
        return found


@pytest.mark.parametrize(
    ("others", "kept"),
    [
        ((1.03e-3,), True),
        ((0.9e-3, 1.08e-3) * 10, True),  # 1 % faster in the mean, and nobody knows in which calls
        ((0.96e-3, 0.98e-3) * 10, False),
    ],
    ids=["slower", "not faster beyond doubt", "faster"],
)
def test_luck_in_a_search_does_not_throw_out_what_the_expert_plays(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[float, ...], kept: bool
) -> None:
    monkeypatch.setattr(verification, "quick", verification.verify)
    plugins = paper.plugins()
    target = plugins.target("paper")
    [kernel] = select("softmax[4,8]", plugins.operators, target.dialect)
    [expert] = parallel_pass(kernel.program, plugins.rules(target), target)
    lucky = Lucky({kernel.program.text: 2e-3, expert.program.text: 1e-3}, others)
    settings = replace(QUICK, search="evolution", evaluations=24, budget_s=1.0)
    found = entry(build(lucky, tmp_path, "softmax[4,8]", settings))
    assert len(lucky.won) > FINALISTS, "too little luck to show anything"
    experts = [m.transformation for m in found.moves] == ["annotate_scope"]
    assert experts == kept, "the expert's one move, or what a search found"


def test_work_beside_gives_its_result_or_is_done_here(tmp_path: Path) -> None:
    def elsewhere() -> int:
        return os.getpid()

    with beside(elsewhere) as result:
        assert result() != os.getpid()

    def fails_elsewhere(here: int = os.getpid()) -> int:
        if os.getpid() != here:
            raise ValueError("not here")
        return here

    with beside(fails_elsewhere) as result:
        assert result() == os.getpid()

    def fails() -> int:
        raise NothingFoundError("PD-K007", "in the middle")

    with beside(fails) as result, pytest.raises(NothingFoundError, match="in the middle"):
        result()


def test_work_that_is_ended_at_any_time_never_comes_back(tmp_path: Path) -> None:
    """However early or late it is told to end: a copy of this process must not go on as another one."""
    here, mark = os.getpid(), tmp_path / "came back"
    for number in range(400):
        try:
            with beside(os.getpid):
                time.sleep(number % 40 * 5e-5)
        except BaseException:
            if os.getpid() == here:
                raise
            mark.touch()
            os._exit(1)
    assert not mark.exists()


def test_an_interruption_ends_the_work_beside(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def forever() -> None:
        mark.write_text(str(os.getpid()))
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt), beside(forever):
        while not mark.exists() or not mark.read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


# -- a candidate's verification --------------------------------------------------------------------


#: The mean over two of three dimensions, taken off: a row is a third of everything.
CENTRED = """kernel centred(x) -> y
x f32 [40,3,50] heap
s f32 [3] heap
y f32 [40,3,50] heap

3 s[{0}] = 0
3 40 50 s[{0}] += x[{1},{0},{2}]
3 40 50 y[{1},{0},{2}] = x[{1},{0},{2}] - s[{0}] / 2000
"""


@dataclass
class Shapes:
    """A runner that keeps the shape of the first input of whatever runs."""

    runner: Runner
    seen: list[tuple[int, ...]]
    spoilt: bool = False
    """Whether the first element of each result is wrong."""

    def device(self) -> str:
        return self.runner.device()

    def compile(self, source: KernelSource) -> Artifact | Failure:
        if self.spoilt:
            source = replace(source, code=source.code.replace("return 0;", "y[0] += 1.0f; return 0;"))
        return self.runner.compile(source)

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        self.seen.append(artifact.inputs[0].shape)
        return self.runner.run(artifact, request)


def asked_of_a_candidate(runner: Shapes) -> Verification:
    plugins = load_plugins(extra=[perfdojo_toy])
    rules, generator = plugins.rules(plugins.require("toy")), plugins.code_generator(plugins.require("toy"))
    game = Trace(parse(CENTRED, rules.dialect))
    artifact = runner.compile(generator.generate(game.program, "pd_centred"))
    assert isinstance(artifact, Artifact)
    return verification.quick(game, rules, artifact, runner, {}, 1, 0, generator)


def test_a_candidate_whose_rows_are_dear_is_compared_at_a_smaller_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def runner(spoilt: bool = False) -> Shapes:
        plugins = load_plugins(extra=[perfdojo_toy])
        return Shapes(plugins.runner(plugins.require("toy")), [], spoilt)

    own = runner()
    assert asked_of_a_candidate(own).passed
    assert own.seen == [(40, 3, 50)], "a cheap kernel is compared as it is"

    monkeypatch.setattr(numeric, "_FULL_INSTANCES", 500)
    monkeypatch.setattr(numeric, "_ROW_INSTANCES", 500)
    monkeypatch.setattr(verification, "QUICK_COMPARED", 500)
    small = runner()
    assert asked_of_a_candidate(small).passed
    [shape] = small.seen
    assert prod(shape) < 500 and min(shape) > 1

    refused = asked_of_a_candidate(runner(spoilt=True))
    assert not refused.passed and "y[0,0,0]" in refused.failure


# -- the real thing --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of one kernel that went through everything for real."""
    folder = tmp_path_factory.mktemp("verified")
    plugins = load_plugins(extra=[perfdojo_toy])
    target = plugins.require("toy")
    result = build_library(plugins, target, select("softmax[9,33]", plugins.operators), folder, QUICK)
    assert result.manifest, result.failed
    return folder


def test_a_library_carries_all_three_legs(verified: Path) -> None:
    [kernel] = read_manifest(verified).kernels
    assert kernel.verification.passed and kernel.verification.failure == ""
    assert kernel.verification.exact.figures["models"] == 2
    assert kernel.verification.numeric.figures["elements"] >= 9 * 33
    assert 0 < kernel.verification.numeric.figures["worst_error_over_bound"] <= 1
    assert kernel.timing.final and kernel.timing.final.provenance == "measured"
    assert kernel.timing.final.median_s > 0 and kernel.roofline_fraction


def test_the_manifest_notes_contraction_and_toolchain(verified: Path) -> None:
    manifest = read_manifest(verified)
    assert not manifest.contraction and "-ffp-contract=off" in manifest.toolchain
    assert {"perfdojo_sdk", "perfdojo_toy"} <= manifest.plugins.keys()
    assert manifest.target == "toy" and manifest.settings["threads"] == 2


def test_the_header_declares_what_the_sources_define(verified: Path) -> None:
    """Compiled together: conflicting declarations are errors."""
    sources = {p.name: p.read_text() for p in verified.glob("src/*")}
    header = (verified / "include/perfdojo_toy.h").read_text()
    [unit] = [name for name in sources if name.endswith(".c")]
    sources[unit] = '#include "perfdojo_toy.h"\n' + sources[unit]
    compiled = find_toolchain().compile(
        {**sources, "perfdojo_toy.h": header}, ("-Wall", "-Wextra", "-Werror")
    )
    assert isinstance(compiled, Compiled), compiled
