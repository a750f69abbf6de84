"""The nodes' side of the work: an inspection of the node, one compilation, one run, and whole episodes.

An episode is the local search, unchanged, on the node that has the device. Instead of writing files and
records, it sends events to the driver: measured candidates first, then the state that counts them. So the
driver has all records for every state that it has, and another node can go on from there.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, TypeAlias

from perfdojo_sdk.cluster.equipment import Equipment, equipped, here
from perfdojo_sdk.cluster.offers import COMPILES
from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.hookspecs.abilities import with_compile_timeout
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.accepting import Found
from perfdojo_sdk.library.arrays import available_cores
from perfdojo_sdk.library.attempts import Rejected
from perfdojo_sdk.library.builder import KernelBuilder
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.running import compiled, toolchain_of
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import COMPILE_TIMEOUT_S, SearchStatus, Session, TuneError
from perfdojo_sdk.measure.guarded_files import private_folder
from perfdojo_sdk.store.candidates import Candidate, CandidateKey

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.episodes import Experience

#: A remote compilation that takes this many times a compiler's limit is given up, and all others with it.
PATIENCE = 3


@dataclass(frozen=True)
class Report:
    """A node's description of itself."""

    host: str
    device: str
    """The device in the words of the target's runner."""
    toolchain: str
    cores: int

    def must_equal(self, device: str, toolchain: str) -> None:
        """:class:`UnavailableError` when kernels would be compiled or timed otherwise than elsewhere."""
        if (self.device, self.toolchain) != (device, toolchain):
            why = f"it has {self.device} and {self.toolchain}, others have {device} and {toolchain}"
            hint = "install one toolchain on all nodes with equal devices"
            what = f"node {self.host} is not like the others with its device"
            raise UnavailableError("PD-N005", what, why=why, hint=hint)


def inspect(wanted: Equipment) -> Report | DojoError:
    """Check that the node has everything that it needs, and describe it."""
    try:
        plugins, target = equipped(wanted)
        return Report(here(), plugins.guarded_runner(target).device(), _toolchain(wanted), available_cores())
    except DojoError as error:
        return error


@lru_cache(maxsize=4)
def _toolchain(wanted: Equipment) -> str:
    plugins, target = equipped(wanted)
    return toolchain_of(target, plugins.guarded_generator(target), plugins.guarded_runner(target))


def compile_library(wanted: Equipment, source: KernelSource) -> Artifact | Failure | DojoError:
    """Compile with the target's own time limit."""
    try:
        plugins, target = equipped(wanted)
        return compiled(plugins.guarded_runner(target), source)
    except DojoError as error:
        return error


def run(wanted: Equipment, artifact: Artifact, request: RunRequest) -> Measurement | Failure | DojoError:
    """One run, for a driver that checks what it packaged."""
    try:
        plugins, target = equipped(wanted)
        return plugins.guarded_runner(target).run(artifact, request)
    except DojoError as error:
        return error


# -- compiling for others ------------------------------------------------------------------------------


def help_compiling(
    wanted: Equipment, toolchain: str, source: KernelSource | None
) -> Artifact | Failure | bool:
    """One compiled candidate; without a source, true if this node can compile. False if its toolchain
    differs."""
    try:
        plugins, target = equipped(wanted)
        if _toolchain(wanted) != toolchain:
            return False
        runner = with_compile_timeout(plugins.guarded_runner(target), COMPILE_TIMEOUT_S)
        return source is None or compiled(runner, source)
    except DojoError:
        return False


class Compilers:
    """Compilers of other nodes for an episode: it uses one that is ready and free, and never waits for one.

    If one fails, the episode does without them.
    """

    def __init__(self, wanted: Equipment, toolchain: str, count: int) -> None:
        import ray

        self.count = count
        self._wanted, self._toolchain = wanted, toolchain
        self._free = BoundedSemaphore(count)
        claim = {COMPILES + wanted.target: 1.0}
        self._task = ray.remote(num_cpus=0, resources=claim, max_retries=2)(help_compiling)
        self._ready = self._task.remote(wanted, toolchain, None)

    def compile(self, source: KernelSource) -> Artifact | Failure | None:
        import ray

        if not self.count or not ray.wait([self._ready], timeout=0)[0]:
            return None
        if not self._free.acquire(blocking=False):
            return None
        made = self._task.remote(self._wanted, self._toolchain, source)
        try:
            found = ray.get(made, timeout=PATIENCE * COMPILE_TIMEOUT_S)
        except Exception:  # after any error, this node's own compiler is used
            ray.cancel(made, force=True)
            found = None
        finally:
            self._free.release()
        if isinstance(found, Artifact | Failure):
            return found
        self.count = 0
        return None


# -- episodes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """The conditions that an episode expects on its node."""

    device: str
    toolchain: str
    compilers: int
    """Number of compilers on other nodes for this episode."""


@dataclass(frozen=True)
class Order:
    """One kernel to be found, measured and verified."""

    kernel: Kernel
    settings: Settings
    place: Assignment
    seconds: float | None
    """Most time for the search."""
    state: bytes | None = field(repr=False)
    """The state in which it stopped."""
    file: str
    """The driver's file with that state."""
    known: tuple[Candidate, ...] = field(repr=False)
    """Candidates that were evaluated before under the same conditions."""


@dataclass(frozen=True)
class Kept:
    """The event that a candidate was evaluated."""

    candidate: Candidate


@dataclass(frozen=True)
class Stage:
    """The event that a stage of the build begins."""

    name: str


@dataclass(frozen=True)
class Round:
    """The event that a round of the search is over."""

    status: SearchStatus
    state: bytes | None
    game: bytes | None


@dataclass(frozen=True)
class Ended:
    """The event that the episode is over, with exactly one of these fields."""

    found: Found | None = None
    experience: Experience | None = None
    """Experience of an actor."""
    rejected: str = ""
    error: DojoError | None = None


Event: TypeAlias = Kept | Stage | Round | Ended
Tell: TypeAlias = Callable[[Event], None]


def episode(wanted: Equipment, order: Order) -> Iterator[Event]:
    """Play ``order``, and yield what happens. The last event is :class:`Ended`."""
    yield from told(lambda tell: Ended(found=_found(wanted, order, tell)))


def told(play: Callable[[Tell], Ended]) -> Iterator[Event]:
    """The events of ``play`` as they happen, and its end."""
    events: SimpleQueue[Event] = SimpleQueue()
    Thread(target=_guarded, args=(play, events.put), daemon=True).start()
    ended = False
    while not ended:
        event = events.get()
        ended = isinstance(event, Ended)
        yield event


def _guarded(play: Callable[[Tell], Ended], tell: Tell) -> None:
    try:
        tell(play(tell))
    except Rejected as reason:
        tell(Ended(rejected=str(reason)))
    except DojoError as error:
        tell(Ended(error=error))
    except BaseException as error:
        why = "".join(traceback.format_exception(error)[-3:])
        what = f"an episode failed on node {here()}: {type(error).__name__}: {error}"
        tell(Ended(error=UnavailableError("PD-N006", what, why=why)))


def context_at(wanted: Equipment, settings: Settings, place: Assignment) -> BuildContext:
    """This node's context; :class:`UnavailableError` when it differs from the driver's expectation."""
    plugins, target = equipped(wanted)
    helpers = Compilers(wanted, place.toolchain, place.compilers) if place.compilers else None
    context = BuildContext.of(plugins, target, settings, helpers=helpers)
    report = Report(here(), context.device, context.toolchain, available_cores())
    report.must_equal(place.device, place.toolchain)
    return context


def _found(wanted: Equipment, order: Order, tell: Tell) -> Found:
    builder = KernelBuilder(context_at(wanted, order.settings, order.place))
    with private_folder("episode") as folder:
        files = Files(Path(folder, "state.json"), Path(folder, "game.json"))
        if order.state is not None:
            files.state.write_bytes(order.state)
        session = Session(order.seconds, files.state, files.game, order.state is not None)
        try:
            return builder.build(order.kernel, Telling(tell, files), Sending(order.known, tell), session)
        except TuneError as error:  # it names this node's file, so name the driver's instead
            what = error.what.replace(str(files.state), order.file)
            raise TuneError(error.code, what, why=error.why, hint=error.hint) from None


@dataclass(frozen=True)
class Files:
    """The files in which an episode's search keeps the state and the game that are sent to the driver."""

    state: Path
    game: Path


@dataclass(frozen=True)
class Telling:
    """A watcher that sends events to the driver."""

    tell: Tell
    files: Files

    def stage(self, kernel: Kernel, stage: str) -> None:
        self.tell(Stage(stage))

    def round(self, kernel: Kernel, status: SearchStatus) -> None:
        self.tell(Round(status, _content(self.files.state), _content(self.files.game)))


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


class Sending:
    """The candidates of one episode: those that the driver knew, and new ones, which are sent to it."""

    def __init__(self, known: tuple[Candidate, ...], tell: Tell) -> None:
        self._known = {candidate.key.digest: candidate for candidate in known}
        self._tell = tell

    def find(self, key: CandidateKey) -> Candidate | None:
        return self._known.get(key.digest)

    def put(self, candidate: Candidate) -> None:
        self._known[candidate.key.digest] = candidate
        self._tell(Kept(candidate))

    def of(self, kernel: str, target: str) -> Iterator[Candidate]:
        conditions = ((c, c.key.conditions) for c in self._known.values())
        return (c for c, key in conditions if (key.kernel, key.target) == (kernel, target))
