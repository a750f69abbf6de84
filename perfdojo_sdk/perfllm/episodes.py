"""The work of an actor: play one kernel for a while with a copy of the agent and return the experience.

An actor neither learns nor keeps state. A job holds all its inputs. The experience includes the encoded
vectors, so the learner encodes nothing again.
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
from perfdojo_sdk.perfllm import agent_files
from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.encoder import Encoder, load_encoder
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.player import PerfLLM
from perfdojo_sdk.perfllm.settings import AgentSettings
from perfdojo_sdk.search.strategies import BATCH
from perfdojo_sdk.store.candidates import Candidate, CandidateLog

#: Programs that an actor evaluates for one job. More of them keep a device busy; fewer let the network be
#: updated more often, since all of a job's games are chosen by one network.
EVALUATIONS = 32
_NETWORK = "network."


@dataclass(frozen=True)
class AgentSnapshot:
    """The settings and the network of an agent at one moment, without its replay memory."""

    encoder: str
    """The argument of ``load_encoder`` on the actor's machine."""
    encoder_version: str
    settings: AgentSettings
    network: bytes = field(repr=False)
    """The network's tensors as safetensors."""

    @classmethod
    def of(cls, agent: Agent) -> AgentSnapshot:
        tensors = {n: t for n, t in agent.learner.tensors().items() if n.startswith(_NETWORK)}
        network = agent_files.packed(tensors)
        return cls(agent.encoder_spec, agent.encoder.version, agent.learner.settings, network)

    def restored(self) -> Agent:
        """An agent with this network, an empty memory and learning switched off.

        :class:`LearnError` when the encoder here is of another version.
        """
        encoder = _encoder(self.encoder)
        if encoder.version != self.encoder_version:
            raise agent_files.other_encoder("the training's agent", self.encoder_version, encoder)
        # All that is seen comes back, however little the learner keeps.
        watching = self.settings.model_copy(update={"steps_per_evaluation": 0.0, "capacity": 10**7})
        learner = Learner(watching, encoder.width)
        learner.load(agent_files.unpacked(self.network))
        return Agent(encoder, learner, self.encoder)


@lru_cache(maxsize=2)
def _encoder(spec: str) -> Encoder:
    """The encoder of ``spec``, cached across jobs with the line vectors it has computed."""
    return load_encoder(spec)


@dataclass(frozen=True)
class Job:
    """A number of evaluations of one kernel, for any process to play."""

    number: int
    """The number of the training task."""
    target: str
    kernel: Kernel
    settings: Settings
    """The context's settings; their ``evaluations`` are those of the whole training, which the schedule of
    epsilon uses."""
    agent: AgentSnapshot
    player: State = field(repr=False)
    """The player's state: games met and rounds played."""
    evaluations: int
    """Evaluations to make in this job."""
    known: tuple[Candidate, ...] = field(repr=False)
    """Candidates recorded under the same conditions; they are not measured again."""

    @property
    def name(self) -> str:
        return f"{self.kernel.name} on {self.target}"


@dataclass(frozen=True)
class Experience:
    """The result of a job."""

    player: State = field(repr=False)
    skeleton: Mapping[str, Any] = field(repr=False)
    """The replay without its vectors, for :meth:`Replay.merge` together with :attr:`arrays`."""
    arrays: Mapping[str, np.ndarray[Any, Any]] = field(repr=False)
    evaluations: int
    ended: bool
    """True if the player found no further game."""
    failures: Mapping[str, int]
    """Number of failed evaluations by reason."""


def play(job: Job, context: BuildContext, store: CandidateLog) -> Experience:
    """Play ``job`` on the device of ``context``; ``store`` supplies known candidates and receives new ones.

    Equal jobs lead to equal games if their times are equal.
    """
    agent = job.agent.restored()
    player = PerfLLM(task_of(context, job.kernel), job.player, agent, alone=False)
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
    replay = agent.learner.replay
    return Experience(
        player.state(), replay.skeleton(), replay.arrays(), done, ended, dict(evaluator.tally.failures)
    )


def task_of(context: BuildContext, kernel: Kernel) -> SearchTask:
    """The search task of a kernel without the target's expert, so that the agent finds games itself."""
    return replace(context.task(kernel), expert=None)
