"""A fault of a plugin's code becomes one line that names the plugin, and ends nothing else."""

from __future__ import annotations

import logging
import math
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, clear
from paper_target import Paper, build, entry

from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rejection, Trace
from perfdojo_sdk.hookspecs import hookimpl
from perfdojo_sdk.hookspecs.abilities import TimesInterleaved, ability
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.running import generated
from perfdojo_sdk.plugins.faults import VARIABLE, PluginFault, TookTooLong, guarded, heard, within
from perfdojo_sdk.plugins.guards import GuardedGenerator, GuardedPass, GuardedRunner, why_no_measurement
from perfdojo_sdk.store.records import LegResult, Verification

COPY = parse("kernel copy(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = x[{0}]\n")
FINE = Measurement({}, (1e-3,), "measured", "desk", 1)


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    """A paper target whose verification passes everything."""
    leg = LegResult(passed=True, detail="as the test says")
    everything = Verification(exact=leg, numeric=leg, dependence=leg)
    monkeypatch.setattr(verification, "verify", lambda *_: everything)
    monkeypatch.setattr("perfdojo_sdk.plugins.discovery.installed", lambda: ())
    return Paper()


def trips(*_: object, **__: object) -> Any:
    raise IndexError("tuple index\nout of range")


def leaves(*_: object, **__: object) -> Any:
    raise SystemExit(0)


def goes_on_for_ever(*_: object, **__: object) -> Any:
    while True:
        pass


def sleeps(*_: object, **__: object) -> Any:
    time.sleep(60)


# -- a pass ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expert", "said"),
    [
        (trips, "raised IndexError: tuple index out of range"),
        (leaves, "raised SystemExit: 0"),
        (lambda *_: None, "raised TypeError"),
        (lambda *_: ("a game",), "returned str 'a game', expected games"),
        (lambda root, *_: (Trace(root) for _ in iter(int, 1)), "played more than 1000 games"),
    ],
    ids=["raises", "leaves", "none", "words", "endless"],
)
def test_an_expert_that_fails_costs_its_games_and_nothing_else(
    paper: Paper, tmp_path: Path, expert: Callable[..., Any], said: str
) -> None:
    paper.expert = expert
    result = build(paper, tmp_path)
    kernel = entry(result)
    assert kernel.moves == () and len(result.faulty) == 1
    assert f"plugin paper: its pass {said}" in kernel.faults[0] and "\n" not in kernel.faults[0]
    assert any(said in note for note in kernel.notes)
    again = build(paper, tmp_path)
    assert again.faulty and entry(again).faults == kernel.faults, "the record remembers"


@pytest.mark.parametrize("expert", [goes_on_for_ever, sleeps])
def test_an_expert_that_takes_too_long_is_ended(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expert: Callable[..., Any]
) -> None:
    monkeypatch.setenv(VARIABLE, "0.2")
    paper.expert = expert
    assert entry(build(paper, tmp_path)).faults == ("plugin paper: its pass took longer than 0.2 s",)


def test_an_interruption_is_no_fault(paper: Paper, tmp_path: Path) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    paper.expert = interrupted
    with pytest.raises(KeyboardInterrupt):
        build(paper, tmp_path)


def test_what_goes_well_has_no_faults(paper: Paper, tmp_path: Path) -> None:
    result = build(paper, tmp_path)
    assert entry(result).faults == () and result.faulty == ()


def test_a_search_goes_on_without_the_expert(paper: Paper, tmp_path: Path) -> None:
    from paper_target import QUICK

    paper.expert = trips
    kernel = entry(build(paper, tmp_path, settings=replace(QUICK, search="sampling", evaluations=4)))
    assert kernel.faults and "its pass raised IndexError" in kernel.faults[0]
    assert not any("failed" in note for note in kernel.notes)


# -- a generator -----------------------------------------------------------------------------------


class Generating(Paper):
    """Its generator answers with ``made`` for what has moves."""

    made: Callable[..., Any] = staticmethod(trips)

    def generate(self, program: Program, symbol: str) -> KernelSource:
        if ":p" in program.text:
            return self.made(program, symbol)  # type: ignore[no-any-return]
        return super().generate(program, symbol)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (trips, "raised IndexError"),
        (leaves, "raised SystemExit"),
        (lambda *_: None, "returned NoneType None, expected a source"),
        (lambda *_: KernelSource("other", (), (), ""), "called pd_relu_4x8_f32 'other'"),
        (goes_on_for_ever, "took longer than 0.3 s"),
    ],
    ids=["raises", "leaves", "none", "other symbol", "hangs"],
)
def test_a_generator_that_fails_costs_that_game(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[..., Any], said: str
) -> None:
    monkeypatch.setenv(VARIABLE, "0.3")
    generating = Generating()
    generating.made = made
    kernel = entry(build(generating, tmp_path))
    assert kernel.moves == ()
    assert "plugin paper: its code generator" in kernel.faults[0] and said in kernel.faults[0]


def test_a_refusal_of_a_generator_is_no_fault() -> None:
    def refuses(*_: object) -> Any:
        raise DojoError("PD-T003", "too large")

    class Refusing:
        generate = staticmethod(refuses)

    with heard() as faults, pytest.raises(DojoError, match="too large"):
        GuardedGenerator("paper", Refusing()).generate(COPY, "s")
    assert faults == []


def test_a_refusal_of_a_generator_says_why() -> None:
    """The failure holds the reason too: "x is i32" alone does not say which types are possible."""

    def refuses(*_: object) -> Any:
        raise DojoError("PD-C001", "x is i32", why="kernels hold f32")

    class Refusing:
        generate = staticmethod(refuses)

    failure = generated(Refusing(), Trace(COPY), "s")  # type: ignore[arg-type]
    assert isinstance(failure, Failure) and failure.detail.endswith("x is i32: kernels hold f32")


# -- a runner --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "returned NoneType None, expected a measurement"),
        (replace(FINE, seconds=(math.nan,)), "a time of nan s"),
        (replace(FINE, seconds=(1.0, -1.0)), "a time of -1 s"),
        (replace(FINE, seconds=(math.inf,)), "a time of inf s"),
        (replace(FINE, seconds=(0.0,)), "a time of 0 s"),
        (replace(FINE, seconds=("fast",)), "expected seconds"),  # type: ignore[arg-type]
        (replace(FINE, seconds=None), "expected seconds"),  # type: ignore[arg-type]
        (replace(FINE, provenance="guessed"), "unknown provenance 'guessed'"),  # type: ignore[arg-type]
        (replace(FINE, details={"cycles": "many"}), "expected figures"),  # type: ignore[dict-item]
        (replace(FINE, outputs={"y": [1.0]}), "expected arrays"),  # type: ignore[dict-item]
        (Failure("mood", "no"), "unknown reason 'mood'"),  # type: ignore[arg-type]
    ],
)
def test_what_a_runner_may_not_give_is_a_failure_that_names_it(found: Any, said: str) -> None:
    class Strange(Paper):
        def run(self, artifact: Artifact, request: RunRequest) -> Any:
            return found

        def time_interleaved(self, artifacts: Any, request: RunRequest) -> Any:
            return [found] * len(artifacts)

    runner = GuardedRunner("paper", Strange())
    in_turns = ability(runner, TimesInterleaved)
    assert in_turns
    artifact = Artifact("s", (), (), "paper", b"")
    with heard() as faults:
        alone, (turn, _) = (
            runner.run(artifact, RunRequest()),
            in_turns.time_interleaved([artifact] * 2, RunRequest()),
        )
    for result in (alone, turn):
        assert isinstance(result, Failure) and result.reason == "runtime"
        line = result.detail.removeprefix("runner fault: ")  # which says nothing of the kernel
        assert line.startswith("plugin paper: ") and said in line and line in faults


@pytest.mark.parametrize("does", [trips, leaves])
def test_what_a_runner_raises_is_a_failure_that_names_it(does: Callable[..., Any]) -> None:
    class Raising(Paper):
        run = compile = device = time_interleaved = does  # type: ignore[assignment]

    runner = GuardedRunner("paper", Raising())
    in_turns = ability(runner, TimesInterleaved)
    assert in_turns
    source, artifact = KernelSource("s", (), (), ""), Artifact("s", (), (), "paper", b"")
    for result in (
        runner.compile(source),
        runner.run(artifact, RunRequest()),
        *in_turns.time_interleaved([artifact], RunRequest()),
    ):
        assert isinstance(result, Failure) and "plugin paper: its" in result.detail
    with pytest.raises(PluginFault, match="plugin paper: its runner raised"):
        runner.device()


@pytest.mark.parametrize(("kernels", "runs"), [(1, 4), (2, 12), (3, 24)])
def test_a_race_may_take_as_long_as_all_of_it_alone(
    monkeypatch: pytest.MonkeyPatch, kernels: int, runs: int
) -> None:
    """Two runs together and two of each kernel alone, for each number of kernels that are left."""
    monkeypatch.setenv(VARIABLE, "1")
    assert runs == sum(2 * left + 2 * left for left in range(1, kernels + 1))
    limits: list[float] = []

    def heard(plugin: str, part: str, work: Callable[[], object], seconds: float) -> object:
        limits.append(seconds)
        return work()

    class Racing(Paper):
        def time_interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Any]:
            return [FINE for _ in artifacts]

    monkeypatch.setattr("perfdojo_sdk.plugins.guards.guarded", heard)
    in_turns = ability(GuardedRunner("paper", Racing()), TimesInterleaved)
    assert in_turns
    in_turns.time_interleaved([Artifact("s", (), (), "paper", b"")] * kernels, RunRequest(timeout_s=10))
    assert limits == [1 + runs * 10]


def test_a_race_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Paper):
        time_interleaved = sleeps

    monkeypatch.setenv(VARIABLE, "0.1")
    in_turns = ability(GuardedRunner("paper", Endless()), TimesInterleaved)
    assert in_turns
    artifacts = [Artifact("s", (), (), "paper", b"")] * 2
    for result in in_turns.time_interleaved(artifacts, RunRequest(timeout_s=0.01)):
        assert isinstance(result, Failure) and "its runner took longer than 0.22 s" in result.detail


def test_a_build_goes_on_where_a_runner_raises_on_one_game(paper: Paper, tmp_path: Path) -> None:
    class Raising(Paper):
        def run(self, artifact: Artifact, request: RunRequest) -> Any:
            return trips() if b":p" in artifact.content else super().run(artifact, request)

    kernel = entry(build(Raising(), tmp_path))
    assert kernel.moves == () and "its runner raised IndexError" in kernel.faults[0]


def test_a_missing_tool_is_said_as_before() -> None:
    class Without(Paper):
        def compile(self, source: KernelSource) -> Any:
            raise UnavailableError("PD-M001", "there is no compiler")

    with pytest.raises(UnavailableError, match="no compiler"):
        GuardedRunner("paper", Without()).compile(KernelSource("s", (), (), ""))


def test_a_guarded_runner_pickles() -> None:
    from perfdojo_sdk.measure.native_runner import NativeRunner

    runner = GuardedRunner("native", NativeRunner(("-O1",)))
    assert pickle.loads(pickle.dumps(runner)) == runner


def test_a_sound_measurement_passes() -> None:
    assert why_no_measurement(FINE) == "" and why_no_measurement(replace(FINE, seconds=())) == ""


# -- a veto ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (trips, "its veto raised IndexError: tuple index out of range"),
        (leaves, "its veto raised SystemExit"),
        (lambda *_: 3, "its veto returned int 3"),
        (goes_on_for_ever, "its veto took longer than 0.2 s"),
    ],
    ids=["raises", "leaves", "three", "hangs"],
)
def test_a_veto_that_fails_refuses_and_names_the_plugin(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any], said: str
) -> None:
    from made_plugins import plugin, target

    from perfdojo_sdk.plugins import load_plugins

    monkeypatch.setattr("perfdojo_sdk.plugins.discovery.installed", lambda: ())
    monkeypatch.setenv(VARIABLE, "0.2")
    made = plugin("moody", targets=lambda: [target("moody")], legality_checks=lambda target: [answer])
    plugins = load_plugins(extra=[made])
    refused = plugins.rules(plugins.target("moody")).attempt(
        COPY, Move("split_scope", "s0", (("factor", 2),))
    )
    assert isinstance(refused, Rejection) and refused.code == "PD-T003"
    assert "plugin moody: " in refused.why and said in refused.why


# -- time, tracebacks, processes -------------------------------------------------------------------


def test_a_limit_ends_what_swallows_errors() -> None:
    def stubborn() -> None:
        while True:
            try:
                goes_on_for_ever()
            except Exception:
                continue

    begin = time.monotonic()
    with pytest.raises(TookTooLong), within(0.1):
        stubborn()
    assert time.monotonic() - begin < 10


def test_a_limit_holds_in_other_threads() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            with within(0.1):
                goes_on_for_ever()
        except BaseException as error:
            caught.append(error)
        sum(range(1000))  # nothing comes late

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert [type(error) for error in caught] == [TookTooLong] and not thread.is_alive()


def test_limits_leave_the_alarms_of_others_alone() -> None:
    import signal

    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with within(5):
            pass
        time.sleep(0.3)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_limit_that_is_no_number_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv(VARIABLE, value)
        with pytest.raises(DojoError, match=VARIABLE):
            guarded("paper", "pass", lambda: 1)


def test_the_traceback_is_there_for_who_asks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "perfdojo_sdk.plugins"), pytest.raises(PluginFault):
        GuardedPass("paper", trips)(COPY, None, None)  # type: ignore[arg-type]
    assert "in trips" in caplog.text


def test_faults_cross_processes() -> None:
    fault = pickle.loads(pickle.dumps(PluginFault("paper", "plugin paper: it tripped")))
    assert isinstance(fault, PluginFault) and fault.exit_code == 6 and fault.what.endswith("tripped")


# -- the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["abc", "-1", "nan"])
@pytest.mark.parametrize("command", [("bench", "relu[4,4]"), ("targets",), ("plugins", "doctor")])
def test_a_wrong_limit_is_said_before_any_plugin_is_loaded(
    cli: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], value: str
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    outcome = cli(*command, plugins="toy")
    clear(outcome, 1, "PD-G031")
    assert f"{VARIABLE} is '{value}'" in outcome.err and outcome.out == ""
    assert "   why: " in outcome.err and "   try: " in outcome.err


def test_a_build_whose_expert_failed_says_so_and_ends_with_six(
    cli: Callable[..., Outcome], plugin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import perfdojo_toy

    def trips_aloud(root: object, rules: object, target: object) -> Any:
        print("about to trip")
        raise IndexError("the expert tripped")

    monkeypatch.setattr(perfdojo_toy, "perfdojo_heuristic_pass", hookimpl(lambda target: trips_aloud))
    words = ("build-library", "--target", "toy", "--kernels", "relu[4,4]", "-o", "lib")
    built = cli(*words, plugins="toy")
    assert built.code == 6 and "a plugin failed" in built.out
    line = "fault: relu_4x4_f32: plugin toy: its pass raised IndexError: the expert tripped"
    assert line in built.out and "Traceback" not in built.err + built.out
    again = cli(*words, "--json", plugins="toy")
    assert again.code == 6 and again.data["kernels"][0]["faults"] == [line.partition("f32: ")[2]]
    debug = cli(*words[:-1], "other", "--debug", plugins="toy")
    assert debug.code == 6 and "in trips_aloud" in debug.err
