"""Players on the same kernels, with several seeds each, and the best time after each evaluation.

All players get the same times: a program is evaluated once, whoever proposes it first, so that chance in a
timing favours none. If times are measured, runs follow one another. If they are simulated or estimated, runs
do not disturb each other, and are played in parallel, in processes that share the records.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any

from perfdojo_sdk.core.errors import DojoError, closest
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.experiments.rows import Rows
from perfdojo_sdk.hookspecs.search import Evaluation
from perfdojo_sdk.hookspecs.services import ExperimentRequest
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.library.arrays import available_cores
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator, Tally
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import conditions
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.search.strategies import play_out
from perfdojo_sdk.store.candidates import CandidateLog, Proposer
from perfdojo_sdk.store.database import Records

#: Options with the path of a file; results depend on its digest, which is in another option.
PLACES = ("agent",)
#: Provenances of times that do not depend on what else runs on the machine.
UNDISTURBED = ("simulated", "estimated")


@dataclass(frozen=True)
class Player:
    """One player of a contest."""

    title: str
    search: str
    """The strategy behind it."""
    options: tuple[tuple[str, str], ...] = ()
    """Options of the strategy: names and values."""
    chance: bool = True
    """True if its seed matters; otherwise it plays once."""


@dataclass(frozen=True)
class Contest:
    """A contest: players, kernels, seeds, and a number of evaluations."""

    name: str
    players: tuple[Player, ...]
    evaluations: int
    seeds: int


@dataclass(frozen=True)
class Entry:
    """One run: a player on a kernel."""

    kernel: str
    player: Player
    seed: int


def run_contest(
    request: ExperimentRequest, contest: Contest, plugins: Plugins, target: Target, kernels: Sequence[Kernel]
) -> dict[str, Any]:
    """Play all runs that are not known yet, as far as the time goes; the experiment's data, as JSON values.

    Each panel, one kernel: the time of its initial program with its provenance, and for each player, by its
    title, the best time in seconds after 1, 2, ... evaluations of each seed (None: nothing had run), and the
    seconds of processor time that each run took, in all and for thinking alone. Runs for which there was no
    time are missing; all players begin one seed before any begins the next.
    """
    until = None if request.seconds is None else time.monotonic() + request.seconds
    context = BuildContext.of(plugins, target, Settings(threads=1, evaluations=contest.evaluations))
    rows = Rows(request.folder / f"{contest.name}.rows")
    with Records(request.folder / "records.sqlite") as records:
        table = KernelEvaluators(context, kernels, records.candidates, contest.name)
        initial = {kernel.name: _kept(rows, table, kernel.name) for kernel in kernels}
        entries = [
            Entry(kernel.name, player, seed)
            for seed in range(contest.seeds)
            for kernel in kernels
            for player in contest.players
            if player.chance or seed == 0
        ]
        wanted = [entry for entry in entries if rows.get(table.key(entry)) is None]
        together = all(found["provenance"] in UNDISTURBED for found in initial.values())
        jobs = min(available_cores(), len(wanted)) if together else 1
        for entry, run in _runs(table, wanted, jobs, until):
            rows.put(table.key(entry), run)
            request.progress(_line(entry, run))
        known = {entry: rows.get(table.key(entry)) for entry in entries}
        found = {entry: run for entry, run in known.items() if run is not None}
    panels = [
        {"kernel": kernel.name, **initial[kernel.name]}
        | {
            measure: {
                player.title: [
                    run[measure] for e, run in found.items() if (e.kernel, e.player) == (kernel.name, player)
                ]
                for player in contest.players
            }
            for measure in ("best_s", "cpu_s", "thinking_s")
        }
        for kernel in kernels
    ]
    return {
        "target": target.name,
        "device": context.device,
        "evaluations": contest.evaluations,
        "seeds": contest.seeds,
        "runs": {"wanted": len(entries), "played": len(found)},
        "panels": panels,
    }


def chosen(words: str, plugins: Plugins, target: Target) -> tuple[Kernel, ...]:
    """The kernels that a selection names for a target."""
    return select(words, plugins.operators_for(target), target.dialect, target.capabilities.selections)


def among(players: Sequence[Player], titles: Sequence[str]) -> tuple[Player, ...]:
    """The players with these titles, in the players' order; without titles all players.

    :class:`DojoError` for a title that no player has.
    """
    by_title = {player.title.lower(): player for player in players}
    for title in titles:
        if title.lower() not in by_title:
            hint = closest(title, [player.title for player in players])
            raise DojoError("PD-L203", f"no player is called {title!r}", hint=hint)
    asked = {title.lower() for title in titles} or by_title.keys()
    return tuple(player for title, player in by_title.items() if title in asked)


def _kept(rows: Rows, table: KernelEvaluators, kernel: str) -> dict[str, Any]:
    """The time of the initial program, from an earlier session if it is known."""
    key = {"conditions": table.conditions[kernel]}
    known = rows.get(key)
    if known is None:
        known = table.initial(kernel)
        rows.put(key, known)
    found: dict[str, Any] = known
    return found


def _line(entry: Entry, run: dict[str, Any]) -> str:
    best = run["best_s"]
    last = f"{best[-1] * 1e6:.4g} us" if best and best[-1] else "nothing ran"
    return f"{entry.kernel}, seed {entry.seed}, {entry.player.title}: {last}"


# -- one run -------------------------------------------------------------------------------------------


class KernelEvaluators:
    """The evaluators of one target's kernels, with their caches of known times."""

    def __init__(
        self, context: BuildContext, kernels: Sequence[Kernel], store: CandidateLog, name: str
    ) -> None:
        self.context, self.name = context, name
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self.conditions = {kernel.name: context.key(kernel).digest for kernel in kernels}
        self.evaluators = {kernel.name: Evaluator(conditions(context, kernel), store) for kernel in kernels}

    def key(self, entry: Entry) -> dict[str, Any]:
        """The key of the run: everything that it depends on."""
        options = {name: value for name, value in entry.player.options if name not in PLACES}
        who = {"player": entry.player.search, "options": options, "seed": entry.seed}
        return {"conditions": self.conditions[entry.kernel], **who}

    def initial(self, kernel: str) -> dict[str, Any]:
        """The time of the initial program and its provenance."""
        evaluator = self._evaluator(kernel, Proposer(search=self.name))
        [first] = evaluator.evaluate([Trace(self.kernels[kernel].program)])
        provenance = evaluator.champion.provenance if evaluator.champion else ""
        return {"initial_s": first.seconds, "provenance": provenance}

    def play(self, entry: Entry, until: float | None = None) -> dict[str, Any]:
        """One run, as JSON values: ``best_s``, ``cpu_s`` and ``thinking_s`` (see :func:`hold`).

        :class:`TimeIsUp` when the time ``until`` is reached.
        """

        def in_time() -> None:
            if until is not None and time.monotonic() > until:
                raise TimeIsUp

        in_time()
        player = entry.player
        evaluator = self._evaluator(entry.kernel, Proposer(search=player.search, seed=entry.seed))
        task = self.context.task(self.kernels[entry.kernel])
        task = replace(task, seed=entry.seed, options=dict(player.options))
        best: list[float | None] = []
        evaluating, begin = 0.0, _processor_s()

        def watched(games: Sequence[Trace]) -> Sequence[Evaluation]:
            nonlocal evaluating
            in_time()
            before = _processor_s()
            results = evaluator.evaluate(games)
            for each in results:
                times = [s for s in (best[-1] if best else None, each.seconds) if s is not None]
                best.append(min(times, default=None))
            evaluating += _processor_s() - before
            return results

        strategy = self.context.plugins.search_strategy(player.search)
        play_out(strategy, task, watched, task.evaluations, thought=evaluator.thought)
        whole = _processor_s() - begin
        return {"best_s": best, "cpu_s": round(whole, 3), "thinking_s": round(max(0, whole - evaluating), 3)}

    def _evaluator(self, kernel: str, proposer: Proposer) -> Evaluator:
        """The kernel's evaluator, at the beginning of a search."""
        evaluator = self.evaluators[kernel]
        evaluator.conditions = replace(evaluator.conditions, proposer=proposer)
        evaluator.tally = Tally()
        return evaluator


def _processor_s() -> float:
    """Processor time so far, of this process and of its children that have ended, in seconds."""
    return sum(os.times()[:4])


# -- many runs -----------------------------------------------------------------------------------------


class TimeIsUp(Exception):
    """Raised when a run cannot be played to its end in time; caught in this module."""


def _runs(
    table: KernelEvaluators, entries: Sequence[Entry], jobs: int, until: float | None
) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Play all entries, several at a time; yields each run as soon as it is over, if that is in time."""
    if jobs <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        try:
            yield from ((entry, table.play(entry, until)) for entry in entries)
        except TimeIsUp:
            pass
        return
    # A fork has the same plugins, even those that another process could not find.
    context = multiprocessing.get_context("fork")
    start = (table, os.getpid())
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=start) as pool:
        try:
            runs = {pool.submit(_play, entry, until): entry for entry in entries}
            for run in as_completed(runs):
                try:
                    yield runs[run], run.result()
                except TimeIsUp:  # runs that have not begun raise this at once
                    pass
        except BrokenProcessPool as error:
            raise DojoError(
                "PD-L201",
                "a process in which runs are played has died",
                why=f"{error}; perhaps the memory is used up",
                hint="start the same command again, it goes on where it was",
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_table: KernelEvaluators
"""The evaluators of this child process, set by :func:`_begin`."""


def _begin(table: KernelEvaluators, parent: int) -> None:
    """Initialise a child process that plays: one core; it ends silently with its parent or on Ctrl-C."""
    global _table
    _table = table
    gc.freeze()  # objects of the parent may wait for threads that are not here
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _play(entry: Entry, until: float | None) -> dict[str, Any]:
    return _table.play(entry, until)
