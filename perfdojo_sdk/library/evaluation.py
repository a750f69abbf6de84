"""Evaluation: from games that a player proposes to their times, or to the reasons why they have none.

The one pipeline of passes and searches. Whatever is proposed is refused, or generated, compiled beside others
and timed; a program that was evaluated before is looked up, never measured again.

A pass proposes a few games: they are timed in turns, and kept with their code. A search proposes many
(:class:`Conditions` say so): they are timed one after the other, and given up as soon as they cannot win. One
that seems to be the fastest has to win a second time, in a race with the fastest so far, and to pass
verification, before it takes that place. Whatever happens to it is a record.
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

#: So many kernels share a child and take turns there, where games are few and the runner can.
TOGETHER = 12
#: A call slower than this many times the fastest game's is the last one.
HOPELESS = 4.0
#: A first call may wake threads and fill caches: what is faster than this, in seconds, is never hopeless.
WAKING_S = 0.02
#: As long as nothing was timed to the end, a call that takes longer than this, in seconds, is the only one:
#: the initial program's naive loops may take long, and nobody will run them.
SLOW_S = 0.25
#: A new time within this factor of the champion's leads to a race: from one process to the next a busy
#: machine may differ by more.
NEAR = 1.1
#: Timed calls of each in a race, however long they take,
RACE_CALLS = 10
#: so many where the challenger's first time was this many times the champion's: luck is no such help,
CLEAR_CALLS, CLEAR = 3, 0.8
#: and what its time must be of the champion's, where times are measured: luck decides closer races.
AHEAD = 0.99
#: Seconds that any run may take beside a few times what the fastest game's took.
SLACK_S = 5.0
#: Failures that say nothing about the program, so that it is tried again next time.
PASSING = frozenset({"device"})
#: How a game is refused: its moves change too much, whatever its program is.
TOO_MUCH = frozenset({f"it {kind.label}" for kind in Kind})
#: Runs in a row that find no device before it counts as gone.
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
    """True where few games come: each is timed with the others in turns, and kept with its code. Else each is
    timed for itself, and races with the fastest so far where it comes near."""


@dataclass(frozen=True)
class Champion:
    """The fastest game so far: it ran twice and passed what was asked of it."""

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
    """Reason and first line of what was said."""
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
    """Measured now, or failed now; not looked up."""
    propose_s: float | None = None
    compile_s: float | None = None
    measure_s: float | None = None
    verify_s: float | None = None

    def fail(self, failure: Failure) -> None:
        self.result, self.new = result_of(failure), True


class DeviceGone(Exception):
    """Nothing can be measured any more; the words say what the runner said."""


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
        """``spent`` and ``begins`` hear of the stages, too: ``compile``, ``measure``, ``verify``."""
        self.conditions, self.store, self.verify = conditions, store, verify
        self.spent, self.begins = spent or StageTimes(), begins
        self.champions: list[Champion] = []
        """Each faster than the one before it."""
        self.kept: dict[str, Attempt] = {}
        """Attempts that were not refused, where games are few: digest of a program's text -> the attempt."""
        self.tally = Tally()
        self.refused: list[str] = []
        """Reasons why games were not even compiled, each once."""
        self.known: dict[str, Timed | Failed] = {}
        """Digest of a program's text -> what became of it."""
        self._run_s = 0.0
        """Duration of the champion's run as a whole."""
        self._least_s: float | None = None
        """The least time of any run, those that were cut included."""
        self._missing = 0
        self._propose_s: float | None = None

    def thought(self, seconds: float) -> None:
        """Each of the games that come next took its player so long."""
        self._propose_s = seconds

    @property
    def champion(self) -> Champion | None:
        return self.champions[-1] if self.champions else None

    def evaluate(self, games: Sequence[Trace]) -> list[Evaluation]:
        """The outcome of each; :class:`DeviceGone` when the runner finds its device no more."""
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
        """Digest of a game's last program, under which what became of it is known."""
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
        """The outcome of the same program before, if it would be the same now."""
        known = self._known(task.game, task.digest)
        passing = isinstance(known, Failed) and (known.reason in PASSING or known.detail in TOO_MUCH)
        return None if passing else known

    def _promising(self, result: Timed, slack: float = 1.0) -> bool:
        """True when a time, if it holds, makes a new champion. A figure beats only figures of its kind."""
        champion = self.champion
        if self.conditions.few:
            return False  # nobody is champion before all are timed at length
        if champion is None:
            return not result.cut
        same = result.timing.provenance == champion.provenance
        return same and not result.cut and result.timing.median_s < slack * champion.seconds

    @property
    def _slack(self) -> float:
        """The factor over the champion's time up to which a race may say the opposite of a first time."""
        races = takes_turns(self.conditions.runner)
        return NEAR if races and self.champion and self.champion.provenance == "measured" else 1.0

    # -- compiling -----------------------------------------------------------------------------

    def _compile(self, tasks: Sequence[_Task]) -> None:
        """Compile what is not known, each program once, as many at a time as there are workers."""
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
            # Generators are limited in time best in this thread.
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
        """Short timings, to tell who is near the fastest; one call for who is slow before anything is known.

        Where the runner can, a few share a child and take turns: the arrays are made once, and a busy moment
        hits none alone.
        """
        runner, request = self.conditions.runner, self.conditions.request
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
        """Remember what became of one of few games."""
        if self.conditions.few:
            attempt = Attempt(task.game, task.source, task.artifact)
            self.kept[task.digest] = attempt.timed(found)

    # -- measuring and all that follows ----------------------------------------------------------

    def _settle(self, task: _Task) -> None:
        """Bring a task to its result, and record it."""
        if task.result is None and task.artifact is None:
            # An equal program stood before it in the same round.
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
        """A second run, in a race with the champion; then verification; then it is the champion."""
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

        Where the runner can, both run in turns, so that they see the same weather, and the winner once
        more with all checks; else the champion's time of before has to do.
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
        """Keep what became of a program, unless it was kept before or is none of this kernel's.

        A game that was refused says nothing about its program, which other moves may reach: what is known
        about that stays.
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
