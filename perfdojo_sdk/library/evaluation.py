"""Evaluation: from games that a player proposes to their times, or to the reasons why they have none.

Passes and searches share this pipeline. A proposed game is refused, or its code is generated, compiled in
parallel with others and timed; a program that was evaluated before is looked up, and not measured again.

A pass proposes a few games: they are timed in turns, and kept with their code. A search proposes many (see
``Conditions.few``): they are timed one after the other, and a run stops as soon as its game cannot win. A
game that seems to be the fastest has to win a race with the fastest so far, and to pass verification, before
it becomes the champion. Every outcome is recorded.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.search import Evaluation
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    CodeGenerator,
    Failure,
    KernelSource,
    Measurement,
    Runner,
    RunRequest,
)
from perfdojo_sdk.library.attempts import Attempt
from perfdojo_sdk.library.running import (
    Helpers,
    compiled,
    generated,
    run,
    takes_turns,
    timed,
    timed_in_turns,
)
from perfdojo_sdk.library.stage_times import StageTimes
from perfdojo_sdk.store.candidates import (
    Candidate,
    CandidateLog,
    Check,
    Failed,
    Proposer,
    StageSeconds,
    Timed,
    key_of,
    result_of,
)
from perfdojo_sdk.store.records import RecordKey, sha256

#: Most kernels that take turns in one child process, if games are few and the runner can do that.
TOGETHER = 12
#: A run stops after a call that is slower than this many times the fastest game's.
HOPELESS = 4.0
#: A call faster than this, in seconds, never stops a run: a first call may wake threads and fill caches.
WAKING_S = 0.02
#: Until a game was timed to the end, a run stops after a call that takes longer than this, in seconds: the
#: naive loops of the initial program may be very slow, and their exact time does not matter.
SLOW_S = 0.25
#: A new time within this factor of the champion's leads to a race, since times of a busy machine may differ
#: by more than that from process to process.
NEAR = 1.1
#: Least timed calls of each kernel in a race.
RACE_CALLS = 10
#: Least calls if the challenger's first time was below this fraction of the champion's: chance explains no
#: such difference.
CLEAR_CALLS, CLEAR = 3, 0.8
#: The fraction of the champion's time that the challenger must stay below, if times are measured: chance
#: decides closer races.
AHEAD = 0.99
#: Seconds that any run may take in addition to a few times the duration of the fastest game's run.
SLACK_S = 5.0
#: Failures that the program did not cause, so that it is tried again next time.
PASSING = frozenset({"device"})
#: Reasons to refuse a game because its moves change too much; another game may reach the same program.
TOO_MUCH = frozenset({f"it {kind.label}" for kind in Kind})
#: Consecutive runs without a device after which it counts as gone.
DEVICE_GONE = 10

LEGS: tuple[Check, ...] = ("exact", "dependence", "numeric")


class Verify(Protocol):
    """A check of the compiled end of a game: the reason why it is wrong; "" when it passes."""

    def __call__(self, game: Trace, artifact: Artifact) -> str: ...


@dataclass(frozen=True)
class Conditions:
    """Everything that evaluating the games of one kernel needs."""

    symbol: str
    root: Program
    most: Kind
    generator: CodeGenerator
    runner: Runner
    request: RunRequest
    """The timing of a candidate."""
    key: RecordKey = field(repr=False)
    """Everything that times depend on, beside the program."""
    proposer: Proposer
    workers: int = 2
    """Compilers that run at once on this machine."""
    helpers: Helpers | None = field(default=None, repr=False)
    """Compilers of other machines."""
    few: bool = False
    """True for a few games: they are timed in turns, and kept with their code. Otherwise each is timed alone,
    and races with the fastest so far if it comes near."""


@dataclass(frozen=True)
class Champion:
    """The fastest game so far: it won a race and passed verification."""

    game: Trace
    artifact: Artifact = field(repr=False)
    seconds: float
    provenance: str


@dataclass
class Tally:
    """Counts of what a search has done."""

    evaluations: int = 0
    reused: int = 0
    """The number of them that was taken from the records."""
    failures: Counter[str] = field(default_factory=Counter)
    """By reason."""
    messages: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(Reason, first line of the message) -> count."""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Wall time by stage: propose, compile, measure, verify."""

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - begin

    def count(self, failure: Failure) -> None:
        self.failures[failure.reason] += 1
        self.messages[failure.reason, failure.detail.partition("\n")[0][:200]] += 1


@dataclass
class _Task:
    """One game on its way."""

    game: Trace
    digest: str
    source: KernelSource | None = None
    artifact: Artifact | None = None
    result: Timed | Failed | None = None
    new: bool = True
    """True if it was measured or failed now, and was not looked up."""
    propose_s: float | None = None
    compile_s: float | None = None
    measure_s: float | None = None
    verify_s: float | None = None

    def fail(self, failure: Failure) -> None:
        self.result, self.new = result_of(failure), True


class DeviceGone(Exception):
    """Raised with the runner's words when nothing can be measured any more."""


class Evaluator:
    """Evaluates games of one kernel; keeps the champion of many, and each of a few."""

    def __init__(
        self,
        conditions: Conditions,
        store: CandidateLog | None = None,
        verify: Verify | None = None,
        spent: StageTimes | None = None,
        begins: Callable[[str], None] = lambda stage: None,
    ) -> None:
        """``spent`` and ``begins`` are told the stages, too: ``compile``, ``measure``, ``verify``."""
        self.conditions, self.store, self.verify = conditions, store, verify
        self.spent, self.begins = spent or StageTimes(), begins
        self.champions: list[Champion] = []
        """Each faster than the one before it."""
        self.kept: dict[str, Attempt] = {}
        """Attempts that were not refused, if games are few: digest of a program's text -> the attempt."""
        self.tally = Tally()
        self.refused: list[str] = []
        """Reasons why games were not even compiled, each once."""
        self.known: dict[str, Timed | Failed] = {}
        """Digest of a program's text -> its time or failure."""
        self._run_s = 0.0
        """Duration of the champion's run as a whole."""
        self._least_s: float | None = None
        """The shortest time of any run, including those that were stopped."""
        self._missing = 0
        self._propose_s: float | None = None

    def thought(self, seconds: float) -> None:
        """Note the seconds that the player took for each of the next games."""
        self._propose_s = seconds

    @property
    def champion(self) -> Champion | None:
        return self.champions[-1] if self.champions else None

    def evaluate(self, games: Sequence[Trace]) -> list[Evaluation]:
        """The outcome of each game; :class:`DeviceGone` when the runner no longer finds its device."""
        tasks = [self._started(game) for game in games]
        self._compile(tasks)
        if self.conditions.few:
            self._time_few(tasks)
        results = []
        for task in tasks:
            self._settle(task)
            results.append(self._evaluation(task))
        return results

    @contextmanager
    def _on(self, stage: str) -> Iterator[None]:
        self.begins(stage)
        with self.tally.timing(stage), self.spent.on(stage):
            yield

    def _evaluation(self, task: _Task) -> Evaluation:
        result = task.result
        assert result is not None
        self.tally.evaluations += 1
        self.tally.reused += not task.new
        if isinstance(result, Timed):
            return Evaluation(task.game, result.timing.median_s)
        failure = Failure(result.reason, result.detail)
        self.tally.count(failure)
        return Evaluation(task.game, None, failure)

    # -- before anything is compiled -----------------------------------------------------------

    def _started(self, game: Trace) -> _Task:
        task = _Task(game, self.digest(game), propose_s=self._propose_s)
        why = self._refused(game)
        if why:
            task.fail(Failure("constraints", why))
            self.refused += [why] if why not in self.refused else []
        return task

    def _refused(self, game: Trace) -> str:
        """The reason why a game that was proposed is not even compiled; "" when it is."""
        if game.root != self.conditions.root:
            return "it is about another program"
        return f"it {game.kind.label}" if game.kind > self.conditions.most else ""

    @staticmethod
    def digest(game: Trace) -> str:
        """Digest of a game's last program, the key of its outcome."""
        return sha256(game.program.text)

    def has_timed(self, game: Trace) -> bool:
        """True when the game's last program was timed before, now or in an earlier search."""
        return isinstance(self._known(game, self.digest(game)), Timed)

    def _known(self, game: Trace, digest: str) -> Timed | Failed | None:
        known = self.known.get(digest)
        if known is None and self.store is not None:
            found = self.store.find(key_of(self.conditions.key, game))
            known = found.result if found else None
        return known

    def _look_up(self, task: _Task) -> Timed | Failed | None:
        """The earlier outcome of the same program, unless it may be another one now."""
        known = self._known(task.game, task.digest)
        passing = isinstance(known, Failed) and (known.reason in PASSING or known.detail in TOO_MUCH)
        return None if passing else known

    def _promising(self, result: Timed, slack: float = 1.0) -> bool:
        """True when a time, if it is confirmed, makes a new champion. Only times of one provenance
        compare."""
        champion = self.champion
        if self.conditions.few:
            return False  # there is no champion before all games have their final timing
        if champion is None:
            return not result.cut
        same = result.timing.provenance == champion.provenance
        return same and not result.cut and result.timing.median_s < slack * champion.seconds

    @property
    def _slack(self) -> float:
        """The factor of the champion's time up to which a game may still win in a race."""
        races = takes_turns(self.conditions.runner)
        return NEAR if races and self.champion and self.champion.provenance == "measured" else 1.0

    # -- compiling -----------------------------------------------------------------------------

    def _compile(self, tasks: Sequence[_Task]) -> None:
        """Compile programs without a known outcome, each once, with all workers."""
        wanted: dict[str, _Task] = {}
        for task in tasks:
            if task.result is None and task.digest not in wanted:
                known = self._look_up(task)
                if known is not None:
                    task.result, task.new = known, False
                    self.known[task.digest] = known
                    if not isinstance(known, Timed) or not self._promising(known):
                        continue
                wanted[task.digest] = task
        helpers = self.conditions.helpers
        workers = self.conditions.workers + (helpers.count if helpers else 0)
        if not wanted:
            return
        with self._on("compile"), ThreadPoolExecutor(workers) as pool:
            # Generators run in this thread, where their time can be limited.
            for task in wanted.values():
                self._generate(task)
            made = [(task, pool.submit(self._made, task)) for task in wanted.values() if task.source]
            for task, future in made:
                artifact = future.result()
                if isinstance(artifact, Failure):
                    task.fail(artifact)
                    self._keep(task, artifact)
                else:
                    task.artifact = artifact

    def _generate(self, task: _Task) -> None:
        source = generated(self.conditions.generator, task.game, self.conditions.symbol)
        if isinstance(source, Failure):
            task.fail(source)
            self._keep(task, source)
        else:
            task.source = source

    def _made(self, task: _Task) -> Artifact | Failure:
        assert task.source is not None
        begin = time.perf_counter()
        try:
            return compiled(self.conditions.runner, task.source, self.conditions.helpers)
        finally:
            task.compile_s = time.perf_counter() - begin

    # -- a few games ---------------------------------------------------------------------------

    def _time_few(self, tasks: Sequence[_Task]) -> None:
        """Time games briefly, to find those near the fastest; slow ones get one call if no time is known yet.

        If the runner can, a few share a child process and take turns: arrays are made once, and a busy moment
        of the machine slows down all of them.
        """
        runner, request = self.conditions.runner, replace(self.conditions.request, first_look=True)
        ready = [(task, task.artifact) for task in tasks if task.artifact is not None]
        if not ready:
            return
        if self._least_s is None:
            request = replace(request, stop_above_s=SLOW_S)
        with self._on("measure"):
            for some in (ready[k : k + TOGETHER] for k in range(0, len(ready), TOGETHER)):
                artifacts = [artifact for _, artifact in some]
                times = timed_in_turns(runner, artifacts, request) if len(some) > 1 else None
                for k, (task, artifact) in enumerate(some):
                    found = timed(runner, artifact, request) if times is None else times[k]
                    task.result = result_of(found)
                    self._keep(task, found)
                    self._note_time(task.result)

    def _keep(self, task: _Task, found: Measurement | Failure) -> None:
        """Keep the attempt of a game, if games are few."""
        if self.conditions.few:
            attempt = Attempt(task.game, task.source, task.artifact)
            self.kept[task.digest] = attempt.timed(found)

    # -- measuring and all that follows ----------------------------------------------------------

    def _settle(self, task: _Task) -> None:
        """Bring a task to its result, and record it."""
        if task.result is None and task.artifact is None:
            # An equal program came before it in the same round.
            task.result, task.new = self.known[task.digest], False
            return
        if task.result is None:
            assert task.artifact is not None
            with self._on("measure"):
                task.result = result_of(self._timed(task))
            self._raise_if_device_gone(task.result)
            self._note_time(task.result)
        slack = self._slack if task.new else 1.0
        if task.artifact and isinstance(task.result, Timed) and self._promising(task.result, slack):
            self._record(task)
            self._challenge(task, task.artifact, task.result)
            task.new = True
        self._record(task)

    def _timed(self, task: _Task) -> Measurement | Failure:
        assert task.artifact is not None
        begin = time.perf_counter()
        measured = run(self.conditions.runner, task.artifact, replace(self._request(), first_look=True))
        task.measure_s = time.perf_counter() - begin
        return measured

    def _request(self) -> RunRequest:
        """A run that ends as soon as its kernel cannot win."""
        request, champion = self.conditions.request, self.champion
        if champion is None:
            slow = SLOW_S if self._least_s is None else max(HOPELESS * self._least_s, WAKING_S)
            return replace(request, stop_above_s=slow)
        limit = min(request.timeout_s, SLACK_S + HOPELESS * self._run_s)
        return replace(request, timeout_s=limit, stop_above_s=max(HOPELESS * champion.seconds, WAKING_S))

    def _note_time(self, result: Timed | Failed) -> None:
        if isinstance(result, Timed):
            self._least_s = min(result.timing.median_s, self._least_s or float("inf"))

    def _raise_if_device_gone(self, result: Timed | Failed) -> None:
        """:class:`DeviceGone` when so many runs in a row found no device."""
        gone = isinstance(result, Failed) and result.reason == "device"
        self._missing = self._missing + 1 if gone else 0
        if self._missing >= DEVICE_GONE and isinstance(result, Failed):
            raise DeviceGone(result.detail)

    def _challenge(self, task: _Task, artifact: Artifact, first: Timed) -> None:
        """Run a game again, in a race with the champion, and verify it; if it passes, it is the new
        champion."""
        with self._on("measure"):
            begin = time.perf_counter()
            again, to_beat_s = self._race(artifact, first)
            run_s = time.perf_counter() - begin
        task.result = result = result_of(again)
        if isinstance(result, Failed):
            task.fail(Failure(result.reason, f"it ran once and not twice: {result.detail}"))
            return
        if to_beat_s is not None and result.timing.median_s >= to_beat_s:
            return
        passed = first.passed
        if self.verify is not None and not set(LEGS) <= set(passed):
            with self._on("verify"):
                begin = time.perf_counter()
                wrong = self.verify(task.game, artifact)
                task.verify_s = time.perf_counter() - begin
            if wrong:
                task.fail(Failure("wrong_result", f"verification failed ({wrong})"))
                return
            passed = LEGS
        task.result = result.model_copy(update={"passed": passed})
        timing = result.timing
        self.champions.append(Champion(task.game, artifact, timing.median_s, timing.provenance))
        self._run_s = run_s

    def _race(self, artifact: Artifact, first: Timed) -> tuple[Measurement | Failure, float | None]:
        """The challenger's second run, and the time that it has to beat.

        If the runner can, both run in turns, under the same conditions, and the challenger once more, with
        all checks, if it wins. Otherwise its time is compared with the champion's earlier one.
        """
        champion, runner, request = self.champion, self.conditions.runner, self._request()
        if champion is None or not takes_turns(runner):
            return run(runner, artifact, request), champion.seconds if champion else None
        racers = [artifact, champion.artifact]
        calls = CLEAR_CALLS if first.timing.median_s < CLEAR * champion.seconds else RACE_CALLS
        enough_s = calls * max(first.timing.median_s, champion.seconds)
        request = replace(
            request,
            repeats=max(request.repeats, calls),
            budget_s=max(request.budget_s, enough_s),
            timeout_s=max(request.timeout_s, SLACK_S + 2 * enough_s),
            stop_above_s=None,
            first_look=True,
        )
        both = timed_in_turns(runner, racers, request)
        assert both is not None
        ours, theirs = both
        if isinstance(theirs, Measurement) and theirs.seconds:
            self.champions[-1] = champion = replace(champion, seconds=theirs.median)
        to_beat_s = champion.seconds * (AHEAD if champion.provenance == "measured" else 1.0)
        if isinstance(ours, Measurement) and ours.median < to_beat_s:
            checked = run(runner, artifact, self._request())
            ours = checked if isinstance(checked, Failure) else ours
        return ours, to_beat_s

    def _record(self, task: _Task) -> None:
        """Record the outcome of a program, unless it is recorded or belongs to another kernel.

        A refused game says nothing about its program, which other moves may reach, so it does not change the
        program's outcome.
        """
        result = task.result
        assert result is not None
        if not task.new or task.game.root != self.conditions.root:
            return
        if not self._refused(task.game):
            self.known[task.digest] = result
        elif self._look_up(task) is not None:
            return
        if self.store is not None:
            number = self.tally.evaluations + 1
            proposer = self.conditions.proposer.model_copy(update={"number": number})
            took = StageSeconds(
                propose_s=task.propose_s,
                compile_s=task.compile_s,
                measure_s=task.measure_s,
                verify_s=task.verify_s,
            )
            self.store.put(Candidate.of(self.conditions.key, task.game, result, proposer, took))
