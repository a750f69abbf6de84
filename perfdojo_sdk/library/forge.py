"""One kernel from its initial program to a verified, measured record, or to a reason why not.

A search strategy plays, by default the target's expert; whatever it plays must pass the three legs of
verification on the compiled code. When it does not, or is slower, the initial program takes its place
and the record says so: a library never stays empty because a player went wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.core.laws import FILTER
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.search import Evaluation, SearchTask
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Bound,
    CodeGenerator,
    Failure,
    KernelSource,
    MachineFigures,
    Measurement,
    Runner,
    RunRequest,
    Target,
)
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library import tuning, verification
from perfdojo_sdk.library.arrays import available_cores, thread_count
from perfdojo_sdk.library.attempts import (
    Attempt,
    Rejected,
    counted,
    first_unbeaten,
    generated,
    median,
    of_one_provenance,
    untimed_last,
)
from perfdojo_sdk.library.evaluation import Helpers
from perfdojo_sdk.library.spent import Spent
from perfdojo_sdk.library.suspicion import SUSPECT, believable_first, plausible
from perfdojo_sdk.plugins import Plugins, faults
from perfdojo_sdk.search.strategies import HEURISTIC, PASSES, PlayerFailed, play_out
from perfdojo_sdk.store.candidates import CandidateLog
from perfdojo_sdk.store.records import (
    Figure,
    KernelRecord,
    RecordKey,
    RooflineBound,
    Timing,
    Verification,
    sha256,
)
from perfdojo_sdk.store.traces import SavedTrace

S = TypeVar("S")
T = TypeVar("T")

#: The share of a timing's budget that a first look at a game gets.
LOOK = 0.3
#: So many of the fastest games of a search are timed at length, and the expert's own beside them,
FINALISTS = 4
#: if they came within this factor of the fastest.
CLOSE = 1.25
#: So many kernels share a child and take turns there, where the runner can.
TOGETHER = 12
#: What took so many times as long at length as at first sight met a busy machine.
BUSY = 1.05
#: How often at most that is tried: a busy moment may last for seconds.
PATIENCE = 4
#: A call of the initial program that takes longer than this is its only one: nobody will run it, and
#: naive loops may take seconds.
SLOW_S = 0.25


@dataclass(frozen=True)
class Settings:
    """How to build; part of each record's key."""

    threads: int = field(default_factory=available_cores)
    seed: int = 0
    repeats: int = 100
    """Most timed calls of a program."""
    budget_s: float = 1.0
    """Time for the timed calls of a program."""
    precision: float = 0.01
    """Fewer calls will do once half of the median's 95 % interval is below this part of it."""
    timeout_s: float = 120.0
    """Time for one run in the child process, set-up included."""
    most: Kind = Kind.DECLARED_LAW
    """What moves may change."""
    search: str = HEURISTIC
    """The strategy that plays."""
    evaluations: int = 100
    """Most games of the strategy that are compiled and timed."""
    options: tuple[tuple[str, str], ...] = ()
    """What the strategy is told beside that: names and values."""

    def __post_init__(self) -> None:
        thread_count(self.threads)  # PD-L015 where no kernel takes so many

    def as_figures(self) -> dict[str, Figure]:
        return {
            "threads": self.threads,
            "seed": self.seed,
            "repeats": self.repeats,
            "budget_s": self.budget_s,
            "precision": self.precision,
            "timeout_s": self.timeout_s,
            "most": self.most.label,
            "search": self.search,
            "evaluations": self.evaluations,
            **{f"option {name}": value for name, value in self.options},
        }


class Watch(tuning.Watch, Protocol):
    """Who wants to know how far one kernel is."""

    def stage(self, kernel: Kernel, stage: str) -> None: ...


@dataclass(frozen=True)
class Found:
    """A kernel ready for a library."""

    kernel: Kernel
    source: KernelSource
    record: KernelRecord
    reused: bool = False
    """Taken from the records, not built now."""
    measured: Measurement | None = field(default=None, repr=False)
    """What was measured now, without the outputs; None when it is taken from the records."""


class Forge:
    """Everything that building kernels for one target needs, looked up once."""

    def __init__(
        self,
        plugins: Plugins,
        target: Target,
        settings: Settings,
        figures: MachineFigures | None = None,
        runner: Runner | None = None,
        helpers: Helpers | None = None,
    ) -> None:
        """``figures`` and ``runner``: by default the plugin's own; ``helpers``: for compiling candidates."""
        self.target, self.settings, self.plugins, self.helpers = target, settings, plugins, helpers
        self.rules = replace(plugins.rules(target), most=settings.most)
        self.generator = plugins.guarded_generator(target)
        self.bare_runner = runner or plugins.guarded_runner(target)
        self.runner = plugins.observed_runner(target, self.bare_runner)
        self.strategy = plugins.search_strategy(settings.search)
        self.expert = plugins.guarded_pass(target)
        self.accuracy = plugins.math_accuracy(target)
        self.figures = figures or plugins.machine_figures(target)
        self.fingerprints = plugins.fingerprints(target)
        self.device = self.runner.device()
        self.spent, self.memory = Spent(), verification.Memory()
        self.toolchain = self._toolchain()

    def _toolchain(self) -> str:
        return toolchain_of(self.target, self.generator, self.runner)

    def key(self, kernel: Kernel) -> RecordKey:
        capabilities = json.dumps(self.target.capabilities.model_dump(mode="json"), sort_keys=True)
        return RecordKey(
            kernel=kernel.name,
            program_sha256=sha256(kernel.program.text),
            target=self.target.name,
            target_sha256=sha256(capabilities),
            device=self.device,
            toolchain=self.toolchain,
            plugins=self.fingerprints,
            settings=self.settings.as_figures(),
        )

    # -- reuse -------------------------------------------------------------------------------

    def restore(self, kernel: Kernel, record: KernelRecord) -> Found | None:
        """The kernel from its record; None without a time, or when that does not lead to the same source."""
        if record.final is None:
            return None
        try:
            trace = record.trace.replay(self.rules)
            source = self.generator.generate(trace.program, kernel.symbol)
        except DojoError:
            return None
        same = source_sha256(source) == record.source_sha256 and record.verification.passed
        return Found(kernel, source, record, reused=True) if same else None

    # -- building ----------------------------------------------------------------------------

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """``work`` for each of ``items``, which calls :meth:`build`: as many at a time as this forge can."""
        return [work(item) for item in items]

    def build(
        self,
        kernel: Kernel,
        watch: Watch,
        store: CandidateLog | None = None,
        session: tuning.Session | None = None,
    ) -> Found:
        """Find, measure and verify; :class:`Rejected` when not even the initial program passes.

        What the search found and the initial program are timed, in turns where they are close; the
        fastest that passes verification is kept. ``store`` and ``session`` are for searches that explore.
        What plugins did wrong meanwhile is in the record.
        """
        with faults.heard() as heard:
            found = self._built(kernel, watch, store, session)
        return replace(found, record=found.record.model_copy(update={"faults": tuple(heard)}))

    def _built(
        self, kernel: Kernel, watch: Watch, store: CandidateLog | None, session: tuning.Session | None
    ) -> Found:
        notes: list[str] = []
        self.spent, self.memory = Spent(), verification.Memory()
        [initial] = self._attempts(kernel, [Trace(kernel.program)], watch, SLOW_S)
        if self.strategy.name in PASSES:
            attempts = self._search(kernel, initial, notes, watch)
        else:
            attempts = self._explore(kernel, notes, watch, store, session)
        order = [*attempts, initial]
        if any(attempt.measured for attempt in attempts):
            if of_one_provenance(order):
                order = self._ranked(order, kernel, watch)
            else:
                order = [*self._ranked(attempts, kernel, watch), initial]
            order = believable_first(self, kernel, order)
            if not order[0].trace.steps:
                notes.append("the initial program is kept: what the search found is slower")
        order = untimed_last(order)
        if not order[0].untimed:
            late = [attempt for attempt in order if attempt.untimed and attempt is not initial]
            notes += [
                f"{attempt.label} is left out: it has no figure ({attempt.failure})" for attempt in late
            ]
        reasons = []
        for attempt in order:
            try:
                return self._accept(kernel, attempt, initial, notes, watch)
            except Rejected as reason:
                reasons.append(str(reason))
                notes.append(f"{attempt.label} is left out: {reason}")
        raise Rejected("; ".join(dict.fromkeys(reasons)))

    def again(self, kernel: Kernel, trace: Trace, watch: Watch) -> Found:
        """A game that was played before, verified and measured anew; :class:`Rejected` when it fails."""
        self.spent, self.memory = Spent(), verification.Memory()
        traces = [Trace(kernel.program), trace] if trace.steps else [trace]
        initial, *rest = self._attempts(kernel, traces, watch, SLOW_S)
        return self._accept(kernel, rest[0] if rest else initial, initial, [], watch)

    def _explore(
        self,
        kernel: Kernel,
        notes: list[str],
        watch: Watch,
        store: CandidateLog | None,
        session: tuning.Session | None,
    ) -> list[Attempt]:
        """Search, and compile the finalists again, to be timed at length.

        They are the last few champions and, where the search began with them, the expert's games: a bad
        moment may have thrown the best of these out.
        """
        watch.stage(kernel, "searching")
        search = tuning.tune(self, kernel, store, session, watch)
        notes += search.notes
        champions = [game for game in search.games if game.steps][:FINALISTS]
        opening = [game for game in self._expert_games(kernel) if search.evaluator.has_timed(game)]
        games = {game.program.text: game for game in (*opening, *champions)}
        return self._attempts(kernel, tuple(games.values()), watch)

    def _expert_games(self, kernel: Kernel) -> Sequence[Trace]:
        """What the target's expert plays; nothing where it fails, which the search has said already."""
        task = self.task(kernel)
        try:
            return tuple(task.expert(task.root, task.rules, task.target)) if task.expert else ()
        except Exception:  # a plugin's code
            return ()

    def _search(self, kernel: Kernel, initial: Attempt, notes: list[str], watch: Watch) -> list[Attempt]:
        """Let the strategy play, and keep the fastest few of its games."""
        if self.strategy.name == HEURISTIC and self.expert is None:
            notes.append(f"the initial program is kept: no pass for target {self.target.name}")
            return []
        watch.stage(kernel, "searching")
        kept: list[Attempt] = []

        def evaluate(traces: Sequence[Trace]) -> list[Evaluation]:
            refused = [self._refused(kernel, trace, notes) for trace in traces]
            played = [t for t, why in zip(traces, refused, strict=True) if t.steps and not why]
            attempts = self._attempts(kernel, played, watch)
            kept[:] = sorted([*kept, *attempts], key=median)[:FINALISTS]
            made = iter(attempts)
            return [
                Evaluation(t, None, why) if why else (next(made) if t.steps else initial).evaluation
                for t, why in zip(traces, refused, strict=True)
            ]

        with self.spent.on("search"):
            try:
                play_out(self.strategy, self.task(kernel), evaluate, self.settings.evaluations)
            except PlayerFailed as error:
                notes.append(self.failed_search(error))
        return kept

    def failed_search(self, error: PlayerFailed) -> str:
        """The note of a search that failed; whose fault it is, is heard."""
        if not isinstance(error.__cause__, faults.PluginFault):  # which has said so itself
            owner = self.plugins.owner_of_strategy(self.strategy.name)
            faults.note(owner, f"the search {self.strategy.name} failed ({error})", error.__cause__)
        return f"the search {self.strategy.name} failed ({error})"

    def task(self, kernel: Kernel) -> SearchTask:
        """What a player is given."""
        return SearchTask(
            kernel.program,
            self.rules,
            self.target.on(self.figures),
            self.settings.seed,
            self.settings.most,
            self.expert,
            self.settings.evaluations,
            dict(self.settings.options),
            self.fingerprints,
        )

    def _refused(self, kernel: Kernel, trace: Trace, notes: list[str]) -> Failure | None:
        """Why a game that was proposed is not even compiled; a note says so once."""
        if trace.root != kernel.program:
            why = "it is about another program"
        elif trace.kind > self.settings.most:
            why = f"it {trace.kind.label}"
        else:
            return None
        note = f"a game of the search is left out: {why}"
        if note not in notes:
            notes.append(note)
        return Failure("constraints", why)

    def _ranked(self, attempts: list[Attempt], kernel: Kernel, watch: Watch) -> list[Attempt]:
        """Fastest first; those close to it are timed at length, in turns where the runner can.

        In turns, an earlier attempt stays in front of all that are not faster beyond doubt.
        """
        watch.stage(kernel, "confirming")
        limit = CLOSE * min(map(median, attempts), default=0.0)
        close, rest = list[Attempt](), list[Attempt]()
        for attempt in attempts:
            (close if attempt.measured and median(attempt) <= limit else rest).append(attempt)
        together = getattr(self.bare_runner, "time_interleaved", None)
        if together is None or len(close) < 2:
            again = [self._timed_again(attempt) for attempt in close]
        else:
            # Without outputs: who wins is timed alone once more, for the figures that ship.
            request = replace(self.request(), want_outputs=False)
            times = self._in_turns([a.artifact for a in close if a.artifact is not None], request)
            again = [attempt.timed(time) for attempt, time in zip(close, times, strict=True)]
            unbeaten = first_unbeaten(again)
            if unbeaten:
                others = [attempt for attempt in (*again, *rest) if attempt is not unbeaten]
                return [unbeaten, *sorted(others, key=median)]
        return sorted([*again, *rest], key=median)

    def _timed_again(self, attempt: Attempt) -> Attempt:
        """The attempt timed at length; again where it was faster at first, as a busy moment may pass."""
        if attempt.artifact is None or attempt.measured is None:
            return attempt
        found: list[Measurement] = []
        while not found or (len(found) < PATIENCE and found[-1].median > BUSY * attempt.measured.median):
            measured = self._time(attempt.artifact)
            if isinstance(measured, Failure):
                return replace(attempt, measured=None, reason=measured)
            found.append(measured)
        return replace(attempt, measured=min(found, key=lambda m: m.median))

    def _attempts(
        self, kernel: Kernel, traces: Sequence[Trace], watch: Watch, slow_s: float | None = None
    ) -> list[Attempt]:
        """Generate, compile side by side, then look at their times; an error is a failure of its own."""
        watch.stage(kernel, "compiling")
        with self.spent.on("compile"), ThreadPoolExecutor(available_cores()) as pool:
            # Generators are limited in time best in this thread.
            sources = [generated(self.generator, trace, kernel.symbol) for trace in traces]
            compiled = list(pool.map(self._compiled, traces, sources))
        watch.stage(kernel, "measuring")
        times = iter(self._looks([a.artifact for a in compiled if a.artifact is not None], slow_s))
        return [attempt if attempt.artifact is None else attempt.timed(next(times)) for attempt in compiled]

    def _compiled(self, trace: Trace, source: KernelSource | Failure) -> Attempt:
        if isinstance(source, Failure):
            return Attempt(trace, reason=source)
        artifact = self.runner.compile(source)
        if isinstance(artifact, Failure):
            return Attempt(trace, source, reason=artifact)
        return Attempt(trace, source, artifact)

    def _accept(
        self, kernel: Kernel, attempt: Attempt, initial: Attempt, notes: list[str], watch: Watch
    ) -> Found:
        """Verify an attempt that ran; :class:`Rejected` with the first thing that is wrong."""
        attempt, bound = plausible(self, kernel, self._with_outputs(attempt))
        assert attempt.artifact is not None and attempt.source is not None and attempt.measured is not None
        measured = attempt.measured
        timed = bool(measured.seconds)
        if timed and bound and not bound.calibrated and measured.median < SUSPECT * bound.seconds:
            notes.append("faster than the roofline, whose figures are not measured on this device")
        watch.stage(kernel, "verifying")
        with self.spent.on("verify"):
            verified = self._verify(attempt.trace, attempt.artifact)
        if not verified.passed:
            raise Rejected(f"verification failed ({verified.failure})")
        if attempt.suspect:
            ranks = "its time ranks nothing" if timed else "it ranks nothing"
            notes.append(f"suspect: {attempt.suspect}; the kernel is verified, {ranks}")
        if attempt.trace.kind >= Kind.CHANGES_PRECISION:
            notes.append(f"changes precision: {', '.join(sorted(attempt.trace.laws))}")
        if initial.measured is None:
            notes.append(f"the initial program has no time: {initial.failure}")
        record = KernelRecord(
            trace=SavedTrace.of(attempt.trace),
            program=attempt.trace.program.text,
            source_sha256=source_sha256(attempt.source),
            kind=attempt.trace.kind.label,
            laws=tuple(sorted(attempt.trace.laws)),
            verification=verified,
            initial=Timing.of(initial.measured) if initial.measured else None,
            final=Timing.of(measured) if timed else None,
            bound=RooflineBound.of(bound) if bound else None,
            suspect=attempt.suspect,
            output_sha256=self.output_sha256(measured),
            notes=tuple(notes),
            build_seconds=self.spent.rounded,
        )
        return Found(kernel, attempt.source, record, measured=replace(measured, outputs=None))

    def _with_outputs(self, attempt: Attempt) -> Attempt:
        """The attempt with the figures and results that ship; :class:`Rejected` when it does not run.

        Where only the runner is at fault that there is no time, it is run once for its results.
        """
        first = attempt.measured
        if first is not None and (first.outputs is None or first.details.get("stopped")):
            attempt = self._timed_again(attempt)  # that was a first look, or a race
        if attempt.measured is not None:
            return attempt
        if not attempt.untimed or attempt.artifact is None:
            raise Rejected(f"it ran once and not twice: {attempt.failure}" if first else attempt.failure)
        found = self.runner.run(attempt.artifact, replace(self.request(), repeats=0))
        if isinstance(found, Failure) or found.outputs is None:
            raise Rejected(attempt.failure)
        return replace(attempt, measured=replace(found, seconds=()), suspect=f"no time ({attempt.failure})")

    def _verify(self, trace: Trace, artifact: Artifact) -> Verification:
        settings = self.settings
        try:
            return verification.verify(
                trace,
                self.rules,
                artifact,
                self.runner,
                self.accuracy,
                settings.threads,
                settings.seed,
                self.generator,
                self.memory,
            )
        except DojoError as error:
            raise Rejected(f"verification stopped: {error.what}") from error

    # -- measuring ---------------------------------------------------------------------------

    def request(self) -> RunRequest:
        """The run that a library's figures come from; ``bench`` repeats it."""
        return RunRequest(
            seed=self.settings.seed,
            threads=self.settings.threads,
            repeats=self.settings.repeats,
            budget_s=self.settings.budget_s,
            precision=self.settings.precision,
            timeout_s=self.settings.timeout_s,
        )

    def _time(self, artifact: Artifact) -> Measurement | Failure:
        return self._run(artifact, self.request())

    def _looks(self, artifacts: Sequence[Artifact], slow_s: float | None) -> Iterator[Measurement | Failure]:
        """Short timings, to tell who is near the fastest; one call for who takes more than ``slow_s``.

        Where the runner can, a few share a child and take turns: the arrays are made once, and a busy
        moment hits none alone.
        """
        full = self.request()
        short = replace(full, budget_s=LOOK * full.budget_s, want_outputs=False, stop_above_s=slow_s)
        step = TOGETHER if hasattr(self.bare_runner, "time_interleaved") else 1
        for some in (artifacts[k : k + step] for k in range(0, len(artifacts), step)):
            yield from [self._run(some[0], short)] if len(some) == 1 else self._in_turns(some, short)

    def in_turns(self, artifacts: Sequence[Artifact], turns: int) -> list[list[Measurement | Failure]]:
        """Times of kernels of one interface that take turns: call by call where the runner can, which is one
        round, else in so many rounds of a timing each."""
        request = replace(self.request(), want_outputs=False)
        if hasattr(self.bare_runner, "time_interleaved"):
            return [self._in_turns(artifacts, request)]
        request = replace(request, budget_s=request.budget_s / turns)
        return [[self._run(artifact, request) for artifact in artifacts] for _ in range(turns)]

    def _in_turns(self, artifacts: Sequence[Artifact], request: RunRequest) -> list[Measurement | Failure]:
        """Times of kernels that share a child; only for a runner that can."""
        together = self.bare_runner.time_interleaved  # type: ignore[attr-defined]
        with self.spent.on("measure"):
            return [counted(found) for found in together(artifacts, request)]

    def _run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        with self.spent.on("measure"):
            return counted(self.runner.run(artifact, request))

    def _bound(self, kernel: Kernel, trace: Trace) -> Bound | None:
        """The roofline of the kernel; of a game that saves products, with what it computes instead.

        Where a game changes precision, at the peak of its shortest dtypes.
        """
        figures = self.figures
        if trace.kind >= Kind.CHANGES_PRECISION:
            peaks = figures.peak_gflops
            short = {b.dtype for b in trace.program.buffers} & peaks.keys()
            quickest = max((peaks[dtype] for dtype in short), default=0.0)
            if quickest:
                figures = figures.model_copy(update={"peak_gflops": {**peaks, "f32": quickest}})
        program = trace.program if FILTER in trace.laws else kernel.program
        return self.plugins.roofline_bound(program, self.target, self.settings.threads, figures)

    @staticmethod
    def output_sha256(measured: Measurement) -> str | None:
        """Over the outputs' names, shapes and bits; None where a time was estimated and nothing computed."""
        if measured.outputs is None and measured.provenance == "estimated":
            return None
        digest = hashlib.sha256()
        for name, array in sorted((measured.outputs or {}).items()):
            digest.update(f"{name}{array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def same_outputs(self, found: Found, content: bytes, kind: str) -> str:
        """Why the kernel inside the packaged file does not give the verified bits; "" when it does.

        One that was not computed at its size has to have the estimate of the one that was verified.
        """
        artifact = Artifact(found.source.symbol, found.source.inputs, found.source.outputs, kind, content)
        computed, expected = found.record.output_sha256 is not None, found.record.final
        request = self.request()
        measured = self.runner.run(artifact, replace(request, repeats=0 if computed else request.repeats))
        if isinstance(measured, Failure):
            return f"{measured.reason}: {measured.detail}"
        if not computed:
            same = expected is not None and measured.median == expected.median_s
            return "" if same else "its estimate differs from that of the verified kernel"
        same = self.output_sha256(measured) == found.record.output_sha256
        return "" if same else "its outputs differ from those of the verified kernel"


def toolchain_of(target: Target, generator: CodeGenerator, runner: Runner) -> str:
    """Compile the smallest kernel: names the toolchain and shows that there is one."""
    program = parse("kernel probe(x) -> y\nx f32 [1] heap\ny f32 [1] heap\n\n1 y[{0}] = x[{0}]\n")
    artifact = runner.compile(generator.generate(program, "pd_probe"))
    if isinstance(artifact, Failure):
        what = f"the compiler of target {target.name} does not work"
        raise UnavailableError("PD-L020", what, why=artifact.detail, hint="see: perfdojo-sdk targets")
    return artifact.toolchain


def source_sha256(source: KernelSource) -> str:
    """Over everything that the compiler sees."""
    parts = [
        source.symbol,
        source.language,
        source.code,
        *(f"{k}\0{v}" for k, v in sorted(source.support.items())),
    ]
    return sha256("\0".join(parts))
