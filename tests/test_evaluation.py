"""The pipeline of candidates: nothing twice, nothing lost, nothing believed that happened once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from snippets import DIALECT, RULES

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.library.evaluation import DEVICE_GONE, SLOW_S, Conditions, DeviceGone, Evaluator
from perfdojo_sdk.search.neighbours import random_step
from perfdojo_sdk.store.candidates import Failed, Proposer, Timed
from perfdojo_sdk.store.database import Candidates, Records
from perfdojo_sdk.store.records import RecordKey, sha256
from perfdojo_sdk.testing.estimate import AnalyticGenerator

ROOT = parse(SOFTMAX.build(4, 6), DIALECT)


def games(count: int, root: Program = ROOT) -> list[Trace]:
    """So many different programs, the initial one first; the same in every run."""
    chance, found = Random(0), {root.text: Trace(root)}
    while len(found) < count:
        start = chance.choice(list(found.values()))
        step = random_step(chance, start.program, RULES, most=Kind.EXACT)
        if step:
            found.setdefault(step.after.text, replace(start, steps=(*start.steps, step)))
    return list(found.values())


GAMES = games(12)

Answer = float | Failure | Exception


@dataclass
class Fake:
    """A runner that answers what the test says: program -> answers, the last one for ever."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    compiles: Callable[[str], Failure | None] = lambda text: None
    runs: list[str] = field(default_factory=list)
    requests: list[RunRequest] = field(default_factory=list)
    provenance: Any = "measured"

    def compile(self, source: KernelSource) -> Artifact | Failure:
        refused = self.compiles(source.code)
        return refused or Artifact(source.symbol, (), (), "fake", source.code.encode())

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        text = artifact.content.decode()
        self.runs.append(text)
        self.requests.append(request)
        waiting = self.answers.get(text, [1.0])
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Failure):
            return answer
        return Measurement(None, (answer,) * 3, self.provenance, "fake", 1)

    def device(self) -> str:
        return "fake"


def conditions(runner: Any, generator: Any = None, **more: Any) -> Conditions:
    made = {
        "symbol": "pd_test",
        "root": ROOT,
        "most": Kind.DECLARED_LAW,
        "generator": generator or AnalyticGenerator(),
        "runner": runner,
        "request": RunRequest(repeats=3, want_outputs=False),
        "key": RecordKey(
            kernel="test",
            program_sha256=sha256(ROOT.text),
            target="fake",
            target_sha256=sha256(""),
            device="fake",
            toolchain="none",
            plugins={},
            settings={"repeats": 3},
        ),
        "proposer": Proposer(search="test"),
    }
    return Conditions(**{**made, **more})


def text(number: int) -> str:
    return GAMES[number].program.text


@pytest.fixture
def store(tmp_path: Path) -> Candidates:
    return Records(tmp_path / "records.sqlite").candidates


# -- nothing twice ---------------------------------


def test_a_program_is_measured_once_however_often_it_is_proposed(store: Candidates) -> None:
    runner = Fake({text(0): [1.0], text(1): [5.0], text(2): [Failure("crash", "ouch")]})
    first = Evaluator(conditions(runner), store)
    seen = first.evaluate([GAMES[k] for k in (0, 1, 1, 2)]) + first.evaluate([GAMES[1], GAMES[2]])
    assert [e.seconds for e in seen] == [1.0, 5.0, 5.0, None, 5.0, None]
    assert Counter(runner.runs) == {text(0): 2, text(1): 1, text(2): 1}, "the champion is confirmed"
    assert first.tally.reused == 3 and first.tally.failures == {"crash": 2}
    later = Evaluator(conditions(runner), store)
    again = later.evaluate([GAMES[1], GAMES[2]])
    assert [e.seconds for e in again] == [5.0, None] and again[1].failure == Failure("crash", "ouch")
    assert runner.runs.count(text(2)) == 1


def test_other_conditions_are_measured_anew(store: Candidates) -> None:
    runner = Fake()
    Evaluator(conditions(runner), store).evaluate(GAMES[:1])
    other = conditions(runner).key.model_copy(update={"device": "another"})
    Evaluator(conditions(runner, key=RecordKey.model_validate(other.model_dump())), store).evaluate(GAMES[:1])
    assert runner.runs.count(text(0)) == 4


def test_a_fast_one_from_the_records_has_to_win_again(store: Candidates) -> None:
    runner = Fake({text(0): [2.0], text(1): [1.0, 1.0, 3.0]})
    Evaluator(conditions(runner), store).evaluate(GAMES[:2])
    fresh = Evaluator(conditions(runner), store)
    fresh.evaluate(GAMES[:2])
    assert fresh.champion is not None and fresh.champion.game == GAMES[0]


# -- nothing believed that happened once ---------------------------------


def test_a_lucky_run_makes_no_champion(store: Candidates) -> None:
    runner = Fake({text(0): [2.0], text(1): [0.1, 3.0], text(2): [1.0]})
    evaluator = Evaluator(conditions(runner), store)
    seen = evaluator.evaluate(GAMES[:3])
    assert [e.seconds for e in seen] == [2.0, 3.0, 1.0], "what the second run said counts"
    assert [c.game for c in evaluator.champions] == [GAMES[0], GAMES[2]]
    assert [c.seconds for c in store.of("test", "fake")] == [2.0, 3.0, 1.0]


def test_what_fails_verification_is_a_wrong_result(store: Candidates) -> None:
    asked: list[Trace] = []

    def verify(game: Trace, artifact: Artifact) -> str:
        asked.append(game)
        return "y[0] is 3, expected 4" if game == GAMES[1] else ""

    runner = Fake({text(0): [2.0], text(1): [0.5], text(2): [1.0], text(3): [9.0]})
    evaluator = Evaluator(conditions(runner), store, verify)
    seen = evaluator.evaluate(GAMES[:4])
    assert seen[1].failure == Failure("wrong_result", "verification failed (y[0] is 3, expected 4)")
    assert evaluator.champion is not None and evaluator.champion.game == GAMES[2]
    assert asked == GAMES[:3], "only who might win is asked"
    records = list(store.of("test", "fake"))
    assert isinstance(records[1].result, Failed) and records[1].result.reason == "wrong_result"
    assert isinstance(records[2].result, Timed) and set(records[2].result.passed) >= {"exact", "numeric"}
    Evaluator(conditions(runner), store, verify).evaluate(GAMES[:4])
    assert len(asked) == 3, "what passed under equal conditions is not asked again"


def test_figures_of_different_provenance_do_not_race() -> None:
    runner = Fake({text(0): [2.0], text(1): [1.0]})
    evaluator = Evaluator(conditions(runner))
    evaluator.evaluate(GAMES[:1])
    runner.provenance = "estimated"
    evaluator.evaluate(GAMES[1:2])
    assert evaluator.champion is not None and evaluator.champion.game == GAMES[0]


@dataclass
class Racing(Fake):
    """A runner that can time two kernels in turns. The weather slows everything in a race."""

    weather: float = 3.0
    races: int = 0

    def time_interleaved(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Any]:
        self.races += 1
        found = [self.run(artifact, request) for artifact in artifacts]
        return [
            replace(f, seconds=tuple(s * self.weather for s in f.seconds))
            if isinstance(f, Measurement)
            else f
            for f in found
        ]


def test_a_race_compares_in_the_same_weather() -> None:
    runner = Racing({text(0): [2.0], text(1): [1.5]})
    evaluator = Evaluator(conditions(runner))
    evaluator.evaluate(GAMES[:2])
    assert runner.races == 1
    assert evaluator.champion is not None and evaluator.champion.game == GAMES[1]
    assert evaluator.champion.seconds == 4.5 and evaluator.champions[0].seconds == 6.0


def test_who_comes_near_in_bad_weather_may_race() -> None:
    runner = Racing({text(0): [2.0], text(1): [2.1, 1.5], text(2): [5.2, 0.1]})
    evaluator = Evaluator(conditions(runner))
    evaluator.evaluate(GAMES[:3])
    assert evaluator.champion is not None and evaluator.champion.seconds == 4.5
    assert runner.races == 1, "the third is too far behind"
    assert [c.game for c in evaluator.champions] == [GAMES[0], GAMES[1]]


def test_who_wins_a_race_is_looked_at_with_all_checks(store: Candidates) -> None:
    runner = Racing({text(0): [2.0], text(1): [1.5, 1.5, Failure("wrong_result", "kept")]})
    evaluator = Evaluator(conditions(runner), store)
    seen = evaluator.evaluate(GAMES[:2])
    assert [request.first_look for request in runner.requests] == [True, False, True, True, True, False]
    assert seen[1].failure is not None and seen[1].failure.reason == "wrong_result"
    assert [c.game for c in evaluator.champions] == [GAMES[0]]


def test_who_has_lost_does_not_race_again() -> None:
    runner = Racing({text(0): [2.0], text(1): [2.1]}, weather=1.0)
    evaluator = Evaluator(conditions(runner))
    for _ in range(2):
        evaluator.evaluate(GAMES[:2])
    assert runner.races == 1


def test_a_tie_leaves_the_champion() -> None:
    runner = Racing({text(0): [2.0], text(1): [1.99]})
    evaluator = Evaluator(conditions(runner))
    evaluator.evaluate(GAMES[:2])
    assert runner.races == 1 and [c.game for c in evaluator.champions] == [GAMES[0]]
    runner = Racing({text(0): [2.0], text(1): [1.99]}, provenance="simulated")
    evaluator = Evaluator(conditions(runner))
    evaluator.evaluate(GAMES[:2])
    assert [c.game for c in evaluator.champions] == [GAMES[0], GAMES[1]], "no luck in a simulation"


@pytest.mark.parametrize(("seconds", "calls"), [(1.7, 10), (1.5, 3)], ids=["near", "clearly ahead"])
def test_slow_kernels_race_over_as_many_calls_as_luck_asks_for(seconds: float, calls: int) -> None:
    runner = Racing({text(0): [2.0], text(1): [seconds]})
    evaluator = Evaluator(conditions(runner))
    evaluator.evaluate(GAMES[:2])
    race = runner.requests[2 + 1]
    assert race.repeats == calls and race.budget_s == calls * 2.0 and race.timeout_s > calls * 4.0
    assert evaluator.champion is not None and evaluator.champion.game == GAMES[1]


# -- no time for the hopeless ---------------------------------


def test_runs_are_cut_by_the_champion() -> None:
    runner = Fake({text(0): [1.0], text(1): [50.0]})
    evaluator = Evaluator(conditions(runner))
    evaluator.evaluate(GAMES[:2])
    first, _, cut = runner.requests
    assert first.stop_above_s == 0.25 and first.timeout_s == 60
    assert cut.stop_above_s == 4.0 and cut.timeout_s < 10


def test_a_slow_initial_program_runs_once_and_others_are_compared_with_it() -> None:
    class Slow(Fake):
        def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
            found = super().run(artifact, request)
            assert isinstance(found, Measurement) and request.stop_above_s is not None
            cut = found.median > request.stop_above_s
            return replace(found, details={"stopped": 1.0}) if cut else found  # type: ignore[type-var]

    runner = Slow({text(0): [2.0], text(1): [3.0], text(2): [0.5]})
    evaluator = Evaluator(conditions(runner))
    seen = evaluator.evaluate(GAMES[:3])
    assert [e.seconds for e in seen] == [2.0, 3.0, 0.5]
    assert [r.stop_above_s for r in runner.requests[:2]] == [0.25, 8.0]
    assert [c.game for c in evaluator.champions] == [GAMES[1], GAMES[2]]


def test_a_cut_candidate_is_no_champion(store: Candidates) -> None:
    class Cutting(Fake):
        def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
            found = super().run(artifact, request)
            cut = isinstance(found, Measurement) and artifact.content.decode() == text(1)
            return replace(found, details={"stopped": 1.0}) if cut else found  # type: ignore[type-var]

    evaluator = Evaluator(conditions(Cutting({text(0): [2.0], text(1): [1.0]})), store)
    evaluator.evaluate(GAMES[:2])
    assert evaluator.champion is not None and evaluator.champion.game == GAMES[0]
    best = store.best(conditions(Fake()).key)
    assert best is not None and best.trace.moves == ()


# -- many compile, one is measured ---------------------------------


def test_compilers_run_side_by_side_and_kernels_one_by_one() -> None:
    meeting, running = threading.Barrier(3, timeout=20), threading.Lock()

    class Slow(Fake):
        def compile(self, source: KernelSource) -> Artifact | Failure:
            meeting.wait()  # passes only when three are here at once
            return super().compile(source)

        def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
            assert running.acquire(blocking=False), "two kernels at once"
            time.sleep(0.001)
            running.release()
            return super().run(artifact, request)

    seen = Evaluator(conditions(Slow(), workers=3)).evaluate(GAMES[:6])
    assert all(e.seconds for e in seen)


# -- whatever plugins do ---------------------------------


def test_games_that_are_not_allowed_are_not_compiled(store: Candidates) -> None:
    runner = Fake()
    alien = Trace(parse("kernel a(x) -> y\nx f32 [2] heap\ny f32 [2] heap\n\n2 y[{0}] = x[{0}]\n"))
    step = next(s for s in RULES.steps(ROOT) if s.legal.kind is Kind.REASSOCIATES)
    evaluator = Evaluator(conditions(runner, most=Kind.EXACT), store)
    seen = evaluator.evaluate([alien, Trace(ROOT, (step,))])
    assert [e.failure and e.failure.reason for e in seen] == ["constraints"] * 2
    assert runner.runs == []
    [record] = store.of("test", "fake")
    assert record.program == step.after.text and record.failure == seen[1].failure


def test_a_refused_game_says_nothing_about_its_program(store: Candidates) -> None:
    """The same program may be allowed under other conditions, or be reached in another way."""
    step = next(s for s in RULES.steps(ROOT) if s.legal.kind is Kind.REASSOCIATES)
    game = Trace(ROOT, (step,))
    runner = Fake({step.after.text: [2.0]})
    strict, free = conditions(runner, most=Kind.EXACT), conditions(runner)
    assert Evaluator(strict, store).evaluate([game])[0].failure
    assert [e.seconds for e in Evaluator(free, store).evaluate([game])] == [2.0]
    assert Evaluator(strict, store).evaluate([game])[0].failure
    assert [c.seconds for c in store.of("test", "fake")] == [2.0], "what was measured stays"


def test_a_record_says_what_thinking_took(store: Candidates) -> None:
    evaluator = Evaluator(conditions(Fake()), store)
    evaluator.thought(0.25)
    evaluator.evaluate(GAMES[:2])
    assert [record.took.propose_s for record in store.of("test", "fake")] == [0.25, 0.25]


def test_errors_of_plugins_are_failures_like_any_other() -> None:
    class Broken:
        def generate(self, program: Program, symbol: str) -> KernelSource:
            if program.text == text(1):
                raise KeyError("lanes")
            return AnalyticGenerator().generate(program, symbol)

    runner = Fake({text(2): [RuntimeError("no bus")], text(3): [float("nan")], text(4): [0.0]})
    seen = Evaluator(conditions(runner, Broken())).evaluate(GAMES[:5])
    reasons = [e.failure.reason if e.failure else "" for e in seen]
    assert reasons == ["", "constraints", "runtime", "runtime", "runtime"]
    assert seen[2].failure is not None and "no bus" in seen[2].failure.detail


def test_a_lost_device_is_tried_again_and_then_given_up(store: Candidates) -> None:
    runner = Fake({text(1): [Failure("device", "gone"), 5.0]})
    evaluator = Evaluator(conditions(runner), store)
    assert [e.seconds for e in evaluator.evaluate(GAMES[:2])] == [1.0, None]
    assert [e.seconds for e in evaluator.evaluate(GAMES[1:2])] == [5.0]
    lost = Fake({game.program.text: [Failure("device", "gone")] for game in GAMES})
    with pytest.raises(DeviceGone, match="gone"):
        Evaluator(conditions(lost)).evaluate(GAMES)
    assert len(lost.runs) == DEVICE_GONE


# -- few games, such as a pass's ---------------------------------


def test_few_games_are_timed_in_turns_and_kept_with_their_code(store: Candidates) -> None:
    runner = Racing({text(0): [2.0], text(1): [1.0], text(2): [Failure("crash", "ouch")]}, weather=1.0)
    stages: list[str] = []
    evaluator = Evaluator(conditions(runner, few=True), begins=stages.append)
    seen = evaluator.evaluate([GAMES[k] for k in (0, 1, 1, 2)])
    assert [e.seconds for e in seen] == [2.0, 1.0, 1.0, None]
    assert runner.races == 1 and Counter(runner.runs) == {text(k): 1 for k in (0, 1, 2)}, "each once"
    assert stages == ["compile", "measure"] and evaluator.spent.seconds.keys() == set(stages)
    attempts = list(evaluator.kept.values())
    assert [attempt.trace for attempt in attempts] == GAMES[:3]
    assert all(
        a.source and a.artifact and a.artifact.content.decode() == a.trace.program.text for a in attempts
    )
    assert attempts[1].measured and attempts[1].measured.median == 1.0
    assert attempts[2].measured is None and attempts[2].failure == "crash: ouch"
    assert evaluator.champion is None, "nobody has won before all are timed at length"
    assert [e.seconds for e in evaluator.evaluate(GAMES[:2])] == [2.0, 1.0] and runner.races == 1


def test_among_few_only_the_first_is_cut() -> None:
    runner = Fake({text(0): [2.0], text(1): [9.0]})
    evaluator = Evaluator(conditions(runner, few=True))
    for game in GAMES[:2]:
        evaluator.evaluate([game])
    assert [request.stop_above_s for request in runner.requests] == [SLOW_S, None]


def test_few_games_that_do_not_come_far_say_why() -> None:
    class Choosy(AnalyticGenerator):
        def generate(self, program: Program, symbol: str) -> KernelSource:
            if program.text == text(1):
                raise KeyError("lanes")
            return super().generate(program, symbol)

    runner = Fake(compiles=lambda code: Failure("compile", "jam") if code == text(2) else None)
    evaluator = Evaluator(conditions(runner, Choosy(), few=True))
    alien = Trace(parse("kernel a(x) -> y\nx f32 [2] heap\ny f32 [2] heap\n\n2 y[{0}] = x[{0}]\n"))
    evaluator.evaluate([*GAMES[:3], alien, alien])
    reasons = {attempt.trace.program.text: attempt.failure for attempt in evaluator.kept.values()}
    assert reasons[text(0)] == "" and "lanes" in reasons[text(1)] and reasons[text(2)] == "compile: jam"
    assert len(reasons) == 3 and evaluator.refused == ["it is about another program"]


def test_few_games_need_no_device_to_end() -> None:
    lost = Fake({game.program.text: [Failure("device", "gone")] for game in GAMES})
    seen = Evaluator(conditions(lost, few=True)).evaluate(GAMES)
    assert len(seen) > DEVICE_GONE and all(e.failure and e.failure.reason == "device" for e in seen)
