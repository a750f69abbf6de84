"""One kernel from its initial program to a verified, measured record, or to a reason why not.

A strategy plays, by default the target's expert, and its games must pass the three legs of verification on
the compiled code. If they do not, or are slower, the initial program takes their place and the record says
so: a faulty player never leaves a library empty.

Passes and searches take the same steps: :mod:`.tuning` lets them propose, :mod:`.evaluation` gives times,
:mod:`.ranking` orders the games, :mod:`.accepting` verifies and records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from perfdojo_sdk.core.frozen import seldom_collected
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Failure, MachineFigures, Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library import tuning
from perfdojo_sdk.library.accepting import Found, accept
from perfdojo_sdk.library.attempts import Attempt, Rejected, median
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.library.kept_initial import Proposals, why_kept
from perfdojo_sdk.library.ranking import FINALISTS, ranked
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.verification import SharedResults, VerificationCache
from perfdojo_sdk.library.work import KernelWork, Roofline
from perfdojo_sdk.plugins import Plugins, faults
from perfdojo_sdk.search.strategies import HEURISTIC, PASSES
from perfdojo_sdk.store.candidates import CandidateLog

if TYPE_CHECKING:
    pass

S = TypeVar("S")
T = TypeVar("T")

#: The reason why the initial program has no time beside a pass.
SLOW = Failure("timeout", "naive loops over so many elements are not timed")
#: Stage of the evaluator -> the stage that a watcher is told.
_SAID = {"compile": "compiling", "measure": "measuring"}


class Watch(tuning.Watch, Protocol):
    """A listener to the progress of one kernel."""

    def stage(self, kernel: Kernel, stage: str) -> None: ...


class Builder(Protocol):
    """Builds kernels for one target: :class:`KernelBuilder` does on this machine."""

    @property
    def context(self) -> BuildContext: ...

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """The results of ``work``, which calls :meth:`build`, for ``items``: as many at once as possible."""
        ...

    def build(
        self,
        kernel: Kernel,
        watch: Watch,
        store: CandidateLog | None = None,
        session: tuning.Session | None = None,
    ) -> Found:
        """Find, measure and verify; :class:`Rejected` when not even the initial program passes.

        ``store`` and ``session`` are for searches that explore. The record holds faults of plugins.
        """
        ...

    def again(self, kernel: Kernel, trace: Trace, watch: Watch) -> Found:
        """A game that was played before, verified and measured anew; :class:`Rejected` when it fails."""
        ...


class MakeBuilder(Protocol):
    """Makes a builder; :func:`builder_here` makes that of this machine."""

    def __call__(
        self, plugins: Plugins, target: Target, settings: Settings, figures: MachineFigures | None = None
    ) -> Builder: ...


def builder_here(
    plugins: Plugins, target: Target, settings: Settings, figures: MachineFigures | None = None
) -> Builder:
    """Builds on this machine. ``figures``: its speeds; by default the plugin measures them."""
    return KernelBuilder(BuildContext.of(plugins, target, settings, figures))


class KernelBuilder:
    """Builds kernels one after the other, with the context's runner.

    ``shared``: results of verifications, which several builders may share.
    """

    def __init__(self, context: BuildContext, shared: SharedResults | None = None) -> None:
        self._context, self._roofline = context, Roofline(context)
        self._shared = shared or SharedResults()

    @property
    def context(self) -> BuildContext:
        return self._context

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        return [work(item) for item in items]

    @seldom_collected()
    def build(
        self,
        kernel: Kernel,
        watch: Watch,
        store: CandidateLog | None = None,
        session: tuning.Session | None = None,
    ) -> Found:
        with faults.heard() as heard:
            work = self._work(kernel, watch)
            few = _evaluator_of_few(work)
            explores = self.context.strategy.name not in PASSES
            if explores or not tuning.is_long(kernel.program, self.context.settings.budget_s):
                few.evaluate([Trace(kernel.program)])
            proposals = _explored(work, few, watch, store, session) if explores else _passed(work, few)
            found = _shipped(work, few, proposals)
        return replace(found, record=found.record.model_copy(update={"faults": tuple(heard)}))

    @seldom_collected()
    def again(self, kernel: Kernel, trace: Trace, watch: Watch) -> Found:
        work = self._work(kernel, watch)
        few, initial = _evaluator_of_few(work, trace.kind), Trace(kernel.program)
        few.evaluate([initial, trace])
        return accept(work, _attempt_of(few, trace), _attempt_of(few, initial))

    def _work(self, kernel: Kernel, watch: Watch) -> KernelWork:
        cache = VerificationCache(shared=self._shared)
        return KernelWork(
            self.context, kernel, self._roofline, lambda stage: watch.stage(kernel, stage), cache=cache
        )


def _evaluator_of_few(work: KernelWork, most: Kind = Kind.EXACT) -> Evaluator:
    """The evaluator of the few games that are timed with care; games of kind ``most`` may be among them."""
    conditions = tuning.conditions_of_few(work.context, work.kernel)
    conditions = replace(conditions, most=max(most, conditions.most))
    return Evaluator(conditions, spent=work.spent, begins=lambda stage: work.stage(_SAID[stage]))


def _attempt_of(few: Evaluator, game: Trace) -> Attempt:
    """The attempt of a game that was evaluated."""
    return few.kept[few.digest(game)]


def _played(few: Evaluator) -> list[Attempt]:
    """Attempts of all games that were evaluated and have moves, in their order."""
    return [attempt for attempt in few.kept.values() if attempt.trace.steps]


def _passed(work: KernelWork, few: Evaluator) -> Proposals:
    """The fastest few games of a pass."""
    context = work.context
    player = context.strategy.name
    if player == HEURISTIC and context.expert is None:
        return Proposals(player, without=context.target.name)
    work.stage("searching")
    with work.spent.on("search"):
        search = tuning.tune(context, work.kernel, few)
    work.notes.extend(search.notes)
    played = sorted(_played(few), key=median)
    return Proposals(player, played[:FINALISTS], len(played), few.refused, search.failed)


def _explored(
    work: KernelWork,
    few: Evaluator,
    watch: Watch,
    store: CandidateLog | None,
    session: tuning.Session | None,
) -> Proposals:
    """The finalists of a search, evaluated among few.

    They are the last few champions and the games that the search began with: what an earlier one kept and, if
    it timed any of them, all of the expert's games. The best of these may have been discarded for a time that
    a busy machine disturbed, or the budget may have been too small for all of them.
    """
    work.stage("searching")
    context, kernel = work.context, work.kernel
    check = tuning.quick_check(context, work.cache)
    many = Evaluator(tuning.conditions(context, kernel), store, check, work.spent)
    with work.spent.on("search"):
        search = tuning.tune(context, kernel, many, session, watch)
    work.notes.extend(search.notes)
    champions = [game for game in search.games if game.steps][:FINALISTS]
    expert = _expert_games(work)
    opening = [*search.earlier, *(expert if any(many.has_timed(game) for game in expert) else ())]
    few.evaluate([*opening, *champions])
    began = {few.digest(game) for game in opening}
    attempts = [replace(attempt, began=few.digest(attempt.trace) in began) for attempt in _played(few)]
    return Proposals(
        context.strategy.name,
        attempts,
        search.evaluations,
        many.refused,
        search.failed,
        failures=dict(search.tally.failures),
    )


def _expert_games(work: KernelWork) -> Sequence[Trace]:
    """The games of the target's expert; none if it fails, which the search has reported already."""
    task = work.context.task(work.kernel)
    try:
        return tuple(task.expert(task.root, task.rules, task.target)) if task.expert else ()
    except Exception:  # a plugin's code
        return ()


def _shipped(work: KernelWork, few: Evaluator, proposals: Proposals) -> Found:
    """The best attempt that passes verification, or else the initial program, which has no time as yet if its
    loops are long; :class:`Rejected` when it does not pass either."""
    initial, rejected = Trace(work.kernel.program), list[tuple[Attempt, str]]()
    attempts = proposals.attempts
    if few.digest(initial) not in few.kept:
        with suppress(Rejected):
            return _best(work, attempts, Attempt(initial, reason=SLOW), proposals, rejected)
        attempts = []
        few.evaluate([initial])
    return _best(work, attempts, _attempt_of(few, initial), proposals, rejected)


def _best(
    work: KernelWork,
    attempts: Sequence[Attempt],
    initial: Attempt,
    proposals: Proposals,
    rejected: list[tuple[Attempt, str]],
) -> Found:
    """The first attempt, in order of time, that passes verification; :class:`Rejected` when none does.

    Games that are not accepted are added to ``rejected``, with the reasons.
    """
    order = ranked(work, attempts, initial)
    if not order[0].untimed:
        late = [attempt for attempt in order if attempt.untimed and attempt.trace.steps]
        work.notes.extend(
            f"{attempt.label} is left out: it has no figure ({attempt.failure})" for attempt in late
        )
    reasons = []
    for attempt in order:
        if attempt.trace.steps:
            said = _kept(attempt, order)
        else:
            timed = replace(proposals, attempts=[a for a in order if a.trace.steps] or proposals.attempts)
            said = [why_kept(timed, attempt, rejected)]
        work.notes.extend(said)
        try:
            return accept(work, attempt, initial)
        except Rejected as reason:
            del work.notes[len(work.notes) - len(said) :]
            reasons.append(str(reason))
            work.notes.append(f"{attempt.label} is left out: {reason}")
            if attempt.trace.steps:
                rejected.append((attempt, str(reason)))
    raise Rejected("; ".join(dict.fromkeys(reasons)))


def _kept(attempt: Attempt, order: Sequence[Attempt]) -> list[str]:
    """The note that says whether a search has found a faster game than those that it began with."""
    began = min((a for a in order if a.began and a.measured is not None), key=median, default=None)
    if began is None or attempt.measured is None or not attempt.trace.steps:
        return []
    if attempt.began:
        return ["a game that the search began with is kept: in turns, none that it found is faster"]
    faster = median(began) / median(attempt)
    return [f"a game that the search found is kept: in turns, {faster:.2f} times as fast as where it began"]
