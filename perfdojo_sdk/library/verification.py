"""The three legs of verification, each turned into the sentence and figures that a record keeps.

This is the one place where the library builder meets :mod:`perfdojo_sdk.verify`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.hookspecs.abilities import GeneratesAsFor, LimitsInstances, ability
from perfdojo_sdk.hookspecs.types import Artifact, CodeGenerator, Failure, Runner
from perfdojo_sdk.library.background import in_background
from perfdojo_sdk.store.records import Figure, LegResult, Verification

if TYPE_CHECKING:
    from perfdojo_sdk.verify.exact import ExactTraceReport
    from perfdojo_sdk.verify.numeric import NumericReport
    from perfdojo_sdk.verify.reduced import Reduction

#: Most statement instances of one run in the exact leg; more take long and show no more faults.
EXACT_INSTANCES = 3000
#: The same limit for a candidate in the middle of a search.
QUICK_INSTANCES = 500
#: Most statement instances for comparing a compiled candidate, if no rows of the kernel can be checked alone.
QUICK_COMPARED = 10**7


#: Statement instances, or elements of the arguments, of a large kernel, whose calls take long; instances at
#: most of the shape that it is mostly verified at; most moves of a game that is worth playing again for that,
#: where the kernel is as large as that, and so many times as many where it is larger.
LARGE, LARGE_ARGUMENTS, SMALLER, SHORT_GAME = 5 * 10**8, 5 * 10**7, 10**7, 400
#: Executions that depend on the shape.
AT_FULL_SIZE = ("guard_pages", "read_only", "threads")
#: The reason for a smaller shape, by whether the runner's limit is it.
_WHY = {True: "the runner can run", False: "more calls can be made at"}


@dataclass
class VerificationCache:
    """Results that verifications of one kernel's games share, since these games share most of their moves."""

    proved: set[bytes] = field(default_factory=set)
    """Steps that the dependence leg proved."""
    reduction: Reduction | None = None
    """The reduction of the last candidate to a smaller size."""


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

    trace, rules = subject.trace, subject.rules
    games = games_of_parts(trace, rules)
    with (
        in_background(lambda: exact(trace, rules, subject.seed, games)) as models,
        in_background(lambda: dependence(trace, rules, subject.cache, games)) as sets,
    ):
        compiled = numeric(subject)
        return Verification(exact=models(), numeric=compiled, dependence=sets())


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
    from perfdojo_sdk.verify.reduced import Reduction, reduce_trace
    from perfdojo_sdk.verify.references import quick_instances

    trace, rules, cache = subject.trace, subject.rules, subject.cache
    small = reduce_trace(trace, rules, QUICK_INSTANCES, *([cache.reduction] if cache.reduction else []))
    cache.reduction = Reduction(trace, small)
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


def exact(trace: Trace, rules: Rules, seed: int, games: Sequence[Trace] = ()) -> LegResult:
    """The exact leg, on the same moves at a small shape. ``games``: of the parts of the trace's program
    (``verify/parts.py``), which are compared instead where all of them pass."""
    begin = perf_counter()
    compared = list[_Compared]()
    for game in games if len(games) > 1 else ():
        compared.append(_Compared.of(game, rules, seed, compared))
    if not compared or not all(each.report.ok for each in compared):
        compared = [_Compared.of(trace, rules, seed)]
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


class _Compared(NamedTuple):
    """A game, the same at a small shape, and what the exact leg says about that."""

    game: Trace
    small: Trace
    report: ExactTraceReport
    instances: int
    """Statement instances of one run at the end of the small game."""

    @classmethod
    def of(cls, game: Trace, rules: Rules, seed: int, others: Sequence[_Compared] = ()) -> _Compared:
        """``others``: compared before; what made them small is tried first."""
        from perfdojo_sdk.verify.exact import verify_exact_trace
        from perfdojo_sdk.verify.reduced import Reduction, reduce_trace, statement_instances

        like = [Reduction(other.game, other.small) for other in reversed(others)]
        small = reduce_trace(game, rules, EXACT_INSTANCES, *like)
        report = verify_exact_trace(small, rules.dialect, seed)
        return cls(game, small, report, statement_instances(small.program))


def affordable(subject: Subject, most: int | None = None) -> tuple[Trace, Artifact]:
    """The game and its compiled end, or the same game on a smaller kernel: of at most as many statement
    instances as the runner can run, or ``most`` of them.

    What a unit of the machine takes keeps its sizes, so that the code which ships is what is verified.
    :class:`VerificationError` when the smaller one does not compile.
    """
    from perfdojo_sdk.verify.reduced import reduce_trace, statement_instances

    trace, artifact, generator = subject.trace, subject.artifact, subject.generator
    limited = ability(subject.runner, LimitsInstances)
    can_run = limited.most_instances if limited else None
    most = min((n for n in (most, can_run) if n is not None), default=None)
    if most is None or generator is None or statement_instances(trace.program) <= most:
        return trace, artifact
    choosing = ability(generator, GeneratesAsFor)
    as_shipped = choosing.as_for(trace.program) if choosing else generator
    small = reduce_trace(trace, subject.rules, most, keeps_units=True)
    compiled = subject.runner.compile(as_shipped.generate(small.program, artifact.symbol))
    if isinstance(compiled, Failure):
        what = f"{trace.root.name} does not compile at a smaller shape: {compiled.reason}"
        hint = "`perfdojo-sdk show SOURCE --as code` prints what was compiled at the full shape"
        raise VerificationError("PD-C006", what, why=compiled.detail, hint=hint)
    return small, compiled


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
    ways to call it are for the same game at a smaller shape.
    """
    begin = perf_counter()
    played, artifact = affordable(subject)
    threads = tuple(sorted({1, 2, subject.threads}))
    smaller = _smaller(replace(subject, trace=played, artifact=artifact))
    if smaller is None:
        reports = [_compared(subject, played, artifact, threads)]
    else:
        reports = [_compared(subject, played, artifact, threads, quick=True, executions=AT_FULL_SIZE)]
        reports += [_compared(subject, *smaller, threads)] if reports[0].ok else []
    last, ok = reports[-1], reports[-1].ok
    detail = f"within the error bound on inputs: {', '.join(last.checked)}" if ok else last.problem
    shape = played if smaller is None or len(reports) == 1 else smaller[0]
    if shape is not subject.trace:
        shapes = ", ".join(f"{n} {list(shape.root.buffer_of[n].shape)}" for n in shape.root.inputs)
        some = "" if smaller is None else "; the first inputs at full size"
        detail += f"; the same moves at a smaller shape, {shapes}, which {_WHY[smaller is None]}{some}"
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


def _smaller(subject: Subject) -> tuple[Trace, Artifact] | None:
    """A large kernel's game at a smaller shape, and its compiled end; None for a kernel that is called as
    often as any other, and where there is no such shape."""
    from perfdojo_sdk.verify.reduced import statement_instances

    trace = subject.trace
    instances, buffers = statement_instances(trace.program), trace.root.buffer_of
    arguments = sum(buffers[array].cells for array in trace.root.interface)
    size = max(instances / LARGE, arguments / LARGE_ARGUMENTS)
    if size <= 1 or len(trace.steps) > SHORT_GAME * size or not subject.generator:
        return None
    small, artifact = affordable(subject, SMALLER)
    return (small, artifact) if statement_instances(small.program) <= LARGE // 10 else None


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
