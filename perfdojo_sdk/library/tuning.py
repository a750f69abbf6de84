"""A search for one kernel: a player proposes games, an evaluator times them, and it may stop after any round.

The same loop plays passes. After each round the player's state is on disk, beside the records of its
proposals. A search that was stopped, by the user or by anything else, resumes from there; games that were
evaluated after the last round are taken from the records.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import ConfigDict, Field, ValidationError

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.game import Game, read_saved, write_atomically
from perfdojo_sdk.hookspecs.abilities import with_compile_timeout
from perfdojo_sdk.hookspecs.types import Artifact, RunRequest
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.arrays import available_cores
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Champion, Conditions, DeviceGone, Evaluator, Tally, Verify
from perfdojo_sdk.plugins import faults
from perfdojo_sdk.search.strategies import PlayerFailed, Progress, play_out
from perfdojo_sdk.store.candidates import Proposer
from perfdojo_sdk.store.records import Figure, RecordKey
from perfdojo_sdk.store.traces import SavedTrace, Strict, first_error

#: Most timed calls of a candidate, and the time for them together: enough to see a difference of a fifth.
#: Candidates near the top are timed again in races.
REPEATS, BUDGET_S = 20, 0.05
#: The share of a timing's budget for a first look at a game, if games are few.
LOOK = 0.3
#: Most statement instances of an initial program that is timed though a pass plays, for each second of a
#: timing: naive loops take some seconds for more of them, and their exact time does not matter.
LONG = 10**9
#: Seconds after which a compiler is stopped.
COMPILE_TIMEOUT_S = 20.0
MAX_STATE_BYTES = 256 << 20


class TuneError(DojoError):
    """A search cannot go on from where it stopped."""


class SavedSearch(Strict):
    """The file form of a search between two rounds."""

    schema_version: Literal[1] = Field(1, alias="schema")
    key: str
    """Digest of everything that the search depends on, its budget excepted."""
    evaluations: Annotated[int, Field(strict=True, ge=0)]
    elapsed_s: Annotated[float, Field(ge=0)]
    state: dict[str, Any]
    """The player's own."""
    best: SavedTrace | None
    reused: Annotated[int, Field(strict=True, ge=0)] = 0
    failures: dict[str, int] = {}
    messages: tuple[tuple[str, str, int], ...] = ()
    seconds: dict[str, float] = {}

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


@dataclass(frozen=True)
class SearchStatus:
    """The progress of a search."""

    evaluations: int
    """Proposals evaluated, earlier sessions included."""
    elapsed_s: float
    resumed: bool
    best_s: float | None
    """The fastest program's time; None as long as none was confirmed."""
    tally: Tally


class Watch(Protocol):
    """A listener to the progress of a search."""

    def round(self, kernel: Kernel, status: SearchStatus) -> None:
        """A round is over, or the whole search."""


@dataclass(frozen=True)
class Session:
    """The limits of a search, and the files that a later session needs."""

    seconds: float | None = None
    """Most wall time of the whole search, earlier sessions included."""
    file: Path | None = None
    """The player's state after each round."""
    game: Path | None = None
    """The fastest game so far, saved."""
    resume: bool = False
    """Go on from ``file`` if it is there."""


@dataclass
class Search:
    """A search in progress, or at its end."""

    evaluator: Evaluator
    evaluations: int = 0
    """Proposals evaluated, earlier sessions included."""
    initial_s: float | None = None
    elapsed_s: float = 0.0
    resumed: bool = False
    notes: list[str] = field(default_factory=list)
    earlier: list[Trace] = field(default_factory=list)
    """Games that earlier sessions and searches have kept, which this one has to beat."""
    failed: bool = False
    """True if the player failed or the device is gone, so that it ended early."""

    @property
    def tally(self) -> Tally:
        return self.evaluator.tally

    @property
    def games(self) -> list[Trace]:
        """Every game that was once the fastest, the last one first."""
        return [champion.game for champion in reversed(self.evaluator.champions)]

    @property
    def champion(self) -> Champion | None:
        return self.evaluator.champion

    @property
    def status(self) -> SearchStatus:
        """Its progress now; it stays as it is when the search goes on."""
        best_s = self.champion.seconds if self.champion else None
        return SearchStatus(self.evaluations, self.elapsed_s, self.resumed, best_s, copy.deepcopy(self.tally))


def tune(
    context: BuildContext,
    kernel: Kernel,
    evaluator: Evaluator,
    session: Session | None = None,
    watch: Watch | None = None,
) -> Search:
    """Let the context's strategy play ``kernel``, within its settings' number of evaluations.

    The initial program is evaluated first, as a baseline. An error of the player, or
    the loss of the device, ends the search with a note; its results so far are kept.
    """
    session = session or Session()
    search = Search(evaluator)
    saved = _load(session, _search_key(context, kernel)) if session.resume else None
    begin = time.monotonic() - (saved.elapsed_s if saved else 0.0)
    try:
        _begin(search, context, kernel, saved, session)
        _play(search, context, kernel, saved, session, watch, begin)
    except PlayerFailed as error:
        search.failed = True
        search.notes.append(_failed(context, error))
    except DeviceGone as error:
        search.failed = True
        search.notes.append(f"the search ended early, the device is gone: {error}")
    search.notes += [f"a game of the search is left out: {why}" for why in evaluator.refused]
    search.elapsed_s = time.monotonic() - begin
    if watch is not None:
        watch.round(kernel, search.status)
    return search


def is_long(program: Program, budget_s: float) -> bool:
    """True if an initial program takes too long to be timed beside a pass, whose games get ``budget_s``."""
    return sum(node.instances for node in program.body) > LONG * budget_s


def _failed(context: BuildContext, error: PlayerFailed) -> str:
    """The note of a search that failed; reports the fault to listeners."""
    name = context.strategy.name
    if not isinstance(error.__cause__, faults.PluginFault):  # which has said so itself
        owner = context.plugins.owner_of_strategy(name)
        faults.note(owner, f"the search {name} failed ({error})", error.__cause__)
    return f"the search {name} failed ({error})"


def _begin(
    search: Search, context: BuildContext, kernel: Kernel, saved: SavedSearch | None, session: Session
) -> None:
    """Evaluate the initial program, the champions of this search, and the game in the file of an earlier one.

    So the game that is saved there is never slower than one that any search found before.
    """
    evaluator = search.evaluator
    if not (evaluator.conditions.few and is_long(kernel.program, context.settings.budget_s)):
        [initial] = evaluator.evaluate([Trace(kernel.program)])
        search.initial_s = initial.seconds
    earlier = [_kept(session.game, context, kernel), saved.best if saved else None]
    if saved is not None:
        search.resumed = True
        search.evaluations = saved.evaluations
    for best in earlier:
        if best is not None and best.moves:
            search.earlier.append(best.replay(context.rules))
            evaluator.evaluate(search.earlier[-1:])
    # The player proposed none of these, but they took time.
    spent, evaluator.tally = evaluator.tally.seconds, _tally(saved) if saved else Tally()
    for stage, seconds in spent.items():
        evaluator.tally.seconds[stage] += seconds


def _kept(file: Path | None, context: BuildContext, kernel: Kernel) -> SavedTrace | None:
    """The game in the file of an earlier search, if it is one of this kernel that can still be played."""
    try:
        found = read_saved(file) if file is not None and file.exists() else None
        if found is None or found.target != context.target.name:
            return None
        return found.trace if found.trace.replay(context.rules).root == kernel.program else None
    except DojoError:
        return None


def _play(
    search: Search,
    context: BuildContext,
    kernel: Kernel,
    saved: SavedSearch | None,
    session: Session,
    watch: Watch | None,
    begin: float,
) -> None:
    key = _search_key(context, kernel)

    def after(progress: Progress) -> bool:
        search.evaluations = progress.evaluations
        search.tally.seconds["propose"] += progress.proposing_s
        search.elapsed_s = time.monotonic() - begin
        if session.file is not None:
            _save(session.file, search, key, progress.state)
        if session.game is not None and search.champion is not None:
            Game(context.target, context.rules, search.champion.game).save(session.game)
        if watch is not None:
            watch.round(kernel, search.status)
        return session.seconds is None or search.elapsed_s < session.seconds

    start = Progress(saved.evaluations, saved.state) if saved else None
    if saved is not None and session.seconds is not None and saved.elapsed_s >= session.seconds:
        return
    task = context.task(kernel)
    evaluator = search.evaluator
    play_out(
        context.strategy,
        task,
        evaluator.evaluate,
        context.settings.evaluations,
        start,
        after,
        evaluator.thought,
    )


# -- what a time and a search depend on -----------------------------------------------------------------


def conditions(context: BuildContext, kernel: Kernel) -> Conditions:
    """The conditions under which candidates of ``kernel`` are evaluated: briefly, one after the other."""
    settings = context.settings
    request = RunRequest(
        seed=settings.seed,
        threads=settings.threads,
        want_outputs=False,
        repeats=min(REPEATS, settings.repeats),
        budget_s=min(BUDGET_S, settings.budget_s),
        timeout_s=settings.timeout_s,
    )
    how: dict[str, Figure] = {
        "threads": request.threads,
        "seed": request.seed,
        "repeats": request.repeats,
        "budget_s": request.budget_s,
        "compile_timeout_s": COMPILE_TIMEOUT_S,
    }
    return Conditions(
        symbol=kernel.symbol,
        root=kernel.program,
        most=settings.most,
        generator=context.generator,
        runner=with_compile_timeout(context.runner, COMPILE_TIMEOUT_S),
        request=request,
        key=_key(context.key(kernel), how),
        proposer=Proposer(search=context.strategy.name, seed=settings.seed),
        workers=available_cores(),
        helpers=context.helpers,
    )


def _key(key: RecordKey, settings: Mapping[str, Figure]) -> RecordKey:
    return RecordKey.model_validate({**key.model_dump(), "settings": dict(settings)})


def _search_key(context: BuildContext, kernel: Kernel) -> str:
    """Digest of everything that a search depends on but its budget."""
    key = context.key(kernel)
    return _key(key, {k: v for k, v in key.settings.items() if k != "evaluations"}).digest


def conditions_of_few(context: BuildContext, kernel: Kernel) -> Conditions:
    """The conditions for a few games of ``kernel``, such as a pass's, which are timed for longer."""
    request = context.request(kernel)
    return replace(
        conditions(context, kernel),
        runner=context.runner,
        request=replace(request, budget_s=LOOK * request.budget_s, want_outputs=False),
        helpers=None,
        few=True,
    )


def quick_check(context: BuildContext, cache: verification.VerificationCache) -> Verify:
    """The check that a search asks of a champion; ``cache``: of other verifications of the same kernel."""

    def verify(game: Trace, artifact: Artifact) -> str:
        try:
            return verification.quick(context.subject(game, artifact, cache)).failure
        except DojoError as error:
            return f"it stopped: {error.what}"

    return verify


# -- between two sessions --------------------------------------------------------------------------------


def _save(file: Path, search: Search, key: str, state: Mapping[str, Any]) -> None:
    tally, champion = search.tally, search.champion
    saved = SavedSearch(
        schema=1,
        key=key,
        evaluations=search.evaluations,
        elapsed_s=search.elapsed_s,
        state=dict(state),
        best=SavedTrace.of(champion.game) if champion else None,
        reused=tally.reused,
        failures=dict(tally.failures),
        messages=tuple((reason, said, count) for (reason, said), count in tally.messages.items()),
        seconds=dict(tally.seconds),
    )
    write_atomically(file, saved.model_dump_json(by_alias=True))


def _load(session: Session, key: str) -> SavedSearch | None:
    """The state in which the search stopped; None when it never began; :class:`TuneError` for another's."""
    if session.file is None or not session.file.exists():
        return None
    hint = "leave out --resume to begin again; what was measured before is in the records"
    try:
        saved = SavedSearch.model_validate_json(read_bounded(session.file, MAX_STATE_BYTES))
    except OSError as error:
        what = f"cannot read {session.file}: {error.strerror}"
        raise TuneError("PD-U001", what, hint=hint) from None
    except ValidationError as error:
        what = f"{session.file} does not hold the state of a search"
        raise TuneError("PD-U001", what, why=first_error(error), hint=hint) from None
    if saved.key != key:
        why = "the kernel, target, toolchain, plugins, device or settings are not those of that search"
        raise TuneError("PD-U002", f"the search in {session.file} is another one", why=why, hint=hint)
    return saved


def can_go_on(context: BuildContext, kernel: Kernel, file: Path) -> bool:
    """True when ``file`` says where this very search stopped."""
    try:
        return _load(Session(file=file), _search_key(context, kernel)) is not None
    except TuneError:
        return False


def _tally(saved: SavedSearch) -> Tally:
    tally = Tally(saved.evaluations, saved.reused)
    tally.failures.update(saved.failures)
    tally.messages.update({(reason, said): count for reason, said, count in saved.messages})
    tally.seconds.update(saved.seconds)
    return tally


def commonest(tally: Tally, count: int = 3) -> Sequence[tuple[str, str, int]]:
    """The commonest things that were said about failures: reason, words, how often."""
    return [(reason, said, often) for (reason, said), often in tally.messages.most_common(count)]
