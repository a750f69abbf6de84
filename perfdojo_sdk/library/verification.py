"""The three legs of verification, each turned into the sentence and figures that a record keeps.

This is the one place where the library builder meets :mod:`perfdojo_sdk.verify`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.hookspecs.abilities import GeneratesAsFor, LimitsInstances, ability
from perfdojo_sdk.hookspecs.types import Artifact, CodeGenerator, Failure, KernelSource, Runner
from perfdojo_sdk.library.background import in_background
from perfdojo_sdk.store.records import Figure, LegResult, Verification

if TYPE_CHECKING:
    from perfdojo_sdk.verify.exact import ExactTraceReport
    from perfdojo_sdk.verify.numeric import NumericReport
    from perfdojo_sdk.verify.smaller_games import Reduction

#: Most statement instances of one run in the exact leg; more take long and show no more faults.
EXACT_INSTANCES = 12000
#: The same limit for a candidate in the middle of a search.
QUICK_INSTANCES = 500
#: Most statement instances, times the moves, that the exact leg compares where no smaller shape is found:
#: some five minutes.
MOST_EXACT_WORK = 4e9
#: Most statement instances for comparing a compiled candidate, if no rows of the kernel can be checked alone.
QUICK_COMPARED = 10**7


#: Statement instances, or elements of the arguments, of a large kernel, whose calls take long.
LARGE, LARGE_ARGUMENTS = 2 * 10**7, 10**7
#: Instances of the shape that it is mostly verified at: as wanted, and at most.
SMALLER, MOST_SMALLER = 2 * 10**6, 5 * 10**7
#: Most moves of a game that is worth playing again for that, where the kernel is only just large; of one that
#: is larger, so many times as many.
SHORT_GAME = 400
#: Executions that depend on the shape.
AT_FULL_SIZE = ("guard_pages", "read_only", "threads")
#: The reason for a smaller shape, by whether the runner's limit is it.
_WHY = {True: "the runner can run", False: "more calls can be made at"}
#: The symbol of a kernel at a smaller shape, by which equal ones of several kernels are equal code.
SMALLER_SYMBOL = "pd_at_a_smaller_shape"


@dataclass
class SharedResults:
    """Results that kernels of other shapes may have, too: their games are alike at smaller shapes. A
    builder's kernels share them."""

    reductions: dict[Hashable, Reduction] = field(default_factory=dict)
    """By the kind of game, and what it was made smaller for."""
    exact: dict[Hashable, ExactTraceReport] = field(default_factory=dict)
    """The exact leg's reports on small games."""
    numeric: dict[Hashable, NumericReport] = field(default_factory=dict)
    """The numeric leg's reports on games at smaller shapes."""

    def since(self, earlier: SharedResults) -> SharedResults:
        """The results that are not among earlier ones; the numeric leg's stay out."""
        return SharedResults(
            {key: found for key, found in self.reductions.items() if key not in earlier.reductions},
            {key: found for key, found in self.exact.items() if key not in earlier.exact},
        )

    def copy(self) -> SharedResults:
        return SharedResults({**self.reductions}, {**self.exact}, {**self.numeric})

    def add(self, others: SharedResults) -> None:
        self.reductions.update(others.reductions)
        self.exact.update(others.exact)


@dataclass
class VerificationCache:
    """Results that verifications of one kernel's games share, since these games share most of their moves."""

    proved: set[bytes] = field(default_factory=set)
    """Steps that the dependence leg proved."""
    reduction: Reduction | None = None
    """The reduction of the last candidate to a smaller size."""
    shared: SharedResults = field(default_factory=SharedResults)


@dataclass(frozen=True)
class Subject:
    """All that verification looks at: a game, its compiled end, and what generated and runs that."""

    trace: Trace
    rules: Rules
    artifact: Artifact
    runner: Runner
    accuracy: Mapping[str, float]
    """Operation -> its error in ulp."""
    threads: int
    seed: int
    generator: CodeGenerator | None = None
    """Lets a runner that cannot run large kernels have the same game at a smaller shape."""
    cache: VerificationCache = field(default_factory=VerificationCache)


def verify(subject: Subject) -> Verification:
    """All three legs for the compiled end of a game; the two in Python run beside the numeric leg."""
    _prepare()
    from perfdojo_sdk.verify.parts import games_of_parts

    trace, rules, shared = subject.trace, subject.rules, subject.cache.shared
    games = games_of_parts(trace, rules)

    def compared() -> tuple[LegResult, SharedResults]:
        earlier = shared.copy()
        return exact(trace, rules, subject.seed, games, shared), shared.since(earlier)

    with (
        in_background(compared) as models,
        in_background(lambda: dependence(trace, rules, subject.cache, games)) as sets,
    ):
        compiled = numeric(subject)
        equal, found = models()
        shared.add(found)
        return Verification(exact=equal, numeric=compiled, dependence=sets())


def _prepare() -> None:
    """Load what the legs in Python need, and compile the machine of the exact leg: once in this process, and
    not in each child that is forked from it."""
    from perfdojo_sdk.verify import dependence, exact, modular_vm, parts, reduced  # noqa: F401

    modular_vm.available()


def quick(subject: Subject) -> Verification:
    """All three legs with fewer cases, for the best candidate so far of a search.

    The exact leg runs the last program only, in one random model, at a smaller shape. The numeric leg runs
    one class of inputs; for a large program, on some rows, or at a smaller shape if rows depend on each
    other. The search's result goes through :func:`verify` in any case.
    """
    from perfdojo_sdk.verify.exact import verify_exact
    from perfdojo_sdk.verify.reduced import reduce_trace
    from perfdojo_sdk.verify.references import quick_instances
    from perfdojo_sdk.verify.smaller_games import Reduction

    trace, rules, cache = subject.trace, subject.rules, subject.cache
    like = [cache.reduction] if cache.reduction else []
    small = reduce_trace(trace, rules, QUICK_INSTANCES, *like, alike_at_once=True)
    cache.reduction = Reduction.of(trace, small)
    report = verify_exact(small.root, small.program, trace.laws, rules.dialect, subject.seed, models=1)
    asked = LegResult(passed=report.ok, detail=report.problem)
    skipped = LegResult(passed=True, detail="not asked")
    if not asked.passed:
        return Verification(exact=asked, numeric=skipped, dependence=skipped)
    few = quick_instances(trace.root, trace.program, trace.laws) <= QUICK_COMPARED
    most = None if few else QUICK_COMPARED
    compared = _compared(subject, *affordable(subject, most), (subject.threads,), quick=True)
    return Verification(
        exact=asked,
        numeric=LegResult(passed=compared.ok, detail=compared.problem),
        dependence=dependence(trace, rules, cache),
    )


def exact(
    trace: Trace, rules: Rules, seed: int, games: Sequence[Trace] = (), shared: SharedResults | None = None
) -> LegResult:
    """The exact leg, on the same moves at a small shape. ``games``: of the parts of the trace's program
    (``verify/parts.py``), which are compared instead where all of them pass. ``shared``: results of other
    kernels, to which those on this one are added."""
    begin, shared = perf_counter(), shared or SharedResults()
    compared = list[_Compared]()
    try:
        for game in games if len(games) > 1 and trace.steps else ():
            compared.append(_Compared.of(game, rules, seed, shared, compared))
        if not compared or not all(each.report.ok for each in compared):
            compared = [_Compared.of(trace, rules, seed, shared)]
    except _TooLong as found:
        return LegResult(passed=False, detail=str(found))
    failed = next((each.report for each in compared if not each.report.ok), None)
    models = min(each.report.end.models for each in compared)
    figures: dict[str, Figure] = {
        "models": models,
        "schedules": max(len(each.report.end.schedules) for each in compared),
        "instances": sum(each.instances for each in compared),
        "reduced_shape": any(each.small.root.text != each.game.root.text for each in compared),
        "reduced_factors": any(each.small.moves != each.game.moves for each in compared),
        "parts": len(compared),
        "seconds": round(perf_counter() - begin, 3),
    }
    detail = (
        failed.problem if failed else f"equal in {number_of(models, 'random models')}, every move and the end"
    )
    return LegResult(passed=not failed, detail=detail, figures=figures)


class _TooLong(Exception):
    """The exact leg would take many minutes on a game. Another one ships, as if this one had failed."""


class _Compared(NamedTuple):
    """A game, the same at a small shape, and what the exact leg says about that."""

    game: Trace
    small: Trace
    report: ExactTraceReport
    instances: int
    """Statement instances of one run at the end of the small game."""

    @classmethod
    def of(
        cls, game: Trace, rules: Rules, seed: int, shared: SharedResults, others: Sequence[_Compared] = ()
    ) -> _Compared:
        """``others``: compared before; what made them small is tried first."""
        from perfdojo_sdk.verify.exact import verify_exact_trace
        from perfdojo_sdk.verify.smaller_games import Reduction, statement_instances

        like = [Reduction.of(other.game, other.small) for other in reversed(others)]
        small = _reduced(game, rules, EXACT_INSTANCES, shared, *like, alike_at_once=True)
        # Text holds no ids, which moves name. The steps of a smaller game were made by the rules just now.
        ids = tuple([node.skeleton for node in small.root.body])
        key = (small.root.text, ids, small.program.text, tuple(small.moves), seed)
        report = shared.exact.get(key) if small is not game else None
        work = statement_instances(small.program) * len(small.steps)
        if report is None and work > MOST_EXACT_WORK:
            what = f"its {number_of(len(small.steps), 'moves')} allow no small shape: comparing each takes"
            raise _TooLong(
                f"{what} {work:.2g} statement instances, at most {MOST_EXACT_WORK:.2g} are compared"
            )
        if report is None:
            report = verify_exact_trace(small, rules.dialect, seed)
        if small is not game:
            shared.exact[key] = report
        return cls(game, small, report, statement_instances(small.program))


def _reduced(
    game: Trace,
    rules: Rules,
    most_instances: int,
    shared: SharedResults,
    *like: Reduction,
    alike_at_once: bool = False,
) -> Trace:
    """The game at a smaller shape; first as the last game of the same moves was made smaller. Where code is
    looked at, like tiles do not shrink at once and units of the machine keep their sizes."""
    from perfdojo_sdk.verify.reduced import reduce_trace
    from perfdojo_sdk.verify.smaller_games import Reduction, kind_of_game

    key = (most_instances, alike_at_once, kind_of_game(game.moves, rules))
    like = (*([shared.reductions[key]] if key in shared.reductions else ()), *like)
    units = not alike_at_once
    small = reduce_trace(game, rules, most_instances, *like, keeps_units=units, alike_at_once=alike_at_once)
    if small is not game:
        shared.reductions[key] = Reduction.of(game, small)
    return small


def affordable(subject: Subject, most: int | None = None) -> tuple[Trace, Artifact]:
    """The game and its compiled end, or the same game on a smaller kernel: of at most as many statement
    instances as the runner can run, or ``most`` of them.

    :class:`VerificationError` when the smaller one does not compile.
    """
    from perfdojo_sdk.verify.smaller_games import statement_instances

    trace, generator = subject.trace, subject.generator
    limited = ability(subject.runner, LimitsInstances)
    can_run = limited.most_instances if limited else None
    most = min((n for n in (most, can_run) if n is not None), default=None)
    if most is None or generator is None or statement_instances(trace.program) <= most:
        return trace, subject.artifact
    small, source = _at_smaller_shape(subject, generator, most)
    return small, _compiled(subject, source)


def _at_smaller_shape(subject: Subject, generator: CodeGenerator, most: int) -> tuple[Trace, KernelSource]:
    """The game on a smaller kernel, and the code of its end. What a unit of the machine takes keeps its
    sizes, so that the code which ships is what is verified."""
    choosing = ability(generator, GeneratesAsFor)
    as_shipped = choosing.as_for(subject.trace.program) if choosing else generator
    small = _reduced(subject.trace, subject.rules, most, subject.cache.shared)
    return small, as_shipped.generate(small.program, SMALLER_SYMBOL)


def _compiled(subject: Subject, source: KernelSource) -> Artifact:
    compiled = subject.runner.compile(source)
    if isinstance(compiled, Failure):
        what = f"{subject.trace.root.name} does not compile at a smaller shape: {compiled.reason}"
        hint = "`perfdojo-sdk show SOURCE --as code` prints what was compiled at the full shape"
        raise VerificationError("PD-C006", what, why=compiled.detail, hint=hint)
    return compiled


def dependence(
    trace: Trace, rules: Rules, cache: VerificationCache, games: Sequence[Trace] = ()
) -> LegResult:
    """The dependence leg, at the kernel's own size. ``games``: of the parts of the trace's program
    (``verify/parts.py``), which are proved instead where that works, half of them in another process."""
    from perfdojo_sdk.verify.dependence import DependenceReport, verify_dependence_trace, verify_races

    def proofs(of: Sequence[Trace]) -> list[DependenceReport]:
        return [verify_dependence_trace(game, rules, cache.proved) for game in of]

    begin, found = perf_counter(), list[DependenceReport]()
    if len(games) > 1:
        with in_background(lambda: proofs(games[1::2])) as others:
            found = [*proofs(games[::2]), *others(), verify_races(trace.program, rules.dialect)]
    if not found or not all(report.ok for report in found):
        found = proofs([trace])
    failed = next((report for report in found if not report.ok), None)
    moves = number_of(len(trace.steps), "moves")
    detail = failed.problem if failed else f"proved for {moves} and free of races"
    return LegResult(passed=not failed, detail=detail, figures={"seconds": round(perf_counter() - begin, 3)})


def numeric(subject: Subject) -> LegResult:
    """The numeric leg, on one thread and on several, whatever the subject's number is.

    A large kernel is called few times, with the first inputs and where its arrays end; the other inputs and
    ways to call it are for the same game at a smaller shape, beside that.
    """
    from perfdojo_sdk.verify.runs import executor

    begin = perf_counter()
    played, artifact = affordable(subject)
    threads = tuple(sorted({1, 2, subject.threads}))
    affords = replace(subject, trace=played, artifact=artifact)
    shape = played
    if not _large(affords):
        reports = [_compared(subject, played, artifact, threads)]
    else:
        with executor(subject.runner, 1) as pool:
            few = pool.submit(_compared, subject, played, artifact, threads, True, AT_FULL_SIZE)
            shape, rest = _compared_smaller(affords, threads)
        reports = [few.result(), *([rest] if few.result().ok else [])]
    last, ok = reports[-1], reports[-1].ok
    detail = f"within the error bound on inputs: {', '.join(last.checked)}" if ok else last.problem
    if shape is not subject.trace:
        shapes = ", ".join(f"{n} {list(shape.root.buffer_of[n].shape)}" for n in shape.root.inputs)
        some = "; the first inputs at full size" if shape is not played else ""
        detail += f"; the same moves at a smaller shape, {shapes}, which {_WHY[shape is played]}{some}"
    executions = dict.fromkeys(name for report in reports for name in report.executions)
    figures: dict[str, Figure] = {
        "worst_error_over_bound": round(max(report.worst for report in reports), 4),
        "elements": sum(c.elements for report in reports for c in report.classes),
        "classes": ", ".join(last.checked),
        "executions": ", ".join(name for name in EXECUTIONS if name in executions),
        "executions_not_run": ", ".join(name for name in EXECUTIONS if name not in executions),
        "skipped": "; ".join(f"{c.name}: {c.skipped}" for c in last.classes if c.skipped),
        "reduced_shape": shape is not subject.trace,
        "seconds": round(perf_counter() - begin, 3),
    }
    return LegResult(passed=ok, detail=detail, figures=figures)


def _large(subject: Subject) -> bool:
    """True for a large kernel, unless its game is so long that playing it again takes as much time."""
    from perfdojo_sdk.verify.smaller_games import statement_instances

    trace = subject.trace
    instances, buffers = statement_instances(trace.program), trace.root.buffer_of
    arguments = sum(buffers[array].cells for array in trace.root.interface)
    size = max(instances / LARGE, arguments / LARGE_ARGUMENTS)
    return size > 1 and len(trace.steps) <= SHORT_GAME * size and subject.generator is not None


def _compared_smaller(subject: Subject, threads: tuple[int, ...]) -> tuple[Trace, NumericReport]:
    """A large kernel's game at a smaller shape, or at its own where there is none that is much smaller, and
    the report on that."""
    from perfdojo_sdk.verify.smaller_games import statement_instances

    assert subject.generator
    small, source = _at_smaller_shape(subject, subject.generator, SMALLER)
    if statement_instances(small.program) > MOST_SMALLER:
        return subject.trace, _compared(subject, subject.trace, subject.artifact, threads)
    code = (source.code, *sorted(source.support.items()))
    key = (small.root.text, small.program.text, code, small.laws, small.kind, subject.seed, threads)
    known = subject.cache.shared.numeric
    if key not in known:
        known[key] = _compared(subject, small, _compiled(subject, source), threads)
    return small, known[key]


def _compared(
    subject: Subject,
    played: Trace,
    artifact: Artifact,
    threads: tuple[int, ...],
    quick: bool = False,
    executions: Collection[str] | None = None,
) -> NumericReport:
    """The numeric leg's report on a compiled game: the subject's, or the same at a smaller shape."""
    from perfdojo_sdk.verify.numeric import verify_numeric

    return verify_numeric(
        played.root,
        played.program,
        artifact,
        subject.runner,
        subject.accuracy,
        subject.rules.dialect,
        subject.seed,
        threads=threads,
        nan_may_differ=subject.trace.kind >= Kind.REASSOCIATES,
        quick=quick,
        laws=subject.trace.laws,
        executions=executions,
    )
