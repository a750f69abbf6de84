"""The driver's side of episodes: the nodes of a cluster build kernels, many at a time.

Only the driver writes records and files. If a node dies, the episode is started again from the results that
it had sent; a candidate whose result was not sent is measured again, and still has one record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar

from perfdojo_sdk.cluster import worker
from perfdojo_sdk.cluster.connection import Cluster, last_words
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.hookspecs.types import MachineFigures, Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.accepting import Found
from perfdojo_sdk.library.attempts import Rejected
from perfdojo_sdk.library.builder import KernelBuilder, Watch
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import MAX_STATE_BYTES, Session, conditions
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.store.candidates import Candidate, CandidateLog

#: Most nodes in a row that an episode may lose without a new result: the episode itself may kill them.
MOST_LOST = 4
#: Most episodes that a driver has running, or waiting for a device, at once.
AT_ONCE = 64

S = TypeVar("S")
T = TypeVar("T")


class NodeLost(Exception):
    """Raised when the node of an episode, or its worker, is gone."""


@dataclass
class Told:
    """Everything that an episode has sent so far, from which another node can continue it."""

    state: bytes | None
    """State of the search."""
    known: dict[str, Candidate] = field(default_factory=dict)
    """Digest of a key -> the candidate."""
    lost: int = 0
    """Number of nodes lost since the last new result."""


def cluster_context(
    cluster: Cluster,
    plugins: Plugins,
    target: Target,
    settings: Settings,
    figures: MachineFigures | None = None,
) -> BuildContext:
    """A driver's context for the devices in ``cluster``; the nodes measure their figures themselves."""
    figures = figures or target.capabilities.figures
    toolchain = cluster.report.toolchain
    return BuildContext.of(plugins, target, settings, figures, cluster.runner, toolchain=toolchain)


class RemoteBuilder:
    """Builds kernels on the devices of a cluster, many at a time."""

    def __init__(
        self,
        cluster: Cluster,
        plugins: Plugins,
        target: Target,
        settings: Settings,
        figures: MachineFigures | None = None,
    ) -> None:
        self.cluster = cluster
        self._stop = Event()
        self._driver = KernelBuilder(cluster_context(cluster, plugins, target, settings, figures))

    @property
    def context(self) -> BuildContext:
        return self._driver.context

    def again(self, kernel: Kernel, trace: Trace, watch: Watch) -> Found:
        """A game that was played before, verified again by the driver, with each run on a node."""
        return self._driver.again(kernel, trace, watch)

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            working = [pool.submit(work, item) for item in items]
            try:
                for done in as_completed(working):
                    done.result()  # an error, as soon as there is one
            except BaseException:  # Ctrl-C above all; what was found is kept
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        return [done.result() for done in working]

    def build(
        self,
        kernel: Kernel,
        watch: Watch,
        store: CandidateLog | None = None,
        session: Session | None = None,
    ) -> Found:
        session = session or Session()
        told = Told(_saved(session))
        if store is not None:
            key = conditions(self.context, kernel).key
            found = store.of(kernel.name, self.context.target.name)
            told.known = {c.key.digest: c for c in found if c.key.conditions == key}
        while True:
            watch.stage(kernel, "waiting")
            try:
                return self._follow(self._order(kernel, session, told), watch, store, session, told)
            except NodeLost as reason:
                told.lost += 1
                watch.stage(kernel, "lost")
                if told.lost > MOST_LOST:
                    raise Rejected(f"{told.lost} nodes in a row were lost: {reason}") from None

    def _order(self, kernel: Kernel, session: Session, told: Told) -> worker.Order:
        known, place = tuple(told.known.values()), self.cluster.place
        return worker.Order(
            kernel, self.context.settings, place, session.seconds, told.state, str(session.file), known
        )

    def _follow(
        self, order: worker.Order, watch: Watch, store: CandidateLog | None, session: Session, told: Told
    ) -> Found:
        """Let one node play, and keep the results that it sends; :class:`NodeLost` when it is gone."""
        ray = self.cluster.ray
        task = ray.remote(num_cpus=0, max_retries=0, num_returns="streaming", resources=self.cluster.claim)
        events = task(worker.episode).remote(self.cluster.wanted, order)
        ended = False
        try:
            while self.cluster.wait_for(events, self._stop.is_set):
                event = next_event(ray, events)
                if isinstance(event, worker.Ended):
                    ended = True
                    return _result(event)
                self._keep(event, order.kernel, watch, store, session, told)
            raise KeyboardInterrupt
        finally:
            if not ended:  # otherwise its worker is ready for the next episode
                ray.cancel(events, force=True)

    def _keep(
        self,
        event: worker.Event,
        kernel: Kernel,
        watch: Watch,
        store: CandidateLog | None,
        session: Session,
        told: Told,
    ) -> None:
        """Store what a local search would have stored at this moment."""
        if isinstance(event, worker.Stage):
            watch.stage(kernel, event.name)
            return
        if isinstance(event, worker.Kept):
            if event.candidate.key.digest not in told.known:
                told.lost = 0  # only for a new one: every episode sends the game to beat again
            told.known[event.candidate.key.digest] = event.candidate
            if store is not None:
                store.put(event.candidate)
        elif isinstance(event, worker.Round):
            told.state, told.lost = event.state, 0
            for file, content in ((session.file, event.state), (session.game, event.game)):
                if file is not None and content is not None:
                    write_atomically(file, content)
            watch.round(kernel, event.status)


def _saved(session: Session) -> bytes | None:
    """The state in which an earlier session stopped; the file is checked where it is used."""
    if not session.resume or session.file is None or not session.file.exists():
        return None
    return read_bounded(session.file, MAX_STATE_BYTES)


def next_event(ray: Any, events: Any) -> worker.Event:
    """The next event of an episode. Errors of the episode are events, so an exception is the node's or
    Ray's."""
    errors = ray.exceptions
    try:
        event: worker.Event = ray.get(next(events))
    except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
        raise UnavailableError("PD-N006", "an episode did not begin", why=last_words(error)) from None
    except (errors.RayError, StopIteration) as error:
        raise NodeLost(type(error).__name__) from None
    return event


def _result(ended: worker.Ended) -> Found:
    if ended.error is not None:
        raise ended.error
    if ended.found is None:
        raise Rejected(ended.rejected)
    return ended.found
