"""A build into a library that is there adds to it, and takes nothing from it that is faster."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome
from paper_target import QUICK, Paper, build

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.types import Artifact, Bound, Failure, Measurement, RunRequest, Target
from perfdojo_sdk.kernels.selection import SelectionError, select
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.build import BuildResult
from perfdojo_sdk.library.manifest import LibraryError, read_manifest
from perfdojo_sdk.library.verification import Subject
from perfdojo_sdk.measure.answer import runner_fault
from perfdojo_sdk.measure.timing import Ratio
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.store.records import LegResult, Verification


@dataclass
class Timed(Paper):
    """Programs take what their first loop's suffix says; the expert plays ``suffix``."""

    suffix: str = "p"
    verified: int = 0
    times: Any = None
    fails: str = ""

    def __post_init__(self) -> None:
        self.expert = self.plays
        self.times = {"p": 1e-3, "u": 5e-4, "": 2e-3}

    def plays(self, root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
        play = Play(root, rules)
        play.must("annotate_scope", "s0", suffix=self.suffix)
        return (play.trace,)

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        found = super().run(artifact, request)
        assert isinstance(found, Measurement)
        first = artifact.content.decode().partition("\n\n")[2].split(" ")[0]
        suffix = first.partition(":")[2]
        if self.fails and suffix == self.fails:
            return Failure("crash", "it fell over")
        return replace(found, seconds=(self.times[suffix],) if request.repeats else ())


@dataclass
class Clockless(Timed):
    """No time of a program whose first loop has one of these suffixes."""

    without: tuple[str, ...] = ()

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        first = artifact.content.decode().partition("\n\n")[2].split(" ")[0]
        found = super().run(artifact, request)
        if request.repeats and first.partition(":")[2] in self.without and isinstance(found, Measurement):
            return runner_fault("the clock stood still")
        return found


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Clockless:
    made = Clockless()

    def verify(subject: Subject) -> Verification:
        made.verified += 1
        leg = LegResult(passed=made.verifies(subject.trace), detail="as the test says")
        return Verification(exact=leg, numeric=leg, dependence=leg)

    monkeypatch.setattr(verification, "verify", verify)
    monkeypatch.setattr("perfdojo_sdk.plugins.discovery.installed", lambda: ())
    return made


def names(result: BuildResult) -> list[str]:
    assert result.manifest
    return [kernel.name for kernel in result.manifest.kernels]


def played(result: BuildResult, name: str = "relu_4x8_f32") -> list[str]:
    assert result.manifest
    [kernel] = [kernel for kernel in result.manifest.kernels if kernel.name == name]
    return [str(move.parameters["suffix"]) for move in kernel.moves]


OTHER = replace(QUICK, repeats=6)
"""Other settings, under which nothing is taken from the records."""


def test_a_kernel_that_was_not_asked_about_stays_as_it_is(paper: Clockless, tmp_path: Path) -> None:
    before = build(paper, tmp_path, "relu[4,8]")
    assert before.manifest and before.fates == {}
    once = paper.verified
    after = build(paper, tmp_path, "add[2,3]")
    assert names(after) == ["relu_4x8_f32", "add_2x3_f32"]
    assert after.fates == {"relu_4x8_f32": "kept", "add_2x3_f32": "new"}
    assert after.manifest and after.manifest.kernels[0] == before.manifest.kernels[0]
    assert paper.verified == once + 1, "only what is new is verified"
    assert (tmp_path / "src/relu_4x8_f32.paper").exists() and read_manifest(tmp_path) == after.manifest


def test_a_kernel_that_could_not_be_built_again_stays_too(paper: Clockless, tmp_path: Path) -> None:
    build(paper, tmp_path, "relu[4,8]")
    paper.verifies = lambda trace: trace.root.name != "relu"
    result = build(paper, tmp_path, "relu[4,8] add[2,3]", OTHER)
    assert names(result) == ["relu_4x8_f32", "add_2x3_f32"] and len(result.failed) == 1


def test_a_slower_kernel_does_not_replace_a_faster_one(paper: Clockless, tmp_path: Path) -> None:
    build(paper, tmp_path)
    paper.times["u"] = 1.5e-3
    paper.suffix = "u"
    result = build(paper, tmp_path, settings=OTHER)
    assert played(result) == ["p"] and result.fates["relu_4x8_f32"].startswith("kept: the new one takes 1.50")
    forced = build(paper, tmp_path, settings=OTHER, force=True)
    assert played(forced) == ["u"] and forced.fates["relu_4x8_f32"] == "replaced: forced"


def test_a_kernel_that_seems_slower_replaces_nothing_however_much_times_vary(
    paper: Clockless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(paper, tmp_path)
    paper.suffix = "u"
    monkeypatch.setattr("perfdojo_sdk.library.existing._ratio", lambda *_: Ratio(1.62, 0.6, 3.0, 0.95))
    result = build(paper, tmp_path, settings=OTHER)
    assert played(result) == ["p"] and result.fates["relu_4x8_f32"].startswith("kept: the new one takes 1.62")


def test_a_faster_or_equal_kernel_replaces_its_elder(paper: Clockless, tmp_path: Path) -> None:
    build(paper, tmp_path)
    paper.suffix = "u"
    result = build(paper, tmp_path, settings=OTHER)
    assert played(result) == ["u"] and result.fates["relu_4x8_f32"] == "replaced: 0.50 of the old time"
    assert build(paper, tmp_path, settings=OTHER).fates == {"relu_4x8_f32": "unchanged"}


class InTurns(Timed):
    """A runner on which every call takes longer than the one before: only runs in turns are comparable."""

    calls = 0
    races = 0

    def run(self, artifact: Artifact, request: RunRequest) -> Any:
        found = super().run(artifact, request)
        if not isinstance(found, Measurement):
            return found
        self.calls += 1
        weather = 1 + self.calls
        return replace(found, seconds=tuple(s * weather for s in found.seconds))

    def time_interleaved(self, artifacts: Any, request: RunRequest) -> Any:
        self.races += 1
        return [super(InTurns, self).run(each, request) for each in artifacts]


def test_the_two_are_timed_in_turns_not_by_what_is_on_record(paper: Clockless, tmp_path: Path) -> None:
    stormy = InTurns()
    build(stormy, tmp_path)
    stormy.suffix = "u"  # half the time, by a clock that runs slower and slower
    stormy.calls = 1000
    races = stormy.races
    result = build(stormy, tmp_path, settings=OTHER)
    assert played(result) == ["u"] and stormy.races > races
    assert result.fates["relu_4x8_f32"] == "replaced: 0.50 of the old time"


def test_a_suspect_time_replaces_nothing(paper: Clockless, tmp_path: Path) -> None:
    build(paper, tmp_path)
    paper.suffix, paper.bound = "u", Bound(0.9e-3, "paper speed", "measured", calibrated=True)
    result = build(paper, tmp_path, settings=OTHER)
    assert played(result) == ["p"] and "suspect" in result.fates["relu_4x8_f32"]


def test_an_elder_that_does_not_run_any_more_is_replaced(paper: Clockless, tmp_path: Path) -> None:
    build(paper, tmp_path)
    paper.suffix, paper.fails, paper.times["u"] = "u", "p", 1.9e-3
    result = build(paper, tmp_path, settings=OTHER)
    assert played(result) == ["u"] and "does not run any more" in result.fates["relu_4x8_f32"]


def test_what_is_kept_under_other_conditions_is_verified_again(paper: Clockless, tmp_path: Path) -> None:
    build(paper, tmp_path)
    once = paper.verified
    paper.mark = "# another generator\n"
    paper.device = lambda: "another desk"  # type: ignore[method-assign]
    result = build(paper, tmp_path, "add[2,3]")
    assert names(result) == ["relu_4x8_f32", "add_2x3_f32"] and paper.verified == once + 2
    paper.device = lambda: "a third desk"  # type: ignore[method-assign]
    paper.verifies = lambda trace: trace.root.name != "relu"
    manifest = read_manifest(tmp_path)
    with pytest.raises(LibraryError, match="relu_4x8_f32") as refused:
        build(paper, tmp_path, "mul[2,3]")
    assert refused.value.code == "PD-L027" and read_manifest(tmp_path) == manifest
    assert names(build(paper, tmp_path, "mul[2,3]", start_over=True)) == ["mul_2x3_f32"]


def test_a_library_of_another_target_is_left_alone(paper: Clockless, tmp_path: Path) -> None:
    build(paper, tmp_path)
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "target": "stone"}))
    with pytest.raises(LibraryError, match="library for stone"):
        build(paper, tmp_path, "add[2,3]")
    assert names(build(paper, tmp_path, "add[2,3]", start_over=True)) == ["add_2x3_f32"]


# -- one name, several shapes ------------------------------------------------------------------------

SCALED = """kernel scaled(x, s) -> y
x f32 [4,8] heap
s f32 [SHAPE] heap
y f32 [4,8] heap

4 8 y[{0},{1}] = x[{0},{1}] * s[WHERE]
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Two programs of one name that differ in the shape of their second input."""
    found = []
    for shape, where in (("8", "{1}"), ("4,8", "{0},{1}")):
        path = tmp_path / f"scaled{len(found)}.dojo"
        path.write_text(SCALED.replace("SHAPE", shape).replace("WHERE", where))
        found.append(str(path))
    return found[0], found[1]


def test_kernels_that_differ_in_a_later_input_have_names_of_their_own(files: tuple[str, str]) -> None:
    assert [k.name for k in select(files, {})] == ["scaled_4x8_f32", "scaled_4x8_4x8_f32"]
    assert [k.name for k in select(files[::-1], {})] == ["scaled_4x8_f32", "scaled_4x8_8_f32"]
    assert [k.name for k in select(files[1], {})] == ["scaled_4x8_f32"], "as before where nothing clashes"


def test_two_that_take_the_same_are_still_told_apart_by_nothing(files: tuple[str, str]) -> None:
    other = Path(files[0]).with_name("other.dojo")
    other.write_text(Path(files[0]).read_text().replace("*", "+"))
    with pytest.raises(SelectionError, match="both named"):
        select([files[0], str(other)], {})


def test_a_library_gives_a_name_to_what_takes_other_inputs(
    paper: Clockless, tmp_path: Path, files: tuple[str, str]
) -> None:
    """Built one after the other, in either order, or together: the same two kernels."""
    one, other = files
    lib = tmp_path / "lib"
    assert names(build(paper, lib, one)) == ["scaled_4x8_f32"]
    both = ["scaled_4x8_f32", "scaled_4x8_4x8_f32"]
    assert names(build(paper, lib, other)) == both
    again = build(paper, lib, f"{other} {one}", OTHER)
    assert names(again) == both and set(again.fates.values()) == {"unchanged"}


def test_another_program_of_the_same_inputs_takes_its_place(
    paper: Clockless, tmp_path: Path, files: tuple[str, str]
) -> None:
    lib = tmp_path / "lib"
    build(paper, lib, files[0])
    path = Path(files[0])
    path.write_text(path.read_text().replace("*", "+"))
    result = build(paper, lib, files[0])
    assert "another initial program" in result.fates["scaled_4x8_f32"]
    assert "+" in (lib / "programs" / "scaled_4x8_f32.dojo").read_text()


# -- the command line --------------------------------------------------------------------------------


def test_the_table_says_what_was_kept(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = ("build-library", "--target", "toy", "-o", "lib", "--kernels")
    assert cli(*words, "relu[4,4]", plugins="toy").code == 0
    added = cli(*words, "add[2,3]", "--json", plugins="toy")
    assert [(k["name"], k["fate"]) for k in added.data["kernels"]] == [
        ("relu_4x4_f32", "kept"),
        ("add_2x3_f32", "new"),
    ]
    over = cli(*words, "add[2,3]", "--replace", plugins="toy")
    assert over.code == 0 and "relu" not in over.out


# -- no time at all ----------------------------------------------------------------------------------


def test_a_verified_kernel_that_nobody_could_time_is_kept_and_marked(
    paper: Clockless, tmp_path: Path
) -> None:
    paper.without = ("p", "")
    result = build(paper, tmp_path)
    assert played(result) == ["p"] and not result.failed and result.manifest
    [kernel] = result.manifest.kernels
    assert kernel.timing.final is None and kernel.output_sha256
    assert kernel.timing.suspect == "no time (runtime: runner fault: the clock stood still)"
    assert any("the kernel is verified, it ranks nothing" in note for note in kernel.notes)
    paper.without = ()
    again = build(paper, tmp_path)
    assert again.manifest and again.manifest.kernels[0].timing.final, (
        "it is timed as soon as that is possible"
    )


def test_an_initial_program_that_nobody_could_time_is_kept_too(paper: Clockless, tmp_path: Path) -> None:
    paper.without, paper.verifies = ("p", ""), lambda trace: not trace.steps
    result = build(paper, tmp_path)
    assert played(result) == [] and not result.failed and result.manifest
    [kernel] = result.manifest.kernels
    assert kernel.timing.initial is None and kernel.timing.final is None


def test_what_has_no_time_ranks_behind_what_has_one(paper: Clockless, tmp_path: Path) -> None:
    paper.without = ("p",)
    result = build(paper, tmp_path)
    assert played(result) == [] and result.manifest
    [kernel] = result.manifest.kernels
    assert kernel.timing.final and not kernel.timing.suspect
    assert "what the search found is left out: it has no figure" in kernel.notes[0]


def test_what_has_no_time_and_is_wrong_is_left_out(paper: Clockless, tmp_path: Path) -> None:
    paper.without, paper.verifies = ("p", ""), lambda trace: False
    assert build(paper, tmp_path).manifest is None


def test_what_has_no_time_replaces_nothing(paper: Clockless, tmp_path: Path) -> None:
    build(paper, tmp_path)
    paper.suffix, paper.without = "u", ("u", "")
    result = build(paper, tmp_path, settings=OTHER)
    assert played(result) == ["p"]
    assert "the clock stood still" in result.fates["relu_4x8_f32"]


# -- a library that cannot be read -------------------------------------------------------------------


@pytest.mark.parametrize("content", ["{", json.dumps({"schema_version": 99})], ids=["cut", "newer"])
def test_a_library_that_cannot_be_read_is_not_built_over(
    paper: Clockless, tmp_path: Path, content: str
) -> None:
    build(paper, tmp_path)
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(LibraryError) as raised:
        build(paper, tmp_path, "add[2,3]", OTHER)
    assert raised.value.code == "PD-L002" and "--replace" in raised.value.hint
    assert (tmp_path / "manifest.json").read_text() == content
    assert names(build(paper, tmp_path, "add[2,3]", OTHER, start_over=True)) == ["add_2x3_f32"]
