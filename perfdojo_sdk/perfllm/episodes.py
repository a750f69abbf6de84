"""What an actor does: play a kernel for a while, with a copy of the agent, and bring back what it has seen.

An actor neither learns nor keeps anything: a job holds all that it needs, and the learner gets what it has
seen, vectors included, so that it need not encode anything again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from perfdojo_sdk.hookspecs.search import SearchTask, State
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import conditions
from perfdojo_sdk.perfllm import agents
from perfdojo_sdk.perfllm.encoder import Encoder, load_encoder
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.mind import Mind
from perfdojo_sdk.perfllm.player import PerfLLM
from perfdojo_sdk.perfllm.settings import AgentSettings
from perfdojo_sdk.search.strategies import BATCH
from perfdojo_sdk.store.candidates import Candidate, CandidateLog

#: Programs that an actor evaluates before it comes back: many, for a device to be busy; few, since all are
#: chosen by the network as it was at the beginning.
EVALUATIONS = 32
_NETWORK = "network."


@dataclass(frozen=True)
class Copy:
    """An agent as it is at one moment, without its memory."""

    encoder: str
    """As ``load_encoder`` reads it, on the actor's machine."""
    encoder_version: str
    settings: AgentSettings
    network: bytes = field(repr=False)
    """Its tensors, as safetensors."""

    @classmethod
    def of(cls, mind: Mind) -> Copy:
        tensors = {n: t for n, t in mind.learner.tensors().items() if n.startswith(_NETWORK)}
        return cls(mind.encoder_spec, mind.encoder.version, mind.learner.settings, agents.packed(tensors))

    def awake(self) -> Mind:
        """The same network with an empty memory, which does not learn. :class:`LearnError` if it is none."""
        encoder = _encoder(self.encoder)
        if encoder.version != self.encoder_version:
            raise agents.other_encoder("the training's agent", self.encoder_version, encoder)
        # All that is seen comes back, however little the learner keeps.
        watching = self.settings.model_copy(update={"steps_per_evaluation": 0.0, "capacity": 10**7})
        learner = Learner(watching, encoder.width)
        learner.load(agents.unpacked(self.network))
        return Mind(encoder, learner, self.encoder)


@lru_cache(maxsize=2)
def _encoder(spec: str) -> Encoder:
    """Kept from job to job, with the lines that it has seen."""
    return load_encoder(spec)


@dataclass(frozen=True)
class Job:
    """Some evaluations of one kernel, to be played anywhere."""

    number: int
    """Of the pupil."""
    target: str
    kernel: Kernel
    settings: Settings
    """Of the build; ``evaluations`` in them are those of the whole training, by which chance becomes less."""
    agent: Copy
    player: State = field(repr=False)
    """Games met and rounds played so far."""
    evaluations: int
    """How many to make now."""
    known: tuple[Candidate, ...] = field(repr=False)
    """Recorded under the same conditions; what is among them is not measured again."""

    @property
    def name(self) -> str:
        return f"{self.kernel.name} on {self.target}"


@dataclass(frozen=True)
class Experience:
    """What came of a job."""

    player: State = field(repr=False)
    skeleton: Mapping[str, Any] = field(repr=False)
    """Of the memory, with :attr:`arrays`, for :meth:`Replay.merge`."""
    arrays: Mapping[str, np.ndarray[Any, Any]] = field(repr=False)
    evaluations: int
    ended: bool
    """The player knows no more games."""
    failures: Mapping[str, int]
    """How many evaluations failed, by reason."""


def play(job: Job, context: BuildContext, store: CandidateLog) -> Experience:
    """Play ``job`` with what ``context`` has; ``store`` is told each candidate and asked for those known.

    The same job on an equal machine leads to the same games as long as their times are the same.
    """
    mind = job.agent.awake()
    player = PerfLLM(task_of(context, job.kernel), job.player, mind, alone=False)
    evaluator = Evaluator(conditions(context, job.kernel), store)
    if player.timed:  # the one to beat, as in a search that goes on
        evaluator.evaluate([player.game(player.best)])
        evaluator.tally.failures.clear()
    done, ended = 0, False
    while done < job.evaluations and not ended:
        games = player.propose(min(BATCH, job.evaluations - done))
        player.observe(evaluator.evaluate(games))
        done += len(games)
        ended = not games
    replay = mind.learner.replay
    return Experience(
        player.state(), replay.skeleton(), replay.arrays(), done, ended, dict(evaluator.tally.failures)
    )


def task_of(context: BuildContext, kernel: Kernel) -> SearchTask:
    """What a pupil plays: without the expert, from whom it would learn nothing of its own."""
    return replace(context.task(kernel), expert=None)
