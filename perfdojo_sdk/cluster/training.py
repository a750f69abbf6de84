"""The driver's side of a training: actors on the nodes that have the targets' devices.

As with other episodes, only the driver writes records, and a job that loses its node is started again from
the results that it had sent, which are not measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfdojo_sdk.cluster import actor, worker
from perfdojo_sdk.cluster.connection import LOOK_S, Cluster, Patience
from perfdojo_sdk.cluster.remote_builder import MOST_LOST, NodeLost, cluster_context, next_event
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.perfllm.episodes import Experience, Job
from perfdojo_sdk.store.candidates import CandidateLog

#: Jobs for each device: one that runs, and one that waits, so that no device waits for the learner.
JOBS = 2


@dataclass
class Away:
    """A job that runs on a node."""

    job: Job
    """The job, with all results that its actors have sent."""
    cluster: Cluster
    lost: int = 0
    """Number of actors lost since the last new result."""


class ClusterActors:
    """Actors that run jobs on a cluster; see :class:`perfdojo_sdk.perfllm.actors.Actors`."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        store: CandidateLog | None,
        lost: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``clusters``: by the name of the target in the plan; ``lost`` is called when actors die."""
        self.clusters, self.store, self.lost = clusters, store, lost
        self._patience = {cluster.target.name: Patience(cluster) for cluster in clusters.values()}
        self._away: dict[Any, Away] = {}

    @property
    def room(self) -> int:
        return JOBS * max(1, sum(patience.cluster.devices for patience in self._patience.values()))

    def context(self, target: str, settings: Settings) -> BuildContext:
        cluster = self.clusters[target]
        return cluster_context(cluster, cluster.plugins, cluster.target, settings)

    def order(self, job: Job) -> None:
        self._send(Away(job, self._patience[job.target].cluster))

    def _send(self, away: Away) -> None:
        cluster = away.cluster
        task = cluster.ray.remote(
            num_cpus=0, max_retries=0, num_returns="streaming", resources=cluster.claim
        )(actor.act)
        self._away[task.remote(cluster.wanted, away.job, cluster.place)] = away

    def next(self) -> tuple[Job, Experience] | None:
        """The next finished job. :class:`DojoError` when an actor raises one, or actors die again and
        again."""
        ray = next(iter(self._patience.values())).cluster.ray
        ready, _ = ray.wait(list(self._away), timeout=LOOK_S)
        for events in ready:
            away = self._away[events]
            try:
                event = next_event(ray, events)
            except NodeLost as reason:
                self._again(events, str(reason))
                continue
            if isinstance(event, worker.Kept):
                self._keep(away, event)
            elif isinstance(event, worker.Ended):
                if event.error is not None:
                    raise event.error
                if event.experience is None:
                    self._again(events, event.rejected)
                    continue
                del self._away[events]
                return away.job, event.experience
        if not ready:
            for away in self._away.values():
                self._patience[away.job.target].look()
        return None

    def _keep(self, away: Away, event: worker.Kept) -> None:
        digest = event.candidate.key.digest
        if all(digest != each.key.digest for each in away.job.known):
            away.lost = 0  # only for a new one: every actor sends the game to beat again
        away.job = replace(away.job, known=(*away.job.known, event.candidate))
        if self.store is not None:
            self.store.put(event.candidate)

    def _again(self, events: Any, reason: str) -> None:
        """Start a job again, since its actor is gone."""
        away = self._away.pop(events)
        away.lost += 1
        self.lost(f"{away.job.name}: an actor was lost ({reason}); its games are ordered again")
        if away.lost > MOST_LOST:
            raise UnavailableError(
                "PD-N101",
                f"{away.lost} actors in a row were lost while they played {away.job.name}",
                why=f"the last one: {reason}",
                hint="see what happens on the nodes, or leave that kernel out; --resume goes on",
            )
        self._send(away)

    def stop(self) -> None:
        ray = next(iter(self._patience.values())).cluster.ray
        for events in self._away:
            ray.cancel(events, force=True)
        self._away.clear()
