"""The runner as libraries call it: one object, guarded and watched, that can do all that the plugin's can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from made_plugins import plugin
from paper_target import QUICK, Paper

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.abilities import (
    LimitsCompiling,
    LimitsInstances,
    RunsSets,
    ability,
    with_compile_timeout,
)
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Capabilities,
    Failure,
    KernelSource,
    Measurement,
    RunRequest,
    Target,
)
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.running import compiled, rounds_of, run, takes_turns, timed_in_turns
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import COMPILE_TIMEOUT_S
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.estimate import AnalyticGenerator

ARTIFACT = Artifact("pd_copy", (), (), "desk", b"1", "scissors 1.0")
CAPABILITIES = Capabilities(name="desk", description="", suffixes=())
TARGET = Target("desk", CAPABILITIES, CAPABILITIES.dialect(), "")


@dataclass(frozen=True)
class Plain:
    """A runner that can do what each has to."""

    compile_timeout_s: float = 120.0
    runs: list[RunRequest] = field(default_factory=list)

    def compile(self, source: KernelSource) -> Artifact | Failure:
        return ARTIFACT

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        self.runs.append(request)
        return Measurement({}, (1.0,) if request.repeats else (), "simulated", "desk", 1)

    def device(self) -> str:
        return "desk"


@dataclass(frozen=True)
class Able(Plain):
    """A runner that can do more."""

    most_instances: int = 7

    def time_interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Any]:
        return [self.run(artifact, request) for artifact in artifacts]

    def run_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        return self.run(artifact, request)


class Counting:
    """An observer that counts the runs that it saw."""

    name = "counting"

    def __init__(self) -> None:
        self.seen = 0

    def before(self, artifact: Artifact, request: RunRequest) -> object:
        return None

    def after(self, before: object, measurement: Measurement) -> dict[str, float]:
        self.seen += 1
        return {"seen": float(self.seen)}


def context(runner: Any, observer: Counting | None = None) -> BuildContext:
    made = plugin(
        "desk",
        targets=lambda: [TARGET],
        code_generator=lambda target: AnalyticGenerator(),
        runner=lambda target: runner,
        observers=lambda target: [observer] if observer else [],
    )
    loaded = load_plugins(extra=[made], targets=["desk"])
    return BuildContext.of(loaded, loaded.target("desk"), Settings(threads=1))


def test_guards_and_observers_take_nothing_away() -> None:
    runner = context(Able(), Counting()).runner
    assert takes_turns(runner) and ability(runner, RunsSets)
    limits = ability(runner, LimitsInstances)
    assert limits is not None and limits.most_instances == 7
    found = timed_in_turns(runner, [ARTIFACT, ARTIFACT], RunRequest(repeats=1))
    assert found is not None and [f.median for f in found if isinstance(f, Measurement)] == [1.0, 1.0]


def test_they_add_nothing_either() -> None:
    runner = context(Plain()).runner
    assert not takes_turns(runner) and ability(runner, RunsSets) is None
    assert timed_in_turns(runner, [ARTIFACT], RunRequest()) is None
    assert ability(runner, LimitsInstances) is None


def test_who_cannot_take_turns_is_timed_in_rounds() -> None:
    for plain, rounds in ((Plain(), 3), (Able(), 1)):
        found = rounds_of(context(plain).runner, [ARTIFACT, ARTIFACT], RunRequest(budget_s=3.0), 3)
        assert [len(each) for each in found] == [2] * rounds
        assert {request.budget_s for request in plain.runs} == {3.0 / rounds}


def test_less_patience_reaches_the_compiler_through_guard_and_observers() -> None:
    whole = context(Plain(), Counting()).runner
    hasty = with_compile_timeout(whole, COMPILE_TIMEOUT_S)
    limited = ability(hasty, LimitsCompiling)
    assert limited is not None and limited.compile_timeout_s == COMPILE_TIMEOUT_S
    assert type(hasty) is type(whole)
    assert with_compile_timeout(hasty, 60.0) is hasty, "nobody becomes more patient"
    paper = context(Paper()).runner
    assert with_compile_timeout(paper, 1.0) is paper, "one without a limit has none to lower"


def test_each_timed_run_is_watched() -> None:
    watching = Counting()
    runner = context(Plain(), watching).runner
    found = run(runner, ARTIFACT, RunRequest(repeats=1))
    assert isinstance(found, Measurement) and found.details == {"counting.seen": 1.0}
    run(runner, ARTIFACT, RunRequest(repeats=0))
    assert watching.seen == 1, "a run without timing has no figures"


def test_errors_of_a_runner_are_failures_but_for_a_missing_tool() -> None:
    source = AnalyticGenerator().generate(
        parse("kernel c(x) -> y\nx f32 [1] heap\ny f32 [1] heap\n\n1 y[{0}] = x[{0}]\n"), "pd_c"
    )

    class Broken(Plain):
        error: Exception = RuntimeError("no bus")

        def compile(self, source: KernelSource) -> Artifact | Failure:
            raise self.error

        def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
            return 3  # type: ignore[return-value]

    assert compiled(Broken(), source) == Failure("runtime", "the runner failed: RuntimeError: no bus")
    assert run(Broken(), ARTIFACT, RunRequest()) == Failure("runtime", "the runner returned int")
    Broken.error = UnavailableError("PD-G005", "there is no compiler")
    with pytest.raises(UnavailableError, match="no compiler"):
        compiled(Broken(), source)


def test_a_free_helper_compiles_in_the_runners_place() -> None:
    @dataclass
    class Helper:
        made: Artifact | None
        count: int = 1

        def compile(self, source: KernelSource) -> Artifact | Failure | None:
            return self.made

    other = Artifact("pd_c", (), (), "desk", b"2", "scissors 1.0")
    source = KernelSource("pd_c", (), (), "code")
    assert compiled(Plain(), source, Helper(other)) is other
    assert compiled(Plain(), source, Helper(None)) is ARTIFACT


def test_a_context_is_looked_up_once_and_does_not_change() -> None:
    paper = Paper()
    plugins = paper.plugins()
    made = BuildContext.of(plugins, plugins.target("paper"), QUICK, toolchain="known")
    assert paper.compiled == [] and made.toolchain == "known", "whoever knows the toolchain compiles nothing"
    with pytest.raises(AttributeError):
        made.device = "other"  # type: ignore[misc]
